# A part of _ordered.pyx: keys to bytes that sort as the keys do, and back.

cdef enum:
    STR
    BYTES
    INT
    UUID
    INSTANT
    NEAR = 256      # bytes of an encoded key that need no allocation
    END = 0         # behind text in a tuple
    ESCAPE = 1      # before what stands for the bytes 0 and 1 in such text

NAMES = ("str", "bytes", "int", "uuid", "datetime")  # in the order of the enum

cdef struct Room:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    uint8_t near[NEAR]

cdef inline void open_room(Room* room) noexcept nogil:
    room.data = room.near
    room.size = 0
    room.capacity = NEAR

cdef inline void close_room(Room* room) noexcept nogil:
    if room.data != room.near:
        free(room.data)
        room.data = room.near

cdef inline int need(Room* room, Py_ssize_t more) except -1 nogil:
    if room.size + more > room.capacity:
        grow(room, more)
    return 0

cdef int grow(Room* room, Py_ssize_t more) except -1 nogil:
    cdef Py_ssize_t capacity = 2 * (room.size + more)
    cdef uint8_t* data = <uint8_t*>malloc(capacity)
    if data is NULL:
        with gil:
            raise MemoryError("no memory for a key")
    memcpy(data, room.data, room.size)
    close_room(room)
    room.data = data
    room.capacity = capacity
    return 0

cdef inline void write_word(uint8_t* target, uint64_t word) noexcept nogil:
    cdef int i
    for i in range(8):
        target[i] = <uint8_t>(word >> (56 - 8 * i))

cdef inline void write_signed(uint8_t* target, int64_t number) noexcept nogil:
    """9 bytes: 0 for a negative number and 1 for others, and then its two's complement."""
    target[0] = number >= 0
    write_word(target + 1, <uint64_t>number)

cdef inline int put_text(Room* room, const uint8_t* data, Py_ssize_t size) except -1 nogil:
    """Text in a tuple: 0 becomes 1 1, and 1 becomes 1 2, so a 0 can end it."""
    cdef Py_ssize_t i
    cdef uint8_t byte
    need(room, 2 * size + 1)
    for i in range(size):
        byte = data[i]
        if byte <= ESCAPE:
            room.data[room.size] = ESCAPE
            room.size += 1
            byte += 1
        room.data[room.size] = byte
        room.size += 1
    room.data[room.size] = END
    room.size += 1
    return 0

cdef object kind_of(object key):
    """The name of what a key is, None if it is no key."""
    if PyUnicode_Check(key):
        return "str"
    if isinstance(key, (bytes, bytearray, memoryview)):
        return "bytes"
    if PyLong_Check(key):
        return None if PyBool_Check(key) else "int"
    if isinstance(key, Integer) and not isinstance(key, np.timedelta64):
        return "int"
    uuid = sys.modules.get("uuid")  # a UUID exists only where its module was imported
    if uuid is not None and isinstance(key, uuid.UUID):
        return "uuid"
    return "datetime" if isinstance(key, datetime) else None


cdef str type_name(object key):
    return "None" if key is None else type(key).__qualname__


@cython.final
cdef class Shape:
    """What the keys of a map are: "str", "bytes", "int", "uuid", "datetime", or a tuple of these.

    Turns keys to bytes and back; bytes compare as the keys do. Immutable.
    """

    cdef readonly object parts      # as it was given: a name, or a tuple of names
    cdef bint many
    cdef Py_ssize_t count
    cdef int[MOST_PARTS] codes
    cdef int plain                  # the code of keys that are no tuples, else -1

    def __cinit__(self, parts):
        cdef tuple names = parts if isinstance(parts, tuple) else (parts,)
        self.many = isinstance(parts, tuple)
        self.count = len(names)
        if not 1 <= self.count <= MOST_PARTS:
            raise ValueError(f"a tuple of keys has from 1 to {MOST_PARTS} parts, not {self.count}")
        for i, name in enumerate(names):
            if name not in NAMES:
                raise ValueError(f"keys are made of {', '.join(NAMES)}, or tuples of these, not {name!r}")
            self.codes[i] = NAMES.index(name)
        self.parts = parts
        self.plain = -1 if self.many else self.codes[0]

    @staticmethod
    def of(key):
        """Return the shape of a key.

        Raises:
            TypeError: The key is of a type that has no order here.
        """
        names = [kind_of(part) for part in (key if isinstance(key, tuple) else (key,))]
        for name, part in zip(names, key if isinstance(key, tuple) else (key,)):
            if name is None:
                raise TypeError("a key must be str, bytes, int, uuid.UUID, an aware datetime, or a tuple "
                                f"of these, not {type_name(part)}")
        return Shape(tuple(names) if isinstance(key, tuple) else names[0])

    def __eq__(self, other):
        return isinstance(other, Shape) and self.parts == (<Shape>other).parts

    def __hash__(self):
        return hash(self.parts)

    def __reduce__(self):
        return Shape, (self.parts,)

    def __str__(self):
        return f"({', '.join(self.parts)}{',' if self.count == 1 else ''})" if self.many else self.parts

    def __repr__(self):
        return f"<Shape {self}>"

    cdef int refuse(self, object key, object part) except -1:
        if self.many and part is not key:
            raise TypeError(f"the keys of this map are tuples {self}, and part "
                            f"{[p is part for p in key].index(True)} of this one is {type_name(part)}")
        raise TypeError(f"the keys of this map are {self}, not {type_name(key)}")

    cdef int put(self, Room* room, object key, object part, int code) except -1:
        """Write one part of a key; text ends itself only within a tuple."""
        cdef const char* text
        cdef Py_ssize_t size
        cdef Py_buffer view
        cdef int overflow
        cdef int64_t number
        if code == STR:
            if not PyUnicode_Check(part):
                self.refuse(key, part)
            text = PyUnicode_AsUTF8AndSize(part, &size)
            return self.put_bytes(room, <const uint8_t*>text, size)
        if code == BYTES:
            if not isinstance(part, (bytes, bytearray, memoryview)):
                self.refuse(key, part)
            if isinstance(part, memoryview) and not part.c_contiguous:
                part = part.tobytes()
            PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
            try:
                self.put_bytes(room, <const uint8_t*>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
            return 0
        need(room, 16)
        if code == INT:
            if kind_of(part) != "int":
                self.refuse(key, part)
            if not PyLong_Check(part):
                part = part.__index__()
            number = PyLong_AsLongLongAndOverflow(part, &overflow)
            if overflow == 0:
                write_signed(room.data + room.size, number)
            elif overflow > 0 and part < 18446744073709551616:
                room.data[room.size] = 1
                write_word(room.data + room.size + 1, PyLong_AsUnsignedLongLong(part))
            else:
                raise OverflowError("an int key must be at least -2**63 and less than 2**64, "
                                    f"not a number of {part.bit_length()} bits")
            room.size += 9
        elif code == UUID:
            if kind_of(part) != "uuid":
                self.refuse(key, part)
            part = part.bytes
            memcpy(room.data + room.size, PyBytes_AS_STRING(part), 16)
            room.size += 16
        else:
            if not isinstance(part, datetime):
                self.refuse(key, part)
            number = instant_of(part)
            write_word(room.data + room.size, <uint64_t>number ^ (<uint64_t>1 << 63))
            room.size += 8
        return 0

    cdef inline int put_bytes(self, Room* room, const uint8_t* data, Py_ssize_t size) except -1:
        if self.many:
            put_text(room, data, size)
        else:
            need(room, size)
            memcpy(room.data + room.size, data, size)
            room.size += size
        return 0

    cdef int write(self, Room* room, object key, bint whole) except -1:
        """Write a key; unless `whole`, a tuple may be the beginning of one."""
        cdef Py_ssize_t i, count
        if not self.many:
            return self.put(room, key, key, self.codes[0])
        if not isinstance(key, tuple):
            self.refuse(key, key)
        count = PyTuple_GET_SIZE(key)
        if count > self.count or (whole and count < self.count):
            raise ValueError(f"the keys of this map are tuples {self}, and this one has {count} parts"
                             if whole else f"a bound of this map has at most the parts {self}, not {count}")
        for i in range(count):
            self.put(room, key, <object>PyTuple_GET_ITEM(key, i), self.codes[i])
        return 0

    cdef inline int read(self, PyObject* key, Room* room, Text* text) except -1:
        """Point to the bytes of a key: to its own where it has them, or to the room."""
        if self.plain == STR and is_str(key) and is_ascii(key):
            text.data = <const uint8_t*>str_data(key)
            text.size = str_size(key)
            return 0
        if self.plain == BYTES and is_bytes(key):
            text.data = <const uint8_t*>bytes_data(key)
            text.size = bytes_size(key)
            return 0
        self.write(room, <object>key, True)
        text.data = room.data
        text.size = room.size
        return 0

    def encode(self, key, bint whole=True):
        """Return the bytes of a key, which sort as keys do; with whole=False also of a tuple's beginning."""
        cdef Room room
        open_room(&room)
        try:
            self.write(&room, key, whole)
            return PyBytes_FromStringAndSize(<char*>room.data, room.size)
        finally:
            close_room(&room)

    def decode(self, bytes data not None):
        """Return the key, or the beginning of a tuple, whose bytes these are.

        Raises:
            ValueError: No key has these bytes.
        """
        if not self.many:
            key, end = self.take(data, 0, self.codes[0])
            if end != len(data):
                raise ValueError(f"there are {len(data) - end} bytes behind the key")
            return key
        parts = []
        end = 0
        while end < len(data):
            if len(parts) == self.count:
                raise ValueError(f"there are {len(data) - end} bytes behind the key")
            part, end = self.take(data, end, self.codes[len(parts)])
            parts.append(part)
        return tuple(parts)

    cdef tuple take(self, bytes data, Py_ssize_t begin, int code):
        cdef Py_ssize_t end
        if code == STR or code == BYTES:
            if self.many:
                end = data.find(b"\0", begin)
                if end < 0:
                    raise ValueError("the text of a key has no end")
                text = unescaped(data[begin:end])
                end += 1
            else:
                end = len(data)
                text = data
            return (text.decode() if code == STR else text), end
        end = begin + (9 if code == INT else 16 if code == UUID else 8)
        if end > len(data):
            raise ValueError(
                f"a key of {NAMES[code]} has {end - begin} bytes, and {len(data) - begin} are there")
        part = data[begin:end]
        if code == INT:
            number = int.from_bytes(part[1:], "big", signed=part[0] == 0)
            if part[0] > 1 or (part[0] == 0 and number >= 0):
                raise ValueError("these 9 bytes are not an int")
            return number, end
        if code == UUID:
            import uuid
            return uuid.UUID(bytes=part), end
        return instant_from(int.from_bytes(part, "big") - (1 << 63)), end


cdef bytes unescaped(bytes text):
    if b"\1" not in text:
        return text
    out = bytearray()
    escaped = False
    for byte in text:
        if escaped:
            if not 1 <= byte <= 2:
                raise ValueError(f"the byte {byte} does not follow a byte 1 in the text of a key")
            out.append(byte - 1)
            escaped = False
        elif byte == ESCAPE:
            escaped = True
        else:
            out.append(byte)
    if escaped:
        raise ValueError("the text of a key ends with a byte 1")
    return bytes(out)


cdef int64_t instant_of(object moment) except? -1:
    """Microseconds since 1970 in UTC. Python's own comparison of two moments of one zone ignores the
    fold, so the repeated hour of autumn would be one hour."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"a datetime key needs a time zone, and {moment!r} has none; "
                         "write moment.replace(tzinfo=timezone.utc)")
    cdef object since = moment.replace(tzinfo=None) - offset - EPOCH
    since = (since.days * 86400 + since.seconds) * 1000000 + since.microseconds
    if not FIRST_INSTANT <= since <= LAST_INSTANT:
        raise OverflowError(f"a datetime key must lie in the years 1 to 9999 of UTC, and {moment!r} does not")
    return since


cdef object instant_from(object number):
    try:
        return (EPOCH + timedelta(microseconds=number)).replace(tzinfo=timezone.utc)
    except OverflowError:
        raise ValueError("a moment lies outside of the years 1 to 9999") from None

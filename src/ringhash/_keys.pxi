# A part of _core.pyx: how a key is read, and its position.

cdef struct KeyBytes:
    const uint8_t* data        # what is hashed, tags narrowed
    Py_ssize_t size
    uint64_t hash
    uint8_t[8] word            # the bytes of an int


cdef class Answering:
    """What names the owner of a key; base of every compiled table."""

    cdef object owner_of(self, object key):
        raise TypeError(f"{type(self).__name__} has no owners")


cdef class HashSpace(Answering):
    """How a key becomes a position: the seed and whether hash tags count."""

    cdef readonly uint64_t seed
    cdef readonly bint hash_tags

    def __cinit__(self, *args, **options):
        self.seed = 0
        self.hash_tags = False

    def __init__(self, uint64_t seed=0, bint hash_tags=False):
        self.seed = seed
        self.hash_tags = hash_tags

    cdef inline uint32_t position_of_bytes(self, const void* data, Py_ssize_t size) noexcept nogil:
        if rare(self.hash_tags):
            return self.position_of_tag(data, size)
        return <uint32_t>(hash_bytes(<const uint8_t*>data, size, self.seed) >> 32)

    @cython.final
    cdef uint32_t position_of_tag(self, const void* data, Py_ssize_t size) noexcept nogil:
        return hash_position(<const uint8_t*>data, size, self.seed, True)

    cdef inline uint32_t position_of_word(self, uint64_t word) noexcept nogil:
        return <uint32_t>(xxh3_word(word, self.seed) >> 32)

    cdef inline int64_t position_of(self, PyObject* key) except -1:
        """The position of a key of any kind; `key` is borrowed."""
        cdef long long number
        cdef int overflow
        if is_str(key):
            if is_ascii(key):
                return self.position_of_bytes(str_data(key), str_size(key))
        elif is_bytes(key):
            return self.position_of_bytes(bytes_data(key), bytes_size(key))
        elif is_int(key):
            number = int_value(key, &overflow)
            if overflow == 0:
                return self.position_of_word(<uint64_t>number)
        return self.slow_position(<object>key)

    @cython.final
    cdef int64_t position_off_path(self, object key) except -1:
        """As `position_of`, where a call more does not count: the compiler inlines what has few callers."""
        return self.position_of(<PyObject*>key)

    cdef int64_t slow_position(self, object key) except -1:
        cdef KeyBytes read
        self.slow_read(key, &read)  # what it returns has lived long enough: the hash is taken
        return <uint32_t>(read.hash >> 32)

    cdef inline object read_key(self, PyObject* key, KeyBytes* read):
        """Read a key and hash it; the bytes live as long as `key` and what this returns."""
        cdef long long number
        cdef int overflow
        if is_str(key):
            if is_ascii(key):
                self.read_bytes(str_data(key), str_size(key), read)
                return None
        elif is_bytes(key):
            self.read_bytes(bytes_data(key), bytes_size(key), read)
            return None
        elif is_int(key):
            number = int_value(key, &overflow)
            if overflow == 0:
                self.read_word(<uint64_t>number, read)
                return None
        return self.slow_read(<object>key, read)

    cdef inline void read_bytes(self, const void* data, Py_ssize_t size, KeyBytes* read) noexcept nogil:
        read.data = <const uint8_t*>data
        read.size = size
        if self.hash_tags:
            narrow(&read.data, &read.size)
        read.hash = hash_bytes(read.data, read.size, self.seed)

    cdef inline void read_word(self, uint64_t word, KeyBytes* read) noexcept nogil:
        write64(read.word, word)
        read.data = read.word
        read.size = 8
        read.hash = xxh3_word(word, self.seed)

    cdef object slow_read(self, object key, KeyBytes* read):
        """As `read_key`, and the one place that knows every type that a key may have."""
        cdef const char* text
        cdef Py_ssize_t size
        cdef object kind
        if PyUnicode_Check(key):
            text = PyUnicode_AsUTF8AndSize(key, &size)
            self.read_bytes(text, size, read)
            return None
        if PyLong_Check(key) and not PyBool_Check(key):
            self.read_word(word_of(key), read)
            return None
        if isinstance(key, (bytearray, memoryview)):
            key = memoryview(key).tobytes()  # which no other thread can change meanwhile
        if PyBytes_Check(key):
            self.read_bytes(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), read)
            return key
        kind = type(key)
        if isinstance(key, Integer) and hasattr(key, "__index__"):
            self.read_word(word_of(key.__index__()), read)
            return None
        uuid = sys.modules.get("uuid")  # a UUID exists only where its module was imported
        if uuid is not None and isinstance(key, uuid.UUID):
            key = key.bytes
            if not isinstance(key, bytes):
                raise TypeError(f"the bytes of a UUID must be bytes, not {type(key).__name__}")
            read.data = <const uint8_t*>PyBytes_AS_STRING(key)
            read.size = PyBytes_GET_SIZE(key)
            read.hash = hash_bytes(read.data, read.size, self.seed)  # in which a tag is chance
            return key
        raise TypeError("a key must be str, bytes, bytearray, memoryview, int or uuid.UUID, not "
                        f"{kind.__module__ + '.' if kind.__module__ != 'builtins' else ''}"
                        f"{kind.__qualname__}")

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key`, from 0 to 2**32 - 1: the upper half of its XXH3-64 hash.

Args and errors as for `owner`.

>>> from ringhash import Ring
>>> Ring(["gw-1"]).position("user:7")
6795815
"""
        return self.position_off_path(key)

    def _key_bytes(self, key):
        """The bytes of `key` that are hashed, hash tags narrowed."""
        cdef KeyBytes read
        cdef object keeper = self.read_key(<PyObject*>key, &read)
        return PyBytes_FromStringAndSize(<const char*>read.data, read.size)

    def _positions(self, Batch batch not None):
        """Positions of many keys, as uint32."""
        batch.rewind()
        out = np.empty(batch.size, np.uint32)
        cdef uint32_t[::1] target = out
        cdef Py_ssize_t done = 0, count
        while done < batch.size:
            count = min(<Py_ssize_t>BLOCK, batch.size - done)
            batch.read(self, done, count, &target[done])
            done += count
        return out


KeySpace = HashSpace  # its name until every module says HashSpace


cdef uint64_t word_of(object number) except? 0xFFFFFFFFFFFFFFFF:
    """The eight bytes, in two's complement, of an int from -2^63 to 2^64 - 1."""
    cdef int overflow
    cdef long long number_signed = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow == 0:
        return <uint64_t>number_signed
    if overflow > 0:
        try:
            return PyLong_AsUnsignedLongLong(number)
        except OverflowError:
            pass
    raise OverflowError("an int key must be at least -2**63 and less than 2**64, "
                        f"not a number of {int.bit_length(number)} bits")

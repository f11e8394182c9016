# A part of _core.pyx: many keys with a small number each: pins and directories.
#
#     slots   8 bytes each, found by the upper half of the key's hash, then one after the other
#     +--------+--------+--------+--     a slot: 24 lower bits of the hash | 40 bits: place of the record + 1
#     |   0    | 5 |  9 |   0    | ...   0: empty, so most keys without an entry end here
#     +--------+--------+--------+--
#     arena   records without gaps
#     +-------+------+-----------+--     a record: value, 4 bytes | size, 7 bits a byte | the key
#     | value | size | key bytes | ...   everything little endian, as in a file
#     +-------+------+-----------+--
#
# A big table never copies itself for a small change: it keeps its block, shares it with the table that
# comes of it, and puts the changes into a second one that is asked first, where -1 marks an entry that
# is gone. When that one has grown to a part of the first, both become one.


cdef enum:
    ABSENT = -2
    GONE_ENTRY = -1
    FLAT = 65536               # entries up to which a change copies all
    OVER_PART = 32             # the second block has at most this part of the entries of the first
    ENTRY_HEADER = 64
    LONGEST_KEY = 0x7FFFFFFF

cdef uint64_t ARENA_LIMIT = (1 << 40) - 2
cdef bytes ENTRY_MAGIC = b"RHENTRY1"

cdef struct Block:
    const uint8_t* slots
    uint64_t slot_count
    const uint8_t* arena
    uint64_t arena_size

cdef inline const uint8_t* record_key(const Block* at, uint64_t place, Py_ssize_t* size) noexcept nogil:
    """The key of a record and its size; NULL when the file that it is from is damaged."""
    cdef uint64_t length, cursor = place + 5
    cdef int shift = 7
    if rare(cursor > at.arena_size):
        return NULL
    length = at.arena[place + 4]
    if rare(length >= 128):
        length &= 127
        while True:
            if cursor >= at.arena_size or shift > 28:
                return NULL
            length |= <uint64_t>(at.arena[cursor] & 127) << shift
            cursor += 1
            if at.arena[cursor - 1] < 128:
                break
            shift += 7
    if rare(length > at.arena_size - cursor):
        return NULL
    size[0] = <Py_ssize_t>length
    return at.arena + cursor

cdef inline int64_t place_of(const Block* at, const uint8_t* key, Py_ssize_t size,
                             uint64_t hash) noexcept nogil:
    """The place of the record of a key; -1: there is none."""
    cdef uint64_t slot, word, left = at.slot_count
    cdef const uint8_t* found
    cdef Py_ssize_t found_size
    slot = ((hash >> 32) * left) >> 32
    while left:
        word = read64(at.slots + 8 * slot)
        if word == 0:
            break
        if (word >> 40) == (hash & 0xFFFFFF):
            found = record_key(at, (word & 0xFFFFFFFFFFu) - 1, &found_size)
            if found is not NULL and found_size == size and memcmp(found, key, size) == 0:
                return <int64_t>((word & 0xFFFFFFFFFFu) - 1)
        slot += 1
        if slot == at.slot_count:
            slot = 0
        left -= 1
    return -1

cdef inline int32_t value_of(const Block* at, const uint8_t* key, Py_ssize_t size,
                             uint64_t hash) noexcept nogil:
    cdef int64_t place = place_of(at, key, size, hash)
    return ABSENT if place < 0 else <int32_t>read32(at.arena + place)

cdef inline void set_value(uint8_t* record, int32_t value) noexcept nogil:
    cdef int k
    for k in range(4):
        record[k] = <uint8_t>(<uint32_t>value >> (8 * k))


@cython.final
cdef class _EntryBlock:
    """The memory of a block. It is changed only before a table has it."""

    cdef Block at
    cdef uint8_t* slots        # these two are NULL where the memory is that of `buffer`
    cdef uint8_t* arena
    cdef uint64_t room         # bytes of the arena, used or not
    cdef uint64_t used         # records
    cdef Py_buffer buffer
    cdef bint has_buffer

    def __dealloc__(self):
        PyMem_RawFree(self.slots)
        PyMem_RawFree(self.arena)
        if self.has_buffer:
            PyBuffer_Release(&self.buffer)

    cdef int reserve(self, uint64_t slots, uint64_t room) except -1:
        room += 16  # a record is written after a look at the room of the longest header
        if slots >= <uint64_t>1 << 32 or room > ARENA_LIMIT:
            raise ValueError("a table of entries has at most some 3 * 10**9 of them and a terabyte of keys")
        self.slots = <uint8_t*>PyMem_RawCalloc(max(<uint64_t>1, slots), 8)
        self.arena = <uint8_t*>PyMem_RawMalloc(max(<uint64_t>1, room))
        if self.slots is NULL or self.arena is NULL:
            raise MemoryError(f"no memory for {slots} entries")
        if 8 * slots >= LARGE:
            large_pages(self.slots, 8 * slots)
        self.room = room
        self.at.slots = self.slots
        self.at.slot_count = slots
        self.at.arena = self.arena
        return 0

    cdef inline void put(self, const uint8_t* key, Py_ssize_t size, uint64_t hash,
                         int32_t value) noexcept nogil:
        """Write a value; there is room for one record more."""
        cdef int64_t place = place_of(&self.at, key, size, hash)
        if place >= 0:
            set_value(self.arena + place, value)
        else:
            self.append(key, size, hash, value)

    cdef inline void append(self, const uint8_t* key, Py_ssize_t size, uint64_t hash,
                            int32_t value) noexcept nogil:
        cdef uint64_t place = self.at.arena_size, slot, rest = <uint64_t>size
        cdef uint8_t* end = self.arena + place + 4
        set_value(self.arena + place, value)
        while rest >= 128:
            end[0] = <uint8_t>(128 | (rest & 127))
            end += 1
            rest >>= 7
        end[0] = <uint8_t>rest
        memcpy(end + 1, key, size)
        self.at.arena_size = <uint64_t>(end + 1 + size - self.arena)
        slot = ((hash >> 32) * self.at.slot_count) >> 32
        while read64(self.slots + 8 * slot):
            slot = slot + 1 if slot + 1 < self.at.slot_count else 0
        write64(self.slots + 8 * slot, (hash & 0xFFFFFF) << 40 | (place + 1))
        self.used += 1

    cdef int take_from(self, const Block* old, const Block* over, uint64_t seed, uint64_t mask,
                       bint keep_gone, uint64_t most) except -1:
        """Append the records of `old` whose keys are not in `over`. There is room for `most` in all,
        and more there are only in a damaged file, whose slots may share a record."""
        cdef uint64_t slot, word, hash
        cdef const uint8_t* key
        cdef Py_ssize_t size
        cdef int32_t value
        cdef bint fits = True
        with nogil:
            for slot in range(old.slot_count):
                word = read64(old.slots + 8 * slot)
                if word == 0:
                    continue
                key = record_key(old, (word & 0xFFFFFFFFFFu) - 1, &size)
                if key is NULL:
                    continue
                value = <int32_t>read32(old.arena + (word & 0xFFFFFFFFFFu) - 1)
                if value < 0 and not keep_gone:
                    continue
                hash = hash_bytes(key, size, seed) & mask
                if over is NULL or value_of(over, key, size, hash) == ABSENT:
                    fits = self.used < most and self.at.arena_size + <uint64_t>size + 9 <= self.room
                    if not fits:
                        break
                    self.append(key, size, hash, value)
        if not fits:
            raise ValueError("the bytes of a table of entries are damaged")
        return 0


cdef inline uint64_t slots_for(uint64_t entries, bint packed) noexcept nogil:
    return entries + entries // 4 + 8 if packed else 3 * entries + 8


cdef class EntryTable(HashSpace):
    """A number from 0 to 2**31 - 1 for each of some keys; immutable, compared by whole keys.

    Args:
        keys: bytes each, as they are hashed (`_key_bytes`: tags are narrowed). Of two equal ones the
            later counts.
        values: As many ints.
        seed: Of the hash; that of the placement below, so that one hash serves both.
        hash_tags: How `find` reads keys.
        mask: What is left of a hash: a test makes keys meet with 0.

    Threads may share it. Memory: 15 bytes an entry beside its key, from 65,536 entries on. A lookup
    reads two or three cache lines.
    """

    cdef Block over            # asked first; empty in most tables
    cdef Block base
    cdef _EntryBlock over_block
    cdef _EntryBlock base_block
    cdef Py_ssize_t size
    cdef uint64_t mask

    def __cinit__(self, keys=(), values=(), uint64_t seed=0, bint hash_tags=False,
                  uint64_t mask=0xFFFFFFFFFFFFFFFF):
        cdef list entries = list(zip(keys, values, strict=True))
        self.seed = seed
        self.hash_tags = hash_tags
        self.mask = mask
        self.set_blocks(NO_ENTRIES, NO_ENTRIES)
        check_entries(entries)
        if entries:
            self.fill(entries)

    def __init__(self, *args, **options):
        pass  # immutable

    cdef void set_blocks(self, _EntryBlock base, _EntryBlock over):
        self.base_block = base
        self.base = base.at
        self.over_block = over
        self.over = over.at

    cdef int fill(self, list entries) except -1:
        cdef _EntryBlock block = _EntryBlock()
        cdef uint64_t count = len(entries)
        block.reserve(slots_for(count, count > FLAT), room_of(entries))
        self.put_all(block, entries)
        self.size = block.used
        self.set_blocks(block, NO_ENTRIES)
        return 0

    cdef int put_all(self, _EntryBlock block, list entries) except -1:
        cdef bytes key
        cdef int32_t value
        for key, value in entries:
            block.put(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.hash_of(key), value)
        return 0

    cdef inline uint64_t hash_of(self, bytes key) noexcept:
        return self.mask & hash_bytes(
            <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.seed)

    cdef inline int32_t find_read(self, const KeyBytes* read) noexcept nogil:
        """The value of a key that was read with this seed; negative: it has none."""
        cdef int32_t value
        if rare(self.over.slot_count != 0):
            value = value_of(&self.over, read.data, read.size, read.hash & self.mask)
            if value != ABSENT:
                return value
        return value_of(&self.base, read.data, read.size, read.hash & self.mask)

    def find(self, key):
        """Return the value of a key, read as the owner of a key is; -1 when it has none."""
        cdef KeyBytes read
        cdef object keeper = self.read_key(<PyObject*>key, &read)
        return max(-1, self.find_read(&read))

    def find_many(self, Batch batch not None):
        """Return the values of many keys, as int32; -1 for each that has none."""
        out = np.empty(batch.size, np.int32)
        cdef int32_t[::1] target = out
        cdef KeyBytes read
        cdef Py_ssize_t k, row, column
        cdef object keeper
        if batch.is_columns():
            with nogil:
                k = 0
                for column in range(batch.column_count):
                    for row in range(batch.columns[column].size):
                        self.read_row(&batch.columns[column], row, &read)
                        target[k] = max(<int32_t>-1, self.find_read(&read))
                        k += 1
            return out
        for k in range(batch.size):
            try:
                keeper = self.read_key(batch.items(k, 1)[0], &read)
            except (TypeError, ValueError, OverflowError) as error:
                error.add_note(f"This was key {k} of {batch.size}.")
                raise
            target[k] = max(<int32_t>-1, self.find_read(&read))
        return out

    cdef inline void read_row(self, const Column* column, Py_ssize_t row, KeyBytes* read) noexcept nogil:
        cdef uint64_t word = 0
        cdef Py_ssize_t size = 0
        cdef const uint8_t* data = read_item(column, row, &size, &word)
        if column.kind == SIGNED or column.kind == UNSIGNED:
            self.read_word(word, read)
        elif column.kind == UUIDS:
            read.data = data
            read.size = size
            read.hash = hash_bytes(data, size, self.seed)
        else:
            self.read_bytes(data, size, read)

    def with_changes(self, puts=(), deletes=()):
        """Return a table with more or other entries, pairs of bytes and int, and without some.

        Keys to delete that are not there do nothing; a key in both is put. Cost: O(entries) up to 65,536
        of them. From there on O(changes) and a copy of at most a 32nd of the entries; every so often,
        all of them.
        """
        cdef list entries = list(puts)
        cdef list gone = list(deletes)
        cdef EntryTable table = EntryTable.__new__(EntryTable, (), (), self.seed, self.hash_tags, self.mask)
        cdef bint flat = self.base_block.used <= FLAT
        cdef _EntryBlock old = self.base_block if flat else self.over_block
        cdef _EntryBlock block = _EntryBlock()
        cdef _EntryBlock all_of
        cdef Py_ssize_t size = self.size
        cdef uint64_t most, room
        cdef bytes key
        cdef int32_t value, before
        cdef int64_t place
        check_entries(entries)
        forgotten = [(name, 0) for name in gone]
        check_entries(forgotten)
        room = old.at.arena_size + room_of(entries) + room_of(forgotten)
        most = old.used + <uint64_t>len(entries) + <uint64_t>len(gone)
        if 2 * most <= old.at.slot_count and old.slots is not NULL:
            block.reserve(old.at.slot_count, room)
            with nogil:
                memcpy(block.slots, old.slots, 8 * old.at.slot_count)
                memcpy(block.arena, old.arena, old.at.arena_size)
            block.at.arena_size = old.at.arena_size
            block.used = old.used
        else:
            block.reserve(slots_for(most, flat and most > FLAT), room)
            block.take_from(&old.at, NULL, self.seed, self.mask, True, old.used)
        for key in gone:
            before = self.value_in(block, flat, key)
            if before >= 0:
                size -= 1
                block.put(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.hash_of(key),
                          GONE_ENTRY)
        for key, value in entries:
            before = self.value_in(block, flat, key)
            size += before < 0
            block.put(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.hash_of(key), value)
        table.size = size
        if flat:
            table.set_blocks(block, NO_ENTRIES)
            if block.used != <uint64_t>size:
                table.compact()
        else:
            table.set_blocks(self.base_block, block)
            if block.used > FLAT + self.base_block.used // OVER_PART:
                table.compact()
        return table

    cdef int32_t value_in(self, _EntryBlock block, bint flat, bytes key) noexcept:
        cdef uint64_t hash = self.hash_of(key)
        cdef int32_t value = value_of(&block.at, <const uint8_t*>PyBytes_AS_STRING(key),
                                      PyBytes_GET_SIZE(key), hash)
        if value == ABSENT and not flat:
            value = value_of(&self.base, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash)
        return value

    cdef int compact(self) except -1:
        """Make one block of two, without what is gone. Only before anybody else has the table."""
        cdef _EntryBlock block = _EntryBlock()
        block.reserve(slots_for(self.size, self.size > FLAT), self.base.arena_size + self.over.arena_size)
        block.take_from(&self.base, &self.over, self.seed, self.mask, False, <uint64_t>self.size)
        block.take_from(&self.over, NULL, self.seed, self.mask, False, <uint64_t>self.size)
        self.set_blocks(block, NO_ENTRIES)
        return 0

    def __len__(self):
        return self.size

    def _total(self, tuple names not None):
        """The sum of the tokens of all entries modulo 2**128, each with the name of its value.

        The token is that of docs/spec.md: 128 bits of XXH3-64, with the seeds 0 (low) and 1 (high), of
        the size of the key as 4 bytes little endian, the key, the same of the name.
        """
        cdef uint64_t low = 0, high = 0, more, slot, word
        cdef list texts = [str.encode(name) for name in names]
        cdef bytearray record = bytearray(64)
        cdef Block at
        cdef const uint8_t* key
        cdef uint8_t* data
        cdef Py_ssize_t size, length
        cdef int32_t value
        cdef int part
        cdef bytes text
        for part in range(2):
            at = self.base if part else self.over
            for slot in range(at.slot_count):
                word = read64(at.slots + 8 * slot)
                if word == 0:
                    continue
                key = record_key(&at, (word & 0xFFFFFFFFFFu) - 1, &size)
                if key is NULL:
                    continue
                value = <int32_t>read32(at.arena + (word & 0xFFFFFFFFFFu) - 1)
                if value < 0 or (part and self.over.slot_count and value_of(
                        &self.over, key, size, hash_bytes(key, size, self.seed) & self.mask) != ABSENT):
                    continue
                text = texts[value]
                length = size + PyBytes_GET_SIZE(text) + 8
                if length > len(record):
                    record = bytearray(2 * length)
                data = record
                set_value(data, <int32_t>size)
                memcpy(data + 4, key, size)
                set_value(data + 4 + size, <int32_t>PyBytes_GET_SIZE(text))
                memcpy(data + 8 + size, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
                more = hash_bytes(data, length, 0)
                low += more
                high += hash_bytes(data, length, 1) + (low < more)
        return low | <object>high << 64

    def _differences(self, EntryTable other not None, tuple names not None, tuple others not None):
        """The keys whose names differ in another table, as (key, name here, name there), None for no entry.

        `names` and `others` have the name of each value, here and there. Cost: O(entries of both), but for
        two tables of one history often only what has changed since a block that they share.
        """
        cdef dict found = {}
        cdef bint shared = self.base_block is other.base_block
        cdef EntryTable table
        for table in (self, other):
            table.differing(self, other, names, others, &table.over, found)
            if not shared:
                table.differing(self, other, names, others, &table.base, found)
        return list(found.values())

    cdef int differing(self, EntryTable one, EntryTable other, tuple names, tuple others, const Block* at,
                       dict found) except -1:
        cdef uint64_t slot, word, hash
        cdef const uint8_t* key
        cdef Py_ssize_t size
        cdef int32_t here, there
        cdef object name, new
        cdef bytes data
        for slot in range(at.slot_count):
            word = read64(at.slots + 8 * slot)
            if word == 0:
                continue
            key = record_key(at, (word & 0xFFFFFFFFFFu) - 1, &size)
            if key is NULL:
                continue
            here = one.value_by(key, size)
            there = other.value_by(key, size)
            name = names[here] if here >= 0 else None
            new = others[there] if there >= 0 else None
            if name != new:
                data = PyBytes_FromStringAndSize(<const char*>key, size)
                found[data] = (data, name, new)
        return 0

    cdef inline int32_t value_by(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        cdef KeyBytes read
        read.data = key
        read.size = size
        read.hash = hash_bytes(key, size, self.seed)
        return self.find_read(&read)

    def items(self):
        """Iterate over keys and values, in no order that means anything."""
        cdef Block at
        cdef uint64_t slot, word
        cdef const uint8_t* key
        cdef Py_ssize_t size
        cdef int32_t value
        cdef int part
        for part in range(2):
            at = self.base if part else self.over
            for slot in range(at.slot_count):
                word = read64(at.slots + 8 * slot)
                if word == 0:
                    continue
                key = record_key(&at, (word & 0xFFFFFFFFFFu) - 1, &size)
                if key is NULL:
                    continue
                value = <int32_t>read32(at.arena + (word & 0xFFFFFFFFFFu) - 1)
                data = PyBytes_FromStringAndSize(<const char*>key, size)
                if value >= 0 and not (part and value_of(
                        &self.over, key, size, self.hash_of(data)) != ABSENT):
                    yield data, value

    def __iter__(self):
        for key, _ in self.items():
            yield key

    @property
    def memory_size(self):
        """The bytes of slots and records; what a change shares counts in each of the tables."""
        return (8 * (self.base.slot_count + self.over.slot_count)
                + self.base.arena_size + self.over.arena_size)

    def __sizeof__(self):
        return type(self).__basicsize__ + self.memory_size

    def tobytes(self):
        """Return the table as bytes, the same on every machine, for `from_buffer`."""
        cdef EntryTable table = self
        cdef bytes body
        if self.over.slot_count:
            table = EntryTable.__new__(EntryTable, (), (), self.seed, self.hash_tags, self.mask)
            table.size = self.size
            table.set_blocks(self.base_block, self.over_block)
            table.compact()
        body = (PyBytes_FromStringAndSize(<const char*>table.base.slots, 8 * table.base.slot_count)
                + PyBytes_FromStringAndSize(<const char*>table.base.arena, table.base.arena_size))
        numbers = (self.seed, self.mask, table.base.slot_count, table.base.arena_size, self.size,
                   xxh3_64(body), 1 if self.hash_tags else 0)
        return ENTRY_MAGIC + b"".join([number.to_bytes(8, "little") for number in numbers]) + body

    @staticmethod
    def from_buffer(data, bint check=False):
        """Return the table that `tobytes` described, in place: a file mapped into memory is not read.

        Args:
            data: Bytes, or what has a buffer of them, such as an mmap. It must not change.
            check: Whether to compare the checksum, which reads everything.

        Raises:
            ValueError: These are not the bytes of a table, or not all, or `check` finds them changed.
                Without `check` changed bytes give wrong answers, and never a crash.
        """
        cdef EntryTable table
        cdef _EntryBlock block = _EntryBlock()
        cdef const uint8_t* start
        cdef uint64_t[7] numbers
        cdef int k
        PyObject_GetBuffer(data, &block.buffer, PyBUF_SIMPLE)
        block.has_buffer = True
        start = <const uint8_t*>block.buffer.buf
        if block.buffer.len < ENTRY_HEADER or memcmp(start, PyBytes_AS_STRING(ENTRY_MAGIC), 8):
            raise ValueError("these are not the bytes of a table of entries")
        for k in range(7):
            numbers[k] = read64(start + 8 + 8 * k)
        if (numbers[2] >= <uint64_t>1 << 32 or numbers[3] > ARENA_LIMIT or numbers[6] > 1
                or <uint64_t>block.buffer.len != ENTRY_HEADER + 8 * numbers[2] + numbers[3]
                or numbers[4] > numbers[2]):
            raise ValueError("the bytes of a table of entries are cut short or damaged")
        if check and hash_bytes(start + ENTRY_HEADER, block.buffer.len - ENTRY_HEADER, 0) != numbers[5]:
            raise ValueError("the bytes of a table of entries are damaged: their checksum differs")
        block.at.slots = start + ENTRY_HEADER
        block.at.slot_count = numbers[2]
        block.at.arena = start + ENTRY_HEADER + 8 * numbers[2]
        block.at.arena_size = numbers[3]
        block.used = numbers[4]
        table = EntryTable.__new__(EntryTable, (), (), numbers[0], numbers[6] == 1, numbers[1])
        table.size = numbers[4]
        table.set_blocks(block, NO_ENTRIES)
        return table

    def __reduce__(self):
        return _read_entries, (self.tobytes(),)


def _read_entries(bytes data not None):
    """What pickle calls: it finds no static method of a compiled class."""
    return EntryTable.from_buffer(data, True)


cdef uint64_t room_of(list entries) except? 0xFFFFFFFFFFFFFFFF:
    """The bytes of as many records, at most."""
    cdef uint64_t room = 0
    cdef bytes key
    for key, _ in entries:
        room += <uint64_t>PyBytes_GET_SIZE(key) + 9
    return room


cdef int check_entries(list entries) except -1:
    for key, value in entries:
        if type(key) is not bytes:
            raise TypeError(f"the key of an entry must be bytes, not {type(key).__name__}")
        if len(key) > LONGEST_KEY:
            raise ValueError(f"the key of an entry has at most {LONGEST_KEY} bytes, not {len(key)}")
        if not 0 <= value <= 0x7FFFFFFF:
            raise ValueError(f"the value of an entry must be from 0 to 2**31 - 1, not {value}")
    return 0


cdef _EntryBlock NO_ENTRIES = _EntryBlock()

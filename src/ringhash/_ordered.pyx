# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, always_allow_keywords=False, embedsignature=False
# cython: freethreading_compatible=True
"""Keys in order, and the compiled table of a range map: key -> bytes -> leaf -> row -> name.

    key --Shape--> bytes that sort as keys do --top--> leaf of at most 4,096 starts --heads--> row --> owner

A row begins at its start and ends where the next one begins; the first begins below every key, and its
start, b"", is in no leaf. A table is immutable. A change copies the leaves that it touches, about 70 kB
each, and shares the others, so a reader keeps the table that it has, and what differs between two
tables of one history lies in the leaves that they do not share.

`Shape` is in _ordered_keys.pxi, the search in _ordered_blocks.pxd, reading many keys in _ordered_batch.pxi.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from ringhash._cells cimport prefetch
from ringhash._core cimport Answering
from ringhash._ordered_blocks cimport (
    FAN, HEAD, Block, Text, beside, head_of, numbers_upto, settle, upto,
)
from ringhash._xxh3 cimport xxh3_64

import sys
from datetime import datetime, timedelta, timezone

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyBool_Check(object)
    bint is_str "PyUnicode_CheckExact"(PyObject*)
    bint is_ascii "PyUnicode_IS_COMPACT_ASCII"(PyObject*)
    void* str_data "PyUnicode_DATA"(PyObject*)
    Py_ssize_t str_size "PyUnicode_GET_LENGTH"(PyObject*)
    bint is_bytes "PyBytes_CheckExact"(PyObject*)
    char* bytes_data "PyBytes_AS_STRING"(PyObject*)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject*)
    bint is_int "PyLong_CheckExact"(PyObject*)
    long long int_value "PyLong_AsLongLongAndOverflow"(PyObject*, int*) except? -1

cdef enum:
    MOST_PARTS = 16
    LEAF = 4096         # starts in a leaf, at most: three levels of 16
    FULL = 3584         # as many as a new table puts into one, to leave room for splits
    SPARSE = 512        # a leaf with fewer joins its neighbour

cdef object Integer = np.integer
cdef object EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  in UTC, as a plain difference
cdef int64_t FIRST_INSTANT = -62135596800000000, LAST_INSTANT = 253402300799999999

include "_ordered_keys.pxi"


# --- sorted keys in one piece of memory ---------------------------------------------------------

@cython.final
cdef class Keys:
    """Sorted, distinct byte strings; immutable, and shared by every leaf that has them."""

    cdef Block at
    cdef void* memory
    cdef readonly Py_ssize_t memory_size

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    def __len__(self):
        return self.at.size

    cdef bytes key(self, Py_ssize_t i):
        cdef Py_ssize_t size = key_size(&self.at, i)
        cdef bytes key = PyBytes_FromStringAndSize(NULL, size)
        copy_key(&self.at, i, <uint8_t*>PyBytes_AS_STRING(key))
        return key


cdef inline Py_ssize_t key_size(const Block* at, Py_ssize_t i) noexcept nogil:
    return at.prefix_size + at.lengths[i] + (
        at.offsets[i + 1] - at.offsets[i] if at.offsets is not NULL else 0)


cdef inline void copy_key(const Block* at, Py_ssize_t i, uint8_t* target) noexcept nogil:
    cdef uint8_t head[8]
    write_word(head, at.level[0][i])
    memcpy(target, at.prefix, at.prefix_size)
    memcpy(target + at.prefix_size, head, at.lengths[i])
    if at.offsets is not NULL:
        memcpy(target + at.prefix_size + at.lengths[i], at.tails + at.offsets[i],
               at.offsets[i + 1] - at.offsets[i])


cdef Keys keys_of(const Text* texts, Py_ssize_t count):
    """Pack sorted texts."""
    cdef Keys keys = Keys.__new__(Keys)
    cdef Block* at = &keys.at
    cdef Py_ssize_t prefix = 0, most, tails = 0, numbers = 0, i, size, level
    cdef uint8_t* memory
    cdef uint64_t* heads
    cdef uint32_t* offsets
    cdef uint8_t* tail
    if count:  # what the first and the last begin with, all between them do
        most = min(texts[0].size, texts[count - 1].size)
        while prefix < most and texts[0].data[prefix] == texts[count - 1].data[prefix]:
            prefix += 1
    for i in range(count):
        if texts[i].size > prefix + HEAD:
            tails += texts[i].size - prefix - HEAD
    if tails > 0xFFFFFFFF:
        raise OverflowError("the keys of 4,096 neighbouring ranges have more than 4 GiB in all")
    at.size = count
    at.prefix_size = prefix
    at.levels = 0
    size = count
    while True:
        at.count[at.levels] = size
        at.levels += 1
        numbers += size
        if size <= FAN:
            break
        size = (size + FAN - 1) // FAN
    size = numbers * 8 + (4 * (count + 1) if tails else 0) + count + prefix + tails + 64
    memory = <uint8_t*>PyMem_RawMalloc(size)
    if memory is NULL:
        raise MemoryError(f"no {size} bytes for {count} keys")
    keys.memory = memory
    keys.memory_size = size
    memory += (-<size_t>memory) & 63
    heads = <uint64_t*>memory
    memory += numbers * 8
    at.offsets = NULL
    if tails:
        at.offsets = offsets = <uint32_t*>memory
        memory += 4 * (count + 1)
    at.lengths = memory
    at.prefix = memory + count
    at.tails = tail = memory + count + prefix
    if count:
        memcpy(<uint8_t*>at.prefix, texts[0].data, prefix)
    size = 0
    for i in range(count):
        heads[i] = head_of(texts[i].data + prefix, texts[i].size - prefix)
        memory[i] = <uint8_t>min(texts[i].size - prefix, <Py_ssize_t>HEAD)
        if tails:
            offsets[i] = <uint32_t>size
            if texts[i].size > prefix + HEAD:
                memcpy(tail + size, texts[i].data + prefix + HEAD, texts[i].size - prefix - HEAD)
                size += texts[i].size - prefix - HEAD
    if tails:
        offsets[count] = <uint32_t>size
    at.level[0] = heads
    for level in range(1, at.levels):
        heads += at.count[level - 1]
        at.level[level] = heads
        for i in range(at.count[level]):
            heads[i] = at.level[level - 1][i * FAN]
    return keys


# --- leaves -------------------------------------------------------------------------------------

@cython.final
cdef class Leaf:
    """Some rows in order: their starts, and which name each has."""

    cdef Keys keys
    cdef uint32_t* owners

    def __dealloc__(self):
        PyMem_RawFree(self.owners)


cdef Leaf leaf_of(Keys keys, const uint32_t* owners):
    cdef Leaf leaf = Leaf.__new__(Leaf)
    leaf.keys = keys
    leaf.owners = <uint32_t*>PyMem_RawMalloc(keys.at.size * 4 + 4)
    if leaf.owners is NULL:
        raise MemoryError("no memory for a leaf")
    memcpy(leaf.owners, owners, keys.at.size * 4)
    return leaf


cdef struct View:
    Block at
    const uint32_t* owners
    Py_ssize_t first        # how many starts lie in the leaves before


@cython.final
cdef class Rows:
    """A list of starts and names that grows, its texts in one arena: what leaves are packed from."""

    cdef Text* texts
    cdef uint32_t* owners
    cdef Py_ssize_t size, room
    cdef list kept          # arenas and bytes that the texts point into

    def __cinit__(self, Py_ssize_t room):
        self.kept = []
        self.room = room
        self.texts = <Text*>malloc(room * sizeof(Text) + 16)
        self.owners = <uint32_t*>malloc(room * 4 + 16)
        if self.texts is NULL or self.owners is NULL:
            raise MemoryError(f"no memory for {room} ranges")

    def __dealloc__(self):
        free(self.texts)
        free(self.owners)

    cdef inline void add(self, const uint8_t* data, Py_ssize_t size, uint32_t owner) noexcept nogil:
        self.texts[self.size].data = data
        self.texts[self.size].size = size
        self.owners[self.size] = owner
        self.size += 1

    cdef int add_bytes(self, bytes key, uint32_t owner) except -1:
        self.kept.append(key)
        self.add(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), owner)
        return 0

    cdef bytearray unpacked(self, Leaf leaf, Text* texts):
        """The starts of a leaf, written out into an arena that `texts` point into."""
        cdef const Block* at = &leaf.keys.at
        cdef Py_ssize_t i, size, total = at.size * (at.prefix_size + HEAD)
        if at.offsets is not NULL:
            total += at.offsets[at.size]
        cdef bytearray arena = bytearray(total)
        cdef uint8_t* target = arena
        for i in range(at.size):
            size = key_size(at, i)
            copy_key(at, i, target)
            texts[i].data = target
            texts[i].size = size
            target += size
        self.kept.append(arena)
        return arena

    cdef list leaves(self, Py_ssize_t most):
        """Pack them into as few leaves as hold them, evenly."""
        cdef list leaves = []
        cdef Py_ssize_t parts = (self.size + most - 1) // most, part, begin = 0, end
        for part in range(parts):
            end = self.size * (part + 1) // parts
            leaves.append(leaf_of(keys_of(self.texts + begin, end - begin), self.owners + begin))
            begin = end
        return leaves


cdef inline int order(const uint8_t* a, Py_ssize_t a_size, const uint8_t* b,
                      Py_ssize_t b_size) noexcept nogil:
    cdef Py_ssize_t size = min(a_size, b_size)
    cdef int sign = memcmp(a, b, size) if size else 0
    return sign if sign else (a_size > b_size) - (a_size < b_size)


# --- the table ----------------------------------------------------------------------------------

cdef class RangeTable(Answering):
    """Rows of keys in order, and the name that each has. Immutable; made by `range_table`.

    `numbered` may hold more names than rows use: a name keeps its number from one table to the next.
    """

    cdef readonly Shape shape
    cdef readonly tuple numbered      # names by number
    cdef uint32_t lowest            # the number of the first row's name
    cdef tuple leaves
    cdef Keys top                   # the first starts of the second leaf and those behind it
    cdef View* views
    cdef readonly Py_ssize_t cuts   # starts, the first row's left out

    def __dealloc__(self):
        PyMem_RawFree(self.views)

    cdef int fill(self, Shape shape, tuple names, uint32_t lowest, list leaves, RangeTable like) except -1:
        cdef Py_ssize_t i, count = len(leaves)
        cdef Leaf leaf
        cdef Text* firsts
        cdef list kept
        cdef bytes first
        self.shape = shape
        self.numbered = names
        self.lowest = lowest
        self.leaves = tuple(leaves)
        self.views = <View*>PyMem_RawMalloc(count * sizeof(View) + 64)
        if self.views is NULL:
            raise MemoryError(f"no memory for {count} leaves")
        self.cuts = 0
        for i in range(count):
            leaf = leaves[i]
            self.views[i].at = leaf.keys.at
            self.views[i].owners = leaf.owners
            self.views[i].first = self.cuts
            self.cuts += leaf.keys.at.size
        if like is not None and like.same_firsts(self):
            self.top = like.top
            return 0
        kept = []
        firsts = <Text*>malloc(count * sizeof(Text) + 16)
        if firsts is NULL:
            raise MemoryError(f"no memory for {count} leaves")
        try:
            for i in range(1, count):
                first = (<Leaf>leaves[i]).keys.key(0)
                kept.append(first)
                firsts[i - 1].data = <const uint8_t*>PyBytes_AS_STRING(first)
                firsts[i - 1].size = PyBytes_GET_SIZE(first)
            self.top = keys_of(firsts, max(count - 1, 0))
        finally:
            free(firsts)
        return 0

    cdef bint same_firsts(self, RangeTable other):
        """Whether the leaves begin at the same starts, as far as their keys are one object."""
        cdef Py_ssize_t i
        if len(self.leaves) != len(other.leaves):
            return False
        for i in range(1, len(self.leaves)):
            if ((<Leaf>self.leaves[i]).keys is not (<Leaf>other.leaves[i]).keys
                    and (<Leaf>self.leaves[i]).keys.key(0) != (<Leaf>other.leaves[i]).keys.key(0)):
                return False
        return True

    # One key.

    cdef inline Py_ssize_t find(self, const uint8_t* data, Py_ssize_t size, uint32_t* owner) noexcept nogil:
        """The number of the row, and of its name."""
        cdef const View* view = self.views
        cdef Py_ssize_t found
        if self.cuts == 0:
            owner[0] = self.lowest
            return 0
        if self.top.at.size:
            view += upto(&self.top.at, data, size)
        found = upto(&view.at, data, size)
        owner[0] = view.owners[found - 1] if found else self.lowest
        return view.first + found

    cdef Py_ssize_t row_of_key(self, object key, uint32_t* owner) except -1:
        cdef Room room
        cdef Text text
        cdef Py_ssize_t row
        open_room(&room)
        try:
            self.shape.read(<PyObject*>key, &room, &text)
            row = self.find(text.data, text.size, owner)
        finally:
            close_room(&room)
        return row

    cdef object owner_of(self, object key):
        cdef PyObject* item = <PyObject*>key
        cdef uint32_t owner
        if self.shape.plain == STR and is_str(item) and is_ascii(item):
            self.find(<const uint8_t*>str_data(item), str_size(item), &owner)
        else:
            self.row_of_key(key, &owner)
        return <object>PyTuple_GET_ITEM(self.numbered, owner)

    def owner(self, key):
        """owner($self, key, /)
--

Return the name of the node that owns `key`: that of the range in which it lies.

Args:
    key: Of the shape of the map's keys.

Raises:
    TypeError: The key is of another shape.
    OverflowError: An int is out of range.
    ValueError: A datetime has no time zone, or a str a lone surrogate.

Thread-safe. Cost: O(log ranges), about six cache lines at a million ranges.

>>> from ringhash import RangeMap
>>> RangeMap([(None, "db-1"), ("f", "db-2")]).owner("george")
'db-2'
"""
        return self.owner_of(key)

    def __getitem__(self, key):
        """As `owner(key)`."""
        return self.owner_of(key)

    def position(self, key):
        """position($self, key, /)
--

Return the number of the range in which `key` lies, from 0.

Args and errors as for `owner`.

>>> from ringhash import RangeMap
>>> RangeMap([(None, "db-1"), ("f", "db-2")]).position("george")
1
"""
        cdef uint32_t owner
        return self.row_of_key(key, &owner)

    # Many keys.

    def _positions(self, keys):
        """The numbers of the rows of many keys, as uint64; `keys` as `columns_of` takes them."""
        return self.many(keys, False).astype(np.uint64)

    def _indexes(self, keys):
        """The numbers of the names of many keys, as intp."""
        return self.many(keys, True)

    def _owners(self, keys):
        """The names of many keys, as a list."""
        cdef const Py_ssize_t[::1] indexes = self.many(keys, True)
        cdef Py_ssize_t k, count = indexes.shape[0]
        cdef list names = PyList_New(count)
        cdef object name
        for k in range(count):
            name = <object>PyTuple_GET_ITEM(self.numbered, indexes[k])
            Py_INCREF(name)
            PyList_SET_ITEM(names, k, name)
        return names

    cdef object many(self, object keys, bint owners):
        cdef Reader reader = Reader(self.shape, keys)
        out = np.empty(reader.size, np.intp)
        cdef Py_ssize_t[::1] target = out
        cdef Py_ssize_t done = 0, count
        cdef Text[BLOCK] texts
        if reader.in_place:
            with nogil:
                while done < reader.size:
                    count = reader.next_columns(texts)
                    self.find_block(texts, count, owners, &target[done])
                    done += count
            return out
        while done < reader.size:
            count = reader.next_objects(texts)
            self.find_block(texts, count, owners, &target[done])
            done += count
        return out

    cdef void find_block(self, const Text* texts, Py_ssize_t count, bint owners,
                         Py_ssize_t* target) noexcept nogil:
        """As `find` for a block of keys, all of them one level at a time: what one level of a key has
        to wait for from the memory, the others need not wait for."""
        cdef const View* views[BLOCK]
        cdef const View* view
        cdef const Block* at
        cdef uint64_t head[BLOCK]
        cdef Py_ssize_t found[BLOCK]
        cdef Py_ssize_t first[BLOCK]
        cdef Py_ssize_t k, level, most = 0, size, here
        if self.cuts == 0:
            for k in range(count):
                target[k] = self.lowest if owners else 0
            return
        for k in range(count):
            view = self.views
            if self.top.at.size:
                view += upto(&self.top.at, texts[k].data, texts[k].size)
            views[k] = view
            prefetch(view)
            prefetch(<const char*>view + 64)
        for k in range(count):
            at = &views[k].at
            first[k] = 0
            found[k] = beside(at, texts[k].data, texts[k].size)
            if found[k] < 0:
                head[k] = head_of(texts[k].data + at.prefix_size, texts[k].size - at.prefix_size)
                most = max(most, at.levels)
                prefetch(at.level[at.levels - 1])
                prefetch(at.level[at.levels - 1] + 8)
        for level in range(most - 1, -1, -1):
            for k in range(count):
                at = &views[k].at
                if found[k] >= 0 or level >= at.levels:
                    continue
                size = at.count[level] - first[k]
                here = first[k] + numbers_upto(at.level[level] + first[k], FAN if size > FAN else size,
                                               head[k])
                if here == 0 or level == 0:
                    found[k] = here
                    first[k] = -1
                    if here:
                        prefetch(views[k].owners + here - 1)
                        if at.level[0][here - 1] == head[k]:  # then more is compared
                            prefetch(at.lengths + here - 1)
                            if at.offsets is not NULL:
                                prefetch(at.offsets + here - 1)
                else:
                    first[k] = (here - 1) * FAN
                    prefetch(at.level[level - 1] + first[k])
                    prefetch(at.level[level - 1] + first[k] + 8)
        for k in range(count):
            view = views[k]
            here = found[k]
            if first[k] < 0:
                at = &view.at
                here = settle(at, here, head[k], texts[k].data + at.prefix_size,
                              texts[k].size - at.prefix_size)
            if owners:
                target[k] = view.owners[here - 1] if here else self.lowest
            else:
                target[k] = view.first + here

    # Rows.

    cdef Py_ssize_t leaf_at(self, Py_ssize_t row) noexcept nogil:
        """The leaf of a row that is not the first."""
        cdef Py_ssize_t low = 0, high = self.top.at.size + 1, middle
        while high - low > 1:
            middle = (low + high) >> 1
            if self.views[middle].first < row:
                low = middle
            else:
                high = middle
        return low

    def _start(self, Py_ssize_t row):
        """The bytes at which row `row` begins; b"" for the first."""
        cdef Py_ssize_t leaf
        if row == 0:
            return b""
        if not 0 < row <= self.cuts:
            raise IndexError(f"there are {self.cuts + 1} rows, and no row {row}")
        leaf = self.leaf_at(row)
        return (<Leaf>self.leaves[leaf]).keys.key(row - 1 - self.views[leaf].first)

    def _end(self, Py_ssize_t row):
        """The bytes before which row `row` ends; None for the last."""
        return None if row == self.cuts else self._start(row + 1)

    def _number(self, Py_ssize_t row):
        """The number of the name of row `row`."""
        cdef Py_ssize_t leaf
        if row == 0:
            return self.lowest
        if not 0 < row <= self.cuts:
            raise IndexError(f"there are {self.cuts + 1} rows, and no row {row}")
        leaf = self.leaf_at(row)
        return self.views[leaf].owners[row - 1 - self.views[leaf].first]

    def _row(self, bytes start not None):
        """The number of the row in which the bytes of a key lie."""
        cdef uint32_t owner
        return self.find(<const uint8_t*>PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start), &owner)

    def _starts(self, Py_ssize_t begin=0, Py_ssize_t end=-1):
        """The starts of rows, as bytes, from row `begin` to before row `end`."""
        cdef list starts = []
        cdef Py_ssize_t row, leaf
        if end < 0 or end > self.cuts + 1:
            end = self.cuts + 1
        row = begin
        if row == 0 and end:
            starts.append(b"")
            row = 1
        if row < end:
            leaf = self.leaf_at(row)
            while row < end:
                if row - 1 - self.views[leaf].first == self.views[leaf].at.size:
                    leaf += 1
                starts.append((<Leaf>self.leaves[leaf]).keys.key(row - 1 - self.views[leaf].first))
                row += 1
        return starts

    def _numbers_all(self):
        """The number of the name of every row, as uint32."""
        out = np.empty(self.cuts + 1, np.uint32)
        cdef uint32_t[::1] target = out
        cdef Py_ssize_t leaf
        target[0] = self.lowest
        for leaf in range(len(self.leaves)):
            if self.views[leaf].at.size:
                memcpy(&target[1 + self.views[leaf].first], self.views[leaf].owners,
                       self.views[leaf].at.size * 4)
        return out

    @property
    def memory_size(self):
        cdef Leaf leaf
        cdef Py_ssize_t size = self.top.memory_size + len(self.leaves) * sizeof(View)
        for leaf in self.leaves:
            size += leaf.keys.memory_size + 4 * leaf.keys.at.size
        return size

    def __sizeof__(self):
        return type(self).__basicsize__ + self.memory_size

    # Changes.

    def _edited(self, list edits not None, tuple names not None):
        """A new table of other rows: `edits` are (start, number of the name), sorted, -1 to drop a start.

        A start of b"" names the first row. `names` begins with `numbered`.
        Cost: the leaves that it touches are copied, and one pointer for each other leaf.
        """
        cdef RangeTable new = RangeTable.__new__(type(self))
        cdef uint32_t lowest = self.lowest
        cdef list leaves = list(self.leaves), changed = []
        cdef Py_ssize_t i = 0, count = len(edits), leaf, last, end
        cdef bytes start
        if count and not edits[0][0]:
            lowest = edits[0][1]
            i = 1
        while i < count:
            start = edits[i][0]
            leaf = self.leaf_of_start(start)
            last = leaf
            end = i + 1
            while end < count and self.leaf_of_start(edits[end][0]) == leaf:
                end += 1
            part = edits[i:end]
            # A leaf that becomes sparse takes its neighbour in.
            while leaves and last + 1 < len(leaves) and self.size_after(leaf, last, part) < SPARSE:
                last += 1
                while end < count and self.leaf_of_start(edits[end][0]) == last:
                    end += 1
                part = edits[i:end]
            changed.append((leaf, last + 1, self.merged(leaf, last + 1, part)))
            i = end
        for leaf, end, parts in reversed(changed):
            leaves[leaf:end] = parts
        new.fill(self.shape, names, lowest, leaves, self)
        return new

    cdef Py_ssize_t leaf_of_start(self, bytes start):
        if self.top.at.size == 0:
            return 0
        return upto(&self.top.at, <const uint8_t*>PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start))

    cdef Py_ssize_t size_after(self, Py_ssize_t leaf, Py_ssize_t last, list edits):
        """How many starts there are after some edits, at least."""
        cdef Py_ssize_t size = sum([number < 0 and -1 for _, number in edits])
        for i in range(leaf, last + 1):
            size += self.views[i].at.size
        return size

    cdef list merged(self, Py_ssize_t leaf, Py_ssize_t end, list edits):
        cdef Py_ssize_t room = len(edits), i, edit = 0, edits_left = len(edits), size
        cdef int sign
        cdef int64_t number
        cdef bytes start
        cdef Leaf old
        cdef Text* texts
        cdef Rows rows
        cdef const uint8_t* data
        cdef bint same_starts = end - leaf == 1
        for i in range(leaf, min(end, <Py_ssize_t>len(self.leaves))):
            room += self.views[i].at.size
        rows = Rows(room)
        texts = <Text*>malloc(LEAF * sizeof(Text) + 16)
        if texts is NULL:
            raise MemoryError("no memory for a leaf")
        try:
            for leaf in range(leaf, min(end, <Py_ssize_t>len(self.leaves))):
                old = self.leaves[leaf]
                rows.unpacked(old, texts)
                for i in range(old.keys.at.size):
                    sign = 1
                    while edit < edits_left:
                        start, number = edits[edit]
                        data = <const uint8_t*>PyBytes_AS_STRING(start)
                        size = PyBytes_GET_SIZE(start)
                        sign = order(data, size, texts[i].data, texts[i].size)
                        if sign > 0:
                            break
                        edit += 1
                        if number >= 0:
                            rows.add_bytes(start, <uint32_t>number)
                        same_starts = same_starts and sign == 0 and number >= 0
                        if sign == 0:
                            break
                    if sign != 0:
                        rows.add(texts[i].data, texts[i].size, old.owners[i])
            while edit < edits_left:
                start, number = edits[edit]
                if number >= 0:
                    rows.add_bytes(start, <uint32_t>number)
                    same_starts = False
                edit += 1
        finally:
            free(texts)
        if same_starts:
            return [leaf_of(old.keys, rows.owners)]
        return rows.leaves(LEAF)

    def _edits_to(self, RangeTable other not None):
        """What turns this table into another one of the same shape: (start, number here, number there),
        sorted, -1 where there is none. Numbers are those of each table's own names.

        Cost: O(leaves), and the rows of the leaves that the two do not share.
        """
        cdef list edits = []
        cdef tuple names = self.numbered, others = other.numbered
        cdef set here, there
        cdef Leaf leaf
        cdef bint aligned
        cdef Py_ssize_t i = 0, k = 0
        cdef Rows ours, theirs
        cdef int sign
        cdef int64_t number
        # Numbers of the other table's names by those of this one.
        places = {name: i for i, name in enumerate(others)}
        cdef int64_t[::1] other_number = np.array([places.get(name, -2) for name in names] or [0], np.int64)
        aligned = all([other_number[i] == i for i in range(len(names))])
        if other_number[self.lowest] != other.lowest:
            edits.append((b"", self.lowest, other.lowest))
        # Where names have other numbers, no leaf of the two is the same.
        here = {id(leaf) for leaf in self.leaves} if aligned else set()
        there = {id(leaf) for leaf in other.leaves} if aligned else set()
        ours = self.outside(there)
        theirs = other.outside(here)
        while i < ours.size or k < theirs.size:
            if i == ours.size:
                sign = 1
            elif k == theirs.size:
                sign = -1
            else:
                sign = order(ours.texts[i].data, ours.texts[i].size,
                             theirs.texts[k].data, theirs.texts[k].size)
            if sign < 0:
                edits.append((text_bytes(&ours.texts[i]), ours.owners[i], -1))
                i += 1
            elif sign > 0:
                edits.append((text_bytes(&theirs.texts[k]), -1, theirs.owners[k]))
                k += 1
            else:
                number = other_number[ours.owners[i]]
                if number != theirs.owners[k]:
                    edits.append((text_bytes(&ours.texts[i]), ours.owners[i], theirs.owners[k]))
                i += 1
                k += 1
        return edits

    cdef Rows outside(self, set shared):
        """The rows of the leaves that are not in `shared`."""
        cdef Leaf leaf
        cdef Py_ssize_t room = 0, i
        cdef Rows rows
        cdef list wanted = [leaf for leaf in self.leaves if id(leaf) not in shared]
        for leaf in wanted:
            room += leaf.keys.at.size
        rows = Rows(room)
        for leaf in wanted:
            rows.unpacked(leaf, rows.texts + rows.size)
            for i in range(leaf.keys.at.size):
                rows.owners[rows.size + i] = leaf.owners[i]
            rows.size += leaf.keys.at.size
        return rows

    def _total(self):
        """The sum of the tokens of all rows, modulo 2**128. O(rows)."""
        cdef uint64_t low = 0, high = 0, more
        cdef list texts = [str.encode(text) for text in self.numbered]
        cdef bytearray record = bytearray(8)
        cdef Leaf leaf
        cdef Py_ssize_t i, size, room = 0
        cdef bytes name
        cdef uint8_t* data
        total = token(b"", self.numbered[self.lowest])
        for leaf in self.leaves:
            for i in range(leaf.keys.at.size):
                size = key_size(&leaf.keys.at, i)
                name = texts[leaf.owners[i]]
                if size + PyBytes_GET_SIZE(name) + 8 > room:
                    room = 2 * (size + PyBytes_GET_SIZE(name) + 8)
                    record = bytearray(room)
                data = record
                write_size(data, size)
                copy_key(&leaf.keys.at, i, data + 4)
                write_size(data + 4 + size, PyBytes_GET_SIZE(name))
                memcpy(data + 8 + size, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
                size += 8 + PyBytes_GET_SIZE(name)
                more = xxh3_64(data, size, 0)
                low += more
                high += xxh3_64(data, size, 1) + (low < more)
        return (total + low + (<object>high << 64)) % (1 << 128)


cdef inline bytes text_bytes(const Text* text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)


cdef inline void write_size(uint8_t* target, Py_ssize_t size) noexcept nogil:
    cdef int i
    for i in range(4):
        target[i] = <uint8_t>(size >> 8 * i)


def token(bytes start not None, str name not None, str more=""):
    """The token of a row: 128 bits of XXH3-64 with the seeds 0 (low) and 1 (high).

    Its record is the length of the start as 4 bytes, little endian, the start, the same of the name, and
    then `more` as UTF-8.
    """
    cdef bytes text = name.encode()
    cdef bytes record = (len(start).to_bytes(4, "little") + start + len(text).to_bytes(4, "little") + text
                         + more.encode())
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(record)
    return xxh3_64(data, len(record), 0) | <object>xxh3_64(data, len(record), 1) << 64


def range_table(cls, Shape shape not None, tuple names not None, list starts not None, owners):
    """Return a table of class `cls`: rows that begin below all keys and then at `starts`, bytes in order.

    `owners` has the number of the name of each row, one more than there are starts.

    Raises:
        ValueError: The starts are not in order, or a number is of no name; nothing else is checked.
    """
    cdef RangeTable table = RangeTable.__new__(cls)
    cdef Py_ssize_t i, count = len(starts)
    cdef const int64_t[::1] numbers = np.ascontiguousarray(owners, np.int64)
    cdef Rows rows = Rows(count)
    if numbers.shape[0] != count + 1:
        raise ValueError(f"{count} starts make {count + 1} rows, and {numbers.shape[0]} owners are given")
    for i in range(count + 1):
        if not 0 <= numbers[i] < PyTuple_GET_SIZE(names):
            raise ValueError(f"there is no name {numbers[i]}")
    for i in range(count):
        rows.add_bytes(starts[i], <uint32_t>numbers[i + 1])
        if (order(rows.texts[i - 1].data, rows.texts[i - 1].size, rows.texts[i].data, rows.texts[i].size)
                if i else -rows.texts[i].size) >= 0:
            raise ValueError(f"start {i} is not above the one before it")
    table.fill(shape, names, <uint32_t>numbers[0], rows.leaves(FULL), None)
    return table


include "_ordered_batch.pxi"

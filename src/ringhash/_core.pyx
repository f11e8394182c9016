# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, always_allow_keywords=False, embedsignature=False
# cython: freethreading_compatible=True
"""The compiled ring: key bytes -> hash -> position -> owner, batches, merge, diff.

Arithmetic on arrays, no input or output and no policy: what a node is, what an error says and
which changes are allowed is Python, one level up.

    key --read--> bytes --XXH3--> 64 bits --the upper 32--> position --cell--> node index --> name
         (here)         (_xxh3)                                      (_cells)

`KeySpace` knows how a key becomes a position. `Table` adds the points and is immutable: every
change is a new table, merged from the old one (_merge). `Live` holds the table of the moment; a
router is bound to it, so that its lookups enter no Python frame.

A method that takes one key is METH_O, and str, bytes and int of exactly that type are read without
a call. Everything else goes through `slow_position`.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact, PyUnicode_Compare
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

from ringhash._cells cimport (
    LEAST_LOAD, LOAD, MOST_LOAD, NARROW_NODES, RESTS_SIZE, CELL_POINTS, Points, fill_cells, find,
    lower_bound, owner_from, prefetch_cell, rare, starts_size,
)
from ringhash._merge cimport (
    GONE, NO_NODE, Arc, Span, changed_arcs, hash_points, merge, patch_cells, place_keys, sort_keys,
)
from ringhash._xxh3 cimport xxh3_64 as hash_bytes, xxh3_word

import sys

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    bint PyBool_Check(object)
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    object PyDescr_NewMethod(PyTypeObject*, PyMethodDef*)

cdef enum:
    BLOCK = 256        # keys of a batch that are hashed before their owners are looked up
    AHEAD = 8          # cells asked of the memory before they are needed
    FEW = 16           # owners that are told apart by comparing them with each other

MAX_POINTS = 2**27

cdef object Integer = np.integer


# --- keys -------------------------------------------------------------------------------------

cdef inline bint find_tag(const uint8_t** data, Py_ssize_t* size) noexcept nogil:
    """Narrow the bytes to what stands between the first '{' and the first '}' after it."""
    cdef const uint8_t* opening = <const uint8_t*>memchr(data[0], c'{', size[0])
    cdef const uint8_t* closing
    if opening is NULL:
        return False
    opening += 1
    closing = <const uint8_t*>memchr(opening, c'}', size[0] - (opening - data[0]))
    if closing is NULL or closing == opening:
        return False
    data[0] = opening
    size[0] = closing - opening
    return True


cdef class KeySpace:
    """How a key becomes a position: the seed and whether hash tags count."""

    cdef readonly uint64_t seed
    cdef readonly bint hash_tags

    def __cinit__(self, *args, **options):
        self.seed = 0
        self.hash_tags = False

    def __init__(self, uint64_t seed=0, bint hash_tags=False):
        self.seed = seed
        self.hash_tags = hash_tags

    cdef inline uint32_t position_of_bytes(self, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        if self.hash_tags:
            find_tag(&data, &size)
        return <uint32_t>(hash_bytes(data, size, self.seed) >> 32)

    cdef inline uint32_t position_of_word(self, uint64_t word) noexcept nogil:
        return <uint32_t>(xxh3_word(word, self.seed) >> 32)

    cdef inline int64_t position_of(self, object key) except -1:
        """The position of a key of any kind."""
        cdef long long number
        cdef int overflow
        if PyUnicode_CheckExact(key):
            if PyUnicode_IS_COMPACT_ASCII(key):
                return self.position_of_bytes(<const uint8_t*>PyUnicode_DATA(key),
                                              PyUnicode_GET_LENGTH(key))
        elif PyBytes_CheckExact(key):
            return self.position_of_bytes(<const uint8_t*>PyBytes_AS_STRING(key),
                                          PyBytes_GET_SIZE(key))
        elif PyLong_CheckExact(key):
            number = PyLong_AsLongLongAndOverflow(key, &overflow)
            if overflow == 0:
                return self.position_of_word(<uint64_t>number)
        return self.slow_position(key)

    cdef int64_t slow_position(self, object key) except -1:
        cdef const char* text
        cdef Py_ssize_t size
        cdef Py_buffer view
        cdef uint32_t position
        cdef object kind
        if PyUnicode_Check(key):
            text = PyUnicode_AsUTF8AndSize(key, &size)
            return self.position_of_bytes(<const uint8_t*>text, size)
        if PyBytes_Check(key):
            return self.position_of_bytes(<const uint8_t*>PyBytes_AS_STRING(key),
                                          PyBytes_GET_SIZE(key))
        if PyLong_Check(key) and not PyBool_Check(key):
            return self.position_of_word(word_of(key))
        if isinstance(key, (bytearray, memoryview)):
            if isinstance(key, memoryview) and not key.c_contiguous:
                key = key.tobytes()
            PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
            position = self.position_of_bytes(<const uint8_t*>view.buf, view.len)
            PyBuffer_Release(&view)
            return position
        kind = type(key)
        if isinstance(key, Integer) and hasattr(key, "__index__"):
            return self.position_of_word(word_of(key.__index__()))
        uuid = sys.modules.get("uuid")  # a UUID exists only where its module was imported
        if uuid is not None and isinstance(key, uuid.UUID):
            key = key.bytes
            return <uint32_t>(hash_bytes(<const uint8_t*>PyBytes_AS_STRING(key),
                                         PyBytes_GET_SIZE(key), self.seed) >> 32)
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
        return self.position_of(key)

    def _positions(self, keys):
        """Positions of many keys, as uint32; `keys` as in `Table._indexes`."""
        cdef _Batch batch = _Batch(keys)
        out = np.empty(batch.size, np.uint32)
        cdef uint32_t[::1] target = out
        cdef Py_ssize_t done = 0, count
        while done < batch.size:
            count = min(<Py_ssize_t>BLOCK, batch.size - done)
            batch.read(self, done, count, &target[done])
            done += count
        return out


cdef uint64_t word_of(object number) except? 0xFFFFFFFFFFFFFFFF:
    """The eight bytes, in two's complement, of an int from -2^63 to 2^64 - 1."""
    cdef int overflow
    cdef long long number_signed = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow == 0:
        return <uint64_t>number_signed
    if overflow > 0 and number < 18446744073709551616:
        return PyLong_AsUnsignedLongLong(number)
    raise OverflowError("an int key must be at least -2**63 and less than 2**64, "
                        f"not a number of {number.bit_length()} bits")


cdef class _Batch:
    """Many keys to be read block by block: a tuple of objects, or an array read in place.

    A one-dimensional array of a native integer type, or of fixed-width bytes, is read through the
    buffer protocol, whatever its stride.
    """

    cdef Py_ssize_t size
    cdef tuple keys
    cdef Py_buffer view
    cdef bint is_array
    cdef bint is_bytes
    cdef bint is_signed

    def __cinit__(self, keys):
        if isinstance(keys, (tuple, list)):
            self.keys = tuple(keys)
            self.size = len(self.keys)
            return
        PyObject_GetBuffer(keys, &self.view, PyBUF_FORMAT | PyBUF_STRIDES)
        self.is_array = True
        self.size = self.view.shape[0]
        self.is_bytes = keys.dtype.kind == "S"
        self.is_signed = keys.dtype.kind == "i"

    def __dealloc__(self):
        if self.is_array:
            PyBuffer_Release(&self.view)

    cdef int read(self, KeySpace space, Py_ssize_t begin, Py_ssize_t count,
                  uint32_t* positions) except -1:
        cdef Py_ssize_t k
        if self.is_array:
            with nogil:
                self.read_array(space, begin, count, positions)
            return 0
        for k in range(count):
            try:
                positions[k] = <uint32_t>space.position_of(
                    <object>PyTuple_GET_ITEM(self.keys, begin + k))
            except (TypeError, ValueError, OverflowError) as error:
                error.add_note(f"This was key {begin + k} of {self.size}.")
                raise
        return 0

    cdef void read_array(self, KeySpace space, Py_ssize_t begin, Py_ssize_t count,
                         uint32_t* positions) noexcept nogil:
        cdef Py_ssize_t k, size, stride = self.view.strides[0]
        cdef const uint8_t* item = <const uint8_t*>self.view.buf + begin * stride
        cdef uint64_t word
        for k in range(count):
            if self.is_bytes:
                size = self.view.itemsize
                while size and item[size - 1] == 0:  # as numpy does when it hands out an item
                    size -= 1
                positions[k] = space.position_of_bytes(item, size)
            else:
                if self.view.itemsize == 8:
                    word = (<const uint64_t*>item)[0]
                elif self.view.itemsize == 4:
                    word = (<uint64_t>(<const int32_t*>item)[0] if self.is_signed
                            else (<const uint32_t*>item)[0])
                elif self.view.itemsize == 2:
                    word = (<uint64_t>(<const int16_t*>item)[0] if self.is_signed
                            else (<const uint16_t*>item)[0])
                else:
                    word = (<uint64_t>(<const int8_t*>item)[0] if self.is_signed
                            else item[0])
                positions[k] = space.position_of_word(word)
            item += stride


# --- the ring ---------------------------------------------------------------------------------

@cython.final
cdef class _Exported:
    """A read-only view of memory that a table owns; it keeps the table alive."""

    cdef Table owner
    cdef void* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef class Table(KeySpace):
    """Names in order, their points, and the index in front of them.

    Built from `names` (sorted, distinct) and the number of points of each, or merged from `base`, a
    table of the same seed that has some of the same names. Only points that `base` lacks are hashed.
    """

    cdef readonly tuple names
    cdef Points at
    cdef uint32_t* counts      # points of each node
    cdef void* memory
    cdef readonly Py_ssize_t memory_size

    def __cinit__(self, tuple names, counts, uint64_t seed=0, bint hash_tags=False,
                  Table base=None):
        cdef Py_ssize_t total = 0, node, nodes = len(names)
        cdef list numbers = list(counts)
        if len(numbers) != nodes:
            raise ValueError(f"{nodes} names need {nodes} counts, not {len(numbers)}")
        if base is not None and (base.seed != seed):
            raise ValueError("a table is merged from one of the same seed")
        for node in range(nodes):
            total += <uint32_t>numbers[node]
        if total > MAX_POINTS:
            raise ValueError(f"a ring has at most {MAX_POINTS} points, not {total}")
        self.seed = seed
        self.hash_tags = hash_tags
        self.names = names
        self.allocate(total, nodes, base)
        for node in range(nodes):
            self.counts[node] = numbers[node]
        if base is None:
            self.build()
        else:
            self.build_from(base)

    def __init__(self, *args, **options):
        pass  # immutable: a second __init__ must not change a ring that others read

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    cdef int allocate(self, Py_ssize_t points, Py_ssize_t nodes, Table base) except -1:
        cdef Points* at = &self.at
        cdef size_t width, size, cells, owners, starts, counts
        at.size = points
        at.wide = nodes >= NARROW_NODES
        width = 4 if at.wide else 2
        at.cell_size = RESTS_SIZE + CELL_POINTS * width
        if base is not None and (base.at.buckets * LEAST_LOAD <= <uint64_t>points
                                 <= base.at.buckets * MOST_LOAD):
            at.buckets = base.at.buckets
        else:
            at.buckets = max(1, (points + LOAD - 1) // LOAD)
        cells = 0
        starts = cells + at.buckets * at.cell_size
        counts = starts + starts_size(at.buckets) * sizeof(uint32_t)
        owners = counts + nodes * sizeof(uint32_t)
        size = owners + points * width + points * sizeof(uint32_t) + 64 + 3
        self.memory = PyMem_RawMalloc(size)
        if self.memory is NULL:
            raise MemoryError(f"no {size} bytes for a ring of {points} points")
        self.memory_size = size
        cells = (-<size_t>self.memory) & 63
        at.cells = <uint8_t*>self.memory + cells
        at.starts = <uint32_t*>(at.cells + starts)
        self.counts = <uint32_t*>(at.cells + counts)
        at.positions = <uint32_t*>(at.cells + owners)
        at.owners = <uint8_t*>(at.positions + points)
        return 0

    cdef int build(self) except -1:
        cdef Py_ssize_t node, nodes = len(self.names)
        cdef bint enough = True
        cdef uint64_t* keys = <uint64_t*>malloc((self.at.size + 1) * sizeof(uint64_t))
        cdef Span* spans = <Span*>malloc((nodes + 1) * sizeof(Span))
        try:
            if keys is NULL or spans is NULL:
                raise MemoryError("no memory to build a ring")
            for node in range(nodes):
                self.set_span(&spans[node], node, 0, self.counts[node])
            with nogil:
                enough = (hash_points(spans, nodes, self.seed, keys)
                          and sort_keys(keys, self.at.size))
                if enough:
                    place_keys(&self.at, keys)
            if not enough:
                raise MemoryError("no memory to build a ring")
        finally:
            free(keys)
            free(spans)
        return 0

    cdef int set_span(self, Span* span, Py_ssize_t node, uint32_t begin, uint32_t end) except -1:
        span.name = PyUnicode_AsUTF8AndSize(self.names[node], &span.name_size)
        span.node = <uint32_t>node
        span.begin = begin
        span.end = end
        return 0

    cdef int build_from(self, Table base) except -1:
        cdef _Change change = _Change(base, self)
        cdef bint renamed = change.renamed
        with nogil:
            merge(&base.at, renamed, change.new_index, change.drops, change.drop_count,
                  change.adds, change.add_count, &self.at)
            if self.at.buckets == base.at.buckets and self.at.wide == base.at.wide and base.at.size:
                patch_cells(&base.at, renamed, change.new_index, change.drops, change.drop_count,
                            change.adds, change.add_count, &self.at)
            else:
                fill_cells(&self.at)
        return 0

    # One key. `owner` and `ring[key]` are the hot path.

    cdef inline object owner_of(self, object key):
        cdef uint32_t position = <uint32_t>self.position_of(key)
        if rare(self.at.size == 0):
            self._fail_empty()
        return <object>PyTuple_GET_ITEM(self.names, find(&self.at, position))

    def owner(self, key):
        """owner($self, key, /)
--

Return the name of the node that owns `key`: that of the first point at or after the key's position.

Args:
    key: str (its UTF-8), bytes, bytearray or memoryview (themselves), int from -2**63 to
        2**64 - 1 (8 bytes, little endian, two's complement) or uuid.UUID (its 16 bytes).

Raises:
    EmptyRingError: There are no nodes.
    TypeError: The key is of another type.
    OverflowError: The key is an int out of range.
    UnicodeEncodeError: The key is a str with a lone surrogate.

Thread-safe. Cost: one hash and, in most cases, one cache line, whatever the number of points.
Method: consistent hashing (Karger and others, 1997).

>>> from ringhash import Ring
>>> Ring(["gw-1", "gw-2", "gw-3"]).owner("user:7")
'gw-1'
"""
        return self.owner_of(key)

    def __getitem__(self, key):
        """As `owner(key)`, and a little faster."""
        return self.owner_of(key)

    def _fail_empty(self):
        raise LookupError("the ring has no nodes")

    def owners(self, key, n, distinct="node"):
        """owners($self, key, n, distinct='node')
--

Return the names of the first n distinct nodes clockwise from `key`: its preference list.

Args:
    key: As for `owner`.
    n: From 1 to the number of nodes.
    distinct: "node", or "zone" to spread over zones first: the walk is taken in passes, and each
        pass takes the nodes left whose zone it has not taken yet.

Returns:
    A tuple of n names; always the first n of `owners(key, n + 1)`.

Raises:
    ValueError: n is out of range, or `distinct` is neither of the two.
    EmptyRingError, TypeError, OverflowError: As for `owner`.

Cost: O(n) points looked at on average. Method: preference lists, as in Dynamo (2007).

>>> from ringhash import Ring
>>> ring = Ring(["gw-1", "gw-2", "gw-3"])
>>> ring.owners("user:7", 2) == tuple(ring.walk("user:7"))[:2]
True
"""
        return self.owners_of(key, n, distinct)

    cdef tuple owners_of(self, object key, object n, object distinct):
        cdef Py_ssize_t wanted, found = 0, k
        cdef Py_ssize_t nodes = PyTuple_GET_SIZE(self.names)
        cdef uint32_t[FEW] taken
        cdef Py_ssize_t i
        cdef uint32_t node
        cdef list names
        if distinct != "node":
            return self._owners_by(key, n, distinct)
        i = lower_bound(&self.at, <uint32_t>self.position_of(key))
        wanted = n
        if wanted < 1 or wanted > nodes:
            self._fail_count(n)
        if wanted > FEW:
            walk = self.walk_of(key)
            return tuple([next(walk) for _ in range(wanted)])
        names = []
        while found < wanted:
            node = owner_from(&self.at, i)
            i = i + 1 if i < self.at.size else 1
            for k in range(found):
                if taken[k] == node:
                    break
            else:
                taken[found] = node
                found += 1
                names.append(<object>PyTuple_GET_ITEM(self.names, node))
        return tuple(names)

    def walk(self, key):
        """walk($self, key, /)
--

Iterate over every node once, clockwise from `key`: the order of fail-over.

Args and errors as for `owner`. Cost: O(1) to begin; all nodes together O(points).

>>> from ringhash import Ring
>>> ring = Ring(["gw-1", "gw-2", "gw-3"])
>>> sorted(ring.walk("user:7")), next(ring.walk("user:7")) == ring.owner("user:7")
(['gw-1', 'gw-2', 'gw-3'], True)
"""
        return self.walk_of(key)

    cdef Walk walk_of(self, object key):
        cdef Walk walk = Walk()
        cdef uint32_t position = <uint32_t>self.position_of(key)
        if self.at.size == 0:
            self._fail_empty()
        walk.start(self, lower_bound(&self.at, position))
        return walk

    # Many keys.

    def _indexes(self, keys):
        """Owners of many keys, as indexes: a tuple or list of keys, or a one-dimensional array of
        native integers or of fixed-width bytes, which is read in place with the GIL released."""
        cdef _Batch batch = _Batch(keys)
        out = np.empty(batch.size, np.intp)
        if batch.size == 0:
            return out
        if self.at.size == 0:
            self._fail_empty()
        cdef Py_ssize_t[::1] target = out
        cdef uint32_t[BLOCK] positions
        cdef Py_ssize_t done = 0, count
        if batch.is_array:
            with nogil:
                while done < batch.size:
                    count = min(<Py_ssize_t>BLOCK, batch.size - done)
                    batch.read_array(self, done, count, positions)
                    self.find_block(positions, count, &target[done])
                    done += count
            return out
        while done < batch.size:
            count = min(<Py_ssize_t>BLOCK, batch.size - done)
            batch.read(self, done, count, positions)
            self.find_block(positions, count, &target[done])
            done += count
        return out

    cdef inline void find_block(self, const uint32_t* positions, Py_ssize_t count,
                                Py_ssize_t* target) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(min(count, <Py_ssize_t>AHEAD)):
            prefetch_cell(&self.at, positions[k])
        for k in range(count):
            if k + AHEAD < count:
                prefetch_cell(&self.at, positions[k + AHEAD])
            target[k] = find(&self.at, positions[k])

    def _owners(self, keys):
        """Owners of many keys, as names; `keys` as for `_indexes`."""
        cdef const Py_ssize_t[::1] indexes = self._indexes(keys)
        cdef Py_ssize_t k, count = indexes.shape[0]
        cdef list names = PyList_New(count)
        cdef object name
        for k in range(count):
            name = <object>PyTuple_GET_ITEM(self.names, indexes[k])
            Py_INCREF(name)
            PyList_SET_ITEM(names, k, name)
        return names

    # The arrays.

    @property
    def points(self):
        return self.export(self.at.positions, self.at.size, np.uint32)

    @property
    def point_owners(self):
        return self.export(self.at.owners, self.at.size, np.uint32 if self.at.wide else np.uint16)

    @property
    def counts(self):
        return self.export(self.counts, len(self.names), np.uint32)

    cdef object export(self, void* data, Py_ssize_t count, dtype):
        cdef _Exported view = _Exported()
        view.owner = self
        view.data = data
        view.size = count * dtype().itemsize
        return np.frombuffer(view, dtype) if count else np.frombuffer(b"", dtype)

    def __sizeof__(self):
        return type(self).__basicsize__ + self.memory_size

    def _moves_to(self, Table new not None):
        """The ranges whose owner differs in `new`, a table of the same seed: four arrays, with
        first and last position and the indexes of the owners here and there (-1: no node)."""
        cdef _Change change = _Change(self, new)
        cdef Py_ssize_t count, room = change.drop_count + change.add_count + 2
        cdef Arc* arcs = <Arc*>malloc(room * sizeof(Arc))
        if arcs is NULL:
            raise MemoryError(f"no memory for a plan of {room} moves")
        try:
            with nogil:
                count = changed_arcs(&self.at, change.new_index, &new.at,
                                     change.drops, change.drop_count,
                                     change.adds, change.add_count, arcs)
            ranges = np.empty((2, count), np.uint64)
            owners = np.empty((2, count), np.int64)
            if count:
                copy_arcs(arcs, count, ranges, owners)
        finally:
            free(arcs)
        return ranges[0], ranges[1], owners[0], owners[1]


cdef int copy_arcs(const Arc* arcs, Py_ssize_t count, uint64_t[:, ::1] ranges,
                   int64_t[:, ::1] owners) except -1:
    cdef Py_ssize_t k
    for k in range(count):
        ranges[0, k] = arcs[k].start
        ranges[1, k] = arcs[k].end
        owners[0, k] = -1 if arcs[k].source == NO_NODE else arcs[k].source
        owners[1, k] = -1 if arcs[k].target == NO_NODE else arcs[k].target
    return 0


@cython.final
cdef class _Change:
    """What makes `new` of `old`: the new index of every old node, and the points dropped and added."""

    cdef uint32_t* new_index
    cdef uint64_t* drops
    cdef uint64_t* adds
    cdef Py_ssize_t drop_count
    cdef Py_ssize_t add_count
    cdef bint renamed          # some index changed

    def __cinit__(self, Table old not None, Table new not None):
        cdef Py_ssize_t i = 0, j = 0, olds = len(old.names), news = len(new.names)
        cdef Py_ssize_t dropped = 0, added = 0
        cdef int order
        cdef uint32_t before, after
        cdef Span* drops = <Span*>malloc((olds + 1) * sizeof(Span))
        cdef Span* adds = <Span*>malloc((news + 1) * sizeof(Span))
        self.new_index = <uint32_t*>malloc((olds + 1) * sizeof(uint32_t))
        try:
            if drops is NULL or adds is NULL or self.new_index is NULL:
                raise MemoryError("no memory to change a ring")
            while i < olds or j < news:
                order = compare_names(old.names, i, olds, new.names, j, news)
                before = old.counts[i] if order <= 0 else 0
                after = new.counts[j] if order >= 0 else 0
                if before > after:
                    old.set_span(&drops[dropped], i, after, before)
                    dropped += 1
                    self.drop_count += before - after
                elif after > before:
                    new.set_span(&adds[added], j, before, after)
                    added += 1
                    self.add_count += after - before
                if order <= 0:
                    self.new_index[i] = <uint32_t>j if order == 0 else GONE
                    self.renamed |= self.new_index[i] != <uint32_t>i
                    i += 1
                if order >= 0:
                    j += 1
            self.drops = sorted_keys(drops, dropped, self.drop_count, old.seed)
            self.adds = sorted_keys(adds, added, self.add_count, new.seed)
        finally:
            free(drops)
            free(adds)

    def __dealloc__(self):
        free(self.new_index)
        free(self.drops)
        free(self.adds)


cdef inline int compare_names(tuple a, Py_ssize_t i, Py_ssize_t a_size,
                              tuple b, Py_ssize_t j, Py_ssize_t b_size) except? -2:
    """As strcmp, where a tuple that has come to its end has the greatest name."""
    if i == a_size:
        return 1
    if j == b_size:
        return -1
    if PyTuple_GET_ITEM(a, i) is PyTuple_GET_ITEM(b, j):
        return 0
    return PyUnicode_Compare(a[i], b[j])


cdef uint64_t* sorted_keys(const Span* spans, Py_ssize_t count, Py_ssize_t points,
                           uint64_t seed) except NULL:
    cdef uint64_t* keys = <uint64_t*>malloc((points + 1) * sizeof(uint64_t))
    cdef bint enough = keys is not NULL
    if enough:
        with nogil:
            enough = hash_points(spans, count, seed, keys) and sort_keys(keys, points)
    if not enough:
        free(keys)
        raise MemoryError(f"no memory to change {points} points of a ring")
    return keys


@cython.final
cdef class Walk:
    """Every node once, in the order of the ring from one key on."""

    cdef Table table
    cdef Py_ssize_t next_point
    cdef Py_ssize_t left
    cdef bytearray seen

    cdef void start(self, Table table, Py_ssize_t first):
        self.table = table
        self.next_point = first
        self.left = PyTuple_GET_SIZE(table.names)
        self.seen = bytearray(self.left)

    def __iter__(self):
        return self

    def __next__(self):
        cdef uint32_t node
        cdef unsigned char* seen = self.seen
        while self.left:
            node = owner_from(&self.table.at, self.next_point)
            self.next_point = self.next_point + 1 if self.next_point < self.table.at.size else 1
            if not seen[node]:
                seen[node] = 1
                self.left -= 1
                return <object>PyTuple_GET_ITEM(self.table.names, node)
        raise StopIteration

    def __length_hint__(self):
        return self.left


cdef class Live:
    """The table that counts now. A reader sees one table or the next, never a half of each."""

    cdef Table table

    def __cinit__(self, *args, **options):
        self.table = NO_TABLE

    cdef inline Table current(self):
        # Costs nothing where there is a GIL. Without one, a reader must not meet a table between
        # its last reference and its end.
        with cython.critical_section(self):
            return self.table

    def _swap(self, Table table not None):
        with cython.critical_section(self):
            self.table = table

    def owner(self, key):
        """owner($self, key, /)
--

Return the owner of `key` in the ring of the moment; as `Ring.owner`, and as fast."""
        return self.current().owner_of(key)

    def __getitem__(self, key):
        return self.current().owner_of(key)

    def owners(self, key, n, distinct="node"):
        """owners($self, key, n, distinct='node')
--

Return the first n distinct nodes from `key` in the ring of the moment; as `Ring.owners`."""
        return self.current().owners_of(key, n, distinct)

    def walk(self, key):
        """walk($self, key, /)
--

Iterate over every node of the ring of the moment once, from `key` on; as `Ring.walk`."""
        return self.current().walk_of(key)

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key`; as `Ring.position`."""
        return self.current().position_of(key)


cdef Table NO_TABLE = Table((), ())


def own_methods(cls):
    """Give `cls` descriptors of its own for the one-key methods that it inherits from a compiled
    class: the interpreter calls a method at full speed only on exactly the class it belongs to."""
    cdef object inherited
    for name in ("owner", "position", "walk"):
        inherited = getattr(cls, name)
        setattr(cls, name, PyDescr_NewMethod(
            <PyTypeObject*>cls, (<PyMethodDescrObject*>inherited).d_method))
    return cls


def xxh3_64(data, uint64_t seed=0):
    """XXH3, 64 bits, of a bytes-like object."""
    cdef Py_buffer view
    cdef uint64_t value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = hash_bytes(<const uint8_t*>view.buf, view.len, seed)
    PyBuffer_Release(&view)
    return value

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
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.list cimport PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_Check, PyUnicode_Compare
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from ringhash._cells cimport (
    NARROW_NODES, Points, buckets_for, cell_size, fill_cells, find, find_in,
    lower_bound, nearest, owner_from, prefetch, prefetch_cell, starts_size,
)
from ringhash._merge cimport (
    GONE, NO_NODE, Arc, Span, changed_arcs, hash_points, merge, patch_cells, place_keys, sort_keys,
)
from ringhash._columns cimport (
    BLOCK, OTHER, PADDED, SIGNED, UNSIGNED, Array, Column, Schema, Stream, Texts, add_text, bind,
    describe, first_null, hash_texts, position_of_bytes as hash_position, read_column,
)
from ringhash._xxh3 cimport rare, xxh3_64 as hash_bytes, xxh3_word

import sys

import numpy as np

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyBool_Check(object)
    Py_ssize_t clipped_size "PyNumber_AsSsize_t"(object, PyObject*) except? -1
    # On borrowed references: a key of a batch is read without touching its reference count.
    bint is_str "PyUnicode_CheckExact"(PyObject*)
    bint is_ascii "PyUnicode_IS_COMPACT_ASCII"(PyObject*)
    void* str_data "PyUnicode_DATA"(PyObject*)
    Py_ssize_t str_size "PyUnicode_GET_LENGTH"(PyObject*)
    bint is_bytes "PyBytes_CheckExact"(PyObject*)
    char* bytes_data "PyBytes_AS_STRING"(PyObject*)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject*)
    bint is_int "PyLong_CheckExact"(PyObject*)
    long long int_value "PyLong_AsLongLongAndOverflow"(PyObject*, int*) except? -1
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    object PyDescr_NewMethod(PyTypeObject*, PyMethodDef*)

cdef enum:
    FAR_POINTS = 50000  # from here on the cells of a block are asked of the memory beforehand
    LARGE = 4194304    # bytes from which on a table asks for large pages
    FEW = 16           # owners that are told apart by comparing them with each other

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define RINGHASH_HAS_GIL 0
    #else
    #define RINGHASH_HAS_GIL 1
    #endif
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Ask for large pages: a lookup in a big ring misses the cache of page addresses otherwise. */
    static void ringhash_large_pages(void *memory, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const size_t page = (size_t)1 << 21;
        uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(uintptr_t)(page - 1);
        uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(page - 1);
        if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    #else
        (void)memory;
        (void)size;
    #endif
    }
    #define ringhash_tuple_items(items) (((PyTupleObject *)(items))->ob_item)
    #define ringhash_list_items(items) (((PyListObject *)(items))->ob_item)
    """
    bint HAS_GIL "RINGHASH_HAS_GIL"
    PyObject** tuple_items "ringhash_tuple_items"(tuple)
    PyObject** list_items "ringhash_list_items"(list)
    void large_pages "ringhash_large_pages"(void*, size_t)

MAX_POINTS = 2**27

cdef object Integer = np.integer


# --- keys -------------------------------------------------------------------------------------

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

    cdef inline uint32_t position_of_bytes(self, const void* data, Py_ssize_t size) noexcept nogil:
        return hash_position(<const uint8_t*>data, size, self.seed, self.hash_tags)

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

    cdef int64_t slow_position(self, object key) except -1:
        cdef const char* text
        cdef Py_ssize_t size
        cdef Py_buffer view
        cdef uint32_t position
        cdef object kind
        if PyUnicode_Check(key):
            text = PyUnicode_AsUTF8AndSize(key, &size)
            return self.position_of_bytes(text, size)
        if PyBytes_Check(key):
            return self.position_of_bytes(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        if PyLong_Check(key) and not PyBool_Check(key):
            return self.position_of_word(word_of(key))
        if isinstance(key, (bytearray, memoryview)):
            if isinstance(key, memoryview) and not key.c_contiguous:
                key = key.tobytes()
            PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
            position = self.position_of_bytes(view.buf, view.len)
            PyBuffer_Release(&view)
            return position
        kind = type(key)
        if isinstance(key, Integer) and hasattr(key, "__index__"):
            return self.position_of_word(word_of(key.__index__()))
        uuid = sys.modules.get("uuid")  # a UUID exists only where its module was imported
        if uuid is not None and isinstance(key, uuid.UUID):
            key = key.bytes
            if not isinstance(key, bytes):
                raise TypeError(f"the bytes of a UUID must be bytes, not {type(key).__name__}")
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
        return self.position_of(<PyObject*>key)

    def _key_bytes(self, key):
        """The bytes of `key` that are hashed, hash tags narrowed."""
        return self.bytes_of(key)

    cdef bytes bytes_of(self, object key):
        cdef bytes data
        cdef Py_ssize_t start, end
        if PyUnicode_Check(key):
            data = PyUnicode_AsUTF8String(key)
        elif isinstance(key, (bytes, bytearray, memoryview)):
            data = bytes(key)
        else:
            self.position(key)  # the errors of what is no key
            if hasattr(key, "__index__"):
                return (int(key.__index__()) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
            return key.bytes
        if self.hash_tags:
            start = data.find(b"{") + 1
            end = data.find(b"}", start) if start else -1
            if end > start:
                return data[start:end]
        return data

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


include "_batch.pxi"


# --- the ring ---------------------------------------------------------------------------------

@cython.final
cdef class _Exported:
    """A read-only view of memory that a table owns; it keeps the table alive."""

    cdef Table owner
    cdef void* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the arrays of a ring are read-only")
        # Not by PyBuffer_FillInfo: it would lose the None that Cython has put into view.obj.
        view.obj = self
        view.buf = self.data
        view.len = self.size
        view.itemsize = 1
        view.readonly = True
        view.format = NULL
        view.ndim = 1
        view.shape = &view.len if flags & PyBUF_ND else NULL
        view.strides = &view.itemsize if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL


cdef class Table(KeySpace):
    """Names in order, their points, and the index in front of them.

    Built from `names` (sorted, distinct) and the number of points of each, or merged from `base`, a
    table of the same seed that has some of the same names. Only points that `base` lacks are hashed.
    Or made of ready points: `keys`, sorted, each position << 32 | index of the name.
    """

    cdef readonly tuple names
    cdef PyObject** name_of    # the items of `names`
    cdef Points at
    cdef uint32_t* counts      # points of each node
    cdef void* memory
    cdef readonly Py_ssize_t memory_size

    def __cinit__(self, tuple names, counts, uint64_t seed=0, bint hash_tags=False,
                  Table base=None, keys=None):
        cdef Py_ssize_t total = 0, node, nodes = len(names)
        cdef list numbers = list(counts)
        if len(numbers) != nodes:
            raise ValueError(f"{nodes} names need {nodes} counts, not {len(numbers)}")
        if base is not None and (base.seed != seed):
            raise ValueError("a table is merged from one of the same seed")
        for node in range(nodes):
            if not 1 <= numbers[node] <= MAX_POINTS:
                raise ValueError(f"a node has at least 1 point, not {numbers[node]}")
            total += <Py_ssize_t>numbers[node]
        if total > MAX_POINTS:
            raise ValueError(f"a ring has at most {MAX_POINTS} points, not {total}")
        self.seed = seed
        self.hash_tags = hash_tags
        self.names = names
        self.name_of = tuple_items(names)
        self.allocate(total, nodes, base)
        for node in range(nodes):
            self.counts[node] = numbers[node]
        if keys is not None:
            self.build_of(keys)
        elif base is None:
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
        at.buckets = buckets_for(points, base.at.buckets if base is not None else 0)
        cells = 0
        starts = cells + at.buckets * cell_size(at.wide)
        counts = starts + starts_size(at.buckets) * sizeof(uint32_t)
        owners = counts + nodes * sizeof(uint32_t)
        size = owners + points * width + points * sizeof(uint32_t) + 64 + 3
        self.memory = PyMem_RawMalloc(size)
        if self.memory is NULL:
            raise MemoryError(f"no {size} bytes for a ring of {points} points")
        self.memory_size = size
        if size >= LARGE:
            large_pages(self.memory, size)
        cells = (-<size_t>self.memory) & 63
        at.cells = <uint8_t*>self.memory + cells
        at.starts = <uint32_t*>(at.cells + starts)
        self.counts = <uint32_t*>(at.cells + counts)
        at.positions = <uint32_t*>(at.cells + owners)
        at.owners = <uint8_t*>(at.positions + points)
        return 0

    cdef int build(self) except -1:
        cdef Py_ssize_t node, nodes = len(self.names)
        cdef bint enough
        # The keys, and as much room to sort them.
        cdef uint64_t* keys = <uint64_t*>malloc((2 * self.at.size + 1) * sizeof(uint64_t))
        cdef Span* spans = <Span*>malloc((nodes + 1) * sizeof(Span))
        try:
            if keys is NULL or spans is NULL:
                raise MemoryError("no memory to build a ring")
            for node in range(nodes):
                self.set_span(&spans[node], node, 0, self.counts[node])
            with nogil:
                enough = hash_points(spans, nodes, self.seed, keys)
                if enough:
                    place_keys(&self.at, sort_keys(keys, keys + self.at.size, self.at.size))
            if not enough:
                raise MemoryError("no memory to build a ring")
        finally:
            free(keys)
            free(spans)
        return 0

    cdef int build_of(self, const uint64_t[::1] keys) except -1:
        cdef Py_ssize_t i, nodes = len(self.names)
        if keys.shape[0] != self.at.size:
            raise ValueError(f"{self.at.size} points need as many keys, not {keys.shape[0]}")
        for i in range(self.at.size):
            if <uint32_t>keys[i] >= nodes or (i and keys[i] < keys[i - 1]):
                raise ValueError(f"the keys of points must be sorted, with indexes below {nodes}")
        if self.at.size:
            place_keys(&self.at, &keys[0])
        else:
            fill_cells(&self.at)
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
            merge(&base.at, renamed, change.new_index, change.drops.sorted, change.drops.count,
                  change.adds.sorted, change.adds.count, &self.at)
            if self.at.buckets == base.at.buckets and self.at.wide == base.at.wide and base.at.size:
                patch_cells(&base.at, renamed, change.new_index, change.drops.sorted, change.drops.count,
                            change.adds.sorted, change.adds.count, &self.at)
            else:
                fill_cells(&self.at)
        return 0

    # One key. `owner` and `ring[key]` are the hot path.

    cdef inline object owner_of(self, object key):
        cdef uint32_t position = <uint32_t>self.position_of(<PyObject*>key)
        if rare(self.at.size == 0):
            self._fail_empty()
        return <object>self.name_of[find(&self.at, position)]

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
        cdef Py_ssize_t wanted, k
        cdef uint32_t[FEW] nodes
        cdef tuple names
        cdef object name
        if distinct != "node":
            return self._owners_by(key, n, distinct)
        cdef uint32_t position = <uint32_t>self.position_of(<PyObject*>key)
        wanted = clipped_size(n, NULL)
        if wanted < 1 or wanted > PyTuple_GET_SIZE(self.names):
            self._fail_count(n)
        if wanted > FEW:
            walk = self.walk_of(key)
            return tuple([next(walk) for _ in range(wanted)])
        nearest(&self.at, position, wanted, nodes)
        names = PyTuple_New(wanted)
        for k in range(wanted):
            name = <object>self.name_of[nodes[k]]
            Py_INCREF(name)
            PyTuple_SET_ITEM(names, k, name)
        return names

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
        cdef uint32_t position = <uint32_t>self.position_of(<PyObject*>key)
        if self.at.size == 0:
            self._fail_empty()
        walk.start(self, lower_bound(&self.at, position))
        return walk

    # Many keys.

    def _indexes(self, Batch batch not None):
        """Owners of many keys, as indexes. Columns are read with the GIL released."""
        batch.rewind()
        out = np.empty(batch.size, np.intp)
        if batch.size == 0:
            return out
        if self.at.size == 0:
            self._fail_empty()
        cdef Py_ssize_t[::1] target = out
        cdef uint32_t[BLOCK] positions
        cdef Py_ssize_t done = 0, count
        if batch.is_columns():
            with nogil:
                while done < batch.size:
                    count = min(<Py_ssize_t>BLOCK, batch.size - done)
                    batch.read_columns(self, count, positions)
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
        cdef Points at = self.at
        cdef Py_ssize_t k
        if at.size > FAR_POINTS:
            for k in range(count):
                prefetch_cell(&at, positions[k])
        if at.wide:
            for k in range(count):
                target[k] = find_in(&at, positions[k], True)
        else:
            for k in range(count):
                target[k] = find_in(&at, positions[k], False)

    def _owners(self, Batch batch not None):
        """Owners of many keys, as names."""
        cdef const Py_ssize_t[::1] indexes = self._indexes(batch)
        cdef Py_ssize_t k, count = indexes.shape[0]
        cdef list names = PyList_New(count)
        cdef object name
        for k in range(count):
            name = <object>self.name_of[indexes[k]]
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
        cdef Py_ssize_t count, room = change.drops.count + change.adds.count + 2
        cdef Arc* arcs = <Arc*>malloc(room * sizeof(Arc))
        if arcs is NULL:
            raise MemoryError(f"no memory for a plan of {room} moves")
        try:
            with nogil:
                count = changed_arcs(&self.at, change.new_index, &new.at,
                                     change.drops.sorted, change.drops.count,
                                     change.adds.sorted, change.adds.count, arcs)
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


cdef struct _Keys:
    uint64_t* memory
    uint64_t* sorted
    Py_ssize_t count


@cython.final
cdef class _Change:
    """What makes `new` of `old`: the new index of every old node, and the points dropped and added."""

    cdef uint32_t* new_index
    cdef _Keys drops           # with old node indexes
    cdef _Keys adds            # with new ones
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
                    self.drops.count += before - after
                elif after > before:
                    new.set_span(&adds[added], j, before, after)
                    added += 1
                    self.adds.count += after - before
                if order <= 0:
                    self.new_index[i] = <uint32_t>j if order == 0 else GONE
                    self.renamed |= self.new_index[i] != <uint32_t>i
                    i += 1
                if order >= 0:
                    j += 1
            set_keys(&self.drops, drops, dropped, old.seed)
            set_keys(&self.adds, adds, added, new.seed)
        finally:
            free(drops)
            free(adds)

    def __dealloc__(self):
        free(self.new_index)
        free(self.drops.memory)
        free(self.adds.memory)


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


cdef int set_keys(_Keys* keys, const Span* spans, Py_ssize_t count, uint64_t seed) except -1:
    """Hash and sort the points of `spans`; `keys.count` of them."""
    cdef bint enough
    keys.memory = <uint64_t*>malloc((2 * keys.count + 1) * sizeof(uint64_t))
    enough = keys.memory is not NULL
    if enough:
        with nogil:
            enough = hash_points(spans, count, seed, keys.memory)
            if enough:
                keys.sorted = sort_keys(keys.memory, keys.memory + keys.count, keys.count)
    if not enough:
        raise MemoryError(f"no memory to change {keys.count} points of a ring")
    return 0


@cython.final
cdef class Walk:
    """Every node once, in the order of the ring from one key on."""

    cdef Table table
    cdef Py_ssize_t next_point
    cdef Py_ssize_t left
    cdef bytearray seen
    cdef object ahead          # the name of a node that comes before all others, or None

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
        cdef object name
        if self.ahead is not None:
            name = self.ahead
            self.ahead = None
            return name
        while self.left:
            node = owner_from(&self.table.at, self.next_point)
            self.next_point = self.next_point + 1 if self.next_point < self.table.at.size else 1
            if not seen[node]:
                seen[node] = 1
                self.left -= 1
                return <object>self.table.name_of[node]
        raise StopIteration

    def __length_hint__(self):
        return self.left + (self.ahead is not None)


cdef class Live:
    """The table that counts now. A reader sees one table or the next, never a half of each.

    While there are pins (some keys, by their hashed bytes, that go to a node of their own) they are
    asked before the table. The two are swapped together.
    """

    cdef Table table
    cdef dict pins             # hashed bytes -> name of a node of the table; None: there are none

    def __cinit__(self, *args, **options):
        self.table = NO_TABLE

    cdef inline Table current(self):
        # Costs nothing where there is a GIL. Without one, a reader must not meet a table between
        # its last reference and its end.
        with cython.critical_section(self):
            return self.table

    cdef tuple table_and_pin(self, object key):
        """The table, and the name of the node that `key` is pinned to or None."""
        cdef Table table
        cdef dict pins
        with cython.critical_section(self):
            table = self.table
            pins = self.pins
        return table, None if pins is None else pins.get(table.bytes_of(key))

    def _swap(self, Table table not None, dict pins=None):
        with cython.critical_section(self):
            self.table = table
            self.pins = pins

    cdef object owner_or_pin(self, object key):
        cdef Table table
        table, name = self.table_and_pin(key)
        return table.owner_of(key) if name is None else name

    cdef tuple owners_or_pin(self, object key, object n, object distinct):
        cdef Table table
        table, name = self.table_and_pin(key)
        if name is None:
            return table.owners_of(key, n, distinct)
        return table._owners_along(walk_from(table, key, name), n, distinct)

    cdef Walk walk_or_pin(self, object key):
        cdef Table table
        table, name = self.table_and_pin(key)
        return table.walk_of(key) if name is None else walk_from(table, key, name)

    def owner(self, key):
        """owner($self, key, /)
--

Return the owner of `key` in the ring of the moment; as `Ring.owner`, and as fast."""
        if rare(self.pins is not None):
            return self.owner_or_pin(key)
        return self.current().owner_of(key)

    def __getitem__(self, key):
        if rare(self.pins is not None):
            return self.owner_or_pin(key)
        return self.current().owner_of(key)

    def owners(self, key, n, distinct="node"):
        """owners($self, key, n, distinct='node')
--

Return the first n distinct nodes from `key` in the ring of the moment; as `Ring.owners`."""
        if rare(self.pins is not None):
            return self.owners_or_pin(key, n, distinct)
        return self.current().owners_of(key, n, distinct)

    def walk(self, key):
        """walk($self, key, /)
--

Iterate over every node of the ring of the moment once, from `key` on; as `Ring.walk`."""
        if rare(self.pins is not None):
            return self.walk_or_pin(key)
        return self.current().walk_of(key)

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key`; as `Ring.position`."""
        return self.current().position_of(<PyObject*>key)


cdef Walk walk_from(Table table, object key, object first):
    """The walk of `key`, but the node named `first` is first."""
    cdef Walk walk = table.walk_of(key)
    walk.seen[table.names.index(first)] = 1
    walk.left -= 1
    walk.ahead = first
    return walk


cdef Table NO_TABLE = Table((), ())


include "_loads.pxi"


def own_methods(cls):
    """Give `cls` descriptors of its own for the lookups of one key that it inherits from a compiled
    class: the interpreter calls a method at full speed only on exactly the class it belongs to."""
    cdef object inherited
    for name in ("acquire", "owner", "owners", "position", "walk"):
        inherited = getattr(cls, name, None)
        if inherited is not None:
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

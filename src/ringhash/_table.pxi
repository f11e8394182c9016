# A part of _core.pyx: names, their points, and the owner of a key.

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


cdef class Table(HashSpace):
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

    cdef object owner_of(self, object key):
        return self.answer(key)

    @cython.final
    cdef object answer(self, object key):
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
        return self.answer(key)

    def __getitem__(self, key):
        """As `owner(key)`, and a little faster."""
        return self.answer(key)

    def _fail_empty(self):
        raise LookupError("the ring has no nodes")

    def owners(self, key, n, distinct="node", strict=False):
        """owners($self, key, n, distinct='node', strict=False)
--

Return the names of the first n distinct nodes clockwise from `key`: its preference list.

Args:
    key: As for `owner`.
    n: At least 1. Where there are fewer nodes, you get them all.
    distinct: "node", or "zone" to spread over zones first: the walk is taken in passes, and each
        pass takes the nodes left whose zone it has not taken yet.
    strict: Whether fewer than n nodes are an error.

Returns:
    A tuple of n names, or fewer; always the first n of `owners(key, n + 1)`.

Raises:
    ValueError: n is less than 1, `distinct` is neither of the two, or with `strict` there are
        fewer than n nodes.
    EmptyRingError, TypeError, OverflowError: As for `owner`; TypeError also for an n that is no int.

Cost: O(n) points looked at on average. Method: preference lists, as in Dynamo (2007).

>>> from ringhash import Ring
>>> ring = Ring(["gw-1", "gw-2", "gw-3"])
>>> ring.owners("user:7", 2) == tuple(ring.walk("user:7"))[:2]
True
>>> len(ring.owners("user:7", 5))
3
"""
        return self.owners_of(key, n, distinct, strict)

    cdef tuple owners_of(self, object key, object n, object distinct, object strict):
        cdef Py_ssize_t wanted, k
        cdef uint32_t[FEW] nodes
        cdef tuple names
        cdef object name
        cdef uint32_t position
        wanted = count_of(n)
        if distinct is not NODE and distinct != NODE:
            return self._owners_by(key, self.at_most(wanted, strict), distinct)
        position = <uint32_t>self.position_of(<PyObject*>key)
        if rare(wanted > PyTuple_GET_SIZE(self.names)) or rare(wanted > FEW):
            wanted = self.at_most(wanted, strict)
            walk = self.walk_of(key)
            return tuple([next(walk) for _ in range(wanted)])
        nearest(&self.at, position, wanted, nodes)
        names = PyTuple_New(wanted)
        for k in range(wanted):
            name = <object>self.name_of[nodes[k]]
            Py_INCREF(name)
            PyTuple_SET_ITEM(names, k, name)
        return names

    cdef Py_ssize_t at_most(self, Py_ssize_t wanted, object strict) except -1:
        """`wanted`, or how many nodes there are, if that is less and allowed."""
        cdef Py_ssize_t nodes = PyTuple_GET_SIZE(self.names)
        if nodes == 0:
            self._fail_empty()
        if wanted > nodes and strict:
            self._fail_count(wanted)
        return min(wanted, nodes)

    def _fail_count(self, n):
        raise ValueError(f"there are {len(self.names)} nodes, and {n} were asked for")

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
        cdef uint32_t position = <uint32_t>self.position_off_path(key)
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

    def _indexes_at(self, const uint32_t[::1] positions):
        """Owners of many positions, as indexes."""
        out = np.empty(positions.shape[0], np.intp)
        cdef Py_ssize_t[::1] target = out
        if positions.shape[0]:
            if self.at.size == 0:
                self._fail_empty()
            with nogil:
                self.find_block(&positions[0], positions.shape[0], &target[0])
        return out

    def owner_at(self, uint32_t position):
        """owner_at($self, position, /)
--

Return the name of the node that owns a position, from 0 to 2**32 - 1.

Raises:
    EmptyRingError: There are no nodes.
    TypeError, OverflowError: `position` is no int, or out of range.

>>> from ringhash import Ring
>>> ring = Ring(["gw-1", "gw-2"])
>>> ring.owner_at(ring.position("user:7")) == ring.owner("user:7")
True
"""
        if self.at.size == 0:
            self._fail_empty()
        # Not by `find`: with one caller more the compiler would no longer inline it where it counts.
        return <object>self.name_of[owner_from(&self.at, lower_bound(&self.at, position))]

    def _owners(self, Batch batch not None):
        """Owners of many keys, as names."""
        return list_of_names(self.name_of, self._indexes(batch))

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


cdef object NODE = "node"  # what `distinct` nearly always is: one object, compared by identity first


cdef inline Py_ssize_t count_of(object n) except -1:
    """How many nodes are asked for."""
    cdef Py_ssize_t count
    cdef int overflow = 0
    if is_int(<PyObject*>n):
        count = int_value(<PyObject*>n, &overflow)
        if rare(overflow != 0):
            count = 0x7FFFFFFFFFFFFFFF if overflow > 0 else 0
    elif PyBool_Check(n) or not PyIndex_Check(n):
        raise TypeError(f"n must be an int of at least 1, not {n!r}")
    else:
        count = clipped_size(n, NULL)
    if rare(count < 1):
        raise ValueError(f"n must be at least 1, not {n}")
    return count

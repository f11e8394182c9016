# A part of _core.pyx: what makes one table of another.

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

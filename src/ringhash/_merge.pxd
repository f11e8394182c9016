"""Making points, merging a change into a ring, and the ranges in which two rings differ.

A point on its way is one uint64 key: position << 32 | index of its node. Nodes are ordered by
name, so the order of the keys is the order of the ring, ties included.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset

from ringhash._cells cimport (
    BUCKETS_A_START, CELL_POINTS, RESTS_SIZE, Points, advance, bucket_of, cell_size, fill_cell, fill_cells, first_in_bucket,
    lower_bound, owner_at, owner_from, set_owner, starts_size,
)
from ringhash._xxh3 cimport xxh3_64

cdef enum:
    NO_NODE = 0xFFFFFFFF       # the owner in a ring that has no nodes
    GONE = 0xFFFFFFFE          # the new index of a node that left
    LONG_RUN = 32              # keys in one part of the sort from which on qsort takes over

cdef struct Span:              # some consecutive points of one node
    const char* name
    Py_ssize_t name_size
    uint32_t node
    uint32_t begin
    uint32_t end

cdef struct Arc:               # a range that has another owner in the other ring
    uint32_t start
    uint32_t end
    uint32_t source
    uint32_t target

cdef inline bint hash_points(const Span* spans, Py_ssize_t count, uint64_t seed,
                             uint64_t* keys) noexcept nogil:
    """Write the keys of all points of `spans`; False when there is no memory."""
    cdef uint8_t[256] short_name
    cdef uint8_t* name
    cdef Py_ssize_t s, size, room = 0
    cdef uint32_t i
    cdef uint8_t* long_name = NULL
    for s in range(count):
        size = spans[s].name_size
        if size + 4 <= 256:
            name = short_name
        else:
            if size + 4 > room:
                free(long_name)
                room = size + 4
                long_name = <uint8_t*>malloc(room)
                if long_name is NULL:
                    return False
            name = long_name
        memcpy(name, spans[s].name, size)
        for i in range(spans[s].begin, spans[s].end):
            name[size] = <uint8_t>i
            name[size + 1] = <uint8_t>(i >> 8)
            name[size + 2] = <uint8_t>(i >> 16)
            name[size + 3] = <uint8_t>(i >> 24)
            keys[0] = (xxh3_64(name, size + 4, seed) & 0xFFFFFFFF00000000u) | spans[s].node
            keys += 1
    free(long_name)
    return True

cdef inline int compare_keys(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*>a)[0]
    cdef uint64_t y = (<const uint64_t*>b)[0]
    return (x > y) - (x < y)

cdef inline void sort_run(uint64_t* keys, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef uint64_t key
    if count > LONG_RUN:
        qsort(keys, count, sizeof(uint64_t), compare_keys)
        return
    for i in range(1, count):
        key = keys[i]
        j = i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key

cdef inline bint sort_keys(uint64_t* keys, Py_ssize_t count) noexcept nogil:
    """Sort by one scatter into parts of about 4 keys: hashes are spread evenly.

    Names chosen to collide only make a part long, and qsort takes it. False: no memory.
    """
    cdef uint64_t parts = <uint64_t>(count // 4) + 1
    cdef uint64_t part
    cdef uint64_t* sorted_keys
    cdef uint32_t* ends
    cdef Py_ssize_t i
    cdef uint32_t at = 0, size
    if count <= LONG_RUN:
        sort_run(keys, count)
        return True
    sorted_keys = <uint64_t*>malloc(count * sizeof(uint64_t))
    ends = <uint32_t*>malloc(parts * sizeof(uint32_t))
    if sorted_keys is NULL or ends is NULL:
        free(sorted_keys)
        free(ends)
        return False
    memset(ends, 0, parts * sizeof(uint32_t))
    for i in range(count):
        ends[((keys[i] >> 32) * parts) >> 32] += 1
    for part in range(parts):
        size = ends[part]
        ends[part] = at
        at += size
    for i in range(count):
        part = ((keys[i] >> 32) * parts) >> 32
        sorted_keys[ends[part]] = keys[i]
        ends[part] += 1
    at = 0
    for part in range(parts):
        sort_run(sorted_keys + at, ends[part] - at)
        at = ends[part]
    memcpy(keys, sorted_keys, count * sizeof(uint64_t))
    free(sorted_keys)
    free(ends)
    return True

cdef inline void place_keys(Points* at, const uint64_t* keys) noexcept nogil:
    """Fill an allocated ring from its sorted keys."""
    cdef Py_ssize_t i
    for i in range(at.size):
        at.positions[i] = <uint32_t>(keys[i] >> 32)
        set_owner(at.owners, at.wide, i, <uint32_t>keys[i])
    fill_cells(at)

cdef inline void copy_owners(const Points* old, const uint8_t* source, bint renamed,
                             const uint32_t* new_index, bint wide, uint8_t* target,
                             Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    if not renamed and old.wide == wide:
        memcpy(target, source, count * (4 if wide else 2))
    elif not old.wide and not wide:
        for i in range(count):
            (<uint16_t*>target)[i] = <uint16_t>new_index[(<const uint16_t*>source)[i]]
    elif old.wide and wide:
        for i in range(count):
            (<uint32_t*>target)[i] = new_index[(<const uint32_t*>source)[i]]
    elif wide:
        for i in range(count):
            (<uint32_t*>target)[i] = new_index[(<const uint16_t*>source)[i]]
    else:
        for i in range(count):
            (<uint16_t*>target)[i] = <uint16_t>new_index[(<const uint32_t*>source)[i]]

cdef inline void copy_run(const Points* old, Py_ssize_t begin, Py_ssize_t end, bint renamed,
                          const uint32_t* new_index, Points* new, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t old_width = 4 if old.wide else 2, new_width = 4 if new.wide else 2
    memcpy(new.positions + at, old.positions + begin, (end - begin) * sizeof(uint32_t))
    copy_owners(old, old.owners + begin * old_width, renamed, new_index, new.wide,
                new.owners + at * new_width, end - begin)

cdef inline void merge(const Points* old, bint renamed, const uint32_t* new_index,
                       const uint64_t* drops, Py_ssize_t drop_count,
                       const uint64_t* adds, Py_ssize_t add_count, Points* new) noexcept nogil:
    """Write the points of `new`: those of `old` with other node indexes, less drops, plus adds.

    The keys of `drops` have old indexes, those of `adds` new ones; both are sorted. Runs between
    two changes are copied whole.
    """
    cdef Py_ssize_t i = 0, j, o = 0, d = 0, a = 0
    cdef uint64_t position
    cdef bint here
    while d < drop_count or a < add_count:
        if a == add_count or (d < drop_count and drops[d] >> 32 < adds[a] >> 32):
            position = drops[d] >> 32
        else:
            position = adds[a] >> 32
        j = advance(old, i, <uint32_t>position)
        copy_run(old, i, j, renamed, new_index, new, o)
        o += j - i
        i = j
        while True:  # the tie at this position, usually of one point
            here = i < old.size and old.positions[i] == position
            if here and d < drop_count and drops[d] == (position << 32 | owner_at(old, i)):
                d += 1
                i += 1
            elif a < add_count and adds[a] >> 32 == position and not (
                    here and new_index[owner_at(old, i)] <= <uint32_t>adds[a]):
                new.positions[o] = <uint32_t>position
                set_owner(new.owners, new.wide, o, <uint32_t>adds[a])
                a += 1
                o += 1
            elif here:
                new.positions[o] = <uint32_t>position
                set_owner(new.owners, new.wide, o, new_index[owner_at(old, i)])
                i += 1
                o += 1
            else:
                break
    copy_run(old, i, old.size, renamed, new_index, new, o)

cdef inline uint64_t refill(Points* new, uint64_t bucket) noexcept nogil:
    """Refill `bucket` and, since their cells name the next point, the ones before it down to the
    first that has a point; return the last one filled."""
    cdef Py_ssize_t first = first_in_bucket(new, bucket)
    fill_cell(new, bucket, first)
    while bucket > 0:
        bucket -= 1
        first = first_in_bucket(new, bucket)
        if fill_cell(new, bucket, first) != first:
            break
    return bucket

cdef inline void patch_cells(const Points* old, bint renamed, const uint32_t* new_index,
                             const uint64_t* drops, Py_ssize_t drop_count,
                             const uint64_t* adds, Py_ssize_t add_count,
                             Points* new) noexcept nogil:
    """Copy the cells of `old` and refill the changed ones. Both have the same buckets and width."""
    cdef uint64_t bucket, window, lowest
    cdef Py_ssize_t d = 0, a = 0
    cdef size_t size = cell_size(new.wide)
    cdef const uint8_t* source
    cdef uint8_t* target
    cdef uint32_t position
    memcpy(new.cells, old.cells, new.buckets * size)
    if renamed:
        for bucket in range(new.buckets):
            source = old.cells + bucket * size + RESTS_SIZE
            target = new.cells + bucket * size + RESTS_SIZE
            copy_owners(old, source, True, new_index, new.wide, target, CELL_POINTS)
    for window in range(<uint64_t>starts_size(new.buckets)):
        bucket = window * BUCKETS_A_START
        while d < drop_count and bucket_of(new, <uint32_t>(drops[d] >> 32)) < bucket:
            d += 1
        while a < add_count and bucket_of(new, <uint32_t>(adds[a] >> 32)) < bucket:
            a += 1
        new.starts[window] = <uint32_t>(old.starts[window] + a - d)
    # The last buckets name the first point of the ring.
    lowest = refill(new, new.buckets - 1)
    d = drop_count
    a = add_count
    while d > 0 or a > 0:
        if a == 0 or (d > 0 and drops[d - 1] > adds[a - 1]):
            d -= 1
            position = <uint32_t>(drops[d] >> 32)
        else:
            a -= 1
            position = <uint32_t>(adds[a] >> 32)
        bucket = bucket_of(new, position)
        if bucket <= lowest:  # those above it, up to the change before, are empty
            lowest = refill(new, bucket)

cdef inline Py_ssize_t put_arc(Arc* arcs, Py_ssize_t count, uint32_t start, uint32_t end,
                               uint32_t source, uint32_t target) noexcept nogil:
    """Append, or lengthen the last one when it goes on with the same owners."""
    if (count and arcs[count - 1].source == source and arcs[count - 1].target == target
            and <uint64_t>arcs[count - 1].end + 1 == start):
        arcs[count - 1].end = end
        return count
    arcs[count].start = start
    arcs[count].end = end
    arcs[count].source = source
    arcs[count].target = target
    return count + 1

cdef inline Py_ssize_t changed_arcs(const Points* old, const uint32_t* new_index,
                                    const Points* new,
                                    const uint64_t* drops, Py_ssize_t drop_count,
                                    const uint64_t* adds, Py_ssize_t add_count,
                                    Arc* arcs) noexcept nogil:
    """Write the ranges whose owner differs, in order; there is room for the changes and one more.

    Where the owners of a position differ, the nearer of its two next points is in one ring only:
    it is one of the changes. So only the arcs that end in a changed point are looked at.
    """
    cdef Py_ssize_t d = 0, a = 0, i = 0, j = 0, count = 0
    cdef uint64_t position, start, last = 0
    cdef uint32_t before, after, wrap_source = NO_NODE, wrap_target = NO_NODE
    cdef bint wraps = False
    if old.size:
        last = old.positions[old.size - 1]
    if new.size and new.positions[new.size - 1] > last:
        last = new.positions[new.size - 1]
    while d < drop_count or a < add_count:
        if a == add_count or (d < drop_count and drops[d] >> 32 < adds[a] >> 32):
            position = drops[d] >> 32
        else:
            position = adds[a] >> 32
        while d < drop_count and drops[d] >> 32 == position:
            d += 1
        while a < add_count and adds[a] >> 32 == position:
            a += 1
        i = advance(old, i, <uint32_t>position)
        j = advance(new, j, <uint32_t>position)
        before = owner_from(old, i) if old.size else NO_NODE
        after = owner_from(new, j) if new.size else NO_NODE
        if (new_index[before] if old.size else NO_NODE) == after:
            continue
        if i == 0 and j == 0:
            start = 0
            wraps = True
            wrap_source = before
            wrap_target = after
        else:
            start = 0
            if i:
                start = <uint64_t>old.positions[i - 1] + 1
            if j and <uint64_t>new.positions[j - 1] + 1 > start:
                start = <uint64_t>new.positions[j - 1] + 1
        count = put_arc(arcs, count, <uint32_t>start, <uint32_t>position, before, after)
    if wraps and last < 0xFFFFFFFFu:
        count = put_arc(arcs, count, <uint32_t>(last + 1), 0xFFFFFFFFu, wrap_source, wrap_target)
    return count

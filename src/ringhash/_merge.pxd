"""Making points, merging a change into a ring, and the ranges in which two rings differ.

A point on its way is one uint64 key: position << 32 | index of its node. Nodes are ordered by
name, so the order of the keys is the order of the ring, ties included.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ringhash._cells cimport (
    BUCKETS_A_START, CELL_POINTS, RESTS_SIZE, Points, advance, bucket_of, cell_size, fill_cell,
    fill_cells, first_in_bucket, lower_bound, owner_at, owner_from, set_owner, starts_size,
)
from ringhash._xxh3 cimport xxh3_64

cdef enum:
    NO_NODE = 0xFFFFFFFF       # the owner in a ring that has no nodes
    GONE = 0xFFFFFFFE          # the new index of a node that left
    COPIES = 16
    SHORT_NAME = 256           # with the four bytes of the point number

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
    """Write the keys of all points of `spans`; False when there is no memory.

    A name is hashed with its point number behind it. Several copies of the name take turns, since a
    read of bytes that were written just now waits until they have reached the cache.
    """
    cdef uint8_t[COPIES * SHORT_NAME] short_names
    cdef uint8_t* names = short_names
    cdef uint8_t* long_names = NULL
    cdef uint8_t* tail
    cdef Py_ssize_t s, size, copy, room = SHORT_NAME
    cdef uint32_t i, first
    for s in range(count):
        size = spans[s].name_size + 4
        if size > room:
            free(long_names)
            room = size
            long_names = <uint8_t*>malloc(COPIES * room)
            if long_names is NULL:
                return False
            names = long_names
        for copy in range(COPIES):
            memcpy(names + copy * room, spans[s].name, size - 4)
        first = spans[s].begin
        while first < spans[s].end:
            for copy in range(COPIES):
                i = first + <uint32_t>copy
                tail = names + copy * room + size - 4
                tail[0] = <uint8_t>i
                tail[1] = <uint8_t>(i >> 8)
                tail[2] = <uint8_t>(i >> 16)
                tail[3] = <uint8_t>(i >> 24)
            for copy in range(min(<Py_ssize_t>COPIES, <Py_ssize_t>(spans[s].end - first))):
                keys[0] = ((xxh3_64(names + copy * room, size, seed) & 0xFFFFFFFF00000000u)
                           | spans[s].node)
                keys += 1
            first += COPIES
    free(long_names)
    return True

cdef inline uint64_t* sort_keys(uint64_t* keys, uint64_t* room, Py_ssize_t count) noexcept nogil:
    """Sort by position and return which of the two arrays has the result; both have `count` keys.

    A radix sort from the lowest digit up: stable, so that keys made in the order of their nodes
    stay so within a tie, and as fast for names that were chosen to collide as for any others.
    """
    cdef uint32_t[3 * 2048] ends
    cdef int bits = 8 if count < 4096 else 11, digits = 4 if count < 4096 else 3
    cdef uint32_t values = 1u << bits, mask = values - 1, at, size, value
    cdef int digit, shift
    cdef Py_ssize_t i
    cdef uint32_t* digit_ends
    memset(ends, 0, digits * values * sizeof(uint32_t))
    for i in range(count):
        for digit in range(digits):
            ends[digit * values + (<uint32_t>(keys[i] >> (32 + bits * digit)) & mask)] += 1
    for digit in range(digits):
        shift = 32 + bits * digit
        digit_ends = ends + digit * values
        at = 0
        for value in range(values):
            size = digit_ends[value]
            digit_ends[value] = at
            at += size
        for i in range(count):
            value = <uint32_t>(keys[i] >> shift) & mask
            room[digit_ends[value]] = keys[i]
            digit_ends[value] += 1
        keys, room = room, keys
    return keys

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

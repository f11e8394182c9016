"""The points of a ring in memory, and the index that answers a lookup with one cache line.

    points   uint32, sorted           owners   uint16 (uint32 from 65,536 nodes on)
    +----+----+----+----+----+--      +----+----+----+----+----+--
    |  3 | 17 | 17 | 90 | ...         |  0 |  2 |  5 |  0 | ...
    +----+----+----+----+----+--      +----+----+----+----+----+--

The 2^32 positions are cut into `buckets` equal parts of 13 points on average (10 in small rings).
A bucket has a cell:

    a position p:   p * buckets = bucket : 32 bits | rest : 16 bits | 16 bits not kept
    a cell:         16 rests (sorted, 2 bytes each) | 16 owners; 64 bytes, one cache line

A lookup takes the first rest that is not below its own, and that is the place of its owner in the line:
no loop, no branch to mispredict, one line loaded. Places behind the last point of a bucket hold the
greatest rest and the owner of the next point, so that a key behind the last point is answered too.
Two cases cannot be told from the cell alone and take a binary search: an equal rest (16 bits were
dropped, about 1 key in 5,000), and a key behind 16 points of a bucket that has more (about 1 in
25). `starts` has the index of the first point of every eighth bucket, so that this search looks at
about 100 points.
"""
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t

from ringhash._xxh3 cimport rare

cdef extern from *:
    """
    #if UINTPTR_MAX < 0xFFFFFFFFFFFFFFFF
    #error "ringhash needs a 64-bit machine: sizes and sums of a ring do not fit into 32 bits"
    #endif
    #if !defined(RINGHASH_PORTABLE) && (defined(__SSE2__) || defined(_M_X64))
    #include <emmintrin.h>
    #define RINGHASH_SSE2 1
    #define RINGHASH_CELL "sse2"
    #elif !defined(RINGHASH_PORTABLE) && defined(__aarch64__) && defined(__ARM_NEON) \\
        && !defined(__AARCH64EB__)
    #include <arm_neon.h>
    #define RINGHASH_NEON 1
    #define RINGHASH_CELL "neon"
    #else
    #define RINGHASH_CELL "portable"
    #endif
    #if defined(__GNUC__)
    #define RINGHASH_PREFETCH(p) __builtin_prefetch(p)
    #else
    #include <intrin.h>
    #define RINGHASH_PREFETCH(p)
    #endif

    /* The place of the first of 16 rests that is not below `rest`; 16 when there is none. The last one
       may be out of order (see fill_cell), so counting those below would be wrong. */
    static inline unsigned ringhash_first_not_below(const int16_t *rests, int16_t rest) {
    #ifdef RINGHASH_SSE2
        __m128i key = _mm_set1_epi16(rest);
        __m128i low = _mm_cmplt_epi16(_mm_load_si128((const __m128i *)rests), key);
        __m128i high = _mm_cmplt_epi16(_mm_load_si128((const __m128i *)rests + 1), key);
        unsigned not_below = ~(unsigned)_mm_movemask_epi8(_mm_packs_epi16(low, high));
    #if !defined(__GNUC__)
        unsigned long first;
        _BitScanForward(&first, not_below);
        return (unsigned)first;
    #else
        return (unsigned)__builtin_ctz(not_below);
    #endif
    #elif defined(RINGHASH_NEON)
        /* Four bits for each, as there is no movemask. `rbit` and `clz` give 64 for none, so no branch. */
        int16x8_t key = vdupq_n_s16(rest);
        uint8x16_t low = vreinterpretq_u8_u16(vcgeq_s16(vld1q_s16(rests), key));
        uint8x16_t high = vreinterpretq_u8_u16(vcgeq_s16(vld1q_s16(rests + 8), key));
        uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(vuzp1q_u8(low, high)), 4);
        uint64_t not_below = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
        return (not_below ? (unsigned)__builtin_ctzll(not_below) : 64u) >> 2;
    #else
        /* As below with SSE2: a bit for each, and the lowest that is not set. No branch to guess. */
        unsigned below = 0;
        for (int i = 0; i < 16; i++) below |= (unsigned)(rests[i] < rest) << i;
    #if defined(__GNUC__)
        return (unsigned)__builtin_ctz(~below);
    #else
        unsigned place = 0;
        while (below & 1) {
            below >>= 1;
            place++;
        }
        return place;
    #endif
    #endif
    }
    """
    const char* CELL "RINGHASH_CELL"
    unsigned int first_not_below "ringhash_first_not_below"(const int16_t*, int16_t) noexcept nogil
    void prefetch "RINGHASH_PREFETCH"(const void*) noexcept nogil

cdef enum:
    SMALL = 8192         # a ring of fewer points affords emptier buckets: fewer keys need a search
    SMALL_LOAD = 10      # points a bucket when the cells are made anew
    LOAD = 13
    CELL_POINTS = 16
    RESTS_SIZE = 32      # bytes of the 16 rests, before the owners of a cell
    LAST_REST = 0x7FFF   # the greatest: only a place behind the last point has it at the end
    BUCKETS_A_START = 8
    NARROW_NODES = 65536

cdef struct Points:
    Py_ssize_t size
    uint32_t* positions
    uint8_t* owners       # uint16_t or uint32_t, by `wide`
    bint wide
    uint64_t buckets      # at least 1
    uint8_t* cells
    uint32_t* starts

cdef inline size_t cell_size(bint wide) noexcept nogil:
    return 96 if wide else 64

cdef inline uint32_t owner_at(const Points* at, Py_ssize_t i) noexcept nogil:
    if at.wide:
        return (<uint32_t*>at.owners)[i]
    return (<uint16_t*>at.owners)[i]

cdef inline void set_owner(uint8_t* owners, bint wide, Py_ssize_t i,
                           uint32_t owner) noexcept nogil:
    if wide:
        (<uint32_t*>owners)[i] = owner
    else:
        (<uint16_t*>owners)[i] = <uint16_t>owner

cdef inline uint64_t bucket_of(const Points* at, uint32_t position) noexcept nogil:
    return (position * at.buckets) >> 32

cdef inline int16_t rest_of(const Points* at, uint32_t position) noexcept nogil:
    """The 16 bits after the bucket, shifted to be compared as a signed number."""
    return <int16_t>(<uint16_t>((position * at.buckets) >> 16) ^ 0x8000u)

cdef inline uint64_t buckets_for(Py_ssize_t points, uint64_t kept) noexcept nogil:
    """How many buckets a ring of so many points has; a changed one keeps its `kept` (0: none) while
    their load stays near what it should be, so that most cells stay as they are."""
    cdef uint64_t load = SMALL_LOAD if points < SMALL else LOAD
    if kept and kept * (load - 2) <= <uint64_t>points <= kept * (load + 1):
        return kept
    return max(<uint64_t>1, (<uint64_t>points + load - 1) // load)

cdef inline Py_ssize_t starts_size(uint64_t buckets) noexcept nogil:
    return <Py_ssize_t>((buckets + BUCKETS_A_START - 1) // BUCKETS_A_START) + 1

cdef inline Py_ssize_t lower_bound(const Points* at, uint32_t position) noexcept nogil:
    """The index of the first point at or after `position`; `size` when there is none."""
    cdef uint64_t window = bucket_of(at, position) // BUCKETS_A_START
    cdef Py_ssize_t low = at.starts[window]
    cdef Py_ssize_t count = at.starts[window + 1] - low
    cdef Py_ssize_t half
    while count > 0:
        half = count >> 1
        if at.positions[low + half] < position:
            low += half + 1
            count -= half + 1
        else:
            count = half
    return low

cdef inline Py_ssize_t advance(const Points* at, Py_ssize_t i, uint32_t position) noexcept nogil:
    """As `lower_bound`, when the answer is at or after `i` and probably close."""
    cdef int _step
    for _step in range(8):
        if i >= at.size or at.positions[i] >= position:
            return i
        i += 1
    return lower_bound(at, position)

cdef inline uint32_t owner_from(const Points* at, Py_ssize_t i) noexcept nogil:
    """The owner of the first point from index `i` on, round the ring."""
    return owner_at(at, i if i < at.size else 0)

cdef inline uint32_t find_in(const Points* at, uint32_t position, bint wide) noexcept nogil:
    """The index of the node that owns `position`. The ring must not be empty."""
    cdef uint64_t scaled = position * at.buckets
    cdef const uint8_t* cell = at.cells + (scaled >> 32) * cell_size(wide)
    cdef const int16_t* rests = <const int16_t*>cell
    cdef int16_t rest = <int16_t>(<uint16_t>(scaled >> 16) ^ 0x8000u)
    cdef unsigned int place = first_not_below(rests, rest)
    # With place 16 this reads the first owner: a wrong answer, not a wrong address.
    if rare(place == CELL_POINTS or rests[place] == rest):
        return owner_from(at, lower_bound(at, position))
    if wide:
        return (<const uint32_t*>(cell + RESTS_SIZE))[place]
    return (<const uint16_t*>(cell + RESTS_SIZE))[place]

cdef inline uint32_t find(const Points* at, uint32_t position) noexcept nogil:
    return find_in(at, position, at.wide)

cdef inline bint is_whole(const int16_t* rests) noexcept nogil:
    """Whether the cell has all points of its bucket; the owners of its places are then, in order
    and with repetitions, the owners up to the next bucket's first point."""
    return rests[CELL_POINTS - 1] == LAST_REST

cdef inline void nearest(const Points* at, uint32_t position, Py_ssize_t wanted,
                         uint32_t* found) noexcept nogil:
    """Write the first `wanted` distinct owners from `position` on; there are that many nodes."""
    cdef uint64_t bucket = bucket_of(at, position)
    cdef const uint8_t* cell = at.cells + bucket * cell_size(at.wide)
    cdef int16_t rest = rest_of(at, position)
    cdef Py_ssize_t place = first_not_below(<const int16_t*>cell, rest), count = 0, i
    cdef uint32_t owner
    if place < CELL_POINTS and (<const int16_t*>cell)[place] != rest:
        while is_whole(<const int16_t*>cell):
            while place < CELL_POINTS:
                if at.wide:
                    owner = (<const uint32_t*>(cell + RESTS_SIZE))[place]
                else:
                    owner = (<const uint16_t*>(cell + RESTS_SIZE))[place]
                count += add_distinct(found, count, owner)
                if count == wanted:
                    return
                place += 1
            place = 0
            bucket = bucket + 1 if bucket + 1 < at.buckets else 0
            cell = at.cells + bucket * cell_size(at.wide)
    i = lower_bound(at, position)
    count = 0
    while count < wanted:
        count += add_distinct(found, count, owner_from(at, i))
        i = i + 1 if i < at.size else 1

cdef inline bint add_distinct(uint32_t* found, Py_ssize_t count, uint32_t owner) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(count):
        if found[k] == owner:
            return False
    found[count] = owner
    return True

cdef inline void prefetch_cell(const Points* at, uint32_t position) noexcept nogil:
    prefetch(at.cells + ((position * at.buckets) >> 32) * cell_size(at.wide))

cdef inline Py_ssize_t fill_cell(Points* at, uint64_t bucket, Py_ssize_t i) noexcept nogil:
    """Write the cell of `bucket`, whose first point is `i`; return the next bucket's first."""
    cdef uint8_t* cell = at.cells + bucket * cell_size(at.wide)
    cdef int16_t* rests = <int16_t*>cell
    cdef uint8_t* owners = cell + RESTS_SIZE
    cdef int place = 0
    cdef uint32_t after
    while i < at.size and bucket_of(at, at.positions[i]) == bucket:
        if place < CELL_POINTS:
            rests[place] = rest_of(at, at.positions[i])
            set_owner(owners, at.wide, place, owner_at(at, i))
            place += 1
        elif rests[CELL_POINTS - 1] == LAST_REST:
            # Behind a LAST_REST in the place before, this one is out of order; a lookup does not mind, as
            # it takes the first that is not below: never this one, then, but the one before.
            rests[CELL_POINTS - 1] = LAST_REST - 1  # more points follow: see `is_whole`
        i += 1
    if place < CELL_POINTS:
        after = owner_from(at, i)
        while place < CELL_POINTS:
            rests[place] = LAST_REST
            set_owner(owners, at.wide, place, after)
            place += 1
    return i

cdef inline void fill_cells(Points* at) noexcept nogil:
    cdef uint64_t bucket
    cdef Py_ssize_t i = 0
    if at.size == 0:
        at.starts[0] = at.starts[1] = 0
        return
    for bucket in range(at.buckets):
        if bucket % BUCKETS_A_START == 0:
            at.starts[bucket // BUCKETS_A_START] = <uint32_t>i
        i = fill_cell(at, bucket, i)
    at.starts[starts_size(at.buckets) - 1] = <uint32_t>i

cdef inline Py_ssize_t first_in_bucket(const Points* at, uint64_t bucket) noexcept nogil:
    return lower_bound(at, <uint32_t>(((bucket << 32) + at.buckets - 1) // at.buckets))

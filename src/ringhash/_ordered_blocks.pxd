"""Sorted byte strings in one piece of memory, and how many of them are at or below a given one.

    prefix   what all keys of the block begin with, once
    heads    the next 8 bytes of each key, big endian, filled up with zeros: a number that sorts as they do
    lengths  how many of these 8 are the key's own: it tells "a" from "a" and a zero byte
    tails    what is left of each key, behind offsets; neither is there while no key is longer
    levels   of the heads every 16th, of these every 16th: two cache lines are read on each level

A search compares heads. Only where a head equals that of the key are the tails compared.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from ringhash._cells cimport prefetch

cdef extern from *:
    """
    #include <string.h>
    static inline uint64_t ringhash_big64(const uint8_t *p) {
        return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 | (uint64_t)p[3] << 32
             | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | (uint64_t)p[7];
    }
    static inline uint64_t ringhash_big32(const uint8_t *p) {
        return (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | (uint64_t)p[3];
    }
    /* The first 8 bytes as a number, filled up with zeros. From 4 bytes on two reads overlap. */
    static inline uint64_t ringhash_head(const uint8_t *p, Py_ssize_t size) {
        if (size >= 8) return ringhash_big64(p);
        if (size >= 4) return ringhash_big32(p) << 32 | ringhash_big32(p + size - 4) << (8 * (8 - size));
        uint64_t head = 0;
        for (Py_ssize_t i = 0; i < size; i++) head |= (uint64_t)p[i] << (56 - 8 * i);
        return head;
    }
    /* How many of the `count` sorted numbers are at most `head`; no branch depends on them. */
    static inline Py_ssize_t ringhash_upto(const uint64_t *numbers, Py_ssize_t count, uint64_t head) {
        const uint64_t *base = numbers;
        while (count > 1) {
            Py_ssize_t half = count >> 1;
            base += base[half - 1] <= head ? half : 0;
            count -= half;
        }
        return base - numbers + (count && *base <= head);
    }
    """
    uint64_t big64 "ringhash_big64"(const uint8_t*) noexcept nogil
    uint64_t head_of "ringhash_head"(const uint8_t*, Py_ssize_t) noexcept nogil
    Py_ssize_t numbers_upto "ringhash_upto"(const uint64_t*, Py_ssize_t, uint64_t) noexcept nogil

cdef enum:
    FAN = 16        # entries of a level for one of the level above
    LEVELS = 14     # enough for 2**56 keys
    HEAD = 8

cdef struct Text:
    const uint8_t* data
    Py_ssize_t size

cdef struct Block:
    Py_ssize_t size
    Py_ssize_t prefix_size
    Py_ssize_t levels
    const uint8_t* prefix
    const uint8_t* lengths
    const uint32_t* offsets         # NULL: no tails
    const uint8_t* tails
    const uint64_t* level[LEVELS]   # the first are the heads
    Py_ssize_t count[LEVELS]

cdef inline int compare(const Block* at, Py_ssize_t i, const uint8_t* rest, Py_ssize_t size) noexcept nogil:
    """The sign of key i minus another one of an equal prefix and head; `rest` is that without the prefix."""
    cdef Py_ssize_t own = at.lengths[i], other = size if size < HEAD else HEAD
    cdef int sign
    if own != other:
        return -1 if own < other else 1
    if own < HEAD:
        return 0
    own = at.offsets[i + 1] - at.offsets[i] if at.offsets is not NULL else 0
    other = size - HEAD
    if own and other:
        sign = memcmp(at.tails + at.offsets[i], rest + HEAD, own if own < other else other)
        if sign:
            return sign
    return (own > other) - (own < other)

cdef inline Py_ssize_t heads_upto(const Block* at, uint64_t head) noexcept nogil:
    """How many heads are at most `head`."""
    cdef Py_ssize_t level = at.levels - 1, first = 0, found, count
    while True:
        count = at.count[level] - first
        found = first + numbers_upto(at.level[level] + first, FAN if count > FAN else count, head)
        if found == 0 or level == 0:
            return found
        level -= 1
        first = (found - 1) * FAN

cdef inline Py_ssize_t settle(const Block* at, Py_ssize_t found, uint64_t head, const uint8_t* rest,
                              Py_ssize_t size) noexcept nogil:
    """How many keys are at most the given one, of whose heads `found` are at most its own."""
    cdef Py_ssize_t low, high, middle
    if found == 0 or at.level[0][found - 1] != head or compare(at, found - 1, rest, size) <= 0:
        return found
    low = heads_upto(at, head - 1) if head else 0
    high = found - 1
    while low < high:
        middle = (low + high) >> 1
        if compare(at, middle, rest, size) <= 0:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline Py_ssize_t beside(const Block* at, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """-1 if the key begins with the prefix; else how many keys are at most it: none or all."""
    cdef int sign
    cdef Py_ssize_t prefix = at.prefix_size
    if prefix == 0:
        return -1
    sign = memcmp(at.prefix, data, prefix if prefix < size else size) if size else 0
    if sign == 0:
        return -1 if size >= prefix else 0
    return 0 if sign > 0 else at.size

cdef inline Py_ssize_t upto(const Block* at, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """How many keys of the block are at most the given one."""
    cdef uint64_t head
    cdef Py_ssize_t found = beside(at, data, size)
    if found >= 0:
        return found
    data += at.prefix_size
    size -= at.prefix_size
    head = head_of(data, size)
    return settle(at, heads_upto(at, head), head, data, size)

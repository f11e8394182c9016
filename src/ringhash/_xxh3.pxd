"""XXH3, 64 bits, written from the published specification of xxHash.

Every multi-byte read is put together from single bytes with shifts, least significant first. A
compiler turns that into one load on a little-endian machine and into a load and a byte swap on a
big-endian one, so the answer does not depend on the machine, and no read needs an alignment.

Five ways by length: 0, 1-3, 4-8, 9-16 and 17-128 bytes are a few multiplications each and are
inlined; 129-240 and longer inputs are ordinary functions.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__)
    #define RINGHASH_RARE(x) __builtin_expect(!!(x), 0)
    #else
    #define RINGHASH_RARE(x) (x)
    #endif
    #if defined(_MSC_VER) && defined(_M_X64)
    #include <intrin.h>
    #endif

    /* The low half of a 64 x 64 bit product, xor its high half. */
    static inline uint64_t ringhash_mul_fold(uint64_t a, uint64_t b) {
    #if defined(__SIZEOF_INT128__)
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    #elif defined(_MSC_VER) && defined(_M_X64)
        uint64_t high, low = _umul128(a, b, &high);
        return low ^ high;
    #else
        uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
        uint64_t ll = al * bl, hl = ah * bl, lh = al * bh, hh = ah * bh;
        uint64_t middle = (ll >> 32) + (uint32_t)hl + lh;
        uint64_t high = hh + (hl >> 32) + (middle >> 32);
        return ((middle << 32) | (uint32_t)ll) ^ high;
    #endif
    }

    static const uint8_t RINGHASH_XXH3_SECRET[192] = {
        0xb8,0xfe,0x6c,0x39,0x23,0xa4,0x4b,0xbe,0x7c,0x01,0x81,0x2c,0xf7,0x21,0xad,0x1c,
        0xde,0xd4,0x6d,0xe9,0x83,0x90,0x97,0xdb,0x72,0x40,0xa4,0xa4,0xb7,0xb3,0x67,0x1f,
        0xcb,0x79,0xe6,0x4e,0xcc,0xc0,0xe5,0x78,0x82,0x5a,0xd0,0x7d,0xcc,0xff,0x72,0x21,
        0xb8,0x08,0x46,0x74,0xf7,0x43,0x24,0x8e,0xe0,0x35,0x90,0xe6,0x81,0x3a,0x26,0x4c,
        0x3c,0x28,0x52,0xbb,0x91,0xc3,0x00,0xcb,0x88,0xd0,0x65,0x8b,0x1b,0x53,0x2e,0xa3,
        0x71,0x64,0x48,0x97,0xa2,0x0d,0xf9,0x4e,0x38,0x19,0xef,0x46,0xa9,0xde,0xac,0xd8,
        0xa8,0xfa,0x76,0x3f,0xe3,0x9c,0x34,0x3f,0xf9,0xdc,0xbb,0xc7,0xc7,0x0b,0x4f,0x1d,
        0x8a,0x51,0xe0,0x4b,0xcd,0xb4,0x59,0x31,0xc8,0x9f,0x7e,0xc9,0xd9,0x78,0x73,0x64,
        0xea,0xc5,0xac,0x83,0x34,0xd3,0xeb,0xc3,0xc5,0x81,0xa0,0xff,0xfa,0x13,0x63,0xeb,
        0x17,0x0d,0xdd,0x51,0xb7,0xf0,0xda,0x49,0xd3,0x16,0x55,0x26,0x29,0xd4,0x68,0x9e,
        0x2b,0x16,0xbe,0x58,0x7d,0x47,0xa1,0xfc,0x8f,0xf8,0xb8,0xd1,0x7a,0xd0,0x31,0xce,
        0x45,0xcb,0x3a,0x8f,0x95,0x16,0x04,0x28,0xaf,0xd7,0xfb,0xca,0xbb,0x4b,0x40,0x7e
    };
    """
    bint rare "RINGHASH_RARE"(bint) noexcept nogil
    uint64_t mul_fold "ringhash_mul_fold"(uint64_t a, uint64_t b) noexcept nogil
    const uint8_t* SECRET "RINGHASH_XXH3_SECRET"

cdef enum:
    SECRET_SIZE = 192
    STRIPE = 64
    STRIPES_A_BLOCK = 16  # (SECRET_SIZE - STRIPE) / 8

cdef inline uint32_t read32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24)

cdef inline uint64_t read64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>p[0] | <uint64_t>p[1] << 8 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 24
            | <uint64_t>p[4] << 32 | <uint64_t>p[5] << 40
            | <uint64_t>p[6] << 48 | <uint64_t>p[7] << 56)

cdef inline void write64(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <uint8_t>(value >> (8 * i))

cdef inline uint32_t swap32(uint32_t x) noexcept nogil:
    return (x << 24) | ((x << 8) & 0x00FF0000u) | ((x >> 8) & 0x0000FF00u) | (x >> 24)

cdef inline uint64_t swap64(uint64_t x) noexcept nogil:
    return (<uint64_t>swap32(<uint32_t>x) << 32) | swap32(<uint32_t>(x >> 32))

cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))

cdef inline uint64_t avalanche_xxh64(uint64_t h) noexcept nogil:
    h ^= h >> 33
    h *= 0xC2B2AE3D27D4EB4Fu
    h ^= h >> 29
    h *= 0x165667B19E3779F9u
    return h ^ (h >> 32)

cdef inline uint64_t avalanche(uint64_t h) noexcept nogil:
    h ^= h >> 37
    h *= 0x165667919E3779F9u
    return h ^ (h >> 32)

cdef inline uint64_t mix16(const uint8_t* p, const uint8_t* secret, uint64_t seed) noexcept nogil:
    return mul_fold(read64(p) ^ (read64(secret) + seed),
                    read64(p + 8) ^ (read64(secret + 8) - seed))

cdef inline uint64_t xxh3_4to8(uint32_t first, uint32_t last, size_t size,
                               uint64_t seed) noexcept nogil:
    cdef uint64_t h
    seed ^= <uint64_t>swap32(<uint32_t>seed) << 32
    h = ((<uint64_t>last + (<uint64_t>first << 32))
         ^ ((read64(SECRET + 8) ^ read64(SECRET + 16)) - seed))
    h ^= rotate(h, 49) ^ rotate(h, 24)
    h *= 0x9FB21C651E98DF25u
    h ^= (h >> 35) + <uint64_t>size
    h *= 0x9FB21C651E98DF25u
    return h ^ (h >> 28)

cdef inline uint64_t xxh3_word(uint64_t word, uint64_t seed) noexcept nogil:
    """The hash of the 8 little-endian bytes of `word`."""
    return xxh3_4to8(<uint32_t>word, <uint32_t>(word >> 32), 8, seed)

cdef inline uint64_t xxh3_0to16(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t low, high
    if size > 8:
        low = read64(p) ^ ((read64(SECRET + 24) ^ read64(SECRET + 32)) + seed)
        high = read64(p + size - 8) ^ ((read64(SECRET + 40) ^ read64(SECRET + 48)) - seed)
        return avalanche(<uint64_t>size + swap64(low) + high + mul_fold(low, high))
    if size >= 4:
        return xxh3_4to8(read32(p), read32(p + size - 4), size, seed)
    if size:
        return avalanche_xxh64(
            (<uint64_t>(<uint32_t>p[0] << 16 | <uint32_t>p[size >> 1] << 24
                        | <uint32_t>p[size - 1] | <uint32_t>size << 8))
            ^ (<uint64_t>(read32(SECRET) ^ read32(SECRET + 4)) + seed))
    return avalanche_xxh64(seed ^ read64(SECRET + 56) ^ read64(SECRET + 64))

cdef inline uint64_t xxh3_17to128(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t h = <uint64_t>size * 0x9E3779B185EBCA87u
    if size > 32:
        if size > 64:
            if size > 96:
                h += mix16(p + 48, SECRET + 96, seed)
                h += mix16(p + size - 64, SECRET + 112, seed)
            h += mix16(p + 32, SECRET + 64, seed)
            h += mix16(p + size - 48, SECRET + 80, seed)
        h += mix16(p + 16, SECRET + 32, seed)
        h += mix16(p + size - 32, SECRET + 48, seed)
    h += mix16(p, SECRET, seed)
    h += mix16(p + size - 16, SECRET + 16, seed)
    return avalanche(h)

cdef inline uint64_t xxh3_129to240(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t h = <uint64_t>size * 0x9E3779B185EBCA87u
    cdef size_t i
    for i in range(8):
        h += mix16(p + 16 * i, SECRET + 16 * i, seed)
    h = avalanche(h)
    for i in range(8, size // 16):
        h += mix16(p + 16 * i, SECRET + 16 * (i - 8) + 3, seed)
    return avalanche(h + mix16(p + size - 16, SECRET + 136 - 17, seed))

cdef inline void accumulate(uint64_t* lanes, const uint8_t* p,
                            const uint8_t* secret) noexcept nogil:
    cdef uint64_t data, keyed
    cdef int i
    for i in range(8):
        data = read64(p + 8 * i)
        keyed = data ^ read64(secret + 8 * i)
        lanes[i ^ 1] += data
        lanes[i] += (keyed & 0xFFFFFFFFu) * (keyed >> 32)

cdef inline uint64_t xxh3_long(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t[8] lanes
    cdef uint8_t[192] secret
    cdef size_t stripes = (size - 1) // STRIPE, stripe
    cdef uint64_t h
    cdef int i
    for i in range(0, SECRET_SIZE, 16):
        write64(secret + i, read64(SECRET + i) + seed)
        write64(secret + i + 8, read64(SECRET + i + 8) - seed)
    lanes[0] = 0xC2B2AE3Du
    lanes[1] = 0x9E3779B185EBCA87u
    lanes[2] = 0xC2B2AE3D27D4EB4Fu
    lanes[3] = 0x165667B19E3779F9u
    lanes[4] = 0x85EBCA77C2B2AE63u
    lanes[5] = 0x85EBCA77u
    lanes[6] = 0x27D4EB2F165667C5u
    lanes[7] = 0x9E3779B1u
    for stripe in range(stripes):
        accumulate(lanes, p + stripe * STRIPE, secret + 8 * (stripe % STRIPES_A_BLOCK))
        if stripe % STRIPES_A_BLOCK == STRIPES_A_BLOCK - 1:
            for i in range(8):
                lanes[i] ^= lanes[i] >> 47
                lanes[i] ^= read64(secret + SECRET_SIZE - STRIPE + 8 * i)
                lanes[i] *= 0x9E3779B1u
    accumulate(lanes, p + size - STRIPE, secret + SECRET_SIZE - STRIPE - 7)
    h = <uint64_t>size * 0x9E3779B185EBCA87u
    for i in range(4):
        h += mul_fold(lanes[2 * i] ^ read64(secret + 11 + 16 * i),
                      lanes[2 * i + 1] ^ read64(secret + 11 + 16 * i + 8))
    return avalanche(h)

cdef inline uint64_t xxh3_64(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    if rare(size > 128):
        return xxh3_129to240(p, size, seed) if size <= 240 else xxh3_long(p, size, seed)
    return xxh3_17to128(p, size, seed) if size > 16 else xxh3_0to16(p, size, seed)

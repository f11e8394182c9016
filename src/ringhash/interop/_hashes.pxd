"""The hashes of keys and points, bit for bit as the programs compute them.

Each takes bytes and gives up to 64 bits. A program that reads its key as `char` extends the sign of
a byte from 128 on, and here that is said by `int8_t`. Multi-byte words are read little endian on
every machine.

MD5 comes from hashlib. CRC-32 and XXH64 are here although zlib and xxhash have
them: a call out of a lookup costs more than the hash. The tests compare both with those libraries, for
every length.
"""
from libc.stdint cimport int8_t, uint8_t, uint16_t, uint32_t, uint64_t

ctypedef uint64_t (*hash_function)(const uint8_t*, Py_ssize_t) noexcept nogil


cdef inline uint32_t word32(const uint8_t* d) noexcept nogil:
    return d[0] | (<uint32_t>d[1] << 8) | (<uint32_t>d[2] << 16) | (<uint32_t>d[3] << 24)

cdef inline uint64_t word64(const uint8_t* d) noexcept nogil:
    return word32(d) | (<uint64_t>word32(d + 4) << 32)

cdef inline uint32_t rotl32(uint32_t x, uint32_t n) noexcept nogil:
    return (x << (n & 31)) | (x >> ((32 - n) & 31))

cdef inline uint64_t rotl64(uint64_t x, int n) noexcept nogil:
    return (x << n) | (x >> (64 - n))


# CRC-32 as in zlib, Ethernet and nginx (reflected polynomial 0xEDB88320), four bytes a step.

cdef extern from *:
    """
    static uint32_t ringhash_crc_table[4][256];
    static void ringhash_fill_crc_table(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0);
            ringhash_crc_table[0][i] = c;
        }
        for (int k = 1; k < 4; k++)
            for (uint32_t i = 0; i < 256; i++) {
                uint32_t c = ringhash_crc_table[k - 1][i];
                ringhash_crc_table[k][i] = (c >> 8) ^ ringhash_crc_table[0][c & 255];
            }
    }
    """
    uint32_t[4][256] crc_table "ringhash_crc_table"
    void fill_crc_table "ringhash_fill_crc_table"()

cdef inline uint32_t crc32_word(uint32_t register, uint32_t word) noexcept nogil:
    register ^= word
    return (crc_table[3][register & 255] ^ crc_table[2][(register >> 8) & 255]
            ^ crc_table[1][(register >> 16) & 255] ^ crc_table[0][register >> 24])

cdef inline uint64_t crc32(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0xFFFFFFFFu
    while size >= 4:
        h = crc32_word(h, word32(d))
        d += 4
        size -= 4
    while size > 0:
        h = (h >> 8) ^ crc_table[0][(h ^ d[0]) & 255]
        d += 1
        size -= 1
    return <uint32_t>~h

cdef inline uint64_t crc32_15(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """What libmemcached and twemproxy call crc32."""
    return (crc32(d, size) >> 16) & 0x7FFFu


# XXH64 by Yann Collet, from doc/xxhash_spec.md, with the seed 0.

cdef inline uint64_t xxh_round(uint64_t lane, uint64_t word) noexcept nogil:
    return rotl64(lane + word * 0xC2B2AE3D27D4EB4Fu, 31) * 0x9E3779B185EBCA87u

cdef inline uint64_t xxh_merge(uint64_t h, uint64_t lane) noexcept nogil:
    return (h ^ xxh_round(0, lane)) * 0x9E3779B185EBCA87u + 0x85EBCA77C2B2AE63u

cdef inline uint64_t xxh64(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p3 = 0x165667B19E3779F9u
    cdef uint64_t p4 = 0x85EBCA77C2B2AE63u, p5 = 0x27D4EB2F165667C5u
    cdef uint64_t h, a, b, c, e, length = <uint64_t>size
    if size >= 32:
        a = p1 + p2
        b = p2
        c = 0
        e = 0 - p1
        while size >= 32:
            a = xxh_round(a, word64(d))
            b = xxh_round(b, word64(d + 8))
            c = xxh_round(c, word64(d + 16))
            e = xxh_round(e, word64(d + 24))
            d += 32
            size -= 32
        h = rotl64(a, 1) + rotl64(b, 7) + rotl64(c, 12) + rotl64(e, 18)
        h = xxh_merge(xxh_merge(xxh_merge(xxh_merge(h, a), b), c), e)
    else:
        h = p5
    h += length
    while size >= 8:
        h = rotl64(h ^ xxh_round(0, word64(d)), 27) * p1 + p4
        d += 8
        size -= 8
    if size >= 4:
        h = rotl64(h ^ (word32(d) * p1), 23) * p2 + p3
        d += 4
        size -= 4
    while size > 0:
        h = rotl64(h ^ (d[0] * p5), 11) * p1
        d += 1
        size -= 1
    h = (h ^ (h >> 33)) * p2
    h = (h ^ (h >> 29)) * p3
    return h ^ (h >> 32)


# HAProxy: src/hash.c (sdbm, djb2, wt6) and include/haproxy/tools.h (full_hash). wt6 is by Willy
# Tarreau; djb2 is Bernstein's; sdbm is of the database library of that name.

cdef inline uint64_t haproxy_sdbm(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0
    cdef Py_ssize_t i
    for i in range(size):
        h = d[i] + h * 65599u
    return h

cdef inline uint64_t haproxy_djb2(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 5381
    cdef Py_ssize_t i
    for i in range(size):
        h = h * 33u + d[i]
    return h

cdef inline uint64_t haproxy_wt6(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h0 = 0xA53C965Au, h1 = 0x5CA6953Au, step0 = 6, step1 = 18, t
    cdef Py_ssize_t i
    for i in range(size):
        h0 = ~(h0 ^ <uint32_t>d[i])
        h1 = ~(h1 + <uint32_t>d[i])
        t = rotl32(h1, step0)
        h1 = rotl32(h0, step1)
        h0 = t
        t = ((h0 >> 16) ^ h1) & 0xFFFFu
        step0 = t & 0x1Fu
        step1 = t >> 11
    return h0 ^ h1

cdef inline uint32_t haproxy_full(uint32_t a) noexcept nogil:
    """Bob Jenkins' six-step integer hash, times a prime near 3/4 of the ring."""
    a = (a + 0x7ED55D16u) + (a << 12)
    a = (a ^ 0xC761C23Cu) ^ (a >> 19)
    a = (a + 0x165667B1u) + (a << 5)
    a = (a + 0xD3A2646Cu) ^ (a << 9)
    a = (a + 0xFD7046C5u) + (a << 3)
    a = (a ^ 0xB55A4F09u) ^ (a >> 16)
    return a * 3221225473u

cdef inline uint64_t haproxy_sdbm_full(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return haproxy_full(<uint32_t>haproxy_sdbm(d, size))

cdef inline uint64_t haproxy_djb2_full(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return haproxy_full(<uint32_t>haproxy_djb2(d, size))

cdef inline uint64_t haproxy_wt6_full(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return haproxy_full(<uint32_t>haproxy_wt6(d, size))

cdef inline uint64_t haproxy_crc32_full(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return haproxy_full(<uint32_t>crc32(d, size))


# libmemcached (libhashkit/*.cc) and twemproxy (src/hashkit/nc_*.c), which took them over.

cdef inline uint64_t one_at_a_time(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """Bob Jenkins' one-at-a-time (Dr. Dobb's, 1997)."""
    cdef uint32_t h = 0
    cdef Py_ssize_t i
    for i in range(size):
        h += <uint32_t>(<int8_t>d[i])
        h += h << 10
        h ^= h >> 6
    h += h << 3
    h ^= h >> 11
    h += h << 15
    return h

# Fowler, Noll and Vo. The 64-bit fnv1 is cut to its lower half in the end, the fnv1a from the start.

cdef inline uint64_t fnv1_64(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint64_t h = 0xCBF29CE484222325u
    cdef Py_ssize_t i
    for i in range(size):
        h *= 0x100000001B3u
        h ^= <uint64_t>(<int8_t>d[i])
    return <uint32_t>h

cdef inline uint64_t fnv1a_64(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0x84222325u
    cdef Py_ssize_t i
    for i in range(size):
        h ^= <uint32_t>(<int8_t>d[i])
        h *= 0x1B3u
    return h

cdef inline uint64_t fnv1_32(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef Py_ssize_t i
    for i in range(size):
        h *= 16777619u
        h ^= <uint32_t>(<int8_t>d[i])
    return h

cdef inline uint64_t fnv1a_32(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef Py_ssize_t i
    for i in range(size):
        h ^= <uint32_t>(<int8_t>d[i])
        h *= 16777619u
    return h

cdef inline uint32_t murmur2(const uint8_t* d, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """Austin Appleby's MurmurHash2, 32 bits."""
    cdef uint32_t h = seed ^ <uint32_t>size, k
    while size >= 4:
        k = word32(d) * 0x5BD1E995u
        k ^= k >> 24
        h = (h * 0x5BD1E995u) ^ (k * 0x5BD1E995u)
        d += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>d[2] << 16
    if size >= 2:
        h ^= <uint32_t>d[1] << 8
    if size >= 1:
        h = (h ^ d[0]) * 0x5BD1E995u
    h ^= h >> 13
    h *= 0x5BD1E995u
    return h ^ (h >> 15)

cdef inline uint64_t murmur(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return murmur2(d, size, 0xDEADBEEFu * <uint32_t>size)

cdef inline uint64_t jenkins(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """Bob Jenkins' lookup3 (2006), `hashlittle` with the initial value 13."""
    cdef uint32_t a = 0xDEADBEEFu + <uint32_t>size + 13u, b, c
    cdef uint8_t[12] last
    cdef Py_ssize_t i
    b = c = a
    while size > 12:
        a += word32(d)
        b += word32(d + 4)
        c += word32(d + 8)
        a -= c
        a ^= rotl32(c, 4)
        c += b
        b -= a
        b ^= rotl32(a, 6)
        a += c
        c -= b
        c ^= rotl32(b, 8)
        b += a
        a -= c
        a ^= rotl32(c, 16)
        c += b
        b -= a
        b ^= rotl32(a, 19)
        a += c
        c -= b
        c ^= rotl32(b, 4)
        b += a
        d += 12
        size -= 12
    if size == 0:
        return c
    for i in range(12):
        last[i] = d[i] if i < size else 0
    a += word32(last)
    b += word32(last + 4)
    c += word32(last + 8)
    c ^= b
    c -= rotl32(b, 14)
    a ^= c
    a -= rotl32(c, 11)
    b ^= a
    b -= rotl32(a, 25)
    c ^= b
    c -= rotl32(b, 16)
    a ^= c
    a -= rotl32(c, 4)
    b ^= a
    b -= rotl32(a, 14)
    c ^= b
    c -= rotl32(b, 24)
    return c

cdef inline uint64_t hsieh(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """Paul Hsieh's SuperFastHash (2004); the third byte of a rest of three is signed."""
    cdef uint32_t h = 0, t
    cdef Py_ssize_t words = size >> 2, rest = size & 3
    if size == 0:
        return 0
    while words:
        h += d[0] | (<uint32_t>d[1] << 8)
        t = ((d[2] | (<uint32_t>d[3] << 8)) << 11) ^ h
        h = (h << 16) ^ t
        h += h >> 11
        d += 4
        words -= 1
    if rest == 3:
        h += d[0] | (<uint32_t>d[1] << 8)
        h ^= h << 16
        h ^= <uint32_t>(<int8_t>d[2]) << 18
        h += h >> 11
    elif rest == 2:
        h += d[0] | (<uint32_t>d[1] << 8)
        h ^= h << 11
        h += h >> 17
    elif rest == 1:
        h += d[0]
        h ^= h << 10
        h += h >> 1
    h ^= h << 3
    h += h >> 5
    h ^= h << 4
    h += h >> 17
    h ^= h << 25
    h += h >> 6
    return h

cdef inline uint64_t twemproxy_crc16(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """The CRC-16 of XMODEM in an accumulator of 32 bits that is never masked (nc_crc16.c, 0.5.0)."""
    cdef uint32_t h = 0, entry
    cdef Py_ssize_t i
    cdef int _
    for i in range(size):
        entry = ((h >> 8) ^ d[i]) & 0xFFu
        entry <<= 8
        for _ in range(8):
            entry = ((entry << 1) ^ (0x1021u if entry & 0x8000u else 0)) & 0xFFFFu
        h = (h << 8) ^ entry
    return h


# MurmurHash3_x86_32 by Austin Appleby.

cdef inline uint32_t murmur3_word(uint32_t word) noexcept nogil:
    return rotl32(word * 0xCC9E2D51u, 15) * 0x1B873593u

cdef inline uint32_t murmur3_32(const uint8_t* d, Py_ssize_t size, uint32_t seed) noexcept nogil:
    cdef uint32_t h = seed, word = 0
    cdef Py_ssize_t k, left = size
    while left >= 4:
        h = rotl32(h ^ murmur3_word(word32(d)), 13) * 5 + 0xE6546B64u
        d += 4
        left -= 4
    for k in range(left):
        word |= <uint32_t>d[k] << (8 * k)
    h ^= murmur3_word(word) ^ <uint32_t>size
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu
    h = (h ^ (h >> 13)) * 0xC2B2AE35u
    return h ^ (h >> 16)

cdef inline uint64_t murmur3(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """With the seed of libhashkit/murmur3.cc."""
    return murmur3_32(d, size, 0xDEADBEEFu * <uint32_t>size)


# Kafka: org.apache.kafka.common.utils.Utils.murmur2; librdkafka: rdfnv1a.c.

cdef inline uint64_t kafka_murmur2(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    return murmur2(d, size, 0x9747B28Cu) & 0x7FFFFFFFu

cdef inline uint64_t kafka_fnv1a(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """FNV-1a, 32 bits, read as a signed number whose sign is dropped."""
    cdef uint32_t h = 2166136261u
    cdef Py_ssize_t i
    for i in range(size):
        h ^= d[i]
        h *= 16777619u
    return h if h < 0x80000000u else <uint32_t>(0u - h)


# Envoy: MurmurHash64A as libstdc++ has it (libsupc++/hash_bytes.cc), seed of std::hash.

cdef inline uint64_t envoy_murmur2(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    cdef uint64_t mul = 0xC6A4A7935BD1E995u, h, k
    cdef Py_ssize_t i
    h = 0xC70F6907u ^ (<uint64_t>size * mul)
    while size >= 8:
        k = word64(d) * mul
        k = (k ^ (k >> 47)) * mul
        h = (h ^ k) * mul
        d += 8
        size -= 8
    if size:
        k = 0
        for i in range(size):
            k |= <uint64_t>d[i] << (8 * i)
        h = (h ^ k) * mul
    h = (h ^ (h >> 47)) * mul
    return h ^ (h >> 47)


# Cassandra: org.apache.cassandra.utils.MurmurHash.hash3_x64_128, whose tail reads signed bytes.

cdef inline uint64_t mix64(uint64_t k) noexcept nogil:
    k = (k ^ (k >> 33)) * 0xFF51AFD7ED558CCDu
    k = (k ^ (k >> 33)) * 0xC4CEB9FE1A85EC53u
    return k ^ (k >> 33)

cdef inline uint64_t cassandra_murmur3(const uint8_t* d, Py_ssize_t size) noexcept nogil:
    """The token, less 2^63: from -2^63, which no key has, up."""
    cdef uint64_t c1 = 0x87C37B91114253D5u, c2 = 0x4CF5AD432745937Fu, h1 = 0, h2 = 0, k1, k2
    cdef uint64_t length = <uint64_t>size
    cdef Py_ssize_t i
    while size >= 16:
        k1 = word64(d)
        k2 = word64(d + 8)
        h1 = rotl64(h1 ^ (rotl64(k1 * c1, 31) * c2), 27) + h2
        h1 = h1 * 5 + 0x52DCE729u
        h2 = rotl64(h2 ^ (rotl64(k2 * c2, 33) * c1), 31) + h1
        h2 = h2 * 5 + 0x38495AB5u
        d += 16
        size -= 16
    k1 = k2 = 0
    for i in range(size):
        if i < 8:
            k1 ^= <uint64_t>(<int8_t>d[i]) << (8 * i)
        else:
            k2 ^= <uint64_t>(<int8_t>d[i]) << (8 * (i - 8))
    if size > 8:
        h2 ^= rotl64(k2 * c2, 33) * c1
    if size > 0:
        h1 ^= rotl64(k1 * c1, 31) * c2
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    h1 = mix64(h1)
    h2 = mix64(h2)
    h1 += h2
    if h1 == 0x8000000000000000u:
        h1 = 0x7FFFFFFFFFFFFFFFu
    return h1 + 0x8000000000000000u

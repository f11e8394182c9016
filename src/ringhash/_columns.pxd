"""Bytes to positions, and columns of keys that lie in memory: numpy arrays and Arrow arrays.

A column is read in place and without the GIL: nothing is made per key. The structures of the Arrow
C data interface are declared as its specification gives them, so no Arrow library is needed.
"""
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memchr, memcmp, memcpy

from ringhash._xxh3 cimport xxh3_0to16, xxh3_64, xxh3_word

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowSchema {
        const char *format;
        const char *name;
        const char *metadata;
        int64_t flags;
        int64_t n_children;
        struct ArrowSchema **children;
        struct ArrowSchema *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
    };
    #endif
    """
    ctypedef struct Schema "struct ArrowSchema":
        const char* format
        const char* metadata
        Schema* dictionary
        void (*release)(Schema*) noexcept
    ctypedef struct Array "struct ArrowArray":
        int64_t length
        int64_t null_count
        int64_t offset
        const void** buffers
        void (*release)(Array*) noexcept
    ctypedef struct Stream "struct ArrowArrayStream":
        int (*get_schema)(Stream*, Schema*) noexcept
        int (*get_next)(Stream*, Array*) noexcept
        const char* (*get_last_error)(Stream*) noexcept
        void (*release)(Stream*) noexcept

cdef enum Kind:
    OTHER
    SIGNED          # integers of `width` bytes
    UNSIGNED
    PADDED          # `width` bytes each, filled up with zero bytes, as numpy has them
    FIXED           # `width` bytes each
    UUIDS           # 16 bytes each, in which hash tags do not count
    OFFSETS         # text behind offsets of `width` bytes
    VIEWS           # Arrow's string views

cdef struct Column:
    Kind kind
    Py_ssize_t size
    Py_ssize_t width
    Py_ssize_t stride
    const uint8_t* items        # the integers, fixed bytes, offsets or views
    const uint8_t* text         # what offsets point into
    const uint8_t** texts       # what views point into

cdef inline void narrow(const uint8_t** data, Py_ssize_t* size) noexcept nogil:
    """Keep what stands between the first '{' and the first '}' after it, if anything."""
    cdef const uint8_t* end = data[0] + size[0]
    cdef const uint8_t* closing
    cdef const uint8_t* opening = NULL
    if size[0]:
        opening = <const uint8_t*>memchr(data[0], c'{', size[0])
    if opening is not NULL:
        opening += 1
        closing = <const uint8_t*>memchr(opening, c'}', end - opening)
        if closing is not NULL and closing != opening:
            data[0] = opening
            size[0] = closing - opening

cdef inline uint32_t position_of_bytes(const uint8_t* data, Py_ssize_t size, uint64_t seed,
                                       bint hash_tags) noexcept nogil:
    if hash_tags:
        narrow(&data, &size)
    return <uint32_t>(xxh3_64(data, size, seed) >> 32)

ctypedef fused Word:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t

cdef inline void read_words(const Word* _kind, const uint8_t* item, Py_ssize_t stride,
                            Py_ssize_t count, uint64_t seed,
                            uint32_t* positions) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(count):
        positions[k] = <uint32_t>(xxh3_word(<uint64_t>(<const Word*>item)[0], seed) >> 32)
        item += stride

cdef enum:
    BLOCK = 256  # keys of a batch that are read before their owners are looked up

# Keys of a block that are still to be hashed: the ones of up to 16 bytes, and the others. The two
# are hashed by different formulas. Keys of mixed lengths would make the processor guess wrong at
# every third one; sorted apart, each kind runs without a guess.
cdef struct Texts:
    const uint8_t* data[BLOCK]
    Py_ssize_t size[BLOCK]
    uint16_t shorts[BLOCK]
    uint16_t longs[BLOCK]
    Py_ssize_t short_count
    Py_ssize_t long_count

cdef inline void add_text(Texts* texts, Py_ssize_t k, const void* data,
                          Py_ssize_t size) noexcept nogil:
    texts.data[k] = <const uint8_t*>data
    texts.size[k] = size
    texts.shorts[texts.short_count] = <uint16_t>k
    texts.short_count += size <= 16
    texts.longs[texts.long_count] = <uint16_t>k
    texts.long_count += size > 16

cdef inline void hash_texts(Texts* texts, uint64_t seed, bint hash_tags,
                            uint32_t* positions) noexcept nogil:
    """Write the positions of the keys that were added, and forget them."""
    cdef Py_ssize_t i, k
    if hash_tags:
        for i in range(texts.short_count):
            k = texts.shorts[i]
            positions[k] = position_of_bytes(texts.data[k], texts.size[k], seed, True)
        for i in range(texts.long_count):
            k = texts.longs[i]
            positions[k] = position_of_bytes(texts.data[k], texts.size[k], seed, True)
    else:
        for i in range(texts.short_count):
            k = texts.shorts[i]
            positions[k] = <uint32_t>(xxh3_0to16(texts.data[k], texts.size[k], seed) >> 32)
        for i in range(texts.long_count):
            k = texts.longs[i]
            positions[k] = <uint32_t>(xxh3_64(texts.data[k], texts.size[k], seed) >> 32)
    texts.short_count = 0
    texts.long_count = 0

ctypedef fused Offset:
    int32_t
    int64_t

cdef inline void add_offsets(Texts* texts, const Offset* offsets, const uint8_t* text,
                             Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(count):
        add_text(texts, k, text + offsets[k], offsets[k + 1] - offsets[k])

cdef inline void add_views(Texts* texts, const Column* column, const uint8_t* view,
                           Py_ssize_t count) noexcept nogil:
    """A view is a length of 4 bytes and then up to 12 bytes of text, or 4 of them, the number of a
    text and an offset into it."""
    cdef Py_ssize_t k
    cdef int32_t size
    for k in range(count):
        size = (<const int32_t*>view)[0]
        if size <= 12:
            add_text(texts, k, view + 4, size)
        else:
            add_text(texts, k, column.texts[(<const int32_t*>view)[2]] + (<const int32_t*>view)[3],
                     size)
        view += 16

cdef inline void add_fixed(Texts* texts, const Column* column, const uint8_t* item,
                           Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t k, size
    for k in range(count):
        size = column.width
        while column.kind == PADDED and size and item[size - 1] == 0:
            size -= 1
        add_text(texts, k, item, size)
        item += column.stride

cdef inline void read_column(const Column* column, Py_ssize_t begin, Py_ssize_t count,
                             uint64_t seed, bint hash_tags,
                             uint32_t* positions) noexcept nogil:
    """Write the positions of `count` keys, at most a block, from `begin` on."""
    cdef Py_ssize_t stride = column.stride, width = column.width
    cdef const uint8_t* item = column.items + begin * stride
    cdef Texts texts
    if column.kind != SIGNED and column.kind != UNSIGNED:
        texts.short_count = texts.long_count = 0
        if column.kind == VIEWS:
            add_views(&texts, column, item, count)
        elif column.kind != OFFSETS:
            add_fixed(&texts, column, item, count)
        elif width == 4:
            add_offsets[int32_t](&texts, <const int32_t*>item, column.text, count)
        else:
            add_offsets[int64_t](&texts, <const int64_t*>item, column.text, count)
        hash_texts(&texts, seed, hash_tags and column.kind != UUIDS, positions)
    elif column.kind == SIGNED:
        if width == 8:
            read_words[int64_t](NULL, item, stride, count, seed, positions)
        elif width == 4:
            read_words[int32_t](NULL, item, stride, count, seed, positions)
        elif width == 2:
            read_words[int16_t](NULL, item, stride, count, seed, positions)
        else:
            read_words[int8_t](NULL, item, stride, count, seed, positions)
    elif width == 8:
        read_words[uint64_t](NULL, item, stride, count, seed, positions)
    elif width == 4:
        read_words[uint32_t](NULL, item, stride, count, seed, positions)
    elif width == 2:
        read_words[uint16_t](NULL, item, stride, count, seed, positions)
    else:
        read_words[uint8_t](NULL, item, stride, count, seed, positions)

cdef inline const uint8_t* read_item(const Column* column, Py_ssize_t row, Py_ssize_t* size,
                                     uint64_t* word) noexcept nogil:
    """The bytes of one key; NULL when it is an integer, which is then in `word`."""
    cdef const uint8_t* item = column.items + row * column.stride
    cdef Py_ssize_t width = column.width
    cdef int32_t index
    if column.kind == SIGNED:
        if width == 8:
            word[0] = <uint64_t>(<const int64_t*>item)[0]
        elif width == 4:
            word[0] = <uint64_t><int64_t>(<const int32_t*>item)[0]
        elif width == 2:
            word[0] = <uint64_t><int64_t>(<const int16_t*>item)[0]
        else:
            word[0] = <uint64_t><int64_t>(<const int8_t*>item)[0]
        return NULL
    if column.kind == UNSIGNED:
        if width == 8:
            word[0] = (<const uint64_t*>item)[0]
        elif width == 4:
            word[0] = (<const uint32_t*>item)[0]
        elif width == 2:
            word[0] = (<const uint16_t*>item)[0]
        else:
            word[0] = item[0]
        return NULL
    if column.kind == VIEWS:
        size[0] = (<const int32_t*>item)[0]
        if size[0] <= 12:
            return item + 4
        index = (<const int32_t*>item)[2]
        return column.texts[index] + (<const int32_t*>item)[3]
    if column.kind == OFFSETS:
        if width == 4:
            size[0] = (<const int32_t*>item)[1] - (<const int32_t*>item)[0]
            return column.text + (<const int32_t*>item)[0]
        size[0] = (<const int64_t*>item)[1] - (<const int64_t*>item)[0]
        return column.text + (<const int64_t*>item)[0]
    while column.kind == PADDED and width and item[width - 1] == 0:
        width -= 1
    size[0] = width
    return item

cdef inline void set_integers(Column* column, Kind kind, Py_ssize_t width) noexcept nogil:
    column.kind = kind
    column.width = column.stride = width

cdef inline bint is_uuid(const char* metadata) noexcept nogil:
    """Whether the extension type is arrow.uuid. Metadata is a number of pairs, and then for each a
    size and a text, and again a size and a text; the numbers are int32 of this machine."""
    cdef int32_t pairs, key_size, value_size
    cdef const char* key
    if metadata is NULL:
        return False
    memcpy(&pairs, metadata, 4)
    metadata += 4
    while pairs > 0:
        memcpy(&key_size, metadata, 4)
        key = metadata + 4
        memcpy(&value_size, key + key_size, 4)
        metadata = key + key_size + 4
        if (key_size == 20 and memcmp(key, b"ARROW:extension:name", 20) == 0
                and value_size == 10 and memcmp(metadata, b"arrow.uuid", 10) == 0):
            return True
        metadata += value_size
        pairs -= 1
    return False

cdef inline void describe(const Schema* schema, Column* column) noexcept nogil:
    """Set what a schema says of a column; the kind is OTHER when it is none of keys."""
    cdef const char* code = schema.format
    cdef char first = code[0], second = code[1] if code[0] else 0
    column.kind = OTHER
    if schema.dictionary is not NULL:
        return
    if first == c"v" and (second == c"u" or second == c"z"):
        column.kind = VIEWS
        column.stride = 16
    elif first == c"w" and second == c":":
        column.kind = FIXED
        column.width = 0
        code += 2
        while c"0" <= code[0] <= c"9":
            column.width = 10 * column.width + (code[0] - c"0")
            code += 1
        column.stride = column.width
        if column.width == 16 and is_uuid(schema.metadata):
            column.kind = UUIDS
    elif second:
        return
    elif first == c"u" or first == c"z":
        column.kind = OFFSETS
        column.width = column.stride = 4
    elif first == c"U" or first == c"Z":
        column.kind = OFFSETS
        column.width = column.stride = 8
    elif first == c"c":
        set_integers(column, SIGNED, 1)
    elif first == c"s":
        set_integers(column, SIGNED, 2)
    elif first == c"i":
        set_integers(column, SIGNED, 4)
    elif first == c"l":
        set_integers(column, SIGNED, 8)
    elif first == c"C":
        set_integers(column, UNSIGNED, 1)
    elif first == c"S":
        set_integers(column, UNSIGNED, 2)
    elif first == c"I":
        set_integers(column, UNSIGNED, 4)
    elif first == c"L":
        set_integers(column, UNSIGNED, 8)

cdef inline void bind(const Array* array, Column* column) noexcept nogil:
    """Point a described column to the buffers of an array."""
    column.size = array.length
    column.items = <const uint8_t*>array.buffers[1] + array.offset * column.stride
    if column.kind == OFFSETS:
        column.text = <const uint8_t*>array.buffers[2]
    elif column.kind == VIEWS:
        column.texts = <const uint8_t**>(array.buffers + 2)

cdef inline Py_ssize_t first_null(const Array* array) noexcept nogil:
    """The index of the first null; the length when there is none."""
    cdef const uint8_t* valid = <const uint8_t*>array.buffers[0]
    cdef int64_t k, bit
    if array.null_count != 0 and valid is not NULL:
        for k in range(array.length):
            bit = array.offset + k
            if not (valid[bit >> 3] >> (bit & 7)) & 1:
                return k
    return array.length

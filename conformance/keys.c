#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail("out of memory");
    return memory;
}

int compare_bytes(Bytes one, Bytes other) {
    size_t common = one.length < other.length ? one.length : other.length;
    int order = common ? memcmp(one.data, other.data, common) : 0;
    return order ? order : (one.length > other.length) - (one.length < other.length);
}

Bytes bytes_from(const void *data, size_t length) {
    Bytes bytes = {allocate(length, 1), length};
    if (length) memcpy(bytes.data, data, length);
    return bytes;
}

Bytes bytes_of_hex(const char *digits) {
    size_t length = strlen(digits) / 2;
    Bytes bytes = {allocate(length, 1), length};
    for (size_t i = 0; i < length; i++) {
        unsigned int value;
        if (sscanf(digits + 2 * i, "%2x", &value) != 1) fail("no hexadecimal digits: %s", digits);
        bytes.data[i] = (unsigned char)value;
    }
    return bytes;
}

/* Text may hold NUL, so its length comes from the reader of JSON. */
Bytes text_of(json_t *value) {
    if (!json_is_string(value)) fail("text is missing");
    return bytes_from(json_string_value(value), json_string_length(value));
}

/* A number of 64 bits: decimal text, or an integer. */
uint64_t number_of(json_t *value) {
    if (json_is_string(value)) return strtoull(json_string_value(value), NULL, 10);
    if (json_is_integer(value)) return (uint64_t)json_integer_value(value);
    fail("a number is missing");
}

/* --- what a request calls a key --- */

static bool read_int(const char *digits, Key *key) {
    bool negative = *digits == '-';
    const char *first = digits + negative;
    size_t length = strspn(first, "0123456789");
    if (!length || first[length]) return false;
    uint64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit = (uint64_t)(first[i] - '0');
        if (number > (UINT64_MAX - digit) / 10) return false;
        number = number * 10 + digit;
    }
    if (negative && number > (uint64_t)1 << 63) return false;
    key->kind = KEY_INT;
    key->negative = negative && number;
    key->number = negative ? (uint64_t)0 - number : number; /* unsigned: it wraps, as two's complement */
    return true;
}

static bool read_uuid(const char *text, Key *key) {
    char digits[33];
    size_t length = 0;
    for (; *text && length < 33; text++)
        if (*text != '-') digits[length++] = *text;
    if (length != 32 || *text) return false;
    digits[32] = 0;
    key->kind = KEY_UUID;
    key->bytes = bytes_of_hex(digits);
    return true;
}

/* Days since 1970-01-01 of a day of the Gregorian calendar (March is the first month of its year). */
static int64_t days_of(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* 2024-10-27T00:30:00+00:00, or with six digits behind the seconds; another offset counts. */
static bool read_moment(const char *text, Key *key) {
    int year, month, day, hour, minute, second, used = 0, offset_hours, offset_minutes;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second, &used) < 6) return false;
    int64_t micros = 0;
    text += used;
    if (*text == '.') {
        int digits = 0;
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) micros = micros * 10 + (*text - '0');
        for (; digits < 6; digits++) micros *= 10;
    }
    char sign;
    if (sscanf(text, "%c%2d:%2d", &sign, &offset_hours, &offset_minutes) != 3) return false;
    int64_t offset = (offset_hours * 60 + offset_minutes) * (sign == '-' ? -1 : 1);
    int64_t minutes = days_of(year, month, day) * 1440 + hour * 60 + minute - offset;
    key->kind = KEY_MOMENT;
    key->number = (uint64_t)((minutes * 60 + second) * 1000000 + micros);
    return true;
}

bool read_key(json_t *value, Key *key) {
    json_t *given;
    memset(key, 0, sizeof *key);
    if ((given = json_object_get(value, "str"))) {
        key->kind = KEY_TEXT;
        key->bytes = text_of(given);
        return true;
    }
    if ((given = json_object_get(value, "hex"))) {
        key->kind = KEY_BYTES;
        key->bytes = bytes_of_hex(json_string_value(given));
        return true;
    }
    if ((given = json_object_get(value, "int"))) return read_int(json_string_value(given), key);
    if ((given = json_object_get(value, "uuid"))) return read_uuid(json_string_value(given), key);
    if ((given = json_object_get(value, "moment"))) return read_moment(json_string_value(given), key);
    if ((given = json_object_get(value, "tuple"))) {
        key->kind = KEY_TUPLE;
        key->part_count = json_array_size(given);
        key->parts = allocate(key->part_count, sizeof *key->parts);
        for (size_t i = 0; i < key->part_count; i++)
            if (!read_key(json_array_get(given, i), &key->parts[i])) return false;
        return true;
    }
    return false; /* a boolean, a fraction, null: no key */
}

/* --- hashed keys --- */

static Bytes narrowed(Bytes bytes) {
    unsigned char *open = bytes.length ? memchr(bytes.data, '{', bytes.length) : NULL;
    if (!open) return bytes;
    unsigned char *inside = open + 1, *end = bytes.data + bytes.length;
    unsigned char *close = inside < end ? memchr(inside, '}', (size_t)(end - inside)) : NULL;
    if (!close || close == inside) return bytes;
    return bytes_from(inside, (size_t)(close - inside));
}

bool hashed_bytes(const Key *key, bool hash_tags, Bytes *bytes) {
    switch (key->kind) {
    case KEY_TEXT:
    case KEY_BYTES:
        *bytes = hash_tags ? narrowed(key->bytes) : key->bytes;
        return true;
    case KEY_INT:
        *bytes = (Bytes){allocate(8, 1), 8};
        for (int i = 0; i < 8; i++) bytes->data[i] = (unsigned char)(key->number >> 8 * i);
        return true;
    case KEY_UUID:
        *bytes = key->bytes;
        return true;
    default:
        return false;
    }
}

uint64_t xxh3(Bytes bytes, uint64_t seed) { return XXH3_64bits_withSeed(bytes.data, bytes.length, seed); }

uint32_t ring_position(Bytes bytes, uint64_t seed) { return (uint32_t)(xxh3(bytes, seed) >> 32); }

/* --- keys in order --- */

static void append(Bytes *to, const unsigned char *data, size_t length) {
    unsigned char *longer = allocate(to->length + length, 1);
    if (to->length) memcpy(longer, to->data, to->length);
    if (length) memcpy(longer + to->length, data, length);
    to->data = longer;
    to->length += length;
}

static void append_number(Bytes *to, uint64_t number) {
    unsigned char data[8];
    for (int i = 0; i < 8; i++) data[i] = (unsigned char)(number >> (56 - 8 * i));
    append(to, data, 8);
}

static void append_escaped(Bytes *to, Bytes bytes) {
    unsigned char *escaped = allocate(2 * bytes.length + 1, 1);
    size_t length = 0;
    for (size_t i = 0; i < bytes.length; i++) {
        unsigned char byte = bytes.data[i];
        if (byte <= 1) escaped[length++] = 1;
        escaped[length++] = byte <= 1 ? byte + 1 : byte;
    }
    escaped[length++] = 0;
    append(to, escaped, length);
}

static bool append_part(Bytes *to, const Key *key, const char *kind, bool within) {
    static const char *const names[] = {"str", "bytes", "int", "uuid", "datetime"};
    if (key->kind == KEY_TUPLE || strcmp(names[key->kind], kind)) return false;
    switch (key->kind) {
    case KEY_TEXT:
    case KEY_BYTES:
        if (within) append_escaped(to, key->bytes);
        else append(to, key->bytes.data, key->bytes.length);
        return true;
    case KEY_INT: {
        unsigned char sign = !key->negative;
        append(to, &sign, 1);
        append_number(to, key->number);
        return true;
    }
    case KEY_MOMENT:
        append_number(to, key->number + ((uint64_t)1 << 63));
        return true;
    default:
        append(to, key->bytes.data, key->bytes.length);
        return true;
    }
}

bool ordered_bytes(const Key *key, json_t *shape, bool whole, Bytes *bytes) {
    *bytes = (Bytes){allocate(0, 1), 0};
    if (json_is_string(shape)) return append_part(bytes, key, json_string_value(shape), false);
    if (key->kind != KEY_TUPLE || key->part_count > json_array_size(shape)) return false;
    if (whole && key->part_count != json_array_size(shape)) return false;
    for (size_t i = 0; i < key->part_count; i++)
        if (!append_part(bytes, &key->parts[i], json_string_value(json_array_get(shape, i)), true)) return false;
    return true;
}

/* A key as a document has it: text for each part, null for the lowest bound. */
static Key part_of_document(json_t *value, const char *kind) {
    Key key;
    memset(&key, 0, sizeof key);
    bool read = true;
    if (!strcmp(kind, "str")) key = (Key){.kind = KEY_TEXT, .bytes = text_of(value)};
    else if (!strcmp(kind, "bytes")) key = (Key){.kind = KEY_BYTES, .bytes = bytes_of_hex(json_string_value(value))};
    else if (!strcmp(kind, "int")) read = read_int(json_string_value(value), &key);
    else if (!strcmp(kind, "uuid")) read = read_uuid(json_string_value(value), &key);
    else read = read_moment(json_string_value(value), &key);
    if (!read) fail("no key of the kind %s", kind);
    return key;
}

Bytes ordered_bound(json_t *value, json_t *shape) {
    Bytes bytes = {allocate(0, 1), 0};
    if (json_is_null(value)) return bytes;
    Key key;
    memset(&key, 0, sizeof key);
    if (json_is_string(shape)) {
        key = part_of_document(value, json_string_value(shape));
    } else {
        key.kind = KEY_TUPLE;
        key.part_count = json_array_size(value);
        key.parts = allocate(key.part_count, sizeof *key.parts);
        for (size_t i = 0; i < key.part_count; i++)
            key.parts[i] = part_of_document(json_array_get(value, i), json_string_value(json_array_get(shape, i)));
    }
    if (!ordered_bytes(&key, shape, false, &bytes)) fail("a bound is of another shape");
    return bytes;
}

/* Keys: how a request gives them, the bytes that are hashed, and the bytes that sort. */
#ifndef RINGHASH_KEYS_H
#define RINGHASH_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that the program owns until it ends; it answers and exits, so nothing is freed. */
typedef struct {
    unsigned char *data;
    size_t length;
} Bytes;

typedef enum { KEY_TEXT, KEY_BYTES, KEY_INT, KEY_UUID, KEY_MOMENT, KEY_TUPLE } KeyKind;

typedef struct Key {
    KeyKind kind;
    Bytes bytes;         /* of text, bytes and a UUID */
    bool negative;       /* of an integer, whose two's complement is `number`; */
    uint64_t number;     /* of a moment, the microseconds since 1970 */
    struct Key *parts;   /* of a tuple */
    size_t part_count;
} Key;

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void *allocate(size_t count, size_t size);
int compare_bytes(Bytes one, Bytes other);
Bytes bytes_from(const void *data, size_t length);
Bytes bytes_of_hex(const char *digits);
Bytes text_of(json_t *value);
uint64_t number_of(json_t *value);

/* False if the request names no key that any placement takes. */
bool read_key(json_t *value, Key *key);

/* The bytes of a key that is hashed, tags narrowed. False if keys of this kind are not hashed. */
bool hashed_bytes(const Key *key, bool hash_tags, Bytes *bytes);
uint64_t xxh3(Bytes bytes, uint64_t seed);
uint32_t ring_position(Bytes bytes, uint64_t seed);

/* The bytes of a key in order, for the shape of a range map: a name, or a list of names. */
bool ordered_bytes(const Key *key, json_t *shape, bool whole, Bytes *bytes);
Bytes ordered_bound(json_t *value, json_t *shape);

#endif

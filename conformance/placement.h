/* Placements and spaces, read from their documents. */
#ifndef RINGHASH_PLACEMENT_H
#define RINGHASH_PLACEMENT_H

#include "keys.h"

typedef struct {
    Bytes name;
    double weight;
    json_t *zone; /* text, or null */
} Node;

typedef struct {
    uint32_t position;
    size_t node; /* an index of nodes */
} Point;

typedef enum { SPACE_HASH, SPACE_MODULO, SPACE_ORDERED, SPACE_ENTRY } SpaceKind;

typedef struct Space {
    SpaceKind kind;
    uint64_t seed, count; /* of hash and modulo; */
    bool hash_tags;
    json_t *shape; /* of ordered; */
    Bytes *cuts;   /* of ordered and, as keys, of entry: in order */
    size_t cut_count;
    struct Space *below; /* of entry */
} Space;

typedef enum { RING, ASSIGNMENT, RANGE_MAP, DIRECTORY } PlacementKind;

typedef struct Placement {
    PlacementKind kind;
    Node *nodes; /* in the order of their names */
    size_t node_count;
    Space space; /* how keys are read; an ordered one has no cuts */
    Point *points;
    size_t point_count;
    json_t *owners; /* of an assignment, */
    Bytes *starts;  /* of a range map, */
    json_t **names; /* and the node of each range; of a directory, the node of each entry */
    size_t row_count;
    struct Placement *below; /* the default of a directory */
    Bytes *entries;
    bool fallback;
} Placement;

/* The answers to one key: a name, null for nobody, or NULL for what is no key here. */
json_t *owner_of(const Placement *placement, const Key *key);
json_t *owner_at(const Placement *placement, uint64_t position);
json_t *entry_of(const Placement *directory, const Key *key); /* the node of its entry, or NULL */
json_t *owners_of(const Placement *placement, const Key *key, size_t n, bool by_zone, json_t *down);

bool position_of(const Space *space, const Key *key, uint64_t *position);

/* The bytes that a key counts by, for pins and entries. */
bool counted_bytes(const Space *space, const Key *key, Bytes *bytes);

Placement *read_placement(json_t *document);
Space read_space(json_t *document);
Bytes entry_key(json_t *value);
json_t *name_in(const Placement *placement, size_t node);

#endif

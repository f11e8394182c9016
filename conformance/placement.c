#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement.h"

static const uint64_t SHARD_SEED = 0x736861726473;

static bool is_kind(json_t *document, const char *kind) {
    const char *given = json_string_value(json_object_get(document, "kind"));
    return given && !strcmp(given, kind);
}

static uint64_t number_or(json_t *document, const char *field, uint64_t otherwise) {
    json_t *value = json_object_get(document, field);
    return value ? number_of(value) : otherwise;
}

static int by_name(const void *one, const void *other) {
    return compare_bytes(((const Node *)one)->name, ((const Node *)other)->name);
}

static void read_nodes(Placement *placement, json_t *list) {
    placement->node_count = json_array_size(list);
    placement->nodes = allocate(placement->node_count, sizeof(Node));
    for (size_t i = 0; i < placement->node_count; i++) {
        json_t *given = json_array_get(list, i), *weight = json_object_get(given, "weight");
        json_t *zone = json_object_get(given, "zone");
        placement->nodes[i] = (Node){
            text_of(json_object_get(given, "name")),
            weight ? json_number_value(weight) : 1.0,
            zone ? zone : json_null(),
        };
    }
    qsort(placement->nodes, placement->node_count, sizeof(Node), by_name);
}

json_t *name_in(const Placement *placement, size_t node) {
    Bytes name = placement->nodes[node].name;
    return json_stringn((const char *)name.data, name.length);
}

/* --- rings --- */

/* Nodes are in the order of their names, so their indexes decide ties. */
static int by_position(const void *one, const void *other) {
    const Point *here = one, *there = other;
    if (here->position != there->position) return here->position < there->position ? -1 : 1;
    return (here->node > there->node) - (here->node < there->node);
}

static void place_points(Placement *ring, uint64_t vnodes) {
    size_t *counts = allocate(ring->node_count, sizeof(size_t)), next = 0;
    for (size_t i = 0; i < ring->node_count; i++) {
        double exact = rint(ring->nodes[i].weight * (double)vnodes); /* from a half to the even one */
        counts[i] = exact < 1 ? 1 : (size_t)exact;
        ring->point_count += counts[i];
    }
    ring->points = allocate(ring->point_count, sizeof(Point));
    for (size_t i = 0; i < ring->node_count; i++) {
        Bytes name = ring->nodes[i].name, data = {allocate(name.length + 4, 1), name.length + 4};
        memcpy(data.data, name.data, name.length);
        for (size_t point = 0; point < counts[i]; point++) {
            for (int byte = 0; byte < 4; byte++) data.data[name.length + (size_t)byte] = (unsigned char)(point >> 8 * byte);
            ring->points[next++] = (Point){ring_position(data, ring->space.seed), i};
        }
    }
    qsort(ring->points, ring->point_count, sizeof(Point), by_position);
}

/* The first point at a position or behind it; the first of all behind the last. */
static size_t point_from(const Placement *ring, uint64_t position) {
    size_t low = 0, high = ring->point_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ring->points[middle].position < position) low = middle + 1;
        else high = middle;
    }
    return low == ring->point_count ? 0 : low;
}

static bool names(json_t *list, json_t *name) {
    size_t i;
    json_t *other;
    json_array_foreach(list, i, other) if (json_equal(other, name)) return true;
    return false;
}

json_t *owners_of(const Placement *ring, const Key *key, size_t n, bool by_zone, json_t *down) {
    uint64_t position;
    if (ring->kind != RING || !position_of(&ring->space, key, &position)) return NULL;
    size_t *walk = allocate(ring->node_count, sizeof(size_t)), length = 0;
    bool *met = allocate(ring->node_count, sizeof(bool));
    size_t first = ring->point_count ? point_from(ring, position) : 0;
    for (size_t i = 0; i < ring->point_count; i++) {
        size_t node = ring->points[(first + i) % ring->point_count].node;
        if (!met[node] && !names(down, name_in(ring, node))) walk[length++] = node;
        met[node] = true;
    }
    json_t *found = json_array();
    bool *taken = allocate(ring->node_count, sizeof(bool));
    for (size_t left = length; left && json_array_size(found) < n;) {
        json_t *zones = json_array(); /* of this pass */
        for (size_t i = 0; i < length && json_array_size(found) < n; i++) {
            json_t *zone = ring->nodes[walk[i]].zone;
            if (taken[i] || (by_zone && !json_is_null(zone) && names(zones, zone))) continue;
            json_array_append(zones, zone);
            json_array_append_new(found, name_in(ring, walk[i]));
            taken[i] = true;
            left--;
        }
    }
    return found;
}

/* --- rows in order: ranges, cuts, entries --- */

static size_t count_at_most(const Bytes *rows, size_t count, Bytes bytes) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_bytes(rows[middle], bytes) <= 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool find_row(const Bytes *rows, size_t count, Bytes bytes, size_t *row) {
    size_t above = count_at_most(rows, count, bytes);
    if (!above || compare_bytes(rows[above - 1], bytes)) return false;
    *row = above - 1;
    return true;
}

Bytes entry_key(json_t *value) {
    json_t *digits = json_object_get(value, "hex");
    return digits ? bytes_of_hex(json_string_value(digits)) : text_of(value);
}

typedef struct {
    Bytes key;
    json_t *name;
} Row;

static int by_key(const void *one, const void *other) {
    return compare_bytes(((const Row *)one)->key, ((const Row *)other)->key);
}

static void read_rows(Placement *placement, json_t *list, json_t *shape) {
    size_t count = placement->row_count = json_array_size(list);
    Row *rows = allocate(count, sizeof(Row));
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_array_get(list, i), *key = json_array_get(row, 0);
        rows[i] = (Row){shape ? ordered_bound(key, shape) : entry_key(key), json_array_get(row, 1)};
    }
    qsort(rows, count, sizeof(Row), by_key); /* entries may come in any order */
    Bytes *keys = allocate(count, sizeof(Bytes));
    placement->names = allocate(count, sizeof(json_t *));
    for (size_t i = 0; i < count; i++) {
        keys[i] = rows[i].key;
        placement->names[i] = rows[i].name;
    }
    if (shape) placement->starts = keys;
    else placement->entries = keys;
}

/* --- spaces --- */

Space read_space(json_t *document) {
    Space space = {0};
    space.hash_tags = json_is_true(json_object_get(document, "hash_tags"));
    if (is_kind(document, "hash")) {
        space.kind = SPACE_HASH;
        space.seed = number_or(document, "seed", 0);
        space.count = (uint64_t)1 << 32;
    } else if (is_kind(document, "modulo")) {
        space.kind = SPACE_MODULO;
        space.seed = number_or(document, "seed", SHARD_SEED);
        space.count = number_of(json_object_get(document, "count"));
    } else if (is_kind(document, "ordered")) {
        json_t *cuts = json_object_get(document, "cuts");
        space.kind = SPACE_ORDERED;
        space.shape = json_object_get(document, "keys");
        space.cut_count = json_array_size(cuts);
        space.cuts = allocate(space.cut_count, sizeof(Bytes));
        for (size_t i = 0; i < space.cut_count; i++) space.cuts[i] = ordered_bound(json_array_get(cuts, i), space.shape);
        space.count = space.cut_count + 1;
    } else if (is_kind(document, "entry")) {
        json_t *entries = json_object_get(document, "entries");
        space.kind = SPACE_ENTRY;
        space.below = allocate(1, sizeof(Space));
        *space.below = read_space(json_object_get(document, "below"));
        space.cut_count = json_array_size(entries);
        space.cuts = allocate(space.cut_count, sizeof(Bytes));
        for (size_t i = 0; i < space.cut_count; i++) space.cuts[i] = entry_key(json_array_get(entries, i));
        space.count = space.below->count + space.cut_count;
    } else {
        fail("no space of this program: %s", json_string_value(json_object_get(document, "kind")));
    }
    return space;
}

bool counted_bytes(const Space *space, const Key *key, Bytes *bytes) {
    /* Entries are compared by the bytes that are hashed, also where the keys below are in order. */
    if (space->kind == SPACE_ENTRY) return hashed_bytes(key, space->below->hash_tags, bytes);
    if (space->kind == SPACE_ORDERED) return ordered_bytes(key, space->shape, true, bytes);
    return hashed_bytes(key, space->hash_tags, bytes);
}

bool position_of(const Space *space, const Key *key, uint64_t *position) {
    Bytes bytes;
    size_t row;
    if (!counted_bytes(space, key, &bytes)) return false;
    switch (space->kind) {
    case SPACE_HASH:
        *position = ring_position(bytes, space->seed);
        return true;
    case SPACE_MODULO:
        *position = ring_position(bytes, space->seed) % space->count;
        return true;
    case SPACE_ORDERED:
        *position = count_at_most(space->cuts, space->cut_count, bytes);
        return true;
    default:
        if (find_row(space->cuts, space->cut_count, bytes, &row)) {
            *position = space->below->count + row;
            return true;
        }
        return position_of(space->below, key, position);
    }
}

/* --- placements --- */

Placement *read_placement(json_t *document) {
    Placement *placement = allocate(1, sizeof(Placement));
    read_nodes(placement, json_object_get(document, "nodes"));
    bool tags = json_is_true(json_object_get(document, "hash_tags"));
    if (is_kind(document, "ring")) {
        placement->kind = RING;
        placement->space = (Space){.kind = SPACE_HASH, .seed = number_or(document, "seed", 0), .hash_tags = tags};
        placement->space.count = (uint64_t)1 << 32;
        place_points(placement, number_or(document, "vnodes", 160));
    } else if (is_kind(document, "assignment")) {
        json_t *shards = json_object_get(document, "shards");
        placement->kind = ASSIGNMENT;
        placement->space = (Space){.kind = SPACE_MODULO, .seed = number_or(shards, "seed", SHARD_SEED)};
        placement->space.count = number_of(json_object_get(shards, "count"));
        placement->space.hash_tags = json_is_true(json_object_get(shards, "hash_tags"));
        placement->owners = json_object_get(document, "owners");
    } else if (is_kind(document, "range_map")) {
        placement->kind = RANGE_MAP;
        placement->space = (Space){.kind = SPACE_ORDERED, .shape = json_object_get(document, "keys"), .count = 1};
        read_rows(placement, json_object_get(document, "rows"), placement->space.shape);
    } else if (is_kind(document, "directory")) {
        placement->kind = DIRECTORY;
        placement->below = read_placement(json_object_get(document, "default"));
        placement->space = (Space){.kind = SPACE_ENTRY, .below = &placement->below->space};
        placement->space.count = placement->space.below->count;
        placement->fallback = json_is_true(json_object_get(document, "fallback"));
        read_rows(placement, json_object_get(document, "entries"), NULL);
    } else {
        fail("no placement of this program: %s", json_string_value(json_object_get(document, "kind")));
    }
    return placement;
}

/* Rings and assignments: the space of the positions is the placement's own. */
json_t *owner_at(const Placement *placement, uint64_t position) {
    if (placement->kind == ASSIGNMENT) {
        json_t *owner = json_array_get(placement->owners, position);
        return owner ? json_incref(owner) : json_null(); /* without owners nobody has a shard */
    }
    if (placement->kind != RING) fail("positions of this placement are those of a plan");
    if (!placement->point_count) return json_null(); /* for moves; a caller that asks for an owner gets an error */
    return name_in(placement, placement->points[point_from(placement, position)].node);
}

json_t *entry_of(const Placement *directory, const Key *key) {
    Bytes bytes;
    size_t row;
    if (!counted_bytes(&directory->space, key, &bytes)) return NULL;
    return find_row(directory->entries, directory->row_count, bytes, &row) ? directory->names[row] : NULL;
}

json_t *owner_of(const Placement *placement, const Key *key) {
    Bytes bytes;
    uint64_t position;
    if (placement->kind == RING || placement->kind == ASSIGNMENT)
        return position_of(&placement->space, key, &position) ? owner_at(placement, position) : NULL;
    if (placement->kind == DIRECTORY) {
        json_t *name = entry_of(placement, key);
        return name ? json_incref(name) : owner_of(placement->below, key);
    }
    if (!counted_bytes(&placement->space, key, &bytes)) return NULL;
    return json_incref(placement->names[count_at_most(placement->starts, placement->row_count, bytes) - 1]);
}

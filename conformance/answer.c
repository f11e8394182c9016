/* Answers questions about ringhash's documents, from docs/spec.md and docs/formats.md alone.
 *
 *     cc -O2 -o answer answer.c placement.c keys.c -ljansson -lm
 *     ./answer < requests > answers
 *
 * Each line of the input is {"document": {...}, "ask": [question, ...]}; the line of the output is the list of
 * answers. README.md has the questions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement.h"

static json_t *error_of(const char *what) { return json_pack("{s:s}", "error", what); }

static json_t *no_key(void) { return error_of("key"); }

static bool is_in(json_t *ranges, uint64_t position) {
    size_t i;
    json_t *range;
    json_array_foreach(ranges, i, range) {
        if (number_of(json_array_get(range, 0)) <= position && position <= number_of(json_array_get(range, 1))) return true;
    }
    return false;
}

static bool is_down(json_t *down, json_t *name) {
    size_t i;
    json_t *other;
    json_array_foreach(down, i, other) if (json_equal(other, name)) return true;
    return false;
}

/* --- plans --- */

static json_t *move_at(json_t *plan, uint64_t position) {
    size_t i;
    json_t *move;
    json_array_foreach(json_object_get(plan, "moves"), i, move) {
        if (number_of(json_array_get(move, 0)) <= position && position <= number_of(json_array_get(move, 1))) return move;
    }
    return NULL;
}

static json_t *move_of(json_t *plan, const Space *space, const Key *key) {
    uint64_t position;
    if (!position_of(space, key, &position)) return no_key();
    json_t *move = move_at(plan, position);
    return move ? json_pack("[O, O]", json_array_get(move, 2), json_array_get(move, 3)) : json_null();
}

static int by_number(const void *one, const void *other) {
    uint64_t here = *(const uint64_t *)one, there = *(const uint64_t *)other;
    return (here > there) - (here < there);
}

/* Where the owner may change: behind each point of a ring, at each shard. */
static uint64_t *starts_of(const Placement *before, const Placement *after, size_t *count) {
    const Placement *sides[] = {before, after};
    uint64_t *starts = allocate(before->point_count + after->point_count + before->space.count % ((uint64_t)1 << 32) + 1, 8);
    *count = 0;
    starts[(*count)++] = 0;
    if (before->kind == ASSIGNMENT)
        for (uint64_t shard = 1; shard < before->space.count; shard++) starts[(*count)++] = shard;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < sides[side]->point_count; i++)
            if (sides[side]->points[i].position < UINT32_MAX) starts[(*count)++] = (uint64_t)sides[side]->points[i].position + 1;
    qsort(starts, *count, sizeof *starts, by_number);
    return starts;
}

static json_t *moves_between(const Placement *before, const Placement *after) {
    size_t count;
    uint64_t *starts = starts_of(before, after, &count);
    json_t *moves = json_array();
    for (size_t i = 0; i < count; i++) {
        uint64_t end = i + 1 < count ? starts[i + 1] : before->space.count;
        if (starts[i] == end) continue; /* given twice */
        json_t *source = owner_at(before, starts[i]), *target = owner_at(after, starts[i]);
        if (json_equal(source, target)) continue;
        json_t *last = json_array_get(moves, json_array_size(moves) - 1);
        bool goes_on = last && number_of(json_array_get(last, 1)) + 1 == starts[i] &&
                       json_equal(json_array_get(last, 2), source) && json_equal(json_array_get(last, 3), target);
        if (goes_on) json_array_set_new(last, 1, json_integer((json_int_t)end - 1));
        else json_array_append_new(moves, json_pack("[I, I, O, O]", (json_int_t)starts[i], (json_int_t)end - 1, source, target));
    }
    return moves;
}

/* --- routers --- */

static json_t *pinned(json_t *router, const Placement *placement, const Key *key, json_t *down) {
    Bytes bytes;
    size_t i;
    json_t *pin;
    if (!counted_bytes(&placement->space, key, &bytes)) return NULL;
    json_array_foreach(json_object_get(router, "pins"), i, pin) {
        json_t *text = json_object_get(pin, "key"), *digits = json_object_get(pin, "key_hex");
        Bytes theirs = text ? text_of(text) : bytes_of_hex(json_string_value(digits));
        if (compare_bytes(bytes, theirs)) continue;
        json_t *node = json_object_get(pin, "node");
        return is_down(down, node) ? NULL : json_incref(node);
    }
    return NULL;
}

/* The owner among the nodes that are up: a ring goes on clockwise; an entry falls back only if it may. */
static json_t *owner_up(const Placement *placement, const Key *key, json_t *down) {
    if (placement->kind == RING) {
        json_t *first = owners_of(placement, key, 1, false, down);
        if (!first) return no_key();
        if (json_array_size(first)) return json_incref(json_array_get(first, 0));
        return error_of(placement->node_count ? "down" : "nobody");
    }
    json_t *node = owner_of(placement, key);
    if (!node) return no_key();
    bool has_entry = placement->kind == DIRECTORY && entry_of(placement, key);
    if (placement->kind == DIRECTORY && (!has_entry || (placement->fallback && is_down(down, node))))
        return owner_up(placement->below, key, down);
    return is_down(down, node) ? error_of("down") : node;
}

/* The owner now: the pin's node; the target of a move that is done; else the owner before. */
static json_t *route(json_t *router, const Placement *placement, const Key *key, json_t *down) {
    json_t *node = pinned(router, placement, key, down);
    if (node) return node;
    json_t *running = json_object_get(router, "running");
    if (running) {
        json_t *plan = json_object_get(running, "plan");
        Space space = read_space(json_object_get(plan, "space"));
        uint64_t position;
        if (!position_of(&space, key, &position)) return no_key();
        json_t *move = is_in(json_object_get(running, "done"), position) ? move_at(plan, position) : NULL;
        if (move) return json_incref(json_array_get(move, 3));
    }
    return owner_up(placement, key, down);
}

/* --- requests --- */

static json_t *answer(json_t *document, const Placement *placement, const Space *space, json_t *question) {
    const char *what = json_string_value(json_object_get(question, "ask"));
    json_t *down = json_object_get(question, "down");
    Key key;
    if (!what) fail("a question names what it asks");
    if (!strcmp(what, "moves")) {
        return moves_between(placement, read_placement(json_object_get(question, "after")));
    }
    if (!read_key(json_object_get(question, "key"), &key)) return no_key();
    if (!strcmp(what, "owner")) {
        json_t *owner = owner_of(placement, &key);
        if (!owner) return no_key();
        return json_is_null(owner) ? error_of("nobody") : owner;
    }
    if (!strcmp(what, "owners")) {
        size_t n = (size_t)json_integer_value(json_object_get(question, "n"));
        json_t *found = owners_of(placement, &key, n, json_is_true(json_object_get(question, "zones")), down);
        if (!found) return no_key();
        return placement->node_count ? found : error_of("nobody");
    }
    if (!strcmp(what, "position")) {
        uint64_t position;
        if (!position_of(space, &key, &position)) return no_key();
        return json_sprintf("%llu", (unsigned long long)position);
    }
    if (!strcmp(what, "move")) return move_of(document, space, &key);
    if (!strcmp(what, "route")) return route(document, placement, &key, down);
    fail("no question of this program: %s", what);
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stdin)) > 0) {
        json_error_t error;
        json_t *request = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, &error);
        if (!request) fail("the request is no JSON: %s", error.text);
        json_t *document = json_object_get(request, "document"), *answers = json_array(), *question;
        const char *kind = json_string_value(json_object_get(document, "kind"));
        if (!kind) fail("the document names no kind");
        Placement *placement = NULL;
        Space space = {0};
        if (!strcmp(kind, "plan")) {
            space = read_space(json_object_get(document, "space"));
        } else {
            json_t *placed = strcmp(kind, "router") ? document : json_object_get(document, "placement");
            placement = read_placement(placed);
            space = placement->space;
        }
        size_t i;
        json_array_foreach(json_object_get(request, "ask"), i, question) {
            json_array_append(answers, answer(document, placement, &space, question));
        }
        json_dumpf(answers, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        putchar('\n');
    }
    return 0;
}

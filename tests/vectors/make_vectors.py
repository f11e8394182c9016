"""Write the test vectors beside this file. Run once; the vectors are a promise and never change.

    python make_vectors.py

This is a statement of docs/spec.md of its own: it shares no code with ringhash or with the model ring of the
tests, and it goes other ways. No owner is looked up. A node's place in a walk is the distance from the key
clockwise to its nearest point, and the moves of a plan are found by painting the owners of both rings onto
one list of cells.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent
CIRCLE = 4_294_967_296
SEEDS = (0, 1, 18_446_744_073_709_551_615)

Key = str | bytes | int | uuid.UUID
Json = dict[str, object]
Move = tuple[int, int, str | None, str | None]


# -- the rules ---------------------------------------------------------------------------------------------


class Node(NamedTuple):
    name: str
    weight: float = 1.0
    zone: str | None = None


class Ring(NamedTuple):
    nodes: list[Node]
    vnodes: int = 160
    seed: int = 0
    hash_tags: bool = False


def place(data: bytes, seed: int) -> int:
    high, _ = struct.unpack(">II", xxhash.xxh3_64_digest(data, seed))
    return int(high)


def place_of_key(key: Key, seed: int, hash_tags: bool) -> int:
    if isinstance(key, int):
        return place(struct.pack("<Q", key & 0xFFFF_FFFF_FFFF_FFFF), seed)
    if isinstance(key, uuid.UUID):
        return place(key.bytes, seed)
    data = key.encode() if isinstance(key, str) else key
    if hash_tags:
        _, opened, rest = data.partition(b"{")
        tag, closed, _ = rest.partition(b"}")
        if opened and closed and tag:
            data = tag
    return place(data, seed)


def points_of(node: Node, vnodes: int, seed: int) -> list[int]:
    product = node.weight * vnodes  # of doubles
    whole = int(product)
    over = product - whole
    if over > 0.5 or (over == 0.5 and whole % 2 == 1):
        whole += 1
    name = node.name.encode()
    return [place(name + struct.pack("<I", i), seed) for i in range(max(whole, 1))]


class Circle:
    """The points of a ring, and questions asked of all of them."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.points = {node.name: points_of(node, ring.vnodes, ring.seed) for node in ring.nodes}
        self.zones = {node.name: node.zone for node in ring.nodes}

    def walk(self, key: Key) -> list[str]:
        here = place_of_key(key, self.ring.seed, self.ring.hash_tags)
        distance = {name: min((p - here) % CIRCLE for p in places) for name, places in self.points.items()}
        return sorted(distance, key=lambda name: (distance[name], name.encode()))

    def owner(self, key: Key) -> str:
        return self.walk(key)[0]

    def spread(self, key: Key) -> list[str]:
        """The whole walk, zones first."""
        passes: defaultdict[int, list[str]] = defaultdict(list)
        met: defaultdict[object, int] = defaultdict(int)
        for name in self.walk(key):
            # A zone's first node goes in pass 0, its second in pass 1; a node without a zone in pass 0.
            zone = self.zones[name]
            passes[met[zone] if zone is not None else 0].append(name)
            met[zone] += 1
        return [name for number in sorted(passes) for name in passes[number]]

    def names_at(self) -> dict[int, list[str]]:
        found: defaultdict[int, list[str]] = defaultdict(list)
        for name, places in self.points.items():
            for p in places:
                found[p].append(name)
        return {p: sorted(names, key=str.encode) for p, names in found.items()}

    def paint(self, cuts: list[int]) -> list[str | None]:
        """The owner of each cell, a cell being what ends at a cut, where the cuts hold all points."""
        names_at = self.names_at()
        colours: list[str | None] = [None] * len(cuts)
        colour: str | None = names_at[min(names_at)][0] if names_at else None
        for i in reversed(range(len(cuts))):
            if cuts[i] in names_at:
                colour = names_at[cuts[i]][0]
            colours[i] = colour
        return colours


def moves_between(before: Ring, after: Ring) -> list[Move]:
    old, new = Circle(before), Circle(after)
    cuts = sorted({CIRCLE - 1, *old.names_at(), *new.names_at()})
    cells = zip(cuts, old.paint(cuts), new.paint(cuts), strict=True)
    moves: list[Move] = []
    start = 0
    for (source, target), run in itertools.groupby(cells, key=lambda cell: cell[1:]):
        *_, (end, _, _) = run
        if source != target:
            moves.append((start, end, source, target))
        start = end + 1
    return moves


def digest(ring: Ring) -> str:
    total = 0
    for node in ring.nodes:
        name = node.name.encode()
        zone = b"\0" if node.zone is None else b"\1" + node.zone.encode()
        record = struct.pack("<I", len(name)) + name + struct.pack("<d", node.weight) + zone
        total += int.from_bytes(hashlib.blake2b(record, digest_size=16).digest(), "little")
    head = b"ringhash-1" + struct.pack("<IQBI", ring.vnodes, ring.seed, ring.hash_tags, len(ring.nodes))
    tail = (total % 2**128).to_bytes(16, "little")
    return hashlib.blake2b(head + tail, digest_size=16).hexdigest()


# -- as JSON -----------------------------------------------------------------------------------------------


def json_key(key: Key) -> Json:
    match key:
        case str():
            return {"str": key}
        case bytes():
            return {"hex": key.hex()}
        case int():
            # As text: many a JSON reader keeps integers as doubles.
            return {"int": str(key)}
        case uuid.UUID():
            return {"uuid": str(key)}


def json_ring(ring: Ring) -> Json:
    return {
        "nodes": [list(node) for node in ring.nodes],
        "vnodes": ring.vnodes,
        "seed": str(ring.seed),
        "hash_tags": ring.hash_tags,
    }


def layout(value: object) -> str:
    """A line for each case, so that a diff shows what changed."""
    if isinstance(value, list) and any(isinstance(row, dict) for row in value):
        return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
    if isinstance(value, dict) and any(isinstance(field, list | dict) for field in value.values()):
        return "{\n" + ",\n".join(f'"{name}": {layout(field)}' for name, field in value.items()) + "\n}"
    return json.dumps(value)


def write(name: str, content: Json) -> None:
    (HERE / name).write_text(layout(content) + "\n", encoding="ascii")


# -- the vectors -------------------------------------------------------------------------------------------

TEXTS = [
    "", "a", "b", "key", "Key", "user:1", "user:2", "user:1000000", "session/7f3a", "GET /index.html",
    "10.0.0.1:11211", "[2001:db8::1]:443", " ", "\n", "\t", "\0", "\0\0", "a\0b", "0", "1", "-1", "null",
    "é", "e\u0301", "ß", "ñandú", "Ελληνικά", "日本語", "한국어", "\u05e9\u05dc\u05d5\u05dd", "\U0001f600",
    "\U0001f469\u200d\U0001f4bb", "\ufeff", "\uffff", "\U0010ffff", "\u00ff", "\u0100", "\u07ff", "\u0800",
    "x" * 15, "x" * 16, "x" * 17, "x" * 128, "x" * 129, "x" * 240, "x" * 241, "x" * 1024, "é" * 512,
]  # fmt: skip

BINARY = [
    b"", b"a", b"key", b"user:1", "é".encode(), "日本語".encode(), b"\0", b"\xff", b"\xff\xfe\xfd", bytes(8),
    bytes(16), b"\xff" * 8, bytes(range(256)), bytes(range(256)) * 4,
]  # fmt: skip

INTEGERS = [
    -(2**63), -(2**63) + 1, -(2**32), -(2**31), -256, -255, -2, -1, 0, 1, 2, 127, 128, 255, 256, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1,
    int.from_bytes(b"{a}bcdef", "little"),
]  # fmt: skip

UUIDS = [
    uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), uuid.UUID(bytes=b"{a}bcdefghijklmn"),
]  # fmt: skip

TAGGED = [
    "{a}b", "{a}", "x{a}", "{}x", "{}", "{}{a}", "a{b}c{d}", "{", "}", "{a", "a}", "}{", "}{a}", "{{a}}",
    "{{}}", "{{}", "{a}}", "{a{b}c}", "x{}y{a}z", "{user1000}.following", "{user1000}.followers",
    "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "{é}x", "日{本}語", "{\0}", "{ }",
    "x" * 300 + "{tag}" + "y" * 300, "{" + "x" * 300 + "}", "{" + "x" * 300,
]  # fmt: skip

# Each of the three reaches another part of XXH3: its short forms up to 240 bytes, its stripes of 64 bytes,
# and its blocks of 1,024 bytes.
LENGTHS = [
    *range(301), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2048, 2049, 4096,
    65535, 65536, 65537,
]  # fmt: skip
LENGTH_SEEDS = (0, 0x9E37_79B1_85EB_CA87)


def pattern(length: int) -> bytes:
    return bytes((i * 131 + 7) % 251 for i in range(length))


def positions() -> Json:
    plain: list[Key] = [*TEXTS, *BINARY, *INTEGERS, *UUIDS]
    tagged: list[Key] = [*TAGGED, *(text.encode() for text in TAGGED), *INTEGERS[-1:], *UUIDS[-1:]]

    def row(key: Key, hash_tags: bool) -> Json:
        return {
            "key": json_key(key),
            "positions": [place_of_key(key, seed, hash_tags) for seed in SEEDS],
        }

    return {
        "about": "positions[i] is for seeds[i]; byte i of a pattern is (i * 131 + 7) % 251",
        "seeds": [str(seed) for seed in SEEDS],
        "without_hash_tags": [row(key, False) for key in [*plain, *tagged]],
        "with_hash_tags": [row(key, True) for key in [*plain, *tagged]],
        "pattern_seeds": [str(seed) for seed in LENGTH_SEEDS],
        "patterns": [
            {"length": length, "positions": [place(pattern(length), seed) for seed in LENGTH_SEEDS]}
            for length in LENGTHS
        ],
    }


def points() -> Json:
    cases = [
        (Node("a"), 160, 0), (Node("gw-1"), 160, 0), (Node("gw-1"), 160, SEEDS[-1]),
        (Node("gw-1", 0.5), 160, 0), (Node("gw-1", 2.5), 160, 0), (Node("gw-1", 0.001), 160, 0),
        (Node("10.0.0.1:11211"), 40, 0),
        (Node("é"), 40, 0), (Node("サーバー1"), 40, 1), (Node("\U0001f600"), 40, 0), (Node(" a b "), 40, 0),
        (Node("a1"), 12, 0), (Node("a"), 12, 0), (Node("n" * 300), 10, 0),
        # Halves go to the even number.
        (Node("half", 0.5), 1, 0), (Node("half", 0.5), 3, 0), (Node("half", 0.5), 5, 0),
        (Node("half", 0.5), 7, 0), (Node("half", 1.5), 1, 0), (Node("half", 2.5), 1, 0),
        (Node("half", 3.5), 1, 0),
        # The double nearest to 1.15 lies below it, and yet the double product is exactly 11.5.
        (Node("double", 1.15), 10, 0), (Node("double", 0.1), 5, 0), (Node("double", 0.3), 5, 0),
        (Node("double", 0.29), 50, 0), (Node("double", 0.07), 150, 0), (Node("double", 1.005), 100, 0),
        (Node("small", 1e-300), 160, 0), (Node("small", 5e-324), 1, 0), (Node("whole", 3.0), 7, 0),
    ]  # fmt: skip
    return {
        "points": [
            {
                "name": node.name,
                "weight": node.weight,
                "vnodes": vnodes,
                "seed": str(seed),
                "points": points_of(node, vnodes, seed),
            }
            for node, vnodes, seed in cases
        ]
    }


def some_keys(tagged: bool = False) -> list[Key]:
    texts = [f"user:{i}" for i in range(100)]
    if tagged:
        texts = [f"{{user:{i}}}.{part}" for i in range(25) for part in ("cart", "é", "", "{x}")]
    return [
        *texts,
        *(f"clé-{i}" for i in range(20)),
        *(struct.pack(">I", i * i) for i in range(20)),
        *range(-20, 20),
        *(uuid.uuid5(uuid.NAMESPACE_DNS, f"host-{i}") for i in range(20)),
    ]


def numbered(count: int) -> list[Node]:
    return [Node(f"node-{i}") for i in range(count)]


def keys_before(circle: Circle, lowest: int, highest: int, wanted: int) -> Iterator[Key]:
    """The first texts whose position lies in lowest..highest."""
    texts = (f"key-{i}" for i in itertools.count())
    seed, tags = circle.ring.seed, circle.ring.hash_tags
    return itertools.islice((t for t in texts if lowest <= place_of_key(t, seed, tags) <= highest), wanted)


def answers(circle: Circle, keys: Iterable[Key]) -> list[Json]:
    rows: list[Json] = []
    for key in keys:
        walk, spread = circle.walk(key), circle.spread(key)
        rows.append({"key": json_key(key), "owner": walk[0], "owners": walk[:3], "spread": spread[:6]})
    return rows


EQUAL = Ring([Node(f"gw-{i}") for i in range(1, 11)])
WEIGHTED = Ring(
    [
        Node("cache-a1", 1.0, "a"), Node("cache-a2", 2.0, "a"), Node("cache-a3", 0.5, "a"),
        Node("cache-a4", 4.0, "a"), Node("cache-b1", 1.0, "b"), Node("cache-b2", 2.5, "b"),
        Node("cache-c1", 0.25, "é"), Node("serveur-é", 1.0, "é"), Node("alone-1", 1.0),
        Node("alone-2", 1.5), Node("alone-3", 0.001),
    ],
    vnodes=100,
)  # fmt: skip
TAGS = Ring(
    [Node(f"redis-{i}:6379", 1.0, "xyz"[i % 2]) for i in range(7)],
    vnodes=64,
    seed=0xDEAD_BEEF_0BAD_F00D,
    hash_tags=True,
)
LARGE = Ring(numbered(2000))


def rings() -> Json:
    equal = Circle(EQUAL)
    last = max(max(places) for places in equal.points.values())
    wrapped = keys_before(equal, last + 1, CIRCLE - 1, 5)
    return {
        "about": "owners are the first three, spread the first six with distinct='zone'",
        "equal": {"ring": json_ring(EQUAL), "answers": answers(equal, some_keys())},
        "equal_behind_the_last_point": answers(equal, wrapped),
        "weighted": {
            "ring": json_ring(WEIGHTED),
            "answers": answers(Circle(WEIGHTED), some_keys()),
        },
        "tags": {"ring": json_ring(TAGS), "answers": answers(Circle(TAGS), some_keys(tagged=True))},
        **large(),
        "tie": tie(),
    }


def large() -> Json:
    circle = Circle(LARGE)
    names_at = circle.names_at()
    ties = {p: names for p, names in sorted(names_at.items()) if len(names) > 1}
    # A key on a point belongs to that point. One key in 13,000 lies on one of these 320,000 points.
    texts = (f"key-{i}" for i in itertools.count())
    exact = list(itertools.islice((text for text in texts if place(text.encode(), 0) in names_at), 20))
    for text in exact:
        assert circle.owner(text) == names_at[place(text.encode(), 0)][0]
    return {
        "large": {"numbered": ["node-", len(LARGE.nodes)], "answers": answers(circle, some_keys())},
        "large_ties": [{"position": p, "names": names, "owner": names[0]} for p, names in ties.items()],
        "large_keys_on_a_point": answers(circle, exact),
    }


def tie() -> Json:
    """Two ordinary names that share a position, and a key that lies right on it."""
    shared = {p: names for p, names in Circle(Ring(numbered(10_000))).names_at().items() if len(names) > 1}
    on_it = next(text for i in itertools.count() if place((text := f"key-{i}").encode(), 0) in shared)
    position = place_of_key(on_it, 0, False)
    first, second = shared[position]
    others = [Node("gw-1"), Node("gw-2")]
    both = Circle(Ring([Node(first), Node(second), *others]))
    without_first, without_second = (
        Circle(Ring([Node(second), *others])),
        Circle(Ring([Node(first), *others])),
    )
    before = max((p for places in both.points.values() for p in places if p < position), default=-1)
    keys = [on_it, *keys_before(both, before + 1, position, 20)]
    rows: list[Json] = [
        {
            "key": json_key(key),
            "owner": both.owner(key),
            "owners": both.walk(key)[:3],
            "without_first": without_first.owner(key),
            "without_second": without_second.owner(key),
        }
        for key in keys
    ]
    assert {(row["owner"], row["without_first"], row["without_second"]) for row in rows} == {
        (first, second, first)
    }
    return {
        "ring": json_ring(both.ring),
        "position": position,
        "first": first,
        "second": second,
        "on_the_point": json_key(on_it),
        "answers": rows,
        "ties_among_10000_nodes": len(shared),
    }


def plan() -> Json:
    four = [Node(f"gw-{i}") for i in range(1, 5)]
    heavier = [Node("gw-1"), Node("gw-2", 2.5), Node("gw-3"), Node("gw-4")]
    mixed = [
        Node("gw-1", 0.5),
        Node("gw-3"),
        Node("gw-4", 1.75),
        Node("gw-6", 1.0, "b"),
        Node("gw-é", 0.25),
    ]
    cases = {
        "first in": (Ring([]), Ring(four[:1])),
        "last out": (Ring(four[:1]), Ring([])),
        "two at once into an empty ring": (Ring([], 10), Ring(four[:2], 10)),
        "add": (Ring(four), Ring([*four, Node("gw-5")])),
        "remove": (Ring(four), Ring([four[0], *four[2:]])),
        "reweight": (Ring(four), Ring(heavier)),
        "reweight within the rounding": (Ring(four, 10), Ring([Node("gw-1", 1.04), *four[1:]], 10)),
        "zone alone": (Ring(four, 10), Ring([Node("gw-1", 1.0, "b"), *four[1:]], 10)),
        "replace": (Ring(four, 20), Ring([*four[:3], Node("gw-9")], 20)),
        "replace all": (Ring(four[:2], 20), Ring(four[2:], 20)),
        "mixed": (Ring([*four, Node("gw-5", 2.0)], 60), Ring(mixed, 60)),
        "mixed, seeded": (Ring(four, 30, 7, True), Ring(mixed, 30, 7, True)),
        "more points": (Ring(four, 10), Ring(four, 15)),
    }
    for before, after in cases.values():
        check(before, after, moves_between(before, after))
    return {
        "about": "a move is [start, end, source, target], both ends inclusive",
        "plans": [
            {
                "change": name,
                "before": json_ring(before),
                "after": json_ring(after),
                "moves": moves_between(before, after),
            }
            for name, (before, after) in cases.items()
        ],
    }


def check(before: Ring, after: Ring, moves: list[Move]) -> None:
    """The moves of a plan against the distances of 500 keys."""
    if not before.nodes or not after.nodes:
        return
    old, new = Circle(before), Circle(after)
    for key in range(500):
        here = place_of_key(key, before.seed, before.hash_tags)
        covering = [(source, target) for start, end, source, target in moves if start <= here <= end]
        owners = (old.owner(key), new.owner(key))
        assert covering == ([owners] if owners[0] != owners[1] else [])


def digests() -> Json:
    gateways = [Node("gw-1"), Node("gw-2")]
    cases = [
        Ring([]), Ring([], 1), Ring([], seed=SEEDS[-1]), Ring([Node("a")]), Ring([Node("b")]),
        Ring([Node("a", 2.0)]), Ring([Node("a", 0.001)]), Ring([Node("a", 1.0000000000000002)]),
        Ring([Node("a", 5e-324)], 1), Ring([Node("a", 1.0, "z")]), Ring([Node("a", 1.0, "é")]),
        Ring([Node("é")]),
        Ring([Node("日本語", 0.1, "東京")]), Ring(gateways), Ring(gateways[::-1]), Ring(gateways, 161),
        Ring(gateways, seed=1), Ring(gateways, seed=SEEDS[-1]), Ring(gateways, hash_tags=True),
        Ring([Node("gw-1gw-2")]), EQUAL, WEIGHTED, TAGS,
        # So many that the sum of their tokens has passed 2^128.
        Ring(numbered(50)),
    ]  # fmt: skip
    return {"digests": [{"ring": json_ring(ring), "digest": digest(ring)} for ring in cases]}


if __name__ == "__main__":
    write("positions.json", positions())
    write("points.json", points())
    write("rings.json", rings())
    write("plan.json", plan())
    write("digest.json", digests())

"""The index in front of the points, at the sizes where its layout changes, against the model."""

from __future__ import annotations

import random
import uuid
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, chain, islice

import numpy as np
import pytest
import xxhash

from ringhash import Node, Ring
from ringhash._core import KeySpace, Table

pytestmark = pytest.mark.core

KEYS = [
    *(f"key-{'x' * (i % 30)}{i}" for i in range(1500)),
    *(b"%d" % i for i in range(300)),
    *range(-300, 300),
]
KEYS += [uuid.UUID(int=i) for i in range(30)]


def first_distinct(names: Iterable[str], count: int) -> list[str]:
    found = dict[str, None]()
    for name in names:
        found[name] = None
        if len(found) == count:
            break
    return list(found)


def check(ring: Table, counts: dict[str, int]) -> None:
    """Every way to ask, against a search in a plain list of (position, name)."""
    points = sorted(
        (xxhash.xxh3_64_intdigest(name.encode() + i.to_bytes(4, "little"), ring.seed) >> 32, name)
        for name, count in counts.items()
        for i in range(count)
    )
    positions = [position for position, _ in points]
    assert ring.points.tolist() == positions
    assert [ring.names[i] for i in ring.point_owners.tolist()] == [name for _, name in points]
    expected = [points[bisect_left(positions, ring.position(key)) % len(points)][1] for key in KEYS]
    assert [ring.owner(key) for key in KEYS] == expected
    assert [ring[key] for key in KEYS] == expected
    assert [next(ring.walk(key)) for key in KEYS] == expected
    for key, first in zip(KEYS[::40], expected[::40], strict=True):
        few = min(len(counts), 5)
        owners = ring.owners(key, few)
        walk = ring.walk(key)
        assert owners == tuple(next(walk) for _ in range(few))
        assert owners[0] == first
        start = bisect_left(positions, ring.position(key))
        names = (name for _, name in chain(islice(points, start, None), points))
        assert list(owners) == first_distinct(names, few)
    if isinstance(ring, Ring):
        assert ring.owner_many(KEYS) == expected
        numbers = np.random.default_rng(1).integers(0, 2**64, 5000, np.uint64)
        assert ring.owner_many(numbers) == [ring.owner(int(number)) for number in numbers]
        assert ring.owner_many(numbers.tolist()) == ring.owner_many(numbers)


@pytest.mark.parametrize("nodes", [1, 2, 255, 256, 600])
@pytest.mark.parametrize("vnodes", [1, 13, 160])
def test_sizes(nodes: int, vnodes: int) -> None:
    names = [f"node-{i}" for i in range(nodes)]
    check(Ring(names, vnodes=vnodes, seed=3), dict.fromkeys(names, vnodes))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [65_535, 65_536, 65_537])
def test_the_width_of_owners(nodes: int) -> None:
    """Two bytes while there are fewer than 65,536 nodes; merging passes the threshold both ways."""
    names = [f"node-{i}" for i in range(nodes)]
    ring = Ring(names, vnodes=2)
    check(ring, dict.fromkeys(names, 2))
    assert ring.point_owners.dtype == (np.uint16 if nodes < 65_536 else np.uint32)
    more, fewer = ring.with_nodes("node-new", "another"), ring.without(*names[:3])
    check(more, dict.fromkeys([*names, "node-new", "another"], 2))
    check(fewer, dict.fromkeys(names[3:], 2))
    assert more.without("another", "node-new") == ring


@pytest.mark.parametrize("points", [*range(1, 40), 8190, 8191, 8192, 8193, 8200])
def test_few_points_and_the_step_to_fuller_buckets(points: int) -> None:
    ring = Table(("only",), [points])
    check(ring, {"only": points})
    check(Table(("only", "other"), [points, 1], base=ring), {"only": points, "other": 1})


def test_a_growing_and_shrinking_ring_answers_like_a_new_one() -> None:
    """Through every step of the number of buckets, up and down, in small and large changes."""
    rng = random.Random(5)
    ring, counts = Ring(vnodes=8), dict[str, int]()
    numbers = rng.sample(range(10**6), 400)
    keys = np.random.default_rng(2).integers(0, 2**64, 20_000, np.uint64)
    for step, size in enumerate(accumulate([1] * 30 + [5] * 20 + [40] * 5 + [-60] * 4 + [-1] * 30)):
        while len(counts) < size:
            counts[f"n-{numbers.pop()}"] = 8 * rng.choice([1, 1, 1, 3])
        while len(counts) > size:
            counts.pop(rng.choice(sorted(counts)))
        ring = ring.without(*(name for name in ring if name not in counts)).with_nodes(
            *(Node(name, counts[name] / 8) for name in counts if name not in ring)
        )
        fresh = Ring({name: count / 8 for name, count in counts.items()}, vnodes=8)
        assert ring == fresh
        assert np.array_equal(ring.points, fresh.points)
        assert np.array_equal(ring.point_owners, fresh.point_owners)
        assert np.array_equal(ring.index_many(keys), fresh.index_many(keys)), step


def test_a_key_space_alone_agrees_with_a_ring() -> None:
    ring = Ring(["a"], seed=2**64 - 1, hash_tags=True)
    space = KeySpace(2**64 - 1, hash_tags=True)
    assert [space.position(key) for key in KEYS] == [ring.position(key) for key in KEYS]

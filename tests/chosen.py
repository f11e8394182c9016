"""Names and keys with chosen positions, so that ties, exact hits, both ends and the wrap are tests and not luck.

XXH3 of eight bytes can be undone, so an integer key is made for any position. Names cannot be made: those in
vectors/chosen.json were searched for once, by vectors/find_chosen.py.
"""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from model import LAST, ModelMove, ModelRing

from ringhash import Plan, Ring, Router

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Keys = np.ndarray[Any, np.dtype[np.uint64]]

CHOSEN = json.loads((Path(__file__).parent / "vectors" / "chosen.json").read_text(encoding="ascii"))
# By position: names whose one point lies there when vnodes is 1, and str keys.
NAMES: dict[int, list[str]] = {int(position): names for position, names in CHOSEN["names"].items()}
KEYS: dict[int, str] = {int(position): key for position, key in CHOSEN["keys"].items()}
# Its points 0 and 1 are at one position: with vnodes=2 this node ties with itself.
MEETS_ITSELF: str = CHOSEN["meets_itself"]
TIE = max(NAMES, key=lambda position: len(NAMES[position]))
CROWD = [name for position in sorted(NAMES) if 2**30 <= position < 2**30 + 256 for name in NAMES[position]]
FIRST, LASTS = NAMES[0], NAMES[LAST]

_MASK = 2**64 - 1
_FACTOR_INVERSE = pow(0x9FB21C651E98DF25, -1, 2**64)
_FLIP = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE


def keys_at(positions: Iterable[int], seed: int = 0, low: int = 0) -> Keys:
    """The uint64 keys at these positions; `low` is the half of the hash that does not count."""
    h = np.fromiter(positions, np.uint64) << np.uint64(32) | np.uint64(low)
    with np.errstate(over="ignore"):
        h ^= (h >> np.uint64(28)) ^ (h >> np.uint64(56))
        h *= np.uint64(_FACTOR_INVERSE)
        h ^= (h >> np.uint64(35)) + np.uint64(8)
        h *= np.uint64(_FACTOR_INVERSE)
        # x -> x ^ rotate(x, 49) ^ rotate(x, 24), 64 times in a row, is x again.
        for i in range(6):
            h ^= _rotate(h, (49 << i) % 64) ^ _rotate(h, (24 << i) % 64)
        swapped = int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big")
        h ^= np.uint64((_FLIP - (seed ^ swapped << 32)) & _MASK)
    return _rotate(h, 32)


def key_at(position: int, seed: int = 0, low: int = 0) -> int:
    return int(keys_at([position], seed, low)[0])


def _rotate(x: Keys, bits: int) -> Keys:
    bits %= 64
    return x << np.uint64(bits) | x >> np.uint64(64 - bits) if bits else x.copy()


def position_of_name(name: str, seed: int = 0) -> int:
    return int(Ring([name], vnodes=1, seed=seed).points[0])


def crowd_between(start: int, end: int, count: int) -> list[str]:
    """Names whose one point lies in a range too wide to need a search."""
    ring = Ring(map("crowd-{}".format, range(8 * count * 2**32 // (end - start))), vnodes=1)
    inside = (ring.points >= start) & (ring.points <= end)
    return [ring.nodes[i].name for i in ring.point_owners[inside][:count]]


def model_of(ring: Ring | Router) -> ModelRing:
    ring = ring.placement if isinstance(ring, Router) else ring
    nodes = {node.name: (node.weight, node.zone) for node in ring.nodes}
    return ModelRing(nodes, ring.vnodes, ring.seed, ring.hash_tags)


def edges(*rings: Ring) -> list[int]:
    """Every position where an answer could change or go wrong: both ends, each point and its neighbours.

    And the middle between two points: beside a point the index of the core leaves the answer to a search.
    """
    points = sorted({int(point) for ring in rings for point in ring.points})
    around = {point + step for point in points for step in (-1, 0, 1)}
    between = {(one + following) // 2 for one, following in pairwise([0, *points, LAST])}
    return sorted((around | between | {0, 1, LAST - 1, LAST, 2**31}) - {-1, LAST + 1})


def owners_at(ring: Ring, positions: Sequence[int]) -> list[str]:
    return ring.owner_many(keys_at(positions, ring.seed))


def moves_of(plan: Plan) -> list[ModelMove]:
    return [ModelMove(*move.range, move.source, move.target) for move in plan.moves]


PROBE = np.random.default_rng(7).integers(0, 2**64, 20_000, np.uint64)


def check_ring(ring: Ring, model: ModelRing | None = None) -> None:
    """Everything that must hold for a ring, however it was made."""
    fresh = Ring(ring.nodes[::-1], vnodes=ring.vnodes, seed=ring.seed, hash_tags=ring.hash_tags)
    assert ring == fresh
    assert hash(ring) == hash(fresh)
    assert ring.digest == fresh.digest
    assert ring.points.tobytes() == fresh.points.tobytes()
    assert ring.point_owners.tobytes() == fresh.point_owners.tobytes()
    assert (ring.points.dtype, ring.point_owners.dtype) == (fresh.points.dtype, fresh.point_owners.dtype)
    names = [node.name for node in ring.nodes]
    assert names == sorted(names) == list(ring) == list(ring.names)
    points = list(zip(ring.points.tolist(), ring.point_owners.tolist(), strict=True))
    assert points == sorted(points)
    if not names:
        return
    assert (ring.index_many(PROBE) == fresh.index_many(PROBE)).all()
    positions = edges(ring)
    keys = keys_at(positions, ring.seed)
    indexes = ring.index_many(keys)
    # The first point at or after, or the first of all, found without the index of the core.
    after = np.searchsorted(ring.points, np.array(positions, np.uint32)) % len(points)
    assert (indexes == ring.point_owners[after]).all()
    # The first few owners come from the index, a walk from the points.
    for key in keys[:: len(keys) // 140 + 1].tolist():
        for n in {1, min(2, len(names)), min(16, len(names))}:
            assert ring.owners(key, n) == tuple(islice(ring.walk(key), n))
    if model is not None:
        assert points == [(position, names.index(name)) for position, name in model.points]
        assert [names[i] for i in indexes] == [model.owner_at(position) for position in positions]

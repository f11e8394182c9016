"""The oracle: the placement rules of docs/spec.md in plain Python, slow and simple.

Nothing here comes from ringhash. Read it beside the specification, line for line. The tests inject
`point`, the function that places a node's points, and look positions up directly, so that ties, exact hits,
both ends of the ring and the wrap are chosen and not a matter of luck.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import xxhash
from sortedcontainers import SortedList

SPACE = 2**32
LAST = SPACE - 1

PointFunction = Callable[[str, int], int]


class ModelMove(NamedTuple):
    start: int
    end: int
    source: str | None
    target: str | None


def between_tags(data: bytes) -> bytes:
    """What a key with hash tags is hashed by."""
    opening = data.find(b"{")
    if opening == -1:
        return data
    closing = data.find(b"}", opening + 1)
    if closing == -1 or closing == opening + 1:
        return data
    return data[opening + 1 : closing]


def key_bytes(key: object, hash_tags: bool = False) -> bytes:
    # A bool is an int to Python and a timedelta64 is an integer to numpy; neither is a number to a ring.
    if isinstance(key, (bool, np.timedelta64)):
        raise TypeError(f"a key cannot be a {type(key).__name__}")
    if isinstance(key, (int, np.integer)):
        number = int(key)
        if not -(2**63) <= number < 2**64:
            raise OverflowError(f"an integer key must fit in 64 bits, and {number} does not")
        return (number % 2**64).to_bytes(8, "little")
    if isinstance(key, uuid.UUID):
        return key.bytes
    if isinstance(key, str):
        data = key.encode("utf-8")
    elif isinstance(key, (bytes, bytearray, memoryview)):
        data = bytes(key)
    else:
        raise TypeError(f"a key cannot be a {type(key).__name__}")
    return between_tags(data) if hash_tags else data


def position(key: object, seed: int = 0, hash_tags: bool = False) -> int:
    return xxhash.xxh3_64_intdigest(key_bytes(key, hash_tags), seed) >> 32


def point_count(weight: float, vnodes: int) -> int:
    return max(1, round(float(weight) * vnodes))


def point_position(name: str, i: int, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8") + i.to_bytes(4, "little"), seed) >> 32


class ModelRing:
    def __init__(
        self,
        nodes: Mapping[str, tuple[float, str | None]],
        vnodes: int = 160,
        seed: int = 0,
        hash_tags: bool = False,
        point: PointFunction | None = None,
    ) -> None:
        self.nodes = dict(nodes)
        self.seed = seed
        self.hash_tags = hash_tags
        place = point or (lambda name, i: point_position(name, i, seed))
        # Python orders str by code point, which is the order of their UTF-8.
        self.points = SortedList(
            (place(name, i), name)
            for name, (weight, _) in self.nodes.items()
            for i in range(point_count(weight, vnodes))
        )

    def position(self, key: object) -> int:
        return position(key, self.seed, self.hash_tags)

    # Each question can be asked of a key or of a position.

    def owner(self, key: object) -> str:
        owner = self.owner_at(self.position(key))
        if owner is None:
            raise LookupError("the ring has no nodes")
        return owner

    def owner_at(self, position: int) -> str | None:
        return next(self.walk_at(position), None)

    def walk(self, key: object) -> list[str]:
        return list(self.walk_at(self.position(key)))

    def walk_at(self, position: int) -> Iterator[str]:
        # No name is empty, so (position, "") lies before every point at that position.
        first = self.points.bisect_left((position, ""))
        seen: set[str] = set()
        step = 0
        while len(seen) < len(self.nodes):
            _, name = self.points[(first + step) % len(self.points)]
            if name not in seen:
                seen.add(name)
                yield name
            step += 1

    def owners(self, key: object, n: int, distinct: str = "node") -> tuple[str, ...]:
        return self.owners_at(self.position(key), n, distinct)

    def owners_at(self, position: int, n: int, distinct: str = "node") -> tuple[str, ...]:
        if not 1 <= n <= len(self.nodes):
            raise ValueError(f"n must be from 1 to {len(self.nodes)}, not {n}")
        if distinct == "node":
            return tuple(itertools.islice(self.walk_at(position), n))
        if distinct == "zone":
            return tuple(itertools.islice(self._zone_passes(position), n))
        raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")

    def _zone_passes(self, position: int) -> Iterator[str]:
        taken: set[str] = set()
        while len(taken) < len(self.nodes):
            zones_of_this_pass: set[str] = set()
            for name in self.walk_at(position):
                zone = self.nodes[name][1]
                if name in taken or zone in zones_of_this_pass:
                    continue
                if zone is not None:
                    zones_of_this_pass.add(zone)
                taken.add(name)
                yield name

    def ranges(self, name: str) -> list[tuple[int, int]]:
        if name not in self.nodes:
            raise LookupError(f"there is no node {name!r}")
        empty = ModelRing({}, seed=self.seed, hash_tags=self.hash_tags)
        return [(move.start, move.end) for move in moves(empty, self) if move.target == name]

    @property
    def shares(self) -> dict[str, float]:
        return {name: sum(end - start + 1 for start, end in self.ranges(name)) / SPACE for name in self.nodes}


def moves(before: ModelRing, after: ModelRing) -> list[ModelMove]:
    """The fewest ranges that turn one ring into the other, found by asking both rings everywhere.

    The owner can change only behind a point, so asking at 0 and behind every point is asking everywhere.
    """
    if (before.seed, before.hash_tags) != (after.seed, after.hash_tags):
        raise ValueError("the rings place keys differently")
    behind_points = {point + 1 for ring in (before, after) for point, _ in ring.points}
    starts = sorted({0} | behind_points - {SPACE})
    ends = [start - 1 for start in starts[1:]] + [LAST]
    found: list[ModelMove] = []
    for start, end in zip(starts, ends, strict=True):
        source, target = before.owner_at(start), after.owner_at(start)
        if source == target:
            continue
        last = found[-1] if found else None
        if last and (last.end, last.source, last.target) == (start - 1, source, target):
            found[-1] = last._replace(end=end)
        else:
            found.append(ModelMove(start, end, source, target))
    return found

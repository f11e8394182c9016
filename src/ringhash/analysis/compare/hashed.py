"""Policies that hash: modulo, the ring, fixed shards, and partitions in proportion to the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringhash.analysis.compare.policy import Array, Change, World, compact_size
from ringhash.interop import CassandraRing
from ringhash.placement import Placement
from ringhash.placements.assignment import Assignment, assign
from ringhash.placements.ring import Ring
from ringhash.placements.shards import Shards

__all__ = ["Fixed", "Modulo", "PerNode", "RingPolicy"]

_SPACE = 1 << 64
_LEAST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Modulo:
    """`hash % nodes`: as many `Shards` as nodes, shard i on node i. What most programs begin with."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "modulo"

    def begin(self, world: World, names: Sequence[str]) -> _Modulo:
        """Place the keys on the first nodes."""
        return _Modulo(world, names)


class _Modulo:
    served: Array | None = None

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self._world = world
        self.placement = Shards(len(names))
        self.owner: Array = world.numbers(names)[self.placement.of_many(world.keys)]
        self.metadata = compact_size(self.placement)

    @property
    def shards(self) -> int:
        return self.placement.count

    def resize(self, names: Sequence[str]) -> list[Change]:
        before = self.owner
        self.__init__(self._world, names)  # type: ignore[misc]
        return [Change(None, int(np.count_nonzero(before != self.owner)))]

    def tend(self, step: int, keys: Array) -> list[Change]:  # noqa: ARG002
        return []


class _ByPlacement:
    """A policy whose live class is a `Placement`, and whose changes are its plans."""

    served: Array | None = None

    def __init__(self, world: World, placement: Placement) -> None:
        self.world = world
        self.placement = placement
        self.owner: Array = self.owners()

    def owners(self) -> Array:
        return self.world.owners(self.placement)

    @property
    def shards(self) -> int:
        return len(self.placement.spans.ends)

    @property
    def metadata(self) -> int:
        return compact_size(self.placement)

    def become(self, after: Placement) -> Change:
        plan = self.placement.diff(after)
        self.placement = after
        self.owner = self.owners()
        return Change(plan, len(plan.moves))

    def resize(self, names: Sequence[str]) -> list[Change]:
        return [self.become(self.with_nodes(names))]

    def with_nodes(self, names: Sequence[str]) -> Placement:
        raise NotImplementedError

    def tend(self, step: int, keys: Array) -> list[Change]:  # noqa: ARG002
        return []


@dataclass(frozen=True, slots=True)
class RingPolicy:
    """A `Ring` of nodes with this many virtual nodes each."""

    vnodes: int = 160

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"ring {self.vnodes}"

    def begin(self, world: World, names: Sequence[str]) -> _Ringed:
        """Place the keys on the first nodes."""
        return _Ringed(world, Ring(names, vnodes=self.vnodes))


class _Ringed(_ByPlacement):
    def with_nodes(self, names: Sequence[str]) -> Placement:
        return with_names(self.placement, names)


def with_names(placement: Placement, names: Sequence[str]) -> Placement:
    """Return the placement with exactly these nodes."""
    there = set(placement.names)
    return placement.changed(
        add=[name for name in names if name not in there],
        remove=[name for name in placement.names if name not in set(names)],
    )


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of `Shards`; `assign` gives them to the nodes and moves as few as it must."""

    shards: int = 480

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"fixed {self.shards}"

    def begin(self, world: World, names: Sequence[str]) -> _Fixed:
        """Place the keys on the first nodes."""
        return _Fixed(world, assign(self.shards, names))


class _Fixed(_ByPlacement):
    def __init__(self, world: World, placement: Assignment) -> None:
        # A key never changes its shard, so it is hashed once.
        self._shard = Shards(placement.space.size).of_many(world.keys).astype(np.int32)
        super().__init__(world, placement)

    def owners(self) -> Array:
        count = self.placement.space.size
        names = [self.placement.owner_at(shard) for shard in range(count)]
        owners: Array = self.world.numbers(names)[self._shard]
        return owners

    @property
    def shards(self) -> int:
        return self.placement.space.size

    def with_nodes(self, names: Sequence[str]) -> Placement:
        assert isinstance(self.placement, Assignment)  # noqa: S101 - for mypy
        return assign(self.shards, names, self.placement)


@dataclass(frozen=True, slots=True)
class PerNode:
    """Partitions in proportion to the nodes: a `CassandraRing` with this many tokens a node.

    An allocator chooses the tokens: a newcomer takes its share in equal parts, each from the largest
    partition of the node that has most. What a node had goes to the next tokens when it leaves.
    """

    tokens: int = 16

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"per node {self.tokens}"

    def begin(self, world: World, names: Sequence[str]) -> _PerNode:
        """Place the keys on the first nodes."""
        count = len(names) * self.tokens
        tokens = {
            name: [(j * len(names) + i) * _SPACE // count + _LEAST for j in range(self.tokens)]
            for i, name in enumerate(names)
        }
        return _PerNode(world, tokens, self.tokens)


class _PerNode(_ByPlacement):
    def __init__(self, world: World, tokens: dict[str, list[int]], each: int) -> None:
        self._each = each
        self._tokens = tokens
        self._keys = list(map(str, world.keys.tolist())) if isinstance(world.keys, np.ndarray) else world.keys
        super().__init__(world, CassandraRing(tokens))

    def owners(self) -> Array:
        owners: Array = self.world.numbers(self.placement.names)[self.placement.index_many(self._keys)]
        return owners

    @property
    def shards(self) -> int:
        return sum(map(len, self._tokens.values()))

    def with_nodes(self, names: Sequence[str]) -> Placement:
        tokens = {name: self._tokens[name] for name in self._tokens if name in set(names)}
        for name in names:
            if name not in tokens:
                tokens[name] = _newcomer(tokens, self._each) if tokens else [_LEAST]
        self._tokens = tokens
        return CassandraRing(tokens)


def _newcomer(tokens: dict[str, list[int]], each: int) -> list[int]:
    """The tokens of one more node: (start, token] is what a token owns."""
    need = _SPACE // (len(tokens) + 1)
    ends = sorted((token, name) for name, given in tokens.items() for token in given)
    parts = {end: ((end - ends[i - 1][0]) % _SPACE or _SPACE, name) for i, (end, name) in enumerate(ends)}
    shares = dict.fromkeys(tokens, 0)
    for size, name in parts.values():
        shares[name] += size
    chosen = []
    for left in range(each, 0, -1):
        most = max(shares, key=lambda name: (shares[name], name))
        size, end = max((size, end) for end, (size, name) in parts.items() if name == most)
        piece = max(1, min(need // left, size - 1))
        start = end - size
        chosen.append((start + piece - _LEAST) % _SPACE + _LEAST)
        parts[end] = (size - piece, most)
        shares[most] -= piece
        need -= piece
    return chosen

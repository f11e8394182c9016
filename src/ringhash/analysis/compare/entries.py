"""Policies that treat single keys: a directory of the heaviest, and bounded loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringhash.analysis.compare.hashed import with_names
from ringhash.analysis.compare.policy import Array, Change, World, compact_size
from ringhash.balance import BoundedRouter
from ringhash.placements.directory import Directory
from ringhash.placements.ring import Ring
from ringhash.routing import Router

__all__ = ["Bounded", "Direct"]


@dataclass(frozen=True, slots=True)
class Direct:
    """A `Directory`: entries for the heaviest keys over a `Ring` for all others.

    Args:
        top: How many keys have an entry.
        every: After how many steps the entries are dealt anew; also whenever nodes come or go. An entry
            stays where it is as long as its node has room.
        vnodes: Of the ring.
    """

    top: int = 100
    every: int = 24
    vnodes: int = 160

    def __post_init__(self) -> None:
        if self.top < 1 or self.every < 1:
            raise ValueError(f"top and every must be at least 1, not {self.top} and {self.every}")

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"direct {self.top}"

    def begin(self, world: World, names: Sequence[str]) -> _Direct:
        """Place the keys on the first nodes."""
        return _Direct(world, Ring(names, vnodes=self.vnodes), self)


class _Direct:
    served: Array | None = None

    def __init__(self, world: World, ring: Ring, policy: Direct) -> None:
        self._world, self._policy, self._ring = world, policy, ring
        self._default: Array = world.owners(ring)
        self._entries: dict[int, int] = {}  # key -> node, both as indexes
        self.placement = Directory(ring)
        self.owner: Array = self._default

    @property
    def shards(self) -> int:
        return len(self._ring.points) + len(self._entries)

    @property
    def metadata(self) -> int:
        return compact_size(self.placement)

    def resize(self, names: Sequence[str]) -> list[Change]:
        ring = with_names(self._ring, names)
        assert isinstance(ring, Ring)  # noqa: S101 - for mypy
        self._ring, self._default = ring, self._world.owners(ring)
        return [self._dealt()]

    def tend(self, step: int, keys: Array) -> list[Change]:  # noqa: ARG002
        due = step == 0 or step % self._policy.every == 0
        return [change] if due and (change := self._dealt()).moves else []

    def _dealt(self) -> Change:
        """Deal the heaviest keys, the heaviest first, each to its node of now or the one with least."""
        world = self._world
        rows = world.rows
        some = min(self._policy.top, len(rows))
        top = np.argpartition(rows, len(rows) - some)[len(rows) - some :]
        top = top[np.lexsort((top, -rows[top]))]
        top = top[rows[top] > 0]
        there = world.numbers(self._ring.names).tolist()
        loads = np.bincount(self._default, rows, len(world.names))
        loads -= np.bincount(self._default[top], rows[top], len(world.names))
        mean = float(rows.sum()) / len(there)
        entries = {}
        for key in top.tolist():
            now = self._entries.get(key, int(self._default[key]))
            if now not in there or loads[now] + rows[key] > 1.05 * mean:
                now = min(there, key=lambda node: (loads[node], node))
            loads[now] += rows[key]
            entries[key] = now
        named = {world.key(key): world.names[node] for key, node in entries.items()}
        before, self.placement = self.placement, Directory(self._ring, named)
        self._entries = entries
        owner = self._default.copy()
        owner[list(entries)] = list(entries.values())
        self.owner = owner
        plan = before.diff(self.placement)
        return Change(plan, len(plan.moves))


@dataclass(frozen=True, slots=True)
class Bounded:
    """A `BoundedRouter`: the requests of a step are held together, and no node holds much above its part.

    A key is where it was served last, so a key that is served elsewhere moves: for a cache, a miss.

    Args:
        factor: How much a node may hold in relation to its fair part.
        vnodes: Of the ring.
    """

    factor: float = 1.25
    vnodes: int = 160

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"bounded {self.factor:g}"

    def begin(self, world: World, names: Sequence[str]) -> _Bounded:
        """Place the keys on the first nodes."""
        return _Bounded(world, names, self)


class _Bounded:
    served: Array | None = None

    def __init__(self, world: World, names: Sequence[str], policy: Bounded) -> None:
        self._world = world
        self._router = Router(Ring(names, vnodes=policy.vnodes))
        self.placement = BoundedRouter(self._router, policy.factor)
        self._home: Array = world.owners(self._router.placement)
        self.owner: Array = self._home
        self._listed: Any = world.keys.tolist() if isinstance(world.keys, np.ndarray) else world.keys

    @property
    def shards(self) -> int:
        return len(self._router.placement.spans.ends)

    @property
    def metadata(self) -> int:
        return compact_size(self._router.placement)

    def resize(self, names: Sequence[str]) -> list[Change]:
        self._router.apply(self._router.plan_to(with_names(self._router.placement, names)))
        home, before = self._world.owners(self._router.placement), self.owner
        there = self._world.numbers(names)
        self.owner = np.where((before == self._home) | ~np.isin(before, there), home, before)
        self._home = home
        return [Change(None, int(np.count_nonzero((before != self.owner) & (self._world.rows > 0))))]

    def tend(self, step: int, keys: Array) -> list[Change]:  # noqa: ARG002
        acquire, listed = self.placement.acquire, self._listed
        tickets = [acquire(listed[key]) for key in keys.tolist()]
        place = self._world.place
        served = np.fromiter((place[ticket.node] for ticket in tickets), np.int32, len(tickets))
        for ticket in tickets:
            ticket.release()
        self.served = served
        owner = self.owner.copy() if len(keys) else self.owner
        owner[keys] = served  # of several, the last one stays
        moved = np.unique(keys[owner[keys] != self.owner[keys]])
        self.owner = owner
        return [Change(None, len(moved))] if len(moved) else []

"""The ring in the middle of a handover: some ranges belong to the ring after it, the rest to the ring before.

It is a table of points as any ring is, so a lookup costs the same. Inside of the ranges that are done it
has the points of the ring after, outside those of the ring before, and where a range begins or ends between
two points, a point of its own, which belongs to whoever owns that position:

    before   ----A--------A----B------        done: the range [ ]
    after    ----A---C----A----B------
    transit  ----A--[C]---A----B------        one more point at the position before `[` where A had none
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from operator import index
from typing import Any, NoReturn, Self, cast

import numpy as np

from ringhash._core import Table, own_methods
from ringhash.errors import EmptyRingError, NoNodeAvailableError
from ringhash.health import live_ring
from ringhash.live import Middle, joined, read_middle
from ringhash.node import Node
from ringhash.plan import Plan
from ringhash.ring import SPACE, Ring, _spread

__all__ = ["Transit"]

_Array = np.ndarray[Any, Any]


@own_methods
class Transit(Table, Middle):
    """An immutable table between two rings; made by `Transit.of`.

    Where one of the two rings is empty, so that a position may have no owner, the table is that of
    the ring before until everything is done.
    """

    __slots__ = (
        "_down", "_ends", "_starts", "after", "before", "began", "epoch", "nodes", "numbers", "plan",
    )  # fmt: skip

    before: Ring
    after: Ring
    nodes: tuple[Node, ...]  # those of both rings, by name; as it is in the ring after, where it is in both
    numbers: np.ndarray[Any, np.dtype[np.intp]]  # from an index of the table to one of `nodes`
    _down: frozenset[str]

    @classmethod
    def of(
        cls, before: Ring, after: Ring, plan: Plan, done: Any, epoch: int, down: frozenset[str] = frozenset()
    ) -> Self:
        """Return the table when the ranges of `done`, pairs of first and last position, are done.

        For the nodes of `down` the next ones answer, in both rings.

        Cost: O(points), in numpy.
        """
        starts, ends = joined(done)
        one, other = (live_ring(ring, down, ring) for ring in (before, after))
        if not len(one) or not len(other):
            all_done = int((ends - starts + 1).sum()) == plan.moves.positions
            points, owners, names = _points_of(other if all_done and len(starts) else one)
        else:
            points, owners, names = _mixed(one, other, starts, ends)
        used, owners = np.unique(owners, return_inverse=True)
        keys = np.sort((points.astype(np.uint64) << np.uint64(32)) | owners.astype(np.uint64))
        self = Table.__new__(
            cls,
            tuple(names[i] for i in used.tolist()),
            np.bincount(owners, minlength=len(used)).tolist(),
            before.seed,
            before.hash_tags,
            None,
            keys,
        )
        both = {node.name: node for node in (*before.nodes, *after.nodes)}
        self.nodes = tuple(both[name] for name in sorted(both))
        place = {node.name: i for i, node in enumerate(self.nodes)}
        self.numbers = np.array([place[name] for name in self.names], np.intp)
        self.before, self.after, self.plan, self.epoch = before, after, plan, epoch
        self._starts, self._ends, self._down = starts, ends, down
        self.began = time.perf_counter()
        return self

    def later(self, done: Any, epoch: int) -> Self:
        """Return the table when other ranges are done."""
        table = self.of(self.before, self.after, self.plan, done, epoch, self._down)
        table.began = self.began
        return table

    def marked(self, down: frozenset[str]) -> Self:
        """Return the table in which just these nodes are down."""
        table = self.of(self.before, self.after, self.plan, self.done, self.epoch, down)
        table.began = self.began
        return table

    def _fail_empty(self) -> NoReturn:
        if self._down:
            raise NoNodeAvailableError("every node that owns a key is down; mark one up")
        raise EmptyRingError("no node has been handed the first key yet, so no key has an owner")

    def _fail_count(self, n: object) -> NoReturn:
        if not len(self.names):
            self._fail_empty()
        raise ValueError(f"n must be from 1 to the number of nodes, {len(self.names)}, not {n}")

    def _owners_by(self, key: Any, n: int, distinct: object) -> tuple[str, ...]:
        if distinct != "zone":
            raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
        return self._owners_along(self.walk(key), n, distinct)

    def _owners_along(self, walk: Iterator[str], n: int, distinct: object) -> tuple[str, ...]:
        """As `Ring._owners_along`."""
        if distinct not in {"node", "zone"}:
            raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
        n = index(n)
        if not 1 <= n <= len(self.names):
            self._fail_count(n)
        if distinct == "node":
            return tuple(islice(walk, n))
        mine = set(self.names)
        zone_of = {node.name: node.zone or node for node in self.nodes if node.name in mine}
        return _spread(walk, zone_of, Counter(zone_of.values()), n)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transit):
            return NotImplemented
        return self.before == other.before and self._equals(other)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_dict(cls, data: object, before: Ring, epoch: int, down: frozenset[str] = frozenset()) -> Self:
        """Return what `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        plan, done = read_middle(data, before.digest, SPACE)
        return cls.of(before, before._changed(plan.changes), plan, done, epoch, down)


def _points_of(ring: Ring) -> tuple[_Array, _Array, tuple[str, ...]]:
    return ring.points.astype(np.int64), ring.point_owners.astype(np.int64), ring.names


def _mixed(before: Ring, after: Ring, starts: _Array, ends: _Array) -> tuple[_Array, _Array, tuple[str, ...]]:
    """The points of both rings, each where it counts, and those at the bounds of what is done."""
    names = tuple(sorted({*before.names, *after.names}))
    place = {name: i for i, name in enumerate(names)}
    # Behind the last point of a ring comes its first: the last position needs a point of its own.
    bounds = np.unique(np.concatenate((ends, starts[starts > 0] - 1, [SPACE - 1])))
    points, owners = [], []
    for ring, done in ((before, False), (after, True)):
        at, of, ring_names = _points_of(ring)
        here = _inside(at, starts, ends) == done
        kept = at[here]
        mine = bounds[_inside(bounds, starts, ends) == done]
        mine = mine[~np.isin(mine, kept)]
        next_point = np.searchsorted(at, mine)
        next_point[next_point == len(at)] = 0
        number = np.array([place[name] for name in ring_names], np.int64)
        points += [kept, mine]
        owners += [number[of[here]], number[of[next_point]]]
    return np.concatenate(points), np.concatenate(owners), names


def _inside(positions: _Array, starts: _Array, ends: _Array) -> _Array:
    if not len(starts):
        return np.zeros(len(positions), np.bool_)
    rows = np.searchsorted(starts, positions, "right")
    return cast("_Array", (rows > 0) & (positions <= ends[rows - 1]))

"""The policy of ranges: they split as they grow, merge as they shrink, and move to even out the nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringhash.analysis.compare.policy import Array, Change, World, compact_size
from ringhash.placements.range_map import RangeMap

__all__ = ["Dynamic"]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A `RangeMap` that splits a range in two when it has too many rows, and moves ranges to even nodes.

    Args:
        split: Above how many rows (or how much weight) a range splits, at its median key; by default a 64th
            of all rows of the trace. One key is never split.
        merge: Below how many rows two neighbours on one node become one; by default a quarter of `split`.
            Must be at most half of it, or a merge would lead to the next split.

    It begins with one range. The fullest node gives a range to the emptiest one as long as that makes the
    two more even.
    """

    split: float | None = None
    merge: float | None = None

    def __post_init__(self) -> None:
        if self.split is not None and not self.split > 0:
            raise ValueError(f"split must be above 0, not {self.split}")
        if self.merge is not None and not 0 <= self.merge <= (self.split or float("inf")) / 2:
            raise ValueError(f"merge must be from 0 to half of split, not {self.merge}")

    @property
    def name(self) -> str:
        """What reports call it."""
        return "dynamic" if self.split is None else f"dynamic {self.split:g}"

    def begin(self, world: World, names: Sequence[str]) -> _Ranges:
        """Place the keys on the first nodes."""
        split = self.split or world.total / 64
        return _Ranges(world, names, split, split / 4 if self.merge is None else self.merge)


class _Ranges:
    served: Array | None = None

    def __init__(self, world: World, names: Sequence[str], split: float, merge: float) -> None:
        self._world = world
        self._split, self._merge = split, merge
        shape = int if isinstance(world.keys, np.ndarray) else str
        self.placement = RangeMap([(None, names[0])], nodes=list(names), keys=shape)
        self._bounds = [0]  # of each range the first key, as an index into the keys
        self._nodes = [names[0]]
        self._rows: list[float] = [0.0]
        self.owner: Array = self._owners()

    @property
    def shards(self) -> int:
        return len(self._bounds)

    @property
    def metadata(self) -> int:
        return compact_size(self.placement)

    def _owners(self) -> Array:
        """The node of each key, asked of the live map once a range."""
        starts: Any = [self._world.key(bound) for bound in self._bounds]
        of_ranges = self._world.numbers(self.placement.owner_many(starts))
        return np.repeat(of_ranges, np.diff([*self._bounds, len(self._world.keys)]))

    def _start(self, number: int) -> Any:
        return None if number == 0 else self._world.key(self._bounds[number])

    def resize(self, names: Sequence[str]) -> list[Change]:
        before = self.placement
        gone = set(before.names) - set(names)
        added = [name for name in names if name not in set(before.names)]
        after = before.changed(add=added) if added else before
        moves: dict[int, str] = {}
        loads = self._loads(names)
        for number, name in enumerate(self._nodes):
            if name in gone:
                target = min(names, key=lambda node: (loads[node], node))
                loads[target] += self._rows[number]
                moves[number] = target
        self._even(loads, moves)
        after = self._moved(after, moves)
        if gone:
            after = after.changed(remove=sorted(gone))
        return [self._become(before, after)]

    def tend(self, step: int, keys: Array) -> list[Change]:  # noqa: ARG002
        if not len(keys):
            return []
        before, after = self.placement, self.placement
        bounds = np.array(self._bounds)
        self._rows = np.add.reduceat(self._world.rows, bounds).tolist()
        splits = merges = 0
        number = 0
        while number < len(self._bounds):
            if self._rows[number] > self._split and (middle := self._median(number)) is not None:
                after = after.split(self._world.key(middle))
                self._insert(number, middle)
                splits += 1
            else:
                number += 1
        number = len(self._bounds) - 1
        while number > 0 and self._merge:
            together = self._rows[number - 1] + self._rows[number]
            if together < self._merge and self._nodes[number - 1] == self._nodes[number]:
                after = after.merge(self._start(number))
                self._rows[number - 1] = together
                del self._bounds[number], self._nodes[number], self._rows[number]
                merges += 1
            number -= 1
        moves: dict[int, str] = {}
        loads = self._loads(before.names)
        mean = sum(loads.values()) / len(loads)
        if max(loads.values()) > 1.1 * mean:
            self._even(loads, moves)
            after = self._moved(after, moves)
        return [self._become(before, after, splits, merges)] if splits or merges or moves else []

    def _become(self, before: RangeMap, after: RangeMap, splits: int = 0, merges: int = 0) -> Change:
        plan = before.diff(after)
        self.placement = after
        self.owner = self._owners()
        return Change(plan, len(plan.moves), splits, merges)

    def _loads(self, names: Sequence[str]) -> dict[str, float]:
        loads = dict.fromkeys(names, 0.0)
        for name, rows in zip(self._nodes, self._rows, strict=True):
            if name in loads:
                loads[name] += rows
        return loads

    def _median(self, number: int) -> int | None:
        """The key at which the rows of a range are halved; None if it has one key."""
        low = self._bounds[number]
        high = self._bounds[number + 1] if number + 1 < len(self._bounds) else len(self._world.keys)
        sums = np.cumsum(self._world.rows[low:high])
        middle = low + int(np.searchsorted(sums, sums[-1] / 2)) + 1
        seen = low + np.flatnonzero(self._world.rows[low:high])
        if len(seen) < 2:
            return None
        # A key that has not come yet is no place to split at.
        place = bisect_right(seen.tolist(), middle - 1)
        return int(seen[min(max(place, 1), len(seen) - 1)])

    def _insert(self, number: int, middle: int) -> None:
        low = self._bounds[number]
        left = float(self._world.rows[low:middle].sum())
        self._bounds.insert(number + 1, middle)
        self._nodes.insert(number + 1, self._nodes[number])
        self._rows.insert(number + 1, self._rows[number] - left)
        self._rows[number] = left

    def _even(self, loads: dict[str, float], moves: dict[int, str]) -> None:
        """Move ranges from the fullest node to the emptiest one while that makes them more even."""
        now = [moves.get(number, name) for number, name in enumerate(self._nodes)]
        while True:
            full = max(loads, key=lambda name: (loads[name], name))
            low = min(loads, key=lambda name: (loads[name], name))
            gap = loads[full] - loads[low]
            fitting = [
                (abs(gap / 2 - rows), number)
                for number, rows in enumerate(self._rows)
                if now[number] == full and number not in moves and 0 < rows < gap
            ]
            if not fitting:
                return
            _, number = min(fitting)
            loads[full] -= self._rows[number]
            loads[low] += self._rows[number]
            now[number] = moves[number] = low

    def _moved(self, ranges: RangeMap, moves: dict[int, str]) -> RangeMap:
        if not moves:
            return ranges
        for number, name in moves.items():
            self._nodes[number] = name
        return ranges.move([(self._start(number), name) for number, name in sorted(moves.items())])

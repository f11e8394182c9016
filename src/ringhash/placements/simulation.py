"""Four ways to place shards, compared while nodes are added one by one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import numpy as np

from ringhash.placements.assignment import Assignment, assign
from ringhash.placements.points import SPACE
from ringhash.placements.ring import Ring
from ringhash.placements.shards import SHARD_SEED
from ringhash.space import HashSpace

__all__ = ["Step", "simulate"]


class Step(NamedTuple):
    """One step of `simulate`: from `nodes - 1` nodes to `nodes`, by one method.

    `moved` is the part of all keys that changed its node, `least` the part that any even placement
    must move; `peak_to_mean` the share of the fullest node by the mean, `low_to_mean` that of the
    emptiest.
    """

    method: str
    nodes: int
    moved: float
    least: float
    peak_to_mean: float
    low_to_mean: float


def simulate(shards: int = 1024, most: int = 100, *, vnodes: int = 160, splits: int = 160) -> list[Step]:
    """Compare four placements while nodes are added one by one, up to `most`.

    `sticky` is `assign`; `modulo` gives shard s to node s % n; `ring` is a `Ring`; `proportional`
    keeps a number of partitions in proportion to the nodes: a newcomer halves those in which
    `splits` points fall that a hash chooses, and takes one half of each (Cassandra's way before it
    chose its tokens). All figures are exact parts of the key space.

    >>> steps = {step.method: step for step in simulate(64, 4) if step.nodes == 4}
    >>> {method: round(step.moved, 2) for method, step in steps.items()}
    {'sticky': 0.25, 'modulo': 0.72, 'ring': 0.22, 'proportional': 0.19}
    """
    names = [f"w{i:03}" for i in range(most)]
    return [
        *_steps("sticky", _sticky(shards, names)),
        *_steps("modulo", _modulo(shards, names)),
        *_steps("ring", _ring(vnodes, names)),
        *_steps("proportional", _proportional(splits, names)),
    ]


def _steps(method: str, run: Iterator[tuple[float, Iterable[float]]]) -> Iterator[Step]:
    for n, (moved, shares) in enumerate(run, 1):
        sizes = list(shares)
        if n > 1:
            yield Step(method, n, moved, 1 / n, max(sizes) * n, min(sizes) * n)


def _sticky(count: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    now: Assignment | None = None
    for n in range(1, len(names) + 1):
        before, now = now, assign(count, names[:n], now)
        moved = 1.0 if before is None else cast("float", before.diff(now).fraction)
        yield moved, [size / count for size in now.counts.values()]


def _modulo(count: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    numbers = np.arange(count)
    for n in range(1, len(names) + 1):
        moved = int(np.count_nonzero(numbers % n != numbers % max(1, n - 1)))
        yield moved / count, (np.bincount(numbers % n, minlength=n) / count).tolist()


def _ring(vnodes: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    ring = Ring((), vnodes=vnodes)
    for name in names:
        before, ring = ring, ring.with_nodes(name)
        yield cast("float", before.diff(ring).fraction), ring.shares.values()


def _proportional(splits: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    keys = HashSpace(SHARD_SEED)
    starts = [i * SPACE // splits for i in range(splits)]
    owners = [0] * splits
    for n, name in enumerate(names):
        moved = 0
        for point in (keys.position(f"{name}/{i}") for i in range(splits if n else 0)):
            i = bisect_right(starts, point) - 1
            end = starts[i + 1] if i + 1 < len(starts) else SPACE
            half = (end - starts[i]) // 2
            if half and owners[i] != n:
                starts.insert(i + 1, end - half)
                owners.insert(i + 1, n)
                moved += half
        sizes = np.bincount(owners, np.diff([*starts, SPACE]), n + 1)
        yield moved / SPACE, (sizes / SPACE).tolist()

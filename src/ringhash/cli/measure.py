"""What the commands tell about a cluster and about real keys: numbers only, no output."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringhash.balance.sizing import VnodesRow, compare_vnodes
from ringhash.placements.ring import Ring
from ringhash.plan import Plan
from ringhash.spans import Balance

__all__ = ["Check", "balance_of", "check", "compare", "count", "fair_shares", "ideal"]

Pair = tuple[str | None, str | None]


def fair_shares(ring: Ring) -> dict[str, float]:
    """What each node ought to own: its part of all the weight."""
    heaviest = max((node.weight for node in ring.nodes), default=1.0)
    relative = [node.weight / heaviest for node in ring.nodes]  # so that the sum stays finite
    total = math.fsum(relative)
    return {node.name: part / total for node, part in zip(ring.nodes, relative, strict=True)}


def ideal(before: Ring, after: Ring) -> float:
    """What every placement has to move from fair shares to fair shares: the sum of what nodes gain."""
    nobody = {"": 1.0}  # owns all of an empty ring, and no node has this name
    old, new = fair_shares(before) or nobody, fair_shares(after) or nobody
    return math.fsum(max(0.0, share - old.get(name, 0.0)) for name, share in new.items())


def count(ring: Ring, blocks: Iterable[list[bytes]]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return how many of the keys each node owns, in the order of `ring.nodes`."""
    counts = np.zeros(len(ring), np.intp)
    for keys in blocks:
        counts += np.bincount(ring.index_many(keys), minlength=len(ring))
    return counts


def balance_of(ring: Ring, counts: np.ndarray[Any, Any]) -> Balance | None:
    """Return for counted keys what `ring.balance` is for the arcs; None without keys."""
    total = int(counts.sum())
    if not total:
        return None
    relative = counts / total / np.array(list(fair_shares(ring).values()))
    return Balance(float(relative.max()), float(relative.min()), float(relative.std()))


def compare(ring: Ring, numbers: Iterable[int], blocks: Iterable[list[bytes]] = ()) -> list[VnodesRow]:
    """Return what each number of virtual nodes would make of this ring; keys are counted in blocks."""
    numbers = list(numbers)
    rows = compare_vnodes(ring.nodes, numbers, seed=ring.seed, hash_tags=ring.hash_tags)
    rings = [Ring(ring.nodes, vnodes=n, seed=ring.seed, hash_tags=ring.hash_tags) for n in numbers]
    counts = [np.zeros(len(ring), np.intp) for _ in rings]
    for keys in blocks:
        for other, so_far in zip(rings, counts, strict=True):
            np.add(so_far, count(other, [keys]), out=so_far)
    balances = map(balance_of, rings, counts)
    return [
        row._replace(key_peak_to_mean=balance and balance.peak_to_mean)
        for row, balance in zip(rows, balances, strict=True)
    ]


@dataclass(slots=True)
class Check:
    """Real keys, asked before and after a change, against what its plan says of them.

    `pairs` counts the keys that moved as predicted by (source, target); `otherwise` those that
    moved where no move of the plan takes them, or stayed though one does.
    """

    total: int = 0
    otherwise: int = 0
    pairs: Counter[Pair] = field(default_factory=Counter)

    @property
    def as_predicted(self) -> int:
        """How many keys moved as the plan said."""
        return self.pairs.total()


def check(plan: Plan, before: Ring, after: Ring, blocks: Iterable[list[bytes]]) -> Check:
    """Ask both rings for the owner of every key, and compare each with the plan."""
    found = Check()
    old_names, new_names = _names(before), _names(after)
    # The index in the ring before of each node after; -2 is no index at all, since -1 is nobody.
    old_index = {name: i for i, name in enumerate(old_names)}
    same = np.array([old_index.get(name, -2) for name in new_names])
    for keys in blocks:
        old, new = _indexes(before, keys), _indexes(after, keys)
        moved = same[new] != old
        predicted = plan.mask(keys)
        found.total += len(keys)
        found.otherwise += int(np.count_nonzero(moved != predicted))
        for i in np.flatnonzero(moved & predicted).tolist():
            move = plan.move_of(keys[i])
            pair = old_names[old[i]], new_names[new[i]]
            if move is not None and (move.source, move.target) == pair:
                found.pairs[pair] += 1
            else:
                found.otherwise += 1
    return found


def _names(ring: Ring) -> tuple[str | None, ...]:
    return ring.names or (None,)


def _indexes(ring: Ring, keys: list[bytes]) -> np.ndarray[Any, np.dtype[np.intp]]:
    return ring.index_many(keys) if len(ring) else np.zeros(len(keys), np.intp)

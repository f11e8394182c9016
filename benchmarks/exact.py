"""What a change must move, worked out anew: points hashed by the xxhash package, arcs laid over each other by
numpy, counted in integers. Nothing of it comes from ringhash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

SPACE = 1 << 32
_Array = np.ndarray[Any, np.dtype[Any]]


def points(names: Sequence[str], vnodes: int) -> tuple[_Array, _Array]:
    """Positions in order, and for each the index of its node; `names` must be sorted and ASCII."""
    digest = xxhash.xxh3_64_intdigest
    ends = [i.to_bytes(4, "little") for i in range(vnodes)]
    hashes = [digest(name.encode() + end) for name in names for end in ends]
    positions = np.array(hashes, np.uint64) >> np.uint64(32)
    owners = np.repeat(np.arange(len(names)), vnodes)
    order = np.lexsort((owners, positions))
    return positions[order].astype(np.int64), owners[order]


def owners_at(placement: tuple[_Array, _Array], positions: _Array) -> _Array:
    """The owner of each position: of the first point at or after it, else of the first point."""
    places, owners = placement
    found: _Array = owners[np.searchsorted(places, positions) % len(places)]
    return found


def sizes(placement: tuple[_Array, _Array], nodes: int) -> list[int]:
    """How many positions each node owns."""
    edges = np.unique(np.append(placement[0], SPACE - 1))
    lengths = np.diff(edges, prepend=-1)
    owners = owners_at(placement, edges)
    return [int(lengths[owners == node].sum()) for node in range(nodes)]


def moved(before: Sequence[str], after: Sequence[str], vnodes: int) -> tuple[int, int]:
    """How many positions change their node; and how many of them needlessly: from a node that stays to one
    that was there before."""
    before, after = sorted(before), sorted(after)
    old, new = points(before, vnodes), points(after, vnodes)
    edges = np.unique(np.concatenate((old[0], new[0], [SPACE - 1])))
    lengths = np.diff(edges, prepend=-1)
    sources = np.array(before)[owners_at(old, edges)]
    targets = np.array(after)[owners_at(new, edges)]
    changed = sources != targets
    needless = changed & np.isin(sources, after) & np.isin(targets, before)
    return int(lengths[changed].sum()), int(lengths[needless].sum())

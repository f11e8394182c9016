"""Points on a ring, made into stretches: sorted inclusive ends, each with an owner."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "cut", "distinct_points", "merged", "sorted_points", "starts_of", "whole"]

Array = np.ndarray[Any, Any]


def sorted_points(points: Array, owners: Array) -> tuple[Array, Array]:
    """Return points in order, each with its owner; equal points in the order of their owners."""
    if not len(points) or int(points.max()) >> 32:
        order = np.lexsort((owners, points))
        return points[order], owners[order].astype(np.int32)
    packed = np.sort(points << np.uint64(32) | owners.astype(np.uint64))
    return packed >> np.uint64(32), (packed & np.uint64(0xFFFFFFFF)).astype(np.int32)


def distinct_points(points: Array, owners: Array, *, last: bool = False) -> tuple[Array, Array]:
    """Keep one of equal points: the first of them, or the last."""
    differs = points[1:] != points[:-1]
    kept = np.append(differs, True) if last else np.insert(differs, 0, True)
    return points[kept], owners[kept]


def whole(points: Array, owners: Array, size: int, *, after: bool = False) -> tuple[Array, Array]:
    """Return the stretches up to distinct sorted points; what lies behind the last is the first's.

    With `after`, a position that is a point belongs to the next one.
    """
    ends, first = points, owners[0]
    if after:
        if points[0] == 0:
            points, owners = points[1:], owners[1:]
        ends = points - np.uint64(1)
    last = np.uint64(size - 1)
    if not len(ends) or ends[-1] != last:
        ends, owners = np.append(ends, last), np.append(owners, first)
    return ends, owners


def cut(ends: Array, owners: Array, size: int) -> tuple[Array, Array]:
    """Return the stretches of the first `size` positions, for keys whose hash gives no others.

    >>> cut(np.array([4, 9, 99]), np.array([0, 1, 0]), 8)
    (array([4, 7]), array([0, 1]))
    """
    count = int(np.searchsorted(ends, ends.dtype.type(size - 1))) + 1
    if ends[count - 1] == size - 1:
        return ends[:count], owners[:count]
    ends = ends[:count].copy()
    ends[-1] = size - 1
    return ends, owners[:count]


def merged(ends: Array, owners: Array) -> tuple[Array, Array]:
    """Join stretches that touch and have one owner."""
    kept = np.append(owners[1:] != owners[:-1], True)
    return np.ascontiguousarray(ends[kept], np.uint64), np.ascontiguousarray(owners[kept], np.int32)


def starts_of(ends: Array) -> Array:
    """The first position of each stretch."""
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + np.uint64(1)
    return starts

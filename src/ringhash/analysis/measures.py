"""Figures of a candidate key: how even it is, whether it moves with time, when it outgrows a shard."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from ringhash.analysis.columns import sort_key

__all__ = ["Growth", "Monotone", "Peak", "Top", "growth_of", "monotone_of", "range_index", "ranks"]

Array = np.ndarray[Any, Any]
MONOTONE = 0.7  # MongoDB's bound for its correlation
RANGES = 64
NEWEST = 0.01


class Peak(NamedTuple):
    """How even shards are: the fullest by the mean, in rows and in weight (None without one).

    `error` is one standard deviation of these if the rows are a sample, and 0 if they are all; `empty` counts
    shards without a row.
    """

    rows: float
    weight: float | None
    error: float
    empty: int


class Top(NamedTuple):
    """One of the most frequent keys: its value, rows, and share of all rows."""

    value: Any
    rows: int
    share: float


class Monotone(NamedTuple):
    """Whether a key moves with time, in three numbers.

    `global_`: the correlation of ranks between the key and the order in which rows came, from -1 to 1; at 0.7
    and above, or -0.7 and below, MongoDB calls a key monotonic. `hot_tail`: the share of the newest 1 % of
    rows that falls into the busiest of 64 ranges; an even key has few. `local`: of a composite, the mean of
    the correlations within each value of its leading column; None for a single column.
    """

    global_: float
    hot_tail: float
    local: float | None

    @property
    def moves(self) -> bool:
        """Whether inserts go to one place of a range map."""
        return abs(self.global_) >= MONOTONE or self.hot_tail >= 0.5


class Growth(NamedTuple):
    """When the most frequent key alone is more than a shard.

    `most_shards`: with more shards than this, the key alone is more than the mean shard. `rate`: its rows for
    each unit of the order column (seconds for times), over the newest half of the rows. `full_at`: where in
    the order column it reaches the capacity of a shard, at this rate; None if that is not given, or not in
    sight.
    """

    most_shards: int
    rate: float | None
    full_at: float | None


def ranks(values: list[Any] | Array) -> Array:
    """Return the ranks of values, those of equal ones averaged."""
    if isinstance(values, list) and set(map(type, values)) == {int}:
        numbers = np.array(values)  # of objects if one has more than 64 bits, and slower
        values = numbers if numbers.dtype.kind in "iu" else values
    if isinstance(values, np.ndarray):
        _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    else:
        distinct = dict.fromkeys(sorted(set(values)), 0)
        for i, value in enumerate(distinct):
            distinct[value] = i
        index = np.fromiter((distinct[value] for value in values), np.intp, len(values))
        counts = np.bincount(index, minlength=len(distinct))
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[index]


def _correlation(one: Array, other: Array) -> float:
    one, other = one - one.mean(), other - other.mean()
    scale = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / scale if scale else 0.0


def monotone_of(keys: list[Any], order: Array, leading: list[Any] | None) -> Monotone | None:
    """Return how a key moves with time, from a sample; None of fewer than ten rows.

    Args:
        keys: What `sort_key` makes of the keys.
        order: The ranks of the rows in the order in which they came.
        leading: Of composites, the leading column.
    """
    if len(keys) < 10:
        return None
    ranked = ranks(keys)
    newest = order >= np.quantile(order, 1 - NEWEST)
    busiest = np.bincount(range_index(ranked, RANGES)[newest], minlength=RANGES).max()
    local = None
    if leading is not None:
        groups: dict[Any, list[int]] = defaultdict(list)
        for i, value in enumerate(leading):
            groups[value].append(i)
        parts = [np.array(rows) for rows in groups.values() if len(rows) >= 3]
        total = sum(map(len, parts))
        local = sum(len(p) * _correlation(ranked[p], order[p]) for p in parts) / total if total else 0.0
    return Monotone(_correlation(ranked, order), float(busiest / np.count_nonzero(newest)), local)


def range_index(ranked: Array, count: int) -> Array:
    """Return the range of each row if keys are cut into `count` ranges, as even as whole keys allow.

    A range map splits between keys and never within one, so equal ranks stay together.
    """
    if not len(ranked):
        return np.empty(0, np.intp)
    place = ((ranked - 0.5) * count / len(ranked)).astype(np.intp)
    return np.clip(place, 0, count - 1)


def growth_of(
    share: float, hits: Array, times: Array | None, rows: int, capacity: float | None
) -> Growth | None:
    """Return when the most frequent key outgrows a shard.

    Args:
        share: Its share of the rows.
        hits: Of a sample, whether a row has it.
        times: Of the sample, the order column as numbers; None if it is none.
        rows: All rows.
        capacity: How many rows a shard may have.
    """
    if not share:
        return None
    most = int(1 / share)
    if times is None or len(times) < 10:
        return Growth(most, None, None)
    middle, end = float(np.median(times)), float(times.max())
    if end <= middle:
        return Growth(most, None, None)
    newest = times > middle
    rate = float(np.count_nonzero(hits & newest)) / len(times) * rows / (end - middle)
    full = None
    if capacity is not None and rate > 0:
        full = end + max(0.0, capacity - share * rows) / rate
    return Growth(most, rate, full)


def sortable(values: list[Any]) -> list[Any]:
    """Return values that sort as the given ones do; the same ones if they sort by themselves."""
    types = set(map(type, values))
    return values if types in ({str}, {int}) else list(map(sort_key, values))

"""Keys over time: which key got a row in which step, and what the row weighs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np

from ringhash.analysis.columns import composite, keys_of
from ringhash.analysis.rows import blocks_of

__all__ = ["Trace"]

Array = np.ndarray[Any, Any]


class Trace:
    """Rows as they arrive: each has a key, a step of time and a weight. The data grows by every row.

    Args:
        keys: The key of each row: an array of integers, or any sequence of texts or integers.
        steps: The step in which each row arrives, from 0; they need not be sorted.
        weights: What each row weighs, 1 by default; at least 0.
        hours: How many hours a step is.

    Raises:
        ValueError: The arguments differ in length, there are no rows, or a step or weight is negative.

    Memory: about 16 bytes a row, and the distinct keys. Threads may share it.

    >>> trace = Trace(["a", "b", "a"], [0, 0, 1])
    >>> trace.rows, len(trace.keys), trace.steps
    (3, 2, 2)
    """

    __slots__ = ("hours", "index", "keys", "offsets", "rows", "steps", "weights")

    keys: Any  # the distinct keys, in order: an array of integers or a list of text
    index: Array  # of each row the key, sorted by step
    weights: Array | None
    offsets: Array  # where the rows of each step begin

    def __init__(self, keys: Any, steps: Any, weights: Any = None, *, hours: float = 1.0) -> None:
        listed = keys_of(keys if isinstance(keys, np.ndarray) else list(keys))
        when = np.asarray(steps)
        if not len(listed.keys):
            raise ValueError("a trace needs rows, and there are none")
        if when.ndim != 1 or len(when) != len(listed.keys) or when.dtype.kind not in "iu":
            raise ValueError(f"steps must be {len(listed.keys)} whole numbers, one for each key")
        if when.min() < 0:
            raise ValueError(f"a step must be at least 0, not {when.min()}")
        if not 0 < hours < float("inf"):
            raise ValueError(f"hours must be above 0, not {hours}")
        self.keys, index = _distinct(listed.keys)
        order = np.argsort(when, kind="stable")
        self.index = index[order].astype(np.int32 if len(self.keys) < 1 << 31 else np.int64)
        self.weights = None
        if weights is not None:
            given = np.asarray(weights, np.float64)
            if given.shape != when.shape or not np.isfinite(given).all() or (given < 0).any():
                raise ValueError(f"weights must be {len(when)} finite numbers of at least 0")
            self.weights = given[order]
        self.rows = len(when)
        self.steps = int(when.max()) + 1
        self.offsets = np.searchsorted(when[order], np.arange(self.steps + 1))
        self.hours = float(hours)

    @classmethod
    def from_rows(
        cls, rows: Any, key: str | tuple[str, ...], at: str, *, weight: str | None = None, hours: float = 1.0
    ) -> Trace:
        """Return the trace of rows with a column of times.

        Args:
            rows: As for `analyze`: a path of CSV or Parquet, a frame, a mapping of columns, dicts, a `Table`.
            key: The column of the key; several make a composite with ":" between.
            at: The column of times: ISO texts, datetimes, or numbers of seconds. Rows without one, and
                rows without a key, are left out.
            weight: The column with what a row weighs.
            hours: How many hours a step is to be.

        Raises:
            ValueError: A column is missing, or a time cannot be read.

        >>> rows = {"user": ["a", "b"], "at": ["2024-01-01T00:00:00", "2024-01-01T05:00:00"]}
        >>> Trace.from_rows(rows, "user", "at").steps
        6
        """
        columns = (key,) if isinstance(key, str) else tuple(key)
        wanted = list(dict.fromkeys([*columns, at, *([weight] if weight else [])]))
        keys: list[Any] = []
        times: list[Array] = []
        weights: list[Array] = []
        for block in blocks_of(rows, wanted):
            parts = [keys_of(block[column]) for column in columns]
            made = parts[0] if len(parts) == 1 else composite(parts, ":")
            seconds = _seconds(block[at], at)
            there = ~np.isnan(seconds)
            if made.nulls is not None:
                there &= ~made.nulls
            listed = made.keys.tolist() if isinstance(made.keys, np.ndarray) else made.keys
            keys += [listed[i] for i in np.flatnonzero(there).tolist()]
            times.append(seconds[there])
            if weight is not None:
                weights.append(_numbers(block[weight], weight)[there])
        together = np.concatenate(times) if times else np.empty(0)
        if not len(together):
            raise ValueError(f"no row has both a key and a time in {at!r}")
        steps = ((together - together.min()) // (3600 * hours)).astype(np.int64)
        return cls(keys, steps, np.concatenate(weights) if weights else None, hours=hours)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[Any, float],
        rows: int,
        steps: int,
        *,
        growth: float = 1.0,
        seed: int = 0,
        hours: float = 1.0,
    ) -> Trace:
        """Return a trace that draws keys by their frequency.

        Args:
            counts: How frequent each key is; any scale.
            rows: How many rows to draw.
            steps: Over how many steps.
            growth: How many times as many rows the last step has as the first.
            seed: Of the random draw: the same arguments always give the same trace.
            hours: How many hours a step is.

        >>> Trace.from_counts({"the": 5, "of": 3}, 1000, 10).rows
        1000
        """
        if rows < 1 or steps < 1 or growth <= 0 or not counts:
            raise ValueError("counts, rows, steps and growth must be above 0")
        random = np.random.default_rng(seed)
        chances = np.fromiter(counts.values(), np.float64, len(counts))
        names = list(counts)
        drawn = random.choice(len(names), rows, p=chances / chances.sum())
        shape = np.linspace(1.0, growth, steps)
        when = np.sort(random.choice(steps, rows, p=shape / shape.sum()))
        when[-1] = steps - 1
        return cls([names[i] for i in drawn.tolist()], when, hours=hours)

    def step(self, number: int) -> tuple[Array, Array | None]:
        """Return (the key of each row, as an index into `keys`; their weights) of a step."""
        part = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        return self.index[part], None if self.weights is None else self.weights[part]

    def totals(self) -> Array:
        """Return what the rows of each key weigh, over the whole trace."""
        return np.bincount(self.index, self.weights, len(self.keys)).astype(np.float64)

    def __repr__(self) -> str:
        return f"<Trace of {self.rows:,} rows of {len(self.keys):,} keys in {self.steps:,} steps>"


def _distinct(keys: Any) -> tuple[Any, Array]:
    """The distinct keys in order, and of each row which one it has. Mixed kinds become text."""
    if isinstance(keys, np.ndarray):
        return np.unique(keys, return_inverse=True)
    if set(map(type, keys)) == {int} and min(keys) >= -(1 << 63) and max(keys) < 1 << 63:
        return np.unique(np.array(keys, np.int64), return_inverse=True)
    texts = composite([keys_of(keys)], "").keys
    listed = sorted(set(texts))
    place = {key: i for i, key in enumerate(listed)}
    return listed, np.fromiter((place[key] for key in texts), np.int64, len(texts))


def _seconds(column: Any, name: str) -> Array:
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "M":
            seconds = column.astype("datetime64[us]").astype(np.float64) / 1e6
            return np.where(np.isnat(column), np.nan, seconds)
        if column.dtype.kind in "iuf":
            return column.astype(np.float64)
    try:
        known = {value: _second(value) for value in set(column)}
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the column {name!r} has {error}; give ISO texts, datetimes or numbers of seconds"
        ) from None
    return np.fromiter((known[value] for value in column), np.float64, len(column))


def _second(value: Any) -> float:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return float("nan")
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"the value {value!r}, which is no time") from None
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC).timestamp()
    raise TypeError(f"a value of {type(value).__name__}, which is no time")


def _numbers(column: Any, name: str) -> Array:
    try:
        plain = column if isinstance(column, np.ndarray) else [value or 0 for value in column]
        return np.nan_to_num(np.asarray(plain, np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"the weight {name!r} has a value that is no number") from None

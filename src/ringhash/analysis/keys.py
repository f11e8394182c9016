"""Which column to shard by: `analyze` looks at the rows and says what each candidate would do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ringhash.analysis.columns import Keys, composite, hashes, keys_of
from ringhash.analysis.counter import Candidate, Counter, Placements
from ringhash.analysis.counting import Distinct, Reservoir
from ringhash.analysis.measures import (
    Growth,
    Monotone,
    Peak,
    Top,
    growth_of,
    monotone_of,
    range_index,
    ranks,
    sortable,
)
from ringhash.analysis.reasons import Facts, Reason, reasons_of
from ringhash.analysis.rows import Table, blocks_of

if TYPE_CHECKING:
    from ringhash.analysis.queries import Alignment, Queries

__all__ = ["KeyReport", "Report", "analyze"]

SAMPLE = 1 << 16
TOP = 5
LORENZ = 101
TIMES = 48  # steps of the heat map
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class KeyReport:
    """What is known of one candidate key.

    `rows`, `nulls`: all rows, and those without a value. `distinct`: how many values, and how sure that is.
    `top`, `top_weight`: the most frequent and the heaviest. `floor`: what the fullest shard is by the mean at
    least, whatever the placement, since a key is never split. `peaks`: how even "ring", "shards" and "range"
    are. `monotone`: whether it moves with time; None if no order of the rows is known. `growth`: when the
    largest key outgrows a shard. `changed`: the share of identities whose key changed; None without an
    identity. `reasons`: what to do and why, the gravest first. `loads`: rows by shard for each placement.
    `lorenz`: the share of the rows that the most frequent part of the keys has, at 0 %, 1 % ... 100 % of the
    keys. `heat`: for "shards" and "range" the rows of a sample by time (48 steps) and shard. `queries`: how
    statements fit the key.
    """

    columns: tuple[str, ...]
    rows: int
    nulls: int
    distinct: Distinct
    top: tuple[Top, ...]
    top_weight: tuple[Top, ...] | None
    floor: float
    peaks: Mapping[str, Peak]
    monotone: Monotone | None
    growth: Growth | None
    changed: float | None
    reasons: tuple[Reason, ...]
    loads: Mapping[str, list[float]]
    lorenz: tuple[float, ...]
    heat: Mapping[str, list[list[int]]] | None = None
    queries: Alignment | None = None

    @property
    def name(self) -> str:
        """The columns with commas between."""
        return ", ".join(self.columns)

    @property
    def unique(self) -> bool | None:
        """Whether no two rows have the same value; None if they could not all be told apart."""
        return (
            None
            if self.distinct.error or self.distinct.at_least
            else self.distinct.value == self.rows - self.nulls
        )

    @property
    def verdict(self) -> str:
        """The verdict of the gravest reason: "bad", "doubtful" or "good"."""
        return self.reasons[0].verdict


@dataclass(frozen=True, slots=True)
class Report:
    """What `analyze` found: a `KeyReport` for each candidate, by name or by its columns."""

    keys: tuple[KeyReport, ...]
    shards: int
    rows: int
    sampled: float
    order: str | None
    weight: str | None
    queries: Queries | None = field(default=None, repr=False)

    def __getitem__(self, key: str | tuple[str, ...]) -> KeyReport:
        columns = (key,) if isinstance(key, str) else tuple(key)
        for report in self.keys:
            if report.columns == columns or report.name == key:
                return report
        raise KeyError(
            f"{key!r} was not analysed; the candidates are {[report.name for report in self.keys]}"
        )

    def __iter__(self) -> Iterator[KeyReport]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def best(self) -> list[KeyReport]:
        """Return the candidates, the best first.

        By verdict, then by how many statements ask one shard, then by the fullest shard.
        """
        rank = {"good": 0, "doubtful": 1, "bad": 2}

        def place(report: KeyReport) -> tuple[int, float, float, str]:
            single = report.queries.single if report.queries is not None else 0.0
            return rank[report.verdict], -single, report.peaks["shards"].rows, report.name

        return sorted(self.keys, key=place)

    def with_queries(self, queries: Queries) -> Report:
        """Return the report with how statements fit each candidate; see `Queries`."""
        from ringhash.analysis.queries import joined  # noqa: PLC0415 - it is above this file

        return joined(self, queries)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary that JSON can hold."""
        from ringhash.analysis.report import report_to_dict  # noqa: PLC0415

        return report_to_dict(self)

    def html(self) -> str:
        """Return the report as one page of HTML that needs nothing else."""
        from ringhash.analysis.page import keys_page  # noqa: PLC0415

        return keys_page(self)

    def __str__(self) -> str:
        from ringhash.analysis.report import keys_text  # noqa: PLC0415

        return keys_text(self)


def analyze(
    rows: Any,
    keys: Iterable[str | Sequence[str]],
    *,
    shards: int = 64,
    weight: str | None = None,
    order: str | bool | None = None,
    identity: str | None = None,
    sampled: float = 1.0,
    capacity: float | None = None,
    tolerance: float = 1.5,
    separator: str = ":",
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Look at rows, and say what each candidate for a shard key would do.

    Args:
        rows: A path of a CSV or Parquet file, a DataFrame of pandas or polars, a Table of pyarrow, a mapping
            of columns to arrays, an iterable of dicts, or a `Table` of a database. Read once, in blocks.
        keys: The candidates: column names, or sequences of them for composites.
        shards: How many shards there are to be.
        weight: The column with what a row weighs, such as its bytes.
        order: The column that tells when a row came; True if the rows come in that order. Without it nothing
            is said of time.
        identity: The column that says which thing a row is about. Then it is counted how many things change
            their key, which a shard key must not do.
        sampled: Which share of the population the rows are, if they are a sample. A `Table` says it itself.
        capacity: How many rows a shard may have, for `growth`.
        tolerance: How full the fullest shard may be by the mean.
        separator: What composites have between their parts: your program must build the key alike.
        progress: Called with the number of rows read so far.

    Returns:
        A `Report`. Placements are not formulas: every row goes through the live `Ring` and `Shards`.

    Raises:
        ValueError: A column is missing, there are no rows, or an argument is out of range.
        TypeError: `rows` cannot be read.

    Cost: O(rows); for a numpy column some 150 ns a row. Memory: below 64 MiB for each candidate, whatever the
    number of rows. Up to 262,144 distinct keys all counts are exact. Beyond, `distinct` is an estimate,
    frequent keys are short by a stated bound, and the placements stay exact. Ranges, monotonicity and growth
    are of a uniform sample of 65,536 rows.

    >>> rows = {"user": [1, 2, 3, 4] * 25, "country": ["de"] * 90 + ["fr"] * 10}
    >>> report = analyze(rows, ["user", "country"], shards=2)
    >>> report["country"].top[0]
    Top(value='de', rows=90, share=0.9)
    >>> report["country"].floor, report.best()[0].name
    (1.8, 'user')
    """
    candidates = [Candidate((key,) if isinstance(key, str) else tuple(key)) for key in keys]
    _check(candidates, shards, sampled, tolerance)
    if isinstance(rows, Table):
        sampled *= rows.sample
    placements = Placements(shards)
    extra = [name for name in (weight, identity, order if isinstance(order, str) else None) if name]
    columns = list(dict.fromkeys([*(column for it in candidates for column in it.columns), *extra]))
    counters = [Counter(it, placements, weight is not None, identity is not None) for it in candidates]
    sample = _Sample(candidates, order)
    count = 0
    for block in blocks_of(rows, columns):
        read = {name: keys_of(block[name]) for name in columns}
        size = len(read[columns[0]].keys)
        weights = None if weight is None else _weights(block[weight], weight)
        identities = None if identity is None else hashes(read[identity].keys)
        built: dict[tuple[str, ...], Keys] = {}
        for counter in counters:
            parts = [read[column] for column in counter.candidate.columns]
            found = parts[0] if len(parts) == 1 else composite(parts, separator)
            built[counter.candidate.columns] = found
            counter.add(found, weights, identities)
        sample.add(block, built, size, count)
        count += size
        if progress is not None:
            progress(count)
    if not count:
        raise ValueError("there are no rows to look at")
    sample.finish()
    for counter in counters:
        counter.finish()
    reports = tuple(_report(it, sample, sampled, capacity, tolerance, count) for it in counters)
    ordered_by = "the order of the rows" if order is True else order or None
    return Report(reports, shards, count, sampled, ordered_by, weight)


def _check(candidates: list[Candidate], shards: int, sampled: float, tolerance: float) -> None:
    if not candidates:
        raise ValueError('keys needs at least one candidate, such as ["customer_id"]')
    for candidate in candidates:
        if not candidate.columns or not all(isinstance(column, str) for column in candidate.columns):
            raise TypeError(f"a candidate is a column or a sequence of columns, not {candidate.columns!r}")
    if len({candidate.columns for candidate in candidates}) != len(candidates):
        raise ValueError("a candidate is given twice")
    if not 2 <= shards <= 1 << 16:
        raise ValueError(f"shards must be from 2 to 65,536, not {shards}")
    if not 0 < sampled <= 1:
        raise ValueError(f"sampled must be above 0 and up to 1, not {sampled}")
    if not tolerance > 1:
        raise ValueError(f"tolerance must be above 1, not {tolerance}")


def _weights(column: Any, name: str) -> Array:
    try:
        weights = np.asarray(
            [value or 0 for value in column] if isinstance(column, list) else column, np.float64
        )
    except (TypeError, ValueError):
        raise ValueError(f"the weight {name!r} has a value that is no number") from None
    weights = np.nan_to_num(weights)
    if (weights < 0).any():
        raise ValueError(f"the weight {name!r} has a negative value")
    return weights


class _Sample:
    """A uniform sample of the rows: of each candidate the keys, and when the rows came."""

    def __init__(self, candidates: list[Candidate], order: str | bool | None) -> None:
        self._reservoir = Reservoir(SAMPLE)
        self._order = order
        self.keys: dict[tuple[str, ...], list[Any]] = {it.columns: [] for it in candidates}
        self.leading: dict[tuple[str, ...], list[Any]] = {it.columns: [] for it in candidates}
        self._raw: dict[tuple[str, ...], list[Any]] = {it.columns: [] for it in candidates}
        self.order: list[Any] = []

    def add(self, block: dict[str, Any], built: dict[tuple[str, ...], Keys], size: int, before: int) -> None:
        chosen, stay = self._reservoir.choose(size)
        if not len(chosen):
            return
        whole = len(chosen) + len(self.order) == len(stay)

        def taken(old: Any, column: Any) -> Any:
            if isinstance(column, np.ndarray):
                fresh = column[chosen]
                if isinstance(old, np.ndarray) and old.dtype == fresh.dtype:
                    both = np.concatenate([old, fresh])
                    return both if whole else both[stay]
                if not len(old):
                    return fresh if whole else fresh[stay]
                new = fresh.tolist()
            else:
                new = [column[i] for i in chosen.tolist()]
            old = _listed(old)
            together = old + new
            return together if whole else [together[i] for i in stay.tolist()]

        for columns in self.keys:
            self.keys[columns] = taken(self.keys[columns], built[columns].keys)
            raw = (
                block[columns[0]]
                if len(columns) == 1
                else list(zip(*(block[c] for c in columns), strict=True))
            )
            self._raw[columns] = taken(self._raw[columns], raw)
            if len(columns) > 1:
                self.leading[columns] = taken(self.leading[columns], block[columns[0]])
        when = block[self._order] if isinstance(self._order, str) else before + np.arange(size)
        self.order = taken(self.order, when)

    def finish(self) -> None:
        """Have all as lists of Python objects, after the last block."""
        for kept in (self.keys, self.leading, self._raw):
            for columns, values in kept.items():
                kept[columns] = _listed(values)
        self.order = _listed(self.order)

    def times(self) -> Array | None:
        """The order as numbers (times in seconds), for those that are numbers or times."""
        if not self._order:
            return None
        return _numbers(self.order)

    def arrival(self) -> Array | None:
        """The ranks of the rows in the order in which they came; None if that is not known."""
        return ranks(sortable(self.order)) if self._order else None

    def sorted_as(self, columns: tuple[str, ...]) -> list[Any]:
        """What the keys sort by, in the order of a range map: a composite by its columns."""
        return sortable(self._raw[columns])


def _listed(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    return listed


def _numbers(values: list[Any]) -> Array | None:
    first = next((value for value in values if value is not None), None)
    try:
        if isinstance(first, str):
            return np.array(
                [float("nan") if v is None else _seconds(dt.datetime.fromisoformat(v)) for v in values]
            )
        if isinstance(first, dt.datetime):
            return np.array([float("nan") if v is None else _seconds(v) for v in values])
        if isinstance(first, int | float):
            return np.array([float("nan") if v is None else float(v) for v in values])
    except (TypeError, ValueError):
        pass
    return None


def _seconds(time: dt.datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp()


def _report(
    counter: Counter, sample: _Sample, sampled: float, capacity: float | None, tolerance: float, rows: int
) -> KeyReport:
    columns, shards = counter.candidate.columns, counter.placements.count
    loads: dict[str, Array] = {method: load.copy() for method, load in counter.loads.items()}
    weights = None if counter.weights is None else {m: w.copy() for m, w in counter.weights.items()}
    for method, load in loads.items():  # all NULLs go to one shard: that of the empty text
        place = int(counter.placements.index(method, [""])[0])
        load[place] += counter.nulls
        if weights is not None:
            weights[method][place] += counter.null_weight
    ranked = ranks(sample.sorted_as(columns))
    ranged = range_index(ranked, shards)
    loads["range"] = np.bincount(ranged, minlength=shards) * (rows / max(1, len(ranked)))
    peaks = {}
    for method, load in loads.items():
        part = load.sum() if method != "range" else min(len(ranked), rows)
        whole = sampled == 1 and (method != "range" or len(ranked) == rows)
        heavy = None if weights is None or method == "range" else _peak(weights[method])
        error = 0.0 if whole else float(np.sqrt(_peak(load) * shards / max(1.0, part)))
        peaks[method] = Peak(_peak(load), heavy, error, int(np.count_nonzero(load == 0)))
    top = _top(counter, counter.heavy, rows)
    heaviest = None if counter.heavy_weight is None else _top(counter, counter.heavy_weight, counter.weight)
    share = max(float(counter.heavy.amounts.max(initial=0)) / rows, counter.nulls / rows)
    arrival, times = sample.arrival(), sample.times()
    leading = list(map(str, sample.leading[columns])) if len(columns) > 1 else None
    monotone = None if arrival is None else monotone_of(sample.sorted_as(columns), arrival, leading)
    hits = np.array([top[0].value == key for key in sample.keys[columns]]) if top else np.zeros(0, bool)
    if times is not None:
        known = ~np.isnan(times)
        growth = growth_of(
            top[0].share if top else 0.0, hits[known] if top else hits, times[known], rows, capacity
        )
    else:
        growth = growth_of(top[0].share if top else 0.0, hits, None, rows, capacity)
    changed = counter.changed()
    distinct = counter.distinct(sampled < 1)
    facts = Facts(
        rows=rows,
        nulls=counter.nulls / rows,
        distinct=distinct,
        shards=shards,
        tolerance=tolerance,
        peak=peaks["shards"].rows,
        loads=loads["shards"],
        heavy=[(it.value, it.rows) for it in _top(counter, counter.heavy, rows, 1000)],
        monotone=monotone,
        changed=None if changed is None else changed[0] / max(1, changed[1]),
        growth=growth,
        place=lambda keys: counter.placements.index("shards", keys),
    )
    return KeyReport(
        columns=columns,
        rows=rows,
        nulls=counter.nulls,
        distinct=distinct,
        top=top,
        top_weight=heaviest,
        floor=max(1.0, share * shards),
        peaks=peaks,
        monotone=monotone,
        growth=growth,
        changed=facts.changed,
        reasons=reasons_of(facts),
        loads={method: load.tolist() for method, load in loads.items()},
        lorenz=_lorenz(counter, distinct, rows),
        heat=None if arrival is None else _heat(counter, sample, columns, arrival, ranged),
    )


def _peak(load: Array) -> float:
    mean = float(load.mean())
    return float(load.max()) / mean if mean else 0.0


def _top(counter: Counter, heavy: Any, total: float, count: int = TOP) -> tuple[Top, ...]:
    found = []
    for key, amount in zip(*heavy.top(count * 2), strict=True):
        if int(key) in counter.names:
            found.append(Top(counter.names[int(key)], int(amount), float(amount) / total if total else 0.0))
    return tuple(found[:count])


def _lorenz(counter: Counter, distinct: Distinct, rows: int) -> tuple[float, ...]:
    """The share of the rows of the most frequent keys; what a sketch dropped is spread over the rest."""
    amounts = np.sort(counter.heavy.amounts)[::-1]
    others = max(0, distinct.value - len(amounts)) if not counter.heavy.exact else 0
    total = rows - counter.nulls
    if not total or not len(amounts):
        return (0.0,) * LORENZ
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    if others:
        sums = np.append(sums, total)
    places = np.append(np.arange(len(amounts) + 1), [len(amounts) + others] if others else [])
    wanted = np.linspace(0, places[-1], LORENZ)
    return tuple((np.interp(wanted, places, sums) / sums[-1]).tolist())


def _heat(
    counter: Counter, sample: _Sample, columns: tuple[str, ...], arrival: Array, ranged: Array
) -> dict[str, list[list[int]]]:
    steps = range_index(arrival, TIMES)
    shards = counter.placements.count
    hashed = counter.placements.index("shards", sample.keys[columns])
    found = {}
    for method, index in (("shards", hashed), ("range", ranged)):
        cells = np.bincount(steps * shards + index, minlength=TIMES * shards)
        found[method] = cells.reshape(TIMES, shards).tolist()
    return found

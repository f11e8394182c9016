"""Aggregates over shards against the same over all rows; the cases of other systems' bug reports."""

from __future__ import annotations

import contextlib
import math
import random
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ringhash.scatter import (
    Aggregation,
    Count,
    Distinct,
    Max,
    Mean,
    Min,
    OrderError,
    Quantile,
    Scatter,
    ScatterError,
    Sum,
)  # fmt: skip


def gather(shards: Sequence[list[dict[str, Any]]], **options: Any) -> Scatter:
    rows = {f"s{i}": shard for i, shard in enumerate(shards)}
    return Scatter(lambda ask: rows[ask.node], list(rows), **options)


def of(*shards: list[Any]) -> list[list[dict[str, Any]]]:
    return [[{"v": v} for v in shard] for shard in shards]


# --- TRAPS: AVG, COUNT(DISTINCT), SUM(DISTINCT) ---

USERS = [
    [{"u": u, "v": v} for u, v in shard]
    for shard in ([("u1", 7), ("u1", 7), ("u2", 3)], [("u1", 7), ("u1", 9), ("u3", 3)], [("u2", 3)])
]


def test_distinct_values_are_not_added_up() -> None:
    assert gather(USERS).aggregate(n=Distinct("v"))["n"] == 3
    assert sum(gather([shard]).aggregate(n=Distinct("v"))["n"] for shard in USERS) == 6  # the control


def test_distinct_values_by_group() -> None:
    result = gather(USERS).aggregate(
        by="u", n=Distinct("v"), total=Sum("v", distinct=True), mean=Mean("v", distinct=True)
    )
    assert {row["u"]: (row["n"], row["total"], row["mean"]) for row in result.rows} == {
        "u1": (2, 16, 8),
        "u2": (1, 3, 3),
        "u3": (1, 3, 3),
    }
    assert gather(USERS).aggregate(m=Mean("v", distinct=True))["m"] == 19 / 3


def test_a_mean_is_a_sum_by_a_count() -> None:
    assert gather(of([10, 20, 30], [50])).aggregate(mean=Mean("v"))["mean"] == 27.5


# --- TRAPS: empty shards ---


def test_empty_shards_are_no_zeros() -> None:
    result = gather(of([5, -3], [], [None])).aggregate(
        total=Sum("v"), low=Min("v"), high=Max("v"), mean=Mean("v"), some=Count("v"), all=Count()
    )
    assert result.rows == [{"total": 2, "low": -3, "high": 5, "mean": 1, "some": 2, "all": 3}]
    assert gather(of([-3], [])).aggregate(high=Max("v"))["high"] == -3


def test_nothing_at_all() -> None:
    aggregates = {
        "s": Sum("v"),
        "l": Min("v"),
        "h": Max("v"),
        "m": Mean("v"),
        "n": Count(),
        "d": Distinct("v"),
    }
    nothing = gather(of([], [], []))
    assert nothing.aggregate(**aggregates).rows == [
        {"s": None, "l": None, "h": None, "m": None, "n": 0, "d": 0}
    ]
    assert nothing.aggregate(by="v", **aggregates).rows == []


# --- TRAPS: groups whose keys are NULL, 0, NaN, JSON, padded ---


def groups(*shards: list[Any], by: Any = "v") -> list[tuple[Any, int]]:
    return [(row["v"], row["n"]) for row in gather(of(*shards)).aggregate(by=by, n=Count()).rows]


def test_groups_of_null_zero_and_one() -> None:
    assert groups([None, 0, 1], [None, 0]) == [(None, 2), (0, 2), (1, 1)]
    assert len(groups([0, False, True, 1])) == 4


def test_groups_of_nan_and_negative_zero() -> None:
    found = groups([math.nan, 0.0], [float("nan"), -0.0])
    assert [count for _, count in found] == [2, 2]
    assert math.isnan(found[0][0])
    assert len({math.nan: 1, float("nan"): 1}) == 2  # the control: what a dict makes of it


def test_groups_of_json() -> None:
    assert groups([{"a": 1}, [1, 2]], [{"a": 1.0}, [1, 2]]) == [({"a": 1}, 2), ([1, 2], 2)]


def test_groups_that_the_database_calls_equal() -> None:
    assert groups(["a"], ["a "], by={"v": str.rstrip}) == [("a", 2)]
    assert groups(["Ann", None], ["ann"], by={"v": str.casefold}) == [("Ann", 2), (None, 1)]


# --- extremes ---


def test_nan_is_above_all_numbers() -> None:
    result = gather(of([1.0, math.nan], [2.0])).aggregate(low=Min("v"), high=Max("v"))
    assert result["low"] == 1.0
    assert math.isnan(result["high"])


def test_the_greatest_text_needs_a_collation() -> None:
    shards = of(["a", "C"], ["B", "z"])
    with pytest.raises(ScatterError, match="is text") as caught:
        gather(shards).aggregate(high=Max("v"))
    assert isinstance(caught.value.__cause__, OrderError)
    assert gather(shards).aggregate(high=Max("v", collation="C"))["high"] == "z"


# --- sketches ---


def test_quantiles_and_distinct_sketches_merge() -> None:
    pytest.importorskip("datasketches")
    rng = random.Random(1)
    shards = of(*[[rng.gauss(100 * i, 50) for _ in range(5000)] for i in range(8)])
    result = gather(shards).aggregate(
        p50=Quantile("v", 0.5), p99=Quantile("v", 0.99), n=Distinct("v", sketch=True)
    )
    ordered = sorted(row["v"] for shard in shards for row in shard)
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        rank = sum(v <= result[name] for v in ordered) / len(ordered)
        assert abs(rank - q) < 0.03, name
    assert abs(result["n"] - 40_000) < 40_000 * 0.08
    assert result.bounds == {"p50": "approximate", "p99": "approximate", "n": "approximate"}
    means = sum(sorted(row["v"] for row in shard)[4950] for shard in shards) / 8  # the control
    assert sum(v <= means for v in ordered) / len(ordered) < 0.9
    assert gather(of([])).aggregate(p=Quantile("v", 0.5))["p"] is None


def test_sketches_travel_as_bytes() -> None:
    pytest.importorskip("datasketches")
    quantile, distinct = Quantile("v", 0.5), Distinct("v", sketch=True)
    parts = {
        f"s{i}": [{"q": bytes(quantile.fold(shard)), "d": bytes(distinct.fold(shard))}]
        for i, shard in enumerate(of([1, 2, 3], [3, 4, 5, 5]))
    }
    result = Scatter(lambda ask: parts[ask.node], list(parts)).aggregate(pushed=True, q=quantile, d=distinct)
    assert result.rows == [{"q": 3.0, "d": 5}]


# --- computed by real shards ---


@pytest.fixture
def databases() -> Iterator[list[sqlite3.Connection]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)))
            for _ in range(5)
        ]


def test_pushed_down_to_sqlite_as_computed_here(databases: list[sqlite3.Connection]) -> None:
    rng = random.Random(2)
    rows = [(rng.choice([None, 0, 1, 2]), rng.choice([None, *range(-5, 6)])) for _ in range(500)]
    whole, shards = databases[0], {f"s{i}": database for i, database in enumerate(databases[1:])}
    for database in databases:
        database.execute("CREATE TABLE t (g, v)")
        database.row_factory = sqlite3.Row
    whole.executemany("INSERT INTO t VALUES (?, ?)", rows)
    for row in rows:
        rng.choice(list(shards.values())).execute("INSERT INTO t VALUES (?, ?)", row)
    aggregates = {"n": Count(), "c": Count("v"), "s": Sum("v"), "m": Mean("v"), "l": Min("v"), "h": Max("v")}
    for by in ((), ("g",)):
        select = Aggregation(aggregates, by).sql()
        group = f" GROUP BY {', '.join(by)}" if by else ""
        pushed = Scatter(
            lambda ask, sql=f"SELECT {select} FROM t{group}": shards[ask.node].execute(sql).fetchall(),
            list(shards),
        ).aggregate(by=by, pushed=True, **aggregates)
        here = Scatter(
            lambda ask: shards[ask.node].execute("SELECT * FROM t").fetchall(), list(shards)
        ).aggregate(by=by, **aggregates)
        single = whole.execute(
            f"SELECT {'g,' if by else ''} count(*) n, count(v) c, sum(v) s, avg(v) m, min(v) l, max(v) h FROM t{group}"
        )

        def key(row: dict[str, Any]) -> str:
            return str(row.get("g"))

        expected = sorted(map(dict, single), key=key)
        assert sorted(pushed.rows, key=key) == sorted(here.rows, key=key) == expected


def test_distinct_aggregates_are_not_pushed() -> None:
    with pytest.raises(TypeError, match="group by the column"):
        Aggregation({"s": Sum("v", distinct=True)}).sql()
    with pytest.raises(TypeError, match="no SQL"):
        Aggregation({"q": Quantile("v", 0.5)}).sql()


# --- partial answers ---


def test_a_partial_aggregate_says_what_it_is_worth() -> None:
    def call(ask: Any) -> list[dict[str, int]]:
        if ask.node == "b":
            raise OSError("gone")
        return [{"v": 1}]

    aggregates = {
        "n": Count(),
        "s": Sum("v"),
        "l": Min("v"),
        "h": Max("v"),
        "m": Mean("v"),
        "d": Distinct("v"),
    }
    result = Scatter(call, ["a", "b"], need=0.5).aggregate(**aggregates)
    assert result.coverage.failed == 1
    assert result.bounds == {
        "n": "at least", "s": "unknown", "l": "at most", "h": "at least", "m": "unknown", "d": "at least"
    }  # fmt: skip
    with pytest.raises(ScatterError):
        Scatter(call, ["a", "b"]).aggregate(**aggregates)


def test_aggregates_are_checked() -> None:
    with pytest.raises(TypeError, match="must be an aggregate"):
        gather([]).aggregate(n=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        gather(of([])).aggregate()
    with pytest.raises(ValueError, match="both a column"):
        gather(of([])).aggregate(by="v", v=Count())

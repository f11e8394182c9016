"""Merged rows against a sort of all rows, block by block in every way the blocks can come."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash.scatter import By, Merger, Order, OrderError
from ringhash.scatter.merge import Unique, frozen


def merged(order: Order, streams: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Feed the streams in blocks of `size`, each as late as it may come."""
    merger = Merger(order, [f"s{i}" for i in range(len(streams))])
    places = [0] * len(streams)
    rows: list[Any] = []
    while not merger.over:
        for i in merger.hungry:
            block = streams[i][places[i] : places[i] + size]
            places[i] += size
            if block:
                merger.feed(i, block)
            else:
                merger.end(i)
        rows += merger.take()
    return rows


values = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))


def compared(columns: Sequence[By], one: Sequence[Any], other: Sequence[Any]) -> int:
    """The rules of PostgreSQL, written a second time: NULL by `nulls`, NaN above numbers."""
    for i, by in enumerate(columns):
        a, b = one[i], other[i]
        if a is None or b is None:
            if a is not b:
                return (-1 if by.nulls == "first" else 1) * (1 if a is None else -1)
            continue
        rank = (math.isnan(a), 0 if math.isnan(a) else a), (math.isnan(b), 0 if math.isnan(b) else b)
        if rank[0] != rank[1]:
            return (-1 if rank[0] < rank[1] else 1) * (-1 if by.descending else 1)
    return 0


@given(
    st.lists(st.lists(st.tuples(values, values), max_size=12), min_size=1, max_size=5),
    st.integers(1, 5),
    *[st.booleans(), st.booleans()],
    *[st.sampled_from(["first", "last"])] * 2,
)
def test_it_is_the_sorted_union_and_ties_go_by_stream(
    streams: list[list[tuple[Any, Any]]], size: int, down: bool, down2: bool, nulls: Any, nulls2: Any
) -> None:
    order = Order([By(0, down, nulls), By(1, down2, nulls2)])
    key = cmp_to_key(lambda one, other: compared(order.columns, one, other))
    runs = [sorted(((*row, i, n) for n, row in enumerate(rows)), key=key) for i, rows in enumerate(streams)]
    rows = merged(order, runs, size)
    expected = sorted((row for run in runs for row in run), key=key)
    assert list(map(repr, rows)) == list(map(repr, expected))


@given(st.lists(st.lists(st.integers(0, 20), max_size=30), min_size=1, max_size=6), st.integers(1, 8))
def test_as_heapq_merge_where_that_can(streams: list[list[int]], size: int) -> None:
    for down in (False, True):
        runs = [
            sorted(((v, i, n) for n, v in enumerate(run)), key=lambda row: row[0], reverse=down)
            for i, run in enumerate(streams)
        ]
        expected = list(heapq.merge(*runs, key=lambda row: row[0], reverse=down))
        assert merged(Order(By(0, down)), runs, size) == expected


# --- TRAPS: NULL placement in a merge ---

SHARD1, SHARD2 = [1, None, 3], [2, None]


@pytest.mark.parametrize(
    ("down", "nulls", "expected"),
    [
        (False, "last", [1, 2, 3, None, None]),  # PostgreSQL
        (True, "first", [None, None, 3, 2, 1]),
        (False, "first", [None, None, 1, 2, 3]),  # SQLite
        (True, "last", [3, 2, 1, None, None]),
    ],
)
def test_null_is_where_the_engine_puts_it(down: bool, nulls: Any, expected: list[int | None]) -> None:
    order = Order(By("v", down, nulls))
    runs = [sorted(({"v": v} for v in shard), key=order.key) for shard in (SHARD1, SHARD2)]
    rows = [row["v"] for row in merged(order, runs, 1)]
    assert rows == expected
    assert rows[:2] == expected[:2]


def test_null_without_a_place_is_refused() -> None:
    with pytest.raises(OrderError, match="nulls="):
        merged(Order("v"), [[{"v": 1}, {"v": None}]], 10)
    with pytest.raises(TypeError):  # the control: what the standard library makes of it
        list(heapq.merge([1, None], [2]))


# --- TRAPS: text order of the shards is not Python's ---


def test_text_needs_a_collation_that_python_has() -> None:
    icu1, icu2 = ["a", "C", "é"], ["_x", "B", "d", "z", "Z1"]  # as ORDER BY ... COLLATE "en-x-icu" gives them
    right = ["_x", "a", "B", "C", "d", "é", "z", "Z1"]
    assert list(heapq.merge(icu1, icu2)) != right  # the control
    runs = [[(text,) for text in run] for run in (icu1, icu2)]
    with pytest.raises(OrderError, match="is text"):
        merged(Order(0), runs, 10)
    with pytest.raises(OrderError, match="not in the order"):
        merged(Order(By(0, collation="C")), runs, 10)
    keys = {text: bytes([i]) for i, text in enumerate(right)}  # the sort keys of the collation
    rows = merged(Order(0), [[(keys[text], text) for text in run] for run in (icu1, icu2)], 10)
    assert [text for _, text in rows] == right
    with pytest.raises(ValueError, match="sort key"):
        By("name", collation="en-x-icu")  # type: ignore[arg-type]


# --- a stream that is not sorted is found, within a block and between two ---


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("order", [Order(0), Order(By(0, nulls="last"))])
def test_a_stream_out_of_order_is_an_error(order: Order, size: int) -> None:
    with pytest.raises(OrderError, match="'s1' are not in the order"):
        merged(order, [[(1,), (2,)], [(1,), (5,), (4,)]], size)


def test_a_stream_out_of_order_while_descending() -> None:
    with pytest.raises(OrderError, match="0 descending"):
        merged(Order(By(0, descending=True)), [[(3,), (4,)]], 1)


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(OrderError, match="compared"):
        merged(Order(By(0, collation="C")), [[(1,)], [("a",)]], 1)


def test_dates_and_decimals_of_both_directions() -> None:
    days = [dt.date(2026, 1, day) for day in (1, 2, 3)]
    rows = merged(Order([By(0, descending=True), 1]), [[(days[2], 1), (days[0], 1)], [(days[1], 0)]], 1)
    assert [row[0] for row in rows] == days[::-1]


# --- unique ---


def test_a_row_in_two_places_comes_once() -> None:
    unique = Unique("id")
    assert unique([{"id": 1}, {"id": 2}, {"id": 1}]) == [{"id": 1}, {"id": 2}]
    assert unique([{"id": 2}, {"id": 3}]) == [{"id": 3}]


def test_identities_without_a_hash() -> None:
    unique = Unique(["a", "b"])
    rows = [{"a": [1], "b": {"x": 1}}, {"a": [1], "b": {"x": 1.0}}, {"a": [1], "b": {"x": 2}}]
    assert unique(rows) == [rows[0], rows[2]]


def test_frozen_is_equal_where_a_database_says_equal() -> None:
    assert frozen({"a": 1}) == frozen({"a": 1.0})
    assert frozen([1, 2]) != frozen((1, 2))
    assert frozen(True) != frozen(1)
    assert frozen(0.0) == frozen(-0.0)
    assert len({frozen(math.nan), frozen(float("nan"))}) == 1
    with pytest.raises(TypeError, match="no hash"):
        frozen(bytearray.__subclasshook__ and type("Odd", (), {"__hash__": None})())

"""Ranges and spans, against sets of positions: one position at a time, in plain Python."""

from __future__ import annotations

import json
import pickle
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash import EmptyRingError, KeyRange, Ring, UnknownNodeError
from ringhash.placements.assignment import assign
from ringhash.ranges import Ranges
from ringhash.spans import Spans

pytestmark = pytest.mark.core

SIZE = 24  # small, so that ranges touch, overlap and reach both ends
WHOLE = 2**64

pairs = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).map(lambda pair: tuple(sorted(pair)))
several = st.lists(pairs, max_size=8)
owned = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=SIZE, max_size=SIZE)


def positions(ranges: Any) -> set[int]:
    return {position for start, end in ranges for position in range(start, end + 1)}


def runs(values: list[Any]) -> list[tuple[int, int, Any]]:
    """Stretches of equal values: first and last index, and the value."""
    found, at = [], 0
    for value, group in groupby(values):
        length = len(list(group))
        found.append((at, at + length - 1, value))
        at += length
    return found


def spans_of(owners: list[str | None], names: tuple[str, ...] = ("a", "b", "c")) -> Spans:
    index = [-1 if owner is None else names.index(owner) for owner in owners]
    return Spans(len(owners), np.arange(len(owners)), index, names)


def owners_of(spans: Spans) -> list[str | None]:
    return [spans.owner_at(position) for position in range(spans.size)]


# -- ranges ------------------------------------------------------------------------------------------------


@given(several, several)
def test_ranges_are_sets_of_positions(some: list[Any], others: list[Any]) -> None:
    one, other = Ranges.of(some), Ranges.of(others)
    inside = positions(some)
    assert positions(one) == inside
    assert one.size == len(inside)
    assert positions(one | other) == inside | positions(others)
    assert (one == other) == (inside == positions(others))
    assert (one <= other) == (inside <= positions(others))
    assert bool(one) == bool(inside)
    assert one.contains(np.arange(SIZE)).tolist() == [p in inside for p in range(SIZE)]
    assert [one.holds(p) for p in range(SIZE)] == [p in inside for p in range(SIZE)]
    for earlier, later in pairwise(one):
        assert earlier.end + 1 < later.start  # in order, disjoint, and joined where they touch
    for again in (
        pickle.loads(pickle.dumps(one)), Ranges(one.starts[::-1], one.ends[::-1]),
        Ranges.read(json.loads(json.dumps(one.to_list())), "done", SIZE),
    ):  # fmt: skip
        assert again == one
        assert hash(again) == hash(one)


def test_ranges_reach_the_ends_of_64_bits() -> None:
    whole = Ranges.of([(0, 2**63), (2**63 + 1, WHOLE - 1)])
    assert len(whole) == 1
    assert whole.size == WHOLE
    assert whole.holds(WHOLE - 1)
    assert whole.to_list() == [["0", str(WHOLE - 1)]]
    assert Ranges.read(whole.to_list(), "done", WHOLE) == whole
    last = Ranges.of([(WHOLE - 1, WHOLE - 1), (0, 0)])
    assert [*last] == [KeyRange(0, 0), KeyRange(WHOLE - 1, WHOLE - 1)]
    assert last.contains(np.array([0, 1, WHOLE - 1], np.uint64)).tolist() == [True, False, True]
    assert (last | Ranges.of([(0, WHOLE - 1)])) == whole


def test_ranges_refuse_what_are_none() -> None:
    for wrong, message in (
        ({}, "done: must be a list"), ([5], r"done\[0\]: must be a list"), ([[1]], r"done\[0\]: must be a list"),
        ([[1, SIZE]], r"done\[0\]: must be from 0 to 23"), ([[-1, 1]], r"done\[0\]: must be from 0"),
        ([[2, 1]], r"done\[0\]: must not end before"), ([[0, 1], [2, 3]], r"done\[1\]: .*not touch"),
        ([[4, 5], [0, 1]], r"done\[1\]: must begin behind"), ([[True, 2]], r"done\[0\]: must be an integer"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Ranges.read(wrong, "done", SIZE)
    with pytest.raises(ValueError, match="end before it starts"):
        Ranges.of([(2, 1)])
    with pytest.raises(TypeError, match="positions must be integers"):
        Ranges.of([(0, 1)]).contains([0.5])
    with pytest.raises(ValueError, match="not negative"):
        Ranges.of([(0, 1)]).contains([-1])
    with pytest.raises(ValueError, match="read-only"):
        Ranges.of([(0, 1)]).starts[0] = 5


# -- spans -------------------------------------------------------------------------------------------------


@given(owned)
def test_spans_are_the_owner_of_each_position(owners: list[str | None]) -> None:
    spans = spans_of(owners)
    assert owners_of(spans) == owners
    assert len(spans) == len(runs(owners))  # neighbours of one owner are one
    assert spans.indexes_at(np.arange(SIZE)).tolist() == [-1 if o is None else "abc".index(o) for o in owners]
    for name in "abc":
        assert spans.ranges(name) == [(first, last) for first, last, owner in runs(owners) if owner == name]
    assert spans.sizes() == {name: owners.count(name) for name in "abc"}
    assert spans.shares() == {name: owners.count(name) / SIZE for name in "abc"}
    measure = np.arange(SIZE) + 1.0
    of_all = {n: sum(m for m, o in zip(measure, owners, strict=True) if o == n) for n in "abc"}
    assert spans.shares(measure) == pytest.approx({n: part / measure.sum() for n, part in of_all.items()})
    relative = [
        owners.count(name) / SIZE / share for name, share in zip("abc", (0.5, 0.25, 0.25), strict=True)
    ]
    balance = spans.balance([2.0, 1.0, 1.0])
    assert balance[:2] == pytest.approx((max(relative), min(relative)))
    assert pickle.loads(pickle.dumps(spans)) == spans == spans_of(owners)


@given(owned, owned, st.permutations("abcd"))
def test_a_diff_is_what_differs_position_by_position(
    before: list[str | None], after: list[str | None], order: list[str]
) -> None:
    """Names may stand at other indexes after, or be gone."""
    names = tuple(order)
    one, other = spans_of(before), spans_of(after, names)
    starts, ends, sources, targets = one.diff(other)
    found = [
        (s, e, None if i < 0 else "abc"[i], None if j < 0 else names[j])
        for s, e, i, j in zip(starts.tolist(), ends.tolist(), sources.tolist(), targets.tolist(), strict=True)
    ]
    both = list(zip(before, after, strict=True))
    assert found == [(first, last, *pair) for first, last, pair in runs(both) if pair[0] != pair[1]]


@given(owned, owned, several, st.permutations("abcd"))
def test_a_splice_has_the_owners_of_after_inside_and_its_own_outside(
    before: list[str | None], after: list[str | None], some: list[Any], order: list[str]
) -> None:
    one, other, inside = spans_of(before), spans_of(after, tuple(order)), Ranges.of(some)
    here = positions(some)
    spliced = one.splice(other, inside)
    assert owners_of(spliced) == [after[p] if p in here else before[p] for p in range(SIZE)]
    assert spliced.names == ("a", "b", "c", "d")
    everything = Ranges.of([(0, SIZE - 1)])
    assert owners_of(one.splice(other, everything)) == after
    assert owners_of(one.splice(other, Ranges())) == before
    # Carrying a diff out in two halves, in any order, leads to the same.
    starts, ends, *_ = one.diff(other)
    whole = Ranges(starts, ends)
    assert owners_of(one.splice(other, whole)) == after


def test_spans_of_a_whole_64_bit_space() -> None:
    spans = Spans(WHOLE, np.array([2**63 - 1, WHOLE - 2, WHOLE - 1], np.uint64), [0, 1, 0], ("a", "b"))
    assert spans.sizes() == {"a": 2**63 + 1, "b": 2**63 - 1}
    assert spans.owner_at(WHOLE - 1) == "a"
    assert spans.diff(spans)[0].size == 0
    nobody = Spans(WHOLE, [WHOLE - 1], [-1], ())
    starts, ends, sources, targets = nobody.diff(spans)
    assert (starts.tolist(), ends.tolist()) == ([0, 2**63, WHOLE - 1], [2**63 - 1, WHOLE - 2, WHOLE - 1])
    assert (sources.tolist(), targets.tolist()) == ([-1, -1, -1], [0, 1, 0])


def test_spans_refuse_what_is_no_cut_of_a_space() -> None:
    for size, ends, owners in (
        (4, [], []), (4, [2], [0]), (4, [4], [0]), (4, [3], [0, 0]), (4, [2, 1, 3], [0, 0, 0]),
        (4, [1, 1, 3], [0, 0, 0]), (4, [3], [1]), (4, [3], [-2]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"spans|owner"):
            Spans(size, ends, owners, ("a",))
    spans = spans_of(["a"] * 4)
    for position in (-1, 4, 2**70):
        with pytest.raises(IndexError, match="from 0 to 3"):
            spans.owner_at(position)
    with pytest.raises(IndexError):
        spans.indexes_at([4])
    with pytest.raises(UnknownNodeError):
        spans.ranges("d")
    for call in (spans.diff, lambda other: spans.splice(other, Ranges())):
        with pytest.raises(ValueError, match="positions"):
            call(spans_of(["a"] * 5))
    with pytest.raises(EmptyRingError):
        Spans(4, [3], [-1], ()).balance([])
    with pytest.raises(ValueError, match="one number for each of 4 positions"):
        spans.shares([1.0])


# -- placements give the same by either way ----------------------------------------------------------------


def test_the_merge_of_rings_is_the_diff_of_their_spans() -> None:
    rings = [
        Ring(),
        Ring(["a"]),
        Ring({"a": 1.0, "b": 2.0, "c": 0.5}, vnodes=9),
        Ring(list("bcde"), vnodes=9),
    ]
    for before in rings:
        for after in rings:
            plan = before.diff(after)
            general = before.spans.diff(after.spans)
            for mine, theirs in zip((plan._starts, plan._ends), general[:2], strict=True):
                assert mine.tolist() == theirs.tolist()
            assert plan.ranges == Ranges(*general[:2])
            assert [before.owner_at(start) if before else None for start in general[0].tolist()] == [
                move.source for move in plan.moves
            ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Ring(list("abc"), vnodes=7), Ring(list("bcd"), vnodes=7)),
        (Ring(list("abc"), vnodes=7), Ring(list("abc"), vnodes=8)),
        (assign(50, ["a", "b"]), assign(50, ["b", "c", "d"])),
    ],
    ids=["ring", "vnodes", "assignment"],
)
def test_the_middle_of_a_placement_is_the_splice_of_its_spans(before: Any, after: Any) -> None:
    plan = before.diff(after)
    moves = list(plan.moves)
    for some in ([], moves[:1], moves[::2], moves):
        done = Ranges.of([move.range for move in some])
        middle = before.middle(after, done)
        general = before.spans.splice(after.spans, done)
        for position in {p for r in plan.ranges for p in (r.start, r.end, max(0, r.start - 1))}:
            assert middle.owner_at(position) == general.owner_at(position)
        keys = np.arange(2000)
        where = general.indexes_at(before.space.positions(keys)).tolist()
        assert middle.owner_many(keys) == [general.names[i] for i in where]
        assert [middle.nodes[i].name for i in middle.index_many(keys)] == middle.owner_many(keys)

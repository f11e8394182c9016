"""Both ends of the ring, ties, exact hits and crowded buckets, on purpose: see chosen.py for the names and keys."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from chosen import (
    CROWD,
    FIRST,
    KEYS,
    LASTS,
    MEETS_ITSELF,
    NAMES,
    TIE,
    check_ring,
    crowd_between,
    edges,
    key_at,
    model_of,
    moves_of,
    owners_at,
    position_of_name,
)
from model import LAST, moves

from ringhash import KeyRange, Move, Ring

pytestmark = pytest.mark.core


def placed(*names: str, vnodes: int = 1) -> Ring:
    return Ring(names, vnodes=vnodes)


def at(ring: Ring, *positions: int) -> list[str]:
    """The owners of integer keys, and of the str keys that are known, at these positions."""
    owners = [ring.owner(key_at(position)) for position in positions]
    assert owners_at(ring, positions) == owners
    for position, owner in zip(positions, owners, strict=True):
        if position in KEYS:
            assert ring.owner(KEYS[position]) == ring.owner_many([KEYS[position]])[0] == owner
    return owners


def test_names_and_keys_are_where_they_should_be() -> None:
    for position, names in NAMES.items():
        assert [position_of_name(name) for name in names] == [position] * len(names)
    for position, key in KEYS.items():
        assert Ring().position(key) == Ring().position(key_at(position)) == position
    assert placed(MEETS_ITSELF, vnodes=2).points.tolist() == [position_of_name(MEETS_ITSELF)] * 2
    assert len(NAMES[TIE]) >= 5
    assert len(CROWD) > 24
    for seed in (1, 2**64 - 1):
        for position in (0, 1, 2**31, LAST):
            assert Ring(seed=seed).position(key_at(position, seed)) == position


def test_a_key_on_a_point_belongs_to_it_and_the_key_behind_to_the_next() -> None:
    (low, *_), middle, (high, *_) = NAMES[2], NAMES[2**31][0], NAMES[LAST - 2]
    ring = placed(low, middle, high)
    assert at(ring, 0, 1, 2) == [low] * 3
    assert at(ring, 3, 2**31 - 1, 2**31) == [middle] * 3
    assert at(ring, 2**31 + 1, LAST - 3, LAST - 2) == [high] * 3
    assert at(ring, LAST - 1, LAST) == [low] * 2
    assert ring.ranges(low) == [KeyRange(0, 2), KeyRange(LAST - 1, LAST)]
    check_ring(ring, model_of(ring))


def test_points_at_both_ends() -> None:
    low, high = FIRST[0], LASTS[0]
    ring = placed(low, high)
    assert at(ring, 0, 1, LAST - 1, LAST) == [low, high, high, high]
    assert ring.ranges(low) == [KeyRange(0, 0)]
    assert ring.ranges(high) == [KeyRange(1, LAST)]
    assert ring.shares == {low: 1 / 2**32, high: LAST / 2**32}
    assert ring.diff(placed(high)).moves == [Move(KeyRange(0, 0), low, high)]
    assert placed(low).diff(ring).moves == [Move(KeyRange(1, LAST), low, high)]
    check_ring(ring, model_of(ring))


@pytest.mark.parametrize("position", sorted(NAMES))
def test_a_single_point_has_the_whole_ring(position: int) -> None:
    (name, *_) = NAMES[position]
    ring = placed(name)
    here = [p for p in (0, position - 1, position, position + 1, LAST) if 0 <= p <= LAST]
    assert at(ring, *here) == [name] * len(here)
    assert ring.ranges(name) == [KeyRange(0, LAST)]
    assert Ring(vnodes=1).diff(ring).moves == [Move(KeyRange(0, LAST), None, name)]
    assert ring.diff(Ring(vnodes=1)).moves == [Move(KeyRange(0, LAST), name, None)]
    assert list(ring.walk(5)) == [name]
    check_ring(ring, model_of(ring))


@pytest.mark.parametrize("position", [0, TIE, 2**31, LAST])
def test_the_lowest_name_wins_a_tie_and_the_next_takes_over(position: int) -> None:
    tied, other = sorted(NAMES[position]), "other"
    ring = placed(*tied, other)
    while tied:
        assert at(ring, position) == tied[:1]
        assert list(ring.walk(key_at(position)))[: len(tied)] == tied
        assert [ring.ranges(name) for name in tied[1:]] == [[]] * (len(tied) - 1)
        check_ring(ring, model_of(ring))
        after = ring.without(tied[0])
        assert moves_of(ring.diff(after)) == moves(model_of(ring), model_of(after))
        assert set(ring.diff(after).by_target()) == {tied[1] if len(tied) > 1 else other}
        ring = after
        tied = tied[1:]


@pytest.mark.parametrize("position", [0, TIE, LAST])
def test_nodes_of_a_tie_come_and_go_in_every_order(position: int) -> None:
    names = NAMES[position][:3]
    for base in ((), ("other",), tuple(CROWD[:3]), ("a", "z", *FIRST[:1], *LASTS[:1])):
        beside = [name for name in base if name not in names]
        for coming in permutations(names):
            ring = placed(*beside)
            for name in coming:
                ring, before = ring.with_nodes(name), ring
                check_ring(ring, model_of(ring))
                assert moves_of(before.diff(ring)) == moves(model_of(before), model_of(ring))
            for leaving in permutations(names):
                left = ring
                for name in leaving:
                    left, before = left.without(name), left
                    check_ring(left, model_of(left))
                    assert moves_of(before.diff(left)) == moves(model_of(before), model_of(left))
                assert left == placed(*beside)


def test_all_points_may_be_equal() -> None:
    tied = sorted(NAMES[TIE])
    ring = placed(*tied)
    assert at(ring, 0, TIE - 1, TIE, TIE + 1, LAST) == tied[:1] * 5
    assert ring.shares == dict.fromkeys(tied, 0.0) | {tied[0]: 1.0}
    assert list(ring.walk(0)) == list(ring.walk(key_at(TIE))) == tied
    assert ring.diff(ring.without(*tied[:2])).moves == [Move(KeyRange(0, LAST), tied[0], tied[2])]
    assert len(ring.diff(ring.without(*tied[1:]))) == 0


def test_a_node_may_tie_with_itself() -> None:
    ring = Ring({MEETS_ITSELF: 1.0, "a": 1.0}, vnodes=2)
    check_ring(ring, model_of(ring))
    lighter = ring.with_weights({MEETS_ITSELF: 0.5})
    assert len(lighter.points) == 3
    assert len(ring.diff(lighter)) == 0
    for other in (
        lighter,
        lighter.with_weights({MEETS_ITSELF: 1}),
        ring.without(MEETS_ITSELF),
        ring.without("a"),
    ):
        check_ring(other, model_of(other))
    here = position_of_name(MEETS_ITSELF)
    assert at(ring, here) == at(lighter, here) == [MEETS_ITSELF]


# The upper 16 bits behind a bucket are all that its cell keeps: these are equal in them, and more than it holds.
CROWDS = {
    "narrower than a rest": CROWD,
    "narrower than a bucket": crowd_between(2**30, 2**30 + 2**25, 40),
    "at the beginning": [*FIRST, *NAMES[1], *NAMES[2], *NAMES[3], *crowd_between(0, 2**25, 30)],
    "at the end": [*LASTS, *NAMES[LAST - 1], *NAMES[LAST - 2], *crowd_between(LAST - 2**25, LAST, 30)],
    "at both ends": [*FIRST, *crowd_between(0, 2**22, 17), *LASTS, *crowd_between(LAST - 2**22, LAST, 17)],
}


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("beside", [0, 1, 30, 300])
def test_a_bucket_of_more_points_than_its_cell_holds(crowd: str, beside: int) -> None:
    base = placed(*(f"n-{i}" for i in range(beside)))
    full = base.with_nodes(*CROWDS[crowd])
    check_ring(full, model_of(full))
    for step in (1, -1):
        ring = base
        for name in CROWDS[crowd][::step]:
            ring = ring.with_nodes(name)
            check_ring(ring)
        assert ring == full
        for name in CROWDS[crowd]:
            ring = ring.without(name)
            check_ring(ring)
        assert ring == base
        check_ring(ring, model_of(ring))


@pytest.mark.parametrize("count", [15, 16, 17, 18])
def test_a_bucket_that_just_fits_its_cell(count: int) -> None:
    names = crowd_between(2**30, 2**30 + 2**24, count)
    for beside in (0, 100):
        ring = placed(*(f"n-{i}" for i in range(beside)), *names)
        check_ring(ring, model_of(ring))


def test_a_crowded_bucket_that_ends_with_many_points_at_the_greatest_rest() -> None:
    beside, ending = crowd_between(2**31, LAST - 2**26, 20), [*LASTS, *NAMES[LAST - 1], *NAMES[LAST - 2]]
    for count in range(7, 21):
        for last in range(len(ending) + 1):
            ring = placed(*beside[:count], *ending[:last])
            check_ring(ring, model_of(ring))


def test_empty_buckets_name_the_next_point() -> None:
    """All points of a large ring in two places, so that nearly every bucket is empty."""
    low, high = crowd_between(2**29, 2**29 + 2**24, 60), crowd_between(2**31, 2**31 + 2**24, 60)
    ring = placed(*low, *high)
    check_ring(ring, model_of(ring))
    for name in (NAMES[2**31 - 1][0], FIRST[0], LASTS[0], NAMES[1][0], low[0], high[0]):
        other = ring.without(name) if name in ring else ring.with_nodes(name)
        check_ring(other, model_of(other))
        check_ring(other.without(*low[1:]) if name in low else other.without(*low))
    # The first point of the ring goes and comes: the buckets behind the last one must follow.
    by_position = sorted(low, key=position_of_name)
    for name in by_position[:20]:
        ring = ring.without(name)
        check_ring(ring)
    for name in by_position[:20][::-1]:
        ring = ring.with_nodes(name)
        check_ring(ring)


def test_the_first_position_of_every_bucket() -> None:
    """The number of buckets is not told; all of 1 to 200 are tried, a position before, at and behind each border."""
    ring = placed(*(f"n-{i}" for i in range(1000)))
    borders = {-(-(bucket << 32) // buckets) for buckets in range(1, 201) for bucket in range(buckets)}
    positions = np.array(sorted({b + step for b in borders for step in (-1, 0, 1)} - {-1}), np.uint64)
    after = np.searchsorted(ring.points, positions.astype(np.uint32)) % len(ring.points)
    assert owners_at(ring, positions.tolist()) == [ring.nodes[i].name for i in ring.point_owners[after]]


@pytest.mark.parametrize("vnodes", [1, 2, 13, 16])
def test_growing_from_nothing_and_shrinking_to_nothing(vnodes: int) -> None:
    ring = Ring(vnodes=vnodes)
    names = [f"n-{i}" for i in range(60)]
    for name in names:
        ring = ring.with_nodes(name)
        check_ring(ring)
    check_ring(ring, model_of(ring))
    for name in names[::-1]:
        ring = ring.without(name)
        check_ring(ring)
    assert not ring


def test_reweighting_step_by_step() -> None:
    ring = Ring({"a": 1, "b": 1, "c": 1, MEETS_ITSELF: 1}, vnodes=20)
    for weight in [*np.arange(0.05, 3.0, 0.1), *np.arange(3.0, 0.05, -0.3)]:
        ring, before = ring.with_weights({"b": float(weight), MEETS_ITSELF: float(weight)}), ring
        check_ring(ring)
        assert moves_of(before.diff(ring)) == moves(model_of(before), model_of(ring))
    assert len(edges(ring)) > 100

"""Hot keys: bounds that hold, and the floor that no placement of whole keys gets below."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import EmptyRingError, Router
from ringhash.balance import HotKey, HotKeys, HotReport

NAMES = [f"gw-{i}" for i in range(5)]


@given(keys=st.lists(st.integers(0, 30), max_size=300), k=st.integers(1, 5), extra=st.integers(0, 10))
@settings(max_examples=200, deadline=None)
def test_the_bounds_hold_and_no_heavy_key_is_missed(keys, k, extra):
    hot = HotKeys(k, counters=k + extra)
    hot.add_many(keys)
    true = Counter(keys)
    found = {one.key: one for one in hot.top(k + extra)}
    assert hot.total == len(keys)
    assert len(hot.top()) <= k
    assert len(found) == min(len(true), k + extra), "never more counters than said"
    for key, one in found.items():
        assert one.at_least <= true[key] <= one.at_most
        assert one.at_most - one.at_least <= len(keys) / (k + extra)
    assert {key for key, count in true.items() if count > len(keys) / (k + extra)} <= set(found)
    ordered = [one.at_most for one in hot.top()]
    assert ordered == sorted(ordered, reverse=True)


def test_with_enough_counters_it_counts_exactly():
    hot = HotKeys(k=3)
    hot.add_many(list("abracadabra"))
    assert hot.top() == [HotKey("a", 5, 5), HotKey("b", 2, 2), HotKey("r", 2, 2)]
    hot.clear()
    assert (hot.top(), hot.total) == ([], 0)


def test_keys_that_are_one_to_the_ring_are_one():
    hot = HotKeys(k=9)
    hot.add_many(["x", b"x", bytearray(b"x"), memoryview(b"x"), 7, np.int32(7), b"\xff", b"\xff"])
    hot.add_many([uuid.UUID(int=5)])
    assert hot.top() == [
        HotKey("x", 4, 4), HotKey(7, 2, 2), HotKey(b"\xff", 2, 2), HotKey(uuid.UUID(int=5), 1, 1),
    ]  # fmt: skip
    for wrong in (None, 1.5, True):
        with pytest.raises(TypeError, match="a key must be"):
            hot.add(wrong)
    with pytest.raises(OverflowError):
        hot.add(2**64)
    assert hot.total == 9


def test_one_key_in_every_form_is_one_key():
    class Number(int):
        def __index__(self):
            raise AssertionError("nobody asks it")

    class Text(bytes):
        def __bytes__(self):
            raise AssertionError("nobody asks it")

    hot = HotKeys(k=9)
    hot.add_many([-1, 2**64 - 1, b"\xff" * 8, np.int64(-1), Number(-1), np.uint64(2**64 - 1)])
    hot.add_many([Text(b"x"), "x"])
    assert hot.top() == [HotKey(-1, 6, 6), HotKey("x", 2, 2)]
    router = Router(NAMES)
    router.pin(Number(-1), "gw-3")
    assert router.owner(2**64 - 1) == router.owner_many([np.int64(-1)])[0] == "gw-3"
    assert hot.report(router).keys[0].node == "gw-3"


def test_one_text_is_one_key_and_not_many():
    hot = HotKeys(k=3)
    for one in ("hello", b"hello", bytearray(b"hello"), memoryview(b"hello")):
        with pytest.raises(TypeError, match=r"is one key; write \[key\], or call add\(key\)"):
            hot.add_many(one)
    assert (hot.total, hot.top()) == (0, [])


def test_a_text_that_has_no_utf8_is_refused_when_it_comes():
    hot = HotKeys(k=3)
    hot.add("fine")
    for hash_tags in (False, True):
        with pytest.raises(UnicodeEncodeError):
            HotKeys(k=3, hash_tags=hash_tags).add("\ud800")
    with pytest.raises(UnicodeEncodeError):
        hot.add_many(["fine", "\ud800", "never counted"])
    assert hot.report(Router(NAMES)).keys == [HotKey("fine", 2, 2, Router(NAMES).owner("fine"))]


def test_a_hash_tag_is_hot_as_a_whole_and_at_its_node():
    router = Router(NAMES, hash_tags=True)
    hot = HotKeys(k=1, hash_tags=True)
    hot.add_many([f"{{user:7}}:{i}" for i in range(50)])
    (one,) = hot.report(router).keys
    assert one == HotKey("user:7", 50, 50, router.owner("{user:7}:cart"))


def test_a_sample_finds_the_same_keys_for_less():
    weights = np.arange(1, 10_001) ** -1.1
    keys = np.random.default_rng(3).choice(10_000, 200_000, p=weights / weights.sum()).tolist()
    hot = HotKeys(k=10, sample=0.05, seed=1)
    hot.add_many(keys)
    assert hot.total == pytest.approx(len(keys), rel=0.05)
    true = Counter(keys)
    for one in hot.top(5):
        assert one.at_most == pytest.approx(true[one.key], rel=0.15)
    assert [one.key for one in hot.top(3)] == [0, 1, 2]


def best_possible(counts, nodes):
    """The smallest peak to mean of any placement, by trying all."""
    peaks = (
        max(
            sum(count for count, at in zip(counts, places, strict=True) if at == node)
            for node in range(nodes)
        )
        for places in itertools.product(range(nodes), repeat=len(counts))
    )
    return min(peaks) * nodes / sum(counts)


@given(counts=st.lists(st.integers(1, 20), min_size=1, max_size=6), nodes=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_no_placement_of_whole_keys_is_below_the_floor(counts, nodes):
    hot = HotKeys(k=10)
    for key, count in enumerate(counts):
        hot.add_many([key] * count)
    floor = hot.report(Router(NAMES[:nodes])).least_peak_to_mean
    assert 1.0 <= floor <= best_possible(counts, nodes) + 1e-9


def test_the_floor_is_reached_where_one_key_is_half_of_all():
    router = Router(NAMES)
    hot = HotKeys(k=2)
    hot.add_many(["celebrity"] * 500 + [f"user:{i}" for i in range(500)])
    report = hot.report(router)
    assert report.keys[0] == HotKey("celebrity", 500, 500, router.owner("celebrity"))
    assert report.least_peak_to_mean == pytest.approx(2.5)  # half of all, and 5 nodes
    router.mark_down("gw-0", "gw-1", "gw-2")
    assert hot.report(router).least_peak_to_mean == 1.0, "two nodes could halve it"
    router = Router({"big": 3.0, "small": 1.0})
    assert hot.report(router).least_peak_to_mean == 1.0, "the big one should have three quarters anyway"


def test_what_is_not_counted_raises_no_floor():
    assert HotKeys().report(Router(NAMES)) == HotReport([], 0, 1.0)
    hot = HotKeys(k=1, counters=2)
    hot.add_many(range(1000))  # the counts are mostly error
    assert hot.report(Router(NAMES)).least_peak_to_mean == 1.0
    with pytest.raises(EmptyRingError):
        hot.report(Router())


def test_errors():
    for k, counters in ((0, None), (5, 4), (1.5, None), (True, None)):
        with pytest.raises(ValueError, match="1 <= k <= counters"):
            HotKeys(k, counters=counters)
    with pytest.raises(TypeError, match="hash_tags must be True or False"):
        HotKeys(hash_tags="no")
    for sample in (0, 1.1, -1, "a"):
        with pytest.raises(ValueError, match="sample must be"):
            HotKeys(sample=sample)

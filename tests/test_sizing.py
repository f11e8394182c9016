"""How many virtual nodes: the theory against rings that were built."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import numpy as np
import pytest

from ringhash import EmptyRingError, Node, Ring
from ringhash.balance import recommended_vnodes
from ringhash.balance.sizing import compare_vnodes, expected_peak


def peaks(nodes: int, vnodes: int, rings: int) -> list[float]:
    names = [f"node-{i}" for i in range(nodes)]
    return [Ring(names, vnodes=vnodes, seed=seed).balance.peak_to_mean for seed in range(rings)]


# --- the expected peak ---


@pytest.mark.parametrize("nodes", [2, 3, 10, 1000])
def test_one_point_a_node_is_the_longest_of_random_gaps(nodes: int) -> None:
    harmonic = math.fsum(1 / i for i in range(1, nodes + 1))
    assert expected_peak(nodes, 1) == pytest.approx(harmonic, abs=1e-4)


@pytest.mark.parametrize("vnodes", [1, 2, 5, 40, 160, 1000, 65_536])
def test_two_nodes_have_a_closed_form(vnodes: int) -> None:
    # E[max] of two = v + E|G1 - G2| / 2, and E|G1 - G2| = 2 / B(v, 1/2), B the beta function.
    beta = math.exp(math.lgamma(vnodes) + math.lgamma(0.5) - math.lgamma(vnodes + 0.5))
    assert expected_peak(2, vnodes) == pytest.approx(1 + 1 / (vnodes * beta), abs=1e-5)


def test_a_single_node_owns_its_share() -> None:
    assert expected_peak(1, 1) == expected_peak(1, 160) == 1.0


@pytest.mark.parametrize(
    ("nodes", "vnodes", "rings"),
    [(3, 1, 2000), (10, 40, 1000), (10, 160, 600), (100, 40, 300), (100, 160, 150)],
)
def test_rings_have_the_expected_peak_on_average(nodes: int, vnodes: int, rings: int) -> None:
    found = peaks(nodes, vnodes, rings)
    error = stdev(found) / math.sqrt(rings)
    assert fmean(found) == pytest.approx(expected_peak(nodes, vnodes), abs=4 * error)
    assert error < 0.06 * (expected_peak(nodes, vnodes) - 1)  # so that the line above says something


@pytest.mark.slow
def test_large_rings_have_the_expected_peak_on_average() -> None:
    found = peaks(1000, 160, 60)
    assert fmean(found) == pytest.approx(expected_peak(1000, 160), abs=4 * stdev(found) / math.sqrt(60))


def test_more_virtual_nodes_are_more_even_and_more_nodes_less() -> None:
    by_vnodes = [expected_peak(100, v) for v in (1, 2, 10, 100, 1000, 65_536)]
    by_nodes = [expected_peak(n, 160) for n in (1, 2, 10, 1000, 100_000, 10_000_000)]
    assert by_vnodes == sorted(by_vnodes, reverse=True)
    assert by_nodes == sorted(by_nodes)
    assert all(1 <= peak < 100 for peak in by_vnodes + by_nodes)


# --- the recommendation ---


@pytest.mark.parametrize("nodes", [2, 10, 100, 1000, 20_000])
@pytest.mark.parametrize("peak_to_mean", [1.05, 1.1, 1.25, 2])
def test_it_is_the_fewest_that_will_do(nodes: int, peak_to_mean: float) -> None:
    vnodes = recommended_vnodes(nodes, peak_to_mean)
    assert expected_peak(nodes, vnodes) <= peak_to_mean
    assert vnodes == 1 or expected_peak(nodes, vnodes - 1) > peak_to_mean


@pytest.mark.parametrize(("nodes", "peak_to_mean"), [(10, 1.1), (10, 1.25), (100, 1.1)])
def test_rings_made_with_it_keep_the_promise_on_average(nodes: int, peak_to_mean: float) -> None:
    found = peaks(nodes, recommended_vnodes(nodes, peak_to_mean), 200)
    assert fmean(found) == pytest.approx(peak_to_mean, abs=4 * stdev(found) / math.sqrt(200))


def test_one_node_needs_one_point() -> None:
    assert recommended_vnodes(1) == 1


def test_numpy_integers_are_counts() -> None:
    assert recommended_vnodes(np.int64(10)) == recommended_vnodes(10)


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_ring_without_nodes_has_no_recommendation(nodes: int) -> None:
    with pytest.raises(ValueError, match="nodes must be at least 1"):
        recommended_vnodes(nodes)


@pytest.mark.parametrize("nodes", [True, 1.0, "10", None, ["a", "b"]])
def test_nodes_is_a_number_of_nodes(nodes: object) -> None:
    with pytest.raises(TypeError, match="nodes must be an integer"):
        recommended_vnodes(nodes)  # type: ignore[arg-type]


@pytest.mark.parametrize("peak", [1, 1.0, 0.9, -1, math.inf, math.nan])
def test_no_ring_is_perfect(peak: float) -> None:
    with pytest.raises(ValueError, match="finite and above 1"):
        recommended_vnodes(10, peak)


@pytest.mark.parametrize("peak", [True, "1.1", None])
def test_the_peak_is_a_number(peak: object) -> None:
    with pytest.raises(TypeError, match="peak_to_mean must be a number"):
        recommended_vnodes(10, peak)  # type: ignore[arg-type]


def test_what_no_ring_can_hold_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"with the most virtual nodes it can have, 65536, expect a peak of 1\.00"
    ):
        recommended_vnodes(10, 1.001)
    with pytest.raises(ValueError, match="the most virtual nodes it can have, 6710,"):
        recommended_vnodes(20_000, 1.04)
    with pytest.raises(ValueError, match="too few for 134217729 nodes"):
        recommended_vnodes(2**27 + 1)


# --- counts compared ---


def test_a_row_says_what_that_ring_is() -> None:
    names = ["a", "b", "c", "d"]
    rows = compare_vnodes(names, [1, 40, 160])
    for row, vnodes in zip(rows, [1, 40, 160], strict=True):
        ring = Ring(names, vnodes=vnodes)
        after = ring.with_nodes("one-more")
        assert (row.vnodes, row.points) == (vnodes, len(ring.points))
        assert (row.peak_to_mean, row.low_to_mean, row.stddev) == ring.balance
        assert row.expected_peak == expected_peak(4, vnodes)
        assert row.moved == after.shares["one-more"]
        assert row.fair_moved == 1 / 5
        assert row.bytes == ring.memory_size
        assert row.build_ms > 0
        assert row.key_peak_to_mean is None


def test_a_number_of_nodes_will_do() -> None:
    (row,) = compare_vnodes(10, [160])
    (named,) = compare_vnodes([f"node-{i}" for i in range(1, 11)], [160])
    assert row[:10] == named[:10]


def test_weights_and_options_are_those_of_the_ring() -> None:
    weights = {"a": 1.0, "b": 2.5}
    (row,) = compare_vnodes(weights, [80], seed=7)
    (same,) = compare_vnodes((Node(name, weight) for name, weight in weights.items()), [80], seed=7)
    assert row[:10] == same[:10]
    assert row.peak_to_mean == Ring(weights, vnodes=80, seed=7).balance.peak_to_mean
    assert row.fair_moved == pytest.approx(1 / 4.5)


def test_the_newcomer_is_not_one_of_the_nodes() -> None:
    (row,) = compare_vnodes(["one-more", "one-more-"], [40])
    assert 0 < row.moved < 1


@pytest.mark.parametrize("keys", [["k1", "k2", "k3", "{k}1"], np.arange(4), iter(["k1", "k2", b"k3", 4])])
def test_keys_are_counted_at_their_owners(keys: object) -> None:
    many = list(keys)  # type: ignore[call-overload]
    (row,) = compare_vnodes(["a", "b"], [40], keys=iter(many))
    ring = Ring(["a", "b"], vnodes=40)
    fullest = max(sum(ring.owner(key) == name for key in many) for name in "ab")
    assert row.key_peak_to_mean == fullest / (4 / 2)


def test_keys_go_by_their_tags() -> None:
    keys = ["{same}:1", "{same}:2", "{same}:3"]
    (row,) = compare_vnodes(["a", "b"], [40], keys=keys, hash_tags=True)
    assert row.key_peak_to_mean == 2.0


def test_no_keys_have_no_peak() -> None:
    (row,) = compare_vnodes(["a", "b"], [40], keys=[])
    assert row.key_peak_to_mean is None
    assert math.isnan(row.lookup_ns)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(EmptyRingError):
        compare_vnodes([], [40])
    with pytest.raises(ValueError, match="nodes must be at least 1"):
        compare_vnodes(0, [40])
    with pytest.raises(ValueError, match="vnodes must be from 1"):
        compare_vnodes(["a"], [0])
    with pytest.raises(TypeError, match="for one node write"):
        compare_vnodes("node", [40])
    with pytest.raises(TypeError, match="nodes must be an integer"):
        compare_vnodes(True, [40])
    assert compare_vnodes(["a"], []) == []

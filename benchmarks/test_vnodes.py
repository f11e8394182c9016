"""Numbers of virtual nodes compared: what evenness costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import cases, exact
from ringhash.balance.sizing import expected_peak

pytestmark = pytest.mark.benchmark(max_time=0.2, min_rounds=5, disable_gc=True)

NODES = 100
COUNTS = pytest.mark.parametrize("vnodes", cases.VNODE_COUNTS)


@COUNTS
def test_throughput(timed: Callable[..., None], benchmark: Any, vnodes: int) -> None:
    ring = cases.ring_of(NODES, vnodes)
    timed(cases.lookups(ring)["owner(str)"])
    before = cases.names(NODES)
    shares = [size / exact.SPACE for size in exact.sizes(exact.points(sorted(before), vnodes), NODES)]
    assert list(ring.shares.values()) == shares
    assert ring.balance.peak_to_mean == pytest.approx(max(shares) * NODES, rel=1e-12)
    # The peak of one ring strays from the mean of all; three times the excess is past any luck.
    assert ring.balance.peak_to_mean - 1 < 3 * (expected_peak(NODES, vnodes) - 1)

    after = ring.with_nodes("one-more")
    plan = ring.diff(after)
    must_move, needless = exact.moved(before, [*before, "one-more"], vnodes)
    assert (plan.moves.positions, needless) == (must_move, 0)
    assert plan.fraction == after.shares["one-more"]
    benchmark.extra_info.update(
        peak_to_mean=ring.balance.peak_to_mean,
        expected_peak=expected_peak(NODES, vnodes),
        moved=plan.fraction,
        ideal=1 / (NODES + 1),
        bytes_a_point=ring.memory_size / len(ring.points),
    )

"""Building, comparing and changing rings; what moves must be exactly what has to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import cases, exact
from benchmarks.timing import Case
from ringhash import Ring, Router

pytestmark = pytest.mark.benchmark(max_time=0.3, min_rounds=5, disable_gc=True)

SIZES = pytest.mark.parametrize("nodes", cases.SIZES)


@SIZES
def test_build(timed: Callable[..., None], nodes: int) -> None:
    both = cases.building(nodes)
    timed(both["build"], {"numpy.sort": both["numpy.sort"]})


@SIZES
@pytest.mark.parametrize("change", ["add one node", "remove one node"])
def test_churn(timed: Callable[..., None], benchmark: Any, nodes: int, change: str) -> None:
    ring = cases.ring_of(nodes)
    all_cases = cases.churn(ring)
    timed(all_cases[change], {"copy": all_cases["copy of the arrays"]}, rounds=15)
    before = cases.names(nodes)
    after = [*before, "one-more"] if change == "add one node" else before[1:]
    router = Router(ring)
    plan = router.add("one-more") if change == "add one node" else router.remove(before[0])
    must_move, needless = exact.moved(before, after, cases.VNODES)
    assert (plan.moves.positions, needless) == (must_move, 0)
    benchmark.extra_info.update(moved=plan.fraction, ideal=1 / max(len(before), len(after)))


@SIZES
def test_diff(timed: Callable[..., None], benchmark: Any, nodes: int) -> None:
    before = cases.names(nodes)
    after = [*before[nodes // 10 :], *(f"new-{i}" for i in range(nodes // 10))]
    old, new = Ring(before, vnodes=cases.VNODES), Ring(after, vnodes=cases.VNODES)
    timed(Case(lambda: old.diff(new)))
    plan = old.diff(new)
    must_move, needless = exact.moved(before, after, cases.VNODES)
    assert plan.moves.positions == must_move
    benchmark.extra_info.update(moved=plan.fraction, needless=needless / exact.SPACE, changed=nodes // 10 * 2)

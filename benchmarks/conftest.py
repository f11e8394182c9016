"""Fixtures of the suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks import cases, timing

_ROUNDS = 7


@pytest.fixture
def timed(benchmark: Any) -> Callable[..., None]:
    """Benchmark one case, and note what a call costs in yardsticks: interleaved, the loop taken off."""

    def timed(
        case: timing.Case, beside: Mapping[str, timing.Case] | None = None, rounds: int = _ROUNDS
    ) -> None:
        if case.before is None:
            benchmark(case.run)
        else:
            benchmark.pedantic(case.run, setup=case.before, rounds=5 * rounds)
        others = {**cases.floor(), **(beside or {})}
        times = timing.interleaved({"case": case, **others}, rounds)
        benchmark.extra_info.update(
            calls=case.calls,
            ns_a_call=round(times.ns("case"), 1),
            loop_ns=round(times.loop_ns, 1),
            **{f"x_{name}": round(times.ratio("case", name), 3) for name in others if name != timing.LOOP},
        )

    return timed

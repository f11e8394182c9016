"""Interleaved timing. Every round runs every case once, in an order shuffled anew, so a slow moment of the
machine falls on all of them. Reported are medians over the rounds, and medians of the rounds' ratios.

Counted is the time of the thread where the system tells it finely enough, so that what other programs do in
between is left out; on an idle machine it is the time on the wall."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

LOOP = "loop"
FINE = time.get_clock_info("thread_time").resolution <= 1e-6
clock = time.thread_time_ns if FINE else time.perf_counter_ns


class Case(NamedTuple):
    """`run` makes `calls` calls. What `before` does is not timed. A `looped` case makes its calls in a Python
    loop over keys, and the cost of an empty loop is taken off."""

    run: Callable[[], object]
    calls: int = 1
    before: Callable[[], object] | None = None
    looped: bool = False


class Times:
    """The nanoseconds a call of every case in every round."""

    def __init__(self, rounds: Mapping[str, list[float]], looped: Iterable[str]) -> None:
        self.loop_ns = float(np.median(rounds[LOOP])) if LOOP in rounds else 0.0
        self._ns = {name: np.array(times) for name, times in rounds.items()}
        for name in looped:
            self._ns[name] -= self.loop_ns

    def __contains__(self, name: str) -> bool:
        return name in self._ns

    def ns(self, name: str) -> float:
        """The median of one call, without the loop."""
        return float(np.median(self._ns[name]))

    def ratio(self, name: str, to: str) -> float:
        """The median over the rounds of one case's time by another's of the same round."""
        return float(np.median(self._ns[name] / self._ns[to]))


def interleaved(cases: Mapping[str, Case], rounds: int) -> Times:
    """Time the cases: one round that does not count, then `rounds` of them, with the collector off."""
    order = list(cases)
    shuffle = random.Random(1).shuffle
    times: dict[str, list[float]] = {name: [] for name in order}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds + 1):
            shuffle(order)
            for name in order:
                run, calls, before, _ = cases[name]
                if before is not None:
                    before()
                began = clock()
                run()
                took = clock() - began
                if number:
                    times[name].append(took / calls)
    finally:
        if collecting:
            gc.enable()
    return Times(times, [name for name, case in cases.items() if case.looped])

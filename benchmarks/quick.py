"""A few ratios, in seconds. The margins are wide: a noisy machine passes, a lost fast path does not.

Batches and building are measured in yardsticks and not against numpy.searchsorted and numpy.sort, which are
several times as fast in a newer numpy and on some processors. A ratio that is too high is measured again,
with more rounds, and fails when it stays so."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import cases
from benchmarks.cases import YARDSTICK
from benchmarks.timing import interleaved

ATTEMPTS = 3

Check = tuple[str, float, float]  # what, measured, most


def _lookups(rounds: int) -> list[Check]:
    ring = cases.ring_of(100)
    single, many = cases.lookups(ring), cases.batches(ring)
    times = interleaved({**cases.floor(), **single, **many}, rounds)
    return [
        ("owner(str), in yardsticks", times.ratio("owner(str)", YARDSTICK), 2.4),
        ("router.owner / ring.owner", times.ratio("router.owner(str)", "owner(str)"), 1.5),
        ("index_many(uint64 array), in yardsticks", times.ratio("index_many(uint64 array)", YARDSTICK), 0.6),
        ("index_many(list of str), in yardsticks", times.ratio("index_many(list of str)", YARDSTICK), 1.5),
    ]


def _changes(rounds: int) -> list[Check]:
    ring = cases.ring_of(1000)
    times = interleaved({**cases.floor(), **cases.churn(ring), **cases.building(1000)}, rounds)
    copy = "copy of the arrays"
    return [
        ("build a point, in yardsticks", times.ratio("build", YARDSTICK) / len(ring.points), 3.0),
        ("add one node / copy of the arrays", times.ratio("add one node", copy), 30.0),
        ("remove one node / copy of the arrays", times.ratio("remove one node", copy), 30.0),
    ]


def failures(say: Callable[[str], None]) -> int:
    """Measure, tell, and return how many ratios are too high."""
    failed = 0
    for title, measure in (("100 nodes x 160", _lookups), ("1000 nodes x 160", _changes)):
        checks: list[Check] = []
        high = 0
        for attempt in range(1, ATTEMPTS + 1):
            checks = measure(15 * attempt)
            high = sum(value > most for _, value, most in checks)
            if not high or attempt == ATTEMPTS:
                break
            say(f"{title}: {high} too high in attempt {attempt} of {ATTEMPTS}")
        for what, value, most in checks:
            mark = "FAILED" if value > most else "ok"
            say(f"{title}: {what:42} {value:7.2f}  (at most {most:g})  {mark}")
        failed += high
    return failed

"""Moving connections without a storm: the guard, the waves, the waiting, and the simulation."""

from __future__ import annotations

import asyncio
import pickle
import random
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from handover_world import mutant

import ringhash.guard as guard_module
import ringhash.reconnect.drain as drain_module
from ringhash import Ring, Router
from ringhash.errors import GuardError
from ringhash.handover import Guard
from ringhash.reconnect import as_svg, as_table, backoff, displaced, drain, retry_after, simulate

# --- the guard ---


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_rule_of_the_guard_and_what_it_says() -> None:
    clock = Clock()
    router = Router([f"n{i}" for i in range(8)])
    guard = Guard(max_fraction=0.3, min_alive=0.75, cooldown=300, grace=60, clock=clock)
    one = router.plan(remove=["n0"])
    assert guard.reasons(router, one) == {"grace": "nobody has said that 'n0' is gone"}
    guard.gone("n0")
    clock.now += 30
    guard.gone("n0")  # the first time counts
    assert guard.reasons(router, one) == {"grace": "'n0' has been gone for 30 s, and it must be 60 s"}
    clock.now += 30
    guard.check(router, one)
    many = router.plan(remove=["n0", "n1", "n2", "n3"])
    assert list(guard.reasons(router, many)) == ["max_fraction", "grace"]
    guard.gone("n1")
    guard.gone("n2")
    assert guard.reasons(router, one) == {"min_alive": "5 of 8 nodes are alive, 62%, and it must be 75%"}
    with pytest.raises(GuardError, match="min_alive: 5 of 8") as refused:
        guard.apply(router, one)
    assert pickle.loads(pickle.dumps(refused.value)).reasons == refused.value.reasons
    assert router.epoch == 0
    guard.back("n1")
    guard.back("n2")
    guard.apply(router, one)
    assert router.epoch == 1
    clock.now += 299
    add = router.plan(add=["new"])
    with pytest.raises(GuardError, match="cooldown: the last change was 299 s ago, and 300 s must pass"):
        guard.apply(router, add)
    clock.now += 1
    guard.apply(router, add)


def test_a_person_overrides_a_rule_by_its_name_and_only_that_one() -> None:
    router, guard = Router(["a", "b", "c", "d"]), Guard()
    guard.gone("a")
    guard.gone("b")
    plan = router.plan(remove=["a"])
    with pytest.raises(GuardError, match="grace") as refused:
        guard.check(router, plan, override=["min_alive"])
    assert list(refused.value.reasons) == ["grace"]
    guard.check(router, plan, override=["min_alive", "grace"])
    with pytest.raises(ValueError, match="no rule 'everything'"):
        guard.check(router, plan, override="everything")


@pytest.mark.parametrize(
    "wrong", [{"max_fraction": 2}, {"min_alive": -1}, {"cooldown": -1}, {"grace": float("nan")}]
)
def test_a_guard_of_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Guard(**wrong)


def cascade(module: Any) -> int:
    """A detector goes blind: one node after another seems gone. How many are taken out?"""
    clock = Clock()
    router, guard = (
        Router([f"n{i}" for i in range(8)]),
        module.Guard(max_fraction=1, cooldown=0, grace=0, clock=clock),
    )
    for i in range(8):
        guard.gone(f"n{i}")
        clock.now += 10
        try:
            guard.apply(router, router.plan(remove=[f"n{i}"]))
        except GuardError:
            break
    return 8 - len(router)


def test_a_blind_detector_takes_out_few_nodes_and_without_the_rule_all() -> None:
    # At 3 nodes left, one that seems gone is a third of them: more than may be.
    assert cascade(guard_module) == 5
    line = "        if names and alive / len(names) < self.min_alive:"
    assert cascade(mutant(guard_module, a=line, b="        if False:")) == 8


# --- draining ---


class Socket:
    def __init__(self, log: list[float], broken: bool = False) -> None:
        self.log, self.broken = log, broken

    async def close(self, code: int, reason: str) -> None:
        self.log.append(asyncio.get_running_loop().time())
        assert code == 1012
        assert 0 <= (retry_after(reason) or 0) <= 0.02
        assert len(reason.encode()) <= 123
        if self.broken:
            raise OSError("gone")


def waves(module: Any, jitter: float) -> list[float]:
    log: list[float] = []
    count = asyncio.run(
        module.drain((Socket(log, i % 7 == 0) for i in range(25)), 10, 0.02, jitter, rng=random.Random(1))
    )
    assert count == 25
    times = [log[0], log[10], log[20]]
    assert log[9] - log[0] < 0.015
    return [b - a for a, b in pairwise(times)]


def test_waves_are_never_closer_than_they_should_be() -> None:
    assert all(gap >= 0.02 for gap in waves(drain_module, 0.5))


def test_that_test_finds_waves_without_a_pause() -> None:
    broken = mutant(drain_module, a="every * (1 + chance.uniform(0, jitter))", b="0")
    assert not all(gap >= 0.02 for gap in waves(broken, 0.5))


def test_nothing_to_drain_and_nonsense() -> None:
    assert asyncio.run(drain([])) == 0
    for wrong in ({"batch": 0}, {"every": -1}, {"jitter": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            asyncio.run(drain([], **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        ("retry-after=0.5", 0.5),
        ("retry-after=", None),
        ("retry-after=-1", None),
        ("retry-after=nan", None),
        ("", None),
        (None, None),
    ],
)
def test_the_hint_of_a_close(reason: str | None, seconds: float | None) -> None:
    assert retry_after(reason) == seconds


def test_backoff_is_full_jitter_and_the_first_retry_has_it_too() -> None:
    rng = random.Random(7)
    for attempt, most in [(0, 0.5), (1, 1.0), (5, 16.0), (7, 60.0), (10_000, 60.0)]:
        times = np.array([backoff(attempt, rng=rng) for _ in range(4000)])
        assert 0 <= times.min() < 0.01 * most
        assert 0.99 * most < times.max() <= most
        assert times.mean() == pytest.approx(most / 2, rel=0.05)
        deciles = np.histogram(times, 10, (0, most))[0]
        assert deciles.min() > 300  # spread out evenly
    assert backoff(3, base=0) == 0
    with pytest.raises(ValueError, match="attempt"):
        backoff(-1)
    with pytest.raises(ValueError, match="base and cap"):
        backoff(1, cap=float("inf"))


@pytest.mark.parametrize("kind", [list, tuple, iter, np.array, lambda keys: np.array(keys, object)])
def test_displaced_gives_just_those_that_the_plan_names(kind: Any) -> None:
    keys = [f"user:{i}" for i in range(5000)]
    before = Ring(["a", "b", "c"])
    after = before.with_nodes("d").without("a")
    found = displaced(before, Router(after), kind(keys))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [key for key in keys if before.owner(key) != after.owner(key)]
    assert found.tolist() == np.array(keys)[before.diff(after).mask(keys)].tolist()
    assert displaced(before, before, kind(keys)).tolist() == []


def test_displaced_of_integers_keeps_their_type_and_one_key_is_none() -> None:
    keys = np.arange(100, dtype=np.uint16)
    assert displaced(Ring(["a"]), Ring(["a", "b"]), keys).dtype == np.uint16
    assert displaced(Ring(["a"]), Ring(["b"]), []).tolist() == []
    with pytest.raises(TypeError, match="one key"):
        displaced(Ring(["a"]), Ring(["b"]), "user:7")


# --- the storm ---


def test_the_storm_shows_what_each_measure_is_worth() -> None:
    storms = {storm.name: storm for storm in simulate(nodes=5, add=1, clients=100_000)}
    modulo, ring = storms["modulo, at once"], storms["ring, at once"]
    assert modulo.displaced == pytest.approx(100_000 * 5 / 6, rel=0.01)
    assert ring.displaced == pytest.approx(100_000 / 6, rel=0.2)
    for storm in storms.values():
        assert sum(storm.per_second) == storm.displaced + storm.refused
    for method in ("modulo", "ring"):
        drained = storms[f"{method}, drained"]
        assert drained.refused == 0
        assert drained.peak <= 6000 * 1.2
        assert drained.peak < storms[f"{method}, at once"].peak / 2
    assert as_table(list(storms.values())).count("\n") == 4


def test_the_picture_of_a_storm_is_an_svg_that_needs_nothing_else() -> None:
    for clients in (0, 1, 5000):
        picture = as_svg(simulate(clients=clients))
        ET.fromstring(picture)
        assert picture.count("<polyline") == 4
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "wrong", [{"nodes": 0}, {"add": -5}, {"clients": -1}, {"every": 0}, {"batch": 0}, {"accept": 0}]
)
def test_a_storm_of_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        simulate(**wrong)

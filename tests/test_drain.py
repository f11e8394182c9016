"""Moving connections without a storm: the guard, the waves, the waiting, and the simulation."""

from __future__ import annotations

import asyncio
import random
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from ringhash import Ring, Router
from ringhash.reconnect import as_svg, as_table, backoff, displaced, drain, retry_after, simulate

# --- draining ---


class Socket:
    def __init__(self, log: list[float], broken: bool = False) -> None:
        self.log, self.broken = log, broken

    async def close(self, code: int, reason: str) -> None:
        self.log.append(0.0)
        assert code == 1012
        assert 0 <= (retry_after(reason) or 0) <= 60.0
        assert len(reason.encode()) <= 123
        if self.broken:
            raise OSError("gone")


def waves(every: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[float]]:
    """How many sockets are closed in each wave, and the pauses between them; nobody waits for real."""
    log: list[float] = []

    async def sleep(seconds: float) -> None:
        log.append(seconds + 1.0)  # a close is a 0

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        sockets = (Socket(log, i % 7 == 0) for i in range(25))
        assert asyncio.run(drain(sockets, 10, every, 0.5, rng=random.Random(1))) == 25
    sizes = [0]
    for entry in log:
        if entry:
            sizes.append(0)
        else:
            sizes[-1] += 1
    return sizes, [entry - 1.0 for entry in log if entry]


def test_waves_are_never_closer_than_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, pauses = waves(60.0, monkeypatch)
    assert sizes == [10, 10, 5]
    assert all(60.0 <= pause <= 90.0 for pause in pauses)
    assert len(set(pauses)) == 2, "each has a chance of its own"


def test_that_test_finds_waves_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not all(60.0 <= pause <= 90.0 for pause in waves(0.0, monkeypatch)[1])


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

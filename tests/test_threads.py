"""Readers never wait for a writer and never see half a change; processes and copies agree."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from chosen import NAMES, TIE, check_ring, key_at

from ringhash import Node, Ring, Router, StalePlanError
from ringhash.routing import RouterSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.core

CHANGES = 10_000
KEYS: list[Any] = ["user:7", "é", b"key", 7, 2**64 - 1, key_at(TIE)]
NUMBERS = np.array([5, 6, 7, key_at(TIE)], np.uint64)


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns every few microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def rings_of_the_cycle() -> list[Ring]:
    """What a writer goes through, again and again; some of it ties at one point."""
    first, second, third = NAMES[TIE][:3]
    start = Ring([first, second, "a", "b"], vnodes=2)
    one = start.without(first)
    two = one.with_nodes(third)
    three = two.with_weights({"a": 3.0})
    return [start, one, two, three]


def questions(target: Ring | Router) -> dict[str, Callable[[], Any]]:
    return {
        "owner": lambda: target.owner(KEYS[5]),
        "item": lambda: target[KEYS[5]],
        "owners": lambda: target.owners(KEYS[5], 2),
        "zones": lambda: target.owners(KEYS[5], 3, distinct="zone"),
        "walk": lambda: tuple(target.walk(KEYS[5])),
        "owner_many": lambda: tuple(target.owner_many(KEYS)),
        "index_many": lambda: tuple(target.index_many(NUMBERS).tolist()),
    }


def hammer(
    change: Callable[[Router, list[Ring], int], None], changes: int
) -> tuple[dict[str, int], dict[str, set[Any]]]:
    """Change a router while others read it; return how often each question was answered, and how."""
    rings = rings_of_the_cycle()
    router = Router(rings[0])
    asked = questions(router)
    counts, answers = dict.fromkeys(asked, 0), {name: set[Any]() for name in asked}
    done, ready = threading.Event(), threading.Barrier(len(asked) + 1)

    def read(name: str) -> int:
        ready.wait()
        count = 0
        while not done.is_set() or count < 100:
            answers[name].add(asked[name]())
            count += 1
        return count

    with ThreadPoolExecutor(len(asked)) as pool:
        readers = {name: pool.submit(read, name) for name in asked}
        ready.wait()
        try:
            for step in range(1, changes + 1):
                change(router, rings, step)
        finally:
            done.set()
        counts = {name: reader.result() for name, reader in readers.items()}
    return counts, answers


@pytest.mark.slow
def test_every_answer_is_that_of_an_epoch_that_was() -> None:
    rings = rings_of_the_cycle()
    plans = [rings[i].diff(rings[(i + 1) % 4]) for i in range(4)]

    def change(router: Router, rings: list[Ring], step: int) -> None:
        router.apply(plans[(step - 1) % 4])
        assert router.epoch == step

    counts, answers = hammer(change, CHANGES)
    assert min(counts.values()) >= 100
    for name in counts:
        possible = {questions(ring)[name]() for ring in rings}
        assert len(possible) > 1
        assert answers[name] <= possible, name
    assert sum(counts.values()) >= 700


def test_a_change_in_two_steps_would_be_noticed() -> None:
    """The negative control: a writer that shows a ring that never was, such as half of a change."""
    rings = rings_of_the_cycle()
    wrong = Ring(["half", "of", "it"], vnodes=2)

    def change(router: Router, rings: list[Ring], step: int) -> None:
        router._publish(RouterSnapshot(wrong if step % 2 else rings[0]), router.snapshot)
        time.sleep(0.001)

    counts, answers = hammer(change, 60)
    possible = {questions(ring)["walk"]() for ring in rings}
    assert counts["walk"] >= 100
    assert not answers["walk"] <= possible


@pytest.mark.parametrize("broken", [False, True])
def test_the_stress_finds_a_state_that_never_was(broken: bool) -> None:
    """stress_threads.py, in short; .ci/everywhere runs it for longer, and without the GIL."""
    stress = Path(__file__).with_name("stress_threads.py")
    command = [sys.executable, stress, "--seconds", "0.5", "states", *["--broken"] * broken]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == broken, ended.stdout + ended.stderr


@pytest.mark.slow
def test_writers_come_one_after_another() -> None:
    router = Router(vnodes=1)

    def work(worker: int) -> int:
        for i in range(100):
            router.add(f"{worker}-{i}")
            router.update(add=[f"{worker}-{i}-more"], remove=[f"{worker}-{i}"])
        return 200

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == router.epoch == 800
    assert list(router) == sorted(f"{worker}-{i}-more" for worker in range(4) for i in range(100))
    check_ring(router.placement)


def test_of_many_plans_for_one_epoch_one_is_applied() -> None:
    for _ in range(20):
        router = Router(["a"], vnodes=1)
        plans = [router.plan(add=[f"n-{i}"]) for i in range(4)]
        ready = threading.Barrier(4)

        def apply(
            i: int, router: Router = router, plans: list[Any] = plans, ready: threading.Barrier = ready
        ) -> int:
            ready.wait()
            try:
                router.apply(plans[i])
            except StalePlanError:
                return 0
            return 1

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(apply, range(4))) == 1
        assert router.epoch == 1
        assert len(router) == 2


def test_a_ring_is_shared_by_threads() -> None:
    ring = Ring((f"n-{i}" for i in range(100)), vnodes=20)
    keys = np.arange(20_000)
    expected, zones = ring.index_many(keys), ring.owners("key", 9, "zone")
    fresh = Ring(ring.nodes, vnodes=20)

    def work(_: int) -> int:
        for key in range(0, 2000, 7):
            assert fresh.owner(key) == ring.nodes[expected[key]].name
        assert (fresh.index_many(keys) == expected).all()
        assert fresh.owners("key", 9, "zone") == zones
        assert fresh.digest == ring.digest
        return len(keys)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(12))) == 12 * len(keys)


def test_one_walk_in_many_threads_names_no_node_that_is_not_there() -> None:
    ring = Ring((f"n-{i}" for i in range(200)), vnodes=3)
    walk = ring.walk("key")
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: list(walk), range(4)))
    assert {name for part in parts for name in part} == set(ring)


# -- processes -----------------------------------------------------------------------------------------------

RING = Ring(["a", "b", Node("c", 2.0, "z")], vnodes=30, seed=5, hash_tags=True)


def answers_of(ring: Ring) -> tuple[str, list[str], bytes, bytes]:
    return ring.digest, ring.owner_many(range(500)), ring.points.tobytes(), ring.point_owners.tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_an_equal_ring() -> None:
    reading, writing = os.pipe()
    router = Router(RING)
    child = os.fork()
    if child == 0:
        try:
            router.add("d")
            os.write(writing, pickle.dumps((answers_of(RING), router.epoch)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pickle.loads(pipe.read()) == (answers_of(RING), 1)
    assert os.waitpid(child, 0)[1] == 0
    assert router.epoch == 0


def test_a_spawned_process_gets_an_equal_ring() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answers_of, (RING,)) == answers_of(RING)
        assert pool.apply(pickle.dumps, (Router(RING),)) == pickle.dumps(Router(RING))


def test_copies_are_equal() -> None:
    for same in (copy.copy(RING), copy.deepcopy(RING), pickle.loads(pickle.dumps(RING)), Router(RING).placement,
                 copy.deepcopy(Router(RING)).placement):  # fmt: skip
        assert answers_of(same) == answers_of(RING)
        assert same == RING

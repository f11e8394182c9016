"""The guard: refuses automatic changes that look like a cascade."""

from __future__ import annotations

import contextlib
import pickle
import threading
from typing import Any

import pytest

from ringhash import Router
from ringhash.errors import GuardError
from ringhash.handover import Guard


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


def cascade(min_alive: float) -> int:
    """A detector goes blind: one node after another seems gone. How many are taken out?"""
    clock = Clock()
    router = Router([f"n{i}" for i in range(8)])
    guard = Guard(max_fraction=1, min_alive=min_alive, cooldown=0, grace=0, clock=clock)
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
    assert cascade(0.75) == 5
    assert cascade(0.0) == 8


# --- one cooldown lets one change through ---


class CheckedThenApplied(Guard):
    """The control: to check and to act are two steps."""

    def apply(self, router: Any, plan: Any, override: Any = ()) -> None:
        self.check(router, plan, override)
        router.apply(plan)
        self.changed()


class Meeting:
    """Two routers whose changes wait until both threads are in one, or until one was refused."""

    def __init__(self) -> None:
        self.meet = threading.Barrier(2)

    def router(self) -> Router:
        meet = self.meet

        class Slow(Router):
            def apply(self, plan: Any, **options: Any) -> None:
                with contextlib.suppress(threading.BrokenBarrierError):
                    meet.wait(60)
                super().apply(plan, **options)

        return Slow(["a", "b", "c"])


def passed(kind: type[Guard]) -> int:
    """Two threads apply a change at the same time; how many get through one cooldown."""
    meeting, guard = Meeting(), kind(max_fraction=1, min_alive=0, cooldown=300, grace=0)
    count: list[int] = []

    def change(router: Router) -> None:
        try:
            guard.apply(router, router.plan(add=["d"]))
            count.append(1)
        except GuardError:
            meeting.meet.abort()  # nobody is to wait for this one

    threads = [threading.Thread(target=change, args=(meeting.router(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return len(count)


def test_of_two_threads_one_passes_a_cooldown() -> None:
    assert passed(Guard) == 1


def test_that_test_finds_a_guard_that_checks_and_then_acts() -> None:
    assert passed(CheckedThenApplied) == 2


def test_a_change_that_fails_begins_no_cooldown() -> None:
    router, guard = Router(["a", "b", "c"]), Guard(max_fraction=1, min_alive=0, grace=0)
    stale = router.plan(add=["d"])
    router.add("e")
    with pytest.raises(RuntimeError, match="epoch"):
        guard.apply(router, stale)
    guard.apply(router, router.plan(add=["d"]))
    with pytest.raises(GuardError, match="cooldown"):
        guard.apply(router, router.plan(add=["f"]))


def test_nothing_of_others_runs_under_the_lock_of_the_guard() -> None:
    """The clock, the overrides and the router may all ask the guard: none of them waits for itself."""
    calls: list[str] = []

    def asks() -> None:
        assert guard._lock.acquire(blocking=False), "the guard holds its lock while others' code runs"
        guard._lock.release()

    def clock() -> float:
        calls.append("clock")
        asks()
        return 0.0

    class Asking(Router):
        def apply(self, plan: Any, **options: Any) -> None:
            calls.append("apply")
            asks()
            super().apply(plan, **options)

    def overrides() -> Any:
        calls.append("override")
        asks()
        yield "grace"

    guard = Guard(max_fraction=1, clock=clock)
    router = Asking(["a", "b", "c", "d"])
    guard.gone("x")
    guard.changed()
    guard.back("x")
    guard.cooldown = 0.0
    guard.apply(router, router.plan(remove=["a"]), override=overrides())
    assert {"clock", "apply", "override"} <= set(calls)
    assert "a" not in router

"""A change of a router is one step: whatever interrupts it, and whoever's code it meets on the way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ringhash
from ringhash import Node, Ring, Router, assign
from ringhash.ranges import Ranges
from ringhash.routing import Progress

ROOM = str(Path(ringhash.__file__).parent)
KEYS = [f"user:{i}" for i in range(60)]
RING = Ring(["a", "b", "c"], vnodes=4)
PLAN = RING.diff(RING.changed(add=["d"]))
DEAL = assign(12, ["a", "b", "c"])
DEAL_PLAN = DEAL.diff(DEAL.changed(add=["d"]))


class Interrupted(BaseException):
    """As KeyboardInterrupt: it may come between any two lines."""


def interrupt_at(count: int, action: Callable[[], object]) -> bool:
    """Run `action`, raise at its line number `count` within ringhash; return whether it got that far."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(ROOM) and frame.f_code.co_name != "_publish":
            return None
        if event == "line":
            seen += 1
            if seen == count:
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def seen_by_all(router: Router) -> tuple[object, ...]:
    """What a caller can learn, by every door."""
    one_by_one = [router.owner(key) for key in KEYS]
    return (
        tuple(one_by_one),
        tuple(router.owner_many(KEYS)),
        tuple(router.nodes[i].name for i in router.index_many(KEYS)),
        tuple(router.route(key).node for key in KEYS),
        tuple(router[key] for key in KEYS),
        router.names,
        router.epoch,
        router.down,
        tuple(router.pins.values()),
        router.placement.digest,
        None if router.running is None else (router.running.done, router.running.phase),
    )


CHANGES: dict[str, tuple[Ring | Any, Callable[[Router], object]]] = {
    "add": (RING, lambda r: r.add("d")),
    "remove": (RING, lambda r: r.remove("a")),
    "reweight": (RING, lambda r: r.reweight("a", 2.0)),
    "apply": (RING, lambda r: r.apply(PLAN)),
    "mark down": (RING, lambda r: r.mark_down("a", "b")),
    "pin": (RING, lambda r: r.pin(KEYS[0], "c" if r.owner(KEYS[0]) != "c" else "b")),
    "follow": (RING, lambda r: r.follow({**Router(RING.changed(add=["d"])).to_dict(), "epoch": 5})),
    "adopt": (RING, lambda r: r.adopt(["a", "e"], 7)),
    "carry": (RING, lambda r: r.carry(Progress(PLAN, PLAN.ranges, 3, "carried"))),
    "carry through": (RING, lambda r: r.carry(Progress(PLAN, PLAN.ranges, 3, "forward"))),
    "deal": (DEAL, lambda r: r.update(add=["d"], remove=["a"])),
    "carry a deal": (DEAL, lambda r: r.carry(Progress(DEAL_PLAN, DEAL_PLAN.ranges, 3))),
}


def find_torn(make: Callable[[], Router], change: Callable[[Router], object]) -> list[int]:
    """Interrupt a change at every one of its lines; return where what is left is neither old nor new."""
    fresh = make()
    before = seen_by_all(fresh)
    change(fresh)
    after = seen_by_all(fresh)
    assert before != after
    torn = []
    line = 1
    while True:
        router = make()
        reached = interrupt_at(line, lambda router=router: change(router))
        try:
            whole = seen_by_all(router) in (before, after)
        except LookupError:
            whole = False
        if not whole:
            torn.append(line)
        if not reached:
            assert line > 5, "there were no lines to interrupt"
            return torn
        if whole:
            name = "b" if "b" in router else "a"
            router.pin("another", name)  # and it goes on from there
            assert router.owner("another") == name or name in router.down
        line += 1


@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupted_change_leaves_the_old_state_or_the_new_one(name: str) -> None:
    placement, change = CHANGES[name]
    assert find_torn(lambda: Router(placement), change) == []


class TwoSteps(Router):
    """The negative control: the names are published a line before the rest."""

    __slots__ = ("shown",)

    @property
    def names(self) -> tuple[str, ...]:
        return getattr(self, "shown", self.snapshot.names)

    def _publish(self, snapshot: Any, expected: Any) -> bool:
        self.shown = snapshot.names
        published = super()._publish(snapshot, expected)
        return published  # noqa: RET504 - a line between the two, for the interruption


@pytest.mark.parametrize("name", ["add", "apply", "adopt", "deal"])
def test_a_publication_in_two_steps_is_found(name: str) -> None:
    placement, change = CHANGES[name]
    assert find_torn(lambda: TwoSteps(placement), change) != []


# --- code of others ---


class Meddler(str):
    """A name that changes the router whenever it is compared or hashed."""

    __slots__ = ()
    meddle: Callable[[], object] = staticmethod(lambda: None)

    def __eq__(self, other: object) -> bool:
        type(self).meddle()
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        type(self).meddle()
        return str.__hash__(self)


class Weights(Mapping[str, float]):
    """Weights that change the router while they are read."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self.meddle = meddle

    def __getitem__(self, name: str) -> float:
        self.meddle()
        return 2.0

    def __iter__(self) -> Iterator[str]:
        self.meddle()
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def meddling(router: Router, name: str) -> Iterator[str]:
    """Names whose reading changes the router."""
    if "x" not in router:
        router.add("x")
    yield name


SCENES: dict[str, Callable[[Router], object]] = {
    "add": lambda r: r.update(add=meddling(r, "y")),
    "remove": lambda r: r.update(remove=meddling(r, "a")),
    "reweight": lambda r: r.update(reweight=Weights(lambda: "x" in r or r.add("x"))),
    "adopt": lambda r: r.adopt(meddling(r, "y"), 9),
    "plan": lambda r: r.plan(add=meddling(r, "y")),
}


def within(seconds: float, action: Callable[[], object]) -> list[BaseException]:
    """Run `action` in a thread; return what it raised, or a TimeoutError where it hangs."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - it is returned
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return [TimeoutError("it hangs")] if thread.is_alive() else raised


@pytest.mark.parametrize("scene", SCENES)
def test_arguments_may_change_the_router_while_they_are_read(scene: str) -> None:
    router = Router(["a", "b"], vnodes=4)
    assert within(60, lambda: SCENES[scene](router)) == []
    assert router.owner_many(KEYS) == [router.owner(key) for key in KEYS]
    assert ("x" in router) == (scene != "adopt")


class Locked(Router):
    """The negative control: a change that reads its arguments under a lock."""

    __slots__ = ("lock",)

    def update(self, *arguments: Any, **options: Any) -> Any:
        self.lock = getattr(self, "lock", None) or threading.Lock()
        if not self.lock.acquire(timeout=0.1):
            raise TimeoutError("it hangs")
        try:
            return super().update(*arguments, **options)
        finally:
            self.lock.release()


def test_a_lock_around_foreign_code_is_found() -> None:
    router = Locked(["a", "b"], vnodes=4)
    assert [type(error) for error in within(60, lambda: SCENES["add"](router))] == [TimeoutError]


def test_names_that_run_code_when_compared_run_none_within_a_change() -> None:
    router = Router(["a", "b"], vnodes=4)
    name = Meddler("a")
    called = []

    def meddle() -> None:
        if not called:
            called.append(1)
            router.add("x")

    Meddler.meddle = staticmethod(meddle)
    try:
        for change in (
            lambda: router.mark_down(name), lambda: router.mark_up(name), lambda: router.pin("k", name),
            lambda: router.update(remove=[name], add=[Node("a", zone="z")]),
        ):  # fmt: skip
            assert within(60, change) == []
    finally:
        Meddler.meddle = staticmethod(lambda: None)
    assert router.owner("k") == "a"
    assert all(type(name) is str for name in router)


def test_a_change_within_a_change_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler or a finaliser changes the router while another change is being made."""
    router = Router(["a", "b"], vnodes=4)
    genuine = Ring.diff
    calls = []

    def diff(self: Ring, after: Any) -> Any:
        if not calls:
            calls.append(1)
            router.add("from the handler")
        return genuine(self, after)

    monkeypatch.setattr(Ring, "diff", diff)
    router.add("c")
    assert router.names == ("a", "b", "c", "from the handler")
    assert router.epoch == 2


def test_done_is_compared_by_value() -> None:
    router = Router(RING)
    router.carry(Progress(PLAN, PLAN.ranges, 1))
    epoch = router.epoch
    assert router.carry(Progress(PLAN, Ranges.of(list(PLAN.ranges)), 1)) == epoch

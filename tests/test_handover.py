"""Handovers that really run: the pieces, threads and asyncio, what fails, what waits, interruptions."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import Plan, Ring, Router, StalePlanError, assign
from ringhash.errors import HandoverError, HandoverRunningError, PinnedNodeError
from ringhash.handover import Handover, Piece, cut
from ringhash.handover import driver as driver_module

KEYS = [f"user:{i}" for i in range(3000)]


def nothing(piece: Piece) -> None:
    pass


def gentle(router: Router, plan: Any, **options: Any) -> Handover:
    return Handover(router, plan, **{"stop": nothing, "start": nothing, "pause": 0.0, **options})


class Clock:
    """A clock that stands still until it is told otherwise."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- pieces ---


@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from(["pair", "range"]),
    st.sampled_from([None, 1.0, 0.1, 0.003]),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_the_pieces_are_the_plan(count: int, added: int, by: Any, most: float | None, removed: int) -> None:
    names = [f"n{i}" for i in range(count)]
    plan = Router(names, vnodes=8).plan(add=[f"m{i}" for i in range(added)], remove=names[:removed])
    pieces = cut(plan, by, most)
    ranges = sorted((r, p.source, p.target) for p in pieces for r in p.ranges)
    assert all(a[0].end < b[0].start for a, b in pairwise(ranges))
    joined: list[list[Any]] = []
    for (start, end), source, target in ranges:
        if joined and joined[-1][1] == start - 1 and joined[-1][2:] == [source, target]:
            joined[-1][1] = end
        else:
            joined.append([start, end, source, target])
    assert joined == [[m.range.start, m.range.end, m.source, m.target] for m in plan.moves]
    assert sum(p.share or 0 for p in pieces) == pytest.approx(plan.fraction)
    assert all((p.share or 0) <= (most or 1) for p in pieces)
    if by == "pair" and most is None:
        assert len({(p.source, p.target) for p in pieces}) == len(pieces)
    mask = np.zeros(len(KEYS), bool)
    for piece in pieces:
        mask |= piece.mask(KEYS)
    assert mask.tolist() == plan.mask(KEYS).tolist()
    for piece in pieces[:2]:
        assert [key in piece for key in KEYS[:50]] == piece.mask(KEYS[:50]).tolist()


def test_a_plan_of_shards_is_cut_in_the_same_way() -> None:
    before = assign(64, ["w-1", "w-2"])
    plan = before.diff(assign(64, ["w-1", "w-2", "w-3"], before))
    pieces = cut(plan, max_share=4 / 64)
    assert all(piece.target == "w-3" for piece in pieces)
    assert sum(piece.share or 0 for piece in pieces) == pytest.approx(plan.fraction)
    moved = np.logical_or.reduce([piece.mask(KEYS) for piece in pieces])
    assert moved.tolist() == plan.mask(KEYS).tolist()
    assert [any(key in piece for piece in pieces) for key in KEYS[:50]] == moved[:50].tolist()
    with pytest.raises(StalePlanError):
        gentle(Router(["w-1", "w-2"]), plan)


def plans() -> list[Plan]:
    shards = assign(64, ["w-1", "w-2"])
    return [
        Router(["a", "b"], seed=2**64 - 1).plan(add=["c"]),
        Router(["a", "b"], hash_tags=True).plan(remove=["a"]),
        Router(["a"]).plan(remove=["a"]),
        shards.diff(assign(64, ["w-1", "w-3"], shards)),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_piece_that_was_sent_as_json_knows_its_keys_elsewhere(number: int) -> None:
    plan = plans()[number]
    for piece in cut(plan):
        text = json.dumps(piece.to_dict())
        there = Piece.from_dict(json.loads(text))
        assert there == piece
        assert there.mask(KEYS).tolist() == piece.mask(KEYS).tolist()
        assert [key in there for key in KEYS[:50]] == [key in piece for key in KEYS[:50]]
        assert there.reversed() == piece.reversed()
        record = json.loads(text)
        assert (record["kind"], record["version"]) == ("piece", 1)
        for name in ("share", "back", "token", "repeat", "version"):
            del record[name]
        assert Piece.from_dict(record).ranges == piece.ranges


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "plan"}, 'piece.kind: must be "piece"'),
        ({"number": -1}, "must not be negative"),
        ({"token": True}, "piece.token"),
        ({"share": 2}, "piece.share"),
        ({"source": "c"}, "two nodes"),
        ({"target": ""}, "two nodes"),
        ({"ranges": [[5, 2]]}, "piece.ranges"),
        ({"ranges": [[0, 2**32]]}, "piece.ranges"),
        ({"space": {"kind": "what"}}, "piece.space"),
        ({"space": None}, "piece.space"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_what_a_piece_of_json_must_be(change: dict[str, Any], message: str) -> None:
    record = json.loads(json.dumps(cut(Router(["a"]).plan(add=["c"]))[0].to_dict()))
    with pytest.raises(ValueError, match=message):
        Piece.from_dict({**record, **change})


def test_a_piece_knows_its_edges_and_its_way_back() -> None:
    piece = cut(Router(["a"], vnodes=2).plan(add=["b"]))[0]
    for start, end in piece.ranges:
        assert piece.holds(start)
        assert piece.holds(end)
    assert piece.reversed().reversed() == piece
    assert (piece.reversed().source, piece.reversed().back) == (piece.target, True)
    with pytest.raises(ValueError, match="by must be"):
        cut(Router(["a"]).plan(add=["b"]), by="node")  # type: ignore[arg-type]
    for wrong in (0, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="max_share"):
            cut(Router(["a"]).plan(add=["b"]), max_share=wrong)


# --- drivers ---


@pytest.mark.parametrize("kind", ["threads", "asyncio", "threads, coroutines", "asyncio, functions"])
@pytest.mark.parametrize("as_mover", [False, True])
def test_both_drivers_make_the_same_calls(kind: str, as_mover: bool) -> None:
    router = Router(["a", "b", "c"])
    calls: list[tuple[str, Any, Any]] = []

    def noted(name: str) -> Any:
        def function(piece: Piece) -> None:
            calls.append((name, piece.source, piece.target))

        async def coroutine(piece: Piece) -> None:
            await asyncio.sleep(0)
            function(piece)

        return coroutine if kind in ("asyncio", "threads, coroutines") else function

    functions = {name: noted(name) for name in ("prepare", "stop", "start", "finish")}
    if as_mover:
        functions = {"mover": type("Mine", (), {n: staticmethod(f) for n, f in functions.items()})()}
    seen: list[float] = []
    handover = Handover(
        router, router.plan(add=["d"]), pause=0.0, progress=lambda it: seen.append(it.fraction), **functions
    )

    def run() -> Any:
        return asyncio.run(handover.arun()) if kind.startswith("asyncio") else handover.run()

    status = run()
    assert (status.over, status.awaits_finish, status.counts) == (False, True, {"DONE": 3})
    assert str(status).endswith("(3 DONE); finish or reverse it")
    assert calls == [(name, s, "d") for s in "abc" for name in ("prepare", "stop", "start")]
    assert router.owner_many(KEYS) == Ring(["a", "b", "c", "d"]).owner_many(KEYS)
    with pytest.raises(HandoverRunningError, match="finish it or reverse it"):
        router.add("e")
    handover.finish()
    status = run()
    assert (status.over, status.counts) == (True, {"FINISHED": 3})
    assert calls[9:] == [("finish", s, "d") for s in "abc"]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert router.placement == Ring(["a", "b", "c", "d"])
    assert router.epoch == 5
    router.add("e")  # and it is free again
    with pytest.raises(HandoverError, match="inverse"):
        handover.reverse()


@pytest.mark.parametrize("driver", ["threads", "asyncio"])
def test_what_fails_or_hangs_stays_with_its_old_owner(driver: str) -> None:
    router = Router(["a", "b", "c"])
    clock, undone = Clock(), []
    let_go = threading.Event()

    async def async_stop(piece: Piece) -> object:
        if piece.source == "a" and not piece.back:
            clock.now += 100  # longer than a stop may take
            handover.retry()  # something that wakes the driver, which need not wait for real
            await asyncio.sleep(3600)
        return finish_stop(piece)

    def stop(piece: Piece) -> object:
        if piece.source == "a" and not piece.back:
            clock.now += 100
            handover.retry()
            let_go.wait(60)
        return finish_stop(piece)

    def finish_stop(piece: Piece) -> object:
        if piece.source == "b":
            raise OSError("no route to host")
        return piece.source != "c"

    def cancel(piece: Piece) -> None:
        let_go.set()

    class Moves:
        def __init__(self) -> None:
            self.stop = async_stop if driver == "asyncio" else stop
            self.start = nothing
            self.cancel = cancel

        def undo(self, piece: Piece) -> None:
            undone.append(piece.source)

    handover = Handover(router, router.plan(add=["d"]), Moves(), timeout={"stop": 20}, pause=0.0, clock=clock)
    status = asyncio.run(handover.arun()) if driver == "asyncio" else handover.run()
    assert status.counts == {"KEPT": 1, "FAILED": 2}
    assert undone == ["a", "b", "c"]
    assert [it.note.split(":")[0] for it in status.pieces] == [
        "stop was not confirmed within 20 s",
        "OSError",
        "stop returned False",
    ]
    assert router.owner_many(KEYS) == Ring(["a", "b", "c"]).owner_many(KEYS)
    with pytest.raises(HandoverRunningError):
        router.add("e")
    handover.reverse()
    assert handover.run().over
    assert router.placement == Ring(["a", "b", "c"])
    with pytest.raises(HandoverError, match="inverse"):
        handover.reverse()


def test_a_function_that_hangs_in_a_thread_is_not_called_beside_itself_by_asyncio() -> None:
    """A task can be cancelled, the thread it waits for cannot: the next call waits until it is back."""
    router = Router(["a"])
    clock, inside, most = Clock(), 0, 0
    let_go = threading.Event()
    lock = threading.Lock()

    def stop(piece: Piece) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        clock.now += 100
        handover.retry()
        let_go.wait(60)
        with lock:
            inside -= 1

    def undo(piece: Piece) -> None:
        nonlocal most
        with lock:
            most = max(most, inside + 1)

    def progress(status: Any) -> None:
        if "not confirmed" in status.pieces[0].note:
            let_go.set()

    handover = gentle(
        router, router.plan(add=["b"]), stop=stop, undo=undo, clock=clock, timeout=20, progress=progress
    )
    status = asyncio.run(handover.arun())
    assert (status.counts, most) == ({"KEPT": 1}, 1)


def test_abort_from_another_thread_then_retry() -> None:
    router = Router(["a", "b", "c"])

    def start(piece: Piece) -> None:
        if piece.source == "b":
            handover.abort()

    handover = gentle(router, router.plan(add=["d"]), start=start)
    assert handover.run().counts == {"DONE": 2, "PENDING": 1}
    done = [p for p in handover.pieces if p.source != "c"]
    assert all((router.owner(key) == "d") == any(key in p for p in done) for key in KEYS)
    handover.retry()
    assert handover.run().over


def test_parallel_pieces_run_at_once_and_never_two_of_one_node() -> None:
    router = Router([f"n{i}" for i in range(4)])
    busy: list[str | None] = []
    most = 0
    lock = threading.Lock()
    three = threading.Barrier(3)

    def stop(piece: Piece) -> None:
        nonlocal most
        with lock:
            assert not {piece.source, piece.target} & set(busy)
            busy.extend([piece.source, piece.target])
            most = max(most, len(busy) // 2)
        if piece.number in first:
            three.wait(60)  # all three are in hand at one time

    def start(piece: Piece) -> None:
        with lock:
            busy.remove(piece.source)
            busy.remove(piece.target)

    handover = gentle(router, router.plan(add=["m0", "m1", "m2"]), stop=stop, start=start, parallel=3)
    first: list[int] = []
    for piece in handover.pieces:
        if not any(piece.nodes & handover.pieces[other].nodes for other in first):
            first.append(piece.number)
    assert len(first) == 3
    assert handover.run().over
    assert most == 3


def test_a_lost_node_is_not_waited_for() -> None:
    router = Router(["a", "b", "c"])
    let_go = threading.Event()

    def stop(piece: Piece) -> None:
        if piece.source == "a":
            handover.lost("a")
            let_go.wait(600)  # a node that is gone never answers

    handover = gentle(router, router.plan(remove=["a"]), stop=stop)
    try:
        assert handover.run().over
    finally:
        let_go.set()


# --- what waits ---


def test_a_prepared_piece_catches_up_until_go() -> None:
    router = Router(["a", "b"])
    calls: list[str] = []

    class Copy:
        def prepare(self, piece: Piece) -> None:
            calls.append("prepare")

        def hold(self, piece: Piece) -> None:
            calls.append("hold")
            assert {router.owner(key) for key in KEYS if key in piece} == {piece.source}
            if calls.count("hold") == 2:
                handover.go(piece)
            elif calls.count("hold") == 4:
                handover.go(1)

        def stop(self, piece: Piece) -> None:
            calls.append("stop")

        def start(self, piece: Piece) -> None:
            calls.append("start")

    clock = Clock()
    handover = Handover(router, router.plan(add=["c"]), Copy(), pause=0.0, wait=True, clock=clock)
    ticking = threading.Thread(target=lambda: handover.run())
    ticking.start()
    while ticking.is_alive():
        clock.now += 0.2  # the pause between two catch-ups
        ticking.join(0.001)
        handover._driver.post("wake")
    status = handover.status()
    assert status.over
    steps = [name for name, following in pairwise([*calls, "end"]) if name != "hold" or following != "hold"]
    assert steps == ["prepare", "hold", "stop", "start"] * 1 + ["prepare", "hold", "stop", "start"]
    assert calls.index("stop") >= 3
    with pytest.raises(ValueError, match="no piece 2"):
        handover.go(2)


def test_a_plan_waits_behind_the_handover_that_runs() -> None:
    router = Router(["a", "b"])
    second: list[Handover] = []
    threads: list[threading.Thread] = []
    order: list[str | None] = []

    def start(piece: Piece) -> None:
        order.append(piece.target)
        if not second:
            running = router.running
            assert running is not None
            plan = running.after.diff(running.after.changed(add=["d"]))
            with pytest.raises(HandoverRunningError):
                gentle(router, plan)
            with pytest.raises(StalePlanError, match=r"running\.after"):
                gentle(router, router.placement.diff(router.placement.changed(add=["d"])), behind=True)
            second.append(gentle(router, plan, start=start, behind=True))
            threads.append(threading.Thread(target=second[0].run))
            threads[0].start()

    assert gentle(router, router.plan(add=["c"]), start=start).run().over
    threads[0].join(60)
    assert second[0].status().over
    assert order == ["c", "c", "d", "d", "d"]
    assert router.placement == Ring(["a", "b", "c", "d"])
    assert router.epoch == 4 + 5 - 0


def test_a_plan_that_waits_is_stale_when_the_other_one_goes_back_and_can_be_given_up() -> None:
    router = Router(["a", "b"])
    first = gentle(router, router.plan(add=["c"]), start=lambda piece: piece.source != "b")
    first.run()
    running = router.running
    assert running is not None
    plan = running.after.diff(running.after.changed(add=["d"]))
    second = gentle(router, plan, behind=True)
    second.abort()
    assert second.run().mode == "ABORT"
    second.retry()
    first.reverse()
    first.run()
    with pytest.raises(StalePlanError):
        second.run()
    assert router.placement == Ring(["a", "b"])


# --- hooks, and calls that are wrong ---


@pytest.mark.parametrize("driver", ["threads", "asyncio"])
def test_an_error_of_a_hook_is_logged_and_changes_nothing(
    driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    router = Router(["a", "b"])
    told: list[Any] = []

    def progress(status: Any) -> None:
        told.append(status)
        raise RuntimeError("nobody looks")

    def on_epoch(document: Any) -> None:
        told.append(document)
        raise RuntimeError("nobody hears")

    handover = gentle(router, router.plan(add=["c"]), progress=progress, on_epoch=on_epoch)
    with caplog.at_level(logging.ERROR, "ringhash.handover"):
        status = asyncio.run(handover.arun()) if driver == "asyncio" else handover.run()
    assert (status.over, status.counts) == (True, {"DONE": 2})
    assert len(caplog.records) == len(told) > 4
    epochs = [it["epoch"] for it in told if isinstance(it, dict)]
    assert epochs == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="plain function"):
        gentle(router, router.plan(add=["d"]), progress=asyncio.sleep)


def test_a_handover_without_a_stop_or_with_two_movers_is_refused() -> None:
    router = Router(["a", "b"])
    plan = router.plan(add=["c"])
    with pytest.raises(TypeError, match="needs start"):
        Handover(router, plan, stop=nothing)
    with pytest.raises(TypeError, match="not both"):
        Handover(router, plan, type("M", (), {"stop": nothing, "start": nothing})(), undo=nothing)
    with pytest.raises(TypeError, match="prepare must be a function"):
        gentle(router, plan, prepare=3)
    with pytest.raises(HandoverError, match="nothing to finish"):
        gentle(router, plan).finish()
    router.pin("x", "a")
    with pytest.raises(PinnedNodeError):
        gentle(router, router.plan(remove=["a"]))


def test_pins_that_are_set_meanwhile_raise_the_epoch_and_nothing_else() -> None:
    router = Router(["a", "b"])
    epochs: list[int] = []

    def start(piece: Piece) -> None:
        router.pin(f"pinned:{piece.number}", "a")

    handover = gentle(
        router, router.plan(add=["c"]), start=start, on_epoch=lambda it: epochs.append(it["epoch"])
    )
    assert handover.run().over
    assert epochs == sorted(set(epochs))
    assert (epochs[-1], handover.status().epoch) == (router.epoch, router.epoch)
    assert router.owner("pinned:0") == router.owner("pinned:1") == "a"


def test_a_change_without_moves_is_carried_out_too() -> None:
    router = Router(assign(12, ["a", "b"]))
    after = router.placement.changed(reweight={"a": 1.0001})
    plan = router.plan_to(after)
    if len(plan):
        pytest.skip("this weight moves a shard")
    assert gentle(router, plan).run().over
    assert router.placement.digest == after.digest


# --- interruptions ---


class Interrupt(BaseException):
    """As a KeyboardInterrupt, which tests must not raise for real."""


@pytest.mark.parametrize("driver", ["threads", "asyncio"])
@pytest.mark.parametrize("where", ["turn", "wait", "at_end"])
def test_a_run_that_was_interrupted_can_be_called_again(
    driver: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every turn: the commands of that turn are lost, and the calls must be made all the same."""
    asked = "wait_seconds" if (where, driver) == ("wait", "asyncio") else where
    genuine = getattr(driver_module.Driver, asked)

    def interrupted_after(count: int) -> bool:
        router = Router(["a", "b"])
        calls: list[tuple[str, int, bool]] = []
        left = count

        def interrupted(self: Any) -> Any:
            nonlocal left
            found = genuine(self)
            left -= 1
            if left == -1:
                raise Interrupt
            return found

        monkeypatch.setattr(driver_module.Driver, asked, interrupted)
        handover = Handover(
            router, router.plan(add=["c"]), pause=0.0,
            stop=lambda piece: calls.append(("stop", piece.number, piece.repeat)),
            start=lambda piece: calls.append(("start", piece.number, piece.repeat)),
        )  # fmt: skip

        def run() -> Any:
            return asyncio.run(handover.arun()) if driver == "asyncio" else handover.run()

        try:
            status = run()
        except Interrupt:
            assert router.running is not None or router.epoch in (0, 4)
            status = run()
        assert status.over
        assert router.placement == Ring(["a", "b", "c"])
        assert {call[:2] for call in calls} == {(c, n) for c in ("stop", "start") for n in (0, 1)}
        return left < 0

    interrupted = next(count for count in range(100) if not interrupted_after(count))
    assert interrupted > (0 if where == "at_end" else 3)


def test_a_call_of_an_interrupted_run_comes_back_before_it_is_made_again() -> None:
    router = Router(["a"])
    inside, most, runs = 0, 0, 0
    lock = threading.Lock()
    entered, let_go = threading.Event(), threading.Event()

    def stop(piece: Piece) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        entered.set()
        let_go.wait(60)
        with lock:
            inside -= 1

    def progress(status: Any) -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise Interrupt
        if runs > 2:
            let_go.set()

    handover = gentle(router, router.plan(add=["b"]), stop=stop, progress=progress)

    def interrupt() -> None:
        entered.wait(60)
        handover.retry()  # a turn with something to tell

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupt):
        handover.run()
    thread.join(60)
    assert handover.run().over
    assert most == 1


def test_two_runs_at_once_are_refused() -> None:
    router = Router(["a"])
    refused: list[BaseException] = []

    def stop(piece: Piece) -> None:
        try:
            handover.run()
        except HandoverRunningError as error:
            refused.append(error)

    handover = gentle(router, router.plan(add=["b"]), stop=stop)
    assert handover.run().over
    assert len(refused) == 1

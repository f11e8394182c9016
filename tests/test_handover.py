"""Handovers that really run: threads, asyncio, the journal, a process that is killed, routing meanwhile."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ringhash.router as router_module
import ringhash.transit as transit_module
from handover_world import mutant
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ringhash.handover.journal as journal_module
from ringhash import Ring, Router, StalePlanError, assign
from ringhash.errors import (
    HandoverError,
    HandoverRunningError,
    JournalError,
    Moved,
    PinnedNodeError,
    StaleRouterError,
)
from ringhash.handover import Handover
from ringhash.handover.journal import Journal
from ringhash.handover.machine import Record
from ringhash.handover.pieces import Piece, cut
from ringhash.handover.run import read_status

KEYS = [f"user:{i}" for i in range(3000)]
SPACE = 2**32


def nothing(piece: Piece) -> None:
    pass


def gentle(router: Router, plan: Any, **options: Any) -> Handover:
    return Handover(router, plan, **{"stop": nothing, "start": nothing, "pause": 0.0, **options})


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
        if (joined and joined[-1][1:] == [start - 1, source, target]) or (
            joined and joined[-1][1] == start - 1 and joined[-1][2:] == [source, target]
        ):
            joined[-1][1] = end
        else:
            joined.append([start, end, source, target])
    assert joined == [[m.range.start, m.range.end, m.source, m.target] for m in plan.moves]
    assert sum(p.share for p in pieces) == pytest.approx(plan.fraction)
    assert all(p.share <= (most or 1) for p in pieces)
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
    after = assign(64, ["w-1", "w-2", "w-3"], before)
    plan = before.plan(after)
    pieces = cut(plan, max_share=4 / 64)
    assert all("w-3" in piece.nodes for piece in pieces)
    assert sum(piece.share for piece in pieces) == pytest.approx(plan.fraction)
    moved = np.logical_or.reduce([piece.mask(KEYS) for piece in pieces])
    assert moved.tolist() == plan.mask(KEYS).tolist()
    assert [any(key in piece for piece in pieces) for key in KEYS[:50]] == moved[:50].tolist()
    with pytest.raises(StalePlanError):
        gentle(Router(["w-1", "w-2"]), plan)


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


# --- routing in the middle ---


def routes_right(data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(data.draw(st.integers(1, 6)))]
    gone = data.draw(st.lists(st.sampled_from(names), unique=True))
    new = [f"m{i}" for i in range(data.draw(st.integers(0, 2)))]
    router = Router(names, vnodes=data.draw(st.sampled_from([1, 2, 40])), hash_tags=data.draw(st.booleans()))
    plan = router.plan(add=new, remove=gone)
    before, after = router.ring, router.ring._changed(plan.changes)
    pieces = list(data.draw(st.permutations(cut(plan, data.draw(st.sampled_from(["pair", "range"])), 0.2))))
    router._begin(plan)
    done = np.zeros(len(KEYS), bool)
    olds = before.owner_many(KEYS)
    news = after.owner_many(KEYS) if len(after) else olds
    for number in range(len(pieces) + 1):
        if number:
            done |= pieces[number - 1].mask(KEYS)
            router._advance([r for p in pieces[:number] for r in p.ranges], 1 + number)
        if not len(after) and number == len(pieces):
            break
        expected = [b if it else a for a, b, it in zip(olds, news, done, strict=True)]
        # All of these at once, since a comparison of long lists that fails is drawn for minutes.
        wrong = [key for key, a, b in zip(KEYS, router.owner_many(KEYS), expected, strict=True) if a != b]
        wrong += [key for key, name in zip(KEYS[:40], expected, strict=False) if router.owner(key) != name]
        indexes = router.index_many(KEYS)
        wrong += [k for k, i, b in zip(KEYS, indexes, expected, strict=True) if router.nodes[i].name != b]
        assert not wrong[:5]
        for key, owner in zip(KEYS[:20], expected, strict=False):
            walk = tuple(router.walk(key))
            assert walk[0] == owner
            assert len(set(walk)) == len(walk)
            assert router.owners(key, len(walk)) == walk
            assert router.owners(key, 1, distinct="zone") == (owner,)
            route, move = router.route(key), plan.move_of(key)
            assert (route.node, route.epoch) == (owner, 1 + number)
            assert (route.source, route.target) == ((move.source, move.target) if move else (None, None))
            assert route.moving == (move is not None and not done[KEYS.index(key)])
        copies: list[Router] = [Router.from_dict(router.to_dict()), pickle.loads(pickle.dumps(router))]
        assert all(copy == router and copy.owner_many(KEYS) == expected for copy in copies)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_the_owner_is_the_old_one_until_its_piece_is_done_and_the_new_one_after(data: st.DataObject) -> None:
    routes_right(data)


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("        mine = mine[~np.isin(mine, kept)]", "        mine = mine[:0]"),
        ("        here = _inside(at, starts, ends) == done", "        here = np.full(len(at), done)"),
        (
            "bounds = np.unique(np.concatenate((ends, starts[starts > 0] - 1, [SPACE - 1])))",
            "bounds = np.unique(ends)",
        ),
    ],
    ids=["no points at the bounds", "all points of the ring after", "no points before what is done"],
)
def test_that_test_finds_a_table_with(line: str, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "Transit", mutant(transit_module, a=line, b=without).Transit)
    quick = settings(
        max_examples=200, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        quick(given(st.data())(routes_right))()


def test_the_first_nodes_own_nothing_until_all_is_done() -> None:
    router = Router()
    plan = router.plan(add=["a", "b"])
    pieces = cut(plan)
    router._begin(plan)
    with pytest.raises(LookupError, match="no key has an owner"):
        router.owner("x")
    router._advance(pieces[0].ranges, 2)
    with pytest.raises(LookupError):
        router.owners("x", 1)
    router._advance([r for p in pieces for r in p.ranges], 3)
    assert router.owner("x") == Ring(["a", "b"]).owner("x")


def test_a_lookup_meanwhile_costs_what_a_plain_one_costs() -> None:
    ring = Ring([f"n{i}" for i in range(100)])
    router = Router(ring)
    transit = router._begin(router.plan(add=["new"]))
    assert type(transit).__mro__[1].__name__ == "Table"  # the same compiled lookup, of as many points
    assert len(transit.points) <= len(ring.points) + 2 * len(transit.plan) + 1


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_nodes_that_are_down_and_pinned_keys_meanwhile(data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(4)]
    router = Router(names, vnodes=20)
    plan = router.plan(add=["m0"], remove=["n0"])
    before, after = router.ring, router.ring._changed(plan.changes)
    pieces = list(data.draw(st.permutations(cut(plan))))
    count = data.draw(st.integers(0, len(pieces)))
    down = data.draw(st.lists(st.sampled_from([*names, "m0"]), unique=True, max_size=3))
    members = [name for name in down if name != "m0"]
    pin = data.draw(st.sampled_from(["n1", "n2"]))
    router.pin(KEYS[0], pin)
    if data.draw(st.booleans()):
        router.mark_down(*members)
    router._begin(plan)
    router._advance([r for p in pieces[:count] for r in p.ranges], 2)
    router.mark_down(*down)
    one, other = (ring.without(*(name for name in down if name in ring)) for ring in (before, after))
    done = np.zeros(len(KEYS), bool)
    for piece in pieces[:count]:
        done |= piece.mask(KEYS)
    olds, news = one.owner_many(KEYS), other.owner_many(KEYS)
    expected = [new if it else old for old, new, it in zip(olds, news, done, strict=True)]
    if pin not in down:
        expected[0] = pin
    assert router.owner_many(KEYS) == expected
    assert [router.nodes[i].name for i in router.index_many(KEYS)] == expected
    for key, owner in zip(KEYS[:30], expected, strict=False):
        assert router.owner(key) == router.route(key).node == next(router.walk(key)) == owner
        assert router.owners(key, 1, distinct="zone") == (owner,)
    copy: Router = pickle.loads(pickle.dumps(router))
    assert copy.owner_many(KEYS) == expected
    assert copy.down == router.down
    replica = Router(names, vnodes=20)
    replica.mark_down(*members)
    assert replica.follow(router.to_dict())  # marks are each router's own, and stay
    assert replica.down == tuple(sorted(members))
    if down:
        assert router.mark_up(*down)
    router._leave(data.draw(st.booleans()), 9)
    assert (router.epoch, router.owner(KEYS[0]), router.down) == (9, pin, ())


def test_a_node_with_pinned_keys_is_not_handed_over() -> None:
    router = Router(["a", "b"])
    plan = router.plan(remove=["a"])
    router.pin("x", "a")
    with pytest.raises(PinnedNodeError):
        gentle(router, plan)


def test_check_and_follow() -> None:
    router = Router(["a", "b"])
    replica = Router.from_dict(router.to_dict())
    plan = router.plan(add=["c"])
    key = next(key for key in KEYS if plan.move_of(key))
    old = router.owner(key)
    done: list[int] = []

    def start(piece: Piece) -> None:
        done.append(router.epoch)
        if key in piece:
            router.check(key, old, 0)  # the old one, until the start is confirmed
            assert router.route(key).moving

    gentle(router, plan, start=start).run()
    assert router.owner(key) == "c"
    with pytest.raises(Moved) as moved:
        router.check(key, old, 0)
    assert (moved.value.to, moved.value.epoch) == ("c", router.epoch)
    assert pickle.loads(pickle.dumps(moved.value)).to == "c"
    with pytest.raises(StaleRouterError, match="bring it up to date"):
        replica.check(key, "c", router.epoch)
    assert replica.follow(router.to_dict())
    replica.check(key, "c", router.epoch)
    assert not replica.follow(router.to_dict())
    assert done == [1, 2]
    assert router.epoch == 4


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_client_comes_to_the_owner_in_two_hops(data: st.DataObject) -> None:
    """Each node has a router of its own that lags behind; only what a node gave or took it surely knows."""
    router = Router(["a", "b", "c"], vnodes=4)
    plan = router.plan(add=["d"], remove=["a"])
    states = [router.to_dict()]
    seen: dict[str, int] = dict.fromkeys("abcd", 0)

    def knows(piece: Piece) -> None:
        for name in piece.nodes:
            seen[name] = len(states)  # the state that the piece makes

    def told(status: Any) -> None:
        if router.epoch > states[-1]["epoch"]:  # type: ignore[operator]
            states.append(router.to_dict())

    gentle(router, plan, start=knows, progress=told).run()
    told(None)
    latest = len(states) - 1
    replicas = {
        name: Router.from_dict(states[data.draw(st.integers(min(seen[name], latest), latest))])
        for name in "abcd"
    }
    for key in KEYS[:60]:
        cached = Router.from_dict(states[data.draw(st.integers(0, latest))]).route(key)
        node, epoch, hops = cached.node, cached.epoch, 0
        while True:
            try:
                replicas[node].check(key, node, epoch)
                break
            except Moved as moved:
                hops += 1
                node, epoch = str(moved.to), moved.epoch
            except StaleRouterError:
                replicas[node].follow(states[latest])
        assert hops <= 2
        assert node == router.owner(key) or router.route(key).node == node


def test_a_router_that_is_behind_sends_nobody_back() -> None:
    """Without the epoch, a node that does not know yet that it has a key sends its client back, for ever."""
    router = Router(["a", "b"])
    behind = Router.from_dict(router.to_dict())
    plan = router.plan(add=["c"])
    gentle(router, plan).run()
    key = next(key for key in KEYS if plan.move_of(key))
    old = router.ring.without("c").owner(key)
    with pytest.raises(Moved) as first:
        router.check(key, old, 0)
    assert first.value.to == "c"
    with pytest.raises(StaleRouterError):
        behind.check(key, "c", first.value.epoch)
    with pytest.raises(Moved) as without:
        behind.check(key, "c")  # the control: no epoch, and back it goes
    assert without.value.to == old


def test_another_change_is_refused_meanwhile() -> None:
    router = Router(["a", "b"])
    plan, other = router.plan(add=["c"]), router.plan(add=["d"])
    refused: list[str] = []

    def start(piece: Piece) -> None:
        for change in (lambda: router.apply(other), lambda: router.add("e"), lambda: gentle(router, other)):
            try:
                change()
            except HandoverRunningError as error:
                refused.append(str(error))

    first, second = gentle(router, plan, start=start), gentle(router, other)
    first.run()
    assert len(refused) == 6
    assert all("is running" in message for message in refused)
    with pytest.raises(StalePlanError, match="epoch"):
        second.run()
    assert "d" not in router


# --- drivers ---


@pytest.mark.parametrize("kind", ["threads", "asyncio", "threads, coroutines", "asyncio, functions"])
def test_both_drivers_make_the_same_calls(kind: str) -> None:
    router = Router(["a", "b", "c"])
    calls: list[tuple[str, Any, Any]] = []

    def noted(name: str) -> Any:
        def function(piece: Piece) -> None:
            calls.append((name, piece.source, piece.target))

        async def coroutine(piece: Piece) -> None:
            await asyncio.sleep(0)
            function(piece)

        return coroutine if kind in ("asyncio", "threads, coroutines") else function

    seen: list[float] = []
    handover = Handover(
        router, router.plan(add=["d"]), stop=noted("stop"), start=noted("start"), prepare=noted("prepare"),
        pause=0.01, progress=lambda status: seen.append(status.fraction),
    )  # fmt: skip
    status = asyncio.run(handover.arun()) if kind.startswith("asyncio") else handover.run()
    assert status.over
    assert status.counts == {"DONE": 3}
    assert calls == [(name, s, "d") for s in "abc" for name in ("prepare", "stop", "start")]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert router.ring == Ring(["a", "b", "c", "d"])
    assert router.epoch == 5
    router.add("e")  # and it is free again


@pytest.mark.parametrize("driver", ["threads", "asyncio"])
def test_what_fails_or_hangs_stays_with_its_old_owner(driver: str) -> None:
    router = Router(["a", "b", "c"])
    undone: list[str | None] = []
    let_go = threading.Event()

    async def async_stop(piece: Piece) -> object:
        if piece.source == "a" and not piece.back:
            await asyncio.sleep(30)
        if piece.source == "b":
            raise OSError("no route to host")
        return piece.source != "c"

    def stop(piece: Piece) -> object:
        if piece.source == "a" and not piece.back:
            let_go.wait(0.4)
        if piece.source == "b":
            raise OSError("no route to host")
        return piece.source != "c"

    handover = Handover(
        router, router.plan(add=["d"]), stop=async_stop if driver == "asyncio" else stop, start=nothing,
        undo=lambda piece: undone.append(piece.source), timeout=0.2, pause=0.0,
    )  # fmt: skip
    status = asyncio.run(handover.arun()) if driver == "asyncio" else handover.run()
    assert status.counts == {"KEPT": 1, "FAILED": 2}
    assert undone == ["a", "b", "c"]
    assert [it.note.split(":")[0] for it in status.pieces] == [
        "stop was not confirmed within 0.2 s",
        "OSError",
        "stop returned False",
    ]
    assert router.owner_many(KEYS) == Ring(["a", "b", "c"]).owner_many(KEYS)
    with pytest.raises(HandoverRunningError):
        router.add("e")
    handover.reverse()
    assert handover.run().over
    assert router.ring == Ring(["a", "b", "c"])
    with pytest.raises(HandoverError, match="inverse"):
        handover.reverse()


def test_abort_from_another_thread_then_retry() -> None:
    router = Router(["a", "b", "c"])
    handover: Handover

    def start(piece: Piece) -> None:
        if piece.source == "b":
            handover.abort()
            time.sleep(0.05)

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

    def stop(piece: Piece) -> None:
        nonlocal most
        with lock:
            assert not {piece.source, piece.target} & set(busy)
            busy.extend([piece.source, piece.target])
            most = max(most, len(busy) // 2)
        time.sleep(0.01)

    def start(piece: Piece) -> None:
        with lock:
            busy.remove(piece.source)
            busy.remove(piece.target)

    handover = gentle(router, router.plan(add=["m0", "m1", "m2"]), stop=stop, start=start, parallel=3)
    assert handover.run().over
    assert most == 3


def test_a_lost_node_is_not_waited_for() -> None:
    router = Router(["a", "b", "c"])
    handover: Handover

    def stop(piece: Piece) -> None:
        if piece.source == "a":
            handover.lost("a")
            time.sleep(5)

    handover = gentle(router, router.plan(remove=["a"]), stop=stop)
    begin = time.monotonic()
    assert handover.run().over
    assert time.monotonic() - begin < 4


# --- the journal ---


def test_a_journal_is_a_file_with_every_step(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    router = Router(["a", "b"])
    handover = gentle(router, router.plan(add=["c"]), journal=path)
    assert handover.run().over
    with Journal(path) as journal:
        assert [r.state for r in journal.records() if r.piece == 1] == [
            "STOPPING",
            "STOPPED",
            "STARTING",
            "DONE",
        ]
        assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert str(read_status(path)) == str(handover.status())
    again = Handover.resume(path, stop=nothing, start=nothing)
    assert again.run().over
    assert again.router == router
    with pytest.raises(JournalError, match="resume it"):
        gentle(router, router.plan(add=["d"]), journal=path)
    with pytest.raises(JournalError, match="no journal"):
        Handover.resume(tmp_path / "other", stop=nothing, start=nothing)
    (tmp_path / "text").write_text("this is no database, and long enough to be seen as none" * 20)
    with pytest.raises(JournalError, match="is no journal"):
        read_status(tmp_path / "text")


class Gone(BaseException):
    """The process is no more."""


def test_a_crash_at_every_write_of_a_running_handover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the tests of the machine, through the journal, the driver and the router."""
    write = 0
    genuine = Journal.append
    while True:
        path = tmp_path / f"{write}.sqlite"
        router = Router(["a", "b", "c"])
        count = 0

        def append(self: Journal, record: Record, write: int = write) -> None:
            nonlocal count
            count += 1
            if count > write:
                raise Gone
            genuine(self, record)

        monkeypatch.setattr(Journal, "append", append)
        handover = gentle(router, router.plan(add=["d"]), journal=path)
        try:
            handover.run()
            break
        except Gone:
            pass
        monkeypatch.setattr(Journal, "append", genuine)
        owners = router.owner_many(KEYS)
        resumed = Handover.resume(path, stop=nothing, start=nothing)
        assert resumed.router.owner_many(KEYS) == owners  # no more and no less than what was written
        assert resumed.router.epoch >= router.epoch
        assert resumed.run().over
        assert resumed.router.ring == Ring(["a", "b", "c", "d"])
        write += 1
    assert write == 13


def two_at_once(path: Path) -> list[str]:
    """A process that was thought dead goes on beside the one that took over; what both have called."""
    calls: list[str] = []
    reached, go = threading.Event(), threading.Event()

    def slow(piece: Piece) -> None:
        calls.append("first stop")
        reached.set()
        go.wait(5)

    router = Router(["a"])
    first = gentle(
        router, router.plan(add=["b"]), stop=slow, start=lambda p: calls.append("first start"), journal=path
    )
    failed: list[BaseException] = []

    def run() -> None:
        try:
            first.run()
        except JournalError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    reached.wait(5)
    second = Handover.resume(path, stop=nothing, start=lambda p: calls.append("second start"))
    second.run()
    go.set()
    thread.join(5)
    assert not thread.is_alive()
    if failed:
        calls.append("first failed")
    return calls


def test_a_process_that_was_thought_dead_does_nothing_more(tmp_path: Path) -> None:
    assert two_at_once(tmp_path / "j") == ["first stop", "second start", "first failed"]


def test_that_test_finds_a_journal_that_anybody_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = mutant(
        journal_module,
        a='                "INSERT INTO records',
        b='                "INSERT OR REPLACE INTO records',
    )
    monkeypatch.setattr(Journal, "append", loose.Journal.append)
    assert "first start" in two_at_once(tmp_path / "j")


VICTIM = """
import sys, time
from ringhash import Router
from ringhash.handover import Handover

log = open(sys.argv[2], "a", buffering=1)
def call(name):
    def function(piece):
        log.write(f"{name} {piece.number} {piece.source} {piece.target} {piece.token} {piece.repeat}\\n")
        time.sleep(0.004)
    return function

callbacks = {name: call(name) for name in ("stop", "start", "prepare")}
if len(sys.argv) > 3:
    router = Router([f"n{i}" for i in range(8)])
    handover = Handover(router, router.plan(add=["new"]), journal=sys.argv[1], pause=0.002, parallel=1, **callbacks)
else:
    handover = Handover.resume(sys.argv[1], **callbacks)
print("running", flush=True)
status = handover.run()
print(status, handover.router.ring.digest, flush=True)
"""


def count_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_minus_9_again_and_again(tmp_path: Path) -> None:
    """A real process, killed at random moments of its handover until one comes to the end."""
    script, journal, log = tmp_path / "victim.py", tmp_path / "j.sqlite", tmp_path / "log"
    script.write_text(VICTIM)
    kills, out = 0, ""
    for attempt in range(60):
        argv = [sys.executable, str(script), str(journal), str(log)]
        with subprocess.Popen(
            argv + (["new"] if attempt == 0 else []), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            if kills < 6:
                calls = count_lines(log)
                while count_lines(log) < calls + 1 + kills % 3:  # somewhere in its first pieces
                    time.sleep(0.001)
                time.sleep(0.002 * (kills % 2))
                os.kill(process.pid, signal.SIGKILL)
            out = process.stdout.read()
            process.wait(30)
        if process.returncode == 0:
            break
        kills += 1
    assert kills == 6
    assert out.split() == [
        "OVER:",
        "100%",
        "handed",
        "over",
        "at",
        "epoch",
        "10",
        "(8",
        "DONE)",
        Ring([*(f"n{i}" for i in range(8)), "new"]).digest,
    ]
    called: set[tuple[str, str]] = set()
    tokens: list[int] = []
    for line in log.read_text().splitlines():
        name, number, _, target, token, repeat = line.split()
        assert target == "new"
        assert repeat == "True" or (name, number) not in called
        if name == "start":
            assert ("stop", number) in called
        called.add((name, number))
        tokens.append(int(token))
    assert tokens == sorted(set(tokens))
    assert len(called) == 24


def test_another_process_may_ask_for_an_abort(tmp_path: Path) -> None:
    path = tmp_path / "j"
    router = Router(["a", "b", "c"])

    def stop(piece: Piece) -> None:
        if piece.source == "a":
            with Journal(path) as other:
                other.request("abort")
            time.sleep(0.7)

    handover = gentle(router, router.plan(add=["d"]), journal=path, stop=stop)
    assert handover.run().counts == {"DONE": 1, "PENDING": 2}
    with Journal(path) as other:
        other.request("retry")
        other.request("reverse")
    assert Handover.resume(path, stop=nothing, start=nothing).run().counts == {"UNDONE": 1, "PENDING": 2}

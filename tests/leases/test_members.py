"""Members and the routers that follow them: one membership for every epoch, wherever it is seen."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringhash import Guard, Node, Ring, Router
from ringhash.leases import Member, Members
from ringhash.leases.store import open_store
from ringhash.plan import Plan

pytestmark = pytest.mark.slow


def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


@pytest.fixture
def members(db: Any, group: str) -> Members:
    return Members(db, name=group)


def kill(member: Member) -> None:
    """Stop its heartbeat and tell nobody."""
    store = member._store
    member._store = None
    member._members = type("Gone", (), {"_open": lambda self: 1 / 0})()  # type: ignore[assignment]
    if store is not None:
        store.close()
    member._stop.set()


def test_nodes_join_and_leave(members: Members) -> None:
    assert members.nodes() == (0, ())
    with members.join("b", weight=2.0, zone="z"):
        assert members.nodes() == (1, (Node("b", 2.0, "z"),))
        with members.join("a"):
            assert members.nodes() == (2, (Node("a"), Node("b", 2.0, "z")))
    assert members.nodes() == (4, ())


def test_a_quick_restart_changes_nothing(members: Members) -> None:
    first = members.join("a").start()
    with members.join("a"):
        assert members.nodes()[0] == 1
        first.leave()  # the older incarnation has no say any more
        assert members.nodes() == (1, (Node("a"),))


def test_the_newest_incarnation_counts(members: Members) -> None:
    with members.join("a", ttl=0.5) as first, members.join("a", ttl=0.5) as second:
        assert first.lost.wait(3)
        assert not second.lost.is_set()


def test_a_weight_may_change(members: Members) -> None:
    with members.join("a", ttl=0.5) as member:
        member.reweight(3.0)
        until(lambda: members.nodes() == (2, (Node("a", 3.0),)))


def test_a_member_that_was_swept_away_comes_back(members: Members) -> None:
    with members.join("a", ttl=0.5) as member:
        store = members._open()
        assert store.sweep(["a"], -10.0) == 1
        store.close()
        until(lambda: members.nodes() == (3, (Node("a"),)))
        assert not member.lost.is_set()


def test_a_router_follows(members: Members) -> None:
    router, other = Router(["stale"], vnodes=8), Router(vnodes=32)
    with members.join("a"), members.follow(router, other, poll=0.2) as follow:
        assert router.nodes == other.nodes == (Node("a"),)
        assert (router.epoch, other.epoch, follow.epoch) == (1, 1, 1)
        with members.join("b", weight=2.0):
            assert follow.wait_for(2, 5)
            assert router.ring == Ring(["a", Node("b", 2.0)], vnodes=8)
        assert follow.wait_for(3, 5)
        assert follow.age is not None
        assert follow.age < 2
        assert router.nodes == (Node("a"),)
    assert not follow.wait_for(4, 0.05)
    with pytest.raises(TypeError, match="Router"):
        members.follow()


def test_stopping_does_not_wait_for_the_next_look(members: Members) -> None:
    follow = members.follow(Router(), poll=60)
    follow.stop()  # nothing to stop yet
    members.join("a").leave()
    began = time.monotonic()
    with members.follow(Router(), poll=60):
        pass
    assert time.monotonic() - began < 5


def test_a_burst_is_one_change(members: Members) -> None:
    seen: list[int] = []
    router = Router()
    with members.follow(router, poll=5.0, settle=0.4, on_change=seen.append) as follow:
        store = members._open()
        for i in range(20):
            store.join(f"n{i}", 1.0, None, "x", 30)
        store.close()
        assert follow.wait_for(20, 5)
    assert len(seen) <= 3
    assert len(router) == 20


def test_a_dead_node_keeps_its_keys_for_the_grace(members: Members) -> None:
    router = Router()
    with members.join("a"), members.follow(router, poll=0.1, grace=0.8) as follow:
        dead = members.join("b", ttl=0.3).start()
        assert follow.wait_for(2, 5)
        kill(dead)
        died = time.monotonic()
        assert follow.wait_for(3, 5)
        assert 0.8 <= time.monotonic() - died < 3
        assert router.nodes == (Node("a"),)


def test_without_a_follower_the_dead_stay(members: Members) -> None:
    """The control: nobody else takes them out."""
    kill(members.join("b", ttl=0.1).start())
    time.sleep(0.4)
    assert members.nodes() == (1, (Node("b"),))


def test_the_guard_is_asked_first(members: Members) -> None:
    asked: list[Plan] = []
    answer = threading.Event()

    def guard(plan: Plan) -> bool:
        asked.append(plan)
        return answer.is_set()

    router = Router()
    with members.join("a"), members.follow(router, poll=0.1, grace=0.1, guard=guard) as follow:
        dead = members.join("b", ttl=0.2).start()
        assert follow.wait_for(2, 5)
        kill(dead)
        until(lambda: len(asked) > 2)
        assert len(router) == 2
        assert {change.before for change in asked[0].changes} == {Node("b")}
        answer.set()
        assert follow.wait_for(3, 5)
        assert router.nodes == (Node("a"),)


def test_a_guard_is_asked_as_it_is(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    """Two of three are silent: for a `ringhash.Guard` that is a cascade, until one of them is back."""
    router, guard = Router(), Guard(max_fraction=1.0, min_alive=0.5, cooldown=0.0, grace=0.5)
    with members.join("a"), members.follow(router, poll=0.1, grace=0.1, guard=guard) as follow:
        dead, silent = members.join("b", ttl=0.2).start(), members.join("c", ttl=0.2).start()
        assert follow.wait_for(3, 5)
        kill(dead)
        kill(silent)
        until(lambda: any("1 of 3 nodes are alive" in it.getMessage() for it in caplog.records))
        time.sleep(1.0)  # longer than every grace
        assert len(router) == 3
        with members.join("c", ttl=5.0):
            assert follow.wait_for(4, 5)
            assert {node.name for node in router.nodes} == {"a", "c"}
    assert len([it for it in caplog.records if "stay" in it.getMessage()]) <= 3  # it is said, not repeated


def test_without_a_guard_both_go(members: Members) -> None:
    """The control."""
    router = Router()
    with members.join("a"), members.follow(router, poll=0.1, grace=0.1) as follow:
        for name in "bc":
            kill(members.join(name, ttl=0.2).start())
        assert follow.wait_for(4, 5)
        until(lambda: {node.name for node in router.nodes} == {"a"})


def test_a_guard_hears_of_changes(members: Members) -> None:
    """Its cooldown begins with every change that others make, and its grace at the end of a ttl."""
    router, guard = Router(), Guard(max_fraction=1.0, min_alive=0.0, cooldown=60.0, grace=0.0)
    guard.gone("told by another")
    with members.join("a"), members.follow(router, poll=0.1, grace=0.0, guard=guard) as follow:
        assert guard.reasons(router, router.plan(remove=["a"])) == {}  # the first look is no change
        dead = members.join("b", ttl=0.2).start()
        assert follow.wait_for(2, 5)
        kill(dead)
        time.sleep(0.6)
        assert list(guard.reasons(router, router.plan(remove=["b"]))) == ["cooldown"]
        assert len(router) == 2
    assert guard._gone.keys() == {"told by another", "b"}


def test_a_heartbeat_in_the_grace_saves_a_node(members: Members) -> None:
    store = members._set_up()
    store.join("a", 1.0, None, "x", 0.1)
    time.sleep(0.2)
    assert store.sweep(["a"], 5.0) == 0
    assert store.keep("a", "x", 30)
    assert not store.keep("a", "y", 30)
    assert store.sweep(["a"], 0.0) == 0
    assert members.nodes()[0] == 1
    store.close()


def test_a_follower_outlives_the_database(members: Members) -> None:
    router = Router()
    with members.join("a"), members.follow(router, poll=0.1) as follow:
        real, members._open = members._open, lambda: 1 / 0  # type: ignore[method-assign]
        assert follow._store is not None
        follow._store.abort()
        if "sqlite" in type(follow._store).__module__:
            follow._store.close()
        until(lambda: follow.error is not None)
        assert router.owner("k") == "a"
        members._open = real  # type: ignore[method-assign]
        with members.join("b"):
            assert follow.wait_for(2, 5)


def test_twenty_routers_in_four_processes(db: Any, group: str) -> None:
    """200 changes: every router that has seen epoch E has the digest of E, and nobody is late."""
    stated = 0.25 + 0.01 + 0.75  # poll, settle, and what a busy machine needs to read and build
    script = Path(__file__).with_name("follow_process.py")
    store = open_store(db, group, 10)
    store.setup_members()
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(db), group, "5"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        first = [json.loads(process.stdout.readline()) for process in processes]  # type: ignore[union-attr]
        rng = random.Random(7)
        nodes: dict[str, Node] = {}
        digests = {0: Ring(vnodes=16).digest}
        times = {0: time.monotonic()}
        for epoch in range(1, 201):
            name = f"node-{rng.randrange(30)}"
            there = nodes.get(name)
            if there is None or rng.random() < 0.4:
                weight = rng.choice([w for w in (0.5, 1.0, 2.0, 3.0) if there is None or w != there.weight])
                node = nodes[name] = Node(name, weight, rng.choice([None, "x", "y"]))
                assert store.join(name, node.weight, node.zone, "i", 600) == epoch
            else:
                del nodes[name]
                store.leave(name, "i")
            times[epoch] = time.monotonic()
            digests[epoch] = Ring(list(nodes.values()), vnodes=16).digest
            if rng.random() < 0.5:  # else a burst
                time.sleep(rng.uniform(0, 0.03))
        time.sleep(stated)
    finally:
        outputs = [process.communicate()[0] for process in processes]
        store.close()
    assert [process.returncode for process in processes] == [0] * 4
    lags = []
    for head, output in zip(first, outputs, strict=True):
        seen = [head, *map(json.loads, output.splitlines())]
        assert len(seen) > 20
        assert [epoch for epoch, _, _ in seen] == sorted({epoch for epoch, _, _ in seen})
        assert seen[-1][0] == 200
        for epoch, _, found in seen:
            assert found == [digests[epoch]] * 5
        for epoch in range(1, 201):
            reached = next(at for reached, at, _ in seen if reached >= epoch)
            lags.append(reached - times[epoch])
    assert max(lags) < stated, f"{max(lags):.3f} s behind"
    print(f"at most {max(lags):.3f} s behind")


def test_marks_and_pins_are_the_routers_own(members: Members) -> None:
    router = Router()
    with members.join("a"), members.join("b"), members.follow(router, poll=0.1) as follow:
        router.mark_down("a")
        router.pin("key", "b")
        with members.join("c"):
            assert follow.wait_for(3, 5)
            assert router.down == ("a",)
            assert router.owner("key") == "b"
            assert router.epoch == 3

"""Members and the routers that follow them: one membership for every epoch, wherever it is seen.

Heartbeats run by a clock that the test lets pass. On PostgreSQL the rows have the server's own times, so a ttl is
run out there by writing.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from ringhash import Node, Ring, Router
from ringhash.databases import Database, DatabaseAddressError, open_database
from ringhash.databases.sqlite import SqliteDatabase
from ringhash.handover import Guard
from ringhash.members import Follow, Members
from ringhash.members.rows import MemberRows, member_rows
from ringhash.plan import Plan


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """What threads do by themselves, soon; only a hang reaches the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def members(database: Database, group: str) -> Members:
    return Members(database, name=group)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> Iterator[Database]:
    made: Database
    if request.param == "sqlite":
        made = SqliteDatabase(str(tmp_path / "members.db"), time_now=clock.now)
    else:
        made = open_database(request.getfixturevalue("postgres"))
    with made:
        yield made


def age(members: Members, name: str, seconds: float) -> None:
    """Let a member's ttl have run out so many seconds ago."""
    rows = members._open()
    rows.connection.execute(
        f"UPDATE ringhash_members SET expires_at = {rows._ago} WHERE grp = ? AND name = ?",
        [seconds, members.name, name],
    )
    rows.close()


def dead(members: Members, *names: str, since: float = 3600.0) -> None:
    """Members that have joined and will never beat again."""
    rows = members._set_up()
    for name in names:
        rows.join(name, 1.0, None, "dead", 30.0)
    rows.close()
    for name in names:
        age(members, name, since)


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


def test_the_newest_incarnation_counts(members: Members, clock: FakeClock) -> None:
    with members.join("a", clock=clock) as first, members.join("a", clock=clock) as second:
        clock.until(first.lost.is_set)
        clock.passes(60)
        assert not second.lost.is_set()


def test_a_weight_may_change(members: Members, clock: FakeClock) -> None:
    with members.join("a", clock=clock) as member:
        member.reweight(3.0)
        clock.until(lambda: members.nodes() == (2, (Node("a", 3.0),)))


def test_a_weight_is_not_lost_with_the_connection(
    members: Members, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks on the very beat that tells it; the next one tells it again."""
    faults = [OSError("before it was sent"), OSError("after it was stored")]
    real = MemberRows.renew

    def renew(rows: MemberRows, *values: Any) -> bool:
        if faults:
            fault = faults.pop(0)
            if "after" in str(fault):
                real(rows, *values)
            raise fault
        return real(rows, *values)

    monkeypatch.setattr(MemberRows, "renew", renew)
    with members.join("a", clock=clock) as member:
        member.reweight(3.0)
        clock.until(lambda: not faults and member.error is None)
        clock.until(lambda: member._told == Node("a", 3.0))
        assert members.nodes() == (2, (Node("a", 3.0),))
        assert not member.lost.is_set()


def test_a_replaced_member_that_reweights_leaves_its_successor_alone(
    members: Members, clock: FakeClock
) -> None:
    with members.join("a", clock=clock) as first, members.join("a", 2.0, clock=clock) as second:
        first.reweight(7.0)
        clock.until(first.lost.is_set)
        clock.passes(60)
        assert not second.lost.is_set()
        assert members.nodes()[1] == (Node("a", 2.0),)


def test_a_member_that_was_swept_away_comes_back(members: Members, clock: FakeClock) -> None:
    with members.join("a", clock=clock) as member:
        rows = members._open()
        assert rows.sweep(["a"], -100.0) == 1
        rows.close()
        clock.until(lambda: members.nodes() == (3, (Node("a"),)))
        assert not member.lost.is_set()


def test_a_member_outlives_whatever_the_database_raises(
    members: Members, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[BaseException] = [SystemExit("a"), OSError("b")]
    real = MemberRows.keep

    def keep(rows: MemberRows, *values: Any) -> bool:
        if faults:
            raise faults.pop()
        return real(rows, *values)

    monkeypatch.setattr(MemberRows, "keep", keep)
    with members.join("a", clock=clock) as member:
        clock.until(lambda: not faults and member.error is None)
        assert members.nodes()[0] == 1


def test_faults_of_the_caller(members: Members, tmp_path: Path) -> None:
    ttl: Any
    for ttl in ("30", True, None):
        with pytest.raises(TypeError, match="ttl must be a number of seconds"):
            members.join("a", ttl=ttl)
    with pytest.raises(ValueError, match="ttl must be from"):
        members.join("a", ttl=0)
    with pytest.raises(DatabaseAddressError, match="mysql"):
        Members("mysql://me:secret@db/app")
    with pytest.raises(ValueError, match="memory"):
        Members(":memory:")
    with pytest.raises(TypeError, match="Router"):
        members.follow()


def test_a_router_follows(members: Members) -> None:
    router, other = Router(["stale"], vnodes=8), Router(vnodes=32)
    with members.join("a"), members.follow(router, other, poll=0.02) as follow:
        assert router.nodes == other.nodes == (Node("a"),)
        assert (router.epoch, other.epoch, follow.epoch) == (1, 1, 1)
        with members.join("b", weight=2.0):
            assert follow.wait_for(2, 60)
            assert router.placement == Ring(["a", Node("b", 2.0)], vnodes=8)
        assert follow.wait_for(3, 60)
        assert follow.age is not None
        assert router.nodes == (Node("a"),)
    assert not follow.wait_for(4, 0.01)


def test_the_age_is_by_the_followers_clock(members: Members, clock: FakeClock) -> None:
    clock.ignored = "follow"
    follow = members.follow(Router(), clock=clock)
    assert follow.age is None
    follow._look(rows := members._set_up())
    rows.close()
    clock.jump(7.0)
    assert follow.age == 7.0


def test_stopping_does_not_wait_for_the_next_look(members: Members) -> None:
    follow = members.follow(Router(), poll=3600)
    follow.stop()  # nothing to stop yet
    members.join("a").leave()
    with members.follow(Router(), poll=3600) as follow:
        pass
    assert not follow._thread.is_alive()


def test_a_burst_is_one_change(members: Members, clock: FakeClock) -> None:
    """The follower waits for more before it looks; the wait is by its own clock."""
    seen: list[int] = []
    router = Router()
    rows = members._set_up()
    with members.follow(router, poll=3600, settle=0.4, on_change=seen.append, clock=clock) as follow:
        for i in range(20):
            rows.join(f"n{i}", 1.0, None, "x", 30)
        until(lambda: clock._first_due() is not None)  # told, it waits for more
        clock.jump(0.4)
        until(lambda: follow.epoch is not None and follow.epoch > 0)
        while follow.epoch != 20:
            clock.jump(0.4)
            time.sleep(0.002)
    rows.close()
    assert len(seen) <= 4
    assert len(router) == 20


def look(follow: Follow, members: Members) -> None:
    """One look of a follower, in this thread."""
    rows = members._set_up()
    follow._look(rows)
    follow._look(rows)  # what it swept away is seen with the next look
    rows.close()


def test_a_dead_node_keeps_its_keys_for_the_grace(members: Members) -> None:
    router = Router()
    follow = members.follow(router, grace=80.0)
    dead(members, "b", since=-5.0)
    for since, there in ((-5.0, 1), (20.0, 1), (100.0, 0)):
        age(members, "b", since)
        look(follow, members)
        assert len(router) == there


def test_without_a_follower_the_dead_stay(members: Members) -> None:
    """The control: nobody else takes them out."""
    dead(members, "b")
    assert members.nodes() == (1, (Node("b"),))


def test_a_clock_that_is_set_back_leaves_no_orphans(members: Members) -> None:
    """A member that has written a day ahead, and died, is dead once its grace has passed from now on."""
    router = Router()
    follow = members.follow(router, grace=80.0)
    dead(members, "b", since=-86_400.0)
    look(follow, members)
    assert len(router) == 1
    rows = members._open()
    ((row,),) = [rows.members()[1]]
    rows.close()
    assert not row.ahead
    assert row.overdue > -30
    age(members, "b", 100.0)
    look(follow, members)
    assert len(router) == 0


def test_the_guard_is_asked_first(members: Members) -> None:
    asked: list[Plan] = []
    answer = [False]

    def guard(plan: Plan) -> bool:
        asked.append(plan)
        return answer[0]

    router = Router()
    with members.join("a"):
        dead(members, "b")
        follow = members.follow(router, grace=1.0, guard=guard)
        look(follow, members)
        assert len(router) == 2
        assert {change.before for change in asked[0].changes.nodes} == {Node("b")}
        answer[0] = True
        look(follow, members)
        assert router.nodes == (Node("a"),)


def test_a_guard_is_asked_as_it_is(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    """Two of three are silent: for a `ringhash.Guard` that is a cascade, until one of them is back."""
    router, guard = Router(), Guard(max_fraction=1.0, min_alive=0.5, cooldown=0.0, grace=0.0)
    with members.join("a"):
        dead(members, "b", "c")
        follow = members.follow(router, grace=1.0, guard=guard)
        for _ in range(3):
            look(follow, members)
        assert any("1 of 3 nodes are alive" in it.getMessage() for it in caplog.records)
        assert len(router) == 3
        with members.join("c"):
            look(follow, members)
            look(follow, members)
            assert {node.name for node in router.nodes} == {"a", "c"}
    assert len([it for it in caplog.records if "stay" in it.getMessage()]) <= 3  # it is said, not repeated


def test_without_a_guard_both_go(members: Members) -> None:
    """The control."""
    router = Router()
    with members.join("a"):
        dead(members, "b", "c")
        look(members.follow(router, grace=1.0), members)
        assert {node.name for node in router.nodes} == {"a"}


def test_a_guard_hears_of_changes(members: Members) -> None:
    """Its cooldown begins with every change that others make, and its grace at the end of a ttl."""
    router, guard = Router(), Guard(max_fraction=1.0, min_alive=0.0, cooldown=3600.0, grace=0.0)
    guard.gone("told by another")
    with members.join("a"):
        follow = members.follow(router, grace=1.0, guard=guard)
        look(follow, members)
        assert guard.reasons(router, router.plan(remove=["a"])) == {}  # the first look is no change
        dead(members, "b")
        look(follow, members)
        assert list(guard.reasons(router, router.plan(remove=["b"]))) == ["cooldown"]
        assert len(router) == 2
    assert guard._gone.keys() == {"told by another", "b"}


def test_a_heartbeat_in_the_grace_saves_a_node(members: Members) -> None:
    rows = members._set_up()
    rows.join("a", 1.0, None, "x", 30.0)
    age(members, "a", 2.0)
    assert rows.sweep(["a"], 5.0) == 0
    assert rows.keep("a", "x", 30)
    assert not rows.keep("a", "y", 30)
    assert rows.sweep(["a"], 0.0) == 0
    assert members.nodes()[0] == 1
    rows.close()


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit])
def test_a_follower_outlives_the_database_and_its_hooks(members: Members, fault: type[BaseException]) -> None:
    router = Router()
    faults = [fault("the hook")]

    def on_change(epoch: int) -> None:
        if epoch == 2 and faults:
            raise faults.pop()

    with members.join("a"), members.follow(router, poll=0.02, on_change=on_change) as follow:
        real, follow._open = follow._open, lambda: 1 / 0  # type: ignore[assignment,return-value]
        assert follow._rows is not None
        follow._rows.close()
        until(lambda: follow.error is not None)
        assert router.owner("k") == "a"
        follow._open = real
        with members.join("b"):
            assert follow.wait_for(2, 60)
            with members.join("c"):
                assert follow.wait_for(3, 60)
                assert not faults


def test_twenty_routers_in_four_processes(db: Any, group: str) -> None:
    """200 changes: every router that has seen epoch E has the digest of E, and all come to the last."""
    script = Path(__file__).with_name("follow_process.py")
    database = open_database(db)
    rows = member_rows(database, group)
    rows.setup()
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
        seen = [[json.loads(process.stdout.readline())] for process in processes]  # type: ignore[union-attr]
        rng = random.Random(7)
        nodes: dict[str, Node] = {}
        digests = {0: Ring(vnodes=16).digest}
        for epoch in range(1, 201):
            name = f"node-{rng.randrange(30)}"
            there = nodes.get(name)
            if there is None or rng.random() < 0.4:
                weight = rng.choice([w for w in (0.5, 1.0, 2.0, 3.0) if there is None or w != there.weight])
                node = nodes[name] = Node(name, weight, rng.choice([None, "x", "y"]))
                assert rows.join(name, node.weight, node.zone, "i", 600) == epoch
            else:
                del nodes[name]
                rows.leave(name, "i")
            digests[epoch] = Ring(list(nodes.values()), vnodes=16).digest
            if rng.random() < 0.5:  # else a burst
                time.sleep(rng.uniform(0, 0.03))
        for process, lines in zip(processes, seen, strict=True):
            while lines[-1][0] != 200:  # only a hang would end this otherwise
                lines.append(json.loads(process.stdout.readline()))  # type: ignore[union-attr]
    finally:
        for process in processes:
            process.communicate()
        rows.close()
    assert [process.returncode for process in processes] == [0] * 4
    for lines in seen:
        assert len(lines) > 2
        assert [epoch for epoch, _ in lines] == sorted({epoch for epoch, _ in lines})
        for epoch, found in lines:
            assert found == [digests[epoch]] * 5


def test_marks_and_pins_are_the_routers_own(members: Members) -> None:
    router = Router()
    with members.join("a"), members.join("b"), members.follow(router, poll=0.02) as follow:
        router.mark_down("a")
        router.pin("key", "b")
        with members.join("c"):
            assert follow.wait_for(3, 60)
            assert router.down == ("a",)
            assert router.owner("key") == "b"
            assert router.epoch == 3

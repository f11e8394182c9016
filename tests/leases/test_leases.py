"""Workers and leases as a user sees them, on SQLite and on PostgreSQL, with real threads and real time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ringhash import Shards
from ringhash.leases import Lease, LeaseLost, LeaseTable, Worker, clock

pytestmark = pytest.mark.slow

TTL = 1.0


def until(condition: Callable[[], object], seconds: float = 4 * TTL) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


@pytest.fixture
def make(db: Any, group: str) -> Any:
    """Makes lease tables of one group, as processes of their own would."""
    made: list[LeaseTable] = []

    def make(shards: int = 6, ttl: float = TTL) -> LeaseTable:
        made.append(LeaseTable(db, shards, ttl, name=group))
        return made[-1]

    yield make
    for table in made:
        table.close()


def counts(*workers: Worker) -> list[int]:
    return [len(worker.leases) for worker in workers]


def kill(worker: Worker) -> None:
    """End a worker's threads as kill -9 would end its process: nothing is released, nobody is told."""
    with worker._changed:
        worker._turn = lambda: 1e6  # type: ignore[method-assign]
        worker._state = "left"
        worker._changed.notify_all()
    worker._wake.set()


def test_a_worker_alone_gets_everything_and_gives_it_back(make: Any) -> None:
    table = make(shards=4)
    with table.join("a") as me:
        got = [me.next_lease(5) for _ in range(4)]
        assert [(lease.shard, lease.epoch, lease.token) for lease in got] == [(s, 1, 1) for s in range(4)]
        assert all(0.5 * TTL < lease.remaining <= TTL for lease in got)
        assert not any(lease.lost.is_set() for lease in got)
        assert me.leases == tuple(got)
        time.sleep(1.5 * TTL)  # longer than a ttl: they are renewed
        assert me.leases == tuple(got)
        assert table.status().peak_to_mean == 1.0
    assert all(lease.lost.is_set() and lease.reason == "released" for lease in got)
    status = table.status()
    assert status.free == (0, 1, 2, 3)
    assert status.workers == ()


def test_a_newcomer_that_owns_nothing_gets_its_share(make: Any) -> None:
    with make().join("a") as a:
        until(lambda: counts(a) == [6])
        with make().join("b") as b:
            until(lambda: counts(a, b) == [3, 3])
            with make().join("c") as c:
                until(lambda: counts(a, b, c) == [2, 2, 2])
                before = make().status()
                time.sleep(TTL)
                assert make().status().claims == before.claims  # nothing moves any more
                assert before.spread == 0
                assert {worker.name for worker in before.workers} == {"a", "b", "c"}
            until(lambda: counts(a, b) == [3, 3])
        until(lambda: counts(a) == [6])


def test_a_dead_workers_shards_are_taken_after_ttl_and_not_before(make: Any) -> None:
    a, b = make().join("a").start(), make().join("b").start()
    until(lambda: counts(a, b) == [3, 3])
    kill(a)
    died = time.monotonic()
    until(lambda: counts(b) == [6])
    assert 0.75 * TTL < time.monotonic() - died < 2 * TTL  # the last renewal was a fifth of ttl ago at most
    b.leave()


def test_the_same_name_again_inherits_nothing(make: Any) -> None:
    first = make().join("a").start()
    until(lambda: counts(first) == [6])
    old = first.leases[0]
    kill(first)
    with make().join("a") as second:
        assert second.identity != first.identity
        until(lambda: counts(second) == [6])
        assert all(lease.epoch == 2 for lease in second.leases)
        with pytest.raises(LeaseLost), old.write():
            pytest.fail("let in")


def test_more_workers_than_shards(make: Any) -> None:
    workers = [make(shards=2).join(f"w{i}").start() for i in range(4)]
    until(lambda: sorted(counts(*workers)) == [0, 0, 1, 1])
    for worker in workers:
        worker.leave()


def test_a_write_is_fenced(make: Any) -> None:
    table = make(shards=1)
    with table.join("a") as me:
        lease = me.next_lease(5)
        with lease.write() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS ringhash_work (grp text, epoch bigint)")
            tx.execute(f"INSERT INTO ringhash_work VALUES ('{table.name}', {lease.token})")
        with pytest.raises(ZeroDivisionError), lease.write() as tx:
            tx.execute(f"INSERT INTO ringhash_work VALUES ('{table.name}', {1 // 0})")
    with pytest.raises(LeaseLost, match="shard 0 at epoch 1 is over: released") as caught, lease.write():
        pytest.fail("let in")
    assert caught.value.written is False
    store = table._open()
    rows = store._connection.execute(f"SELECT epoch FROM ringhash_work WHERE grp = '{table.name}'")  # type: ignore[attr-defined]
    assert rows.fetchall() == [(1,)]
    store.close()


def test_a_holder_that_does_not_know_is_refused(make: Any) -> None:
    """Its own clock says that all is well; the database knows better."""
    table = make(shards=1)
    me = table.join("a").start()
    lease = me.next_lease(5)
    kill(me)
    me._holder.claimed(clock.now() + 1000, [lease._grant])  # a clock that stands still
    with table.join("b") as other:
        taken = other.next_lease(5)
        assert taken.epoch == 2
        assert not lease.lost.is_set()
        with pytest.raises(LeaseLost, match="taken"), lease.write():
            pytest.fail("let in")
        assert lease.lost.is_set()


def test_a_lost_event_is_set_the_moment_the_time_is_over(make: Any) -> None:
    """Before any thread could set it: as in a process that was stopped and goes on."""
    me = make(shards=1).join("a").start()
    lease = me.next_lease(5)
    kill(me)
    for thread in me._threads:
        thread.join()
    me._holder._deadlines[lease._grant] = clock.now() + 0.05
    assert not lease.lost.is_set()
    time.sleep(0.06)
    assert lease.lost.is_set()
    assert lease.remaining == 0.0
    assert "expired" in repr(lease)
    with pytest.raises(LeaseLost, match="expired"), lease.write():
        pytest.fail("let in")


def test_on_release_hands_over_first(make: Any) -> None:
    asked: list[tuple[int, bool, bool]] = []
    answers = iter([False, ZeroDivisionError])

    def on_release(lease: Lease) -> bool:
        asked.append((lease.shard, lease.stopping.is_set(), lease.lost.is_set()))
        answer = next(answers, True)
        if answer is ZeroDivisionError:
            raise ZeroDivisionError
        return bool(answer)

    with make(shards=2).join("a", on_release=on_release) as a:
        until(lambda: counts(a) == [2])
        with make(shards=2).join("b") as b:
            until(lambda: counts(a, b) == [1, 1])
            # Refused for one and failed for the other, it was asked again; the leases were valid all along.
            assert asked == [(shard, True, False) for shard in (1, 0, 1)]
    assert asked[3:] == [(0, True, False)]


def test_a_release_waits_for_the_hook(make: Any) -> None:
    gate = threading.Event()
    with make(shards=2).join("a", on_release=lambda lease: gate.wait(20)) as a:
        until(lambda: counts(a) == [2])
        with make(shards=2).join("b") as b:
            time.sleep(1.5 * TTL)
            assert counts(a, b) == [2, 0]  # renewed all the while
            gate.set()
            until(lambda: counts(a, b) == [1, 1])


def test_releasing_by_hand_claims_anew_with_a_new_epoch(make: Any) -> None:
    with make(shards=1).join("a") as me:
        first = me.next_lease(5)
        first.release()
        first.release()
        second = me.next_lease(5)
        assert (first.reason, second.epoch) == ("released", 2)


def test_iteration_waits_and_ends(make: Any) -> None:
    seen: list[int] = []
    with make(shards=3).join("a") as me:

        def work() -> None:
            seen.extend(lease.shard for lease in me)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(seen) == 3)
        assert me.next_lease(0.05) is None
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert sorted(seen) == [0, 1, 2]


def test_the_async_form(make: Any) -> None:
    async def work() -> None:
        table = make(shards=2)
        async with table.join("a") as me:
            got = []
            async for lease in me:
                got.append(lease)
                if len(got) == 2:
                    break
            async with got[0].write_async() as tx:
                await asyncio.to_thread(tx.execute, "SELECT 1")
            with pytest.raises(ZeroDivisionError):
                async with got[0].write_async():
                    raise ZeroDivisionError
            waiting = asyncio.create_task(got[0].wait_lost())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            got[0].release()
            await asyncio.wait_for(waiting, 5)
            await got[0].wait_lost()
        with pytest.raises(LeaseLost):
            async with got[1].write_async():
                pytest.fail("let in")

        async def consume() -> list[Lease]:
            return [lease async for lease in other]

        other = table.join("b")
        async with other:
            consuming = asyncio.create_task(consume())
            await asyncio.to_thread(until, lambda: counts(other) == [2])
            await asyncio.sleep(0.05)
        assert len(await asyncio.wait_for(consuming, 5)) == 2

    asyncio.run(asyncio.wait_for(work(), 30))


def test_faults_of_the_caller(make: Any, db: Any) -> None:
    table = make(shards=4)
    with table.join("a") as me:
        with pytest.raises(ValueError, match="4 shards"):
            make(shards=5).join("b").start()
        with pytest.raises(RuntimeError, match="once"):
            me.start()
    me.leave()
    with pytest.raises(ValueError, match="name"):
        table.join("")
    with pytest.raises(ValueError, match="ttl"):
        LeaseTable(db, ttl=0)
    with pytest.raises(ValueError, match="count"):
        LeaseTable(db, shards=0)
    with pytest.raises(ValueError, match="memory"):
        LeaseTable(":memory:").status()
    assert LeaseTable(db, Shards(8)).shards == Shards(8)
    assert "ttl 1 s" in repr(table)


def test_a_worker_outlives_an_unreachable_database(make: Any, db: Any) -> None:
    """Its leases end by ttl on its own clock, and it claims anew when the database is back."""
    me = make(shards=2).join("a").start()
    until(lambda: counts(me) == [2])
    first = me.leases[0]
    real = me.table._open

    def unreachable() -> Any:
        raise OSError("no route to host")

    began = time.monotonic()
    me.table._open = unreachable
    with me._changed:
        me._store, store = None, me._store
    store.close()
    assert first.lost.wait(2 * TTL)
    assert time.monotonic() - began < 1.05 * TTL
    assert first.reason == "expired"
    assert isinstance(me.error, Exception)
    me.table._open = real
    until(lambda: counts(me) == [2])
    assert [lease.epoch for lease in me.leases] == [2, 2]
    until(lambda: me.error is None)
    me.leave()


def test_wall_clocks_do_not_matter(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour off, and shifted on the way: nothing is lost."""
    wrong = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: wrong)
    with make(shards=2).join("a") as me:
        until(lambda: counts(me) == [2])
        monkeypatch.setattr(time, "time", lambda: wrong - 7200)
        time.sleep(1.2 * TTL)
        assert [lease.epoch for lease in me.leases] == [1, 1]


def test_a_call_that_hangs_is_ended(make: Any) -> None:
    me = make(shards=1, ttl=0.5).join("a").start()
    lease = me.next_lease(5)
    hanging = threading.Event()
    real = me._turn

    def turn() -> float:
        if hanging.is_set():
            return real()
        hanging.set()
        with me._timed():
            store: Any = me._store
            if "postgres" in type(store).__module__:
                store._connection.execute("SELECT pg_sleep(60)")
            else:
                store._connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
                ).fetchall()
        raise AssertionError("it was not ended")

    me._turn = turn  # type: ignore[method-assign]
    assert hanging.wait(5)
    assert lease.lost.wait(1)
    until(lambda: me.leases and me.leases[0].epoch == 2, 5)
    me.leave()

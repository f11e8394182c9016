"""Workers and leases as a user sees them: real threads and a real database, and time that the test lets pass."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from ringhash import Shards
from ringhash.databases import DatabaseAddressError, TransactionEndedError
from ringhash.databases.sqlite import SqliteDatabase
from ringhash.leases import Lease, LeaseLost, LeaseTable, Worker

TTL = 1.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Tables:
    """Lease tables of one group, as processes of their own would have them."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.path, self.clock = path, clock
        self.made: list[LeaseTable] = []
        self.databases: list[SqliteDatabase] = []

    def __call__(self, shards: int = 6, ttl: float = TTL) -> LeaseTable:
        self.databases.append(SqliteDatabase(str(self.path), time_now=self.clock.now))
        self.made.append(LeaseTable(self.databases[-1], shards, ttl, name="jobs"))
        return self.made[-1]

    def join(self, name: str, *, shards: int = 6, ttl: float = TTL, on_release: Any = None) -> Worker:
        return self(shards, ttl).join(name, on_release=on_release, clock=self.clock)


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock) -> Iterator[Tables]:
    tables = Tables(tmp_path / "leases.db", clock)
    yield tables
    for database in tables.databases:
        database.close()


def counts(*workers: Worker) -> list[int]:
    return [len(worker.leases) for worker in workers]


def kill(worker: Worker) -> None:
    """End a worker's threads as kill -9 would end its process: nothing is released, nobody is told."""
    with worker._changed:
        worker._turn = lambda: 1e6  # type: ignore[method-assign]
        worker._state = "left"
    worker._wake()


def test_a_worker_alone_gets_everything_and_gives_it_back(make: Tables, clock: FakeClock) -> None:
    table = make(shards=4)
    with table.join("a", clock=clock) as me:
        got = [me.next_lease(5) for _ in range(4)]
        assert [(lease.shard, lease.epoch, lease.token) for lease in got] == [(s, 1, 1) for s in range(4)]
        assert all(0.5 * TTL < lease.remaining <= TTL for lease in got)
        assert not any(lease.lost.is_set() for lease in got)
        assert me.leases == tuple(got)
        clock.passes(1.5 * TTL)  # longer than a ttl: they are renewed
        assert me.leases == tuple(got)
        assert table.status().peak_to_mean == 1.0
    assert all(lease.lost.is_set() and lease.reason == "released" for lease in got)
    status = table.status()
    assert status.free == (0, 1, 2, 3)
    assert status.workers == ()


def test_a_newcomer_that_owns_nothing_gets_its_share(make: Tables, clock: FakeClock) -> None:
    with make.join("a") as a:
        clock.until(lambda: counts(a) == [6])
        with make.join("b") as b:
            clock.until(lambda: counts(a, b) == [3, 3])
            with make.join("c") as c:
                clock.until(lambda: counts(a, b, c) == [2, 2, 2])
                before = make().status()
                clock.passes(TTL)
                assert make().status().claims == before.claims  # nothing moves any more
                assert before.spread == 0
                assert {worker.name for worker in before.workers} == {"a", "b", "c"}
            clock.until(lambda: counts(a, b) == [3, 3])
        clock.until(lambda: counts(a) == [6])


def test_a_dead_workers_shards_are_taken_after_ttl_and_not_before(make: Tables, clock: FakeClock) -> None:
    a, b = make.join("a").start(), make.join("b").start()
    clock.until(lambda: counts(a, b) == [3, 3])
    kill(a)
    died = clock.now()
    clock.until(lambda: counts(b) == [6])
    assert 0.75 * TTL < clock.now() - died < 2 * TTL  # the last renewal was a fifth of ttl ago at most
    b.leave()


def test_the_same_name_again_inherits_nothing(make: Tables, clock: FakeClock) -> None:
    first = make.join("a").start()
    clock.until(lambda: counts(first) == [6])
    old = first.leases[0]
    kill(first)
    with make.join("a") as second:
        assert second.identity != first.identity
        clock.until(lambda: counts(second) == [6])
        assert all(lease.epoch == 2 for lease in second.leases)
        with pytest.raises(LeaseLost), old.write():
            pytest.fail("let in")


def test_more_workers_than_shards(make: Tables, clock: FakeClock) -> None:
    workers = [make.join(f"w{i}", shards=2).start() for i in range(4)]
    clock.until(lambda: sorted(counts(*workers)) == [0, 0, 1, 1])
    for worker in workers:
        worker.leave()


def test_a_write_is_fenced(make: Tables, clock: FakeClock) -> None:
    table = make(shards=1)
    with table.join("a", clock=clock) as me:
        lease = me.next_lease(5)
        with lease.write() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS ringhash_work (grp text, epoch bigint)")
            tx.execute(f"INSERT INTO ringhash_work VALUES ('{table.name}', {lease.token})")
        with pytest.raises(ZeroDivisionError), lease.write() as tx:
            tx.execute(f"INSERT INTO ringhash_work VALUES ('{table.name}', {1 // 0})")
    with pytest.raises(LeaseLost, match="shard 0 at epoch 1 is over: released") as caught, lease.write():
        pytest.fail("let in")
    assert caught.value.written is False
    rows = table.database.execute("SELECT epoch FROM ringhash_work WHERE grp = ?", [table.name])
    assert rows.fetchall() == [(1,)]


def test_a_holder_that_does_not_know_is_refused(make: Tables, clock: FakeClock) -> None:
    """Its own clock says that all is well; the database knows better."""
    table = make(shards=1)
    me = table.join("a", clock=clock).start()
    lease = me.next_lease(5)
    kill(me)
    me._holder.claimed(clock.now() + 1000, [lease._grant])  # a clock that stands still
    with table.join("b", clock=clock) as other:
        clock.until(lambda: other.leases)
        assert other.leases[0].epoch == 2
        assert not lease.lost.is_set()
        with pytest.raises(LeaseLost, match="taken"), lease.write():
            pytest.fail("let in")
        assert lease.lost.is_set()


def test_a_lost_event_is_set_the_moment_the_time_is_over(make: Tables, clock: FakeClock) -> None:
    """Before any thread could set it: as in a process that was stopped and goes on."""
    me = make.join("a", shards=1).start()
    lease = me.next_lease(5)
    kill(me)
    for thread in me._threads:
        thread.join(60)
    me._holder._deadlines[lease._grant] = clock.now() + 0.05
    assert not lease.lost.is_set()
    clock.jump(0.06)
    assert lease.lost.is_set()
    assert lease.remaining == 0.0
    assert "expired" in repr(lease)
    with pytest.raises(LeaseLost, match="expired"), lease.write():
        pytest.fail("let in")


def test_on_release_hands_over_first(make: Tables, clock: FakeClock) -> None:
    asked: list[tuple[int, bool, bool]] = []
    answers = iter([False, ZeroDivisionError])

    def on_release(lease: Lease) -> bool:
        asked.append((lease.shard, lease.stopping.is_set(), lease.lost.is_set()))
        answer = next(answers, True)
        if answer is ZeroDivisionError:
            raise ZeroDivisionError
        return bool(answer)

    with make.join("a", shards=2, on_release=on_release) as a:
        clock.until(lambda: counts(a) == [2])
        with make.join("b", shards=2) as b:
            clock.until(lambda: counts(a, b) == [1, 1])
            # Refused for one and failed for the other, it was asked again; the leases were valid all along.
            assert asked == [(shard, True, False) for shard in (1, 0, 1)]
    assert asked[3:] == [(0, True, False)]


def test_a_release_waits_for_the_hook(make: Tables, clock: FakeClock) -> None:
    gate = threading.Event()
    clock.ignored = "release"
    with make.join("a", shards=2, on_release=lambda lease: gate.wait(20)) as a:
        clock.until(lambda: counts(a) == [2])
        with make.join("b", shards=2) as b:
            clock.passes(1.5 * TTL)
            assert counts(a, b) == [2, 0]  # renewed all the while
            gate.set()
            clock.until(lambda: counts(a, b) == [1, 1])


def test_releasing_by_hand_claims_anew_with_a_new_epoch(make: Tables, clock: FakeClock) -> None:
    with make.join("a", shards=1) as me:
        first = me.next_lease(5)
        first.release()
        first.release()
        second = me.next_lease(5)
        assert (first.reason, second.epoch) == ("released", 2)


def test_iteration_waits_and_ends(make: Tables, clock: FakeClock) -> None:
    seen: list[int] = []
    with make.join("a", shards=3) as me:

        def work() -> None:
            seen.extend(lease.shard for lease in me)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        clock.until(lambda: len(seen) == 3)
        assert me.next_lease(0.05) is None
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert sorted(seen) == [0, 1, 2]


def test_the_async_form(make: Tables, clock: FakeClock) -> None:
    async def work() -> None:
        table = make(shards=2)
        async with table.join("a", clock=clock) as me:
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

        other = table.join("b", clock=clock)
        async with other:
            consuming = asyncio.create_task(consume())
            await asyncio.to_thread(clock.until, lambda: counts(other) == [2])
            await asyncio.sleep(0.05)
        assert len(await asyncio.wait_for(consuming, 5)) == 2

    asyncio.run(asyncio.wait_for(work(), 30))


def test_faults_of_the_caller(make: Tables, clock: FakeClock, tmp_path: Path) -> None:
    with make(shards=4).join("a", clock=clock) as me:
        with pytest.raises(ValueError, match="4 shards"):
            make.join("b", shards=5).start()
        with pytest.raises(RuntimeError, match="once"):
            me.start()
    me.leave()
    db = tmp_path / "other.db"
    with pytest.raises(ValueError, match="name"):
        LeaseTable(db).join("")
    with pytest.raises(TypeError, match="name"):
        LeaseTable(db).join(3)  # type: ignore[arg-type]
    for ttl in (0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ttl must be from"):
            LeaseTable(db, ttl=ttl)
    wrong: Any
    for wrong in ("30", True, None):
        with pytest.raises(TypeError, match="ttl must be a number of seconds"):
            LeaseTable(db, ttl=wrong)
    with pytest.raises(ValueError, match="count"):
        LeaseTable(db, shards=0)
    with pytest.raises(ValueError, match="memory"):
        LeaseTable(":memory:")
    with pytest.raises(DatabaseAddressError, match="no support for mysql") as caught:
        LeaseTable("mysql://me:secret@db/app")
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.glob("mysql*"))
    assert LeaseTable(db, Shards(8)).shards == Shards(8)
    assert "ttl 1 s" in repr(make())


def test_a_worker_outlives_an_unreachable_database(make: Tables, clock: FakeClock) -> None:
    """Its leases end by ttl on its own clock, and it claims anew when the database is back."""
    table = make(shards=2)
    me = table.join("a", clock=clock).start()
    clock.until(lambda: counts(me) == [2])
    first = me.leases[0]
    real = table.open_rows

    def unreachable() -> Any:
        raise OSError("no route to host")

    began = clock.now()
    table.open_rows = unreachable  # type: ignore[method-assign]
    with me._changed:
        me._rows, rows = None, me._rows
    assert rows is not None
    rows.close()
    clock.until(first.lost.is_set)
    assert clock.now() - began < 1.05 * TTL
    clock.until(lambda: first.reason is not None)
    assert first.reason == "expired"
    assert isinstance(me.error, Exception)
    table.open_rows = real  # type: ignore[method-assign]
    clock.until(lambda: counts(me) == [2])
    assert [lease.epoch for lease in me.leases] == [2, 2]
    clock.until(lambda: me.error is None)
    me.leave()


def test_a_call_that_hangs_is_ended(make: Tables, clock: FakeClock) -> None:
    """The watching thread ends the statement of the other one, which runs in the database for ever."""
    me = make.join("a", shards=1)
    hanging = threading.Event()
    ended: list[BaseException] = []
    real = me._turn

    def turn() -> float:
        if not me.leases or ended:
            return real()
        with me._timed():
            hanging.set()
            rows: Any = me._rows
            try:
                rows.connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
                )
            except Exception as error:
                ended.append(error)
                raise
        raise AssertionError("it was not ended")

    me._turn = turn  # type: ignore[method-assign]
    me.start()
    clock.until(lambda: me.leases)
    lease = me.leases[0]
    clock.until(hanging.is_set)
    while not ended:
        clock.jump(TTL / 4)
        time.sleep(0.01)
    assert lease.lost.is_set()
    clock.until(lambda: me.leases and me.leases[0].epoch == 2)
    me.leave()


@pytest.mark.parametrize("sql", ["COMMIT", "ROLLBACK"])
def test_a_block_cannot_open_its_fence(make: Tables, clock: FakeClock, sql: str) -> None:
    table = make(shards=1)
    table.database.execute("CREATE TABLE work (n)")
    with table.join("a", clock=clock) as me:
        lease = me.next_lease(60)
        assert lease is not None

        def block(tx: Any) -> None:
            tx.execute("INSERT INTO work VALUES (1)")
            for statement in (sql, "BEGIN", "INSERT INTO work VALUES (2)"):
                with contextlib.suppress(TransactionEndedError):  # as a helper of the user's might
                    tx.execute(statement)

        with pytest.raises(TransactionEndedError), lease.write() as tx:
            block(tx)
        assert table.database.execute("SELECT n FROM work").rows == []
        with lease.write() as tx:
            tx.execute("INSERT INTO work VALUES (3)")
        assert table.database.execute("SELECT n FROM work").rows == [(3,)]
        assert not lease.lost.is_set()


@pytest.mark.parametrize("fault", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_on_release_raises_the_worker_goes_on(
    make: Tables, clock: FakeClock, fault: type[BaseException]
) -> None:
    faults = [fault("once")]

    def on_release(lease: Lease) -> bool:
        if faults:
            raise faults.pop()
        return True

    with make.join("a", shards=2, on_release=on_release) as a:
        clock.until(lambda: counts(a) == [2])
        with make.join("b", shards=2) as b:
            clock.until(lambda: counts(a, b) == [1, 1])
            faults.append(fault("at the end"))
            with pytest.raises(fault, match="at the end"):
                a.leave()
            assert counts(a) == [0]
            clock.until(lambda: counts(b) == [2])


def test_a_clock_that_is_set_back_leaves_no_orphans(make: Tables, clock: FakeClock) -> None:
    """A worker writes its rows while the clock is a day ahead, dies, and the clock is set right."""
    a = make.join("a").start()
    clock.time += 86_400
    clock.until(lambda: counts(a) == [6])
    kill(a)
    clock.until(lambda: not any(thread.is_alive() for thread in a._threads))
    clock.time -= 86_400
    with make.join("b") as b:
        clock.until(lambda: counts(b) == [6], within=5 * TTL)
        assert [worker.name for worker in make().status().workers if worker.alive] == ["b"]


def test_sqlite_does_not_read_a_clock_that_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LeaseTable(tmp_path / "a.db", 2, 30)
    with table.join("a") as me:
        while len(me.leases) < 2:
            time.sleep(0.001)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        ((left,),) = table.database.execute(
            f"SELECT min(expires_at) - {table.database.now} FROM ringhash_leases"
        )
        assert 0 < left <= 30
        ((ahead,),) = table.database.execute("SELECT max(expires_at) FROM ringhash_leases")
        assert ahead < 1_500_000_000  # no date
    table.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_has_no_leases(make: Tables, clock: FakeClock) -> None:
    with make.join("a", shards=1) as me:
        lease = me.next_lease(60)
        assert lease is not None
        end, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                seen: list[object] = [lease.lost.is_set(), lease.lost.wait(60), lease.reason, len(me.leases)]
                try:
                    with lease.write():
                        seen.append("let in")
                except LeaseLost:
                    seen.append("lost")
                me.leave()
                os.write(write, repr(seen).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(end, "rb") as pipe:
            assert pipe.read() == b"[True, True, 'forked', 0, 'lost']"
        os.waitpid(pid, 0)
        assert not lease.lost.is_set()
        with lease.write() as tx:
            assert tx.execute("SELECT 1").rows == [(1,)]

"""What a database does for leases: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ringhash.databases import open_database
from ringhash.leases import LeaseLost, LeaseTable
from ringhash.leases.protocol import Grant, Row
from ringhash.leases.rows import LeaseRows, Refused, lease_rows
from ringhash.members.rows import member_rows

Stores = Callable[..., LeaseRows]


def expire(store: LeaseRows, shard: int) -> None:
    """Let the lease of a shard run out in the database, now."""
    past = "expires_at - 1e6" if store.connection.dialect == "sqlite" else "expires_at - interval '30 days'"
    store.connection.execute(
        f"UPDATE ringhash_leases SET expires_at = {past} WHERE grp = ? AND shard = ?", [store._group, shard]
    )


def owners(store: LeaseRows) -> list[str | None]:
    return [row.owner for row in store.read().rows]


def test_new_leases_are_free(stores: Stores) -> None:
    store = stores(3)
    assert store.read().rows == tuple(Row(shard, None, 0, True) for shard in range(3))
    assert store.read().workers == ()


def test_set_up_is_done_once_and_checked(stores: Stores) -> None:
    stores(3).claim("a", 3, 30)
    assert owners(stores(3)) == ["a"] * 3
    with pytest.raises(ValueError, match="3 shards in this database, not 4"):
        stores(4)


def test_many_set_up_at_once(db: Any, group: str) -> None:
    faults: list[BaseException] = []
    together = threading.Barrier(6)

    def set_up() -> None:
        together.wait()
        try:
            database = open_database(db)
            leases, members = lease_rows(database, group), member_rows(database, group)
            leases.setup(5)
            members.setup()
            leases.close()
            members.close()
        except Exception as error:  # noqa: BLE001
            faults.append(error)

    threads = [threading.Thread(target=set_up) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_every_claim_raises_the_epoch(stores: Stores) -> None:
    store = stores(2)
    assert store.claim("a", 1, 30) == [Grant(0, 1)]
    assert store.claim("b", 5, 30) == [Grant(1, 1)]
    assert store.claim("c", 5, 30) == []
    store.release("a", [Grant(0, 1)])
    assert store.claim("a", 1, 30) == [Grant(0, 2)]
    expire(store, 1)
    assert store.claim("a", 1, 30) == [Grant(1, 2)]
    assert [row.epoch for row in store.read().rows] == [2, 2]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_limit_is_a_limit(stores: Stores, limit: int) -> None:
    assert len(stores(10).claim("a", limit, 30)) == limit


def test_only_exactly_what_is_held_is_renewed(stores: Stores) -> None:
    store = stores(4)
    mine = store.claim("a", 4, 30)
    expire(store, 1)
    store.release("a", [mine[2]])
    assert store.claim("b", 1, 30) == [Grant(1, 2)]
    asked = [Grant(0, 1), Grant(1, 1), Grant(2, 1), Grant(3, 2), Grant(9, 1)]
    assert store.beat("a", 30, asked, leaving=False) == [Grant(0, 1)]
    assert store.beat("b", 30, [Grant(0, 1)], leaving=False) == []


def test_an_expired_lease_is_not_renewed(stores: Stores) -> None:
    store = stores(1)
    store.claim("a", 1, 30)
    expire(store, 0)
    assert store.beat("a", 30, [Grant(0, 1)], leaving=False) == []


def test_a_stale_release_frees_nothing(stores: Stores) -> None:
    store = stores(1)
    store.claim("a", 1, 30)
    expire(store, 0)
    store.claim("b", 1, 30)
    store.release("a", [Grant(0, 1), Grant(0, 2)])
    assert owners(store) == ["b"]


def test_workers_are_counted_by_heartbeats(stores: Stores) -> None:
    store = stores(1)
    store.beat("owns nothing", 30, [], leaving=False)
    store.beat("dead", 0.05, [], leaving=False)
    time.sleep(0.1)
    assert store.read().workers == ("owns nothing",)
    store.beat("owns nothing", 30, [], leaving=True)
    assert store.read().workers == ()


def test_time_passes_by_the_databases_clock(stores: Stores) -> None:
    store = stores(1)
    store.claim("a", 1, 0.2)
    assert not store.read().rows[0].expired
    assert store.claim("b", 1, 0.2) == []
    time.sleep(0.25)
    assert store.read().rows[0].expired
    assert store.claim("b", 1, 0.2) == [Grant(0, 2)]


def test_groups_do_not_meet(db: Any, stores: Stores) -> None:
    stores(2).claim("a", 2, 30)
    other = lease_rows(open_database(db), "another")
    other.setup(3)
    other.claim("b", 3, 30)
    assert set(owners(other)) == {"b"}
    assert owners(stores()) == ["a", "a"]
    other.release("b", [Grant(shard, row.epoch) for shard, row in enumerate(other.read().rows)])
    other.close()


def test_the_fence_lets_the_holder_write(stores: Stores) -> None:
    store, other = stores(1), stores()
    (grant,) = store.claim("a", 1, 30)
    with store.fence("a", grant, 30) as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS ringhash_test (text text)")
        tx.execute("INSERT INTO ringhash_test VALUES ('once')")
    assert other.connection.execute("SELECT * FROM ringhash_test").fetchall() == [("once",)]
    with pytest.raises(ZeroDivisionError), store.fence("a", grant, 30) as tx:  # noqa: PT012
        tx.execute("INSERT INTO ringhash_test VALUES ('twice')")
        raise ZeroDivisionError
    assert other.connection.execute("SELECT * FROM ringhash_test").fetchall() == [("once",)]
    other.connection.execute("DROP TABLE ringhash_test")


@pytest.mark.parametrize(
    ("who", "grant"), [("b", Grant(0, 1)), ("a", Grant(0, 0)), ("a", Grant(0, 2)), ("a", Grant(1, 1))]
)
def test_the_fence_stops_all_others(stores: Stores, who: str, grant: Grant) -> None:
    store = stores(2)
    store.claim("a", 1, 30)
    with pytest.raises(Refused), store.fence(who, grant, 30):
        pytest.fail("let in")


def test_the_fence_stops_a_holder_whose_time_is_over(stores: Stores) -> None:
    """Also before anybody else has claimed the shard, or touched any of its rows."""
    store = stores(1)
    (grant,) = store.claim("a", 1, 30)
    expire(store, 0)
    with pytest.raises(Refused), store.fence("a", grant, 30):
        pytest.fail("let in")


def test_a_claim_waits_for_a_write(stores: Stores) -> None:
    holder, other = stores(1), stores()
    (grant,) = holder.claim("a", 1, 30)
    postgres = holder.connection.dialect == "postgresql"
    if postgres:
        with holder.fence("a", grant, 30):
            expire(stores(), 0)  # the row can be updated: so can it be renewed
            assert other.read().rows[0].expired
            assert other.claim("b", 1, 30) == []
        assert other.claim("b", 1, 30) == [Grant(0, 2)]
        return
    claimed: list[Grant] = []
    claiming = threading.Thread(target=lambda: claimed.extend(other.claim("b", 1, 30)))
    with holder.fence("a", grant, 30) as tx:
        tx.execute("UPDATE ringhash_leases SET expires_at = 0")
        claiming.start()
        claiming.join(0.2)
        assert not claimed
    claiming.join()
    assert claimed == [Grant(0, 2)]


def test_status_rows(stores: Stores) -> None:
    store = stores(2)
    store.beat("a#1", 30, [], leaving=False)
    store.claim("a#1", 1, 30)
    leases, workers = store.leases()
    assert [(row.shard, row.owner, row.epoch) for row in leases] == [(0, "a#1", 1), (1, None, 0)]
    assert leases[0].left is not None
    assert 29 < leases[0].left <= 30
    assert leases[0].age is not None
    assert 0 <= leases[0].age < 1
    assert [row.identity for row in workers] == ["a#1"]
    assert 0 <= workers[0].age < 1
    assert 29 < workers[0].left <= 30


def test_what_waits_can_be_aborted(stores: Stores) -> None:
    """The thread that watches the time can end a call that hangs."""
    store = stores(1)
    over = threading.Event()

    def abort() -> None:
        while not over.wait(0.05):  # one that comes before the statement is for nobody
            store.abort()

    aborting = threading.Thread(target=abort)
    aborting.start()
    forever = "SELECT pg_sleep(20)"
    if store.connection.dialect == "sqlite":
        forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with pytest.raises(store.errors):
        store.connection.execute(forever)
    over.set()
    aborting.join(60)


@pytest.mark.parametrize("state", ["no end", "far ahead"])
def test_free_means_the_same_to_every_statement(stores: Stores, state: str) -> None:
    """An owner without an end, or with one that no ttl explains: free to read, claim, renew, fence and status."""
    store = stores(2)
    grant, other = store.claim("a", 2, 30)
    ends = {
        ("no end", "sqlite"): "NULL",
        ("no end", "postgresql"): "NULL",
        ("far ahead", "sqlite"): "expires_at + 86400",
        ("far ahead", "postgresql"): "expires_at + interval '1 day'",
    }[state, store.connection.dialect]
    store.connection.execute(
        f"UPDATE ringhash_leases SET expires_at = {ends} WHERE grp = ? AND shard = 0", [store._group]
    )
    assert [row.expired for row in store.read().rows] == [True, False]
    with pytest.raises(Refused), store.fence("a", grant, 30):
        pytest.fail("let in")
    assert store.beat("a", 30, [grant, other], leaving=False) == [other]
    left = [row.left for row in store.leases()[0]]
    assert left[0] is None or left[0] <= 0
    assert store.claim("b", 5, 30) == [Grant(0, 2)]


def test_a_heartbeat_from_the_future_is_none(stores: Stores) -> None:
    store = stores(1)
    store.beat("a", 30, [], leaving=False)
    assert store.read().workers == ("a",)
    day = "86400" if store.connection.dialect == "sqlite" else "interval '1 day'"
    store.connection.execute(
        f"UPDATE ringhash_workers SET beat_at = beat_at + {day}, expires_at = expires_at + {day} WHERE grp = ?",
        [store._group],
    )
    assert store.read().workers == ()
    ((_, _, left),) = store.leases()[1]
    assert left <= 0


def test_tables_of_an_older_version_get_their_column(stores: Stores, db: Any) -> None:
    store = stores(1)
    with open_database(db) as database:
        column = (
            "SELECT count(*) FROM pragma_table_info('ringhash_leases') WHERE name = 'ttl'"
            if database.dialect == "sqlite"
            else "SELECT count(*) FROM information_schema.columns"
            " WHERE table_name = 'ringhash_leases' AND column_name = 'ttl'"
        )
        if database.dialect == "sqlite":  # PostgreSQL's tables are shared with other tests
            database.execute("ALTER TABLE ringhash_leases DROP COLUMN ttl")
            assert database.execute(column).rows == [(0,)]
        store.setup(1)
        assert database.execute(column).rows == [(1,)]


@pytest.mark.slow
def test_two_workers_with_real_time(db: Any, group: str) -> None:
    """The one test of each database in which time is the machine's: share, renew, die, inherit."""
    table = LeaseTable(db, 4, 1.0, name=group)
    with table.join("a") as a, table.join("b") as b:
        until = time.monotonic() + 60
        while (len(a.leases), len(b.leases)) != (2, 2):
            assert time.monotonic() < until
            time.sleep(0.01)
        lease = b.leases[0]
        with lease.write() as tx:
            assert tx.execute("SELECT 1").rows == [(1,)]
        with b._changed:  # as kill -9 would
            b._turn = lambda: 1e6  # type: ignore[method-assign]
            b._state = "left"
        b._wake()
        while len(a.leases) != 4:
            assert time.monotonic() < until
            time.sleep(0.01)
        with pytest.raises(LeaseLost), lease.write():
            pytest.fail("let in")
    table.close()

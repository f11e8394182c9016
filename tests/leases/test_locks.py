"""The locks of PostgreSQL that the fence rests on, each with the control that shows what would go wrong."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")

from ringhash.databases import OutcomeUnknownError, TransactionEndedError, open_database  # noqa: E402
from ringhash.leases.protocol import Grant  # noqa: E402
from ringhash.leases.rows import LeaseRows, Refused, lease_rows  # noqa: E402


@pytest.fixture
def connect(postgres: str, group: str) -> Any:
    made: list[LeaseRows] = []

    def make() -> LeaseRows:
        made.append(lease_rows(open_database(postgres, timeout=5.0), group))
        return made[-1]

    make().setup(8)
    yield make
    for store in made:
        store.close()


def expire(store: LeaseRows) -> None:
    store.connection.execute(
        "UPDATE ringhash_leases SET expires_at = clock_timestamp() - interval '1 s'"
        " WHERE grp = %s AND owner IS NOT NULL",
        (store._group,),
    )


def test_renewals_pass_a_write(connect: Any) -> None:
    holder, renewing = connect(), connect()
    (grant,) = holder.claim("a", 1, 30)
    renewing.connection.execute("SET lock_timeout = '300ms'")
    with holder.fence("a", grant, 30):
        assert renewing.beat("a", 30, [grant], leaving=False) == [grant]


def test_with_for_share_renewals_would_not_pass(connect: Any) -> None:
    """The control: the stronger lock, which many fences take, holds up the renewal of its own lease."""
    holder, renewing = connect(), connect()
    (grant,) = holder.claim("a", 1, 30)
    renewing.connection.execute("SET lock_timeout = '300ms'")
    with holder.connection.transaction() as tx:
        tx.execute("SELECT FROM ringhash_leases WHERE grp = %s AND shard = 0 FOR SHARE", (holder._group,))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            renewing.beat("a", 30, [grant], leaving=False)


def test_a_claim_for_no_key_update_would_not_wait(connect: Any) -> None:
    """The control: the lock that a plain UPDATE takes goes past a fenced write, and the write is stale."""
    holder, other = connect(), connect()
    (grant,) = holder.claim("a", 1, 30)
    with holder.fence("a", grant, 30):
        expire(other)
        assert Grant(0, 2) not in other.claim("b", 8, 30)
        other.connection.execute(
            "UPDATE ringhash_leases SET owner = 'b', epoch = epoch + 1 WHERE grp = %s AND shard = 0",
            (other._group,),
        )
        assert other.read().rows[0].owner == "b"


@pytest.mark.parametrize("renewal_commits", [True, False])
def test_a_fence_that_meets_a_renewal_under_way(connect: Any, renewal_commits: bool) -> None:
    """The row has an old and a new version then, and the lock must hold for both."""
    holder, renewing, other = connect(), connect(), connect()
    (grant,) = holder.claim("a", 1, 30)
    renewal = renewing.connection.transaction()
    ends = contextlib.nullcontext() if renewal_commits else pytest.raises(ZeroDivisionError)
    with ends, renewal as tx:
        tx.execute(
            "UPDATE ringhash_leases SET expires_at = expires_at + interval '1 s' WHERE grp = %s AND shard = 0",
            (renewing._group,),
        )
        fence = holder.fence("a", grant, 30)
        fence.__enter__()
        if not renewal_commits:
            raise ZeroDivisionError
    expire(other)
    assert [g.shard for g in other.claim("b", 8, 30)] == [1, 2, 3, 4, 5, 6, 7]
    fence.__exit__(None, None, None)
    assert other.claim("b", 8, 30) == [Grant(0, 2)]


def test_a_fence_that_meets_a_claim_under_way(connect: Any) -> None:
    """It waits for the claim, and then sees that the row is another's: it compares what it has locked, not
    what it saw when it began."""
    holder, other = connect(), connect()
    (grant,) = holder.claim("a", 1, 30)
    outcome: list[object] = []

    def write() -> None:
        try:
            with holder.fence("a", grant, 30):
                outcome.append("let in")
        except Refused:
            outcome.append("refused")

    writing = threading.Thread(target=write)
    with other.connection.transaction() as tx:
        # What a claim does, of a lease that has not expired, so that the old row still looks good.
        tx.execute(
            "SELECT FROM ringhash_leases WHERE grp = %s AND shard = 0 FOR UPDATE SKIP LOCKED", (other._group,)
        )
        tx.execute(
            "UPDATE ringhash_leases SET owner = 'b', epoch = epoch + 1 WHERE grp = %s AND shard = 0",
            (other._group,),
        )
        writing.start()
        writing.join(0.3)
        assert outcome == []
    writing.join()
    assert outcome == ["refused"]


def test_limit_in_an_in_subquery_is_no_limit(connect: Any) -> None:
    """The control of the claim's materialised CTE: with the plan of a bad day, a nested loop, the subquery runs
    once for every row, and each time it finds another one that is free."""
    store = connect()
    for setting in (
        "enable_hashjoin",
        "enable_mergejoin",
        "enable_material",
        "enable_hashagg",
        "enable_sort",
    ):
        store.connection.execute(f"SET {setting} = off")
    claimed = store.connection.execute(
        """
        UPDATE ringhash_leases SET owner = 'greedy' WHERE grp = ? AND shard IN (
            SELECT shard FROM ringhash_leases
            WHERE grp = ? AND owner IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED
        ) RETURNING shard
        """,
        [store._group, store._group],
    ).fetchall()
    greedy = len(claimed)
    store.connection.execute("UPDATE ringhash_leases SET owner = NULL WHERE grp = %s", (store._group,))
    assert len(store.claim("a", 1, 30)) == 1
    assert greedy > 1


def test_many_claim_at_once(connect: Any) -> None:
    stores = [connect() for _ in range(6)]
    got: list[Grant] = []
    together = threading.Barrier(6)

    def claim(i: int) -> None:
        together.wait()
        for _ in range(4):
            got.extend(stores[i].claim(f"w{i}", 1, 30))

    threads = [threading.Thread(target=claim, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [Grant(shard, 1) for shard in range(8)]


def test_a_holder_that_sleeps_in_mid_transaction_is_cut_off(connect: Any) -> None:
    """Its lock does not keep the shard for ever: the server ends the session after a ttl."""
    holder, other = connect(), connect()
    (grant,) = holder.claim("a", 1, 0.4)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout), holder.fence("a", grant, 0.4) as tx:  # noqa: PT012
        assert other.claim("b", 8, 30) == [Grant(shard, 1) for shard in range(1, 8)]
        time.sleep(0.8)
        assert other.claim("b", 8, 30) == [Grant(0, 2)]
        tx.execute("SELECT 1")


def test_a_failed_statement_is_not_committed_in_silence(connect: Any) -> None:
    store = connect()
    (grant,) = store.claim("a", 1, 30)

    def swallow(tx: Any) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            tx.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction), store.fence("a", grant, 30) as tx:
        swallow(tx)
    with store.fence("a", grant, 30) as tx:
        assert tx.execute("SELECT 1").fetchone() == (1,)


def test_a_deferred_fault_at_the_commit_is_no_unknown_outcome(connect: Any) -> None:
    store = connect()
    (grant,) = store.claim("a", 1, 30)
    with pytest.raises(psycopg.errors.UniqueViolation), store.fence("a", grant, 30) as tx:  # noqa: PT012
        tx.execute("CREATE TEMP TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        tx.execute("INSERT INTO once VALUES (1), (1)")
    assert not store.connection.broken


def test_a_connection_that_dies_on_the_commit_leaves_the_outcome_unknown(connect: Any) -> None:
    store, other = connect(), connect()
    (grant,) = store.claim("a", 1, 30)
    with pytest.raises(OutcomeUnknownError), store.fence("a", grant, 30) as tx:  # noqa: PT012
        ((pid,),) = tx.execute("SELECT pg_backend_pid()")
        other.connection.execute("SELECT pg_terminate_backend(%s)", (pid,))


@pytest.mark.parametrize("sql", ["COMMIT", "ROLLBACK", "/* */ end"])
def test_a_block_cannot_open_its_fence(connect: Any, sql: str) -> None:
    """Nothing is stored, also where the block goes on after the error; and the lease stays what it was."""
    store = connect()
    (grant,) = store.claim("a", 1, 30)

    def block(tx: Any) -> None:
        for statement in (sql, "BEGIN", "UPDATE ringhash_leases SET owner = 'stale'"):
            with contextlib.suppress(TransactionEndedError):
                tx.execute(statement)

    with pytest.raises(TransactionEndedError), store.fence("a", grant, 30) as tx:
        block(tx)
    assert store.read().rows[0].owner == "a"
    with store.fence("a", grant, 30) as tx:
        assert tx.execute("SELECT 1").rows == [(1,)]

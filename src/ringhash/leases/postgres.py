"""Leases and members in PostgreSQL, through psycopg 3.

The locks of a lease's row:

    renewal, release   UPDATE of columns that are no key    FOR NO KEY UPDATE
    write()            SELECT ... FOR KEY SHARE             lets renewals pass
    claim              SELECT ... FOR UPDATE SKIP LOCKED    the only one that FOR KEY SHARE keeps out

so a shard is not given to anybody while a fenced transaction of its holder is open. A holder that is
stopped in mid-transaction would keep it for ever: `idle_in_transaction_session_timeout` is set to the
ttl, and the server ends that session.

Times are `clock_timestamp()`: `now()` is the beginning of the transaction, which may have waited for a
lock since. All statements run in READ COMMITTED, where a row that was locked is read and compared anew.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, cast

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from ringhash.leases.protocol import Grant, Row, View
from ringhash.leases.store import LeaseRow, MemberRow, OutcomeUnknown, Refused, Store, WorkerRow

__all__ = ["PostgresStore"]

# Any number, but the same for all who make the tables: CREATE TABLE IF NOT EXISTS is no atomic act.
_SETUP_LOCK = 0x72696E6768617368
_CHANNEL = "ringhash_members"
_SCHEMA: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS ringhash_groups (grp text PRIMARY KEY, shards bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ringhash_workers ("
    " grp text, identity text, beat_at timestamptz NOT NULL, expires_at timestamptz NOT NULL,"
    " PRIMARY KEY (grp, identity))",
    # Half-empty pages and no index on a time: a renewal then stays on its page and touches no index.
    "CREATE TABLE IF NOT EXISTS ringhash_leases ("
    " grp text, shard bigint, owner text, epoch bigint NOT NULL DEFAULT 0,"
    " claimed_at timestamptz, expires_at timestamptz, PRIMARY KEY (grp, shard)) WITH (fillfactor = 50)",
)
_MEMBER_SCHEMA: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS ringhash_member_groups (grp text PRIMARY KEY, epoch bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ringhash_members ("
    " grp text, name text, weight float8 NOT NULL, zone text, incarnation text NOT NULL,"
    " expires_at timestamptz NOT NULL, PRIMARY KEY (grp, name)) WITH (fillfactor = 50)",
)
# A materialised CTE, because LIMIT in `IN (SELECT ... LIMIT n FOR UPDATE SKIP LOCKED)` is no limit: the
# planner may run that subquery once for every row, and each run locks other rows.
_CLAIM: LiteralString = """
WITH free AS MATERIALIZED (
    SELECT shard FROM ringhash_leases
    WHERE grp = %(grp)s AND (owner IS NULL OR expires_at <= clock_timestamp())
    ORDER BY shard LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE ringhash_leases l
SET owner = %(me)s, epoch = l.epoch + 1, claimed_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
FROM free WHERE l.grp = %(grp)s AND l.shard = free.shard
RETURNING l.shard, l.epoch
"""
_BEAT: LiteralString = """
INSERT INTO ringhash_workers
VALUES (%s, %s, clock_timestamp(), clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (grp, identity) DO UPDATE SET beat_at = EXCLUDED.beat_at, expires_at = EXCLUDED.expires_at
"""
_RENEW: LiteralString = """
UPDATE ringhash_leases l SET expires_at = clock_timestamp() + make_interval(secs => %s)
FROM unnest(%s::bigint[], %s::bigint[]) AS mine (shard, epoch)
WHERE l.grp = %s AND l.shard = mine.shard AND l.epoch = mine.epoch AND l.owner = %s
  AND l.expires_at > clock_timestamp()
RETURNING l.shard, l.epoch
"""
_RELEASE: LiteralString = """
UPDATE ringhash_leases l SET owner = NULL, expires_at = NULL
FROM unnest(%s::bigint[], %s::bigint[]) AS mine (shard, epoch)
WHERE l.grp = %s AND l.shard = mine.shard AND l.epoch = mine.epoch AND l.owner = %s
"""
_FENCE: LiteralString = """
SELECT FROM ringhash_leases
WHERE grp = %s AND shard = %s AND epoch = %s AND owner = %s AND expires_at > clock_timestamp()
FOR KEY SHARE
"""


class PostgresStore(Store):
    """One connection to PostgreSQL: see `Store`."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    def __init__(self, address: str, group: str, timeout: float) -> None:
        given = conninfo.conninfo_to_dict(address)
        defaults = {
            "connect_timeout": max(2, round(timeout)),
            "tcp_user_timeout": max(1000, round(timeout * 1000)),
            "application_name": "ringhash",
        }
        options = {name: value for name, value in defaults.items() if name not in given}
        self._group = group
        self._connection = psycopg.connect(address, autocommit=True, **cast("Any", options))

    def _run(self, sql: LiteralString, *values: Any) -> list[Any]:
        cursor = self._connection.execute(sql, values)
        return cursor.fetchall() if cursor.description else []

    # --- leases ---

    def _make(self, table: str, schema: tuple[LiteralString, ...]) -> None:
        if self._run("SELECT to_regclass(%s) IS NOT NULL", table) == [(True,)]:
            return  # so a role that may not create tables can use those that are there
        self._run("SELECT pg_advisory_xact_lock(%s)", _SETUP_LOCK)
        for statement in schema:
            self._run(statement)

    def setup(self, shards: int) -> None:
        with self._connection.transaction():
            self._make("ringhash_leases", _SCHEMA)
            self._run(
                "INSERT INTO ringhash_groups VALUES (%s, %s) ON CONFLICT DO NOTHING", self._group, shards
            )
            there = self._run("SELECT shards FROM ringhash_groups WHERE grp = %s", self._group)[0][0]
            if there != shards:
                raise ValueError(f"{self._group!r} has {there} shards in this database, not {shards}")
            self._run(
                "INSERT INTO ringhash_leases (grp, shard) SELECT %s, generate_series(0, %s - 1)"
                " ON CONFLICT DO NOTHING",
                self._group, shards,
            )  # fmt: skip
            self._run(
                "DELETE FROM ringhash_workers"
                " WHERE grp = %s AND expires_at < clock_timestamp() - interval '1 hour'",
                self._group,
            )

    def beat(self, identity: str, ttl: float, grants: Sequence[Grant], *, leaving: bool) -> list[Grant]:
        with self._connection.transaction():
            if leaving:
                self._run(
                    "DELETE FROM ringhash_workers WHERE grp = %s AND identity = %s", self._group, identity
                )
            else:
                self._run(_BEAT, self._group, identity, ttl)
            renewed = self._run(_RENEW, ttl, *_columns(grants), self._group, identity) if grants else []
        return [Grant(*row) for row in renewed]

    def read(self) -> View:
        rows = self._run(
            "SELECT shard, owner, epoch, coalesce(expires_at <= clock_timestamp(), true)"
            " FROM ringhash_leases WHERE grp = %s ORDER BY shard",
            self._group,
        )
        workers = self._run(
            "SELECT identity FROM ringhash_workers WHERE grp = %s AND expires_at > clock_timestamp()",
            self._group,
        )
        return View(tuple(Row(*row) for row in rows), tuple(name for (name,) in workers))

    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        values = {"grp": self._group, "me": identity, "limit": limit, "ttl": ttl}
        return sorted(Grant(*row) for row in self._connection.execute(_CLAIM, values).fetchall())

    def release(self, identity: str, grants: Sequence[Grant]) -> None:
        self._run(_RELEASE, *_columns(grants), self._group, identity)

    @contextmanager
    def fence(self, identity: str, grant: Grant, ttl: float) -> Iterator[psycopg.Connection[Any]]:
        connection = self._connection
        transaction = connection.transaction()
        transaction.__enter__()  # by hand, to tell an error of the commit from one of the block
        try:
            self._run(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
                str(max(1, round(ttl * 1000))),
            )
            if not connection.execute(_FENCE, (self._group, *grant, identity)).rowcount:
                raise Refused
            yield connection
            if connection.info.transaction_status is TransactionStatus.INERROR:
                raise psycopg.errors.InFailedSqlTransaction(
                    "a statement of the block failed, so PostgreSQL would roll back and not commit"
                )
        except BaseException as error:
            if transaction.__exit__(type(error), error, error.__traceback__):
                return  # psycopg.Rollback
            raise
        try:
            transaction.__exit__(None, None, None)
        except self.errors as error:
            timed_out = isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout)
            if connection.closed and not timed_out:
                raise OutcomeUnknown from error
            raise

    def leases(self) -> tuple[list[LeaseRow], list[WorkerRow]]:
        if self._run("SELECT to_regclass('ringhash_leases') IS NULL") == [(True,)]:
            return [], []
        rows = self._run(
            "SELECT shard, owner, epoch, extract(epoch FROM clock_timestamp() - claimed_at)::float8,"
            " extract(epoch FROM expires_at - clock_timestamp())::float8"
            " FROM ringhash_leases WHERE grp = %s ORDER BY shard",
            self._group,
        )
        workers = self._run(
            "SELECT identity, extract(epoch FROM clock_timestamp() - beat_at)::float8,"
            " extract(epoch FROM expires_at - clock_timestamp())::float8"
            ' FROM ringhash_workers WHERE grp = %s ORDER BY identity COLLATE "C"',
            self._group,
        )
        return [LeaseRow(*row) for row in rows], [WorkerRow(*row) for row in workers]

    # --- members ---

    def setup_members(self) -> None:
        with self._connection.transaction():
            self._make("ringhash_members", _MEMBER_SCHEMA)
            self._run("INSERT INTO ringhash_member_groups VALUES (%s, 0) ON CONFLICT DO NOTHING", self._group)

    @contextmanager
    def _change(self) -> Iterator[None]:
        """A change of the members: one at a time, so that an epoch is one membership."""
        with self._connection.transaction():
            self._run("SELECT FROM ringhash_member_groups WHERE grp = %s FOR UPDATE", self._group)
            yield

    def _next_epoch(self) -> None:
        self._run("UPDATE ringhash_member_groups SET epoch = epoch + 1 WHERE grp = %s", self._group)
        self._run("SELECT pg_notify(%s, %s)", _CHANNEL, self._group)

    def join(self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float) -> int:
        with self._change():
            there = self._run(
                "SELECT weight, zone FROM ringhash_members WHERE grp = %s AND name = %s", self._group, name
            )
            self._run(
                "INSERT INTO ringhash_members"
                " VALUES (%s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))"
                " ON CONFLICT (grp, name) DO UPDATE SET weight = EXCLUDED.weight, zone = EXCLUDED.zone,"
                " incarnation = EXCLUDED.incarnation, expires_at = EXCLUDED.expires_at",
                self._group, name, weight, zone, incarnation, ttl,
            )  # fmt: skip
            if there != [(weight, zone)]:
                self._next_epoch()
            rows = self._run("SELECT epoch FROM ringhash_member_groups WHERE grp = %s", self._group)
        return cast("int", rows[0][0])

    def keep(self, name: str, incarnation: str, ttl: float) -> bool:
        kept = self._run(
            "UPDATE ringhash_members SET expires_at = clock_timestamp() + make_interval(secs => %s)"
            " WHERE grp = %s AND name = %s AND incarnation = %s RETURNING 1",
            ttl, self._group, name, incarnation,
        )  # fmt: skip
        return bool(kept)

    def leave(self, name: str, incarnation: str) -> None:
        with self._change():
            gone = self._run(
                "DELETE FROM ringhash_members WHERE grp = %s AND name = %s AND incarnation = %s RETURNING 1",
                self._group, name, incarnation,
            )  # fmt: skip
            if gone:
                self._next_epoch()

    def sweep(self, names: Sequence[str], grace: float) -> int:
        with self._change():
            swept = self._run(
                "DELETE FROM ringhash_members WHERE grp = %s AND name = ANY(%s)"
                " AND expires_at <= clock_timestamp() - make_interval(secs => %s) RETURNING 1",
                self._group, list(names), grace,
            )  # fmt: skip
            if swept:
                self._next_epoch()
        return len(swept)

    def members(self) -> tuple[int, list[MemberRow]]:
        rows = self._run(
            "SELECT g.epoch, m.name, m.weight, m.zone,"
            " extract(epoch FROM clock_timestamp() - m.expires_at)::float8"
            " FROM ringhash_member_groups g LEFT JOIN ringhash_members m USING (grp) WHERE g.grp = %s",
            self._group,
        )
        return rows[0][0], [MemberRow(*row[1:]) for row in rows if row[1] is not None]

    def listen(self) -> None:
        self._run("LISTEN ringhash_members")

    def wait(self, timeout: float) -> bool:
        return any(True for _ in self._connection.notifies(timeout=timeout, stop_after=1))

    def abort(self) -> None:
        """Shut the socket down under the waiting call; the connection is of no use afterwards."""
        with suppress(*self.errors), socket.socket(fileno=os.dup(self._connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(*self.errors):
            self._connection.close()


def _columns(grants: Sequence[Grant]) -> tuple[list[int], list[int]]:
    return [grant.shard for grant in grants], [grant.epoch for grant in grants]

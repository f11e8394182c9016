"""The rows of leases and workers, and what is done to them: SQLite and PostgreSQL.

Every method is one transaction, and every time is the database's own. There is one definition of a lease
that is free, and one of a worker whose heartbeat is fresh; all statements use them. A time that lies
further ahead than its ttl allows was written by a clock that has been set back since: it is over.

In PostgreSQL, the locks of a lease's row are:

    renewal, release   UPDATE of columns that are no key    FOR NO KEY UPDATE
    write()            SELECT ... FOR KEY SHARE             lets renewals pass
    claim              SELECT ... FOR UPDATE SKIP LOCKED    the only one that FOR KEY SHARE keeps out

so a shard is not given to anybody while a fenced transaction of its holder is open. A holder that is
stopped in mid-transaction would keep it for ever: `idle_in_transaction_session_timeout` is set to the
ttl, and the server ends that session. Its times are `clock_timestamp()`: `now()` is the beginning of the
transaction, which may have waited for a lock since. All statements run in READ COMMITTED, where a row that
was locked is read and compared anew. In SQLite a write locks the whole database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, cast

from ringhash.databases import Connection, Database, Transaction
from ringhash.leases.protocol import Grant, Row, View

__all__ = ["LeaseRow", "LeaseRows", "Refused", "WorkerRow", "lease_rows", "lease_rows_over"]

_LONGEST_TTL = 86_400
_AHEAD = 0.1  # of a ttl: how far a clock may be set back before what it wrote is over


class Refused(Exception):  # noqa: N818  never leaves the package
    """The fence found that the lease belongs to somebody else, or is over."""


class WorkerRow(NamedTuple):
    """A worker that has a row: seconds since its heartbeat, and until it is taken for dead."""

    identity: str
    age: float
    left: float


class LeaseRow(NamedTuple):
    """A lease with its times: seconds since it was claimed, and until it expires."""

    shard: int
    owner: str | None
    epoch: int
    age: float | None
    left: float | None


class LeaseRows(ABC):
    """The leases of one group, over one connection.

    A method that raises one of `errors` may have happened or not: the caller must not assume either.
    """

    _now: ClassVar[str]
    _later: ClassVar[str]  # by `?` seconds
    _free: ClassVar[str]
    _fresh: ClassVar[str]
    _age: ClassVar[str]  # of {}, in seconds
    _by_name: ClassVar[str]

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection = connection
        self.errors = connection.errors
        self.abort = connection.abort
        self.close = connection.close
        self._group = group

    def setup(self, shards: int) -> None:
        """Make the tables and the leases if need be; ValueError where there are other shards."""
        with self.connection.transaction() as tx:
            self._make(tx)
            tx.execute(
                "INSERT INTO ringhash_groups VALUES (?, ?) ON CONFLICT DO NOTHING", [self._group, shards]
            )
            ((there,),) = tx.execute("SELECT shards FROM ringhash_groups WHERE grp = ?", [self._group])
            if there != shards:
                raise ValueError(f"{self._group!r} has {there} shards in this database, not {shards}")
            self._insert(tx, shards)
            tx.execute(
                f"DELETE FROM ringhash_workers WHERE grp = ? AND NOT {self._fresh} AND"
                f" NOT {self._age.format('expires_at')} BETWEEN -3600 AND 3600",
                [self._group],
            )

    def beat(self, identity: str, ttl: float, grants: Sequence[Grant], *, leaving: bool) -> list[Grant]:
        """Renew these grants and the heartbeat (take it out when leaving); return what was renewed."""
        with self.connection.transaction() as tx:
            if leaving:
                tx.execute(
                    "DELETE FROM ringhash_workers WHERE grp = ? AND identity = ?", [self._group, identity]
                )
            else:
                tx.execute(
                    "INSERT INTO ringhash_workers (grp, identity, beat_at, expires_at)"
                    f" VALUES (?, ?, {self._now}, {self._later})"
                    " ON CONFLICT (grp, identity) DO UPDATE"
                    " SET beat_at = excluded.beat_at, expires_at = excluded.expires_at",
                    [self._group, identity, ttl],
                )
            return self._renew(tx, identity, ttl, grants) if grants else []

    def read(self) -> View:
        """Return all leases and the workers whose heartbeat is fresh."""
        rows = self.connection.execute(
            f"SELECT shard, owner, epoch, {self._free} FROM ringhash_leases WHERE grp = ? ORDER BY shard",
            [self._group],
        )
        workers = self.connection.execute(
            f"SELECT identity FROM ringhash_workers WHERE grp = ? AND {self._fresh}", [self._group]
        )
        return View(
            tuple(Row(shard, owner, epoch, bool(over)) for shard, owner, epoch, over in rows),
            tuple(name for (name,) in workers),
        )

    @abstractmethod
    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        """Claim at most `limit` shards that are free and that no write holds back."""

    def release(self, identity: str, grants: Sequence[Grant]) -> None:
        """Free those of these grants that are still this worker's."""
        with self.connection.transaction() as tx:
            tx.executemany(
                "UPDATE ringhash_leases SET owner = NULL, expires_at = NULL"
                " WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ?",
                [(self._group, *grant, identity) for grant in grants],
            )

    @contextmanager
    def fence(self, identity: str, grant: Grant, ttl: float) -> Iterator[Transaction]:
        """Open a transaction in which nobody else can claim the shard; `Refused` if it is too late."""
        with self.connection.transaction() as tx:
            if not self._lock(tx, identity, grant, ttl):
                raise Refused
            yield tx

    def leases(self) -> tuple[list[LeaseRow], list[WorkerRow]]:
        """Return all leases and workers, with their times; none where there is no such table.

        A lease that is over because its clock was set back has nothing left.
        """
        if not self._is_there():
            return [], []
        with self.connection.transaction(write=False) as tx:
            rows = tx.execute(
                f"SELECT shard, owner, epoch, {self._age.format('claimed_at')},"
                f" CASE WHEN owner IS NULL THEN NULL WHEN {self._free}"
                f" THEN {self._least.format(self._left('expires_at'))} ELSE {self._left('expires_at')} END"
                " FROM ringhash_leases WHERE grp = ? ORDER BY shard",
                [self._group],
            )
            workers = tx.execute(
                f"SELECT identity, {self._age.format('beat_at')}, CASE WHEN {self._fresh}"
                f" THEN {self._left('expires_at')} ELSE {self._least.format(self._left('expires_at'))} END"
                f" FROM ringhash_workers WHERE grp = ? ORDER BY identity{self._by_name}",
                [self._group],
            )
        return [LeaseRow(*row) for row in rows], [WorkerRow(*row) for row in workers]

    _least: ClassVar[str]  # the lesser of {} and 0

    def _left(self, column: str) -> str:
        return f"-({self._age.format(column)})"

    @abstractmethod
    def _is_there(self) -> bool: ...

    @abstractmethod
    def _make(self, tx: Transaction) -> None: ...

    @abstractmethod
    def _insert(self, tx: Transaction, shards: int) -> None: ...

    @abstractmethod
    def _renew(self, tx: Transaction, identity: str, ttl: float, grants: Sequence[Grant]) -> list[Grant]: ...

    @abstractmethod
    def _lock(self, tx: Transaction, identity: str, grant: Grant, ttl: float) -> bool: ...


class _Sqlite(LeaseRows):
    _now = "ringhash_now()"
    _later = "ringhash_now() + ?"
    _free = (
        "(owner IS NULL OR expires_at IS NULL OR expires_at <= ringhash_now()"
        f" OR expires_at > ringhash_now() + {1 + _AHEAD} * coalesce(ttl, {_LONGEST_TTL}))"
    )
    _fresh = (
        f"(expires_at > ringhash_now() AND beat_at <= ringhash_now() + {_AHEAD} * (expires_at - beat_at))"
    )
    _age = "ringhash_now() - {}"
    _least = "min({}, 0.0)"
    _by_name = ""

    def _is_there(self) -> bool:
        names = "('ringhash_leases', 'ringhash_workers')"
        return len(self.connection.execute(f"SELECT 1 FROM sqlite_master WHERE name IN {names}").rows) == 2

    def setup(self, shards: int) -> None:
        cast("Any", self.connection).use_wal()
        super().setup(shards)

    def _make(self, tx: Transaction) -> None:
        for statement in (
            "CREATE TABLE IF NOT EXISTS ringhash_groups (grp TEXT PRIMARY KEY, shards INTEGER NOT NULL)",
            "CREATE TABLE IF NOT EXISTS ringhash_workers ("
            " grp TEXT, identity TEXT, beat_at REAL NOT NULL, expires_at REAL NOT NULL,"
            " PRIMARY KEY (grp, identity))",
            "CREATE TABLE IF NOT EXISTS ringhash_leases ("
            " grp TEXT, shard INTEGER, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0,"
            " claimed_at REAL, expires_at REAL, ttl REAL, PRIMARY KEY (grp, shard))",
        ):
            tx.execute(statement)
        if "ttl" not in [row[1] for row in tx.execute("PRAGMA table_info(ringhash_leases)")]:
            tx.execute("ALTER TABLE ringhash_leases ADD COLUMN ttl REAL")

    def _insert(self, tx: Transaction, shards: int) -> None:
        tx.executemany(
            "INSERT OR IGNORE INTO ringhash_leases (grp, shard) VALUES (?, ?)",
            ((self._group, shard) for shard in range(shards)),
        )

    def _renew(self, tx: Transaction, identity: str, ttl: float, grants: Sequence[Grant]) -> list[Grant]:
        sql = (
            "UPDATE ringhash_leases SET expires_at = ringhash_now() + ?, ttl = ?"
            f" WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ? AND NOT {self._free}"
        )
        return [it for it in grants if tx.execute(sql, (ttl, ttl, self._group, *it, identity)).rowcount]

    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        with self.connection.transaction() as tx:
            free = tx.execute(
                f"SELECT shard, epoch + 1 FROM ringhash_leases WHERE grp = ? AND {self._free}"
                " ORDER BY shard LIMIT ?",
                [self._group, limit],
            ).rows
            tx.executemany(
                "UPDATE ringhash_leases SET owner = ?, epoch = ?, claimed_at = ringhash_now(),"
                " expires_at = ringhash_now() + ?, ttl = ? WHERE grp = ? AND shard = ?",
                [(identity, epoch, ttl, ttl, self._group, shard) for shard, epoch in free],
            )
        return [Grant(shard, epoch) for shard, epoch in free]

    def _lock(self, tx: Transaction, identity: str, grant: Grant, ttl: float) -> bool:  # noqa: ARG002
        return bool(
            tx.execute(
                "SELECT 1 FROM ringhash_leases"
                f" WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ? AND NOT {self._free}",
                [self._group, *grant, identity],
            ).rows
        )


class _Postgres(LeaseRows):
    # Any number, but the same for all who make the tables: CREATE TABLE IF NOT EXISTS is no atomic act.
    _SETUP_LOCK = 0x72696E6768617368

    _now = "clock_timestamp()"
    _later = "clock_timestamp() + make_interval(secs => ?)"
    _free = (
        "(owner IS NULL OR expires_at IS NULL OR expires_at <= clock_timestamp() OR expires_at >"
        f" clock_timestamp() + make_interval(secs => {1 + _AHEAD} * coalesce(ttl, {_LONGEST_TTL})))"
    )
    _fresh = (
        "(expires_at > clock_timestamp() AND beat_at <= clock_timestamp() +"
        f" {_AHEAD} * (expires_at - beat_at))"
    )
    _age = "extract(epoch FROM clock_timestamp() - {})::float8"
    _least = "least({}, 0.0)"
    _by_name = ' COLLATE "C"'

    def _is_there(self) -> bool:
        return self.connection.execute("SELECT to_regclass('ringhash_leases') IS NOT NULL").rows == [(True,)]

    def _make(self, tx: Transaction) -> None:
        found = tx.execute(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('ringhash_leases') AND attname = 'ttl'"
        )
        if found.rows:
            return  # so a role that may not create tables can use those that are there
        tx.execute("SELECT pg_advisory_xact_lock(?)", [self._SETUP_LOCK])
        for statement in (
            "CREATE TABLE IF NOT EXISTS ringhash_groups (grp text PRIMARY KEY, shards bigint NOT NULL)",
            "CREATE TABLE IF NOT EXISTS ringhash_workers ("
            " grp text, identity text, beat_at timestamptz NOT NULL, expires_at timestamptz NOT NULL,"
            " PRIMARY KEY (grp, identity))",
            # Half-empty pages and no index on a time: a renewal then stays on its page and touches no index.
            "CREATE TABLE IF NOT EXISTS ringhash_leases ("
            " grp text, shard bigint, owner text, epoch bigint NOT NULL DEFAULT 0, claimed_at timestamptz,"
            " expires_at timestamptz, ttl float8, PRIMARY KEY (grp, shard)) WITH (fillfactor = 50)",
            "ALTER TABLE ringhash_leases ADD COLUMN IF NOT EXISTS ttl float8",
        ):
            tx.execute(statement)

    def _insert(self, tx: Transaction, shards: int) -> None:
        tx.execute(
            "INSERT INTO ringhash_leases (grp, shard) SELECT ?, generate_series(0, ? - 1)"
            " ON CONFLICT DO NOTHING",
            [self._group, shards],
        )

    def _renew(self, tx: Transaction, identity: str, ttl: float, grants: Sequence[Grant]) -> list[Grant]:
        renewed = tx.execute(
            "UPDATE ringhash_leases l SET expires_at = clock_timestamp() + make_interval(secs => ?), ttl = ?"
            " FROM unnest(?::bigint[], ?::bigint[]) AS mine (its_shard, its_epoch)"
            " WHERE grp = ? AND shard = its_shard AND epoch = its_epoch AND owner = ?"
            f" AND NOT {self._free} RETURNING shard, epoch",
            [ttl, ttl, [it.shard for it in grants], [it.epoch for it in grants], self._group, identity],
        )
        return [Grant(*row) for row in renewed]

    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        # A materialised CTE, because LIMIT in `IN (SELECT ... LIMIT n FOR UPDATE SKIP LOCKED)` is no limit:
        # the planner may run that subquery once for every row, and each run locks other rows.
        claimed = self.connection.execute(
            f"""
            WITH free AS MATERIALIZED (
                SELECT shard FROM ringhash_leases WHERE grp = ? AND {self._free}
                ORDER BY shard LIMIT ? FOR UPDATE SKIP LOCKED
            )
            UPDATE ringhash_leases l
            SET owner = ?, epoch = l.epoch + 1, claimed_at = clock_timestamp(),
                expires_at = clock_timestamp() + make_interval(secs => ?), ttl = ?
            FROM free WHERE l.grp = ? AND l.shard = free.shard
            RETURNING l.shard, l.epoch
            """,
            [self._group, limit, identity, ttl, ttl, self._group],
        )
        return sorted(Grant(*row) for row in claimed)

    def _lock(self, tx: Transaction, identity: str, grant: Grant, ttl: float) -> bool:
        return bool(
            tx.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', ?, true)"
                " FROM (SELECT FROM ringhash_leases"
                f" WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ? AND NOT {self._free}"
                " FOR KEY SHARE) AS held",
                [str(max(1, round(ttl * 1000))), self._group, *grant, identity],
            ).rows
        )


def lease_rows(database: Database, group: str) -> LeaseRows:
    """Return the rows of one group over a new connection, which the caller closes."""
    return lease_rows_over(database.connect(), group)


def lease_rows_over(connection: Connection, group: str) -> LeaseRows:
    """Return the rows of one group over a connection that is there."""
    return (_Sqlite if connection.dialect == "sqlite" else _Postgres)(connection, group)

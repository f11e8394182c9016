"""The rows of members, and what is done to them: SQLite and PostgreSQL.

One membership has one epoch. Each change is a transaction under the lock of the group's row, so an epoch
is one membership, for all who ever see it. Every time is the database's own; one that lies further ahead
than its ttl allows was written by a clock that has been set back since, or before the machine was started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, cast

from ringhash.databases import Connection, Database, Transaction

__all__ = ["MemberRow", "MemberRows", "member_rows", "member_rows_over"]

_CHANNEL = "ringhash_members"
_LONGEST_TTL = 86_400
_AHEAD = 0.1  # of a ttl: how far a clock may be set back before what it wrote is over


class MemberRow(NamedTuple):
    """A member, with the seconds since its ttl ran out, negative while it lives.

    `ahead` says that its time lies further ahead than its ttl, so nobody knows when it ran out.
    """

    name: str
    weight: float
    zone: str | None
    overdue: float
    ahead: bool = False


class MemberRows(ABC):
    """The members of one group, over one connection.

    A method that raises one of `errors` may have happened or not: the caller must not assume either.
    """

    _now: ClassVar[str]
    _later: ClassVar[str]  # by `?` seconds
    _ago: ClassVar[str]
    _overdue: ClassVar[str]
    _ahead: ClassVar[str]

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection = connection
        self.errors = connection.errors
        self.wait = connection.wait
        self.abort = connection.abort
        self.close = connection.close
        self._group = group

    def setup(self) -> None:
        """Make the tables if need be."""
        with self.connection.transaction() as tx:
            self._make(tx)
            tx.execute(
                "INSERT INTO ringhash_member_groups VALUES (?, 0) ON CONFLICT DO NOTHING", [self._group]
            )

    @abstractmethod
    def _make(self, tx: Transaction) -> None: ...

    def _lock(self, tx: Transaction) -> None:  # noqa: B027
        """One change at a time; SQLite's transactions are that already."""

    def _tell(self, tx: Transaction) -> None:  # noqa: B027
        """Tell those that listen; SQLite's see it by themselves."""

    @contextmanager
    def _change(self) -> Iterator[Transaction]:
        with self.connection.transaction() as tx:
            self._lock(tx)
            yield tx

    def _next_epoch(self, tx: Transaction) -> None:
        tx.execute("UPDATE ringhash_member_groups SET epoch = epoch + 1 WHERE grp = ?", [self._group])
        self._tell(tx)

    def _put(
        self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float, *, replace: bool
    ) -> int | None:
        with self._change() as tx:
            there = tx.execute(
                "SELECT weight, zone, incarnation FROM ringhash_members WHERE grp = ? AND name = ?",
                [self._group, name],
            ).fetchone()
            if there is not None and there[2] != incarnation and not replace:
                return None
            tx.execute(
                "INSERT INTO ringhash_members (grp, name, weight, zone, incarnation, expires_at, ttl)"
                f" VALUES (?, ?, ?, ?, ?, {self._later}, ?)"
                " ON CONFLICT (grp, name) DO UPDATE SET weight = excluded.weight, zone = excluded.zone,"
                " incarnation = excluded.incarnation, expires_at = excluded.expires_at, ttl = excluded.ttl",
                [self._group, name, weight, zone, incarnation, ttl, ttl],
            )
            if there is None or tuple(there[:2]) != (weight, zone):
                self._next_epoch(tx)
            ((epoch,),) = tx.execute("SELECT epoch FROM ringhash_member_groups WHERE grp = ?", [self._group])
        return cast("int", epoch)

    def join(self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float) -> int:
        """Make the node a member, in place of an older incarnation; return the epoch, which goes up if
        anything changed."""
        return cast("int", self._put(name, weight, zone, incarnation, ttl, replace=True))

    def renew(self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float) -> bool:
        """As `join`, but False, and nothing changed, where the name is another incarnation's by now."""
        return self._put(name, weight, zone, incarnation, ttl, replace=False) is not None

    def keep(self, name: str, incarnation: str, ttl: float) -> bool:
        """Renew a member; False when it was swept away, or is another incarnation's."""
        kept = self.connection.execute(
            f"UPDATE ringhash_members SET expires_at = {self._later}, ttl = ?"
            " WHERE grp = ? AND name = ? AND incarnation = ?",
            [ttl, ttl, self._group, name, incarnation],
        )
        return bool(kept.rowcount)

    def leave(self, name: str, incarnation: str) -> None:
        """Take a member out."""
        with self._change() as tx:
            if tx.execute(
                "DELETE FROM ringhash_members WHERE grp = ? AND name = ? AND incarnation = ?",
                [self._group, name, incarnation],
            ).rowcount:
                self._next_epoch(tx)

    def sweep(self, names: Sequence[str], grace: float) -> int:
        """Take out those of `names` whose ttl ran out more than `grace` ago; return how many."""
        names = list(names)
        with self._change() as tx:
            swept = sum(
                tx.execute(
                    f"DELETE FROM ringhash_members WHERE grp = ? AND name = ? AND expires_at <= {self._ago}",
                    [self._group, name, grace],
                ).rowcount
                for name in names
            )
            if swept:
                self._next_epoch(tx)
        return swept

    def bound(self) -> int:
        """Let times that lie too far ahead end now, so that their grace begins; return how many."""
        with self._change() as tx:
            return tx.execute(
                f"UPDATE ringhash_members SET expires_at = {self._now} WHERE grp = ? AND {self._ahead}",
                [self._group],
            ).rowcount

    def members(self) -> tuple[int, list[MemberRow]]:
        """Return the epoch and the members, of one moment."""
        rows = self.connection.execute(
            f"SELECT g.epoch, m.name, m.weight, m.zone, {self._overdue}, {self._ahead}"
            " FROM ringhash_member_groups g LEFT JOIN ringhash_members m USING (grp) WHERE g.grp = ?",
            [self._group],
        ).rows
        found = [
            MemberRow(name, weight, zone, overdue, bool(ahead))
            for _, name, weight, zone, overdue, ahead in rows
            if name is not None
        ]
        return rows[0][0], found

    def listen(self) -> None:
        """Ask to be told of changes of the members."""
        self.connection.listen(_CHANNEL)


class _Sqlite(MemberRows):
    _now = "ringhash_now()"
    _later = "ringhash_now() + ?"
    _ago = "ringhash_now() - ?"
    _overdue = "ringhash_now() - expires_at"
    _ahead = f"expires_at > ringhash_now() + {1 + _AHEAD} * coalesce(ttl, {_LONGEST_TTL})"

    def setup(self) -> None:
        cast("Any", self.connection).use_wal()
        super().setup()

    def _make(self, tx: Transaction) -> None:
        tx.execute(
            "CREATE TABLE IF NOT EXISTS ringhash_member_groups (grp TEXT PRIMARY KEY, epoch INTEGER NOT NULL)"
        )
        tx.execute(
            "CREATE TABLE IF NOT EXISTS ringhash_members ("
            " grp TEXT, name TEXT, weight REAL NOT NULL, zone TEXT, incarnation TEXT NOT NULL,"
            " expires_at REAL NOT NULL, ttl REAL, PRIMARY KEY (grp, name))"
        )
        if "ttl" not in [row[1] for row in tx.execute("PRAGMA table_info(ringhash_members)")]:
            tx.execute("ALTER TABLE ringhash_members ADD COLUMN ttl REAL")


class _Postgres(MemberRows):
    # Any number, but the same for all who make the tables: CREATE TABLE IF NOT EXISTS is no atomic act.
    _SETUP_LOCK = 0x72696E6768617368

    _now = "clock_timestamp()"
    _later = "clock_timestamp() + make_interval(secs => ?)"
    _ago = "clock_timestamp() - make_interval(secs => ?)"
    _overdue = "extract(epoch FROM clock_timestamp() - expires_at)::float8"
    _longest = f"make_interval(secs => {1 + _AHEAD} * coalesce(ttl, {_LONGEST_TTL}))"
    _ahead = f"expires_at > clock_timestamp() + {_longest}"

    def _make(self, tx: Transaction) -> None:
        found = tx.execute(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('ringhash_members') AND attname = 'ttl'"
        )
        if found.rows:
            return  # so a role that may not create tables can use those that are there
        tx.execute("SELECT pg_advisory_xact_lock(?)", [self._SETUP_LOCK])
        for statement in (
            "CREATE TABLE IF NOT EXISTS ringhash_member_groups (grp text PRIMARY KEY, epoch bigint NOT NULL)",
            "CREATE TABLE IF NOT EXISTS ringhash_members ("
            " grp text, name text, weight float8 NOT NULL, zone text, incarnation text NOT NULL,"
            " expires_at timestamptz NOT NULL, ttl float8, PRIMARY KEY (grp, name)) WITH (fillfactor = 50)",
            "ALTER TABLE ringhash_members ADD COLUMN IF NOT EXISTS ttl float8",
        ):
            tx.execute(statement)

    def _lock(self, tx: Transaction) -> None:
        tx.execute("SELECT FROM ringhash_member_groups WHERE grp = ? FOR UPDATE", [self._group])

    def _tell(self, tx: Transaction) -> None:
        tx.execute("SELECT pg_notify(?, ?)", [_CHANNEL, self._group])


def member_rows(database: Database, group: str) -> MemberRows:
    """Return the rows of one group over a new connection, which the caller closes."""
    return member_rows_over(database.connect(), group)


def member_rows_over(connection: Connection, group: str) -> MemberRows:
    """Return the rows of one group over a connection that is there."""
    return (_Sqlite if connection.dialect == "sqlite" else _Postgres)(connection, group)

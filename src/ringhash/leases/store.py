"""What leases and members ask of a database: one connection to SQLite or to PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ringhash.leases.protocol import Grant, View

__all__ = ["LeaseRow", "MemberRow", "OutcomeUnknown", "Refused", "Store", "WorkerRow", "open_store"]


class Refused(Exception):  # noqa: N818  never leaves the package
    """The fence found that the lease belongs to somebody else, or is over."""


class OutcomeUnknown(Exception):  # noqa: N818  never leaves the package
    """A commit was sent and its answer never came."""


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


class MemberRow(NamedTuple):
    """A member with the seconds since its ttl ran out; negative while it lives."""

    name: str
    weight: float
    zone: str | None
    overdue: float


class Store(Protocol):
    """One connection. Every time is the database's own; every method is one transaction.

    A method that raises one of `errors` may have happened or not: the caller must not assume either.
    """

    errors: tuple[type[Exception], ...]

    def setup(self, shards: int) -> None:
        """Make the tables and the leases if need be; ValueError where there are other shards."""

    def beat(self, identity: str, ttl: float, grants: Sequence[Grant], *, leaving: bool) -> list[Grant]:
        """Renew these grants and the heartbeat (take it out when leaving); return what was renewed."""

    def read(self) -> View:
        """Return all leases and the workers whose heartbeat is fresh."""

    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        """Claim at most `limit` shards that are free or expired and that no write holds back."""

    def release(self, identity: str, grants: Sequence[Grant]) -> None:
        """Free those of these grants that are still this worker's."""

    def fence(self, identity: str, grant: Grant, ttl: float) -> AbstractContextManager[Any]:
        """Open a transaction in which nobody else can claim the shard; `Refused` if it is too late."""

    def leases(self) -> tuple[list[LeaseRow], list[WorkerRow]]:
        """Return all leases and workers, with their times; none where there is no such table."""

    def setup_members(self) -> None:
        """Make the tables of members if need be."""

    def join(self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float) -> int:
        """Make the node a member, or renew it; return the epoch, which goes up if anything changed."""

    def keep(self, name: str, incarnation: str, ttl: float) -> bool:
        """Renew a member; False when it was swept away, or is another incarnation's."""

    def leave(self, name: str, incarnation: str) -> None:
        """Take a member out."""

    def sweep(self, names: Sequence[str], grace: float) -> int:
        """Take out those of `names` whose ttl ran out more than `grace` ago; return how many."""

    def members(self) -> tuple[int, list[MemberRow]]:
        """Return the epoch and the members, of one moment."""

    def listen(self) -> None:
        """Ask to be told of changes of the members."""

    def wait(self, timeout: float) -> bool:
        """Wait until told of a change, or for `timeout` seconds; return whether told."""

    def abort(self) -> None:
        """Make a call that is waiting in another thread fail."""

    def close(self) -> None:
        """Close the connection."""


def open_store(db: str | os.PathLike[str], group: str, timeout: float) -> Store:
    """Return a new connection to `db`: a path, or an address that begins with `postgresql://`.

    Args:
        db: Where the tables are.
        group: The name of the set of leases or members; one database has any number.
        timeout: How long to wait for a connection, or for a lock of the whole database.
    """
    if isinstance(db, str) and db.startswith(("postgresql://", "postgres://")):
        try:
            from ringhash.leases.postgres import PostgresStore  # noqa: PLC0415  an extra
        except ImportError as error:
            raise ImportError("PostgreSQL needs psycopg: pip install 'ringhash[postgres]'") from error
        return PostgresStore(db, group, timeout)
    from ringhash.leases.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(db, group, timeout)

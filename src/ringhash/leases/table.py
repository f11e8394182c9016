"""The lease table: where the leases are, and how to join it."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Self

from ringhash.databases import Database, open_database
from ringhash.databases.clock import SYSTEM, Clock, read_ttl
from ringhash.leases.lease import OnRelease
from ringhash.leases.rows import LeaseRows, lease_rows
from ringhash.leases.status import Status, status_from
from ringhash.leases.worker import Worker
from ringhash.placements.shards import Shards

__all__ = ["LeaseTable"]

_LONGEST_WAIT = 30.0  # seconds, for a connection or the lock of a whole database


class LeaseTable:
    """The leases of a fixed number of shards, in a database: who may work on which shard.

    Args:
        db: A path (SQLite: the processes of one machine), an address `postgresql://...` (needs the extra
            `postgres`), or a `Database`.
        shards: `Shards`, or how many; the same for everyone who uses the table.
        ttl: For how many seconds a lease is granted. A crashed worker's shards are free after it; a
            worker that cannot reach the database stops by it. It renews five times a ttl.
        name: One database has any number of lease tables, by name.

    Raises:
        TypeError, ValueError: An argument is out of its range, or `db` is no database that is supported.

    The epochs that a table has granted must never come again, so never delete its rows.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = LeaseTable(folder.name + "/leases.db", shards=2, ttl=30)
    >>> with table.join("worker-a") as me:
    ...     for lease in me:
    ...         print(lease)
    ...         if lease.shard == 1: break
    <Lease of shard 0 at epoch 1: held>
    <Lease of shard 1 at epoch 1: held>
    >>> print(lease)
    <Lease of shard 1 at epoch 1: released>
    >>> table.close()
    >>> folder.cleanup()
    """

    def __init__(
        self,
        db: str | os.PathLike[str] | Database,
        shards: Shards | int = 64,
        ttl: float = 30.0,
        *,
        name: str = "default",
    ) -> None:
        self.ttl = read_ttl(ttl)
        self.shards = shards if isinstance(shards, Shards) else Shards(shards)
        self.name = name
        self._own = not isinstance(db, Database)
        self.database = (
            db if isinstance(db, Database) else open_database(db, timeout=min(self.ttl, _LONGEST_WAIT))
        )
        if self.database.address == ":memory:":
            raise ValueError("leases in memory cannot be shared; give a path")
        self._ready = False

    def join(self, name: str, *, on_release: OnRelease | None = None, clock: Clock = SYSTEM) -> Worker:
        """Return a worker of this table; it begins when it is entered with `with` or `async with`.

        Args:
            name: For people. The identity is the name and a fresh incarnation, so a process that is
                started again under its name inherits nothing.
            on_release: See `OnRelease`; by default, a lease that is being rebalanced is released immediately.
            clock: What the worker counts its own time by; for tests.
        """
        return Worker(self, name, on_release, clock)

    def status(self) -> Status:
        """Return who holds what, how old the heartbeats are and how even it is. One read.

        Raises:
            The database's own error, when it cannot be reached.
        """
        self.set_up()
        with closing(self.open_rows()) as rows:
            return status_from(*rows.leases())

    def set_up(self) -> None:
        """Make the tables if need be.

        Raises:
            ValueError: The table has another number of shards.
        """
        if not self._ready:
            with closing(self.open_rows()) as rows:
                rows.setup(self.shards.count)
            self._ready = True

    def open_rows(self) -> LeaseRows:
        """Return the rows over a new connection; what a `Worker` asks for."""
        return lease_rows(self.database, self.name)

    def close(self) -> None:
        """Close the connections that are kept for later."""
        if self._own:
            self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LeaseTable {self.name!r} of {self.shards!r}, ttl {self.ttl:g} s>"

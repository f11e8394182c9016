"""Seeing leases: who holds what, how fresh the heartbeats are, how even it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ringhash.databases import open_database
from ringhash.leases.rows import LeaseRow, WorkerRow, lease_rows_over
from ringhash.printable import printable

__all__ = ["LeaseStatus", "Status", "WorkerStatus", "read_status", "status_from"]


class LeaseStatus(NamedTuple):
    """A lease: its holder's identity (None: nobody), and the seconds it has been and will be held."""

    shard: int
    owner: str | None
    epoch: int
    held_for: float | None
    expires_in: float | None


class WorkerStatus(NamedTuple):
    """A worker: its shards, the age of its heartbeat, and whether it counts as alive."""

    name: str
    incarnation: str
    shards: tuple[int, ...]
    heartbeat_age: float | None
    alive: bool


class Status(NamedTuple):
    """The state of a lease table at one moment, by the database's clock.

    `claims` is the number of claims there ever were: the difference of two looks is how many shards
    changed hands in between. `free` are the shards that nobody holds. `peak_to_mean` is the most
    shards of a live worker by the mean over the live ones; 0.0 when there are none.
    """

    workers: tuple[WorkerStatus, ...]
    leases: tuple[LeaseStatus, ...]
    free: tuple[int, ...]
    claims: int
    spread: int
    peak_to_mean: float

    def __str__(self) -> str:
        lines = [("worker", "incarnation", "shards", "heartbeat", "")]
        lines += [
            (
                printable(worker.name),
                worker.incarnation,
                str(len(worker.shards)),
                "-" if worker.heartbeat_age is None else f"{worker.heartbeat_age:.1f} s",
                _runs(worker.shards) if worker.alive else f"DEAD {_runs(worker.shards)}",
            )
            for worker in self.workers
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e}".rstrip()
            for a, b, c, d, e in lines
        ]
        free = f"{len(self.free)} free ({_runs(self.free)})" if self.free else "none free"
        table.append(
            f"{len(self.leases)} shards, {free}; max - min {self.spread}, "
            f"max/mean {self.peak_to_mean:.3f}; {self.claims} claims so far"
        )
        return "\n".join(table)

    def to_dict(self) -> dict[str, object]:
        """Return the status as a dictionary that JSON can hold."""
        return {
            **self._asdict(),
            "workers": [worker._asdict() for worker in self.workers],
            "leases": [lease._asdict() for lease in self.leases],
        }


def read_status(db: str | os.PathLike[str], name: str = "default", *, timeout: float = 10.0) -> Status:
    """Return the state of a lease table, and change nothing. One read.

    Args:
        db: As for `LeaseTable`.
        name: The name of the lease table.
        timeout: For how many seconds to wait for the database.

    Raises:
        FileNotFoundError: There is no such SQLite file.
        LookupError: There is no such lease table.
        The database's own error, when it cannot be reached.
    """
    with open_database(db, read_only=True, timeout=timeout) as database, database.connection() as connection:
        leases, workers = lease_rows_over(connection, name).leases()
    if not leases:
        raise LookupError(f"there is no lease table {name!r} in this database")
    return status_from(leases, workers)


def status_from(leases: Iterable[LeaseRow], workers: Iterable[WorkerRow]) -> Status:
    """Return the status that the rows of a lease table amount to.

    >>> rows = [LeaseRow(0, "a#1", 3, 5.0, 25.0), LeaseRow(1, "b#2", 1, 60.0, -1.0)]
    >>> print(status_from(rows, [WorkerRow("a#1", 2.0, 28.0)]))
    worker  incarnation  shards  heartbeat
    a       1                 1      2.0 s  0
    2 shards, 1 free (1); max - min 0, max/mean 1.000; 4 claims so far
    """
    seen = [
        LeaseStatus(row.shard, row.owner, row.epoch, row.age, row.left)
        if row.owner is not None and row.left is not None and row.left > 0
        else LeaseStatus(row.shard, None, row.epoch, None, None)
        for row in leases
    ]
    held: dict[str, list[int]] = {}
    for lease in seen:
        if lease.owner is not None:
            held.setdefault(lease.owner, []).append(lease.shard)
    beats = {row.identity: row for row in workers if row.left > 0 or row.identity in held}
    people = []
    for identity in sorted(beats.keys() | held.keys()):
        name, _, incarnation = identity.rpartition("#")
        row = beats.get(identity)
        people.append(
            WorkerStatus(
                name,
                incarnation,
                tuple(held.get(identity, ())),
                None if row is None else row.age,
                row is not None and row.left > 0,
            )
        )
    counts = [len(worker.shards) for worker in people if worker.alive]
    total = sum(counts)
    return Status(
        workers=tuple(people),
        leases=tuple(seen),
        free=tuple(lease.shard for lease in seen if lease.owner is None),
        claims=sum(lease.epoch for lease in seen),
        spread=max(counts) - min(counts) if counts else 0,
        peak_to_mean=max(counts) * len(counts) / total if total else 0.0,
    )


def _runs(shards: tuple[int, ...]) -> str:
    """Text such as 0-3, 7."""
    runs: list[list[int]] = []
    for shard in shards:
        if runs and runs[-1][1] == shard - 1:
            runs[-1][1] = shard
        else:
            runs.append([shard, shard])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

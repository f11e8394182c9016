"""Leases and members in SQLite: several processes on one machine.

SQLite has one writer at a time, so every method is a short BEGIN IMMEDIATE. Its clock is the clock of
the machine, read by SQLite. `synchronous=FULL`, because an epoch must never be granted twice, not even
across a loss of power.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from ringhash.leases.protocol import Grant, Row, View
from ringhash.leases.store import LeaseRow, MemberRow, OutcomeUnknown, Refused, Store, WorkerRow

__all__ = ["SqliteStore"]

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS ringhash_groups ( grp TEXT PRIMARY KEY, shards INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ringhash_workers ("
    " grp TEXT, identity TEXT, beat_at REAL NOT NULL, expires_at REAL NOT NULL,"
    " PRIMARY KEY (grp, identity))",
    "CREATE TABLE IF NOT EXISTS ringhash_leases ("
    " grp TEXT, shard INTEGER, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0,"
    " claimed_at REAL, expires_at REAL, PRIMARY KEY (grp, shard))",
)
_MEMBER_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS ringhash_member_groups ( grp TEXT PRIMARY KEY, epoch INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ringhash_members ("
    " grp TEXT, name TEXT, weight REAL NOT NULL, zone TEXT, incarnation TEXT NOT NULL,"
    " expires_at REAL NOT NULL, PRIMARY KEY (grp, name))",
)


class SqliteStore(Store):
    """One connection to a SQLite file: see `Store`."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: str | os.PathLike[str], group: str, timeout: float) -> None:
        name = os.fspath(path)
        if name == ":memory:" or not name:
            raise ValueError("a SQLite database in memory cannot be shared; give a path")
        self._group = group
        self._seen: int | None = None
        self._aborted = False
        self._connection = sqlite3.connect(
            name, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        self._timeout = timeout
        self._run("PRAGMA synchronous=FULL")

    def _run(self, sql: str, *values: Any) -> list[Any]:
        return self._connection.execute(sql, values).fetchall()

    def _use_wal(self) -> None:
        """For ever, in the file; the busy timeout does not cover two that do it at once."""
        end = time.monotonic() + self._timeout
        while self._run("PRAGMA journal_mode")[0][0] != "wal":
            try:
                self._run("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _change(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._run("ROLLBACK")

    # --- leases ---

    def setup(self, shards: int) -> None:
        self._use_wal()
        with self._change():
            for statement in _SCHEMA:
                self._run(statement)
            self._run("INSERT OR IGNORE INTO ringhash_groups VALUES (?, ?)", self._group, shards)
            there = self._run("SELECT shards FROM ringhash_groups WHERE grp = ?", self._group)[0][0]
            if there != shards:
                raise ValueError(f"{self._group!r} has {there} shards in this database, not {shards}")
            self._connection.executemany(
                "INSERT OR IGNORE INTO ringhash_leases (grp, shard) VALUES (?, ?)",
                ((self._group, shard) for shard in range(shards)),
            )
            self._run(
                f"DELETE FROM ringhash_workers WHERE grp = ? AND expires_at < {_NOW} - 3600", self._group
            )

    def beat(self, identity: str, ttl: float, grants: Sequence[Grant], *, leaving: bool) -> list[Grant]:
        with self._change():
            if leaving:
                self._run(
                    "DELETE FROM ringhash_workers WHERE grp = ? AND identity = ?", self._group, identity
                )
            else:
                self._run(
                    f"INSERT INTO ringhash_workers VALUES (?, ?, {_NOW}, {_NOW} + ?)"
                    " ON CONFLICT (grp, identity) DO UPDATE"
                    " SET beat_at = excluded.beat_at, expires_at = excluded.expires_at",
                    self._group, identity, ttl,
                )  # fmt: skip
            return [
                grant
                for grant in grants
                if self._connection.execute(
                    f"UPDATE ringhash_leases SET expires_at = {_NOW} + ?"
                    " WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ?"
                    f" AND expires_at > {_NOW}",
                    (ttl, self._group, *grant, identity),
                ).rowcount
            ]

    def read(self) -> View:
        rows = self._run(
            f"SELECT shard, owner, epoch, coalesce(expires_at <= {_NOW}, 1)"
            " FROM ringhash_leases WHERE grp = ? ORDER BY shard",
            self._group,
        )
        workers = self._run(
            f"SELECT identity FROM ringhash_workers WHERE grp = ? AND expires_at > {_NOW}", self._group
        )
        return View(
            tuple(Row(shard, owner, epoch, bool(over)) for shard, owner, epoch, over in rows),
            tuple(name for (name,) in workers),
        )

    def claim(self, identity: str, limit: int, ttl: float) -> list[Grant]:
        with self._change():
            free = self._run(
                "SELECT shard, epoch + 1 FROM ringhash_leases"
                f" WHERE grp = ? AND (owner IS NULL OR expires_at <= {_NOW}) ORDER BY shard LIMIT ?",
                self._group, limit,
            )  # fmt: skip
            self._connection.executemany(
                "UPDATE ringhash_leases SET owner = ?, epoch = ?,"
                f" claimed_at = {_NOW}, expires_at = {_NOW} + ? WHERE grp = ? AND shard = ?",
                ((identity, epoch, ttl, self._group, shard) for shard, epoch in free),
            )
        return [Grant(shard, epoch) for shard, epoch in free]

    def release(self, identity: str, grants: Sequence[Grant]) -> None:
        with self._change():
            self._connection.executemany(
                "UPDATE ringhash_leases SET owner = NULL, expires_at = NULL"
                " WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ?",
                ((self._group, *grant, identity) for grant in grants),
            )

    @contextmanager
    def fence(self, identity: str, grant: Grant, ttl: float) -> Iterator[sqlite3.Connection]:  # noqa: ARG002
        """The lock is that of the whole database: claims wait, and so does everybody else."""
        self._run("BEGIN IMMEDIATE")
        try:
            if not self._run(
                "SELECT 1 FROM ringhash_leases WHERE grp = ? AND shard = ? AND epoch = ? AND owner = ?"
                f" AND expires_at > {_NOW}",
                self._group, *grant, identity,
            ):  # fmt: skip
                raise Refused
            yield self._connection
            if not self._connection.in_transaction:
                raise RuntimeError("the block ended its transaction itself, and so was not fenced")
        except BaseException:
            self._roll_back()
            raise
        try:
            self._run("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._roll_back()
                raise
            raise OutcomeUnknown from error

    def leases(self) -> tuple[list[LeaseRow], list[WorkerRow]]:
        if not self._run("SELECT 1 FROM sqlite_master WHERE name = 'ringhash_leases'"):
            return [], []
        rows = self._run(
            f"SELECT shard, owner, epoch, {_NOW} - claimed_at, expires_at - {_NOW}"
            " FROM ringhash_leases WHERE grp = ? ORDER BY shard",
            self._group,
        )
        workers = self._run(
            f"SELECT identity, {_NOW} - beat_at, expires_at - {_NOW}"
            " FROM ringhash_workers WHERE grp = ? ORDER BY identity",
            self._group,
        )
        return [LeaseRow(*row) for row in rows], [WorkerRow(*row) for row in workers]

    # --- members ---

    def setup_members(self) -> None:
        self._use_wal()
        with self._change():
            for statement in _MEMBER_SCHEMA:
                self._run(statement)
            self._run("INSERT OR IGNORE INTO ringhash_member_groups VALUES (?, 0)", self._group)

    def _next_epoch(self) -> None:
        self._run("UPDATE ringhash_member_groups SET epoch = epoch + 1 WHERE grp = ?", self._group)

    def join(self, name: str, weight: float, zone: str | None, incarnation: str, ttl: float) -> int:
        with self._change():
            there = self._run(
                "SELECT weight, zone FROM ringhash_members WHERE grp = ? AND name = ?", self._group, name
            )
            self._run(
                f"INSERT OR REPLACE INTO ringhash_members VALUES (?, ?, ?, ?, ?, {_NOW} + ?)",
                self._group, name, weight, zone, incarnation, ttl,
            )  # fmt: skip
            if there != [(weight, zone)]:
                self._next_epoch()
            return self._epoch()

    def _epoch(self) -> int:
        return cast(
            "int",
            self._run("SELECT epoch FROM ringhash_member_groups WHERE grp = ?", self._group)[0][0],
        )

    def keep(self, name: str, incarnation: str, ttl: float) -> bool:
        with self._change():
            return bool(
                self._connection.execute(
                    f"UPDATE ringhash_members SET expires_at = {_NOW} + ?"
                    " WHERE grp = ? AND name = ? AND incarnation = ?",
                    (ttl, self._group, name, incarnation),
                ).rowcount
            )

    def leave(self, name: str, incarnation: str) -> None:
        with self._change():
            if self._connection.execute(
                "DELETE FROM ringhash_members WHERE grp = ? AND name = ? AND incarnation = ?",
                (self._group, name, incarnation),
            ).rowcount:
                self._next_epoch()

    def sweep(self, names: Sequence[str], grace: float) -> int:
        with self._change():
            swept = sum(
                self._connection.execute(
                    f"DELETE FROM ringhash_members WHERE grp = ? AND name = ? AND expires_at <= {_NOW} - ?",
                    (self._group, name, grace),
                ).rowcount
                for name in names
            )
            if swept:
                self._next_epoch()
        return swept

    def members(self) -> tuple[int, list[MemberRow]]:
        rows = self._run(
            f"SELECT g.epoch, m.name, m.weight, m.zone, {_NOW} - m.expires_at"
            " FROM ringhash_member_groups g LEFT JOIN ringhash_members m USING (grp) WHERE g.grp = ?",
            self._group,
        )
        return rows[0][0], [MemberRow(*row[1:]) for row in rows if row[1] is not None]

    def listen(self) -> None:
        self._seen = self._data_version()

    def _data_version(self) -> int:
        return cast("int", self._run("PRAGMA data_version")[0][0])

    def wait(self, timeout: float) -> bool:
        """SQLite tells nobody, but it says cheaply whether another connection wrote anything."""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(0.02, left))
            if self._aborted:
                raise sqlite3.OperationalError("aborted")
            version = self._data_version()
            if version != self._seen:
                self._seen = version
                return True
        return False

    def abort(self) -> None:
        self._aborted = True
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

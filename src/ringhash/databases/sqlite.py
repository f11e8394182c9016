"""SQLite: the processes of one machine share a file.

SQLite has one writer at a time, so a transaction that writes begins with BEGIN IMMEDIATE. An authorizer
refuses whatever would end it from within, however it is asked. `synchronous=FULL`: what was committed
outlives a loss of power. Its clock is `ringhash_now()`, which all processes of the machine share and
nobody can set.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import quote

from ringhash.databases import clock
from ringhash.databases.connection import Connection, Result, Statements, unknown_outcome
from ringhash.databases.database import Database
from ringhash.errors import TransactionEndedError

__all__ = ["SqliteConnection", "SqliteDatabase"]

_LOOK = 0.02  # seconds, between two looks for changes


class SqliteConnection(Connection):
    """One connection to a SQLite file: see `Connection`."""

    dialect: ClassVar[str] = "sqlite"
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: str, *, read_only: bool, timeout: float, time_now: Callable[[], float]) -> None:
        super().__init__()
        self._timeout = timeout
        self._aborted = False
        self._refused = False
        self._seen: int | None = None
        self._raw = sqlite3.connect(
            f"file:{quote(path)}?mode=ro" if read_only else path,
            timeout=timeout, isolation_level=None, check_same_thread=False, uri=read_only,
        )  # fmt: skip
        self._raw.create_function("ringhash_now", 0, time_now)
        self._run("PRAGMA query_only=ON" if read_only else "PRAGMA synchronous=FULL", ())

    @property
    def broken(self) -> bool:
        """Whether the connection is closed."""
        return self._closed

    def use_wal(self) -> None:
        """Let readers pass a writer: for ever, in the file. The timeout does not cover two that do it."""
        end = clock.now() + self._timeout
        while self._run("PRAGMA journal_mode", ()).rows[0][0] not in ("wal", "memory"):
            try:
                self._run("PRAGMA journal_mode=WAL", ())
            except sqlite3.OperationalError:
                if clock.now() > end:
                    raise
                time.sleep(0.01)

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("the connection is closed")
        return self._raw

    def _run(self, sql: str, values: Sequence[Any]) -> Result:
        with self._using:
            try:
                cursor = self._open().execute(sql, values)
                rows = cursor.fetchall()
            except sqlite3.DatabaseError:
                self._check_refused()
                raise
            return Result(rows, cursor.rowcount if cursor.rowcount >= 0 else len(rows))

    def _run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        with self._using:
            try:
                return max(0, self._open().executemany(sql, rows).rowcount)
            except sqlite3.DatabaseError:
                self._check_refused()
                raise

    def _check_refused(self) -> None:
        if self._refused:
            self._refused = False
            raise TransactionEndedError(
                "a statement inside the block would have ended its transaction"
            ) from None

    def _authorize(self, action: int, *_: object) -> int:
        """SQLite asks while it reads a statement, so no spelling goes past."""
        if action == sqlite3.SQLITE_TRANSACTION:
            self._refused = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _begin(self, write: bool, first: Statements) -> tuple[Result, ...]:
        self._run("BEGIN IMMEDIATE" if write else "BEGIN", ())
        with self._using:
            self._open().set_authorizer(self._authorize)
        try:
            return tuple(self._run(sql, values) for sql, values in first)
        except BaseException:
            self._roll_back()
            raise

    def _commit(self) -> None:
        if self._refused:
            self._roll_back()
            raise TransactionEndedError(
                "the block tried to end its transaction itself; nothing of it is stored"
            )
        with self._using:
            self._open().set_authorizer(None)
        try:
            self._run("COMMIT", ())
        except sqlite3.Error as error:
            if self._in_transaction():
                self._roll_back()
                raise
            raise unknown_outcome(error) from error

    def _roll_back(self) -> None:
        with self._using:
            if self._closed:
                return
            self._raw.set_authorizer(None)
            self._refused = False
            if self._raw.in_transaction:
                try:
                    self._raw.execute("ROLLBACK")
                except sqlite3.Error:
                    self.close()

    def _in_transaction(self) -> bool:
        return not self._closed and self._raw.in_transaction

    def listen(self, channel: str) -> None:  # noqa: ARG002  SQLite has none
        """Look from here on whether another connection wrote anything."""
        self._seen = self._version()

    def _version(self) -> int:
        return cast("int", self._run("PRAGMA data_version", ()).rows[0][0])

    def wait(self, timeout: float) -> bool:
        """SQLite tells nobody, but it says cheaply whether another connection wrote anything."""
        self._check_mine()
        end = clock.now() + timeout
        while True:
            if self._aborted:
                raise sqlite3.OperationalError("aborted")
            version = self._version()
            if version != self._seen:
                self._seen = version
                return True
            left = end - clock.now()
            if left <= 0:
                return False
            time.sleep(min(_LOOK, left))

    def abort(self) -> None:
        """End a statement that runs, and a wait."""
        self._aborted = True
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._raw.interrupt()

    def _close(self) -> None:
        self._raw.close()


class SqliteDatabase(Database):
    """A SQLite file, or one in memory: see `Database`."""

    dialect: ClassVar[str] = "sqlite"
    now: ClassVar[str] = "ringhash_now()"
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(
        self,
        path: str,
        *,
        read_only: bool = False,
        timeout: float = 10.0,
        time_now: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(read_only=read_only, timeout=timeout)
        self.in_memory = path == ":memory:"
        if not self.in_memory:
            path = str(Path(path).absolute())  # the process may change its folder
            if read_only and not Path(path).exists():
                raise FileNotFoundError(2, os.strerror(2), path)
        self.path = self.address = path
        self._time_now = time_now or clock.now
        self._only: SqliteConnection | None = None
        self._turn = threading.Lock()

    def connect(self) -> SqliteConnection:
        """Return a new connection; of a database in memory there is only one, which `transaction` lends."""
        if self.in_memory:
            raise ValueError(
                "a database in memory has one connection, which `transaction()` lends; give a path"
            )
        return SqliteConnection(
            self.path, read_only=self.read_only, timeout=self.timeout, time_now=self._time_now
        )

    def take(self) -> Connection:
        """Return a kept connection, or a new one; waits for its turn at a database in memory."""
        if not self.in_memory:
            return super().take()
        if not self._turn.acquire(timeout=self.timeout):
            raise sqlite3.OperationalError("database is locked: another transaction uses it")
        if self._only is None:
            self._only = _Lent(
                ":memory:", read_only=False, timeout=self.timeout, time_now=self._time_now, turn=self._turn
            )
        return self._only

    def give(self, connection: Connection) -> None:
        """Keep `connection` for later."""
        if self.in_memory:
            self._turn.release()
        else:
            super().give(connection)

    def close(self) -> None:
        """Close the connections that are kept; one in memory is gone then."""
        super().close()
        only, self._only = self._only, None
        if only is not None:
            Connection.close(only)

    def _forget(self) -> None:
        super()._forget()
        self._turn = threading.Lock()
        self._only = None


class _Lent(SqliteConnection):
    """The one connection of a database in memory: to close it after a failed block gives it back."""

    def __init__(self, *args: Any, turn: threading.Lock, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turn = turn

    def close(self) -> None:
        """Give it back."""
        if self._turn.locked():
            self._turn.release()

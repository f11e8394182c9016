"""A database: where it is, and the connections that are kept for its next transactions."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from ringhash.databases.connection import Connection, Result, Statements, Transaction

__all__ = ["Database"]

_KEPT = 8  # idle connections


class Database(ABC):
    """Where the tables are; made by `open_database`. Any number of threads may share it.

    Attributes:
        dialect: Either "sqlite" or "postgresql".
        address: Where it is, for people: without its password.
        now: An SQL expression: seconds by the database's own clock. SQLite's is one that nobody can set.
        errors: What its driver raises.
    """

    dialect: ClassVar[str]
    now: ClassVar[str]
    address: str
    errors: tuple[type[Exception], ...]

    def __init__(self, *, read_only: bool, timeout: float) -> None:
        self.read_only = read_only
        self.timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        _all.add(self)

    @abstractmethod
    def connect(self) -> Connection:
        """Return a new connection, which the caller closes."""

    @contextmanager
    def transaction(self, *, write: bool | None = None, first: Statements = ()) -> Iterator[Transaction]:
        """Begin a transaction on a connection that is kept; see `Connection.transaction`.

        >>> from ringhash.databases import open_database
        >>> database = open_database(":memory:")
        >>> with database.transaction() as tx:
        ...     _ = tx.execute("CREATE TABLE colours (name TEXT)")
        ...     _ = tx.execute("INSERT INTO colours VALUES (?)", ["red"])
        ...     tx.execute("SELECT name FROM colours").rows
        [('red',)]
        >>> database.close()
        """
        write = not self.read_only if write is None else write
        with self.connection() as connection, connection.transaction(write=write, first=first) as tx:
            yield tx

    def execute(self, sql: str, params: Iterable[Any] = ()) -> Result:
        """Run one statement as a transaction of its own."""
        with self.connection() as connection:
            return connection.execute(sql, params)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection that is kept; one whose block raised an error of the database is closed."""
        connection = self.take()
        try:
            yield connection
        except BaseException as error:
            if isinstance(error, self.errors) or connection._in_transaction():
                self.discard(connection)
            else:
                self.give(connection)
            raise
        self.give(connection)

    def take(self) -> Connection:
        """Return a kept connection that still answers, or a new one."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self.connect()
            try:
                kept.ping()
            except self.errors:
                kept.close()
                self.close()  # the others will not be better
            else:
                return kept

    def give(self, connection: Connection) -> None:
        """Keep `connection` for later."""
        with self._lock:
            if len(self._idle) < _KEPT and not connection.broken:
                self._idle.append(connection)
                return
        connection.close()

    def discard(self, connection: Connection) -> None:
        """Close `connection`: it is not to be used again."""
        connection.close()

    def close(self) -> None:
        """Close the connections that are kept; the database can be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database {self.address}{', read-only' if self.read_only else ''}>"

    def _forget(self) -> None:
        """After a fork, in the child: neither use nor close what belongs to the parent."""
        self._lock = threading.Lock()
        _inherited.extend(self._idle)
        self._idle = []


_all: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []  # kept alive: to free a connection would end the parent's session


def _forget_all() -> None:
    for database in list(_all):
        database._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

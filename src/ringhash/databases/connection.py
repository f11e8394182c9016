"""A connection and its transactions: what SQLite and PostgreSQL have in common."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from ringhash.databases.statements import control_word
from ringhash.errors import ForkedError, OutcomeUnknownError, TransactionEndedError

__all__ = ["Connection", "Result", "Statements", "Transaction"]

Statements: TypeAlias = Sequence[tuple[str, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement brought: its rows, and how many rows it changed or returned."""

    rows: list[Any]
    rowcount: int

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self.rows

    def fetchone(self) -> Any:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Transaction:
    """One open transaction; made by `transaction()`, over when its block ends.

    The block commits when it ends and rolls back when it raises. Nothing inside it can commit or roll
    back: a statement that would is refused, and the transaction is rolled back at the end.

    Attributes:
        first: What the statements brought that began with it.
    """

    __slots__ = ("_connection", "_fault", "_over", "first")

    def __init__(self, connection: Connection, first: tuple[Result, ...] = ()) -> None:
        self._connection = connection
        self.first = first
        self._fault: str | None = None
        self._over = False

    @property
    def dialect(self) -> str:
        """Either "sqlite" or "postgresql"."""
        return self._connection.dialect

    def execute(self, sql: str, params: Iterable[Any] = ()) -> Result:
        """Run one statement.

        Args:
            sql: With `?` for each parameter; PostgreSQL also takes `%s` where there is no `?`, and `??` for
                the operator `?`.
            params: The values, in order.

        Raises:
            TransactionEndedError: The statement begins or ends a transaction, or ended this one.
            The database's own error.
        """
        values = tuple(params)
        self._check(sql)
        try:
            return self._connection._run(sql, values)
        except TransactionEndedError as error:
            self._fault = str(error)
            raise
        finally:
            self._check_open(sql)

    def executemany(self, sql: str, rows: Iterable[Iterable[Any]]) -> int:
        """Run one statement for each of `rows`; return how many rows of the database it changed."""
        values = [tuple(row) for row in rows]
        self._check(sql)
        try:
            return self._connection._run_many(sql, values)
        except TransactionEndedError as error:
            self._fault = str(error)
            raise
        finally:
            self._check_open(sql)

    def _check(self, sql: str) -> None:
        self._connection._check_mine()
        if self._over:
            raise TransactionEndedError("this transaction is over; begin another one")
        if self._fault is not None:
            raise TransactionEndedError(self._fault)
        word = control_word(sql)
        if word is not None:
            self._fault = (
                f"{word} inside a transaction that this block does not own: the block commits at its end, "
                "and rolls back when it raises; nothing of it is stored"
            )
            raise TransactionEndedError(self._fault)

    def _check_open(self, sql: str) -> None:
        """Look at the connection itself: some statements end a transaction without saying so."""
        if self._fault is None and not self._connection._in_transaction():
            if self._connection.broken:
                return  # its own error says more
            self._fault = f"this statement ended the transaction, which was not committed: {sql[:60]!r}"
            raise TransactionEndedError(self._fault)

    def __repr__(self) -> str:
        state = "over" if self._over else "open" if self._fault is None else "ended by its block"
        return f"<Transaction of {self.dialect}: {state}>"


class Connection(ABC):
    """One connection; made by `Database.connect`. One thread at a time uses it; any may abort or close it."""

    dialect: ClassVar[str]
    errors: tuple[type[Exception], ...]

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._using = threading.RLock()  # held during each statement: nothing is closed under it
        self._closed = False

    def execute(self, sql: str, params: Iterable[Any] = ()) -> Result:
        """Run one statement as a transaction of its own."""
        values = tuple(params)
        self._check_mine()
        word = control_word(sql)
        if word is not None:
            raise TransactionEndedError(f"{word}: write `with connection.transaction() as tx` instead")
        return self._run(sql, values)

    @contextmanager
    def transaction(self, *, write: bool = True, first: Statements = ()) -> Iterator[Transaction]:
        """Begin a transaction, and commit it at the end of the block; roll back when the block raises.

        Args:
            write: SQLite takes the lock of the whole database at once, so the block never fails half way for
                want of it. False begins one that reads a single moment.
            first: Statements and their parameters that go out with the begin, in one round trip; their
                results are `tx.first`.

        Raises:
            TransactionEndedError: The block ended the transaction itself; nothing is stored.
            OutcomeUnknownError: The connection broke on the commit, so nobody knows.
        """
        self._check_mine()
        tx = Transaction(self, self._begin(write, first))
        try:
            yield tx
            self._check_mine()
            if tx._fault is not None:
                raise TransactionEndedError(tx._fault)  # noqa: TRY301
            tx._check_open("")
        except BaseException:
            tx._over = True
            if self._pid == os.getpid():
                self._roll_back()
            raise
        tx._over = True
        self._commit()

    def close(self) -> None:
        """Close the connection; a statement that runs in another thread is ended first."""
        if self._pid != os.getpid():
            return  # the parent's: to say good-bye would end its session
        if self._closed:
            return
        self._closed = True
        while not self._using.acquire(timeout=0.02):
            self.abort()  # again and again: one that comes before the first step of a statement is for nobody
        try:
            self._close()
        finally:
            self._using.release()

    def _check_mine(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError("this connection belongs to the parent process; open one after the fork")

    @property
    @abstractmethod
    def broken(self) -> bool:
        """Whether the connection is closed, or lost."""

    def ping(self) -> None:  # noqa: B027  SQLite has nothing to lose
        """Raise the database's error if the connection is known to be lost; usually no round trip."""

    @abstractmethod
    def abort(self) -> None:
        """Make a statement or a wait that runs in another thread fail."""

    @abstractmethod
    def listen(self, channel: str) -> None:
        """Ask to be told of what is sent to `channel` (SQLite: of any change of the file)."""

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Wait until told, or for `timeout` seconds; return whether told."""

    @abstractmethod
    def _run(self, sql: str, values: Sequence[Any]) -> Result: ...

    @abstractmethod
    def _run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int: ...

    @abstractmethod
    def _begin(self, write: bool, first: Statements) -> tuple[Result, ...]: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None: ...

    @abstractmethod
    def _in_transaction(self) -> bool: ...

    @abstractmethod
    def _close(self) -> None: ...


def unknown_outcome(error: Exception) -> OutcomeUnknownError:
    """Return the error for a commit whose answer never came."""
    return OutcomeUnknownError(
        f"the connection broke on the commit, so whether it was stored is unknown: {type(error).__name__}"
    )

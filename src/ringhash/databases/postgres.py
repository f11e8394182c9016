"""PostgreSQL, through psycopg 3.

Every statement goes by the extended protocol, which takes one statement at a time, so what a block sends
is known by its first word. A transaction also notes its number, and the COMMIT compares it in the same
round trip: whatever has ended the transaction on the way, nothing that came after it is stored.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self, cast

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from ringhash.databases.connection import Connection, Result, Statements, unknown_outcome
from ringhash.databases.database import Database
from ringhash.databases.statements import with_percent_marks
from ringhash.errors import DatabaseAddressError, TransactionEndedError

__all__ = ["PostgresConnection", "PostgresDatabase", "options_for"]

# An error of the server's, when the condition is false: the COMMIT in the same text is not reached then.
_ANOTHER = "ringhash: another transaction"
_SAME_TRANSACTION = "SELECT (CASE WHEN txid_current() = {} THEN '0' ELSE '{}' END)::int; "

_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _OneStatement(psycopg.Cursor[Any]):
    """A cursor that never sends several statements in one text."""

    def _execute_send(self, query: Any, *, force_extended: bool = True, binary: bool | None = None) -> None:  # noqa: ARG002
        super()._execute_send(query, force_extended=True, binary=binary)


class PostgresConnection(Connection):
    """One connection to PostgreSQL: see `Connection`."""

    dialect: ClassVar[str] = "postgresql"
    errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__()
        self._raw = raw
        self._number: int | None = None

    @classmethod
    def connect(cls, address: str, *, read_only: bool, timeout: float) -> Self:
        """Return a new connection."""
        options = cast("Any", options_for(address, timeout))
        self = cls(psycopg.connect(address, autocommit=True, **options))
        if read_only:
            self._run("SET default_transaction_read_only = on", ())
        return self

    @property
    def raw(self) -> psycopg.Connection[Any]:
        """The connection of psycopg."""
        return self._raw

    @property
    def broken(self) -> bool:
        """Whether the connection is closed, or lost."""
        return self._closed or self._raw.closed

    def ping(self) -> None:
        """Look whether the server has ended the session meanwhile."""
        if self.broken:
            raise psycopg.OperationalError("the connection is closed")
        ready, _, _ = select.select([self._raw.fileno()], [], [], 0)
        if ready:
            self._run("SELECT 1", ())  # a notice, or its good-bye

    def _run(self, sql: str, values: Sequence[Any]) -> Result:
        with self._using, _OneStatement(self._raw) as cursor:
            cursor.execute(with_percent_marks(sql), values or None)
            rows = cursor.fetchall() if cursor.description else []
            return Result(rows, max(0, cursor.rowcount))

    def _run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        with self._using, _OneStatement(self._raw) as cursor:
            cursor.executemany(with_percent_marks(sql), rows)
            return max(0, cursor.rowcount)

    def _begin(self, write: bool, first: Statements) -> tuple[Result, ...]:
        if first:
            return self._begin_with(write, first)
        with self._using, self._raw.cursor() as cursor:
            if write:
                cursor.execute("BEGIN; SELECT txid_current()")
                cursor.nextset()
                (self._number,) = cast("tuple[int]", cursor.fetchone())
            else:
                cursor.execute(_READING)
                self._number = None
        return ()

    def _begin_with(self, write: bool, first: Statements) -> tuple[Result, ...]:
        """Begin and run `first` in one round trip: one text, with its values written into it by psycopg."""
        self._number = None
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT txid_current()" if write else _READING
        found: list[Result] = []
        try:
            with self._using, psycopg.ClientCursor(self._raw) as cursor:
                texts = [cursor.mogrify(with_percent_marks(sql), values or None) for sql, values in first]
                cursor.execute("; ".join([begin, *texts]))
                while cursor.nextset():
                    found.append(Result(cursor.fetchall(), max(0, cursor.rowcount)))
            if write:
                self._number = found.pop(0).rows[0][0]
        except BaseException:
            self._roll_back()
            raise
        return tuple(found)

    def _commit(self) -> None:
        number, self._number = self._number, None
        if self._raw.info.transaction_status is TransactionStatus.INERROR:
            self._roll_back()
            raise psycopg.errors.InFailedSqlTransaction(
                "a statement of the block failed, so PostgreSQL would roll back and not commit"
            )
        check = "" if number is None else _SAME_TRANSACTION.format(number, _ANOTHER)
        try:
            with self._using, self._raw.cursor() as cursor:
                cursor.execute(check + "COMMIT")
                while cursor.nextset():
                    pass
                if cursor.statusmessage != "COMMIT":
                    raise TransactionEndedError("PostgreSQL rolled back what the block has written")
        except self.errors as error:
            ended = isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout)
            if self._raw.closed and not ended:
                raise unknown_outcome(error) from error
            self._roll_back()
            if isinstance(error, psycopg.errors.InvalidTextRepresentation) and _ANOTHER in str(error):
                raise TransactionEndedError(
                    "the block ended its transaction itself; what came after that is not stored"
                ) from None
            raise

    def _roll_back(self) -> None:
        self._number = None
        with self._using, suppress(*self.errors):
            if not self.broken and self._raw.info.transaction_status is not TransactionStatus.IDLE:
                self._raw.execute("ROLLBACK")

    def _in_transaction(self) -> bool:
        return not self.broken and self._raw.info.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    def listen(self, channel: str) -> None:
        """Ask to be told of what is sent to `channel` with `pg_notify`."""
        self._run('LISTEN "' + channel.replace('"', '""') + '"', ())

    def wait(self, timeout: float) -> bool:
        """Wait until told, or for `timeout` seconds; return whether told."""
        self._check_mine()
        return any(True for _ in self._raw.notifies(timeout=timeout, stop_after=1))

    def abort(self) -> None:
        """Shut the socket down under the waiting call; the connection is of no use afterwards."""
        with suppress(*self.errors), socket.socket(fileno=os.dup(self._raw.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        with suppress(*self.errors):
            self._raw.close()


class PostgresDatabase(Database):
    """A PostgreSQL server: see `Database`."""

    dialect: ClassVar[str] = "postgresql"
    now: ClassVar[str] = "extract(epoch FROM clock_timestamp())::float8"
    errors: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    def __init__(self, address: str, *, read_only: bool = False, timeout: float = 10.0) -> None:
        super().__init__(read_only=read_only, timeout=timeout)
        parts = _parts(address)
        self._secret = address
        user, host, port = parts.get("user"), parts.get("host", ""), parts.get("port")
        self.address = (
            "postgresql://" + (f"{user}@" if user else "") + str(host) + (f":{port}" if port else "")
            + f"/{parts.get('dbname', '')}"
        )  # fmt: skip

    def connect(self) -> PostgresConnection:
        """Return a new connection, which the caller closes."""
        return PostgresConnection.connect(self._secret, read_only=self.read_only, timeout=self.timeout)


def options_for(address: str, timeout: float) -> dict[str, object]:
    """Return the options of a connection that its address leaves open."""
    given = _parts(address)
    defaults: dict[str, object] = {
        "connect_timeout": max(2, round(timeout)),
        "tcp_user_timeout": max(1000, round(timeout * 1000)),
        "application_name": "ringhash",
    }
    return {name: value for name, value in defaults.items() if name not in given}


def _parts(address: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", conninfo.conninfo_to_dict(address))
    except psycopg.ProgrammingError:
        # Its own message may show a password.
        raise DatabaseAddressError(
            "this is not an address of PostgreSQL: write postgresql://user:password@host:port/database, "
            "with %xx for special characters"
        ) from None

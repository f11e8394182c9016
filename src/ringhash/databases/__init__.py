"""Connections and transactions: SQLite and PostgreSQL behind one small interface.

    database = open_database("postgresql://app@db.example/app")      or a path, or ":memory:"
    with database.transaction() as tx:                              commits at the end, rolls back on an error
        tx.execute("INSERT INTO t VALUES (?, ?)", [1, "a"])         `?` in every dialect
        tx.execute("SELECT * FROM t").rows
    database.execute("SELECT 1")                                    one statement, a transaction of its own

    database.dialect, database.now                                  "sqlite" | "postgresql"; SQL for its clock
    database.connect()                                              a connection of your own: close it
      .transaction(), .execute(), .listen(channel), .wait(timeout), .abort(), .close()

Nothing inside a block can end its transaction: see `Transaction`. After a fork the child has no
connections: those that were open raise `ForkedError` there, and the database makes new ones. No message
shows a password. This room knows nothing of what is stored.
"""

from __future__ import annotations

import os
import re

from ringhash.databases.connection import Connection, Result, Transaction
from ringhash.databases.database import Database
from ringhash.errors import DatabaseAddressError, ForkedError, OutcomeUnknownError, TransactionEndedError

__all__ = [
    "Connection",
    "Database",
    "DatabaseAddressError",
    "ForkedError",
    "OutcomeUnknownError",
    "Result",
    "Transaction",
    "TransactionEndedError",
    "open_database",
]

_ALLOWED = 'a path, sqlite:///path, ":memory:" or postgresql://user@host/database'
_PARAMETERS = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service)\s*=")


def open_database(
    address: str | os.PathLike[str], *, read_only: bool = False, timeout: float = 10.0
) -> Database:
    """Return the database at `address`. Nothing is connected yet.

    Args:
        address: A path or `sqlite:///path` (SQLite: the processes of one machine), `":memory:"`, or
            `postgresql://...` (needs the extra `postgres`).
        read_only: Refuse every change; a SQLite file must be there then, and is left as it is.
        timeout: For how many seconds to wait for a connection, or for the lock of a whole database.

    Raises:
        DatabaseAddressError: The address has another form.
        ImportError: psycopg is missing.
        FileNotFoundError: A SQLite file that is read only is not there.

    >>> open_database("mysql://root:secret@db/app")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ringhash.errors.DatabaseAddressError: no support for mysql:...; give a path, ...
    """
    given: object = address  # whatever it is
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"the address of a database is text or a path, not {type(address).__name__}")
    seconds: object = timeout
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"timeout must be a number of seconds, not {timeout!r}")
    text = os.fspath(address)
    if isinstance(address, str):
        scheme = text.partition(":")[0].lower()
        if scheme in ("postgresql", "postgres") and "://" in text:
            try:
                from ringhash.databases.postgres import PostgresDatabase  # noqa: PLC0415  an extra
            except ImportError as error:
                raise ImportError("PostgreSQL needs psycopg: pip install 'ringhash[postgres]'") from error
            return PostgresDatabase(text, read_only=read_only, timeout=timeout)
        if text.startswith("sqlite:///"):
            text = text.removeprefix("sqlite:///")
        elif "://" in text or scheme in ("file", "sqlite", "postgresql", "postgres"):
            shown = scheme if scheme.replace("+", "").replace("-", "").isalnum() else "this address"
            raise DatabaseAddressError(f"no support for {shown}:...; give {_ALLOWED}")
        elif _PARAMETERS.match(text):
            raise DatabaseAddressError(f"this looks like parameters of a connection; give {_ALLOWED}")
    if not text or "\0" in text:
        raise DatabaseAddressError(f"this is no path of a database; give {_ALLOWED}")
    from ringhash.databases.sqlite import SqliteDatabase  # noqa: PLC0415  not every Python has it

    return SqliteDatabase(text, read_only=read_only, timeout=timeout)

"""The fence for those who have their own connections: psycopg, SQLAlchemy, Django, sqlite3."""

from __future__ import annotations

from typing import Any

from ringhash.databases.statements import with_percent_marks
from ringhash.fleet.addresses import addresses_of
from ringhash.fleet.fence import fence_statement, verdict
from ringhash.placement import Placement
from ringhash.routing import Router

__all__ = ["fence"]


def fence(connection: Any, key: Any, placement: Router | Placement, *, write: bool = True) -> None:
    """Ask a database, in the open transaction of a connection, whether it has a key: one statement.

    Call it first in the transaction. What the transaction goes on to write stands only if the key was here,
    and a mover that takes the key away waits for the commit.

    Args:
        connection: Of psycopg, sqlite3, SQLAlchemy (a `Connection` or a `Session`) or Django
            (`connections[...]`).
        key: Any key of the placement.
        placement: How keys are read: the router of the fleet, or its placement.
        write: Whether the transaction goes on to write. With False no lock is taken.

    Raises:
        Moved: The key belongs to another node, which `to` names. Roll back and go there.
        Moving: It is on its way: roll back and ask again in `after` seconds.
        RuntimeError: The connection commits each statement by itself, so there is nothing to hold on to.
        FenceError: The database has no fence.
        The driver's own error, such as for a transaction of PostgreSQL at another level than READ COMMITTED.

    >>> import sqlite3
    >>> from ringhash import Router
    >>> from ringhash.databases import open_database
    >>> from ringhash.fleet import create_fence
    >>> connection = sqlite3.connect(":memory:", isolation_level=None)
    >>> for sql in ("CREATE TABLE ringhash_fence (low BLOB PRIMARY KEY, high, state, owner, epoch)",
    ...             "CREATE TABLE ringhash_fence_key (low BLOB PRIMARY KEY, state, owner, epoch)",
    ...             "INSERT INTO ringhash_fence VALUES (x'', NULL, 'gone', 'db-2', 7)", "BEGIN IMMEDIATE"):
    ...     _ = connection.execute(sql)
    >>> fence(connection, "acme", Router(["db-1", "db-2"]))
    Traceback (most recent call last):
    ringhash.errors.Moved: the key belongs to 'db-2' as of epoch 7
    >>> connection.close()
    """
    addresses = addresses_of(placement.placement if isinstance(placement, Router) else placement, key)
    module = type(connection).__module__.partition(".")[0]
    if module == "sqlalchemy":
        rows = _sqlalchemy(connection, addresses, write)
    elif module == "django" or hasattr(connection, "settings_dict"):
        rows = _django(connection, addresses, write)
    elif module == "sqlite3":
        rows = _sqlite(connection, addresses, write)
    else:
        rows = _psycopg(connection, addresses, write)
    verdict(rows, addresses, write=write)


_OPEN = "open a transaction first: a check that is committed by itself holds nothing"


def _sqlite(connection: Any, addresses: tuple[bytes, ...], write: bool) -> list[Any]:
    if write and not connection.in_transaction:
        raise RuntimeError(f"{_OPEN}; write connection.execute('BEGIN IMMEDIATE')")
    sql, values = fence_statement("sqlite", addresses, write=write)
    found: list[Any] = connection.execute(sql, values).fetchall()
    return found


def _psycopg(connection: Any, addresses: tuple[bytes, ...], write: bool) -> list[Any]:
    if write and connection.autocommit and connection.info.transaction_status.name == "IDLE":
        raise RuntimeError(f"{_OPEN}; write `with connection.transaction():`")
    sql, values = fence_statement("postgresql", addresses, write=write)
    found: list[Any] = connection.execute(with_percent_marks(sql), values).fetchall()
    return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in found]


def _sqlalchemy(connection: Any, addresses: tuple[bytes, ...], write: bool) -> list[Any]:
    from sqlalchemy import bindparam, text  # noqa: PLC0415  whoever calls this has it
    from sqlalchemy.types import LargeBinary  # noqa: PLC0415

    bound = connection.connection() if hasattr(connection, "get_bind") else connection
    dialect = {"postgresql": "postgresql", "sqlite": "sqlite"}[bound.dialect.name]
    raw = bound.connection.dbapi_connection
    alone = raw.isolation_level is None if dialect == "sqlite" else raw.autocommit
    if write and alone is True:
        raise RuntimeError(f"{_OPEN}; use an engine without AUTOCOMMIT")
    sql, values = fence_statement(dialect, addresses, write=write)
    for name in ("low", "single"):
        sql = sql.replace("?", f":{name}", 1)
    statement = text(sql).bindparams(*(bindparam(name, type_=LargeBinary()) for name in ("low", "single")))
    if dialect == "sqlite" and write and not raw.in_transaction:
        bound.exec_driver_sql("BEGIN IMMEDIATE")  # sqlite3 itself would begin before the first write only
    return [tuple(row) for row in bound.execute(statement, {"low": values[0], "single": values[1]})]


def _django(connection: Any, addresses: tuple[bytes, ...], write: bool) -> list[Any]:
    if write and not connection.in_atomic_block:
        raise RuntimeError(f"{_OPEN}; write `with transaction.atomic(using=...):`")
    dialect = {"postgresql": "postgresql", "sqlite": "sqlite"}[connection.vendor]
    sql, values = fence_statement(dialect, addresses, write=write)
    with connection.cursor() as cursor:
        if dialect == "sqlite" and write:  # atomic() took no lock yet; a write of nothing takes it
            cursor.execute("UPDATE ringhash_fence SET epoch = epoch WHERE 0")
        cursor.execute(sql.replace("?", "%s"), values)
        return [tuple(row) for row in cursor.fetchall()]

"""The key log: which rows changed, written by triggers in the writer's own transaction.

It has primary keys and no values. Whoever reads it makes the row over there equal to the row here as it is
then, so the order of entries does not matter, and to do it twice does no harm. It is a queue and not a cursor
over its numbers: a transaction with a lower number may commit later, and its entries come when they come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ringhash.databases import Transaction
from ringhash.errors import ReshardError
from ringhash.fleet import Table

__all__ = ["MOST_KEYS", "LogBatch", "capture", "forget", "read_log", "release"]

MOST_KEYS = 4  # columns of a primary key
_COLUMNS = ", ".join(f"k{i}" for i in range(MOST_KEYS))


class LogBatch(NamedTuple):
    """Some entries: their numbers, and the primary keys of the rows that changed, by table."""

    numbers: list[int]
    keys: dict[str, set[tuple[Any, ...]]]


def _names(table: Table) -> str:
    """Return what the objects of a table are called: short, and distinct for long names too."""
    return f"ringhash_log_{hashlib.blake2b(table.name.encode(), digest_size=8).hexdigest()}"


def capture(tx: Transaction, tables: Iterable[Table]) -> None:
    """Make the log and the triggers of tables; those that are there stay. Idempotent.

    PostgreSQL waits for the transactions that are writing to a table: when this has committed, every change
    that is not in the table yet will be in the log.

    Raises:
        ReshardError: A primary key has more columns than the log.
    """
    postgres = tx.dialect == "postgresql"
    number = "bigserial PRIMARY KEY" if postgres else "INTEGER PRIMARY KEY AUTOINCREMENT"
    kind = " text" if postgres else ""
    columns = ", ".join(f"k{i}{kind}" for i in range(MOST_KEYS))
    tx.execute(f"CREATE TABLE IF NOT EXISTS ringhash_keylog (seq {number}, name TEXT NOT NULL, {columns})")
    for table in tables:
        if len(table.primary_key) > MOST_KEYS:
            raise ReshardError(
                f"{table.name}: a primary key may have {MOST_KEYS} columns, not {len(table.primary_key)}"
            )
        (_capture_postgres if postgres else _capture_sqlite)(tx, table)


def _entry(table: Table, row: str, cast: str) -> str:
    values = [f"{row}.{name}{cast}" for name in table.primary_key]
    values += ["NULL"] * (MOST_KEYS - len(values))
    return f"INSERT INTO ringhash_keylog (name, {_COLUMNS}) VALUES ('{table.name}', {', '.join(values)});"


def _capture_postgres(tx: Transaction, table: Table) -> None:
    name = _names(table)
    if tx.execute(
        "SELECT 1 FROM pg_trigger WHERE tgname = ? AND tgrelid = to_regclass(?)", [name, table.name]
    ).rows:
        return
    tx.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        f"SET search_path FROM CURRENT AS $log$ BEGIN "
        f"IF TG_OP <> 'INSERT' THEN {_entry(table, 'OLD', '::text')} END IF; "
        f"IF TG_OP <> 'DELETE' THEN {_entry(table, 'NEW', '::text')} END IF; RETURN NULL; END $log$"
    )
    tx.execute(
        f"CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table.name} "
        f"FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
    tx.execute(
        f"CREATE OR REPLACE FUNCTION {name}_t() RETURNS trigger LANGUAGE plpgsql AS $log$ BEGIN "
        f"RAISE EXCEPTION 'ringhash: {table.name} cannot be truncated while its rows move'; END $log$"
    )
    tx.execute(
        f"CREATE TRIGGER {name}_t BEFORE TRUNCATE ON {table.name} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {name}_t()"
    )


def _capture_sqlite(tx: Transaction, table: Table) -> None:
    name = _names(table)
    for event, rows in (("INSERT", ("NEW",)), ("DELETE", ("OLD",)), ("UPDATE", ("OLD", "NEW"))):
        entries = " ".join(_entry(table, row, "") for row in rows)
        tx.execute(
            f"CREATE TRIGGER IF NOT EXISTS {name}_{event.lower()} AFTER {event} ON {table.name} "
            f"BEGIN {entries} END"
        )


def release(tx: Transaction, tables: Iterable[Table]) -> None:
    """Take the triggers of tables away, and the log with its entries. Idempotent."""
    for table in tables:
        name = _names(table)
        if tx.dialect == "postgresql":
            for suffix in ("", "_t"):
                tx.execute(f"DROP TRIGGER IF EXISTS {name}{suffix} ON {table.name}")
                tx.execute(f"DROP FUNCTION IF EXISTS {name}{suffix}()")
        else:
            for event in ("insert", "delete", "update"):
                tx.execute(f"DROP TRIGGER IF EXISTS {name}_{event}")
    tx.execute("DROP TABLE IF EXISTS ringhash_keylog")


def read_log(tx: Transaction, limit: int) -> LogBatch:
    """Return some entries, the oldest first; they stay in the log."""
    found = tx.execute(f"SELECT seq, name, {_COLUMNS} FROM ringhash_keylog ORDER BY seq LIMIT {limit}").rows
    keys: dict[str, set[tuple[Any, ...]]] = {}
    for _, name, *values in found:
        keys.setdefault(name, set()).add(tuple(values))
    return LogBatch([row[0] for row in found], keys)


def forget(tx: Transaction, numbers: Sequence[int]) -> None:
    """Take entries out of the log: what they tell of has been done everywhere."""
    tx.executemany("DELETE FROM ringhash_keylog WHERE seq = ?", [(number,) for number in numbers])

"""The position column: where a key lies on the ring, written beside it, so that SQL can find the rows of a
piece.

A database cannot compute XXH3. Without the column everything works by reading keys; with it, only rows that
move are read. The application writes it with each row (`column_value`), and `fill_column` writes what it left
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ringhash.databases import Database, Transaction
from ringhash.errors import ColumnError
from ringhash.fleet.fence import REGISTRY
from ringhash.fleet.rows import Column, read_rows
from ringhash.fleet.tables import Table
from ringhash.placement import Placement
from ringhash.ranges import KeyRange
from ringhash.space import HashSpace, ModuloSpace, Space

__all__ = [
    "COLUMN",
    "add_column",
    "check_column",
    "column_condition",
    "column_value",
    "fill_column",
    "has_column",
]

COLUMN = "ringhash_position"
_UNWRITTEN = -1


def _hashes(space: Space) -> HashSpace:
    """What the column holds: hashes of 32 bits. Shards are their remainders, also after a split."""
    if isinstance(space, (HashSpace, ModuloSpace)):
        return HashSpace(space.seed, bool(space.hash_tags))
    raise ColumnError("a position column is for rings and shards; ranges and entries are found by their keys")


def _reading(space: Space) -> str:
    return json.dumps(_hashes(space).to_dict(), sort_keys=True)


def column_value(placement: Placement, key: Any) -> int:
    """Return what the application writes into the column with a row: the hash of its key, from 0 to 2**32 -
    1.

    >>> from ringhash import Ring
    >>> column_value(Ring(["db-1"]), "user:1")
    995588861
    """
    return _hashes(placement.space).position(key)


def add_column(database: Database, table: Table, placement: Placement) -> None:
    """Add the column and its index to a table, and record how it is made. Rows have -1 until `fill_column`.
    Idempotent.

    Raises:
        ColumnError: The table has the column of another seed or other tags, or it has no key of its own.

    Cost: PostgreSQL 11 and later, and SQLite, add it without rewriting the table; the index reads it once,
    and writers of the table wait for it in PostgreSQL.
    """
    if not table.columns:
        raise ColumnError(
            f"{table.name} has no key of its own; its rows are found through those that it follows"
        )
    reading = _reading(placement.space)
    with database.transaction(write=True) as tx:
        tx.execute(REGISTRY)
        there = _registered(tx, table)
        if there not in (None, reading):
            raise ColumnError(
                f"the column of {table.name} is made by {there}; the placement reads by {reading}"
            )
        if there is None:
            tx.execute(f"ALTER TABLE {table.name} ADD COLUMN {COLUMN} BIGINT NOT NULL DEFAULT {_UNWRITTEN}")
            index = f"ringhash_{table.name.replace('.', '_')}_position"
            tx.execute(f"CREATE INDEX {index} ON {table.name} ({COLUMN})")
            tx.execute("INSERT INTO ringhash_registry VALUES (?, ?)", [_name(table), reading])


def _name(table: Table) -> str:
    return f"column {table.name}"


def _registered(tx: Transaction, table: Table) -> str | None:
    found = tx.execute("SELECT value FROM ringhash_registry WHERE name = ?", [_name(table)]).fetchone()
    return None if found is None else str(found[0])


def fill_column(database: Database, table: Table, placement: Placement, *, chunk: int = 1000) -> int:
    """Write the column of the rows that do not have it yet, in transactions of `chunk` rows; return how many.

    Run it again after an interruption, and after writers that do not know the column.
    """
    hashes = _hashes(placement.space)
    keys = [*table.columns, *table.primary_key]
    where = " AND ".join(f"{name} = ?" for name in table.primary_key)
    lock = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    total = 0
    while True:
        with database.transaction(write=True) as tx:
            found = tx.execute(
                f"SELECT {', '.join(keys)} FROM {table.name} WHERE {COLUMN} = {_UNWRITTEN} "
                f"LIMIT {chunk}{lock}"
            ).rows
            width = len(table.columns)
            positions = (
                hashes.positions([table.key_from(row[:width]) for row in found]).tolist() if found else []
            )
            tx.executemany(
                f"UPDATE {table.name} SET {COLUMN} = ? WHERE {where}",
                [(position, *row[width:]) for position, row in zip(positions, found, strict=True)],
            )
        total += len(found)
        if not found:
            return total


def check_column(database: Database, table: Table, placement: Placement, *, sample: int = 1000) -> None:
    """Return if the column can be believed: it is recorded, filled, and right in a sample.

    Raises:
        ColumnError: It is not; the message names a row.

    Cost: reads `sample` rows.
    """
    hashes = _hashes(placement.space)
    with database.transaction(write=False) as tx:
        there = _registered(tx, table)
        if there != _reading(placement.space):
            raise ColumnError(f"{table.name}: the column is made by {there}; call add_column()")
        if tx.execute(f"SELECT 1 FROM {table.name} WHERE {COLUMN} = {_UNWRITTEN} LIMIT 1").rows:
            raise ColumnError(f"{table.name}: some rows have no position yet; call fill_column()")
        some = f"t0.{COLUMN} >= ?"
        for start in (0, (1 << 32) // 3, (1 << 32) // 3 * 2):
            part = read_rows(
                tx, table, [Column(COLUMN, "")], chunk=max(1, sample // 3), where=(some, [start])
            )
            for read in part:
                for key, (position,) in zip(read.keys, read.rows, strict=True):
                    if hashes.position(key) != position:
                        raise ColumnError(
                            f"{table.name}: the row of {key!r} has the position {position}, and its key has "
                            f"{hashes.position(key)}; set it to {_UNWRITTEN} and call fill_column()"
                        )
                break


def has_column(tx: Transaction, table: Table, space: Space) -> bool:
    """Return whether a table has the column for keys as this space reads them."""
    if not isinstance(space, (HashSpace, ModuloSpace)) or not table.columns:
        return False
    if tx.dialect == "postgresql":
        known = tx.execute("SELECT to_regclass('ringhash_registry') IS NOT NULL").rows[0][0]
    else:
        known = tx.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ringhash_registry'").rows[0][0]
    return bool(known) and _registered(tx, table) == _reading(space)


def column_condition(space: Space, positions: Iterable[KeyRange]) -> tuple[str, list[int]]:
    """Return a condition of SQL for the rows of some positions, and its parameters; unwritten rows are
    included.

    >>> from ringhash.ranges import KeyRange
    >>> column_condition(ModuloSpace(16), [KeyRange(3, 4)])
    ('(t0.ringhash_position < 0 OR t0.ringhash_position % 16 BETWEEN ? AND ?)', [3, 4])
    """
    value = f"t0.{COLUMN}" + (f" % {space.size}" if isinstance(space, ModuloSpace) else "")
    ranges = list(positions)
    terms = [f"t0.{COLUMN} < 0", *(f"{value} BETWEEN ? AND ?" for _ in ranges)]
    return f"({' OR '.join(terms)})", [bound for one in ranges for bound in one]

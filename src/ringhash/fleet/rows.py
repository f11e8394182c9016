"""Rows of keys: read in chunks, written again elsewhere, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ringhash.databases import Transaction
from ringhash.fleet.tables import Table

__all__ = ["Chunk", "columns_of", "delete_rows", "key_condition", "read_rows", "write_rows"]


class Chunk(NamedTuple):
    """Some rows of a table in order of its primary key: `keys[i]` is the key of `rows[i]`."""

    keys: list[Any]
    rows: list[tuple[Any, ...]]


def columns_of(tx: Transaction, table: Table) -> list[str]:
    """Return the names of the columns that can be written, in order. Generated ones are left out.

    Raises:
        LookupError: There is no such table.
    """
    if tx.dialect == "postgresql":
        found = tx.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            [table.name],
        )
    else:
        found = tx.execute(
            "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", [table.name]
        )
    names = [name for (name,) in found]
    if not names:
        raise LookupError(f"there is no table {table.name}")
    return names


def _source(table: Table) -> tuple[str, str]:
    """Return the FROM of a table with those that it follows, and the alias of the one with the key."""
    text, alias, here = f"{table.name} AS t0", "t0", table
    while here.through is not None:
        column, parent = here.through
        above = f"t{int(alias[1:]) + 1}"
        text += f" JOIN {parent.name} AS {above} ON {above}.{parent.primary_key[0]} = {alias}.{column}"
        alias, here = above, parent
    return text, alias


def key_condition(table: Table, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return a condition of SQL that holds for the rows of one key, and its parameters: for `read_rows`."""
    _, alias = _source(table)
    return " AND ".join(f"{alias}.{column} = ?" for column in table.root.columns), list(values)


def read_rows(
    tx: Transaction,
    table: Table,
    columns: Sequence[str],
    *,
    chunk: int = 1000,
    where: tuple[str, Sequence[Any]] | None = None,
) -> Iterator[Chunk]:
    """Iterate over the rows of a table with their keys, in chunks, in order of the primary key.

    Args:
        tx: A transaction on the database that has them.
        table: Which table; its key may be that of another one (`through`).
        columns: The columns that a row has.
        chunk: How many rows are read at once.
        where: A condition and its parameters, such as `key_condition` returns.

    Cost: a query for each chunk, by the index of the primary key.
    """
    source, alias = _source(table)
    primary = table.primary_key
    root = table.root
    chosen = [*(f"t0.{name}" for name in columns), *(f"{alias}.{name}" for name in root.columns)]
    chosen += [f"t0.{name}" for name in primary]
    tuple_of = ", ".join(f"t0.{name}" for name in primary)
    condition, values = where if where is not None else ("", ())
    last: tuple[Any, ...] | None = None
    while True:
        conditions = [condition] if condition else []
        given = list(values)
        if last is not None:
            conditions.append(f"({tuple_of}) > ({', '.join('?' for _ in primary)})")
            given += last
        text = f"SELECT {', '.join(chosen)} FROM {source}"
        text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        found = tx.execute(f"{text} ORDER BY {tuple_of} LIMIT {chunk}", given).rows
        if found:
            width, keys = len(columns), len(columns) + len(root.columns)
            yield Chunk(
                [root.key_from(row[width:keys]) for row in found], [tuple(row[:width]) for row in found]
            )
        if len(found) < chunk:
            return
        last = tuple(found[-1][len(columns) + len(root.columns) :])


def write_rows(tx: Transaction, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows, over those with their primary keys; return how many. Another unique key is an error."""
    others = [name for name in columns if name not in table.primary_key]
    change = ", ".join(f"{name} = excluded.{name}" for name in others)
    system = " OVERRIDING SYSTEM VALUE" if tx.dialect == "postgresql" else ""
    action = f"DO UPDATE SET {change}" if others else "DO NOTHING"
    listed = [tuple(row) for row in rows]
    if listed:
        tx.executemany(
            f"INSERT INTO {table.name} ({', '.join(columns)}){system} "
            f"VALUES ({', '.join('?' for _ in columns)}) "
            f"ON CONFLICT ({', '.join(table.primary_key)}) {action}",
            listed,
        )
    return len(listed)


def delete_rows(tx: Transaction, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Delete rows by their primary keys; return how many were there."""
    places = [columns.index(name) for name in table.primary_key]
    found = [[row[place] for place in places] for row in rows]
    condition = " AND ".join(f"{name} = ?" for name in table.primary_key)
    return tx.executemany(f"DELETE FROM {table.name} WHERE {condition}", found) if found else 0

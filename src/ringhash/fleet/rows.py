"""Rows of keys: read in chunks, written again elsewhere, deleted.

Values travel as PostgreSQL writes them in text, not as Python has them: an interval of a month would become
30 days, and JSON, infinite dates and types of your own would be lost. SQLite has few types, and all are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ringhash.databases import Transaction
from ringhash.fleet.tables import Table

__all__ = ["Chunk", "Column", "columns_of", "delete_rows", "key_condition", "read_rows", "write_rows"]


class Column(NamedTuple):
    """A column: its name, and its type as SQL writes it; "" where values are as they are (SQLite)."""

    name: str
    type: str

    @property
    def sql(self) -> str:
        """Its name in a statement."""
        return '"' + self.name.replace('"', '""') + '"'

    @property
    def parameter(self) -> str:
        """What stands for a value of it in a statement."""
        return f"?::{self.type}" if self.type else "?"

    def chosen(self, exact: bool) -> str:
        """What reads it from the table `t0`."""
        return f"t0.{self.sql}::text" if self.type and exact else f"t0.{self.sql}"


class Chunk(NamedTuple):
    """Some rows of a table in order of its primary key: `keys[i]` is the key of `rows[i]`."""

    keys: list[Any]
    rows: list[tuple[Any, ...]]


def columns_of(tx: Transaction, table: Table) -> list[Column]:
    """Return the columns that can be written, in order. Generated ones are left out.

    Raises:
        LookupError: There is no such table.
    """
    if tx.dialect == "postgresql":
        found = tx.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' "
            "ORDER BY attnum",
            [table.name],
        )
    else:
        found = tx.execute(
            "SELECT name, '' FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid",
            [table.name],
        )
    columns = [Column(*row) for row in found]
    if not columns:
        raise LookupError(f"there is no table {table.name}")
    return columns


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
    columns: Sequence[Column],
    *,
    chunk: int = 1000,
    where: tuple[str, Sequence[Any]] | None = None,
    exact: bool = True,
) -> Iterator[Chunk]:
    """Iterate over the rows of a table with their keys, in chunks, in order of the primary key.

    Args:
        tx: A transaction on the database that has them.
        table: Which table; its key may be that of another one (`through`).
        columns: The columns that a row has.
        chunk: How many rows are read at once.
        where: A condition and its parameters, such as `key_condition` returns.
        exact: Whether values are read as text, for `write_rows`; else as Python has them.

    Cost: a query for each chunk, by the index of the primary key.
    """
    source, alias = _source(table)
    primary = table.primary_key
    root = table.root
    chosen = [*(one.chosen(exact) for one in columns), *(f"{alias}.{name}" for name in root.columns)]
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


def write_rows(
    tx: Transaction, table: Table, columns: Sequence[Column], rows: Iterable[Sequence[Any]]
) -> int:
    """Write rows that `read_rows` read; return how many. One that is there is the database's error."""
    system = " OVERRIDING SYSTEM VALUE" if tx.dialect == "postgresql" else ""
    listed = [tuple(row) for row in rows]
    if listed:
        names = ", ".join(one.sql for one in columns)
        values = ", ".join(one.parameter for one in columns)
        tx.executemany(f"INSERT INTO {table.name} ({names}){system} VALUES ({values})", listed)
    return len(listed)


def delete_rows(
    tx: Transaction, table: Table, columns: Sequence[Column], rows: Iterable[Sequence[Any]]
) -> int:
    """Delete rows by their primary keys; return how many were there."""
    places = {one.name: place for place, one in enumerate(columns)}
    primary = [(columns[places[name]], places[name]) for name in table.primary_key]
    found = [[row[place] for _, place in primary] for row in rows]
    condition = " AND ".join(f"{one.sql} = {one.parameter}" for one, _ in primary)
    return tx.executemany(f"DELETE FROM {table.name} WHERE {condition}", found) if found else 0

"""What would fail later, looked for first."""

from __future__ import annotations

from collections.abc import Sequence

from ringhash.databases import Transaction
from ringhash.fleet import Table
from ringhash.fleet.rows import columns_of
from ringhash.reshard.keylog import MOST_KEYS

__all__ = ["problems"]


def problems(
    source: Transaction, target: Transaction, tables: Sequence[Table], here: str, there: str
) -> list[str]:
    """Return sentences, each about something that would stop a move of rows from `here` to `there` later."""
    if source.dialect != target.dialect:
        return [f"{here} is {source.dialect} and {there} is {target.dialect}: rows move within one kind"]
    found = []
    for table in tables:
        columns = []
        for tx, node in ((source, here), (target, there)):
            try:
                columns.append(columns_of(tx, table))
            except LookupError:
                found.append(f"{node} has no table {table.name}")
        if len(columns) < 2:
            continue
        if columns[0] != columns[1]:
            ours, theirs = ({f"{one.name} {one.type}".strip() for one in side} for side in columns)
            differing = ", ".join(sorted(ours ^ theirs)) or "their order"
            found.append(f"{table.name} differs between {here} and {there}: {differing}")
        if len(table.primary_key) > MOST_KEYS:
            found.append(f"{table.name}: a primary key may have {MOST_KEYS} columns")
        for tx, node in ((source, here), (target, there)):
            if set(_primary_key(tx, table)) != set(table.primary_key):
                found.append(
                    f"{node}: the primary key of {table.name} is ({', '.join(_primary_key(tx, table))}), "
                    f"and the Table says ({', '.join(table.primary_key)})"
                )
        triggers = _triggers(target, table)
        if triggers:
            found.append(
                f"{there}: {table.name} has triggers that run for rows that arrive: {', '.join(triggers)}"
            )
        found += [
            f"{table.name} refers to {other}, which does not move: its rows must be at {there} already"
            for other in _references(source, table)
            if other not in {one.name for one in tables}
        ]
    return found


def _primary_key(tx: Transaction, table: Table) -> list[str]:
    if tx.dialect == "postgresql":
        found = tx.execute(
            "SELECT a.attname FROM pg_index i "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(?) AND i.indisprimary",
            [table.name],
        )
    else:
        found = tx.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", [table.name])
    return [name for (name,) in found]


def _triggers(tx: Transaction, table: Table) -> list[str]:
    if tx.dialect == "postgresql":
        found = tx.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(?) AND NOT tgisinternal "
            "AND tgname NOT LIKE 'ringhash%'",
            [table.name],
        )
    else:
        found = tx.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? "
            "AND name NOT LIKE 'ringhash%'",
            [table.name],
        )
    return [name for (name,) in found]


def _references(tx: Transaction, table: Table) -> list[str]:
    if tx.dialect == "postgresql":
        found = tx.execute(
            "SELECT confrelid::regclass::text FROM pg_constraint "
            "WHERE contype = 'f' AND conrelid = to_regclass(?)",
            [table.name],
        )
    else:
        found = tx.execute('SELECT "table" FROM pragma_foreign_key_list(?)', [table.name])
    return sorted({name for (name,) in found})

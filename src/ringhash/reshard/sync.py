"""One act: make the target's rows equal to the source's as they are now, or absent.

The copy of a chunk, catching up, repair and the way back are all this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringhash.databases import Transaction
from ringhash.errors import ReshardError
from ringhash.fleet import Table
from ringhash.fleet.rows import Column, read_rows, write_rows
from ringhash.handover import Piece

__all__ = ["Dirty", "Synced", "rows_by_key", "sync"]

Dirty = Mapping[Table, Iterable[tuple[Any, ...]]]  # primary keys by table
_AT_ONCE = 200  # primary keys in one condition


class Synced(NamedTuple):
    """How many rows were written and deleted at the target."""

    written: int
    deleted: int


class _Change(NamedTuple):
    table: Table
    columns: Sequence[Column]
    update: list[tuple[Any, ...]]
    insert: list[tuple[Any, ...]]
    delete: list[tuple[Any, ...]]  # primary keys


def _one_of(table: Table, columns: Sequence[Column]) -> str:
    """Return the condition for one primary key."""
    types = {one.name: one for one in columns}
    return " AND ".join(f"t0.{types[name].sql} = {types[name].parameter}" for name in table.primary_key)


def rows_by_key(
    tx: Transaction, table: Table, columns: Sequence[Column], keys: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Iterate over the rows with some primary keys, each with the key that it belongs to."""
    one_of = _one_of(table, columns)
    wanted = [tuple(key[: len(table.primary_key)]) for key in keys]
    for start in range(0, len(wanted), _AT_ONCE):
        part = wanted[start : start + _AT_ONCE]
        condition = " OR ".join(f"({one_of})" for _ in part)
        values = [value for key in part for value in key]
        for chunk in read_rows(tx, table, columns, chunk=len(part) + 1, where=(f"({condition})", values)):
            yield from zip(chunk.keys, chunk.rows, strict=True)


def sync(
    source: Transaction,
    target: Transaction,
    tables: Sequence[Table],
    columns: Mapping[Table, Sequence[Column]],
    dirty: Dirty,
    piece: Piece,
    *,
    replace: bool = False,
) -> Synced:
    """Make rows of a piece at the target equal to those at the source, or absent.

    Args:
        source, target: Transactions on both databases; the caller commits that of the target.
        tables: All tables, parents before those that follow them.
        columns: Of each table.
        dirty: The primary keys of the rows, by table.
        piece: Whose rows; others are left alone.
        replace: Whether rows that are there already are deleted and written anew, for values of unique
            columns that rows have exchanged.

    Raises:
        ReshardError: The target has a row of another key under the same primary key.
        The database's error: Another unique column is in the way.

    Cost: O(rows).
    """
    changes = []
    for table in tables:
        keys = list(dirty.get(table, ()))
        if not keys:
            continue
        place = [
            next(i for i, one in enumerate(columns[table]) if one.name == name) for name in table.primary_key
        ]

        def primary(row: tuple[Any, ...], place: list[int] = place) -> tuple[Any, ...]:
            return tuple(row[i] for i in place)

        wanted = _inside(piece, rows_by_key(source, table, columns[table], keys))
        there = list(rows_by_key(target, table, columns[table], keys))
        known = {primary(row) for _, row in there}
        ours = {primary(row) for row in _inside(piece, there)}
        if table.through is not None:  # rows that wait for the one that they follow
            ours |= _present(target, table, columns[table], keys) - known
        foreign = known - ours
        for row in wanted:
            if primary(row) in foreign:
                raise ReshardError(
                    f"{table.name}: the row {primary(row)} of {piece.source} has the primary key of a row of "
                    f"{piece.target} that belongs to another key; give one of them another id"
                )
        new = {primary(row) for row in wanted}
        changes.append(
            _Change(
                table, columns[table],
                update=[] if replace else [row for row in wanted if primary(row) in ours],
                insert=wanted if replace else [row for row in wanted if primary(row) not in ours],
                delete=sorted(ours if replace else ours - new, key=repr),
            )
        )  # fmt: skip
    for change in reversed(changes):
        _delete(target, change)
    for change in changes:
        _update(target, change)
        write_rows(target, change.table, change.columns, change.insert)
    written = sum(len(change.update) + len(change.insert) for change in changes)
    return Synced(written, sum(len(change.delete) for change in changes))


def _inside(piece: Piece, rows: Iterable[tuple[Any, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    found = list(rows)
    if not found:
        return []
    mask = piece.mask([key for key, _ in found])
    return [row for (_, row), goes in zip(found, mask, strict=True) if goes]


def _present(
    tx: Transaction, table: Table, columns: Sequence[Column], keys: Iterable[tuple[Any, ...]]
) -> set[tuple[Any, ...]]:
    """Return which primary keys are there, whether or not the row that they follow is."""
    types = {one.name: one for one in columns}
    chosen = ", ".join(types[name].chosen(True) for name in table.primary_key)
    found: set[tuple[Any, ...]] = set()
    for key in keys:
        rows = tx.execute(
            f"SELECT {chosen} FROM {table.name} AS t0 WHERE {_one_of(table, columns)}",
            key[: len(table.primary_key)],
        )
        found.update(map(tuple, rows))
    return found


def _delete(tx: Transaction, change: _Change) -> None:
    condition = _one_of(change.table, change.columns).replace("t0.", "")
    if change.delete:
        tx.executemany(f"DELETE FROM {change.table.name} WHERE {condition}", change.delete)


def _update(tx: Transaction, change: _Change) -> None:
    primary = set(change.table.primary_key)
    plain = [(i, one) for i, one in enumerate(change.columns) if one.name not in primary]
    keys = [(i, one) for i, one in enumerate(change.columns) if one.name in primary]
    if not plain or not change.update:
        return
    assigned = ", ".join(f"{one.sql} = {one.parameter}" for _, one in plain)
    condition = " AND ".join(f"{one.sql} = {one.parameter}" for _, one in keys)
    order = [i for i, _ in (*plain, *keys)]
    tx.executemany(
        f"UPDATE {change.table.name} SET {assigned} WHERE {condition}",
        [[row[i] for i in order] for row in change.update],
    )

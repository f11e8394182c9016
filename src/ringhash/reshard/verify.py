"""Comparing both sides of a piece, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from ringhash.databases import Transaction
from ringhash.fleet import Table
from ringhash.fleet.rows import Column, read_rows
from ringhash.handover import Piece
from ringhash.reshard.sync import rows_by_key

__all__ = ["Diff", "compare"]

_SHOWN = 10


class Diff(NamedTuple):
    """How the target differs from the source in the rows of a piece: primary keys by kind, and how many rows
    are alike.

    `missing` are at the source alone, `extra` at the target alone, `different` have other values.
    """

    same: int
    missing: list[tuple[str, tuple[Any, ...]]]
    extra: list[tuple[str, tuple[Any, ...]]]
    different: list[tuple[str, tuple[Any, ...]]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)

    def without(self, explained: Callable[[str, tuple[Any, ...]], bool]) -> Self:
        """Return it without the rows that are explained."""
        missing, extra, different = (
            [row for row in rows if not explained(*row)]
            for rows in (self.missing, self.extra, self.different)
        )
        return self._replace(missing=missing, extra=extra, different=different)

    def __str__(self) -> str:
        kinds = [("missing", self.missing), ("extra", self.extra), ("different", self.different)]
        parts = [f"{self.same} rows are alike"]
        for name, rows in kinds:
            if rows:
                shown = ", ".join(f"{table} {key}" for table, key in rows[:_SHOWN])
                parts.append(f"{len(rows)} {name} ({shown}{', ...' if len(rows) > _SHOWN else ''})")
        return "; ".join(parts)


def compare(
    source: Transaction,
    target: Transaction,
    tables: Sequence[Table],
    columns: Mapping[Table, Sequence[Column]],
    piece: Piece,
    chunk: int,
) -> Diff:
    """Return how the target differs from the source in the rows of a piece.

    Values are compared as the databases write them: NULL and '' differ, and so do 1.0 and 1.00.

    Cost: reads the tables once on each side, and rows by their primary keys once.
    """
    same = 0
    missing, extra, different = [], [], []
    for table in tables:
        place = [
            next(i for i, one in enumerate(columns[table]) if one.name == name) for name in table.primary_key
        ]
        for chunk_of in read_rows(source, table, columns[table], chunk=chunk):
            mask = piece.mask(chunk_of.keys)
            ours = {
                tuple(row[i] for i in place): row for row, its in zip(chunk_of.rows, mask, strict=True) if its
            }
            theirs = {
                tuple(row[i] for i in place): row
                for _, row in rows_by_key(target, table, columns[table], ours)
            }
            for key, row in ours.items():
                if key not in theirs:
                    missing.append((table.name, key))
                elif _text(theirs[key]) != _text(row):
                    different.append((table.name, key))
                else:
                    same += 1
        for chunk_of in read_rows(target, table, columns[table], chunk=chunk):
            mask = piece.mask(chunk_of.keys)
            there = [
                tuple(row[i] for i in place) for row, its in zip(chunk_of.rows, mask, strict=True) if its
            ]
            found = {
                tuple(row[i] for i in place) for _, row in rows_by_key(source, table, columns[table], there)
            }
            extra += [(table.name, key) for key in there if key not in found]
    return Diff(same, missing, extra, different)


def _text(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(repr, row))

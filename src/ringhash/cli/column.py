"""A column of a table, found by its name."""

from __future__ import annotations

from difflib import get_close_matches

from ringhash.cli.errors import InputError

__all__ = ["column_in"]


def column_in(file: str, columns: list[str], column: str) -> int:
    """Return the index of a column, or raise `InputError` with the names of those that are there."""
    if not columns:
        raise InputError(f"{file}: has no heading, so no column {column!r}")
    if columns.count(column) != 1:
        many = "two columns" if column in columns else "no column"
        near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(column, columns, 1))
        there = ", ".join(map(repr, columns))
        raise InputError(f"{file}: has {many} {column!r}{near}; its columns are {there}")
    return columns.index(column)

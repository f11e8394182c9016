"""In which order rows come: columns, directions, where NULL stands; in Python and in SQL alike.

The rows of a shard are sorted by its database and merged by Python, so both must sort alike. Where they
would not, and nobody would notice, an order is refused: NULL without a place, text without a collation.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from ringhash.scatter.errors import OrderError

__all__ = ["By", "Order", "OrderBy", "Row"]

Row: TypeAlias = Any  # a tuple, a dict, a sqlite3.Row: what `row[column]` reads

_PLAIN = frozenset({str, bytes, dt.datetime, dt.date, uuid.UUID})
_INTS = frozenset({int, bool})
_NUMBERS = frozenset({int, bool, float})


@dataclass(frozen=True, slots=True)
class By:
    """One column of an order.

    Args:
        column: What `row[column]` reads: a name of a dict or `sqlite3.Row`, an index of a tuple.
        descending: From the highest to the lowest.
        nulls: Whether NULL comes "first" or "last". Databases disagree (in ascending order PostgreSQL
            puts NULL last, SQLite and MySQL first), so a NULL in a column without it is an `OrderError`.
        collation: "C" says that the shards compare text by code point. Text in a column without it is an
            `OrderError`, since a database that sorts by a language's rules sorts otherwise than Python.

    >>> By("name", descending=True, nulls="last", collation="C").sql()
    '"name" COLLATE "C" DESC NULLS LAST'
    """

    column: str | int
    descending: bool = False
    nulls: Literal["first", "last"] | None = None
    collation: Literal["C"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.column, bool) or not isinstance(self.column, str | int):
            raise TypeError(f"a column is a name or an index, not {self.column!r}")
        if self.nulls not in (None, "first", "last"):
            raise ValueError(f'nulls must be "first" or "last", not {self.nulls!r}')
        if self.collation not in (None, "C"):
            raise ValueError(
                f'collation must be "C", not {self.collation!r}; for an order of a language, ask the shards '
                "for its sort key as bytes and order by that column"
            )

    def sql(self, dialect: Literal["postgresql", "sqlite"] = "postgresql") -> str:
        """Return the column's term of ORDER BY, so that the shards sort as the merge does."""
        text = self.name
        if self.collation is not None:
            text += ' COLLATE "C"' if dialect == "postgresql" else " COLLATE BINARY"
        text += " DESC" if self.descending else " ASC"
        return text + (f" NULLS {self.nulls.upper()}" if self.nulls else "")

    @property
    def name(self) -> str:
        """The quoted name of the column in SQL; OrderError for an index."""
        if isinstance(self.column, int):
            raise OrderError(f"column {self.column} has an index and no name, so it has no SQL")
        escaped = self.column.replace('"', '""')
        return f'"{escaped}"'

    def part(self, value: Any) -> tuple[int, Any]:
        """Return what sorts as `value` does in this column, for every value, NULL and NaN included.

        NaN is above every number, as in PostgreSQL.

        Raises:
            OrderError: It is NULL or text, and the column does not say how these sort.
        """
        if value is None:
            if self.nulls is None:
                raise OrderError(
                    f"column {self.column!r} has a NULL, which databases place differently; say "
                    f'By({self.column!r}, nulls="last"), and NULLS LAST in the statement of the shards'
                )
            return (0 if self.nulls == "first" else 4), 0
        if isinstance(value, str) and self.collation is None:
            raise OrderError(
                f'column {self.column!r} is text; say By({self.column!r}, collation="C") if the shards '
                "compare by code point, or order by a sort key of bytes"
            )
        if value != value:  # noqa: PLR0124 - NaN of float, numpy, Decimal
            return (1 if self.descending else 3), 0
        if not self.descending:
            return 2, value
        return 2, (-value if isinstance(value, int | float) else _Down(value))


class _Down:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


OrderBy: TypeAlias = str | int | By | Sequence[str | int | By]


class Order:
    """An order of rows by one or more columns.

    Args:
        order_by: A column, a `By`, or several in the order of their weight.

    >>> order = Order(["at", By("id", descending=True)])
    >>> sorted([{"at": 1, "id": 1}, {"at": 1, "id": 2}], key=order.key)
    [{'at': 1, 'id': 2}, {'at': 1, 'id': 1}]
    >>> order.sql()
    '"at" ASC, "id" DESC'
    """

    def __init__(self, order_by: OrderBy) -> None:
        given = [order_by] if isinstance(order_by, str | int | By) else list(order_by)
        self.columns = tuple(by if isinstance(by, By) else By(by) for by in given)
        if not self.columns:
            raise ValueError("order_by needs at least one column")
        names = [by.column for by in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"order_by names a column twice: {names}")
        self.values: Callable[[Row], Any] = itemgetter(*names)
        directions = {by.descending for by in self.columns}
        self.uniform = len(directions) == 1  # then plain values can be compared as they are
        self.descending = directions == {True}
        self._parts = tuple((itemgetter(by.column), by.part) for by in self.columns)

    def key(self, row: Row) -> tuple[Any, ...]:
        """Return what sorts as the row does; errors as for `By.part`."""
        key: tuple[Any, ...] = ()
        for get, part in self._parts:
            key += part(get(row))
        return key

    def sql(self, dialect: Literal["postgresql", "sqlite"] = "postgresql") -> str:
        """Return the terms of ORDER BY for the statement of the shards."""
        return ", ".join(by.sql(dialect) for by in self.columns)

    def kinds(self, values: Sequence[Any]) -> tuple[type, ...] | None:
        """Return the type of each column if Python's own comparison is right for all of these, else None.

        `values` are those of `Order.values`, for some rows.
        """
        if not self.uniform:
            return None
        columns = [values] if len(self.columns) == 1 else zip(*values, strict=True)
        kinds = tuple(_kind(column, by) for column, by in zip(columns, self.columns, strict=True))
        return None if None in kinds else kinds  # type: ignore[return-value]

    def in_order(self, keys: Sequence[Any], plain: bool) -> bool:
        """Whether keys are in this order: those of `Order.values` if `plain`, else of `Order.key`."""
        try:
            # Sorting what is sorted is one pass over it, and equal lists hold the same objects.
            return keys == sorted(keys, reverse=self.descending) if plain else not _descends(keys)
        except TypeError as error:
            raise OrderError(f"rows cannot be compared: {error}") from None

    def after(self, values: Sequence[Any], placeholder: str = "?") -> tuple[str, list[Any]]:
        """Return the SQL condition of the rows that come after a row with these values, and its arguments.

        Args:
            values: The row's values of the columns of this order.
            placeholder: What stands for an argument: `?` for sqlite3, `%s` for psycopg.

        >>> Order(["at", "id"]).after([5, 7])
        ('(("at" > ?) OR ("at" = ? AND "id" > ?))', [5, 5, 7])
        """
        terms: list[str] = []
        arguments: list[Any] = []
        same: list[str] = []
        before: list[Any] = []
        for by, value in zip(self.columns, values, strict=True):
            later, least = _later(by, value, placeholder)
            if later is not None:
                terms.append("(" + " AND ".join([*same, later]) + ")")
                arguments += [*before, *least]
            same.append(f"{by.name} IS NULL" if value is None else f"{by.name} = {placeholder}")
            before += [] if value is None else [value]
        return "(" + " OR ".join(terms) + ")" if terms else "(1 = 0)", arguments


def _kind(values: Sequence[Any], by: By) -> type | None:
    types = set(map(type, values))
    if types <= _INTS:
        return int
    if types <= _NUMBERS:
        try:
            total = sum(values)
        except OverflowError:
            return None
        # NaN if some value is, or if infinities cancel out.
        return int if total == total else None  # noqa: PLR0124
    if len(types) == 1 and types <= _PLAIN and (types != {str} or by.collation is not None):
        return types.pop()
    return None


def _later(by: By, value: Any, placeholder: str) -> tuple[str | None, list[Any]]:
    """The condition of a later value in one column; None if no value is later."""
    if value is None:
        return (f"{by.name} IS NOT NULL", []) if by.nulls == "first" else (None, [])
    text = f"{by.name} {'<' if by.descending else '>'} {placeholder}"
    return (f"({text} OR {by.name} IS NULL)" if by.nulls == "last" else text), [value]


def _descends(keys: Iterable[Any]) -> bool:
    """Whether some key is below the one before it, asked with `<` alone."""
    before: Any = None
    for key in keys:
        if before is not None and key < before:
            return True
        before = key
    return False

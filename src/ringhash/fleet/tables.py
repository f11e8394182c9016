"""Tables: which column of a table is the key, and what a value of it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ringhash.node import plain_type

__all__ = ["Table"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


class Table:
    """A table whose rows belong to keys; immutable.

    Args:
        name: Its name, perhaps with a schema: `"orders"`, `"shop.orders"`.
        key: The column with the key, or several for a key that is a tuple. None for a reference table, and
            for one whose rows follow those of another (`through`).
        primary_key: The columns of the primary key.
        key_of: What a value of the column means as a key; for several columns, of the tuple. By default a
            value is the key itself: then 7 and "7" are two keys, as everywhere in ringhash. Give `str` if the
                column has
            numbers and the application routes by their digits.
        reference: Whether every node has all rows: a small table that all join with, such as countries.
        through: `("order_id", orders)` for a table without the key: its column that names the primary key of
            another `Table`, whose key counts.

    Raises:
        TypeError, ValueError: An argument is malformed, or says two things at once.

    >>> orders = Table("orders", key="tenant_id")
    >>> lines = Table("lines", key=None, through=("order_id", orders))
    >>> orders.key_from((7,)), lines.root.name
    (7, 'orders')
    """

    __slots__ = ("columns", "key_of", "name", "primary_key", "reference", "through")

    def __init__(
        self,
        name: str,
        *,
        key: str | Sequence[str] | None,
        primary_key: str | Sequence[str] = ("id",),
        key_of: Callable[[Any], Any] | None = None,
        reference: bool = False,
        through: tuple[str, Table] | None = None,
    ) -> None:
        self.name = _named(name, "the name of a table")
        self.columns = () if key is None else _columns(key, "key")
        self.primary_key = _columns(primary_key, "primary_key")
        self.key_of = key_of
        self.reference = reference
        self.through = through
        if key_of is not None and not callable(key_of):
            raise TypeError(f"key_of must be a function of a value, not {plain_type(key_of)}")
        if bool(self.columns) + bool(reference) + (through is not None) != 1:
            raise ValueError(
                f"{name}: give one of: key= (its rows have keys), reference=True (all nodes have it), or "
                "through=(column, table) (its rows follow those of another table)"
            )
        if through is not None:
            column, parent = through
            _named(column, "the column of through")
            if not isinstance(parent, Table):
                raise TypeError(f"through must be (column, Table), not (..., {plain_type(parent)})")
            if parent.reference or len(parent.primary_key) != 1:
                raise ValueError(
                    f"{name}: rows can follow those of a table with a key and one column as primary key"
                )

    @property
    def root(self) -> Table:
        """The table that has the key: this one, or the one that it follows."""
        return self if self.through is None else self.through[1].root

    def key_from(self, values: Sequence[Any]) -> Any:
        """Return the key that the values of the key columns mean.

        >>> Table("events", key=("tenant", "day"), key_of=lambda key: key[0]).key_from(("acme", 3))
        'acme'
        """
        value = values[0] if len(self.columns) == 1 else tuple(values)
        return value if self.key_of is None else self.key_of(value)

    def __repr__(self) -> str:
        what = "reference" if self.reference else ", ".join(self.columns) or f"through {self.root.name}"
        return f"<Table {self.name}: {what}>"


def _columns(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise ValueError(f"{what} needs a column")
    return tuple(_named(name, f"a column of {what}") for name in names)


def _named(name: object, what: str) -> str:
    """Return a name that may stand in SQL as it is."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be text, not {plain_type(name)}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what} is letters, digits and _, perhaps with a schema, not {name!r}")
    return name

"""Which tables have a key, in which column, and which are the same on every shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Column, Table, inspect
from sqlalchemy.orm import ColumnProperty, Mapper

from ringhash.contrib.sqlalchemy.errors import NoKeyError

__all__ = ["Keys"]


class Keys:
    """The column of the key of each mapped class, and the classes that every shard has whole."""

    def __init__(self, keys: Mapping[Any, Any], everywhere: Iterable[Any] = ()) -> None:
        self.columns: dict[Table, Column[Any]] = {}
        self.names: dict[Mapper[Any], str] = {}
        self.everywhere: set[Table] = set()
        for cls, given in keys.items():
            if isinstance(cls, Table):
                self.columns[cls] = cls.columns[given] if isinstance(given, str) else given
                continue
            name = given if isinstance(given, str) else given.key
            for mapper in inspect(cls).self_and_descendants:
                self._take(mapper, name)
        for cls in everywhere:
            if isinstance(cls, Table):
                self.everywhere.add(cls)
                continue
            for mapper in inspect(cls).self_and_descendants:
                self.everywhere.update(table for table in mapper.tables if isinstance(table, Table))
        if not self.columns:
            raise ValueError("name the key of each sharded class: keys={User: 'id', Order: 'user_id'}")
        both = self.everywhere & self.columns.keys()
        if both:
            raise ValueError(f"{min(table.name for table in both)} cannot be both in keys and in everywhere")

    def _take(self, mapper: Mapper[Any], name: str) -> None:
        found = mapper.attrs.get(name)
        if not isinstance(found, ColumnProperty):
            raise ValueError(f"{mapper.class_.__name__} has no column attribute {name!r}")
        self.names[mapper] = name
        for table in mapper.tables:
            columns = [c for c in found.columns if isinstance(c, Column) and c.table is table]
            if not columns:
                raise ValueError(
                    f"the table {table} of {mapper.class_.__name__} has no column for the key {name!r}"
                )
            if self.columns.setdefault(table, columns[0]) is not columns[0]:  # type: ignore[arg-type]
                raise ValueError(f"the table {table} has two keys")

    def name(self, mapper: Mapper[Any]) -> str | None:
        """The attribute with the key; None for a class that is everywhere."""
        name = self.names.get(mapper)
        if name is None and mapper.local_table not in self.everywhere:
            raise NoKeyError(
                f"{mapper.class_.__name__} has no key: name it in keys, or in everywhere if shards share it"
            )
        return name

    def identity_index(self, mapper: Mapper[Any]) -> int | None:
        """Where in the primary key the key is; None if it is no part of it."""
        column = self.columns[mapper.local_table]  # type: ignore[index]
        for i, primary in enumerate(mapper.primary_key):
            if primary is column or primary in mapper.get_property_by_column(column).columns:
                return i
        return None


def checked(column: Column[Any], value: Any) -> Any:
    """A value of a key, of exactly the type of its column: 7 and "7" are two keys, on two shards."""
    if value is None:
        raise NoKeyError(f"the key {column} is None: set it before the row is stored, not by the database")
    try:
        wanted = column.type.python_type
    except NotImplementedError:
        return value
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise TypeError(f"the key {column} is of type {wanted.__name__}, not {type(value).__name__}")
    return value

"""A column as keys: what NULL is, what a value is as a key, and in which order values are."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringhash.placements.shards import Shards

__all__ = ["Column", "Keys", "composite", "hashes", "keys_of", "sort_key"]

_WHOLE = 1 << 32
_HIGH, _LOW = Shards(_WHOLE, seed=0), Shards(_WHOLE, seed=1)
Array = np.ndarray[Any, Any]


class Keys(NamedTuple):
    """The keys of a block: values that can be placed, and which rows have none (NULL).

    `keys` has a row's key or, where it is NULL, any key; `nulls` is None if no row is NULL.
    """

    keys: Any
    nulls: Array | None


Column = Any


def keys_of(column: Column) -> Keys:
    """Return the values of a column as keys.

    Integers, text, bytes and UUIDs are keys as they are. Dates and times of an array count as integers,
    those of a list as ISO text; whole floats as integers (a column of integers with NULLs often comes as
    floats), and all else as its text. None, NaN and NaT are NULL.
    """
    if isinstance(column, np.ndarray):
        kind = column.dtype.kind
        if kind in "iu":
            return Keys(column if column.dtype.itemsize == 8 else column.astype(np.int64), None)
        if kind == "M":
            nulls = np.isnat(column)
            return Keys(column.view(np.int64), nulls if nulls.any() else None)
        if kind == "f":
            nulls = np.isnan(column)
            filled = np.where(nulls, 0.0, column)
            whole = (np.abs(filled) < 2.0**53).all() and (filled == np.floor(filled)).all()
            keys = filled.astype(np.int64) if whole else list(map(repr, filled.tolist()))
            return Keys(keys, nulls if nulls.any() else None)
        column = column.tolist()
    types = set(map(type, column))
    if types <= {str} or types <= {int}:
        return Keys(column, None)
    nulls = np.fromiter((value is None or value != value for value in column), bool, len(column))  # noqa: PLR0124
    return Keys(list(map(_key, column)), nulls if nulls.any() else None)


def _key(value: Any) -> Any:
    if value is None:
        return ""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | bytes | bytearray | memoryview | uuid.UUID | np.integer):
        return value
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return str(value)


def composite(parts: Sequence[Keys], separator: str) -> Keys:
    """Return the keys of several columns: their texts with a separator between; NULL where all are NULL."""
    texts = [
        map(_text, part.keys.tolist() if isinstance(part.keys, np.ndarray) else part.keys) for part in parts
    ]
    nulls = None
    masks = [part.nulls for part in parts if part.nulls is not None]
    if len(masks) == len(parts):
        nulls = np.logical_and.reduce(masks)
    return Keys(
        list(map(separator.join, zip(*texts, strict=True))),
        nulls if nulls is not None and nulls.any() else None,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    return str(value)


def hashes(keys: Any) -> Array:
    """Return 64 bits of hash of each key, as unsigned integers: what tells keys apart here."""
    high = _HIGH.of_many(keys).astype(np.uint64)
    whole: Array = (high << np.uint64(32)) | _LOW.of_many(keys).astype(np.uint64)
    return whole


def sort_key(value: Any) -> tuple[int, str, Any]:
    """Return what sorts any values: NULL first, numbers by value, others by type and value.

    >>> sorted([3, None, "a", 1.5], key=sort_key)
    [None, 1.5, 3, 'a']
    """
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return 0, "", 0
    if isinstance(value, int | float | np.integer | np.floating):
        return 1, "", value
    if isinstance(value, tuple):
        return 2, "tuple", tuple(map(sort_key, value))
    return 2, type(value).__name__, value

"""Keys in order: their shape, their bytes, the end of a prefix, and a space cut at some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Self, TypeAlias, cast
from uuid import UUID

import numpy as np

from ringhash._ordered import RangeTable, Shape, range_table
from ringhash.immutable import slot_setter
from ringhash.ranges import KeyRange
from ringhash.records import document, field, read_document
from ringhash.space import Keys, Space

__all__ = [
    "OrderedSpace",
    "Shape",
    "ShapeLike",
    "plain_key",
    "prefix_end",
    "read_key",
    "read_shape",
    "shape_from",
]

ShapeLike: TypeAlias = "Shape | str | type | tuple[str | type, ...]"
OrderedKey: TypeAlias = "str | bytes | int | UUID | datetime | tuple[Any, ...]"

_KINDS = {str: "str", bytes: "bytes", int: "int", UUID: "uuid", datetime: "datetime"}
_UUID_END = 1 << 128
_INT_END = 1 << 64


def shape_from(keys: ShapeLike) -> Shape:
    """Return the shape that a caller named: by types, by names, or by a tuple of these.

    >>> shape_from((str, int)), shape_from("uuid")
    (<Shape (str, int)>, <Shape uuid>)
    """
    if isinstance(keys, Shape):
        return keys
    if isinstance(keys, tuple):
        return Shape(tuple(_kind(part) for part in keys))
    return Shape(_kind(keys))


def _kind(part: object) -> str:
    name = _KINDS.get(part, part) if isinstance(part, type) else part
    if not isinstance(name, str):
        shown = name.__name__ if isinstance(name, type) else repr(name)
        raise TypeError(f"keys are str, bytes, int, UUID, datetime, or a tuple of these, not {shown}")
    return name


def prefix_end(shape: Shape, prefix: Any) -> Any:
    """Return the lowest key above every key that begins with `prefix`; None where there is none.

    A str or bytes begins with another one; a tuple begins with the first of its parts. Text within a
    tuple counts as a whole: for a part of it write two bounds.

    >>> prefix_end(Shape("str"), "café"), prefix_end(Shape("bytes"), bytes.fromhex("03aaff")).hex()
    ('cafê', '03ab')
    >>> prefix_end(Shape(("str", "int")), ("acme",))
    ('acme\\x00',)
    """
    shape.encode(prefix, False)  # the errors of what is no key
    if isinstance(shape.parts, tuple):
        parts = list(prefix)
        while parts:
            last = parts.pop()
            above = _above(shape.parts[len(parts)], last)
            if above is not None:
                return (*parts, above)
        return None
    if shape.parts == "str":
        return _text_end(prefix)
    if shape.parts == "bytes":
        kept = bytes(prefix).rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    raise TypeError(f"keys that are {shape} have no prefix; ask between(lo, hi)")


def _text_end(prefix: str) -> str | None:
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    code = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if code == 0xD800 else code)  # no key has a surrogate


def _above(kind: str, part: Any) -> Any:
    """Return the lowest value of a kind above `part`, None if it is the highest."""
    if kind == "str":
        return part + "\0"
    if kind == "bytes":
        return bytes(part) + b"\0"
    if kind == "int":
        return int(part) + 1 if int(part) + 1 < _INT_END else None
    if kind == "uuid":
        return UUID(int=part.int + 1) if part.int + 1 < _UUID_END else None
    try:
        return part.astimezone(UTC) + timedelta(microseconds=1)
    except OverflowError:
        return None


# --- keys in documents ---------------------------------------------------------------------------


def plain_key(shape: Shape, data: bytes) -> object:
    """Return the key whose bytes these are as JSON holds it: None for the lowest bound.

    Text is itself, bytes are hexadecimal, an int is its digits, a moment is in ISO 8601, a tuple a list.

    >>> shape = Shape(("str", "int"))
    >>> plain_key(shape, shape.encode(("acme", -7))), plain_key(shape, b"")
    (['acme', '-7'], None)
    """
    if not data:
        return None
    key = shape.decode(data)
    return [_plain(part) for part in key] if isinstance(key, tuple) else _plain(key)


def _plain(part: Any) -> str:
    if isinstance(part, bytes):
        return part.hex()
    return part.isoformat() if isinstance(part, datetime) else str(part)


def read_key(shape: Shape, value: object, where: str) -> bytes:
    """Return the bytes of a key that `plain_key` described.

    Raises:
        ValueError: The value is not a key of this shape; the message names `where`.
    """
    if value is None:
        return b""
    parts = value if isinstance(value, list) else [value]
    kinds = shape.parts if isinstance(shape.parts, tuple) else (shape.parts,)
    if isinstance(value, list) != isinstance(shape.parts, tuple) or len(parts) > len(kinds):
        raise ValueError(f"{where}: must be a key of the shape {shape}, not {value!r}")
    try:
        read = [_read(kind, part) for kind, part in zip(kinds, parts, strict=False)]
        data: bytes = shape.encode(tuple(read) if isinstance(value, list) else read[0], False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where}: must be a key of the shape {shape}, and is {value!r}: {error}") from None
    if not data:
        raise ValueError(f"{where}: the lowest bound is null, not {value!r}")
    return data


def _read(kind: str, part: object) -> Any:
    if kind == "int" and type(part) is int:
        return part
    if not isinstance(part, str):
        raise TypeError(f"a part that is {kind} is text")
    if kind == "str":
        return part
    if kind == "bytes":
        return bytes.fromhex(part)
    if kind == "int":
        return int(part)
    return UUID(part) if kind == "uuid" else datetime.fromisoformat(part)


def plain_shape(shape: Shape) -> object:
    """Return a shape as JSON holds it: a name, or a list of names."""
    return list(shape.parts) if isinstance(shape.parts, tuple) else shape.parts


def read_shape(value: object, where: str) -> Shape:
    """Return the shape that `plain_shape` described.

    Raises:
        ValueError: The value is not a shape; the message names `where`.
    """
    try:
        return shape_from(tuple(value) if isinstance(value, list) else cast("str", value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def day_from(value: object, what: str) -> str:
    """Return a day as text, from a `date` or from its ISO form."""
    if isinstance(value, datetime):
        raise TypeError(f"{what} must be a date, not a datetime; write moment.date()")
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a date or its ISO form, not {type(value).__name__}")
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError(f"{what} must be a date such as '2026-12-31', not {value!r}") from None


# --- the space ------------------------------------------------------------------------------------


class OrderedSpace(Space):
    """Keys in order, cut at some of them: a position is what lies between two cuts.

    A plan of a range map is cut where its moves begin and end, so it has few positions, and no piece of
    a handover cuts a range in two.

    Args:
        cuts: Keys, or their bytes, in order and distinct; the position of a key is how many are at most
            the key.
        keys: The shape of the keys: "str", "bytes", "int", "uuid", "datetime", or a tuple of these.

    >>> space = OrderedSpace(["f", "m"], "str")
    >>> space.size, space.position("alice"), space.position("f"), space.position("zoe")
    (3, 0, 1, 2)
    """

    __slots__ = ("_table",)

    kind: ClassVar[str] = "ordered"
    measured: ClassVar[bool] = False
    _table: RangeTable

    def __init__(self, cuts: Iterable[Any] | RangeTable, keys: ShapeLike) -> None:
        if not isinstance(cuts, RangeTable):
            shape = shape_from(keys)
            starts = [
                cut if type(cut) is bytes and shape.parts != "bytes" else shape.encode(cut, False)
                for cut in cuts
            ]
            cuts = range_table(RangeTable, shape, ("",), starts, np.zeros(len(starts) + 1, np.int64))
        _set_table(self, cuts)

    @classmethod
    def of_bytes(cls, cuts: list[bytes], shape: Shape) -> Self:
        """Return the space of cuts that are given as the bytes of keys."""
        return cls(range_table(RangeTable, shape, ("",), cuts, np.zeros(len(cuts) + 1, np.int64)), shape)

    @property
    def shape(self) -> Shape:
        """What the keys are."""
        return self._table.shape

    @property
    def size(self) -> int:
        """The number of positions: one more than there are cuts."""
        return self._table.cuts + 1

    def position(self, key: Any, /) -> int:
        """Return how many cuts are at most `key`. O(log cuts)."""
        return self._table.position(key)

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the positions of many keys, as uint64; `keys` as for `RangeMap.owner_many`."""
        return self._table._positions(many_keys(keys))

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key, which sort as keys do."""
        return self.shape.encode(key)

    def address(self, key: Any) -> bytes:
        """Return the bytes of a key, which sort as keys do and depend on no cut."""
        return self.shape.encode(key)

    def address_of(self, position: int) -> bytes | None:
        """Return the lowest address of a position: its cut, b"" for the first, None for `size`."""
        if not 0 <= position <= self.size:
            raise IndexError(f"a position is from 0 to {self.size - 1}, not {position}")
        return None if position == self.size else self._table._start(position)

    def bound(self, position: int) -> Any:
        """Return the lowest key of a position; None for the first, and behind the last."""
        start = self.address_of(position)
        return self.shape.decode(start) if start else None

    def keys(self, positions: KeyRange) -> Keys:
        """Return the half-open range of keys that some neighbouring positions hold."""
        return Keys(self.bound(positions.start), self.bound(positions.end + 1), None)

    def same_reading(self, other: Space) -> bool:
        """Return whether the keys of both have one shape."""
        return isinstance(other, OrderedSpace) and self.shape == other.shape

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        cuts = [plain_key(self.shape, cut) for cut in self._table._starts(1)]
        return document("ordered", keys=plain_shape(self.shape), cuts=cuts)

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = read_document(data, where, "ordered", frozenset({"keys", "cuts"}))
        shape = read_shape(record["keys"], f"{where}.keys")
        cuts = [
            read_key(shape, cut, f"{where}.cuts[{i}]")
            for i, cut in enumerate(field(record, where, "cuts", list))
        ]
        try:
            return cls.of_bytes(cuts, shape)
        except ValueError as error:
            raise ValueError(f"{where}.cuts: {error}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OrderedSpace):
            return NotImplemented
        return self.shape == other.shape and self._table._starts() == other._table._starts()

    def __hash__(self) -> int:
        return hash((self.shape, self.size))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"<OrderedSpace of {self.shape}: {self.size} positions>"


_set_table = slot_setter(OrderedSpace, "_table")


def many_keys(keys: Any) -> Any:
    """Return many keys as the compiled table reads them: a tuple, or an array of native ints or bytes.

    Raises:
        TypeError: One key was given instead of many.
        ValueError: The array has not one dimension.
    """
    if isinstance(keys, (list, tuple)):
        return keys
    if isinstance(keys, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(keys, Iterable):
        raise TypeError(
            f"keys must be an iterable of keys, not {type(keys).__name__}; for one key call owner(key)"
        )
    if hasattr(keys, "__array__"):
        array = np.asanyarray(keys)
        if array.ndim != 1:
            raise ValueError(f"an array of keys must have one dimension, not the shape {array.shape}")
        if array.dtype.kind not in "iuS" or isinstance(array, np.ma.MaskedArray):
            return array.tolist()
        if not array.dtype.isnative or not array.flags.aligned:
            return array.astype(array.dtype.newbyteorder("="))
        return array
    for name in ("to_pylist", "to_list"):  # a column of Arrow or polars
        if hasattr(keys, name):
            return getattr(keys, name)()
    return tuple(keys)

"""What a caller or a document says of the rows of a range map, read and checked."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ringhash._ordered import Shape, token
from ringhash.errors import DuplicateNodeError, EmptyRingError
from ringhash.node import Node, nodes_from, plain_type
from ringhash.ordered import day_from, read_key

if TYPE_CHECKING:
    from ringhash.placements.range_map import RangeMap

__all__ = [
    "Entry",
    "Row",
    "Rows",
    "check_unit",
    "entry_token",
    "members_of",
    "node_total",
    "pairs_of",
    "plain_entry",
    "read_change",
    "read_rows",
    "shape_of",
    "start_of",
]

# What begins at a start: a node, and the day until which no merge may take the start away.
Entry = tuple[str, "str | None"]


class Row(NamedTuple):
    """The keys from `start` on and below `end`, and their node; None: no bound on that side."""

    start: Any
    end: Any
    node: str


class Rows(Sequence[Row]):
    """The rows of a map in order; each becomes a `Row` when looked at."""

    __slots__ = ("_map", "_range")

    def __init__(self, ranges: RangeMap, numbers: range) -> None:
        self._map = ranges
        self._range = numbers

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Row | Rows:
        if isinstance(index, slice):
            return Rows(self._map, self._range[index])
        return self._map._row_at(self._range[index])

    def __iter__(self) -> Iterator[Row]:
        for number in self._range:
            yield self._map._row_at(number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(tuple(row)) for row in self[:3])
        return f"[{shown}{', ...' if len(self) > 3 else ''}] ({len(self)} rows)"


def pairs_of(rows: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return what a caller gave as pairs (start, node)."""
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise TypeError(
            f"rows must be pairs (start, node) in order, such as [(None, 'db-1')], not {plain_type(rows)}"
        )
    pairs = []
    for i, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != 2:
            raise TypeError(f"row {i} must be a pair (start, node), not {row!r}")
        start, node = row
        if isinstance(node, Node):
            node = node.name
        if not isinstance(node, str):
            raise TypeError(f"row {i} must name its node, a str, not {plain_type(node)}")
        pairs.append((start, node))
    return pairs


def members_of(
    rows: Sequence[tuple[Any, str]], nodes: Iterable[str | Node] | Mapping[str, float] | None
) -> tuple[Node, ...]:
    """Return the nodes of a map by name: those given, else those that the rows name."""
    if nodes is None:
        members = [Node(name) for name in {name for _, name in rows}]
    else:
        members = nodes_from(nodes, "nodes")
    members.sort(key=lambda node: node.name)
    for one, other in pairwise(members):
        if one.name == other.name:
            raise DuplicateNodeError(f"the node {one.name!r} is given twice")
    if not members or (nodes is None and not rows):
        raise EmptyRingError("a range map has at least one row, [(None, node)], since every key has an owner")
    return tuple(members)


def shape_of(keys: Sequence[Any]) -> Shape:
    """Return what some keys, or beginnings of tuples, show of their shape; None shows nothing.

    Raises:
        ValueError: They show nothing.
        TypeError: They show two shapes.
    """
    best: Shape | None = None
    for key in keys:
        if key is None or key == ():
            continue
        shape = Shape.of(key)
        if best is None or (
            isinstance(shape.parts, tuple)
            and isinstance(best.parts, tuple)
            and len(shape.parts) > len(best.parts)
        ):
            shape, best = best or shape, shape
        fits = (
            shape.parts == best.parts[: len(shape.parts)]
            if isinstance(shape.parts, tuple) and isinstance(best.parts, tuple)
            else shape == best
        )
        if not fits:
            raise TypeError(
                f"the keys of a map have one shape, and {key!r} is {shape} beside others that are {best}"
            )
    if best is None:
        raise ValueError("nothing shows what the keys are; say it, as in keys=str or keys=(str, int)")
    return best


def check_unit(unit: object, shape: Shape) -> None:
    """Raise unless `unit` is None or a number of first parts of keys of this shape."""
    if unit is None:
        return
    if not isinstance(shape.parts, tuple):
        raise ValueError(f"only keys that are tuples have a unit, and these are {shape}")
    if isinstance(unit, bool) or not isinstance(unit, int):
        raise TypeError(f"unit must be a number of parts, not {plain_type(unit)}")
    if not 1 <= unit <= len(shape.parts):
        raise ValueError(f"unit must be from 1 to {len(shape.parts)}, the parts of {shape}, not {unit}")


def start_of(shape: Shape, unit: int | None, key: Any) -> bytes:
    """Return the bytes at which a range may start.

    Raises:
        ValueError: It is the lowest key, or it lies inside a unit.
    """
    start: bytes = shape.encode(key, False)
    if not start:
        raise ValueError(f"{key!r} is the lowest key, where the first range starts already")
    if unit is not None and len(key) > unit:
        raise ValueError(
            f"a split at {key!r} lies inside a unit: the first {unit} parts stay together; "
            f"write {tuple(key[:unit])!r}"
        )
    return start


def entry_token(start: bytes, entry: Entry | None) -> int:
    """Return the token of a row, 0 where there is none: the digest sums them."""
    if entry is None:
        return 0
    node, until = entry
    return int(token(start, node, until or ""))


def node_total(nodes: Iterable[Node]) -> int:
    """Return the sum of the tokens of nodes, as docs/spec.md gives them for rings, modulo 2**128."""
    total = 0
    for node in nodes:
        name = node.name.encode()
        record = struct.pack("<I", len(name)) + name + struct.pack("<d", node.weight)
        record += b"\0" if node.zone is None else b"\1" + node.zone.encode()
        total += int.from_bytes(blake2b(record, digest_size=16).digest(), "little")
    return total % (1 << 128)


# --- documents -------------------------------------------------------------------------------------


def plain_entry(entry: Entry | None) -> object:
    """Return an entry as JSON holds it: a node, or [node, pinned until]."""
    if entry is None:
        return None
    node, until = entry
    return node if until is None else [node, until]


def _read_entry(value: object, where: str) -> Entry | None:
    if value is None:
        return None
    parts = value if isinstance(value, list) else [value]
    if not parts or len(parts) > 2 or not isinstance(parts[0], str) or not parts[0]:
        raise ValueError(f"{where}: must be a node, or [node, pinned until], not {value!r}")
    if len(parts) == 1:
        return parts[0], None
    try:
        return parts[0], day_from(parts[1], "the day of a pin")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_change(shape: Shape, row: object, where: str) -> tuple[bytes, Entry | None, Entry | None]:
    """Return what a row of a plan says: at which start, from which entry, to which.

    Raises:
        ValueError: It says nothing of the kind; the message names `where`.
    """
    if not isinstance(row, (tuple, list)) or len(row) != 3:
        raise ValueError(f"{where}: must be [start, before, after], not {row!r}")
    start = read_key(shape, row[0], f"{where}[0]")
    before, after = _read_entry(row[1], f"{where}[1]"), _read_entry(row[2], f"{where}[2]")
    if before == after:
        raise ValueError(f"{where}: changes nothing")
    return start, before, after


def read_rows(shape: Shape, rows: list[Any], where: str) -> tuple[list[tuple[Any, str]], dict[bytes, str]]:
    """Return the rows of a document as pairs (start, node), and its pins by start."""
    pairs: list[tuple[Any, str]] = []
    pins: dict[bytes, str] = {}
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) not in (2, 3):
            raise ValueError(
                f"{where}[{i}]: must be [start, node] or [start, node, pinned until], not {row!r}"
            )
        start = read_key(shape, row[0], f"{where}[{i}][0]")
        entry = _read_entry(row[1:], f"{where}[{i}][1]")
        assert entry is not None  # noqa: S101  a list is read as one
        pairs.append((shape.decode(start) if start else None, entry[0]))
        if entry[1] is not None:
            if not start:
                raise ValueError(f"{where}[{i}]: the first range has no split to pin")
            pins[start] = entry[1]
    return pairs, pins

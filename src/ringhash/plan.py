"""A plan: the exact moves from one placement to another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast, overload

import numpy as np

from ringhash.immutable import Immutable, slot_setter
from ringhash.node import Node
from ringhash.ranges import KeyRange, Ranges, exact_sum
from ringhash.records import (
    check_fields,
    document,
    field,
    not_too_deep,
    number,
    plain_name,
    read_document,
    read_number,
)
from ringhash.space import space_from

if TYPE_CHECKING:
    from ringhash.space import Space

__all__ = ["Changes", "KeyRange", "Move", "Moves", "NodeChange", "Plan"]

_FIELDS = frozenset({"before", "after", "space", "moves"})
_OPTIONAL_FIELDS = frozenset({"epoch", "nodes", "rows"})
_CHANGE_FIELDS = frozenset({"before", "after"})
_Array = np.ndarray[Any, np.dtype[Any]]


class Move(NamedTuple):
    """A range that goes from one node to another.

    `source` is None for the first node that comes in, `target` for the last one that goes out.
    """

    range: KeyRange
    source: str | None
    target: str | None


class NodeChange(NamedTuple):
    """What becomes of one node: `before` is None when it is added, `after` when it is removed."""

    before: Node | None
    after: Node | None


class Changes(NamedTuple):
    """What a plan changes, from which `after` can be built from `before`.

    `nodes` is what becomes of the nodes, in order of their names; `rows` what else a kind of placement
    needs, each as (key, before, after).
    """

    nodes: tuple[NodeChange, ...] = ()
    rows: tuple[tuple[Any, Any, Any], ...] = ()


class Moves(Sequence[Move]):
    """Some moves of a plan, in the order of their ranges; each becomes a `Move` when looked at."""

    __slots__ = ("_plan", "_rows")

    def __init__(self, plan: Plan, rows: np.ndarray[Any, Any]) -> None:
        self._plan = plan
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Move: ...
    @overload
    def __getitem__(self, index: slice) -> Moves: ...
    def __getitem__(self, index: int | slice) -> Move | Moves:
        if isinstance(index, slice):
            return Moves(self._plan, self._rows[index])
        return self._plan._move(self._rows[index])

    def __iter__(self) -> Iterator[Move]:
        plan = self._plan
        rows = self._rows
        sources, targets = plan._sources, plan._targets
        for start, end, source, target in zip(
            plan._starts[rows].tolist(),
            plan._ends[rows].tolist(),
            plan._source_index[rows].tolist(),
            plan._target_index[rows].tolist(),
            strict=True,
        ):
            yield Move(
                KeyRange(start, end),
                None if source < 0 else sources[source],
                None if target < 0 else targets[target],
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"[{shown}{', ...' if len(self) > 3 else ''}] ({len(self)} moves)"

    @property
    def ranges(self) -> Ranges:
        """The positions that they move."""
        return Ranges(self._plan._starts[self._rows], self._plan._ends[self._rows])

    @property
    def positions(self) -> int:
        """How many positions they have in all."""
        return exact_sum(self._plan._ends[self._rows] - self._plan._starts[self._rows]) + len(self)

    @property
    def fraction(self) -> float | None:
        """Their part of all positions, from 0 to 1; None if the space has no measure."""
        space = self._plan.space
        return self.positions / space.size if space.measured else None


class Plan(Immutable):
    """The exact moves from one placement to another; made by `Placement.diff` and `Router.plan`.

    The moves are minimal: they are disjoint and in order, no move has equal source and target, and
    two that touch differ in source or target. They live in arrays until they are looked at.

    Attributes:
        before, after: The digests of both placements.
        epoch: The epoch that the plan was made for; None: any.
        space: How keys become positions.
        changes: What the plan changes: nodes, and rows of its kind of placement.

    >>> from ringhash import Ring
    >>> ring = Ring(["gw-1", "gw-2", "gw-3"])
    >>> plan = ring.diff(ring.with_nodes("gw-4"))
    >>> sorted(plan.by_target()), sorted(plan.by_source())
    (['gw-4'], ['gw-1', 'gw-2', 'gw-3'])
    >>> plan.move_of("user:7") == next((m for m in plan.moves
    ...     if plan.space.position("user:7") in m.range), None)
    True
    """

    __slots__ = (  # noqa: RUF023  (in the order in which __init__ has their values)
        "before", "after", "epoch", "space", "changes", "_starts", "_ends",
        "_source_index", "_target_index", "_sources", "_targets",
    )  # fmt: skip

    before: str
    after: str
    epoch: int | None
    space: Space
    changes: Changes
    _starts: _Array
    _ends: _Array
    _source_index: _Array
    _target_index: _Array
    _sources: tuple[str, ...]
    _targets: tuple[str, ...]

    def __init__(
        self,
        *,
        before: str,
        after: str,
        epoch: int | None = None,
        space: Space,
        changes: Changes,
        ranges: tuple[_Array, _Array],
        owners: tuple[_Array, _Array],
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        values = (before, after, epoch, space, changes, *ranges, *owners, *names)
        for set_slot, value in zip(_SET_SLOTS, values, strict=True):
            set_slot(self, value)

    def at(self, epoch: int | None) -> Self:
        """Return the same plan for another epoch; both share their arrays."""
        if epoch == self.epoch:
            return self
        plan = object.__new__(type(self))
        for name, set_slot in zip(self.__slots__, _SET_SLOTS, strict=True):
            set_slot(plan, epoch if name == "epoch" else getattr(self, name))
        return plan

    @property
    def empty(self) -> bool:
        """Whether nothing at all changes. A plan without moves may still change the nodes or rows."""
        return self.before == self.after and not any(self.changes) and not len(self)

    @property
    def moves(self) -> Moves:
        """All moves, in the order of their ranges."""
        return Moves(self, np.arange(len(self)))

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def positions(self) -> int:
        """How many positions move."""
        return exact_sum(self._ends - self._starts) + len(self)

    @property
    def ranges(self) -> Ranges:
        """The positions that move."""
        return Ranges(self._starts, self._ends)

    @property
    def fraction(self) -> float | None:
        """The part of all positions that moves, from 0 to 1; None if the space has no measure.

        Exact but for one rounding.
        """
        return self.positions / self.space.size if self.space.measured else None

    @property
    def needless(self) -> float | None:
        """The part of all positions that moves between two nodes which did not change, from 0 to 1.

        None if the space has no measure.

        Always 0 for a `Ring`; other programs (`ringhash.interop`) move keys that no change asked for.

        >>> from ringhash import Ring
        >>> ring = Ring(["gw-1", "gw-2", "gw-3"])
        >>> ring.diff(ring.without("gw-2")).needless
        0.0
        """
        changed = {(b or a).name for b, a in self.changes.nodes}  # type: ignore[union-attr]
        here, there = (
            np.array([name not in changed for name in names] + [False])  # index -1: nobody
            for names in (self._sources, self._targets)
        )
        return Moves(self, np.flatnonzero(here[self._source_index] & there[self._target_index])).fraction

    def between(self, source: str | None, target: str | None) -> Moves:
        """Return the moves from `source` to `target`; none where nothing goes that way."""
        here = self._source_index == _index(self._sources, source)
        there = self._target_index == _index(self._targets, target)
        return Moves(self, np.flatnonzero(here & there))

    def by_source(self) -> dict[str | None, Moves]:
        """Return the moves of each node that gives keys away."""
        return self._group(self._source_index, self._sources)

    def by_target(self) -> dict[str | None, Moves]:
        """Return the moves of each node that takes keys."""
        return self._group(self._target_index, self._targets)

    def pairs(self) -> dict[tuple[str | None, str | None], Moves]:
        """Return the moves of each pair (source, target)."""
        width = len(self._targets) + 1
        codes = (self._source_index + 1) * width + self._target_index + 1
        return {
            (_name(self._sources, code // width - 1), _name(self._targets, code % width - 1)): rows
            for code, rows in self._rows_by(codes)
        }

    def _group(self, index: np.ndarray[Any, Any], names: tuple[str, ...]) -> dict[str | None, Moves]:
        return {_name(names, code): rows for code, rows in self._rows_by(index)}

    def _rows_by(self, codes: np.ndarray[Any, Any]) -> Iterator[tuple[int, Moves]]:
        rows = np.argsort(codes, kind="stable")
        values, starts = np.unique(codes[rows], return_index=True)
        for value, group in zip(values.tolist(), np.split(rows, starts[1:]), strict=False):
            yield value, Moves(self, group)

    def move_of(self, key: Any) -> Move | None:
        """Return the move that takes `key` to another node, or None when it stays. O(log moves)."""
        position = self.space.position(key)
        row = bisect_right(cast("Sequence[int]", self._starts), position) - 1
        if row < 0 or position > self._ends[row]:
            return None
        return self._move(row)

    def mask(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of `keys` move, as an array of bool; `keys` as for `Ring.index_many`."""
        positions = self.space.positions(keys)
        if not len(self):
            return np.zeros(len(positions), np.bool_)
        rows = np.searchsorted(self._starts, positions, "right")
        return cast(
            "np.ndarray[Any, np.dtype[np.bool_]]",
            (rows > 0) & (positions <= self._ends[rows - 1]),
        )

    def inverse(self) -> Plan:
        """Return the plan that undoes this one; it applies at the epoch that this one makes."""
        epoch = self.epoch
        if epoch is not None and not self.empty:
            epoch += 1
        nodes, rows = self.changes
        return type(self)(
            before=self.after,
            after=self.before,
            epoch=epoch,
            space=self.space,
            changes=Changes(
                tuple(NodeChange(after, before) for before, after in nodes),
                tuple((key, after, before) for key, before, after in rows),
            ),
            ranges=(self._starts, self._ends),
            owners=(self._target_index, self._source_index),
            names=(self._targets, self._sources),
        )

    def _move(self, row: int) -> Move:
        return Move(
            KeyRange(int(self._starts[row]), int(self._ends[row])),
            _name(self._sources, int(self._source_index[row])),
            _name(self._targets, int(self._target_index[row])),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (
            (self.before, self.after, self.epoch) == (other.before, other.after, other.epoch)
            and self.changes == other.changes
            and self.moves_as(other)
        )

    def moves_as(self, other: Plan) -> bool:
        """Return whether both plans move the same keys between the same nodes. O(moves)."""
        if len(self) != len(other) or self.space != other.space:
            return False
        same_ranges = np.array_equal(self._starts, other._starts) and np.array_equal(self._ends, other._ends)
        return same_ranges and all(
            (ours is theirs and np.array_equal(here, there))
            or [_name(ours, i) for i in here.tolist()] == [_name(theirs, i) for i in there.tolist()]
            for ours, here, theirs, there in (
                (self._sources, self._source_index, other._sources, other._source_index),
                (self._targets, self._target_index, other._targets, other._target_index),
            )
        )

    def __hash__(self) -> int:
        return hash((self.before, self.after, self.epoch, self.changes.nodes))

    def __repr__(self) -> str:
        epoch = "" if self.epoch is None else f" at epoch {self.epoch}"
        share = "" if self.fraction is None else f", {self.fraction:.2%} of all keys"
        return f"<Plan of {len(self)} moves{share}{epoch}>"

    def __str__(self) -> str:
        from ringhash.plan_text import table  # noqa: PLC0415  (few plans are printed)

        return table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as a dictionary that JSON can hold; a move is [start, end, from, to].

        Positions of a space of more than 2**53 are text; `nodes` and `rows` are there if there are any.
        """
        most = self.space.size
        nodes, rows = self.changes
        changed = [{"before": b and b.to_dict(), "after": a and a.to_dict()} for b, a in nodes]
        return document(
            "plan",
            before=self.before,
            after=self.after,
            epoch=self.epoch,
            space=self.space.to_dict(),
            **({"nodes": changed} if changed else {}),
            **({"rows": [list(row) for row in rows]} if rows else {}),
            moves=[
                [number(move.range.start, most), number(move.range.end, most), move.source, move.target]
                for move in self.moves
            ],
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "plan") -> Self:
        """Return the plan that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong, or the moves overlap or are out of
                order; the message names the field.
        """
        return not_too_deep(lambda: cls._read(data, where), where)

    @classmethod
    def _read(cls, data: object, where: str) -> Self:
        record = read_document(data, where, "plan", _FIELDS, _OPTIONAL_FIELDS)
        space = space_from(record["space"], f"{where}.space")
        epoch = field(record, where, "epoch", int, type(None)) if "epoch" in record else None
        if epoch is not None and epoch < 0:
            raise ValueError(f"{where}.epoch: must not be negative, not {epoch}")
        moves = field(record, where, "moves", list)
        starts, ends, sources, targets = _read_moves(moves, space.size, f"{where}.moves")
        names = tuple(sorted({name for name in (*sources, *targets) if name is not None}))
        index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        index[None] = -1
        return cls(
            before=field(record, where, "before", str),
            after=field(record, where, "after", str),
            epoch=epoch,
            space=space,
            changes=Changes(
                _read_nodes(record.get("nodes", []), f"{where}.nodes"),
                _read_rows(record.get("rows", []), f"{where}.rows"),
            ),
            ranges=(np.array(starts, np.uint64), np.array(ends, np.uint64)),
            owners=(
                np.array([index[name] for name in sources], np.int64),
                np.array([index[name] for name in targets], np.int64),
            ),
            names=(names, names),
        )


_SET_SLOTS = tuple(slot_setter(Plan, name) for name in Plan.__slots__)


def _name(names: tuple[str, ...], index: int) -> str | None:
    return None if index < 0 else names[index]


def _index(names: tuple[str, ...], name: str | None) -> int:
    if name is None:
        return -1
    try:
        return names.index(name)
    except ValueError:
        return -2


def _read_moves(
    moves: list[Any], size: int, where: str
) -> tuple[list[int], list[int], list[str | None], list[str | None]]:
    starts, ends, sources, targets = [], [], [], []
    last: tuple[int, str | None, str | None] = (-1, None, None)
    for i, move in enumerate(moves):
        here = f"{where}[{i}]"
        if type(move) is not list or len(move) != 4:
            raise ValueError(f"{here}: must be a list [start, end, source, target]")
        start = read_number(move[0], f"{here}.start", 0, size - 1)
        end = read_number(move[1], f"{here}.end", 0, size - 1)
        source, target = move[2:]
        if start > end:
            raise ValueError(f"{here}: ends at {end}, before it starts at {start}")
        if start <= last[0]:
            raise ValueError(f"{here}: begins at {start}, before the end of the move before it")
        for name in (source, target):
            if name is not None and (type(name) is not str or not name):
                raise ValueError(f"{here}: source and target must be names or null, not {name!r}")
        if source == target:
            raise ValueError(f"{here}: source and target are the same: {source!r}")
        if (start - 1, source, target) == last:
            raise ValueError(f"{here}: goes on with the move before it; they must be one move")
        last = (end, source, target)
        starts.append(start)
        ends.append(end)
        sources.append(source)
        targets.append(target)
    return starts, ends, sources, targets


def _read_nodes(changes: object, where: str) -> tuple[NodeChange, ...]:
    read = []
    last = ""
    for i, change in enumerate(_list(changes, where)):
        here = f"{where}[{i}]"
        record = check_fields(change, here, frozenset(), _CHANGE_FIELDS)
        before, after = (
            None if record.get(side) is None else Node.from_dict(record[side], f"{here}.{side}")
            for side in ("before", "after")
        )
        either = before or after
        if either is None or before == after:
            raise ValueError(f"{here}: changes nothing")
        if before is not None and after is not None and before.name != after.name:
            raise ValueError(f"{here}: before and after are two nodes")
        if either.name <= last:
            raise ValueError(f"{here}: the names must be in order and distinct")
        last = either.name
        read.append(NodeChange(before, after))
    return tuple(read)


def _read_rows(rows: object, where: str) -> tuple[tuple[Any, Any, Any], ...]:
    read = []
    for i, row in enumerate(_list(rows, where)):
        if type(row) is not list or len(row) != 3 or row[1] == row[2]:
            raise ValueError(f"{where}[{i}]: must be a list [key, before, after] that changes something")
        read.append((row[0], row[1], row[2]))
    return tuple(read)


def _list(value: object, where: str) -> list[object]:
    if type(value) is not list:
        raise ValueError(f"{where}: must be a list, not {plain_name(value)}")
    return value

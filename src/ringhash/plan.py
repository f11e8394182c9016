"""A plan: the exact moves from one placement to another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast, overload

import numpy as np

from ringhash.immutable import Immutable, slot_setter
from ringhash.node import Node
from ringhash.pins import Pin
from ringhash.records import check_fields, field
from ringhash.space import Positions, describe, positions_of, read_positions

__all__ = ["KeyRange", "Move", "Moves", "NodeChange", "Plan"]

_COMMON_FIELDS = frozenset({"before", "after", "epoch", "space", "changes", "moves"})
_FIELDS = _COMMON_FIELDS | {"seed", "hash_tags"}
_PLACED_FIELDS = _COMMON_FIELDS | {"placement"}
_OPTIONAL_FIELDS = frozenset({"shards", "unpins"})
_PAIRS_SHOWN = 20  # by str(plan)
_CHANGE_FIELDS = frozenset({"before", "after"})


class KeyRange(NamedTuple):
    """The positions from `start` to `end`, both included; `start <= end`, so it never wraps.

    >>> KeyRange(10, 19).size, 19 in KeyRange(10, 19), 20 in KeyRange(10, 19)
    (10, True, False)
    """

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.end - self.start + 1

    def __contains__(self, position: object) -> bool:
        return isinstance(position, (int, np.integer)) and self.start <= int(position) <= self.end


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
    def positions(self) -> int:
        """How many positions they have in all."""
        sizes = self._plan._ends[self._rows] - self._plan._starts[self._rows]
        # Halves, since the positions of a whole 64-bit space are one more than fit into 64 bits.
        low = int((sizes & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
        high = int((sizes >> np.uint64(32)).sum(dtype=np.uint64))
        return (high << 32) + low + len(self)

    @property
    def fraction(self) -> float:
        """Their part of all positions, from 0 to 1."""
        return self.positions / self._plan.space


class Plan(Immutable):
    """The exact moves from one placement to another; made by `Ring.diff` and `Router.plan`.

    The moves are minimal: they are disjoint and in order, no move has equal source and target, and
    two that touch differ in source or target. They live in arrays until they are looked at.

    The moves are those of the ring. A key that is pinned stays where it is, whatever they say;
    `unpins` has the pins that end since their node leaves.

    >>> from ringhash import Router
    >>> router = Router(["gw-1", "gw-2", "gw-3"])
    >>> plan = router.plan(add=["gw-4"])
    >>> sorted(plan.by_target()), sorted(plan.by_source())
    (['gw-4'], ['gw-1', 'gw-2', 'gw-3'])
    >>> plan.move_of("user:7") == next((m for m in plan.moves
    ...     if router.ring.position("user:7") in m.range), None)
    True
    """

    __slots__ = (  # noqa: RUF023  (in the order in which __init__ has their values)
        "before", "after", "epoch", "space", "_key_space", "_changes", "_starts", "_ends",
        "_source_index", "_target_index", "_sources", "_targets", "unpins",
    )  # fmt: skip

    before: str
    after: str
    epoch: int | None
    space: int
    _key_space: Positions
    _changes: tuple[NodeChange, ...]
    _starts: np.ndarray[Any, Any]
    _ends: np.ndarray[Any, Any]
    _source_index: np.ndarray[Any, Any]
    _target_index: np.ndarray[Any, Any]
    _sources: tuple[str, ...]
    _targets: tuple[str, ...]
    unpins: tuple[Pin, ...]

    def __init__(
        self,
        *,
        before: str,
        after: str,
        epoch: int | None,
        space: int,
        key_space: Positions,
        changes: tuple[NodeChange, ...],
        ranges: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
        owners: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
        names: tuple[tuple[str, ...], tuple[str, ...]],
        unpins: tuple[Pin, ...] = (),
    ) -> None:
        values = (before, after, epoch, space, key_space, changes, *ranges, *owners, *names, unpins)
        for set_slot, value in zip(_SET_SLOTS, values, strict=True):
            set_slot(self, value)

    @property
    def changes(self) -> tuple[NodeChange, ...]:
        """What becomes of the nodes, by name."""
        return self._changes

    @property
    def moves(self) -> Moves:
        """All moves, in the order of their ranges."""
        return Moves(self, np.arange(len(self)))

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def fraction(self) -> float:
        """The part of all positions that moves, from 0 to 1; exact but for one rounding."""
        return self.moves.fraction

    @property
    def needless(self) -> float:
        """The part of all positions that moves between two nodes which did not change, from 0 to 1.

        Always 0 for a `Ring`; other programs (`ringhash.interop`) move keys that no change asked for.

        >>> from ringhash import Ring
        >>> ring = Ring(["gw-1", "gw-2", "gw-3"])
        >>> ring.diff(ring.without("gw-2")).needless
        0.0
        """
        changed = {(b or a).name for b, a in self._changes}  # type: ignore[union-attr]
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
        position = self._key_space.position(key)
        row = bisect_right(cast("Sequence[int]", self._starts), position) - 1
        if row < 0 or position > self._ends[row]:
            return None
        return self._move(row)

    def mask(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of `keys` move, as an array of bool; `keys` as for `Ring.index_many`."""
        positions = positions_of(self._key_space, keys)
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
        if epoch is not None and (self._changes or len(self)):
            epoch += 1
        return Plan(
            before=self.after,
            after=self.before,
            epoch=epoch,
            space=self.space,
            key_space=self._key_space,
            changes=tuple(NodeChange(change.after, change.before) for change in self._changes),
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
            (self.before, self.after, self.epoch, self.space)
            == (other.before, other.after, other.epoch, other.space)
            and describe(self._key_space) == describe(other._key_space)
            and self._changes == other._changes
            and self.unpins == other.unpins
            and self.moves == other.moves
        )

    def _moves_as(self, other: Plan) -> bool:
        """Return whether both plans move the same keys between the same nodes. O(moves)."""
        if describe(self._key_space) != describe(other._key_space) or len(self) != len(other):
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
        return hash((self.before, self.after, self.epoch, self.space, self._changes))

    def __repr__(self) -> str:
        epoch = "" if self.epoch is None else f" at epoch {self.epoch}"
        return f"<Plan of {len(self)} moves, {self.fraction:.2%} of all keys{epoch}>"

    def __str__(self) -> str:
        pairs = sorted(self.pairs().items(), key=lambda pair: -pair[1].positions)
        rows = [("from", "to", "ranges", "share")]
        rows += [
            (_shown(source), _shown(target), str(len(moves)), f"{moves.fraction:.3%}")
            for (source, target), moves in pairs[:_PAIRS_SHOWN]
        ]
        if len(pairs) > _PAIRS_SHOWN:
            rest = pairs[_PAIRS_SHOWN:]
            share = sum(moves.positions for _, moves in rest) / self.space
            ranges = sum(len(moves) for _, moves in rest)
            rows.append((f"{len(rest)} more pairs", "", str(ranges), f"{share:.3%}"))
        rows.append(("all", "", str(len(self)), f"{self.fraction:.3%}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip()
            for a, b, c, d in rows
        ]
        lines += [f"ends the pin of {pin.key!r} to {pin.node}" for pin in self.unpins]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as a dictionary that JSON can hold; a move is [start, end, from, to].

        `unpins` is a field of it only where there are any. A plan for shards has `"shards": true`:
        its positions are shards, and `space` is their number.
        """
        unpins = {"unpins": [pin.to_dict() for pin in self.unpins]} if self.unpins else {}
        return {
            "before": self.before,
            "after": self.after,
            "epoch": self.epoch,
            "space": self.space,
            **describe(self._key_space),
            "changes": [{"before": b and b.to_dict(), "after": a and a.to_dict()} for b, a in self._changes],
            "moves": [[*move.range, move.source, move.target] for move in self.moves],
            **unpins,
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the plan that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong, or the moves overlap or are out of
                order; the message names the field.
        """
        placed = isinstance(data, Mapping) and "placement" in data
        fields = _PLACED_FIELDS if placed else _FIELDS
        record = check_fields(data, "plan", fields, optional=_OPTIONAL_FIELDS)
        space = field(record, "plan", "space", int)
        if not 1 <= space <= 1 << 64:
            raise ValueError(f"plan.space: must be from 1 to 2**64, not {space}")
        epoch = field(record, "plan", "epoch", int, type(None))
        if epoch is not None and epoch < 0:
            raise ValueError(f"plan.epoch: must not be negative, not {epoch}")
        starts, ends, sources, targets = _read_moves(field(record, "plan", "moves", list), space)
        names = tuple(sorted({name for name in (*sources, *targets) if name is not None}))
        index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        index[None] = -1
        return cls(
            before=field(record, "plan", "before", str),
            after=field(record, "plan", "after", str),
            epoch=epoch,
            space=space,
            key_space=read_positions(record, space),
            changes=_read_changes(field(record, "plan", "changes", list)),
            ranges=(np.array(starts, np.uint64), np.array(ends, np.uint64)),
            owners=(
                np.array([index[name] for name in sources], np.int64),
                np.array([index[name] for name in targets], np.int64),
            ),
            names=(names, names),
            unpins=tuple(Pin.list_from(record.get("unpins", []), "plan.unpins")),
        )


_SET_SLOTS = tuple(slot_setter(Plan, name) for name in Plan.__slots__)


def _shown(name: str | None) -> str:
    """A name as a cell of a table: `-` for no node, and what would break the line escaped."""
    if name is None:
        return "-"
    return name if name.isprintable() else repr(name)


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
    moves: list[Any], space: int
) -> tuple[list[int], list[int], list[str | None], list[str | None]]:
    last: tuple[int, str | None, str | None] = (-1, None, None)
    for i, move in enumerate(moves):
        where = f"plan.moves[{i}]"
        if type(move) is not list or len(move) != 4:
            raise ValueError(f"{where}: must be a list [start, end, source, target]")
        start, end, source, target = move
        if type(start) is not int or type(end) is not int or not 0 <= start <= end < space:
            raise ValueError(f"{where}: start and end must be integers with 0 <= start <= end < {space}")
        if start <= last[0]:
            raise ValueError(f"{where}: begins at {start}, before the end of the move before it")
        for name in (source, target):
            if name is not None and (type(name) is not str or not name):
                raise ValueError(f"{where}: source and target must be names or null, not {name!r}")
        if source == target:
            raise ValueError(f"{where}: source and target are the same: {source!r}")
        if (start - 1, source, target) == last:
            raise ValueError(f"{where}: goes on with the move before it; they must be one move")
        last = (end, source, target)
    starts, ends, sources, targets = map(list, zip(*moves, strict=True)) if moves else ([], [], [], [])
    return starts, ends, sources, targets


def _read_changes(changes: list[object]) -> tuple[NodeChange, ...]:
    read = []
    last = ""
    for i, change in enumerate(changes):
        where = f"plan.changes[{i}]"
        record = check_fields(change, where, _CHANGE_FIELDS)
        before, after = (
            None if record[side] is None else Node.from_dict(record[side], f"{where}.{side}")
            for side in ("before", "after")
        )
        either = before or after
        if either is None or before == after:
            raise ValueError(f"{where}: changes nothing")
        if before is not None and after is not None and before.name != after.name:
            raise ValueError(f"{where}: before and after are two nodes")
        if either.name <= last:
            raise ValueError(f"{where}: the names must be in order and distinct")
        last = either.name
        read.append(NodeChange(before, after))
    return tuple(read)

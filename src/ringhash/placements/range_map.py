"""Ranges of keys in order, each with a node: for keys that are scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any, ClassVar, Self, overload

import numpy as np

from ringhash._core import own_methods
from ringhash._ordered import RangeTable, Shape, range_table
from ringhash.errors import OwnedRangesError, PinnedSplitError, UnknownNodeError
from ringhash.immutable import slot_setter
from ringhash.membership import changed, find_name
from ringhash.node import Node
from ringhash.ordered import (
    OrderedSpace,
    ShapeLike,
    day_from,
    many_keys,
    plain_key,
    plain_shape,
    prefix_end,
    read_shape,
    shape_from,
)
from ringhash.placement import Placement
from ringhash.placements.presplit import even_rows
from ringhash.placements.range_plan import edits_amid, edits_of, plan_between
from ringhash.placements.range_rows import (
    Entry,
    Row,
    Rows,
    check_unit,
    entry_token,
    members_of,
    node_total,
    pairs_of,
    read_rows,
    shape_of,
    start_of,
)
from ringhash.plan import NodeChange, Plan
from ringhash.ranges import KeyRange, Ranges
from ringhash.records import document, field, read_document
from ringhash.spans import Spans

__all__ = ["RangeMap", "Row"]


@own_methods
class RangeMap(RangeTable, Placement):
    """An ordered map of half-open ranges of keys to nodes; immutable.

    Keys that are neighbours have one node, so a scan asks one node or a few. The ranges have no gap and no
    overlap. A split moves nothing; what moves is what `move` says.

    Args:
        rows: Where each range starts, and its node, in order: pairs (start, node). The first start is None,
            the lowest. A start of tuples may be the beginning of a tuple.
        nodes: Names or `Node`s, or a mapping of names to weights; they may own nothing yet. By default the
            nodes that the rows name.
        keys: What the keys are: str, bytes, int, UUID, datetime, a tuple of these such as `(str, int)`, or
            their names. By default what the starts show.
        unit: For tuples: how many first parts of a key stay together. No split falls inside one.

    Raises:
        ValueError: The starts are not in order, the first is not None, or nothing shows what the keys are.
        UnknownNodeError: A row names a node that is not in `nodes`.
        DuplicateNodeError: A node is given twice.
        TypeError, OverflowError: A start is no key, or of another kind than the others.

    Threads may share it. Memory: the mean length of a start and about 10 bytes a range.
    Method: ranges as in Bigtable (2006); leaves copied on write as in a B+ tree.

    >>> ranges = RangeMap([(None, "db-1"), ("f", "db-2"), ("m", "db-1")])
    >>> ranges.owner("alice"), ranges.owner("george"), ranges.row_of("george")
    ('db-1', 'db-2', Row(start='f', end='m', node='db-2'))
    """

    __slots__ = ("_digest", "_numbers", "_pins", "_places", "_total_rows", "names", "nodes", "unit")

    kind: ClassVar[str] = "range_map"
    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    unit: int | None
    _numbers: dict[str, int]
    _pins: dict[bytes, str]
    _places: np.ndarray[Any, np.dtype[np.intp]] | None
    _total_rows: int | None
    _digest: str | None

    def __new__(
        cls,
        rows: Iterable[tuple[Any, str]],
        nodes: Iterable[str | Node] | Mapping[str, float] | None = None,
        keys: ShapeLike | None = None,
        *,
        unit: int | None = None,
    ) -> Self:
        """Check everything and pack the rows. O(rows)."""
        listed = pairs_of(rows)
        members = members_of(listed, nodes)
        shape = shape_from(keys) if keys is not None else shape_of([start for start, _ in listed])
        check_unit(unit, shape)
        starts = []
        for i, (start, _) in enumerate(listed):
            if (start is None) != (i == 0):
                raise ValueError(
                    "the first row starts at None, the lowest key, and no other does; "
                    f"row {i} starts at {start!r}"
                )
            if i:
                try:
                    starts.append(start_of(shape, unit, start))
                except (TypeError, ValueError, OverflowError) as error:
                    error.add_note(f"This was the start of row {i}.")
                    raise
                if starts[i - 1] <= (starts[i - 2] if i > 1 else b""):
                    raise ValueError(
                        f"row {i} starts at {start!r}, which is not above {listed[i - 1][0]!r}, the start "
                        "before it; sort the rows by their starts"
                    )
        numbers = {node.name: number for number, node in enumerate(members)}
        for i, (_, name) in enumerate(listed):
            if name not in numbers:
                raise UnknownNodeError(f"row {i} is of {name!r}, which is not among the nodes")
        owners = np.array([numbers[name] for _, name in listed], np.int64)
        self = range_table(cls, shape, tuple(numbers), starts, owners)
        return self._set(members, unit, {}, None)

    def _set(
        self,
        nodes: tuple[Node, ...],
        unit: int | None,
        pins: dict[bytes, str],
        total: int | None,
        like: Self | None = None,
    ) -> Self:
        _set_unit(self, unit)
        _set_pins(self, pins)
        _set_total(self, total)
        _set_digest(self, None)
        if like is not None and nodes is like.nodes and self.numbered is like.numbered:
            values = (nodes, like.names, like._numbers, like._places)
        else:
            names = tuple(node.name for node in nodes)
            place = {name: i for i, name in enumerate(names)}
            places = (
                None
                if names == self.numbered
                else np.array([place.get(n, -1) for n in self.numbered], np.intp)
            )
            values = (nodes, names, {name: number for number, name in enumerate(self.numbered)}, places)
        for set_slot, value in zip((_set_nodes, _set_names, _set_numbers, _set_places), values, strict=True):
            set_slot(self, value)
        return self

    # --- looking ---

    @property
    def keys(self) -> Shape:
        """What the keys are."""
        return self.shape

    @property
    def space(self) -> OrderedSpace:
        """The ranges as positions: the first is 0. A plan has a space of its own, cut at its moves."""
        return OrderedSpace(self, self.shape)

    @property
    def rows(self) -> Rows:
        """The rows (start, end, node), in order."""
        return Rows(self, range(self.cuts + 1))

    @property
    def pins(self) -> dict[Any, str]:
        """The starts that no merge may take away, each with the day until which."""
        return {self.shape.decode(start): until for start, until in sorted(self._pins.items())}

    def row_of(self, key: Any) -> Row:
        """Return the row in which `key` lies. O(log ranges)."""
        return self._row_at(self.position(key))

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys.

        Args:
            keys: A list, tuple or any iterable of keys; or a one-dimensional numpy array: of integers for a
                map of int, of bytes for one of bytes, of objects; or a column of Arrow, polars or pandas.

        Raises:
            TypeError, ValueError, OverflowError: As for `owner`; a note names the key.

        Arrays of integers and bytes are read without the GIL.

        >>> RangeMap([(None, "db-1"), ("f", "db-2")]).owner_many(["alice", "george"])
        ['db-1', 'db-2']
        """
        return self._owners(many_keys(keys))

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys as indexes into `nodes`; `keys` as for `owner_many`."""
        numbers = self._indexes(many_keys(keys))
        return numbers if self._places is None else self._places[numbers]

    def owner_at(self, position: int) -> str:
        """Return the name of the node of the range with this number, from 0."""
        return self.numbered[self._number(position)]

    def between(self, low: Any, high: Any) -> list[Row]:
        """Return the parts of rows that hold the keys from `low` on and below `high`, in order.

        Args:
            low: A key, or the beginning of a tuple; None for the lowest.
            high: The same; None for no bound.

        Raises:
            ValueError: `high` is below `low`.

        Cost: O(log ranges + rows returned). Ask these nodes in this order, and the answers are in order.

        >>> RangeMap([(None, "db-1"), ("f", "db-2"), ("m", "db-1")]).between("e", "g")
        [Row(start='e', end='f', node='db-1'), Row(start='f', end='g', node='db-2')]
        """
        begin = b"" if low is None else self.shape.encode(low, False)
        end = None if high is None else self.shape.encode(high, False)
        if end is not None and end <= begin:
            if end < begin:
                raise ValueError(f"{high!r} is below {low!r}")
            return []
        first = self._row(begin)
        last = self.cuts
        if end is not None:
            last = self._row(end)
            last -= self._start(last) == end
        rows = [self._row_at(number) for number in range(first, last + 1)]
        rows[0] = rows[0]._replace(start=low)
        rows[-1] = rows[-1]._replace(end=high)
        return rows

    def prefix(self, prefix: Any) -> list[Row]:
        """Return the parts of rows that hold the keys which begin with `prefix`, in order.

        A str or bytes begins with another one; a tuple begins with the first of its parts.

        >>> RangeMap([(None, "db-1"), (("acme", 7), "db-2")]).prefix(("acme",))  # doctest: +ELLIPSIS
        [Row(start=('acme',), end=('acme', 7), node='db-1'), Row(start=('acme', 7), end=('acme\\x00',), ...
        """
        above = prefix_end(self.shape, prefix)
        return self.between(prefix if self.shape.encode(prefix, False) else None, above)

    def ranges(self, name: str) -> list[KeyRange]:
        """Return the ranges of the node, as numbers of rows; neighbours are one."""
        return self.spans.ranges(self.node(name).name)

    @property
    def spans(self) -> Spans:
        """The rows as positions with owners. O(ranges)."""
        numbers = self._numbers_of_rows()
        last = np.flatnonzero(np.append(numbers[1:] != numbers[:-1], True))
        return Spans(self.cuts + 1, last.astype(np.uint64), numbers[last], self.names)

    def _numbers_of_rows(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        numbers = self._numbers_all().astype(np.intp)
        return numbers if self._places is None else self._places[numbers]

    def counts(self) -> dict[str, int]:
        """Return how many ranges each node has. O(ranges)."""
        counted = np.bincount(self._numbers_of_rows(), minlength=len(self.nodes))
        return dict(zip(self.names, counted.tolist(), strict=True))

    def _row_at(self, number: int) -> Row:
        start, end = self._start(number), self._end(number)
        return Row(
            self.shape.decode(start) if start else None,
            None if end is None else self.shape.decode(end),
            self.numbered[self._number(number)],
        )

    # --- changing: each returns a new map ---

    def split(self, *at: Any, pin: date | str | None = None) -> Self:
        """Return a map in which ranges also start at these keys; nothing moves.

        Args:
            at: Keys, or beginnings of tuples.
            pin: A day until which no merge may take the new starts away.

        Raises:
            ValueError: A range starts there already, the keys are not distinct, or one lies inside a unit.

        Cost: about 0.1 ms at a million ranges, whatever their number.

        >>> ranges = RangeMap([(None, "db-1")], keys=str).split("f", "m")
        >>> [row.start for row in ranges.rows]
        [None, 'f', 'm']
        """
        until = None if pin is None else day_from(pin, "pin")
        edits: dict[bytes, Entry | None] = {}
        for key in at:
            start = start_of(self.shape, self.unit, key)
            number = self._row(start)
            if start in edits:
                raise ValueError(f"{key!r} is given twice; give each split once")
            if self._start(number) == start:
                raise ValueError(f"there is already a split at {key!r}")
            edits[start] = (self.numbered[self._number(number)], until)
        return self._edited_by(edits)

    def merge(self, at: Any, node: str | None = None, *, today: date | None = None) -> Self:
        """Return a map in which no range starts at `at`: the two ranges there are one.

        Args:
            at: The start of a range that is not the first.
            node: Who has the whole range. By default the two ranges must have one node.
            today: The day that a pin is compared with; by default today in UTC.

        Raises:
            ValueError: No range starts there, or the ranges have two nodes and none is named.
            PinnedSplitError: The split is pinned until a later day.
            UnknownNodeError: There is no such node.

        >>> ranges = RangeMap([(None, "db-1"), ("f", "db-1"), ("m", "db-2")])
        >>> ranges.merge("f").split("f") == ranges
        True
        """
        number = self._start_at(at)
        if number == 0:
            raise ValueError("the first range has none before it to merge with")
        start = self._start(number)
        left, right = self.owner_at(number - 1), self.owner_at(number)
        if node is None and left != right:
            raise ValueError(
                f"the ranges before and after {at!r} are of {left!r} and {right!r}; name the node of both, "
                f"as in merge({at!r}, {left!r})"
            )
        target = left if node is None else self._node_name(node)
        until = self._pins.get(start)
        day = (today or datetime.now(UTC).date()).isoformat()
        if until is not None and day <= until:
            raise PinnedSplitError(
                f"the split at {at!r} is pinned until {until}; to merge it, unpin it first"
            )
        edits: dict[bytes, Entry | None] = {start: None}
        if target != left:
            before = self._start(number - 1)
            edits[before] = (target, self._pins.get(before))
        return self._edited_by(edits)

    @overload
    def move(self, start: Any, node: str, /) -> Self: ...
    @overload
    def move(self, moves: Iterable[tuple[Any, str]] | Mapping[Any, str], /) -> Self: ...
    def move(self, start: Any, node: str | None = None, /) -> Self:
        """Return a map in which the range that starts at `start` is the node's.

        Args:
            start: The start of a range, None for the first; to move a part, split first. Or many of
                these with their nodes: pairs, or a mapping.
            node: Its new node, of those that the map has.

        Raises:
            ValueError: No range starts there, or a range is moved twice.
            UnknownNodeError: There is no such node.

        >>> RangeMap([(None, "db-1"), ("f", "db-2")]).move("f", "db-1").owner("george")
        'db-1'
        """
        if node is not None:
            pairs = [(start, node)]
        else:
            pairs = pairs_of(start.items() if isinstance(start, Mapping) else start)
        edits: dict[bytes, Entry | None] = {}
        for key, name in pairs:
            begin = self._start(self._start_at(key))
            if begin in edits:
                raise ValueError(f"the range that starts at {key!r} is moved twice")
            edits[begin] = (self._node_name(name), self._pins.get(begin))
        return self._edited_by(edits)

    def pin(self, at: Any, until: date | str) -> Self:
        """Return a map in which no merge takes the start `at` away until a day has passed.

        Raises:
            ValueError: No range starts there, or it is the first, which no merge can take away.
        """
        return self._pinned(at, day_from(until, "until"))

    def unpin(self, at: Any) -> Self:
        """Return a map in which the start `at` is pinned no longer."""
        return self._pinned(at, None)

    def _pinned(self, at: Any, until: str | None) -> Self:
        number = self._start_at(at)
        if number == 0:
            raise ValueError("the first range has no split to pin")
        return self._edited_by({self._start(number): (self.owner_at(number), until)})

    def _start_at(self, at: Any) -> int:
        """The number of the range that starts exactly here."""
        start = b"" if at is None else self.shape.encode(at, False)
        number = self._row(start)
        if self._start(number) != start:
            raise ValueError(
                f"no range starts at {at!r}; it lies in the one from {self._row_at(number).start!r} on. "
                "Split there first, or name its start"
            )
        return number

    def _node_name(self, name: object) -> str:
        return self.names[find_name(self.names, name)]

    def _entry(self, start: bytes) -> Entry | None:
        number = self._row(start)
        if self._start(number) != start:
            return None
        return self.numbered[self._number(number)], self._pins.get(start)

    def _edited_by(self, edits: Mapping[bytes, Entry | None], nodes: tuple[Node, ...] | None = None) -> Self:
        """The map with other entries at some starts; None removes a start."""
        nodes = self.nodes if nodes is None else nodes
        numbered, numbers = self.numbered, self._numbers
        new_names = (
            [node.name for node in nodes if node.name not in numbers] if nodes is not self.nodes else []
        )
        if new_names:  # a name keeps its number, so the two maps go on sharing their leaves
            numbered = (*numbered, *new_names)
            numbers = {name: number for number, name in enumerate(numbered)}
        changes = [(start, self._entry(start), entry) for start, entry in sorted(edits.items())]
        changes = [change for change in changes if change[1] != change[2]]
        table = self._edited(
            [(start, -1 if entry is None else numbers[entry[0]]) for start, _, entry in changes], numbered
        )
        pins = self._pins
        total = self._total_rows
        for start, before, after in changes:
            if (before and before[1]) != (after and after[1]):
                pins = pins if pins is not self._pins else dict(pins)
                if after is not None and after[1] is not None:
                    pins[start] = after[1]
                else:
                    del pins[start]
            if total is not None:
                total += entry_token(start, after) - entry_token(start, before)
        return table._set(nodes, self.unit, pins, total, self)

    def _with_changes(
        self, changes: tuple[NodeChange, ...], edits: Mapping[bytes, Entry | None] | None = None
    ) -> Self:
        members = {node.name: node for node in self.nodes}
        gone = set()
        for _, (before, after) in changed(self.names, self.nodes, changes):
            if after is not None:
                members[after.name] = after
            elif before is not None:
                del members[before.name]
                gone.add(before.name)
        after_all = self._edited_by(edits or {}, tuple(members[name] for name in sorted(members)))
        if gone:
            counted = np.bincount(after_all._numbers_all(), minlength=len(after_all.numbered))
            owned = {name: int(counted[after_all._numbers[name]]) for name in sorted(gone)}
            for name, count in owned.items():
                if count:
                    raise OwnedRangesError(
                        f"{name!r} owns {count} range{'s' if count > 1 else ''}; move them first, since a "
                        "range map gives none away by itself"
                    )
        return after_all

    # --- plans ---

    def diff(self, after: Placement) -> Plan:
        """Return the plan from this map to another one of keys of the same shape.

        Its space is cut only where its moves begin and end. Cost: O(what differs) between two maps of which
        one was made of the other; O(ranges) else.

        Raises:
            TypeError: The other is no range map.
            ValueError: Its keys are of another shape or unit.

        >>> before = RangeMap([(None, "db-1"), ("f", "db-2")])
        >>> plan = before.diff(before.move("f", "db-1"))
        >>> [(move.source, move.target) for move in plan.moves]
        [('db-2', 'db-1')]
        """
        self._check_reading(after)
        assert isinstance(after, RangeMap)  # noqa: S101  of the same kind
        if after.unit != self.unit:
            raise ValueError(f"the maps have the units {self.unit} and {after.unit}; a plan changes none")
        return plan_between(self, after)

    def replayed(self, plan: Plan) -> Self:
        """Return the map to which a plan leads, by the splits, merges and moves that it lists.

        Raises:
            StalePlanError: A start is not what the plan says it was.
            ValueError: The plan is of other keys or nodes, or malformed.
        """
        edits = edits_of(self, plan)
        try:
            return self._with_changes(plan.changes.nodes, edits)
        except OwnedRangesError as error:
            raise ValueError(f"the plan cannot be carried out: {error}") from None

    def middle(self, after: Placement, done: Ranges) -> Self:
        """Return what answers while only a part of the moves to `after` is done.

        Args:
            after: The map to which the moves lead.
            done: Positions in the space of `self.diff(after)`.
        """
        nodes = {node.name: node for node in (*self.nodes, *after.nodes)}
        edits = edits_amid(self, self.diff(after), done)
        return self._edited_by(edits, tuple(nodes[name] for name in sorted(nodes)))

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for equal maps. O(nodes) on what a map with a digest became."""
        if self._digest is None:
            if self._total_rows is None:
                total = self._total()
                for start in self._pins:
                    entry = self._entry(start)
                    assert entry is not None  # noqa: S101  only a start can be pinned
                    total += entry_token(start, entry) - entry_token(start, (entry[0], None))
                _set_total(self, total)
            shape = str(self.shape).encode()
            hashed = blake2b(b"ringhash-range-map-1", digest_size=16)
            hashed.update(len(shape).to_bytes(4, "little") + shape + bytes([self.unit or 0]))
            hashed.update((self.cuts + 1).to_bytes(8, "little"))
            hashed.update((self._total_rows % (1 << 128)).to_bytes(16, "little"))  # type: ignore[operator]
            hashed.update(
                len(self.nodes).to_bytes(4, "little") + node_total(self.nodes).to_bytes(16, "little")
            )
            _set_digest(self, hashed.hexdigest())
        assert self._digest is not None  # noqa: S101
        return self._digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeMap):
            return NotImplemented
        return (
            (self.shape, self.unit, self.nodes, self.cuts)
            == (other.shape, other.unit, other.nodes, other.cuts)
            and self._pins == other._pins
            and not self._edits_to(other)
        )

    def __hash__(self) -> int:
        return hash((RangeMap, self.digest))

    def __len__(self) -> int:
        return len(self.nodes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"<RangeMap of {self.cuts + 1} ranges of {self.shape} on {len(self.nodes)} nodes>"

    def to_dict(self) -> dict[str, object]:
        """Return the map as a dictionary that JSON can hold.

        A row is [start, node], or [start, node, pinned until]; the first starts at null.
        """
        numbers = self._numbers_all().tolist()
        rows = [
            [
                plain_key(self.shape, start),
                self.numbered[number],
                *((self._pins[start],) if start in self._pins else ()),
            ]
            for start, number in zip(self._starts(), numbers, strict=True)
        ]
        return document(
            "range_map",
            keys=plain_shape(self.shape),
            unit=self.unit,
            nodes=[node.to_dict() for node in self.nodes],
            rows=rows,
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "range_map") -> Self:
        """Return the map that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        where = where or "range_map"
        record = read_document(
            data, where, "range_map", frozenset({"keys", "nodes", "rows"}), frozenset({"unit"})
        )
        shape = read_shape(record["keys"], f"{where}.keys")
        nodes = [
            Node.from_dict(node, f"{where}.nodes[{i}]")
            for i, node in enumerate(field(record, where, "nodes", list))
        ]
        rows, pins = read_rows(shape, field(record, where, "rows", list), f"{where}.rows")
        try:
            unit: Any = record.get("unit")
            check_unit(unit, shape)
            made = cls(rows, nodes, shape, unit=unit)
            return made._edited_by(
                {start: (made.owner_at(made._row(start)), until) for start, until in pins.items()}
            )
        except (TypeError, ValueError, LookupError) as error:
            raise ValueError(f"{where}: {error}") from None

    @classmethod
    def presplit(
        cls,
        sample: Iterable[Any],
        nodes: Iterable[str | Node] | Mapping[str, float],
        ranges: int,
        *,
        weight: Callable[[Any], float] | Sequence[float] | None = None,
        keys: ShapeLike | None = None,
        unit: int | None = None,
        tolerance: float | None = None,
    ) -> Self:
        """Return a map cut by a sample of keys, so that the ranges and the nodes carry the same.

        Args:
            sample: Keys as they will come; one that comes often is in it often.
            nodes: As for `RangeMap`; a node carries in proportion to its weight.
            ranges: How many ranges.
            weight: What a key of the sample counts: a function, or as many numbers. 1 by default.
            keys: What the keys are; by default what the sample shows.
            unit: As for `RangeMap`.
            tolerance: How far the fullest range may be above the mean, 0.1 for a tenth. By default
                any distance.

        Raises:
            ValueError: The sample has too few distinct keys, or one key alone is above the tolerance; the
                message names it.

        Cost: O(n log n) for n keys.

        >>> ranges = RangeMap.presplit("abcdefgh", ["db-1", "db-2"], 4)
        >>> [row.start for row in ranges.rows], ranges.counts()
        ([None, 'c', 'e', 'g'], {'db-1': 2, 'db-2': 2})
        """
        listed = list(sample)
        weights = (
            list(map(weight, listed)) if callable(weight) else weight if weight is None else list(weight)
        )
        members = members_of([], nodes)
        shape = shape_from(keys) if keys is not None else shape_of(listed)
        check_unit(unit, shape)
        return cls(
            even_rows(shape, unit, listed, weights, members, ranges, tolerance), members, shape, unit=unit
        )


_set_nodes, _set_names, _set_unit, _set_pins = (
    slot_setter(RangeMap, name) for name in ("nodes", "names", "unit", "_pins")
)
_set_numbers, _set_places = slot_setter(RangeMap, "_numbers"), slot_setter(RangeMap, "_places")
_set_total, _set_digest = slot_setter(RangeMap, "_total_rows"), slot_setter(RangeMap, "_digest")

"""Explicit entries for single keys, such as tenants, over a default placement for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, cast

import numpy as np

from ringhash._core import EntryTable, Snapshot, own_methods, xxh3_64
from ringhash.batch import readable
from ringhash.errors import DuplicateNodeError, NoNodeAvailableError, NoWalkError, OwnedEntriesError
from ringhash.immutable import Immutable, slot_setter
from ringhash.membership import changed, find_name
from ringhash.node import Node, nodes_from, plain_type, refuse_one_text
from ringhash.placement import Layered, Placement, placement_from
from ringhash.placements.entry_plan import (
    Parts,
    entries_amid,
    kept_between,
    parts_after,
    plan_between,
    split_done,
)
from ringhash.placements.entry_space import (
    EntrySpace,
    key_of,
    plain_entry_key,
    read_entry_key,
    reader_of,
)
from ringhash.placements.range_rows import node_total
from ringhash.plan import NodeChange, Plan
from ringhash.ranges import Ranges
from ringhash.records import document, field, read_document, read_number
from ringhash.spans import Spans

__all__ = ["Directory", "Entries", "Entry"]


class Entry(NamedTuple):
    """What a directory says of a key: its node, and the epoch that wrote it (0 outside of a router)."""

    key: str | bytes
    node: str
    version: int


class Entries(Mapping[Any, Entry]):
    """The entries of a directory by key, in no order that means anything; a view."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __getitem__(self, key: Any) -> Entry:
        entry = self._directory.entry(key)
        if entry is None:
            raise KeyError(key)
        return entry

    def __iter__(self) -> Iterator[str | bytes]:
        return map(key_of, self._directory._table_of)

    def __len__(self) -> int:
        return len(self._directory._table_of)

    def __repr__(self) -> str:
        return f"<{len(self)} entries>"


class Seat(NamedTuple):
    """What an entry is kept as: a node, and the epoch that wrote it."""

    node: str
    version: int


@own_methods
class Directory(Snapshot, Layered, Immutable):
    """Entries that give single keys a node, over a default placement for all other keys; immutable.

    Args:
        default: A placement of any kind but a directory; a range map must be of `str` or `bytes`.
        entries: The node of each key that has an entry.
        nodes: Nodes that the default does not have; they get no key but by an entry.
        fallback: What happens while the node of an entry is down: by default `NoNodeAvailableError`, since
            for data another node is a wrong read; True lets the default answer.

    Raises:
        UnknownNodeError: An entry names a node that is neither of the default nor in `nodes`.
        DuplicateNodeError: A node is in both, or given twice.
        TypeError: A key is none, or the default is a directory or a range map of other keys.

    Threads may share it. A lookup costs a hash, and two or three cache lines if there is an entry. Memory:
    about 15 bytes an entry beside its key.

    >>> from ringhash import Ring
    >>> directory = Directory(Ring(["db-1", "db-2"]), {"acme": "db-7"}, nodes=["db-7"])
    >>> directory.owner("acme"), directory.entry("beta")
    ('db-7', None)
    """

    __slots__ = (
        "_digest", "_space", "_table_of", "_total_of", "alone", "apart", "default", "down", "fallback",
        "names", "nodes", "seats",
    )  # fmt: skip

    kind: ClassVar[str] = "directory"
    default: Placement
    fallback: bool
    apart: tuple[Node, ...]
    alone: frozenset[str]
    down: frozenset[str]
    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    seats: tuple[Seat, ...]
    _table_of: EntryTable
    _total_of: int | None
    _digest: str | None
    _space: EntrySpace | None

    def __new__(
        cls,
        default: Placement,
        entries: Mapping[Any, str] | None = None,
        *,
        nodes: Iterable[str | Node] | Mapping[str, float] = (),
        fallback: bool = False,
    ) -> Self:
        """Check everything. O(entries)."""
        _check_default(default)
        if not isinstance(fallback, bool):
            raise TypeError(f"fallback must be True or False, not {plain_type(fallback)}")
        reader = reader_of(default.space)
        table = EntryTable((), (), reader.seed, bool(reader.hash_tags))
        empty = cls._make(
            default, _apart(default, nodes_from(nodes, "nodes")), frozenset(), table, (), fallback
        )
        return empty.with_entries(entries or {})

    @classmethod
    def _make(
        cls,
        default: Placement,
        apart: tuple[Node, ...],
        alone: frozenset[str],
        table: EntryTable,
        seats: tuple[Seat, ...],
        fallback: bool,
        total: int | None = None,
        down: frozenset[str] = frozenset(),
    ) -> Self:
        apart = tuple(sorted(apart, key=lambda node: node.name))
        names = tuple(None if seat.node in down else seat.node for seat in seats)
        self = Snapshot.__new__(cls, default, table, names)
        nodes = (
            tuple(sorted((*default.nodes, *apart), key=lambda node: node.name)) if apart else default.nodes
        )
        values = (
            None, None, table, total, alone, apart, default, down, fallback,
            tuple(node.name for node in nodes), nodes, seats,
        )  # fmt: skip
        for set_slot, value in zip(_SET_SLOTS, values, strict=True):
            set_slot(self, value)
        return self

    # --- looking ---

    @property
    def entries(self) -> Entries:  # type: ignore[override]  # the compiled table is nobody's business
        """The entries by key."""
        return Entries(self)

    @property
    def space(self) -> EntrySpace:
        """The positions of the default, and one more for each entry. O(entries) when first asked for."""
        if self._space is None:
            _SET_SLOTS[1](self, EntrySpace(self.default.space, self._table_of))
        return cast("EntrySpace", self._space)

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes by which a key has an entry: two keys with equal bytes are one key."""
        return self._table_of._key_bytes(key)

    def entry(self, key: Any) -> Entry | None:
        """Return the entry of a key, None if it has none.

        >>> from ringhash import Ring
        >>> Directory(Ring(["db-1"]), {"acme": "db-1"}).entry("acme")
        Entry(key='acme', node='db-1', version=0)
        """
        value = self._table_of.find(key)
        return None if value < 0 else Entry(key_of(self.key_bytes(key)), *self.seats[value])

    def entries_of(self, node: str) -> list[str | bytes]:
        """Return the keys whose entries name a node, in order of their bytes. O(entries)."""
        find_name(self.names, node)
        mine = {value for value, seat in enumerate(self.seats) if seat.node == node}
        return list(map(key_of, sorted(key for key, value in self._table_of.items() if value in mine)))

    def position(self, key: Any, /) -> int:
        """Return the position of a key in `space`."""
        return self.space.position(key)

    def owner_at(self, position: int) -> str:
        """Return the name of the node that owns a position of `space`."""
        space = self.space
        if position < space.below.size:
            return self.default.owner_at(position)
        if position >= space.size:
            raise IndexError(f"a position is from 0 to {space.size - 1}, not {position}")
        return self.owner(space.entries[position - space.below.size])

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `nodes`; `keys` as for the default's.

        Raises:
            NoNodeAvailableError: The node of an entry is down, and there is no fallback.
        """
        keys, values, own = self._found(keys)
        of_default = _numbering(self.default.names, self.names)
        if values is None or not own.any():
            return cast("np.ndarray[Any, np.dtype[np.intp]]", of_default[self.default.index_many(keys)])
        of_seats = np.array([self.names.index(seat.node) for seat in self.seats], np.intp)
        indexes = np.empty(len(values), np.intp)
        indexes[own] = of_seats[values[own]]
        if not own.all():
            indexes[~own] = of_default[self.default.index_many(_subset(keys, ~own))]
        return indexes

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; `keys` and errors as for `index_many`."""
        keys, values, own = self._found(keys)
        if values is None or not own.any():
            return self.default.owner_many(keys)
        names = self.names
        return [names[index] for index in self.index_many(keys).tolist()]

    def _found(self, keys: Any) -> tuple[Any, Any, Any]:
        """Many keys in a form to read twice, the seat of each, and which have an entry that answers."""
        if not len(self._table_of):
            return keys, None, None
        if not isinstance(keys, (list, tuple, str, bytes)) and not hasattr(keys, "__len__"):
            refuse_one_text(keys, "keys", "keys")
            keys = list(keys)
        values = self._table_of.find_many(readable(keys))
        own = values >= 0
        if self.down:
            gone = np.array([*(seat.node in self.down for seat in self.seats), False])[values]
            if gone.any() and not self.fallback:
                self._fail_down(self.seats[int(values[np.argmax(gone)])].node)
            own &= ~gone
        return keys, values, own

    def _owner_of_entry(self, key: Any, value: int, /) -> str:
        """What the compiled lookup asks if the node of an entry is down."""
        if self.fallback:
            return self.default.owner(key)
        return self._fail_down(self.seats[value].node)

    def _fail_down(self, node: str) -> NoReturn:
        raise NoNodeAvailableError(
            f"the key has an entry for {node!r}, which is down; mark it up, or give the entry another node "
            "(a directory with fallback=True asks its default)"
        )

    def owners(self, key: Any, n: int, distinct: Any = "node", strict: bool = False) -> NoReturn:  # noqa: ARG002
        """Raise `NoWalkError`: the key of an entry has one node."""
        self.walk(key)

    def walk(self, key: Any, /) -> NoReturn:  # noqa: ARG002
        """Raise `NoWalkError`: the key of an entry has one node."""
        raise NoWalkError("a directory has no order of nodes behind an entry; ask directory.default")

    @property
    def spans(self) -> Spans:
        """The spans of the default, and one position for each entry. O(entries)."""
        below, space = self.default.spans, self.space
        owners = _numbering(below.names, self.names, nobody=True)[below.owners]
        ends = np.arange(below.size, space.size, dtype=np.uint64)
        seats = [self.seats[self._table_of.find(key)].node for key in space.entries]
        place = {name: i for i, name in enumerate(self.names)}
        mine = np.array([place[node] for node in seats], np.intp)
        return Spans(space.size, np.append(below.ends, ends), np.append(owners, mine), self.names)

    # --- changing: each returns a new directory ---

    def with_entries(self, entries: Mapping[Any, str]) -> Self:
        """Return a directory with more or other entries.

        Args:
            entries: The node of each key.

        Raises:
            UnknownNodeError: There is no such node.
            OwnedEntriesError: The node is one key's own.
            ValueError: Two keys have the same bytes, and other nodes.

        Cost: O(entries given); from 65,536 entries on, the rest is shared. The digest goes along.

        >>> from ringhash import Ring
        >>> Directory(Ring(["db-1", "db-2"])).with_entries({"acme": "db-2"}).owner("acme")
        'db-2'
        """
        if not isinstance(entries, Mapping):
            raise TypeError(f"entries must be a mapping of keys to nodes, not {plain_type(entries)}")
        wanted: dict[bytes, str] = {}
        names: dict[str, str] = {}
        for key, name in list(entries.items()):
            node = names.get(name) if type(name) is str else None
            if node is None:
                node = names[name] = self._seat_for(key, name)
            data = self.key_bytes(key)
            if wanted.setdefault(data, node) != node:
                raise ValueError(f"the key {key!r} is given twice, for {wanted[data]!r} and for {node!r}")
        return self._edited(wanted)

    def _seat_for(self, key: Any, name: str) -> str:
        node = self.names[find_name(self.names, name)]
        if node in self.alone:
            current = self.entry(key)
            if current is None or current.node != node:
                raise OwnedEntriesError(
                    f"{node!r} is the own node of another key; nothing else is placed there"
                )
        return node

    def without_entries(self, *keys: Any) -> Self:
        """Return a directory without the entries of some keys; the default answers for these.

        Raises:
            LookupError: A key has no entry.
        """
        gone: dict[bytes, str | None] = {}
        for key in keys:
            if self._table_of.find(key) < 0:
                raise LookupError(f"the key {key!r} has no entry")
            gone[self.key_bytes(key)] = None
        return self._edited(gone)

    def dedicate(self, key: Any, node: str | Node) -> Self:
        """Return a directory in which a node is this key's alone.

        The node leaves the default, and nothing else is placed on it.

        Args:
            key: The key.
            node: A node of the directory, or a new one.

        Raises:
            OwnedEntriesError: Entries of other keys name the node; move them first.
            OwnedRangesError: The default is a range map, and the node owns ranges.

        >>> from ringhash import Ring
        >>> directory = Directory(Ring(["db-1", "db-2"])).dedicate("acme", "db-9")
        >>> directory.owner("acme"), directory.names, directory.default.names
        ('db-9', ('db-1', 'db-2', 'db-9'), ('db-1', 'db-2'))
        """
        member = node if isinstance(node, Node) else Node(node)
        data = self.key_bytes(key)
        default, apart = self.default, self.apart
        if member.name in default:
            member = default.node(member.name)
            default = default.changed(remove=[member.name])
        if member.name in {other.name for other in apart}:
            member = next(other for other in apart if other.name == member.name)
        else:
            apart = (*apart, member)
        others = (
            [other for other in self.entries_of(member.name) if other != key_of(data)]
            if member.name in self
            else []
        )
        if others:
            raise OwnedEntriesError(
                f"{member.name!r} has the entries of {len(others)} other keys, such as {others[0]!r}; "
                "move them first"
            )
        made = self._with_parts(Parts(default, apart, self.alone | {member.name}))
        return made._edited({data: member.name})

    def pack(self, keys: Iterable[Any], node: str) -> Self:
        """Return a directory in which many keys share one node.

        Raises:
            UnknownNodeError: There is no such node.
            OwnedEntriesError: The node is one key's own.

        >>> from ringhash import Ring
        >>> Directory(Ring(["db-1", "db-2"])).pack(["a", "b"], "db-2").entries_of("db-2")
        ['a', 'b']
        """
        refuse_one_text(keys, "keys", "keys")
        return self.with_entries(dict.fromkeys(keys, node))

    def _edited(self, edits: Mapping[bytes, str | None], version: int = 0, anew: bool = False) -> Self:
        """The directory with other entries, None for no entry; `anew` writes what is the same, too."""
        table, seats, total = self._table_of, self.seats, self._total_of
        places = {seat: value for value, seat in enumerate(seats) if seat.version == version}
        puts, deletes = [], []
        more = list(seats)
        for data, node in edits.items():
            value = table.find(data)
            before = None if value < 0 else seats[value].node
            if before == node and not (anew and node is not None):
                continue
            if node is None:
                deletes.append(data)
            else:
                seat = Seat(node, version)
                if seat not in places:
                    places[seat] = len(more)
                    more.append(seat)
                puts.append((data, places[seat]))
            if total is not None:
                total += _token(data, node) - _token(data, before)
        if puts or deletes:
            table = table.with_changes(puts, deletes)
        return self._make(
            self.default, self.apart, self.alone, table, tuple(more) if len(more) > len(seats) else seats,
            self.fallback, total, self.down,
        )  # fmt: skip

    def _with_parts(self, parts: Parts) -> Self:
        default, apart, alone = parts
        return self._make(
            default, apart, alone, self._table_of, self.seats, self.fallback, self._total_of, self.down
        )

    def _with_changes(self, changes: tuple[NodeChange, ...]) -> Self:
        """New nodes are the default's; one that entries name cannot go."""
        mine = {node.name: node for node in self.apart}
        of_default = []
        for _, change in changed(self.names, self.nodes, changes):
            before, after = change
            if before is None or before.name not in mine:
                of_default.append(change)
            elif after is None:
                del mine[before.name]
            else:
                mine[before.name] = after
        default = self.default._with_changes(tuple(of_default)) if of_default else self.default
        apart = tuple(mine[name] for name in sorted(mine))
        made = self._with_parts(Parts(default, apart, self.alone & mine.keys()))
        made._check_seats()
        return made

    def _check_seats(self) -> None:
        gone = {value: seat.node for value, seat in enumerate(self.seats) if seat.node not in self}
        if gone:
            for key, value in self._table_of.items():
                if value in gone:
                    raise OwnedEntriesError(
                        f"{gone[value]!r} is named by entries, such as that of {key_of(key)!r}; "
                        "give them another node first"
                    )

    # --- plans ---

    def diff(self, after: Placement) -> Plan:
        """Return the plan to another directory over a default that reads keys alike.

        Its space is that of the plan between the defaults, with a position for each entry that changes, and
        for each that keeps its key where it is although the default moves it.

        Raises:
            TypeError: The other is no directory, or its default is of another kind.
            ValueError: The defaults read keys in different ways, or only one of them has a fallback.
        """
        if not isinstance(after, Directory):
            self._check_reading(after)
        after = cast("Directory", after)
        if after.fallback != self.fallback:
            raise ValueError("one directory has a fallback and the other has none; a plan changes none")
        return plan_between(self, after)

    def kept(self, plan: Plan) -> dict[str | bytes, str]:
        """Return the entries that keep their keys where they are, although a plan moves them in the default.

        >>> from ringhash import Ring
        >>> directory = Directory(Ring(["db-1", "db-2"]), {"acme": "db-1"})
        >>> after = directory.changed(remove=["db-2"])
        >>> directory.kept(directory.diff(after)) in ({}, {"acme": "db-1"})
        True
        """
        return {key_of(key): self.seats[self._table_of.find(key)].node for key in kept_between(self, plan)}

    def replayed(self, plan: Plan) -> Self:
        """Return the directory to which a plan leads.

        Raises:
            StalePlanError: An entry is not what the plan says it was.
            ValueError: The plan is malformed, or of other nodes.
        """
        parts, edits = parts_after(self, plan)
        made = self._with_parts(parts)._edited(edits)
        try:
            made._check_seats()
        except OwnedEntriesError as error:
            raise ValueError(f"the plan cannot be carried out: {error}") from None
        return made

    def written(self, plan: Plan, epoch: int) -> Self:
        """Return the directory in which the entries that a plan wrote have the epoch as their version."""
        edits = {}
        for key, _, node in plan.changes.rows:
            if isinstance(key, (list, tuple)) and key[0] == "entry" and node is not None:
                edits[read_entry_key(key[1], "plan.rows")] = node
        return self._edited(edits, epoch, anew=True) if edits else self

    def middle(self, after: Placement, done: Ranges) -> Self:
        """Return what answers while a part of the moves is done, in the space of `self.diff(after)`."""
        plan = self.diff(after)
        after = cast("Directory", after)
        space = cast("EntrySpace", plan.space)
        below = self.default.middle(after.default, split_done(space, done))
        known = {node.name for node in below.nodes}
        both = {node.name: node for node in (*self.nodes, *after.nodes) if node.name not in known}
        made = self._with_parts(Parts(below, tuple(both[name] for name in sorted(both)), frozenset()))
        return made._edited(entries_amid(self, after, plan, done))

    def over(self, default: Placement, down: frozenset[str]) -> Self:
        """Return what answers over another default while some nodes are down."""
        known = {node.name for node in default.nodes}
        apart = tuple(node for node in self.nodes if node.name not in known)
        return self._make(
            default, apart, self.alone, self._table_of, self.seats, self.fallback, self._total_of, down
        )

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for equal directories; versions do not count."""
        if self._digest is None:
            if self._total_of is None:
                names = tuple(seat.node for seat in self.seats)
                _SET_SLOTS[3](self, self._table_of._total(names))
            hashed = blake2b(b"ringhash-directory-1", digest_size=16)
            hashed.update(self.default.digest.encode() + bytes([self.fallback]))
            hashed.update(len(self._table_of).to_bytes(8, "little"))
            hashed.update((cast("int", self._total_of) % (1 << 128)).to_bytes(16, "little"))
            for nodes in (self.apart, [node for node in self.apart if node.name in self.alone]):
                hashed.update(len(nodes).to_bytes(4, "little") + node_total(nodes).to_bytes(16, "little"))
            _SET_SLOTS[0](self, hashed.hexdigest())
        return cast("str", self._digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Directory):
            return NotImplemented
        return self is other or (
            (self.default, self.apart, self.alone, self.fallback)
            == (other.default, other.apart, other.alone, other.fallback)
            and len(self._table_of) == len(other._table_of)
            and self.digest == other.digest
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Directory of {len(self._table_of)} entries over {self.default!r}>"

    def to_dict(self) -> dict[str, object]:
        """Return the directory as a dictionary that JSON can hold; an entry is [key, node, version]."""
        rows = [[plain_entry_key(key), *self.seats[value]] for key, value in sorted(self._table_of.items())]
        return document(
            "directory",
            default=self.default.to_dict(),
            fallback=self.fallback,
            nodes=[{**node.to_dict(), "alone": node.name in self.alone} for node in self.apart],
            entries=rows,
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "directory") -> Self:
        """Return the directory that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        where = where or "directory"
        needed, optional = frozenset({"default", "entries"}), frozenset({"nodes", "fallback"})
        record = read_document(data, where, "directory", needed, optional)
        default = placement_from(record["default"], f"{where}.default")
        apart, alone = _read_apart(record.get("nodes", []), f"{where}.nodes")
        edits: dict[int, dict[bytes, str | None]] = {}
        seen = set()
        for i, row in enumerate(field(record, where, "entries", list)):
            here = f"{where}.entries[{i}]"
            if type(row) is not list or len(row) not in (2, 3) or type(row[1]) is not str:
                raise ValueError(f"{here}: must be [key, node, version]")
            key = read_entry_key(row[0], f"{here}[0]")
            if key in seen:
                raise ValueError(f"{here}: the key has another entry")
            seen.add(key)
            version = read_number(row[2], f"{here}[2]") if len(row) == 3 else 0
            edits.setdefault(version, {})[key] = row[1]
        try:
            made = cls(default, nodes=apart, fallback=cast("bool", record.get("fallback", False)))
            for version, part in edits.items():
                for name in set(part.values()):
                    find_name(made.names, name)
                made = made._edited(part, version)
            made = made._with_parts(Parts(made.default, made.apart, frozenset(alone)))
            crowded = [name for name in alone if len(made.entries_of(name)) > 1]
            if crowded:
                raise ValueError(f"the node {crowded[0]!r} is one key's own, and more entries name it")  # noqa: TRY301
        except (TypeError, ValueError, LookupError) as error:
            raise ValueError(f"{where}: {error}") from None
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)


_SET_SLOTS = tuple(slot_setter(Directory, name) for name in Directory.__slots__)


def _check_default(default: object) -> None:
    if not isinstance(default, Placement):
        raise TypeError(f"the default must be a placement, such as a Ring, not {plain_type(default)}")
    if isinstance(default, Layered):
        raise TypeError("the default of a directory is no directory; give its entries to one of the two")
    shape = getattr(default.space, "shape", None)
    if shape is not None and shape.parts not in ("str", "bytes"):
        raise TypeError(
            f"a directory over a range map is of keys that are str or bytes, and these are {shape}; "
            "split the map around the key, and move that range"
        )


def _apart(default: Placement, nodes: list[Node]) -> tuple[Node, ...]:
    seen = set(default.names)
    for node in nodes:
        if node.name in seen:
            raise DuplicateNodeError(f"the node {node.name!r} is given twice, or is in the default already")
        seen.add(node.name)
    return tuple(sorted(nodes, key=lambda node: node.name))


def _read_apart(value: object, where: str) -> tuple[list[Node], set[str]]:
    if type(value) is not list:
        raise ValueError(f"{where}: must be a list")
    nodes, alone = [], set()
    for i, record in enumerate(value):
        if not isinstance(record, dict) or type(record.get("alone", False)) is not bool:
            raise ValueError(f"{where}[{i}]: must be a node, and whether it is alone")
        node = Node.from_dict(
            {name: part for name, part in record.items() if name != "alone"}, f"{where}[{i}]"
        )
        nodes.append(node)
        if record.get("alone", False):
            alone.add(node.name)
    return nodes, alone


def _token(key: bytes, node: str | None) -> int:
    """The token of an entry, as docs/spec.md gives it; 0 for no entry."""
    if node is None:
        return 0
    name = node.encode()
    record = len(key).to_bytes(4, "little") + key + len(name).to_bytes(4, "little") + name
    return xxh3_64(record, 0) | xxh3_64(record, 1) << 64


def _numbering(names: tuple[str, ...], into: tuple[str, ...], nobody: bool = False) -> np.ndarray[Any, Any]:
    place = {name: i for i, name in enumerate(into)}
    return np.array([*(place[name] for name in names), *([-1] if nobody else [])], np.intp)


def _subset(keys: Any, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
    if isinstance(keys, np.ndarray):
        return keys[mask]
    if not isinstance(keys, (list, tuple)):
        keys = keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)
    return [keys[i] for i in np.flatnonzero(mask).tolist()]

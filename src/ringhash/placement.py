"""What every placement is: who owns a key, and exactly what a change of it moves.

This is the language of routers, handovers and stores, which name no kind of placement. The table of kinds
has their modules as text; they are loaded when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NoReturn, Self, cast

import numpy as np

from ringhash.errors import EmptyRingError, StalePlanError
from ringhash.immutable import Immutable, slot_setter
from ringhash.membership import Adds, changes_between, changes_for, find_name
from ringhash.node import Node, plain_type
from ringhash.plan import Changes, NodeChange, Plan
from ringhash.ranges import KeyRange, Ranges
from ringhash.records import not_too_deep, plain_name
from ringhash.space import Space, load
from ringhash.spans import Balance, Spans

__all__ = ["KINDS", "Layered", "Placement", "Walkable", "default_placement", "placement_from", "verified"]

KINDS = {
    "ring": "ringhash.placements.ring:Ring",
    "assignment": "ringhash.placements.assignment:Assignment",
    "range_map": "ringhash.placements.range_map:RangeMap",
    "directory": "ringhash.placements.directory:Directory",
    # As other programs place keys.
    "cassandra": "ringhash.interop.cassandra:CassandraRing",
    "envoy": "ringhash.interop.envoy:EnvoyRing",
    "envoy-maglev": "ringhash.interop.envoy:EnvoyMaglev",
    "haproxy": "ringhash.interop.haproxy:HAProxyRing",
    "kafka": "ringhash.interop.kafka:KafkaPartitioner",
    "ketama": "ringhash.interop.ketama:KetamaRing",
    "nginx": "ringhash.interop.nginx:NginxRing",
    "redis": "ringhash.interop.redis:RedisSlots",
    "uhashring": "ringhash.interop.uhash_placement:UHashPlacement",
}


class Placement(Immutable):
    """Who owns a key; immutable, so any number of threads may share it. The base of every kind.

    A kind has `space`, `nodes`, `names`, `digest`, `spans`, `to_dict` and `from_dict`, and says in
    `_with_changes` how nodes come and go. Everything else follows from these, and a kind overrides what it
    can do faster.

    Attributes:
        kind: The name in documents, and in the table of kinds.
        space: How keys become positions.
        nodes: The nodes, in order of their names.
        names: Their names.
        digest: 32 hexadecimal digits, equal for equal placements.
    """

    __slots__ = ()

    kind: ClassVar[str] = ""

    @property
    def space(self) -> Space:
        """How keys become positions."""
        raise NotImplementedError

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes, in order."""
        return tuple(node.name for node in self.nodes)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for equal placements."""
        raise NotImplementedError

    @property
    def spans(self) -> Spans:
        """The whole space, cut up among the nodes."""
        raise NotImplementedError

    # --- lookups ---

    def owner(self, key: Any, /) -> str:
        """Return the name of the node that owns a key."""
        return self.owner_at(self.space.position(key))

    def __getitem__(self, key: Any, /) -> str:
        return self.owner(key)

    def owner_at(self, position: int) -> str:
        """Return the name of the node that owns a position.

        Raises:
            IndexError: The position is not from 0 to `space.size - 1`.
        """
        return self.spans.owner_at(position) or self._fail_owner()

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `nodes`; `keys` as for `Ring.index_many`."""
        indexes = self.spans.indexes_at(self.space.positions(keys))
        if len(indexes) and int(indexes.min()) < 0:
            self._fail_owner()
        return indexes

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; `keys` as for `Ring.index_many`."""
        names = self.names
        return [names[index] for index in self.index_many(keys).tolist()]

    def _fail_owner(self) -> NoReturn:
        raise EmptyRingError("no node owns this key")

    # --- the nodes ---

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        try:
            find_name(self.names, name)
        except LookupError:
            return False
        return True

    def node(self, name: str) -> Node:
        """Return the node of that name; `UnknownNodeError` if there is none. O(log nodes)."""
        return self.nodes[find_name(self.names, name)]

    def changed(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
    ) -> Self:
        """Return the placement with other nodes.

        Args:
            add: Names or `Node`s, or a mapping of names to weights.
            remove: Names. A name that is also in `add` is replaced.
            reweight: New weights, by name.

        Raises:
            DuplicateNodeError: A node to add is there already.
            UnknownNodeError: A node to remove or reweight is not there.
            TypeError, ValueError: The change is malformed.
        """
        return self._with_changes(changes_for(self.names, self.nodes, add, remove, reweight))

    def _with_changes(self, changes: tuple[NodeChange, ...]) -> Self:
        raise NotImplementedError

    # --- what each owns ---

    def ranges(self, name: str) -> list[KeyRange]:
        """Return the positions that a node owns, in order; ranges that touch are one. O(spans).

        Raises:
            UnknownNodeError: There is no node of that name.
        """
        find_name(self.names, name)
        return self.spans.ranges(name)

    @property
    def shares(self) -> dict[str, float]:
        """The part of all positions that each node owns, by name; exact. O(spans)."""
        return self.spans.shares()

    @property
    def balance(self) -> Balance:
        """How evenly the positions are shared, relative to each node's weight. O(spans).

        Raises:
            EmptyRingError: There are no nodes.
        """
        return self.spans.balance([node.weight for node in self.nodes])

    # --- changes ---

    def diff(self, after: Placement) -> Plan:
        """Return the exact moves from this placement to `after`; its epoch is None.

        Raises:
            TypeError: `after` is a placement of another kind.
            ValueError: It reads keys in another way, so that every key has two positions.
        """
        self._check_reading(after)
        starts, ends, sources, targets = self._moves_to_placement(after)
        return Plan(
            before=self.digest,
            after=after.digest,
            space=self.space,
            changes=self._changes_to(after),
            ranges=(starts, ends),
            owners=(sources, targets),
            names=(self.names, after.names),
        )

    def _moves_to_placement(self, after: Any) -> tuple[Any, Any, Any, Any]:
        return self.spans.diff(after.spans)

    def _changes_to(self, after: Any) -> Changes:
        return Changes(changes_between(self.nodes, after.nodes))

    def _check_reading(self, other: object) -> None:
        if not isinstance(other, Placement) or other.kind != self.kind:
            what = f"to one of kind {other.kind!r}" if isinstance(other, Placement) else plain_type(other)
            raise TypeError(f"a placement of kind {self.kind!r} has plans to others of that kind, not {what}")
        if not self.space.same_reading(other.space):
            raise ValueError(
                "both placements must read keys alike, or every key has two positions; here are "
                f"{self.space!r} and {other.space!r}"
            )

    def replayed(self, plan: Plan) -> Self:
        """Return the placement that the changes of a plan lead to.

        What a plan says of moves and digests is not looked at: `verified` does that.

        Raises:
            ValueError: The changes are not of this placement.
        """
        return self._with_changes(plan.changes.nodes)

    def middle(self, after: Any, done: Ranges) -> Placement:
        """Return what answers in the middle of a handover to `after`.

        Args:
            after: The placement at its end, of the same kind.
            done: The positions whose owner is the one of `after` already, in the plan's space.
        """
        return Spliced(self, after, done)

    def written(self, plan: Plan, epoch: int) -> Self:  # noqa: ARG002  a directory needs both
        """Return the placement in which what a plan wrote has the epoch that committed it."""
        return self

    # --- identity ---

    def to_dict(self) -> dict[str, object]:
        """Return the placement as a dictionary that JSON can hold."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: object, where: str = "") -> Self:
        """Return the placement that `to_dict` described; `Placement.from_dict` reads every kind.

        Raises:
            ValueError: A field is missing, unknown or wrong, or it is of another kind; the message names it.

        >>> from ringhash import Ring
        >>> Placement.from_dict(Ring(["gw-1"]).to_dict())
        Ring(['gw-1'], vnodes=160)
        """
        where = where or "placement"
        made = placement_from(data, where)
        if not isinstance(made, cls):
            raise ValueError(f"{where}.kind: {made.kind!r} is not a {cls.__name__}")
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return self is other or (self.kind, self.digest, self.nodes) == (
            other.kind,
            other.digest,
            other.nodes,
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)


class Walkable(Placement):
    """A placement in which every key has an order of all nodes: the next ones stand in for those before."""

    __slots__ = ()

    def walk(self, key: Any, /) -> Iterator[str]:
        """Yield the names of all nodes, each once, in the order in which they stand in for a key."""
        raise NotImplementedError

    def owners(
        self, key: Any, n: int, distinct: Literal["node", "zone"] = "node", strict: bool = False
    ) -> tuple[str, ...]:
        """Return the first `n` nodes of the walk; fewer if there are fewer, unless `strict`."""
        raise NotImplementedError

    def without(self, *names: str) -> Walkable:
        """Return the placement that lacks the nodes of these names.

        Raises:
            UnknownNodeError: There is no node of that name.
        """
        return self.changed(remove=names)


class Layered(Placement):
    """A placement that answers for some keys itself, and asks another one, `default`, for the rest."""

    __slots__ = ()

    default: Placement

    def over(self, default: Placement, down: frozenset[str]) -> Placement:
        """Return what answers over another default while some nodes are down."""
        raise NotImplementedError


class Spliced(Placement):
    """What answers in the middle of a handover of a placement that has no faster way."""

    kind = "spliced"

    __slots__ = ("_after", "_before", "_done", "_spans", "nodes")

    nodes: tuple[Node, ...]
    _before: Placement
    _after: Placement
    _done: Ranges
    _spans: Spans

    def __init__(self, before: Placement, after: Placement, done: Ranges) -> None:
        both = {node.name: node for node in (*before.nodes, *after.nodes)}
        spans = before.spans.splice(after.spans, done)
        names = tuple(sorted(both))
        if spans.names != names:
            spans = Spans(spans.size, spans.ends, _places(spans.names, names)[spans.owners], names)
        values = (after, before, done, spans, tuple(both[name] for name in names))
        for set_slot, value in zip(_SET_SLOTS, values, strict=True):
            set_slot(self, value)

    @property
    def space(self) -> Space:
        """How keys become positions, before and after."""
        return self._before.space

    @property
    def spans(self) -> Spans:
        """Those of after where the handover is done, and those of before elsewhere."""
        return self._spans

    @property
    def digest(self) -> str:
        """That of the placement before, since nothing is final yet."""
        return self._before.digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spliced):
            return NotImplemented
        return (self._before, self._after, self._done) == (other._before, other._after, other._done)

    def __hash__(self) -> int:
        return hash((self._before, self._after, self._done))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._before, self._after, self._done)


_SET_SLOTS = tuple(slot_setter(Spliced, name) for name in Spliced.__slots__)


def _places(names: tuple[str, ...], into: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.intp]]:
    place = {name: i for i, name in enumerate(into)}
    return np.array([*(place[name] for name in names), -1], np.intp)


def default_placement(nodes: Any = (), **options: Any) -> Placement:
    """Return the placement of a router that is given nodes: a `Ring` with these options."""
    return cast("Placement", load(KINDS["ring"])(nodes, **options))


def placement_from(data: object, where: str = "placement") -> Placement:
    """Return the placement that its `to_dict` described, whatever its kind.

    Raises:
        ValueError: There is no such kind, or a field is missing, unknown or wrong.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: must be an object, not {plain_name(data)}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{where}.kind: must be one of {', '.join(sorted(KINDS))}, not {kind!r}")
    return cast("Placement", not_too_deep(lambda: load(KINDS[kind]).from_dict(data), where))


def verified(before: Placement, plan: Plan) -> Placement:
    """Return the placement that a plan leads to from `before`, if all that the plan says is true.

    Every plan comes in here, wherever it is from: digests, changes and moves are compared with those
    that are computed anew.

    Raises:
        StalePlanError: The plan was made for another placement. Make a new one.
        ValueError: The plan was edited: its changes do not lead where it says, or its moves are not
            those of its changes.

    Cost: that of `before.diff(after)`.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"expected a Plan, not {plain_type(plan)}")
    if plan.before != before.digest:
        raise StalePlanError(
            f"the plan was made for the placement {plan.before[:8]}, and this is {before.digest[:8]}; "
            "make a new plan"
        )
    try:
        after = before.replayed(plan)
    except LookupError as error:
        raise ValueError(f"the plan cannot be carried out: {error}") from None
    if after.digest != plan.after:
        raise ValueError("the plan does not lead where it says that it leads; make a new plan")
    found = before.diff(after)
    if found.changes != plan.changes or not found.moves_as(plan):
        raise ValueError("the moves of the plan are not those of its changes; it was edited: make a new plan")
    return after

"""Which node has which shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from operator import index
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, cast

import numpy as np

from ringhash._core import ShardTable, own_methods
from ringhash.batch import readable
from ringhash.errors import DuplicateNodeError, EmptyRingError, UnknownNodeError
from ringhash.immutable import slot_setter
from ringhash.membership import changed_nodes, find_name, weights_from
from ringhash.node import Node, nodes_from, token_sum
from ringhash.placement import Placement
from ringhash.placements.deal import deal
from ringhash.placements.shards import Shards
from ringhash.plan import NodeChange, Plan
from ringhash.ranges import Ranges
from ringhash.records import document, field, read_document
from ringhash.space import HashSpace, ModuloSpace
from ringhash.spans import Spans

__all__ = ["Assignment", "ShardStats", "assign"]

_NEEDED, _OPTIONAL = frozenset({"shards"}), frozenset({"nodes", "owners"})
_NOBODY = 0xFFFFFFFF
_Indexes = np.ndarray[Any, np.dtype[np.intp]]


class ShardStats(NamedTuple):
    """What a sample of keys says about an assignment: see `Assignment.stats`."""

    loads: dict[str, int]
    peak_to_mean: float
    largest_key_share: float
    oldest: dict[str, float]
    moved: int


@own_methods
class Assignment(ShardTable, Placement):
    """Which node has which shard; immutable. Made by `assign`.

    Args:
        shards: The shards.
        nodes: `Node`s or names, in any order; or a mapping of names to weights.
        owners: The name of the node of each shard, None for nobody; by default, nobody has any.

    Raises:
        DuplicateNodeError: Two nodes have one name.
        ValueError: There are not as many owners as shards.
        UnknownNodeError: A shard belongs to a node that is not among them.

    Cost: a lookup is one hash and one division, compiled; O(shards) to make one.

    >>> assignment = assign(4, ["b", "a"])
    >>> assignment.owners, assignment.counts
    (('a', 'a', 'b', 'b'), {'a': 2, 'b': 2})
    >>> assignment.owner("user:7") == assignment.owner_at(assignment.shards.of("user:7"))
    True
    """

    __slots__ = ("_digest", "_index", "_space", "nodes", "owners", "shards")

    kind: ClassVar[str] = "assignment"
    shards: Shards
    nodes: tuple[Node, ...]
    owners: tuple[str | None, ...]
    _digest: str | None  # made on demand
    _index: _Indexes
    _space: ModuloSpace

    def __new__(
        cls,
        shards: Shards,
        nodes: Iterable[str | Node] | Mapping[str, float] = (),
        owners: Sequence[str | None] | None = None,
    ) -> Self:
        """Check everything, then build; there is no `__init__` that could be called again."""
        members = tuple(_distinct(nodes_from(nodes, "nodes")))
        names = tuple([node.name for node in members])
        numbers: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        numbers[None] = -1
        of: tuple[str | None, ...] = (None,) * shards.count if owners is None else tuple(owners)
        if len(of) != shards.count:
            raise ValueError(f"{shards.count} shards need as many owners, not {len(of)}")
        try:
            places = np.array([numbers[name] for name in of], np.intp)
        except KeyError as error:
            raise UnknownNodeError(f"a shard belongs to {error.args[0]!r}, which is not a node") from None
        places.flags.writeable = False
        space = ModuloSpace(shards.count, shards.seed, shards.hash_tags)
        self = ShardTable.__new__(cls, names, places.astype(np.int32), shards.seed, shards.hash_tags)
        for set_slot, value in zip(_SET_SLOTS, (None, places, space, members, of, shards), strict=True):
            set_slot(self, value)
        return self

    # --- lookups: owner, assignment[key] and position are compiled, in _core ---

    @property
    def space(self) -> ModuloSpace:
        """How keys become shards."""
        return self._space

    def owner_at(self, position: int) -> str:
        """Return the node that has a shard.

        Raises:
            EmptyRingError: Nobody has it.
            IndexError: The shard is not from 0 to count - 1.
        """
        position = index(position)
        if not 0 <= position < self.shards.count:
            raise IndexError(f"a shard is from 0 to {self.shards.count - 1}, not {position}")
        return self.owners[position] or self._fail_owner(position)

    def owner_many(self, keys: Any) -> list[str]:
        """Return the nodes of many keys; `keys` and errors as for `Ring.index_many`."""
        return self._owners(readable(keys))

    def index_many(self, keys: Any) -> _Indexes:
        """Return the nodes of many keys as indexes into `nodes`, compiled."""
        return self._indexes(readable(keys))

    def _fail_owner(self, shard: int = 0) -> NoReturn:
        raise EmptyRingError(f"nobody has the shard {shard}; add a node first")

    @property
    def spans(self) -> Spans:
        """The shards, cut up among the nodes. O(shards)."""
        return Spans(
            self.shards.count, np.arange(self.shards.count, dtype=np.uint64), self._index, self.names
        )

    def shards_of(self, node: str) -> tuple[int, ...]:
        """Return the shards of a node, in order.

        Raises:
            UnknownNodeError: There is no node of that name.
        """
        return tuple(np.flatnonzero(self._index == find_name(self.names, node)).tolist())

    @property
    def counts(self) -> dict[str, int]:
        """How many shards each node has, by name."""
        return self.spans.sizes()

    # --- changes ---

    def _with_changes(self, changes: tuple[NodeChange, ...]) -> Self:
        if not changes:
            return self
        nodes = changed_nodes(self.names, self.nodes, changes)
        return type(self)(self.shards, nodes, deal(self.shards.count, nodes, self.owners) if nodes else None)

    def replayed(self, plan: Plan) -> Self:
        """Return the assignment that a plan leads to: its moves say which shard goes where.

        Raises:
            ValueError: The changes or moves are not of these nodes, shards or owners.
        """
        nodes = changed_nodes(self.names, self.nodes, plan.changes.nodes)
        if plan.space != self.space:
            raise ValueError(f"the plan is of {plan.space!r}, and the shards are {self.space!r}")
        owners: list[Any] = list(self.owners)
        for (start, end), source, target in plan.moves:
            if owners[start : end + 1] != [source] * (end - start + 1):
                raise ValueError(
                    f"the plan takes shards {start} to {end} from {source!r}, which does not have them all"
                )
            owners[start : end + 1] = [target] * (end - start + 1)
        return type(self)(self.shards, nodes, owners)

    def middle(self, after: Placement, done: Ranges) -> Self:
        """Return the assignment when the shards of `done` have gone over. O(shards)."""
        self._check_reading(after)
        after = cast("Assignment", after)
        owners = list(self.owners)
        for start, end in done:
            owners[start : end + 1] = after.owners[start : end + 1]
        both = {node.name: node for node in (*self.nodes, *after.nodes)}
        return type(self)(self.shards, both.values(), owners)

    def split(self) -> Self:
        """Return this assignment of twice as many shards: the new half stays where its keys were.

        Nothing moves between nodes; `assign` with the result as `previous` then evens out.

        >>> assign(2, ["a", "b"]).split().owners
        ('a', 'b', 'a', 'b')
        """
        return type(self)(self.shards.double(), self.nodes, self.owners * 2)

    def stats(
        self,
        keys: Any,
        *,
        oldest: Mapping[int, float] | None = None,
        previous: Assignment | None = None,
    ) -> ShardStats:
        """Return what a sample of keys says about the load.

        Args:
            keys: The sample, as for `Ring.index_many`; a key that is asked for often is in it often.
            oldest: The age of the oldest work of a shard, by shard.
            previous: The assignment before, to count the shards that moved.

        Returns:
            `loads`: keys of each node. `peak_to_mean`: the highest load by the mean, each relative
            to the node's weight. `largest_key_share`: what part of all keys the most frequent
            one is; no assignment can bring the fullest node below it. `oldest`: the oldest work of
            each node that has any. `moved`: shards that changed their node.
        """
        sample = readable(keys)
        counts = np.bincount(self.index_many(sample), minlength=len(self.nodes))
        total = int(counts.sum())
        loads = {node.name: int(count) for node, count in zip(self.nodes, counts, strict=True)}
        weights = np.array([node.weight for node in self.nodes])
        weights /= weights.max()
        peak = float((counts / (weights / weights.sum())).max() / total) if total else 0.0
        # A key is known by 64 bits of its hash, so that it may be of any kind.
        halves = [HashSpace(seed, self.shards.hash_tags).positions(sample) for seed in (0, 1)]
        whole = halves[0].astype(np.uint64) << np.uint64(32) | halves[1]
        most = int(np.unique(whole, return_counts=True)[1].max()) if total else 0
        ages: dict[str, float] = {}
        for shard, age in (oldest or {}).items():
            name = self.owner_at(shard)
            ages[name] = max(age, ages.get(name, age))
        return ShardStats(
            loads=loads,
            peak_to_mean=peak,
            largest_key_share=most / total if total else 0.0,
            oldest=ages,
            moved=0 if previous is None else previous.diff(self).positions,
        )

    def _check_reading(self, other: object) -> None:
        if isinstance(other, Assignment) and other.shards != self.shards:
            raise ValueError(
                f"one assignment is of {self.shards}, and the other of {other.shards}; if the shards were "
                "doubled, use split()"
            )
        super()._check_reading(other)

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal wherever the shards, the nodes and the owners are equal.

        The method is in docs/spec.md.
        """
        if self._digest is None:
            hashed = blake2b(b"ringhash-assignment-1", digest_size=16)
            hashed.update(self.shards.digest.encode())
            hashed.update(len(self.nodes).to_bytes(4, "little"))
            hashed.update(token_sum(self.nodes).to_bytes(16, "little"))
            # The index of each shard's node in order of names; 2**32 - 1 is nobody.
            hashed.update((self._index & _NOBODY).astype("<u4").tobytes())
            _SET_SLOTS[0](self, hashed.hexdigest())
        return cast("str", self._digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignment):
            return NotImplemented
        return self is other or (self.shards, self.nodes, self.owners) == (
            other.shards, other.nodes, other.owners,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.shards, self.owners))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"<Assignment of {self.shards!r} to {len(self.nodes)} nodes>"

    def to_dict(self) -> dict[str, object]:
        """Return the assignment as a dictionary that JSON can hold."""
        return document(
            "assignment",
            shards=self.shards.to_dict(),
            nodes=[node.to_dict() for node in self.nodes],
            owners=list(self.owners),
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "assignment") -> Self:
        """Return the assignment that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = read_document(data, where, "assignment", _NEEDED, _OPTIONAL)
        shards = Shards.from_dict(record["shards"], f"{where}.shards")
        members: list[Any] = field(record, where, "nodes", list) if "nodes" in record else []
        nodes = [Node.from_dict(node, f"{where}.nodes[{i}]") for i, node in enumerate(members)]
        owners: list[Any] | None = field(record, where, "owners", list) if "owners" in record else None
        if not all(name is None or type(name) is str for name in owners or ()):
            raise ValueError(f"{where}.owners: must be a list of names, or of null for nobody")
        try:
            return cls(shards, nodes, owners)
        except (ValueError, LookupError) as error:
            raise ValueError(f"{where}: {error}") from None


_SET_SLOTS = tuple(slot_setter(Assignment, name) for name in Assignment.__slots__)


def assign(
    shards: Shards | int,
    nodes: Iterable[str | Node] | Mapping[str, float],
    previous: Assignment | None = None,
    weights: Mapping[str, float] | None = None,
) -> Assignment:
    """Return which node has which shard: even, with the fewest moves from `previous`.

    Every node has the floor or the ceiling of its fair share: `count * weight / total weight`, and at
    least 1 while there are as many shards as nodes. With equal weights no two nodes differ by more than
    one shard. No assignment within these bounds moves fewer shards; `ringhash.placements.deal` says how.

    Args:
        shards: `Shards`, or how many.
        nodes: Names or `Node`s, or a mapping of names to weights.
        previous: The assignment before, of the same shards; its nodes may be others.
        weights: Weights by name, in place of those of the nodes.

    Raises:
        DuplicateNodeError: Two nodes have one name.
        EmptyRingError: There are no nodes.
        UnknownNodeError: A weight is given for a node that is not there.
        ValueError: `previous` is of other shards.

    Cost: O(shards + nodes * log nodes). The same arguments always give the same assignment.

    >>> one = assign(5, ["a", "b"])
    >>> one.counts
    {'a': 3, 'b': 2}
    >>> two = assign(5, ["a", "b", "c"], one)
    >>> two.counts, one.diff(two).positions
    ({'a': 2, 'b': 2, 'c': 1}, 1)
    """
    if not isinstance(shards, Shards):
        shards = Shards(shards)
    members = _distinct(nodes_from(nodes, "nodes"))
    given = weights_from(weights, "weights")
    unknown = sorted(given.keys() - {node.name for node in members})
    if unknown:
        raise UnknownNodeError(f"a weight is given for {unknown[0]!r}, which is not a node")
    members = [node.weighing(given[node.name]) if node.name in given else node for node in members]
    if not members:
        raise EmptyRingError("there are no nodes, so no shard has one; add a node first")
    if previous is not None and previous.shards != shards:
        raise ValueError(
            f"the previous assignment is of {previous.shards}, and this one of {shards}; if the shards "
            "were doubled, give previous.split()"
        )
    return Assignment(
        shards, members, deal(shards.count, members, None if previous is None else previous.owners)
    )


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    members = sorted(nodes, key=lambda node: node.name)
    for one, other in pairwise(members):
        if one.name == other.name:
            raise DuplicateNodeError(f"the node {one.name!r} is given twice")
    return members

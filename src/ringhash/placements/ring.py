"""The ring: an immutable snapshot of nodes and options, with their points."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self, cast

import numpy as np

from ringhash._core import Table, own_methods
from ringhash.errors import DuplicateNodeError
from ringhash.immutable import slot_setter
from ringhash.membership import changed, changes_between, changes_for
from ringhash.node import Node, nodes_from, token, token_sum
from ringhash.placement import Placement
from ringhash.placements.points import SPACE, MixedRing, PointTable, set_nodes
from ringhash.plan import Changes, NodeChange, Plan
from ringhash.ranges import Ranges
from ringhash.records import document, field, read_document, read_word, word
from ringhash.space import HashSpace, check_integer, check_options, read_reading
from ringhash.spans import Balance

__all__ = ["MAX_POINTS_PER_NODE", "SPACE", "Balance", "Ring"]

MAX_POINTS_PER_NODE = 65_536
_NEEDED = frozenset({"nodes"})
_OPTIONAL = frozenset({"vnodes", "seed", "hash_tags"})
_VNODES = 160
_TOKEN_BITS = 128

_Array = np.ndarray[Any, np.dtype[Any]]


@own_methods
class Ring(PointTable):
    """An immutable consistent-hashing ring: which node owns a key.

    A ring never changes, so any number of threads may share it; `with_nodes`, `without` and
    `with_weights` make new ones. The placement is described in docs/spec.md and never changes.

    Args:
        nodes: Names or `Node`s in any order, or a mapping of names to weights.
        vnodes: Points (virtual nodes) of a node of weight 1, from 1 to 65,536. More points spread
            the keys more evenly and cost memory: 12 bytes a point.
        seed: An unsigned 64-bit integer. Two tiers of routing need two seeds. It is no secret.
        hash_tags: Whether a str or bytes key with a part in braces, such as `{user:7}:cart`, is
            placed by that part alone.

    Raises:
        DuplicateNodeError: Two nodes have one name.
        TypeError: A node or an option has the wrong type.
        ValueError: A node or an option is out of its range, or the ring would have more than
            65,536 points a node or 2**27 in all.

    Cost: O(points), about as long as numpy takes to sort as many integers.

    >>> ring = Ring(["gw-1", "gw-2", Node("gw-3", weight=2.0)])
    >>> ring.owner("user:7") in ring, len(ring), len(ring.points)
    (True, 3, 640)
    """

    __slots__ = ("_counts", "_digest", "_space", "_token_sum", "vnodes")

    kind: ClassVar[str] = "ring"
    vnodes: int
    _counts: tuple[int, ...]
    _token_sum: int | None  # made on demand, as are _digest and _space
    _space: HashSpace | None
    _digest: str | None

    def __new__(
        cls,
        nodes: Iterable[str | Node] | Mapping[str, float] = (),
        *,
        vnodes: int = _VNODES,
        seed: int = 0,
        hash_tags: bool = False,
    ) -> Self:
        """Check everything, then build; `__init__` does nothing, so a ring cannot be made twice."""
        members = nodes_from(nodes)
        check_integer("vnodes", vnodes, 1, MAX_POINTS_PER_NODE)
        check_options(seed, hash_tags)
        members.sort(key=_name_of)
        for one, other in pairwise(members):
            if one.name == other.name:
                raise DuplicateNodeError(f"the node {one.name!r} is given twice")
        names = tuple([node.name for node in members])
        counts = tuple([_point_count(node, vnodes) for node in members])
        return cls._make(names, tuple(members), counts, int(vnodes), int(seed), hash_tags, None)

    @classmethod
    def _make(
        cls,
        names: tuple[str, ...],
        nodes: tuple[Node, ...],
        counts: tuple[int, ...],
        vnodes: int,
        seed: int,
        hash_tags: bool,
        base: Ring | None,
    ) -> Self:
        self = Table.__new__(cls, names, counts, seed, hash_tags, base)
        set_nodes(self, nodes)
        _set_vnodes(self, vnodes)
        _set_counts(self, counts)
        _set_token_sum(self, None)
        _set_digest(self, None)
        _set_space(self, None)
        return self

    @property
    def space(self) -> HashSpace:
        """How keys become positions: the seed and the tags."""
        if self._space is None:
            _set_space(self, HashSpace(self.seed, bool(self.hash_tags)))
        return cast("HashSpace", self._space)

    # --- the members ---

    def with_nodes(self, *nodes: str | Node) -> Self:
        """Return a ring that has `nodes` too. O(points): nothing that stays is hashed again.

        Raises:
            DuplicateNodeError: A node of that name is in the ring, or is given twice.
        """
        return self._with_changes(changes_for(self.names, self.nodes, add=nodes))

    def without(self, *names: str) -> Self:
        """Return a ring that lacks the nodes of these names. O(points).

        Raises:
            UnknownNodeError: The ring has no node of that name.
        """
        return self._with_changes(changes_for(self.names, self.nodes, remove=names))

    def with_weights(self, weights: Mapping[str, float]) -> Self:
        """Return a ring in which some nodes have other weights. O(points).

        A node that becomes heavier keeps its points and takes more; one that becomes lighter loses
        its last ones. No key moves between two other nodes.

        Raises:
            UnknownNodeError: The ring has no node of that name.
            TypeError, ValueError: A weight is not a finite number above 0.
        """
        return self._with_changes(changes_for(self.names, self.nodes, reweight=weights))

    def _with_changes(self, changes: Iterable[NodeChange]) -> Self:
        names, nodes, counts = list(self.names), list(self.nodes), list(self._counts)
        token_sum = self._token_sum
        for index, change in reversed(changed(self.names, self.nodes, changes)):
            before, after = change
            if before is not None:
                del names[index], nodes[index], counts[index]
            if after is not None:
                names.insert(index, after.name)
                nodes.insert(index, after)
                counts.insert(index, _point_count(after, self.vnodes))
            if token_sum is not None:
                token_sum += (token(after) if after else 0) - (token(before) if before else 0)
        ring = self._make(
            tuple(names), tuple(nodes), tuple(counts), self.vnodes, self.seed, self.hash_tags, self
        )
        _set_token_sum(ring, token_sum)
        return ring

    def diff(self, after: Placement) -> Plan:
        """Return the exact moves from this ring to `after`.

        Args:
            after: A ring of the same seed and hash_tags; its nodes and vnodes may be any.

        Raises:
            TypeError: `after` is no ring.
            ValueError: The seeds or hash_tags differ, so that a key has two positions.

        Cost: O(nodes + changed points * log points).

        >>> ring = Ring(["gw-1", "gw-2"])
        >>> plan = ring.diff(ring.with_nodes("gw-3"))
        >>> set(plan.by_target())
        {'gw-3'}
        """
        return super().diff(after)

    def _moves_to_placement(self, after: Ring) -> tuple[_Array, _Array, _Array, _Array]:
        return self._moves_to(after)  # a merge of both rings' points, compiled

    def _changes_to(self, after: Ring) -> Changes:
        rows = () if self.vnodes == after.vnodes else (("vnodes", self.vnodes, after.vnodes),)
        return Changes(changes_between(self.nodes, after.nodes), rows)

    def replayed(self, plan: Plan) -> Self:
        """Return the ring that the changes of a plan lead to; `ValueError` if they are not of this ring."""
        nodes, rows = plan.changes
        after = self._with_changes(nodes)
        if not rows:
            return after
        if len(rows) != 1 or rows[0][:2] != ("vnodes", self.vnodes):
            raise ValueError(
                f"a plan of a ring may change vnodes, which are {self.vnodes}, and not {rows[0]!r}"
            )
        vnodes = rows[0][2]
        try:
            return type(self)(after.nodes, vnodes=vnodes, seed=self.seed, hash_tags=bool(self.hash_tags))
        except TypeError as error:
            raise ValueError(f"the plan cannot be carried out: {error}") from None

    def middle(self, after: Placement, done: Ranges) -> Placement:
        """Return the ring that answers in the middle of a handover: it has a walk, as both ends have.

        Args:
            after: The ring at the end of the handover.
            done: The positions whose points are those of `after` already.

        Cost: O(points), in numpy.
        """
        self._check_reading(after)
        return MixedRing.of(self, cast("Ring", after), done)

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal on every router with the same members and options.

        The method is in docs/spec.md; after a change it costs O(changed nodes).
        """
        if self._digest is None:
            if self._token_sum is None:
                _set_token_sum(self, token_sum(self.nodes))
            total = cast("int", self._token_sum) % (1 << _TOKEN_BITS)
            options = struct.pack("<IQBI", self.vnodes, self.seed, self.hash_tags, len(self))
            data = b"ringhash-1" + options + total.to_bytes(_TOKEN_BITS // 8, "little")
            _set_digest(self, _hash(data).hex())
        return cast("str", self._digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ring):
            return NotImplemented
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.digest)

    def _identity(self) -> tuple[object, ...]:
        return self.vnodes, self.seed, self.hash_tags, self.nodes

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), vnodes=self.vnodes, seed=self.seed, hash_tags=self.hash_tags)
        return make, (self.nodes,)

    def __repr__(self) -> str:
        nodes = ", ".join(repr(node.name if node == Node(node.name) else node) for node in self.nodes[:4])
        more = f", ... {len(self)} nodes" if len(self) > 4 else ""
        seed = f", seed={self.seed}" if self.seed else ""
        tags = ", hash_tags=True" if self.hash_tags else ""
        return f"{type(self).__name__}([{nodes}{more}], vnodes={self.vnodes}{seed}{tags})"

    def to_dict(self) -> dict[str, object]:
        """Return the ring as a dictionary that JSON can hold.

        >>> Ring.from_dict(Ring(["gw-1"]).to_dict())
        Ring(['gw-1'], vnodes=160)
        """
        return document(
            "ring",
            nodes=[node.to_dict() for node in self.nodes],
            vnodes=self.vnodes,
            seed=word(self.seed),
            hash_tags=bool(self.hash_tags),
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "ring") -> Self:
        """Return the ring that `to_dict` described; its options may be left out.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = read_document(data, where, "ring", _NEEDED, _OPTIONAL)
        nodes = [
            Node.from_dict(node, f"{where}.nodes[{i}]")
            for i, node in enumerate(field(record, where, "nodes", list))
        ]
        vnodes = read_word(record, where, "vnodes") if "vnodes" in record else _VNODES
        seed, hash_tags = read_reading(record, where)
        try:
            return cls(nodes, vnodes=vnodes, seed=seed, hash_tags=hash_tags)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


_set_vnodes = slot_setter(Ring, "vnodes")
_set_counts = slot_setter(Ring, "_counts")
_set_token_sum = slot_setter(Ring, "_token_sum")
_set_digest = slot_setter(Ring, "_digest")
_set_space = slot_setter(Ring, "_space")


def _name_of(node: Node) -> str:
    return node.name


def _point_count(node: Node, vnodes: int) -> int:
    exact = node.weight * vnodes
    count = max(1, round(exact)) if exact <= MAX_POINTS_PER_NODE + 1 else math.inf
    if count > MAX_POINTS_PER_NODE:
        raise ValueError(
            f"the node {node.name!r} of weight {node.weight} would have {exact:.0f} points, and a "
            f"node has at most {MAX_POINTS_PER_NODE}; scale the weights down"
        )
    return cast("int", count)


def _hash(data: bytes) -> bytes:
    from hashlib import blake2b  # noqa: PLC0415  (it loads OpenSSL, and a ring need not have a digest)

    return blake2b(data, digest_size=_TOKEN_BITS // 8).digest()

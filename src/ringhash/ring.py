"""The ring: an immutable snapshot of nodes and options, with their points."""

from __future__ import annotations

import math
import operator
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple, NoReturn, Self, cast

import numpy as np

from ringhash._core import KeySpace, Table, own_methods
from ringhash.batch import readable
from ringhash.errors import DuplicateNodeError, EmptyRingError
from ringhash.immutable import Immutable, slot_setter
from ringhash.membership import changed, changes_between, changes_for, find_name
from ringhash.node import Node, nodes_from, plain_type
from ringhash.pins import Pin
from ringhash.plan import KeyRange, NodeChange, Plan
from ringhash.records import check_fields, field

__all__ = ["MAX_POINTS_PER_NODE", "SPACE", "Balance", "Ring"]

SPACE = 1 << 32
MAX_POINTS_PER_NODE = 65_536
_FIELDS = frozenset({"nodes", "vnodes", "seed", "hash_tags"})
_TOKEN_BITS = 128


class Balance(NamedTuple):
    """How evenly a ring spreads its keys, relative to the weight of each node.

    1.0 is what a node should own. `peak_to_mean` is that of the fullest node, `low_to_mean` of the
    emptiest, `stddev` the standard deviation over the nodes.
    """

    peak_to_mean: float
    low_to_mean: float
    stddev: float


@own_methods
class Ring(Immutable, Table):
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

    __slots__ = ("_counts", "_digest", "_token_sum", "_zones", "nodes", "vnodes")

    nodes: tuple[Node, ...]
    vnodes: int
    _counts: tuple[int, ...]
    _token_sum: int | None  # made on demand, as are _digest and _zones
    _digest: str | None
    _zones: tuple[dict[str, str | Node], Counter[str | Node]] | None

    def __new__(
        cls,
        nodes: Iterable[str | Node] | Mapping[str, float] = (),
        *,
        vnodes: int = 160,
        seed: int = 0,
        hash_tags: bool = False,
    ) -> Self:
        """Check everything, then build; `__init__` does nothing, so a ring cannot be made twice."""
        members = nodes_from(nodes)
        _check_integer("vnodes", vnodes, 1, MAX_POINTS_PER_NODE)
        _check_integer("seed", seed, 0, (1 << 64) - 1)
        if not isinstance(hash_tags, bool):
            raise TypeError(f"hash_tags must be True or False, not {plain_type(hash_tags)}")
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
        _set_nodes(self, nodes)
        _set_vnodes(self, vnodes)
        _set_counts(self, counts)
        _set_token_sum(self, None)
        _set_digest(self, None)
        _set_zones(self, None)
        return self

    # --- lookups: owner, owners, walk, position and ring[key] are compiled, in _core ---

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `ring.nodes`.

        Args:
            keys: A list, tuple or any iterable of keys; or a one-dimensional array: integers and
                fixed-width bytes are read in place with the GIL released, others as a list.

        Returns:
            An array of intp of the same length. No Python object is made per key.

        Raises:
            EmptyRingError: The ring has no nodes, and there are keys.
            TypeError: `keys` is one key, or one of the keys is of a type that is no key.
            OverflowError: An int key is below -2**63 or above 2**64 - 1.
            ValueError: The array does not have one dimension.

        >>> ring = Ring(["gw-1", "gw-2"])
        >>> [ring.nodes[i].name for i in ring.index_many([b"a", "a"])] == [ring.owner("a")] * 2
        True
        """
        return self._indexes(readable(keys))

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; `keys` and errors as for `index_many`.

        >>> ring = Ring(["gw-1", "gw-2"])
        >>> ring.owner_many(range(3)) == [ring.owner(i) for i in range(3)]
        True
        """
        return self._owners(readable(keys))

    def _fail_empty(self) -> NoReturn:
        raise EmptyRingError("the ring has no nodes, so no key has an owner; add a node first")

    def _fail_count(self, n: object) -> NoReturn:
        if not len(self):
            self._fail_empty()
        raise ValueError(f"n must be from 1 to the number of nodes, {len(self)}, not {n}")

    def _owners_by(self, key: Any, n: int, distinct: object) -> tuple[str, ...]:
        if distinct != "zone":
            raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
        walk = self.walk(key)
        wanted = operator.index(n)
        if not 1 <= wanted <= len(self):
            self._fail_count(n)
        return _spread(walk, *self._zone_tables(), wanted)

    def _owners_along(self, walk: Iterator[str], n: int, distinct: object) -> tuple[str, ...]:
        """As `owners`, along a walk that a pin has changed."""
        if distinct not in {"node", "zone"}:
            raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
        if not 1 <= n <= len(self):
            self._fail_count(n)
        return tuple(islice(walk, n)) if distinct == "node" else _spread(walk, *self._zone_tables(), n)

    def _zone_tables(self) -> tuple[dict[str, str | Node], Counter[str | Node]]:
        """The zone of each node, and how many nodes each zone has; a node without one is its own."""
        if self._zones is None:
            zone_of = {node.name: node.zone or node for node in self.nodes}
            _set_zones(self, (zone_of, Counter(zone_of.values())))
        return cast("tuple[dict[str, str | Node], Counter[str | Node]]", self._zones)

    # --- the members ---

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
        """Return the node of that name; `UnknownNodeError` when there is none. O(log nodes)."""
        return self.nodes[find_name(self.names, name)]

    def with_nodes(self, *nodes: str | Node) -> Self:
        """Return a ring that has `nodes` too. O(points): nothing that stays is hashed again.

        Raises:
            DuplicateNodeError: A node of that name is in the ring, or is given twice.
        """
        return self._changed(changes_for(self.names, self.nodes, add=nodes))

    def without(self, *names: str) -> Self:
        """Return a ring that lacks the nodes of these names. O(points).

        Raises:
            UnknownNodeError: The ring has no node of that name.
        """
        return self._changed(changes_for(self.names, self.nodes, remove=names))

    def with_weights(self, weights: Mapping[str, float]) -> Self:
        """Return a ring in which some nodes have other weights. O(points).

        A node that becomes heavier keeps its points and takes more; one that becomes lighter loses
        its last ones. No key moves between two other nodes.

        Raises:
            UnknownNodeError: The ring has no node of that name.
            TypeError, ValueError: A weight is not a finite number above 0.
        """
        return self._changed(changes_for(self.names, self.nodes, reweight=weights))

    def _changed(self, changes: Iterable[NodeChange]) -> Self:
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
                token_sum += (_token(after) if after else 0) - (_token(before) if before else 0)
        ring = self._make(
            tuple(names), tuple(nodes), tuple(counts), self.vnodes, self.seed, self.hash_tags, self
        )
        _set_token_sum(ring, token_sum)
        return ring

    def diff(self, other: Ring) -> Plan:
        """Return the exact moves from this ring to `other`.

        Args:
            other: A ring of the same seed and hash_tags; its nodes and vnodes may be any.

        Raises:
            ValueError: The seeds or hash_tags differ, so that a key has two positions.

        Cost: O(nodes + changed points * log points).

        >>> ring = Ring(["gw-1", "gw-2"])
        >>> plan = ring.diff(ring.with_nodes("gw-3"))
        >>> set(plan.by_target())
        {'gw-3'}
        """
        if not isinstance(other, Ring):
            raise TypeError(f"a ring differs from a ring, not from {plain_type(other)}")
        if (self.seed, self.hash_tags) != (other.seed, other.hash_tags):
            raise ValueError(
                "both rings must have one seed and one hash_tags, or every key has two positions; "
                f"here {self.seed} and {other.seed}, {self.hash_tags} and {other.hash_tags}"
            )
        return self._plan(other, changes_between(self.nodes, other.nodes), None)

    def _plan(
        self,
        other: Ring,
        changes: tuple[NodeChange, ...],
        epoch: int | None,
        unpins: tuple[Pin, ...] = (),
    ) -> Plan:
        starts, ends, sources, targets = self._moves_to(other)
        return Plan(
            before=self.digest,
            after=other.digest,
            epoch=epoch,
            space=SPACE,
            key_space=KeySpace(self.seed, self.hash_tags),
            changes=changes,
            ranges=(starts, ends),
            owners=(sources, targets),
            names=(self.names, other.names),
            unpins=unpins,
        )

    # --- what each node owns ---

    def _arcs(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """First and last position and owner of every stretch up to a point, in order; the one
        behind the last point belongs to the first point."""
        points = self.points.astype(np.int64)
        if not len(points):
            return points, points, points
        first_of_tie = np.concatenate(([True], points[1:] != points[:-1]))
        ends = points[first_of_tie]
        owners = self.point_owners[first_of_tie].astype(np.int64)
        if ends[-1] != SPACE - 1:
            ends = np.append(ends, SPACE - 1)
            owners = np.append(owners, owners[0])
        return np.concatenate(([0], ends[:-1] + 1)), ends, owners

    def ranges(self, name: str) -> list[KeyRange]:
        """Return the positions that a node owns, in order; ranges that touch are one. O(points).

        Raises:
            UnknownNodeError: The ring has no node of that name.
        """
        index = find_name(self.names, name)
        starts, ends, owners = self._arcs()
        mine = owners == index
        begins = mine & np.concatenate(([True], ~mine[:-1]))
        finishes = mine & np.concatenate((~mine[1:], [True]))
        return list(map(KeyRange, starts[begins].tolist(), ends[finishes].tolist()))

    @property
    def shares(self) -> dict[str, float]:
        """The part of all positions that each node owns, by name; exact, from the arcs. O(points).

        >>> Ring(["gw-1"]).shares
        {'gw-1': 1.0}
        """
        return dict(zip(self.names, self._shares().tolist(), strict=True))

    def _shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        starts, ends, owners = self._arcs()
        sizes = np.bincount(owners, (ends - starts + 1).astype(np.float64), len(self))
        return sizes / SPACE

    @property
    def balance(self) -> Balance:
        """How evenly the keys are spread, relative to each node's weight. O(points).

        >>> Ring(["gw-1"]).balance
        Balance(peak_to_mean=1.0, low_to_mean=1.0, stddev=0.0)
        """
        if not len(self):
            self._fail_empty()
        weights = np.array([node.weight for node in self.nodes])
        weights /= weights.max()  # so that the sum of huge weights stays finite
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # a node of next to no weight that owns keys all the same
            relative = self._shares() / (weights / weights.sum())
            return Balance(float(relative.max()), float(relative.min()), float(relative.std()))

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal on every router with the same members and options.

        The method is in docs/spec.md; after a change it costs O(changed nodes).
        """
        if self._digest is None:
            if self._token_sum is None:
                _set_token_sum(self, sum(map(_token, self.nodes)))
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

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

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
        return {
            "nodes": [node.to_dict() for node in self.nodes],
            "vnodes": self.vnodes,
            "seed": self.seed,
            "hash_tags": self.hash_tags,
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the ring that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, "ring", _FIELDS)
        nodes = [
            Node.from_dict(node, f"ring.nodes[{i}]")
            for i, node in enumerate(field(record, "ring", "nodes", list))
        ]
        vnodes = field(record, "ring", "vnodes", int)
        seed = field(record, "ring", "seed", int)
        hash_tags = field(record, "ring", "hash_tags", bool)
        try:
            return cls(nodes, vnodes=vnodes, seed=seed, hash_tags=hash_tags)
        except ValueError as error:
            raise ValueError(f"ring: {error}") from None


_set_nodes = slot_setter(Ring, "nodes")
_set_vnodes = slot_setter(Ring, "vnodes")
_set_counts = slot_setter(Ring, "_counts")
_set_token_sum = slot_setter(Ring, "_token_sum")
_set_digest = slot_setter(Ring, "_digest")
_set_zones = slot_setter(Ring, "_zones")


def _name_of(node: Node) -> str:
    return node.name


def _check_integer(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {plain_type(value)}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def _point_count(node: Node, vnodes: int) -> int:
    exact = node.weight * vnodes
    count = max(1, round(exact)) if exact <= MAX_POINTS_PER_NODE + 1 else math.inf
    if count > MAX_POINTS_PER_NODE:
        raise ValueError(
            f"the node {node.name!r} of weight {node.weight} would have {exact:.0f} points, and a "
            f"node has at most {MAX_POINTS_PER_NODE}; scale the weights down"
        )
    return cast("int", count)


def _token(node: Node) -> int:
    name = node.name.encode()
    record = struct.pack("<I", len(name)) + name + struct.pack("<d", node.weight)
    record += b"\0" if node.zone is None else b"\1" + node.zone.encode()
    return int.from_bytes(_hash(record), "little")


def _hash(data: bytes) -> bytes:
    from hashlib import blake2b  # noqa: PLC0415  (it loads OpenSSL, and a ring need not have a digest)

    return blake2b(data, digest_size=_TOKEN_BITS // 8).digest()


def _spread(
    walk: Iterable[str], zone_of: Mapping[str, str | Node], zone_sizes: Mapping[str | Node, int], n: int
) -> tuple[str, ...]:
    """Take n nodes in passes over the walk: a pass takes the first node left of every zone."""
    found: list[str] = []
    taken: set[str] = set()
    taken_of: dict[str | Node, int] = {}
    zones_left = len(zone_sizes)
    walked: list[str] = []
    rest = iter(walk)
    while True:
        this_pass: set[str | Node] = set()
        zones_now = zones_left
        for name in chain(walked, _recorded(rest, walked)):
            zone = zone_of[name]
            if name in taken or zone in this_pass:
                continue
            found.append(name)
            if len(found) == n:
                return tuple(found)
            taken.add(name)
            this_pass.add(zone)
            taken_of[zone] = taken_of.get(zone, 0) + 1
            zones_left -= taken_of[zone] == zone_sizes[zone]
            if len(this_pass) == zones_now:
                break  # nothing left for this pass: save the rest of the walk


def _recorded(walk: Iterator[str], walked: list[str]) -> Iterator[str]:
    for name in walk:
        walked.append(name)
        yield name

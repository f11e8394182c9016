"""A compiled table of points: what a ring is, and what answers between two rings."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np

from ringhash._core import Table, own_methods
from ringhash.batch import readable
from ringhash.errors import EmptyRingError
from ringhash.immutable import slot_setter
from ringhash.node import Node
from ringhash.placement import Walkable
from ringhash.placements.zones import spread
from ringhash.ranges import Ranges
from ringhash.space import HashSpace
from ringhash.spans import Balance, Spans, relative_balance

if TYPE_CHECKING:
    from ringhash.placements.ring import Ring

__all__ = ["SPACE", "MixedRing", "PointTable", "set_nodes"]

SPACE = 1 << 32

_Array = np.ndarray[Any, np.dtype[Any]]


class PointTable(Table, Walkable):
    """Nodes that have points: lookups, the walk and shares; the base of `Ring`."""

    __slots__ = ("_zones", "nodes")

    nodes: tuple[Node, ...]
    _zones: tuple[dict[str, str | Node], Counter[str | Node]]  # made on demand

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

        >>> from ringhash import Ring
        >>> ring = Ring(["gw-1", "gw-2"])
        >>> [ring.nodes[i].name for i in ring.index_many([b"a", "a"])] == [ring.owner("a")] * 2
        True
        """
        return self._indexes(readable(keys))

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; `keys` and errors as for `index_many`.

        >>> from ringhash import Ring
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
        return spread(walk, *self._zone_tables(), wanted)

    def _owners_along(self, walk: Iterator[str], n: int, distinct: object) -> tuple[str, ...]:
        """As `owners`, along a walk that a pin has changed."""
        if distinct not in {"node", "zone"}:
            raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
        if not 1 <= n <= len(self):
            self._fail_count(n)
        return tuple(islice(walk, n)) if distinct == "node" else spread(walk, *self._zone_tables(), n)

    def _zone_tables(self) -> tuple[dict[str, str | Node], Counter[str | Node]]:
        """The zone of each node, and how many nodes each zone has; a node without one is its own."""
        try:
            return self._zones
        except AttributeError:
            zone_of = {node.name: node.zone or node for node in self.nodes}
            _set_zones(self, (zone_of, Counter(zone_of.values())))
        return self._zones

    def owner_at(self, position: int) -> str:
        """Return the name of the node that owns a position. O(log points).

        Raises:
            EmptyRingError: The ring has no nodes.
            IndexError: The position is not from 0 to 2**32 - 1.

        >>> from ringhash import Ring
        >>> ring = Ring(["gw-1", "gw-2"])
        >>> ring.owner_at(ring.position("user:7")) == ring.owner("user:7")
        True
        """
        position = operator.index(position)
        if not 0 <= position < SPACE:
            raise IndexError(f"a position is from 0 to {SPACE - 1}, not {position}")
        points = self.points
        if not len(points):
            self._fail_empty()
        row = int(np.searchsorted(points, np.uint32(position)))
        return self.names[int(self.point_owners[row if row < len(points) else 0])]

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

    @property
    def spans(self) -> Spans:
        """The whole space cut up among the nodes: the stretches up to their points. O(points)."""
        _, ends, owners = self._arcs()
        if not len(ends):
            return Spans(SPACE, [SPACE - 1], [-1], ())
        return Spans(SPACE, ends, owners, self.names)

    @property
    def shares(self) -> dict[str, float]:
        """The part of all positions that each node owns, by name; exact. O(points).

        >>> from ringhash import Ring
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

        >>> from ringhash import Ring
        >>> Ring(["gw-1"]).balance
        Balance(peak_to_mean=1.0, low_to_mean=1.0, stddev=0.0)
        """
        if not len(self):
            self._fail_empty()
        return relative_balance(self._shares(), [node.weight for node in self.nodes])


set_nodes = slot_setter(PointTable, "nodes")
_set_zones = slot_setter(PointTable, "_zones")


@own_methods
class MixedRing(PointTable):
    """The ring in the middle of a handover: some ranges go by the ring after it, the rest by the one before.

    It is a table of points as any ring is, so a lookup costs the same. Inside the ranges that are done it
    has the points of the ring after, outside those of the ring before. Where a range begins or ends between
    two points, it has a point of its own, which belongs to the owner of that position:

        before   ----A--------A----B------        done: the range [ ]
        after    ----A---C----A----B------
        between  ----A--[C]---A----B------        one more point at the position before `[` where A had none

    `names` are the nodes that own a key.
    """

    kind = "mixed"

    __slots__ = ("_after", "_before", "_done")

    _before: Ring
    _after: Ring
    _done: Ranges

    @classmethod
    def of(cls, before: Ring, after: Ring, done: Ranges) -> Walkable:
        """Return what answers when the positions of `done` have gone over.

        If one of the rings is empty, a position may have no owner: then it is the ring before, until
        everything is done. Cost: O(points), in numpy.
        """
        if not done or not len(before) or not len(after):
            return after if done.size == SPACE else before
        points, owners, names = _mixed(before, after, done)
        used, owners = np.unique(owners, return_inverse=True)
        keys = np.sort((points.astype(np.uint64) << np.uint64(32)) | owners.astype(np.uint64))
        both = {node.name: node for node in (*before.nodes, *after.nodes)}
        here = tuple(names[i] for i in used.tolist())
        counts = np.bincount(owners, minlength=len(used)).tolist()
        self = cast("Self", Table.__new__(cls, here, counts, before.seed, before.hash_tags, None, keys))
        set_nodes(self, tuple(both[name] for name in here))
        for set_slot, value in zip(_SET_MIXED, (after, before, done), strict=True):
            set_slot(self, value)
        return self

    @property
    def space(self) -> HashSpace:
        """How keys become positions, before and after."""
        return self._before.space

    @property
    def digest(self) -> str:
        """That of the ring before, since nothing is final yet."""
        return self._before.digest

    def without(self, *names: str) -> Walkable:
        """Return what answers without the nodes of these names: neither end has them."""
        one, other = (
            ring.without(*(name for name in names if name in ring)) for ring in (self._before, self._after)
        )
        return type(self).of(one, other, self._done)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MixedRing):
            return NotImplemented
        return (self._before, self._after, self._done) == (other._before, other._after, other._done)

    def __hash__(self) -> int:
        return hash((self._before, self._after, self._done))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self._before, self._after, self._done)

    def __repr__(self) -> str:
        return f"<what answers from {self._before!r} to {self._after!r}>"


_SET_MIXED = tuple(slot_setter(MixedRing, name) for name in MixedRing.__slots__)


def _mixed(before: Ring, after: Ring, done: Ranges) -> tuple[_Array, _Array, tuple[str, ...]]:
    """The points of both rings, each where it counts, and those at the bounds of what is done."""
    names = tuple(sorted({*before.names, *after.names}))
    place = {name: i for i, name in enumerate(names)}
    # Behind the last point of a ring comes its first: the last position needs a point of its own.
    starts = done.starts[done.starts > 0] - np.uint64(1)
    bounds = np.unique(np.concatenate((done.ends, starts, np.array([SPACE - 1], np.uint64))))
    points, owners = [], []
    for ring, is_done in ((before, False), (after, True)):
        at = ring.points.astype(np.uint64)
        of = ring.point_owners.astype(np.intp)
        here = done.contains(at) == is_done
        kept = at[here]
        mine = bounds[done.contains(bounds) == is_done]
        mine = mine[~np.isin(mine, kept)]
        next_point = np.searchsorted(at, mine)
        next_point[next_point == len(at)] = 0
        number = np.array([place[name] for name in ring.names], np.intp)
        points += [kept, mine]
        owners += [number[of[here]], number[of[next_point]]]
    return np.concatenate(points), np.concatenate(owners), names

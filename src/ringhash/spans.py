"""The whole space cut up among owners: the one diff, the one splice, the one shares and balance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple, Self, cast

import numpy as np

from ringhash.errors import EmptyRingError, UnknownNodeError
from ringhash.immutable import Immutable, slot_setter
from ringhash.ranges import KeyRange, Ranges

__all__ = ["Balance", "Spans", "relative_balance", "sorted_names"]

_Array = np.ndarray[Any, np.dtype[Any]]
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Balance(NamedTuple):
    """How evenly a placement spreads its keys, relative to the weight of each node.

    1.0 is what a node should own. `peak_to_mean` is that of the fullest node, `low_to_mean` of the
    emptiest, `stddev` the standard deviation over the nodes.
    """

    peak_to_mean: float
    low_to_mean: float
    stddev: float


class Spans(Immutable):
    """A space cut up among owners: each span ends at a position and has one owner, or none; immutable.

    Neighbours have different owners, so two that are equal have equal arrays.

    Args:
        size: The number of positions, from 1 to 2**64.
        ends: The last position of each span, in order, as unsigned integers; the last is `size - 1`.
        owners: The owner of each span, as an index into `names`; -1 is nobody.
        names: The names of the owners.

    >>> spans = Spans(10, [3, 9], [1, 0], ("a", "b"))
    >>> spans.owner_at(3), spans.owner_at(4), spans.ranges("a"), spans.shares()
    ('b', 'a', [KeyRange(start=4, end=9)], {'a': 0.6, 'b': 0.4})
    """

    __slots__ = ("ends", "names", "owners", "size")

    size: int
    ends: np.ndarray[Any, np.dtype[np.uint64]]
    owners: np.ndarray[Any, np.dtype[np.intp]]
    names: tuple[str, ...]

    def __new__(cls, size: int, ends: Any, owners: Any, names: tuple[str, ...]) -> Self:
        """Check the arrays, join neighbours of one owner, and keep them read-only."""
        bounds, of = np.asarray(ends, np.uint64), np.asarray(owners, np.intp)
        if not len(bounds) or len(bounds) != len(of) or int(bounds[-1]) != size - 1:
            raise ValueError(f"the spans must reach from 0 to {size - 1}, each with one owner")
        if (bounds[1:] <= bounds[:-1]).any():
            raise ValueError("the ends of spans must be in order and distinct")
        if of.min() < -1 or of.max() >= len(names):
            raise ValueError(f"an owner must be an index of the {len(names)} names, or -1")
        return cls._merged(size, bounds, of, names)

    @classmethod
    def _merged(cls, size: int, ends: _Array, owners: _Array, names: tuple[str, ...]) -> Self:
        kept = np.append(owners[1:] != owners[:-1], True)
        ends, owners = ends[kept], owners[kept]
        ends.flags.writeable = owners.flags.writeable = False
        self = object.__new__(cls)
        for set_slot, value in zip(_SET_SLOTS, (ends, names, owners, size), strict=True):
            set_slot(self, value)
        return self

    @property
    def starts(self) -> _Array:
        """The first position of each span, as uint64."""
        starts = np.zeros_like(self.ends)
        starts[1:] = self.ends[:-1] + _ONE
        return starts

    def __len__(self) -> int:
        return len(self.ends)

    def owner_at(self, position: int) -> str | None:
        """Return the owner of a position, None where there is none. O(log spans).

        Raises:
            IndexError: The position is not from 0 to `size - 1`.
        """
        position = index(position)
        if not 0 <= position < self.size:
            raise IndexError(f"a position is from 0 to {self.size - 1}, not {position}")
        owner = int(self.owners[bisect_left(cast("Sequence[int]", self.ends), position)])
        return None if owner < 0 else self.names[owner]

    def indexes_at(self, positions: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many positions, as indexes into `names`; -1 is nobody."""
        asked = np.asarray(positions)
        rows = np.searchsorted(self.ends, asked.astype(np.uint64, copy=False))
        if len(rows) and int(rows.max()) == len(self.ends):
            raise IndexError(f"a position is from 0 to {self.size - 1}")
        return self.owners[rows]

    def ranges(self, name: str) -> list[KeyRange]:
        """Return the positions that a name owns, in order. O(spans).

        Raises:
            UnknownNodeError: There is no owner of that name.
        """
        if name not in self.names:
            raise UnknownNodeError(f"there is no node {name!r}")
        mine = self.owners == self.names.index(name)
        return list(map(KeyRange, self.starts[mine].tolist(), self.ends[mine].tolist()))

    # --- how much each has ---

    def sizes(self) -> dict[str, int]:
        """How many positions each name owns; exact. O(spans)."""
        owned = self.owners >= 0
        owners = self.owners[owned]
        less_one = (self.ends - self.starts)[owned]
        counts = np.bincount(owners, minlength=len(self.names)).tolist()
        high, low = np.zeros(len(self.names), np.uint64), np.zeros(len(self.names), np.uint64)
        np.add.at(high, owners, less_one >> _HALF)
        np.add.at(low, owners, less_one & _LOW)
        return {
            name: (above << 32) + below + count
            for name, above, below, count in zip(self.names, high.tolist(), low.tolist(), counts, strict=True)
        }

    def shares(self, measure: Any = None) -> dict[str, float]:
        """The part of the whole that each name owns.

        Args:
            measure: What each position counts, as an array of one number a position; by default, all
                positions count alike. Positions of ordered keys and of entries need one.
        """
        if measure is None:
            return {name: size / self.size for name, size in self.sizes().items()}
        counts = np.asarray(measure, np.float64)
        if counts.shape != (self.size,):
            raise ValueError(
                f"a measure has one number for each of {self.size} positions, not {counts.shape}"
            )
        owners = self.indexes_at(np.arange(self.size, dtype=np.uint64))
        total = float(counts.sum())
        parts = np.bincount(owners[owners >= 0], counts[owners >= 0], len(self.names)) / (total or 1.0)
        return dict(zip(self.names, parts.tolist(), strict=True))

    def balance(self, weights: Sequence[float], measure: Any = None) -> Balance:
        """How evenly the names share the whole, relative to the weight of each.

        Raises:
            EmptyRingError: There are no names.
        """
        return relative_balance(np.array(list(self.shares(measure).values())), weights)

    # --- two of them ---

    def diff(self, after: Spans) -> tuple[_Array, _Array, _Array, _Array]:
        """Return what changes its owner: starts, ends (uint64), owners before and after (int64 indexes).

        The ranges are in order, disjoint, and as few as can be: two that touch have other owners.

        Raises:
            ValueError: The sizes differ.

        Cost: O(spans of both * log spans).
        """
        ends, here, there = self._both(after)
        renamed = _renamed(after.names, self.names)
        moved = here != renamed[there]
        starts = np.zeros_like(ends)
        starts[1:] = ends[:-1] + _ONE
        starts, ends, here, there = starts[moved], ends[moved], here[moved], there[moved]
        goes_on = np.zeros(len(ends), np.bool_)
        goes_on[1:] = (starts[1:] == ends[:-1] + _ONE) & (here[1:] == here[:-1]) & (there[1:] == there[:-1])
        firsts, lasts = ~goes_on, np.append(~goes_on[1:], True)[: len(ends)]
        return (
            starts[firsts],
            ends[lasts],
            here[firsts].astype(np.int64, copy=False),
            there[firsts].astype(np.int64, copy=False),
        )

    def splice(self, after: Spans, inside: Ranges) -> Spans:
        """Return the spans whose owners are those of `after` inside some ranges, and these outside.

        It is what owns the positions in the middle of a handover from these spans to `after`.

        >>> before, after = Spans(10, [9], [0], ("a",)), Spans(10, [4, 9], [0, 1], ("a", "b"))
        >>> before.splice(after, Ranges.of([(0, 6)])).ranges("b")
        [KeyRange(start=5, end=6)]
        """
        names = sorted_names(self.names, after.names)
        cuts = np.concatenate((self.ends, after.ends, inside.ends, inside.starts[inside.starts > 0] - _ONE))
        ends = np.unique(cuts)
        if int(ends[-1]) != self.size - 1 or after.size != self.size:
            raise ValueError(f"there are {self.size} positions, and the others end elsewhere")
        here, there = _renamed(self.names, names), _renamed(after.names, names)
        owners = np.where(inside.contains(ends), there[after.indexes_at(ends)], here[self.indexes_at(ends)])
        return type(self)._merged(self.size, ends, owners, names)

    def _both(self, after: Spans) -> tuple[_Array, _Array, _Array]:
        if self.size != after.size:
            raise ValueError(
                f"the spaces have {self.size} and {after.size} positions; they must have as many"
            )
        ends = np.union1d(self.ends, after.ends)
        return ends, self.indexes_at(ends), after.indexes_at(ends)

    # --- identity ---

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spans):
            return NotImplemented
        return (
            (self.size, self.names) == (other.size, other.names)
            and np.array_equal(self.ends, other.ends)
            and np.array_equal(self.owners, other.owners)
        )

    def __hash__(self) -> int:
        return hash((self.size, self.names, self.ends.tobytes(), self.owners.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.size, self.ends, self.owners, self.names)

    def __repr__(self) -> str:
        return f"<Spans: {self.size} positions in {len(self)} spans among {len(self.names)} names>"


_SET_SLOTS = tuple(slot_setter(Spans, name) for name in Spans.__slots__)


def sorted_names(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, in order, each once."""
    return one if one == other else tuple(sorted({*one, *other}))


def relative_balance(shares: _Array, weights: Sequence[float]) -> Balance:
    """Return how far shares are from those that the weights ask for.

    Raises:
        EmptyRingError: There are none.
    """
    if not len(shares):
        raise EmptyRingError("there are no nodes, so nothing is shared; add a node first")
    wanted = np.array(weights, np.float64)
    wanted /= wanted.max()  # so that the sum of huge weights stays finite
    # A node of next to no weight may own keys all the same.
    with np.errstate(over="ignore", invalid="ignore"):
        relative = shares / (wanted / wanted.sum())
        return Balance(float(relative.max()), float(relative.min()), float(relative.std()))


def _renamed(names: tuple[str, ...], into: tuple[str, ...]) -> _Array:
    """For each of `names`, and for nobody at index -1, its index in `into`; below -1 if it is not there."""
    place = {name: i for i, name in enumerate(into)}
    return np.array([*(place.get(name, -2 - i) for i, name in enumerate(names)), -1], np.intp)

"""Ranges of positions, and whether a position is in one of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np

from ringhash.immutable import Immutable, slot_setter
from ringhash.records import number, plain_name, read_number

__all__ = ["KeyRange", "Ranges", "exact_sum"]

_Array = np.ndarray[Any, np.dtype[Any]]
_ONE = np.uint64(1)


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


class Ranges(Immutable):
    """A set of positions, as ranges: in order, disjoint, and joined where they touch; immutable.

    >>> done = Ranges.of([(20, 29), (0, 9), (10, 12)])
    >>> done, 12 in done, done.size, done.contains([9, 13]).tolist()
    (Ranges([0-12, 20-29]), True, 23, [True, False])
    """

    __slots__ = ("ends", "starts")

    starts: _Array
    ends: _Array

    def __new__(cls, starts: Any = (), ends: Any = ()) -> Self:
        """Take the first and last positions of ranges in any order, which may overlap; copied as uint64."""
        firsts, lasts = np.array(starts, np.uint64), np.array(ends, np.uint64)
        if firsts.shape != lasts.shape or firsts.ndim != 1:
            raise ValueError(f"each range needs a start and an end, not {firsts.shape} and {lasts.shape}")
        if (firsts > lasts).any():
            raise ValueError("a range must not end before it starts")
        return cls._joined(firsts, lasts)

    @classmethod
    def _joined(cls, firsts: _Array, lasts: _Array) -> Self:
        self = object.__new__(cls)
        if len(firsts) > 1:
            if (firsts[1:] <= firsts[:-1]).any():
                order = np.argsort(firsts, kind="stable")
                firsts, lasts = firsts[order], lasts[order]
            reach = np.maximum.accumulate(lasts)
            # No end below another start can be the last position, so adding one cannot wrap.
            begins = np.append(True, (firsts[1:] > reach[:-1]) & (firsts[1:] - _ONE > reach[:-1]))
            firsts, lasts = firsts[begins], reach[np.append(begins[1:], True)]
        firsts.flags.writeable = lasts.flags.writeable = False
        _set_starts(self, firsts)
        _set_ends(self, lasts)
        return self

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> Self:
        """Return the set of all positions in `ranges`: pairs of a first and a last position, in any order."""
        pairs = list(ranges)
        return cls([start for start, _ in pairs], [end for _, end in pairs])

    def contains(self, positions: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of many positions are in it, as an array of bool. O(positions * log ranges)."""
        asked = np.asarray(positions)
        if asked.dtype.kind != "u":
            if len(asked) and asked.dtype.kind != "i":
                raise TypeError(f"positions must be integers, not {asked.dtype}")
            if len(asked) and asked.min() < 0:
                raise ValueError("a position is not negative")
            asked = asked.astype(np.uint64)
        if not len(self.starts):
            return np.zeros(len(asked), np.bool_)
        rows = np.searchsorted(self.starts, asked.astype(np.uint64, copy=False), "right")
        return cast("np.ndarray[Any, np.dtype[np.bool_]]", (rows > 0) & (asked <= self.ends[rows - 1]))

    def holds(self, position: int) -> bool:
        """Return whether a position is in it. O(log ranges)."""
        row = bisect_right(cast("Sequence[int]", self.starts), position) - 1
        return row >= 0 and position <= int(self.ends[row])

    def __contains__(self, position: object) -> bool:
        return isinstance(position, (int, np.integer)) and self.holds(int(position))

    @property
    def size(self) -> int:
        """How many positions are in it."""
        return exact_sum(self.ends - self.starts) + len(self.starts)

    def __len__(self) -> int:
        """How many ranges it has."""
        return len(self.starts)

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __iter__(self) -> Iterator[KeyRange]:
        return map(KeyRange, self.starts.tolist(), self.ends.tolist())

    def __or__(self, other: object) -> Self:
        if not isinstance(other, Ranges):
            return NotImplemented
        return type(self)._joined(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends))
        )

    def __le__(self, other: object) -> bool:
        """Return whether every position of it is in `other`."""
        if not isinstance(other, Ranges):
            return NotImplemented
        return (self | other) == other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranges):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.starts, self.ends)

    def __repr__(self) -> str:
        shown = ", ".join(f"{start}-{end}" for start, end in [*self][:4])
        return f"Ranges([{shown}{', ...' if len(self) > 4 else ''}])"

    def to_list(self) -> list[list[int | str]]:
        """Return the ranges as JSON holds them: [[start, end], ...], as text if one is above 2**53."""
        most = int(self.ends[-1]) if len(self.ends) else 0
        return [[number(start, most), number(end, most)] for start, end in self]

    @classmethod
    def read(cls, data: object, where: str, size: int) -> Self:
        """Return the ranges that `to_list` described, of a space of `size` positions.

        Raises:
            ValueError: They are no ranges, or not in order and joined; the message names the place.
        """
        if type(data) is not list:
            raise ValueError(f"{where}: must be a list of [start, end], not {plain_name(data)}")
        pairs: list[tuple[int, int]] = []
        for i, pair in enumerate(data):
            here = f"{where}[{i}]"
            if type(pair) is not list or len(pair) != 2:
                raise ValueError(f"{here}: must be a list [start, end]")
            start, end = (read_number(value, here, 0, size - 1) for value in pair)
            if start > end:
                raise ValueError(f"{here}: must not end before it starts")
            if pairs and start <= pairs[-1][1] + 1:
                raise ValueError(f"{here}: must begin behind the range before it, and not touch it")
            pairs.append((start, end))
        return cls.of(pairs)


_set_starts = slot_setter(Ranges, "starts")
_set_ends = slot_setter(Ranges, "ends")


def exact_sum(sizes: _Array) -> int:
    """Return the sum of an array of uint64, which may have more than 64 bits."""
    low = int((sizes & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    high = int((sizes >> np.uint64(32)).sum(dtype=np.uint64))
    return (high << 32) + low

"""Cutting a plan into the pieces that are handed over one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from ringhash._core import KeySpace
from ringhash.plan import KeyRange, Move, Plan
from ringhash.space import Positions, positions_of

__all__ = ["By", "Piece", "cut"]

By = Literal["pair", "range"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges that go from one node to another together; what every callback is called with.

    `key in piece` says whether a key goes with it, `piece.mask(keys)` says it of many.

    Args:
        number: The place of the piece in its handover, from 0.
        source: The node that gives the ranges away; None for the first node that comes in.
        target: The node that takes them; None for the last node that goes out.
        ranges: The ranges, in order.
        share: Their part of all positions, from 0 to 1.
        back: Whether the piece is on its way back: source and target are exchanged.
        token: Rises with every call, also after a crash. A node that remembers the highest token
            that it has seen for a piece, and refuses a lower one, is safe from a call that was
            delayed on its way (a fencing token, as in Chubby's sequencers).
        repeat: Whether this call may have been made before, by a process that crashed or gave up
            waiting: the callback must do no harm when it was.

    >>> from ringhash import Router
    >>> piece = cut(Router(["gw-1"]).plan(add=["gw-2"]))[0]
    >>> piece.source, piece.target, "user:7" in piece
    ('gw-1', 'gw-2', False)
    """

    number: int
    source: str | None
    target: str | None
    ranges: tuple[KeyRange, ...]
    share: float
    back: bool = False
    token: int = 0
    repeat: bool = False
    _key_space: Positions = field(default_factory=KeySpace, repr=False, compare=False)

    def __contains__(self, key: Any) -> bool:
        return self.holds(self._key_space.position(key))

    def holds(self, position: int) -> bool:
        """Return whether a position goes with the piece. O(log ranges).

        >>> Piece(0, "a", "b", (KeyRange(10, 19),), 0.1).holds(19)
        True
        """
        low, high = 0, len(self.ranges)
        while low < high:
            middle = (low + high) // 2
            if self.ranges[middle].end < position:
                low = middle + 1
            else:
                high = middle
        return low < len(self.ranges) and self.ranges[low].start <= position

    def mask(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of many keys go with the piece, as an array of bool; as `Plan.mask`.

        >>> Piece(0, "a", "b", (KeyRange(0, 2**32 - 1),), 1.0).mask(["x", "y"])
        array([ True,  True])
        """
        positions = positions_of(self._key_space, keys).astype(np.uint64)
        starts = np.array([r.start for r in self.ranges], np.uint64)
        ends = np.array([r.end for r in self.ranges], np.uint64)
        rows = np.searchsorted(starts, positions, "right")
        found: np.ndarray[Any, np.dtype[np.bool_]] = (rows > 0) & (positions <= ends[rows - 1])
        return found

    @property
    def nodes(self) -> frozenset[str]:
        """The one or two nodes that take part."""
        return frozenset(name for name in (self.source, self.target) if name is not None)

    def reversed(self) -> Self:
        """Return the piece as it goes back: source and target exchanged.

        >>> Piece(0, "a", "b", (KeyRange(10, 19),), 0.1).reversed().source
        'b'
        """
        return replace(self, source=self.target, target=self.source, back=not self.back)

    def to_dict(self) -> dict[str, object]:
        """Return the piece as a dictionary that JSON can hold.

        >>> Piece(0, "a", "b", (KeyRange(10, 19),), 0.1).to_dict()["ranges"]
        [[10, 19]]
        """
        return {
            "number": self.number,
            "source": self.source,
            "target": self.target,
            "ranges": [list(r) for r in self.ranges],
            "share": self.share,
            "back": self.back,
            "token": self.token,
            "repeat": self.repeat,
        }


def cut(plan: Plan, by: By = "pair", max_share: float | None = None) -> tuple[Piece, ...]:
    """Return the pieces of a plan, each a whole handover from one node to one other.

    Args:
        plan: Any plan, of a ring or of another placement.
        by: "pair": all ranges of one source and target are one piece. "range": each range is one.
        max_share: The largest part of all positions that one piece may have. A larger piece is
            split at the bounds of its ranges, and a range that is too large inside of it.

    Returns:
        The pieces, in order of source and target, then of their ranges. Together they are the
        moves of the plan, each position once.

    Raises:
        ValueError: `by` is neither of the two, or `max_share` is not above 0 and at most 1.

    Cost: O(moves). Method: the partitions of Dynamo and the slots of Redis Cluster are moved one
    by one in the same way; here the plan says what is one.

    >>> from ringhash import Router
    >>> plan = Router(["gw-1", "gw-2"]).plan(add=["gw-3"])
    >>> [(piece.source, piece.target) for piece in cut(plan)]
    [('gw-1', 'gw-3'), ('gw-2', 'gw-3')]
    >>> max(piece.share for piece in cut(plan, max_share=0.01)) <= 0.01
    True
    """
    if by not in ("pair", "range"):
        raise ValueError(f"by must be 'pair' or 'range', not {by!r}")
    if max_share is not None and not 0 < max_share <= 1:
        raise ValueError(f"max_share must be above 0 and at most 1, not {max_share}")
    most = plan.space if max_share is None else max(1, int(max_share * plan.space))
    found: list[Piece] = []
    for (source, target), ranges in _groups(plan, by):
        for part in _split(ranges, most):
            share = sum(r.size for r in part) / plan.space
            found.append(Piece(len(found), source, target, part, share, _key_space=plan._key_space))
    return tuple(found)


def _groups(plan: Plan, by: By) -> Iterator[tuple[tuple[str | None, str | None], list[KeyRange]]]:
    if by == "range":
        for move in sorted(plan.moves, key=_by_pair):
            yield (move.source, move.target), [move.range]
    else:
        for pair, moves in plan.pairs().items():
            yield pair, [move.range for move in moves]


def _by_pair(move: Move) -> tuple[str, str, int]:
    return move.source or "", move.target or "", move.range.start


def _split(ranges: list[KeyRange], most: int) -> Iterator[tuple[KeyRange, ...]]:
    """Cut `ranges` into runs of at most `most` positions."""
    part: list[KeyRange] = []
    room = most
    for start, end in ranges:
        begin = start
        if part and end - begin + 1 > room:  # rather a new piece than a range in two pieces
            yield tuple(part)
            part, room = [], most
        while end - begin + 1 > room:
            yield (KeyRange(begin, begin + room - 1),)
            begin += room
        part.append(KeyRange(begin, end))
        room -= end - begin + 1
        if room == 0:
            yield tuple(part)
            part, room = [], most
    if part:
        yield tuple(part)

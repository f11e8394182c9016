"""Cutting a plan into the pieces that are handed over one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from ringhash.plan import Move, Plan
from ringhash.ranges import KeyRange, Ranges
from ringhash.records import document, field, read_document
from ringhash.space import Space, space_from

__all__ = ["By", "Piece", "cut"]

By = Literal["pair", "range"]


_NEEDED = frozenset({"number", "source", "target", "ranges", "space"})
_OPTIONAL = frozenset({"share", "back", "token", "repeat"})


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges that go from one node to another together; what every call of a handover is given.

    `key in piece` says whether a key goes with it, `piece.mask(keys)` says it of many. A piece that was
    sent as JSON (`to_dict`, `from_dict`) says the same in any process.

    Args:
        number: The place of the piece in its handover, from 0.
        source: The node that gives the ranges away; None for the first node that comes in.
        target: The node that takes them; None for the last node that goes out.
        ranges: The ranges, in order.
        space: How a key becomes a position.
        share: Their part of all positions, from 0 to 1; None where a placement has no fractions.
        back: Whether the piece is on its way back: source and target are exchanged.
        token: Rises with every call, also after a crash; only one `hold` may have that of another. A
            node that remembers the highest token that it has seen for a piece, and refuses a lower one,
            is safe from a call that was delayed on its way (a fencing token, as in Chubby's sequencers).
        repeat: Whether this call may have been made before, by a process that crashed or gave up
            waiting. The callback must therefore be idempotent.

    >>> from ringhash import Router
    >>> piece = cut(Router(["gw-1"]).plan(add=["gw-2"]))[0]
    >>> piece.source, piece.target, "user:7" in piece
    ('gw-1', 'gw-2', False)
    >>> Piece.from_dict(piece.to_dict()) == piece
    True
    """

    number: int
    source: str | None
    target: str | None
    ranges: Ranges
    space: Space
    share: float | None = None
    back: bool = False
    token: int = 0
    repeat: bool = False

    def __contains__(self, key: Any) -> bool:
        return self.holds(self.space.position(key))

    def holds(self, position: int) -> bool:
        """Return whether a position goes with the piece. O(log ranges)."""
        return self.ranges.holds(position)

    def mask(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which of many keys go with the piece, as an array of bool; as `Plan.mask`.

        >>> from ringhash import Router
        >>> piece = cut(Router(["a"]).plan(remove=["a"]))[0]
        >>> piece.mask(["x", "y"])
        array([ True,  True])
        """
        return self.ranges.contains(self.space.positions(keys))

    @property
    def nodes(self) -> frozenset[str]:
        """The one or two nodes that take part."""
        return frozenset(name for name in (self.source, self.target) if name is not None)

    def reversed(self) -> Self:
        """Return the piece as it goes back: source and target exchanged.

        >>> from ringhash import Router
        >>> cut(Router(["gw-1"]).plan(add=["gw-2"]))[0].reversed().source
        'gw-2'
        """
        return replace(self, source=self.target, target=self.source, back=not self.back)

    def to_dict(self) -> dict[str, object]:
        """Return the piece as a dictionary that JSON can hold, its space included.

        >>> from ringhash import Router
        >>> cut(Router(["gw-1"]).plan(remove=["gw-1"]))[0].to_dict()["ranges"]
        [[0, 4294967295]]
        """
        return document(
            "piece",
            number=self.number,
            source=self.source,
            target=self.target,
            ranges=self.ranges.to_list(),
            space=self.space.to_dict(),
            share=self.share,
            back=self.back,
            token=self.token,
            repeat=self.repeat,
        )

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the piece that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = read_document(data, "piece", "piece", _NEEDED, _OPTIONAL)
        space = space_from(record["space"], "piece.space")
        given = {"share": None, "back": False, "token": 0, "repeat": False, **record}
        share = field(given, "piece", "share", float, int, type(None))
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"piece.share: must be from 0 to 1, not {share}")
        number, token = (field(given, "piece", name, int) for name in ("number", "token"))
        if number < 0 or token < 0:
            raise ValueError("piece: number and token must not be negative")
        source, target = (field(given, "piece", name, str, type(None)) for name in ("source", "target"))
        if source == target or "" in (source, target):
            raise ValueError("piece: source and target must be two nodes, or one of them null")
        return cls(
            number,
            source,
            target,
            Ranges.read(record["ranges"], "piece.ranges", space.size),
            space,
            share,
            field(given, "piece", "back", bool),
            token,
            field(given, "piece", "repeat", bool),
        )


def cut(plan: Plan, by: By = "pair", max_share: float | None = None) -> tuple[Piece, ...]:
    """Return the pieces of a plan, each a whole handover from one node to one other.

    Args:
        plan: Any plan, of a ring or of another placement.
        by: "pair": all ranges of one source and target are one piece. "range": each range is one.
        max_share: The largest part of all positions that one piece may have. A larger piece is
            split at the bounds of its ranges, and a range that is too large inside it, between two
            positions.

    Returns:
        The pieces, in order of source and target, then of their ranges. Together they are the
        moves of the plan, each position once.

    Raises:
        ValueError: `by` is neither of the two; or `max_share` is not above 0 and at most 1, or the
            placement has no shares, as a range map has none.

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
    space = plan.space
    if max_share is not None and not space.measured:
        raise ValueError("max_share: this placement has no shares of keys; cut its plan by='range'")
    most = space.size if max_share is None else max(1, int(max_share * space.size))
    found: list[Piece] = []
    for (source, target), ranges in _groups(plan, by):
        for part in _split(ranges, most):
            held = Ranges.of(part)
            share = held.size / space.size if space.measured else None
            found.append(Piece(len(found), source, target, held, space, share))
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

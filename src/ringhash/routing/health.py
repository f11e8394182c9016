"""Nodes that are down: what answers for them, while the placement stays as it is.

In a placement with a walk, each key of such a node goes to the node that `walk(key)` names next, and comes
back when the node does. Without a walk nobody answers for it: a key has one right node, and another one
would read the wrong data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from ringhash._core import Table
from ringhash.errors import NoNodeAvailableError, NoWalkError
from ringhash.immutable import slot_setter
from ringhash.placement import Layered, Placement, Walkable
from ringhash.space import HashSpace
from ringhash.spans import Spans

if TYPE_CHECKING:
    from ringhash.node import Node
    from ringhash.ranges import Ranges
    from ringhash.space import Space

__all__ = ["Marked", "answering", "answering_between", "no_walk"]

_Indexes = np.ndarray[Any, np.dtype[np.intp]]


def answering(placement: Placement, down: frozenset[str]) -> Placement:
    """Return what answers while the nodes of these names are down; `placement` itself if all are up.

    Cost: with a walk that of `without`, else O(spans).
    """
    here = [name for name in placement.names if name in down]
    if not here:
        return placement
    if isinstance(placement, Layered):
        return placement.over(answering(placement.default, down), down)
    if isinstance(placement, Walkable) and len(here) < len(placement.names):
        return placement.without(*here)
    return Marked(placement, frozenset(here))


def no_walk(placement: Placement) -> NoWalkError:
    """Return the error of what needs a walk, asked of a placement that has none."""
    return NoWalkError(
        f"in a placement of kind {placement.kind!r} a key has one node, and no order of others behind it; "
        "owners, walk and bounded loads need a placement with a walk, such as a ring"
    )


def answering_between(before: Placement, after: Placement, done: Ranges, down: frozenset[str]) -> Placement:
    """Return what answers in the middle of a handover, when the positions of `done` have gone over.

    Cost: that of `Placement.middle`, and of `answering` for both of its ends.
    """
    if isinstance(before, Layered):
        return answering(before.middle(after, done), down)
    ends = [answering(placement, down) for placement in (before, after)]
    if any(isinstance(end, Marked) for end in ends):
        middle = before.middle(after, done)
        return Marked(middle, down & frozenset(middle.names))
    return ends[0].middle(ends[1], done)


class Nobody(Table):
    """The compiled ring of a placement with a walk, all of whose nodes are down."""

    nodes: tuple[Node, ...] = ()

    def _fail_empty(self) -> NoReturn:
        fail_all_down()

    def _fail_count(self, n: object, /) -> NoReturn:  # noqa: ARG002 - as in the base
        fail_all_down()


def fail_all_down() -> NoReturn:
    """Raise the error of a lookup while every node is down."""
    raise NoNodeAvailableError(
        "every node is down; mark one up, or ask router.placement, which does not look at marks"
    )


class Marked(Placement):
    """A placement some of whose nodes are down and that has nobody else to ask."""

    kind = "marked"

    __slots__ = ("_placement", "_spans", "_up", "down")

    down: frozenset[str]
    _placement: Placement
    _spans: Spans | None  # made on demand
    _up: np.ndarray[Any, np.dtype[np.bool_]]

    def __init__(self, placement: Placement, down: frozenset[str]) -> None:
        up = np.array([name not in down for name in placement.names], np.bool_)
        for set_slot, value in zip(_SET_SLOTS, (placement, None, up, down), strict=True):
            set_slot(self, value)

    @property
    def space(self) -> Space:
        """The space of the placement."""
        return self._placement.space

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, up or down."""
        return self._placement.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self._placement.names

    @property
    def digest(self) -> str:
        """That of the placement, since marks change nothing that is shared."""
        return self._placement.digest

    def owner(self, key: Any, /) -> str:
        """Return the owner of a key, or raise `NoNodeAvailableError` if it is down."""
        name = self._placement.owner(key)
        if name in self.down:
            self._fail(name)
        return name

    def owner_at(self, position: int) -> str:
        """Return the owner of a position, or raise `NoNodeAvailableError` if it is down."""
        name = self._placement.owner_at(position)
        if name in self.down:
            self._fail(name)
        return name

    def index_many(self, keys: Any) -> _Indexes:
        """Return the owners of many keys as indexes into `nodes`; or raise as `owner` does."""
        return self.up_or_pinned(keys, None)

    def up_or_pinned(self, keys: Any, seats: np.ndarray[Any, Any] | None) -> _Indexes:
        """As `index_many`, where a key that has a seat of its own (0 or above) needs no node that is up."""
        indexes = self._placement.index_many(keys)
        gone = ~self._up[indexes]
        if seats is not None:
            gone &= seats < 0
        if gone.any():
            self._fail(self.names[int(indexes[np.argmax(gone)])])
        return indexes

    @property
    def spans(self) -> Spans:
        """The spans of the placement; those of a node that is down belong to nobody."""
        if self._spans is None:
            spans = self._placement.spans
            up = np.array([name not in self.down for name in spans.names] + [False])
            owners = np.where(up[spans.owners], spans.owners, -1)
            _SET_SLOTS[1](self, Spans(spans.size, spans.ends, owners, spans.names))
        return cast("Spans", self._spans)

    def table(self) -> object:
        """Return what the compiled snapshot asks: itself, or a ring without points where all could walk."""
        space = self.space
        nobody = len(self.down) == len(self.names) and isinstance(self._placement, Walkable)
        if nobody and isinstance(space, HashSpace):
            return Nobody((), (), space.seed, space.hash_tags)
        return self

    def fail_to_walk(self) -> NoReturn:
        """Raise why there is no walk: every node is down, or the placement never had one."""
        if not isinstance(self._placement, Walkable):
            raise no_walk(self._placement)
        fail_all_down()

    def _fail(self, name: str) -> NoReturn:
        if len(self.down) == len(self.names):
            fail_all_down()
        raise NoNodeAvailableError(
            f"the key belongs to {name!r}, which is down, and this placement has no walk to another node; "
            "mark it up, or move what it owns"
        )


_SET_SLOTS = tuple(slot_setter(Marked, name) for name in Marked.__slots__)

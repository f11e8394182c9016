"""The state of a router at one moment: the placement, what is down, the pins, the handover, the epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ringhash._core import EntryTable, Snapshot
from ringhash.batch import readable
from ringhash.errors import PinnedNodeError, StalePlanError
from ringhash.membership import find_name
from ringhash.placement import Placement, Walkable, verified
from ringhash.routing.health import Marked, answering, answering_between, no_walk
from ringhash.routing.pins import Pin, Pins
from ringhash.routing.route import Route
from ringhash.routing.running import Running
from ringhash.space import HashSpace, ModuloSpace

if TYPE_CHECKING:
    from ringhash.node import Node
    from ringhash.plan import Plan
    from ringhash.space import Space

__all__ = ["Change", "RouterSnapshot"]

_Indexes = np.ndarray[Any, np.dtype[np.intp]]
_NO_PINS = Pins()


class Change(NamedTuple):
    """The last change of a placement: its plan, and the seconds until the new one was ready."""

    plan: Plan
    seconds: float


class RouterSnapshot(Snapshot):
    """A router at one moment. It never changes, so reading it needs no lock.

    Attributes:
        placement: What all routers share; while a handover runs, the placement before it.
        epoch: How many changes there have been.
        pins: The pinned keys.
        down: The names of the nodes that are down, as this router sees it.
        running: The handover under way, or None.
        last: The last change of the placement, None before the first.
        answering: What answers now: the placement without the nodes that are down; in the middle of a
            handover, what lies between its two ends.

    Thread-safe.
    """

    __slots__ = (
        "_numbers", "_seats", "answering", "down", "epoch", "last", "pins", "placement", "running",
    )  # fmt: skip

    placement: Placement
    epoch: int
    pins: Pins
    down: frozenset[str]
    running: Running | None
    last: Change | None
    answering: Placement
    _numbers: _Indexes | None  # of each name of `answering` its index in `names`; made on demand
    _seats: tuple[str, ...]  # the nodes of pins that are up; the values of `entries` are indexes into it

    def __new__(
        cls,
        placement: Placement,
        epoch: int = 0,
        pins: Pins = _NO_PINS,
        down: frozenset[str] = frozenset(),
        running: Running | None = None,
        last: Change | None = None,
        *,
        answers: Placement | None = None,
    ) -> Self:
        """Make it; `answers` is what would be computed for `answering`, where it is known already."""
        if answers is None:
            if running is None:
                answers = answering(placement, down)
            else:
                answers = answering_between(running.before, running.after, running.done, down)
        live = [pin for pin in pins.values() if pin.node not in down] if pins else []
        seats = tuple(sorted({pin.node for pin in live}))
        numbers = {name: number for number, name in enumerate(seats)}
        table: Any = answers.table() if isinstance(answers, Marked) else answers
        entries = None
        if live and isinstance(placement.space, (HashSpace, ModuloSpace)):
            values = [numbers[pin.node] for pin in live]
            space = placement.space
            entries = EntryTable([pin.key for pin in live], values, space.seed, space.hash_tags)
        elif live:
            table = _Pinned(table, placement.space, {pin.key: pin.node for pin in live})
        self = Snapshot.__new__(cls, table, entries, seats)
        self.placement = placement
        self.epoch = epoch
        self.pins = pins
        self.down = down
        self.running = running
        self.last = last
        self.answering = answers
        self._numbers = None
        self._seats = seats
        return self

    # --- what follows it ---

    def _with(self, **fields: Any) -> Self:
        """Return this snapshot with other values of some fields."""
        now = {
            name: getattr(self, name) for name in ("placement", "epoch", "pins", "down", "running", "last")
        }
        same = fields.keys() <= {"epoch", "pins", "last"}
        return type(self)(**{**now, **fields}, answers=self.answering if same else None)

    def changed(self, plan: Plan, after: Placement, began: float, epoch: int) -> Self:
        """Return what follows when the placement is `after`: marks and pins of nodes that left are gone."""
        return self._with(
            placement=after.written(plan, epoch),
            epoch=epoch,
            pins=self.pins.without(self.unpins(plan)),
            down=frozenset(name for name in self.down if name in after),
            running=None,
            last=Change(plan, time.perf_counter() - began),
        )

    def returned(self, epoch: int) -> Self:
        """Return what follows when the running handover has gone back."""
        down = frozenset(name for name in self.down if name in self.placement)
        return self._with(epoch=epoch, down=down, running=None)

    def amid(self, running: Running) -> Self:
        """Return what follows when a handover is as far as `running` says."""
        return self._with(epoch=running.epoch, running=running)

    def marked(self, down: frozenset[str]) -> Self:
        """Return what follows when just these nodes are down."""
        return self._with(down=down)

    def pinned(self, pins: Pins, epoch: int) -> Self:
        """Return what follows with these pins."""
        return self._with(pins=pins, epoch=epoch)

    # --- what may follow it ---

    def plannable(self) -> tuple[Placement, int | None]:
        """Return what a plan is made from, and its epoch: None if it waits for the handover that runs."""
        return (self.placement, self.epoch) if self.running is None else (self.running.after, None)

    def refuse(self) -> None:
        """Raise `HandoverRunningError` if a handover runs."""
        if self.running is not None:
            raise self.running.refuse()

    def after(self, plan: Plan, allow_unpin: bool) -> Placement:
        """Return the placement that a plan leads to, or raise what `Router.apply` raises."""
        self.refuse()
        if plan.epoch is not None and plan.epoch != self.epoch:
            raise StalePlanError(
                f"the plan was made at epoch {plan.epoch}, and the router is at epoch {self.epoch}; "
                "make a new plan"
            )
        after = verified(self.placement, plan)
        self.check_pins(plan, allow_unpin)
        return after

    def unpins(self, plan: Plan) -> tuple[Pin, ...]:
        """Return the pins that end with a plan, since their nodes leave."""
        if not self.pins:
            return ()
        return self.pins.to(
            change.before.name for change in plan.changes.nodes if change.before and not change.after
        )

    def check_pins(self, plan: Plan, allow_unpin: bool) -> None:
        """Raise `PinnedNodeError` if a plan takes a node that keys are pinned to."""
        ended = () if allow_unpin else self.unpins(plan)
        if ended:
            raise PinnedNodeError(
                f"the change takes nodes that keys are pinned to ({len(ended)} keys), such as "
                f"{ended[0].key!r} to {ended[0].node!r}; unpin them, or say allow_unpin=True"
            )

    def check_seat(self, node: str) -> None:
        """Raise unless a key may be pinned to a node of this name."""
        find_name(self.placement.names, node)
        if self.running is not None and node not in self.running.after:
            raise PinnedNodeError(f"the handover that runs takes {node!r} out; pin to a node that stays")

    # --- lookups ---

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names; while a handover runs, those of before and after."""
        if self.running is None:
            return self.placement.nodes
        both = {node.name: node for node in (*self.placement.nodes, *self.running.after.nodes)}
        return tuple(both[name] for name in sorted(both))

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self.placement.names if self.running is None else tuple(node.name for node in self.nodes)

    def route(self, key: Any) -> Route:
        """Return where a key goes now."""
        pinned = self._pinned(key)
        if pinned is not None:
            return Route(pinned, self.epoch)
        node = self.answering.owner(key)
        move, done = (None, False) if self.running is None else self.running.move_of(key)
        if move is None:
            return Route(node, self.epoch)
        return Route(node, self.epoch, not done, move.source, move.target)

    def _pinned(self, key: Any) -> str | None:
        """The node that a key is pinned to, if it is up."""
        if not self._seats:
            return None
        pin = self.pins.get(self.placement.space.key_bytes(key))
        return None if pin is None or pin.node in self.down else pin.node

    def index_many(self, keys: Any) -> _Indexes:
        """Return the owners of many keys, as indexes into `nodes`."""
        keys, seats = self._seated(keys)
        answers = self.answering
        if isinstance(answers, Marked):
            indexes = answers.up_or_pinned(keys, seats)
        else:
            indexes = answers.index_many(keys)
        if self._numbers is None:
            self._numbers = _numbering(answers.names, self.names)
        indexes = self._numbers[indexes]
        if seats is not None:
            pinned = seats >= 0
            indexes[pinned] = _numbering(self._seats, self.names)[seats[pinned]]
        return indexes

    def owner_many(self, keys: Any) -> list[str]:
        """Return the owners of many keys, by name."""
        if isinstance(self.answering, Marked):
            names = self.names
            return [names[index] for index in self.index_many(keys).tolist()]
        keys, seats = self._seated(keys)
        owners = self.answering.owner_many(keys)
        if seats is not None:
            for row in np.flatnonzero(seats >= 0).tolist():
                owners[row] = self._seats[seats[row]]
        return owners

    def _seated(self, keys: Any) -> tuple[Any, np.ndarray[Any, Any] | None]:
        """Many keys in a form that can be read twice, and of each the place of its node in `_seats`."""
        if not self._seats:
            return keys, None
        keys = _kept(keys)
        if self.entries is not None:
            return keys, self.entries.find_many(readable(keys))
        numbers = {name: number for number, name in enumerate(self._seats)}
        found = (self._pinned(key) for key in keys)
        return keys, np.array([-1 if name is None else numbers[name] for name in found], np.intp)

    # What the compiled snapshot asks for where there is no compiled ring.

    def _owners_without_ring(self, key: Any, n: int, distinct: Any, strict: bool) -> tuple[str, ...]:
        return self._walkable().owners(key, n, distinct, strict)

    def _walk_without_ring(self, key: Any) -> Iterator[str]:
        walk = self._walkable().walk(key)
        pinned = self._pinned(key)
        return walk if pinned is None else _ahead(pinned, walk)

    def _position_without_ring(self, key: Any) -> int:
        return self.placement.space.position(key)

    def _walkable(self) -> Walkable:
        answers = self.answering
        if isinstance(answers, Walkable):
            return answers
        if isinstance(answers, Marked):
            answers.fail_to_walk()
        raise no_walk(self.placement)

    def identity(self) -> tuple[object, ...]:
        """What makes two routers equal: all of it but the marks, which are each router's own."""
        return self.placement, self.epoch, dict(self.pins), self.running


def _ahead(first: str, walk: Iterator[str]) -> Iterator[str]:
    yield first
    yield from (name for name in walk if name != first)


class _Pinned:
    """A placement and pins, asked in Python: for keys that the compiled table of entries cannot read."""

    __slots__ = ("_answers", "_pins", "_space")

    def __init__(self, answers: Placement, space: Space, pins: dict[bytes, str]) -> None:
        self._answers = answers
        self._space = space
        self._pins = pins

    def owner(self, key: Any, /) -> str:
        pinned = self._pins.get(self._space.key_bytes(key))
        return self._answers.owner(key) if pinned is None else pinned


def _numbering(names: tuple[str, ...], into: tuple[str, ...]) -> _Indexes:
    """Of each of `names` its index in `into`."""
    place = {name: number for number, name in enumerate(into)}
    return np.array([place[name] for name in names], np.intp)


def _kept(keys: Any) -> Any:
    """Return many keys in a form that can be read more than once."""
    if isinstance(keys, (list, tuple, str, bytes, bytearray, memoryview)):
        return keys  # those that are one key are refused by `readable`
    if any(hasattr(keys, name) for name in ("__array__", "__arrow_c_array__", "__arrow_c_stream__")):
        return keys
    return tuple(keys) if isinstance(keys, Iterable) else keys

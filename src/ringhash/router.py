"""The router: the ring of the moment, and the changes it goes through."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from ringhash._core import Live, own_methods
from ringhash.health import displaced
from ringhash.live import LiveView, Route
from ringhash.membership import Adds, changes_between, changes_for, find_name
from ringhash.node import Node, plain_type
from ringhash.pins import Pin, Pins
from ringhash.plan import Moves, Plan
from ringhash.ramp import Ramp, ramp
from ringhash.records import check_fields, field
from ringhash.ring import Ring
from ringhash.state import State
from ringhash.stats import RouterStats, stats_of
from ringhash.transit import Transit

if TYPE_CHECKING:
    from ringhash._core import _Key

__all__ = ["Route", "Router"]

_FIELDS = frozenset({"epoch", "ring"})
_OPTIONAL_FIELDS = frozenset({"handover", "pins"})


@own_methods
class Router(Live, LiveView[State]):
    """The live view of a ring: members that come and go, an epoch, and plans.

    Every change builds a new `Ring` and swaps it in: a reader never waits for a writer and never
    sees half a change. Changes made at once by several threads come one after another. The lookups
    `owner`, `owners`, `walk`, `position` and `router[key]` are compiled and as fast as the ring's.

    Lookups answer with nodes that are up, and pinned keys go to their own node. `ring` is neither:
    it is the members and their points, which is what all routers share.

    Args:
        nodes: As for `Ring`, or a `Ring` to start with.
        options: `vnodes`, `seed` and `hash_tags`, as for `Ring`.

    Raises:
        DuplicateNodeError, TypeError, ValueError: As `Ring` does.

    >>> router = Router(["gw-1", "gw-2", "gw-3"])
    >>> plan = router.plan(add=["gw-4"])     # looks, changes nothing
    >>> router.apply(plan)
    >>> router.epoch, "gw-4" in router
    (1, True)
    """

    __slots__ = ("_lock", "_state")

    _what = "a ring"
    _state: State

    def __init__(self, nodes: Ring | Iterable[str | Node] | Mapping[str, float] = (), **options: Any) -> None:
        if isinstance(nodes, Ring):
            if options:
                raise TypeError(f"a Ring has its options already; drop {', '.join(options)}")
            ring = nodes
        else:
            ring = Ring(nodes, **options)
        self._start(State(ring))

    def _start(self, state: State) -> None:
        self._lock = threading.Lock()
        self._commit(state)

    def _commit(self, state: State) -> None:
        self._state = state
        self._swap(state.table, dict(state.live_pins.nodes) or None)

    @property
    def ring(self) -> Ring:
        """The ring of the moment, an immutable snapshot; while a handover runs, the one before it."""
        return self._state.ring

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names; while a handover runs, those of before and after."""
        return self._state.nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[str]:
        return (node.name for node in self.nodes)

    def __contains__(self, name: object) -> bool:
        state = self._state
        return name in state.ring or (state.transit is not None and name in state.transit.after)

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """As `Ring.index_many`, answering with nodes that are up. The indexes are into `router.nodes`
        of the moment: where the members may change meanwhile, ask for the names."""
        return self._state.index_many(keys)

    def owner_many(self, keys: Any) -> list[str]:
        """As `Ring.owner_many`; all answers are of one moment."""
        return self._state.owner_many(keys)

    def route(self, key: Any) -> Route:
        """Return the owner of a key, as of which epoch, and whether a handover is to move it.

        Args:
            key: As for `owner`.

        Raises:
            EmptyRingError, TypeError, OverflowError: As for `owner`.

        Cost: a lookup; while a handover runs also O(log moves).

        >>> Router(["gw-1"]).route("user:7")
        Route(node='gw-1', epoch=0, moving=False, source=None, target=None)
        """
        state = self._state
        pinned = state.pinned_to(key)
        if pinned is not None:
            return Route(pinned, state.epoch)
        return self._routed(state, key, state.table.owner(key))

    def plan(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
    ) -> Plan:
        """Return the exact moves that a change would bring, and change nothing.

        Args:
            add: Names or `Node`s, or a mapping of names to weights.
            remove: Names. A name that is also in `add` is replaced.
            reweight: New weights, by name.

        Raises:
            DuplicateNodeError: A node to add is there already.
            UnknownNodeError: A node to remove or reweight is not there.
            TypeError, ValueError: The change is malformed.

        Cost: O(points); a change of one node in 1,000 takes a fraction of a millisecond.

        >>> Router(["gw-1"]).plan(remove=["gw-1"]).moves[0]
        Move(range=KeyRange(start=0, end=4294967295), source='gw-1', target=None)
        """
        state = self._state
        changes = changes_for(state.ring.names, state.ring.nodes, add, remove, reweight)
        return state.planned(changes)[0]

    def update(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
        *,
        allow_unpin: bool = False,
    ) -> Plan:
        """Make one atomic change and return its plan; arguments and errors as for `plan`.

        The epoch goes up by one, unless nothing changes.

        Args:
            allow_unpin: Whether a node may be removed that keys are pinned to. Their pins end.

        Raises:
            PinnedNodeError: Keys are pinned to a node to be removed. Nothing was changed.
        """
        with self._lock:
            self._refuse()
            began = time.perf_counter()
            state = self._state
            changes = changes_for(state.ring.names, state.ring.nodes, add, remove, reweight)
            state.check_pins(changes, allow_unpin)
            plan, after = state.planned(changes)
            if changes:
                self._commit(state.changed(plan, after, began))
        return plan

    def add(self, *nodes: str | Node) -> Plan:
        """Add nodes and return the plan of what moved.

        Raises:
            DuplicateNodeError: A node of that name is there already.

        >>> router = Router(["gw-1", "gw-2"])
        >>> set(router.add("gw-3").by_target())
        {'gw-3'}
        """
        return self.update(add=nodes)

    def remove(self, *names: str, allow_unpin: bool = False) -> Plan:
        """Remove nodes and return the plan of what moved.

        Raises:
            UnknownNodeError: There is no node of that name.
            PinnedNodeError: As for `update`.
        """
        return self.update(remove=names, allow_unpin=allow_unpin)

    def reweight(self, name: str, weight: float) -> Plan:
        """Give a node another weight and return the plan of what moved: only to or from it.

        Raises:
            UnknownNodeError: There is no node of that name.
            TypeError, ValueError: The weight is not a finite number above 0.
        """
        return self.update(reweight={name: weight})

    def ramp(self, node: str | Node, over: float, steps: int = 10, start: float = 0.1) -> Ramp:
        """Return a list of plans that take a node from a small weight to its full one: a slow start.

        Args:
            node: A member, which ramps to the weight that it has now; or a `Node` with its full
                weight, which ramps from there on when it is a member, or comes in with the first
                plan when it is none.
            over: Seconds from the first plan to the last. `times` of the list says when each is due.
            steps: How many plans.
            start: The part of its full weight that the first plan gives it.

        Raises:
            TypeError, ValueError: An argument is malformed.

        Each plan is minimal and moves only what goes to the node (the first one, of a member, from
        it); no key moves twice. Each is made for the epoch that the one before leaves, so another
        change in between makes the rest stale: then ask for the rest again, with a `Node`.

        Method: slow start, as in Envoy and HAProxy. Cost: that of `steps` changes.

        >>> router = Router(["gw-1", "gw-2"])
        >>> for plan in router.ramp("gw-3", over=60, steps=4):
        ...     router.apply(plan)  # and then wait 20 seconds
        >>> router.ring.node("gw-3").weight
        1.0
        """
        return ramp(self._state.ring, self._state.epoch, node, over, steps, start)

    def apply(self, plan: Plan, *, allow_unpin: bool = False) -> None:
        """Make the change that a plan describes, whether it was made here or read from JSON.

        Args:
            allow_unpin: As for `update`. The pins that count are those of now.

        Raises:
            PinnedNodeError: As for `update`.
            StalePlanError: The members, the options or the epoch are not those that the plan was
                made for. Nothing was changed; make a new plan.
            ValueError: The plan is not true: its changes do not lead where it says, or its moves are
                not those of its changes.
            HandoverRunningError: A handover is carrying out another plan.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"apply takes a Plan, not {plain_type(plan)}")
        with self._lock:
            self._refuse()
            began = time.perf_counter()
            state = self._state
            after = self._after(plan, allow_unpin=allow_unpin)
            if plan.changes:
                self._commit(state.changed(plan, after, began))

    def _changed(self, plan: Plan) -> Ring:
        ring = self._state.ring
        return ring._changed(plan.changes) if plan.changes else ring

    def _middle(self, plan: Plan, after: Ring, done: Any, epoch: int) -> Transit:
        state = self._state
        return Transit.of(state.ring, after, plan, done, epoch, state.down)

    def _after(self, plan: Plan, *, allow_unpin: bool = False) -> Ring:
        """The ring that a plan leads to, or an error why it cannot."""
        state = self._state
        self._check_made_for(plan)
        after = self._changed(plan)
        if after.digest != plan.after:
            raise ValueError(
                f"the changes of the plan lead to a ring of digest {after.digest}, and it names "
                f"{plan.after}: it was edited, or its two rings differ in vnodes, and a router keeps its "
                "options; make a new plan"
            )
        if not plan._moves_as(state.ring._plan(after, plan.changes, plan.epoch)):
            raise ValueError(
                "the moves of the plan are not those of its changes: it was edited; make a new plan"
            )
        state.check_pins(plan.changes, allow_unpin)
        return after

    # --- health ---

    @property
    def down(self) -> tuple[str, ...]:
        """The names of the nodes that are marked down, in order."""
        return tuple(sorted(self._state.down))

    def mark_down(self, *names: str) -> bool:
        """Let other nodes answer for these, which stay members; return whether one was up.

        Each key of such a node goes to the node that `walk(key)` names next. That is no change of
        ownership: there is no plan, and the epoch stays. A mark is this router's own: `to_dict` is
        without it, and it goes when the node is removed.

        Raises:
            UnknownNodeError: There is no node of that name. Nothing was marked.

        Cost: at most that of `remove`. A lookup costs what it cost before.

        >>> router = Router(["gw-1", "gw-2", "gw-3"])
        >>> first, second, third = router.walk("user:7")
        >>> router.mark_down(first), router.owner("user:7") == second
        (True, True)
        >>> router.mark_up(first), router.owner("user:7") == first
        (True, True)
        """
        return self._mark(names, frozenset.union)

    def mark_up(self, *names: str) -> bool:
        """Take marks away, so that every key comes back; return whether one was down.

        Cost and errors as for `mark_down`.
        """
        return self._mark(names, frozenset.difference)

    def _mark(
        self, names: tuple[str, ...], change: Callable[[frozenset[str], set[str]], frozenset[str]]
    ) -> bool:
        with self._lock:
            state = self._state
            for name in names:
                find_name(state.names, name)
            down = change(state.down, set(names))
            if down == state.down:
                return False
            self._commit(state.marked(down))
        return True

    def displaced(self, name: str) -> Moves:
        """Return the ranges of a node that is down, as moves from it to the nodes that serve them.

        There are none when it is up. `target` is None when every node is down. Pinned keys are not
        looked at.

        Raises:
            UnknownNodeError: There is no node of that name.

        >>> router = Router(["gw-1", "gw-2", "gw-3"])
        >>> router.mark_down("gw-2")
        True
        >>> moves = router.displaced("gw-2")
        >>> round(moves.fraction, 9) == round(router.ring.shares["gw-2"], 9)
        True
        """
        state = self._state
        find_name(state.ring.names, name)
        return displaced(state.ring, state.live, name)

    # --- pins ---

    @property
    def pins(self) -> Mapping[bytes, str]:
        """The pinned keys, as the bytes that would be hashed, and the node of each; read-only."""
        return self._state.pins.nodes

    def pin(self, key: _Key, node: str) -> None:
        """Let `key` go to `node`, whatever the ring says; an older pin of the key ends.

        A key counts by the bytes that would be hashed: a str and its UTF-8 are one key, and with
        hash tags a pin of one key is a pin of all keys of that tag. While the node is down, the key
        goes where it would without the pin. Pins are part of `to_dict`; the epoch stays.

        Raises:
            UnknownNodeError: There is no node of that name.
            TypeError, OverflowError, UnicodeEncodeError: As for `owner`.

        Cost: O(pins). A lookup costs at most 1.3 times as much while there are pins.

        >>> router = Router(["gw-1", "gw-2"])
        >>> router.pin("tenant:7", "gw-2")
        >>> router.owner(b"tenant:7"), dict(router.pins)
        ('gw-2', {b'tenant:7': 'gw-2'})
        """
        with self._lock:
            state = self._state
            find_name(state.ring.names, node)
            key_bytes = state.ring._key_bytes(key)
            self._commit(state.pinned(state.pins.with_pin(key_bytes, str(node))))

    def unpin(self, key: _Key) -> bool:
        """Let `key` go where the ring says; return whether it was pinned. Cost: O(pins)."""
        with self._lock:
            state = self._state
            key_bytes = state.ring._key_bytes(key)
            if key_bytes not in state.pins.nodes:
                return False
            self._commit(state.pinned(state.pins.without([Pin(key_bytes, "")])))
        return True

    def stats(self) -> RouterStats:
        """Return the measures of the moment, of each node and over all. O(points).

        >>> Router(["gw-1"]).stats().nodes[0].share
        1.0
        """
        return stats_of(self._state)

    def _follow(self, nodes: tuple[Node, ...], epoch: int) -> Plan:
        """Take over the members that others have agreed on, with their epoch; pins to those gone end."""
        with self._lock:
            self._refuse()
            began = time.perf_counter()
            state = self._state
            plan, after = state.planned(changes_between(state.ring.nodes, nodes))
            self._commit(state.changed(plan, after, began, epoch))
        return plan

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Router):
            return NotImplemented
        return self._identity() == other._identity()

    def _identity(self) -> tuple[object, ...]:
        state = self._state
        return state.ring, state.epoch, state.pins.nodes, state.transit

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        restore, arguments = self.__reduce__()
        return cast("Self", restore(*arguments))

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._state
        transit = None if state.transit is None else state.transit.to_dict()
        return type(self)._restored, (state.ring, state.epoch, tuple(state.pins), state.down, transit)

    @classmethod
    def _restored(
        cls,
        ring: Ring,
        epoch: int,
        pins: Iterable[Pin] = (),
        down: frozenset[str] = frozenset(),
        handover: object = None,
    ) -> Self:
        self = cls.__new__(cls)
        state = State(ring, epoch, Pins(pins), down)
        if handover is not None:
            state = state.between(Transit.from_dict(handover, ring, epoch, down))
        self._start(state)
        return self

    def __repr__(self) -> str:
        state = self._state
        down = f", {len(state.down)} down" if state.down else ""
        return f"<{type(self).__name__} at epoch {state.epoch}: {state.ring!r}{down}>"

    def to_dict(self) -> dict[str, object]:
        """Return the router as a dictionary that JSON can hold: its epoch, its ring and its pins.

        `pins` is a field of it only where there are any, and `handover`, the plan and the ranges that
        are done, only while one runs.
        """
        state = self._state
        pins = {"pins": [pin.to_dict() for pin in state.pins]} if state.pins else {}
        running = {} if state.transit is None else {"handover": state.transit.to_dict()}
        return {"epoch": state.epoch, "ring": state.ring.to_dict(), **pins, **running}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the router that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, "router", _FIELDS, optional=_OPTIONAL_FIELDS)
        epoch = field(record, "router", "epoch", int)
        if epoch < 0:
            raise ValueError(f"router.epoch: must not be negative, not {epoch}")
        ring = Ring.from_dict(record["ring"])
        pins = Pin.list_from(record.get("pins", []), "router.pins")
        for pin in pins:
            if pin.node not in ring:
                raise ValueError(f"router.pins: {pin.key!r} is pinned to {pin.node!r}, which is no node")
        return cls._restored(ring, epoch, pins, handover=record.get("handover"))

"""The router: the placement of the moment, and the changes it goes through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from ringhash._core import LiveLookup, own_methods
from ringhash.membership import Adds, find_name
from ringhash.node import Node, nodes_from, plain_name_of, plain_type
from ringhash.placement import Placement, default_placement
from ringhash.plan import Plan
from ringhash.routing.carry import carried
from ringhash.routing.pins import Pin, Pins
from ringhash.routing.record import read, written
from ringhash.routing.request import Request, to_become
from ringhash.routing.route import Route
from ringhash.routing.running import Progress, Running, check_phase
from ringhash.routing.snapshot import RouterSnapshot

if TYPE_CHECKING:
    from ringhash._core import _Key

__all__ = ["Router"]

_T = TypeVar("_T")
_Step = Callable[[RouterSnapshot], tuple[RouterSnapshot, _T]]


@own_methods
class Router(LiveLookup):
    """The live view of a placement: nodes that come and go, an epoch, and plans.

    Every change builds a new placement and swaps it in, so a reader never waits for a writer and never
    sees half a change. The lookups `owner`, `owners`, `walk`, `position` and `router[key]` are compiled
    and as fast as those of the placement.

    Lookups answer with nodes that are up, and pinned keys go to a node of their own. `placement` is what
    all routers share: it knows neither marks nor pins.

    Args:
        nodes: A placement of any kind (`Ring`, `Assignment`, ...), or nodes as for `Ring`.
        options: `vnodes`, `seed` and `hash_tags` as for `Ring`; none if a placement is given.

    Raises:
        DuplicateNodeError, TypeError, ValueError: As `Ring` does.

    Thread-safe: changes that several threads make come one after another, and nobody waits for a lock.

    >>> router = Router(["gw-1", "gw-2", "gw-3"])
    >>> plan = router.plan(add=["gw-4"])     # looks, changes nothing
    >>> router.apply(plan)
    >>> router.epoch, "gw-4" in router
    (1, True)
    """

    __slots__ = ()

    snapshot: RouterSnapshot

    def __init__(
        self, nodes: Placement | Iterable[str | Node] | Mapping[str, float] = (), **options: Any
    ) -> None:
        if not isinstance(nodes, Placement):
            nodes = default_placement(nodes, **options)
        elif options:
            raise TypeError(f"a placement has its options already; leave out {', '.join(sorted(options))}")
        self._start(RouterSnapshot(nodes))

    def _start(self, snapshot: RouterSnapshot) -> None:
        self._publish(snapshot, self.snapshot)

    def _change(self, step: _Step[_T]) -> _T:
        """Publish what `step` makes of the snapshot, and return what else it returns.

        There is no lock: if another change came in between, from another thread, a signal handler or a
        finaliser, the step is taken again, on what that left. A step runs nobody else's code.
        """
        while True:
            seen = self.snapshot
            following, result = step(seen)
            if following is seen or self._publish(following, seen):
                return result

    # --- what it is now ---

    @property
    def placement(self) -> Placement:
        """The placement of the moment, immutable; while a handover runs, the one before it."""
        return self.snapshot.placement

    @property
    def epoch(self) -> int:
        """How many changes there have been, 0 at the start. A pin and a step of a handover are changes."""
        return self.snapshot.epoch

    @property
    def running(self) -> Running | None:
        """The handover under way, or None."""
        return self.snapshot.running

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names; while a handover runs, those of before and after."""
        return self.snapshot.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self.snapshot.names

    def __len__(self) -> int:
        return len(self.snapshot.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot.names)

    def __contains__(self, name: object) -> bool:
        return name in self.snapshot.names

    # --- lookups: owner, owners, walk, position and router[key] are compiled, in _core ---

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `nodes` of the moment; as `Ring.index_many`.

        If the nodes may change meanwhile, ask `owner_many` for their names.
        """
        return self.snapshot.index_many(keys)

    def owner_many(self, keys: Any) -> list[str]:
        """Return the owners of many keys, all of one moment; as `Ring.owner_many`."""
        return self.snapshot.owner_many(keys)

    def owner_at(self, position: int) -> str:
        """Return the node that answers for a position, whatever keys are pinned there."""
        return self.snapshot.answering.owner_at(position)

    def route(self, key: Any) -> Route:
        """Return the owner of a key, the epoch of the answer, and whether a handover will move the key.

        Args:
            key: As for `owner`.

        Raises:
            EmptyRingError, NoNodeAvailableError, TypeError, OverflowError: As for `owner`.

        Cost: a lookup; while a handover runs also O(log moves).

        >>> Router(["gw-1"]).route("user:7")
        Route(node='gw-1', epoch=0, moving=False, source=None, target=None)
        """
        return self.snapshot.route(key)

    def check(self, key: Any, node: str, epoch: int | None = None) -> None:
        """Return if `node` owns the key; a node asks this of a request that a client brought.

        Args:
            key: As for `owner`.
            node: The node that asks: its own name.
            epoch: The epoch of the route that brought the client here, if it has one.

        Raises:
            Moved: Another node owns the key; `to` and `epoch` tell the client where to go.
            StaleRouterError: The client has seen a later epoch than this router. Bring the router
                up to date (`follow`) and check again: sending the client away would send it back.

        A client that follows `Moved` reaches the owner in two hops at most while one handover runs,
        however old its route was.

        >>> router = Router(["gw-1"])
        >>> router.check("user:7", "gw-1", epoch=0)
        >>> router.check("user:7", "gw-2", epoch=0)
        Traceback (most recent call last):
        ringhash.errors.Moved: the key belongs to 'gw-1' as of epoch 0
        """
        self.snapshot.route(key).check(node, epoch)

    # --- plans ---

    def plan(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
    ) -> Plan:
        """Return the exact moves of a change of the nodes, and change nothing.

        While a handover runs, the plan is made from where it leads (`running.after`), to follow it.

        Args:
            add: Names or `Node`s, or a mapping of names to weights.
            remove: Names. A name that is also in `add` is replaced.
            reweight: New weights, by name.

        Raises:
            DuplicateNodeError: A node to add is there already.
            UnknownNodeError: A node to remove or reweight is not there.
            TypeError, ValueError: The change is malformed.

        Cost: that of the placement's `diff`: for a ring O(points), and a change of one node in 1,000
        takes a fraction of a millisecond.

        >>> Router(["gw-1"]).plan(remove=["gw-1"]).moves[0]
        Move(range=KeyRange(start=0, end=4294967295), source='gw-1', target=None)
        """
        request = Request.of(add, remove, reweight)
        before, epoch = self.snapshot.plannable()
        return before.diff(before.changed(*request)).at(epoch)

    def plan_to(self, after: Placement) -> Plan:
        """Return the exact moves to another placement, however it was made, and change nothing.

        Raises:
            TypeError: `after` is no placement of this kind.
            ValueError: It reads keys in another way, so that every key has two positions.

        >>> from ringhash import assign
        >>> router = Router(assign(4, ["ann", "bob"]))
        >>> router.plan_to(assign(4, ["bob", "cat"])).moves.positions
        4
        """
        before, epoch = self.snapshot.plannable()
        return before.diff(after).at(epoch)

    def apply(self, plan: Plan, *, allow_unpin: bool = False) -> None:
        """Make the change that a plan describes, whether it was made here or read from JSON.

        The epoch goes up by one, unless nothing changes.

        Args:
            plan: The plan.
            allow_unpin: Whether pins may end whose nodes leave; `unpins(plan)` lists them.

        Raises:
            PinnedNodeError: Keys are pinned to a node that the plan takes out.
            StalePlanError: The router has another placement or epoch than the plan was made for.
                Nothing was changed; make a new plan.
            ValueError: The plan was edited: its changes do not lead where it says, or its moves are
                not those of its changes.
            HandoverRunningError: A handover runs, or waits to be finished.
        """
        _check_plan(plan)

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, None]:
            began = time.perf_counter()
            after = seen.after(plan, allow_unpin)
            return (seen if plan.empty else seen.changed(plan, after, began, seen.epoch + 1)), None

        self._change(step)

    def check_plan(self, plan: Plan, *, allow_unpin: bool = False) -> None:
        """Return if `apply` would carry the plan out now; else raise what it would raise."""
        _check_plan(plan)
        self.snapshot.after(plan, allow_unpin)

    def unpins(self, plan: Plan) -> tuple[Pin, ...]:
        """Return the pins that end if the plan is applied with `allow_unpin=True`."""
        _check_plan(plan)
        return self.snapshot.unpins(plan)

    def update(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
        *,
        allow_unpin: bool = False,
    ) -> Plan:
        """Make one atomic change of the nodes and return its plan; arguments and errors as for `plan`.

        The epoch goes up by one, unless nothing changes.

        Args:
            allow_unpin: Whether a node may be removed that keys are pinned to. Their pins end.

        Raises:
            PinnedNodeError: Keys are pinned to a node to be removed. Nothing was changed.
            HandoverRunningError: A handover runs, or waits to be finished.
        """
        request = Request.of(add, remove, reweight)

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, Plan]:
            seen.refuse()
            began = time.perf_counter()
            after = seen.placement.changed(*request)
            plan = seen.placement.diff(after).at(seen.epoch)
            seen.check_pins(plan, allow_unpin)
            return (seen if plan.empty else seen.changed(plan, after, began, seen.epoch + 1)), plan

        return self._change(step)

    def add(self, *nodes: str | Node) -> Plan:
        """Add nodes and return the plan of what moved.

        Raises:
            DuplicateNodeError: A node of that name is there already.

        >>> router = Router(["gw-1", "gw-2"])
        >>> {move.target for move in router.add("gw-3").moves}
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
        """Give a node another weight and return the plan of what moved.

        Raises:
            UnknownNodeError: There is no node of that name.
            TypeError, ValueError: The weight is not a finite number above 0.
        """
        return self.update(reweight={name: weight})

    def adopt(self, nodes: Placement | Iterable[str | Node] | Mapping[str, float], epoch: int) -> Plan:
        """Take over what others have agreed on, with its epoch, and return the plan of what moved.

        Args:
            nodes: The nodes that there are from now on, or a whole placement.
            epoch: The epoch that they are of; the router is at it then.

        Raises:
            HandoverRunningError: A handover runs, or waits to be finished.
            TypeError, ValueError: As for `plan` and `plan_to`.

        Pins to nodes that left end.

        >>> router = Router(["gw-1", "gw-2"])
        >>> _ = router.adopt(["gw-1", "gw-3"], epoch=7)
        >>> router.names, router.epoch
        (('gw-1', 'gw-3'), 7)
        """
        wanted = nodes if isinstance(nodes, Placement) else {n.name: n for n in nodes_from(nodes, "nodes")}

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, Plan]:
            seen.refuse()
            began = time.perf_counter()
            before = seen.placement
            after = wanted if isinstance(wanted, Placement) else before.changed(*to_become(before, wanted))
            plan = before.diff(after).at(seen.epoch)
            if plan.empty and epoch == seen.epoch:
                return seen, plan
            return seen.changed(plan, after, began, epoch), plan

        return self._change(step)

    # --- handovers ---

    def carry(self, progress: Progress) -> int:
        """Enter, advance or leave a handover; what carries it out says how far it is.

        Repeating a call changes nothing, so after a crash it can simply be made again.

        Args:
            progress: The plan, what of it is done, and the phase. "running" and "carried" route by what
                is done; "forward" ends at the placement after the plan, "back" at the one before it.

        Returns:
            The epoch that the router is at. It is at least `progress.epoch`, and later where pins were
            set meanwhile.

        Raises:
            HandoverRunningError: Another handover runs.
            StalePlanError: The plan was made for another placement.
            PinnedNodeError: Keys are pinned to a node that the plan takes out, and it has just begun.
            ValueError: The plan was edited, or `done` is no part of what it moves.

        Cost: that of the placement's `middle`, for a ring O(points).
        """
        _check_plan(progress.plan)
        check_phase(progress.plan, progress.done, progress.phase)
        return self._change(lambda seen: carried(seen, progress))

    # --- health ---

    @property
    def down(self) -> tuple[str, ...]:
        """The names of the nodes that are marked down, in order."""
        return tuple(sorted(self.snapshot.down))

    def mark_down(self, *names: str) -> bool:
        """Mark nodes as down, which stay members; return whether one of them was up.

        In a placement with a walk, each key of such a node goes to the node that `walk(key)` names next.
        Without a walk, lookups of these keys raise `NoNodeAvailableError`. Ownership does not change:
        there is no plan, and the epoch stays. Marks are local to a router: `to_dict` omits them,
        and removing a node removes its mark.

        Raises:
            UnknownNodeError: There is no node of that name. Nothing was marked.

        Cost: at most that of `remove`. With a walk, a lookup costs what it cost before.

        >>> router = Router(["gw-1", "gw-2", "gw-3"])
        >>> first, second, third = router.walk("user:7")
        >>> router.mark_down(first), router.owner("user:7") == second
        (True, True)
        >>> router.mark_up(first), router.owner("user:7") == first
        (True, True)
        """
        return self._mark(names, frozenset.union)

    def mark_up(self, *names: str) -> bool:
        """Take marks away, so that every key comes back; return whether one of the nodes was down.

        Cost and errors as for `mark_down`.
        """
        return self._mark(names, frozenset.difference)

    def _mark(
        self, names: tuple[str, ...], change: Callable[[frozenset[str], frozenset[str]], frozenset[str]]
    ) -> bool:
        marks = frozenset(map(plain_name_of, names))

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, bool]:
            for name in marks:
                find_name(seen.names, name)
            down = change(seen.down, marks)
            return (seen, False) if down == seen.down else (seen.marked(down), True)

        return self._change(step)

    # --- pins ---

    @property
    def pins(self) -> Pins:
        """The pinned keys: a read-only mapping from the bytes that a key counts by to its `Pin`."""
        return self.snapshot.pins

    def pin(self, key: _Key, node: str) -> None:
        """Send `key` to `node`, whatever the placement says; an older pin of the key ends.

        A key counts by the bytes that are hashed: a str and its UTF-8 are one key, and with hash tags a
        pin of one key pins all keys of that tag. While the node is down, the key goes where it would
        without the pin. Pins are part of `to_dict`, and a new one raises the epoch.

        Raises:
            UnknownNodeError: There is no node of that name.
            PinnedNodeError: A handover that runs takes that node out.
            TypeError, OverflowError, UnicodeEncodeError: As for `owner`.

        Cost: O(pins). With a thousand pins, a lookup takes at most 1.3 times as long as without.

        >>> router = Router(["gw-1", "gw-2"])
        >>> router.pin("tenant:7", "gw-2")
        >>> router.owner(b"tenant:7"), router.pins[b"tenant:7"]
        ('gw-2', Pin(key=b'tenant:7', node='gw-2', epoch=1))
        """
        key_bytes = self.placement.space.key_bytes(key)
        name = plain_name_of(node)

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, None]:
            seen.check_seat(name)
            old = seen.pins.get(key_bytes)
            if old is not None and old.node == name:
                return seen, None
            epoch = seen.epoch + 1
            return seen.pinned(seen.pins.with_pin(Pin(key_bytes, name, epoch)), epoch), None

        self._change(step)

    def unpin(self, key: _Key) -> bool:
        """Let `key` go where the placement says; return whether it was pinned. Cost: O(pins)."""
        key_bytes = self.placement.space.key_bytes(key)

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, bool]:
            pin = seen.pins.get(key_bytes)
            if pin is None:
                return seen, False
            return seen.pinned(seen.pins.without([pin]), seen.epoch + 1), True

        return self._change(step)

    # --- copies and documents ---

    def follow(self, data: object) -> bool:
        """Become what another router was when it made `data` by `to_dict`, if that is later.

        So many processes route by one: it sends its dictionary around at every new epoch, in any
        order and as often as it likes. Marks stay this router's own.

        Returns:
            Whether `data` was of a later epoch.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.

        >>> router, replica = Router(["gw-1"]), Router(["gw-1"])
        >>> _ = router.add("gw-2")
        >>> replica.follow(router.to_dict()), replica.follow(router.to_dict()), replica == router
        (True, False, True)
        """
        theirs = read(data)

        def step(seen: RouterSnapshot) -> tuple[RouterSnapshot, bool]:
            if theirs.epoch <= seen.epoch:
                return seen, False
            names = frozenset(theirs.names)
            return theirs.marked(seen.down & names), True

        return self._change(step)

    def to_dict(self) -> dict[str, object]:
        """Return the router as a dictionary that JSON can hold: its epoch, its placement and its pins.

        `pins` is a field only if there are any, and `running`, the plan and what of it is done, only
        while a handover runs.
        """
        return written(self.snapshot)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the router that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong, or the plan of the handover that runs was
                edited; the message names the field.
        """
        return cls._of(read(data))

    @classmethod
    def _of(cls, snapshot: RouterSnapshot) -> Self:
        self = cls.__new__(cls)
        self._start(snapshot)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Router):
            return NotImplemented
        mine, theirs = self.snapshot, other.snapshot
        return mine is theirs or mine.identity() == theirs.identity()

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self._of(self.snapshot)

    def __deepcopy__(self, memo: object) -> Self:
        return self._of(self.snapshot)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._restored, (self.to_dict(), self.down)

    @classmethod
    def _restored(cls, data: object, down: Iterable[str]) -> Self:
        snapshot = read(data)
        return cls._of(snapshot.marked(frozenset(down)) if down else snapshot)

    def __repr__(self) -> str:
        seen = self.snapshot
        down = f", {len(seen.down)} down" if seen.down else ""
        return f"<{type(self).__name__} at epoch {seen.epoch}: {seen.placement!r}{down}>"


def _check_plan(plan: object) -> None:
    if not isinstance(plan, Plan):
        raise TypeError(f"expected a Plan, not {plain_type(plan)}")

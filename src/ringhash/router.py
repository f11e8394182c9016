"""The router: the ring of the moment, and the changes it goes through."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from ringhash._core import Live, own_methods
from ringhash.errors import HandoverRunningError, Moved, StalePlanError, StaleRouterError
from ringhash.membership import Adds, changes_for
from ringhash.node import Node, plain_type
from ringhash.plan import Plan
from ringhash.records import check_fields, field
from ringhash.ring import Ring
from ringhash.transit import Transit

__all__ = ["Route", "Router"]

_FIELDS = frozenset({"epoch", "ring"})


class Route(NamedTuple):
    """Where a key goes, and whether it is about to go elsewhere.

    Args:
        node: The owner of the moment.
        epoch: As of which epoch. Of two routes of a key the one of the later epoch is right.
        moving: Whether a handover that runs will take the key from `source` to `target`.
        source: The node that the handover takes the key from; None where it does not take it.
        target: The node that the handover gives the key to; None likewise.
    """

    node: str
    epoch: int
    moving: bool = False
    source: str | None = None
    target: str | None = None


@own_methods
class Router(Live):
    """The live view of a ring: members that come and go, an epoch, and plans.

    Every change builds a new `Ring` and swaps it in: a reader never waits for a writer and never
    sees half a change. Changes made at once by several threads come one after another. The lookups
    `owner`, `owners`, `walk`, `position` and `router[key]` are compiled and as fast as the ring's.

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

    __slots__ = ("_lock", "_state", "_transit")

    _state: tuple[Ring, int]
    _transit: Transit | None  # what serves lookups while a handover runs

    def __init__(self, nodes: Ring | Iterable[str | Node] | Mapping[str, float] = (), **options: Any) -> None:
        if isinstance(nodes, Ring):
            if options:
                raise TypeError(f"a Ring has its options already; drop {', '.join(options)}")
            ring = nodes
        else:
            ring = Ring(nodes, **options)
        self._start(ring, 0)

    def _start(self, ring: Ring, epoch: int) -> None:
        self._lock = threading.Lock()
        self._commit(ring, epoch)

    def _commit(self, ring: Ring, epoch: int) -> None:
        self._transit = None
        self._state = ring, epoch
        self._swap(ring)

    @property
    def ring(self) -> Ring:
        """The ring of the moment, an immutable snapshot; while a handover runs, the one before it."""
        return self._state[0]

    @property
    def epoch(self) -> int:
        """How many changes there have been; 0 at the start. Every piece of a handover is one."""
        return self._state[1]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names; while a handover runs, those of before and after."""
        return (self._transit or self.ring).nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[str]:
        return (node.name for node in self.nodes)

    def __contains__(self, name: object) -> bool:
        transit = self._transit
        return name in self.ring or (transit is not None and name in transit.after)

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """As `Ring.index_many`. The indexes are those of the ring of the moment: where the members
        may change meanwhile, take `ring = router.ring` and ask that."""
        return (self._transit or self.ring).index_many(keys)

    def owner_many(self, keys: Any) -> list[str]:
        """As `Ring.owner_many`; all answers are from one ring."""
        return (self._transit or self.ring).owner_many(keys)

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
        transit = self._transit
        if transit is None:
            ring, epoch = self._state
            return Route(ring.owner(key), epoch)
        move, done = transit.move_of(key)
        if move is None:
            return Route(transit.owner(key), transit.epoch)
        return Route(transit.owner(key), transit.epoch, not done, move.source, move.target)

    def check(self, key: Any, node: str, epoch: int | None = None) -> None:
        """Return when `node` owns the key; a node asks it of a request that a client brought.

        Args:
            key: As for `owner`.
            node: The node that asks: its own name.
            epoch: The epoch of the route that brought the client here, if it has one.

        Raises:
            Moved: Another node owns the key; `to` and `epoch` are for the client to follow.
            StaleRouterError: The client has seen a later epoch than this router. Bring the router
                up to date (`follow`) and check again: sending the client away would send it back.

        With these rules a client that follows comes to the owner in two hops at most while one
        handover runs, however old its route was.

        >>> router = Router(["gw-1"])
        >>> router.check("user:7", "gw-1", epoch=0)
        >>> router.check("user:7", "gw-2", epoch=0)
        Traceback (most recent call last):
        ringhash.errors.Moved: the key belongs to 'gw-1' as of epoch 0
        """
        route = self.route(key)
        if route.node == node:
            return
        if epoch is not None and epoch > route.epoch:
            raise StaleRouterError(
                f"the client has a route of epoch {epoch}, and this router is at {route.epoch}; "
                "bring it up to date and check again"
            )
        raise Moved(route.node, route.epoch)

    def follow(self, data: object) -> bool:
        """Become what another router was when it made `data` by `to_dict`, if that is later.

        So many processes route by one: it sends its dictionary around at every new epoch, in any
        order and as often as it likes.

        Returns:
            Whether `data` was of a later epoch.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.

        >>> router, replica = Router(["gw-1"]), Router(["gw-1"])
        >>> _ = router.add("gw-2")
        >>> replica.follow(router.to_dict()), replica.follow(router.to_dict()), replica == router
        (True, False, True)
        """
        other = type(self).from_dict(data)
        with self._lock:
            if other.epoch <= self.epoch:
                return False
            self._take(other._state, other._transit)
        return True

    def _take(self, state: tuple[Ring, int], transit: Transit | None) -> None:
        if transit is None:
            self._commit(*state)
        else:
            self._enter(transit)

    # --- for the handover that runs ---

    def _enter(self, transit: Transit) -> None:
        """Route by `transit`; the epoch is its."""
        self._transit = transit
        self._state = transit.before, transit.epoch
        self._swap(transit)

    def _may_begin(self, plan: Plan) -> None:
        with self._lock:
            self._refuse()
            self._after(plan)

    def _begin(self, plan: Plan, done: Any = (), epoch: int | None = None) -> Transit:
        """Let a handover of `plan` begin; with an epoch it goes on where it was."""
        with self._lock:
            running = self._transit
            if running is not None and (epoch is None or running.plan != plan):
                self._refuse()
            ring, now = self._state
            if epoch is None:
                after = self._after(plan)
                transit = Transit.of(ring, after, plan, (), now + 1)
            else:
                if plan.before != ring.digest:
                    raise StalePlanError(
                        f"the handover began at a ring of digest {plan.before}, and the router's is "
                        f"{ring.digest}; resume it with the router that it began with, or with none"
                    )
                transit = Transit.of(ring, ring._changed(plan.changes), plan, done, max(epoch, now))
            self._enter(transit)
            return transit

    def _advance(self, done: Any, epoch: int) -> None:
        """The ranges of `done` have gone to their targets."""
        with self._lock:
            transit = self._transit
            if transit is not None:
                self._enter(Transit.of(transit.before, transit.after, transit.plan, done, epoch))

    def _leave(self, forward: bool, epoch: int) -> None:
        """The handover is over: the ring is the one after it, or the one before it again."""
        with self._lock:
            transit = self._transit
            if transit is not None:
                self._commit(transit.after if forward else transit.before, epoch)

    def _refuse(self) -> None:
        transit = self._transit
        if transit is not None:
            raise HandoverRunningError(
                f"a handover from {transit.plan.before[:8]} to {transit.plan.after[:8]} is running, "
                f"{transit.fraction:.0%} of it done; wait for its end, or abort and reverse it"
            )

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
        ring, epoch = self._state
        return _planned(ring, epoch, add, remove, reweight)[0]

    def update(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
    ) -> Plan:
        """Make one atomic change and return its plan; arguments and errors as for `plan`.

        The epoch goes up by one, unless nothing changes.
        """
        with self._lock:
            self._refuse()
            ring, epoch = self._state
            plan, after = _planned(ring, epoch, add, remove, reweight)
            if plan.changes:
                self._commit(after, epoch + 1)
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

    def remove(self, *names: str) -> Plan:
        """Remove nodes and return the plan of what moved.

        Raises:
            UnknownNodeError: There is no node of that name.
        """
        return self.update(remove=names)

    def reweight(self, name: str, weight: float) -> Plan:
        """Give a node another weight and return the plan of what moved: only to or from it.

        Raises:
            UnknownNodeError: There is no node of that name.
            TypeError, ValueError: The weight is not a finite number above 0.
        """
        return self.update(reweight={name: weight})

    def apply(self, plan: Plan) -> None:
        """Make the change that a plan describes, whether it was made here or read from JSON.

        Raises:
            StalePlanError: The members, the options or the epoch are not those that the plan was
                made for. Nothing was changed; make a new plan.
            HandoverRunningError: A handover is carrying out another plan.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"apply takes a Plan, not {plain_type(plan)}")
        with self._lock:
            self._refuse()
            after = self._after(plan)
            if plan.changes:
                self._commit(after, self.epoch + 1)

    def _after(self, plan: Plan) -> Ring:
        """The ring that a plan leads to, or an error why it cannot."""
        ring, epoch = self._state
        if plan.epoch is not None and plan.epoch != epoch:
            raise StalePlanError(
                f"the plan was made at epoch {plan.epoch}, and the router is at epoch {epoch}; "
                "make a new plan"
            )
        if plan.before != ring.digest:
            raise StalePlanError(
                f"the plan was made for a ring of digest {plan.before}, and the router's is "
                f"{ring.digest}: members or options differ; make a new plan"
            )
        after = ring._changed(plan.changes) if plan.changes else ring
        if after.digest != plan.after:
            raise ValueError(
                "the plan changes more than members (its two rings differ in vnodes), and a "
                "router keeps its options; make a new Router"
            )
        return after

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Router):
            return NotImplemented
        return self._state == other._state and self._transit == other._transit

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self._restored(*self._state, self._transit)

    def __deepcopy__(self, memo: object) -> Self:
        return self._restored(*self._state, self._transit)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._transit is not None:
            return type(self).from_dict, (self.to_dict(),)
        return type(self)._restored, self._state

    @classmethod
    def _restored(cls, ring: Ring, epoch: int, transit: Transit | None = None) -> Self:
        self = cls.__new__(cls)
        self._start(ring, epoch)
        if transit is not None:
            self._enter(transit)
        return self

    def __repr__(self) -> str:
        ring, epoch = self._state
        return f"<{type(self).__name__} at epoch {epoch}: {ring!r}>"

    def to_dict(self) -> dict[str, object]:
        """Return the router as a dictionary that JSON can hold: its epoch and its ring.

        While a handover runs also `handover`: its plan, and the ranges that are done.
        """
        transit = self._transit
        if transit is not None:
            ring = transit.before.to_dict()
            return {"epoch": transit.epoch, "ring": ring, "handover": transit.to_dict()}
        now, epoch = self._state
        return {"epoch": epoch, "ring": now.to_dict()}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the router that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        running = isinstance(data, Mapping) and "handover" in data
        record = check_fields(data, "router", _FIELDS | {"handover"} if running else _FIELDS)
        epoch = field(record, "router", "epoch", int)
        if epoch < 0:
            raise ValueError(f"router.epoch: must not be negative, not {epoch}")
        ring = Ring.from_dict(record["ring"])
        transit = Transit.from_dict(record["handover"], ring, epoch) if running else None
        return cls._restored(ring, epoch, transit)


def _planned(
    ring: Ring,
    epoch: int,
    add: Adds,
    remove: Iterable[str],
    reweight: Mapping[str, float] | None,
) -> tuple[Plan, Ring]:
    changes = changes_for(ring.names, ring.nodes, add, remove, reweight)
    after = ring._changed(changes) if changes else ring
    return ring._plan(after, changes, epoch), after

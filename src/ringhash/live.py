"""What the live views of a ring and of an assignment share: an epoch, and the middle of a handover.

`Router` and `ShardRouter` differ in what they change and in how a key finds its owner. When a plan may
be carried out, which epochs it goes through and where a client is sent meanwhile is here, once.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np

from ringhash.errors import HandoverRunningError, Moved, StalePlanError, StaleRouterError
from ringhash.plan import Move, Plan
from ringhash.records import check_fields, field

__all__ = ["LiveView", "Middle", "Moment", "Route", "joined", "read_middle"]

_FIELDS = frozenset({"plan", "done"})
_Array = np.ndarray[Any, Any]


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


class Middle:
    """A placement in the middle of a handover: the plan, and the ranges of it that are done."""

    __slots__ = ()

    plan: Plan
    epoch: int
    began: float  # by time.perf_counter
    _starts: _Array  # of the ranges that are done
    _ends: _Array

    def move_of(self, key: Any) -> tuple[Move | None, bool]:
        """Return the move that takes a key, if there is one, and whether it is done."""
        position = self.plan._key_space.position(key)
        row = bisect_right(cast("Sequence[int]", self._starts), position) - 1
        return self.plan.move_of(key), bool(row >= 0 and position <= self._ends[row])

    @property
    def done(self) -> _Array:
        """The ranges that are done, as rows of first and last position."""
        return np.stack((self._starts, self._ends), axis=1)

    @property
    def fraction(self) -> float:
        """The part of what the plan moves that is done, from 0 to 1."""
        return int((self._ends - self._starts + 1).sum()) / max(1, self.plan.moves.positions)

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the ranges that are done, as JSON can hold them."""
        return {"plan": self.plan.to_dict(), "done": self.done.tolist()}

    def _equals(self, other: Middle) -> bool:
        return (self.epoch, self.plan) == (other.epoch, other.plan) and np.array_equal(self.done, other.done)


def read_middle(data: object, digest: str, space: int) -> tuple[Plan, list[list[int]]]:
    """Return the plan and the ranges that are done, which `Middle.to_dict` described.

    Args:
        data: The dictionary.
        digest: Of the placement before the plan.
        space: How many positions there are.

    Raises:
        ValueError: A field is missing, unknown or wrong; the message names it.
    """
    record = check_fields(data, "handover", _FIELDS)
    plan = Plan.from_dict(record["plan"])
    done = field(record, "handover", "done", list)
    last = -1
    for i, pair in enumerate(done):
        if not (type(pair) is list and len(pair) == 2 and all(type(p) is int for p in pair)):
            raise ValueError(f"handover.done[{i}]: must be a list [start, end] of integers")
        if not last < pair[0] <= pair[1] < space:
            raise ValueError(f"handover.done[{i}]: is out of order or of its range")
        last = pair[1]
    if plan.before != digest:
        raise ValueError("handover.plan: was made for another ring or assignment")
    return plan, done


def joined(ranges: Any) -> tuple[_Array, _Array]:
    """Sort pairs of first and last position, join those that touch; return the firsts and the lasts."""
    ranges = np.array(list(ranges), np.int64).reshape(-1, 2)
    ranges = ranges[np.argsort(ranges[:, 0])]
    starts, ends = ranges[:, 0], ranges[:, 1]
    apart = starts[1:] != ends[:-1] + 1
    first = np.concatenate(([True], apart))[: len(starts)]
    final = np.concatenate((apart, [True]))[-len(starts) :] if len(starts) else first
    return starts[first], ends[final]


class Moment(Protocol):
    """What a live view is at one moment: a snapshot that never changes, so that readers need no lock."""

    @property
    def epoch(self) -> int:
        """How many changes there have been."""

    @property
    def digest(self) -> str:
        """Of the placement of the moment; while a handover runs, of the one before it."""

    @property
    def transit(self) -> Middle | None:
        """The middle of the handover that runs."""

    def between(self, transit: Any) -> Self:
        """Return the moment in which a handover is as far as `transit` says."""

    def advanced(self, done: Any, epoch: int) -> Self:
        """Return the moment in which just the ranges of `done` are done."""

    def after_handover(self, forward: bool, epoch: int) -> Self:
        """Return the moment when the handover that runs is over, forward or back."""

    def seen_from(self, mine: Any) -> Self:
        """Return this moment, of another live view, as the one of the moment `mine` takes it over."""


_M = TypeVar("_M", bound=Moment)


class LiveView(Generic[_M]):
    """A placement that changes by plans, at once or in a handover; a mix-in.

    A class that has it says how a moment comes to count (`_commit`), what a plan leads to
    (`_changed`, `_after`), and what the middle of the way there is (`_middle`).
    """

    __slots__ = ()

    _what: ClassVar[str]  # what the digests are of, in messages
    _lock: threading.Lock
    _state: _M

    def _commit(self, state: _M) -> None:
        raise NotImplementedError

    def _changed(self, plan: Plan) -> Any:
        """The placement that a plan for the one of the moment leads to."""
        raise NotImplementedError

    def _after(self, plan: Plan) -> Any:
        """The same, or an error why the plan may not be carried out now."""
        raise NotImplementedError

    def _middle(self, plan: Plan, after: Any, done: Any, epoch: int) -> Middle:
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """How many changes there have been; 0 at the start. Every piece of a handover is one."""
        return self._state.epoch

    def route(self, key: Any) -> Route:
        """Return the owner of a key, as of which epoch, and whether a handover is to move it."""
        raise NotImplementedError

    @staticmethod
    def _routed(state: _M, key: Any, node: str) -> Route:
        move, done = (None, False) if state.transit is None else state.transit.move_of(key)
        if move is None:
            return Route(node, state.epoch)
        return Route(node, state.epoch, not done, move.source, move.target)

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

        >>> from ringhash import Router
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

        >>> from ringhash import Router
        >>> router, replica = Router(["gw-1"]), Router(["gw-1"])
        >>> _ = router.add("gw-2")
        >>> replica.follow(router.to_dict()), replica.follow(router.to_dict()), replica == router
        (True, False, True)
        """
        other = type(self).from_dict(data)._state
        with self._lock:
            state = self._state
            if other.epoch <= state.epoch:
                return False
            self._commit(other.seen_from(state))
        return True

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the live view that `to_dict` described."""
        raise NotImplementedError

    # --- for the handover that runs ---

    def _may_begin(self, plan: Plan) -> None:
        with self._lock:
            self._refuse()
            self._after(plan)

    def _begin(self, plan: Plan, done: Any = (), epoch: int | None = None) -> Any:
        """Let a handover of `plan` begin, and return its middle; with an epoch it goes on where it was."""
        with self._lock:
            state = self._state
            running = state.transit
            if running is not None and (epoch is None or running.plan != plan):
                self._refuse()
            if epoch is None:
                after, epoch = self._after(plan), state.epoch + 1
            elif plan.before == state.digest:
                after, epoch = self._changed(plan), max(epoch, state.epoch)
            else:
                raise StalePlanError(
                    f"the handover began at {self._what} of digest {plan.before}, and the router's is "
                    f"{state.digest}; resume it with the router that it began with, or with none"
                )
            transit = self._middle(plan, after, done, epoch)
            self._commit(state.between(transit))
            return transit

    def _advance(self, done: Any, epoch: int) -> None:
        """The ranges of `done` have gone to their targets."""
        with self._lock:
            state = self._state
            if state.transit is not None:
                self._commit(state.advanced(done, epoch))

    def _leave(self, forward: bool, epoch: int) -> None:
        """The handover is over: the placement is the one after it, or the one before it again."""
        with self._lock:
            state = self._state
            if state.transit is not None:
                self._commit(state.after_handover(forward, epoch))

    def _has_left(self, plan: Plan, forward: bool) -> bool:
        """Whether it is where a handover of `plan` that is over, forward or back, has left it."""
        state = self._state
        return state.transit is None and state.digest == (plan.after if forward else plan.before)

    def _refuse(self) -> None:
        transit = self._state.transit
        if transit is not None:
            raise HandoverRunningError(
                f"a handover from {transit.plan.before[:8]} to {transit.plan.after[:8]} is running, "
                f"{transit.fraction:.0%} of it done; wait for its end, or abort and reverse it"
            )

    def _check_made_for(self, plan: Plan) -> None:
        """Raise `StalePlanError` when a plan was made for another placement or epoch."""
        state = self._state
        if plan.epoch is not None and plan.epoch != state.epoch:
            raise StalePlanError(
                f"the plan was made at epoch {plan.epoch}, and the router is at epoch {state.epoch}; "
                "make a new plan"
            )
        if plan.before != state.digest:
            raise StalePlanError(
                f"the plan was made for {self._what} of digest {plan.before}, and the router's is "
                f"{state.digest}: members or options differ; make a new plan"
            )

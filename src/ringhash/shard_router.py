"""The shard router: the assignment of the moment, and the handovers it goes through."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ringhash.assignment import Assignment, assign
from ringhash.errors import StalePlanError
from ringhash.live import LiveView, Middle, Route, joined, read_middle
from ringhash.membership import Adds, changes_for
from ringhash.node import Node, plain_type
from ringhash.plan import Plan
from ringhash.records import check_fields, field

__all__ = ["ShardRouter"]

_FIELDS = frozenset({"epoch", "assignment"})
_OPTIONAL_FIELDS = frozenset({"handover"})


class ShardTransit(Middle):
    """An immutable assignment between two: the shards that are done have the workers of the one after."""

    __slots__ = ("_ends", "_starts", "after", "before", "began", "epoch", "plan", "table")

    def __init__(self, before: Assignment, after: Assignment, plan: Plan, done: Any, epoch: int) -> None:
        self._starts, self._ends = joined(done)
        self.before, self.after, self.plan, self.epoch = before, after, plan, epoch
        self.began = time.perf_counter()
        owners = list(before.owners)
        for start, end in self.done.tolist():
            owners[start : end + 1] = after.owners[start : end + 1]
        both = {node.name: node for node in (*before.workers, *after.workers)}
        self.table = Assignment(before.shards, both.values(), owners)

    def later(self, done: Any, epoch: int) -> Self:
        """Return the assignment when other ranges of shards are done."""
        transit = type(self)(self.before, self.after, self.plan, done, epoch)
        transit.began = self.began
        return transit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardTransit) and self.before == other.before and self._equals(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class ShardState:
    """A snapshot of a shard router; `table` answers, in the middle of a handover that of `transit`."""

    assignment: Assignment
    epoch: int = 0
    transit: ShardTransit | None = None

    @property
    def table(self) -> Assignment:
        return self.assignment if self.transit is None else self.transit.table

    @property
    def digest(self) -> str:
        return self.assignment.digest

    def between(self, transit: ShardTransit) -> ShardState:
        return ShardState(self.assignment, transit.epoch, transit)

    def advanced(self, done: Any, epoch: int) -> ShardState:
        return self if self.transit is None else self.between(self.transit.later(done, epoch))

    def after_handover(self, forward: bool, epoch: int) -> ShardState:
        there = self.transit is not None and forward
        return ShardState(self.transit.after if there else self.assignment, epoch)  # type: ignore[union-attr]

    def seen_from(self, mine: ShardState) -> ShardState:  # noqa: ARG002 - there is nothing of one's own
        return self


class ShardRouter(LiveView[ShardState]):
    """The live view of an assignment: an epoch, plans, and handovers that carry them out.

    What `Router` is to a `Ring`: a change makes a new `Assignment` and swaps it in, so a reader never
    waits for a writer and never sees half a change. In the middle of a `Handover` a shard belongs to
    its old worker until its piece is done, and to the new one from then on.

    Args:
        assignment: The one to start with.

    Raises:
        TypeError: It is none.

    Thread-safe. Cost: a lookup is one of the assignment; a piece that is done is O(shards), some 10 ms
    at 100,000. Memory: that of the assignment; while a handover runs, of three.

    >>> from ringhash import assign
    >>> router = ShardRouter(assign(12, ["ann", "bob"]))
    >>> plan = router.plan(add=["cat"])      # looks, changes nothing
    >>> router.apply(plan)
    >>> router.epoch, router.assignment.counts
    (1, {'ann': 4, 'bob': 4, 'cat': 4})
    """

    __slots__ = ("_lock", "_state")

    _what = "an assignment"
    _state: ShardState

    def __init__(self, assignment: Assignment) -> None:
        if not isinstance(assignment, Assignment):
            raise TypeError(f"ShardRouter takes an Assignment, not {plain_type(assignment)}")
        self._start(ShardState(assignment))

    def _start(self, state: ShardState) -> None:
        self._lock = threading.Lock()
        self._commit(state)

    def _commit(self, state: ShardState) -> None:
        self._state = state

    @property
    def assignment(self) -> Assignment:
        """The assignment of the moment; while a handover runs, the one before it."""
        return self._state.assignment

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The workers, in order of their names; while a handover runs, those of before and after."""
        return self._state.table.workers

    def owner(self, key: Any) -> str:
        """Return the worker that has the shard of `key` now; keys and errors as for `Ring.owner`.

        >>> from ringhash import assign
        >>> ShardRouter(assign(12, ["ann"])).owner("user:7")
        'ann'
        """
        return self._state.table.owner(key)

    __getitem__ = owner
    __iter__ = None
    __contains__ = None

    def worker_of(self, shard: int) -> str:
        """Return the worker that has `shard` now; IndexError unless 0 <= shard < count."""
        return self._state.table.worker_of(shard)

    def owner_many(self, keys: Any) -> list[str]:
        """Return the workers of many keys, all of one moment; `keys` as for `Ring.index_many`."""
        return self._state.table.owner_many(keys)

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the workers of many keys as indexes into `nodes` of the moment."""
        return self._state.table.index_many(keys)

    def route(self, key: Any) -> Route:
        """Return the owner of a key, as of which epoch, and whether a handover is to move it.

        Cost: a lookup; while a handover runs also O(log moves).

        >>> from ringhash import assign
        >>> ShardRouter(assign(12, ["ann"])).route("user:7")
        Route(node='ann', epoch=0, moving=False, source=None, target=None)
        """
        state = self._state
        return self._routed(state, key, state.table.owner(key))

    def plan(
        self,
        add: Adds = (),
        remove: Iterable[str] = (),
        reweight: Mapping[str, float] | None = None,
    ) -> Plan:
        """Return the exact moves that a change of the workers would bring, and change nothing.

        The shards are dealt by `assign`, with the fewest moves. While a handover runs, the plan is
        made for the assignment before it. Arguments as for `Router.plan`. Cost: that of `assign`.

        Raises:
            DuplicateNodeError: A worker to add is there already.
            UnknownNodeError: A worker to remove or reweight is not there.
            EmptyRingError: No worker would be left.
            TypeError, ValueError: The change is malformed.

        >>> from ringhash import assign
        >>> ShardRouter(assign(4, ["ann", "bob"])).plan(remove=["bob"]).moves[0]
        Move(range=KeyRange(start=2, end=3), source='bob', target='ann')
        """
        state = self._state
        now = state.assignment
        names = tuple(node.name for node in now.workers)
        workers = {node.name: node for node in now.workers}
        for before, after in changes_for(names, now.workers, add, remove, reweight):
            if before is not None:
                del workers[before.name]
            if after is not None:
                workers[after.name] = after
        return assign(now.shards, workers.values(), now)._plan(now, state.epoch)

    def plan_to(self, assignment: Assignment) -> Plan:
        """Return the plan to any assignment of the same shards, however it was made.

        Raises:
            ValueError: It has other shards.

        >>> from ringhash import assign
        >>> router = ShardRouter(assign(4, ["ann", "bob"]))
        >>> router.plan_to(assign(4, ["bob", "cat"])).moves.positions
        4
        """
        state = self._state
        return assignment._plan(state.assignment, state.epoch)

    def apply(self, plan: Plan) -> None:
        """Make the change that a plan describes at once: one from here, from JSON, or of `Assignment.plan`.

        The epoch goes up by one, unless nothing changes.

        Raises:
            StalePlanError: The assignment or the epoch is not that which the plan was made for.
                Nothing was changed; make a new plan.
            HandoverRunningError: A handover is carrying out another plan.
            ValueError: The plan does not lead where it says.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"apply takes a Plan, not {plain_type(plan)}")
        with self._lock:
            self._refuse()
            after = self._after(plan)
            if plan.changes or len(plan):
                self._commit(ShardState(after, self._state.epoch + 1))

    def _after(self, plan: Plan) -> Assignment:
        self._check_made_for(plan)
        return self._changed(plan)

    def _changed(self, plan: Plan) -> Assignment:
        now = self._state.assignment
        # The digest of an assignment does not tell of weights, zones, or workers without a shard.
        workers = {node.name: node for node in now.workers}
        for before, after in plan.changes:
            name = (before or after).name  # type: ignore[union-attr]
            if workers.get(name) != before:
                raise StalePlanError(
                    f"the plan was made for {before!r}, and the router has {workers.get(name)!r}; "
                    "make a new plan"
                )
            if after is None:
                del workers[name]
            else:
                workers[name] = after
        return now._moved(plan, workers.values())

    def _middle(self, plan: Plan, after: Assignment, done: Any, epoch: int) -> ShardTransit:
        return ShardTransit(self._state.assignment, after, plan, done, epoch)

    def _has_left(self, plan: Plan, forward: bool) -> bool:
        there = {node.name: node for node in self._state.assignment.workers}
        return super()._has_left(plan, forward) and all(
            there.get((before or after).name) == (after if forward else before)  # type: ignore[union-attr]
            for before, after in plan.changes
        )

    def __eq__(self, other: object) -> bool:
        return self._state == other._state if isinstance(other, ShardRouter) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self.from_dict(self.to_dict())

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        state = self._state
        return f"<{type(self).__name__} at epoch {state.epoch}: {state.assignment!r}>"

    def to_dict(self) -> dict[str, object]:
        """Return the router as a dictionary that JSON can hold: its epoch and its assignment.

        `handover`, the plan and the shards that are done, is a field of it only while one runs.
        """
        state = self._state
        running = {} if state.transit is None else {"handover": state.transit.to_dict()}
        return {"epoch": state.epoch, "assignment": state.assignment.to_dict(), **running}

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
        self = cls(Assignment.from_dict(record["assignment"]))
        self._state = replace(self._state, epoch=epoch)
        if "handover" in record:
            now = self.assignment
            plan, done = read_middle(record["handover"], now.digest, now.shards.count)
            try:
                after = self._changed(plan)
            except StalePlanError as error:
                raise ValueError(f"handover.plan: {error}") from None
            self._state = self._state.between(self._middle(plan, after, done, epoch))
        return self

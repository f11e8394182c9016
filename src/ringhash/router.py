"""The router: the ring of the moment, and the changes it goes through."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from ringhash._core import Live, own_methods
from ringhash.errors import StalePlanError
from ringhash.membership import Adds, changes_for
from ringhash.node import Node, plain_type
from ringhash.plan import Plan
from ringhash.records import check_fields, field
from ringhash.ring import Ring

__all__ = ["Router"]

_FIELDS = frozenset({"epoch", "ring"})


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

    __slots__ = ("_lock", "_state")

    _state: tuple[Ring, int]

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
        self._state = ring, epoch
        self._swap(ring)

    @property
    def ring(self) -> Ring:
        """The ring of the moment, an immutable snapshot."""
        return self._state[0]

    @property
    def epoch(self) -> int:
        """How many changes there have been; 0 at the start."""
        return self._state[1]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their names."""
        return self.ring.nodes

    def __len__(self) -> int:
        return len(self.ring)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ring)

    def __contains__(self, name: object) -> bool:
        return name in self.ring

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """As `Ring.index_many`. The indexes are those of the ring of the moment: where the members
        may change meanwhile, take `ring = router.ring` and ask that."""
        return self.ring.index_many(keys)

    def owner_many(self, keys: Any) -> list[str]:
        """As `Ring.owner_many`; all answers are from one ring."""
        return self.ring.owner_many(keys)

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
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"apply takes a Plan, not {plain_type(plan)}")
        with self._lock:
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
            if plan.changes:
                self._commit(after, epoch + 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Router):
            return NotImplemented
        return self._state == other._state

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self._restored(*self._state)

    def __deepcopy__(self, memo: object) -> Self:
        return self._restored(*self._state)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._restored, self._state

    @classmethod
    def _restored(cls, ring: Ring, epoch: int) -> Self:
        self = cls.__new__(cls)
        self._start(ring, epoch)
        return self

    def __repr__(self) -> str:
        ring, epoch = self._state
        return f"<{type(self).__name__} at epoch {epoch}: {ring!r}>"

    def to_dict(self) -> dict[str, object]:
        """Return the router as a dictionary that JSON can hold: its epoch and its ring."""
        ring, epoch = self._state
        return {"epoch": epoch, "ring": ring.to_dict()}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the router that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, "router", _FIELDS)
        epoch = field(record, "router", "epoch", int)
        if epoch < 0:
            raise ValueError(f"router.epoch: must not be negative, not {epoch}")
        return cls._restored(Ring.from_dict(record["ring"]), epoch)


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

"""The state of a router at one moment: the members, the nodes that are down, the pins, the epoch."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ringhash._core import Table
from ringhash.batch import readable
from ringhash.errors import PinnedNodeError
from ringhash.health import live_ring, members_of
from ringhash.membership import find_name
from ringhash.node import Node
from ringhash.pins import Pin, Pins, kept
from ringhash.plan import NodeChange, Plan
from ringhash.ring import Ring
from ringhash.transit import Transit

__all__ = ["State"]

_NO_PINS = Pins()


class State:
    """A snapshot that never changes, so that whoever reads it needs no lock.

    `ring` is the members, `live` the ring of those that are up. `table` answers: that is `live`, or
    while a handover runs, `transit`, which is between two rings. `last` is the plan
    of the last change of the members and the seconds that it took, None before the first.
    """

    __slots__ = (
        "_members", "down", "epoch", "last", "live", "live_pins", "pins", "ring", "table", "transit",
    )  # fmt: skip

    def __init__(
        self,
        ring: Ring,
        epoch: int = 0,
        pins: Pins = _NO_PINS,
        down: frozenset[str] = frozenset(),
        *,
        base: Ring | None = None,
        last: tuple[Plan, float] | None = None,
        transit: Transit | None = None,
    ) -> None:
        self.ring = ring
        self.epoch = epoch
        self.pins = pins
        self.down = down
        self.last = last
        self.live = live_ring(ring, down, base or ring)
        self.transit = transit
        self.table: Table = self.live if transit is None else transit
        self.live_pins = pins.without(pins.to(down)) if pins and down else pins
        self._members: np.ndarray[Any, np.dtype[np.intp]] | None = None

    # --- what may come next ---

    def planned(self, changes: tuple[NodeChange, ...]) -> tuple[Plan, Ring]:
        """Return the plan of a change of the members, and the ring that it makes."""
        after = self.ring._changed(changes) if changes else self.ring
        return self.ring._plan(after, changes, self.epoch, self._ended_by(changes)), after

    def check_pins(self, changes: tuple[NodeChange, ...], allow_unpin: bool) -> None:
        """Raise `PinnedNodeError` when a change takes a node that keys are pinned to."""
        unpins = self._ended_by(changes)
        if unpins and not allow_unpin:
            raise PinnedNodeError(
                f"the change takes nodes that keys are pinned to ({len(unpins)} keys), such as "
                f"{unpins[0].key!r} to {unpins[0].node!r}; unpin them, or say allow_unpin=True"
            )

    def changed(self, plan: Plan, ring: Ring, began: float, epoch: int | None = None) -> State:
        """Return the state after `plan`; the marks and the pins of a node that left are gone."""
        return State(
            ring,
            self.epoch + 1 if epoch is None else epoch,
            self.pins.without(self._ended_by(plan.changes)) if self.pins else self.pins,
            frozenset(name for name in self.down if name in ring) if self.down else self.down,
            base=self.live if self.down else ring,
            last=(plan, time.perf_counter() - began),
        )

    def marked(self, down: frozenset[str]) -> State:
        """Return the state in which just these nodes are down."""
        transit = self.transit and self.transit.marked(down)
        return State(self.ring, self.epoch, self.pins, down, base=self.live, last=self.last, transit=transit)

    def pinned(self, pins: Pins) -> State:
        """Return the state with these pins."""
        state = State(self.ring, self.epoch, pins, last=self.last)
        state.down, state.live, state.table, state.transit = self.down, self.live, self.table, self.transit
        state.live_pins = pins.without(pins.to(self.down))
        return state

    def between(self, transit: Transit) -> State:
        """Return the state in which a handover is as far as `transit` says."""
        return State(
            self.ring, transit.epoch, self.pins, self.down, base=self.live, last=self.last, transit=transit
        )

    def advanced(self, done: Any, epoch: int) -> State:
        """Return the state in which other ranges of the handover that runs are done."""
        return self if self.transit is None else self.between(self.transit.later(done, epoch))

    def seen_from(self, mine: State) -> State:
        """Return this state, of another router, with the marks of one's own."""
        return self.marked(mine.down)

    def after_handover(self, forward: bool, epoch: int) -> State:
        """Return the state when the handover that runs is over, forward or back."""
        transit = self.transit
        if transit is not None and forward:
            return self.changed(transit.plan, transit.after, transit.began, epoch)
        down = frozenset(name for name in self.down if name in self.ring)
        return State(self.ring, epoch, self.pins, down, base=self.live, last=self.last)

    @property
    def digest(self) -> str:
        """That of the members; while a handover runs, of those before it."""
        return self.ring.digest

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The members; while a handover runs, those of before and after."""
        return (self.transit or self.ring).nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self.ring.names if self.transit is None else tuple(node.name for node in self.nodes)

    def pinned_to(self, key: Any) -> str | None:
        """The node that a key is pinned to, if it is up."""
        pins = self.live_pins.nodes
        return pins.get(self.table._key_bytes(key)) if pins else None

    def _ended_by(self, changes: tuple[NodeChange, ...]) -> tuple[Pin, ...]:
        if not self.pins:
            return ()
        return self.pins.to(change.before.name for change in changes if change.before and not change.after)

    # --- lookups of many keys ---

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `nodes`."""
        pins = self.live_pins
        keys = kept(keys) if pins else keys
        indexes = self.table._indexes(readable(keys))
        if self.transit is not None:
            indexes = self.transit.numbers[indexes]
        elif self.live is not self.ring:
            if self._members is None:
                self._members = members_of(self.ring, self.live)
            indexes = self._members[indexes]
        if pins:
            names = self.names
            for row, name in pins.rows(self.table, keys):
                indexes[row] = find_name(names, name)
        return indexes

    def owner_many(self, keys: Any) -> list[str]:
        """Return the owners of many keys, by name."""
        pins = self.live_pins
        keys = kept(keys) if pins else keys
        owners = self.table._owners(readable(keys))
        if pins:
            for row, name in pins.rows(self.table, keys):
                owners[row] = name
        return owners

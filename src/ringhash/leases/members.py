"""Membership shared by many routers: nodes join, beat and leave; every router follows.

The database holds one membership and one epoch. Each change is a transaction under the lock of the
group's row, so an epoch is one membership, for all who ever see it.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import Self

from ringhash.handover.guard import Guard as Rules
from ringhash.leases import clock
from ringhash.leases.store import MemberRow, Store, open_store
from ringhash.node import Node
from ringhash.plan import Plan
from ringhash.routing import Router

__all__ = ["Follow", "Guard", "Member", "Members"]

_log = logging.getLogger("ringhash.leases")

Guard = Callable[[Plan], bool] | Rules
"""Asked before dead nodes are taken out; to say no keeps them in for now.

A function is asked with the plan that takes them out. A `ringhash.Guard` is asked for its `reasons`,
and says yes when there are none; it hears which nodes stop beating (`gone`), which beat again (`back`),
and of every change of the members (`changed`), so its graces begin at the end of a ttl.
"""


class Members:
    """The members that any number of routers share, in a database.

    Args:
        db: A path (SQLite), or an address `postgresql://...` (needs the extra `postgres`).
        name: One database has any number of memberships, by name.
        timeout: For how many seconds to wait for the database.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> members = Members(folder.name + "/members.db")
    >>> router = Router()
    >>> with members.join("gw-1"), members.join("gw-2", weight=2.0), members.follow(router) as follow:
    ...     follow.wait_for(2, timeout=5)
    ...     router.epoch, [node.name for node in router.nodes]
    True
    (2, ['gw-1', 'gw-2'])
    >>> folder.cleanup()
    """

    def __init__(self, db: str | os.PathLike[str], *, name: str = "default", timeout: float = 10.0) -> None:
        self.db = db
        self.name = name
        self.timeout = timeout

    def _open(self) -> Store:
        return open_store(self.db, self.name, self.timeout)

    def _set_up(self) -> Store:
        store = self._open()
        try:
            store.setup_members()
        except BaseException:
            store.close()
            raise
        return store

    def nodes(self) -> tuple[int, tuple[Node, ...]]:
        """Return the epoch and the members, of one moment."""
        store = self._set_up()
        try:
            epoch, rows = store.members()
        finally:
            store.close()
        return epoch, _nodes(rows)

    def join(self, name: str, weight: float = 1.0, zone: str | None = None, *, ttl: float = 30.0) -> Member:
        """Return a member; it begins when it is entered with `with`, and leaves at the end.

        A process that starts again under its name with the same weight and zone changes nothing.

        Args:
            name, weight, zone: As for `Node`.
            ttl: For how many seconds the node counts as alive after a heartbeat; it beats five times.

        Raises:
            TypeError, ValueError: As for `Node`, or ttl is out of its range.
        """
        return Member(self, Node(name, weight, zone), ttl)

    def follow(
        self,
        *routers: Router,
        grace: float = 30.0,
        guard: Guard | None = None,
        poll: float = 1.0,
        settle: float = 0.05,
        on_change: Callable[[int], None] | None = None,
    ) -> Follow:
        """Keep routers in step with the members; begins when it is entered with `with`.

        A router's epoch is the store's, and its ring at an epoch is that of every other router with
        the same options. While the database cannot be reached, the routers stay as they are.

        Args:
            routers: Any number of them; they should be changed by nobody else.
            grace: How many seconds after its ttl a dead node's keys are given away. Any follower
                does it, for all.
            guard: Asked first: a function of a `Plan` that says True or False, or a `ringhash.Guard`.
                See `ringhash.leases.Guard`. Where several follow, each asks its own.
            poll: How often to look, in seconds; PostgreSQL also tells of changes at once.
            settle: How long to wait after such a message for more, so that a burst is one change.
            on_change: Called with each epoch after the routers have it.
        """
        if not routers:
            raise TypeError("follow needs a Router")
        return Follow(self, routers, grace, guard, poll, settle, on_change)


class Member:
    """One node's membership; made by `Members.join`.

    Attributes:
        node: The node.
        lost: An Event, set when another process has joined under this name.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(self, members: Members, node: Node, ttl: float) -> None:
        if not 0.1 <= ttl <= 86_400:
            raise ValueError(f"ttl must be from 0.1 to 86400 seconds, not {ttl}")
        self.node = node
        self.ttl = ttl
        self.lost = threading.Event()
        self.error: Exception | None = None
        self._members = members
        self._incarnation = uuid.uuid4().hex
        self._store: Store | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"ringhash {node.name}", daemon=True)

    def _join(self, store: Store) -> int:
        node = self.node
        return store.join(node.name, node.weight, node.zone, self._incarnation, self.ttl)

    def start(self) -> Self:
        """Join and begin to beat; `with` does it for you. The database's error if it is not there."""
        self._store = self._members._set_up()
        self._join(self._store)
        self._thread.start()
        return self

    def leave(self) -> None:
        """Take the node out, and stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self.ttl)

    def reweight(self, weight: float) -> None:
        """Give the node another weight; the next heartbeat tells the database, within ttl / 5."""
        self.node = Node(self.node.name, weight, self.node.zone)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.leave()

    def _beat(self) -> None:
        told = self.node
        while True:
            stopping = self._stop.wait(self.ttl / 5)
            try:
                store = self._store = self._store or self._members._open()
                if stopping:
                    store.leave(self.node.name, self._incarnation)
                elif told != self.node:
                    told = self.node
                    self._join(store)
                elif not store.keep(told.name, self._incarnation, self.ttl):
                    if any(row.name == told.name for row in store.members()[1]):
                        self.lost.set()
                        stopping = True
                    else:
                        self._join(store)  # swept away while the database was out of reach
                self.error = None
            except Exception as error:  # noqa: BLE001  whatever it is, the next beat tries again
                _log.warning("%s: %s", self.node.name, error)
                self.error = error
                if self._store is not None:
                    self._store.close()
                self._store = None
            if stopping:
                if self._store is not None:
                    self._store.close()
                return


class Follow:
    """Routers that follow the members; made by `Members.follow`.

    Attributes:
        routers: The routers.
        epoch: The epoch they have, or None before the first.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(
        self,
        members: Members,
        routers: tuple[Router, ...],
        grace: float,
        guard: Guard | None,
        poll: float,
        settle: float,
        on_change: Callable[[int], None] | None,
    ) -> None:
        self.routers = routers
        self.epoch: int | None = None
        self.error: Exception | None = None
        self._members = members
        self._grace = grace
        self._guard = guard
        self._gone: set[str] = set()  # what the guard has heard of
        self._reasons: dict[str, str] = {}
        self._poll = poll
        self._settle = settle
        self._on_change = on_change
        self._store: Store | None = None
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._read_at: float | None = None
        self._thread = threading.Thread(target=self._follow, name="ringhash follow", daemon=True)

    @property
    def age(self) -> float | None:
        """The seconds since the members were last read, or None before the first time."""
        return None if self._read_at is None else clock.now() - self._read_at

    def start(self) -> Self:
        """Read the members, and begin to follow; `with` does it for you."""
        self._store = self._members._set_up()
        self._store.listen()
        self._look(self._store)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Follow no more; the routers stay as they are."""
        self._stop.set()
        store = self._store
        if store is not None:
            store.abort()
        if self._thread.is_alive():
            self._thread.join(self._members.timeout)

    def wait_for(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until the routers have `epoch` or a later one; return whether they have."""
        with self._news:
            return self._news.wait_for(lambda: self.epoch is not None and self.epoch >= epoch, timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                if self._store is None:
                    self._store = self._members._open()
                    self._store.listen()
                elif self._store.wait(self._poll):
                    self._stop.wait(self._settle)
                self._look(self._store)
                self.error = None
            except Exception as error:  # noqa: BLE001  whatever it is, the next look tries again
                if self._stop.is_set():
                    break
                _log.warning("follow: %s", error, exc_info=not isinstance(error, OSError))
                self.error = error
                if self._store is not None:
                    self._store.close()
                self._store = None
                self._stop.wait(self._poll)
        if self._store is not None:
            self._store.close()

    def _look(self, store: Store) -> None:
        epoch, rows = store.members()
        self._read_at = clock.now()
        if epoch != self.epoch:
            if self.epoch is not None and epoch < self.epoch:
                _log.warning("the members went back from epoch %d to %d", self.epoch, epoch)
            nodes = _nodes(rows)
            if self.epoch is not None and isinstance(self._guard, Rules):
                self._guard.changed()
            for router in self.routers:
                router.adopt(nodes, epoch)
            with self._news:
                self.epoch = epoch
                self._news.notify_all()
            if self._on_change is not None:
                self._on_change(epoch)
        if isinstance(self._guard, Rules):
            self._tell(self._guard, rows)
        dead = [row.name for row in rows if row.overdue > self._grace]
        if dead and self._agreed(dead):
            store.sweep(dead, self._grace)

    def _tell(self, guard: Rules, rows: list[MemberRow]) -> None:
        """Tell the guard who is gone and who is back; what others have told it stays as it is."""
        gone = {row.name for row in rows if row.overdue > 0}
        for name in gone - self._gone:
            guard.gone(name)
        for name in self._gone - gone:
            guard.back(name)
        self._gone = gone

    def _agreed(self, dead: list[str]) -> bool:
        if self._guard is None:
            return True
        plan = self.routers[0].plan(remove=dead)
        if not isinstance(self._guard, Rules):
            return self._guard(plan)
        reasons = self._guard.reasons(self.routers[0], plan)
        if reasons and reasons.keys() != self._reasons.keys():
            _log.warning("%s stay: %s", ", ".join(dead), "; ".join(reasons.values()))
        self._reasons = reasons
        return not reasons


def _nodes(rows: list[MemberRow]) -> tuple[Node, ...]:
    return tuple(sorted((Node(row.name, row.weight, row.zone) for row in rows), key=lambda node: node.name))

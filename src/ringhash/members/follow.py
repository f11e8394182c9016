"""Routers that follow the members of a database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Self

from ringhash.databases.clock import Clock
from ringhash.handover.guard import Guard as Rules
from ringhash.members.rows import MemberRow, MemberRows
from ringhash.node import Node
from ringhash.plan import Plan
from ringhash.routing import Router

__all__ = ["Follow", "Guard", "nodes_of"]

_log = logging.getLogger("ringhash.members")

Guard = Callable[[Plan], bool] | Rules
"""Asked before dead nodes are taken out; answering no keeps them in for now.

A function is asked with the plan that takes them out. A `ringhash.handover.Guard` is asked for its `reasons`,
and says yes when there are none; it hears which nodes stop beating (`gone`), which beat again (`back`),
and of every change of the members (`changed`), so its graces begin at the end of a ttl.
"""


class Follow:
    """Routers that follow the members; made by `Members.follow`.

    Attributes:
        routers: The routers.
        epoch: The epoch they have, or None before the first.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(
        self,
        routers: tuple[Router, ...],
        grace: float,
        guard: Guard | None,
        poll: float,
        settle: float,
        on_change: Callable[[int], None] | None,
        clock: Clock,
        timeout: float,
        set_up: Callable[[], MemberRows],
        open_rows: Callable[[], MemberRows],
    ) -> None:
        self.routers = routers
        self.epoch: int | None = None
        self.error: BaseException | None = None
        self._clock = clock
        self._timeout = timeout
        self._set_up = set_up
        self._open = open_rows
        self._grace = grace
        self._guard = guard
        self._gone: set[str] = set()  # what the guard has heard of
        self._reasons: dict[str, str] = {}
        self._poll = poll
        self._settle = settle
        self._on_change = on_change
        self._rows: MemberRows | None = None
        self._stopping = False
        self._news = threading.Condition()
        self._read_at: float | None = None
        self._thread = threading.Thread(target=self._follow, name="ringhash follow", daemon=True)

    @property
    def age(self) -> float | None:
        """The seconds since the members were last read, or None before the first time."""
        return None if self._read_at is None else self._clock.now() - self._read_at

    def start(self) -> Self:
        """Read the members, and begin to follow; `with` does it for you."""
        rows = self._set_up()
        try:
            rows.listen()
            self._look(rows)
        except BaseException:
            rows.close()
            raise
        self._rows = rows
        self._thread.start()
        return self

    def stop(self) -> None:
        """Follow no more; the routers stay as they are."""
        with self._news:
            self._stopping = True
            self._clock.notify(self._news)
        rows = self._rows
        if rows is not None:
            rows.abort()
        if self._thread.is_alive():
            self._thread.join(self._timeout)

    def wait_for(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until the routers have `epoch` or a later one; return whether they have."""
        with self._news:
            return self._news.wait_for(lambda: self.epoch is not None and self.epoch >= epoch, timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _pause(self, seconds: float) -> None:
        until = self._clock.now() + seconds
        with self._news:
            while not self._stopping and (left := until - self._clock.now()) > 0:
                self._clock.wait(self._news, left)

    def _stops(self) -> bool:
        return self._stopping

    def _follow(self) -> None:
        while not self._stops():
            try:
                if self._rows is None:
                    self._rows = self._open()
                    self._rows.listen()
                elif self._rows.wait(self._poll):
                    self._pause(self._settle)
                self._look(self._rows)
                self.error = None
            except BaseException as error:  # noqa: BLE001  whatever it is, the next look tries again
                if self._stops():
                    break
                _log.warning("follow: %s", error, exc_info=not isinstance(error, OSError))
                self.error = error
                if self._rows is not None:
                    self._rows.close()
                self._rows = None
                self._pause(self._poll)
        if self._rows is not None:
            self._rows.close()

    def _look(self, source: MemberRows) -> None:
        epoch, rows = source.members()
        if any(row.ahead for row in rows):
            source.bound()
        self._read_at = self._clock.now()
        if epoch != self.epoch:
            if self.epoch is not None and epoch < self.epoch:
                _log.warning("the members went back from epoch %d to %d", self.epoch, epoch)
            nodes = nodes_of(rows)
            if self.epoch is not None and isinstance(self._guard, Rules):
                self._guard.changed()
            for router in self.routers:
                router.adopt(nodes, epoch)
            with self._news:
                self.epoch = epoch
                self._clock.notify(self._news)
            if self._on_change is not None:
                self._on_change(epoch)
        if isinstance(self._guard, Rules):
            self._tell(self._guard, rows)
        dead = [row.name for row in rows if row.overdue > self._grace]
        if dead and self._agreed(dead):
            source.sweep(dead, self._grace)

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


def nodes_of(rows: Iterable[MemberRow]) -> tuple[Node, ...]:
    """Return the nodes that the rows are, by name."""
    return tuple(sorted((Node(row.name, row.weight, row.zone) for row in rows), key=lambda node: node.name))

"""One node's membership: it joins, beats and leaves."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Self

from ringhash.databases.clock import Clock, read_ttl
from ringhash.members.rows import MemberRows
from ringhash.node import Node

__all__ = ["Member"]

_log = logging.getLogger("ringhash.members")


class Member:
    """One node's membership; made by `Members.join`.

    Attributes:
        node: The node.
        lost: An Event, set when another process has joined under this name.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(
        self,
        node: Node,
        ttl: float,
        clock: Clock,
        set_up: Callable[[], MemberRows],
        open_rows: Callable[[], MemberRows],
    ) -> None:
        self.ttl = read_ttl(ttl)
        self.node = node
        self.lost = threading.Event()
        self.error: BaseException | None = None
        self._clock = clock
        self._set_up = set_up
        self._open = open_rows
        self._incarnation = uuid.uuid4().hex
        self._rows: MemberRows | None = None
        self._told: Node | None = None  # what the database certainly has
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"ringhash {node.name}", daemon=True)

    def start(self) -> Self:
        """Join and begin to beat; `with` does it for you. The database's error if it is not there."""
        node = self.node
        rows = self._set_up()
        try:
            rows.join(node.name, node.weight, node.zone, self._incarnation, self.ttl)
        except BaseException:
            rows.close()
            raise
        self._rows = rows
        self._told = node
        self._thread.start()
        return self

    def leave(self) -> None:
        """Take the node out, and stop."""
        with self._changed:
            self._stopping = True
            self._clock.notify(self._changed)
        if self._thread.is_alive():
            self._thread.join(self.ttl)

    def reweight(self, weight: float) -> None:
        """Give the node another weight; a heartbeat tells the database, within ttl / 5 if it is there."""
        self.node = Node(self.node.name, weight, self.node.zone)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.leave()

    def _run(self) -> None:
        while not self._beat(stopping=self._pause()):
            pass
        if self._rows is not None:
            self._rows.close()

    def _pause(self) -> bool:
        """Wait for the next heartbeat; return whether to stop."""
        until = self._clock.now() + self.ttl / 5
        with self._changed:
            while not self._stopping and (left := until - self._clock.now()) > 0:
                self._clock.wait(self._changed, left)
            return self._stopping

    def _beat(self, *, stopping: bool) -> bool:
        """Tell the database; return whether it was the last time."""
        node = self.node
        try:
            rows = self._rows = self._rows or self._open()
            if stopping:
                rows.leave(node.name, self._incarnation)
            elif node != self._told or not rows.keep(node.name, self._incarnation, self.ttl):
                # Another weight, or swept away while the database was out of reach, or replaced.
                self._told = None  # until the answer is there
                if rows.renew(node.name, node.weight, node.zone, self._incarnation, self.ttl):
                    self._told = node
                else:
                    self.lost.set()
                    stopping = True
            self.error = None
        except BaseException as error:  # noqa: BLE001  whatever it is, the next beat tries again
            _log.warning("%s: %s", node.name, error)
            self.error = error
            if self._rows is not None:
                self._rows.close()
            self._rows = None
        return stopping

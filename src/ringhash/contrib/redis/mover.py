"""Moves the keys of a ring of Redis servers: what a `Handover` calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringhash.contrib.redis.moving import copy_marked, copy_piece, drop_late, forget
from ringhash.contrib.redis.sweep import drive
from ringhash.handover import Piece

if TYPE_CHECKING:
    from ringhash.contrib.redis.ring import Ring

__all__ = ["KeyMover"]


class KeyMover:
    """A `Mover` that copies keys from server to server while the ring is used.

    Args:
        ring: The ring. Its nodes must include those of both sides of the plan.
        settle: Seconds to wait before anything is copied, for other processes to hear of the handover.
        patience: Seconds to wait for calls that were under way before the handover, or before a stop.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        ring: Ring,
        settle: float = 0.0,
        patience: float = 30.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._ring = ring
        self._settle = settle
        self._patience = patience
        self._sleep = sleep
        self._lock = threading.Lock()
        self._absolute = "PEXPIRETIME" in ring.routes.table.single

    def prepare(self, piece: Piece) -> bool:
        """Copy the piece, once every call is over that could not know of the handover."""
        if self._settle:
            self._sleep(self._settle)
        if not self._ring.calls.wait(self._patience):
            return False
        drive(self._ring.each(), copy_piece(piece, absolute=self._absolute))
        return True

    def hold(self, piece: Piece) -> None:
        """Copy what was written meanwhile."""
        drive(self._ring.each(), copy_marked(piece, absolute=self._absolute))

    def stop(self, piece: Piece) -> bool:
        """Let writers wait, and copy the last of what was written."""
        self._set_stopped(piece, stopped=True)
        if not self._ring.calls.wait(self._patience):
            return False
        drive(self._ring.each(), copy_marked(piece, absolute=self._absolute))
        return True

    def start(self, piece: Piece) -> None:
        """Nothing is needed: the copy is whole, and the router names the new node next."""

    def undo(self, piece: Piece) -> None:
        """Let writers go on at the old node, and take the copy away."""
        self._set_stopped(piece, stopped=False)
        drive(self._ring.each(), forget(piece))

    def finish(self, piece: Piece) -> None:
        """Take the piece away from the old node."""
        self._set_stopped(piece, stopped=False)
        drive(self._ring.each(), drop_late(piece))

    def _set_stopped(self, piece: Piece, *, stopped: bool) -> None:
        marks = self._ring.marks
        with self._lock:
            others = tuple(
                one for one in marks.stopped if (one.number, one.back) != (piece.number, piece.back)
            )
            marks.stopped = (*others, piece) if stopped else others

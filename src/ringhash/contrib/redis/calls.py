"""Which calls are under way, counted without a lock, so that a mover can wait for them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

__all__ = ["Calls"]


class _Cell:
    """A counter of one thread: odd while a call is under way."""

    __slots__ = ("__weakref__", "count")

    def __init__(self) -> None:
        self.count = 0


class Calls:
    """The calls of every thread. A call costs two additions to a counter that belongs to its thread."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._cells: weakref.WeakSet[_Cell] = weakref.WeakSet()
        self._lock = threading.Lock()

    def cell(self) -> _Cell:
        """Return the counter of this thread; add 1 when a call begins, and 1 when it ends."""
        try:
            found: _Cell = self._local.cell
        except AttributeError:
            found = self._local.cell = _Cell()
            with self._lock:
                self._cells.add(found)
        return found

    def wait(self, timeout: float, sleep: Callable[[float], object] = time.sleep) -> bool:
        """Wait until every call that is under way now is over; return whether they were in time.

        A call of the thread that waits does not count.
        """
        with self._lock:
            mine = getattr(self._local, "cell", None)
            under_way = [(cell, cell.count) for cell in self._cells if cell is not mine and cell.count % 2]
        deadline = time.monotonic() + timeout
        for cell, count in under_way:
            while cell.count == count:
                if time.monotonic() > deadline:
                    return False
                sleep(0.001)
        return True

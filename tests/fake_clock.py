"""A clock that stands still while anybody works; when all wait, it jumps to the first that is due.

So a test of threads takes no real time, and a busy machine cannot make it late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ringhash.databases.clock import Clock


class FakeClock(Clock):
    """The time of all threads of ringhash; `until` and `passes` let it pass."""

    def __init__(self, start: float = 1000.0) -> None:
        self.time = start
        self.ignored = "(none)"  # a part of the names of threads that wait for something else
        self._lock = threading.Lock()
        self._waiting: dict[int | None, tuple[threading.Condition, float]] = {}

    def now(self) -> float:
        return self.time

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        with self._lock:
            self._waiting[threading.get_ident()] = (condition, self.time + timeout)
        condition.wait()

    def notify(self, condition: threading.Condition) -> None:
        self._wake(lambda where, _: where is condition)
        condition.notify_all()

    def _wake(self, which: Callable[[threading.Condition, float], bool]) -> list[threading.Condition]:
        """Those that are woken count as working from now on."""
        with self._lock:
            woken = [it for it, (where, due) in self._waiting.items() if which(where, due)]
            return [self._waiting.pop(it)[0] for it in woken]

    def _first_due(self) -> float | None:
        """When the first is due, if all wait."""
        threads = {
            it.ident
            for it in threading.enumerate()
            if it.name.startswith("ringhash ") and self.ignored not in it.name
        }
        with self._lock:
            if not threads <= self._waiting.keys():
                return None
            return min((self._waiting[it][1] for it in threads), default=self.time + 1.0)

    def jump(self, seconds: float) -> None:
        """Let time pass, whoever works."""
        self.time += seconds
        for condition in self._wake(lambda _, due: due <= self.time):
            with condition:
                condition.notify_all()

    def until(self, condition: Callable[[], object], within: float = 1000.0) -> None:
        """Let time pass until `condition` holds, within so many seconds of this clock."""
        end = self.time + within
        hang = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < hang, "a thread hangs"
            due = self._first_due()
            if due is None:
                time.sleep(0.0005)
            elif not condition():
                assert self.time < end, "it did not happen in time"
                self.jump(max(0.0, min(due, end) - self.time))

    def passes(self, seconds: float) -> None:
        """Let so many seconds pass, event by event."""
        end = self.time + seconds
        while self.time < end:
            self.until(lambda: self._first_due() is not None)
            due = self._first_due()
            if due is not None:
                self.jump(min(due, end) - self.time)
        self.until(lambda: self._first_due() is not None)

"""A clock for elapsed time that nobody can set: monotonic and, on Linux, running while the machine sleeps.

All processes of one machine share it, so it is also the clock of a SQLite database.
"""

from __future__ import annotations

import math
import threading
import time

__all__ = ["SYSTEM", "Clock", "now", "read_ttl"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)

if _BOOTTIME is None:
    now = time.monotonic
else:

    def now(clock: int = _BOOTTIME) -> float:
        """Return the seconds since the machine was started."""
        return time.clock_gettime(clock)


class Clock:
    """The time of one process, and waiting by it; tests give their own.

    A thread that waits holds the condition, as it does for `threading.Condition.wait`.
    """

    def now(self) -> float:
        """Return the seconds since some moment; never set, never going back."""
        return now()

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        """Wait until `condition` is notified, or for `timeout` seconds."""
        condition.wait(timeout)

    def notify(self, condition: threading.Condition) -> None:
        """Wake all that wait for `condition`, which the caller holds."""
        condition.notify_all()


SYSTEM = Clock()


def read_ttl(ttl: object) -> float:
    """Return `ttl` in seconds; TypeError or ValueError if it is not a valid one."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise TypeError(f"ttl must be a number of seconds, not {ttl!r}")
    if not (math.isfinite(ttl) and 0.1 <= ttl <= 86_400):
        raise ValueError(f"ttl must be from 0.1 to 86400 seconds, not {ttl}")
    return float(ttl)

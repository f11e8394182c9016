"""A clock for elapsed time that nobody can set: monotonic and, on Linux, running while the machine sleeps.

All processes of one machine share it, so it is also the clock of a SQLite database.
"""

from __future__ import annotations

import time

__all__ = ["now"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)

if _BOOTTIME is None:
    now = time.monotonic
else:

    def now(clock: int = _BOOTTIME) -> float:
        """Return the seconds since the machine was started."""
        return time.clock_gettime(clock)

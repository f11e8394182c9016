"""The clock a holder counts its own time by: monotonic, and where the system has such a clock (Linux), not
stopped while the machine sleeps."""

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

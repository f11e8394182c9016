"""What a fleet did, counted."""

from __future__ import annotations

import threading
from typing import NamedTuple

__all__ = ["FleetMetrics", "FleetReport"]


class FleetReport(NamedTuple):
    """The counts of a fleet at one moment.

    `writes` and `reads` are blocks that were let in. `redirects` counts blocks that were sent to another
    node, `waits` those that waited while a key moved and `waited` their seconds; `refused` blocks that were
    not let in.
    """

    writes: int = 0
    reads: int = 0
    redirects: int = 0
    waits: int = 0
    waited: float = 0.0
    refused: int = 0


class FleetMetrics:
    """Counts for `Fleet.metrics`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = FleetReport()

    def count(self, *, write: bool, redirects: int, waited: float | None, refused: bool) -> None:
        """Count one block."""
        with self._lock:
            now = self._now
            self._now = FleetReport(
                now.writes + (write and not refused),
                now.reads + (not write and not refused),
                now.redirects + redirects,
                now.waits + (waited is not None),
                now.waited + (waited or 0.0),
                now.refused + refused,
            )

    def report(self) -> FleetReport:
        """Return the counts."""
        return self._now

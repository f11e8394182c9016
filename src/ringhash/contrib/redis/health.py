"""Which nodes are down: failures in a row, and a limit to how many. No input or output."""

from __future__ import annotations

import threading
from collections.abc import Iterable

__all__ = ["Health"]


class Health:
    """The failures of each node, and the nodes that are down.

    Args:
        names: The nodes.
        down_after: How many failures in a row put a node down.
        min_up: The least part of the nodes that must stay up. One more than that is never put down: if most
            nodes seem to fail, the fault is on this side.

    Threads may share it. `down` and `failing` are replaced as a whole, so reading one takes no lock.
    """

    def __init__(self, names: Iterable[str], down_after: int, min_up: float) -> None:
        if type(down_after) is not int or down_after < 1:
            raise ValueError(f"down_after must be a whole number of at least 1, not {down_after!r}")
        if not 0 <= min_up <= 1:
            raise ValueError(f"min_up must be from 0 to 1, not {min_up!r}")
        self._lock = threading.Lock()
        self._down_after = down_after
        self._min_up = min_up
        self.names = frozenset(names)
        self.failing: dict[str, int] = {}
        self.down: frozenset[str] = frozenset()

    def failed(self, name: str) -> bool:
        """Count a failure; return whether the node goes down with it."""
        with self._lock:
            count = self.failing.get(name, 0) + 1
            self.failing = {**self.failing, name: count}
            if count < self._down_after or name in self.down or name not in self.names:
                return False
            if len(self.names) - len(self.down) - 1 < self._min_up * len(self.names):
                return False
            self.down |= {name}
            return True

    def answered(self, name: str) -> None:
        """End a row of failures; the node stays down until `revived`."""
        with self._lock:
            self.failing = {other: count for other, count in self.failing.items() if other != name}

    def revived(self, name: str) -> None:
        """Take a node up again."""
        self.answered(name)
        with self._lock:
            self.down -= {name}

    def members(self, names: Iterable[str]) -> None:
        """Follow a change of the nodes."""
        with self._lock:
            self.names = frozenset(names)
            self.down &= self.names
            self.failing = {name: count for name, count in self.failing.items() if name in self.names}

"""Where a key goes, and what a node answers to a client that came to the wrong one."""

from __future__ import annotations

from typing import NamedTuple

from ringhash.errors import Moved, StaleRouterError

__all__ = ["Route"]


class Route(NamedTuple):
    """Where a key goes, and whether it is about to go elsewhere.

    Args:
        node: The node that owns the key now.
        epoch: The epoch of this answer. Of two routes of a key, the one with the higher epoch wins.
        moving: Whether a running handover will take the key from `source` to `target`.
        source: The node that the running handover takes the key from; None if it leaves the key alone.
        target: The node that the running handover gives the key to; None likewise.
    """

    node: str
    epoch: int
    moving: bool = False
    source: str | None = None
    target: str | None = None

    def check(self, node: str, epoch: int | None) -> None:
        """Return if `node` owns the key; else raise what `Router.check` raises."""
        if self.node == node:
            return
        if epoch is not None and epoch > self.epoch:
            raise StaleRouterError(
                f"the client has a route of epoch {epoch}, and this router is at {self.epoch}; "
                "bring the router up to date and check again"
            )
        raise Moved(self.node, self.epoch)

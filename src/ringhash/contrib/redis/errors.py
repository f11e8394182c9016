"""What the ring refuses before it sends anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringhash.errors import RinghashError

__all__ = ["CrossNodeError", "MovingError", "NoKeyError", "NodeDownError", "UnknownCommandError"]


class CrossNodeError(RinghashError, ValueError):
    """A command has keys on several nodes and cannot be split; nothing was sent.

    `nodes` has the keys of each node.
    """

    def __init__(self, command: str, nodes: Mapping[str, Sequence[Any]]) -> None:
        self.command = command
        self.nodes = {name: list(keys) for name, keys in nodes.items()}
        where = "; ".join(f"{name}: {', '.join(map(repr, keys))}" for name, keys in self.nodes.items())
        super().__init__(
            f"{command} has keys on {len(self.nodes)} nodes ({where}); "
            "give them a common hash tag, as in {user:7}:cart"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.command, self.nodes)


class NoKeyError(RinghashError, ValueError):
    """A command has no key, so no node follows from it; nothing was sent."""


class UnknownCommandError(RinghashError, ValueError):
    """The server has no such command; nothing was sent."""


class NodeDownError(RinghashError, ConnectionError):
    """The node of a key is down, and the ring does not let another one answer for it."""


class MovingError(RinghashError, TimeoutError):
    """A key is being moved to another node, and the write waited for too long; nothing was sent."""

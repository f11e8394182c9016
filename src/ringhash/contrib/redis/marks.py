"""Which writes must be marked while keys move, and which must wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringhash.contrib.redis.commands import CommandTable
from ringhash.contrib.redis.routes import key_of
from ringhash.contrib.redis.sweep import OURS

if TYPE_CHECKING:
    from ringhash.contrib.redis.exchange import Command
    from ringhash.handover import Piece
    from ringhash.routing import Router

__all__ = ["MARKED", "Marks", "Stopped", "marking"]

MARKED = OURS + b"written-while-moving"


class Stopped(Exception):  # noqa: N818  it never leaves the ring
    """A key is written whose node has stopped taking writes of it: wait, then ask again where it goes."""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.key = key


class Marks:
    """The writes of a ring while a handover runs.

    `stopped` has the pieces that take no writes; it is replaced as a whole, so reading it takes no lock.
    """

    def __init__(self, router: Router, table: CommandTable) -> None:
        self._router = router
        self._table = table
        self.stopped: tuple[Piece, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether no handover runs, so that nothing is marked."""
        return self._router.running is None

    def written(self, args: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
        """Return the keys of a command that it may write and that the handover moves, there or back.

        Raises:
            Stopped: One of them is in a piece that takes no writes now.
        """
        if self.idle or not keys or self._table.is_readonly(args):
            return []
        moving = [key for key in keys if self._router.route(key_of(key)).source is not None]
        for key in moving:
            if self.waits(key):
                raise Stopped(key)
        return moving

    def waits(self, key: Any) -> bool:
        """Whether a key is in a piece that takes no writes, and has not gone to its new node."""
        text = key_of(key)
        return any(text in piece and self._router.owner(text) == piece.source for piece in self.stopped)


def marking(keys: Sequence[Any]) -> Command:
    """Return the command that marks keys as written."""
    return ("SADD", MARKED, *keys), {}

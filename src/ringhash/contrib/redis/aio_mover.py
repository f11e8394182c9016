"""Moves the keys of a ring of Redis servers under asyncio: what a `Handover` calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringhash.contrib.redis.moving import copy_marked, copy_piece, drop_late, forget
from ringhash.contrib.redis.sweep import drive_async
from ringhash.handover import Piece

if TYPE_CHECKING:
    from ringhash.contrib.redis.aio import Ring

__all__ = ["KeyMover"]


class KeyMover:
    """As `ringhash.contrib.redis.mover.KeyMover`, with coroutines."""

    def __init__(self, ring: Ring, settle: float = 0.0, patience: float = 30.0) -> None:
        self._ring = ring
        self._settle = settle
        self._patience = patience
        self._absolute = "PEXPIRETIME" in ring.routes.table.single

    async def prepare(self, piece: Piece) -> bool:
        """Copy the piece, once every call is over that could not know of the handover."""
        await asyncio.sleep(self._settle)
        if not await self._ring.wait_for_calls(self._patience):
            return False
        await drive_async(self._ring.each(), copy_piece(piece, absolute=self._absolute))
        return True

    async def hold(self, piece: Piece) -> None:
        """Copy what was written meanwhile."""
        await drive_async(self._ring.each(), copy_marked(piece, absolute=self._absolute))

    async def stop(self, piece: Piece) -> bool:
        """Let writers wait, and copy the last of what was written."""
        self._set_stopped(piece, stopped=True)
        if not await self._ring.wait_for_calls(self._patience):
            return False
        await drive_async(self._ring.each(), copy_marked(piece, absolute=self._absolute))
        return True

    async def start(self, piece: Piece) -> None:
        """Nothing is needed: the copy is whole, and the router names the new node next."""

    async def undo(self, piece: Piece) -> None:
        """Let writers go on at the old node, and take the copy away."""
        self._set_stopped(piece, stopped=False)
        await drive_async(self._ring.each(), forget(piece))

    async def finish(self, piece: Piece) -> None:
        """Take the piece away from the old node."""
        self._set_stopped(piece, stopped=False)
        await drive_async(self._ring.each(), drop_late(piece))

    def _set_stopped(self, piece: Piece, *, stopped: bool) -> None:
        marks = self._ring.marks
        others = tuple(one for one in marks.stopped if one.number != piece.number)
        marks.stopped = (*others, piece) if stopped else others

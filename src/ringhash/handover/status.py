"""How far a handover is, as it is shown to people and programs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ringhash.handover.ledger import Ledger
from ringhash.handover.pieces import Piece
from ringhash.handover.record import Mode, Side, State

__all__ = ["PieceStatus", "Status", "status_of"]


class PieceStatus(NamedTuple):
    """How far a piece is: its state, who owns it now, and what went wrong if something did."""

    piece: Piece
    state: State
    owner: str | None
    stuck: bool
    note: str


class Status(NamedTuple):
    """How far a handover is.

    `mode` is RUN, ABORT, REVERSE, FINISH or OVER; `counts` has the number of pieces in each state;
    `fraction` is the part of what moves that has gone to its target. If `awaits_finish`, all pieces
    are there, and you say `finish` or `reverse`. A piece is `stuck` if its way back to its owner was
    not confirmed: the router names the owner, but it may have stopped, and a person must look.
    """

    mode: Mode
    epoch: int
    fraction: float
    pieces: tuple[PieceStatus, ...]
    awaits_finish: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """The number of pieces in each state that any is in."""
        return dict(Counter(it.state.value for it in self.pieces))

    @property
    def over(self) -> bool:
        """Whether every piece is where it should be and the router has left the handover."""
        return self.mode is Mode.OVER

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.counts.items()))
        far = f"{self.fraction:.0%} handed over at epoch {self.epoch}"
        waits = "; finish or reverse it" if self.awaits_finish else ""
        return f"{self.mode}: {far} ({states or 'nothing to do'}){waits}"


def status_of(ledger: Ledger, epoch: int) -> Status:
    """Return the status of a ledger at an epoch. O(pieces)."""
    rows = []
    done = total = 0
    for piece, it in zip(ledger.pieces, ledger.standings, strict=True):
        there = it.holder is Side.TARGET
        rows.append(PieceStatus(piece, it.state, piece.target if there else piece.source, it.stuck, it.note))
        total += piece.ranges.size
        done += piece.ranges.size * there
    fraction = done / total if total else float(ledger.over)
    return Status(ledger.mode, epoch, fraction, tuple(rows), ledger.awaits_finish)

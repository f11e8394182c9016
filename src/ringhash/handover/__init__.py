"""Handing keys over gradually: plans that are carried out piece by piece."""

from ringhash.errors import GuardError, HandoverError, HandoverRunningError, HandoverTaken, JournalError
from ringhash.handover.guard import Guard
from ringhash.handover.handover import Handover, read_status
from ringhash.handover.journal import FileJournal, Journal, MemoryJournal, Opener
from ringhash.handover.mover import Callback, Mover
from ringhash.handover.pieces import Piece, cut
from ringhash.handover.record import Mode, Record, State
from ringhash.handover.status import PieceStatus, Status

__all__ = [
    "Callback",
    "FileJournal",
    "Guard",
    "GuardError",
    "Handover",
    "HandoverError",
    "HandoverRunningError",
    "HandoverTaken",
    "Journal",
    "JournalError",
    "MemoryJournal",
    "Mode",
    "Mover",
    "Opener",
    "Piece",
    "PieceStatus",
    "Record",
    "State",
    "Status",
    "cut",
    "read_status",
]

"""Handing keys over gradually: plans that are carried out piece by piece."""

from ringhash.handover.run import Handover, PieceStatus, Status

__all__ = ["Handover", "PieceStatus", "Status"]

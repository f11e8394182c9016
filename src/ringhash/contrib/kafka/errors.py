"""What cannot be placed."""

from __future__ import annotations

from ringhash.errors import RinghashError

__all__ = ["NoKeyError", "PartitionCountError"]


class NoKeyError(RinghashError, ValueError):
    """A record has no key, so no partition follows."""


class PartitionCountError(RinghashError, RuntimeError):
    """A topic has another number of partitions than its keys were placed by."""

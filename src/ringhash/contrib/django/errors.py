"""What the database router refuses."""

from __future__ import annotations

from ringhash.errors import RinghashError

__all__ = ["CrossShardError", "NoKeyError"]


class NoKeyError(RinghashError, LookupError):
    """A query or a row of a sharded model names no key, so no database follows from it."""


class CrossShardError(RinghashError, ValueError):
    """A row was to be written to another database than that of its key."""

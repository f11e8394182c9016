"""What a sharded session refuses."""

from __future__ import annotations

from ringhash.errors import RinghashError

__all__ = ["CrossShardError", "KeyChangeError", "NoKeyError"]


class NoKeyError(RinghashError, ValueError):
    """A statement, a lookup or an object names no key, so no shard follows from it."""


class CrossShardError(RinghashError, ValueError):
    """The answer of one shard is not the answer: the keys lie on several shards, or on another one."""


class KeyChangeError(RinghashError, ValueError):
    """The key of a stored row was to change, which would leave the row where nobody looks for it."""

"""A client-side ring of Redis servers, and `.aio` for asyncio; needs the extra `redis`."""

from ringhash.contrib.redis.errors import (
    CrossNodeError,
    MovingError,
    NodeDownError,
    NoKeyError,
    UnknownCommandError,
)
from ringhash.contrib.redis.mover import KeyMover
from ringhash.contrib.redis.pipeline import Pipeline, Transaction
from ringhash.contrib.redis.pubsub import PubSub
from ringhash.contrib.redis.ring import Ring

__all__ = [
    "CrossNodeError",
    "KeyMover",
    "MovingError",
    "NoKeyError",
    "NodeDownError",
    "Pipeline",
    "PubSub",
    "Ring",
    "Transaction",
    "UnknownCommandError",
]

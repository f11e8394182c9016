"""A client-side ring of Redis servers; needs the extra `redis`."""

from ringhash.contrib.redis.errors import CrossNodeError, NodeDownError, NoKeyError, UnknownCommandError
from ringhash.contrib.redis.pipeline import Pipeline, Transaction
from ringhash.contrib.redis.pubsub import PubSub
from ringhash.contrib.redis.ring import Ring

__all__ = [
    "CrossNodeError",
    "NoKeyError",
    "NodeDownError",
    "Pipeline",
    "PubSub",
    "Ring",
    "Transaction",
    "UnknownCommandError",
]

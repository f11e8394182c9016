"""Publish and subscribe over a ring: a channel lives on the node that owns its name."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from ringhash.contrib.redis.ring import Ring

__all__ = ["PubSub"]

_POLL = 0.5  # seconds; how long a reader looks at one node before it sees that it was closed


class PubSub:
    """One subscription over all nodes; made by `Ring.pubsub`. One thread may use it, as with redis-py.

    A channel is subscribed on the node that owns its name, where `publish` sends it. A pattern is subscribed
    on every node. If a channel gets another owner, it is subscribed there, and a message of the type
    `resubscribed` reports it: what was published in between is lost, as with any reconnection of Redis.

    Each node has a reader thread while it has a subscription.
    """

    def __init__(self, ring: Ring, **options: Any) -> None:
        self._ring = ring
        self._options = options
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._readers: dict[str, _Reader] = {}
        self._channels: dict[Any, tuple[str, Any]] = {}  # channel -> node, handler
        self._patterns: dict[Any, Any] = {}

    def subscribe(self, *channels: Any, **handlers: Callable[[Any], object]) -> None:
        """Subscribe to channels, each on the node that owns it; as in redis-py."""
        wanted = dict.fromkeys(channels) | handlers
        with self._lock:
            for channel, handler in wanted.items():
                node = self._ring.node_of(channel)
                self._reader(node).change("subscribe", channel, handler)
                self._channels[channel] = (node, handler)

    def psubscribe(self, *patterns: Any, **handlers: Callable[[Any], object]) -> None:
        """Subscribe to patterns, on every node."""
        wanted = dict.fromkeys(patterns) | handlers
        with self._lock:
            for name in self._ring.names:
                for pattern, handler in wanted.items():
                    self._reader(name).change("psubscribe", pattern, handler)
            self._patterns |= wanted

    def unsubscribe(self, *channels: Any) -> None:
        """End the subscription of channels; of all without arguments."""
        with self._lock:
            for channel in channels or list(self._channels):
                node, _ = self._channels.pop(channel, (None, None))
                if node in self._readers:
                    self._readers[node].change("unsubscribe", channel)

    def punsubscribe(self, *patterns: Any) -> None:
        """End the subscription of patterns; of all without arguments."""
        with self._lock:
            for pattern in patterns or list(self._patterns):
                self._patterns.pop(pattern, None)
                for reader in self._readers.values():
                    reader.change("punsubscribe", pattern)

    @property
    def subscribed(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._channels or self._patterns)

    def get_message(
        self, ignore_subscribe_messages: bool = False, timeout: float | None = 0.0
    ) -> dict[str, Any] | None:
        """Return the next message, or None if none comes within `timeout` seconds; None waits for ever."""
        while True:
            try:
                message = self._messages.get(block=timeout is None or timeout > 0, timeout=timeout or None)
            except queue.Empty:
                return None
            quiet = ignore_subscribe_messages or self._options.get("ignore_subscribe_messages")
            if not (quiet and message["type"].endswith("subscribe")):
                return message

    def listen(self) -> Iterator[dict[str, Any]]:
        """Yield messages for as long as there is a subscription."""
        while self.subscribed:
            message = self.get_message(timeout=_POLL)
            if message is not None:
                yield message

    def follow(self) -> None:
        """Subscribe every channel where its owner is now. The ring calls it when its nodes change."""
        with self._lock:
            for channel, (node, handler) in list(self._channels.items()):
                owner = self._ring.node_of(channel)
                if owner == node:
                    continue
                self._reader(owner).change("subscribe", channel, handler)
                self._channels[channel] = (owner, handler)
                if node in self._readers:
                    with contextlib.suppress(RedisError, OSError):  # the old node may be gone
                        self._readers[node].change("unsubscribe", channel)
                self._messages.put({"type": "resubscribed", "channel": channel, "from": node, "to": owner})
            for name in self._ring.names:
                if self._patterns and name not in self._readers:
                    for pattern, handler in self._patterns.items():
                        self._reader(name).change("psubscribe", pattern, handler)
            for name in set(self._readers) - set(self._ring.names):
                self._readers.pop(name).close()

    def close(self) -> None:
        """End every subscription and its reader."""
        with self._lock:
            self._channels, self._patterns = {}, {}
            for reader in self._readers.values():
                reader.close()
            self._readers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reader(self, node: str) -> _Reader:
        if node not in self._readers:
            self._readers[node] = _Reader(node, self._ring.node(node).pubsub(**self._options), self._messages)
        return self._readers[node]


class _Reader:
    """The subscription at one node, and the thread that reads it."""

    def __init__(self, node: str, inner: Any, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
        self._inner = inner
        self._messages = messages
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"pubsub-{node}")

    def change(self, what: str, name: Any, handler: Any = None) -> None:
        if handler is None:
            getattr(self._inner, what)(name)
        else:
            getattr(self._inner, what)(**{name: handler})
        if not self._thread.is_alive() and not self._closed.is_set():
            self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._inner.close()

    def _read(self) -> None:
        while not self._closed.is_set():
            try:
                message = self._inner.get_message(timeout=_POLL)
            except (RedisError, OSError, ValueError):
                # The connection broke: redis-py subscribes again when it next reads.
                if self._closed.wait(_POLL):
                    return
                continue
            except RuntimeError:  # there is no subscription left at this node
                if self._closed.wait(_POLL):
                    return
                continue
            if message is not None:
                self._messages.put(message)

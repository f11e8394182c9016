"""Publish and subscribe over a ring, under asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Self

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from ringhash.contrib.redis.aio import Ring

__all__ = ["PubSub"]

_POLL = 0.5  # seconds


class PubSub:
    """As `ringhash.contrib.redis.PubSub`, with a task for each node that has a subscription."""

    def __init__(self, ring: Ring, **options: Any) -> None:
        self._ring = ring
        self._options = options
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._readers: dict[str, _Reader] = {}
        self._channels: dict[Any, tuple[str, Any]] = {}  # channel -> node, handler
        self._patterns: dict[Any, Any] = {}

    async def subscribe(self, *channels: Any, **handlers: Callable[[Any], object]) -> None:
        """Subscribe to channels, each on the node that owns it; as in redis-py."""
        for channel, handler in (dict.fromkeys(channels) | handlers).items():
            node = self._ring.node_of(channel)
            await self._reader(node).change("subscribe", channel, handler)
            self._channels[channel] = (node, handler)

    async def psubscribe(self, *patterns: Any, **handlers: Callable[[Any], object]) -> None:
        """Subscribe to patterns, on every node."""
        wanted = dict.fromkeys(patterns) | handlers
        for name in self._ring.names:
            for pattern, handler in wanted.items():
                await self._reader(name).change("psubscribe", pattern, handler)
        self._patterns |= wanted

    async def unsubscribe(self, *channels: Any) -> None:
        """End the subscription of channels; of all without arguments."""
        for channel in channels or list(self._channels):
            node, _ = self._channels.pop(channel, (None, None))
            if node in self._readers:
                await self._readers[node].change("unsubscribe", channel)

    async def punsubscribe(self, *patterns: Any) -> None:
        """End the subscription of patterns; of all without arguments."""
        for pattern in patterns or list(self._patterns):
            self._patterns.pop(pattern, None)
            for reader in self._readers.values():
                await reader.change("punsubscribe", pattern)

    @property
    def subscribed(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._channels or self._patterns)

    async def get_message(
        self, ignore_subscribe_messages: bool = False, timeout: float | None = 0.0
    ) -> dict[str, Any] | None:
        """Return the next message, or None if none comes within `timeout` seconds; None waits for ever."""
        quiet = ignore_subscribe_messages or self._options.get("ignore_subscribe_messages")
        while True:
            try:
                message = await asyncio.wait_for(self._messages.get(), timeout)
            except TimeoutError:
                return None
            if not (quiet and message["type"].endswith("subscribe")):
                return message

    async def listen(self) -> AsyncIterator[dict[str, Any]]:
        """Yield messages for as long as there is a subscription."""
        while self.subscribed:
            message = await self.get_message(timeout=_POLL)
            if message is not None:
                yield message

    async def follow(self) -> None:
        """Subscribe every channel where its owner is now. The ring calls it when its nodes change."""
        for channel, (node, handler) in list(self._channels.items()):
            owner = self._ring.node_of(channel)
            if owner == node:
                continue
            await self._reader(owner).change("subscribe", channel, handler)
            self._channels[channel] = (owner, handler)
            if node in self._readers:
                with contextlib.suppress(RedisError, OSError):  # the old node may be gone
                    await self._readers[node].change("unsubscribe", channel)
            self._messages.put_nowait({"type": "resubscribed", "channel": channel, "from": node, "to": owner})
        for name in self._ring.names:
            if self._patterns and name not in self._readers:
                for pattern, handler in self._patterns.items():
                    await self._reader(name).change("psubscribe", pattern, handler)
        for name in set(self._readers) - set(self._ring.names):
            await self._readers.pop(name).aclose()

    async def aclose(self) -> None:
        """End every subscription and its reader."""
        self._channels, self._patterns = {}, {}
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await reader.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _reader(self, node: str) -> _Reader:
        if node not in self._readers:
            self._readers[node] = _Reader(self._ring.node(node).pubsub(**self._options), self._messages)
        return self._readers[node]


class _Reader:
    """The subscription at one node, and the task that reads it."""

    def __init__(self, inner: Any, messages: asyncio.Queue[dict[str, Any]]) -> None:
        self._inner = inner
        self._messages = messages
        self._task: asyncio.Task[None] | None = None

    async def change(self, what: str, name: Any, handler: Any = None) -> None:
        if handler is None:
            await getattr(self._inner, what)(name)
        else:
            await getattr(self._inner, what)(**{name: handler})
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._inner.aclose()

    async def _read(self) -> None:
        while True:
            try:
                message = await self._inner.get_message(timeout=_POLL)
            except (RedisError, OSError, RuntimeError):
                # The connection broke: redis-py subscribes again when it reads. Or nothing is subscribed.
                await asyncio.sleep(_POLL)
                continue
            if message is not None:
                self._messages.put_nowait(message)

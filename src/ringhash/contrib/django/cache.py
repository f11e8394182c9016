"""A cache backend over a ring of Redis servers."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisSerializer
from django.utils.module_loading import import_string

from ringhash.contrib.redis import Ring

__all__ = ["RingCache"]

# Django makes a backend for each thread and each asyncio task; they share the ring, and what it knows of the
# health of its nodes. A process that was forked makes its own.
_rings: dict[tuple[Any, ...], Ring] = {}
_lock = threading.Lock()


def _ring(servers: Mapping[str, str], options: dict[str, Any]) -> Ring:
    router = options.pop("router", None)
    if isinstance(router, str):
        router = import_string(router)
    options = {"on_down": "next"} | options
    key = (
        os.getpid(),
        *sorted(servers.items()),
        id(router),
        *sorted((k, repr(v)) for k, v in options.items()),
    )
    with _lock:
        if key not in _rings:
            _rings[key] = Ring(servers, router, **options)
        return _rings[key]


class _Client:
    """What Django's `RedisCache` asks; each command goes to the node of its key."""

    def __init__(self, servers: Mapping[str, str], serializer: Any = None, **options: Any) -> None:
        if isinstance(serializer, str):
            serializer = import_string(serializer)
        if callable(serializer):
            serializer = serializer()
        self._serializer = serializer or RedisSerializer()
        self.ring = _ring(servers, options)

    def add(self, key: str, value: Any, timeout: int | None) -> bool:
        if timeout == 0:
            return not self.ring.exists(key)
        return bool(self.ring.set(key, self._serializer.dumps(value), ex=timeout, nx=True))

    def get(self, key: str, default: Any) -> Any:
        value = self.ring.get(key)
        return default if value is None else self._serializer.loads(value)

    def set(self, key: str, value: Any, timeout: int | None) -> None:
        if timeout == 0:
            self.ring.delete(key)
        else:
            self.ring.set(key, self._serializer.dumps(value), ex=timeout)

    def touch(self, key: str, timeout: int | None) -> bool:
        if timeout is None:
            # PERSIST says 0 for a key that has no time to live, too.
            return bool(self.ring.persist(key)) or bool(self.ring.exists(key))
        return bool(self.ring.expire(key, timeout))

    def delete(self, key: str) -> bool:
        return bool(self.ring.delete(key))

    def get_many(self, keys: Any) -> dict[str, Any]:
        names = list(keys)
        if not names:
            return {}
        values = zip(names, self.ring.mget(names), strict=True)
        return {name: self._serializer.loads(value) for name, value in values if value is not None}

    def has_key(self, key: str) -> bool:
        return bool(self.ring.exists(key))

    def incr(self, key: str, delta: int) -> int:
        if not self.ring.exists(key):
            raise ValueError(f"Key '{key}' not found.")
        return int(self.ring.incr(key, delta))

    def set_many(self, data: Mapping[str, Any], timeout: int | None) -> None:
        if timeout == 0:
            self.delete_many(list(data))
            return
        with self.ring.pipeline() as pipeline:
            for key, value in data.items():
                pipeline.set(key, self._serializer.dumps(value), ex=timeout)
            pipeline.execute()

    def delete_many(self, keys: list[str]) -> None:
        self.ring.delete(*keys)

    def clear(self) -> bool:
        return bool(self.ring.flushdb())


class RingCache(RedisCache):  # type: ignore[misc]  # Django has no annotations
    """`CACHES["default"]["BACKEND"]`: Django's Redis backend, with each key at the node of a ring.

    `LOCATION` has the URL of each node by name. `OPTIONS` has those of `ringhash.contrib.redis.Ring`,
    `router` also as a dotted path, and the `serializer` of Django. By default the next node
    answers the keys of one that is down, which is emptied when it comes back, before it is read.

    Threads and tasks of a process share one ring.
    """

    def __init__(self, server: Mapping[str, str], params: dict[str, Any]) -> None:
        if not isinstance(server, Mapping):
            raise TypeError(
                "LOCATION must name its nodes, {'cache-1': 'redis://...'}: keys are placed by these names, "
                f"not {type(server).__name__}"
            )
        super().__init__(server, params)
        self._class = _Client

    @property
    def ring(self) -> Ring:
        """The ring, as for its plans and changes."""
        client: _Client = self._cache
        return client.ring

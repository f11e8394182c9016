"""Django's cache over four real Redis servers, asked what every cache of Django must answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("django")
redis = pytest.importorskip("redis")

import django_project  # noqa: F401  Django needs settings

from ringhash import Shards, assign
from ringhash.contrib.django import cache as module
from ringhash.contrib.django.cache import RingCache

NODES = ("cache-1", "cache-2", "cache-3", "cache-4")


class Pickled:
    """A value that is pickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pickled) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def cache(redis_nodes: list[Any]) -> Iterator[RingCache]:
    made = RingCache(location(redis_nodes), {"KEY_PREFIX": "t", "VERSION": 1, "TIMEOUT": 300})
    made.clear()
    yield made
    with module._lock:
        while module._rings:
            module._rings.popitem()[1].close()


def location(redis_nodes: list[Any]) -> dict[str, str]:
    return {name: server.url for name, server in zip(NODES, redis_nodes, strict=True)}


def test_values(cache: RingCache) -> None:
    values = {
        "int": 7, "negative": -7, "bool": True, "none": None, "str": "über", "empty": "", "bytes": b"\0x",
        "list": [1, "a"], "dict": {"a": {1}}, "object": Pickled(3), "float": 1.5, "digits": "42",
    }  # fmt: skip
    for key, value in values.items():
        cache.set(key, value)
    for key, value in values.items():
        assert cache.get(key, "default") == value
        assert type(cache.get(key)) is type(value)
    assert cache.get_many([*values, "missing"]) == values
    assert cache.get("missing") is None
    assert cache.get("missing", "d") == "d"
    assert "int" in cache
    assert not cache.has_key("missing")
    # The keys are all over the ring, each at its owner.
    sizes = {name: client.dbsize() for name, client in cache.ring.each().items()}
    assert sum(sizes.values()) == len(values)
    assert sum(1 for size in sizes.values() if size) >= 2
    for key in values:
        made = cache.make_key(key)
        assert cache.ring.client_for(made).exists(made) == 1


def test_add_delete_clear(cache: RingCache) -> None:
    assert cache.add("a", 1) is True
    assert cache.add("a", 2) is False
    assert cache.get("a") == 1
    assert cache.add("zero", 1, timeout=0) is True
    assert cache.get("zero") is None
    assert cache.delete("a") is True
    assert cache.delete("a") is False
    assert cache.get_or_set("a", lambda: 5) == 5
    assert cache.get_or_set("a", lambda: 6) == 5
    cache.set_many({f"k{i}": i for i in range(50)})
    cache.delete_many([f"k{i}" for i in range(25)])
    assert cache.get_many([f"k{i}" for i in range(50)]) == {f"k{i}": i for i in range(25, 50)}
    cache.delete_many([])
    cache.clear()
    assert cache.get_many([f"k{i}" for i in range(50)]) == {}
    assert cache.get_many([]) == {}


def test_numbers(cache: RingCache) -> None:
    cache.set("n", 40)
    assert cache.incr("n") == 41
    assert cache.incr("n", 10) == 51
    assert cache.decr("n", 50) == 1
    assert cache.incr("n", -3) == -2
    for action in (cache.incr, cache.decr):
        with pytest.raises(ValueError, match="not found"):
            action("missing")
    cache.set("text", "x")
    with pytest.raises(redis.ResponseError):
        cache.incr("text")


def test_many(cache: RingCache) -> None:
    data = {f"key-{i}": {"i": i} for i in range(300)}
    assert cache.set_many(data) == []
    assert cache.get_many(data) == data
    assert cache.set_many({}) == []
    cache.set_many({"key-1": 1, "key-2": 2}, timeout=0)
    assert cache.get_many(["key-1", "key-2"]) == {}


def ttl(cache: RingCache, key: str) -> int:
    return int(cache.ring.ttl(cache.make_key(key)))


def test_times_to_live(cache: RingCache) -> None:
    cache.set("default", 1)
    cache.set("short", 1, timeout=60)
    cache.set("for-ever", 1, timeout=None)
    cache.set("gone", 1)
    cache.set("gone", 1, timeout=0)
    cache.set("negative", 1)
    cache.set("negative", 1, timeout=-5)
    assert 200 < ttl(cache, "default") <= 300
    assert 0 < ttl(cache, "short") <= 60
    assert ttl(cache, "for-ever") == -1
    assert cache.get_many(["gone", "negative"]) == {}
    cache.set_many({"a": 1, "b": 2}, timeout=60)
    assert all(0 < ttl(cache, key) <= 60 for key in "ab")
    cache.set_many({"a": 1, "b": 2}, timeout=None)
    assert ttl(cache, "a") == ttl(cache, "b") == -1
    assert cache.touch("short", 2000) is True
    assert 1000 < ttl(cache, "short") <= 2000
    assert cache.touch("short", None) is True
    assert ttl(cache, "short") == -1
    assert cache.touch("short", None) is True  # it is there, though nothing changes
    assert cache.touch("short") is True
    assert 200 < ttl(cache, "short") <= 300
    assert cache.touch("missing") is False
    assert cache.touch("missing", None) is False
    assert cache.touch("short", 0) is True
    assert cache.get("short") is None
    cache.set("n", 1, timeout=60)
    cache.incr("n")
    assert 0 < ttl(cache, "n") <= 60
    cache.set("soon", 1, timeout=1)
    end = time.monotonic() + 60
    while cache.get("soon") is not None:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_versions(cache: RingCache) -> None:
    cache.set("v", 1)
    cache.set("v", 2, version=2)
    assert (cache.get("v"), cache.get("v", version=2), cache.get("v", version=3)) == (1, 2, None)
    assert cache.incr_version("v", version=2) == 3
    assert cache.get("v", version=2) is None
    assert cache.get("v", version=3) == 2
    assert cache.decr_version("v", version=3) == 2
    cache.set_many({"a": 1}, version=5)
    assert cache.get_many(["a"], version=5) == {"a": 1}
    assert cache.get_many(["a"]) == {}
    assert cache.has_key("a", version=5)
    cache.delete_many(["a"], version=5)
    assert not cache.has_key("a", version=5)
    with pytest.raises(ValueError, match="not found"):
        cache.incr_version("missing")
    assert cache.get("v") == 1


def test_keys_are_made_for_redis(cache: RingCache) -> None:
    """Redis takes any key, so as with Django's own backend only memcached's limits are warned of."""
    with pytest.raises(Warning, match="memcached"):
        cache.set("with space", 1)


def test_asyncio(cache: RingCache) -> None:
    async def main() -> None:
        await cache.aset_many({"a": 1, "b": 2})
        assert await cache.aget_many(["a", "b"]) == {"a": 1, "b": 2}
        assert await cache.aincr("a") == 2
        assert await cache.adelete("b") is True
        assert await cache.aget("b", "d") == "d"

    asyncio.run(main())


def test_threads_share_one_ring(cache: RingCache, redis_nodes: list[Any]) -> None:
    """Django makes a backend for each thread."""
    made: list[RingCache] = []

    def work(number: int) -> None:
        own = RingCache(location(redis_nodes), {"KEY_PREFIX": "t", "VERSION": 1, "TIMEOUT": 300})
        for i in range(50):
            own.set(f"{number}-{i}", i)
        made.append(own)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 4
    assert {id(own.ring) for own in made} == {id(cache.ring)}
    assert len(cache.get_many([f"{n}-{i}" for n in range(4) for i in range(50)])) == 200


def test_options(cache: RingCache, redis_nodes: list[Any]) -> None:
    router = assign(Shards(64), NODES)
    own = RingCache(location(redis_nodes), {"OPTIONS": {"router": router, "socket_timeout": 5}})
    own.set("k", 1)
    assert own.ring is not cache.ring
    assert own.ring.node_of(own.make_key("k")) == router.owner(own.make_key("k"))
    with pytest.raises(TypeError, match="name its nodes"):
        RingCache("redis://127.0.0.1", {})


def test_a_node_that_is_down_is_a_miss(cache: RingCache, redis_nodes: list[Any]) -> None:
    keys = [f"key-{i}" for i in range(40)]
    cache.set_many(dict.fromkeys(keys, 1))
    lost = [key for key in keys if cache.ring.node_of(cache.make_key(key)) == "cache-3"]
    assert lost
    redis_nodes[2].stop()
    try:
        end = time.monotonic() + 60
        while "cache-3" not in cache.ring.down:
            assert time.monotonic() < end
            with contextlib.suppress(redis.RedisError):  # until it is known to be down
                cache.get(lost[0])
        assert cache.get_many(keys) == {key: 1 for key in keys if key not in lost}
        cache.set(lost[0], 2)
        assert cache.get(lost[0]) == 2
    finally:
        redis_nodes[2].start()
    while cache.ring.down:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert cache.get(lost[0]) is None  # nothing that was written elsewhere comes back

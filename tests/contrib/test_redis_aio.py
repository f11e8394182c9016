"""The ring under asyncio answers as the one with threads does, and moves keys as it does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

redis = pytest.importorskip("redis")

from ringhash.contrib.redis import CrossNodeError, NoKeyError
from ringhash.contrib.redis import Ring as ThreadRing
from ringhash.contrib.redis.aio import Ring

NAMES = ("a", "b", "c")
DEADLINE = 60.0  # only a hang reaches it


@pytest.fixture
def run(redis_nodes: list[Any]) -> Callable[[Callable[[Ring], Awaitable[object]]], None]:
    """Runs a coroutine function with a ring of three empty nodes; the fourth server is for changes."""

    def go(work: Callable[[Ring], Awaitable[object]]) -> None:
        async def main() -> None:
            for server in redis_nodes:
                async with redis.asyncio.Redis.from_url(server.url) as client:
                    await client.flushall()
            nodes = {name: server.url for name, server in zip(NAMES, redis_nodes, strict=False)}
            async with Ring(nodes, socket_timeout=30.0) as ring, asyncio.timeout(DEADLINE):
                await work(ring)

        asyncio.run(main())

    return go


def test_it_answers_as_the_ring_of_threads(run: Any, redis_nodes: list[Any]) -> None:
    async def work(ring: Ring) -> None:
        keys = [f"k{i}" for i in range(50)]
        assert await ring.mset({key: i for i, key in enumerate(keys)}) is True
        nodes = {name: server.url for name, server in zip(NAMES, redis_nodes, strict=False)}
        with ThreadRing(nodes) as other:
            assert [ring.node_of(key) for key in keys] == [other.node_of(key) for key in keys]
            assert await ring.mget(keys) == other.mget(keys) == [str(i).encode() for i in range(50)]
        assert await ring.get("k7") == b"7"
        assert await ring.exists(*keys, "none") == 50
        assert await ring.delete(*keys[:10]) == 10
        assert await ring.dbsize() == 40
        assert sorted([key async for key in ring.scan_iter()]) == sorted(key.encode() for key in keys[10:])
        script = ring.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
        assert await script(keys=["s"], args=[7]) == 7
        async with ring.lock("the lock", timeout=60):
            assert await ring.client_for("the lock").exists("the lock") == 1

    run(work)


def test_pipelines_and_transactions(run: Any) -> None:
    async def work(ring: Ring) -> None:
        other = next(f"k{i}" for i in range(2, 100) if ring.node_of(f"k{i}") != ring.node_of("k1"))
        pipe = ring.pipeline()
        pipe.set("x", 1).get("x").lpush("x", 1).mget("x", "y").sort(other, store=other)
        found = await pipe.execute(raise_on_error=False)
        assert [found[i] for i in (0, 1, 3, 4)] == [True, b"1", [b"1", None], 0]
        assert isinstance(found[2], redis.ResponseError)
        with pytest.raises(redis.ResponseError, match="command 2 of the pipeline"):
            await ring.pipeline().get("x").lpush("x", 1).execute()
        async with ring.pipeline(transaction=True) as pipe:
            assert await pipe.set("{t}1", 1).incr("{t}1").execute() == [True, 2]
        async with ring.pipeline(transaction=True) as pipe:
            await pipe.watch("k1")
            await ring.set("k1", 2)
            pipe.multi()
            pipe.set("k1", 3)
            with pytest.raises(redis.WatchError):
                await pipe.execute()

        async def add(pipe: Any) -> None:
            value = int(await pipe.get("k1"))
            pipe.multi()
            pipe.set("k1", value + 1)

        assert await ring.transaction(add, "k1") == [True]
        assert await ring.get("k1") == b"3"
        with pytest.raises(CrossNodeError):
            await ring.rename("k1", other)
        with pytest.raises(CrossNodeError):
            ring.pipeline().rename("k1", other)
        with pytest.raises(NoKeyError):
            await ring.info()

    run(work)


def test_every_message_arrives_once(run: Any) -> None:
    async def work(ring: Ring) -> None:
        channels = [f"c{i}" for i in range(20)]
        async with ring.pubsub(ignore_subscribe_messages=True) as named, ring.pubsub() as pattern:
            await named.subscribe(*channels)
            await pattern.psubscribe("c*")
            while True:
                counts = [await node.pubsub_numsub(*channels) for node in ring.each().values()]
                patterns = [await node.pubsub_numpat() for node in ring.each().values()]
                if sum(n for one in counts for _, n in one) == 20 and patterns == [1] * 3:
                    break
                await asyncio.sleep(0.01)
            for channel in channels:
                assert await ring.publish(channel, channel) == 2
            for subscription, kind in ((named, "message"), (pattern, "pmessage")):
                heard = []
                while len(heard) < 20:
                    message = await subscription.get_message(timeout=DEADLINE)
                    if message["type"] == kind:
                        heard.append(message["data"])
                assert sorted(heard) == sorted(channel.encode() for channel in channels)

    run(work)


def test_writes_go_on_while_keys_move(run: Any, redis_nodes: list[Any]) -> None:
    async def work(ring: Ring) -> None:
        stop = asyncio.Event()
        known: dict[str, bytes | None] = {}
        written = 0

        async def write(number: int) -> None:
            nonlocal written
            draw = random.Random(number)
            while not stop.is_set():
                key = f"w{number}:{draw.randrange(100)}"
                if draw.random() < 0.3:
                    await ring.delete(key)
                    known[key] = None
                else:
                    value = str(draw.randrange(1000))
                    await ring.set(key, value)
                    known[key] = value.encode()
                assert await ring.get(key) == known[key]
                written += 1

        tasks = [asyncio.create_task(write(number)) for number in range(4)]
        for _ in range(2):
            assert (await ring.change(add={"d": redis_nodes[3].url})).over
            assert "d" in ring.names
            before = written
            assert (await ring.change(remove=["d"])).over
            while written < before + 100:
                await asyncio.sleep(0.001)
        stop.set()
        await asyncio.gather(*tasks)
        found = {}
        for name, client in ring.each().items():
            async for key in client.scan_iter():
                assert ring.node_of(key) == name
                found[key.decode()] = await client.get(key)
        assert found == {key: value for key, value in known.items() if value is not None}

    run(work)


def test_a_node_that_is_down_comes_back(run: Any) -> None:
    async def work(ring: Ring) -> None:
        ring._every = 0.01
        key = next(f"k{i}" for i in range(1000) if ring.node_of(f"k{i}") == "a")
        ring._on_down, ring._drops = "next", True
        await ring.set(key, 1)
        for _ in range(3):
            ring._heard([type("B", (), {"node": "a"})], [redis.ConnectionError("away")])
        assert ring.down == {"a"}
        assert ring.node_of(key) != "a"
        await ring.set(key, 2)
        neighbour = ring.node_of(key)
        await ring._went_down()
        while ring.down or ring._suspect:
            await asyncio.sleep(0.01)
        assert ring.node_of(key) == "a"
        assert await ring.get(key) is None
        assert await ring.node(neighbour).get(key) is None

    run(work)

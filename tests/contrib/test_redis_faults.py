"""Nodes that go down and come back: no value is silently old. And what subscribers hear meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

redis = pytest.importorskip("redis")

from redis_servers import DEADLINE, PROGRAM, Server, servers

from ringhash.contrib.redis import NodeDownError, Ring
from ringhash.contrib.redis.health import Health

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no redis-server here")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with servers(3, tmp_path_factory.mktemp("redis")) as found:
        yield dict(zip("abc", found, strict=True))


@pytest.fixture
def nodes(started: dict[str, Server]) -> dict[str, Server]:
    for server in started.values():
        if server.process is None:
            server.start()
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
    return started


def ring_of(nodes: dict[str, Server], **options: Any) -> Ring:
    retry = {"retry": None, "socket_timeout": 5.0}
    return Ring({name: server.url for name, server in nodes.items()}, every=0.02, **retry, **options)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never comes about"
        time.sleep(0.01)


def fail(ring: Ring, key: str, times: int = 3) -> None:
    for _ in range(times):
        with pytest.raises((redis.ConnectionError, redis.TimeoutError, NodeDownError)):
            ring.get(key)


def key_on(ring: Ring, name: str) -> str:
    return next(f"k{i}" for i in range(1000) if ring.node_of(f"k{i}") == name)


class TestAStore:
    """on_down="error": the ring does not change, and what cannot be known is an error."""

    def test_a_node_that_is_down_is_an_error_until_it_answers(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes) as ring:
            key, other = key_on(ring, "a"), key_on(ring, "b")
            ring.set(key, 1)
            nodes["a"].stop()
            fail(ring, key)
            assert ring.down == {"a"}
            with pytest.raises(NodeDownError, match="the node 'a' is down"):
                ring.set(key, 2)
            with pytest.raises(NodeDownError):
                ring.mget(key, other)
            with pytest.raises(NodeDownError):
                ring.pipeline().get(other).get(key).execute()
            assert ring.node_of(key) == "a"
            assert ring.set(other, 1) is True
            assert [ring.node(name).dbsize() for name in "bc"] == [1, 0]
            nodes["a"].start()
            until(lambda: not ring.down)
            assert ring.get(key) is None  # this server keeps nothing on disk

    def test_most_nodes_cannot_be_down(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes, min_up=0.5) as ring:
            for name in "ab":
                nodes[name].stop()
                fail(ring, key_on(ring, name), 5)
            assert ring.down == {"a"}  # the second would leave one of three


class TestACache:
    """on_down="next": another node answers meanwhile, and no old value is read afterwards."""

    def test_neither_the_revived_node_nor_its_neighbour_serves_old_values(
        self, nodes: dict[str, Server]
    ) -> None:
        with ring_of(nodes, on_down="next") as ring:
            key = key_on(ring, "a")
            ring.set(key, 1)
            stop_for_a_while(ring, nodes, "a", key)
            ring.set(key, 2)
            neighbour = ring.node_of(key)
            assert neighbour != "a"
            go_on(ring, nodes, "a")
            assert ring.node_of(key) == "a"
            assert ring.get(key) is None  # not 1
            until(lambda: not ring._suspect)
            assert ring.node(neighbour).get(key) is None
            ring.set(key, 3)
            stop_for_a_while(ring, nodes, "a", key)
            assert ring.get(key) is None  # not 2
            go_on(ring, nodes, "a")

    def test_the_control_serves_what_it_has(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes, on_down="next", stale="serve") as ring:
            key = key_on(ring, "a")
            ring.set(key, 1)
            stop_for_a_while(ring, nodes, "a", key)
            ring.set(key, 2)
            go_on(ring, nodes, "a")
            assert ring.get(key) == b"1"
            stop_for_a_while(ring, nodes, "a", key)
            assert ring.get(key) == b"2"
            go_on(ring, nodes, "a")

    def test_while_old_copies_may_exist_nobody_answers_for_the_node(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes, on_down="next") as ring:
            key = key_on(ring, "a")
            ring._suspect = frozenset({"a"})
            nodes["a"].stop()
            fail(ring, key)
            assert ring.node_of(key) == "a"
            with pytest.raises(NodeDownError):
                ring.get(key)


def stop_for_a_while(ring: Ring, nodes: dict[str, Server], name: str, key: str) -> None:
    """As a network fault: the server keeps its memory, and accepts nothing."""
    ring.node(name).connection_pool.disconnect()
    process = nodes[name].process
    assert process is not None
    client = redis.Redis.from_url(nodes[name].url)
    # Refuse every connection but this one: a server at its limit of clients.
    client.config_set("maxclients", 1)
    ring._health.failed(name)
    end = time.monotonic() + DEADLINE
    while name not in ring.down:
        assert time.monotonic() < end
        try:
            ring.get(key)
        except (redis.ConnectionError, NodeDownError):
            continue
    nodes[name].folder.joinpath("held").touch()
    _HELD[name] = client


_HELD: dict[str, Any] = {}


def go_on(ring: Ring, nodes: dict[str, Server], name: str) -> None:
    client = _HELD.pop(name)
    client.config_set("maxclients", 1000)
    client.close()
    until(lambda: not ring.down)


def test_failures_are_counted_in_a_row() -> None:
    health = Health("abcd", down_after=3, min_up=0.5)
    assert [health.failed("a"), health.failed("a")] == [False, False]
    health.answered("a")
    assert [health.failed("a") for _ in range(4)] == [False, False, True, False]
    assert health.down == {"a"}
    assert [health.failed("b") for _ in range(3)] == [False, False, True]
    assert [health.failed("c") for _ in range(9)] == [False] * 9  # half of four stay up
    health.revived("a")
    assert health.failed("c") is True
    health.members("bc")
    assert health.down == {"b", "c"}
    with pytest.raises(ValueError, match="at least 1"):
        Health("a", down_after=0, min_up=0.5)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Health("a", down_after=1, min_up=2)


class TestPubSub:
    def test_every_message_arrives_once(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes) as ring:
            channels = [f"c{i}" for i in range(20)]
            with ring.pubsub(ignore_subscribe_messages=True) as named, ring.pubsub() as pattern:
                named.subscribe(*channels)
                pattern.psubscribe("c*")
                until(
                    lambda: (
                        sum(sum(n for _, n in node.pubsub_numsub(*channels)) for node in ring.each().values())
                        == 20
                    )
                )
                until(lambda: all(node.pubsub_numpat() == 1 for node in ring.each().values()))
                assert [ring.publish(channel, channel) for channel in channels] == [2] * 20
                assert sorted(_heard(named, 20)) == sorted(c.encode() for c in channels)
                assert sorted(_heard(pattern, 20, "pmessage")) == sorted(c.encode() for c in channels)
                assert named.get_message(timeout=0.05) is None
            # The control: on another node nobody hears it.
            with ring.pubsub() as named:
                named.subscribe("c0")
                until(lambda: ring.client_for("c0").pubsub_numsub("c0")[0][1] == 1)
                other = next(name for name in "abc" if name != ring.node_of("c0"))
                assert ring.node(other).publish("c0", "x") == 0

    def test_a_channel_follows_its_owner_and_the_gap_is_reported(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes, on_down="next") as ring:
            channel = key_on(ring, "a")
            with ring.pubsub(ignore_subscribe_messages=True) as named:
                named.subscribe(channel)
                ring.router.mark_down("a")
                ring._subscriptions_follow()
                owner = ring.node_of(channel)
                until(lambda: ring.node(owner).pubsub_numsub(channel)[0][1] == 1)
                ring.publish(channel, "there")
                first = named.get_message(timeout=DEADLINE)
                assert first == {"type": "resubscribed", "channel": channel, "from": "a", "to": owner}
                assert _heard(named, 1) == [b"there"]

    def test_handlers_and_unsubscribing(self, nodes: dict[str, Server]) -> None:
        with ring_of(nodes) as ring:
            seen: list[bytes] = []
            done = threading.Event()

            def handler(message: Any) -> None:
                seen.append(message["data"])
                done.set()

            with ring.pubsub() as named:
                named.subscribe(c=handler)
                until(lambda: ring.client_for("c").pubsub_numsub("c")[0][1] == 1)
                ring.publish("c", "x")
                assert done.wait(DEADLINE)
                named.unsubscribe()
                until(lambda: ring.client_for("c").pubsub_numsub("c")[0][1] == 0)
                assert not named.subscribed
            assert seen == [b"x"]


def _heard(subscription: Any, count: int, kind: str = "message") -> list[bytes]:
    found: list[bytes] = []
    end = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages"
        message = subscription.get_message(timeout=1)
        if message is not None and message["type"] == kind:
            found.append(message["data"])
    return found

"""A ring of Redis servers answers as one server would, or refuses before it sends anything."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

redis = pytest.importorskip("redis")

from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import Router
from ringhash.contrib.redis import CrossNodeError, NoKeyError, Ring, UnknownCommandError
from ringhash.contrib.redis.commands import CommandTable, word

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def ring(redis_nodes: list[Any]) -> Iterator[Ring]:
    with Ring({name: server.url for name, server in zip(NAMES, redis_nodes, strict=True)}) as ring:
        ring.flushall()
        yield ring


def apart(ring: Ring) -> tuple[str, str]:
    """Two keys on two nodes."""
    return "k1", next(f"k{i}" for i in range(2, 100) if ring.node_of(f"k{i}") != ring.node_of("k1"))


def test_a_key_is_on_the_node_that_the_router_names(ring: Ring) -> None:
    router = Router(NAMES, hash_tags=True)
    for key in ("user:7", b"\xff\x00", "{tag}:x", 7, 1.5, bytearray(b"ba"), memoryview(b"mv")):
        ring.set(key, "v")
        text = (
            key
            if isinstance(key, (str, bytes))
            else bytes(key)
            if not isinstance(key, (int, float))
            else str(key)
        )
        assert ring.node(router.owner(text)).get(key) == b"v"
        assert ring.get(key) == b"v"
    assert ring.dbsize() == 7
    assert ring.node_of("{t}:1") == ring.node_of("{t}:2")


def test_any_router_and_placement_is_taken(redis_nodes: list[Any]) -> None:
    nodes = {name: server.url for name, server in zip(NAMES, redis_nodes, strict=True)}
    router = Router(NAMES, vnodes=40, seed=3)
    with Ring(nodes, router) as ring:
        assert [ring.node_of(f"k{i}") for i in range(50)] == [router.owner(f"k{i}") for i in range(50)]
    with pytest.raises(ValueError, match="both need the same names"):
        Ring(nodes, Router(["a", "b"]))
    with pytest.raises(ValueError, match="at least one node"):
        Ring({})


def test_commands_of_many_keys_are_cut_up_and_answered_in_order(ring: Ring) -> None:
    keys = [f"k{i}" for i in range(100)]
    assert ring.mset({key: i for i, key in enumerate(keys)}) is True
    assert len({ring.node_of(key) for key in keys}) == len(NAMES)
    mixed = [*keys[::-1], "none", keys[0], keys[0]]
    assert ring.mget(mixed) == [*(str(i).encode() for i in reversed(range(100))), None, b"0", b"0"]
    assert ring.exists(*keys, "none", keys[0]) == 101
    assert ring.touch(*keys[:10]) == 10
    assert ring.delete(*keys[:30], "none") == 30
    assert ring.unlink(*keys[30:50]) == 20
    assert ring.dbsize() == 50
    assert sorted(ring.scan_iter()) == sorted(key.encode() for key in keys[50:])
    assert sorted(ring.keys("k5*")) == sorted(key.encode() for key in keys[50:60])


def test_what_needs_one_node_is_refused_before_anything_is_sent(ring: Ring) -> None:
    one, other = apart(ring)
    calls = [
        lambda: ring.eval("redis.call('set', KEYS[1], 1)", 2, one, other),
        lambda: ring.msetnx({one: 1, other: 2}),
        lambda: ring.rename(one, other),
        lambda: ring.smove(one, other, "m"),
        lambda: ring.sinterstore(one, [other, "k"]),
        lambda: ring.copy(one, other),
        lambda: ring.blpop([one, other], 0),
        lambda: ring.sort(one, store=other),
        lambda: ring.xread({one: 0, other: 0}),
        lambda: ring.zunion([one, other]),
        lambda: ring.bitop("AND", one, other),
        lambda: ring.pipeline().rename(one, other),
    ]
    for call in calls:
        with pytest.raises(CrossNodeError) as caught:
            call()
        message = str(caught.value)
        assert repr(one) in message.replace("b'", "'")
        assert ring.node_of(one) in message
        assert ring.node_of(other) in message
        assert set(caught.value.nodes) >= {ring.node_of(one), ring.node_of(other)}
    assert ring.dbsize() == 0
    # The control: with a tag they are on one node, and all is well.
    assert ring.eval("return redis.call('set', KEYS[1], ARGV[1])", 2, "{t}1", "{t}2", "v") == b"OK"
    assert ring.rename("{t}1", "{t}2") is True


def test_what_has_no_key_says_how_to_ask(ring: Ring) -> None:
    for call in (
        lambda: ring.eval("return 1", 0),
        ring.info,
        ring.randomkey,
        ring.time,
        lambda: ring.config_get("save"),
    ):
        with pytest.raises(NoKeyError, match=r"ring\.node\(name\)"):
            call()
    assert ring.node("a").eval("return 1", 0) == 1
    assert ring.ping() is True
    with pytest.raises(UnknownCommandError, match="no command 'NOPE'"):
        ring.execute_command("NOPE", "k")
    with pytest.raises(LookupError, match="there is no node 'x'; the nodes are a, b, c, d"):
        ring.node("x")


def test_errors_go_through_pickle() -> None:
    error = CrossNodeError("RENAME", {"a": ["k1"], "b": [b"k2"]})
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


class TestPipelines:
    def test_answers_are_in_order_and_an_error_keeps_its_place(self, ring: Ring) -> None:
        wrong = redis.ResponseError
        for _ in range(50):
            pipe = ring.pipeline()
            pipe.set("43", "34").get("43").delete("43").set("x", 1).get("43").set("43", 35).get("43")
            pipe.lpush("x", 1).get("x").mget("x", "43", "none").dbsize()
            found = pipe.execute(raise_on_error=False)
            assert isinstance(found[7], wrong)
            assert found[:7] + found[8:] == [
                True,
                b"34",
                1,
                True,
                None,
                True,
                b"35",
                b"1",
                [b"1", b"35", None],
                2,
            ]
        with pytest.raises(wrong, match="command 2 of the pipeline"):
            ring.pipeline().get("x").lpush("x", 1).execute()
        assert ring.pipeline().execute() == []

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from(["set", "get", "incr", "append", "delete"]), st.integers(0, 12)),
            max_size=60,
        )
    )
    def test_it_answers_as_one_server_would(
        self, redis_nodes: list[Any], commands: list[tuple[str, int]]
    ) -> None:
        def run(client: Any) -> list[Any]:
            client.flushall()
            pipe = client.pipeline(transaction=False)
            for i, (command, key) in enumerate(commands):
                getattr(pipe, command)(f"k{key}", *([i] if command in ("set", "append") else []))
            return [repr(answer) for answer in pipe.execute(raise_on_error=False)]

        with Ring({name: server.url for name, server in zip(NAMES, redis_nodes, strict=True)}) as ring:
            with redis.Redis.from_url(redis_nodes[0].url) as single:
                expected = run(single)
            assert run(ring) == expected

    def test_a_transaction_is_on_one_node(self, ring: Ring) -> None:
        one, other = apart(ring)
        with ring.pipeline(transaction=True) as pipe:
            assert pipe.set("{t}1", 1).incr("{t}1").get("{t}2").execute() == [True, 2, None]
        with ring.pipeline(transaction=True) as pipe:
            pipe.set(one, 1)
            with pytest.raises(CrossNodeError, match="a transaction has keys on 2 nodes"):
                pipe.set(other, 1)
        with pytest.raises(NoKeyError, match="name the node with node="):
            ring.pipeline(transaction=True).ping()
        assert ring.pipeline(transaction=True, node="a").ping().execute() == [True]
        assert ring.exists(one) == 0

    def test_watch_notices_a_change_and_stays_on_its_node(self, ring: Ring) -> None:
        one, other = apart(ring)
        ring.set(one, 1)
        with ring.pipeline(transaction=True) as pipe:
            pipe.watch(one)
            assert pipe.get(one) == b"1"
            ring.set(one, 2)
            pipe.multi()
            pipe.set(one, 3)
            with pytest.raises(redis.WatchError):
                pipe.execute()
        with ring.pipeline(transaction=True) as pipe:
            pipe.watch(one)
            with pytest.raises(CrossNodeError):
                pipe.set(other, 1)
        assert ring.get(one) == b"2"

        def add(pipe: Any) -> None:
            value = int(pipe.get(one))
            pipe.multi()
            pipe.set(one, value + 1)

        assert ring.transaction(add, one) == [True]
        assert ring.get(one) == b"3"


def test_scripts_and_locks_go_to_the_node_of_their_key(ring: Ring) -> None:
    script = ring.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    for key in ("s1", "s2", "s3", "s4", "s5"):
        assert script(keys=[key], args=[7]) == 7
        assert ring.get(key) == b"7"
    with ring.lock("the lock", timeout=60):
        assert ring.client_for("the lock").exists("the lock")
        assert ring.lock("the lock").acquire(blocking=False) is False
    assert ring.exists("the lock") == 0


def test_text_is_decoded_when_asked(redis_nodes: list[Any]) -> None:
    nodes = {name: server.url for name, server in zip(NAMES, redis_nodes, strict=True)}
    with Ring(nodes, decode_responses=True) as ring:
        ring.set("ä", "ö")
        assert ring.get("ä") == "ö"
        assert ring.mget("ä", "none") == ["ö", None]
        assert ring.pipeline().get("ä").execute() == ["ö"]


class TestTheTableOfCommands:
    """Which arguments are keys, against what the server itself answers."""

    CASES = (
        ("GET", "k"),
        ("MSET", "a", 1, "b", 2),
        ("EVAL", "return 1", 2, "a", "b", "arg"),
        ("EVALSHA", "abc", 1, "a", "arg"),
        ("FCALL", "f", 1, "a"),
        ("XREAD", "COUNT", 1, "STREAMS", "a", "b", "0", "0"),
        ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", ">"),
        ("ZUNIONSTORE", "d", 2, "a", "b", "WEIGHTS", 1, 2),
        ("ZINTER", 2, "a", "b"),
        ("BITOP", "AND", "d", "a", "b"),
        ("BLPOP", "a", "b", 0),
        ("OBJECT", "ENCODING", "k"),
        ("GEOSEARCHSTORE", "d", "s", "FROMLONLAT", 1, 2, "BYRADIUS", 1, "m"),
        ("LMPOP", 2, "a", "b", "LEFT"),
        ("MEMORY", "USAGE", "k"),
    )

    @pytest.mark.parametrize("protocol", [2, 3])
    def test_it_agrees_with_the_server(self, redis_nodes: list[Any], protocol: int) -> None:
        with Ring({"a": redis_nodes[0].url}, protocol=protocol) as ring:
            for args in self.CASES:
                mine = [args[i] for i in ring.routes.table.key_indexes(args) or ()]
                theirs = ring.node("a").execute_command("COMMAND GETKEYS", *args)
                assert mine == [word(key) for key in theirs], args

    def test_what_the_table_cannot_say_is_asked(self, ring: Ring) -> None:
        one, other = apart(ring)
        assert ring.routes.table.key_indexes(("SORT", one, "STORE", other)) is None
        assert ring.keys_of(("SORT", one, "STORE", other)) == [one.encode(), other.encode()]

    def test_a_name_of_two_words_counts_as_one(self, ring: Ring) -> None:
        assert ring.routes.table.key_indexes(("MEMORY USAGE", "k")) == [1]
        assert ring.routes.table.key_indexes(("OBJECT ENCODING", "k")) == [1]

    def test_servers_before_redis_7_have_only_the_first_and_the_last_key(self) -> None:
        table = CommandTable(
            [
                [b"get", 2, [b"readonly"], 1, 1, 1],
                [b"mset", -3, [b"write"], 1, -1, 2],
                [b"blpop", -3, [b"write"], 1, -2, 1],
                [b"eval", -3, [b"movablekeys"], 0, 0, 0],
                [b"ping", -1, [], 0, 0, 0],
            ]
        )
        assert table.single == {"get", "GET"}
        assert table.key_indexes(("MSET", "a", 1, "b", 2)) == [1, 3]
        assert table.key_indexes(("BLPOP", "a", "b", 0)) == [1, 2]
        assert table.key_indexes(("EVAL", "s", 1, "a")) is None
        assert table.key_indexes(("PING",)) == []
        assert table.is_readonly(("GET", "k"))
        assert not table.is_readonly(("EVAL", "s", 0))

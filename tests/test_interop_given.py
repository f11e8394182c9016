"""What placements of other programs are given: accepted, refused, and never taken for something else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringhash import DuplicateNodeError
from ringhash.interop import (
    CassandraRing,
    EnvoyMaglev,
    EnvoyRing,
    HAProxyRing,
    KafkaPartitioner,
    KetamaRing,
    NginxRing,
    ProgramPlacement,
    RedisSlots,
    TextSpace,
    UHashPlacement,
)
from ringhash.interop.given import digits, whole_number
from ringhash.interop.hashes import hash_named, hash_names, hash_size
from ringhash.interop.report import compare, moving_keys
from ringhash.interop.stretches import cut

pytest.importorskip("xxhash")

FOUR = [f"server{i}" for i in range(1, 5)]
KEYS = [f"user:{i}" for i in range(20_000)]
NARROW = [
    pytest.param(lambda s: KetamaRing(s, "twemproxy", hash="crc32"), id="twemproxy crc32"),
    pytest.param(lambda s: KetamaRing(s, "libmemcached", hash="crc"), id="libmemcached crc"),
    pytest.param(lambda s: KetamaRing(s, "libmemcached-weighted", hash="crc"), id="weighted crc"),
    pytest.param(lambda s: KetamaRing(s, "spymemcached", hash="crc"), id="spymemcached crc"),
]


# --- a space is what the hash can give ---


def test_a_hash_gives_every_bit_of_its_size_and_no_other() -> None:
    random.seed(3)
    texts = [random.randbytes(random.randrange(1, 50)) for _ in range(2000)]
    for name in hash_names():
        function = hash_named(name)
        seen = 0
        for text in texts:
            seen |= function(text)
        assert seen == hash_size(name) - 1, name


@pytest.mark.parametrize("make", NARROW)
@pytest.mark.parametrize("servers", [FOUR, [f"10.0.0.{i}:11212" for i in range(30)]])
def test_shares_count_only_what_the_hash_can_give(
    make: Callable[..., KetamaRing], servers: list[str]
) -> None:
    ring = make(servers)
    assert ring.space.size == 1 << 15
    seen = Counter(ring.owner_many(KEYS))
    for name, share in ring.shares.items():
        assert seen[name] / len(KEYS) == pytest.approx(share, abs=0.02)
        assert sum(one.size for one in ring.ranges(name)) == round(share * ring.space.size)
        assert all(one.end < ring.space.size for one in ring.ranges(name))
    assert sum(ring.shares.values()) == 1


@pytest.mark.parametrize("make", NARROW)
def test_a_plan_counts_only_what_the_hash_can_give(make: Callable[..., KetamaRing]) -> None:
    before = make(FOUR)
    for gone in FOUR:
        after = before.without(gone)
        plan = before.diff(after)
        moved = sum(a != b for a, b in zip(before.owner_many(KEYS), after.owner_many(KEYS), strict=True))
        assert moved / len(KEYS) == pytest.approx(plan.fraction, abs=0.02)
        assert int(plan.mask(KEYS).sum()) == moved
        assert plan.fraction == pytest.approx(before.shares[gone])


def test_the_example_of_twemproxys_crc32() -> None:
    ring = KetamaRing(FOUR, "twemproxy", hash="crc32")
    assert ring.shares == {"server1": 0, "server2": 0, "server3": 1, "server4": 0}
    assert ring.diff(ring.without("server3")).fraction == 1


def test_a_modulus_above_the_hash_adds_no_positions() -> None:
    assert TextSpace("crc16", 1 << 20).position("a") == TextSpace("crc16").position("a") < 1 << 16


def test_cut() -> None:
    ends, owners = np.array([4, 9, 99], np.uint64), np.array([0, 1, 0], np.int32)
    for size in range(1, 101):
        whole = np.repeat(owners, [5, 5, 90])[:size]
        cut_ends, cut_owners = cut(ends, owners, size)
        assert cut_ends[-1] == size - 1
        assert np.repeat(cut_owners, np.diff(cut_ends.astype(int), prepend=-1)).tolist() == whole.tolist()
    assert ends[-1] == 99


# --- servers that cannot own keys, and servers that count for more than they say ---


@pytest.mark.parametrize("flavour", ["libmemcached", "libmemcached-weighted"])
def test_a_weight_of_0_counts_as_1_for_libmemcached(flavour: Any) -> None:
    servers = {"a:1": 0, "b:1": 1, "c:1": 1}
    ring, equal = KetamaRing(servers, flavour), KetamaRing(list(servers), flavour)
    assert ring.owner_many(KEYS) == equal.owner_many(KEYS)
    assert ring.nodes == equal.nodes
    assert ring.balance == equal.balance
    assert ring.servers == servers
    heavier = ring.with_weights({"b:1": 2})
    plan = ring.diff(heavier)
    assert [(one.before or one.after).name for one in plan.changes.nodes] == ["b:1"]  # type: ignore[union-attr]
    assert plan.needless == equal.diff(equal.with_weights({"b:1": 2})).needless
    assert not ring.diff(ring.with_weights({"a:1": 1})).changes.nodes


def test_a_server_of_nginx_that_is_down_is_no_node() -> None:
    up = NginxRing(["a:1", "b:1", "c:1"])
    down = NginxRing(up.servers, down=["b:1"])
    assert [node.name for node in down.nodes] == ["a:1", "c:1"]
    assert down.balance.low_to_mean > 0.5
    plan = up.diff(down)
    assert plan.fraction > 0.2
    assert plan.needless == 0
    assert [change.after for change in plan.changes.nodes] == [None]


@pytest.mark.parametrize(
    "make",
    [
        lambda: KetamaRing(["h", "h:11211"], "libmemcached"),
        lambda: KetamaRing(["h", "h:11211"]),
        lambda: KetamaRing(["h", "h:11211"], "spymemcached"),
        lambda: KetamaRing(["h:11211", "h"], "twemproxy"),
        lambda: KetamaRing(["h:1", "h:01"]),
        lambda: KetamaRing(["10.0.0.1:80 alpha", "10.0.0.2:80 alpha"], "twemproxy"),
        lambda: KetamaRing(["10.0.0.1:80 alpha", "alpha"], "twemproxy"),
        lambda: NginxRing(["unix:/run/app.sock", "UNIX:/run/app.sock"]),
    ],
)
def test_two_names_of_one_server_are_refused(make: Callable[[], ProgramPlacement]) -> None:
    with pytest.raises(DuplicateNodeError, match="are one server"):
        make()


def test_names_that_differ_for_the_program_are_two_servers() -> None:
    assert len(KetamaRing(["h", "h:11211"], "libketama")) == 2
    assert len(KetamaRing(["h:1", "h:10", "h"])) == 3
    assert len(NginxRing(["h:1", "h:01", "h"])) == 3


# --- one text is not many, and a setting is not converted ---


@pytest.mark.parametrize(
    "make",
    [
        lambda: KafkaPartitioner("012"),
        lambda: KafkaPartitioner(b"012"),
        lambda: NginxRing(["a"]).with_servers("bc"),
        lambda: NginxRing(["a"]).with_servers(b"bc"),
        lambda: NginxRing(["a", "b"]).with_weights("ab"),
        lambda: NginxRing(bytearray(b"ab")),
        lambda: NginxRing(["a", "b"], down="ab"),
        lambda: NginxRing(["a", "b"], down=b"ab"),
        lambda: HAProxyRing(["a", "b"], ids="12"),
        lambda: HAProxyRing(["a", "b"], ids=b"\1\2"),
        lambda: CassandraRing({"a": "123"}),
        lambda: CassandraRing({"a": b"123"}),
        lambda: CassandraRing("ab"),
        lambda: CassandraRing({"a": [1]}).with_servers("bc"),
        lambda: RedisSlots({"a": "123"}),
        lambda: RedisSlots({"a": b"123"}),
        lambda: RedisSlots("ab"),
        lambda: RedisSlots({"a": [1]}).with_servers("bc"),
        lambda: UHashPlacement("ab"),
        lambda: moving_keys(NginxRing(["a"]), NginxRing(["b"]), "user"),
        lambda: moving_keys(NginxRing(["a"]), NginxRing(["b"]), b"user"),
        lambda: compare(NginxRing(["a"]), NginxRing(["b"]), "user"),
    ],
)
def test_one_text_is_not_many(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"must be (a list|a mapping|an iterable)"):
        make()


@pytest.mark.parametrize("wrong", [True, False, 1.0, 2.5, "2", None, np.float64(2), np.bool_(True), b"2"])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: CassandraRing({"a": [n]}),
        lambda n: RedisSlots({"a": [(n, 3)]}),
        lambda n: RedisSlots({"a": [[0, n]]}),
        lambda n: NginxRing({"a": n}),
        lambda n: NginxRing(["a"]).with_servers({"b": n}),
        lambda n: NginxRing(["a"]).with_weights({"a": n}),
        lambda n: HAProxyRing(["a"], ids={"a": n}),
        lambda n: EnvoyRing(["a"], min_ring_size=n),
        lambda n: EnvoyRing(["a"], max_ring_size=n),
        lambda n: EnvoyMaglev(["a"], n),
        lambda n: TextSpace("crc16", n),
        lambda n: NginxRing(["a"]).owners("key", n),
        lambda n: HAProxyRing(["a"]).owners("key", n),
        lambda n: EnvoyMaglev(["a"], 251).owners("key", n),
    ],
)
def test_a_number_is_a_whole_number(make: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"must be a whole number, not|must be numbers"):
        make(wrong)


@pytest.mark.parametrize("wrong", [True, 2.5, np.bool_(True)])
def test_a_count_is_a_whole_number(wrong: Any) -> None:
    for make in (KafkaPartitioner, lambda n: UHashPlacement(["a"], vnodes=n)):
        with pytest.raises(TypeError, match="must be"):
            make(wrong)
    with pytest.raises(TypeError, match="avalanche must be True or False, not"):
        HAProxyRing(["a"], avalanche=wrong if wrong == 2.5 else "no")


def test_numbers_of_numpy_are_numbers() -> None:
    assert KafkaPartitioner(np.int64(4)) == KafkaPartitioner(4)
    assert CassandraRing({"a": np.array([5, 7])}) == CassandraRing({"a": [5, 7]})
    assert NginxRing({"a": np.int32(2)}) == NginxRing({"a": 2})


def test_ranges_of_slots_as_redis_writes_them() -> None:
    slots = RedisSlots({"a": ["0-8190", "8192"], "b": [8191, (8193, 16383)]})
    assert slots == RedisSlots({"a": [(0, 8190), 8192], "b": [[8191, 8191], (8193, 16383)]})
    for wrong in ("0-", "-5", "a", "1-2-3", "", "²", "9" * 5000, (1, 2, 3), (), [1], {}):
        with pytest.raises((TypeError, ValueError), match=r"must be (numbers|a whole number)"):
            RedisSlots({"a": [wrong]})
    with pytest.raises(ValueError, match="must go up"):
        RedisSlots({"a": ["5-4"]})


def test_digits() -> None:
    assert [digits(text) for text in ("0", "007", "0" * 9000 + "7", str(2**64 - 1))] == [0, 7, 7, 2**64 - 1]
    for wrong in ("", "²", "٣", "-1", "+1", "1_0", " 1", "1.0", "9" * 21, "9" * 5000):
        assert digits(wrong) is None


def test_a_number_too_long_to_be_written_is_refused_with_a_message() -> None:
    with pytest.raises(ValueError, match="not a number of 33220 bits"):
        whole_number(10**10_000, "n", 1, 5)
    with pytest.raises(ValueError, match="number of"):
        KafkaPartitioner(10**5000)


@pytest.mark.parametrize("port", ["70000", "9" * 5000])
def test_a_port_has_16_bits(port: str) -> None:
    with pytest.raises(ValueError, match="from 0 to 65535") as caught:
        KetamaRing([f"h:{port}"])
    assert len(str(caught.value)) < 200

"""Placements of other programs have the methods of a ring: what they promise, whatever the program."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import random
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import DuplicateNodeError, Plan, Ring, UnknownNodeError
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
    UnplacedKeyError,
)
from ringhash.interop.hashes import hash_named, hash_names
from ringhash.interop.report import compare, moving_keys
from ringhash.placement import placement_from

pytest.importorskip("xxhash")

WEIGHTS = {"10.0.0.1:80": 1, "10.0.0.2:80": 2, "10.0.0.3:80": 3, "10.0.0.4:80": 1, "10.0.0.5:80": 5}
KEYS = [f"user:{i}" for i in range(2000)]
MAKERS: dict[str, Any] = {
    "nginx": NginxRing,
    "haproxy": HAProxyRing,
    "haproxy ids": lambda servers: HAProxyRing(servers, ids={n: 7 + i for i, n in enumerate(WEIGHTS) if n in servers}),
    "envoy": EnvoyRing,
    "maglev": lambda servers: EnvoyMaglev(servers, 5003),
    "uhashring": UHashPlacement,
    "uhashring ketama": lambda servers: UHashPlacement(servers, "ketama"),
    **{
        flavour: lambda servers, flavour=flavour: KetamaRing(servers, flavour)
        for flavour in ("libketama", "libmemcached", "libmemcached-weighted", "spymemcached", "twemproxy")
    },
}  # fmt: skip
OTHERS: list[ProgramPlacement] = [
    RedisSlots({"a": [(0, 5000), 5002], "b": [(5003, 16383)]}),
    KafkaPartitioner(12),
    KafkaPartitioner(7, "consistent"),
    CassandraRing({"a": [-(2**63), 5, 2**62], "b": [-1, 2**63 - 1]}),
    NginxRing(WEIGHTS, down=["10.0.0.3:80"]),
    KetamaRing(WEIGHTS, "twemproxy", hash="md5", hash_tag="{}"),
]
ALL = [make(WEIGHTS) for make in MAKERS.values()] + OTHERS
EACH = pytest.mark.parametrize(
    "placement", ALL, ids=lambda one: f"{one.kind} {list(one._settings.values())}"[:50]
)


# --- one key, many keys ---


@EACH
def test_a_key_has_one_owner_however_it_is_asked(placement: ProgramPlacement) -> None:
    owners = [placement.owner(key) for key in KEYS if placement.index_many([key])[0] >= 0]
    keys = [key for key in KEYS if placement.index_many([key])[0] >= 0]
    assert owners == placement.owner_many(keys) == [placement[key] for key in keys]
    assert owners == [placement.names[i] for i in placement.index_many(np.array(keys, object))]
    assert owners == placement.owner_many([key.encode() for key in keys])
    assert owners == placement.owner_many(np.array([key.encode() for key in keys]))
    assert owners == [placement.owner(bytearray(key.encode())) for key in keys]
    assert set(owners) <= set(placement.names)


@EACH
def test_a_key_is_text(placement: ProgramPlacement) -> None:
    for wrong in (7, None, 1.5, ("a",), np.int64(1)):
        with pytest.raises(TypeError, match="must be str, bytes"):
            placement.owner(wrong)
    with pytest.raises(TypeError, match="one key"):
        placement.owner_many("user:7")
    with pytest.raises(TypeError) as caught:
        placement.index_many(["a", 7])
    assert "This was key 1 of 2." in caught.value.__notes__
    assert placement.owner("é") == placement.owner("é".encode())


@EACH
def test_ranges_and_shares_are_those_of_the_keys(placement: ProgramPlacement) -> None:
    positions = {key: placement.position(key) for key in KEYS[:300]}
    for name in placement.names:
        ranges = placement.ranges(name)
        assert all(a.end + 1 < b.start for a, b in pairwise(ranges))
        assert sum(one.size for one in ranges) / placement.space.size == pytest.approx(placement.shares[name])
        for key, position in positions.items():
            owned = placement.index_many([key])[0] == placement.names.index(name)
            assert any(position in one for one in ranges) == owned
    assert 0.5 < sum(placement.shares.values()) <= 1 + 1e-12
    assert placement.balance.low_to_mean <= 1 + 1e-9
    with pytest.raises(UnknownNodeError, match="there is no node 'x'"):
        placement.ranges("x")


@EACH
def test_it_is_stored_and_read_back(placement: ProgramPlacement) -> None:
    again = placement_from(json.loads(json.dumps(placement.to_dict())))
    assert again == placement == pickle.loads(pickle.dumps(placement)) == copy.deepcopy(placement)
    assert again.digest == placement.digest
    assert hash(again) == hash(placement)
    assert again.index_many(KEYS).tolist() == placement.index_many(KEYS).tolist()
    assert type(placement).__name__ in repr(placement)
    with pytest.raises(ValueError, match="unknown field 'x'"):
        placement_from({**placement.to_dict(), "x": 1})
    with pytest.raises(ValueError, match=r"placement\.servers"):
        placement_from({**placement.to_dict(), "servers": 1})
    with pytest.raises(TypeError, match="immutable"):
        placement._set_table(placement.space, (), np.array([0], np.uint64), np.array([0], np.int32))


def test_only_known_programs_are_read() -> None:
    with pytest.raises(ValueError, match=r"must be one of .*cassandra, .*envoy"):
        placement_from({"kind": "apache"})


# --- fail-over ---


@pytest.mark.parametrize("name", [name for name, make in MAKERS.items() if hasattr(make(WEIGHTS), "walk")])
def test_a_walk_begins_with_the_owner_and_takes_each_server_once(name: str) -> None:
    placement = MAKERS[name](WEIGHTS)
    for key in KEYS[:200]:
        walk = list(placement.walk(key))
        assert walk[0] == placement.owner(key)
        assert len(set(walk)) == len(walk)
        assert placement.owners(key, len(walk)) == tuple(walk)
        if name != "nginx":  # nginx looks at 21 points
            assert sorted(walk) == sorted(WEIGHTS)
    most = len(list(placement.walk("user:1")))
    assert placement.owners("user:1", most + 3) == placement.owners("user:1", most, "zone", strict=True)
    with pytest.raises(ValueError, match=f"tries {most} servers"):
        placement.owners("user:1", most + 1, strict=True)
    with pytest.raises(ValueError, match="'node' or 'zone'"):
        placement.owners("user:1", 1, "rack")
    with pytest.raises(ValueError, match="at least 1"):
        placement.owners("user:1", 0)


@pytest.mark.parametrize("name", ["haproxy ids", "uhashring"])
def test_who_takes_over_is_the_owner_without_the_servers_before(name: str) -> None:
    placement = MAKERS[name](WEIGHTS)
    for key in KEYS[:100]:
        left = placement
        for server in list(placement.walk(key))[:-1]:
            assert left.owner(key) == server
            left = left.without(server)


def test_keys_that_nginx_sends_round_robin_have_no_owner() -> None:
    ring = NginxRing(["a", "b"])
    with pytest.raises(UnplacedKeyError, match="does not place the key '' by its hash"):
        ring.owner("")
    assert ring.index_many(["", "x"]).tolist()[0] == -1
    assert NginxRing(["a"]).owner("") == "a"
    nearly_all_down = NginxRing([f"s{i}" for i in range(40)], down=[f"s{i}" for i in range(39)])
    indexes = nearly_all_down.index_many(KEYS)
    assert nearly_all_down.names == ("s39",)
    assert set(indexes.tolist()) == {-1, 0}
    lost = KEYS[indexes.tolist().index(-1)]
    with pytest.raises(UnplacedKeyError):
        nearly_all_down.owner_many([lost])
    assert list(nearly_all_down.walk(lost)) == []


def test_a_redis_slot_of_nobody_has_no_owner() -> None:
    slots = RedisSlots({"a": [(0, 100)]})
    assert slots.index_many(["123456789"]).tolist() == [-1]  # slot 12,739
    assert slots.shares == {"a": 101 / 16384}


# --- the points ---


def test_haproxy_takes_the_nearest_point() -> None:
    ring = HAProxyRing({"a": 3, "b": 2, "c": 1})
    points, owners = ring._points.tolist(), ring._point_owners.tolist()
    random.seed(7)
    positions = [random.randrange(2**32) for _ in range(2000)] + points + [0, 2**32 - 1]
    positions += [(a + b) // 2 + d for a, b in pairwise(points) for d in (-1, 0, 1)]
    positions += [(points[0] + points[-1] + 2**32) // 2 % 2**32 + d for d in (-1, 0, 1)]
    for position in positions:
        after = next((i for i, point in enumerate(points) if point >= position), 0)
        before = (after - 1) % len(points)
        nearer = (position - points[before]) % 2**32 <= (points[after] - position) % 2**32
        expected = owners[before if nearer else after]
        at = int(np.searchsorted(ring._ends, np.uint64(position)))
        assert ring._owners_of[at] == expected, position


def test_automatic_ids_of_haproxy_take_the_first_free_number_from_their_place_on() -> None:
    ring = HAProxyRing(["a", "b", "c", "d", "e"], ids={"b": 1, "d": 3, "e": 9})
    assert ring.ids == {"a": 2, "b": 1, "c": 4, "d": 3, "e": 9}
    assert HAProxyRing(["a", "b"], ids=[None, 7]).ids == {"a": 1, "b": 7}


def test_a_haproxy_server_of_weight_0_has_an_id_and_no_keys() -> None:
    ring = HAProxyRing({"a": 1, "b": 0, "c": 1})
    assert ring.ids["c"] == 3
    assert set(ring.shares) == {"a", "c"}
    assert "b" in ring.servers
    assert [node.name for node in ring.nodes] == ["a", "c"]


def test_the_order_of_hosts_matters_to_envoys_ring_and_not_to_maglev() -> None:
    turned = dict(reversed(WEIGHTS.items()))
    assert EnvoyMaglev(WEIGHTS).shares == EnvoyMaglev(turned).shares
    assert EnvoyMaglev(WEIGHTS).owner_many(KEYS) == EnvoyMaglev(turned).owner_many(KEYS)


# --- plans ---


def changes(servers: dict[str, int]) -> dict[str, dict[str, int]]:
    second = list(servers)[1]
    return {
        "none": servers,
        "removed": {k: v for k, v in servers.items() if k != second},
        "added": {**servers, "10.0.0.6:80": 2},
        "reweighted": {**servers, second: 4},
        "replaced": {("10.0.0.7:80" if k == second else k): v for k, v in servers.items()},
    }


@pytest.mark.parametrize("change", changes(WEIGHTS))
@pytest.mark.parametrize("name", MAKERS)
def test_a_plan_says_of_every_key_whether_it_moves(name: str, change: str) -> None:
    before, after = MAKERS[name](WEIGHTS), MAKERS[name](changes(WEIGHTS)[change])
    plan = before.diff(after)
    mask = plan.mask(KEYS)
    for key, moves in zip(KEYS, mask.tolist(), strict=True):
        here, there = before.owner(key), after.owner(key)
        assert moves == (here != there)
        move = plan.move_of(key)
        assert (move.source, move.target) == (here, there) if move else here == there
    for a, b in pairwise(plan.moves):
        assert a.range.end < b.range.start
        assert a.range.end + 1 < b.range.start or a[1:] != b[1:]
    assert plan.space == before.space
    unchanged = [n for n in WEIGHTS if changes(WEIGHTS)[change].get(n) == WEIGHTS[n]]
    needless = sum(plan.between(a, b).fraction for a in unchanged for b in unchanged if a != b)
    assert plan.needless == pytest.approx(needless)
    assert before.diff(after).inverse().needless == pytest.approx(plan.needless)
    if change == "none":
        assert len(plan) == 0
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan == pickle.loads(pickle.dumps(plan))
    assert again.mask(KEYS).tolist() == mask.tolist()
    assert again.needless == plan.needless


def test_what_moves_needlessly_in_each_program() -> None:
    """20 servers of weights 1, 2, 3, 1, 5; one of weight 3 leaves, or goes to 4."""
    weights = {f"10.0.0.{i}:80": (1, 2, 3, 1, 5)[i % 5] for i in range(20)}
    ids = {name: i + 1 for i, name in enumerate(weights)}
    seen = {}
    for name, make in {
        "nginx": NginxRing,
        "uhashring": UHashPlacement,
        "haproxy ids": lambda s: HAProxyRing(s, ids={n: ids[n] for n in s}),
        "haproxy": HAProxyRing,
        "ketama": lambda s: KetamaRing(s, "twemproxy"),
        "envoy": EnvoyRing,
        "maglev": EnvoyMaglev,
    }.items():
        before = make(weights)
        leaves = before.diff(make({n: w for n, w in weights.items() if n != "10.0.0.2:80"}))
        heavier = before.diff(make({**weights, "10.0.0.2:80": 4}))
        seen[name] = (leaves.needless, heavier.needless)
    assert seen["nginx"] == seen["haproxy ids"] == seen["uhashring"] == (0, 0)
    assert seen["haproxy"][0] > 0.75
    assert seen["haproxy"][1] == 0
    for name in ("ketama", "envoy", "maglev"):
        assert all(0.0005 < share < 0.08 for share in seen[name]), (name, seen[name])


def test_a_ring_moves_nothing_needlessly() -> None:
    ring = Ring({name: float(weight) for name, weight in WEIGHTS.items()})
    for other in (ring.without("10.0.0.3:80"), ring.with_nodes("x"), ring.with_weights({"10.0.0.1:80": 4})):
        assert ring.diff(other).needless == 0


def test_a_plan_of_kafka_counts_remainders_by_the_common_multiple() -> None:
    before, after = KafkaPartitioner(4), KafkaPartitioner(6)
    plan = before.diff(after)
    assert plan.space.size == 12
    assert plan.mask(KEYS).tolist() == [before.owner(k) != after.owner(k) for k in KEYS]
    assert KafkaPartitioner(4).diff(KafkaPartitioner(8)).fraction == 0.5
    with pytest.raises(ValueError, match="too many positions"):
        EnvoyMaglev(WEIGHTS).diff(EnvoyMaglev(WEIGHTS, 5003))


def test_placements_that_hash_keys_differently_have_no_plan() -> None:
    with pytest.raises(ValueError, match="hash keys in different ways"):
        NginxRing(WEIGHTS).diff(KetamaRing(WEIGHTS, "libketama"))
    with pytest.raises(TypeError, match="not to Ring"):
        NginxRing(WEIGHTS).diff(Ring(["a"]))  # type: ignore[arg-type]
    # uhashring's ketama and libketama share the hash of keys: a plan from one to the other is exact.
    plan = UHashPlacement(WEIGHTS, "ketama").diff(KetamaRing(WEIGHTS, "libketama"))
    assert plan.fraction < 0.01


def test_leaving_uhashring() -> None:
    nodes = ["a", "b", "c"]
    moves = moving_keys(UHashPlacement(nodes), Ring(nodes), KEYS)
    assert moves.total == len(KEYS)
    assert moves.moved == sum(
        a != b
        for a, b in zip(UHashPlacement(nodes).owner_many(KEYS), Ring(nodes).owner_many(KEYS), strict=True)
    )


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_two_memberships(data: st.DataObject) -> None:
    names = [f"10.0.0.{i}:80" for i in range(6)]
    some = st.dictionaries(st.sampled_from(names), st.integers(1, 6), min_size=1)
    make = MAKERS[data.draw(st.sampled_from(["nginx", "haproxy", "twemproxy", "envoy", "uhashring ketama"]))]
    before, after = make(data.draw(some)), make(data.draw(some))
    plan = before.diff(after)
    assert plan.mask(KEYS[:200]).tolist() == [before.owner(k) != after.owner(k) for k in KEYS[:200]]
    for name in names:
        lost = sum((m.positions for (a, _), m in plan.pairs().items() if a == name), 0)
        won = sum((m.positions for (_, b), m in plan.pairs().items() if b == name), 0)
        share = [sum(r.size for r in one.ranges(name)) if name in one else 0 for one in (before, after)]
        assert share[1] - share[0] == won - lost
    assert after.diff(before) == plan.inverse()


# --- reports ---


def test_a_report_says_what_would_avoid_needless_moves() -> None:
    four = ["s1", "s2", "s3", "s4"]
    report = compare(HAProxyRing(four), HAProxyRing(four[1:]), KEYS)
    assert report.plan is not None
    assert report.plan.needless > 0.4
    assert "s2 id 2, s3 id 3, s4 id 4" in report.advice[0]
    assert report.keys is not None
    assert report.keys.moved == int(report.plan.mask(KEYS).sum())
    assert report.keys.between(report.unchanged) > 500
    assert json.loads(json.dumps(report.to_dict()))["keys"]["total"] == len(KEYS)
    kept = compare(HAProxyRing(four, ids=[1, 2, 3, 4]), HAProxyRing(four[1:], ids=[2, 3, 4]))
    assert kept.plan is not None
    assert kept.plan.needless == 0
    assert kept.advice == ()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (EnvoyRing(WEIGHTS), EnvoyRing({**WEIGHTS, "10.0.0.3:80": 4}), "minimum_ring_size|no size"),
        (EnvoyMaglev(WEIGHTS, 251), EnvoyMaglev({**WEIGHTS, "10.0.0.3:80": 4}, 251), "table_size|no size"),
        (KetamaRing(WEIGHTS), KetamaRing({**WEIGHTS, "10.0.0.3:80": 9}), "no setting avoids that"),
        (KetamaRing([f"h{i}" for i in range(24)]), KetamaRing([f"h{i}" for i in range(25)]), "KETAMA without weights"),
        (KafkaPartitioner(4), KafkaPartitioner(6), "half of the keys would stay"),
        (KetamaRing(["a:1"], "twemproxy"), KetamaRing(["b:1"], "twemproxy"), "one of the same name"),
        (EnvoyRing(["a:1", "c:1"]), EnvoyRing(["b:1", "c:1"]), "hash_key"),
        (HAProxyRing(["a", "c"]), HAProxyRing(["b", "c"]), "the id of another"),
        (NginxRing(["a", "c"]), NginxRing(["b", "c"]), "host name"),
        (NginxRing(["a", "c"]), KetamaRing(["a", "c"]), "another position"),
    ],
)  # fmt: skip
def test_advice(before: ProgramPlacement, after: ProgramPlacement, says: str) -> None:
    advice = " ".join(compare(before, after).advice)
    assert any(one in advice for one in says.split("|")), advice


# --- what is refused ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NginxRing([]), "at least one server"),
        (lambda: NginxRing("10.0.0.1:80"), "not str"),
        (lambda: NginxRing({"a": 0}), "from 1 to"),
        (lambda: NginxRing({"a": 1.5}), "whole number"),
        (lambda: NginxRing({"a": True}), "whole number"),
        (lambda: NginxRing(["a"], down="a"), "must be a list, not str"),
        (lambda: NginxRing(["a"], down=["b"]), "'b' is down"),
        (lambda: NginxRing(["a", "a"]), "given twice"),
        (lambda: NginxRing([""]), "must not be empty"),
        (lambda: HAProxyRing({"a": 257}), "from 0 to 256"),
        (lambda: HAProxyRing({"a": 0}), "no server has a weight"),
        (lambda: HAProxyRing(["a"], hash="md5"), "no hash 'md5'"),
        (lambda: HAProxyRing(["a"], ids={"b": 1}), "which is not a server"),
        (lambda: HAProxyRing(["a"], ids={"a": 0}), "from 1 to"),
        (lambda: HAProxyRing(["a", "b"], ids=[3, 3]), "given to 'a' and to 'b'"),
        (lambda: HAProxyRing(["a", "b"], ids=[3]), "one for each of 2"),
        (lambda: EnvoyRing(["a"], 10, 5), "must not be above the most"),
        (lambda: EnvoyRing(["a"], hash="md5"), "XX_HASH"),
        (lambda: EnvoyMaglev(["a"], 65536), "prime"),
        (lambda: KetamaRing(["a"], "java"), "no flavour 'java'"),
        (lambda: KetamaRing(["a"], "libmemcached", hash="hsieh"), "no hash 'hsieh'"),
        (lambda: KetamaRing(["a"], "libmemcached", hash_tag="{}"), "only twemproxy"),
        (lambda: KetamaRing(["a"], "twemproxy", hash_tag="{"), "two ASCII"),
        (lambda: KetamaRing(["a"], "twemproxy", hash_tag=7), "not int"),
        (lambda: KetamaRing(["x" * 90], "twemproxy"), "shorter name"),
        (lambda: KetamaRing(["x" * 90], "libmemcached"), "shorter name"),
        (lambda: KetamaRing({"a": 1, "b": 2**31 - 1}, "libketama").without("b").without("a"), "at least one"),
        (lambda: RedisSlots({"a": [16384]}), "from 0 to 16383"),
        (lambda: RedisSlots({"a": [1], "b": [1]}), "given to 'a' and 'b'"),
        (lambda: RedisSlots({}), "at least one"),
        (lambda: KafkaPartitioner(0), "must be a partition"),
        (lambda: KafkaPartitioner(["1"]), "from 0 on"),
        (lambda: KafkaPartitioner(2, "sticky"), "no partitioner"),
        (lambda: CassandraRing({"a": [2**63]}), "from -9223372036854775808 to 9223372036854775807"),
        (lambda: CassandraRing({"a": [1], "b": [1]}), "given twice"),
        (lambda: CassandraRing({"a": []}), "has no token"),
        (lambda: UHashPlacement(["a"], "md5"), "no mode"),
        (lambda: UHashPlacement(["a"], vnodes=0), "from 1 to"),
        (lambda: TextSpace("md4"), "no hash 'md4'"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, LookupError), match=message):
        make()


def test_servers_come_and_go() -> None:
    ring = NginxRing(["a", "b"], down=["b"])
    assert ring.with_servers({"c": 2}) == NginxRing({"a": 1, "b": 1, "c": 2}, down=["b"])
    assert ring.with_weights({"a": 3}).servers == {"a": 3, "b": 1}
    assert ring.names == tuple(ring) == ("a",)
    assert len(ring) == 1
    assert "a" in ring
    assert "b" not in ring
    assert ring.node("a").weight == 1
    with pytest.raises(UnknownNodeError):
        ring.without("x")
    with pytest.raises(DuplicateNodeError):
        ring.with_servers(["a"])


def test_every_hash_takes_any_bytes() -> None:
    for name in hash_names():
        function = hash_named(name)
        for size in range(40):
            assert 0 <= function(bytes(range(200, 200 + size))) < 2**64


def test_hashes_are_those_of_the_libraries() -> None:
    xxhash = pytest.importorskip("xxhash")
    mmh3 = pytest.importorskip("mmh3")
    crc32, xxh64, murmur3 = hash_named("crc32"), hash_named("xxh64"), hash_named("murmur3")
    for size in range(300):
        data = random.randbytes(size)
        assert crc32(data) == zlib.crc32(data)
        assert xxh64(data) == xxhash.xxh64_intdigest(data)
        assert murmur3(data) == mmh3.hash(data, 0xDEADBEEF * size & 0xFFFFFFFF, False)
        assert hash_named("md5")(data) == int.from_bytes(
            hashlib.md5(data, usedforsecurity=False).digest()[:4], "little"
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: NginxRing({"a": 10**9, "b": 1}),
        lambda: UHashPlacement({"a": 10**9, "b": 1}),
        lambda: UHashPlacement(["a", "b"], vnodes=2**27),
        lambda: UHashPlacement(["a", "b"], "ketama", vnodes=2**25),
        lambda: KafkaPartitioner(2**27 + 1),
        lambda: EnvoyMaglev(["a"], 2**31 - 1),
        lambda: EnvoyRing(["a"], 2**28, 2**28),
    ],
)
def test_too_many_points_are_refused_before_any_is_made(make: Any) -> None:
    with pytest.raises(ValueError, match=r"at most|must be"):
        make()


@pytest.mark.parametrize("make", [HAProxyRing, KetamaRing, EnvoyRing])
def test_every_ring_has_a_limit(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringhash.interop.given.MAX_POINTS", 15)
    with pytest.raises(ValueError, match="a placement has at most 15 points"):
        make(["a", "b"])

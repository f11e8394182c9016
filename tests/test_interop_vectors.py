"""Placements of other programs, against what those programs were seen to answer.

tests/vectors/interop/observed and recorded hold answers of running programs, with their versions; the
files beside them are golden tables that the projects publish. `tests/interop_live` asks the programs anew.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
)
from ringhash.interop.hashes import hash_named
from ringhash.placement import placement_from

pytest.importorskip("xxhash")

FOLDER = Path(__file__).parent / "vectors" / "interop"


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


KEYS: list[str] = load("observed/keys.json")


def same(placement: ProgramPlacement, keys: list[str], answers: list[int]) -> None:
    servers = list(placement.servers)
    assert placement.owner_many(keys) == [servers[i] for i in answers]
    assert [placement.owner(key) for key in keys] == [servers[i] for i in answers]


def cases(name: str, label: str = "label") -> list[Any]:
    return [pytest.param(case, id=case[label]) for case in load(name)["cases"]]


# --- recorded by tests/interop_live: every setting, every hash, ASCII and other keys ---

RECORDED = [
    pytest.param(case, id=f"{data['program']} {case['case']}")
    for path in sorted((FOLDER / "recorded").glob("*.json"))
    for data in [json.loads(path.read_text(encoding="utf-8"))]
    for case in data["cases"]
]


@pytest.mark.parametrize("case", RECORDED)
def test_recorded(case: Any) -> None:
    # Some were recorded when a document named its program instead of its kind.
    document = dict(case["placement"])
    if "program" in document:
        document = {"kind": document.pop("program"), "version": 1, **document}
    placement = placement_from(document)
    assert isinstance(placement, ProgramPlacement)
    same(placement, case["keys"], case["answer_index"])
    assert placement.to_dict() == document


# --- observed, on 1,000 keys each ---


@pytest.mark.parametrize("name", ["equal5", "weighted5"])
def test_nginx_http(name: str) -> None:
    data = load(f"observed/nginx_http_consistent_{name}.json")
    same(NginxRing(dict(data["servers"])), KEYS, data["answer_index"])


def test_nginx_stream() -> None:
    data = load("observed/nginx_stream_consistent_weighted5.json")
    same(NginxRing(dict(data["servers"])), data["keys"], data["answer_index"])


@pytest.mark.parametrize("case", cases("observed/haproxy_2.6.12.json"))
def test_haproxy(case: Any) -> None:
    _, method, *rest = case["hash_type"].split()
    if method != "consistent":
        pytest.skip("map-based is not covered")
    functions = [word for word in rest if word != "avalanche"]
    ring = HAProxyRing(
        {f"s{i}": weight for i, weight in enumerate(case["weights"])},
        ids=case["server_ids"],
        hash=functions[0] if functions else "sdbm",
        avalanche=not rest or "avalanche" in rest,
    )
    same(ring, KEYS, case["answer_index"])


@pytest.mark.parametrize("case", cases("observed/envoy_1.40.0.json"))
def test_envoy(case: Any) -> None:
    data = load("observed/envoy_1.40.0.json")
    extras = case.get("extras") or [{}] * 5
    names = [extra.get("hash_key", one) for one, extra in zip(data["endpoints"], extras, strict=True)]
    healthy = [i for i in range(5) if extras[i].get("health") != "UNHEALTHY"]
    servers = {names[i]: case["weights"][i] or 1 for i in healthy}
    answers = [healthy.index(i) for i in case["answer_index"]]
    if case["policy"] == "MAGLEV":
        same(EnvoyMaglev(servers), KEYS, answers)
        return
    config = case.get("cfg", {})
    ring = EnvoyRing(
        servers,
        config.get("minimum_ring_size", 1024),
        config.get("maximum_ring_size", 8_388_608),
        config.get("hash_function", "XX_HASH"),
    )
    same(ring, KEYS, answers)
    counts = np.bincount(ring._point_owners)
    assert counts.max() == case["stats"]["ring_hash_lb.max_hashes_per_host"]
    assert counts.min() == case["stats"]["ring_hash_lb.min_hashes_per_host"]


@pytest.mark.parametrize("case", cases("observed/libmemcached_1.1.4.json"))
def test_libmemcached(case: Any) -> None:
    flavours = {
        "ketama": "libmemcached",
        "ketama_weighted": "libmemcached-weighted",
        "spy": "spymemcached",
    }
    if case["distribution"] not in flavours:
        pytest.skip("modula is not covered")
    flavour: Any = flavours[case["distribution"]]
    servers = {f"{host}:{port}": weight for host, port, weight in case["servers"]}
    key_hash = None if flavour == "libmemcached-weighted" else case["key_hash"]
    same(KetamaRing(servers, flavour, hash=key_hash), KEYS, case["answer_index"])


@pytest.mark.parametrize("case", cases("observed/nutcracker_0.5.0.json"))
def test_twemproxy(case: Any) -> None:
    servers = {}
    for line in case["servers"]:
        where, _, name = line.partition(" ")
        address, _, weight = where.rpartition(":")
        servers[f"{address} {name}" if name else address] = int(weight)
    ring = KetamaRing(servers, "twemproxy", hash=case["hash"], hash_tag=case.get("hash_tag"))
    same(ring, case.get("keys", KEYS), case["answer_index"])


@pytest.mark.parametrize("case", cases("observed/libketama_rj.json"))
def test_libketama(case: Any) -> None:
    same(KetamaRing(dict(case["servers"]), "libketama"), KEYS, case["answer_index"])


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
def test_kafka(partitioner: Any) -> None:
    data = load("observed/kafka_murmur2.json")
    same(KafkaPartitioner(4, partitioner), KEYS, data[f"partition_{partitioner}_4"])


# --- golden tables that the projects publish ---


def test_100_000_owners_of_weighted_ketama() -> None:
    data = load("ketama_100k_owners.json")["libketama_weighted"]
    ring = KetamaRing({f"0.0.0.{i}": i for i in range(1, 6)}, "libketama")
    owners = "".join(str(i + 1) for i in ring.index_many([str(i) for i in range(100_000)]).tolist())
    assert owners == data["owners"]
    assert hashlib.sha256(owners.encode()).hexdigest() == data["sha256"]


def test_100_000_owners_of_pylibmc_which_drops_the_default_port() -> None:
    data = load("ketama_100k_owners.json")["pylibmc_ketama_weighted"]
    names = ["0.0.0.1:11211", "0.0.0.2:11211", "0.0.0.3", "0.0.0.4:11213", "0.0.0.5:11212"]
    ring = KetamaRing(names, "libmemcached-weighted")
    owners = "".join(str(i + 1) for i in ring.index_many([str(i) for i in range(100_000)]).tolist())
    assert owners == data["owners"]


@pytest.mark.slow
def test_the_listing_of_a_million_keys_that_libketama_checks_itself_by() -> None:
    data = load("ketama_libketama_weighted.json")
    weights = {node["name"]: node["weight"] for node in data["nodes"]}
    ring = KetamaRing(weights, "libketama")
    digest = hashlib.md5(b"\n", usedforsecurity=False)
    points = sorted(
        int.from_bytes(part, "little")
        for node in data["nodes"]
        for k in range(node["md5_groups"])
        for text in [hashlib.md5(f"{node['name']}-{k}".encode(), usedforsecurity=False).digest()]
        for part in (text[0:4], text[4:8], text[8:12], text[12:16])
    )
    keys = [str(i) for i in range(1_000_000)]
    for key, name in zip(keys, ring.owner_many(keys), strict=True):
        position = ring.position(key)
        at = bisect_left(points, position)
        digest.update(f"{position} {points[at % len(points)]} {name}\n".encode())
    assert digest.hexdigest() == data["listing_md5"]


def test_the_99_keys_of_libmemcached() -> None:
    data = load("ketama_libmemcached_99.json")
    weights = {f"{node['host']}:{node['port']}": node["weight"] for node in data["nodes"]}
    standard, spy = (KetamaRing(weights, one) for one in ("libmemcached-weighted", "spymemcached"))  # type: ignore[arg-type]
    for key, position, _, owner in data["standard"]["rows"]:
        assert (standard.position(key), standard.owner(key)) == (position, f"{owner}:11211")
    spy = KetamaRing(weights, "spymemcached", hash="md5")
    for key, position, owner in data["spymemcached_flavour"]["rows"]:
        assert (spy.position(key), spy.owner(key)) == (position, f"{owner}:11211")
    wrap = data["wrap_key"]
    assert standard.owner(wrap["key"]) == f"{wrap['owner_standard']}:11211"


def test_the_java_client_spymemcached_is_libketama_with_equal_weights() -> None:
    data = load("ketama_spymemcached.json")
    ring = KetamaRing(data["nodes"], "libketama")
    assert [ring.owner(key) for key, _ in data["rows"]] == [owner for _, owner in data["rows"]]
    for part in ("four_nodes", "five_nodes"):
        nodes = data[part].get("nodes") or [*data["four_nodes"]["nodes"], "127.0.0.1:10004"]
        small = KetamaRing(nodes, "libketama")
        assert {key: small.owner(key) for key in data[part]["owners"]} == data[part]["owners"]


def test_the_640_points_of_couchbase() -> None:
    data = load("ketama_couchbase_640.json")
    ring = KetamaRing(data["nodes"], "libketama")
    ends, owners = [], []
    for point, last in data["ring"]:
        ends.append(point)
        owners.append(data["nodes"].index(f"192.168.1.{last}:11210"))
    at = np.searchsorted(ring._ends, np.array(ends, np.uint64))
    assert ring._owners_of[at].tolist() == owners


def test_keys_at_the_edges_of_the_ring() -> None:
    data = load("ketama_edge_keys.json")
    ring = KetamaRing(data["ring"]["nodes"], "libketama")
    for key in data["keys_hash_0"]:
        assert (ring.position(key), ring.owner(key)) == (0, data["ring"]["first_point"][1])
    for key in data["keys_hash_4294967295"]:
        assert (ring.position(key), ring.owner(key)) == (2**32 - 1, data["ring"]["first_point"][1])
    for key, position, owner in [*data["wrap_high"], *data["below_first"], *data["exact_hits"]]:
        assert (ring.position(key), ring.owner(key)) == (position, owner)


def test_the_moves_from_four_servers_to_five() -> None:
    data = load("moves_4_to_5.json")
    before, after = (KetamaRing(data[one], "libketama") for one in ("before", "after"))
    plan = before.diff(after)
    assert [[m.range.start - 1, m.range.end, m.source, m.target] for m in plan.moves] == data["ranges"]
    assert plan.moves.positions == data["total_length"]
    moved = plan.mask([str(i) for i in range(100_000)])
    assert int(moved.sum()) == data["keys_moved_of_str_0_99999"]


def test_redis_slots_and_the_murmur2_of_kafka() -> None:
    data = load("redis_slots_kafka_murmur2.json")
    slots = RedisSlots({"all": [(0, 16383)]})
    assert {key: slots.position(key) for key in data["keyslot"]} == data["keyslot"]
    murmur2 = hash_named("kafka-murmur2")
    assert [murmur2(key.encode()) for key, _ in data["kafka_java_murmur2"]] == [
        value & 0x7FFFFFFF for _, value in data["kafka_java_murmur2"]
    ]


def test_cassandra_tokens() -> None:
    ring = CassandraRing({"a": [0]})
    assert ring.token("123") == -7468325962851647638
    # The tail is read as signed bytes: MurmurHash3 itself says otherwise here.
    mmh3 = pytest.importorskip("mmh3")
    assert ring.token(b"abc") == mmh3.hash64(b"abc")[0]
    assert ring.token(b"\xff") != mmh3.hash64(b"\xff")[0]
    assert ring.token(b"\xff" * 16) == mmh3.hash64(b"\xff" * 16)[0]


def test_equal_ketama_servers_have_156_points_at_some_numbers() -> None:
    def points(count: int, flavour: Any) -> set[int]:
        from ringhash.interop.ketama import _groups

        return {4 * group for group in _groups([1] * count, flavour)}

    for flavour, odd in (
        ("libketama", {61, 122, 237, 244}),
        ("libmemcached-weighted", {25, 47, 50, 55, 61, 71, 94, 100}),
    ):
        most = max(odd)
        assert {n for n in range(1, most + 1) if points(n, flavour) != {160}} == odd

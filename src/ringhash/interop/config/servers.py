"""A plain list of servers: a name a line, and after blanks a weight. # begins a comment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ringhash.interop.config.errors import ConfigError, at, placing, read_text
from ringhash.interop.envoy import EnvoyMaglev, EnvoyRing
from ringhash.interop.given import digits, shortened
from ringhash.interop.haproxy import HAProxyRing
from ringhash.interop.ketama import Flavour, KetamaRing
from ringhash.interop.nginx import NginxRing
from ringhash.interop.placement import ProgramPlacement
from ringhash.interop.uhash_placement import UHashPlacement

__all__ = ["LISTED", "read_list"]


def _ketama(flavour: str) -> Callable[[dict[str, int]], ProgramPlacement]:
    return lambda servers: KetamaRing(servers, cast("Flavour", flavour))


LISTED: dict[str, Callable[[Any], ProgramPlacement]] = {
    "nginx": NginxRing,
    "haproxy": HAProxyRing,
    "envoy": EnvoyRing,
    "envoy-maglev": EnvoyMaglev,
    "uhashring": UHashPlacement,
    "uhashring-ketama": lambda servers: UHashPlacement(servers, "ketama"),
    "twemproxy": _ketama("twemproxy"),
    "libketama": _ketama("libketama"),
    "libmemcached": _ketama("libmemcached"),
    "libmemcached-weighted": _ketama("libmemcached-weighted"),
    "spymemcached": _ketama("spymemcached"),
}


def read_list(path: str, like: str) -> ProgramPlacement:
    """Return the placement of a program from a list of its servers."""
    servers: dict[str, int] = {}
    for line, row in enumerate(read_text(path).splitlines(), 1):
        words = row.partition("#")[0].split()
        if not words:
            continue
        weight = digits(words[1]) if len(words) == 2 else 1
        if len(words) > 2 or weight is None:
            at(path, line, f"must be a name and perhaps a whole weight, not {shortened(row.strip())!r}")
        if words[0] in servers:
            at(path, line, f"the server {words[0]!r} is given twice")
        servers[words[0]] = weight
    if not servers:
        raise ConfigError(f"{path}: has no servers")
    with placing(path, 1):
        return LISTED[like](servers)

"""nginx: `hash KEY consistent;` in an upstream block, of http and of stream (since 1.7.2 and 1.9.0)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from ringhash.errors import UnknownNodeError
from ringhash.interop._table import crc32_chain
from ringhash.interop.given import Servers, check_points, one_each, read_listed, read_servers
from ringhash.interop.placement import Clockwise, Options
from ringhash.interop.stretches import Array, distinct_points, sorted_points, whole

__all__ = ["NginxRing"]

SPACE = 1 << 32
_POINTS = 160
_MOST_STEPS = 20


class NginxRing(Clockwise):
    """Where nginx sends a key with `hash KEY consistent;`. Exact for nginx 1.22; the method is that of 1.7.2.

    Source: ngx_http_upstream_hash_module.c. The ring is the CRC-32 of the key; a server has 160 points a
    unit of weight, each the CRC-32 of its address and of the point before it.

    Args:
        servers: The addresses as in the `server` lines, in their order, such as "10.0.0.1:80",
            "backend.example.com" or "unix:/run/app.sock"; or a mapping of them to weights.
        down: The servers that are marked `down`. nginx skips them point by point, and after 20 steps it
            goes over to round robin: such keys have no owner (`UnplacedKeyError`). A server that is down is
            not in `nodes`.

    Raises:
        DuplicateNodeError: A server is given twice, or two names are one, such as "unix:/a" and "UNIX:/a".
        UnknownNodeError: A server in `down` is not in `servers`.
        ValueError: A weight is not a whole number from 1.

    An empty key is sent round robin, so it has no owner, unless there is but one server. Not covered:
    `max_conns`, and servers that have failed, count as down while nginx passes them over.

    Cost: O(points).

    >>> ring = NginxRing({"10.0.0.1:80": 2, "10.0.0.2:80": 1})
    >>> ring.owner("/index.html"), ring.owners("/index.html", 2)
    ('10.0.0.1:80', ('10.0.0.1:80', '10.0.0.2:80'))
    """

    kind = "nginx"
    _options: ClassVar[Options] = {"down": (list,)}

    def __init__(self, servers: Servers, *, down: Iterable[str] = ()) -> None:
        weights = read_servers(servers)
        names = list(weights)
        one_each(names, (b"\0".join(_split(name)) for name in names))
        down = read_listed(down, "down")
        for name in down:
            if name not in names:
                raise UnknownNodeError(f"the server {name!r} is down, but it is not in the upstream")
        marked = [name for name in names if name in down]
        check_points(_POINTS * sum(weights.values()))
        parts = [_points(name, weights[name] * _POINTS) for name in names]
        owners = np.repeat(np.arange(len(names)), [len(part) for part in parts])
        points, owners = distinct_points(*sorted_points(np.concatenate(parts), owners))
        self._keep(_points=points, _point_owners=owners)
        able = np.array([name not in marked for name in names])
        stretches = whole(points, _up(owners, able) if marked else owners, SPACE)
        self._place(
            weights,
            {"down": marked},
            keys=("crc32", 0, None),
            stretches=stretches,
            drops_empty=len(names) > 1,
        )

    def without(self, *names: str) -> NginxRing:
        """Return the placement while these servers are down, or marked so; they stay in the upstream."""
        self._check_names(names)
        if len({*names, *self._settings["down"]}) == len(self.servers):
            return self.changed(remove=names)
        return NginxRing(self.servers, down={*names, *self._settings["down"]})

    def _weights(self) -> dict[str, int]:
        return {**self.servers, **dict.fromkeys(self._settings["down"], 0)}

    def _settings_for(self, servers: Any) -> dict[str, Any]:
        return {"down": [name for name in self._settings["down"] if name in servers]}

    def _from(self, first: int) -> Iterator[int]:
        """The servers of the 21 points that one request looks at, all its retries together."""
        names = list(self.servers)
        down = {names.index(name) for name in self._settings["down"]}
        for step in range(_MOST_STEPS + 1):
            index = int(self._point_owners[(first + step) % len(self._points)])
            if index not in down:
                yield index


def _points(server: str, count: int) -> Array:
    host, port = _split(server)
    return crc32_chain(zlib.crc32(host + b"\0" + port), count)


def _split(server: str) -> tuple[bytes, bytes]:
    """Host and port as ngx_http_upstream_init_chash finds them: digits at the end, behind a colon."""
    text = server.encode()
    if text[:5].lower() == b"unix:":
        return text[5:], b""
    host = text.rstrip(b"0123456789")
    if host.endswith(b":"):
        return host[:-1], text[len(host) :]
    return text, b""


def _up(owners: Array, able: Array) -> Array:
    """Who takes the keys of each point when some servers are down; -1 where nginx gives up."""
    found = np.where(able[owners], owners, -1).astype(np.int32)
    for step in range(1, _MOST_STEPS + 1):
        after = np.roll(owners, -step)
        found = np.where((found < 0) & able[after], after, found)
    return found

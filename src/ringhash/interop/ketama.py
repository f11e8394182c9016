"""Ketama, in the five ways in which clients and proxies of memcached have it.

They agree on a ring of 2^32 positions with about 160 points a server, and on little else: the text that
is hashed for a point, the number of points, the hash of a key and the order of equal points all differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from ringhash.interop.given import Servers, check_points, digits, one_each, read_servers, shortened
from ringhash.interop.hashes import hash_named, md5
from ringhash.interop.placement import Options, ProgramPlacement
from ringhash.interop.stretches import Array, distinct_points, sorted_points, whole

__all__ = ["Flavour", "KetamaRing"]

Flavour = Literal["libketama", "libmemcached", "libmemcached-weighted", "spymemcached", "twemproxy"]

SPACE = 1 << 32  # of the points; keys of a narrower hash use only its beginning
_DEFAULT_PORT = "11211"
_MOST_PORT = 65_535
_PLAIN_POINTS = 100
_LONGEST = 86  # bytes of the text of a point, with its final NUL

_LIBMEMCACHED = {
    "default": "one_at_a_time",
    "md5": "md5",
    "crc": "crc32-15",
    "fnv1_64": "fnv1_64",
    "fnv1a_64": "fnv1a_64",
    "fnv1_32": "fnv1_32",
    "fnv1a_32": "fnv1a_32",
    "murmur": "murmur",
    "murmur3": "murmur3",
    "jenkins": "jenkins",
}
_TWEMPROXY = {
    "one_at_a_time": "one_at_a_time",
    "md5": "md5",
    "crc16": "twemproxy-crc16",
    "crc32": "crc32-15",
    "crc32a": "crc32",
    "fnv1_64": "fnv1_64",
    "fnv1a_64": "fnv1a_64",
    "fnv1_32": "fnv1_32",
    "fnv1a_32": "fnv1a_32",
    "hsieh": "hsieh",
    "murmur": "murmur",
    "jenkins": "jenkins",
}
# The hashes of a flavour by the names they have there, and which of them it takes by itself.
_HASHES: dict[str, tuple[dict[str, str], str]] = {
    "libketama": ({"md5": "md5"}, "md5"),
    "libmemcached": (_LIBMEMCACHED, "default"),
    "libmemcached-weighted": (_LIBMEMCACHED, "md5"),
    "spymemcached": (_LIBMEMCACHED, "default"),
    "twemproxy": (_TWEMPROXY, "fnv1a_64"),
}


class KetamaRing(ProgramPlacement):
    """Where a ketama client or proxy sends a key.

    Args:
        servers: Names as in that program's list, in its order, or a mapping of them to weights:
            "10.0.0.1:11211" or "10.0.0.1" (port 11211), "/run/memcached.sock"; for twemproxy also
            "10.0.0.1:11211 alpha" and "alpha", a server with a name of its own.
        flavour: "libketama" (the original; with equal weights also the Java client spymemcached and
            Couchbase SDKs), "libmemcached" (KETAMA; CONSISTENT is the same), "libmemcached-weighted"
            (KETAMA_WEIGHTED), "spymemcached" (libmemcached's KETAMA_SPY) or "twemproxy".
        hash: The hash of keys by its name in that program; None for its default.
        hash_tag: Two characters, as in twemproxy's `hash_tag`; only there.

    Raises:
        DuplicateNodeError: A server is given twice, or two names are one server to the program, such as "h"
            and "h:11211"; there the second would own nothing.
        ValueError: A setting is not one that the flavour has.

    Exact for libketama as of 2007 and its Python binding 0.1.1, libmemcached 1.0.16 to 1.1.4, and
    nutcracker 0.5.0. A program that ejects a failed host makes the ring of the others: `without`.
    libmemcached's KETAMA takes weighted points, of MD5, as soon as one weight is above 1, and a weight of 0
    counts as 1 there. The hashes "crc" (libmemcached) and "crc32" (twemproxy) give 15 bits, so all keys lie
    on the first 32,768 positions, and a few points share them: one server may own all keys.

    Cost: O(points), about 0.7 us for each four.

    >>> ring = KetamaRing(["10.0.0.1:11211", "10.0.0.2:11211"], flavour="twemproxy")
    >>> ring.owner("user:7")
    '10.0.0.1:11211'
    """

    kind = "ketama"
    _options: ClassVar[Options] = {
        "flavour": (str,),
        "hash": (str, type(None)),
        "hash_tag": (str, type(None)),
    }

    def __init__(
        self,
        servers: Servers,
        flavour: Flavour = "libmemcached-weighted",
        hash: str | None = None,  # noqa: A002
        hash_tag: str | None = None,
    ) -> None:
        if flavour not in _HASHES:
            raise ValueError(f"there is no flavour {flavour!r}; there are {', '.join(_HASHES)}")
        if hash_tag is not None and flavour != "twemproxy":
            raise ValueError(f"only twemproxy has hash tags, not {flavour}")
        hashes, default = _HASHES[flavour]
        if hash is not None and hash not in hashes:
            raise ValueError(f"{flavour} has no hash {hash!r}; it has {', '.join(hashes)}")
        key_hash = hashes[hash or default]
        weights = read_servers(servers, least=0 if flavour.startswith("libmem") else 1)
        names = list(weights)
        counted = [max(1, weight) for weight in weights.values()]
        labels = [_label(name, flavour) for name in names]
        one_each(names, labels)
        order = list(range(len(names)))
        if flavour == "twemproxy":
            order.sort(key=lambda i: (len(labels[i]), labels[i]))
        groups = _groups([counted[i] for i in order], flavour)
        check_points(max(_PLAIN_POINTS * len(names), 4 * sum(groups)))
        parts = []
        for i, count in zip(order, groups, strict=True):
            if flavour in ("libmemcached", "spymemcached") and max(counted) == 1:
                parts.append(_plain_points(labels[i], hash_named(key_hash)))
            else:
                parts.append(_md5_points(labels[i], count, flavour))
        ranks = np.repeat(np.arange(len(names)), [len(part) for part in parts])
        points, ranks = sorted_points(np.concatenate(parts), ranks)
        if not len(points):
            raise ValueError("no server has a point: the weights are too far apart")
        owners = np.array(order, np.int32)[ranks]
        self._place(
            weights,
            {"flavour": flavour, "hash": hash, "hash_tag": hash_tag},
            keys=(key_hash, 0, hash_tag),
            stretches=whole(*distinct_points(points, owners), SPACE),
        )

    def _weights(self) -> dict[str, int]:
        return {name: max(1, weight) for name, weight in self.servers.items()}


def _label(name: str, flavour: str) -> bytes:
    """What the points of a server are named by."""
    if flavour == "libketama":
        return name.encode()
    if flavour == "twemproxy" and " " in name:
        return name.partition(" ")[2].encode()
    host, port = _host_and_port(name)
    if flavour == "spymemcached":
        return f"/{host}:{port}".encode()
    if port == _DEFAULT_PORT or (flavour == "twemproxy" and ":" not in name):
        return host.encode()
    return f"{host}:{port}".encode()


def _host_and_port(name: str) -> tuple[str, str]:
    if name.startswith("/"):
        return name, "0"  # a socket
    host, colon, port = name.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        return name, _DEFAULT_PORT
    number = digits(port)
    if number is None or number > _MOST_PORT:
        raise ValueError(f"the port of {shortened(name)!r} must be from 0 to {_MOST_PORT}")
    return host, str(number)


def _groups(weights: list[int], flavour: str) -> list[int]:
    """How many times four points each server has, in the floating point of the flavour."""
    f32 = np.float32
    total, count = f32(sum(weights)), len(weights)
    groups = []
    for weight in weights:
        part = f32(weight) / total
        if flavour == "libketama":
            exact = f32(float(part) * 40.0 * count)
        elif flavour == "twemproxy":
            exact = f32(float(part * f32(160) / f32(4) * f32(count)) + 1e-10)
        else:
            exact = part * f32(160) / f32(4) * f32(count) + f32(1e-10)
        groups.append(int(np.floor(exact)))
    return groups


def _md5_points(label: bytes, groups: int, flavour: str) -> Array:
    texts = [b"%b-%d" % (label, k) for k in range(groups)]
    if flavour != "libketama" and texts:
        _check_length(texts[-1])
    digests = b"".join([md5(text).digest() for text in texts])
    return np.frombuffer(digests, "<u4").astype(np.uint64)


def _plain_points(label: bytes, point_hash: Callable[[bytes], int]) -> Array:
    texts = [b"%b-%d" % (label, k) for k in range(_PLAIN_POINTS)]
    _check_length(texts[-1])
    return np.array([point_hash(text) for text in texts], np.uint64)


def _check_length(text: bytes) -> None:
    """libmemcached takes no longer text, and nutcracker 0.5.0 hashes what lies behind it in memory."""
    if len(text) >= _LONGEST:
        raise ValueError(
            f"the points of a server are named by less than {_LONGEST} bytes, such as {text.decode()!r}, "
            f"not by {len(text)}; give it a shorter name"
        )

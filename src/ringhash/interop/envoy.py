"""Envoy: the load balancers RING_HASH and MAGLEV of a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from ringhash.interop.given import Servers, check_points, read_servers, whole_number
from ringhash.interop.hashes import hash_named, library
from ringhash.interop.placement import Clockwise, Options, ProgramPlacement, first_of
from ringhash.interop.stretches import Array, whole
from ringhash.placement import Walkable

__all__ = ["EnvoyMaglev", "EnvoyRing"]

SPACE = 1 << 64
_MOST_POINTS = 8_388_608
_MOST_SLOTS = 5_000_011
_MOST_ATTEMPTS = 4096


class EnvoyRing(Clockwise):
    """Where Envoy sends a key with RING_HASH. Exact for Envoy 1.40.

    Source: ring_hash_lb.cc. The number of points follows the least weight and the sum of all, so any
    change of the hosts may add or take a few points of all the others.

    Args:
        servers: The hosts in the order of the cluster, each by what Envoy hashes: the metadata
            `envoy.lb.hash_key`, else with `use_hostname_for_hashing` the hostname, else "ip:port". Or
            a mapping of them to `load_balancing_weight`.
        min_ring_size: `minimum_ring_size`, the points that there are at least.
        max_ring_size: `maximum_ring_size`.
        hash: "XX_HASH" or "MURMUR_HASH_2", the hash of the points.

    Raises:
        DuplicateNodeError: A host is given twice.
        ValueError: A weight or a size is not one that Envoy takes.

    The key is the text that the hash policy takes, such as the value of a header. Several policies that
    apply are combined: use `combined`. Only healthy hosts are in the ring: leave the others out. Not
    covered: localities of their own weight, `hash_balance_factor`, subsets.

    Cost: O(points).

    >>> ring = EnvoyRing(["10.0.0.1:80", "10.0.0.2:80"])
    >>> ring.owner("user:7"), len(ring.points)
    ('10.0.0.2:80', 1024)
    """

    kind = "envoy"
    _options: ClassVar[Options] = {"min_ring_size": (int,), "max_ring_size": (int,), "hash": (str,)}

    def __init__(
        self,
        servers: Servers,
        min_ring_size: int = 1024,
        max_ring_size: int = _MOST_POINTS,
        hash: Literal["XX_HASH", "MURMUR_HASH_2"] = "XX_HASH",  # noqa: A002
    ) -> None:
        weights = read_servers(servers)
        min_ring_size = whole_number(min_ring_size, "min_ring_size", 1, _MOST_POINTS)
        max_ring_size = whole_number(max_ring_size, "max_ring_size", 1, _MOST_POINTS)
        if min_ring_size > max_ring_size:
            raise ValueError(
                f"the least of the sizes must not be above the most: {min_ring_size} and {max_ring_size}"
            )
        if hash not in ("XX_HASH", "MURMUR_HASH_2"):
            raise ValueError(f"Envoy has no hash {hash!r}; it has XX_HASH and MURMUR_HASH_2")
        point_hash = hash_named("xxh64" if hash == "XX_HASH" else "envoy-murmur2")
        counts = _counts(list(weights.values()), min_ring_size, max_ring_size)
        check_points(sum(counts))
        suffixes = [b"_%d" % i for i in range(max(counts))]
        values: list[int] = []
        for name, count in zip(weights, counts, strict=True):
            key = name.encode()
            values += [point_hash(key + suffix) for suffix in suffixes[:count]]
        points = np.array(values, np.uint64)
        owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        order = np.argsort(points, kind="stable")
        points, owners = points[order], owners[order]
        self._keep(_points=points, _point_owners=owners)
        kept = np.insert(points[1:] != points[:-1], 0, True)
        self._place(
            weights,
            {"min_ring_size": min_ring_size, "max_ring_size": max_ring_size, "hash": hash},
            keys=("xxh64", 0, None),
            stretches=whole(points[kept], owners[kept], SPACE),
        )

    @property
    def points(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The points of the ring, sorted."""
        view = self._points.view()
        view.flags.writeable = False
        return view


def combined(*hashes: int) -> int:
    """Return what Envoy makes of the hashes of several policies: each turns the ones before left by one bit.

    >>> combined(1, 2) == 0 ^ ((1 << 1) ^ 2)
    True
    """
    value = 0
    for one in hashes:
        value = ((value << 1 | value >> 63) & (1 << 64) - 1) ^ one
    return value


def _counts(weights: list[int], least: int, most: int) -> list[int]:
    total = float(sum(weights))
    parts = [weight / total for weight in weights]
    smallest = min(parts)
    scale = min(math.ceil(smallest * least) / smallest, float(most))
    counts = []
    current = target = 0.0
    for part in parts:
        target += scale * part
        count = 0
        while current < target:
            count += 1
            current += 1.0
        counts.append(count)
    return counts


class EnvoyMaglev(ProgramPlacement, Walkable):
    """Where Envoy sends a key with MAGLEV. Exact for Envoy 1.40.

    Source: maglev_lb.cc; the method is Google's (Eisenbud and others, 2016), with weights. A position is
    an entry of the table.

    Args:
        servers: The hosts, each by what Envoy hashes, as for `EnvoyRing`, or a mapping of them to
            weights. Their order does not matter.
        table_size: A prime number, at most 5,000,011.

    Raises:
        DuplicateNodeError: A host is given twice.
        ValueError: The size of the table is not a prime, or is too large.
        ImportError: xxhash is not installed; the extra `interop` brings it.

    Cost: about 1 us an entry.

    >>> EnvoyMaglev(["10.0.0.1:80", "10.0.0.2:80"]).owner("user:7")
    '10.0.0.2:80'
    """

    kind = "envoy-maglev"
    _slots: Array
    _options: ClassVar[Options] = {"table_size": (int,)}

    def __init__(self, servers: Servers, table_size: int = 65537) -> None:
        weights = read_servers(servers)
        table_size = whole_number(table_size, "table_size", 2, _MOST_SLOTS)
        if not _is_prime(table_size):
            raise ValueError(f"table_size must be a prime up to {_MOST_SLOTS}, not {table_size}")
        names = list(weights)
        ordered = sorted(range(len(names)), key=lambda i: names[i].encode())
        table = np.array(_maglev([(names[i], weights[names[i]]) for i in ordered], table_size))
        self._place(
            weights,
            {"table_size": table_size},
            keys=("xxh64", table_size, None),
            stretches=(np.arange(table_size, dtype=np.uint64), np.array(ordered, np.int32)[table]),
        )
        self._keep(_slots=np.array(ordered, np.int32)[table])

    def walk(self, key: Any) -> Iterator[str]:
        """Iterate over the servers in the order of Envoy's retries: attempt n turns the bits of the hash
        over, from the nth on. With the retry predicate `previous_hosts` each comes once."""
        names = list(self.servers)
        value = hash_named(self.space.hash_name)(self.space.key_bytes(key))
        seen: set[int] = set()
        for attempt in range(_MOST_ATTEMPTS):
            turned = value ^ ((1 << 64) - attempt) if attempt else value
            index = int(self._slots[turned % self.space.size])
            if index not in seen:
                seen.add(index)
                yield names[index]

    def owners(
        self, key: Any, n: int, distinct: Literal["node", "zone"] = "node", strict: bool = False
    ) -> tuple[str, ...]:
        """Return the first n servers of `walk(key)`; as `Walkable.owners`."""
        return first_of(self.walk(key), n, distinct, strict)


def _maglev(hosts: list[tuple[str, int]], size: int) -> list[int]:
    xxh64 = hash_named("xxh64")
    xxh64_seeded = library("xxhash").xxh64_intdigest
    total = float(sum(weight for _, weight in hosts))
    parts = [weight / total for _, weight in hosts]
    greatest = max(parts)
    places = [xxh64(name.encode()) % size for name, _ in hosts]
    skips = [xxh64_seeded(name.encode(), 1) % (size - 1) + 1 for name, _ in hosts]
    targets = [0.0] * len(hosts)
    table = [-1] * size
    left = size
    turn = 1
    while True:
        for i, part in enumerate(parts):
            if turn * part < targets[i]:
                continue
            targets[i] += greatest
            place, skip = places[i], skips[i]
            while table[place] >= 0:
                place += skip
                if place >= size:
                    place -= size
            table[place] = i
            places[i] = place + skip if place + skip < size else place + skip - size
            left -= 1
            if not left:
                return table
        turn += 1


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % i for i in range(2, math.isqrt(number) + 1))

"""HAProxy: `hash-type consistent` of a backend (since 1.3.22; the hash functions since 1.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ringhash.interop.given import (
    Servers,
    check_points,
    read_listed,
    read_servers,
    true_or_false,
    whole_number,
)
from ringhash.interop.placement import Options, ProgramPlacement, first_of
from ringhash.interop.stretches import Array, sorted_points
from ringhash.placement import Walkable

__all__ = ["HAProxyRing"]

SPACE = 1 << 32
_POINTS = 16  # a unit of weight
_POINTS_OF_ID = 4096  # SRV_EWGHT_RANGE: the points of two ids never meet
_MOST_WEIGHT = 256
_MOST_ID = (1 << 31) - 1


class HAProxyRing(ProgramPlacement, Walkable):
    """Where HAProxy sends a key with `hash-type consistent`. Exact for HAProxy 2.6.

    Source: lb_chash.c, hash.c. A server has 16 points a unit of weight, which depend on its numeric id
    alone, and a key goes to the nearest point, not to the next one clockwise.

    Args:
        servers: Names as in the `server` lines, in their order, or a mapping of them to weights from 0
            to 256. A server of weight 0 takes no keys and still counts for automatic ids.
        ids: The `id` of each server that has one, as a mapping of names or a list (None: no id). A
            server without one takes the first free number from its place in the list on, so without
            ids, removing a server renames all that follow it, and most keys move.
        hash: "sdbm", "djb2", "wt6" or "crc32".
        avalanche: Whether `avalanche` is in effect: written, or nothing at all after `consistent`.

    Raises:
        DuplicateNodeError: A server is given twice.
        ValueError: A weight, an id or the hash is not one that HAProxy takes.

    The key is the text that `balance` takes: a header's value, or for `balance uri` the path without the
    query. Not covered: `hash-balance-factor`, `slowstart`, and the `hash-key` of HAProxy 3.0.

    Cost: O(points).

    >>> ring = HAProxyRing({"s1": 1, "s2": 2}, ids={"s1": 1, "s2": 2})
    >>> ring.owner("/index.html"), tuple(ring.walk("/index.html"))
    ('s2', ('s2', 's1'))
    """

    kind = "haproxy"
    _options: ClassVar[Options] = {"ids": (dict, type(None)), "hash": (str,), "avalanche": (bool,)}

    _points: Array
    _point_owners: Array
    _ids: dict[str, int]

    def __init__(
        self,
        servers: Servers,
        ids: Mapping[str, int] | Sequence[int | None] | None = None,
        hash: Literal["sdbm", "djb2", "wt6", "crc32"] = "sdbm",  # noqa: A002
        avalanche: bool = True,
    ) -> None:
        weights = read_servers(servers, least=0, most=_MOST_WEIGHT)
        if hash not in ("sdbm", "djb2", "wt6", "crc32"):
            raise ValueError(f"HAProxy has no hash {hash!r}; it has sdbm, djb2, wt6 and crc32")
        avalanche = true_or_false(avalanche, "avalanche")
        if ids is not None and not isinstance(ids, Mapping):
            ids = read_listed(ids, "ids")
            if len(ids) != len(weights):
                raise ValueError(f"ids must be a mapping, or one for each of {len(weights)} servers")
            ids = {name: number for name, number in zip(weights, ids, strict=True) if number is not None}
        check_points(_POINTS * sum(weights.values()))
        all_ids = _all_ids(list(weights), dict(ids or {}))
        counts = np.array(list(weights.values())) * _POINTS
        if not counts.sum():
            raise ValueError("no server has a weight above 0")
        firsts = np.array(list(all_ids.values()), np.uint64) * np.uint64(_POINTS_OF_ID)
        owners = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        points, owners = sorted_points(
            _full(np.repeat(firsts, counts) + within.astype(np.uint64)).astype(np.uint64), owners
        )
        self._keep(_points=points, _point_owners=owners, _ids=all_ids)
        self._place(
            weights,
            {"ids": dict(ids) if ids else None, "hash": hash, "avalanche": avalanche},
            keys=(hash + "-avalanche" if avalanche else hash, 0, None),
            stretches=_nearest(points, owners),
        )

    @property
    def ids(self) -> dict[str, int]:
        """The id of each server, automatic ones included."""
        return dict(self._ids)

    def _settings_for(self, servers: Mapping[str, Any]) -> dict[str, Any]:
        ids = self._settings["ids"]
        return {
            **self._settings,
            "ids": ids and {name: number for name, number in ids.items() if name in servers},
        }

    def without(self, *names: str) -> HAProxyRing:
        """Return the placement while these servers are down: all others keep their ids.

        Without their lines in the configuration, servers of automatic ids get others: `changed(remove=)`.
        """
        self._check_names(names)
        ids = {name: number for name, number in self._ids.items() if name not in names}
        left = {name: weight for name, weight in self.servers.items() if name not in names}
        return HAProxyRing(left, **{**self._settings, "ids": ids})

    def walk(self, key: Any) -> Iterator[str]:
        """Iterate over the servers, each once, in the order in which they take over when the ones before
        are down: HAProxy then looks for the nearest point of those that are left."""
        position = self.position(key)
        names = list(self.servers)
        points, owners = self._points, self._point_owners
        count = len(points)
        after = int(np.searchsorted(points, np.uint64(position)))
        before = after - 1
        seen: set[int] = set()
        for _ in range(count):
            here, there = int(points[before % count]), int(points[after % count])
            if (position - here) % SPACE <= (there - position) % SPACE:
                index = int(owners[before % count])
                before -= 1
            else:
                index = int(owners[after % count])
                after += 1
            if index not in seen:
                seen.add(index)
                yield names[index]

    def owners(
        self, key: Any, n: int, distinct: Literal["node", "zone"] = "node", strict: bool = False
    ) -> tuple[str, ...]:
        """Return the first n servers of `walk(key)`; as `Walkable.owners`."""
        return first_of(self.walk(key), n, distinct, strict)


def _all_ids(names: list[str], given: dict[str, int]) -> dict[str, int]:
    taken: dict[int, str] = {}
    for name, number in given.items():
        if name not in names:
            raise ValueError(f"there is an id for {name!r}, which is not a server")
        whole_number(number, f"the id of {name!r}", 1, _MOST_ID)
        if number in taken:
            raise ValueError(f"the id {number} is given to {taken[number]!r} and to {name!r}")
        taken[number] = name
    ids = {}
    following = 1
    for name in names:
        number = given.get(name, 0)
        if not number:
            while following in taken:
                following += 1
            number = following
            taken[number] = name
        ids[name] = number
        following += 1
    return ids


def _full(values: Array) -> Array:
    """`avalanche` of _hashes.pxd, of many numbers."""
    a = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    a = (a + np.uint32(0x7ED55D16)) + (a << np.uint32(12))
    a = (a ^ np.uint32(0xC761C23C)) ^ (a >> np.uint32(19))
    a = (a + np.uint32(0x165667B1)) + (a << np.uint32(5))
    a = (a + np.uint32(0xD3A2646C)) ^ (a << np.uint32(9))
    a = (a + np.uint32(0xFD7046C5)) + (a << np.uint32(3))
    a = (a ^ np.uint32(0xB55A4F09)) ^ (a >> np.uint32(16))
    return a * np.uint32(3221225473)


def _nearest(points: Array, owners: Array) -> tuple[Array, Array]:
    """The stretches of the nearest point, that before a key if both are as far.

    Of equal points, the first answers a key before or on them, the last one a key behind them.
    """
    first = np.insert(points[1:] != points[:-1], 0, True)
    last = np.append(points[1:] != points[:-1], True)
    places, towards, onwards = points[first], owners[first], owners[last]
    following = np.append(places[1:], places[0] + np.uint64(SPACE))
    middles = (places + following) >> np.uint64(1)
    ends = np.empty(2 * len(places), np.uint64)
    found = np.empty(2 * len(places), np.int32)
    ends[0::2], found[0::2] = places, towards
    ends[1::2], found[1::2] = middles, onwards
    if ends[-1] >= SPACE:  # the last point reaches over the end of the ring
        over = ends[-1] - np.uint64(SPACE)
        ends[-1] = SPACE - 1
        ends, found = np.insert(ends, 0, over), np.insert(found, 0, onwards[-1])
    elif ends[-1] < SPACE - 1:
        ends, found = np.append(ends, np.uint64(SPACE - 1)), np.append(found, towards[0])
    kept = np.append(ends[1:] != ends[:-1], True)
    kept[1:] &= ends[1:] != ends[:-1]  # a middle that is its own point is an empty stretch
    return ends[kept], found[kept]

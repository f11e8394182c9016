"""Cassandra: the Murmur3Partitioner (since 1.2), with the tokens that the nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringhash.interop.given import read_listed, read_mapping, whole_number
from ringhash.interop.placement import Clockwise
from ringhash.interop.stretches import distinct_points, sorted_points, whole
from ringhash.node import Node

__all__ = ["CassandraRing"]

SPACE = 1 << 64
_LEAST = -(1 << 63)


class CassandraRing(Clockwise):
    """Which node of Cassandra has a partition key as its first replica. Exact for Murmur3Partitioner.

    Source: Murmur3Partitioner.java, MurmurHash.java. The key is the serialised partition key: text as its
    UTF-8, a bigint as 8 bytes, big endian. A position is the token plus 2^63.

    Args:
        tokens: The tokens of each node, from -2^63 to 2^63 - 1, as `nodetool ring` shows them.

    Raises:
        ValueError: A token is out of range, or two nodes have it.

    `owners(key, n)` are the replicas of SimpleStrategy. Not covered: NetworkTopologyStrategy.

    >>> ring = CassandraRing({"a": [-(2**62)], "b": [2**62]})
    >>> ring.token("123"), ring.owner("123"), ring.owners("123", 2)
    (-7468325962851647638, 'a', ('a', 'b'))
    """

    kind = "cassandra"

    def __init__(self, tokens: Mapping[str, Iterable[int]]) -> None:
        servers: dict[str, list[int]] = {}
        values: list[int] = []
        for name, many in read_mapping(tokens, "tokens").items():
            Node(name)
            what = f"a token of {name!r}"
            given = sorted(
                whole_number(token, what, _LEAST, -_LEAST - 1)
                for token in read_listed(many, f"the tokens of {name!r}")
            )
            if not given:
                raise ValueError(f"the node {name!r} has no token")
            servers[name] = given
            values += [token - _LEAST for token in given]
        if len(set(values)) < len(values) or not values:
            raise ValueError("there must be a token, and no token may be given twice")
        owners = np.repeat(np.arange(len(servers)), [len(given) for given in servers.values()])
        points, owners = distinct_points(*sorted_points(np.array(values, np.uint64), owners))
        self._keep(_points=points, _point_owners=owners)
        self._place(
            servers,
            {},
            keys=("cassandra-murmur3", 0, None),
            stretches=whole(points, owners, SPACE),
        )

    def _more(self, servers: object) -> dict[str, Any]:
        return read_mapping(servers, "servers")

    def _server(self, node: Node, now: Any) -> Any:
        if now is None or node.weight != 1:
            raise ValueError(f"{node.name!r} needs tokens instead of a weight: use with_servers")
        return now

    def token(self, key: str | bytes) -> int:
        """Return the token of a partition key."""
        return self.position(key) + _LEAST

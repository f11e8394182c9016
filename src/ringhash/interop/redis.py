"""Redis Cluster: 16,384 slots, given to nodes by the operator (since 3.0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringhash.errors import DuplicateNodeError
from ringhash.interop.placement import Placement
from ringhash.node import Node

__all__ = ["RedisSlots"]

SPACE = 16_384


class RedisSlots(Placement):
    """Where Redis Cluster keeps a key: CRC-16 of it, or of its hash tag, by 16,384. Exact since 3.0.

    Source: the Redis Cluster specification; crc16.c. A position is a slot.

    Args:
        slots: What each node has: slots, or pairs of the first and the last slot of a range, as
            `CLUSTER NODES` shows them.

    Raises:
        ValueError: A slot is out of range or given to two nodes. A slot given to nobody has no owner.

    >>> RedisSlots({"a": [(0, 8191)], "b": [(8192, 16383)]}).owner("{user1000}.following")
    'a'
    """

    program = "redis"

    def __init__(self, slots: Mapping[str, Iterable[int | tuple[int, int]]]) -> None:
        table = np.full(SPACE, -1, np.int32)
        servers: dict[str, list[list[int]]] = {}
        if not slots:
            raise ValueError("a placement needs at least one server")
        for index, (name, given) in enumerate(slots.items()):
            Node(name)
            for one in given:
                first, last = (one, one) if isinstance(one, (int, np.integer)) else one
                if not 0 <= first <= last < SPACE:
                    raise ValueError(f"the slots of {name!r} must be from 0 to {SPACE - 1}, not {one}")
                part = table[first : last + 1]
                if (part >= 0).any():
                    other = list(slots)[int(part[part >= 0][0])]
                    raise ValueError(f"a slot from {first} to {last} is given to {other!r} and {name!r}")
                part[:] = index
            mine = np.flatnonzero(table == index)
            breaks = np.flatnonzero(np.diff(mine) != 1)
            servers[name] = [[int(run[0]), int(run[-1])] for run in np.split(mine, breaks + 1) if len(run)]
        self._place(
            servers,
            {},
            keys=("crc16", SPACE, "{}"),
            space=SPACE,
            stretches=(np.arange(SPACE, dtype=np.uint64), table),
        )

    def with_servers(self, servers: Any) -> RedisSlots:
        """Return the placement with more nodes; their slots must be free."""
        for name in servers:
            if name in self.servers:
                raise DuplicateNodeError(f"the server {name!r} is there already")
        return RedisSlots({**self.servers, **servers})

"""Redis Cluster: 16,384 slots, given to nodes by the operator (since 3.0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringhash.interop.given import digits, read_listed, read_mapping, whole_number
from ringhash.interop.placement import ProgramPlacement
from ringhash.node import Node

__all__ = ["RedisSlots"]

SPACE = 16_384


class RedisSlots(ProgramPlacement):
    """Where Redis Cluster keeps a key: CRC-16 of it, or of its hash tag, by 16,384. Exact since 3.0.

    Source: the Redis Cluster specification; crc16.c. A position is a slot.

    Args:
        slots: What each node has: slots, pairs of the first and the last slot of a range, or texts as
            `CLUSTER NODES` shows them: "0-8191", "5".

    Raises:
        ValueError: A slot is out of range or given to two nodes. A slot given to nobody has no owner.

    >>> RedisSlots({"a": [(0, 8191)], "b": [(8192, 16383)]}).owner("{user1000}.following")
    'a'
    """

    kind = "redis"

    def __init__(self, slots: Mapping[str, Iterable[int | str | tuple[int, int]]]) -> None:
        table = np.full(SPACE, -1, np.int32)
        servers: dict[str, list[list[int]]] = {}
        slots = read_mapping(slots, "slots")
        if not slots:
            raise ValueError("a placement needs at least one server")
        for index, (name, given) in enumerate(slots.items()):
            Node(name)
            for one in read_listed(given, f"the slots of {name!r}"):
                first, last = _run(name, one)
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
            stretches=(np.arange(SPACE, dtype=np.uint64), table),
        )

    def _server(self, node: Node, now: Any) -> Any:
        if node.weight != 1:
            raise ValueError(f"{node.name!r} has slots instead of a weight: use with_servers")
        return now or []

    def _more(self, servers: object) -> dict[str, Any]:
        return read_mapping(servers, "servers")


def _run(name: str, one: object) -> tuple[int, int]:
    """The first and the last of one slot, of a pair, or of a range as Redis writes it: "0-8191"."""
    run: list[Any] = [one, one]
    if isinstance(one, str):
        begin, dash, end = one.partition("-")
        run = [digits(begin), digits(end if dash else begin)]
    elif isinstance(one, (list, tuple)):
        run = list(one)
    if len(run) != 2 or any(bound is None for bound in run):
        raise ValueError(
            f"the slots of {name!r} must be numbers, pairs such as (0, 8191) or texts such as '0-8191', "
            f"not {one!r}"
        )
    first, last = (whole_number(bound, f"a slot of {name!r}", 0, SPACE - 1) for bound in run)
    if first > last:
        raise ValueError(f"the slots of {name!r} must go up, and {first} to {last} does not")
    return first, last

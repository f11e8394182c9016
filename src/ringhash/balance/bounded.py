"""Bounded loads: no node holds much more than its part, and each key stays as near as that allows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn, Self

from ringhash._core import Loads, Ticket, own_methods
from ringhash.errors import NoNodeAvailableError
from ringhash.membership import find_name
from ringhash.node import plain_type
from ringhash.placement import Placement, Walkable
from ringhash.routing import Router
from ringhash.routing.health import no_walk

__all__ = ["BoundedRouter", "LoadReport", "Ticket"]


class LoadReport(NamedTuple):
    """What bounded loads did; made by `BoundedRouter.report`.

    `loads` has what each node holds, also a node that is down or has left. `held` is their sum,
    `acquired` the number of tickets so far, `elsewhere` how many of them were for another node than
    the key's own, `walked` how many nodes these passed, `farthest` the most that one of them passed.
    """

    loads: dict[str, int]
    held: int
    acquired: int
    elsewhere: int
    walked: int
    farthest: int


@own_methods
class BoundedRouter(Loads):
    """A router that counts what each node holds, and passes nodes that are full.

    The capacity of a node that is up is ceil(factor * (held + 1) * weight / sum of the weights of
    the nodes that are up), where held is what these nodes hold now. A key goes to the first node
    clockwise from its owner that holds less. There is always one, whatever is held.

    What a node holds is kept by its name: while it is down, and if it leaves with tickets not
    released and comes back. Meanwhile it gives no room to the others.

    Args:
        router: Whose nodes, weights, marks and pins count. It may change under traffic.
        factor: How much a node may hold in relation to its fair part: at least 1. A small factor
            spreads better, a large one leaves more keys at home; 1.25 is usual.

    Raises:
        NoWalkError: The placement of the router has no walk, so that a full node has no next one.
        TypeError, ValueError: An argument is malformed.

    Thread-safe. Method: Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads
    (2017), as HAProxy's hash-balance-factor has it.

    >>> bounded = BoundedRouter(Router(["gw-1", "gw-2"]), factor=1.25)
    >>> tickets = [bounded.acquire("the one hot key") for _ in range(100)]
    >>> sorted(bounded.loads.values())
    [37, 63]
    """

    __slots__ = ("factor", "router")

    router: Router
    factor: float

    def __new__(cls, router: Router, factor: float = 1.25) -> Self:  # noqa: D102
        if not isinstance(router, Router):
            raise TypeError(f"loads are bounded for a Router, not for {plain_type(router)}")
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise TypeError(f"factor must be a number, not {plain_type(factor)}")
        if not 1.0 <= factor < math.inf:
            raise ValueError(f"factor must be finite and at least 1, not {factor}")
        if not isinstance(router.placement, Walkable):
            raise no_walk(router.placement)
        self = Loads.__new__(cls, router, factor)
        self.router = router
        self.factor = float(factor)
        return self

    # acquire(key) and held are compiled, in _core.

    @property
    def loads(self) -> dict[str, int]:
        """What each node holds, by name; also a node that is down, or has left with something."""
        return self.report().loads

    def capacity(self, name: str) -> int:
        """Return how much a node may hold when the next key comes; 0 while it is down. O(nodes).

        Raises:
            UnknownNodeError: There is no node of that name.

        >>> BoundedRouter(Router(["gw-1", "gw-2"]), factor=1.5).capacity("gw-1")
        1
        """
        find_name(self.router.placement.names, name)
        room = self._report()[0].get(name, (0, None))[1]
        return 0 if room is None else math.ceil(room)

    def report(self) -> LoadReport:
        """Return what each node holds, how many keys were sent elsewhere and how far. O(nodes)."""
        nodes, *counters = self._report()
        loads = dict.fromkeys(self.router.placement.names, 0)
        loads.update({name: held for name, (held, _) in nodes.items()})
        return LoadReport(loads, *counters)

    def __repr__(self) -> str:
        return f"<BoundedRouter of {self.router!r}, factor {self.factor}: {self.held} held>"

    def _weights_of(self, table: Placement, /) -> list[float]:
        return [node.weight for node in table.nodes]

    def _fail_walk(self, table: Any, /) -> NoReturn:  # noqa: ARG002 - a table may be no placement
        raise no_walk(self.router.placement)

    def _fail_room(self, avoid: frozenset[str] | None, /) -> NoReturn:
        raise NoNodeAvailableError(f"every node with room is in avoid: {', '.join(sorted(avoid or ()))}")

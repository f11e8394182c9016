"""Nodes that are down: the ring without their points answers, and the membership stays as it is.

Taking a node's points away gives each of its keys to the next node clockwise, which is what
`walk(key)` names next, and puts every key back when they return. So a lookup knows nothing of
health, and costs the same.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, NoReturn

import numpy as np

from ringhash.errors import NoNodeAvailableError
from ringhash.plan import Moves
from ringhash.ring import Ring

__all__ = ["LiveRing", "displaced", "live_ring", "members_of"]


class LiveRing(Ring):
    """The part of a ring whose nodes are up, while some are down."""

    __slots__ = ()

    def _fail_empty(self) -> NoReturn:
        raise NoNodeAvailableError(
            "every node is down; mark one up, or ask router.ring, which is the members, up or down"
        )

    def _fail_count(self, n: object) -> NoReturn:
        if not len(self):
            self._fail_empty()
        raise ValueError(f"n must be from 1 to the number of nodes that are up, {len(self)}, not {n}")


def live_ring(ring: Ring, down: frozenset[str], base: Ring) -> Ring:
    """Return `ring` less the nodes that are down; `ring` itself when none is.

    Args:
        ring: The members.
        down: Names; those of no member do nothing.
        base: A ring of the same options, whose points are not hashed again: the one before.

    Cost: O(points), as for `Ring.without`.
    """
    if not down:
        return ring
    up = [name not in down for name in ring.names]
    return LiveRing._make(
        tuple(compress(ring.names, up)),
        tuple(compress(ring.nodes, up)),
        tuple(compress(ring._counts, up)),
        ring.vnodes,
        ring.seed,
        ring.hash_tags,
        base,
    )


def members_of(ring: Ring, live: Ring) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the index in `ring` of each node of `live`, which has some of its nodes."""
    up = set(live.names)
    return np.flatnonzero([name in up for name in ring.names])


def displaced(ring: Ring, live: Ring, name: str) -> Moves:
    """Return the ranges of `name` that other nodes serve meanwhile, as moves from it to them."""
    plan = ring.diff(live)
    return plan.by_source().get(name, plan.moves[:0])

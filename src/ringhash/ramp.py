"""Slow start: a node that takes its keys step by step."""

from __future__ import annotations

import math

from ringhash.membership import changes_for
from ringhash.node import Node, plain_type
from ringhash.plan import Plan
from ringhash.ring import Ring

__all__ = ["Ramp", "ramp"]


class Ramp(list[Plan]):
    """Plans to apply one after another; made by `Router.ramp`.

    `times` has the seconds from the start at which each is due, `weights` the weight that it gives.
    """

    __slots__ = ("times", "weights")

    times: list[float]
    weights: list[float]


def ramp(ring: Ring, epoch: int, node: str | Node, over: float, steps: int, start: float) -> Ramp:
    """Return the plans of `Router.ramp`, for a router of this ring and epoch."""
    if type(steps) is not int or steps < 1:
        raise ValueError(f"steps must be an integer of at least 1, not {steps!r}")
    if type(over) not in {int, float} or not 0.0 <= over < math.inf:
        raise ValueError(f"over must be a finite number of seconds, not negative, not {over!r}")
    if type(start) not in {int, float} or not 0.0 < start <= 1.0:
        raise ValueError(f"start must be a part of the full weight, above 0 and up to 1, not {start!r}")
    full = _full(ring, node)
    first = full.weight * start
    if isinstance(node, Node) and full.name in ring:
        first = max(first, min(ring.node(full.name).weight, full.weight))
    plans = Ramp()
    plans.times = [over * i / max(1, steps - 1) for i in range(steps)]
    plans.weights = [first + (full.weight - first) * i / max(1, steps - 1) for i in range(steps - 1)] + [
        full.weight
    ]
    for weight in plans.weights:
        if full.name in ring:
            changes = changes_for(ring.names, ring.nodes, reweight={full.name: weight})
        else:
            changes = changes_for(ring.names, ring.nodes, add=[Node(full.name, weight, full.zone)])
        after = ring._changed(changes) if changes else ring
        plans.append(ring._plan(after, changes, epoch))
        epoch += bool(changes)
        ring = after
    return plans


def _full(ring: Ring, node: str | Node) -> Node:
    """Return the node as it is to be in the end."""
    if isinstance(node, str):
        return ring.node(node) if node in ring else Node(node)
    if not isinstance(node, Node):
        raise TypeError(f"a node is named by a str or is a Node, not {plain_type(node)}")
    if node.name in ring and ring.node(node.name).zone != node.zone:
        raise ValueError(
            f"the node {node.name!r} is in zone {ring.node(node.name).zone!r}, and a ramp changes "
            f"only its weight; give it that zone, not {node.zone!r}"
        )
    return node

"""Slow start: a node that takes its keys step by step."""

from __future__ import annotations

import math

from ringhash.node import Node, plain_type
from ringhash.placement import Placement
from ringhash.plan import Plan
from ringhash.routing import Router

__all__ = ["Ramp", "ramp"]


class Ramp(list[Plan]):
    """Plans to apply one after another; made by `ramp`.

    `times` has the seconds from the start at which each is due, `weights` the weight that it gives.
    """

    __slots__ = ("times", "weights")

    times: list[float]
    weights: list[float]


def ramp(router: Router, node: str | Node, over: float, steps: int = 10, start: float = 0.1) -> Ramp:
    """Return a list of plans that take a node from a small weight to its full one: a slow start.

    Args:
        router: The router that will apply the plans.
        node: The name of a node, which ramps to the weight that it has now; or a `Node` with its full
            weight, which comes in with the first plan, or ramps on from the weight that it has.
        over: Seconds from the first plan to the last. `times` of the list says when each is due.
        steps: How many plans.
        start: The part of its full weight that the first plan gives it.

    Raises:
        TypeError, ValueError: An argument is malformed.

    Each plan is minimal and moves keys only to the node (the first one, of a node that is there already,
    from it); no key moves twice. Each is made for the epoch that the one before leaves, so any other
    change in between makes the rest stale: then ask for the rest again, with a `Node`.

    Method: slow start, as in Envoy and HAProxy. Cost: that of `steps` changes.

    >>> router = Router(["gw-1", "gw-2"])
    >>> for plan in ramp(router, "gw-3", over=60, steps=4):
    ...     router.apply(plan)  # and then wait 20 seconds
    >>> router.placement.node("gw-3").weight
    1.0
    """
    if type(steps) is not int or steps < 1:
        raise ValueError(f"steps must be an integer of at least 1, not {steps!r}")
    if type(over) not in {int, float} or not 0.0 <= over < math.inf:
        raise ValueError(f"over must be a finite number of seconds, not negative, not {over!r}")
    if type(start) not in {int, float} or not 0.0 < start <= 1.0:
        raise ValueError(f"start must be a part of the full weight, above 0 and up to 1, not {start!r}")
    here, epoch = router.snapshot.plannable()
    full = _full(here, node)
    first = full.weight * start
    if isinstance(node, Node) and full.name in here:
        first = max(first, min(here.node(full.name).weight, full.weight))
    plans = Ramp()
    plans.times = [over * i / max(1, steps - 1) for i in range(steps)]
    plans.weights = [first + (full.weight - first) * i / max(1, steps - 1) for i in range(steps - 1)] + [
        full.weight
    ]
    for weight in plans.weights:
        if full.name in here:
            after = here.changed(reweight={full.name: weight})
        else:
            after = here.changed(add=[Node(full.name, weight, full.zone)])
        plan = here.diff(after).at(epoch)
        plans.append(plan)
        if epoch is not None and not plan.empty:
            epoch += 1
        here = after
    return plans


def _full(placement: Placement, node: str | Node) -> Node:
    """Return the node as it will be in the end."""
    if isinstance(node, str):
        return placement.node(node) if node in placement else Node(node)
    if not isinstance(node, Node):
        raise TypeError(f"a node is named by a str or is a Node, not {plain_type(node)}")
    if node.name in placement and placement.node(node.name).zone != node.zone:
        raise ValueError(
            f"the node {node.name!r} is in zone {placement.node(node.name).zone!r}, and a ramp changes "
            f"only its weight; give it that zone, not {node.zone!r}"
        )
    return node

"""The measures of a router at one moment."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ringhash.balance.bounded import BoundedRouter
from ringhash.plan import Plan
from ringhash.routing import Router

__all__ = ["NodeStats", "RouterStats", "stats"]


class NodeStats(NamedTuple):
    """The measures of one node.

    `share` is the part of all positions that it answers for now, 0.0 while it is down. `fair_ratio` is
    that share over what the node's weight makes fair among the nodes that are up; 1.0 is fair. Both are
    None where positions are not measured, as in a range map. `pins` is the number of keys pinned to it,
    `held` what it holds (None without a `BoundedRouter`).
    """

    name: str
    weight: float
    zone: str | None
    share: float | None
    fair_ratio: float | None
    down: bool
    pins: int
    held: int | None


class RouterStats(NamedTuple):
    """The measures of a router; made by `stats`.

    `kind` is that of the placement. `peak_to_mean` is the greatest `fair_ratio`, 0.0 when no node is up.
    `points` is the number of points of a ring, None for other placements. `last_change` is the plan of
    the last change of the placement, `last_fraction` the part of all positions that it moved, and
    `rebuild_seconds` the time until the new placement answered; all None before the first change.
    """

    nodes: tuple[NodeStats, ...]
    peak_to_mean: float | None
    epoch: int
    digest: str
    points: int | None
    last_change: Plan | None
    last_fraction: float | None
    rebuild_seconds: float | None
    kind: str = "ring"


def stats(router: Router | BoundedRouter) -> RouterStats:
    """Return the measures of a router, all of one moment.

    Args:
        router: A `Router`, or a `BoundedRouter`, which also says what each node holds.

    Cost: O(points) or O(spans).

    >>> stats(Router(["gw-1"])).nodes[0].share
    1.0
    """
    held = None
    if isinstance(router, BoundedRouter):
        held, router = router.loads, router.router
    seen = router.snapshot
    shares: dict[str, float] | None = dict(seen.answering.shares) if seen.placement.space.measured else None
    up = [node.weight for node in seen.nodes if node.name not in seen.down]
    greatest = max(up, default=1.0)
    total = sum(weight / greatest for weight in up)  # finite for huge weights too
    pins = Counter(pin.node for pin in seen.pins.values())
    nodes = []
    for node in seen.nodes:
        share = ratio = None
        if shares is not None:
            share = shares.get(node.name, 0.0)
            ratio = share * total * greatest / node.weight
        nodes.append(
            NodeStats(
                name=node.name,
                weight=node.weight,
                zone=node.zone,
                share=share,
                fair_ratio=ratio,
                down=node.name in seen.down,
                pins=pins[node.name],
                held=None if held is None else held.get(node.name, 0),
            )
        )
    ratios = [node.fair_ratio for node in nodes if node.fair_ratio is not None]
    points = getattr(seen.placement, "points", None)
    return RouterStats(
        nodes=tuple(nodes),
        peak_to_mean=None if shares is None else max(ratios, default=0.0),
        epoch=seen.epoch,
        digest=seen.placement.digest,
        points=None if points is None else len(points),
        last_change=None if seen.last is None else seen.last.plan,
        last_fraction=None if seen.last is None else seen.last.plan.fraction,
        rebuild_seconds=None if seen.last is None else seen.last.seconds,
        kind=seen.placement.kind,
    )

"""The measures of a router at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ringhash.plan import Plan
from ringhash.state import State

__all__ = ["NodeStats", "RouterStats", "stats_of"]


class NodeStats(NamedTuple):
    """The measures of one node.

    `share` is the part of all positions that it answers for now, 0.0 while it is down. `fair_ratio`
    is that in relation to what its weight makes fair, among the nodes that are up; 1.0 is fair.
    `pins` is the number of keys pinned to it, `held` what it holds (None without a
    `BoundedRouter`).
    """

    name: str
    weight: float
    zone: str | None
    share: float
    fair_ratio: float
    down: bool
    pins: int
    held: int | None


class RouterStats(NamedTuple):
    """The measures of a router; made by `Router.stats` and `BoundedRouter.stats`.

    `peak_to_mean` is the greatest `fair_ratio`, 0.0 when no node is up. `last_change` is the plan
    of the last change of the members, `last_fraction` the part of all positions that it moved, and
    `rebuild_seconds` the time until the new ring answered; None before the first change.
    """

    nodes: tuple[NodeStats, ...]
    peak_to_mean: float
    epoch: int
    digest: str
    points: int
    last_change: Plan | None
    last_fraction: float | None
    rebuild_seconds: float | None


def stats_of(state: State, held: Mapping[str, int] | None = None) -> RouterStats:
    """Return the measures of a router in this state, whose nodes hold so much."""
    ring, live = state.ring, state.live
    shares = live.shares
    greatest = max((node.weight for node in live.nodes), default=1.0)
    total = sum(node.weight / greatest for node in live.nodes)  # finite for huge weights too
    pins = Counter(state.pins.nodes.values())
    nodes = tuple(
        NodeStats(
            name=node.name,
            weight=node.weight,
            zone=node.zone,
            share=shares.get(node.name, 0.0),
            fair_ratio=shares.get(node.name, 0.0) * total * greatest / node.weight,
            down=node.name in state.down,
            pins=pins[node.name],
            held=None if held is None else held.get(node.name, 0),
        )
        for node in ring.nodes
    )
    plan, seconds = state.last or (None, None)
    return RouterStats(
        nodes=nodes,
        peak_to_mean=max((node.fair_ratio for node in nodes), default=0.0),
        epoch=state.epoch,
        digest=ring.digest,
        points=len(ring.points),
        last_change=plan,
        last_fraction=None if plan is None else plan.fraction,
        rebuild_seconds=seconds,
    )

"""The steps of a handover, as the router that it changes takes them."""

from __future__ import annotations

import time

from ringhash.placement import Placement, verified
from ringhash.plan import Plan
from ringhash.routing.running import Progress, Running
from ringhash.routing.snapshot import RouterSnapshot

__all__ = ["carried"]


def carried(seen: RouterSnapshot, progress: Progress) -> tuple[RouterSnapshot, int]:
    """Return what follows a snapshot when a handover is as far as `progress` says, and its epoch."""
    plan, done, epoch, phase = progress
    running = seen.running
    later = max(epoch, seen.epoch + 1)
    if running is not None and running.plan is not plan and running.plan != plan:
        raise running.refuse()
    if running is None:
        end = {"forward": plan.after, "back": plan.before}.get(phase)
        if seen.placement.digest == end and _has_nodes(seen.placement, plan, phase == "forward"):
            return (seen if epoch <= seen.epoch else seen.pinned(seen.pins, epoch)), max(epoch, seen.epoch)
        after = verified(seen.placement, plan)
        if not done:
            seen.check_pins(plan, allow_unpin=False)
        running = Running(plan, seen.placement, after, done, later, phase)
    elif (done, phase) == (running.done, running.phase):
        return seen, seen.epoch
    if phase == "forward":
        return seen.changed(plan, running.after, time.perf_counter(), later), later
    if phase == "back":
        return seen.returned(later), later
    return seen.amid(running.at(done, later, phase)), later


def _has_nodes(placement: Placement, plan: Plan, after: bool) -> bool:
    """Whether the nodes that a plan changes are as they are after it, or before it.

    Not every digest tells of weights, or of nodes that own nothing.
    """
    there = {node.name: node for node in placement.nodes}
    return all(
        there.get((change.before or change.after).name) == (change.after if after else change.before)  # type: ignore[union-attr]
        for change in plan.changes.nodes
    )

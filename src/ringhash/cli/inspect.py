"""What a person wants to know of a plan before it is carried out."""

from __future__ import annotations

from typing import NamedTuple

from ringhash.handover.pieces import Piece, cut
from ringhash.plan import Plan

__all__ = ["NodeShare", "View", "look_at"]


class NodeShare(NamedTuple):
    """What one node gives away and takes, as parts of all keys."""

    name: str
    gives: float
    takes: float
    change: str

    @property
    def net(self) -> float:
        """What it gains; negative where it loses."""
        return self.takes - self.gives


class View(NamedTuple):
    """A plan as a person sees it."""

    plan: Plan
    nodes: tuple[NodeShare, ...]
    pairs: tuple[
        tuple[str | None, str | None, int, float], ...
    ]  # source, target, ranges, share; largest first
    largest: Piece | None
    warnings: tuple[str, ...]


def look_at(plan: Plan) -> View:
    """Return who gains and who loses by a plan, its largest piece, and what is unusual about it. O(moves)."""
    gives = {name: moves.fraction for name, moves in plan.by_source().items()}
    takes = {name: moves.fraction for name, moves in plan.by_target().items()}
    changes = {}
    for before, after in plan.changes:
        if before is None and after is not None:
            changes[after.name] = "joins"
        elif before is not None and after is None:
            changes[before.name] = "leaves"
        elif before is not None and after is not None:
            weight = before.weight != after.weight
            changes[after.name] = f"weight {before.weight:g} to {after.weight:g}" if weight else "other zone"
    names = sorted({name for name in (*gives, *takes, *changes) if name is not None})
    nodes = tuple(
        NodeShare(name, gives.get(name, 0.0), takes.get(name, 0.0), changes.get(name, "")) for name in names
    )
    pairs = [(s, t, len(moves), moves.fraction) for (s, t), moves in plan.pairs().items()]
    pairs.sort(key=lambda pair: -pair[3])
    pieces = cut(plan)
    largest = max(pieces, key=lambda piece: piece.share, default=None)
    return View(plan, nodes, tuple(pairs), largest, tuple(_warnings(plan, nodes, largest)))


def _warnings(plan: Plan, nodes: tuple[NodeShare, ...], largest: Piece | None) -> list[str]:
    found = []
    if not len(plan):
        found.append("Nothing moves.")
    if plan.fraction > 0.5:
        found.append(f"More than half of all keys move: {plan.fraction:.1%}.")
    if None in plan.by_target():
        found.append("The last node leaves: no key will have an owner.")
    if None in plan.by_source():
        found.append("There were no nodes before: nobody hands anything over.")
    kinds = {node.change.split(" ")[0] for node in nodes if node.change}
    if {"joins", "leaves"} <= kinds:
        found.append("Nodes join and leave in one change; two changes are easier to undo.")
    leaving = [node.name for node in nodes if node.change == "leaves"]
    if len(leaving) > 1:
        found.append(f"{len(leaving)} nodes leave at once: {', '.join(leaving[:5])}.")
    found += [
        f"{node.name} joins cold and takes {node.takes:.1%} of all keys: let it prepare."
        for node in nodes
        if node.change == "joins" and node.takes > 0.2 and plan.fraction < 1
    ]
    if largest is not None and largest.share > 0.1:
        found.append(
            f"The largest piece, {largest.source or '-'} to {largest.target or '-'}, is "
            f"{largest.share:.1%} of all keys: cut it smaller with --max-share."
        )
    return found

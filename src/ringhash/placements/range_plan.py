"""Plans of range maps: what two of them differ in, and what a plan says of one.

Two maps of one history share all leaves but those that changed, so a plan costs what it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringhash.errors import StalePlanError
from ringhash.membership import changes_between
from ringhash.ordered import OrderedSpace, plain_key
from ringhash.placements.range_rows import Entry, plain_entry, read_change
from ringhash.plan import Changes, Plan
from ringhash.ranges import Ranges

if TYPE_CHECKING:
    from ringhash.placements.range_map import RangeMap

__all__ = ["edits_amid", "edits_of", "plan_between"]

# The keys from the first bytes on and below the second, with their nodes before and after.
_Region = tuple[bytes, "bytes | None", str, str]


def _edits_between(before: RangeMap, after: RangeMap) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """Return at which start what is another: from which entry, to which; in order."""
    here, there = before._pins, after._pins
    found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
    for start, old, new in before._edits_to(after):
        found[start] = (
            None if old < 0 else (before.numbered[old], here.get(start)),
            None if new < 0 else (after.numbered[new], there.get(start)),
        )
    if here is not there:
        for start in here.keys() | there.keys():
            if start not in found and here.get(start) != there.get(start):
                found[start] = (before._entry(start), after._entry(start))
    return [(start, *found[start]) for start in sorted(found)]


def plan_between(before: RangeMap, after: RangeMap) -> Plan:
    """Return the plan from one map to another of the same keys."""
    edits = _edits_between(before, after)
    regions = _regions(before, after, [start for start, _, _ in edits])
    cuts = sorted({bound for start, end, _, _ in regions for bound in (start, end) if bound})
    place = {cut: i for i, cut in enumerate(cuts)}
    sources = {name: i for i, name in enumerate(before.names)}
    targets = {name: i for i, name in enumerate(after.names)}
    return Plan(
        before=before.digest,
        after=after.digest,
        space=OrderedSpace.of_bytes(cuts, before.shape),
        changes=Changes(
            changes_between(before.nodes, after.nodes),
            tuple(
                (plain_key(before.shape, start), plain_entry(old), plain_entry(new))
                for start, old, new in edits
            ),
        ),
        ranges=(
            np.array([place[start] + 1 if start else 0 for start, _, _, _ in regions], np.uint64),
            np.array([len(cuts) if end is None else place[end] for _, end, _, _ in regions], np.uint64),
        ),
        owners=(
            np.array([sources[source] for _, _, source, _ in regions], np.int64),
            np.array([targets[target] for _, _, _, target in regions], np.int64),
        ),
        names=(before.names, after.names),
    )


def _regions(before: RangeMap, after: RangeMap, starts: list[bytes]) -> list[_Region]:
    """Return what moves, in order, neighbours joined: it begins only where the two maps differ."""
    regions: list[_Region] = []
    for start in starts:
        here, there = before._row(start), after._row(start)
        source, target = before.owner_at(here), after.owner_at(there)
        if source == target:
            continue
        ends = [end for end in (before._end(here), after._end(there)) if end is not None]
        end = min(ends, default=None)
        if regions and regions[-1][1:] == (start, source, target):
            start = regions.pop()[0]  # noqa: PLW2901
        regions.append((start, end, source, target))
    return regions


def edits_of(before: RangeMap, plan: Plan) -> dict[bytes, Entry | None]:
    """Return what a plan makes of the starts of a map.

    Raises:
        StalePlanError: A start is not what the plan says it was.
        ValueError: The plan is of other keys or nodes, or malformed.
    """
    edits: dict[bytes, Entry | None] = {}
    names = {*before.names, *(after.name for _, after in plan.changes.nodes if after is not None)}
    for i, row in enumerate(plan.changes.rows):
        where = f"plan.rows[{i}]"
        start, old, new = read_change(before.shape, row, where)
        if start in edits:
            raise ValueError(f"{where}: changes {row[0]!r} again")
        if before._entry(start) != old:
            raise StalePlanError(
                f"{where}: expects {row[1]!r} at {row[0]!r}, and there is {before._entry(start)!r}"
            )
        if new is None and not start:
            raise ValueError(f"{where}: takes the first range away")
        if new is not None and new[0] not in names:
            raise ValueError(f"{where}: gives the range to {new[0]!r}, which is not a node")
        edits[start] = new
    return edits


def edits_amid(before: RangeMap, plan: Plan, done: Ranges) -> dict[bytes, Entry | None]:
    """Return what is another at the starts of a map when only the moves of `done` have been made."""
    edits: dict[bytes, Entry | None] = {}
    space, pins = plan.space, before._pins
    for (first, last), _, target in plan.moves:
        if target is None or not done.holds(first):
            continue
        start, end = space.address_of(first) or b"", space.address_of(last + 1)
        edits[start] = (target, pins.get(start))
        number = before._row(start)  # what begins within keeps its start, under its new node
        while (inner := before._end(number)) is not None and (end is None or inner < end):
            edits[inner] = (target, pins.get(inner))
            number += 1
        if end is not None and end not in edits:
            edits[end] = (before.owner_at(before._row(end)), pins.get(end))
    return edits

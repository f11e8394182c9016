"""Plans of directories: what becomes of entries, of the default below them, and of the nodes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringhash.errors import EmptyRingError, OwnedRangesError, StalePlanError
from ringhash.membership import changed, changes_between
from ringhash.placements.entry_space import EntrySpace, plain_entry_key, positions_of_bytes, read_entry_key
from ringhash.plan import Changes, Plan
from ringhash.ranges import Ranges

if TYPE_CHECKING:
    from ringhash.node import Node
    from ringhash.placement import Placement
    from ringhash.placements.directory import Directory

__all__ = ["Parts", "entries_amid", "kept_between", "parts_after", "plan_between", "split_done"]


class Parts(NamedTuple):
    """What a directory is beside its entries: the default, the nodes apart from it, and who is alone."""

    default: Placement
    apart: tuple[Node, ...]
    alone: frozenset[str]


def _names(directory: Directory) -> tuple[str, ...]:
    return tuple(seat.node for seat in directory.seats)


def _owner(directory: Directory, key: bytes, node: str | None) -> str | None:
    """Who owns a key whose entry names `node`, None for no entry."""
    if node is not None:
        return node
    default = directory.default
    try:
        return default.owner_at(int(positions_of_bytes(default.space, [key])[0]))
    except EmptyRingError:
        return None


def plan_between(before: Directory, after: Directory) -> Plan:
    """Return the plan from one directory to another."""
    below = before.default.diff(after.default)
    differing = before._table_of._differences(after._table_of, _names(before), _names(after))
    edits = {key: (old, new) for key, old, new in differing}
    keys = set(edits)
    if len(below):  # entries that hold their keys where they are
        entries = list(before._table_of)
        moved = below.ranges.contains(positions_of_bytes(below.space, entries))
        keys.update(entries[i] for i in np.flatnonzero(moved).tolist())
    space = EntrySpace(below.space, keys)
    sources = {name: i for i, name in enumerate(before.names)}
    targets = {name: i for i, name in enumerate(after.names)}
    moves = [
        (start, end, move_from, move_to)
        for (start, end), move_from, move_to in below.moves
    ]  # fmt: skip
    for number, key in enumerate(space.entries):
        old, new = edits.get(key, (None, None))
        if key not in edits:
            continue
        source, target = _owner(before, key, old), _owner(after, key, new)
        position = below.space.size + number
        if source == target:
            continue
        if moves and moves[-1][1:] == (position - 1, source, target):
            moves[-1] = (moves[-1][0], position, source, target)
        else:
            moves.append((position, position, source, target))
    return Plan(
        before=before.digest,
        after=after.digest,
        space=space,
        changes=Changes(changes_between(before.nodes, after.nodes), _rows(before, after, below, edits)),
        ranges=(
            np.array([start for start, _, _, _ in moves], np.uint64),
            np.array([end for _, end, _, _ in moves], np.uint64),
        ),
        owners=(
            np.array([-1 if source is None else sources[source] for _, _, source, _ in moves], np.int64),
            np.array([-1 if target is None else targets[target] for _, _, _, target in moves], np.int64),
        ),
        names=(before.names, after.names),
    )


def _rows(
    before: Directory, after: Directory, below: Plan, edits: dict[bytes, tuple[str | None, str | None]]
) -> tuple[tuple[Any, Any, Any], ...]:
    here, there = _beside(before), _beside(after)
    rows: list[tuple[Any, Any, Any]] = [
        (["apart", name], here.get(name), there.get(name))
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]
    rows += [(["default", key], old, new) for key, old, new in below.changes.rows]
    rows += [(["entry", plain_entry_key(key)], *edits[key]) for key in sorted(edits)]
    return tuple(rows)


def _beside(directory: Directory) -> dict[str, str]:
    """The nodes that the default does not have: "alone" if they are one key's own, else "shared"."""
    return {node.name: "alone" if node.name in directory.alone else "shared" for node in directory.apart}


def kept_between(before: Directory, plan: Plan) -> list[bytes]:
    """Return the keys of a plan's space that no row of it changes."""
    space = _space_of(plan)
    written = {
        read_entry_key(key[1], "plan.rows") for key, _, _ in plan.changes.rows if key and key[0] == "entry"
    }
    return [key for key in space.entries if key not in written and before._table_of.find(key) >= 0]


def _space_of(plan: Plan) -> EntrySpace:
    if not isinstance(plan.space, EntrySpace):
        raise ValueError(f"the plan is of {plan.space!r}, and not of a directory")
    return plan.space


def parts_after(before: Directory, plan: Plan) -> tuple[Parts, dict[bytes, str | None]]:
    """Return what a plan makes of a directory, and of its entries.

    Raises:
        StalePlanError: An entry, or a node, is not what the plan says it was.
        ValueError: The plan is malformed, or of other nodes.
    """
    space = _space_of(plan)
    beside = _beside(before)
    edits: dict[bytes, str | None] = {}
    rows: list[tuple[Any, Any, Any]] = []
    for i, (key, old, new) in enumerate(plan.changes.rows):
        where = f"plan.rows[{i}]"
        if not isinstance(key, (list, tuple)) or len(key) != 2 or key[0] not in ("apart", "default", "entry"):
            raise ValueError(
                f'{where}[0]: must be ["apart", node], ["default", key] or ["entry", key], not {key!r}'
            )
        if key[0] == "default":
            rows.append((key[1], old, new))
            continue
        if not all(value is None or (isinstance(value, str) and value) for value in (old, new)):
            raise ValueError(f"{where}: must go from a name or null to another one")
        if key[0] == "apart":
            if beside.get(key[1]) != old or new not in (None, "alone", "shared"):
                raise StalePlanError(
                    f"{where}: expects {old!r} of {key[1]!r}, which is {beside.get(key[1])!r}"
                )
            beside.pop(key[1], None)
            if new is not None:
                beside[key[1]] = new
            continue
        data = read_entry_key(key[1], where)
        value = before._table_of.find(data)
        here = None if value < 0 else before.seats[value].node
        if here != old:
            raise StalePlanError(
                f"{where}: expects an entry of {key[1]!r} for {old!r}, and it is for {here!r}"
            )
        if data in edits:
            raise ValueError(f"{where}: changes the entry of {key[1]!r} again")
        edits[data] = new
    members = {node.name: node for node in before.nodes}
    for _, (old_node, new_node) in changed(before.names, before.nodes, plan.changes.nodes):
        if new_node is not None:
            members[new_node.name] = new_node
        elif old_node is not None:
            del members[old_node.name]
    for name in (*beside, *(node for node in edits.values() if node is not None)):
        if name not in members:
            raise ValueError(f"the plan names {name!r}, which is no node")
    default = before.default
    of_default = tuple(members[name] for name in sorted(members) if name not in beside)
    changes = Changes(changes_between(default.nodes, of_default), tuple(rows))
    if any(changes) or len(plan):
        try:
            default = default.replayed(_plan_below(plan, space, changes))
        except OwnedRangesError as error:
            raise ValueError(f"the plan cannot be carried out: {error}") from None
    apart = tuple(members[name] for name in sorted(beside))
    return Parts(default, apart, frozenset(name for name, how in beside.items() if how == "alone")), edits


def _plan_below(plan: Plan, space: EntrySpace, changes: Changes) -> Plan:
    """The plan of the default: the moves below the entries."""
    size = space.below.size
    rows = np.flatnonzero(plan._starts <= np.uint64(size - 1))
    return Plan(
        before="",
        after="",
        space=space.below,
        changes=changes,
        ranges=(plan._starts[rows], np.minimum(plan._ends[rows], np.uint64(size - 1))),
        owners=(plan._source_index[rows], plan._target_index[rows]),
        names=(plan._sources, plan._targets),
    )


def split_done(space: EntrySpace, done: Ranges) -> Ranges:
    """Return the positions of `done` that are the default's."""
    last = space.below.size - 1
    return Ranges.of([(start, min(end, last)) for start, end in done if start <= last])


def entries_amid(before: Directory, after: Directory, plan: Plan, done: Ranges) -> dict[bytes, str | None]:
    """Return an entry for each key that a plan changes: for its owner before or after, as `done` says.

    The default between two of them may answer otherwise for such a key than either of the two.
    """
    space = _space_of(plan)
    edits: dict[bytes, str | None] = {}
    for number, key in enumerate(space.entries):
        side = after if done.holds(space.below.size + number) else before
        value = side._table_of.find(key)
        edits[key] = _owner(side, key, None if value < 0 else side.seats[value].node)
    return edits

"""A plan as a table that a person reads: what `str(plan)` is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringhash.plan import Moves, Plan

__all__ = ["shown", "table"]

_PAIRS_SHOWN = 20


def table(plan: Plan) -> str:
    """Return the table: a line for each pair of nodes, those first between which most moves.

    A space without a measure has no shares; its lines count positions.
    """
    pairs = sorted(plan.pairs().items(), key=lambda pair: -pair[1].positions)
    measured = plan.space.measured
    rows = [("from", "to", "ranges", "share" if measured else "positions")]
    for (source, target), moves in pairs[:_PAIRS_SHOWN]:
        rows.append((shown(source), shown(target), str(len(moves)), _part(plan, [moves])))
    if len(pairs) > _PAIRS_SHOWN:
        rest = [moves for _, moves in pairs[_PAIRS_SHOWN:]]
        rows.append((f"{len(rest)} more pairs", "", str(sum(map(len, rest))), _part(plan, rest)))
    rows.append(("all", "", str(len(plan)), _part(plan, [plan.moves])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}".rstrip()
        for a, b, c, d in rows
    )


def _part(plan: Plan, groups: list[Moves]) -> str:
    positions = sum(moves.positions for moves in groups)
    return f"{positions / plan.space.size:.3%}" if plan.space.measured else str(positions)


def shown(name: str | None) -> str:
    """Return a name as a cell of a table: `-` for no node, and what would break the line escaped."""
    if name is None:
        return "-"
    return name if name.isprintable() else repr(name)

"""A comparison of policies as text for a terminal and as a dictionary for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringhash.analysis.report import plain, text_table

if TYPE_CHECKING:
    from ringhash.analysis.compare.replay import Comparison, Outcome

__all__ = ["HEADS", "cells_of", "comparison_text", "comparison_to_dict", "nodes_text"]

HEADS = [
    "policy", "rows", "at end", "load", "moved", "worst hour", "moves", "per node", "metadata",
    "hours out", "scatter",
]  # fmt: skip
_FIGURES = (
    "policy", "rows_peak", "rows_last", "load_peak", "out_of_tolerance", "moved", "moved_share",
    "moved_worst", "moves", "splits", "merges", "shards_per_node", "metadata", "scatter", "loads", "peaks",
    "moved_by_step",
)  # fmt: skip


def cells_of(outcome: Outcome) -> list[str]:
    """Return the figures of a policy, in the order of `HEADS`."""
    total = sum(outcome.loads.values())
    return [
        outcome.policy,
        f"{outcome.rows_peak:.2f}",
        f"{outcome.rows_last:.2f}",
        f"{outcome.load_peak:.2f}",
        f"{outcome.moved_share:.1%}",
        f"{outcome.moved_worst / total if total else 0:.1%}",
        f"{outcome.moves:,}",
        f"{outcome.shards_per_node:,.0f}",
        _bytes(outcome.metadata),
        f"{outcome.out_of_tolerance:,.0f}",
        f"{outcome.scatter:.1f}",
    ]


def _bytes(size: int) -> str:
    return f"{size:,} B" if size < 10_000 else f"{size / 1000:,.0f} kB"


def nodes_text(comparison: Comparison) -> str:
    """Return how many nodes there are over time, as in "4 -> 6 -> 5 nodes"."""
    nodes = comparison.nodes
    changes = [str(count) for i, count in enumerate(nodes) if not i or nodes[i - 1] != count]
    return " -> ".join(changes) + " nodes"


def comparison_text(comparison: Comparison) -> str:
    """Return a comparison as a table."""
    size = f"{comparison.rows:,} rows, {comparison.keys:,} keys"
    time = f"{len(comparison.nodes):,} steps of {comparison.hours:g} h"
    return "\n".join(
        [
            f"{size}, {time}, {nodes_text(comparison)}",
            "rows, load: the fullest node by the mean, stored and arriving; moved: by the rows at the end",
            f"per node: pieces; hours out: above {comparison.tolerance:g}; scatter: nodes that a scan asks",
            "",
            text_table(HEADS, [cells_of(outcome) for outcome in comparison]),
        ]
    )


def comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a dictionary."""
    return {
        "kind": "comparison",
        "version": 1,
        **{
            name: plain(getattr(comparison, name))
            for name in ("rows", "keys", "hours", "tolerance", "nodes", "lorenz", "heat")
        },
        "policies": [
            {name: plain(getattr(outcome, name)) for name in _FIGURES} for outcome in comparison.outcomes
        ],
    }

"""A comparison of policies as one page of HTML with pictures."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ringhash.analysis import svg
from ringhash.analysis.compare.report import HEADS, cells_of, nodes_text
from ringhash.analysis.page import figure, page, table

if TYPE_CHECKING:
    from ringhash.analysis.compare.replay import Comparison, Outcome

__all__ = ["comparison_page"]

POINTS = 200  # of a line


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    names = [outcome.policy for outcome in comparison]
    moved = {outcome.policy: outcome.moved_share for outcome in comparison}
    peaks = {outcome.policy: thinned(outcome.peaks) for outcome in comparison}
    sums = {outcome.policy: thinned(np.cumsum(outcome.moved_by_step).tolist()) for outcome in comparison}
    figures = table(HEADS, [cells_of(outcome) for outcome in comparison])
    overview = (
        "<section><h2>All figures</h2>"
        "<p class=sub>Rows and load: the fullest node by the mean, stored and arriving. Moved: by the rows "
        f"at the end. Hours out: above {comparison.tolerance:g}. Scatter: how many nodes a scan of 1% of "
        f"the keys asks.</p>{figures}</section>"
    )
    movement = (
        "<section><h2>What moved</h2><div class=pictures>"
        + figure(
            "Rows moved in all, by the rows at the end",
            svg.named_bars(
                moved, "Rows moved by each policy, by the rows at the end", unit="%", colours=True
            ),
        )
        + figure(
            "Rows moved over time",
            svg.curves(sums, "Rows moved over time by each policy", "time", "rows", steps=True),
        )
        + f"</div>{svg.legend(names)}</section>"
    )
    balance = (
        "<section><h2>How even the nodes were</h2>"
        + figure(
            "The fullest node by the mean, in stored rows",
            svg.curves(peaks, "The fullest node by the mean, over time, by policy", "time", "times the mean"),
            wide=True,
        )
        + f"{svg.legend(names)}<div class=pictures>"
        + "".join(_loads(outcome) for outcome in comparison)
        + "</div></section>"
    )
    lorenz = figure(
        "Lorenz curve: the higher above the dashed line, the fewer keys have most of the rows",
        svg.curves(
            {"keys": comparison.lorenz},
            "Lorenz curve of the keys",
            "share of the keys",
            "share of the rows",
            unit="%",
            even=True,
        ),
    )
    heat = "".join(
        figure(
            f"Where rows arrive over time, 64 {words}",
            svg.heat_map(comparison.heat[method], f"Heat map of 64 {words} over time", "time", "shard"),
        )
        for method, words in (("hash", "shards by hash"), ("range", "ranges of keys"))
    )
    return page(
        "Which way to place the keys",
        f"{comparison.rows:,} rows of {comparison.keys:,} keys, {len(comparison.nodes):,} steps of "
        f"{comparison.hours:g} h, {nodes_text(comparison)}",
        overview
        + movement
        + balance
        + f"<section><h2>The data</h2><div class=pictures>{lorenz}{heat}</div></section>",
        "Each policy drives the live class of its method, so what is moved here is what its plans move.",
    )


def _loads(outcome: Outcome) -> str:
    mean = sum(outcome.loads.values()) / len(outcome.loads)
    words = f"Rows by node at the end, {outcome.policy}"
    return figure(
        f"{words}: the fullest has {outcome.rows_last:.2f} times the mean",
        svg.bars(
            list(outcome.loads.values()),
            words,
            "node",
            "rows",
            mean=mean,
            names=[escape(name) for name in outcome.loads],
        ),
    )


def thinned(values: tuple[float, ...] | list[float]) -> list[float]:
    """Return at most `POINTS` values: the greatest of each group, so that no peak is hidden."""
    size = -(-len(values) // POINTS)
    return [max(values[i : i + size]) for i in range(0, len(values), size)]

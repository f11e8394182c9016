"""The charts of docs/benchmarks.md. Colours are Okabe and Ito's, told apart by the colour-blind, and every
line has a mark and a name of its own as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.cases import VNODE_COUNTS
from benchmarks.measure import MOVED_NODES, PEAK_NODES, Results
from ringhash.balance.sizing import expected_peak

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip
OURS = {"color": BLUE, "marker": "o", "linewidth": 2.6, "zorder": 5}
STYLES: dict[str, dict[str, Any]] = {
    "fastring": {"color": RED, "marker": "s"},
    "jump hash": {"color": GREEN, "marker": "^"},
    "uhashring": {"color": ORANGE, "marker": "D"},
    "hashring": {"color": PINK, "marker": "v"},
    "clandestined": {"color": SKY, "marker": "P"},
    "pymemcache": {"color": "#666666", "marker": "X"},
}


def draw(results: Results, folder: Path) -> None:
    """Write all charts."""
    mpl.use("svg")
    style: Any = {
        "svg.hashsalt": "ringhash",
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e4e4e4",
        "legend.frameon": False,
        "figure.facecolor": "white",
    }
    with mpl.rc_context(style):
        _lookups(results, folder / "benchmark-lookups.svg")
        _peaks(results, folder / "benchmark-balance.svg")
        _moved(results, folder / "benchmark-moved.svg")
        _growth(results, folder / "benchmark-growth.svg")


@contextmanager
def _figure(path: Path, width: float, height: float, **axes: Any) -> Iterator[Any]:
    figure, shape = plt.subplots(figsize=(width, height), layout="constrained", **axes)
    yield shape
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Lines of the writer end in blanks.
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))


def _log(axis: Any, ticks: list[float], name: Any) -> None:
    axis.set_ticks(ticks)
    axis.set_major_formatter(FuncFormatter(lambda value, _: name(value)))
    axis.set_minor_locator(NullLocator())


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _labels_apart(places: list[float], gap: float) -> list[float]:
    """Move places on a log scale until they are `gap` decades apart; a crowd spreads around its middle."""
    order = np.argsort(places)
    crowds = [[float(np.log10(places[i]))] for i in order]
    i = 0
    while i + 1 < len(crowds):
        one, other = crowds[i : i + 2]
        if np.mean(other) - np.mean(one) >= gap * (len(one) + len(other)) / 2:
            i += 1
        else:
            crowds[i : i + 2] = [one + other]
            i = max(i - 1, 0)
    spread = np.concatenate([np.mean(c) + gap * (np.arange(len(c)) - (len(c) - 1) / 2) for c in crowds])
    return [float(10 ** spread[k]) for k in np.argsort(order)]


def _lookups(results: Results, path: Path) -> None:
    sizes = [int(size) for size in results["lookups"]]
    series = ["ringhash", *results["machine"]["peers"]]
    with _figure(path, 8.6, 5.2) as axes:
        ends = []
        for label in series:
            ns = [row["ns"][label] for row in results["peer_lookups"].values()]
            axes.plot(sizes, ns, markersize=7, **(OURS if label == "ringhash" else STYLES[label]))
            ends.append(ns[-1])
        yardstick = float(np.median([row["ns"]["yardstick"] for row in results["peer_lookups"].values()]))
        axes.axhline(yardstick, color=BLACK, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.set(xscale="log", yscale="log", xlim=(8, 11_000), xlabel="nodes, each with 160 virtual nodes")
        axes.set_ylim(10, 2e8)
        axes.annotate(
            f"one XXH3 of ready bytes (xxhash): {yardstick:.0f} ns",
            (10_500, yardstick), (0, -5), textcoords="offset points", ha="right", va="top", fontsize=9.5,
        )  # fmt: skip
        for label, end, place in zip(series, ends, _labels_apart(ends, 0.33), strict=True):
            ours = label == "ringhash"
            color = OURS["color"] if ours else STYLES[label]["color"]
            axes.annotate(
                f"{label}  {_time(end)}", (sizes[-1], end), (13_000, place), textcoords="data",
                va="center", color=BLACK, fontweight="bold" if ours else "normal", fontsize=10,
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 1, "relpos": (0, 0.5)},
            )  # fmt: skip
        _log(axes.xaxis, [10, 100, 1000, 10_000], _count)
        _log(axes.yaxis, [10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8], _time)
        axes.set_title("One lookup of a str key, without the loop around it", loc="left", fontsize=12)


def _peaks(results: Results, path: Path) -> None:
    colors = dict(zip(PEAK_NODES, ((GREEN, "^"), (BLUE, "o"), (RED, "s")), strict=True))
    with _figure(path, 8.6, 5) as axes:
        fine = np.unique(np.geomspace(36, 1100, 60).astype(int))
        for i, nodes in enumerate(reversed(PEAK_NODES)):
            color, marker = colors[nodes]
            rows = results["peaks"][str(nodes)]
            counts = np.array([int(count) for count in rows]) * 1.02 ** (1 - i)  # side by side
            low, _, high, mean, _ = np.array(list(rows.values())).T
            axes.errorbar(
                counts, mean, [mean - low, high - mean], fmt=marker, color=color, markersize=6.5,
                capsize=3, linewidth=1.3, label=f"{nodes:,} nodes: rings built, 10th to 90th percentile",
            )  # fmt: skip
            theory = [expected_peak(nodes, int(count)) for count in fine]
            axes.plot(fine, theory, color=color, linewidth=1.6, label=f"{nodes:,} nodes: theory")
        axes.set(xscale="log", xlim=(36, 1100), ylim=(1, None), xlabel="virtual nodes a node")
        _log(axes.xaxis, list(VNODE_COUNTS), _count)
        axes.tick_params(axis="x", labelsize=10)
        axes.set_title("Share of the fullest node, relative to the mean", loc="left", fontsize=12)
        axes.legend(fontsize=10)


def _moved(results: Results, path: Path) -> None:
    rows = results["moved"]
    labels = list(rows)
    places = np.arange(len(labels))[::-1]
    n = MOVED_NODES
    with _figure(path, 9.4, 4.6, ncols=2, sharey=True) as (left, right):
        for axes, change, ideal, title in (
            (left, "add", 1 / (n + 1), f"One node joins {n}"),
            (right, "remove", 1 / n, f"One of {n} nodes leaves"),
        ):
            moved = np.array([rows[label][change] for label in labels])
            needless = np.array([rows[label][f"{change}_needless"] for label in labels])
            axes.axvline(ideal, color=BLACK, linewidth=1.2, linestyle=(0, (4, 3)))
            bad = needless > 0
            axes.hlines(places[bad], ideal, moved[bad], color=RED, linewidth=1.6)
            for some, mark, color, what in (
                (~bad, "o", BLUE, "only keys that have to move"),
                (bad, "s", RED, "keys of other nodes too"),
            ):
                axes.plot(moved[some], places[some], mark, color=color, markersize=9, label=what)
            for place, value in zip(places, moved, strict=True):
                far, below = value > 0.1, value < ideal
                axes.annotate(
                    f"{value:.1%}" if far else f"{value:.2%}", (value, place),
                    (-9 if far or below else 9, 8 if far else 0), textcoords="offset points",
                    ha="right" if far or below else "left", va="center", fontsize=10,
                )  # fmt: skip
            axes.set(xscale="log", xlim=(0.0028, 1.4), ylim=(-0.6, len(labels) - 0.4))
            axes.set_xlabel("share of the keys that change their node")
            axes.set_title(title, loc="left", fontsize=12)
            axes.set_yticks(places, labels)
            axes.grid(axis="y", visible=False)
            _log(axes.xaxis, [0.01, 0.1, 1], lambda value: f"{value:.0%}")
            axes.annotate(
                f"ideal {ideal:.2%}", (ideal, len(labels) - 0.45), (4, 0), textcoords="offset points",
                fontsize=9.5, va="top",
            )  # fmt: skip
        left.get_yticklabels()[0].set_fontweight("bold")
        left.legend(loc="center right", fontsize=10, bbox_to_anchor=(1, 0.42))


def _growth(results: Results, path: Path) -> None:
    panels: tuple[tuple[str, float, str, tuple[float, float], list[float]], ...] = (
        ("owner_ns", 1, "One lookup of a str", (10, 2e3), [10, 20, 50, 100, 200, 500, 1e3, 2e3]),
        ("batch_ns", 1, "A key of a batch (uint64 array)", (2, 200), [2, 5, 10, 20, 50, 100, 200]),
        ("build_ms", 1e6, "Building the ring", (1e4, 1e10), [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10]),
        (
            "add_ms",
            1e6,
            "Adding a node, with its exact plan",
            (1e4, 1e10),
            [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10],
        ),
    )
    styles = {"40": (GREEN, "^"), "160": (BLUE, "o"), "400": (RED, "s")}
    with _figure(path, 9.4, 7, nrows=2, ncols=2, sharex=True) as grid:
        for axes, (field, ns, title, limits, ticks) in zip(grid.flat, panels, strict=True):
            for count, rows in results["grid"].items():
                color, marker = styles[count]
                nodes = [int(size) for size in rows]
                values = [row[field] * ns for row in rows.values()]
                axes.plot(nodes, values, color=color, marker=marker, linewidth=1.8, markersize=6)
                axes.lines[-1].set_label(f"{count} virtual nodes")
            axes.set(xscale="log", yscale="log", ylim=limits)
            _log(axes.xaxis, [10, 100, 1000, 10_000, 100_000], _count)
            _log(axes.yaxis, ticks, _time)
            axes.set_title(title, loc="left", fontsize=12)
        for axes in grid[1]:
            axes.set_xlabel("nodes")
        grid[0][0].legend(fontsize=10)

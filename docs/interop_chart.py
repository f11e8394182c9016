"""Draws docs/interop.svg: what a change of one server moves in each program, and how much needlessly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringhash import Ring
from ringhash.interop import EnvoyMaglev, EnvoyRing, HAProxyRing, KetamaRing, NginxRing

SERVERS = {f"10.0.0.{i}:80": (1, 2, 3, 1, 5)[i % 5] for i in range(20)}
ONE = "10.0.0.2:80"  # of weight 3; all weights together are 48
IDS = {name: i for i, name in enumerate(SERVERS, 1)}
PROGRAMS: dict[str, Callable[[dict[str, int]], Any]] = {
    "ringhash": lambda servers: Ring({name: float(weight) for name, weight in servers.items()}),
    "nginx": NginxRing,
    "HAProxy, explicit ids": lambda s: HAProxyRing(s, ids={name: IDS[name] for name in s}),
    "HAProxy, automatic ids": HAProxyRing,
    "ketama, weighted": lambda s: KetamaRing(s, "twemproxy"),
    "Envoy RING_HASH, 1,024": EnvoyRing,
    "Envoy RING_HASH, 65,536": lambda s: EnvoyRing(s, 65536),
    "Envoy MAGLEV": EnvoyMaglev,
}
CHANGES = {
    "a server of weight 3 of 48 leaves": {name: w for name, w in SERVERS.items() if name != ONE},
    "its weight goes from 3 to 4": {**SERVERS, ONE: 4},
}


def measured() -> dict[str, list[tuple[float, float]]]:
    """Of each program, for each change: the part of keys that moves, and that moves needlessly."""
    found = {}
    for name, make in PROGRAMS.items():
        plans = [make(SERVERS).diff(make(after)) for after in CHANGES.values()]
        found[name] = [(plan.fraction, plan.needless) for plan in plans]
    return found


def main() -> None:
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "ringhash", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figures = measured()
    names = list(figures)[::-1]
    figure, plots = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for i, (plot, title) in enumerate(zip(plots, CHANGES, strict=True)):
        needless = [100 * figures[name][i][1] for name in names]
        needed = [100 * (figures[name][i][0] - figures[name][i][1]) for name in names]
        most = 20.0
        plot.barh(names, needed, color="#4878a8", label="to or from the server")
        plot.barh(names, needless, left=needed, color="#d1603d", label="needlessly, between others")
        for row, (a, b) in enumerate(zip(needed, needless, strict=True)):
            shown = f"{a + b:.1f} %" + (f", {b:.1f} % needlessly" if b > 0.05 else "")
            inside = a + b > most  # the bar is longer than the axis
            shown += " \u2192" if inside else ""
            plot.text(
                min(a + b, most) - 0.2 if inside else a + b + 0.2, row, shown, va="center",
                ha="right" if inside else "left", color="white" if inside else "#222222",
            )  # fmt: skip
        plot.set_xlim(0, most)
        plot.set_title(title, fontsize=10)
        plot.set_xlabel("% of all keys that move")
        plot.spines[["top", "right"]].set_visible(False)
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    out = Path(__file__).with_name("interop.svg")
    figure.savefig(out, metadata={"Date": None, "Creator": None})
    for name, rows in figures.items():
        print(f"{name:26}", *(f"{move:8.3%} {needless:8.3%}" for move, needless in rows))


if __name__ == "__main__":
    main()

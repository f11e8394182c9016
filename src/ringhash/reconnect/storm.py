"""The reconnect storm, simulated: modulo against ring, all at once against drained in waves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringhash.batch import readable
from ringhash.placements.ring import Ring

__all__ = ["Storm", "as_svg", "as_table", "simulate"]

_Array = np.ndarray[Any, Any]
# Okabe and Ito's colours, which people with colour blindness tell apart.
_COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#009E73")
_DASHES = ("", "7 3", "", "7 3")
_SHAPES = ("triangle", "square", "circle", "diamond")


class Storm(NamedTuple):
    """One course of a storm.

    `per_second` has the attempts to connect in each second from the change on, `refused` how many of
    them the nodes had no room for, `seconds` how long it took until all clients were connected again.
    """

    name: str
    displaced: int
    per_second: tuple[int, ...]
    refused: int

    @property
    def peak(self) -> int:
        """The most attempts to connect in one second."""
        return max(self.per_second, default=0)

    @property
    def seconds(self) -> int:
        """Seconds until the last client was back."""
        return len(self.per_second)


def simulate(
    nodes: int = 5,
    add: int = 1,
    clients: int = 100_000,
    *,
    accept: int = 2000,
    batch: int | None = None,
    every: float = 1.0,
    seed: int = 0,
) -> tuple[Storm, ...]:
    """Return four storms that follow when nodes are added: modulo or ring, at once or drained.

    Args:
        nodes: Nodes before.
        add: Nodes that come in; where it is negative, nodes that go out.
        clients: Connected clients, spread evenly.
        accept: Connections that one node can accept in a second; it refuses the rest.
        batch: Connections that are closed in one wave; by default what all nodes can accept in half
            of `every`.
        every: Seconds between two waves.
        seed: Of the chance.

    Clients that are cut off at once come back within a second and then each second again. Drained
    ones are closed in waves; each waits as the hint says, up to `every`, and backs off with full jitter.

    Raises:
        ValueError: An argument is out of its range.

    >>> storms = simulate(nodes=5, add=1, clients=10_000)
    >>> [storm.name for storm in storms]
    ['modulo, at once', 'modulo, drained', 'ring, at once', 'ring, drained']
    >>> storms[0].displaced > 4 * storms[2].displaced
    True
    """
    if nodes < 1 or nodes + add < 1 or clients < 0 or accept < 1:
        raise ValueError(
            "there must be at least one node before and after, accept at least 1, and clients not negative"
        )
    if not 0 < every < float("inf") or (batch is not None and batch < 1):
        raise ValueError("every must be finite and above 0, and batch at least 1")
    rng = np.random.default_rng(seed)
    before = Ring([f"node-{i}" for i in range(nodes)])
    after = Ring([f"node-{i}" for i in range(nodes + add)])
    keys = rng.integers(0, 1 << 63, clients, np.int64)
    positions = before._positions(readable(keys)).astype(np.int64)
    room = accept * (nodes + add)
    wave = batch or max(1, int(room * every / 2))
    old, new = np.array(before.names), np.array(after.names)
    by_ring = int((old[before.index_many(keys)] != new[after.index_many(keys)]).sum()) if clients else 0
    by_modulo = int((positions % nodes != positions % (nodes + add)).sum())
    storms = []
    for method, moved in (("modulo", by_modulo), ("ring", by_ring)):
        at_once = rng.uniform(0, 1, moved)
        waves = np.arange(moved) // wave * every + rng.uniform(0, every, moved)
        storms.append(_run(f"{method}, at once", at_once, room, None))
        storms.append(_run(f"{method}, drained", waves, room, rng))
    return tuple(storms)


def _run(name: str, due: _Array, room: int, rng: np.random.Generator | None) -> Storm:
    """Let clients try at the times `due`, second by second, until all have got in."""
    moved = len(due)
    tries = np.zeros(moved, np.int64)
    per_second: list[int] = []
    refused = 0
    while len(due):
        second = len(per_second)
        now = np.flatnonzero(due < second + 1)
        per_second.append(len(now))
        now = now[np.argsort(due[now], kind="stable")]
        out, late = now[:room], now[room:]
        refused += len(late)
        if rng is None:
            due[late] += 1.0
        else:
            due[late] += rng.uniform(0, np.minimum(60.0, 0.5 * 2.0 ** np.minimum(tries[late], 7)))
        tries[late] += 1
        keep = np.ones(len(due), np.bool_)
        keep[out] = False
        due, tries = due[keep], tries[keep]
    return Storm(name, moved, tuple(per_second), refused)


def as_table(storms: Sequence[Storm]) -> str:
    """Return the storms as a table of text.

    >>> print(as_table([Storm("ring, at once", 3, (2, 1), 1)]))
    storm          must move  peak a second  refused  all back after
    ring, at once          3              2        1             2 s
    """
    rows = [("storm", "must move", "peak a second", "refused", "all back after")]
    rows += [
        (s.name, f"{s.displaced:,}", f"{s.peak:,}", f"{s.refused:,}", f"{s.seconds:,} s") for s in storms
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def as_svg(storms: Sequence[Storm], title: str = "Reconnects a second after the change") -> str:
    """Return the storms as an SVG picture: attempts to connect in each second, on a logarithmic scale.

    >>> as_svg(simulate(clients=1000)).startswith("<svg")
    True
    """
    left, top, width, height = 76, 136, 620, 280
    last = max(2, *(s.seconds for s in storms)) if storms else 2
    decades = math.ceil(math.log10(max(10, *(s.peak for s in storms), 10)))

    lowest = max(0, decades - 3)

    def x(second: float) -> float:
        return left + width * second / last

    def y(count: float) -> float:
        part = (math.log10(max(10.0**lowest, count)) - lowest) / (decades - lowest)
        return top + height * (1 - part)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 24} {top + height + 56}"',
        'role="img" font-family="system-ui, sans-serif" font-size="13" fill="#222">',
        f"<title>{title}</title>",
        f'<rect width="{left + width + 24}" height="{top + height + 56}" fill="#fff"/>',
        f'<text x="{left}" y="24" font-size="17" font-weight="600">{title}</text>',
    ]
    for decade in range(lowest, decades + 1):
        at = y(10**decade)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10**decade:,}</text>')
    step = max(1, round(last / 8))
    parts += [
        f'<text x="{x(second):.1f}" y="{top + height + 20}" text-anchor="middle">{second}</text>'
        for second in range(0, last + 1, step)
    ]
    parts.append(
        f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle">'
        "seconds after the change</text>"
    )
    for i, storm in enumerate(storms):
        colour, dash = _COLOURS[i % 4], _DASHES[i % 4]
        points = " ".join(f"{x(t + 0.5):.1f},{y(n):.1f}" for t, n in enumerate(storm.per_second))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'stroke-linejoin="round" stroke-dasharray="{dash}"/>'
        )
        every = max(1, storm.seconds // 12)
        parts += [
            _mark(_SHAPES[i % 4], x(t + 0.5), y(storm.per_second[t]), colour)
            for t in range(0, storm.seconds, every)
        ]
        at_x, at_y = left, 50 + i * 21
        parts.append(
            f'<line x1="{at_x}" x2="{at_x + 34}" y1="{at_y - 4}" y2="{at_y - 4}" stroke="{colour}" '
            f'stroke-width="2.5" stroke-dasharray="{dash}"/>'
        )
        parts.append(_mark(_SHAPES[i % 4], at_x + 17, at_y - 4, colour))
        parts.append(
            f'<text x="{at_x + 42}" y="{at_y}">{storm.name}: peak {storm.peak:,}, '
            f"all back after {storm.seconds:,} s</text>"
        )
    parts.append("</svg>")
    return "\n".join(parts)


def _mark(shape: str, x: float, y: float, colour: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    corners = {
        "triangle": [(0, -5), (5, 4), (-5, 4)],
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0)],
    }[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'

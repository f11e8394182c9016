"""Pictures as SVG that need nothing else: curves, bars, heat maps. Colours come from the page's style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars", "curves", "heat_map", "legend", "named_bars"]

WIDTH, HEIGHT = 400, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 22, 24
LEVELS = 8
SERIES = 8  # the style has as many colours


def _frame(title: str, x_label: str, y_label: str, top: float, unit: str = "") -> list[str]:
    """The outer element with axes, grid and labels; y goes from 0 to `top`."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for i in range(5):
        value = top * i / 4
        y = _y(value, top)
        text = f"{value:.0%}" if unit == "%" else _short(value) + unit
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="tick" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(f'<text class="tick" x="2" y="11">{escape(y_label)}</text>')
    return parts


def _short(value: float) -> str:
    """A number in four letters or so."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _x(place: float) -> float:
    """Where 0 to 1 is, from left to right."""
    return round(LEFT + place * (WIDTH - LEFT - RIGHT), 1)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - (value / top if top else 0.0) * (HEIGHT - TOP - BOTTOM), 1)


def curves(
    series: Mapping[str, Sequence[float]],
    title: str,
    x_label: str,
    y_label: str,
    *,
    unit: str = "",
    even: bool = False,
    steps: bool = False,
) -> str:
    """Return lines over equal steps; `even` adds the diagonal of an even distribution."""
    top = max((max(values, default=0.0) for values in series.values()), default=0.0) or 1.0
    parts = _frame(title, x_label, y_label, top, unit)
    if even:
        parts.append(f'<path class="even" d="M{_x(0)} {_y(0, top)}L{_x(1)} {_y(top, top)}"/>')
    for i, (name, values) in enumerate(series.items()):
        last = max(1, len(values) - 1)
        points: list[str] = []
        for n, value in enumerate(values):
            if steps and points:
                points.append(f"H{_x(n / last)}V{_y(value, top)}")
            else:
                points.append(f"{'L' if points else 'M'}{_x(n / last)} {_y(value, top)}")
        parts.append(
            f'<path class="line s{i % SERIES}" d="{"".join(points)}"><title>{escape(name)}</title></path>'
        )
    return "".join([*parts, "</svg>"])


def bars(
    values: Sequence[float],
    title: str,
    x_label: str,
    y_label: str,
    *,
    mean: float | None = None,
    unit: str = "",
    names: Sequence[str] = (),
) -> str:
    """Return one bar for each value, with a line at the mean; `names` (HTML) title them.

    More than 160 values are put together by the
    greatest of each group, so that none is hidden."""
    shown = list(values)
    if len(shown) > 160:
        size = -(-len(shown) // 160)
        shown = [max(shown[i : i + size]) for i in range(0, len(shown), size)]
    top = max([*shown, mean or 0.0]) or 1.0
    parts = _frame(title, x_label, y_label, top, unit)
    width = (WIDTH - LEFT - RIGHT) / max(1, len(shown))
    for i, value in enumerate(shown):
        y = _y(value, top)
        over = " over" if mean and value > 1.5 * mean else ""
        parts.append(
            f'<rect class="bar{over}" x="{LEFT + i * width:.1f}" y="{y}" width="{max(1.0, width - 1):.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{names[i] if len(names) == len(shown) else i}: '
            f"{value:,.4g}</title></rect>"
        )
    if mean is not None:
        parts.append(f'<path class="mean" d="M{_x(0)} {_y(mean, top)}L{_x(1)} {_y(mean, top)}"/>')
    return "".join([*parts, "</svg>"])


def named_bars(values: Mapping[str, float], title: str, *, unit: str = "", colours: bool = False) -> str:
    """Return one horizontal bar for each name, with its figure; `colours` are those of `curves`."""
    height = 26 * len(values) + 8
    top = max(values.values(), default=0.0) or 1.0
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for i, (name, value) in enumerate(values.items()):
        colour = f" s{i % SERIES}" if colours else ""
        y, room = 4 + 26 * i, WIDTH - 130 - 60
        text = f"{value:.1%}" if unit == "%" else _short(value) + unit
        parts.append(f'<text class="name" x="124" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="bar{colour}" x="130" y="{y}" '
            f'width="{max(1.0, room * value / top):.1f}" height="20"/>'
        )
        parts.append(f'<text class="tick" x="{136 + room * value / top:.1f}" y="{y + 15}">{text}</text>')
    return "".join([*parts, "</svg>"])


def heat_map(cells: Sequence[Sequence[float]], title: str, x_label: str, y_label: str) -> str:
    """Return a map of rows (time, from left to right) by columns (shards, from bottom to top).

    The darkest cell is the greatest of all. More than 64 shards are put together by their sums.
    """
    columns = [list(row) for row in cells]
    if columns and len(columns[0]) > 64:
        size = -(-len(columns[0]) // 64)
        columns = [[sum(row[i : i + size]) for i in range(0, len(row), size)] for row in columns]
    most = max((max(row, default=0.0) for row in columns), default=0.0) or 1.0
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        _ground(),
    ]
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
    high = (HEIGHT - TOP - BOTTOM) / max(1, len(columns[0]) if columns else 1)
    levels: list[list[str]] = [[] for _ in range(LEVELS)]
    for i, row in enumerate(columns):
        for j, value in enumerate(row):
            if value > 0:
                level = min(LEVELS - 1, int(LEVELS * value / most))
                x, y = LEFT + i * wide, HEIGHT - BOTTOM - (j + 1) * high
                levels[level].append(f"M{x:.1f} {y:.1f}h{wide:.1f}v{high:.1f}h-{wide:.1f}z")
    for level, rectangles in enumerate(levels):
        if rectangles:
            opacity = (level + 1) / LEVELS
            parts.append(f'<path class="heat" fill-opacity="{opacity:.3f}" d="{"".join(rectangles)}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="tick" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(f'<text class="tick" x="2" y="11">{escape(y_label)}</text></svg>')
    return "".join(parts)


def _ground() -> str:
    size = f'width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    return f'<rect class="ground" x="{LEFT}" y="{TOP}" {size}/>'


def legend(names: Sequence[str]) -> str:
    """Return the names with the colours that `curves` gives them."""
    items = [f'<li><i class="s{i % SERIES}"></i>{escape(name)}</li>' for i, name in enumerate(names)]
    return f'<ul class="legend">{"".join(items)}</ul>'

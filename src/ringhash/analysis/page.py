"""Reports as one page of HTML that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

from html import escape
from string import Template
from typing import TYPE_CHECKING

from ringhash.analysis import svg

if TYPE_CHECKING:
    from ringhash.analysis.keys import KeyReport, Report

__all__ = ["keys_page", "page"]

_METHODS = {"shards": "fixed shards", "ring": "ring", "range": "ranges"}

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d5d9de; --paper: #fff; --card: #f6f8fa;
 --accent: #0072B2; --bad: #b3261e; --doubtful: #8a5a00; --good: #00694e;
 --s0: #0072B2; --s1: #D55E00; --s2: #007a59; --s3: #a3477c; --s4: #8a6d00; --s5: #2b8cbe; --s6: #57606a;
 --s7: #6f42c1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9ecef; --soft: #a3abb3; --line: #3a4149; --paper: #15181c;
 --card: #1d2126; --accent: #56B4E9; --bad: #ff8a80; --doubtful: #f0b849; --good: #4fd1a5;
 --s0: #56B4E9; --s1: #ff8f5a; --s2: #4fd1a5; --s3: #e79ac3; --s4: #f0d24c; --s5: #9ecae1; --s6: #a3abb3;
 --s7: #b794f4; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 24px 16px 48px; background: var(--paper); color: var(--ink);
 font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main { max-width: 1080px; margin: 0 auto; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 6px; } h3 { font-size: 14px; margin: 0 0 2px; }
p.sub { margin: 0 0 18px; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 0 0 16px; }
figure.wide { max-width: 640px; } .pictures { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
figure { margin: 8px 0 0; min-width: 0; } figcaption { font-weight: 600; font-size: 14px; }
svg { display: block; width: 100%; height: auto; }
ul.reasons { margin: 0 0 10px; padding: 0; list-style: none; } ul.reasons li { padding: 3px 0; }
b.bad { color: var(--bad); } b.doubtful { color: var(--doubtful); } b.good { color: var(--good); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px 5px 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.n, td.n { text-align: right; }
.grid { stroke: var(--line); } .tick, .name { fill: var(--soft); font-size: 11.5px; } .name { fill: var(--ink); }
.even { stroke: var(--soft); stroke-dasharray: 5 4; fill: none; } .line { fill: none; stroke-width: 2.5; }
.bar { fill: var(--accent); } .bar.over { fill: var(--bad); } .mean { stroke: var(--ink); stroke-dasharray: 5 4; }
.heat { fill: var(--accent); } .ground { fill: var(--paper); }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.line.s3 { stroke: var(--s3); } .line.s4 { stroke: var(--s4); } .line.s5 { stroke: var(--s5); }
.line.s6 { stroke: var(--s6); } .line.s7 { stroke: var(--s7); }
.bar.s0 { fill: var(--s0); } .bar.s1 { fill: var(--s1); } .bar.s2 { fill: var(--s2); } .bar.s3 { fill: var(--s3); }
.bar.s4 { fill: var(--s4); } .bar.s5 { fill: var(--s5); } .bar.s6 { fill: var(--s6); } .bar.s7 { fill: var(--s7); }
ul.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; padding: 0; margin: 4px 0 0; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.legend .s0 { background: var(--s0); } .legend .s1 { background: var(--s1); } .legend .s2 { background: var(--s2); }
.legend .s3 { background: var(--s3); } .legend .s4 { background: var(--s4); } .legend .s5 { background: var(--s5); }
.legend .s6 { background: var(--s6); } .legend .s7 { background: var(--s7); }
footer { margin-top: 24px; color: var(--soft); font-size: 13px; }
</style>
</head>
<body><main>
<h1>$title</h1>
<p class="sub">$subtitle</p>
$body
<footer>$footer</footer>
</main></body></html>
""")


def page(title: str, subtitle: str, body: str, footer: str) -> str:
    """Return a page; `body` is HTML, the others are text."""
    return _PAGE.substitute(title=escape(title), subtitle=escape(subtitle), body=body, footer=escape(footer))


def figure(caption: str, picture: str, *, wide: bool = False) -> str:
    """Return a picture with its caption."""
    return (
        f"<figure{' class=wide' if wide else ''}><figcaption>{escape(caption)}</figcaption>{picture}</figure>"
    )


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table; all columns but the first are numbers."""
    top = "".join(f"<th{_number(i)}>{escape(head)}</th>" for i, head in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(f'<td{_number(i)}>{escape(cell)}</td>' for i, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<div class=scroll><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _number(column: int) -> str:
    return " class=n" if column else ""


def keys_page(report: Report) -> str:
    """Return the page of an analysis of keys."""
    best = report.best()
    lorenz = {key.name: key.lorenz for key in best}
    first = (
        "<section><h2>How much of the rows the most frequent keys have</h2>"
        + figure(
            "Lorenz curve: the higher above the dashed line, the fewer keys have most of the rows",
            svg.curves(
                lorenz,
                "Lorenz curve of each candidate",
                "share of the keys",
                "share of the rows",
                unit="%",
                even=True,
            ),
            wide=True,
        )
        + svg.legend(list(lorenz))
        + "</section>"
    )
    sample = "" if report.sampled == 1 else f", a sample of {report.sampled:.2%}"
    return page(
        "Which key to shard by",
        f"{report.rows:,} rows{sample}, {report.shards} shards; the best candidate first",
        first + "".join(_key(report, key) for key in best),
        "Placements are those of the library itself. Ranges, time and heat maps are of a sample of the rows.",
    )


def _key(report: Report, key: KeyReport) -> str:
    reasons = "".join(
        f'<li><b class="{reason.verdict}">{reason.verdict}</b> {escape(reason.text)}</li>'
        for reason in key.reasons
    )
    tops = ", ".join(f"{top.value} ({top.share:.2%})" for top in key.top[:3])
    mean = key.rows / report.shards
    pictures = [
        figure(
            f"Rows by shard, {words}: the fullest has {key.peaks[method].rows:.2f} times the mean",
            svg.bars(key.loads[method], f"Rows by shard of {key.name}, {words}", "shard", "rows", mean=mean),
        )
        for method, words in _METHODS.items()
    ]
    if key.heat is not None:
        pictures += [
            figure(
                f"Where rows go over time, {_METHODS[method]}",
                svg.heat_map(cells, f"Heat map of {key.name}, {_METHODS[method]}", "time", "shard"),
            )
            for method, cells in key.heat.items()
        ]
    return (
        f"<section><h2>{escape(key.name)}</h2><ul class=reasons>{reasons}</ul>"
        f"<p class=sub>{key.distinct.value:,} values; the most frequent: {escape(tops) or 'none'}</p>"
        f"<div class=pictures>{''.join(pictures)}</div></section>"
    )

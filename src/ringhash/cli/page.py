"""A plan as one page of HTML that needs nothing else: no network, no file beside it."""

from __future__ import annotations

import math
from html import escape
from string import Template

from ringhash.cli.inspect import View

__all__ = ["html_of"]

# Okabe and Ito's colours, which people with colour blindness tell apart; the rest share a grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B5A900")
OTHERS = "#6b7280"

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d5d9de; --paper: #fff;
 --rest: #e4e7eb; --pick: #eef4fb; --warn: #fff6e0; --warn-edge: #E69F00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9ecef; --soft: #a3abb3; --line: #3a4149;
 --paper: #15181c; --rest: #2b3138; --pick: #1e2a38; --warn: #33290f; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 28px 24px 48px; background: var(--paper); color: var(--ink);
 font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 8px; }
p.sub { margin: 0 0 18px; color: var(--soft); }
.figures { display: flex; flex-wrap: wrap; gap: 12px 40px; margin: 0 0 8px; }
.figures div b { display: block; font-size: 26px; font-weight: 650; font-variant-numeric: tabular-nums; }
.figures div span { color: var(--soft); }
ul.warnings { list-style: none; margin: 18px 0 0; padding: 0; }
ul.warnings li { background: var(--warn); border-left: 4px solid var(--warn-edge); padding: 7px 12px;
 margin: 0 0 6px; border-radius: 3px; }
.rings { display: flex; flex-wrap: wrap; gap: 16px 32px; justify-content: center; margin-top: 20px; }
figure { margin: 0; flex: 1 1 380px; max-width: 520px; }
figcaption { text-align: center; font-weight: 600; margin-bottom: 2px; }
svg { display: block; width: 100%; height: auto; }
.rest { fill: var(--rest); } .hub { fill: var(--soft); font-size: 15px; } .big { fill: var(--ink); font-size: 30px; font-weight: 650; }
.tick { stroke: var(--soft); stroke-width: 1; } .where { fill: var(--soft); font-size: 12px; }
path.arc { stroke-width: .35; transition: opacity .12s; }
.picked path.arc { opacity: .09; } .picked path.arc.on { opacity: 1; }
.note { color: var(--soft); text-align: center; margin: 8px auto 0; max-width: 62em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px 6px 8px; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.n, td.n { text-align: right; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 2px 0; cursor: pointer; }
th button::after { content: "\\2195"; color: var(--soft); margin-left: 5px; font-weight: 400; }
th[aria-sort=ascending] button::after { content: "\\2191"; color: inherit; }
th[aria-sort=descending] button::after { content: "\\2193"; color: inherit; }
tbody tr:hover, tbody tr.on { background: var(--pick); } #pairs tbody tr { cursor: pointer; }
tbody tr:focus-visible, th button:focus-visible { outline: 2px solid #56B4E9; outline-offset: -2px; }
i.sw { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 8px; vertical-align: -2px; }
.bar { position: relative; width: 220px; height: 14px; background: linear-gradient(var(--line), var(--line)) 50% 0/1px 100% no-repeat; }
.bar i { position: absolute; top: 2px; bottom: 2px; border-radius: 2px; }
footer { margin-top: 36px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
</style>
</head>
<body><main>
<h1>$title</h1>
<p class="sub">$subtitle</p>
<div class="figures">$figures</div>
$warnings
<div class="rings" id="rings">
<figure><figcaption>Before</figcaption>$before</figure>
<figure><figcaption>After</figcaption>$after</figure>
</div>
<p class="note">Outer band: who owns what moves, before and after. Inner band: the pair of nodes between which
it moves, in the colours of the table. Grey stays where it is. Choose a row to see its ranges alone.</p>
<h2>Pairs</h2>
<div class="scroll"><table id="pairs"><thead><tr><th aria-sort="none"><button>From</button></th>
<th aria-sort="none"><button>To</button></th><th class="n" aria-sort="none"><button>Ranges</button></th>
<th class="n" aria-sort="descending"><button>Share of all keys</button></th></tr></thead><tbody>$pairs</tbody></table></div>
<h2>Nodes</h2>
<div class="scroll"><table id="nodes"><thead><tr><th aria-sort="ascending"><button>Node</button></th>
<th aria-sort="none"><button>Change</button></th><th class="n" aria-sort="none"><button>Gives</button></th>
<th class="n" aria-sort="none"><button>Takes</button></th><th class="n" aria-sort="none"><button>Net</button></th>
<th>Loses | gains</th></tr></thead><tbody>$nodes</tbody></table></div>
<footer>$footer</footer>
</main>
<script>
"use strict";
const compare = new Intl.Collator("en", {numeric: true}).compare;
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const number = head.classList.contains("n");
    const now = head.getAttribute("aria-sort");
    const down = now === "none" ? number : now === "ascending";
    for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[column].dataset.value;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => (number ? value(a) - value(b) : compare(value(a), value(b))) * (down ? -1 : 1));
    table.tBodies[0].append(...rows);
  }));
}
const rings = document.getElementById("rings");
const rows = [...document.querySelectorAll("#pairs tbody tr")];
function pick(row) {
  const again = row.classList.contains("on");
  for (const other of rows) { other.classList.remove("on"); other.setAttribute("aria-selected", "false"); }
  for (const arc of document.querySelectorAll("path.arc")) arc.classList.remove("on");
  rings.classList.toggle("picked", !again);
  if (again) return;
  row.classList.add("on");
  row.setAttribute("aria-selected", "true");
  for (const arc of document.querySelectorAll(`path.arc[data-pair="$${row.dataset.pair}"]`)) arc.classList.add("on");
}
for (const row of rows) {
  row.addEventListener("click", () => pick(row));
  row.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(row); }
  });
}
</script>
</body></html>
""")


def html_of(view: View) -> str:
    """Return the page: the ring before and after, what moves in colours, tables that sort."""
    plan, size, fraction = view.plan, view.plan.space.size, view.plan.fraction or 0.0
    by_share = sorted(view.nodes, key=lambda node: -(node.gives + node.takes))
    node_colour: dict[str | None, str] = {node.name: _colour(i) for i, node in enumerate(by_share)}
    # Where all goes to one node, or comes from one, a pair has the colour of the other node.
    sources, targets = ({pair[end] for pair in view.pairs} for end in (0, 1))
    pair_colour = {}
    for i, (s, t, _, _) in enumerate(view.pairs):
        other = s if len(targets) == 1 else t
        pair_colour[s, t] = node_colour[other] if 1 in (len(sources), len(targets)) and other else _colour(i)
    arcs = {
        (s, t): [(m.range.start / size, (m.range.end + 1) / size) for m in plan.between(s, t)]
        for s, t, _, _ in view.pairs
    }
    joins = [node.name for node in view.nodes if node.change == "joins"]
    leaves = [node.name for node in view.nodes if node.change == "leaves"]
    others = [f"{n.name}: {n.change}" for n in view.nodes if n.change and n.change not in ("joins", "leaves")]
    what = [f"{', '.join(joins)} joins"] if joins else []
    what += [f"{', '.join(leaves)} leaves"] if leaves else []
    subtitle = "; ".join(what + others) or "no node changes"
    largest = f"{view.largest.share or 0:.2%}" if view.largest else "-"
    figures = [
        (f"{fraction:.2%}", "of all keys move"),
        (f"{len(plan):,}", "ranges"),
        (f"{len(view.pairs):,}", "pairs of nodes"),
        (largest, "the largest piece"),
    ]
    return _PAGE.substitute(
        title="What this plan moves",
        subtitle=escape(subtitle if len(subtitle) < 300 else subtitle[:297] + "..."),
        figures="".join(f"<div><b>{a}</b><span>{b}</span></div>" for a, b in figures),
        warnings=_warnings(view),
        before=_ring(arcs, pair_colour, node_colour, 0, "Before", f"{fraction:.1%}", "will move"),
        after=_ring(arcs, pair_colour, node_colour, 1, "After", f"{fraction:.1%}", "has moved"),
        pairs="".join(_pair_row(i, pair, pair_colour[pair[0], pair[1]]) for i, pair in enumerate(view.pairs)),
        nodes=_node_rows(view, node_colour),
        footer=escape(
            f"Ring before {plan.before}, after {plan.after}"
            + ("" if plan.epoch is None else f", at epoch {plan.epoch}")
        ),
    )


def _colour(rank: int) -> str:
    return COLOURS[rank] if rank < len(COLOURS) else OTHERS


def _warnings(view: View) -> str:
    if not view.warnings:
        return ""
    return '<ul class="warnings">' + "".join(f"<li>{escape(w)}</li>" for w in view.warnings) + "</ul>"


def _ring(
    arcs: dict[tuple[str | None, str | None], list[tuple[float, float]]],
    pair_colour: dict[tuple[str | None, str | None], str],
    node_colour: dict[str | None, str],
    side: int,
    name: str,
    figure: str,
    words: str,
) -> str:
    parts = [
        f'<svg viewBox="-240 -236 480 472" role="img" aria-label="The ring {name.lower()}">',
        f'<path class="rest" d="{_band([(0.0, 1.0)], 158, 208)}"/>',
        f'<path class="rest" d="{_band([(0.0, 1.0)], 134, 150)}"/>',
    ]
    for number, (pair, spans) in enumerate(arcs.items()):
        label = escape(f"{pair[0] or 'nobody'} to {pair[1] or 'nobody'}")
        for colour, inner, outer in (
            (node_colour.get(pair[side], "none"), 158, 208),
            (pair_colour[pair], 134, 150),
        ):
            parts.append(
                f'<path class="arc" data-pair="{number}" fill="{colour}" stroke="{colour}" '
                f'd="{_band(spans, inner, outer)}"><title>{label}</title></path>'
            )
    for quarter, label in enumerate(("0", "1/4", "1/2", "3/4")):
        (x0, y0), (x1, y1), (x2, y2) = (_at(quarter / 4, r) for r in (208, 214, 226))
        parts.append(f'<line class="tick" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>')
        parts.append(f'<text class="where" x="{x2}" y="{y2 + 4}" text-anchor="middle">{label}</text>')
    parts.append(f'<text class="big" y="4" text-anchor="middle">{figure}</text>')
    parts.append(f'<text class="hub" y="28" text-anchor="middle">{words}</text></svg>')
    return "".join(parts)


def _band(spans: list[tuple[float, float]], inner: int, outer: int) -> str:
    """The outline of stretches of a ring between two radii; 0 and 1 are at the top, clockwise."""
    parts = []
    for start, end in spans:
        middle = (start + end) / 2  # an arc of a whole turn has no direction: two halves have
        for a, b in ((start, middle), (middle, end)) if end - start > 0.5 else ((start, end),):
            (x0, y0), (x1, y1) = _at(a, outer), _at(b, outer)
            (x2, y2), (x3, y3) = _at(b, inner), _at(a, inner)
            parts.append(
                f"M{x0} {y0}A{outer} {outer} 0 0 1 {x1} {y1}L{x2} {y2}A{inner} {inner} 0 0 0 {x3} {y3}Z"
            )
    return "".join(parts)


def _at(turn: float, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * turn
    return round(radius * math.sin(angle), 2), round(-radius * math.cos(angle), 2)


def _pair_row(number: int, pair: tuple[str | None, str | None, int, float], colour: str) -> str:
    source, target, ranges, share = pair
    return (
        f'<tr data-pair="{number}" tabindex="0" aria-selected="false">'
        f'<td data-value="{escape(source or "")}"><i class="sw" style="background:{colour}"></i>{escape(source or "-")}</td>'
        f'<td data-value="{escape(target or "")}">{escape(target or "-")}</td>'
        f'<td class="n" data-value="{ranges}">{ranges:,}</td><td class="n" data-value="{share!r}">{share:.3%}</td></tr>'
    )


def _node_rows(view: View, node_colour: dict[str | None, str]) -> str:
    most = max((abs(node.net) for node in view.nodes), default=0.0) or 1.0
    rows = []
    for node in view.nodes:
        width = 50 * abs(node.net) / most
        side = "left:50%" if node.net >= 0 else "right:50%"
        colour = "#0072B2" if node.net >= 0 else "#D55E00"
        rows.append(
            f'<tr><td data-value="{escape(node.name)}">'
            f'<i class="sw" style="background:{node_colour[node.name]}"></i>{escape(node.name)}</td>'
            f'<td data-value="{escape(node.change)}">{escape(node.change)}</td>'
            f'<td class="n" data-value="{node.gives!r}">{node.gives:.3%}</td>'
            f'<td class="n" data-value="{node.takes!r}">{node.takes:.3%}</td>'
            f'<td class="n" data-value="{node.net!r}">{node.net:+.3%}</td>'
            f'<td><div class="bar"><i style="{side};width:{width:.2f}%;background:{colour}"></i></div></td></tr>'
        )
    return "".join(rows)

"""docs/benchmarks.md, written from the measurements."""

# ruff: noqa: E501 - the prose stands as it will in the page

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import peers
from benchmarks.cases import KEYS, SIZES, VNODES
from benchmarks.measure import MOVED_KEYS, MOVED_NODES, PEER_SIZES, Results

NOTES = Path(__file__).parent / "notes.md"
_SIZES = [str(size) for size in SIZES]
_HEADS = [f"{size:,} x {VNODES}" for size in SIZES]


def write(results: Results, path: Path) -> None:
    """Write the page."""
    parts = [
        _head(results),
        _targets(results),
        _lookups(results),
        _changes(results),
        _vnodes(results),
        _growth(results),
        _peers(results),
    ]
    if NOTES.exists():
        parts.append(NOTES.read_text())
    blocks = "\n\n".join(part.strip() for part in parts).split("\n\n")
    path.write_text("\n\n".join(map(_wrapped, blocks)) + "\n", encoding="utf-8")


def _wrapped(block: str) -> str:
    """Break the lines of a paragraph or a list anew; tables, headings and pictures stay as they are."""
    if block.startswith(("|", "#", "!")):
        return block
    lines = block.replace("\n- ", "\n\n- ").split("\n\n")
    fill = partial(textwrap.fill, width=110, break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        fill(" ".join(line.split()), subsequent_indent="  " if line.startswith("- ") else "")
        for line in lines
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _number(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def _exact(value: float) -> str:
    """With enough digits to see on which side of its target a value is."""
    return f"{value:.3f}" if value < 10 else _number(value)


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{_number(ns / size)} {unit}"
    return f"{_number(ns)} ns"


def _size(count: float | None) -> str:
    if count is None:
        return "?"
    return f"{count / 1e6:.1f} MB" if count >= 5e4 else f"{count / 1e3:.0f} kB"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _head(results: Results) -> str:
    machine = results["machine"]
    loops = [row["loop_ns"] for row in results["lookups"].values()]
    yardsticks = [row["ns"]["yardstick"] for row in results["lookups"].values()]
    missing = "; ".join(f"{label} {why}" for label, why in machine["missing"].items())
    return f"""
# Benchmarks

Written by `make bench` on {machine["date"]}, and not by hand.

- Machine: {machine["cpu"]}, {machine["cores"]} cores, {machine["system"]}, {machine["python"]}.
- {_versions(machine["versions"])}.
- Peers: {_versions(machine["peers"])}. Not here: {missing + "; " if missing else ""}{peers.NOT_ON_PYPI} is not
  on PyPI.

**How it is measured.** All cases of a table run in one process and interleaved: every round runs each case once,
in an order shuffled anew, and what is given are medians over the rounds, for ratios medians of the rounds' ratios.
Keys are {KEYS:,} distinct `str` of 12 to 25 characters, made in the order in which they are visited, so that the
key itself is in cache, as a request's key is; a case that would need more than 10 ms is given fewer of them.
Time is that of the thread, without what other programs do in between. Single calls are made in a Python loop whose own cost, {min(loops):.1f} to {max(loops):.1f} ns a turn, is taken off
on both sides of a ratio. The **yardstick** is one call of `xxhash.xxh3_64_intdigest` with ready `bytes`:
{min(yardsticks):.0f} to {max(yardsticks):.0f} ns here. Nodes have {VNODES} virtual nodes unless the table says
otherwise. What a change moves is checked while it is measured: it must be exactly what an independent computation
says has to move.
"""


def _targets(results: Results) -> str:
    rows: list[list[str]] = []
    verdicts: list[tuple[str, str, float]] = []
    lookups, changes = results["lookups"], results["changes"]

    def row(what: str, goals: Sequence[float], measured: Sequence[float], *, least: bool = False) -> None:
        cells = []
        for head, goal, value in zip(_HEADS, goals, measured, strict=True):
            reached = value >= goal if least else value <= goal
            if not reached:
                verdicts.append((what, head, value / goal))
            cells.append(f"{_exact(value)} ({_number(goal)}) {'yes' if reached else '**no**'}")
        rows.append([what, *cells])

    def of(table: Results, *path: str) -> list[float]:
        found = []
        for size in _SIZES:
            value = table[size]
            for step in path:
                value = value[step]
            found.append(value)
        return found

    row("`ring.owner(str)` / yardstick", [1.0, 1.15, 1.6, 4], of(lookups, "yardsticks", "owner(str)"))
    row("`router.owner` / `ring.owner`", [1.05] * 4, of(lookups, "router_to_ring"))
    row(
        "`index_many(uint64)`: times as fast as `numpy.searchsorted`",
        [12, 12, 12, 8], of(lookups, "searchsorted_to_index_many"), least=True,
    )  # fmt: skip
    row(
        "`index_many(list of str)` a key / yardstick",
        [0.4, 0.4, 0.6, 1.5], of(lookups, "yardsticks", "index_many(list of str)"),
    )  # fmt: skip
    row("build / `numpy.sort` of as many uint64", [2, 0.6, 0.6, 0.6], of(changes, "build_to_sort"))
    row("add one node, with its plan, us", [40, 90, 300, 4000], of(changes, "us", "add one node"))
    row("remove one node, with its plan, us", [40, 90, 300, 4000], of(changes, "us", "remove one node"))
    row("memory, bytes a point", [14, 12, 12, 12], of(results["memory"]["bytes_a_point"]))
    row("`owners(key, 3)` / `owner(key)`", [2.5] * 4, of(lookups, "owners_to_owner"))
    single = [("import above numpy's, ms", 15.0, results["import_ms"])]
    arrow = lookups["100"]["yardsticks"].get("index_many(Arrow strings)")
    if arrow is not None:
        single.append(("`index_many` of Arrow strings at 100 nodes, a key / yardstick", 0.3, arrow))
    lines = []
    for what, goal, value in single:
        lines.append(f"- {what}: {_exact(value)} ({_number(goal)}) {'yes' if value <= goal else '**no**'}.")
        if value > goal:
            verdicts.append((what, "", value / goal))
    by_target: dict[str, list[str]] = {}
    for what, head, by in verdicts:
        by_target.setdefault(what, []).append(f"{by:.3f} times the target{f' at {head}' if head else ''}")
    missed = "\n".join(f"- {what}: {', '.join(found)}." for what, found in by_target.items())
    return f"""
## Targets

Measured, the target in brackets, and whether it was reached. Microseconds depend on the machine and on what else
it does, so the changes stand below as ratios to a copy of the ring's arrays too.

{_table(["", *_HEADS], rows)}

{chr(10).join(lines)}

{f"Not reached, and by how much:{chr(10)}{chr(10)}{missed}" if verdicts else "All are reached."}
"""


def _lookups(results: Results) -> str:
    lookups = results["lookups"]
    names = [name for name in lookups[_SIZES[0]]["ns"] if name != "yardstick"]
    single = [name for name in names if "many" not in name and name != "numpy.searchsorted"]
    many = [name for name in names if name not in single]
    return f"""
## Lookups

The time of one call, and how many yardsticks that is.

{_table(["one key", *_HEADS], _times(lookups, single))}

And a key of {KEYS:,} at once. `numpy.searchsorted` finds ready positions among the points: it hashes nothing and
does not yet know the node.

{_table(["many keys, each", *_HEADS], _times(lookups, many))}
"""


def _times(table: Results, names: Iterable[str]) -> list[list[str]]:
    """Of each case and size the time and the yardsticks."""
    return [
        [
            _coded(name),
            *(
                f"{_time(table[size]['ns'][name])} / {_number(table[size]['yardsticks'][name])}"
                for size in _SIZES
            ),
        ]
        for name in names
    ]


def _coded(name: str) -> str:
    return f"`{name}`" if "(" in name or "[" in name or name.startswith("numpy") else name


def _changes(results: Results) -> str:
    changes = results["changes"]
    names = ("build", "numpy.sort", "add one node", "remove one node", "copy of the arrays")
    rows = [[_coded(name), *(_time(changes[size]["us"][name] * 1e3) for size in _SIZES)] for name in names]
    ratios = (
        ("build / `numpy.sort`", "build_to_sort"),
        ("add one node / copy of the arrays", "add_to_copy"),
        ("remove one node / copy of the arrays", "remove_to_copy"),
    )
    rows += [[what, *(_number(changes[size][name]) for size in _SIZES)] for what, name in ratios]
    rows.append(
        ["bytes a point, all included", *(f"{results['memory']['bytes_a_point'][s]:.1f}" for s in _SIZES)]
    )
    return f"""
## Building and changing a ring

`router.add` and `router.remove`, each with its exact plan, at a router in service. A copy is numpy's, of points
and owners: what any new snapshot costs at the least. The sort is of as many random 64-bit integers as there are
points.

{_table(["", *_HEADS], rows)}
"""


def _vnodes(results: Results) -> str:
    rows = [
        [
            count, _time(row["ns"]), _number(row["yardsticks"]), _time(row["batch_ns"]),
            _time(row["build_us"] * 1e3), f"{row['peak']:.3f}", f"{row['expected_peak']:.3f}",
            f"{row['moved']:.3%}", f"{row['ideal']:.3%}", _size(row["memory"]), f"{row['bytes_a_point']:.1f}",
        ]
        for count, row in results["vnodes"].items()
    ]  # fmt: skip
    head = [
        "virtual nodes", "lookup", "yardsticks", "batch, a key", "build", "peak / mean", "expected",
        "moved by one more", "1 / (N + 1)", "memory", "bytes a point",
    ]  # fmt: skip
    return f"""
## Virtual nodes compared

100 nodes. More virtual nodes spread the keys more evenly; they cost memory, time to build and, once the ring no
longer fits into the cache, time to look up. The share that one more node takes is exact; it differs from
1 / (N + 1) because that node, too, owns more or less than its fair share.

{_table(head, rows)}

![Peak to mean by virtual nodes](benchmark-balance.svg)

The curves are the expected peak: for n equal nodes with v points each, the expected maximum of n independent
Gamma(v) variables, divided by v. `ringhash.recommended_vnodes(nodes, peak_to_mean)` turns it round;
`ringhash balance --compare` shows this table for your own nodes and keys.
"""


def _growth(results: Results) -> str:
    grid = results["grid"]
    rows = [
        [
            f"{int(nodes):,} x {count}", f"{row['points']:,}", f"{_time(row['owner_ns'])}",
            _number(row["owner_yardsticks"]), _time(row["batch_ns"]), _time(row["build_ms"] * 1e6),
            _number(row["build_to_sort"]), _time(row["add_ms"] * 1e6), _number(row["add_to_copy"]),
            _time(row["remove_ms"] * 1e6), _size(row["memory"]),
        ]
        for count, by_nodes in grid.items()
        for nodes, row in by_nodes.items()
        if int(nodes) in {10, 100, 1000, 10_000, 100_000}
    ]  # fmt: skip
    head = [
        "nodes x virtual nodes", "points", "lookup", "yardsticks", "batch, a key", "build", "/ sort",
        "add one", "/ copy", "remove one", "memory",
    ]  # fmt: skip
    small, large = grid[str(VNODES)]["10"], grid[str(VNODES)]["100000"]
    few, many = grid["400"]["1000"], grid["40"]["10000"]
    return f"""
## How cost grows

Up to 16 million points. A lookup does the same work whatever the number of points, so what grows is the time to
fetch memory: from 10 to 100,000 nodes x {VNODES}, {large["points"] // small["points"]:,} times the points, it takes
{large["owner_ns"] / small["owner_ns"]:.1f} times as long. A batch has several fetches in flight and grows less,
{large["batch_ns"] / small["batch_ns"]:.1f} times. Nodes cost a single lookup more than virtual nodes do, because it
also touches the name that it returns: {_number(few["owner_ns"])} ns for 1,000 x 400 and {_number(many["owner_ns"])} ns
for 10,000 x 40, which have as many points. Building grows with the points; so does a change, above a fixed part of
some tens of microseconds.

{_table(head, rows)}

![Cost against nodes and virtual nodes](benchmark-growth.svg)
"""


def _peers(results: Results) -> str:
    labels = list(results["machine"]["peers"])
    kinds = {kind.label: kind for kind in peers.ALL}
    many = [name for name in results["peer_lookups"][_SIZES[0]]["ns"] if name.endswith("batch")]
    single = ["ringhash", *labels]
    memory = results["memory"]["resident"]
    changes = results["peer_changes"]
    rows = [
        [
            "**ringhash**, with a plan",
            *(" / ".join(_time(results["changes"][str(size)]["us"][name] * 1e3) for size in PEER_SIZES)
              for name in ("build", "add one node", "remove one node")),
            _size(memory["ringhash"]),
        ]
    ]  # fmt: skip
    for label in labels:
        cells = [
            " / ".join(_time(changes[str(size)][f"{label}/{what}"] * 1e3) for size in PEER_SIZES)
            for what in ("build", "add", "remove")
        ]
        rows.append([f"{label}{' (rebuilt)' if kinds[label].replaced else ''}", *cells, _size(memory[label])])
    moved = [
        [
            f"**{label}**" if label == "ringhash" else label,
            f"{row['add']:.2%}", f"{row['add_needless']:.2%}", f"{row['remove']:.2%}", f"{row['remove_needless']:.2%}",
            f"{row['peak']:.2f}",
        ]
        for label, row in results["moved"].items()
    ]  # fmt: skip
    sizes = " / ".join(f"{size:,}" for size in PEER_SIZES)
    beyond = "\n".join(f"- **{label}** ({kinds[label].method}) {kinds[label].beyond}." for label in labels)
    even = results["moved"]["hash % N"]["peak"]
    return f"""
## Beside the peers

One lookup of a `str` key, and how many yardsticks that is. All run in the same rounds, so with
many nodes each drives the others out of the cache, as the other work of a program does.

{_table(["one key", *_HEADS], _times(results["peer_lookups"], single))}

![Lookup cost by nodes](benchmark-lookups.svg)

And a key of a list of {KEYS:,}, where there is a batch; ours is `owner_many`, which answers with names as theirs does.

{_table(["many keys, each", *_HEADS], _times(results["peer_lookups"], many))}

Building, and one node more or less, at {sizes} nodes; and by how much a fresh process grows for a ring of 1,000 nodes. A peer's change comes without a plan; one marked "rebuilt" has no
change but a new ring. Rendezvous and jump hashing keep no points, so they have nothing to build, and pay with
every lookup (rendezvous) or with who may leave (jump).

{_table(["", "build", "add one", "remove one", "memory"], rows)}

What moves when one node joins {MOVED_NODES}, and when one of {MOVED_NODES} leaves, of {MOVED_KEYS:,} keys; and how
much of that is needless, that is between two nodes that stay. Best is {1 / (MOVED_NODES + 1):.2%} and
{1 / MOVED_NODES:.2%}, none of it needless. The last column is the fullest node: with {MOVED_KEYS // MOVED_NODES}
keys a node even a perfectly even method shows about {even:.2f}.

{_table(["", "joins", "needless", "leaves", "needless", "peak / mean"], moved)}

![Share of keys moved](benchmark-moved.svg)

### What they do that we do not

{beyond}
"""

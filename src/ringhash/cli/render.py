"""Tables and bars. The only module that knows rich; `owner` and `--json` never load it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from ringhash.balance.sizing import VnodesRow, recommended_vnodes
from ringhash.cli.measure import Check, balance_of, fair_shares
from ringhash.placements.ring import Ring
from ringhash.plan import Plan
from ringhash.printable import printable
from ringhash.spans import Balance

__all__ = ["Bar", "Page"]

BAR_WIDTH = 24
LEAST_BAR_WIDTH = 8
LEAST_NAME_WIDTH = 8
GAP = 2  # between two columns
MOST_PAIRS = 20
RECOMMENDED_PEAK = 1.1
EIGHTHS = " ▏▎▍▌▋▊▉"

# A rule below the heading and between sections, and nothing else.
RULES = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
ASCII_RULES = Box("    \n    \n -- \n    \n -- \n -- \n    \n    \n", ascii=True)


class Page:
    """Where a command writes: in colour on a terminal, else plain text."""

    def __init__(self, *, stderr: bool = False) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a name may not fit the terminal's encoding
        self.console = Console(
            stderr=stderr,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            # Names are the user's: nothing in them is markup.
            markup=False,
            emoji=False,
            highlight=False,
        )
        if not self.console.is_terminal:
            self.console.width = 1_000_000  # nothing is cut off to fit a terminal that is not there
        self.unicode = self.console.encoding.lower().startswith("utf")

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Write a line; a part may be (text, style)."""
        self.console.print(Text.assemble(*map(_printable, parts)), soft_wrap=True)

    def plan(self, plan: Plan, ideal: float, check: Check | None = None, *, every_pair: bool = False) -> None:
        """Write the table of moves, and below it how much that is."""
        if len(plan):
            self._table(self._moves(plan, check, every_pair=every_pair))
            self.line()
        if plan.fraction is None:  # ranges of keys are counted, not measured
            self.line((f"{len(plan):,}", "bold"), " ranges move")
            return
        against = f": {plan.fraction / ideal:.2f} times the ideal of {ideal:.3%}" if ideal else ""
        self.line((f"{plan.fraction:.3%}", "bold"), f" of all keys move{against}")

    def check(self, check: Check, what: str = "keys") -> None:
        """Write how the real keys moved."""
        part = f", {check.as_predicted / check.total:.3%}" if check.total else ""
        width = len(f"{check.total:,}")
        self.line(f"{check.total:,} {what}, each asked before and after:")
        self.line((f"{check.as_predicted:>{width},}", "bold green"), f" moved as predicted{part}")
        self.line(
            (f"{check.otherwise:>{width},}", "bold red" if check.otherwise else "bold green"), " otherwise"
        )

    def balance(self, ring: Ring, counts: np.ndarray[Any, Any] | None = None, what: str = "keys") -> None:
        """Write what each node owns, as numbers and as bars, and below it how even that is."""
        self._table(self._shares(ring, counts, what))
        self.line()
        self._evenness("by arcs", ring.balance)
        counted = None if counts is None else balance_of(ring, counts)
        if counted is not None:
            self._evenness(f"by {what}", counted)

    def vnodes(self, rows: Sequence[VnodesRow], nodes: int) -> None:
        """Write what each number of virtual nodes gives and costs, and below it which one to take."""
        counted = any(row.key_peak_to_mean is not None for row in rows)
        columns = ["> vnodes", "> peak/mean", "> expected", *(["> by keys"] if counted else []), "> low/mean"]
        columns += ["> +1 node", "> of fair", "> memory", "> build", "> lookup"]
        table = self._columns(*columns)
        for row in rows:
            cells = [f"{row.vnodes:,}", f"{row.peak_to_mean:.3f}", f"{row.expected_peak:.3f}"]
            if row.key_peak_to_mean is not None:
                cells.append(f"{row.key_peak_to_mean:.3f}")
            cells += [f"{row.low_to_mean:.3f}", f"{row.moved:.3%}", f"{row.moved / row.fair_moved:.2f}"]
            cells += [f"{row.bytes / 1000:,.0f} kB", f"{row.build_ms:.2f} ms", f"{row.lookup_ns:.0f} ns"]
            table.add_row(*cells)
        while len(table.columns) > len(columns) - 2 and _width(table) > self.console.width:
            table.columns.pop()  # what is measured comes last, and is missed least
        self._table(table)
        self.line()
        try:
            enough = recommended_vnodes(nodes, RECOMMENDED_PEAK)
        except ValueError:
            return
        self.line(
            (f"{enough:,}", "bold"),
            f" virtual {'node keeps' if enough == 1 else 'nodes keep'} the fullest of {nodes:,} equal "
            f"{'node' if nodes == 1 else 'nodes'} at {RECOMMENDED_PEAK} times the mean, on average.",
        )

    def left_out(self, empty: int, what: str = "line") -> None:
        """Write how many lines or fields were no keys, if any."""
        if empty:
            self.line(f"{empty:,} empty {what}{'s' if empty > 1 else ''} left out")

    def rows(self, names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        """Write a table; a name with > before it is of numbers."""
        table = self._columns(*names)
        for row in rows:
            table.add_row(*[Text(printable(cell)) for cell in row])
        self._table(table)

    def _moves(self, plan: Plan, check: Check | None, *, every_pair: bool) -> Table:
        measured = plan.space.measured
        share_name = ["> share"] if measured else []
        table = self._columns("from", "to", "> ranges", *share_name, *(["> keys"] if check else []))
        counted = check.pairs if check else {}

        def add(source: str, target: str, ranges: int, share: float | None, keys: int) -> None:
            shares = [] if share is None else [f"{share:.3%}"]
            cells = [f"{ranges:,}", *shares, *([f"{keys:,}"] if check else [])]
            table.add_row(Text(printable(source)), Text(printable(target)), *cells)

        pairs = sorted(plan.pairs().items(), key=lambda item: -item[1].positions)
        shown = pairs if every_pair or len(pairs) <= MOST_PAIRS else pairs[: MOST_PAIRS - 1]
        for pair, moves in shown:
            add(pair[0] or "-", pair[1] or "-", len(moves), moves.fraction, counted.get(pair, 0))
        if rest := pairs[len(shown) :]:
            add(
                f"{len(rest):,} smaller pairs",
                "",
                sum(len(moves) for _, moves in rest),
                sum(moves.positions for _, moves in rest) / plan.space.size if measured else None,
                sum(counted.get(pair, 0) for pair, _ in rest),
            )
        table.add_section()
        add("all", "", len(plan), plan.fraction, sum(counted.values()))
        return table

    def _shares(self, ring: Ring, counts: np.ndarray[Any, Any] | None, what: str) -> Table:
        fair = fair_shares(ring)
        arcs = shares = ring.shares
        columns = ["node", "> weight", "> fair", "> by arcs"]
        if counts is not None:
            columns += [f"> {what}", "> part"]
            parts = counts / (counts.sum() or 1)
            shares = dict(zip(ring.names, parts.tolist(), strict=True))
        columns.append("> of fair")
        table, bars = self._columns(*columns), self._columns(*columns, "")
        for i, node in enumerate(ring.nodes):
            share, due = shares[node.name], fair[node.name]
            cells = [f"{node.weight:g}", f"{due:.2%}", f"{arcs[node.name]:.2%}"]
            if counts is not None:
                cells += [f"{counts[i]:,}", f"{share:.2%}"]
            table.add_row(Text(printable(node.name)), *cells, f"{share / due:.2f}")
        room = min(BAR_WIDTH, self.console.width - _width(table) - GAP - 1)
        if room < LEAST_BAR_WIDTH:
            return table
        top = max(*shares.values(), *fair.values())
        for node, *row in zip(ring.nodes, *(column.cells for column in table.columns), strict=True):
            bar = self._bar(shares[node.name] / top, fair[node.name] / top, room)
            bars.add_row(*row, bar)
        return bars

    def _bar(self, share: float, fair: float, width: int) -> Text:
        """Draw `share` and a mark at `fair`; both are parts of the whole width."""
        full, part = divmod(round(share * width * 8), 8)
        cells = "█" * full + EIGHTHS[part].strip() if self.unicode else "#" * (full + part // 4)
        mark = round(fair * width)
        return Text.assemble(
            (f"{cells[:mark]:<{mark}}", "cyan"), "│" if self.unicode else "|", (cells[mark:], "yellow")
        )

    def _evenness(self, what: str, balance: Balance) -> None:
        self.line(
            f"{what}: peak/mean ",
            (f"{balance.peak_to_mean:.3f}", "bold"),
            f", low/mean {balance.low_to_mean:.3f}, standard deviation {balance.stddev:.3f}",
        )

    def _columns(self, *names: str) -> Table:
        """Make an empty table; a name with > before it is of numbers."""
        rules = RULES if self.unicode else ASCII_RULES
        table = Table(
            box=rules,
            show_edge=False,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            header_style="dim",
            border_style="dim",
        )
        for name in names:
            justify: Any = "right" if name.startswith(">") else "left"
            table.add_column(name.removeprefix("> "), justify=justify, no_wrap=True)
        return table

    def _table(self, table: Table) -> None:
        if self.console.is_terminal:
            self._shorten_names(table)
            width = self.console.width
            # A terminal too narrow even so breaks the lines itself, and no figure is lost.
            self.console.width = max(width, _width(table))
            self.console.print(table)
            self.console.width = width
            return
        with self.console.capture() as capture:
            self.console.print(table)
        for row in capture.get().splitlines():
            self.line(row.rstrip())

    def _shorten_names(self, table: Table) -> None:
        """Make the longest names short enough for the table to fit; numbers stay whole."""
        names = [column for column in table.columns if column.justify == "left" and column.header]
        widths = [_column_width(column) for column in names]
        room = self.console.width - _width(table) + sum(widths)
        most = max(widths, default=0)
        while most > LEAST_NAME_WIDTH and sum(min(width, most) for width in widths) > room:
            most -= 1
        mark = "…" if self.unicode else ".."
        for column, width in zip(names, widths, strict=True):
            if width > most:
                column._cells = [Text(_shortened(str(cell), most, mark)) for cell in column.cells]


def _printable(part: str | tuple[str, str]) -> str | tuple[str, str]:
    return printable(part) if isinstance(part, str) else (printable(part[0]), part[1])


def _width(table: Table) -> int:
    """How wide a table is that has all the room it wants."""
    return sum(map(_column_width, table.columns)) + GAP * (len(table.columns) - 1)


def _column_width(column: Column) -> int:
    return max(cell_len(str(cell)) for cell in (column.header, *column.cells))


def _shortened(name: str, width: int, mark: str) -> str:
    """Leave out the middle of a name: what tells host names apart is at either end."""
    if cell_len(name) <= width:
        return name
    start, end, room = "", "", width - cell_len(mark)
    for i in range(len(name)):
        one = name[i // 2] if i % 2 == 0 else name[-1 - i // 2]
        room -= cell_len(one)
        if room < 0:
            break
        start, end = (start + one, end) if i % 2 == 0 else (start, one + end)
    return start + mark + end


class Bar:
    """A progress bar on stderr, by bytes where the size is known; call it with (bytes, keys)."""

    def __init__(self, name: str, size: int | None) -> None:
        columns: Iterable[Any] = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *([DownloadColumn(binary_units=True), TimeRemainingColumn()] if size else []),
            TextColumn("{task.fields[keys]:,} keys"),
        )
        self._progress = Progress(*columns, console=Page(stderr=True).console, transient=True)
        self._task = self._progress.add_task(printable(name), total=size, keys=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, keys: int) -> None:
        """Show that `done` bytes are read, with `keys` in them."""
        self._progress.update(self._task, completed=done, keys=keys)


class StepBar:
    """A progress bar on stderr for a known number of steps; call it with (done, all)."""

    def __init__(self, name: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
            console=Page(stderr=True).console,
            transient=True,
        )
        self._task = self._progress.add_task(printable(name), total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, steps: int) -> None:
        """Show that `done` of `steps` are done."""
        self._progress.update(self._task, completed=done, total=steps)

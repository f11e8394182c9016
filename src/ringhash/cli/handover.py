"""The commands that look at a plan, carry it out, and stop it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ringhash.cli.cluster import read_json
from ringhash.cli.errors import InputError, refusals
from ringhash.cli.inspect import View, look_at
from ringhash.handover import FileJournal, Handover, Piece, Status, read_status
from ringhash.placement import placement_from
from ringhash.plan import Plan
from ringhash.printable import printable
from ringhash.routing import Router

__all__ = ["abort", "apply", "resume", "show", "status", "storm"]

INCOMPLETE = 1
_MAGIC = b"SQLite format 3\0"

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_stop_option = click.option(
    "--stop",
    "stop_command",
    metavar="COMMAND",
    help="Makes the old owner of a piece stop. Status 0 confirms it.",
)
_start_option = click.option(
    "--start", "start_command", metavar="COMMAND", help="Makes the new owner start. Status 0 confirms it."
)
_where = click.argument("where", metavar="JOURNAL|URL")


@click.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--html", "html_file", metavar="FILE", help="Write one page of HTML that needs no network.")
@_json_option
def show(plan_file: str, html_file: str | None, as_json: bool) -> None:
    """Show who gains and who loses by a plan.

    \b
      ringhash plan --nodes gw-1,gw-2,gw-3 --add gw-4 -o plan.json
      ringhash show plan.json --html plan.html
    """
    plan = _plan(plan_file)
    if plan.fraction is None:  # a placement without shares of keys
        if html_file or as_json:
            raise InputError(
                f"{plan_file}: this plan has no shares of keys; show it without --html and --json"
            )
        click.echo(str(plan))
        return
    view = look_at(plan)
    if html_file:
        from ringhash.cli.page import html_of  # noqa: PLC0415

        Path(html_file).write_text(html_of(view), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(_view_record(view), indent=2))
        return
    from ringhash.cli.render import Page  # noqa: PLC0415

    page = Page()
    if view.nodes:
        rows = [
            (
                node.name,
                node.change,
                f"{node.gives:.3%}",
                f"{node.takes:.3%}",
                f"{node.net:+.3%}",
            )
            for node in view.nodes
        ]
        page.rows(("node", "change", "> gives", "> takes", "> net"), rows)
        page.line()
    page.line((f"{plan.fraction:.3%}", "bold"), f" of all keys move, in {len(view.plan):,} ranges")
    if view.largest:
        piece = view.largest
        pair = f"{piece.source or '-'} to {piece.target or '-'}"
        page.line(f"The largest piece is {pair}: {piece.share or 0:.3%} of all keys")
    for warning in view.warnings:
        page.line(("! ", "bold yellow"), warning)


@click.command()
@click.argument("plan_file", metavar="PLAN")
@click.option(
    "--router",
    "where",
    required=True,
    metavar="FILE|URL|JOURNAL",
    help="A JSON file of a router or ring, the URL of a router that takes plans, or this plan's journal.",
)
@_stop_option
@_start_option
@click.option("--journal", "journal_file", metavar="FILE", help="Where to write every step; a new file.")
@click.option("--by", type=click.Choice(["pair", "range"]), default="pair", help="What is one piece.")
@click.option("--max-share", type=float, metavar="X", help="Largest part of all keys in a piece.")
@click.option("--pause", type=float, default=0.2, metavar="S", help="Seconds between pieces.  [0.2]")
@click.option("--timeout", type=float, default=60.0, metavar="S", help="Seconds a step may take.  [60]")
@click.option(
    "--on-timeout",
    type=click.Choice(["keep", "abort"]),
    default="keep",
    help="Go on with the other pieces, or stop.  [keep]",
)
@click.option("--parallel", type=int, default=1, metavar="N", help="Pieces at a time.  [1]")
def apply(
    plan_file: str,
    where: str,
    stop_command: str | None,
    start_command: str | None,
    journal_file: str | None,
    **options: Any,
) -> None:
    """Carry a plan out.

    On a file the members change at once; with --stop, --start and --journal piece by piece, and the
    file follows. The commands get the piece as JSON on stdin, and RINGHASH_PIECE, _SOURCE, _TARGET,
    _TOKEN, _REPEAT and _BACK in their environment. Interrupt once to finish the piece in hand and stop.

    \b
      ringhash apply plan.json --router router.json
      ringhash apply plan.json --router router.json --journal j.sqlite --stop ./stop --start ./start
      ringhash apply plan.json --router http://127.0.0.1:8080
    """
    made = _plan(plan_file)
    if _is_url(where):
        _print_reply(_ask(where, "plan", made.to_dict()))
        return
    if _is_journal(where):
        with refusals(where), FileJournal(where, read_only=True) as journal:
            same = Plan.from_dict(journal.meta["plan"]) == made
        if not same:
            raise InputError(f"{where}: is the journal of another plan")
        _resume(where, stop_command, start_command, None, retry=False, reverse=False)
        return
    router = _router(where)
    if stop_command is None and start_command is None:
        if journal_file is not None:
            raise click.UsageError("--journal is for a handover: give --stop and --start too")
        with refusals(plan_file):
            router.apply(made)
        _write_router(where, router.to_dict())
        moved = f"{len(made)} ranges" if made.fraction is None else f"{made.fraction:.3%} of all keys"
        click.echo(f"{moved} moved; the router is at epoch {router.epoch}")
        return
    if stop_command is None or start_command is None or journal_file is None:
        raise click.UsageError("a handover needs --stop, --start and --journal")
    follow = _Follow(where)
    with refusals(plan_file):
        handover = Handover(
            router,
            made,
            stop=_shell(stop_command),
            start=_shell(start_command),
            journal=journal_file,
            progress=follow.progress,
            on_epoch=follow.on_epoch,
            **options,
        )
    _carry_out(handover, follow)


@click.command()
@_where
@_json_option
def status(where: str, as_json: bool) -> None:
    """Say how far a handover is.

    The exit status is 0 when it is over, and 1 when not."""
    if _is_url(where):
        _print_reply(_ask(where, "status"))
        return
    with refusals():
        found = read_status(where)
    if as_json:
        click.echo(json.dumps(_status_record(found), indent=2))
    else:
        _print_status(found)
    if not found.over:
        raise click.exceptions.Exit(INCOMPLETE)


@click.command()
@_where
def abort(where: str) -> None:
    """Stop a handover after the piece in hand.

    What is done stays done; `resume` goes on, or hands it back.
    """
    if _is_url(where):
        _print_reply(_ask(where, "abort", {}))
        return
    with refusals(), FileJournal(where) as journal:
        journal.request("abort")
    click.echo("asked to stop after the piece in hand")


@click.command()
@_where
@_stop_option
@_start_option
@click.option("--router", "router_file", metavar="FILE", help="A JSON file of the router, to follow.")
@click.option("--retry", is_flag=True, help="Go on after an abort, and try again what was kept or failed.")
@click.option("--reverse", is_flag=True, help="Hand back what is done.")
def resume(
    where: str,
    stop_command: str | None,
    start_command: str | None,
    router_file: str | None,
    retry: bool,
    reverse: bool,
) -> None:
    """Resume a handover that has stopped."""
    if _is_url(where):
        _print_reply(_ask(where, "resume", {"retry": retry, "reverse": reverse}))
        return
    _resume(where, stop_command, start_command, router_file, retry=retry, reverse=reverse)


@click.command()
@click.option("--nodes", type=int, default=5, metavar="N", help="Nodes before.  [5]")
@click.option("--add", type=int, default=1, metavar="N", help="Nodes that come in; negative: go out.  [1]")
@click.option("--clients", type=int, default=100_000, metavar="N", help="Connected clients.  [100000]")
@click.option(
    "--accept", type=int, default=2000, metavar="N", help="Connections a node accepts a second.  [2000]"
)
@click.option("--batch", type=int, metavar="N", help="Connections closed in one wave.")
@click.option("--every", type=float, default=1.0, metavar="S", help="Seconds between waves.  [1]")
@click.option("--svg", "svg_file", metavar="FILE", help="Draw it.")
@_json_option
def storm(svg_file: str | None, as_json: bool, **options: Any) -> None:
    """Simulate the reconnects after a change.

    Modulo against ring, at once against drained in waves.

    \b
      ringhash storm --nodes 5 --add 1 --clients 100000 --svg storm.svg
    """
    from ringhash.reconnect.storm import as_svg, as_table, simulate  # noqa: PLC0415

    with refusals():
        storms = simulate(**options)
    if svg_file:
        Path(svg_file).write_text(as_svg(storms) + "\n", encoding="utf-8")
    if as_json:
        rows = [{**s._asdict(), "peak": s.peak, "seconds": s.seconds} for s in storms]
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo(as_table(storms))


# --- where things come from ---


def _plan(path: str) -> Plan:
    data = read_json(path)
    with refusals(path):
        return Plan.from_dict(data)


def _router(path: str) -> Router:
    data = read_json(path)
    with refusals(path):
        if isinstance(data, dict) and data.get("kind") == "router":
            return Router.from_dict(data)
        return Router(placement_from(data))


def _write_router(path: str, document: dict[str, object]) -> None:
    # Beside it and then in its place: a reader sees the old file or the new one.
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps(document) + "\n", encoding="utf-8")
    beside.replace(path)


def _is_url(where: str) -> bool:
    return where.startswith(("http://", "https://"))


def _is_journal(where: str) -> bool:
    with Path(where).open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _ask(url: str, what: str, body: dict[str, Any] | None = None) -> Any:
    import urllib.error  # noqa: PLC0415 - slow to load, and only one command in ten needs it
    import urllib.request  # noqa: PLC0415

    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - http or https: see _is_url
        f"{url.rstrip('/')}/{what}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return json.load(reply)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace").strip()
        raise InputError(f"{url}: {text or error.reason}") from None
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise InputError(f"{url}: {getattr(error, 'reason', error)}") from None


def _print_reply(reply: Any) -> None:
    click.echo(reply["text"] if isinstance(reply, dict) and "text" in reply else json.dumps(reply, indent=2))


# --- carrying out ---


def _shell(command: str) -> Callable[[Piece], bool]:
    def call(piece: Piece) -> bool:
        names = {
            "PIECE": piece.number,
            "SOURCE": piece.source or "",
            "TARGET": piece.target or "",
            "TOKEN": piece.token,
            "REPEAT": int(piece.repeat),
            "BACK": int(piece.back),
        }
        done = subprocess.run(  # noqa: S602 - it is the user's own command line
            command,
            shell=True,
            input=json.dumps(piece.to_dict()).encode(),
            env={**os.environ, **{f"RINGHASH_{name}": str(value) for name, value in names.items()}},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command!r} ended with status {done.returncode}")
        return True

    return call


class _Follow:
    """Writes the router to its file at every epoch, and shows a bar on a terminal."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.bar: Callable[[float, str], None] | None = None

    def on_epoch(self, document: dict[str, object]) -> None:
        if self.path is not None:
            _write_router(self.path, document)

    def progress(self, status: Status) -> None:
        if self.bar is not None:
            self.bar(status.fraction, ", ".join(f"{n} {state}" for state, n in sorted(status.counts.items())))


def _resume(
    where: str,
    stop_command: str | None,
    start_command: str | None,
    router_file: str | None,
    *,
    retry: bool,
    reverse: bool,
) -> None:
    if stop_command is None or start_command is None:
        raise click.UsageError("resume needs --stop and --start")
    follow = _Follow(router_file)
    with refusals():
        with FileJournal(where) as journal:  # behind what was asked for before
            for what in ["reverse"] * reverse + ["retry"] * retry:
                journal.request(what)
        handover = Handover.resume(
            where,
            stop=_shell(stop_command),
            start=_shell(start_command),
            progress=follow.progress,
            on_epoch=follow.on_epoch,
        )
    _carry_out(handover, follow)


def _carry_out(handover: Handover, follow: _Follow) -> None:
    with _interrupts(handover), _bar() as bar, refusals():
        follow.bar = bar
        found = handover.run()
        follow.on_epoch(handover.router.to_dict())  # once more: here an error of writing it is shown
    _print_status(found)
    if not found.over:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _interrupts(handover: Handover) -> Iterator[None]:
    """The first interrupt stops after the piece in hand, the second one at once."""

    def first(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        click.echo("stopping after the piece in hand; once more to stop at once", err=True)
        handover.abort()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _bar() -> Iterator[Callable[[float, str], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda part, text: progress.update(task, completed=part, description=text)


# --- what is printed ---


def _print_status(found: Status) -> None:
    click.echo(str(found))
    for it in found.pieces:
        if it.note or it.stuck:
            piece = f"piece {it.piece.number}, {it.piece.source or '-'} to {it.piece.target or '-'}"
            stuck = "; its owner may have stopped" if it.stuck else ""
            click.echo(printable(f"{piece}: {it.state} with {it.owner or 'nobody'}{stuck}: {it.note}"))


def _status_record(found: Status) -> dict[str, object]:
    return {
        "mode": found.mode.value,
        "epoch": found.epoch,
        "fraction": found.fraction,
        "counts": found.counts,
        "pieces": [
            {
                "number": it.piece.number,
                "source": it.piece.source,
                "target": it.piece.target,
                "share": it.piece.share,
                "state": it.state.value,
                "owner": it.owner,
                "stuck": it.stuck,
                "note": it.note,
            }
            for it in found.pieces
        ],
    }


def _view_record(view: View) -> dict[str, object]:
    largest = view.largest
    return {
        "fraction": view.plan.fraction,
        "ranges": len(view.plan),
        "nodes": [{**node._asdict(), "net": node.net} for node in view.nodes],
        "pairs": [{"source": s, "target": t, "ranges": n, "share": x} for s, t, n, x in view.pairs],
        "largest": largest and {"source": largest.source, "target": largest.target, "share": largest.share},
        "warnings": list(view.warnings),
    }

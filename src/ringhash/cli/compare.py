"""`ringhash compare`: replay keys over time with several ways to place them."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ringhash.cli.errors import InputError, refusals

__all__ = ["compare"]

USUAL = ("modulo", "ring:160", "fixed:480", "dynamic", "per-node:16", "direct:100", "bounded:1.25")


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--key", required=True, metavar="COLUMN[,COLUMN]...", help="The column of the key.")
@click.option("--at", required=True, metavar="COLUMN", help="The column of times: ISO texts, or seconds.")
@click.option("--weight", metavar="COLUMN", help="What a row weighs, such as its bytes.")
@click.option(
    "--nodes",
    default="4,5@0.5",
    metavar="N[,N@WHEN]...",
    help="How many nodes, and how many from a share of the time on.  [default: 4,5@0.5]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[:NUMBER]",
    help="modulo, ring:VNODES, fixed:SHARDS, dynamic:ROWS, per-node:TOKENS, direct:KEYS, bounded:FACTOR; "
    "once for each.  [default: all seven]",
)
@click.option("--hours", type=float, default=1.0, metavar="H", help="How long a step is.  [default: 1]")
@click.option("--tolerance", type=float, default=1.5, metavar="X", help="How full a node may be by the mean.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", help="Write a page with pictures to this file, too.")
def compare(
    file: str,
    key: str,
    at: str,
    weight: str | None,
    nodes: str,
    policies: tuple[str, ...],
    hours: float,
    tolerance: float,
    as_json: bool,
    html: str | None,
) -> None:
    """Replay keys over time with several placements.

    FILE is CSV with a heading (also .gz) or Parquet. Each policy drives the live class of its method.

    \b
      ringhash compare orders.csv --key customer_id --at created_at --nodes 4,6@0.5,5@0.8
      ringhash compare orders.csv --key customer_id --at created_at --policy modulo --policy fixed:512
    """
    from ringhash.analysis.compare import Trace  # noqa: PLC0415 - it takes a while to load
    from ringhash.analysis.compare import compare as replay  # noqa: PLC0415

    with refusals(), ExitStack() as stack:
        chosen = [_policy(text) for text in policies or USUAL]
        counts = _nodes(nodes)
        try:
            trace = Trace.from_rows(file, tuple(key.split(",")), at, weight=weight, hours=hours)
        except ImportError as error:
            raise InputError(str(error)) from None
        progress = None
        if sys.stderr.isatty():
            from ringhash.cli.render import StepBar  # noqa: PLC0415

            progress = stack.enter_context(StepBar("comparing"))
        found = replay(trace, counts, chosen, tolerance=tolerance, progress=progress)
    if html is not None:
        Path(html).write_text(found.html(), encoding="utf-8")
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else str(found))


def _policy(text: str) -> Any:
    from ringhash.analysis.compare import (  # noqa: PLC0415
        Bounded,
        Direct,
        Dynamic,
        Fixed,
        Modulo,
        PerNode,
        RingPolicy,
    )

    kinds: dict[str, tuple[Any, type | None]] = {
        "modulo": (Modulo, None),
        "ring": (RingPolicy, int),
        "fixed": (Fixed, int),
        "dynamic": (Dynamic, float),
        "per-node": (PerNode, int),
        "direct": (Direct, int),
        "bounded": (Bounded, float),
    }
    name, colon, number = text.partition(":")
    if name not in kinds:
        raise InputError(f"--policy {text}: there is no policy {name!r}; the policies are {', '.join(kinds)}")
    kind, read = kinds[name]
    if not colon:
        return kind()
    if read is None:
        raise InputError(f"--policy {text}: {name} takes no number")
    try:
        return kind(read(number))
    except ValueError as error:
        raise InputError(f"--policy {text}: {error}") from None


def _nodes(text: str) -> list[tuple[float, int]]:
    found = []
    for part in text.split(","):
        count, _, when = part.partition("@")
        try:
            found.append((float(when or 0), int(count)))
        except ValueError:
            raise InputError(f"--nodes takes numbers as in 4,6@0.5,5@0.8, not {text!r}") from None
    return found

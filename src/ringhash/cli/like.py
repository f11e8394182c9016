"""`ringhash plan --like`: what a change of another program's configuration moves."""

from __future__ import annotations

import json
from contextlib import closing

import click

from ringhash.cli.cluster import write_plan
from ringhash.cli.errors import InputError, refusals
from ringhash.cli.keys import KeyFile
from ringhash.cli.progress import watched

__all__ = ["plan_like"]


def plan_like(
    like: str,
    before: str,
    after: str,
    block: str | None,
    source: KeyFile | None,
    *,
    output: str | None,
    every_pair: bool,
    as_json: bool,
) -> None:
    """Read both files, and print what moves from one to the other."""
    try:
        from ringhash.interop.config import read_config  # noqa: PLC0415
        from ringhash.interop.report import KeyMoves, add_keys, compare  # noqa: PLC0415

        with refusals():
            report = compare(read_config(before, like, block), read_config(after, like, block))
    except ImportError as error:
        raise InputError(str(error)) from None
    keys = None
    if source:
        keys = KeyMoves()
        with closing(watched(source)) as blocks, refusals():
            for some in blocks:
                add_keys(keys, report.before, report.after, some)
    report = report.with_keys(keys)
    if output:
        if report.plan is None:
            raise InputError("the two hash keys in different ways, so there is no plan to write")
        write_plan(output, report.plan)
        if output == "-":
            return
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    from ringhash.cli.render import Page  # noqa: PLC0415

    page = Page()
    if report.plan is None:
        page.line("the two hash keys in different ways, so there is no plan of ranges")
    else:
        page.plan(report.plan, report.least, every_pair=every_pair)
        page.line(
            (f"{report.plan.needless:.3%}", "bold"), " move needlessly, between servers that did not change"
        )
    page.line(f"{report.ours.fraction:.3%} would move in a ring of ringhash")
    if keys is not None:
        page.line()
        needless = keys.between(report.unchanged)
        page.line(f"{keys.total:,} keys: {keys.moved:,} move, {needless:,} of them needlessly")
        if keys.unplaced:
            page.line(f"{keys.unplaced:,} keys are not placed by their hash")
    for advice in report.advice:
        page.line()
        page.line("advice: ", advice)
    page.left_out(source.empty if source else 0)

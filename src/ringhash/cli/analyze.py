"""`ringhash analyze`: look at data and say which column to shard by."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ringhash.cli.errors import InputError, refusals

__all__ = ["analyze"]


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="COLUMN[,COLUMN]...",
    help="A candidate; several columns make a composite. Give it once for each candidate.",
)
@click.option("--shards", type=int, default=64, metavar="N", help="How many shards.  [default: 64]")
@click.option("--weight", metavar="COLUMN", help="What a row weighs, such as its bytes.")
@click.option("--order", metavar="COLUMN", help="When a row came; without it nothing is said of time.")
@click.option(
    "--identity", metavar="COLUMN", help="Which thing a row is about, to see how often its key changes."
)
@click.option("--capacity", type=float, metavar="ROWS", help="How many rows a shard may have.")
@click.option(
    "--db", metavar="PATH|ADDRESS", help="In place of a file: SQLite, or postgresql://...; with --table."
)
@click.option("--table", metavar="NAME", help="With --db: the table.")
@click.option(
    "--sample", type=float, metavar="SHARE", help="With --db: read this share of the rows, as in 0.01."
)
@click.option(
    "--queries",
    "log",
    metavar="FILE",
    help="A log of PostgreSQL or MySQL, or SQL: how statements fit each key.",
)
@click.option(
    "--dialect", metavar="NAME", help="With --queries: what sqlglot reads, as in postgres or mysql."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", help="Write a page with pictures to this file, too.")
def analyze(
    file: str | None,
    keys: tuple[str, ...],
    db: str | None,
    table: str | None,
    sample: float | None,
    log: str | None,
    dialect: str | None,
    as_json: bool,
    html: str | None,
    **options: Any,
) -> None:
    """Say which column to shard by.

    FILE is CSV with a heading (also .gz) or Parquet. It is read once, in bounded memory.

    \b
      ringhash analyze orders.csv --key customer_id --key region,customer_id --order created_at
      ringhash analyze orders.csv --key customer_id --queries postgresql.log --html keys.html
      ringhash analyze --db postgresql://db.example/app --table orders --sample 0.01 --key customer_id
    """
    from ringhash.analysis import Queries, Table  # noqa: PLC0415 - it takes a while to load
    from ringhash.analysis import analyze as look  # noqa: PLC0415

    if (file is None) == (db is None):
        raise click.UsageError("give a FILE, or --db with --table")
    if (db is None) != (table is None) or (db is None and sample is not None):
        raise click.UsageError("--table and --sample go with --db")
    candidates = [tuple(key.split(",")) for key in keys]
    with refusals(), ExitStack() as stack:
        rows: Any = file
        if db is not None and table is not None:
            rows = Table(db, table, 1.0 if sample is None else sample)
        progress = None
        if sys.stderr.isatty():
            from ringhash.cli.render import Bar  # noqa: PLC0415

            bar = stack.enter_context(Bar(file or table or "", None))
            progress = lambda count: bar(0, count)  # noqa: E731
        try:
            report = look(rows, candidates, progress=progress, **options)
            if log is not None:
                report = report.with_queries(Queries.from_log(log, dialect=dialect))
        except ImportError as error:
            raise InputError(str(error)) from None
    if html is not None:
        Path(html).write_text(report.html(), encoding="utf-8")
    click.echo(json.dumps(report.to_dict(), indent=1) if as_json else str(report))

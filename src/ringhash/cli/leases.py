"""`ringhash leases`: who holds what, and how it changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import click

from ringhash.cli.errors import InputError
from ringhash.errors import DatabaseAddressError
from ringhash.leases.status import Status, read_status

__all__ = ["leases"]


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for decorator in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--name", default="default", metavar="NAME", help="The lease table.  [default: default]"
        ),
        click.option(
            "--db", required=True, metavar="PATH|ADDRESS", help="A SQLite file, or postgresql://..."
        ),
    ):
        command = decorator(command)
    return command


@click.group()
def leases() -> None:
    """See the leases of a fixed number of shards."""


@leases.command()
@_options
def status(db: str, name: str, as_json: bool) -> None:
    """Say who holds which shards, how fresh the heartbeats are and how even it is.

    The exit status is 1 while a shard is free or a worker is dead.

    \b
      ringhash leases status --db leases.db
      ringhash leases status --db postgresql://db.example/app --name jobs --json
    """
    found = _read(db, name)
    _print(found, as_json=as_json)
    if found.free or not all(worker.alive for worker in found.workers):
        raise click.exceptions.Exit(1)


@leases.command()
@_options
@click.option("--interval", type=click.FloatRange(min=0.05), default=2.0, help="Seconds.  [default: 2]")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after so many looks.")
def watch(db: str, name: str, as_json: bool, interval: float, count: int | None) -> None:
    """Show the status again and again, and how many shards were claimed in between.

    With --json, a line for each look.
    """
    before: Status | None = None
    looks = 0
    while count is None or looks < count:
        if looks:
            time.sleep(interval)
        looks += 1
        found = _read(db, name)
        claimed = 0 if before is None else found.claims - before.claims
        if as_json:
            click.echo(json.dumps({"claimed": claimed, **found.to_dict()}))
        else:
            if sys.stdout.isatty():
                click.clear()
            click.echo(f"{found}\n{claimed} claimed since the last look\n")
        sys.stdout.flush()
        before = found


def _print(found: Status, *, as_json: bool) -> None:
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


def _read(db: str, name: str) -> Status:
    scheme, address, _ = db.partition("://")
    ours = scheme in ("postgresql", "postgres")
    if address and not ours:
        raise InputError(f"--db takes only SQLite paths and postgresql://, not {scheme}://")
    try:
        return read_status(db, name)
    except Exception as error:
        expected = isinstance(error, (ImportError, LookupError, DatabaseAddressError))
        if expected or type(error).__module__.startswith(("psycopg", "sqlite3")):
            # An address may hold a password, so only a path is told.
            place = "" if ours or not type(error).__module__.startswith("sqlite3") else f"{db}: "
            raise InputError(f"{place}{error.args[0] if error.args else error}") from None
        raise

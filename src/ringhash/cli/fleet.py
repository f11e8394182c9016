"""`ringhash fleet`: what the databases of a fleet believe, and the rows of one key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import click

from ringhash.cli.errors import InputError
from ringhash.databases import Transaction
from ringhash.errors import RinghashError
from ringhash.fleet import Fleet, Table, check_fleet, read_fence
from ringhash.fleet.config import FleetConfig, read_config
from ringhash.fleet.fence import FenceRow, join_rows
from ringhash.fleet.rows import Column, columns_of, delete_rows, key_condition, read_rows
from ringhash.ordered import OrderedSpace, plain_key
from ringhash.printable import printable

__all__ = ["fleet"]


def _config(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--config", "path", required=True, metavar="FILE", type=click.Path(exists=True, dir_okay=False),
        help="The fleet, as TOML: see docs/fleet.md.",
    )(command)  # fmt: skip


def _integer(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--int", "integer", is_flag=True, help="The key is an integer, and not text.")(
        command
    )


@contextmanager
def _opened(path: str) -> Iterator[tuple[Fleet, FleetConfig]]:
    """A fleet from its file; what is wrong with it, or with a database, is one line."""
    try:
        config = read_config(path)
        with Fleet(config.databases, config.router) as opened:
            yield opened, config
    except (RinghashError, ValueError, LookupError, ImportError) as error:
        raise InputError(str(error)) from None
    except Exception as error:
        if type(error).__module__.startswith(("psycopg", "sqlite3")):
            raise InputError(f"{type(error).__name__}: {error}") from None
        raise


@click.group()
def fleet() -> None:
    """See what the databases of a fleet believe."""


@fleet.command()
@_config
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Look at N rows of a table, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(path: str, sample: int | None, as_json: bool) -> None:
    """Compare the fences with the router, and the rows with the fences.

    The exit status is 1 if anything is found. Nothing is changed.

    \b
      ringhash fleet check --config fleet.toml
    """
    with _opened(path) as (opened, config):
        found = check_fleet(opened, config.tables, sample=sample)
    if as_json:
        click.echo(
            json.dumps(
                [{**one._asdict(), "examples": [_plain(key) for key in one.examples]} for one in found]
            )
        )
    else:
        for one in found:
            place = " ".join(part for part in (one.node, one.table) if part)
            click.echo(printable(f"{one.kind}: {place + ': ' if place else ''}{one.message}"))
        if not found:
            tables = f"{len(config.tables)} table{'' if len(config.tables) == 1 else 's'}"
            click.echo(f"All is well: {len(opened.names)} databases, {tables}.")
    if found:
        raise click.exceptions.Exit(1)


@fleet.command()
@_config
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fence(path: str, as_json: bool) -> None:
    """Show what each database lets in: which keys are here, which are moving, which are gone and where."""
    with _opened(path) as (opened, _):
        lines = []
        for name in opened.names:
            with opened.database(name).transaction(write=False) as tx:
                rows = list(join_rows(read_fence(tx)))
            if as_json:
                lines += [json.dumps({"database": name, **_document(row)}) for row in rows]
                continue
            lines.append(f"{name}")
            for row in rows:
                to = "" if row.owner is None else f" to {row.owner}"
                lines.append(f"  {row.state}{to}: {_shown(opened, row)}, epoch {row.epoch}")
    for line in lines:
        click.echo(printable(line))


def _document(row: FenceRow) -> dict[str, object]:
    high = None if row.high is None else row.high.hex()
    return {"low": row.low.hex(), "high": high, "state": row.state, "owner": row.owner, "epoch": row.epoch}


def _shown(opened: Fleet, row: FenceRow) -> str:
    if row.single:
        return f"the key {row.low[1:]!r}"
    space = opened.router.placement.space
    show = (lambda data: _key(space, data)) if isinstance(space, OrderedSpace) else _hash
    low = "the lowest key" if not row.low else show(row.low)
    return f"from {low}" + (" on" if row.high is None else f" to {show(row.high)}")


def _key(space: OrderedSpace, data: bytes) -> str:
    try:
        return json.dumps(plain_key(space.shape, data), ensure_ascii=False)
    except ValueError:  # an address between two keys
        return data.hex()


def _hash(data: bytes) -> str:
    return f"address {data.hex()}"


@fleet.command()
@_config
@_integer
@click.argument("key")
def export(path: str, key: str, integer: bool) -> None:
    """Print all rows of a key as lines of JSON, as they are at one moment.

    \b
      ringhash fleet export acme --config fleet.toml > acme.jsonl
    """
    with _opened(path) as (opened, config):
        wanted = _wanted(key, integer)
        with opened.read(wanted) as tx:
            for table in config.tables:
                if table.reference:
                    continue
                columns, rows = _of_key(tx, table, wanted)
                names = [one.name for one in columns]
                for row in rows:
                    values = {name: _plain(value) for name, value in zip(names, row, strict=True)}
                    click.echo(json.dumps({"table": table.name, "row": values}, ensure_ascii=False))


@fleet.command()
@_config
@_integer
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("key")
def delete(path: str, key: str, integer: bool, yes: bool) -> None:
    """Delete all rows of a key, in one transaction. Says how many, and asks.

    \b
      ringhash fleet delete acme --config fleet.toml
    """
    with _opened(path) as (opened, config):
        wanted = _wanted(key, integer)
        tables = [table for table in config.tables if not table.reference]
        with opened.read(wanted) as tx:
            counts = {table: len(_of_key(tx, table, wanted)[1]) for table in tables}
        total = sum(counts.values())
        listed = ", ".join(f"{count} of {table.name}" for table, count in counts.items() if count)
        if not total:
            click.echo(f"There are no rows of {key}.")
            return
        if not yes:
            click.confirm(f"Delete {total} rows of {key} ({listed})? There is no way back.", abort=True)
        with opened.write(wanted) as tx:
            found = [(table, *_of_key(tx, table, wanted)) for table in tables]  # before the parents are gone
            total = sum(delete_rows(tx, table, columns, rows) for table, columns, rows in reversed(found))
        click.echo(f"Deleted {total} rows of {key}.")


def _wanted(key: str, integer: bool) -> str | int:
    if not integer:
        return key
    try:
        return int(key)
    except ValueError:
        raise InputError(f"--int: {key!r} is not an integer") from None


def _of_key(tx: Transaction, table: Table, key: Any) -> tuple[list[Column], list[tuple[Any, ...]]]:
    columns = columns_of(tx, table)
    return columns, list(_rows(tx, table, columns, key))


def _rows(tx: Transaction, table: Table, columns: list[Column], key: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of one key: by SQL where a value is the key itself, else by reading all."""
    where = (
        key_condition(table, [key]) if table.root.key_of is None and len(table.root.columns) == 1 else None
    )
    for chunk in read_rows(tx, table, columns, where=where, exact=False):
        yield from (row for row, its in zip(chunk.rows, chunk.keys, strict=True) if its == key)


def _plain(value: Any) -> Any:
    """A value as JSON holds it: bytes in base64, moments in ISO 8601, decimals and UUIDs as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (str, int, float, bool, dict)) else str(value)

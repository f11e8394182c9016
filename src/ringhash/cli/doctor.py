"""`ringhash doctor`: what is installed and compiled, and which databases answer."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import find_spec
from typing import Any

import click

from ringhash.cli.errors import InputError
from ringhash.placements.ring import Ring

__all__ = ["completion", "doctor"]


@click.command(short_help="Show what is installed and which databases answer.")
@click.option("--db", "databases", multiple=True, metavar="PATH|ADDRESS", help="Ask this database too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(databases: tuple[str, ...], as_json: bool) -> None:
    """Show what is installed, how it was compiled, and which databases answer.

    The exit status is 1 if a database given with --db does not answer.

    \b
      ringhash doctor
      ringhash doctor --db leases.db --db postgresql://db.example/app
    """
    answers = {_without_password(db): _ask(db) for db in databases}
    found: dict[str, Any] = {
        "ringhash": version("ringhash"),
        "python": f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}",
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "numpy": version("numpy"),
        "core": _core(),
        "extras": _extras(),
        "databases": answers,
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    if any(answer is not None for answer in answers.values()):
        raise click.exceptions.Exit(1)


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      ringhash completion bash >>~/.bashrc
      ringhash completion zsh >>~/.zshrc
      ringhash completion fish >~/.config/fish/completions/ringhash.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    kind = get_completion_class(shell)
    if kind is None:
        raise InputError(f"this version of click has no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, "ringhash", "_RINGHASH_COMPLETE").source())


def _core() -> str:
    """Whether a compiled core is there and gives the right answer."""
    place = getattr(find_spec("ringhash._core"), "origin", None) or "nowhere"
    right = Ring(["gw-1"]).position("user:7") == 6795815
    return f"{'compiled, checked' if right else 'WRONG: it does not place keys as specified'}, {place}"


def _extras() -> dict[str, dict[str, str | None]]:
    """The packages of each extra, with the version that is installed, or None."""
    extras: dict[str, dict[str, str | None]] = {
        name: {} for name in metadata("ringhash").get_all("Provides-Extra") or ()
    }
    for requirement in requires("ringhash") or ():
        package, _, marker = requirement.partition(";")
        for name, packages in extras.items():
            if f'"{name}"' in marker.replace("'", '"'):
                plain = package.split("[")[0]
                for mark in "<>=!~ ":
                    plain = plain.split(mark)[0]
                packages[plain] = _version(plain)
    return extras


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ask(db: str) -> str | None:
    """None when the database answers, else why it does not; never with a password."""
    try:
        if db.startswith(("postgresql://", "postgres://")):
            import psycopg  # noqa: PLC0415  an extra

            with psycopg.connect(db, connect_timeout=5) as connection:
                connection.execute("SELECT 1")
        elif "://" in db:
            return "only SQLite paths and postgresql:// addresses can be asked"
        else:
            import sqlite3  # noqa: PLC0415
            from contextlib import closing  # noqa: PLC0415
            from pathlib import Path  # noqa: PLC0415

            with closing(sqlite3.connect(f"{Path(db).absolute().as_uri()}?mode=ro", uri=True)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except ImportError:
        return "psycopg is missing: pip install 'ringhash[postgres]'"
    except Exception as error:
        if type(error).__module__.startswith(("psycopg", "sqlite3")):
            return str(error).strip().splitlines()[0].replace(db, _without_password(db))
        raise
    return None


def _without_password(db: str) -> str:
    scheme, slashes, rest = db.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not slashes or not at or ":" not in credentials:
        return db
    return f"{scheme}://{credentials.split(':')[0]}:***@{place}"


def _print(found: dict[str, Any]) -> None:
    from ringhash.cli.render import Page  # noqa: PLC0415

    page = Page()
    page.line(("ringhash ", "bold"), found["ringhash"])
    page.line("Python   ", found["python"], "" if found["gil"] else ", without the GIL")
    page.line("numpy    ", found["numpy"])
    page.line("core     ", found["core"])
    page.line()
    rows = []
    for extra, packages in found["extras"].items():
        missing = [name for name, number in packages.items() if number is None]
        there = ", ".join(f"{name} {number}" for name, number in packages.items() if number is not None)
        rows.append((extra, there or "-", ", ".join(missing) or "-"))
    page.rows(("extra", "installed", "missing"), rows)
    if found["databases"]:
        page.line()
        page.rows(
            ("database", "answer"),
            [(db, "yes" if why is None else f"no: {why}") for db, why in found["databases"].items()],
        )

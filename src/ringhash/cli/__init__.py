"""The `ringhash` command, from the extra `cli`: who owns a key, what a change moves, how even a ring is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ringhash.printable import printable

__all__ = ["main"]

FAILED = 2
INTERRUPTED = 130  # 128 and the signal's number, as a shell reports it
BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave Python with its exit status."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status; every error is one line on stderr."""
    if sys.stderr is None:  # closed by who started this
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return _fail("stdout is closed")
    # Only here, so that a missing extra, an interrupt or a closed pipe never ends in a traceback.
    try:
        import click  # noqa: PLC0415
        import rich  # noqa: F401, PLC0415
    except ImportError:
        return _fail("this command needs click and rich: pip install 'ringhash[cli]'")

    from ringhash.cli.commands import ringhash  # noqa: PLC0415

    if instruction := os.environ.get("_RINGHASH_COMPLETE"):  # a shell asks what may follow
        from click.shell_completion import shell_complete  # noqa: PLC0415

        return shell_complete(ringhash, {}, "ringhash", "_RINGHASH_COMPLETE", instruction)
    try:
        # Not click's own main: it writes several lines for an error, and one for an interrupt.
        with ringhash.make_context("ringhash", list(arguments)) as context:
            ringhash.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return _flushed(stop.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _drop_output()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}")
    return 0


def _flushed(status: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _drop_output()
    return status


def _drop_output() -> int:
    """Let nothing be written any more, or Python would complain about the pipe as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _fail(message: str) -> int:
    print(f"ringhash: {printable(' '.join(message.splitlines()))}", file=sys.stderr)
    return FAILED

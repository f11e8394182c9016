"""A bar for those who wait in front of a terminal."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

from ringhash.cli.keys import KeyFile

__all__ = ["watched"]

PATIENCE = 0.4  # seconds; who waits less needs no bar, and rich takes a while to load


def watched(source: KeyFile, *, prints_lines: bool = False) -> Generator[list[bytes], None, None]:
    """Yield the blocks of keys, and show on stderr how far the reading is.

    There is no bar where stderr is no terminal, none in a pipe, where another program may use the
    terminal, and none where the user sees the answers come or types the keys.
    """
    shown = (
        sys.stderr.isatty()
        and not _is_pipe(sys.stdout.fileno())
        and not (prints_lines and sys.stdout.isatty())
        and not (source.path == "-" and sys.stdin is not None and sys.stdin.isatty())
    )
    if not shown:
        yield from source
        return
    start = time.monotonic()
    with ExitStack() as stack:
        update = None
        for keys in source:
            yield keys
            if update is None and time.monotonic() - start > PATIENCE:
                from ringhash.cli.render import Bar  # noqa: PLC0415

                update = stack.enter_context(Bar(Path(source.name).name, source.size))
            if update is not None:
                update(source.bytes_read, source.taken)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

"""What a user did wrong, as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ringhash.errors import RinghashError

__all__ = ["InputError", "refusals"]


class InputError(click.ClickException):
    """Something that the user gave cannot be used; the message is one line."""

    exit_code = 2


@contextmanager
def refusals(where: str = "") -> Iterator[None]:
    """Turn what the library refuses into an `InputError`. Only around calls that take a user's values."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, RinghashError) as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None

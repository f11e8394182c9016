"""Reading what a placement of another program is given: servers, settings, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringhash._core import MAX_POINTS
from ringhash.errors import DuplicateNodeError
from ringhash.node import Node, plain_type

__all__ = [
    "Servers",
    "check_points",
    "check_tag",
    "digits",
    "one_each",
    "read_listed",
    "read_mapping",
    "read_servers",
    "shortened",
    "true_or_false",
    "whole_number",
]

Servers = Iterable[str] | Mapping[str, int]

_MOST_DIGITS = 20  # of a number of 64 bits


def whole_number(value: object, what: str, least: int, most: int | None = None) -> int:
    """Return a setting that must be a whole number; a bool, a float and a text are none.

    >>> whole_number(3, "vnodes", 1, 10)
    3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} must be a whole number, not {plain_type(value)}")
    if value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{what} must be {allowed}, not {_shown(int(value))}")
    return int(value)


def _shown(value: int) -> str:
    """A number as text; Python itself refuses to write one of more than 4,300 digits."""
    return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"


def true_or_false(value: object, what: str) -> bool:
    """Return a setting that must be True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be True or False, not {plain_type(value)}")
    return bool(value)


def digits(text: str) -> int | None:
    """Return the number that a configuration says in ASCII digits; None if it is no such number.

    `str.isdigit` and `int` take more than a configuration may hold: "²", "٣", 5,000 digits.

    >>> digits("007"), digits("²"), digits("-1"), digits("")
    (7, None, None, None)
    """
    if not text.isascii() or not text.isdigit():
        return None
    text = text.lstrip("0")
    return int(text or "0") if len(text) <= _MOST_DIGITS else None


def shortened(text: str) -> str:
    """A text of a file, cut to what fits into a message."""
    return text if len(text) <= 40 else text[:40] + "..."


def read_listed(many: object, what: str) -> list[Any]:
    """Return an iterable as a list; one text is not many of anything."""
    if isinstance(many, (str, bytes, bytearray, memoryview)) or not isinstance(many, Iterable):
        raise TypeError(f"{what} must be a list, not {plain_type(many)}")
    return list(many)


def read_mapping(given: object, what: str) -> dict[Any, Any]:
    """Return a mapping as a dictionary."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping, not {plain_type(given)}")
    return dict(given)


def read_servers(servers: object, least: int = 1, most: int = (1 << 31) - 1) -> dict[str, int]:
    """Return servers as names and whole weights, in the order given.

    Raises:
        DuplicateNodeError: A server is given twice.
        TypeError, ValueError: A name or a weight is not what the program takes.
    """
    if isinstance(servers, Mapping):
        pairs: list[tuple[Any, Any]] = list(servers.items())
    elif isinstance(servers, (str, bytes, bytearray, memoryview)) or not isinstance(servers, Iterable):
        raise TypeError(
            f"servers must be a list of names or a mapping of names to weights, not {plain_type(servers)}"
        )
    else:
        pairs = [(name, 1) for name in servers]
    found: dict[str, int] = {}
    for name, weight in pairs:
        Node(name)  # a name that a node may have
        if name in found:
            raise DuplicateNodeError(f"the server {name!r} is given twice")
        found[name] = whole_number(weight, f"the weight of {name!r}", least, most)
    if not found:
        raise ValueError("a placement needs at least one server")
    return found


def one_each(names: Iterable[str], labels: Iterable[bytes]) -> None:
    """Raise `DuplicateNodeError` for two names that are one server to the program.

    The second of them would own nothing, since its points are those of the first.
    """
    first: dict[bytes, str] = {}
    for name, label in zip(names, labels, strict=True):
        other = first.setdefault(label, name)
        if other != name:
            shown = label.decode().replace("\0", ":").removesuffix(":")
            raise DuplicateNodeError(
                f"{other!r} and {name!r} are one server, {shown!r}: leave one of them out"
            )


def check_points(count: int, what: str = "points") -> None:
    """Raise `ValueError` for more points than a ring may have; to be called before any is made."""
    if count > MAX_POINTS:
        raise ValueError(f"a placement has at most {MAX_POINTS} {what}, not {_shown(count)}: scale it down")


def check_tag(hash_tag: object) -> str | None:
    """Return a hash tag, which is None or two ASCII characters."""
    if hash_tag is None:
        return None
    if not isinstance(hash_tag, str):
        raise TypeError(f"hash_tag must be a str of two characters, not {plain_type(hash_tag)}")
    if len(hash_tag) != 2 or not hash_tag.isascii():
        raise ValueError(f"hash_tag must be two ASCII characters, such as '{{}}', not {hash_tag!r}")
    return hash_tag

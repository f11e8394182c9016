"""Reading plain dictionaries from outside, such as parsed JSON, field by field.

Every document names its kind and the version of its rules. Every error is a ValueError that names the
field, as in `plan.moves[3]: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

__all__ = [
    "VERSION", "check_fields", "document", "field", "not_too_deep", "number", "plain_name", "read_document",
    "read_number", "read_word", "word",
]  # fmt: skip

VERSION = 1
_HEADER = frozenset({"kind", "version"})
_NOTHING: frozenset[str] = frozenset()
_EXACT = 1 << 53  # above it a number of JavaScript, and of jq, is not exact
_DIGITS = re.compile(r"[0-9]{1,20}", re.ASCII)

_PLAIN_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def document(kind: str, /, **fields: object) -> dict[str, object]:
    """Return a document of `kind` with these fields.

    >>> document("pin", node="gw-1")
    {'kind': 'pin', 'version': 1, 'node': 'gw-1'}
    """
    return {"kind": kind, "version": VERSION, **fields}


def read_document(
    data: object,
    where: str,
    kind: str,
    needed: frozenset[str],
    optional: frozenset[str] = _NOTHING,
) -> Mapping[str, object]:
    """Return `data` if it is a document of `kind` with the fields `needed`, and perhaps some `optional` ones.

    Raises:
        ValueError: It is of another kind or version, or a field is missing or unknown.
    """
    record = _mapping(data, where)
    if "kind" not in record:
        raise ValueError(f'{where}.kind: is missing; it must be "{kind}"')
    if record["kind"] != kind:
        raise ValueError(f'{where}.kind: must be "{kind}", not {record["kind"]!r}')
    version = record.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise ValueError(
            f"{where}.version: must be {VERSION}, not {version!r}; a later ringhash has made this"
        )
    return check_fields(record, where, needed, optional | _HEADER)


def check_fields(
    data: object, where: str, needed: frozenset[str], optional: frozenset[str] = _NOTHING
) -> Mapping[str, object]:
    """Return `data` if it is a mapping of the fields in `needed`, and none but those in `optional`."""
    record = _mapping(data, where)
    allowed = needed | optional
    unknown = [name for name in record if name not in allowed]
    if unknown:
        raise ValueError(
            f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(allowed))}"
        )
    missing = sorted(needed - record.keys())
    if missing:
        raise ValueError(f"{where}.{missing[0]}: is missing")
    return record


def _mapping(data: object, where: str) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: must be an object, not {plain_name(data)}")
    return data


def field(data: Mapping[str, object], where: str, name: str, *kinds: type[T]) -> T:
    """Return the field `name`, which must be of one of `kinds`; a bool does not count as an integer."""
    value = data[name]
    if type(value) not in kinds:
        allowed = " or ".join(_PLAIN_NAMES[kind] for kind in kinds)
        raise ValueError(f"{where}.{name}: must be {allowed}, not {plain_name(value)}")
    return value  # type: ignore[return-value]


def word(value: int) -> str:
    """Return a number of 64 bits as it stands in a document: decimal text, which every reader keeps exact."""
    return str(value)


def number(value: int, most: int) -> int | str:
    """Return a number from 0 to `most` as it stands in a document: as text if `most` is above 2**53."""
    return value if most <= _EXACT else str(value)


def read_number(value: object, where: str, least: int = 0, most: int = (1 << 64) - 1) -> int:
    """Return what `word` or `number` wrote.

    Raises:
        ValueError: It is no integer or decimal text, or not from `least` to `most`.
    """
    if type(value) is str and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int:
        shown = repr(value) if type(value) is str and len(value) < 40 else plain_name(value)
        raise ValueError(f"{where}: must be an integer, or its digits as text, not {shown}")
    if not least <= value <= most:
        raise ValueError(f"{where}: must be from {least} to {_shown(most)}, not {_shown(value)}")
    return value


def read_word(
    record: Mapping[str, object], where: str, name: str, least: int = 0, most: int = (1 << 64) - 1
) -> int:
    """Return the field `name`, a number of 64 bits as text or as an integer.

    >>> read_word({"seed": "18446744073709551615"}, "ring", "seed") == 2**64 - 1
    True
    """
    return read_number(record[name], f"{where}.{name}", least, most)


def _shown(value: int) -> str:
    if value == (1 << 64) - 1:
        return "2**64 - 1"
    return str(value) if abs(value) < 1 << 70 else f"a number of {value.bit_length()} bits"


def not_too_deep(read: Callable[[], T], where: str) -> T:
    """Return `read()`; a document that is nested too deep is a ValueError, and no RecursionError.

    >>> import json
    >>> not_too_deep(lambda: json.loads("[" * 100_000), "plan.json")
    Traceback (most recent call last):
    ValueError: plan.json: is nested too deep
    """
    try:
        return read()
    except RecursionError:
        raise ValueError(f"{where}: is nested too deep") from None


def plain_name(value: object) -> str:
    """Return what a reader of JSON calls the type of a value."""
    return _PLAIN_NAMES.get(type(value), type(value).__name__)

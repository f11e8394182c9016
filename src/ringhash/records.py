"""Reading plain dictionaries from outside, such as parsed JSON, field by field.

Every error is a ValueError that names the field, as in `plan.moves[3]: ...`.
"""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

__all__ = ["check_fields", "field"]

_PLAIN_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def check_fields(
    data: object, where: str, needed: frozenset[str], optional: frozenset[str] = frozenset()
) -> Mapping[str, object]:
    """Return `data` if it is a mapping of the fields in `needed`, and none but those in `optional`."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: must be an object, not {plain_name(data)}")
    allowed = needed | optional
    unknown = [name for name in data if name not in allowed]
    if unknown:
        raise ValueError(
            f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(allowed))}"
        )
    missing = sorted(needed - data.keys())
    if missing:
        raise ValueError(f"{where}.{missing[0]}: is missing")
    return data


def field(data: Mapping[str, object], where: str, name: str, *kinds: type[T]) -> T:
    """Return the field `name`, which must be of one of `kinds`; a bool is no integer."""
    value = data[name]
    if type(value) not in kinds:
        allowed = " or ".join(_PLAIN_NAMES[kind] for kind in kinds)
        raise ValueError(f"{where}.{name}: must be {allowed}, not {plain_name(value)}")
    return value  # type: ignore[return-value]


def plain_name(value: object) -> str:
    return _PLAIN_NAMES.get(type(value), type(value).__name__)

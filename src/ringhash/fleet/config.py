"""A fleet as a file: which databases, which router, which tables.

router = "router.json"                  # what router.to_dict() or placement.to_dict() gave, as JSON

[databases]
db-1 = "postgresql://app@db1.example/shop"
db-2 = "$DB2_ADDRESS"                   # from the environment, so that the file holds no password

[[tables]]
name = "orders"
key = "tenant_id"                       # or a list of columns
read = "str"                            # str, int, uuid or bytes; by default a value is the key itself

[[tables]]
name = "lines"
through = ["order_id", "orders"]
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ringhash.fleet.tables import Table
from ringhash.placement import placement_from
from ringhash.records import check_fields, field
from ringhash.routing import Router

__all__ = ["FleetConfig", "read_config"]

_READERS: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "uuid": lambda value: value if isinstance(value, UUID) else UUID(str(value)),
    "bytes": bytes,
}
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


class FleetConfig(NamedTuple):
    """What a configuration says: the addresses of the databases by node, the router, and the tables."""

    databases: dict[str, str]
    router: Router
    tables: tuple[Table, ...]


def read_config(path: str | os.PathLike[str]) -> FleetConfig:
    """Return the fleet that a TOML file describes; other files are found from its folder.

    Raises:
        ValueError: It is not TOML, or a field is missing, unknown or wrong; the message names it.
        OSError: A file cannot be read.
    """
    place = Path(path)
    try:
        data = tomllib.loads(place.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{place}: {error}") from None
    where = place.name
    record = check_fields(data, where, frozenset({"router", "databases"}), frozenset({"tables"}))
    databases = field(record, where, "databases", dict)
    addresses: dict[str, str] = {}
    for name, address in databases.items():
        if type(address) is not str:
            raise ValueError(f"{where}.databases.{name}: must be a string")
        addresses[name] = _address(address, place.parent, f"{where}.databases.{name}")
    router = _router(place.parent / field(record, where, "router", str))
    tables: dict[str, Table] = {}
    listed: list[Any] = field(record, where, "tables", list) if "tables" in record else []
    for i, one in enumerate(listed):
        table = _table(one, f"{where}.tables[{i}]", tables)
        tables[table.name] = table
    return FleetConfig(addresses, router, tuple(tables.values()))


def _address(text: str, folder: Path, where: str) -> str:
    def from_environment(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise ValueError(f"{where}: the environment has no {name}")
        return os.environ[name]

    address = _VARIABLE.sub(from_environment, text)
    return address if ":" in address else str(folder / address)


def _router(path: Path) -> Router:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if isinstance(document, Mapping) and document.get("kind") == "router":
        return Router.from_dict(document)
    return Router(placement_from(document, path.name))


_TABLE = frozenset({"key", "primary_key", "read", "reference", "through"})


def _table(data: object, where: str, before: Mapping[str, Table]) -> Table:
    record = check_fields(data, where, frozenset({"name"}), _TABLE)
    read = record.get("read")
    if read is not None and read not in _READERS:
        raise ValueError(f"{where}.read: must be one of {', '.join(_READERS)}, not {read!r}")
    through = record.get("through")
    if through is not None:
        if not isinstance(through, list) or len(through) != 2 or through[1] not in before:
            raise ValueError(f"{where}.through: must be [column, table] of a table above it, not {through!r}")
        through = (through[0], before[through[1]])
    key: Any = record.get("key")
    try:
        return Table(
            field(record, where, "name", str),
            key=key,
            primary_key=record.get("primary_key", ("id",)),  # type: ignore[arg-type]
            key_of=None if read is None else _reader(_READERS[str(read)], isinstance(key, list)),
            reference=bool(record.get("reference", False)),
            through=through,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _reader(read: Callable[[Any], Any], several: bool) -> Callable[[Any], Any]:
    return (lambda values: tuple(map(read, values))) if several else read

"""Who believes what: the fences beside the router, and the rows beside the fences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ringhash.errors import FenceError, Moved, NoNodeAvailableError
from ringhash.fleet.addresses import addresses_of
from ringhash.fleet.fence import FenceRow, read_fence, verdict
from ringhash.fleet.fleet import Fleet
from ringhash.fleet.rows import columns_of, read_rows
from ringhash.fleet.tables import Table

__all__ = ["Finding", "check_fleet"]

_SHOWN = 5


class Finding(NamedTuple):
    """Something that is not as it should be.

    `kind` is "fence" (a database says another thing than the router), "orphans" (rows that lie where their
    key is not), "no key" (a column has values that are no keys) or "reading" (tables read one key in two
    ways). `node` is the database, None for all of them. `rows` says how many it concerns, and `examples`
    names a few keys.
    """

    kind: str
    node: str | None
    table: str | None
    rows: int
    message: str
    examples: tuple[Any, ...] = ()


def check_fleet(fleet: Fleet, tables: Iterable[Table] = (), *, sample: int | None = None) -> list[Finding]:
    """Return what is not as it should be: where router and fences disagree, which rows lie where their keys
    are not.

    Nothing is changed. While keys move, what moves may be found.

    Args:
        fleet: Which databases, and the router that they are compared with.
        tables: The tables whose rows are looked at.
        sample: How many rows of each table are read, at most; by default all.

    Raises:
        FenceError: A database has no fence.

    Cost: reads each table once, without locks.
    """
    tables = [table for table in tables if not table.reference]
    found: list[Finding] = []
    kinds: dict[str, Counter[str]] = {table.name: Counter() for table in tables}
    for node in fleet.names:
        with fleet.database(node).transaction(write=False) as tx:
            rows = read_fence(tx)
            if not rows:
                raise FenceError(f"the database of {node} has no fence; call Fleet.install()")
            found += _of_fence(fleet, node, rows)
            for table in tables:
                columns_of(tx, table)  # it is there
                seen = 0
                here = _Keys(fleet, node, table, rows)
                for chunk in read_rows(tx, table, []):
                    here.add(chunk.keys)
                    kinds[table.name].update(_kind(key) for key in chunk.keys)
                    seen += len(chunk.keys)
                    if sample is not None and seen >= sample:
                        break
                found += here.findings()
    return [*found, *_of_readings(kinds)]


def _of_fence(fleet: Fleet, node: str, rows: list[FenceRow]) -> Iterator[Finding]:
    """What moves for ever, and what is closed here and the router sends here."""
    for row in rows:
        if row.state == "moving":
            yield Finding(
                "fence", node, None, 0,
                f"{_shown(row)} moves to {row.owner} since epoch {row.epoch}; if no handover runs, resume it",
                (row.low,),
            )  # fmt: skip
        elif row.state == "gone" and row.owner not in fleet.names:
            yield Finding(
                "fence", node, None, 0,
                f"{_shown(row)} went to {row.owner}, of which this fleet has no database", (row.low,),
            )  # fmt: skip


def _shown(row: FenceRow) -> str:
    if row.single:
        return f"the key {row.low!r}"
    return (
        f"from {row.low.hex() or 'the lowest address'} to {'the end' if row.high is None else row.high.hex()}"
    )


class _Keys:
    """The keys of one table in one database: whose are they?"""

    def __init__(self, fleet: Fleet, node: str, table: Table, rows: list[FenceRow]) -> None:
        self._fleet, self._node, self._table, self._rows = fleet, node, table, rows
        self._known: dict[Any, str | None] = {}
        self._orphans: Counter[Any] = Counter()
        self._owners: dict[Any, str] = {}
        self._refused: Counter[Any] = Counter()
        self._fenced: Counter[Any] = Counter()

    def add(self, keys: list[Any]) -> None:
        for key in keys:
            if key not in self._known:
                self._known[key] = self._find(key)
            owner = self._known[key]
            if owner is None:
                self._refused[key] += 1
            elif owner != self._node:
                self._orphans[key] += 1
                self._owners[key] = owner
            elif key in self._owners:
                self._fenced[key] += 1

    def _find(self, key: Any) -> str | None:
        """The owner by the router; a fence that says another thing is noted."""
        try:
            owner = self._fleet._owner(key)
            addresses = addresses_of(self._fleet.router.placement, key)
        except NoNodeAvailableError:
            return self._node
        except (TypeError, ValueError, OverflowError):
            return None
        if owner == self._node:
            try:
                verdict(self._rows, addresses, write=False)
            except Moved as moved:
                self._owners[key] = str(moved.to)
        return owner

    def findings(self) -> Iterator[Finding]:
        name = self._table.name
        if self._orphans:
            count = sum(self._orphans.values())
            examples = tuple(key for key, _ in self._orphans.most_common(_SHOWN))
            shown = ", ".join(f"{key!r} of {self._owners[key]}" for key in examples)
            hint = self._hint(examples)
            yield Finding("orphans", self._node, name, count,
                          f"{count} rows here belong elsewhere: {shown}{hint}", examples)  # fmt: skip
        if self._fenced:
            count = sum(self._fenced.values())
            examples = tuple(key for key, _ in self._fenced.most_common(_SHOWN))
            shown = ", ".join(f"{key!r} to {self._owners[key]}" for key in examples)
            yield Finding("fence", self._node, name, count,
                          f"the router is out of date: it sends keys here that the fence sends on: {shown}",
                          examples)  # fmt: skip
        if self._refused:
            count = sum(self._refused.values())
            examples = tuple(key for key, _ in self._refused.most_common(_SHOWN))
            shown = ", ".join(map(repr, examples))
            yield Finding("no key", self._node, name, count,
                          f"{count} rows have no key, such as {shown}; give key_of", examples)  # fmt: skip

    def _hint(self, examples: tuple[Any, ...]) -> str:
        """Whether the keys would be right if the column were read in another way."""
        for what, read in (("str", str), ("int", int)):
            try:
                owners = [self._fleet._owner(read(key)) for key in examples]
            except (TypeError, ValueError, OverflowError):
                continue
            if all(owner == self._node for owner in owners) and all(
                type(key) is not read for key in examples
            ):
                return f"; read as {what} they would be right here: is key_of={what} missing?"
        return ""


def _kind(key: Any) -> str:
    if isinstance(key, tuple):
        return "(" + ", ".join(map(_kind, key)) + ")"
    return {"memoryview": "bytes", "bytearray": "bytes"}.get(type(key).__name__, type(key).__name__)


def _of_readings(kinds: dict[str, Counter[str]]) -> Iterator[Finding]:
    """Tables whose keys are of different types: one tenant is two keys then."""
    by_kind: dict[str, list[str]] = {}
    for table, counts in kinds.items():
        for kind in counts:
            by_kind.setdefault(kind, []).append(table)
    if len(by_kind) > 1:
        shown = "; ".join(f"{kind}: {', '.join(tables)}" for kind, tables in sorted(by_kind.items()))
        total = sum(sum(counts.values()) for counts in kinds.values())
        yield Finding("reading", None, None, total,
                      f"keys are read in several ways, and 7 and '7' are two keys ({shown}); give key_of",
                      tuple(sorted(by_kind)))  # fmt: skip

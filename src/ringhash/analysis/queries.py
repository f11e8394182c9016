"""How statements fit a shard key: which ask one shard, which few, which all; what stays together."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from ringhash.analysis.logs import Format, Statement, statements_of
from ringhash.analysis.reasons import Reason
from ringhash.analysis.shapes import Binding, Shape, TableColumn, parse, shape_of, values_in

if TYPE_CHECKING:
    from ringhash.analysis.keys import Report

__all__ = ["Alignment", "Fix", "Queries", "joined"]

Width = Literal["one", "few", "all", "elsewhere"]
FIXES = 10
_R = TypeVar("_R", bound="Report")


class Fix(NamedTuple):
    """A statement that asks more than one shard: its shape, its calls, how many shards, and why."""

    text: str
    calls: int
    width: Width
    why: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """How statements fit one candidate key; all figures are shares of the calls.

    `single`, `few`, `all`: answered by one shard, by some (an IN list, a statement with two keys), by all.
    `elsewhere`: no table of the statement has the key. They sum up to 1. `updates`: calls that change the key
    itself. `transactions`: of the transactions that touch tables with the key, those that stay on one value
    of it; None if the log shows none. `tables`: the tables that can be kept together by this key, and the
    column that each has for it. `broken`: joins of two such tables that do not join by the key, with their
    calls. `fixes`: the statements to fix first.
    """

    single: float
    few: float
    all: float
    elsewhere: float
    updates: float
    transactions: float | None
    tables: dict[str, tuple[str, ...]]
    broken: tuple[tuple[str, int], ...]
    fixes: tuple[Fix, ...]


class Queries:
    """Statements that were called, by shape: each shape is parsed once.

    Args:
        statements: `Statement`s, or texts.
        dialect: What sqlglot reads: "postgres", "mysql", "sqlite" and others.
        schema: The columns of each table. Without it, a table is known to have the columns that statements
            name.

    Raises:
        ImportError: sqlglot is missing: pip install 'ringhash[sql]'.

    Cost: some 10 microseconds a call, some milliseconds a shape. Memory: O(shapes), and the values of one
    transaction at a time.

    >>> queries = Queries(["SELECT * FROM orders WHERE customer = 5", "SELECT count(*) FROM orders"])
    >>> fit = queries.align("customer")
    >>> fit.single, fit.all, fit.fixes[0].text
    (0.5, 0.5, 'SELECT count(*) FROM orders')
    """

    def __init__(
        self,
        statements: Iterable[Statement | str],
        *,
        dialect: str = "postgres",
        schema: dict[str, Iterable[str]] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.dialect = dialect
        self.shapes: dict[str, Shape] = {}
        self.calls: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._schema = (
            None if schema is None else {t.lower(): {c.lower() for c in cs} for t, cs in schema.items()}
        )
        self._open: dict[str | None, list[tuple[str, list[str]]]] = {}
        # Transactions by what they do: of each statement its shape, and which values are equal to which.
        self._transactions: Counter[tuple[tuple[str, tuple[str, ...]], ...]] = Counter()
        mysql = dialect.startswith(("mysql", "mariadb", "tidb"))
        for number, given in enumerate(statements, 1):
            statement = Statement(given, None) if isinstance(given, str) else given
            text, values = shape_of(statement.text, mysql=mysql)
            if statement.parameters:
                values = [_parameter(value, statement.parameters) for value in values]
            self._count(text, values, statement.session)
            if progress is not None and number % 10_000 == 0:
                progress(number)

    @classmethod
    def from_log(
        cls,
        source: str | os.PathLike[str] | Iterable[str],
        *,
        kind: Format | None = None,
        dialect: str | None = None,
        schema: dict[str, Iterable[str]] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Return the statements of a log: PostgreSQL's, MySQL's general or slow log, or plain SQL.

        Args:
            source: A path (also `.gz`), or lines.
            kind: "postgresql", "mysql" or "sql"; None looks at the first lines.
            dialect: As for `Queries`; None takes that of the log, and PostgreSQL's for plain SQL.
            schema, progress: As for `Queries`; `progress` is called with the number of statements.
        """
        statements = statements_of(source, kind)
        if dialect is None:
            first = next(statements, None)
            # Only MySQL writes backticks; its logs are told apart by `kind`.
            dialect = "mysql" if kind == "mysql" or (first is not None and "`" in first.text) else "postgres"
            rest = statements
            statements = (one for part in ([first] if first else [], rest) for one in part)
        return cls(statements, dialect=dialect, schema=schema, progress=progress)

    def _count(self, text: str, values: list[str], session: str | None) -> None:
        self.calls[text] += 1
        shape = self.shapes.get(text)
        if shape is None:
            shape = self.shapes[text] = parse(text, self.dialect, self._schema)
            self._examples[text] = values
        if shape.kind == "begin":
            self._open[session] = []
        elif shape.kind in ("commit", "rollback"):
            done = self._open.pop(session, None)
            if done and shape.kind == "commit":
                self._transactions[_canonical(done)] += 1
        elif session in self._open and shape.tables:
            self._open[session].append((text, values))

    @property
    def total(self) -> int:
        """Calls of statements that read or write tables."""
        return sum(self.calls[text] for text, shape in self.shapes.items() if shape.tables)

    @property
    def unread(self) -> dict[str, int]:
        """Shapes that could not be parsed, with their calls."""
        return {text: self.calls[text] for text, shape in self.shapes.items() if shape.error}

    def groups(self) -> list[tuple[int, list[TableColumn]]]:
        """Return the columns that statements join, as groups that can be kept together, with their calls.

        >>> Queries(["SELECT * FROM a JOIN b ON a.id = b.a_id WHERE a.id = 1"]).groups()
        [(1, [('a', 'id'), ('b', 'a_id')])]
        """
        groups = _Groups()
        weights: Counter[TableColumn] = Counter()
        for text, shape in self.shapes.items():
            for (one, column), (other, other_column) in shape.joins:
                pair = (shape.tables[one], column), (shape.tables[other], other_column)
                groups.join(*pair)
                weights[pair[0]] += self.calls[text]
        found = [(sum(weights[member] for member in members), sorted(members)) for members in groups.all()]
        return sorted(found, key=lambda group: (-group[0], group[1]))

    def align(self, key: str | Sequence[str]) -> Alignment:
        """Return how the statements fit a candidate key.

        A table belongs to the key if it has its columns by name; or, of a key of one column, if statements
        join a column of it to the key.
        """
        columns = tuple(c.lower() for c in ((key,) if isinstance(key, str) else key))
        tables = self._tables_of(columns)
        widths: Counter[Width] = Counter()
        updates, fixes = 0, []
        broken: Counter[str] = Counter()
        for text, shape in self.shapes.items():
            if not shape.tables:
                continue
            calls = self.calls[text]
            width, why = self._width(shape, tables, self._examples[text])
            widths[width] += calls
            if any((table, column) in shape.written for table, names in tables.items() for column in names):
                updates += calls
            if width in ("all", "few"):
                fixes.append(Fix(text, calls, width, why))
            for pair in _strangers(shape, tables):
                broken[pair] += calls
        total = max(1, widths.total())
        fixes.sort(key=lambda fix: (fix.width != "all", -fix.calls, fix.text))
        return Alignment(
            single=widths["one"] / total,
            few=widths["few"] / total,
            all=widths["all"] / total,
            elsewhere=widths["elsewhere"] / total,
            updates=updates / total,
            transactions=self._transactions_on_one(tables),
            tables=tables,
            broken=tuple(sorted(broken.items(), key=lambda item: (-item[1], item[0]))),
            fixes=tuple(fixes[:FIXES]),
        )

    # --- how ---

    def _tables_of(self, columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        named: dict[str, set[str]] = defaultdict(set)
        for shape in self.shapes.values():
            for table, column in shape.columns:
                named[table].add(column)
        named |= self._schema or {}
        tables = {table: columns for table, known in named.items() if known.issuperset(columns)}
        if len(columns) == 1:
            for _, members in self.groups():
                if any(column == columns[0] for _, column in members):
                    for table, column in members:
                        tables.setdefault(table, (column,))
        return dict(sorted(tables.items()))

    def _width(
        self, shape: Shape, tables: dict[str, tuple[str, ...]], values: list[str]
    ) -> tuple[Width, str]:
        bound = _bound(shape, tables)
        if not bound:
            return "elsewhere", "no table of it has the key"
        groups = _Groups()
        for alias in bound:
            groups.add(alias)
        for one, other in shape.joins:
            if one[0] in bound and other[0] in bound and _joins_by_key(shape, tables, one, other):
                groups.join(one[0], other[0])
        seen: set[Any] = set()
        few = False
        for members in groups.all():
            hows = [bound[alias] for alias in sorted(members)]
            singles = [how for how in hows if how is not None and all(b.how == "one" for b in how)]
            some = [how for how in hows if how is not None and all(b.how != "range" for b in how)]
            if singles:
                seen.add(_value_of(singles[0], values))
            elif some:
                few = True
            else:
                return "all", _why(shape, tables, members, hows)
        if few or len(seen) > 1:
            return "few", "it asks for several keys" if few else "its tables are asked for different keys"
        return "one", ""

    def _transactions_on_one(self, tables: dict[str, tuple[str, ...]]) -> float | None:
        one = total = 0
        for transaction, count in self._transactions.items():
            keys: set[Any] = set()
            wide = False
            for text, values in transaction:
                shape = self.shapes[text]
                width, _ = self._width(shape, tables, list(values))
                if width == "elsewhere":
                    continue
                wide = wide or width != "one"
                bound = next(how for how in _bound(shape, tables).values() if how) if width == "one" else None
                keys.add(_value_of(bound, list(values)) if bound else None)
            if keys:
                total += count
                one += count * (not wide and len(keys) == 1)
        return one / total if total else None


def _canonical(done: list[tuple[str, list[str]]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A transaction with numbers in place of its values, the same for equal ones: there are few of these."""
    numbers: dict[str, int] = {}

    def number(value: str) -> str:
        return str(numbers.setdefault(value.strip("'"), len(numbers)))

    def numbered(value: str) -> str:
        word = value[:2].upper()
        if word not in ("IN", "VA") or "(" not in value:
            return number(value)
        tuples = values_in(value)[:1]  # more rows than one are not on one shard, whatever their values
        return f"VALUES ({', '.join(map(number, tuples[0] if tuples else ()))})"

    return tuple((text, tuple(map(numbered, values))) for text, values in done)


def _parameter(value: str, parameters: dict[int, str | None]) -> str:
    if value.startswith("$") and value[1:].isdigit():
        return parameters.get(int(value[1:])) or value
    return value


def _bound(shape: Shape, tables: dict[str, tuple[str, ...]]) -> dict[str, list[Binding] | None]:
    """For each alias of a table with the key: the conditions on all columns of the key, or None."""
    strength = {"one": 0, "few": 1, "range": 2}
    found: dict[str, list[Binding] | None] = {}
    for alias, table in shape.tables.items():
        if table not in tables:
            continue
        best = []
        for column in tables[table]:
            conditions = [b for b in shape.bindings if b.table == alias and b.column == column]
            if conditions:
                best.append(min(conditions, key=lambda b: strength[b.how]))
        found[alias] = best if len(best) == len(tables[table]) else None
    return found


def _joins_by_key(
    shape: Shape, tables: dict[str, tuple[str, ...]], one: TableColumn, other: TableColumn
) -> bool:
    names, others = tables[shape.tables[one[0]]], tables[shape.tables[other[0]]]
    if len(names) == 1:
        return one[1] == names[0] and other[1] == others[0]
    # Of a composite key, every column must be joined.
    pairs = {
        pair
        for a, b in shape.joins
        for pair in ((a[1], b[1]),)
        if (a[0], b[0]) == (one[0], other[0]) and a[1] in names
    } | {
        (b[1], a[1]) for a, b in shape.joins if (b[0], a[0]) == (one[0], other[0]) and b[1] in names
    }  # fmt: skip
    return all((name, there) in pairs for name, there in zip(names, others, strict=True))


def _strangers(shape: Shape, tables: dict[str, tuple[str, ...]]) -> set[str]:
    """Pairs of tables with the key that are joined, and not by the key."""
    pairs: dict[tuple[str, str], bool] = {}
    for one, other in shape.joins:
        names = shape.tables[one[0]], shape.tables[other[0]]
        if names[0] in tables and names[1] in tables:
            pair = (min(names), max(names))
            pairs[pair] = pairs.get(pair, False) or _joins_by_key(shape, tables, one, other)
    return {f"{one} and {other}" for (one, other), by_key in pairs.items() if not by_key}


def _value_of(bindings: list[Binding], values: list[str]) -> tuple[str, ...]:
    """The values of the key of one statement; a value that is not in the text is one of its own."""
    found = []
    for binding in bindings:
        if binding.value is None or binding.value >= len(values):
            found.append(f"?{id(binding)}")
            continue
        value = values[binding.value]
        if binding.place is not None:
            tuples = values_in(value)
            value = tuples[0][binding.place] if tuples and binding.place < len(tuples[0]) else value
        found.append(value.strip("'"))
    return tuple(found)


def _why(
    shape: Shape, tables: dict[str, tuple[str, ...]], members: set[str], hows: list[list[Binding] | None]
) -> str:
    alias = min(members)
    table = shape.tables[alias]
    key = ", ".join(tables[table])
    if any(how is not None for how in hows):
        return f"a range of {key} is on every shard once hashed"
    return f"no condition on {key} of {table}"


class _Groups:
    """Things that belong together (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[Any, Any] = {}

    def add(self, one: Any) -> None:
        self._parents.setdefault(one, one)

    def _root(self, one: Any) -> Any:
        self.add(one)
        while self._parents[one] != one:
            self._parents[one] = self._parents[self._parents[one]]
            one = self._parents[one]
        return one

    def join(self, one: Any, other: Any) -> None:
        self._parents[self._root(one)] = self._root(other)

    def all(self) -> list[set[Any]]:
        found: dict[Any, set[Any]] = defaultdict(set)
        for one in self._parents:
            found[self._root(one)].add(one)
        return list(found.values())


def joined(report: _R, queries: Queries) -> _R:
    """Return a report in which each candidate has its alignment, and a reason that says it."""
    keys = []
    for key in report.keys:
        fit = queries.align(key.columns)
        reasons = [
            reason for reason in key.reasons if reason.kind not in ("queries", "changed by statements")
        ]
        reasons += _reasons(fit)
        order = {"bad": 0, "doubtful": 1, "good": 2}
        reasons.sort(key=lambda reason: order[reason.verdict])
        keys.append(replace(key, queries=fit, reasons=tuple(reasons)))
    return replace(report, keys=tuple(keys), queries=queries)


def _reasons(fit: Alignment) -> list[Reason]:
    found = []
    keyed = 1 - fit.elsewhere
    single = fit.single / keyed if keyed else 0.0
    text = (
        f"of the calls, {fit.single:.0%} ask one shard, {fit.few:.0%} few, {fit.all:.0%} all; "
        f"{fit.elsewhere:.0%} are of tables "
        "without this key"
    )
    if fit.transactions is not None:
        text += f"; {fit.transactions:.0%} of the transactions stay on one value"
    if fit.fixes and fit.all > 0:
        text += f"; first fix: {fit.fixes[0].text[:100]} ({fit.fixes[0].calls:,} calls: {fit.fixes[0].why})"
    verdict: Literal["bad", "doubtful", "good"] = (
        "good" if single >= 0.9 else "doubtful" if single >= 0.5 else "bad"
    )
    found.append(Reason(verdict, "queries", text))
    if fit.updates:
        text = f"{fit.updates:.1%} of the calls update it, and each of these moves a row to another shard"
        found.append(Reason("bad" if fit.updates > 0.01 else "doubtful", "changed by statements", text))
    return found

"""The shape of a statement: its text without its values, parsed once. Needs the extra: ringhash[sql]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["Binding", "Shape", "TableColumn", "parse", "shape_of", "values_in"]

TableColumn: TypeAlias = tuple[str, str]
How: TypeAlias = Literal["one", "few", "range"]

_LITERAL = r"(?:[EeNnXx]?'(?:[^'\\]|\\.|'')*'|\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b|\$\d+|\bNULL\b|\?|%s)"
_TUPLE = rf"\(\s*-?{_LITERAL}(?:\s*,\s*-?{_LITERAL})*\s*\)"
# Most characters begin none of these: one look at the character spares five tries.
_BEGINS = r"(?=[\d'\"`$?%/EeNnXxIiVv\n\t-]|\s\s)"
_ONE = re.compile(
    rf"{_BEGINS}(?:(?P<list>\b(?:IN|VALUES)\s*{_TUPLE}(?:\s*,\s*{_TUPLE})*)|(?P<value>{_LITERAL})|(?P<gone>--[^\n]*|/\*.*?\*/)"
    rf"|(?P<name>\"[^\"]*\"|`[^`]*`)|(?P<space>\s{{2,}}|[\n\t]))",
    re.DOTALL | re.IGNORECASE,
)
_EACH = re.compile(_LITERAL, re.DOTALL | re.IGNORECASE)
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.|"")*"', re.DOTALL)


def shape_of(text: str, *, mysql: bool = False) -> tuple[str, list[str]]:
    """Return a statement with `?` in place of its values, and these values as they stand in it.

    A list of values after IN or VALUES is one value, so that its length does not make another shape.

    >>> shape_of("SELECT * FROM t WHERE a = 5 AND b IN ('x', 'y')")
    ('SELECT * FROM t WHERE a = ? AND b IN (?)', ['5', "IN ('x', 'y')"])
    """
    values: list[str] = []
    if mysql and '"' in text:
        text = _DOUBLE.sub(lambda match: "'" + match[0][1:-1].replace("'", "''") + "'", text)

    def plain(match: re.Match[str]) -> str:
        kind = match.lastgroup
        if kind == "value":
            if match[0].upper() == "NULL":
                return match[0]
            values.append(match[0])
            return "?"
        if kind == "list":
            values.append(match[0])
            word = match[0].split("(", 1)[0].rstrip()
            # Two rows are another thing than one, and ten are the same as two.
            return f"{word} (?), (NULL)" if len(values_in(match[0])) > 1 else f"{word} (?)"
        return match[0] if kind == "name" else " "

    return _ONE.sub(plain, text).strip(), values


def values_in(value: str) -> list[list[str]]:
    """Return the values of a list after IN or VALUES: of each tuple, its values."""
    return [_EACH.findall(part) for part in re.findall(_TUPLE, value, re.DOTALL | re.IGNORECASE)]


class Binding(NamedTuple):
    """A condition on a column: to one value, to few, or to a range.

    `value` is the number of the value in the shape, and `place` which one of a tuple it is (of an INSERT);
    None if it is no value of the statement.
    """

    table: str  # the alias
    column: str
    how: How
    value: int | None = None
    place: int | None = None


@dataclass(slots=True)
class Shape:
    """What is known of all statements of one shape."""

    text: str
    kind: str
    tables: dict[str, str] = field(
        default_factory=dict
    )  # the table of each alias, or of each part of a statement
    bindings: list[Binding] = field(default_factory=list)
    joins: list[tuple[TableColumn, TableColumn]] = field(default_factory=list)  # (alias, column) pairs
    written: set[TableColumn] = field(default_factory=set)  # (table, column) that an UPDATE sets
    columns: set[TableColumn] = field(default_factory=set)  # (table, column) that it names
    error: str | None = None


_CONTROL = re.compile(r"^\s*(BEGIN|START\s+TRANSACTION|COMMIT|END|ROLLBACK|ABORT)\b", re.IGNORECASE)
_OTHER = re.compile(
    r"^\s*(SET|SHOW|USE|EXPLAIN|ANALYZE|VACUUM|CREATE|ALTER|DROP|GRANT|SAVEPOINT|RELEASE|LOCK|UNLOCK|DISCARD"
    r"|DEALLOCATE|PREPARE|COPY|FLUSH|KILL|CALL|TRUNCATE|DESCRIBE|DESC)\b",
    re.IGNORECASE,
)


def parse(text: str, dialect: str, schema: Mapping[str, AbstractSet[str]] | None = None) -> Shape:
    """Return the shape of a text that `shape_of` made. What cannot be parsed has an `error`.

    `schema` has the columns of tables: it tells whose a column without a table is, where there are several.

    Raises:
        ImportError: sqlglot is missing.
    """
    control = _CONTROL.match(text)
    if control:
        word = control[1].split()[0].upper()
        return Shape(
            text,
            {"BEGIN": "begin", "START": "begin", "COMMIT": "commit", "END": "commit"}.get(word, "rollback"),
        )
    if _OTHER.match(text):
        return Shape(text, "other")
    try:
        import sqlglot  # noqa: PLC0415
    except ImportError:
        raise ImportError("statements are parsed with sqlglot: pip install 'ringhash[sql]'") from None
    numbers = iter(range(1 << 30))
    named = re.sub(
        r"\"[^\"]*\"|`[^`]*`|\?", lambda match: f":p{next(numbers)}" if match[0] == "?" else match[0], text
    )
    try:
        tree = sqlglot.parse_one(named, dialect=dialect)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        return Shape(text, "unread", error=" ".join(str(error).split())[:120])
    return _Reader(text, tree, schema or {}).shape


class _Reader:
    """Reads one tree: every SELECT in it is a part with tables of its own."""

    def __init__(self, text: str, tree: Any, schema: Mapping[str, AbstractSet[str]]) -> None:
        from sqlglot import exp  # noqa: PLC0415

        self.exp = exp
        self.schema = schema
        kinds = {exp.Insert: "insert", exp.Update: "update", exp.Delete: "delete"}
        self.shape = Shape(
            text, next((kind for cls, kind in kinds.items() if isinstance(tree, cls)), "select")
        )
        self.shadows = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
        self.parts = 0
        if isinstance(tree, exp.Insert):
            self._insert(tree)
        elif isinstance(tree, exp.Update | exp.Delete):
            self._part(tree)
        for select in tree.find_all(exp.Select):
            self._part(select)

    def _tables(self, part: Any) -> dict[str, str]:
        """The alias of each table of a part, made unique in the statement, by what the part calls it."""
        exp, found = self.exp, {}
        sources = [
            part.args.get("this"),
            part.args.get("from"),
            part.args.get("from_"),
            part.args.get("using"),
        ]
        sources += part.args.get("joins") or []
        for source in sources:
            for one in source if isinstance(source, list) else [source]:
                if not isinstance(one, exp.Expression):
                    continue
                for table in self._tables_in(one):
                    name = table.name.lower()
                    if name in self.shadows or not name:
                        continue
                    alias = f"{self.parts}.{(table.alias or name).lower()}"
                    self.shape.tables[alias] = name
                    found[(table.alias or name).lower()] = alias
        return found

    def _tables_in(self, source: Any) -> Iterator[Any]:
        """Tables of a FROM, not those of the SELECTs within it."""
        exp = self.exp
        if isinstance(source, exp.Table):
            yield source
            for join in source.args.get("joins") or []:
                yield from self._tables_in(join)
            return
        if isinstance(source, exp.Select | exp.Subquery | exp.CTE):
            return
        for child in source.iter_expressions():
            if not isinstance(child, exp.Condition) or isinstance(child, exp.Table):
                yield from self._tables_in(child)

    def _part(self, part: Any) -> None:
        exp = self.exp
        names = self._tables(part)
        self.parts += 1
        for column in self._own(part, exp.Column):
            found = self._column(column, names)
            if found is not None:
                self.shape.columns.add((self.shape.tables[found[0]], found[1]))
        conditions = [part.args.get("where")]
        for join in part.args.get("joins") or []:
            if (join.args.get("side") or "").upper() in ("", "LEFT", "RIGHT", "FULL"):
                conditions.append(join.args.get("on"))
            for using in join.args.get("using") or []:
                aliases = list(names.values())
                self.shape.joins += [
                    ((one, using.name.lower()), (aliases[0], using.name.lower())) for one in aliases[1:]
                ]
        for condition in conditions:
            if condition is not None:
                self._conditions(condition.this if isinstance(condition, exp.Where) else condition, names)
        if isinstance(part, exp.Update):
            table = next(iter(names.values()), None)
            for assignment in part.expressions:
                if isinstance(assignment, exp.EQ) and table is not None:
                    column = assignment.this.name.lower()
                    self.shape.written.add((self.shape.tables[table], column))

    def _own(self, part: Any, kind: Any) -> Iterator[Any]:
        """The nodes of a kind within a part, not within its subqueries."""
        exp = self.exp
        for node in part.walk(prune=lambda node: node is not part and isinstance(node, exp.Select)):
            if isinstance(node, kind):
                yield node

    def _column(self, node: Any, names: dict[str, str]) -> TableColumn | None:
        if not isinstance(node, self.exp.Column):
            return None
        alias = node.table.lower()
        if alias:
            return (names[alias], node.name.lower()) if alias in names else None
        name = node.name.lower()
        places = set(names.values())
        if self.schema:
            places = {it for it in places if name in self.schema.get(self.shape.tables.get(it, ""), (name,))}
        return (places.pop(), name) if len(places) == 1 else None

    def _conditions(self, node: Any, names: dict[str, str]) -> None:
        exp = self.exp
        node = node.unnest()
        if isinstance(node, exp.And):
            self._conditions(node.left, names)
            self._conditions(node.right, names)
        elif isinstance(node, exp.EQ | exp.NullSafeEQ):
            one, other = self._column(node.left, names), self._column(node.right, names)
            if one and other:
                if one[0] != other[0]:
                    self.shape.joins.append((one, other))
            elif one or other:
                found = one or other
                value = node.right if one else node.left
                if found and not value.find(exp.Column, exp.Select):
                    self._bind(found, "one", self._number(value))
        elif isinstance(node, exp.In):
            found = self._column(node.this, names)
            if found and not node.args.get("query") and node.expressions:
                self._bind(found, "few", self._number(node.expressions[0]))
        elif isinstance(node, exp.Or):
            columns = {self._equal(part, names) for part in node.flatten()}
            found = columns.pop() if len(columns) == 1 else None
            if found:
                self._bind(found, "few", None)
        elif isinstance(node, exp.Between | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Like):
            found = self._column(node.this, names)
            if found:
                self._bind(found, "range", None)

    def _equal(self, node: Any, names: dict[str, str]) -> TableColumn | None:
        node = node.unnest()
        if not isinstance(node, self.exp.EQ | self.exp.In) or node.find(self.exp.Select):
            return None
        return self._column(node.this, names)

    def _number(self, value: Any) -> int | None:
        placeholder = value.find(self.exp.Placeholder)
        name = placeholder.name if placeholder is not None else ""
        return int(name[1:]) if name[:1] == "p" and name[1:].isdigit() else None

    def _bind(self, column: TableColumn, how: How, value: int | None, place: int | None = None) -> None:
        self.shape.bindings.append(Binding(*column, how, value, place))

    def _insert(self, tree: Any) -> None:
        exp = self.exp
        schema = tree.this
        table = schema.this if isinstance(schema, exp.Schema) else schema
        name = table.name.lower()
        alias = f"{self.parts}.{name}"
        self.parts += 1
        self.shape.tables[alias] = name
        columns = (
            [column.name.lower() for column in schema.expressions] if isinstance(schema, exp.Schema) else []
        )
        self.shape.columns |= {(name, column) for column in columns}
        values = tree.expression
        if not isinstance(values, exp.Values) or not values.expressions:
            return
        row = values.expressions[0]
        cells = row.expressions if isinstance(row, exp.Tuple) else [row]
        how: How = "one" if len(values.expressions) == 1 else "few"
        whole = self._number(cells[0]) if len(cells) == 1 else None
        for i, column in enumerate(columns):
            if whole is not None:
                self._bind((alias, column), how, whole, i)
            elif i < len(cells):
                self._bind((alias, column), how, self._number(cells[i]))

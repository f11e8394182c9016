"""What a statement says about the keys of its tables.

A table is *bound* by the values that its key must have: `key == 7`, `key IN (...)`, or such conditions
joined by AND and OR. An equality of two keys, or of a foreign key and what it references, binds a table like
the one beside it, since such rows lie together. What is not understood binds nothing, so the statement is
refused: a condition that is read wrongly would give a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sqlalchemy import Column, Delete, Select, Table, Update
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import (
    BinaryExpression,
    BindParameter,
    BooleanClauseList,
    ClauseElement,
    ColumnClause,
    Grouping,
    TextClause,
)
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import (
    CTE,
    Alias,
    CompoundSelect,
    FromClause,
    FromGrouping,
    Join,
    SelectBase,
    SelectStatementGrouping,
    Subquery,
)

from ringhash.contrib.sqlalchemy.errors import CrossShardError, NoKeyError
from ringhash.contrib.sqlalchemy.keys import Keys, checked

__all__ = ["Binding", "bindings", "refuse_merge"]


@dataclass(frozen=True)
class Binding:
    """The keys that the rows of a table may have, and the number of the condition that says so.

    `values` None: any key, since the statement may ask all shards.
    """

    root: int
    values: frozenset[Any] | None


@dataclass
class _Scope:
    """The tables of one SELECT, or of the side of an outer join that may have no row."""

    tables: list[FromClause] = field(default_factory=list)
    conditions: list[ClauseElement] = field(default_factory=list)
    optional: list[_Scope] = field(default_factory=list)
    inner: list[SelectBase] = field(default_factory=list)
    derived: list[SelectBase] = field(default_factory=list)  # in FROM, where nothing outside is seen

    def all_tables(self) -> list[FromClause]:
        return [*self.tables, *(table for scope in self.optional for table in scope.all_tables())]


def bindings(
    statement: Any, keys: Keys, parameters: Mapping[str, Any], scatter: bool
) -> tuple[list[Binding], list[Any]]:
    """Return how each sharded table of a statement is bound, and the SELECTs that are in it.

    Nothing is bound if all of its tables are everywhere.

    Raises:
        NoKeyError: A table is not bound, or is not known.
    """
    reader = _Reader(keys, parameters, scatter)
    return list(reader.statement(statement, {}, ())), reader.selects


class _Reader:
    def __init__(self, keys: Keys, parameters: Mapping[str, Any], scatter: bool) -> None:
        self.keys = keys
        self.parameters = parameters
        self.scatter = scatter
        self.scattered = False  # one table may be read as a whole; the others must be joined to it
        self.read: set[int] = set()  # a recursive CTE is in itself
        self.selects: list[Any] = []
        self.roots = count()

    def statement(
        self, statement: Any, outer: dict[FromClause, Binding], enclosing: Sequence[FromClause]
    ) -> Iterator[Binding]:
        """`outer` is how all tables around are bound, `enclosing` those of the SELECT right around."""
        while isinstance(statement, SelectStatementGrouping):
            statement = statement.element
        if isinstance(statement, SelectBase):
            self.selects.append(statement)
        if isinstance(statement, CompoundSelect):
            for part in statement.selects:
                yield from self.statement(part, outer, enclosing)
        elif isinstance(statement, (Select, Update, Delete)):
            scope = self.scope_of(statement, outer, enclosing)
            yield from self.scope(scope, outer, scope.all_tables())
        else:
            raise NoKeyError(
                f"no shard follows from this {type(statement).__name__}; name one: "
                "session.execute(statement, bind_arguments=sharding.at(key))"
            )

    # --- the tables and conditions of a scope ---

    def scope_of(
        self, statement: Any, outer: Mapping[FromClause, Binding], enclosing: Sequence[FromClause]
    ) -> _Scope:
        scope = _Scope()
        if isinstance(statement, Select):
            froms: list[Any] = (
                list(statement.get_final_froms())
                if statement._setup_joins
                else [*statement.columns_clause_froms, *statement._from_obj]
            )
            looked: list[Any] = [*statement._raw_columns, *statement._having_criteria]
            looked += [*statement._order_by_clauses, *statement._group_by_clauses]
        else:
            froms, looked = [statement.table], []
            if isinstance(statement, Update):
                looked = [
                    value for value in (statement._values or {}).values() if isinstance(value, ClauseElement)
                ]
        for source in froms:
            self.add(source, scope)
        scope.conditions += statement._where_criteria
        for clause in (*scope.conditions, *looked):
            for table in self.look(clause, scope):
                if not _is_in(table, scope):
                    scope.tables.append(table)
        if isinstance(statement, Select) and enclosing:
            joined = [source for source in froms if isinstance(source, (Join, FromGrouping))]
            bare = [table for table in scope.tables if not any(table in _tables_of(join) for join in joined)]
            froms_count = len(joined) + len(bare) + len(scope.derived)
            seen = [
                table for table in bare if _is_correlated(statement, table, outer, enclosing, froms_count)
            ]
            scope.tables = [table for table in scope.tables if not _is_one_of(table, seen)]
        return scope

    def add(self, source: Any, scope: _Scope) -> None:
        if isinstance(source, FromGrouping):
            self.add(source.element, scope)
        elif isinstance(source, Join):
            if source.full:
                self.add(source.left, _optional(scope))
                self.add(source.right, _optional(scope))
                return
            self.add(source.left, scope)
            inner = _optional(scope) if source.isouter else scope
            self.add(source.right, inner)
            if source.onclause is not None:
                inner.conditions.append(source.onclause)
                if source.isouter:
                    list(self.look(source.onclause, scope))
        elif isinstance(source, (Subquery, CTE)):
            scope.derived.append(source.element)  # type: ignore[arg-type]
        elif isinstance(source, Alias) and isinstance(source.element, (Subquery, CTE)):
            scope.derived.append(source.element.element)  # type: ignore[arg-type]
        elif isinstance(source, FromClause) and _table(source) is not None:
            if not _is_in(source, scope):
                scope.tables.append(source)
        else:
            raise NoKeyError(
                f"no shard follows from FROM {source}; name one with bind_arguments=sharding.at(key)"
            )

    def look(self, clause: Any, scope: _Scope) -> Iterator[FromClause]:
        """Take the SELECTs within a clause, and yield the tables of its columns."""
        if isinstance(clause, SelectBase):
            scope.inner.append(clause)
            return
        if isinstance(clause, ColumnClause) and clause.table is not None and _table(clause.table) is not None:
            yield clause.table
            return
        if isinstance(clause, FromClause):
            return
        for child in clause.get_children():
            yield from self.look(child, scope)

    # --- what binds them ---

    def scope(
        self, scope: _Scope, outer: dict[FromClause, Binding], tables: Sequence[FromClause]
    ) -> Iterator[Binding]:
        # A table of its own hides one around it, which has the same name.
        bound = {source: binding for source, binding in outer.items() if not _is_one_of(source, scope.tables)}
        unbound: list[FromClause] = []
        for source in scope.tables:
            table = _table(source)
            if table in self.keys.columns:
                values = self.values_of_all(scope.conditions, source)
                if values is not None:
                    bound[source] = Binding(next(self.roots), values)
                else:
                    unbound.append(source)
            elif table not in self.keys.everywhere:
                raise NoKeyError(f"the table {table} has no key: name its class in keys, or in everywhere")
        links = list(self.links(scope.conditions))
        while unbound:
            unbound = self.follow(unbound, links, bound)
            if not unbound:
                break
            if not self.scatter or self.scattered:
                raise self.no_key(unbound[0])
            self.scattered = True
            bound[unbound[0]] = Binding(next(self.roots), None)
            del unbound[0]
        yield from (bound[source] for source in scope.tables if source in bound)
        for optional in scope.optional:
            yield from self.scope(optional, bound, tables)
        for inner in scope.inner:
            yield from self.statement(inner, bound, tables)
        for derived in scope.derived:
            if id(derived) not in self.read:
                self.read.add(id(derived))
                yield from self.statement(derived, {}, ())

    @staticmethod
    def follow(
        unbound: list[FromClause],
        links: list[tuple[FromClause, FromClause]],
        bound: dict[FromClause, Binding],
    ) -> list[FromClause]:
        """Bind what is linked to what is bound; return the rest."""
        found = True
        while found:
            found = False
            for one, other in links:
                for here, there in ((one, other), (other, one)):
                    if here in bound and there not in bound and _is_one_of(there, unbound):
                        bound[there] = bound[here]
                        found = True
        return [source for source in unbound if source not in bound]

    def no_key(self, source: FromClause) -> NoKeyError:
        column = self.keys.columns[_table(source)]  # type: ignore[index]
        return NoKeyError(
            f"the statement does not say which {column} it is about: add .where({column} == ...), "
            "or allow all shards with execution_options(scatter=True)"
        )

    def links(self, conditions: list[ClauseElement]) -> Iterator[tuple[FromClause, FromClause]]:
        """The pairs of tables whose rows lie together, since the conditions join them by key."""
        for clause in conditions:
            plain = _ungrouped(clause)
            if isinstance(plain, BooleanClauseList) and plain.operator is operators.and_:
                yield from self.links(list(plain.clauses))
            elif isinstance(plain, BinaryExpression) and plain.operator is operators.eq:
                left, right = _ungrouped(plain.left), _ungrouped(plain.right)
                if (
                    isinstance(left, ColumnClause)
                    and isinstance(right, ColumnClause)
                    and self.together(left, right)
                ):
                    yield left.table, right.table  # type: ignore[misc]

    def together(self, left: ColumnClause[Any], right: ColumnClause[Any]) -> bool:
        one, other = _column(left), _column(right)
        if one is None or other is None:
            return False
        keys = self.keys.columns
        if keys.get(one.table) is one and keys.get(other.table) is other:
            return True
        return one.references(other) or other.references(one)

    def values_of_all(self, conditions: list[ClauseElement], source: FromClause) -> frozenset[Any] | None:
        found = None
        for clause in conditions:
            values = self.values(clause, source)
            if values is not None:
                found = values if found is None else found & values
        return found

    def values(self, clause: Any, source: FromClause) -> frozenset[Any] | None:
        """The values that the key of a table has where a condition is true; None if it may have any."""
        clause = _ungrouped(clause)
        if isinstance(clause, BooleanClauseList):
            if clause.operator is operators.and_:
                return self.values_of_all(list(clause.clauses), source)
            if clause.operator is operators.or_:
                parts = [self.values(part, source) for part in clause.clauses]
                if any(part is None for part in parts):
                    return None
                return frozenset[Any]().union(*(part for part in parts if part is not None))
            return None
        if not isinstance(clause, BinaryExpression):
            return None
        left, right = _ungrouped(clause.left), _ungrouped(clause.right)
        if clause.operator is operators.eq:
            if isinstance(left, BindParameter):
                left, right = right, left
            if self.is_key(left, source) and isinstance(right, BindParameter):
                return self.given(right, source, listed=False)
        elif (
            clause.operator is operators.in_op
            and self.is_key(left, source)
            and isinstance(right, BindParameter)
            and right.expanding
        ):
            return self.given(right, source, listed=True)
        return None

    def is_key(self, column: Any, source: FromClause) -> bool:
        if not isinstance(column, ColumnClause) or column.table is None or column.table != source:
            return False
        plain = _column(column)
        return plain is not None and self.keys.columns.get(plain.table) is plain

    def given(self, parameter: BindParameter[Any], source: FromClause, *, listed: bool) -> frozenset[Any]:
        column = self.keys.columns[_table(source)]  # type: ignore[index]
        if parameter.key in self.parameters:
            value = self.parameters[parameter.key]
        elif parameter.required:
            raise NoKeyError(f"the statement needs a value for its parameter {parameter.key!r}")
        else:
            value = parameter.effective_value
        values = value if listed else [value]
        # NULL is equal to nothing, so a None finds no row on any shard.
        return frozenset(checked(column, one) for one in values if one is not None)


def refuse_merge(selects: list[Any]) -> None:
    """Refuse SELECTs whose answer is not the answers of the shards one after the other.

    Raises:
        CrossShardError: One orders, limits, groups, counts, joins sets, or has columns that are text.
    """
    found = [word for select in selects for word in _whole(select)]
    if found:
        raise CrossShardError(
            f"{', '.join(found)} over several shards: each shard would answer for its own rows only. "
            "Ask one shard, do it on the rows, or use ringhash.scatter"
        )


def _whole(select: Any) -> Iterator[str]:
    """What a SELECT does with all of its rows."""
    if not isinstance(select, Select):
        yield type(select).__name__
        return
    for word, there in (
        ("ORDER BY", select._order_by_clauses),
        ("LIMIT", select._limit_clause is not None or select._fetch_clause is not None),
        ("OFFSET", select._offset_clause is not None),
        ("GROUP BY", select._group_by_clauses),
        ("HAVING", select._having_criteria),
        ("DISTINCT", select._distinct),
    ):
        if there:
            yield word
    for column in select._raw_columns:
        for part in visitors.iterate(column):
            if isinstance(part, FunctionElement):
                yield f"{part.name}()"
            elif (
                isinstance(part, TextClause) or (isinstance(part, ColumnClause) and part.is_literal)
            ) and str(part) not in {"1", "*"}:  # those of EXISTS
                yield f"the text {str(part)!r}"


def _is_correlated(
    statement: Any,
    table: FromClause,
    outer: Mapping[FromClause, Binding],
    enclosing: Sequence[FromClause],
    froms_count: int,
) -> bool:
    """Whether a table of an inner SELECT is that of a SELECT around it, as SQLAlchemy decides it."""
    if table not in outer and not _is_one_of(table, list(enclosing)):
        return False
    if statement._auto_correlate:
        return froms_count > 1 and _is_one_of(table, list(enclosing))
    if statement._correlate_except is not None:
        return not _is_one_of(table, list(statement._correlate_except))
    return _is_one_of(table, list(statement._correlate))


def _tables_of(source: Any) -> list[FromClause]:
    if isinstance(source, FromGrouping):
        return _tables_of(source.element)
    if isinstance(source, Join):
        return [*_tables_of(source.left), *_tables_of(source.right)]
    return [source]


def _optional(scope: _Scope) -> _Scope:
    scope.optional.append(_Scope())
    return scope.optional[-1]


def _is_in(source: FromClause, scope: _Scope) -> bool:
    return _is_one_of(source, scope.tables) or any(_is_in(source, inner) for inner in scope.optional)


def _is_one_of(source: FromClause, tables: list[FromClause]) -> bool:
    return any(source == table for table in tables)


def _ungrouped(clause: Any) -> Any:
    while isinstance(clause, Grouping):
        clause = clause.element
    return clause


def _table(source: Any) -> Table | None:
    """The table itself, for it or an alias of it."""
    if isinstance(source, Alias):
        source = source.element
    plain = source._deannotate() if isinstance(source, FromClause) else source
    return plain if isinstance(plain, Table) else None


def _column(column: ColumnClause[Any]) -> Column[Any] | None:
    """The column of the table itself, for it or that of an alias."""
    table = _table(column.table)
    return None if table is None else table.columns.get(column.key)

"""The choosers of SQLAlchemy's horizontal sharding, made from a router."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from sqlalchemy import Delete, Engine, Insert, Update, inspect
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Mapper, ORMExecuteState, sessionmaker
from sqlalchemy.sql.selectable import SelectBase

from ringhash.contrib.sqlalchemy.errors import CrossShardError, KeyChangeError, NoKeyError
from ringhash.contrib.sqlalchemy.keys import Keys, checked
from ringhash.contrib.sqlalchemy.session import ShardSession
from ringhash.contrib.sqlalchemy.where import bindings, refuse_merge

__all__ = ["Sharding"]


class Sharding:
    """Which shard a statement, an object or an identity belongs to, for SQLAlchemy's sessions.

    Args:
        router: A `Router` or a placement; its nodes are the shards.
        engines: The engine of each shard by the name of its node; all `Engine` or all `AsyncEngine`.
            There may be more than the router has now.
        keys: The attribute with the key of each sharded class, by name or as `Order.user_id`; and the column
            of each sharded `Table` without a class.
        everywhere: Classes, and tables, whose rows every shard has, such as countries. They are read at any
            shard.

    Raises:
        ValueError: An engine is missing, or a class has no such column in each of its tables.

    Threads may share it; each needs its own session, as always.

    Cost: about 0.1 ms a statement on one table, beside that of SQLAlchemy; with `join`, about 0.7 ms.
    """

    def __init__(
        self,
        router: Any,
        engines: Mapping[str, Engine] | Mapping[str, AsyncEngine],
        *,
        keys: Mapping[Any, Any],
        everywhere: Iterable[Any] = (),
    ) -> None:
        self.router = router
        self.engines: dict[str, Engine] = {
            name: engine.sync_engine if isinstance(engine, AsyncEngine) else engine
            for name, engine in engines.items()
        }
        self.keys = Keys(keys, everywhere)
        missing = [name for name in router.names if name not in self.engines]
        if missing:
            raise ValueError(f"the router has the node {missing[0]!r}, which has no engine")

    def sessionmaker(self, **options: Any) -> sessionmaker[ShardSession]:
        """Return a `sessionmaker` of sharded sessions; `options` are those of a session.

        `Session()` goes wherever each statement belongs. `Session(key=7)` stays on the shard of that key.
        """
        return sessionmaker(class_=ShardSession, sharding=self, **options)

    def async_sessionmaker(self, **options: Any) -> async_sessionmaker[AsyncSession]:
        """Return an `async_sessionmaker` of sharded sessions, for the engines of asyncio."""
        return async_sessionmaker(sync_session_class=ShardSession, sharding=self, **options)

    def owner(self, key: Hashable) -> str:
        """Return the shard of a key.

        Raises:
            LookupError: Its node has no engine here.
        """
        name: str = self.router.owner(key)
        if name not in self.engines:
            raise LookupError(
                f"the key {key!r} belongs to {name!r}, which has no engine; have {[*self.engines]}"
            )
        return name

    def at(self, key: Hashable) -> dict[str, str]:
        """Return the `bind_arguments` that send a statement or a lookup to the shard of a key."""
        return {"shard_id": self.owner(key)}

    # --- the three choosers of SQLAlchemy ---

    def shard_of_instance(self, mapper: Mapper[Any], instance: Any) -> str:
        """Return the shard of a new object, by its key."""
        name = self.keys.name(mapper)
        if name is None:
            raise NoKeyError(
                f"{mapper.class_.__name__} is on every shard: use session.execute(insert(...), rows, "
                "execution_options={'scatter': True})"
            )
        return self.owner(self._checked(mapper, getattr(instance, name)))

    def shard_of_identity(self, mapper: Mapper[Any], primary_key: Any) -> str:
        """Return the shard of a primary key that has the key in it."""
        if self.keys.name(mapper) is None:
            return next(iter(self.engines))
        index = self.keys.identity_index(mapper)
        if index is None:
            raise NoKeyError(
                f"the key is no part of the primary key of {mapper.class_.__name__}, "
                f"so {primary_key!r} may be on each of {[*self.engines]}: "
                "use bind_arguments=sharding.at(key), or select by the key"
            )
        identity = primary_key if isinstance(primary_key, (tuple, list)) else (primary_key,)
        return self.owner(self._checked(mapper, identity[index]))

    def shards_of_statement(self, state: ORMExecuteState) -> list[str]:
        """Return the shards that a statement must ask."""
        statement: Any = getattr(state.statement, "_resolved", state.statement)
        scatter = state.execution_options.get("scatter") is True
        if isinstance(statement, Insert):
            return self._shards_of_insert(statement, scatter)
        if isinstance(statement, Update):
            self._refuse_key_change(statement, state.parameters)
        if state.is_executemany:
            raise NoKeyError("many rows of parameters say no shard here: execute one statement for each")
        parameters = state.parameters if isinstance(state.parameters, Mapping) else {}
        found, selects = bindings(statement, self.keys, parameters, scatter)
        if not found:
            return self._everywhere(statement, scatter)
        if any(binding.values is None for binding in found):
            shards = list(self.engines)
        else:
            keys = [key for binding in found for key in binding.values or ()]
            shards = list(dict.fromkeys(self.owner(key) for key in keys)) or [next(iter(self.engines))]
        if len(shards) > 1:
            if len({binding.root for binding in found}) > 1:
                raise CrossShardError(
                    f"the tables are not joined by key, and their keys lie on {shards}: rows that belong "
                    "together would be missed"
                )
            refuse_merge(selects)
        return shards

    def shards_within(self, state: ORMExecuteState, shard: str) -> list[str]:
        """Return the one shard of a session that stays there.

        Raises:
            CrossShardError: The statement is about keys of another one.
        """
        try:
            found = self.shards_of_statement(state)
        except NoKeyError:
            if isinstance(state.statement, Insert):
                raise
            return [shard]
        keyless = not isinstance(state.statement, Insert) and self._is_everywhere(state)
        if found != [shard] and not keyless:
            raise CrossShardError(f"this goes to {found}, and the session stays on {shard!r}")
        return [shard]

    def is_in_identity(self, mapper: Mapper[Any]) -> bool:
        """Whether a primary key says the shard."""
        return self.keys.name(mapper) is not None and self.keys.identity_index(mapper) is not None

    def _is_everywhere(self, state: ORMExecuteState) -> bool:
        parameters = state.parameters if isinstance(state.parameters, Mapping) else {}
        return (
            isinstance(state.statement, SelectBase)
            and not bindings(state.statement, self.keys, parameters, scatter=True)[0]
        )

    def _everywhere(self, statement: Any, scatter: bool) -> list[str]:
        if not isinstance(statement, (Update, Delete)):
            return [next(iter(self.engines))]
        if not scatter:
            raise NoKeyError(
                f"{statement.table} is on every shard: allow all of them with execution_options(scatter=True)"
            )
        return list(self.engines)

    def _shards_of_insert(self, statement: Insert, scatter: bool) -> list[str]:
        """Rows that are given beside the statement have been split before; here are those within it."""
        table: Any = statement.table._deannotate()
        if table in self.keys.everywhere and scatter:
            return list(self.engines)
        column = self.keys.columns.get(table)
        if column is None:
            raise NoKeyError(
                f"{table} has no key: name it in keys; rows that all shards have need "
                "execution_options(scatter=True)"
            )
        shards = list(dict.fromkeys(self.owner(checked(column, row)) for row in _inserted(statement, column)))
        if len(shards) > 1:
            raise CrossShardError(
                f"the rows of .values([...]) lie on {shards}: give them beside the statement, "
                "session.execute(insert(...), rows), which splits them"
            )
        return shards

    def split(
        self, statement: Any, rows: list[Mapping[str, Any]], scatter: bool
    ) -> dict[str, list[Mapping[str, Any]]]:
        """Return the rows of a bulk INSERT, or of an UPDATE by primary key, by shard.

        Raises:
            NoKeyError: A row has no key.
        """
        table: Any = statement.table._deannotate()
        if table in self.keys.everywhere and scatter:
            return dict.fromkeys(self.engines, rows)
        column = self.keys.columns.get(table)
        if column is None:
            raise NoKeyError(
                f"{table} has no key: name it in keys; rows that all shards have need "
                "execution_options={'scatter': True}"
            )
        mapper = statement._propagate_attrs.get("plugin_subject")
        names = {column.key, column.name}
        if mapper is not None:
            names = {self.keys.names[inspect(mapper)]}
        if isinstance(statement, Update) and (
            mapper is None or statement._where_criteria or statement._values
        ):
            raise NoKeyError("rows of parameters say no shard of this UPDATE: execute one statement for each")
        if isinstance(statement, Update) and not column.primary_key:
            raise KeyChangeError(
                f"rows to update by their primary key say no shard, since {column} is no part of it: "
                "update them by a statement with .where(...)"
            )
        parts: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            key = next((row[name] for name in names if name in row), None)
            parts.setdefault(self.owner(checked(column, key)), []).append(row)
        return parts

    def is_split(self, state: ORMExecuteState) -> bool:
        """Whether rows beside the statement say where it goes."""
        statement = state.statement
        if not isinstance(statement, (Insert, Update)) or not state.parameters:
            return False
        if isinstance(statement, Update):
            return state.is_executemany
        column = self.keys.columns.get(statement.table._deannotate())  # type: ignore[call-overload]
        return column is None or not any(True for _ in _given(statement, column))

    def _refuse_key_change(self, statement: Update, parameters: Any) -> None:
        column = self.keys.columns.get(statement.table._deannotate())  # type: ignore[call-overload]
        if column is None:
            return
        given = {getattr(name, "key", name) for name in statement._values or {}}
        if isinstance(parameters, Mapping) and not statement._values:
            given |= parameters.keys()
        if column.key in given:
            raise KeyChangeError(
                f"UPDATE sets the key {column}: delete the row, and insert it at its new owner"
            )

    def _checked(self, mapper: Mapper[Any], value: Any) -> Any:
        return checked(self.keys.columns[mapper.local_table], value)  # type: ignore[index]


def _given(statement: Insert, column: Any) -> Iterable[Any]:
    many: list[Any] = [row for rows in statement._multi_values for row in rows]
    for row in (statement._values or {}, *many):
        for name, value in row.items():
            if name in (column.key, column.name) or getattr(name, "key", None) == column.key:
                yield getattr(value, "value", value)


def _inserted(statement: Insert, column: Any) -> list[Any]:
    rows = list(_given(statement, column))
    if not rows or statement.select is not None:
        raise NoKeyError(f"INSERT names no {column}: give the rows with their keys")
    return rows

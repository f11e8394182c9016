"""A session that goes to the shard where each row lives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, inspect
from sqlalchemy.ext.horizontal_shard import ShardedSession, set_shard_id
from sqlalchemy.orm import Mapper, ORMExecuteState, Session

from ringhash.contrib.sqlalchemy.errors import CrossShardError, KeyChangeError

if TYPE_CHECKING:
    from ringhash.contrib.sqlalchemy.sharding import Sharding

__all__ = ["ShardSession"]


class ShardSession(ShardedSession):
    """A `ShardedSession` with the choosers of a `Sharding`; its `sessionmaker` makes it.

    Args:
        sharding: Says where rows live.
        key: If given, the session stays on the shard of this key: statements without a key are asked there
            alone, and rows of another shard are refused.
        options: Those of a session. With `twophase=True` a commit on several shards is one, where the
            databases can; without it a crash between two commits leaves the first.
    """

    def __init__(self, sharding: Sharding, *, key: Hashable = None, **options: Any) -> None:
        self.sharding = sharding
        self.shard = None if key is None else sharding.owner(key)
        self._bulk: str | None = None
        super().__init__(
            shard_chooser=self._shard_of_instance,
            identity_chooser=self._shards_of_identity,
            execute_chooser=self._shards_of_statement,
            shards=sharding.engines,
            **options,
        )
        # Before the listener of ShardedSession, which would give all rows to each shard.
        event.listen(self, "do_orm_execute", _split, retval=True, insert=True)
        event.listen(self, "before_flush", _refuse_key_changes)

    def get_bind(self, mapper: Any = None, *, shard_id: str | None = None, **options: Any) -> Any:
        """Return the engine of a shard; as in SQLAlchemy."""
        shard = shard_id or self._bulk
        if shard is not None:
            self._here(shard)
        if shard is None and mapper is None:
            shard = self._shard_of_instance(None, None)
        return super().get_bind(mapper, shard_id=shard, **options)

    def _here(self, shard: str) -> str:
        if self.shard is not None and shard != self.shard:
            raise CrossShardError(f"this goes to {shard!r}, and the session stays on {self.shard!r}")
        return shard

    def _shard_of_instance(
        self,
        mapper: Mapper[Any] | None,
        instance: Any,
        clause: Any = None,  # noqa: ARG002
    ) -> str:
        if instance is None or mapper is None:
            if self.shard is not None:
                return self.shard
            raise CrossShardError(
                "no shard follows from a connection without a statement: use Session(key=...), or "
                "session.connection(bind_arguments=sharding.at(key))"
            )
        return self._here(self.sharding.shard_of_instance(mapper, instance))

    def _shards_of_identity(
        self,
        mapper: Mapper[Any],
        primary_key: Any,
        *,
        lazy_loaded_from: Any = None,
        execution_options: Mapping[str, Any] | None = None,  # noqa: ARG002
        bind_arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> Iterable[str]:
        if lazy_loaded_from is not None and lazy_loaded_from.identity_token is not None:
            shard: str = lazy_loaded_from.identity_token
            return [shard]
        if bind_arguments and "shard_id" in bind_arguments:
            return [self._here(bind_arguments["shard_id"])]
        if self.shard is not None and not self.sharding.is_in_identity(mapper):
            return [self.shard]
        return [self._here(self.sharding.shard_of_identity(mapper, primary_key))]

    def _shards_of_statement(self, state: ORMExecuteState) -> Iterable[str]:
        parent = state.lazy_loaded_from if state.is_select else None
        if parent is not None and parent.identity_token is not None:
            return [str(parent.identity_token)]
        if self.shard is None:
            return self.sharding.shards_of_statement(state)
        return self.sharding.shards_within(state, self.shard)

    def run_bulk(self, state: ORMExecuteState, shard: str, rows: list[Mapping[str, Any]]) -> Any:
        """Carry out a bulk statement for the rows of one shard."""
        given = state.parameters
        # SQLAlchemy refuses bulk statements of sessions that choose a connection per object. All of these
        # objects are of one shard, so there is nothing to choose.
        self._bulk = self._here(shard)
        vars(self)["connection_callable"] = None
        try:
            with self.no_autoflush:
                state.parameters = rows
                return state.invoke_statement(bind_arguments={"shard_id": shard})
        finally:
            state.parameters = given
            del vars(self)["connection_callable"]
            self._bulk = None


def _split(state: ORMExecuteState) -> Any:
    """Give each shard its own rows of a bulk statement."""
    session: Any = state.session
    if "shard_id" in state.bind_arguments or any(
        isinstance(option, set_shard_id) for option in state._non_compile_orm_options
    ):
        return None
    sharding: Sharding = session.sharding
    if not sharding.is_split(state):
        return None
    rows: Any = state.parameters if state.is_executemany else [state.parameters]
    parts = sharding.split(state.statement, rows, state.execution_options.get("scatter") is True)
    statement: Any = state.statement
    if len(parts) > 1 and getattr(statement, "_sort_by_parameter_order", False):
        raise CrossShardError(
            f"sort_by_parameter_order over the shards {[*parts]}: return the key too, and sort the rows by it"
        )
    for shard in parts:
        session._here(shard)
    if session.autoflush and state.execution_options.get("autoflush", True):
        session.flush()  # here, where each object still goes to its own shard
    results = [session.run_bulk(state, shard, part) for shard, part in parts.items()]
    return results[0].merge(*results[1:]) if len(results) > 1 else results[0]


def _refuse_key_changes(session: Session, *_: Any) -> None:
    sharding: Sharding = session.sharding  # type: ignore[attr-defined]
    for instance in session.new:
        # A shard that a failed flush chose; the key may have changed since.
        inspect(instance).identity_token = None
    for instance in session.dirty:
        state = inspect(instance)
        name = sharding.keys.names.get(state.mapper)
        if name is None:
            continue
        history = state.attrs[name].history
        if history.has_changes():
            raise KeyChangeError(
                f"{state.mapper.class_.__name__}.{name} is the key and cannot change; here from "
                f"{history.deleted} to {history.added}: delete the row, and add it at its new owner"
            )

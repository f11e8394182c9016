"""A database router of Django over any router of ringhash."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

from ringhash.contrib.django.context import current_database
from ringhash.contrib.django.errors import CrossShardError, NoKeyError

__all__ = ["ShardRouter", "label_of", "shard_router"]


class ShardRouter:
    """What `DATABASE_ROUTERS` takes: sharded models go to the database of their key.

    Args:
        router: A `Router` or a placement; its nodes are aliases of `DATABASES`.
        keys: The attribute with the key of each sharded model, as `{"shop.Order": "user_id"}`.
        everywhere: Models whose rows every shard has, as `["shop.Country"]`.
        shards: The aliases of all shards, if there are more than the router has now.

    A query goes to the database of the object that it starts from, such as that of `user.order_set`,
    otherwise to that of `using_key`. If there is neither, it raises `NoKeyError`. All other models are left
    to the next router, and their tables are not made on the shards.

    Threads may share it. Cost: that of a lookup of the router.
    """

    def __init__(
        self,
        router: Any,
        keys: Mapping[str, str],
        *,
        everywhere: Iterable[str] = (),
        shards: Iterable[str] = (),
    ) -> None:
        self.router = router
        self.keys = {label.lower(): name for label, name in keys.items()}
        self.everywhere = frozenset(label.lower() for label in everywhere)
        self._shards = tuple(shards)
        self._apps = {label.partition(".")[0] for label in (*self.keys, *self.everywhere)}
        if not self.keys:
            raise ValueError(
                "name the key of each sharded model: keys={'shop.User': 'id', 'shop.Order': 'user_id'}"
            )
        wrong = [label for label in (*self.keys, *self.everywhere) if label.count(".") != 1]
        if wrong:
            raise ValueError(f"models are named 'app.Model', not {wrong[0]!r}")
        both = self.everywhere & self.keys.keys()
        if both:
            raise ValueError(f"{min(both)} cannot be both in keys and in everywhere")

    @property
    def shards(self) -> tuple[str, ...]:
        """The aliases of the databases of the shards."""
        return tuple(dict.fromkeys((*self._shards, *self.router.names)))

    def owner(self, key: Hashable) -> str:
        """Return the alias of the database of a key, which is read as the field would read it: "7" is 7."""
        name: str = self.router.owner(self._field.to_python(key))
        return name

    @cached_property
    def _field(self) -> Any:
        from django.apps import apps  # noqa: PLC0415  settings import this file

        label, name = next(iter(self.keys.items()))
        return apps.get_model(label)._meta.get_field(name)

    def key_of(self, instance: Any) -> Any:
        """Return the key of a row; None if it has none yet."""
        name = self.keys[label_of(instance)]
        return getattr(instance, instance._meta.get_field(name).attname)

    def database_of(self, instance: Any) -> str:
        """Return the database that a row of a sharded model belongs to.

        Raises:
            NoKeyError: It has no key.
        """
        key = self.key_of(instance)
        if key is None:
            name = self.keys[label_of(instance)]
            raise NoKeyError(
                f"{instance._meta.label}.{name} is None: set it before the row is saved, not by the database"
            )
        return self.owner(key)

    # --- what Django asks ---

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Return the database to read a model from; None: ask the next router."""
        return self._database(model, hints.get("instance"))

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Return the database to write a model to; None: ask the next router."""
        if label_of(model) in self.everywhere and current_database() is None:
            raise CrossShardError(
                f"{model._meta.label} is on every shard: write it to each, with .using(name) for "
                "the names of ShardRouter.shards"
            )
        return self._database(model, hints.get("instance"))

    def _database(self, model: Any, instance: Any) -> str | None:
        label = label_of(model)
        if label not in self.keys and label not in self.everywhere:
            return None
        if instance is not None:
            start = label_of(instance)
            stored: str | None = instance._state.db
            if start in self.keys:
                # A row that was loaded stays where it was loaded from. Whether its key belongs there is asked
                # before it is saved.
                return stored or self.database_of(instance)
            if start in self.everywhere and stored is not None and current_database() is None:
                return stored
        database = current_database()
        if database is not None:
            return database
        if label in self.everywhere:
            return self.shards[0]
        raise NoKeyError(
            f"a query of {model._meta.label} names no key: put it into `with using_key(key):`, or name "
            "the database with .using(name)"
        )

    def allow_relation(self, one: Any, other: Any, **hints: Any) -> bool | None:  # noqa: ARG002
        """Whether two rows may refer to each other: they must lie in one database."""
        labels = {label_of(one), label_of(other)}
        if not labels & (self.keys.keys() | self.everywhere):
            return None
        if labels & self.everywhere:
            return labels <= self.keys.keys() | self.everywhere
        if not labels <= self.keys.keys():
            return False
        return self._place(one) == self._place(other)

    def _place(self, instance: Any) -> str:
        stored: str | None = instance._state.db
        if stored is not None:
            return stored
        # A row that gets its key by this very relation goes where the key in force says.
        return current_database() or "" if self.key_of(instance) is None else self.database_of(instance)

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        """Whether a table belongs into a database: those of sharded models into all shards, and no others."""
        model = hints.get("model")
        label = f"{app_label}.{model_name}".lower() if model is None else label_of(model)
        is_shard = db in self.shards
        if model_name is None and model is None:  # RunPython, RunSQL
            return app_label in self._apps if is_shard else None
        if label in self.keys or label in self.everywhere:
            return is_shard
        return False if is_shard else None

    def check_write(self, instance: Any, database: str) -> None:
        """Refuse a row that is about to be written to another database than that of its key.

        Raises:
            CrossShardError: It is.
        """
        if label_of(instance) not in self.keys:
            return
        owner = self.database_of(instance)
        if owner != database:
            raise CrossShardError(
                f"the key {self.key_of(instance)!r} of {instance._meta.label} belongs to {owner!r}, and was "
                f"to be written to {database!r}; delete the row and create it under the new key"
            )


def label_of(model: Any) -> str:
    """Return the name of a model, or of the model that it is a proxy of."""
    label: str = model._meta.concrete_model._meta.label_lower
    return label


def shard_router() -> ShardRouter:
    """Return the `ShardRouter` of the settings.

    Raises:
        LookupError: `DATABASE_ROUTERS` has none.
    """
    from django.db import router  # noqa: PLC0415  settings import this file

    for found in router.routers:
        if isinstance(found, ShardRouter):
            return found
    raise LookupError("DATABASE_ROUTERS has no ringhash.contrib.django.ShardRouter")

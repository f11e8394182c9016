"""A manager that writes each row to the database of its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models

from ringhash.contrib.django.errors import CrossShardError
from ringhash.contrib.django.router import label_of, shard_router

__all__ = ["ShardManager", "ShardQuerySet"]


class ShardQuerySet(models.QuerySet):  # type: ignore[misc]  # Django has no annotations
    """A query set whose `create` and `bulk_create` look at the key of each row, not at the key in force."""

    def create(self, **fields: Any) -> Any:
        """Create a row in the database of its key."""
        row = self.model(**fields)
        database = shard_router().database_of(row)
        row.save(force_insert=True, using=self._db or database)
        return row

    def bulk_create(self, objs: Iterable[Any], *args: Any, **options: Any) -> list[Any]:
        """Create rows, each in the database of its key; a transaction for each database."""
        rows = list(objs)
        router = shard_router()
        parts: dict[str, list[Any]] = {}
        for row in rows:
            parts.setdefault(router.database_of(row), []).append(row)
        if self._db is not None and parts.keys() - {self._db}:
            raise CrossShardError(f"the rows belong to {[*parts]}, and not all to {self._db!r}")
        for database, part in parts.items():
            self._at(database, part, args, options)
        return rows

    def _at(self, database: str, part: list[Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        models.QuerySet.bulk_create(self.using(database), part, *args, **options)

    def update(self, **fields: Any) -> int:
        """Update rows; not their key, which would leave them in the wrong database."""
        name = shard_router().keys.get(label_of(self.model))
        if name is not None:
            field = self.model._meta.get_field(name)
            if {field.name, field.attname, "pk" if field.primary_key else ""} & fields.keys():
                raise CrossShardError(
                    f"{self.model._meta.label}.{name} is the key: delete the rows, and create them "
                    "under the new key"
                )
        return int(super().update(**fields))


class ShardManager(models.Manager.from_queryset(ShardQuerySet)):  # type: ignore[misc]
    """The manager of a sharded model: `objects = ShardManager()`."""

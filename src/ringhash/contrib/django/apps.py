"""The application, for `INSTALLED_APPS`: it has the command, and the guard of every save."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.db.models.signals import pre_save

from ringhash.contrib.django.managers import ShardQuerySet
from ringhash.contrib.django.router import shard_router

__all__ = ["RinghashConfig"]


class RinghashConfig(AppConfig):  # type: ignore[misc]  # Django has no annotations
    """ringhash in a Django project."""

    name = "ringhash.contrib.django"
    label = "ringhash"

    def ready(self) -> None:
        """Have every save of a sharded row checked: it must go to the database of its key."""
        pre_save.connect(check_save, dispatch_uid="ringhash")
        checks.register(check_managers)


def check_save(sender: Any, instance: Any, using: str, **_: Any) -> None:  # noqa: ARG001
    """Refuse to save a row where its key does not belong."""
    shard_router().check_write(instance, using)


def check_managers(app_configs: Any = None, **_: Any) -> list[Any]:  # noqa: ARG001
    """Warn of sharded models whose `bulk_create` and `update` do not look at keys."""
    return [
        checks.Warning(
            f"{model._meta.label} is sharded, and its manager does not look at the keys of rows",
            hint="Set objects = ringhash.contrib.django.managers.ShardManager().",
            obj=model,
            id="ringhash.W001",
        )
        for model in map(apps.get_model, shard_router().keys)
        if not isinstance(model._default_manager.get_queryset(), ShardQuerySet)
    ]

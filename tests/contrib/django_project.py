"""The Django project of the tests: a process has one set of settings."""

from __future__ import annotations

import tempfile

import django
from django.conf import settings

from ringhash import Router
from ringhash.contrib.django import ShardRouter

NAMES = ("db-1", "db-2", "db-3")
MANY = tuple(f"more-{i}" for i in range(8))  # only migrated

folder = tempfile.TemporaryDirectory(prefix="ringhash-django-")  # to the end of the process, as the settings
shards = ShardRouter(
    Router(NAMES),
    {"django_shop.User": "id", "django_shop.Order": "user_id"},
    everywhere=["django_shop.Country"],
    shards=(*NAMES, *MANY),
)
settings.configure(
    DATABASES={
        name: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder.name}/{name}.db"}
        for name in ("default", *NAMES, *MANY)
    },
    DATABASE_ROUTERS=[shards],
    INSTALLED_APPS=["ringhash.contrib.django", "django_shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

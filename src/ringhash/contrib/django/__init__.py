"""Django over several databases, and a cache over a ring of Redis servers; needs the extra `django`.

Put "ringhash.contrib.django" into `INSTALLED_APPS`. Settings may import this room: what needs Django to
be set up is in `.managers` and `.cache`.
"""

from ringhash.contrib.django.context import current_database
from ringhash.contrib.django.errors import CrossShardError, NoKeyError
from ringhash.contrib.django.keys import using_key
from ringhash.contrib.django.migrate import Migrated, migrate_shards
from ringhash.contrib.django.router import ShardRouter, shard_router

__all__ = [
    "CrossShardError",
    "Migrated",
    "NoKeyError",
    "ShardRouter",
    "current_database",
    "migrate_shards",
    "shard_router",
    "using_key",
]

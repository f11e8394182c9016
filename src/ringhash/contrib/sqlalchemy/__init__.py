"""Sessions of SQLAlchemy over several databases; needs the extra `sqlalchemy`."""

from ringhash.contrib.sqlalchemy.errors import CrossShardError, KeyChangeError, NoKeyError
from ringhash.contrib.sqlalchemy.session import ShardSession
from ringhash.contrib.sqlalchemy.sharding import Sharding

__all__ = ["CrossShardError", "KeyChangeError", "NoKeyError", "ShardSession", "Sharding"]

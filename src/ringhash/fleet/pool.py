"""Databases of a fleet: PostgreSQL behind psycopg's own pool, SQLite as it is."""

from __future__ import annotations

from typing import Any, cast

import psycopg_pool

from ringhash.databases.connection import Connection
from ringhash.databases.postgres import PostgresConnection, PostgresDatabase, options_for
from ringhash.errors import ForkedError

__all__ = ["PooledPostgres"]


class PooledPostgres(PostgresDatabase):
    """A PostgreSQL server with at most `size` connections: see `Database`. Threads share it.

    A call that finds all of them lent waits for `timeout` seconds, and raises `psycopg_pool.PoolTimeout`
    then. A connection that was lost is replaced.
    """

    def __init__(self, address: str, *, size: int, timeout: float) -> None:
        super().__init__(address, timeout=timeout)
        self._pool = psycopg_pool.ConnectionPool(
            address,
            min_size=0,
            max_size=size,
            timeout=timeout,
            kwargs={"autocommit": True, **options_for(address, timeout)},
            open=True,
            name=self.address,  # its log has names: without the password
        )

    def take(self) -> Connection:
        """Return a connection of the pool that still answers."""
        while True:
            connection = PostgresConnection(self._pool.getconn())
            try:
                connection.ping()
            except self.errors:
                connection.close()
                self._pool.putconn(connection.raw)
            else:
                return connection

    def give(self, connection: Connection) -> None:
        """Give a connection back to the pool."""
        self._pool.putconn(cast("PostgresConnection", connection).raw)

    def discard(self, connection: Connection) -> None:
        """Give a connection back whose block failed; one that is lost or in a transaction is closed."""
        if connection.broken or connection._in_transaction():
            connection.close()
        self._pool.putconn(cast("PostgresConnection", connection).raw)

    def close(self) -> None:
        """Close the pool; the database cannot be used again."""
        self._pool.close()

    def _forget(self) -> None:
        super()._forget()
        self._pool = cast("Any", _Inherited())


class _Inherited:
    """After a fork, in the child: the pool and its threads are the parent's."""

    def __getattr__(self, name: str) -> Any:
        raise ForkedError("this fleet belongs to the parent process; make one after the fork")

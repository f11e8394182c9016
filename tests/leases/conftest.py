"""The databases: every test that takes `db` runs on SQLite and on a real PostgreSQL.

RINGHASH_TEST_POSTGRES=postgresql://... points to a server that is there already; its tables begin with
`ringhash_`, and every test has rows of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringhash.leases.store import Store, open_store

if TYPE_CHECKING:
    from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A server of the tests' own, which a test may stop."""
    pytest.importorskip("psycopg")
    pytest.importorskip("pwd")
    from postgres_server import NoServerError, PostgresServer

    try:
        server = PostgresServer()
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> str:
    address = os.environ.get("RINGHASH_TEST_POSTGRES")
    if address:
        return address
    server: PostgresServer = request.getfixturevalue("server")
    return server.address


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return tmp_path / "leases.db"
    return request.getfixturevalue("postgres")


@pytest.fixture
def group() -> str:
    """The name of a lease table or membership that no other test has."""
    return uuid.uuid4().hex


@pytest.fixture
def stores(db: Any, group: str) -> Iterator[Any]:
    """Makes connections to one set of leases."""
    made: list[Store] = []

    def make(shards: int | None = None) -> Store:
        store = open_store(db, group, 5.0)
        made.append(store)
        if shards is not None:
            store.setup(shards)
        return store

    yield make
    for store in made:
        store.close()

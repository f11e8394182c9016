"""The databases: every test that takes `db` runs on SQLite and on a real PostgreSQL.

RINGHASH_TEST_POSTGRES=postgresql://... points to a server that is there already; its tables begin with
`ringhash_`, and every test has rows of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringhash.databases import open_database
from ringhash.leases.rows import LeaseRows, lease_rows


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
    made: list[LeaseRows] = []

    def make(shards: int | None = None) -> LeaseRows:
        store = lease_rows(open_database(db, timeout=5.0), group)
        made.append(store)
        if shards is not None:
            store.setup(shards)
        return store

    yield make
    for store in made:
        store.close()

"""Every test that takes `database` runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringhash.databases import Database, open_database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    address = tmp_path / "some.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    with open_database(address) as database:
        yield database


@pytest.fixture
def table(database: Database) -> Iterator[str]:
    """An empty table (n) of the test's own."""
    name = f"t{uuid.uuid4().hex}"
    database.execute(f"CREATE TABLE {name} (n bigint, t text)")
    yield name
    database.execute(f"DROP TABLE {name}")

"""Fleets of three databases: SQLite files, and databases of a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringhash import Placement, Router
from ringhash.databases import open_database
from ringhash.fleet import Fleet

NAMES = ("db-1", "db-2", "db-3")


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def addresses(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An empty database for each of three nodes."""
    if dialect == "sqlite":
        yield {name: str(tmp_path / f"{name}.db") for name in NAMES}
        return
    pytest.importorskip("psycopg_pool")
    server = request.getfixturevalue("postgres")
    admin = open_database(server)
    made = {name: f"fleet_{uuid.uuid4().hex[:12]}" for name in NAMES}
    for database in made.values():
        admin.execute(f"CREATE DATABASE {database}")
    yield {name: server.replace("/postgres?", f"/{database}?") for name, database in made.items()}
    for database in made.values():
        admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
    admin.close()


@pytest.fixture
def fleet_of(addresses: dict[str, str]) -> Iterator[Callable[..., Fleet]]:
    """Makes fleets over the three databases, each with its own router; the first one installs the fence."""
    made: list[Fleet] = []

    def make(placement: Placement | Router, **options: Any) -> Fleet:
        router = placement if isinstance(placement, Router) else Router(placement)
        fleet = Fleet(addresses, router, **options)
        made.append(fleet)
        fleet.install()
        return fleet

    yield make
    for fleet in made:
        fleet.close()

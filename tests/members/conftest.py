"""What both databases are given: see tests/leases/conftest.py."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return tmp_path / "members.db"
    return request.getfixturevalue("postgres")


@pytest.fixture
def group() -> str:
    """The name of a membership that no other test has."""
    return uuid.uuid4().hex

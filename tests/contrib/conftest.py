"""Servers that the tests of the plugs share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def redis_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Four Redis servers; the tests that ask for them are skipped where there is no redis-server."""
    from redis_servers import PROGRAM, servers

    if PROGRAM is None:
        pytest.skip("there is no redis-server here")
    with servers(4, tmp_path_factory.mktemp("redis")) as started:
        yield started

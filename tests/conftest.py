"""How deep Hypothesis looks: `pytest --hypothesis-profile=thorough` takes minutes instead of seconds,
and `few` is for `make valgrind`, where everything is fifty times slower.

The PostgreSQL server is the tests' own; RINGHASH_TEST_POSTGRES=postgresql://... points to one that is there already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from postgres_server import PostgresServer

settings.register_profile("ci", max_examples=50, stateful_step_count=20, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=1500, stateful_step_count=60)
settings.register_profile("few", settings.get_profile("ci"), max_examples=5, stateful_step_count=8)
settings.load_profile("ci")


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

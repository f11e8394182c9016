"""A few seconds of fleet_chaos.py: no write is lost or lies astray, no reader misses one; without the fence both happen."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.slow
if sys.platform == "win32":
    pytest.skip("the faults are signals", allow_module_level=True)
pytest.importorskip("psycopg_pool")

from fleet_chaos import Run  # noqa: E402


@pytest.mark.parametrize(
    ("db", "kind"), [("sqlite", "ranges"), ("postgres", "ring"), ("postgres", "tenants")]
)
def test_no_write_is_lost_and_no_reader_misses_one(
    db: str, kind: str, request: pytest.FixtureRequest
) -> None:
    if db == "postgres":
        request.getfixturevalue("server")  # left out where there is none
    outcome = Run(3.0, db, kind, fenced=True, seed=1, moves=3).run()
    assert outcome.clean, outcome
    assert outcome.acknowledged


@pytest.mark.parametrize("db", ["sqlite", "postgres"])
def test_rows_that_move_online(db: str, request: pytest.FixtureRequest) -> None:
    if db == "postgres":
        request.getfixturevalue("server")
    outcome = Run(3.0, db, "ranges", fenced=True, seed=2, moves=1, mover="reshard").run()
    assert outcome.clean, outcome
    assert outcome.acknowledged


def test_without_the_fence_writes_are_lost_and_missed() -> None:
    for seed in range(5):
        outcome = Run(2.0, "sqlite", "ranges", fenced=False, seed=seed, moves=5).run()
        if outcome.missed and (outcome.lost or outcome.astray):
            return
    pytest.fail(f"the control finds nothing: {outcome}")

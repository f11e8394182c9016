"""The chaos run in short: see chaos.py, and `make chaos` for a minute of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("psycopg")
pytest.importorskip("pwd")

from chaos import Chaos

TTL = 1.5


@pytest.mark.slow
def test_no_stale_write_whatever_goes_wrong(server: Any) -> None:
    report = Chaos(server, fence=True, seed=11, workers=6, shards=64, ttl=TTL).run(4.5)
    assert not report.problems, report
    assert report.stale == 0
    assert report.writes > 100
    assert report.spread <= 1
    assert report.faults["cut commits"], report
    assert report.events["unknown"], report


@pytest.mark.slow
def test_without_the_fence_the_same_run_finds_stale_writes(server: Any) -> None:
    """The control: the run can fail."""
    report = Chaos(server, fence=False, seed=12, workers=6, shards=64, ttl=TTL).run(3.0)
    assert report.stale > 0, report

"""Fleets of three databases, as the tests of fleets have them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "fleet"))

pytest.register_assert_rewrite("fleet_world")

from fleet_fixtures import addresses, dialect, fleet_of  # noqa: E402

__all__ = ["addresses", "dialect", "fleet_of"]

"""Fleets of three databases, as the tests of fleets have them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "fleet"))

from fleet_fixtures import addresses, dialect, fleet_of

__all__ = ["addresses", "dialect", "fleet_of"]

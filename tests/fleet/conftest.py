"""The fixtures of fleets: see fleet_fixtures.py."""

from fleet_fixtures import addresses, dialect, fleet_of

__all__ = ["addresses", "dialect", "fleet_of"]

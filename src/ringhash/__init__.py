"""Which node owns a key, and exactly which keys a change moves.

The names here are those that most programs need. The rest is in rooms of its own, such as
`ringhash.balance`, `ringhash.handover`, `ringhash.leases` and `ringhash.interop`; see docs/reference.md.
"""

from typing import TYPE_CHECKING

from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    Moved,
    NoNodeAvailableError,
    RinghashError,
    StalePlanError,
    UnknownNodeError,
)
from ringhash.node import Node
from ringhash.placement import Placement
from ringhash.placements.ring import Ring
from ringhash.plan import Move, Plan
from ringhash.ranges import KeyRange
from ringhash.routing import Route, Router

if TYPE_CHECKING:
    from ringhash.handover import Handover
    from ringhash.placements.assignment import Assignment, assign
    from ringhash.placements.directory import Directory
    from ringhash.placements.range_map import RangeMap
    from ringhash.placements.shards import Shards

__version__ = "0.1.0"

__all__ = [
    "Assignment",
    "Directory",
    "DuplicateNodeError",
    "EmptyRingError",
    "Handover",
    "KeyRange",
    "Move",
    "Moved",
    "NoNodeAvailableError",
    "Node",
    "Placement",
    "Plan",
    "RangeMap",
    "Ring",
    "RinghashError",
    "Route",
    "Router",
    "Shards",
    "StalePlanError",
    "UnknownNodeError",
    "__version__",
    "assign",
]

# Loaded when first asked for: they import what takes longer to load than the ring itself.
_LATER = {
    "Assignment": "placements.assignment",
    "Directory": "placements.directory",
    "Handover": "handover",
    "RangeMap": "placements.range_map",
    "Shards": "placements.shards",
    "assign": "placements.assignment",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value: object = getattr(import_module(f"ringhash.{_LATER[name]}"), name)
    globals()[name] = value
    return value

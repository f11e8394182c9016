"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from typing import TYPE_CHECKING

from ringhash.bounded import BoundedRouter, LoadReport, Ticket
from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    GuardError,
    HandoverError,
    HandoverRunningError,
    JournalError,
    LeaseLost,
    Moved,
    NoNodeAvailableError,
    PinnedNodeError,
    RinghashError,
    StalePlanError,
    StaleRouterError,
    UnknownNodeError,
)
from ringhash.node import Node
from ringhash.pins import Pin
from ringhash.plan import KeyRange, Move, Plan
from ringhash.ring import Balance, Ring
from ringhash.router import Route, Router
from ringhash.salt import Salt
from ringhash.stats import NodeStats, RouterStats

if TYPE_CHECKING:
    from ringhash.assignment import Assignment, assign, simulate
    from ringhash.guard import Guard
    from ringhash.handover import Handover
    from ringhash.hotkeys import HotKey, HotKeys, HotReport
    from ringhash.reconnect import backoff, displaced, drain
    from ringhash.shard_router import ShardRouter
    from ringhash.shards import Shards
    from ringhash.sizing import recommended_vnodes

__all__ = [
    "Assignment",
    "Balance",
    "BoundedRouter",
    "DuplicateNodeError",
    "EmptyRingError",
    "Guard",
    "GuardError",
    "Handover",
    "HandoverError",
    "HandoverRunningError",
    "HotKey",
    "HotKeys",
    "HotReport",
    "JournalError",
    "KeyRange",
    "LeaseLost",
    "LoadReport",
    "Move",
    "Moved",
    "NoNodeAvailableError",
    "Node",
    "NodeStats",
    "Pin",
    "PinnedNodeError",
    "Plan",
    "Ring",
    "RinghashError",
    "Route",
    "Router",
    "RouterStats",
    "Salt",
    "ShardRouter",
    "Shards",
    "StalePlanError",
    "StaleRouterError",
    "Ticket",
    "UnknownNodeError",
    "assign",
    "backoff",
    "displaced",
    "drain",
    "recommended_vnodes",
    "simulate",
]

# Loaded when first asked for: they import what takes longer to load than the ring itself.
_LATER = {
    "Assignment": "assignment",
    "Guard": "guard",
    "Handover": "handover",
    "HotKey": "hotkeys",
    "HotKeys": "hotkeys",
    "HotReport": "hotkeys",
    "ShardRouter": "shard_router",
    "Shards": "shards",
    "assign": "assignment",
    "backoff": "reconnect",
    "displaced": "reconnect",
    "drain": "reconnect",
    "recommended_vnodes": "sizing",
    "simulate": "assignment",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value: object = getattr(import_module(f"ringhash.{_LATER[name]}"), name)
    globals()[name] = value
    return value

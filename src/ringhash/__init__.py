"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    GuardError,
    HandoverError,
    HandoverRunningError,
    JournalError,
    Moved,
    RinghashError,
    StalePlanError,
    StaleRouterError,
    UnknownNodeError,
)
from ringhash.guard import Guard
from ringhash.handover import Handover
from ringhash.node import Node
from ringhash.plan import KeyRange, Move, Plan
from ringhash.reconnect import backoff, displaced, drain
from ringhash.ring import Balance, Ring
from ringhash.router import Route, Router

__all__ = [
    "Balance",
    "DuplicateNodeError",
    "EmptyRingError",
    "Guard",
    "GuardError",
    "Handover",
    "HandoverError",
    "HandoverRunningError",
    "JournalError",
    "KeyRange",
    "Move",
    "Moved",
    "Node",
    "Plan",
    "Ring",
    "RinghashError",
    "Route",
    "Router",
    "StalePlanError",
    "StaleRouterError",
    "UnknownNodeError",
    "backoff",
    "displaced",
    "drain",
]

"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    RinghashError,
    StalePlanError,
    UnknownNodeError,
)
from ringhash.node import Node
from ringhash.plan import KeyRange, Move, Plan
from ringhash.ring import Balance, Ring
from ringhash.router import Router
from ringhash.sizing import recommended_vnodes

__all__ = [
    "Balance",
    "DuplicateNodeError",
    "EmptyRingError",
    "KeyRange",
    "Move",
    "Node",
    "Plan",
    "Ring",
    "RinghashError",
    "Router",
    "StalePlanError",
    "UnknownNodeError",
    "recommended_vnodes",
]

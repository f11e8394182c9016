"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.assignment import Assignment, assign, simulate
from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    LeaseLost,
    RinghashError,
    StalePlanError,
    UnknownNodeError,
)
from ringhash.node import Node
from ringhash.plan import KeyRange, Move, Plan
from ringhash.ring import Balance, Ring
from ringhash.router import Router
from ringhash.shards import Shards

__all__ = [
    "Assignment",
    "Balance",
    "DuplicateNodeError",
    "EmptyRingError",
    "KeyRange",
    "LeaseLost",
    "Move",
    "Node",
    "Plan",
    "Ring",
    "RinghashError",
    "Router",
    "Shards",
    "StalePlanError",
    "UnknownNodeError",
    "assign",
    "simulate",
]

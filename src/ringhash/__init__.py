"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.assignment import Assignment, assign, simulate
from ringhash.bounded import BoundedRouter, LoadReport, Ticket
from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
    LeaseLost,
    NoNodeAvailableError,
    PinnedNodeError,
    RinghashError,
    StalePlanError,
    UnknownNodeError,
)
from ringhash.hotkeys import HotKey, HotKeys, HotReport
from ringhash.node import Node
from ringhash.pins import Pin
from ringhash.plan import KeyRange, Move, Plan
from ringhash.ring import Balance, Ring
from ringhash.router import Router
from ringhash.salt import Salt
from ringhash.shards import Shards
from ringhash.sizing import recommended_vnodes
from ringhash.stats import NodeStats, RouterStats

__all__ = [
    "Assignment",
    "Balance",
    "BoundedRouter",
    "DuplicateNodeError",
    "EmptyRingError",
    "HotKey",
    "HotKeys",
    "HotReport",
    "KeyRange",
    "LeaseLost",
    "LoadReport",
    "Move",
    "NoNodeAvailableError",
    "Node",
    "NodeStats",
    "Pin",
    "PinnedNodeError",
    "Plan",
    "Ring",
    "RinghashError",
    "Router",
    "RouterStats",
    "Salt",
    "Shards",
    "StalePlanError",
    "Ticket",
    "UnknownNodeError",
    "assign",
    "recommended_vnodes",
    "simulate",
]

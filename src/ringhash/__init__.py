"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.assignment import Assignment, assign, simulate
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
from ringhash.guard import Guard
from ringhash.handover import Handover
from ringhash.hotkeys import HotKey, HotKeys, HotReport
from ringhash.node import Node
from ringhash.pins import Pin
from ringhash.plan import KeyRange, Move, Plan
from ringhash.reconnect import backoff, displaced, drain
from ringhash.ring import Balance, Ring
from ringhash.router import Route, Router
from ringhash.salt import Salt
from ringhash.shard_router import ShardRouter
from ringhash.shards import Shards
from ringhash.sizing import recommended_vnodes
from ringhash.stats import NodeStats, RouterStats

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

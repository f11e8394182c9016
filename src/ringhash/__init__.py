"""Consistent hashing: which node owns a key, and exactly which key ranges a change moves."""

from ringhash.bounded import BoundedRouter, LoadReport, Ticket
from ringhash.errors import (
    DuplicateNodeError,
    EmptyRingError,
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
from ringhash.stats import NodeStats, RouterStats

__all__ = [
    "Balance",
    "BoundedRouter",
    "DuplicateNodeError",
    "EmptyRingError",
    "HotKey",
    "HotKeys",
    "HotReport",
    "KeyRange",
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
    "StalePlanError",
    "Ticket",
    "UnknownNodeError",
]

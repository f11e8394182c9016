"""Balancing live traffic: bounded loads, slow starts, hot keys, salt, measures, numbers of virtual nodes."""

from ringhash.balance.bounded import BoundedRouter, LoadReport, Ticket
from ringhash.balance.hotkeys import HotKey, HotKeys, HotReport
from ringhash.balance.ramp import Ramp, ramp
from ringhash.balance.salt import Salt
from ringhash.balance.sizing import VnodesRow, compare_vnodes, expected_peak, recommended_vnodes
from ringhash.balance.stats import NodeStats, RouterStats, stats

__all__ = [
    "BoundedRouter",
    "HotKey",
    "HotKeys",
    "HotReport",
    "LoadReport",
    "NodeStats",
    "Ramp",
    "RouterStats",
    "Salt",
    "Ticket",
    "VnodesRow",
    "compare_vnodes",
    "expected_peak",
    "ramp",
    "recommended_vnodes",
    "stats",
]

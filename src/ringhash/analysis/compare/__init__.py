"""Ways to place keys, compared on a trace: keys over time, while nodes come and go and the data grows."""

from ringhash.analysis.compare.entries import Bounded, Direct
from ringhash.analysis.compare.hashed import Fixed, Modulo, PerNode, RingPolicy
from ringhash.analysis.compare.ordered import Dynamic
from ringhash.analysis.compare.policy import Change, Placed, Policy, World
from ringhash.analysis.compare.replay import Comparison, Outcome, compare
from ringhash.analysis.compare.trace import Trace

__all__ = [
    "Bounded",
    "Change",
    "Comparison",
    "Direct",
    "Dynamic",
    "Fixed",
    "Modulo",
    "Outcome",
    "PerNode",
    "Placed",
    "Policy",
    "RingPolicy",
    "Trace",
    "World",
    "compare",
]

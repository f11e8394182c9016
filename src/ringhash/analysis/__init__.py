"""Looking at data before it is sharded: which key, how many shards, which method."""

from ringhash.analysis.counting import Distinct
from ringhash.analysis.keys import KeyReport, Report, analyze
from ringhash.analysis.measures import Growth, Monotone, Peak, Top
from ringhash.analysis.reasons import Reason
from ringhash.analysis.rows import Table

__all__ = [
    "Distinct",
    "Growth",
    "KeyReport",
    "Monotone",
    "Peak",
    "Reason",
    "Report",
    "Table",
    "Top",
    "analyze",
]

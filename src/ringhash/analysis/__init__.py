"""Looking at data before it is sharded: which key, how many shards, which method."""

from ringhash.analysis.counting import Distinct
from ringhash.analysis.keys import KeyReport, Report, analyze
from ringhash.analysis.logs import Statement
from ringhash.analysis.measures import Growth, Monotone, Peak, Top
from ringhash.analysis.queries import Alignment, Fix, Queries
from ringhash.analysis.reasons import Reason
from ringhash.analysis.rows import Table

__all__ = [
    "Alignment",
    "Distinct",
    "Fix",
    "Growth",
    "KeyReport",
    "Monotone",
    "Peak",
    "Queries",
    "Reason",
    "Report",
    "Statement",
    "Table",
    "Top",
    "analyze",
]

"""Asking many nodes at once, and making one answer of theirs: the room's public names."""

from ringhash.scatter.aggregates import (
    Aggregate,
    Aggregated,
    Aggregation,
    Count,
    Distinct,
    Max,
    Mean,
    Min,
    Quantile,
    Sum,
)
from ringhash.scatter.budget import Budget, Hedge, Retry
from ringhash.scatter.coverage import Coverage, Missing, Need
from ringhash.scatter.errors import (
    OrderError,
    PageError,
    ScatterError,
    ScatterForbiddenError,
    ScatterWarning,
)
from ringhash.scatter.limits import no_scatter
from ringhash.scatter.merge import Merger
from ringhash.scatter.metrics import MetricsReport, NodeReport, ScatterMetrics
from ringhash.scatter.order import By, Order
from ringhash.scatter.pages import Page
from ringhash.scatter.scatter import AsyncMerged, Gathered, Merged, Scatter
from ringhash.scatter.session import Ask

__all__ = [
    "Aggregate",
    "Aggregated",
    "Aggregation",
    "Ask",
    "AsyncMerged",
    "Budget",
    "By",
    "Count",
    "Coverage",
    "Distinct",
    "Gathered",
    "Hedge",
    "Max",
    "Mean",
    "Merged",
    "Merger",
    "MetricsReport",
    "Min",
    "Missing",
    "Need",
    "NodeReport",
    "Order",
    "OrderError",
    "Page",
    "PageError",
    "Quantile",
    "Retry",
    "Scatter",
    "ScatterError",
    "ScatterForbiddenError",
    "ScatterMetrics",
    "ScatterWarning",
    "Sum",
    "no_scatter",
]

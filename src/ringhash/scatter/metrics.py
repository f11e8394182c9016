"""What scatters did, counted: fan-out, coverage, and who was the slowest."""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

from ringhash.scatter.coverage import Coverage

__all__ = ["MetricsReport", "NodeReport", "ScatterMetrics"]


class NodeReport(NamedTuple):
    """One node: how often its answer came last, its longest time, and how often it gave no answer."""

    slowest: int
    worst_seconds: float
    missing: int


class MetricsReport(NamedTuple):
    """The counts of a `ScatterMetrics` at one moment.

    `runs` ended, `refused` of them in an error; `partial` gave an answer without all parts. `fan_out` maps
    a number of parts to how many runs asked as many. `asked` to `skipped` count parts, `calls`, `retries`
    and `hedges` count calls. `least_keys` is the smallest share of the keys that a run had behind it,
    `worst_seconds` the longest run. `nodes` has a row for each node that was ever the slowest or missing.
    """

    runs: int
    refused: int
    partial: int
    fan_out: dict[int, int]
    asked: int
    answered: int
    timed_out: int
    failed: int
    skipped: int
    calls: int
    retries: int
    hedges: int
    least_keys: float | None
    worst_seconds: float
    nodes: dict[str, NodeReport]

    @property
    def slowest(self) -> str | None:
        """The node whose answer came last most often."""
        return max(self.nodes, key=lambda name: self.nodes[name].slowest, default=None)


class ScatterMetrics:
    """Counts what scatters do. One may serve many `Scatter`s. Thread-safe; a run costs a few microseconds.

    A scatter is as slow as its slowest shard, so the worst node is what counts, and not the average.

    >>> from ringhash.scatter import Scatter
    >>> metrics = ScatterMetrics()
    >>> _ = Scatter(lambda ask: 1, ["a", "b"], metrics=metrics).run()
    >>> report = metrics.report()
    >>> report.runs, report.fan_out, report.answered
    (1, {2: 1}, 2)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._fan_out: Counter[int] = Counter()
        self._slowest: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        self._worst: dict[str, float] = {}
        self._longest = 0.0
        self._least_keys: float | None = None

    def count(self, coverage: Coverage, met: bool, seconds: float, slowest: tuple[str, float] | None) -> None:
        """Count a run that ended."""
        with self._lock:
            self._counts.update(
                runs=1, refused=not met, partial=met and not coverage.complete,
                asked=coverage.asked, answered=coverage.answered, timed_out=coverage.timed_out,
                failed=coverage.failed, skipped=coverage.skipped,
                calls=coverage.calls, retries=coverage.retries, hedges=coverage.hedges,
            )  # fmt: skip
            self._fan_out[coverage.asked] += 1
            self._longest = max(self._longest, seconds)
            if coverage.keys is not None:
                self._least_keys = min(self._least_keys or 1.0, coverage.keys)
            if slowest is not None:
                node, time = slowest
                self._slowest[node] += 1
                self._worst[node] = max(self._worst.get(node, 0.0), time)
            for missing in coverage.missing.values():
                if missing.reason != "skipped":
                    self._missing[missing.node] += 1

    def report(self) -> MetricsReport:
        """Return the counts so far."""
        with self._lock:
            nodes = {
                name: NodeReport(self._slowest[name], self._worst.get(name, 0.0), self._missing[name])
                for name in sorted(self._slowest.keys() | self._missing.keys())
            }
            counts = {name: self._counts[name] for name in MetricsReport._fields if name in _COUNTED}
            return MetricsReport(
                fan_out=dict(sorted(self._fan_out.items())),
                least_keys=self._least_keys,
                worst_seconds=self._longest,
                nodes=nodes,
                **counts,
            )


_COUNTED = frozenset(MetricsReport._fields) - {"fan_out", "least_keys", "worst_seconds", "nodes"}

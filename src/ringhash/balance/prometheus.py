"""The measures of routers for Prometheus. Needs the extra: pip install ringhash[prometheus]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from ringhash.balance.bounded import BoundedRouter
from ringhash.balance.stats import NodeStats, RouterStats, stats
from ringhash.routing import Router

__all__ = ["RouterCollector", "export"]

_Routers = Mapping[str, Router | BoundedRouter]


def export(
    routers: Router | BoundedRouter | _Routers, registry: CollectorRegistry = REGISTRY
) -> RouterCollector:
    """Export the measures of one or more routers, made anew on every scrape; return the collector.

    Args:
        routers: A `Router`; or a `BoundedRouter`, whose loads are exported too; or a mapping of
            names to several of them. The name is the label `router` of every sample, and that of
            a single one is "default".
        registry: Where to register. `registry.unregister(collector)` ends it.

    Raises:
        ValueError: The registry has routers already; a registry takes one mapping of all.

    Cost: lookups pay nothing; a scrape is O(points), a few milliseconds for 1,000 nodes.

    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> registry = CollectorRegistry()
    >>> collector = export(Router(["gw-1", "gw-2"]), registry)
    >>> print(generate_latest(registry).decode().splitlines()[2])
    ringhash_nodes{router="default"} 2.0
    """
    collector = RouterCollector(routers if isinstance(routers, Mapping) else {"default": routers})
    registry.register(collector)
    return collector


class RouterCollector(Collector):
    """Makes the metrics of some routers; see `export`."""

    def __init__(self, routers: _Routers) -> None:
        self.routers = routers

    def describe(self) -> Iterable[Metric]:
        """Return the names that this collector will have, so that a second one is refused."""
        return list(self.collect())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the moment."""
        measures = {name: stats(router) for name, router in self.routers.items()}
        yield from _of_routers(measures)
        yield from _of_nodes(measures)
        yield from _of_loads({n: r for n, r in self.routers.items() if isinstance(r, BoundedRouter)})


def _of_routers(routers: Mapping[str, RouterStats]) -> Iterator[Metric]:
    def gauge(name: str, text: str, measure: Callable[[RouterStats], float | None]) -> Metric:
        family = GaugeMetricFamily(f"ringhash_{name}", text, labels=["router"])
        for router, measures in routers.items():
            value = measure(measures)
            if value is not None:
                family.add_metric([router], value)
        return family

    yield gauge("nodes", "Nodes, up or down.", lambda s: len(s.nodes))
    yield gauge("nodes_down", "Nodes that are down.", lambda s: sum(node.down for node in s.nodes))
    yield gauge("points", "Points on the ring.", lambda s: s.points)
    yield gauge("pins", "Pinned keys.", lambda s: sum(node.pins for node in s.nodes))
    yield gauge(
        "peak_to_mean_ratio", "Greatest share of a node that is up; 1 is fair.", lambda s: s.peak_to_mean
    )
    # No counter: a router that is restored or replaced may begin at any epoch.
    yield gauge("epoch", "Changes so far.", lambda s: s.epoch)
    yield gauge(
        "last_change_moved_ratio", "Part of all keys moved by the last change.", lambda s: s.last_fraction
    )
    yield gauge(
        "last_change_duration_seconds",
        "Time that the last change took until the new placement was ready.",
        lambda s: s.rebuild_seconds,
    )
    ring = InfoMetricFamily(
        "ringhash_ring", "The digest of the placement, equal on all routers that agree.", labels=["router"]
    )
    for router, measures in routers.items():
        ring.add_metric([router], {"digest": measures.digest})
    yield ring


def _of_nodes(routers: Mapping[str, RouterStats]) -> Iterator[Metric]:
    def gauge(name: str, text: str, measure: Callable[[NodeStats], float | None]) -> Metric:
        family = GaugeMetricFamily(f"ringhash_node_{name}", text, labels=["router", "node"])
        for router, measures in routers.items():
            for node in measures.nodes:
                value = measure(node)
                if value is not None:
                    family.add_metric([router, node.name], value)
        return family

    yield gauge("up", "1 if the node is up, 0 if it is down.", lambda node: not node.down)
    yield gauge("weight", "Weight of the node.", lambda node: node.weight)
    yield gauge("share_ratio", "Part of all keys that the node answers for.", lambda node: node.share)
    yield gauge(
        "fair_share_ratio",
        "The share of the node over what its weight makes fair.",
        lambda node: node.fair_ratio,
    )
    yield gauge("pins", "Keys pinned to the node.", lambda node: node.pins)


def _of_loads(routers: Mapping[str, BoundedRouter]) -> Iterator[Metric]:
    if not routers:
        return
    held = GaugeMetricFamily(
        "ringhash_node_connections", "What the node holds; also after it left.", labels=["router", "node"]
    )
    counters = [
        CounterMetricFamily(f"ringhash_{name}", text, labels=["router"])
        for name, text in (
            ("acquired", "Tickets given."),
            ("elsewhere", "Tickets for another node than the key's own, which was full or avoided."),
            ("nodes_passed", "Nodes that these tickets passed."),
        )
    ]
    for router, bounded in routers.items():
        report = bounded.report()
        for node, count in report.loads.items():
            held.add_metric([router, node], count)
        values = (report.acquired, report.elsewhere, report.walked)
        for counter, value in zip(counters, values, strict=True):
            counter.add_metric([router], value)
    yield held
    yield from counters

"""The measures of a router, and how Prometheus scrapes them over HTTP."""

from __future__ import annotations

import urllib.request

import pytest

from ringhash import Node, Router
from ringhash.balance import BoundedRouter, stats

NAMES = ["gw-1", "gw-2", "gw-3"]


def test_shares_are_what_the_ring_says_and_fair_is_one():
    router = Router([Node("gw-1", 2.0, "a"), "gw-2", "gw-3"])
    measures = stats(router)
    assert {node.name: node.share for node in measures.nodes} == router.placement.shares
    assert [(node.weight, node.zone) for node in measures.nodes] == [(2.0, "a"), (1.0, None), (1.0, None)]
    assert measures.nodes[0].fair_ratio == pytest.approx(router.placement.shares["gw-1"] / (2 / 4))
    assert measures.peak_to_mean == pytest.approx(router.placement.balance.peak_to_mean)
    assert (measures.epoch, measures.digest, measures.points) == (0, router.placement.digest, 640)
    assert (measures.last_change, measures.last_fraction, measures.rebuild_seconds) == (None, None, None)
    assert {node.held for node in measures.nodes} == {None}


def test_the_last_change_is_remembered():
    router = Router(NAMES)
    plan = router.add("gw-4")
    router.mark_down("gw-1")
    router.pin("tenant:7", "gw-2")
    measures = stats(router)
    assert measures.last_change is plan
    assert measures.last_fraction == plan.fraction
    assert 0 < measures.rebuild_seconds < 1
    later = router.plan(remove=["gw-4"])
    router.apply(later)
    assert stats(router).last_change is later


def test_a_node_that_is_down_has_no_share_and_the_others_have_it():
    router = Router(NAMES)
    router.mark_down("gw-2")
    router.pin("tenant:7", "gw-2")
    router.pin("tenant:8", "gw-2")
    measures = stats(router)
    one, two, three = measures.nodes
    assert (two.share, two.fair_ratio, two.down, two.pins) == (0.0, 0.0, True, 2)
    assert one.share + three.share == pytest.approx(1.0)
    assert (one.fair_ratio + three.fair_ratio) / 2 == pytest.approx(1.0), "fair among those that are up"
    router.mark_down(*NAMES)
    assert stats(router).peak_to_mean == 0.0
    assert stats(Router()).nodes == ()


def test_a_bounded_router_tells_what_nodes_hold():
    bounded = BoundedRouter(Router(NAMES))
    tickets = [bounded.acquire("hot") for _ in range(30)]
    assert {node.name: node.held for node in stats(bounded).nodes} == bounded.loads
    assert sum(node.held for node in stats(bounded).nodes) == len(tickets)


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            samples[name] = float(value)
    return samples, text


def test_metrics_are_scraped_over_http():
    prometheus_client = pytest.importorskip("prometheus_client")
    from ringhash.balance import prometheus

    registry = prometheus_client.CollectorRegistry()
    router = Router([Node("gw-1", weight=2.0), "gw-2", "gw-3"])
    bounded = BoundedRouter(router)
    collector = prometheus.export({"edge": bounded, "db": Router(["db-1"])}, registry)
    with pytest.raises(ValueError, match="Duplicated"):
        prometheus.export(Router(["db-2"]), registry)
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        samples, text = scrape(server.server_port)
        assert samples['ringhash_nodes{router="edge"}'] == 3
        assert samples['ringhash_nodes{router="db"}'] == 1
        assert samples['ringhash_node_weight{node="gw-1",router="edge"}'] == 2.0
        share = samples['ringhash_node_share_ratio{node="gw-1",router="edge"}']
        assert share == router.placement.shares["gw-1"]
        assert samples[f'ringhash_ring_info{{digest="{router.placement.digest}",router="edge"}}'] == 1
        assert 'ringhash_last_change_moved_ratio{router="edge"}' not in samples
        assert "# TYPE ringhash_acquired_total counter" in text
        assert text.count("# TYPE ringhash_nodes gauge") == 1, "one family for all routers"
        assert "# TYPE ringhash_epoch gauge" in text

        tickets = [bounded.acquire("hot") for _ in range(40)]
        router.pin("tenant:7", "gw-3")
        plan = router.add("gw-4")
        router.mark_down("gw-2")
        samples, _ = scrape(server.server_port)
        assert samples['ringhash_nodes_down{router="edge"}'] == 1
        assert samples['ringhash_node_up{node="gw-2",router="edge"}'] == 0
        assert samples['ringhash_node_up{node="gw-3",router="edge"}'] == 1
        assert samples['ringhash_node_pins{node="gw-3",router="edge"}'] == 1
        assert samples['ringhash_epoch{router="edge"}'] == 2
        assert samples['ringhash_last_change_moved_ratio{router="edge"}'] == plan.fraction
        assert samples['ringhash_acquired_total{router="edge"}'] == len(tickets)
        assert samples['ringhash_elsewhere_total{router="edge"}'] == bounded.report().elsewhere > 0
        held = [
            value
            for name, value in samples.items()
            if name.startswith("ringhash_node_connections{") and '"edge"' in name
        ]
        assert sum(held) == len(tickets)

        registry.unregister(collector)
        samples, _ = scrape(server.server_port)
        assert samples == {}
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_names_follow_the_conventions_of_prometheus():
    """Base units, `_total` for counters alone, `_ratio` and `_seconds` where one is meant."""
    pytest.importorskip("prometheus_client")
    from ringhash.balance import prometheus

    router = Router(NAMES)
    router.add("gw-4")
    families = list(prometheus.RouterCollector({"edge": BoundedRouter(router)}).collect())
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith("ringhash_")
        assert family.documentation.endswith(".")
        assert not family.name.endswith("_total")
        names = {sample.name for sample in family.samples}
        assert names == {family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")}

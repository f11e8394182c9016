"""Replicas: what `owners` promises of nodes and zones, whatever the ring and whoever is down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from model import ModelRing

from ringhash import Node, Ring, Router

KEYS = [f"object:{i}" for i in range(40)]
ZONES = ["a", "b", "c", None]

members = st.dictionaries(
    st.sampled_from("pqrstuvw"),
    st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from(ZONES)),
    min_size=2,
)


def ring_of(nodes, vnodes):
    return Ring([Node(name, weight, zone) for name, (weight, zone) in nodes.items()], vnodes=vnodes)


@given(nodes=members, vnodes=st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_zones_are_spread_first_and_then_filled_up(nodes, vnodes):
    ring, model = ring_of(nodes, vnodes), ModelRing(nodes, vnodes=vnodes)
    zone_of = {name: zone or f"its own {name}" for name, (_, zone) in nodes.items()}
    zones = len(set(zone_of.values()))
    for key in KEYS[:10]:
        for n in range(1, len(nodes) + 1):
            owners = ring.owners(key, n, distinct="zone")
            assert owners == model.owners(key, n, distinct="zone")
            assert owners[0] == ring.owner(key)
            assert len(set(owners)) == n, "no node twice"
            assert len({zone_of[name] for name in owners}) == min(n, zones), "as many zones as there can be"


@given(
    nodes=members,
    new=st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from(ZONES)),
    vnodes=st.integers(1, 8),
)
@settings(max_examples=80, deadline=None)
def test_a_new_node_changes_each_list_by_at_most_one_in_and_one_out(nodes, new, vnodes):
    before, after = ring_of(nodes, vnodes), ring_of({**nodes, "new": new}, vnodes)
    for distinct in ("node", "zone"):
        for key in KEYS:
            for n in range(1, len(nodes) + 1):
                old, now = before.owners(key, n, distinct), after.owners(key, n, distinct)
                assert set(now) - set(old) <= {"new"}
                assert len(set(old) - set(now)) == len(set(now) - set(old))


def test_a_list_made_anew_on_every_change_would_fail_that():
    """The negative control: owners by modulus change by more than one."""
    before, after = ["p", "q", "r", "s"], ["new", "p", "q", "r", "s"]

    def listed(nodes, key, n):
        return {nodes[(hash(key) + i) % len(nodes)] for i in range(n)}

    assert any(len(listed(after, key, 2) - listed(before, key, 2)) > 1 for key in range(20))


@given(nodes=members, down=st.sets(st.sampled_from("pqrstuvw")), vnodes=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_nodes_that_are_down_are_skipped(nodes, down, vnodes):
    router = Router(ring_of(nodes, vnodes))
    down = down & set(nodes)
    up = {name: node for name, node in nodes.items() if name not in down}
    router.mark_down(*down)
    model = ModelRing(up, vnodes=vnodes)
    for key in KEYS[:10]:
        for n in range(1, len(up) + 1):
            assert router.owners(key, n, "zone") == model.owners(key, n, "zone")
            assert router.owners(key, n) == model.owners(key, n)

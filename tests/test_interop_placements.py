"""Placements of other programs as placements: changes, plans that are replayed, handovers, a router over them."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_interop import EACH, KEYS, MAKERS, WEIGHTS, changes

from ringhash import Node, NoNodeAvailableError, Plan, Router
from ringhash.interop import (
    CassandraRing,
    EnvoyMaglev,
    HAProxyRing,
    KafkaPartitioner,
    KetamaRing,
    NginxRing,
    ProgramPlacement,
    RedisSlots,
    UHashPlacement,
)
from ringhash.placement import Walkable, verified
from ringhash.ranges import Ranges
from ringhash.space import space_from


def drawn(name: str, data: st.DataObject) -> ProgramPlacement:
    names = [f"10.0.0.{i}:80" for i in range(7)]
    servers = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 4), min_size=1))
    return MAKERS[name](servers)  # type: ignore[no-any-return]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_plan_is_replayed_and_undone(data: st.DataObject) -> None:
    """Servers in any order, so that nodes alone do not say where a plan leads."""
    name = data.draw(st.sampled_from(sorted(MAKERS)))
    before, after = drawn(name, data), drawn(name, data)
    plan = before.diff(after)
    plan = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert verified(before, plan) == after
    assert verified(after, plan.inverse()) == before


def test_a_plan_between_two_programs_is_replayed() -> None:
    before, after = UHashPlacement(WEIGHTS, "ketama"), KetamaRing(WEIGHTS, "libketama")
    plan = before.diff(after)
    assert plan.changes.rows
    assert verified(before, plan) == after
    edited = plan.to_dict()
    edited["rows"][0][2]["servers"][0][1] = 7  # type: ignore[index]
    with pytest.raises(ValueError, match="does not lead where it says"):
        verified(before, Plan.from_dict(edited))
    with pytest.raises(ValueError, match="not of this placement"):
        UHashPlacement(WEIGHTS).replayed(plan)


@pytest.mark.parametrize("name", MAKERS)
def test_nodes_come_and_go(name: str) -> None:
    before = MAKERS[name](WEIGHTS)
    after = before.changed(add={"10.0.0.9:80": 2}, remove=["10.0.0.2:80"], reweight={"10.0.0.1:80": 3})
    weights = {k: v for k, v in WEIGHTS.items() if k != "10.0.0.2:80"}
    if name != "haproxy ids":  # a new one has no id there
        assert after == MAKERS[name](weights | {"10.0.0.1:80": 3, "10.0.0.9:80": 2})
    assert {node.name: node.weight for node in after.nodes} == weights | {"10.0.0.1:80": 3, "10.0.0.9:80": 2}
    with pytest.raises(ValueError, match="whole weights"):
        before.changed(reweight={"10.0.0.1:80": 1.5})
    with pytest.raises(ValueError, match="no zones"):
        before.changed(add=[Node("x", zone="a")])


def test_what_is_given_instead_of_weights_cannot_be_changed_by_weights() -> None:
    slots = RedisSlots({"a": [(0, 100)]})
    assert slots.changed(add=["b"]).servers == {"a": [[0, 100]], "b": []}
    for wrong in (
        lambda: slots.changed(reweight={"a": 2}),
        lambda: CassandraRing({"a": [1]}).changed(add=["b"]),
    ):
        with pytest.raises(ValueError, match="use with_servers"):
            wrong()
    assert KafkaPartitioner(9).changed(add=["9", "10"]) == KafkaPartitioner(11)
    assert UHashPlacement({"a": [1, 80], "b": 1}).changed(reweight={"a": 1.5}).servers == {
        "a": [3, 80],
        "b": 1,
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NginxRing(WEIGHTS), NginxRing(changes(WEIGHTS)["replaced"])),
        (KafkaPartitioner(4), KafkaPartitioner(6)),
        (EnvoyMaglev(WEIGHTS, 251), EnvoyMaglev(changes(WEIGHTS)["added"], 251)),
    ],
    ids=["nginx", "kafka", "maglev"],
)
def test_the_middle_of_a_handover(before: ProgramPlacement, after: ProgramPlacement) -> None:
    plan = before.diff(after)
    done = Ranges.of([move.range for move in plan.moves][::2])
    middle = before.middle(after, done)
    for key in KEYS[:500]:
        expected = after if done.holds(plan.space.position(key)) else before
        assert middle.owner(key) == expected.owner(key)
    assert sum(middle.owner(key) != before.owner(key) for key in KEYS[:500]) > 0


@EACH
def test_owner_at_a_position(placement: ProgramPlacement) -> None:
    for key in KEYS[:50]:
        if placement.index_many([key])[0] >= 0:
            assert placement.owner_at(placement.position(key)) == placement.owner(key)
    with pytest.raises(IndexError):
        placement.owner_at(placement.space.size)
    assert (
        placement.space
        == pickle.loads(pickle.dumps(placement.space))
        == space_from(placement.space.to_dict())
    )


@EACH
def test_a_router_over_it(placement: ProgramPlacement) -> None:
    router = Router(placement)
    keys = [key for key in KEYS if placement.index_many([key])[0] >= 0][:300]
    assert [router.owner(key) for key in keys] == placement.owner_many(keys) == router.owner_many(keys)
    assert router.placement is placement
    down = placement.names[0]
    router.mark_down(down)
    for key in keys[:100]:
        if placement.owner(key) != down:
            continue
        if isinstance(placement, Walkable):
            assert router.owner(key) == placement.without(down).owner(key)
        else:
            with pytest.raises(NoNodeAvailableError):
                router.owner(key)
    again = Router.from_dict(json.loads(json.dumps(router.to_dict())))
    assert again.placement == placement


@pytest.mark.parametrize("name", ["haproxy", "haproxy ids", "nginx", "uhashring", "uhashring ketama"])
def test_who_takes_over_is_the_second_of_the_walk(name: str) -> None:
    """HAProxy's automatic ids stay while a server is down, and change when its line is gone."""
    placement = MAKERS[name](dict.fromkeys(WEIGHTS, 1))
    for key in KEYS[:200]:
        first, second = placement.owners(key, 2)
        if name != "uhashring ketama":  # its points follow the sum of the weights
            assert placement.without(first).owner(key) == second


def test_a_router_carries_out_a_plan_of_haproxy() -> None:
    router = Router(HAProxyRing(["s1", "s2", "s3"]))
    plan = router.plan(remove=["s1"])
    router.apply(plan)
    assert router.placement == HAProxyRing(["s2", "s3"])
    assert router.plan_to(HAProxyRing(["s3", "s2"])).changes.rows

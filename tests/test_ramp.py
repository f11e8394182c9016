"""Slow start: a node takes its keys step by step, and no key moves twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringhash import Node, Plan, Router, StalePlanError
from ringhash.balance import ramp

NAMES = ["gw-1", "gw-2", "gw-3"]
KEYS = [f"user:{i}" for i in range(500)]


def test_a_new_node_comes_in_with_a_small_weight_and_ends_with_its_full_one():
    router = Router(NAMES)
    at_once = router.plan(add=[Node("gw-4", 2.0, "b")])
    plans = ramp(router, Node("gw-4", 2.0, "b"), over=60, steps=5)
    assert isinstance(plans, list)
    assert all(isinstance(plan, Plan) for plan in plans)
    assert plans.times == [0, 15, 30, 45, 60]
    assert plans.weights == pytest.approx([0.2, 0.65, 1.1, 1.55, 2.0])
    assert router.epoch == 0, "the plans are only plans"
    moved = []
    for i, plan in enumerate(plans):
        before = router.owner_many(KEYS)
        router.apply(plan)
        after = router.owner_many(KEYS)
        moved += [key for key, old, new in zip(KEYS, before, after, strict=True) if old != new]
        assert {new for old, new in zip(before, after, strict=True) if old != new} <= {"gw-4"}
        assert set(plan.by_target()) <= {"gw-4"}
        assert router.placement.node("gw-4") == Node("gw-4", plans.weights[i], "b")
    assert len(moved) == len(set(moved)), "no key moves twice"
    assert sum(plan.fraction for plan in plans) == pytest.approx(at_once.fraction)
    assert router.placement.digest == at_once.after
    assert router.placement.node("gw-4").weight == 2.0


def test_a_member_that_comes_back_goes_down_first_and_then_up_to_what_it_has():
    router = Router({"gw-1": 1.0, "gw-2": 3.0})
    before = router.placement
    router.mark_down("gw-2")
    first, *rest = ramp(router, "gw-2", over=10, steps=4, start=0.25)
    assert set(first.by_source()) == {"gw-2"}
    router.apply(first)
    router.mark_up("gw-2")
    for plan in rest:
        assert set(plan.by_target()) == {"gw-2"}
        router.apply(plan)
    assert router.placement == before


def test_the_rest_of_a_ramp_after_another_change():
    router = Router(NAMES)
    plans = ramp(router, "gw-4", over=60, steps=4)
    router.apply(plans[0])
    router.apply(plans[1])
    router.add("gw-5")
    with pytest.raises(StalePlanError):
        router.apply(plans[2])
    rest = ramp(router, Node("gw-4"), over=30, steps=3)
    assert rest.weights == pytest.approx([0.4, 0.7, 1.0]), "from the weight that it has now"
    for plan in rest:
        router.apply(plan)
    assert router.placement.node("gw-4").weight == 1.0


def test_one_step_is_the_change_itself():
    router = Router(NAMES)
    (plan,) = ramp(router, "gw-4", over=0, steps=1)
    assert plan == router.plan(add=["gw-4"])


def test_errors():
    router = Router([Node("gw-1", zone="a"), "gw-2"])
    for steps in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="steps must be"):
            ramp(router, "gw-1", over=1, steps=steps)
    for over in (-1, float("nan"), float("inf"), "60"):
        with pytest.raises(ValueError, match="over must be"):
            ramp(router, "gw-1", over=over)
    for start in (0, 1.5, -0.1, "a"):
        with pytest.raises(ValueError, match="start must be"):
            ramp(router, "gw-1", over=1, start=start)
    with pytest.raises(ValueError, match="zone 'a'"):
        ramp(router, Node("gw-1", zone="b"), over=1)
    with pytest.raises(TypeError, match="named by a str"):
        ramp(router, 7, over=1)


def test_reweighting_under_traffic_moves_keys_only_to_or_from_that_node():
    router = Router(NAMES)
    light, heavy = router.placement.with_weights({"gw-2": 0.1}), router.placement.with_weights({"gw-2": 4.0})
    allowed = [{router.placement.owner(key), light.owner(key), heavy.owner(key)} for key in KEYS]
    stop = threading.Event()

    def read():
        wrong = 0
        while not stop.is_set():
            wrong += sum(router.owner(key) not in may for key, may in zip(KEYS, allowed, strict=True))
        return wrong

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        for _ in range(100):
            for weight in (0.1, 4.0, 1.0):
                router.reweight("gw-2", weight)
        stop.set()
        assert reader.result() == 0
    for may in allowed:
        assert len(may - {"gw-2"}) <= 1

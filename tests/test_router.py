"""The router: membership that changes, an epoch, plans; never a half of a change."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from chosen import check_ring, model_of, moves_of
from model import moves

from ringhash import (
    DuplicateNodeError,
    EmptyRingError,
    Node,
    Plan,
    Ring,
    Router,
    StalePlanError,
    UnknownNodeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.core

NODES: list[str | Node] = ["gw-1", "gw-2", Node("gw-3", weight=2.0, zone="b")]
KEYS: list[Any] = ["", "é", b"\0", 0, -1, 2**64 - 1, *map("user:{}".format, range(200))]


def test_a_router_answers_as_its_ring() -> None:
    router, ring = Router(NODES, vnodes=40, seed=3), Ring(NODES, vnodes=40, seed=3)
    assert router.placement == ring
    assert (router.epoch, router.nodes, len(router), list(router)) == (0, ring.nodes, 3, list(ring))
    assert "gw-1" in router
    assert "gw-4" not in router
    for key in KEYS:
        assert router.owner(key) == router[key] == ring.owner(key)
        assert list(router.walk(key)) == list(ring.walk(key))
        assert router.owners(key, 2) == ring.owners(key, 2)
        assert router.owners(key, 3, distinct="zone") == ring.owners(key, 3, distinct="zone")
        assert router.position(key) == ring.position(key)
    assert router.owner_many(KEYS) == ring.owner_many(KEYS)
    assert router.index_many(KEYS).tolist() == ring.index_many(KEYS).tolist()


def test_a_router_starts_with_nodes_or_with_a_ring() -> None:
    ring = Ring(NODES, vnodes=3)
    assert Router(ring).placement is ring
    assert Router(ring) == Router(NODES, vnodes=3) == Router(iter(NODES), vnodes=3)
    assert Router({"a": 2.0}).placement == Ring({"a": 2.0})
    assert Router().placement == Ring()


def test_each_change_is_one_epoch_and_returns_its_plan() -> None:
    router = Router(NODES)
    rings = [router.placement]
    plans = []
    changes: list[Callable[[], Plan]] = [
        lambda: router.add("gw-4", Node("gw-5", 0.5)),
        lambda: router.remove("gw-1"),
        lambda: router.reweight("gw-3", 3.0),
        lambda: router.update(add={"gw-1": 2.0}, remove=["gw-2", "gw-4"], reweight={"gw-3": 1.0}),
        lambda: router.remove("gw-1", "gw-3", "gw-5"),
        lambda: router.add("gw-1"),
    ]
    for change in changes:
        plans.append(change())
        rings.append(router.placement)
        assert router.epoch == len(plans)
        check_ring(router.placement, model_of(router))
    for epoch, plan in enumerate(plans):
        before, after = rings[epoch : epoch + 2]
        assert (plan.epoch, plan.before, plan.after) == (epoch, before.digest, after.digest)
        assert moves_of(plan) == moves(model_of(before), model_of(after)) == moves_of(before.diff(after))
    assert rings[4] == Ring([Node("gw-1", 2.0), Node("gw-3", zone="b"), Node("gw-5", 0.5)])


def test_a_plan_looks_and_changes_nothing() -> None:
    router = Router(NODES)
    ring = router.placement
    plan = router.plan(add=["gw-4"], remove=["gw-1"], reweight={"gw-2": 2})
    assert router.placement is ring
    assert router.epoch == plan.epoch == 0
    assert Router(NODES).update(add=["gw-4"], remove=["gw-1"], reweight={"gw-2": 2}) == plan
    router.apply(plan)
    assert router.epoch == 1
    assert router.placement.digest == plan.after
    assert router.placement == Ring([Node("gw-2", 2.0), NODES[2], "gw-4"])


@pytest.mark.parametrize(
    "change", [{}, {"reweight": {"gw-1": 1}}, {"remove": ["gw-1"], "add": ["gw-1"]}], ids=str
)
def test_what_changes_nothing_is_no_epoch(change: dict[str, Any]) -> None:
    router = Router(NODES)
    ring = router.placement
    plan = router.update(**change)
    assert (len(plan), plan.empty, plan.before) == (0, True, plan.after)
    router.apply(router.plan(**change))
    assert router.placement is ring
    assert router.epoch == 0


def test_a_name_removed_and_added_is_replaced() -> None:
    router = Router(NODES)
    plan = router.update(remove=["gw-3"], add=[Node("gw-3", weight=2.0, zone="c")])
    assert len(plan) == 0
    assert router.epoch == 1
    assert router.nodes[2] == Node("gw-3", weight=2.0, zone="c")
    assert router.owners("key", 3, "zone") == router.placement.owners("key", 3, "zone")


def test_a_plan_made_before_a_change_is_stale() -> None:
    router = Router(NODES)
    plan = router.plan(add=["gw-4"])
    router.add("gw-5")
    with pytest.raises(StalePlanError, match="epoch 0, and the router is at epoch 1"):
        router.apply(plan)
    router.remove("gw-5")  # the members of the plan again, but at another epoch
    with pytest.raises(StalePlanError, match="epoch 2"):
        router.apply(plan)
    assert router == Router.from_dict({**Router(NODES).to_dict(), "epoch": 2})


def test_a_plan_is_applied_once() -> None:
    router = Router(NODES)
    plan = router.plan(add=["gw-4"])
    router.apply(plan)
    with pytest.raises(StalePlanError):
        router.apply(plan)
    assert router.epoch == 1


@pytest.mark.parametrize(
    "other",
    [Ring(NODES[:2]), Ring(NODES, seed=1), Ring(NODES, vnodes=161), Ring(NODES, hash_tags=True), Ring()],
    ids=repr,
)
def test_a_plan_for_another_ring_is_stale(other: Ring) -> None:
    router = Router(NODES)
    for plan in (Router(other).plan(add=["x"]), other.diff(other.with_nodes("x"))):
        with pytest.raises(StalePlanError, match="made for the placement"):
            router.apply(plan)
    assert router == Router(NODES)


def test_a_plan_without_an_epoch_applies_at_any() -> None:
    router = Router(NODES)
    router.add("x")
    router.remove("x")
    router.apply(Ring(NODES).diff(Ring(["a"])))
    assert (router.epoch, router.placement) == (3, Ring(["a"]))


def test_a_plan_may_come_from_another_process() -> None:
    planner, router = Router(NODES), Router(NODES[::-1])
    sent = json.dumps(planner.plan(add=["gw-4"], remove=["gw-2"]).to_dict())
    router.apply(Plan.from_dict(json.loads(sent)))
    assert list(router) == ["gw-1", "gw-3", "gw-4"]


def test_the_inverse_of_a_plan_takes_a_change_back() -> None:
    router = Router(NODES)
    plan = router.update(add=["gw-4"], remove=["gw-1"], reweight={"gw-3": 0.5})
    router.apply(plan.inverse())
    assert router.placement == Ring(NODES)
    assert router.epoch == 2


def test_a_plan_that_lies_is_refused() -> None:
    router = Router(NODES)
    plan = router.plan(add=["gw-4"]).to_dict()
    unchanged: list[object] = []
    for lie in (
        {"after": "0" * 32},
        {"changes": unchanged},
        {"changes": [{"before": None, "after": Node("gw-4", 2.0).to_dict()}]},
        {"changes": [{"before": Node("gw-1", 2.0).to_dict(), "after": None}]},
        {"changes": [{"before": None, "after": Node("gw-1").to_dict()}]},
        {"changes": [{"before": Node("gw-9").to_dict(), "after": None}]},
    ):
        with pytest.raises(ValueError, match=r"plan|change"):
            router.apply(Plan.from_dict(plan | lie))
    assert router == Router(NODES)


def test_a_plan_may_change_the_number_of_points() -> None:
    router = Router(["a", "b"], vnodes=10)
    router.apply(router.placement.diff(Ring(["a", "b"], vnodes=20)))
    router.add("c")
    assert router.placement == Ring(["a", "b", "c"], vnodes=20)


FAILURES: dict[str, tuple[type[Exception], Callable[[Router], object]]] = {
    "duplicate": (DuplicateNodeError, lambda r: r.add("new", "gw-1")),
    "twice": (DuplicateNodeError, lambda r: r.add("new", "new")),
    "unknown": (UnknownNodeError, lambda r: r.remove("gw-1", "gw-9")),
    "removed twice": (ValueError, lambda r: r.remove("gw-1", "gw-1")),
    "unknown weight": (UnknownNodeError, lambda r: r.reweight("gw-9", 1.0)),
    "bad weight": (ValueError, lambda r: r.update(add=["new"], reweight={"gw-1": 0.0})),
    "bad node": (ValueError, lambda r: r.update(remove=["gw-1"], add=["new", ""])),
    "both": (ValueError, lambda r: r.update(remove=["gw-1"], reweight={"gw-1": 2.0})),
    "new and reweighted": (UnknownNodeError, lambda r: r.update(add=["new"], reweight={"new": 2.0})),
    "too heavy": (ValueError, lambda r: r.reweight("gw-1", 1e9)),
    "stale": (StalePlanError, lambda r: r.apply(Router(["x"]).plan(add=["y"]))),
    "no plan": (TypeError, lambda r: r.apply(None)),  # type: ignore[arg-type]
    "failing names": (ZeroDivisionError, lambda r: r.add(*("new" for _ in [1 / 0]))),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_change_that_fails_changes_nothing(failure: str) -> None:
    router = Router(NODES)
    router.add("gw-5")
    ring, state, owners = router.placement, pickle.dumps(router), router.owner_many(KEYS)
    error, change = FAILURES[failure]
    with pytest.raises(error):
        change(router)
    assert router.placement is ring
    assert pickle.dumps(router) == state
    assert [router.owner(key) for key in KEYS] == owners
    router.add("gw-6")  # the lock is free again
    assert router.epoch == 2


def test_an_empty_router() -> None:
    router = Router()
    for ask in (
        lambda: router.owner("k"),
        lambda: router["k"],
        lambda: router.walk("k"),
        lambda: router.owners("k", 1),
    ):
        with pytest.raises(EmptyRingError, match="add a node"):
            ask()
    assert router.position("k") == Ring().position("k")
    router.add("a")
    assert router.owner("k") == "a"


def test_a_router_that_was_never_started_has_no_nodes() -> None:
    router = Router.__new__(Router)
    for ask in (lambda: router.owner("k"), lambda: router["k"], lambda: router.walk("k"), lambda: router.owner_many(["k"]),
                lambda: router.owners("k", 1), lambda: router.epoch, lambda: router.add("a"), lambda: repr(router)):  # fmt: skip
        with pytest.raises((LookupError, AttributeError)):
            ask()


def test_routers_are_compared_by_ring_and_epoch() -> None:
    router = Router(NODES)
    assert router == Router(NODES[::-1])
    router.add("x")
    router.remove("x")
    assert router.placement == Ring(NODES)
    assert router != Router(NODES)
    assert router != Ring(NODES)
    with pytest.raises(TypeError, match="unhashable"):
        hash(router)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)), lambda r: Router.from_dict(json.loads(json.dumps(r.to_dict())))],
    ids=["copy", "deepcopy", "pickle", "json"],
)  # fmt: skip
def test_a_copy_goes_its_own_way(copied: Callable[[Router], Router]) -> None:
    router = Router(NODES, vnodes=3, seed=1, hash_tags=True)
    router.add("gw-4")
    same = copied(router)
    assert same == router
    assert [same.owner(key) for key in KEYS] == [router.owner(key) for key in KEYS]
    same.apply(router.plan(remove=["gw-1"]))
    router.add("gw-5")
    assert (list(same), list(router)) == (["gw-2", "gw-3", "gw-4"], ["gw-1", "gw-2", "gw-3", "gw-4", "gw-5"])
    check_ring(same.placement, model_of(same))


def test_a_router_is_shown_with_its_epoch() -> None:
    assert repr(Router(["a"])) == "<Router at epoch 0: Ring(['a'], vnodes=160)>"
    assert Router(["a"]).to_dict() == {
        "kind": "router", "version": 1, "epoch": 0, "placement": Ring(["a"]).to_dict(),
    }  # fmt: skip


def test_a_router_has_no_other_attributes() -> None:
    router = Router(["a"])
    for name in ("epoch", "placement", "nodes", "snapshot", "epcoh"):
        with pytest.raises(AttributeError):
            setattr(router, name, 5)


def test_a_subclass_stays_one() -> None:
    class Mine(Router):
        pass

    router = Mine(["a"])
    router.add("b")
    for same in (copy.copy(router), Mine.from_dict(router.to_dict())):
        assert type(same) is Mine
        assert same == router
    assert router.owner("k") == router.placement.owner("k")

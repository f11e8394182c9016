"""One router over every kind of placement: the same promises, whatever it is over."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringhash import (
    DuplicateNodeError,
    Moved,
    Node,
    NoNodeAvailableError,
    Placement,
    Plan,
    Ring,
    Route,
    Router,
    StalePlanError,
    UnknownNodeError,
    assign,
)
from ringhash.balance import BoundedRouter
from ringhash.errors import NoWalkError, PinnedNodeError, StaleRouterError
from ringhash.interop import KetamaRing
from ringhash.placement import Walkable
from ringhash.routing import Pin, Progress

NAMES = ["a", "b", "c"]
KEYS = [f"user:{i}" for i in range(400)]
MAKERS: dict[str, Callable[[list[str]], Placement]] = {
    "ring": lambda names: Ring(names, vnodes=20, seed=3),
    "assignment": lambda names: assign(24, names),
}
if issubclass(KetamaRing, Placement):  # it has come over to the placements of this house
    MAKERS["ketama"] = lambda names: KetamaRing(names, "libmemcached")
WALKS = {name for name, make in MAKERS.items() if isinstance(make(NAMES), Walkable)}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def placement(kind: str) -> Placement:
    return MAKERS[kind](NAMES)


@pytest.fixture
def router(placement: Placement) -> Router:
    return Router(placement)


def through_json(data: object) -> Any:
    return json.loads(json.dumps(data))


# --- it answers as its placement does ---


def test_it_answers_as_its_placement_does(router: Router, placement: Placement) -> None:
    assert router.placement is placement
    assert (router.epoch, router.nodes, router.names) == (0, placement.nodes, placement.names)
    assert (len(router), list(router), "a" in router, "z" in router) == (3, NAMES, True, False)
    owners = [placement.owner(key) for key in KEYS]
    assert set(owners) == set(NAMES)
    assert [router.owner(key) for key in KEYS] == [router[key] for key in KEYS] == owners
    assert router.owner_many(KEYS) == router.owner_many(iter(KEYS)) == owners
    indexes = router.index_many(KEYS)
    assert indexes.dtype == np.intp
    assert [router.nodes[i].name for i in indexes] == owners
    assert [router.route(key) for key in KEYS] == [Route(name, 0) for name in owners]
    for key in KEYS[:30]:
        assert router.position(key) == placement.space.position(key)
        assert router.owner_at(router.position(key)) == placement.owner(key)


def test_options_are_of_the_default_kind_alone(placement: Placement) -> None:
    with pytest.raises(TypeError, match="leave out seed, vnodes"):
        Router(placement, vnodes=3, seed=1)


# --- plans ---


def test_a_plan_looks_and_apply_makes_it(router: Router, placement: Placement) -> None:
    plan = router.plan(add=["d"], remove=["a"])
    assert (plan.before, plan.epoch) == (placement.digest, 0)
    assert router.placement is placement
    assert Router(placement).update(add=["d"], remove=["a"]) == plan
    router.apply(Plan.from_dict(through_json(plan.to_dict())))
    assert (router.epoch, router.names, router.placement.digest) == (1, ("b", "c", "d"), plan.after)
    for key in KEYS:
        move = plan.move_of(key)
        assert router.owner(key) == (placement.owner(key) if move is None else move.target)
        assert move is None or move.source == placement.owner(key)
    router.apply(plan.inverse())
    assert (router.epoch, router.placement) == (2, placement)


def test_a_plan_goes_to_any_placement_and_in_the_right_direction(kind: str, router: Router) -> None:
    before, after = router.placement, MAKERS[kind](["b", "c", "d"])
    plan = router.plan_to(after)
    assert plan == before.diff(after).at(0)
    assert {move.source for move in plan.moves} <= {"a", "b", "c"}
    assert {move.target for move in plan.moves} <= {"b", "c", "d"}
    for key in KEYS:
        move = plan.move_of(key)
        assert (before.owner(key), after.owner(key)) == (
            (move.source, move.target) if move else (before.owner(key),) * 2
        )
    router.apply(plan)
    assert router.placement == after


def test_what_changes_nothing_is_no_epoch(router: Router) -> None:
    placement = router.placement
    assert router.update().empty
    router.apply(router.plan())
    router.apply(router.plan_to(placement))
    assert (router.epoch, router.placement) == (0, placement)


def test_add_and_remove(router: Router) -> None:
    assert {move.target for move in router.add("d").moves} >= {"d"}
    assert router.remove("a", "d").before
    assert (router.names, router.epoch) == (("b", "c"), 2)


@pytest.mark.parametrize("kind", ["ring", "assignment"])
def test_reweight(kind: str) -> None:
    router = Router(MAKERS[kind](NAMES))
    plan = router.reweight("a", 3.0)
    assert {move.target for move in plan.moves} == {"a"}
    assert (router.nodes[0], router.epoch) == (Node("a", 3.0), 1)


def test_refusals_change_nothing(router: Router) -> None:
    before = router.to_dict()
    for error, change in (
        (DuplicateNodeError, lambda: router.add("d", "a")),
        (UnknownNodeError, lambda: router.remove("a", "z")),
        (TypeError, lambda: router.update(remove="a")),
        (TypeError, lambda: router.update(reweight=[("a", 1.0)])),
        (TypeError, lambda: router.apply(None)),
        (TypeError, lambda: router.mark_down(7)),
        (UnknownNodeError, lambda: router.mark_down("a", "z")),
        (UnknownNodeError, lambda: router.pin("k", "z")),
        (TypeError, lambda: router.plan_to("a")),
        (StalePlanError, lambda: router.apply(Ring(["x"]).diff(Ring(["y"])))),
    ):  # fmt: skip
        with pytest.raises(error):
            change()  # type: ignore[no-untyped-call]
    assert (router.to_dict(), router.down) == (before, ())


def test_a_plan_is_stale_at_another_epoch_and_on_another_placement(kind: str, router: Router) -> None:
    plan = router.plan(add=["d"])
    other = Router(MAKERS[kind](["a", "b"])).plan(add=["d"])
    with pytest.raises(StalePlanError):
        router.apply(other)
    router.add("e")
    for refuse in (router.apply, router.check_plan):
        with pytest.raises(StalePlanError, match="epoch 0, and the router is at epoch 1"):
            refuse(plan)
    router.remove("e")
    with pytest.raises(StalePlanError):
        router.apply(plan)
    assert router.epoch == 2


# --- an edited plan is refused at every door ---

EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no moves": lambda data: data.update(moves=[]),
    "a move less": lambda data: data["moves"].pop(),
    "another target": lambda data: data["moves"][0].__setitem__(3, "zzz"),
    "another source": lambda data: data["moves"][0].__setitem__(2, "zzz"),
    "another end": lambda data: data.update(after="0" * 32),
    "no changes": lambda data: data.update(changes=[]),
}
DOORS: dict[str, Callable[[Router, Plan], object]] = {
    "apply": lambda router, plan: router.apply(plan),
    "check_plan": lambda router, plan: router.check_plan(plan),
    "carry": lambda router, plan: router.carry(Progress(plan, plan.ranges, 1)),
    "carry through": lambda router, plan: router.carry(Progress(plan, plan.ranges, 1, "forward")),
    "from_dict": lambda router, plan: Router.from_dict(running_of(router, plan)),
    "follow": lambda router, plan: router.follow(running_of(router, plan)),
}


def running_of(router: Router, plan: Plan) -> dict[str, Any]:
    """What a router in the middle of a handover of `plan` would send."""
    running = {"plan": plan.to_dict(), "done": [], "epoch": 1, "phase": "running"}
    return {**router.to_dict(), "epoch": 1, "running": running}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused_at_every_door(router: Router, door: str, edit: str) -> None:
    data = router.plan(add=["d"], remove=["a"]).to_dict()
    DOORS[door](copy.copy(router), Plan.from_dict(data))  # as it is, it passes
    before = pickle.dumps(router)
    data = through_json(data)
    EDITS[edit](data)
    with pytest.raises((ValueError, StalePlanError)):
        DOORS[door](router, Plan.from_dict(data))
    assert pickle.dumps(router) == before


# --- nodes that are down ---


def test_without_a_walk_a_key_whose_node_is_down_has_no_node(kind: str, router: Router) -> None:
    owners = {key: router.owner(key) for key in KEYS}
    assert router.mark_down("b")
    assert not router.mark_down("b")
    assert (router.down, router.epoch, router.names) == (("b",), 0, tuple(NAMES))
    for key, owner in owners.items():
        if owner != "b":
            assert router.owner(key) == router[key] == router.route(key).node == owner
        elif isinstance(router.placement, Walkable):
            assert router.owner(key) == next(n for n in router.placement.walk(key) if n != "b")
        else:
            for ask in (router.owner, router.__getitem__, router.route, lambda k: router.owner_many([k]),
                        lambda k: router.index_many([k]), lambda k: router.owner_at(router.position(k))):  # fmt: skip
                with pytest.raises(NoNodeAvailableError, match="'b', which is down"):
                    ask(key)
    up = [key for key, owner in owners.items() if owner != "b"]
    assert router.owner_many(up) == [owners[key] for key in up]
    assert isinstance(router.placement, Walkable) == (kind in WALKS)
    assert router.mark_up("b")
    assert router.owner_many(KEYS) == list(owners.values())


def test_all_nodes_down(router: Router) -> None:
    router.mark_down(*NAMES)
    for ask in (
        router.owner,
        router.route,
        lambda key: router.owner_many([key]),
        lambda key: router.index_many([key]),
    ):
        with pytest.raises(NoNodeAvailableError, match="every node is down"):
            ask("user:7")
    assert router.placement.owner("user:7") in NAMES
    assert len(router.index_many([])) == 0


def test_a_mark_goes_with_its_node_and_belongs_to_one_router(router: Router) -> None:
    router.mark_down("a", "b")
    assert Router.from_dict(router.to_dict()).down == ()
    assert pickle.loads(pickle.dumps(router)).down == copy.copy(router).down == ("a", "b")
    router.remove("a")
    assert router.down == ("b",)


def test_what_needs_a_walk_says_so(kind: str, router: Router) -> None:
    if kind in WALKS:
        assert router.owners("k", 2) == tuple(router.walk("k"))[:2]
        assert BoundedRouter(router).acquire("k").node == router.owner("k")
        return
    for ask in (lambda: router.owners("k", 2), lambda: router.walk("k"), lambda: BoundedRouter(router)):
        with pytest.raises(NoWalkError, match="walk"):
            ask()


# --- pins ---


def test_pins_are_entries_with_the_epoch_that_made_them(router: Router) -> None:
    key = "tenant:7"
    home = router.owner(key)
    other = next(name for name in NAMES if name != home)
    router.pin(key, other)
    assert (router.epoch, dict(router.pins)) == (1, {b"tenant:7": Pin(b"tenant:7", other, 1)})
    keys = [*KEYS, key]
    expected = [*router.placement.owner_many(KEYS), other]
    assert router.owner_many(keys) == [router.owner(k) for k in keys] == expected
    assert [router.nodes[i].name for i in router.index_many(keys)] == expected
    assert router.owner_many(iter(keys)) == expected
    assert router.route(key) == Route(other, 1)
    router.pin(key, other)
    assert router.epoch == 1, "it is pinned there already"
    router.pin(b"tenant:7", home)
    assert router.pins[b"tenant:7"] == Pin(b"tenant:7", home, 2)
    assert router.unpin(key)
    assert not router.unpin(key)
    assert (router.epoch, len(router.pins), router.owner(key)) == (3, 0, home)


def test_a_pin_falls_back_while_its_node_is_down(router: Router) -> None:
    key = "tenant:7"
    home = router.owner(key)
    other = next(name for name in NAMES if name != home)
    router.pin(key, other)
    router.mark_down(other)
    assert router.owner(key) == router.owner_many([key])[0] == home
    router.mark_up(other)
    assert router.owner(key) == other


def test_a_pinned_key_needs_no_other_node(router: Router) -> None:
    key = next(key for key in KEYS if router.owner(key) == "a")
    router.pin(key, "b")
    router.mark_down("a")
    assert router.owner(key) == router.owner_many([key])[0] == router.route(key).node == "b"


def test_a_node_that_keys_are_pinned_to_does_not_leave_by_mistake(router: Router) -> None:
    router.pin("tenant:7", "b")
    plan = router.plan(remove=["b"])
    assert router.unpins(plan) == (Pin(b"tenant:7", "b", 1),)
    assert router.unpins(router.plan(add=["d"])) == ()
    for refused in (
        lambda: router.remove("b"), lambda: router.apply(plan), lambda: router.check_plan(plan),
        lambda: router.carry(Progress(plan, plan.ranges.of(()), 2)),
    ):  # fmt: skip
        with pytest.raises(PinnedNodeError, match=r"1 keys.*b'tenant:7' to 'b'"):
            refused()
    assert router.epoch == 1
    router.check_plan(plan, allow_unpin=True)
    router.apply(plan, allow_unpin=True)
    assert (router.epoch, len(router.pins)) == (2, 0)


# --- documents, copies, followers ---


def test_documents_say_what_they_are(kind: str, router: Router) -> None:
    router.add("d")
    router.pin("tenant:7", "d")
    router.pin(b"\xff\x00", "a")
    data = through_json(router.to_dict())
    assert (data["kind"], data["version"], data["epoch"]) == ("router", 1, 3)
    assert data["placement"] == through_json(router.placement.to_dict())
    assert data["pins"] == [
        {"kind": "pin", "version": 1, "key": "tenant:7", "node": "d", "epoch": 2},
        {"kind": "pin", "version": 1, "key_hex": "ff00", "node": "a", "epoch": 3},
    ]
    copies = [
        Router.from_dict(data),
        pickle.loads(pickle.dumps(router)),
        copy.deepcopy(router),
        copy.copy(router),
    ]
    for same in copies:
        assert same == router
        assert same.owner_many([*KEYS, "tenant:7"]) == router.owner_many([*KEYS, "tenant:7"])
        same.remove("b")
        assert (same.epoch, router.epoch) == (4, 3)
    assert type(router.placement) is type(MAKERS[kind](NAMES))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(epoch=-1), "router.epoch: must not be negative"),
        (lambda data: data.update(epoch="1"), "router.epoch"),
        (lambda data: data.pop("placement"), "router.placement: is missing"),
        (lambda data: data.update(kind="ring"), "router"),
        (lambda data: data.update(version=2), "router"),
        (lambda data: data.update(why=1), "why"),
        (lambda data: data.update(placement={"kind": "no such kind", "version": 1}), "no such kind"),
        (lambda data: data.update(pins=[{"kind": "pin", "version": 1, "key": "k", "node": "z"}]), "'z', which is not a node"),
        (lambda data: data.update(running=7), "router.running"),
    ],
)  # fmt: skip
def test_a_document_that_is_wrong(change: Callable[[Any], object], message: str) -> None:
    router = Router(["a"])
    data = through_json(router.to_dict())
    change(data)
    for read in (Router.from_dict, router.follow):
        with pytest.raises(ValueError, match=message):
            read(data)
    assert router == Router(["a"])


def test_a_follower_takes_what_is_later_and_keeps_its_marks(router: Router) -> None:
    replica = Router.from_dict(router.to_dict())
    replica.mark_down("a", "b")
    assert not replica.follow(router.to_dict())
    states = [router.to_dict()]
    for change in (lambda: router.add("d"), lambda: router.remove("b"), lambda: router.pin("k", "d")):
        change()
        states.append(router.to_dict())
    assert replica.follow(states[3])
    assert (replica, replica.down) == (router, ("a",))
    for state in states:
        assert not replica.follow(state)
    assert replica == router


def test_check_tells_a_client_where_to_go(router: Router) -> None:
    key = KEYS[0]
    owner = router.owner(key)
    other = next(name for name in NAMES if name != owner)
    router.check(key, owner, epoch=5)
    with pytest.raises(Moved) as moved:
        router.check(key, other, epoch=0)
    assert (moved.value.to, moved.value.epoch) == (owner, 0)
    with pytest.raises(StaleRouterError, match="epoch 5, and this router is at 0"):
        router.check(key, other, epoch=5)


def test_adopt_takes_over_what_others_agreed_on(kind: str, router: Router) -> None:
    router.pin("k", "a")
    router.mark_down("a", "b")
    plan = router.adopt(["b", "c", "d"], epoch=9)
    assert (router.epoch, router.names, router.down, len(router.pins)) == (9, ("b", "c", "d"), ("b",), 0)
    assert plan.after == router.placement.digest
    assert router.adopt(["b", "c", "d"], epoch=9).empty
    router.adopt(MAKERS[kind](NAMES), epoch=12)
    assert (router.epoch, router.placement) == (12, MAKERS[kind](NAMES))


def test_a_router_has_no_other_attributes(router: Router) -> None:
    for name in ("epoch", "placement", "nodes", "snapshot", "epcoh"):
        with pytest.raises(AttributeError):
            setattr(router, name, 5)
    with pytest.raises(TypeError, match="unhashable"):
        hash(router)
    assert repr(router) == f"<Router at epoch 0: {router.placement!r}>"

"""A router in the middle of a handover: every key has the owner that what is done says, and no other."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ringhash.routing.snapshot as snapshot_module
from ringhash import (
    Node,
    NoNodeAvailableError,
    Placement,
    Plan,
    Ring,
    Route,
    Router,
    Shards,
    StalePlanError,
    assign,
)
from ringhash.errors import HandoverRunningError, PinnedNodeError
from ringhash.interop import KetamaRing
from ringhash.placement import Walkable
from ringhash.placements.assignment import Assignment
from ringhash.ranges import Ranges
from ringhash.routing import Progress
from ringhash.routing.health import answering

KEYS = [f"user:{i}" for i in range(120)]
NONE = Ranges.of(())


@st.composite
def rings(draw: st.DrawFn) -> tuple[Placement, Placement]:
    vnodes, tags = draw(st.integers(1, 6)), draw(st.booleans())
    names = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)
    return tuple(Ring(draw(names), vnodes=vnodes, hash_tags=tags) for _ in range(2))  # type: ignore[return-value]


@st.composite
def deals(draw: st.DrawFn) -> tuple[Placement, Placement]:
    """Any assignment and any other of the same shards: neither need be even."""
    shards = Shards(draw(st.integers(1, 40)), hash_tags=draw(st.booleans()))
    made = []
    for _ in range(2):
        names = draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
        weights = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=len(names), max_size=len(names)))
        owners = draw(st.lists(st.sampled_from(names), min_size=shards.count, max_size=shards.count))
        made.append(Assignment(shards, list(map(Node, names, weights)), owners))
    return made[0], made[1]


@st.composite
def ketamas(draw: st.DrawFn) -> tuple[Placement, Placement]:
    names = st.lists(st.sampled_from(["h1", "h2", "h3", "h4"]), min_size=1, unique=True)
    return KetamaRing(draw(names), "libmemcached"), KetamaRing(draw(names), "libmemcached")


PAIRS = {"ring": rings(), "assignment": deals()}
if issubclass(KetamaRing, Placement):  # it has come over to the placements of this house
    PAIRS["ketama"] = ketamas()


def steps_of(plan: Plan, data: st.DataObject) -> list[Ranges]:
    """What is done at each step, when the moves are done in any order, some at once."""
    ranges = [move.range for move in plan.moves]
    order = data.draw(st.permutations(ranges))
    size = data.draw(st.integers(1, max(1, len(ranges))))
    return [Ranges.of(order[: i + size]) for i in range(0, len(order), size)]


def routes_right(data: st.DataObject, kind: str) -> None:
    before, after = data.draw(PAIRS[kind])
    router = Router(before)
    plan = router.plan_to(after)
    if plan.empty:
        return
    old, new = before.owner_many(KEYS), after.owner_many(KEYS)
    epoch = 0
    for done in [NONE, *steps_of(plan, data)]:
        epoch = router.carry(Progress(plan, done, epoch + 1))
        assert epoch == router.epoch
        gone = [done.holds(plan.space.position(key)) for key in KEYS]
        expected = [there if is_gone else here for here, there, is_gone in zip(old, new, gone, strict=True)]
        assert router.owner_many(KEYS) == [router.owner(key) for key in KEYS] == expected
        assert [router.nodes[i].name for i in router.index_many(KEYS)] == expected
        for key, owner in zip(KEYS[:20], expected, strict=False):
            assert router.owner_at(plan.space.position(key)) == owner
            move = plan.move_of(key)
            source, target = (move.source, move.target) if move else (None, None)
            assert router.route(key) == Route(
                owner, epoch, move is not None and owner == source, source, target
            )
            if isinstance(before, Walkable):
                walk = list(router.walk(key))
                assert walk[0] == owner
                assert len(set(walk)) == len(walk)
                assert router.owners(key, 2) == tuple(walk[:2])
        copies = [
            Router.from_dict(json.loads(json.dumps(router.to_dict()))), pickle.loads(pickle.dumps(router)), copy.deepcopy(router),
        ]  # fmt: skip
        assert all(it == router and it.owner_many(KEYS) == expected for it in copies)
    forward = data.draw(st.booleans())
    if not forward:
        assert router.carry(Progress(plan, NONE, 1)) == router.epoch
    last = router.carry(Progress(plan, plan.ranges if forward else NONE, 1, "forward" if forward else "back"))
    assert (router.epoch, router.placement, router.running) == (last, after if forward else before, None)
    assert router.owner_many(KEYS) == (new if forward else old)


@pytest.mark.parametrize("kind", PAIRS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_key_has_its_old_owner_until_its_range_is_done(kind: str, data: st.DataObject) -> None:
    routes_right(data, kind)


def only_before(before: Placement, after: Placement, done: Ranges, down: frozenset[str]) -> Placement:
    return answering(before, down)


def only_after(before: Placement, after: Placement, done: Ranges, down: frozenset[str]) -> Placement:
    return answering(after, down)


def all_but_the_first_range(
    before: Placement, after: Placement, done: Ranges, down: frozenset[str]
) -> Placement:
    return before.middle(after, Ranges.of(list(done)[1:]))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("wrong", [only_before, only_after, all_but_the_first_range])
def test_that_test_finds_a_router_that_looks_at(
    kind: str, wrong: Callable[..., Placement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: another rule for the middle of a handover."""
    monkeypatch.setattr(snapshot_module, "answering_between", wrong)
    quick = settings(
        max_examples=300, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        quick(given(st.data())(lambda data: routes_right(data, kind)))()


# --- the protocol of `carry` ---

RING = Ring(["a", "b", "c"], vnodes=8)
DEAL = assign(24, ["a", "b", "c"])
BOTH = pytest.mark.parametrize("placement", [RING, DEAL], ids=["ring", "assignment"])


def begun(placement: Placement) -> tuple[Router, Plan, Ranges]:
    """A router in the middle of a handover, its plan, and the half of it that is done."""
    router = Router(placement)
    plan = router.plan(add=["d"], remove=["a"])
    half = Ranges.of([(start, (start + end) // 2) for (start, end), _, _ in plan.moves])
    router.carry(Progress(plan, half, 1))
    return router, plan, half


@BOTH
def test_saying_the_same_again_changes_nothing(placement: Placement) -> None:
    router, plan, half = begun(placement)
    assert router.epoch == 1
    assert router.running is not None
    assert (router.running.plan, router.running.done, router.running.phase) == (plan, half, "running")
    assert 0 < router.running.fraction < 1
    snapshot = router.snapshot
    assert router.carry(Progress(plan, half, 1)) == 1
    assert router.snapshot is snapshot
    assert router.carry(Progress(plan, plan.ranges, 2)) == 2
    assert router.carry(Progress(plan, half, 2)) == 3, "a piece that went back is another epoch"


@BOTH
def test_other_changes_are_refused_meanwhile(placement: Placement) -> None:
    router, plan, half = begun(placement)
    other = Router(placement).plan(add=["e"])
    for change in (
        lambda: router.apply(other), lambda: router.apply(plan), lambda: router.check_plan(plan),
        lambda: router.update(add=["e"]), lambda: router.adopt(["x"], 9),
        lambda: router.carry(Progress(other, NONE, 5)),
    ):  # fmt: skip
        with pytest.raises(HandoverRunningError, match="is running"):
            change()
    assert router.running is not None
    assert router.running.done == half


@BOTH
def test_what_is_carried_waits_to_be_finished_or_reversed(placement: Placement) -> None:
    router, plan, half = begun(placement)
    router.carry(Progress(plan, plan.ranges, 2, "carried"))
    assert router.running is not None
    assert router.running.awaits_finish
    assert router.running.fraction == 1
    after = router.running.after
    assert router.owner_many(KEYS) == after.owner_many(KEYS)
    for change in (lambda: router.update(add=["e"]), lambda: router.apply(plan)):
        with pytest.raises(HandoverRunningError, match="waits for its end; finish it or reverse it"):
            change()
    reversed_ = copy.copy(router)
    reversed_.carry(Progress(plan, half, 3))
    reversed_.carry(Progress(plan, NONE, 4))
    reversed_.carry(Progress(plan, NONE, 5, "back"))
    assert (reversed_.placement, reversed_.epoch) == (placement, 5)
    assert router.carry(Progress(plan, plan.ranges, 3, "forward")) == 3
    assert (router.placement, router.running) == (after, None)
    router.add("e")


@BOTH
def test_a_plan_made_meanwhile_follows_the_handover(placement: Placement) -> None:
    router, plan, _ = begun(placement)
    assert router.running is not None
    follower = router.plan(add=["e"])
    assert (follower.before, follower.epoch) == (plan.after, None)
    assert router.plan_to(router.running.after).empty
    router.carry(Progress(plan, plan.ranges, 2, "forward"))
    router.apply(follower)
    assert router.names == ("b", "c", "d", "e")


@BOTH
def test_a_carrier_that_crashed_says_it_again_to_any_router(placement: Placement) -> None:
    router, plan, half = begun(placement)
    fresh = Router(placement)
    assert fresh.carry(Progress(plan, half, 7)) == 7
    assert fresh.owner_many(KEYS) == router.owner_many(KEYS)
    at_end = Router(placement)
    assert at_end.carry(Progress(plan, plan.ranges, 9, "forward")) == 9
    assert at_end.placement.digest == plan.after
    assert at_end.carry(Progress(plan, plan.ranges, 9, "forward")) == 9
    assert at_end.carry(Progress(plan, plan.ranges, 4, "forward")) == 9
    back = Router(placement)
    assert back.carry(Progress(plan, NONE, 9, "back")) == 9
    assert (back.placement, back.carry(Progress(plan, NONE, 9, "back"))) == (placement, 9)
    with pytest.raises(StalePlanError):
        Router(placement.changed(add=["z"])).carry(Progress(plan, half, 1))
    with pytest.raises(StalePlanError):
        at_end.carry(Progress(plan, half, 1))


@BOTH
def test_what_is_done_must_be_a_part_of_the_plan(placement: Placement) -> None:
    router = Router(placement)
    plan = router.plan(add=["d"])
    everything = Ranges.of([(0, plan.space.size - 1)])
    for progress in (
        Progress(plan, everything, 1), Progress(plan, NONE, 1, "carried"), Progress(plan, NONE, 1, "forward"),
        Progress(plan, plan.ranges, 1, "back"), Progress(plan, NONE, 1, "done"),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"done|phase"):
            router.carry(progress)
    for done, phase in (
        ([[0, plan.space.size - 1]], "running"),
        ([], "carried"),
        ([], "forward"),
        ([[5, 1]], "running"),
    ):
        running = {"plan": plan.to_dict(), "done": done, "epoch": 1, "phase": phase}
        with pytest.raises(ValueError, match=r"router\.running"):
            Router.from_dict({**router.to_dict(), "running": running})
    assert router == Router(placement)


@BOTH
def test_pins_in_the_middle_raise_the_epoch_and_keep_to_nodes_that_stay(placement: Placement) -> None:
    router, plan, half = begun(placement)
    with pytest.raises(PinnedNodeError, match="takes 'a' out"):
        router.pin("k", "a")
    router.pin("k", "b")
    assert (router.epoch, router.owner("k"), router.pins[b"k"].epoch) == (2, "b", 2)
    assert router.carry(Progress(plan, half, 1)) == 2
    assert router.carry(Progress(plan, plan.ranges, 2)) == 3
    assert router.carry(Progress(plan, plan.ranges, 3, "forward")) == 4
    assert router.owner("k") == "b"


@BOTH
def test_marks_in_the_middle(placement: Placement) -> None:
    router, plan, _ = begun(placement)
    owners = dict(zip(KEYS, router.owner_many(KEYS), strict=True))
    router.mark_down("b")
    for key, owner in owners.items():
        if owner != "b":
            assert router.owner(key) == owner
        elif isinstance(placement, Walkable):
            assert router.owner(key) in {"a", "c", "d"}
        else:
            with pytest.raises(NoNodeAvailableError, match="'b', which is down"):
                router.owner(key)
    router.mark_down("a", "d", "c")
    with pytest.raises(NoNodeAvailableError, match="every node is down"):
        router.owner("k")
    router.mark_up("a", "b", "c", "d")
    assert router.owner_many(KEYS) == list(owners.values())
    router.mark_down("a", "d")
    router.carry(Progress(plan, plan.ranges, 2, "forward"))
    assert router.down == ("d",)


def test_the_first_node_and_the_last() -> None:
    router = Router()
    plan = router.plan(add=["a"])
    router.carry(Progress(plan, NONE, 1))
    with pytest.raises(LookupError):
        router.owner("k")
    router.carry(Progress(plan, plan.ranges, 2))
    assert router.owner("k") == "a"
    router.carry(Progress(plan, plan.ranges, 3, "forward"))
    plan = router.plan(remove=["a"])
    router.carry(Progress(plan, NONE, 4))
    assert router.owner("k") == "a"
    router.carry(Progress(plan, plan.ranges, 5, "forward"))
    assert (router.names, router.epoch) == ((), 5)


def follows(sender: Router, receiver: Router) -> bool:
    return receiver.follow(json.loads(json.dumps(sender.to_dict())))


@BOTH
def test_replicas_follow_through_the_middle(placement: Placement) -> None:
    carrier, replica = Router(placement), Router(placement)
    plan = carrier.plan(add=["d"])
    moves = [move.range for move in plan.moves]
    steps: list[Any] = [Progress(plan, Ranges.of(moves[:i]), 1) for i in range(len(moves) + 1)]
    for progress in [
        *steps,
        Progress(plan, plan.ranges, 1, "carried"),
        Progress(plan, plan.ranges, 1, "forward"),
    ]:
        carrier.carry(progress)
        assert follows(carrier, replica)
        assert replica == carrier
        assert replica.owner_many(KEYS) == carrier.owner_many(KEYS)
        assert not follows(carrier, replica)

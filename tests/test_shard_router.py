"""The live view of an assignment, and handovers of it: exact in the middle, and after a crash."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handover_world import mutant
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ringhash.shard_router as shard_router_module
from ringhash import (
    Assignment,
    DuplicateNodeError,
    EmptyRingError,
    Guard,
    Handover,
    HandoverRunningError,
    Moved,
    Node,
    Plan,
    Route,
    Router,
    ShardRouter,
    Shards,
    StalePlanError,
    StaleRouterError,
    UnknownNodeError,
    assign,
)
from ringhash.handover.journal import Journal
from ringhash.handover.machine import Record
from ringhash.handover.pieces import Piece, cut
from ringhash.handover.run import read_status

KEYS = [f"user:{i}" for i in range(500)]
OLD, NEW = assign(12, ["a", "b", "c"]), assign(12, ["b", "c", "d"], assign(12, ["a", "b", "c"]))


def nothing(piece: Piece) -> None:
    pass


def gentle(router: ShardRouter, plan: Plan, **options: Any) -> Handover:
    return Handover(router, plan, **{"stop": nothing, "start": nothing, "pause": 0.0, **options})


# --- a live view ---


def test_it_answers_as_its_assignment_does() -> None:
    router = ShardRouter(OLD)
    assert [router.owner(key) for key in KEYS] == [router[key] for key in KEYS] == OLD.owner_many(KEYS)
    assert router.owner_many(np.arange(100)) == OLD.owner_many(np.arange(100))
    assert router.index_many(KEYS).tolist() == OLD.index_many(KEYS).tolist()
    assert [router.worker_of(shard) for shard in range(12)] == list(OLD.owners)
    assert (router.assignment, router.nodes, router.epoch) == (OLD, OLD.workers, 0)
    assert router.route("x") == Route(OLD.owner("x"), 0)
    assert repr(router) == "<ShardRouter at epoch 0: <Assignment of Shards(12) to 3 workers>>"
    with pytest.raises(IndexError):
        router.worker_of(12)
    with pytest.raises(TypeError, match="Assignment"):
        ShardRouter(["a"])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        iter(router)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        hash(router)


def test_a_change_at_once() -> None:
    router = ShardRouter(OLD)
    plan = router.plan(add=["d"], remove=["a"])
    assert (plan.epoch, plan.before, plan.after) == (0, OLD.digest, NEW.digest)
    assert router.assignment == OLD
    router.apply(Plan.from_dict(json.loads(json.dumps(plan.to_dict()))))
    assert (router.epoch, router.assignment) == (1, NEW)
    router.apply(plan.inverse())
    assert (router.epoch, router.assignment) == (2, OLD)
    router.apply(NEW.plan(OLD))  # a plan without an epoch, of the assignment itself
    assert (router.epoch, router.assignment) == (3, NEW)
    router.apply(router.plan())
    assert router.epoch == 3
    router.apply(router.plan(reweight={"b": 1.0 + 1e-9}))  # no shard moves, and yet it is a change
    assert (router.epoch, router.nodes[0].weight) == (4, 1.0 + 1e-9)


def test_a_change_between_the_same_workers_and_back() -> None:
    swapped = Assignment(OLD.shards, OLD.workers, OLD.owners[::-1])
    router = ShardRouter(OLD)
    plan = router.plan_to(swapped)
    router.apply(plan)
    assert router.assignment == swapped
    router.apply(plan.inverse())  # its epoch is the one that the plan made
    assert (router.epoch, router.assignment) == (2, OLD)


def test_refusals() -> None:
    router = ShardRouter(OLD)
    plan = router.plan(add=["d"])
    for error, change in (
        (DuplicateNodeError, lambda: router.plan(add=["a"])),
        (UnknownNodeError, lambda: router.plan(remove=["z"])),
        (EmptyRingError, lambda: router.plan(remove=["a", "b", "c"])),
        (ValueError, lambda: router.plan_to(assign(13, ["a"]))),
        (TypeError, lambda: router.apply("no plan")),  # type: ignore[arg-type]
        (StalePlanError, lambda: router.apply(Router(["a", "b", "c"]).plan(add=["d"]))),
        (StalePlanError, lambda: router.apply(OLD.plan())),
        (StalePlanError, lambda: router.apply(OLD.shards.split_plan())),
        (StalePlanError, lambda: Router(["a"]).apply(plan)),
    ):
        with pytest.raises(error):
            change()
    assert (router.epoch, router.assignment) == (0, OLD)
    router.apply(plan)
    with pytest.raises(StalePlanError, match="made at epoch 0, and the router is at epoch 1"):
        router.apply(plan)
    with pytest.raises(StalePlanError, match="an assignment of digest"):
        router.apply(NEW.plan(OLD))
    with pytest.raises(StalePlanError, match="epoch"):
        gentle(router, plan)


def test_a_plan_for_workers_of_another_weight_is_stale() -> None:
    """The digest of an assignment is that of the owners alone."""
    heavy = assign(12, {"a": 1.0, "b": 1.0, "c": 1.0 + 1e-9}, OLD)
    assert heavy.digest == OLD.digest
    plan = assign(12, ["a", "b"], OLD).plan(OLD)
    with pytest.raises(StalePlanError, match="the plan was made for Node"):
        ShardRouter(heavy).apply(plan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(after=OLD.digest), "does not lead where it says"),
        (lambda data: data["moves"][0].__setitem__(2, "c"), "takes shards"),
        (lambda data: data["moves"][0].__setitem__(3, "z"), "'z', which is no worker"),
        (lambda data: data["moves"][0].__setitem__(3, None), "None, which is no worker"),
        (lambda data: data.update(space=13), "the plan is of 13 shards"),
    ],
)
def test_a_plan_that_was_tampered_with(change: Callable[[Any], object], message: str) -> None:
    data: Any = NEW.plan(OLD).to_dict()
    change(data)
    with pytest.raises(ValueError, match=message):
        ShardRouter(OLD).apply(Plan.from_dict(data))


def test_the_guard_takes_it_too() -> None:
    router, guard = ShardRouter(OLD), Guard(max_fraction=0.3, grace=0)
    assert "max_fraction" in guard.reasons(router, router.plan(remove=["a"]))
    guard.apply(router, router.plan(add=["d"]))
    assert router.epoch == 1
    assert list(guard.reasons(router, router.plan(add=["e"]))) == ["cooldown"]


# --- in the middle of a handover ---


@st.composite
def changes(draw: st.DrawFn) -> tuple[Assignment, Assignment]:
    """Any assignment and any other of the same shards: none of them need be even."""
    shards = Shards(draw(st.integers(1, 40)), hash_tags=draw(st.booleans()))
    made = []
    for _ in range(2):
        names = draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
        weights = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=len(names), max_size=len(names)))
        owners = draw(st.lists(st.sampled_from(names), min_size=shards.count, max_size=shards.count))
        made.append(Assignment(shards, map(Node, names, weights), owners))
    return made[0], made[1]


def routes_right(data: st.DataObject) -> None:
    before, after = data.draw(changes())
    router = shard_router_module.ShardRouter(before)
    plan = router.plan_to(after)
    by, most = data.draw(st.sampled_from(["pair", "range"])), data.draw(st.sampled_from([None, 0.2]))
    pieces = list(data.draw(st.permutations(cut(plan, by, most))))
    router._begin(plan)
    done = np.zeros(len(KEYS), bool)
    for number in range(len(pieces) + 1):
        if number:
            done |= pieces[number - 1].mask(KEYS)
            router._advance([r for p in pieces[:number] for r in p.ranges], 1 + number)
        expected = [
            new if it else old
            for old, new, it in zip(before.owner_many(KEYS), after.owner_many(KEYS), done, strict=True)
        ]
        assert router.owner_many(KEYS) == [router.owner(key) for key in KEYS] == expected
        assert [router.nodes[i].name for i in router.index_many(KEYS)] == expected
        assert [router.worker_of(before.shards.of(key)) for key in KEYS] == expected
        for key, owner in zip(KEYS[:20], expected, strict=False):
            move = plan.move_of(key)
            source, target = (move.source, move.target) if move else (None, None)
            moving = move is not None and owner != move.target
            assert router.route(key) == Route(owner, 1 + number, moving, source, target)
        copies = [
            ShardRouter.from_dict(json.loads(json.dumps(router.to_dict()))),
            pickle.loads(pickle.dumps(router)),
            copy.deepcopy(router),
        ]
        assert all(it == router and it.owner_many(KEYS) == expected for it in copies)
    forward = data.draw(st.booleans())
    router._leave(forward, 9)
    assert (router.epoch, router.assignment) == (9, after if forward else before)
    assert router.owner_many(KEYS) == (after if forward else before).owner_many(KEYS)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_the_owner_is_the_old_one_until_its_piece_is_done_and_the_new_one_after(data: st.DataObject) -> None:
    routes_right(data)


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("            owners[start : end + 1] = after.owners[start : end + 1]", "            pass"),
        ("        owners = list(before.owners)", "        owners = list(after.owners)"),
        ("owners[start : end + 1] = after.owners[start : end + 1]", "owners[start] = after.owners[start]"),
    ],
    ids=["only the owners before", "only the owners after", "only the first shard of each range"],
)
def test_that_test_finds_a_table_with(line: str, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = mutant(shard_router_module, a=line, b=without).ShardTransit
    monkeypatch.setattr(shard_router_module, "ShardTransit", wrong)
    quick = settings(
        max_examples=200, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        quick(given(st.data())(routes_right))()


def test_a_handover_from_begin_to_end() -> None:
    router = ShardRouter(OLD)
    replica = ShardRouter.from_dict(router.to_dict())
    plan = router.plan(add=["d"], remove=["a"])
    key = next(key for key in KEYS if plan.move_of(key))
    stopped: set[int] = set()

    def stop(piece: Piece) -> None:
        for start, end in piece.ranges:
            assert {router.worker_of(shard) for shard in range(start, end + 1)} == {piece.source}
            stopped.update(range(start, end + 1))
        with pytest.raises(HandoverRunningError, match="is running"):
            router.apply(plan)
        with pytest.raises(HandoverRunningError):
            gentle(router, plan)

    status = gentle(router, plan, stop=stop, by="range").run()
    assert status.over
    assert (router.assignment, router.epoch) == (NEW, 2 + len(status.pieces))
    assert stopped == {shard for shard in range(12) if OLD.owners[shard] != NEW.owners[shard]}
    with pytest.raises(Moved) as moved:
        router.check(key, "a", 0)
    assert (moved.value.to, moved.value.epoch) == (router.owner(key), router.epoch)
    with pytest.raises(StaleRouterError, match="bring it up to date"):
        replica.check(key, router.owner(key), router.epoch)
    assert replica.follow(router.to_dict())
    replica.check(key, router.owner(key), router.epoch)
    assert not replica.follow(router.to_dict())
    router.apply(router.plan(add=["e"]))  # and it is free again


def test_a_failure_then_a_reversal() -> None:
    router = ShardRouter(OLD)

    def stop(piece: Piece) -> object:
        return piece.source != "a" or piece.back

    plan = router.plan(add=["d", "e"])
    handover = gentle(router, plan, stop=stop)
    counts = handover.run().counts
    assert counts["FAILED"] >= 1
    assert counts["DONE"] >= 1
    failed = [it.piece for it in handover.status().pieces if it.state.value == "FAILED"]
    for key in KEYS:
        move = plan.move_of(key)
        away = move is not None and not any(key in piece for piece in failed)
        assert router.owner(key) == (move.target if away and move else OLD.owner(key))
    handover.reverse()
    assert handover.run().over
    assert router.assignment == OLD


def test_a_second_plan_is_refused() -> None:
    router = ShardRouter(OLD)
    plan, other = router.plan(add=["d"]), router.plan(add=["e"])
    refused: list[str] = []

    def start(piece: Piece) -> None:
        for change in (lambda: router.apply(other), lambda: gentle(router, other), second.run):
            try:
                change()
            except HandoverRunningError as error:
                refused.append(str(error))

    second = gentle(router, other)
    pieces = len(gentle(router, plan, start=start).run().pieces)
    assert len(refused) == 3 * pieces
    assert all("is running" in message for message in refused)
    with pytest.raises(StalePlanError, match="epoch"):
        second.run()
    assert "e" not in {node.name for node in router.nodes}


# --- crashes ---


class Gone(BaseException):
    """The process is no more."""


def test_a_crash_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the tests of a ring: what was written, no more and no less, is where the next one begins."""
    write = 0
    genuine = Journal.append
    while True:
        path = tmp_path / f"{write}.sqlite"
        router = ShardRouter(OLD)
        count = 0

        def append(self: Journal, record: Record, write: int = write) -> None:
            nonlocal count
            count += 1
            if count > write:
                raise Gone
            genuine(self, record)

        monkeypatch.setattr(Journal, "append", append)
        handover = gentle(router, router.plan(add=["d"], remove=["a"]), journal=path)
        try:
            handover.run()
            break
        except Gone:
            pass
        monkeypatch.setattr(Journal, "append", genuine)
        resumed = Handover.resume(path, stop=nothing, start=nothing)
        assert isinstance(resumed.router, ShardRouter)
        assert resumed.router.owner_many(KEYS) == router.owner_many(KEYS)
        assert resumed.router.epoch >= router.epoch
        assert resumed.run().over
        assert resumed.router.assignment == NEW
        write += 1
    assert write >= 5


@pytest.mark.parametrize("kind", ["shards", "ring"])
def test_a_journal_knows_its_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "j.sqlite"
    router: Any = ShardRouter(OLD) if kind == "shards" else Router(["a", "b", "c"])
    other: Any = Router(["a", "b", "c"]) if kind == "shards" else ShardRouter(OLD)
    fresh = type(router).from_dict(router.to_dict())
    handover = Handover(router, router.plan(add=["d"]), stop=nothing, start=nothing, pause=0, journal=path)
    assert handover.run().over
    assert str(read_status(path)) == str(handover.status())
    for given_router in (None, router, fresh):  # one that is at the end already, and one that is not
        again = Handover.resume(path, stop=nothing, start=nothing, router=given_router)
        assert again.run().over
        assert again.router == router
    with pytest.raises(StalePlanError, match="of digest"):
        Handover.resume(path, stop=nothing, start=nothing, router=other)


def test_a_handover_that_moves_no_shard_still_changes_the_workers(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    router = ShardRouter(OLD)
    plan = router.plan(reweight={"a": 1.0 + 1e-9})
    assert (len(plan), plan.before) == (0, plan.after)
    assert gentle(router, plan, journal=path).run().over
    assert router.nodes[0] == Node("a", 1.0 + 1e-9)
    again = Handover.resume(path, stop=nothing, start=nothing)
    assert again.run().over
    assert again.router == router


# --- JSON ---


def test_what_json_must_be() -> None:
    router = ShardRouter(OLD)
    router.apply(router.plan(add=["d"]))
    data: Any = json.loads(json.dumps(router.to_dict()))
    assert ShardRouter.from_dict(data) == router
    assert ShardRouter.from_dict(data) != ShardRouter(router.assignment)  # of another epoch
    assert router != "x"
    router._begin(router.plan(add=["e"]))
    running: Any = router.to_dict()
    running["handover"]["plan"]["changes"][0]["before"] = Node("e", 9.0).to_dict()
    for wrong, message in (
        ({**data, "epoch": -1}, "router.epoch"),
        ({**data, "ring": {}}, "ring"),
        ({"epoch": 0}, "assignment"),
        ({**data, "handover": {"plan": NEW.plan(OLD).to_dict(), "done": []}}, "was made for another"),
        ({**running, "handover": {**router.to_dict()["handover"], "done": [[3, 12]]}}, "done\\[0\\]"),  # type: ignore[dict-item]
        (running, "handover.plan: the plan was made for"),
    ):
        with pytest.raises(ValueError, match=message):
            ShardRouter.from_dict(wrong)

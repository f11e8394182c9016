"""Every public name, used as a caller would. Checked by `mypy --strict` and never run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_type

import numpy as np

from ringhash import (
    DuplicateNodeError,
    EmptyRingError,
    Handover,
    KeyRange,
    Move,
    Node,
    Placement,
    Plan,
    Ring,
    RinghashError,
    Route,
    Router,
    StalePlanError,
    UnknownNodeError,
    assign,
)
from ringhash.placements.assignment import Assignment
from ringhash.ranges import Ranges
from ringhash.routing import Progress, RouterSnapshot, Running
from ringhash.space import Space
from ringhash.spans import Balance


def errors() -> None:
    error: RinghashError
    for error in (DuplicateNodeError(), EmptyRingError(), StalePlanError(), UnknownNodeError()):
        print(error)
    value: ValueError = DuplicateNodeError()
    lookups: list[LookupError] = [EmptyRingError(), UnknownNodeError()]
    runtime: RuntimeError = StalePlanError()
    print(value, lookups, runtime)


def nodes() -> None:
    node = Node("gw-3", weight=2.0, zone="b")
    assert_type(node.name, str)
    assert_type(node.weight, float)
    assert_type(node.zone, str | None)
    assert_type(node.to_dict(), dict[str, object])
    assert_type(Node.from_dict({}), Node)
    Node("gw-1", 2)
    Node(5)  # type: ignore[arg-type]
    node.weight = 3.0  # type: ignore[misc,unused-ignore]


def rings() -> None:
    ring = Ring(["gw-1", Node("gw-2")], vnodes=160, seed=0, hash_tags=False)
    Ring({"gw-1": 1.0, "gw-2": 2.5})
    Ring()
    Ring(["gw-1"], 160)  # type: ignore[call-arg]
    Ring(["gw-1"], replicas=3)  # type: ignore[call-arg]
    for key in ("a", b"a", bytearray(b"a"), memoryview(b"a"), 5, uuid.UUID(int=5), np.uint8(5)):
        assert_type(ring.owner(key), str)
    assert_type(ring["key"], str)
    ring.owner(None)  # type: ignore[arg-type]
    ring.owner(1.5)  # type: ignore[arg-type]
    assert_type(ring.owners("key", 2), tuple[str, ...])
    assert_type(ring.owners("key", 2, distinct="zone"), tuple[str, ...])
    ring.owners("key", 2, distinct="rack")  # type: ignore[arg-type]
    walk: Iterator[str] = ring.walk("key")
    print(walk)
    assert_type(ring.owner_many(["a", 5]), list[str])
    assert_type(ring.index_many(np.arange(5)), np.ndarray[Any, np.dtype[np.intp]])
    assert_type(ring.position("key"), int)
    assert_type(ring.nodes, tuple[Node, ...])
    assert_type(ring.names, tuple[str, ...])
    assert_type(ring.node("gw-1"), Node)
    assert_type(len(ring), int)
    assert_type("gw-1" in ring, bool)
    assert_type(list(ring), list[str])
    assert_type(ring.points, np.ndarray[Any, np.dtype[np.uint32]])
    print(ring.point_owners.tolist())
    assert_type(ring.vnodes, int)
    assert_type(ring.seed, int)
    assert_type(ring.hash_tags, bool)
    assert_type(ring.ranges("gw-1"), list[KeyRange])
    assert_type(ring.shares, dict[str, float])
    assert_type(ring.balance, Balance)
    assert_type(ring.balance.peak_to_mean, float)
    assert_type(ring.diff(ring), Plan)
    assert_type(ring.with_nodes("gw-3", Node("gw-4")), Ring)
    assert_type(ring.without("gw-1", "gw-2"), Ring)
    assert_type(ring.with_weights({"gw-1": 2}), Ring)
    assert_type(ring.digest, str)
    assert_type(ring.to_dict(), dict[str, object])
    assert_type(Ring.from_dict({}), Ring)
    print({ring: 1}, ring == Ring())


def ranges_and_moves(move: Move) -> None:
    assert_type(move.range, KeyRange)
    assert_type(move.range.start, int)
    assert_type(move.range.end, int)
    assert_type(move.range.size, int)
    assert_type(5 in move.range, bool)
    assert_type(move.source, str | None)
    assert_type(move.target, str | None)
    range_, source, target = move
    assert_type(range_, KeyRange)
    print(source, target, Move(KeyRange(0, 5), None, "a"))


def plans(plan: Plan) -> None:
    several: Sequence[Move] = plan.moves
    print(several)
    assert_type(plan.moves[0], Move)
    assert_type(plan.moves[1:].fraction, float | None)
    assert_type(list(plan.moves), list[Move])
    assert_type(len(plan), int)
    assert_type(plan.fraction, float | None)
    assert_type(plan.space, Space)
    assert_type(plan.positions, int)
    assert_type(plan.ranges, Ranges)
    assert_type(plan.empty, bool)
    assert_type(plan.epoch, int | None)
    assert_type(plan.before + plan.after, str)
    assert_type(plan.move_of("key"), Move | None)
    assert_type(plan.mask(["a", 5]), np.ndarray[Any, np.dtype[np.bool_]])
    assert_type(plan.inverse(), Plan)
    assert_type(plan.to_dict(), dict[str, object])
    assert_type(Plan.from_dict({}), Plan)
    assert_type(str(plan), str)
    groups: list[Mapping[str | None, Sequence[Move]]] = [plan.by_source(), plan.by_target()]
    pairs: Mapping[tuple[str | None, str | None], Sequence[Move]] = plan.pairs()
    between: Sequence[Move] = plan.between("gw-1", None)
    print(groups, pairs, between, [change.after for change in plan.changes.nodes])


def routers() -> None:
    router = Router(["gw-1"], vnodes=160, seed=0, hash_tags=False)
    Router(Ring(["gw-1"]))
    Router({"gw-1": 2.0})
    assert_type(router.owner("key"), str)
    assert_type(router["key"], str)
    assert_type(router.owners("key", 2, distinct="zone"), tuple[str, ...])
    walk: Iterator[str] = router.walk("key")
    print(walk)
    assert_type(router.position("key"), int)
    assert_type(router.owner_many(iter("ab")), list[str])
    assert_type(router.index_many([b"a"]), np.ndarray[Any, np.dtype[np.intp]])
    assert_type(router.placement, Placement)
    assert_type(router.names, tuple[str, ...])
    assert_type(router.snapshot, RouterSnapshot)
    assert_type(router.running, Running | None)
    assert_type(router.owner_at(7), str)
    assert_type(router.adopt(["a"], 7), Plan)
    assert_type(router.epoch, int)
    assert_type(router.nodes, tuple[Node, ...])
    assert_type(len(router), int)
    assert_type("gw-1" in router, bool)
    assert_type(list(router), list[str])
    assert_type(router.plan(add=["a", Node("b")], remove=["gw-1"], reweight={"gw-2": 2}), Plan)
    assert_type(router.update(add={"a": 2.0}), Plan)
    assert_type(router.add("a", Node("b")), Plan)
    assert_type(router.remove("a", "b"), Plan)
    assert_type(router.reweight("gw-1", 3), Plan)
    router.apply(router.plan())
    router.apply(None)  # type: ignore[arg-type]
    router.reweight("gw-1", "3")  # type: ignore[arg-type]
    router.epoch = 5  # type: ignore[misc]
    assert_type(router.to_dict(), dict[str, object])
    assert_type(Router.from_dict({}), Router)


def routers_over_any_placement(running: Running) -> None:
    router = Router(assign(12, ["a", "b"]))
    assert_type(assign(12, ["a"]), Assignment)
    assert_type(router.owner("key"), str)
    assert_type(router.route("key"), Route)
    assert_type(router.plan_to(assign(12, ["c"])), Plan)
    assert_type(router.carry(Progress(router.plan(), Ranges(), 1, "carried")), int)
    Progress(router.plan(), Ranges(), 1, "done")  # type: ignore[arg-type]
    assert_type(running.fraction, float)
    assert_type(running.awaits_finish, bool)
    for live in (router, Router()):
        Handover(live, live.plan(), stop=print, start=print)
    Router(12)  # type: ignore[arg-type]

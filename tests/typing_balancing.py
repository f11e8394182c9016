"""The public names of balancing, used as a caller would. Checked by `mypy --strict` and never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from ringhash import Node, NoNodeAvailableError, Plan, RinghashError, Router
from ringhash.balance import (
    BoundedRouter,
    HotKey,
    HotKeys,
    HotReport,
    LoadReport,
    NodeStats,
    Ramp,
    RouterStats,
    Salt,
    Ticket,
    ramp,
    stats,
)
from ringhash.errors import NoWalkError, PinnedNodeError
from ringhash.routing import Pin, Pins


def errors() -> None:
    lookup: LookupError = NoNodeAvailableError()
    value: ValueError = PinnedNodeError()
    kind: TypeError = NoWalkError()
    all_of_them: list[RinghashError] = [NoNodeAvailableError(), PinnedNodeError(), NoWalkError()]
    print(lookup, value, kind, all_of_them)


def health_and_pins(router: Router, plan: Plan) -> None:
    assert_type(router.mark_down("gw-1", "gw-2"), bool)
    assert_type(router.mark_up("gw-1"), bool)
    assert_type(router.down, tuple[str, ...])
    router.pin(b"tenant:7", "gw-1")
    assert_type(router.unpin("tenant:7"), bool)
    assert_type(router.pins, Pins)
    pins: Mapping[bytes, Pin] = router.pins
    assert_type(pins[b"tenant:7"].epoch, int)
    assert_type(router.unpins(plan), tuple[Pin, ...])
    router.apply(plan, allow_unpin=True)
    assert_type(router.remove("gw-1", allow_unpin=True), Plan)
    steps = ramp(router, Node("gw-4", 2.0), over=60, steps=4)
    assert_type(steps, Ramp)
    plans: list[Plan] = steps
    assert_type(steps.times, list[float])
    print(plans)


def bounded_loads(router: Router) -> None:
    bounded = BoundedRouter(router, factor=1.25)
    ticket = bounded.acquire("user:7", avoid=["gw-1"])
    assert_type(ticket, Ticket)
    assert_type(ticket.node, str)
    assert_type(ticket.release(), bool)
    with bounded.acquire(7) as other:
        assert_type(other, Ticket)
    assert_type(bounded.held, int)
    assert_type(bounded.loads, dict[str, int])
    assert_type(bounded.capacity("gw-1"), int)
    assert_type(bounded.report(), LoadReport)
    assert_type(stats(bounded), RouterStats)
    assert_type(stats(router).nodes, tuple[NodeStats, ...])
    assert_type(stats(router).last_change, Plan | None)


def hot_keys(router: Router) -> None:
    hot = HotKeys(k=10, sample=0.01)
    hot.add("user:7")
    hot.add_many([b"a", 7])
    assert_type(hot.top(), list[HotKey])
    assert_type(hot.report(router), HotReport)
    salt = Salt(spread=8)
    assert_type(salt.write("key", 7), str)
    assert_type(salt.write(b"key", "item"), bytes)
    assert_type(salt.reads("key"), list[str])
    assert_type(salt.with_spread(4), Salt)

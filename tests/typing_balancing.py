"""The public names of balancing, used as a caller would. Checked by `mypy --strict` and never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from ringhash import (
    BoundedRouter,
    HotKey,
    HotKeys,
    HotReport,
    LoadReport,
    NodeStats,
    NoNodeAvailableError,
    Pin,
    PinnedNodeError,
    Plan,
    RinghashError,
    Router,
    RouterStats,
    Salt,
    Ticket,
)


def errors() -> None:
    lookup: LookupError = NoNodeAvailableError()
    value: ValueError = PinnedNodeError()
    both: list[RinghashError] = [NoNodeAvailableError(), PinnedNodeError()]
    print(lookup, value, both)


def health_and_pins(router: Router, plan: Plan) -> None:
    assert_type(router.mark_down("gw-1", "gw-2"), bool)
    assert_type(router.mark_up("gw-1"), bool)
    assert_type(router.down, tuple[str, ...])
    for move in router.displaced("gw-1"):
        assert_type(move.target, str | None)
    router.pin(b"tenant:7", "gw-1")
    assert_type(router.unpin("tenant:7"), bool)
    assert_type(router.pins, Mapping[bytes, str])
    assert_type(plan.unpins, tuple[Pin, ...])
    router.apply(plan, allow_unpin=True)
    assert_type(router.remove("gw-1", allow_unpin=True), Plan)
    ramp = router.ramp("gw-4", over=60, steps=4)
    plans: list[Plan] = ramp
    assert_type(ramp.times, list[float])
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
    assert_type(bounded.stats(), RouterStats)
    assert_type(router.stats().nodes, tuple[NodeStats, ...])
    assert_type(router.stats().last_change, Plan | None)


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

"""Bounded loads: no node above its capacity, no key refused while there is room, near as can be.

capacity of a node that is up = ceil(factor * (held + 1) * weight / sum of the weights that are up)

where held, like the weights, is that of the nodes that are up.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model import ModelRing

from ringhash import EmptyRingError, Node, NoNodeAvailableError, Router, UnknownNodeError
from ringhash._core import LiveLookup, Loads
from ringhash.balance import BoundedRouter, Ticket

NAMES = [f"gw-{i}" for i in range(1, 6)]


def capacity(factor, held, weight, weights):
    return math.ceil(factor * (held + 1) * weight / sum(weights))


def test_a_ticket_is_a_place_until_it_is_released():
    bounded = BoundedRouter(Router(NAMES))
    ticket = bounded.acquire("user:7")
    assert isinstance(ticket, Ticket)
    assert ticket.node == bounded.router.owner("user:7")
    assert (bounded.held, bounded.loads[ticket.node]) == (1, 1)
    assert ticket.release()
    assert not ticket.release(), "the second time does nothing"
    assert (bounded.held, bounded.loads[ticket.node]) == (0, 0)
    with bounded.acquire("user:7") as ticket:
        assert bounded.held == 1
        ticket.release()
    assert bounded.held == 0
    with pytest.raises(ZeroDivisionError), bounded.acquire("user:7"):
        raise ZeroDivisionError
    assert bounded.held == 0


def test_a_ticket_that_is_lost_is_held():
    """A connection may outlive the object that counted it; so only `release` gives a place back."""
    bounded = BoundedRouter(Router(NAMES))
    bounded.acquire("user:7")
    assert bounded.held == 1


def test_a_ticket_has_no_copies():
    ticket = BoundedRouter(Router(NAMES)).acquire("user:7")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="given back once"):
            copied(ticket)
    assert repr(ticket) == f"<Ticket for {ticket.node!r}>"
    ticket.release()
    assert repr(ticket) == f"<Ticket for {ticket.node!r}, released>"


def test_one_hot_key_fills_its_node_and_then_the_next_ones_of_its_walk():
    router = Router(NAMES)
    bounded = BoundedRouter(router, factor=1.25)
    walk = list(router.walk("hot"))
    for held in range(200):
        before = bounded.loads
        room = {name: capacity(1.25, held, 1.0, [1.0] * 5) for name in NAMES}
        assert {name: bounded.capacity(name) for name in NAMES} == room
        expected = next(name for name in walk if before[name] < room[name])
        assert bounded.acquire("hot").node == expected
    report = bounded.report()
    assert (report.held, report.acquired) == (200, 200)
    assert report.loads[walk[0]] == 50  # 1.25 * 200 / 5
    assert report.elsewhere == 200 - 50
    assert report.farthest == 3, "with 50 a node, four of five nodes hold all"
    assert report.walked == sum(i * report.loads[name] for i, name in enumerate(walk))


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.25, 2.0, 1e9])
def test_never_refused_and_never_above_capacity(factor):
    weights = {"a": 1.0, "b": 0.1, "c": 3.7, "d": 1.0, "e": 1 / 3}
    bounded = BoundedRouter(Router(weights, vnodes=10), factor=factor)
    for i in range(3000):
        held = bounded.held
        ticket = bounded.acquire(i % 7)
        assert bounded.loads[ticket.node] <= capacity(factor, held, weights[ticket.node], weights.values())
        if i % 3 == 0:
            ticket.release()


def test_there_is_room_for_whatever_is_held_in_exact_arithmetic():
    """Why it never refuses: the capacities together exceed what is held, for every factor >= 1."""
    weights = [Fraction(1), Fraction(1, 10), Fraction(37, 10), Fraction(1, 3)]
    for held in range(500):
        assert sum(math.ceil((held + 1) * w / sum(weights)) for w in weights) >= held + 1


def test_counts_are_right_after_a_removal():
    """A known fault elsewhere: what the removed node held goes on counting for another, or is lost."""
    router = Router(NAMES)
    bounded = BoundedRouter(router)
    tickets = [bounded.acquire(i) for i in range(100)]
    before = bounded.loads
    gone = [ticket for ticket in tickets if ticket.node == "gw-2"]
    router.remove("gw-2")
    assert bounded.loads == before, "the others hold what they held, and gw-2 has yet to let go"
    for ticket in gone[:-1]:
        ticket.release()
    assert bounded.loads["gw-2"] == 1
    router.add("gw-2")
    assert bounded.loads["gw-2"] == 1, "it comes back with what it still holds"
    router.remove("gw-2")
    gone[-1].release()
    bounded.acquire(0).release()
    assert "gw-2" not in bounded.loads
    assert bounded.held == 100 - len(gone) == sum(bounded.loads.values())
    for ticket in tickets:
        ticket.release()
    assert set(bounded.loads.values()) == {0}


def test_room_that_is_there_is_found():
    """A known fault elsewhere: "not enough room" while nodes are empty, when the capacity is rounded
    down, or is that of a membership that has changed."""
    router = Router(["a", "b", "c"])
    bounded = BoundedRouter(router, factor=1.0)
    tickets = [bounded.acquire("hot") for _ in range(9)]
    assert sorted(bounded.loads.values()) == [3, 3, 3]
    router.remove("a", "b")
    tickets += [bounded.acquire("hot") for _ in range(3)]  # c alone takes all that comes
    assert bounded.loads["c"] == 6
    router.add(Node("d", weight=1e-3))
    tickets += [bounded.acquire("hot") for _ in range(30)]
    assert bounded.held == 42


def test_floor_instead_of_ceil_would_find_no_room():
    """The negative control: with 3 nodes and nothing held, every rounded-down capacity is 0."""
    assert math.floor(1.25 * 1 * 1.0 / 3) == 0
    assert capacity(1.25, 0, 1.0, [1.0] * 3) == 1


def test_nodes_that_are_down_take_nothing_and_their_tickets_give_no_room():
    router = Router(NAMES)
    bounded = BoundedRouter(router)
    tickets = [bounded.acquire(i) for i in range(50)]
    router.mark_down("gw-1", "gw-2")
    frozen = {name: bounded.loads[name] for name in ("gw-1", "gw-2")}
    more = [bounded.acquire(i) for i in range(50)]
    assert not {ticket.node for ticket in more} & {"gw-1", "gw-2"}
    assert {name: bounded.loads[name] for name in ("gw-1", "gw-2")} == frozen
    assert bounded.capacity("gw-1") == 0
    assert bounded.capacity("gw-3") == capacity(1.25, 100 - sum(frozen.values()), 1.0, [1.0] * 3)
    router.mark_down(*NAMES)
    with pytest.raises(NoNodeAvailableError):
        bounded.acquire(1)
    assert bounded.held == 100, "a refused key holds nothing"
    for ticket in tickets:
        ticket.release()
    assert bounded.held == 50


def test_tickets_of_a_node_that_left_give_no_room_to_the_others():
    router = Router(["a", "b"])
    bounded = BoundedRouter(router, factor=1.0)
    tickets = [bounded.acquire(i) for i in range(20)]
    assert bounded.loads == {"a": 10, "b": 10}
    router.remove("a")
    for ticket in tickets:
        if ticket.node == "b":
            ticket.release()
    router.add("c")
    assert bounded.loads == {"a": 10, "b": 0, "c": 0}
    assert (bounded.capacity("b"), bounded.capacity("c")) == (1, 1)
    assert sorted(bounded.acquire("hot").node for _ in range(4)) == ["b", "b", "c", "c"]
    router.add("a")  # which holds its tickets again, and they count
    assert bounded.capacity("a") == math.ceil((10 + 4 + 1) / 3)
    for ticket in tickets:
        ticket.release()
    assert bounded.loads == {"a": 0, "b": 2, "c": 2}
    assert bounded.capacity("a") == math.ceil((4 + 1) / 3)
    assert bounded.held == 4


def test_what_nodes_to_avoid_hold_gives_no_room_to_the_others():
    bounded = BoundedRouter(Router(["a", "b", "c"]), factor=1.0)
    for i in range(30):
        bounded.acquire(i)
    while bounded.loads["a"] < 30:
        bounded.acquire("hot", avoid=["b", "c"])
    assert bounded.loads == {"a": 30, "b": 10, "c": 10}
    assert [bounded.acquire("hot", avoid=["a"]).node for _ in range(2)] in (["b", "c"], ["c", "b"])


def test_nodes_to_avoid_are_passed():
    router = Router(NAMES)
    bounded = BoundedRouter(router)
    first, second, third, *_ = router.walk("user:7")
    assert bounded.acquire("user:7", avoid=[first]).node == second
    assert bounded.acquire("user:7", avoid=first).node == third, "second has no room left"
    assert bounded.acquire("user:7", [first, second, third]).node not in {first, second, third}
    assert bounded.acquire("user:7", ()).node == first
    with pytest.raises(NoNodeAvailableError, match="gw-1, gw-2, gw-3, gw-4, gw-5"):
        bounded.acquire("user:7", NAMES)
    assert bounded.held == 4


def test_a_pinned_key_begins_at_its_node():
    router = Router(NAMES)
    bounded = BoundedRouter(router, factor=2.0)
    first, second, *_ = router.walk("tenant")
    other = next(name for name in NAMES if name not in {first, second})
    router.pin("tenant", other)
    assert bounded.acquire("tenant").node == other
    nodes = [bounded.acquire("tenant").node for _ in range(20)]
    assert bounded.loads[other] == 1 + nodes.count(other) == capacity(2.0, 20, 1.0, [1.0] * 5)
    assert first in nodes, "when it is full, the key goes where the ring says"
    router.mark_down(other)
    assert bounded.acquire("tenant").node in {first, second}


def test_errors():
    router = Router(NAMES)
    for wrong in (0.99, 0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="at least 1"):
            BoundedRouter(router, factor=wrong)
    for wrong in ("1.25", True, None):
        with pytest.raises(TypeError, match="factor must be a number"):
            BoundedRouter(router, factor=wrong)
    with pytest.raises(TypeError, match="for a Router"):
        BoundedRouter(router.placement)
    bounded = BoundedRouter(router)
    with pytest.raises(TypeError, match="a key must be"):
        bounded.acquire(None)
    with pytest.raises(UnknownNodeError):
        bounded.capacity("gw-9")
    with pytest.raises(EmptyRingError):
        BoundedRouter(Router()).acquire("user:7")
    assert bounded.held == 0
    assert not Ticket().release(), "a ticket that no one gave is worth nothing"


class Traffic(RuleBasedStateMachine):
    """Any sequence of keys, releases, changes and marks, beside a model of the same in plain Python."""

    @initialize(factor=st.sampled_from([1.0, 1.1, 1.25, 3.0]))
    def start(self, factor):
        self.factor = factor
        self.router = Router({"a": 1.0, "b": 2.0}, vnodes=3)
        self.bounded = BoundedRouter(self.router, factor)
        self.tickets = []
        self.held = {}

    @property
    def up(self):
        return {n.name: (n.weight, None) for n in self.router.nodes if n.name not in self.router.down}

    @rule(key=st.integers(0, 9), times=st.integers(1, 5))
    def acquire(self, key, times):
        if not self.up:
            with pytest.raises(LookupError):
                self.bounded.acquire(key)
            return
        walk = ModelRing(self.up, vnodes=3).walk(key)
        weights = [weight for weight, _ in self.up.values()]
        for _ in range(times):
            total = sum(self.held.get(name, 0) for name in self.up)
            expected = next(
                name
                for name in walk
                if self.held.get(name, 0) < capacity(self.factor, total, self.up[name][0], weights)
            )
            ticket = self.bounded.acquire(key)
            assert ticket.node == expected
            self.tickets.append(ticket)
            self.held[expected] = self.held.get(expected, 0) + 1

    @rule(data=st.data())
    def release(self, data):
        if self.tickets:
            ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
            assert ticket.release()
            assert not ticket.release()
            self.held[ticket.node] -= 1

    @rule(name=st.sampled_from("abcde"), weight=st.sampled_from([0.5, 1.0, 2.0]))
    def join_or_reweight(self, name, weight):
        if name in self.router:
            self.router.reweight(name, weight)
        else:
            self.router.add(Node(name, weight))

    @rule(name=st.sampled_from("abcde"))
    def leave(self, name):
        if name in self.router:
            self.router.remove(name)

    @rule(name=st.sampled_from("abcde"), down=st.booleans())
    def mark(self, name, down):
        if name in self.router:
            (self.router.mark_down if down else self.router.mark_up)(name)

    @invariant()
    def counts_agree(self):
        loads = self.bounded.loads
        assert self.bounded.held == sum(self.held.values()) == sum(loads.values()) == len(self.tickets)
        assert {name: held for name, held in loads.items() if held} == {
            name: held for name, held in self.held.items() if held
        }


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_threads_lose_no_count():
    router = Router(NAMES)
    bounded = BoundedRouter(router, factor=1.1)
    stop = threading.Event()

    def worker(number):
        kept = []
        for i in range(4000):
            kept.append(bounded.acquire(f"{number}:{i}"))
            if i % 2:
                kept.pop(0).release()
        return kept

    def change():
        while not stop.is_set():
            router.add("gw-6")
            router.mark_down("gw-1")
            router.mark_up("gw-1")
            router.remove("gw-6")

    with ThreadPoolExecutor(5) as pool:
        changing = pool.submit(change)
        kept = [ticket for future in [pool.submit(worker, n) for n in range(4)] for ticket in future.result()]
        stop.set()
        changing.result()
    assert bounded.held == len(kept) == 4 * 2000
    assert bounded.report().acquired == 4 * 4000
    loads = bounded.loads
    assert {name: [t.node for t in kept].count(name) for name in loads} == loads
    with ThreadPoolExecutor(4) as pool:  # each ticket is released by several threads at once
        firsts = sum(pool.map(lambda ticket: ticket.release(), kept * 4))
    assert firsts == len(kept)
    assert bounded.held == 0
    assert set(bounded.loads.values()) == {0}


def zipf_keys(count, s=1.1, seed=4):
    """`count` draws from a million keys whose frequencies fall as 1 / rank**s."""
    weights = np.arange(1, 1_000_001) ** -s
    return np.random.default_rng(seed).choice(1_000_000, count, p=weights / weights.sum())


@pytest.mark.slow
def test_a_zipf_workload_is_within_the_factor_where_the_plain_ring_is_not():
    """s = 1.1, a million keys, 20 nodes; a million connections held at once."""
    router = Router([f"gw-{i:02}" for i in range(20)])
    keys = zipf_keys(1_000_000).tolist()
    plain = np.bincount(router.index_many(keys), minlength=20)
    bounded = BoundedRouter(router, factor=1.25)
    for key in keys:
        bounded.acquire(key)
    loads = np.array(list(bounded.loads.values()))
    assert loads.sum() == len(keys)
    assert plain.max() / plain.mean() > 1.5
    assert loads.max() / loads.mean() <= 1.25
    report = bounded.report()
    print(
        f"plain ring {plain.max() / plain.mean():.2f}, bounded {loads.max() / loads.mean():.2f}; "
        f"{report.elsewhere / report.acquired:.1%} elsewhere, {report.walked / report.elsewhere:.2f} "
        f"nodes passed on average, {report.farthest} at most"
    )


def test_the_core_does_not_crash_however_it_is_called():
    router = Router(NAMES)
    for wrong in (
        lambda: Loads(None, 1.0), lambda: Loads(router), lambda: Loads.__new__(Loads), lambda: BoundedRouter(),
        lambda: Loads(router, 1.25).acquire("x"), lambda: Loads(LiveLookup(), 1.25).acquire("x"),
        lambda: BoundedRouter(router).acquire(), lambda: BoundedRouter(router).acquire("x", avoid=7),
    ):  # fmt: skip
        with pytest.raises((TypeError, NotImplementedError, LookupError)):
            wrong()

    class Broken(Loads):
        weights: object = None

        def _weights_of(self, table):
            return self.weights

    for weights in ([], [1.0], [1.0] * 9, ["a"] * 5, None, 7):
        broken = Broken(router, 1.25)
        broken.weights = weights
        with pytest.raises((TypeError, ValueError)):
            broken.acquire("x")
    for weights in ([0.0] * 5, [math.nan] * 5, [-1.0] * 5, [math.inf] * 5):
        broken = Broken(router, 1.25)
        broken.weights = weights
        with contextlib.suppress(LookupError):  # no room, or any node: no hang
            broken.acquire("x")


def test_tickets_leave_nothing_behind():
    bounded = BoundedRouter(Router(NAMES))

    def work():
        for i in range(200):
            bounded.acquire(i).release()
            with bounded.acquire(i, ["gw-1"]) as ticket:
                assert ticket.node
            bounded.report()

    work()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            work()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000, "4,000 tickets of 48 bytes would be 192,000"
    assert not gc.is_tracked(bounded.acquire(1)), "a million tickets are no work for the garbage collector"


def test_those_that_are_not_avoided_always_have_room() -> None:
    """A node that refuses, but is not marked down yet, takes no place; the others share all of them."""
    bounded = BoundedRouter(Router({"n1": 5.0, "n2": 1.0, "n3": 1.0}))
    tickets = [bounded.acquire(f"k{i}", avoid=["n1", "no node"]) for i in range(300)]
    assert max(bounded.loads.values()) <= math.ceil(1.25 * 300 / 2)
    assert bounded.loads["n1"] == 0
    with pytest.raises(LookupError):
        bounded.acquire("k", avoid=["n1", "n2", "n3"])
    for ticket in tickets:
        ticket.release()
    assert bounded.held == 0


@pytest.mark.parametrize("names", [[1], [b"n1"], [None], 5])
def test_what_is_no_name_cannot_be_avoided(names: object) -> None:
    with pytest.raises(TypeError):
        BoundedRouter(Router(["n1"])).acquire("k", avoid=names)  # type: ignore[arg-type]

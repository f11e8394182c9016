"""Nodes that are down: who answers for them, and that everything comes back.

The oracle is the walk of the model ring: the owner of a key is the first node of its walk that is up.
"""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model import ModelRing

from ringhash import EmptyRingError, Node, NoNodeAvailableError, Router, UnknownNodeError
from ringhash.balance import stats

KEYS = [f"user:{i}" for i in range(300)]
NAMES = ["gw-1", "gw-2", "gw-3", "gw-4", "gw-5"]


def first_up(walk, down):
    return next(name for name in walk if name not in down)


@given(down=st.sets(st.sampled_from(NAMES), max_size=4), vnodes=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_a_key_of_a_node_that_is_down_goes_to_the_next_node_of_its_walk(down, vnodes):
    router = Router(NAMES, vnodes=vnodes)
    model = ModelRing(dict.fromkeys(NAMES, (1.0, None)), vnodes=vnodes)
    before = {key: tuple(router.walk(key)) for key in KEYS}
    router.mark_down(*down)
    for key in KEYS:
        assert before[key] == tuple(model.walk(key))
        assert router.owner(key) == router[key] == first_up(before[key], down)
        assert tuple(router.walk(key)) == tuple(name for name in before[key] if name not in down)
        live = len(NAMES) - len(down)
        assert not live or router.owners(key, live) == tuple(router.walk(key))
        with pytest.raises(ValueError, match=f"nodes, {live}, not {live + 1}"):
            router.owners(key, live + 1, strict=True)
        if live:
            assert router.owners(key, live + 1) == router.owners(key, live)
    router.mark_up(*down)
    assert {key: tuple(router.walk(key)) for key in KEYS} == before


def test_marking_is_no_change_of_ownership():
    router = Router(NAMES)
    ring, digest, plan = router.placement, router.placement.digest, router.plan(add=["gw-6"])
    assert router.mark_down("gw-2")
    assert not router.mark_down("gw-2"), "it was down"
    assert router.down == ("gw-2",)
    assert (router.placement, router.placement.digest, router.epoch) == (ring, digest, 0)
    assert "gw-2" in router
    assert [node.name for node in router.nodes] == NAMES
    router.apply(plan)  # a plan of before is not stale
    assert router.mark_up("gw-2")
    assert not router.mark_up("gw-2")
    assert router.down == ()


def test_a_mark_of_an_unknown_node_marks_nothing():
    router = Router(NAMES)
    with pytest.raises(UnknownNodeError, match="gw-9"):
        router.mark_down("gw-1", "gw-9")
    with pytest.raises(TypeError):
        router.mark_down(7)
    assert router.down == ()


def test_all_nodes_down_is_an_error_of_its_own():
    router = Router(NAMES)
    router.mark_down(*NAMES)
    for ask in (
        router.owner, router.__getitem__, router.walk, lambda key: router.owners(key, 1),
        lambda key: router.owners(key, 1, "zone"), lambda key: router.owner_many([key]),
        lambda key: router.index_many([key]),
    ):  # fmt: skip
        with pytest.raises(NoNodeAvailableError, match="mark one up"):
            ask("user:7")
    with pytest.raises(LookupError):
        router.owner("user:7")
    assert router.placement.owner("user:7") in NAMES, "who would rather try anyway asks the members"
    assert len(router.index_many([])) == 0
    assert set(router.snapshot.answering.spans.owners.tolist()) == {-1}
    router.mark_up("gw-3")
    assert router.owner("user:7") == "gw-3"
    with pytest.raises(EmptyRingError):
        Router().owner("user:7")


def test_many_keys_answer_as_one_key_does():
    router = Router(NAMES)
    router.mark_down("gw-1", "gw-4")
    numbers = np.arange(1000)
    for keys in (KEYS, tuple(KEYS), numbers, np.array(KEYS, dtype="S"), iter(KEYS)):
        listed = list(keys)
        expected = [router.owner(key) for key in listed]
        given = iter(listed) if not isinstance(keys, (list, tuple, np.ndarray)) else keys
        assert router.owner_many(given) == expected
        given = iter(listed) if not isinstance(keys, (list, tuple, np.ndarray)) else keys
        indexes = router.index_many(given)
        assert indexes.dtype == np.intp
        assert [router.placement.nodes[i].name for i in indexes] == expected


def test_the_answering_placement_says_who_serves_the_ranges_of_a_node_that_is_down():
    router = Router(NAMES, vnodes=20)
    before = {key: router.owner(key) for key in KEYS}
    assert router.snapshot.answering is router.placement
    router.mark_down("gw-2", "gw-3")
    plan = router.placement.diff(router.snapshot.answering)
    assert {move.source for move in plan.moves} == {"gw-2", "gw-3"}
    assert plan.fraction == pytest.approx(sum(router.placement.shares[name] for name in ("gw-2", "gw-3")))
    for key in KEYS:
        move = plan.move_of(key)
        assert router.owner(key) == (before[key] if move is None else move.target)


def test_removing_a_node_drops_its_mark():
    router = Router(NAMES)
    router.mark_down("gw-2", "gw-3")
    router.remove("gw-2")
    assert router.down == ("gw-3",)
    router.add("gw-2")
    assert router.down == ("gw-3",)
    assert router.update(remove=["gw-3"], add=[Node("gw-3", zone="b")]).changes.nodes
    assert router.down == ("gw-3",), "it was replaced and is the same machine"


def test_copies_keep_the_marks_and_to_dict_does_not():
    router = Router(NAMES)
    router.mark_down("gw-2")
    for twin in (copy.copy(router), copy.deepcopy(router), pickle.loads(pickle.dumps(router))):
        assert twin.down == ("gw-2",)
        assert [twin.owner(key) for key in KEYS] == [router.owner(key) for key in KEYS]
        twin.mark_up("gw-2")
        assert router.down == ("gw-2",)
    assert Router.from_dict(router.to_dict()).down == ()
    assert router == Router(NAMES), "a mark is what one router sees, not what it is"
    assert "1 down" in repr(router)


class RouterUnderMarks(RuleBasedStateMachine):
    """Any sequence of changes and marks leaves what a ring built anew would answer."""

    @initialize()
    def start(self):
        self.router = Router(["a", "b"], vnodes=4)
        self.members = {"a": 1.0, "b": 1.0}
        self.down = set()

    @precondition(lambda self: len(self.members) < 6)
    @rule(name=st.sampled_from("abcdef"), weight=st.sampled_from([0.25, 1.0, 2.5]))
    def add(self, name, weight):
        if name not in self.members:
            self.router.add(Node(name, weight))
            self.members[name] = weight

    @rule(name=st.sampled_from("abcdef"))
    def remove(self, name):
        if name in self.members:
            self.router.remove(name)
            del self.members[name]
            self.down.discard(name)

    @rule(name=st.sampled_from("abcdef"), weight=st.sampled_from([0.25, 1.0, 2.5]))
    def reweight(self, name, weight):
        if name in self.members:
            self.router.reweight(name, weight)
            self.members[name] = weight

    @rule(name=st.sampled_from("abcdef"), up=st.booleans())
    def mark(self, name, up):
        if name in self.members:
            (self.router.mark_up if up else self.router.mark_down)(name)
            (self.down.discard if up else self.down.add)(name)

    @invariant()
    def answers_as_a_new_ring_of_the_nodes_that_are_up(self):
        assert self.router.down == tuple(sorted(self.down))
        assert {node.name: node.weight for node in self.router.nodes} == self.members
        live = {name: (weight, None) for name, weight in self.members.items() if name not in self.down}
        model = ModelRing(live, vnodes=4)
        for key in KEYS[:15]:
            if live:
                assert self.router.owner(key) == model.owner(key)
                assert list(self.router.walk(key)) == model.walk(key)
        if live:
            names = [self.router.nodes[i].name for i in self.router.index_many(KEYS[:15])]
            assert names == self.router.owner_many(KEYS[:15]) == [model.owner(key) for key in KEYS[:15]]


TestRouterUnderMarks = RouterUnderMarks.TestCase
TestRouterUnderMarks.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_readers_see_one_moment_while_nodes_go_down_and_up():
    router = Router(NAMES)
    walks = {key: tuple(router.walk(key)) for key in KEYS}
    stop = threading.Event()

    def flap():
        for _ in range(150):
            router.mark_down("gw-2", "gw-3")  # one swap: never only one of the two
            router.mark_up("gw-2", "gw-3")
        stop.set()

    def read():
        wrong = 0
        while not stop.is_set():
            owners = router.owner_many(KEYS)
            both_up = [walk[0] for walk in walks.values()]
            both_down = [first_up(walk, {"gw-2", "gw-3"}) for walk in walks.values()]
            wrong += owners not in (both_up, both_down)
        return wrong

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        pool.submit(flap).result()
        assert [reader.result() for reader in readers] == [0, 0]


def test_the_check_of_one_moment_can_fail():
    """The negative control of the test above: two marks one after the other are seen apart."""
    router = Router(NAMES)
    walks = {key: tuple(router.walk(key)) for key in KEYS}
    router.mark_down("gw-2")
    owners = router.owner_many(KEYS)
    assert owners != [walk[0] for walk in walks.values()]
    assert owners != [first_up(walk, {"gw-2", "gw-3"}) for walk in walks.values()]


def test_the_ring_is_full_while_nodes_are_down():
    router = Router(NAMES)
    router.mark_down("gw-2")
    assert sum(node.share for node in stats(router).nodes) == pytest.approx(1.0)

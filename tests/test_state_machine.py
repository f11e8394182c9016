"""A router and the model live through the same changes; after every step all that must hold is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chosen import (
    CROWD,
    FIRST,
    LASTS,
    MEETS_ITSELF,
    NAMES,
    TIE,
    check_ring,
    edges,
    key_at,
    keys_at,
    model_of,
    moves_of,
)
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model import ModelRing, moves

from ringhash import DuplicateNodeError, KeyRange, Node, Plan, Ring, Router, StalePlanError, UnknownNodeError

# Names that meet at one point, at both ends and in one bucket when the seed is 0, and names of any other kind.
names = st.one_of(
    st.sampled_from([*NAMES[TIE], *FIRST, *LASTS, MEETS_ITSELF, *CROWD]),
    st.sampled_from([f"gw-{i}" for i in range(20)]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
)
weights = st.one_of(st.sampled_from([1, 1.0, 2.0, 0.25, 0.001]), st.floats(0.01, 5.0))
nodes = st.builds(Node, names, weights, st.sampled_from([None, "a", "b", "c"]))
some_nodes = st.lists(nodes, max_size=6, unique_by=lambda node: node.name)
keys = st.one_of(
    st.text(st.characters(codec="utf-8")), st.binary(), st.integers(-(2**63), 2**64 - 1), st.uuids(),
    st.sampled_from(["{a}b", "a{é}", "{}", b"{a}{b}"]),
)  # fmt: skip


class Life(RuleBasedStateMachine):
    router: Router
    nodes: dict[str, Node]
    epoch: int
    old: list[tuple[Plan, int]]

    @initialize(
        start=st.one_of(some_nodes, st.integers(10, 60).map(lambda n: [Node(f"n-{i}") for i in range(n)])),
        vnodes=st.sampled_from([1, 1, 2, 3, 8]), seed=st.sampled_from([0, 0, 0, 2**64 - 1]), hash_tags=st.booleans(),
    )  # fmt: skip
    def begin(self, start: list[Node], vnodes: int, seed: int, hash_tags: bool) -> None:
        self.router = Router(start, vnodes=vnodes, seed=seed, hash_tags=hash_tags)
        self.nodes = {node.name: node for node in start}
        self.epoch = 0
        self.old = []

    def model(self) -> ModelRing:
        ring = self.router.placement
        members = {node.name: (node.weight, node.zone) for node in self.nodes.values()}
        return ModelRing(members, ring.vnodes, ring.seed, ring.hash_tags)

    def some(self, data: st.DataObject, least: int = 0) -> list[str]:
        return data.draw(
            st.lists(st.sampled_from(sorted(self.nodes)), min_size=least, max_size=4, unique=True)
        )

    def change(
        self, data: st.DataObject, add: list[Node], remove: list[str], reweight: dict[str, float]
    ) -> None:
        """Plan it, compare the plan with the model, then apply it, or make the same change in one go."""
        before, ring = self.model(), self.router.placement
        plan = self.router.plan(add=add, remove=remove, reweight=reweight)
        assert self.router.placement is ring
        old_nodes = dict(self.nodes)
        for name in remove:
            del self.nodes[name]
        self.nodes |= {node.name: node for node in add}
        self.nodes |= {name: Node(name, weight, self.nodes[name].zone) for name, weight in reweight.items()}
        after = self.model()

        assert moves_of(plan) == moves(before, after)
        assert (plan.before, plan.epoch) == (ring.digest, self.epoch)
        touched = {node.name for node in add} | set(remove) | set(reweight)
        for source, target in plan.pairs():
            assert {source, target} & touched
        assert {name for change in plan.changes.nodes for name in {n.name for n in change if n}} <= touched

        how = data.draw(st.sampled_from(["apply", "json", "update"]))
        if how == "update":
            assert self.router.update(add=add, remove=remove, reweight=reweight) == plan
        else:
            self.router.apply(
                Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) if how == "json" else plan
            )
        self.epoch += self.nodes != old_nodes
        assert self.router.placement.digest == plan.after
        if everywhere := edges(ring, self.router.placement) if before.points and after.points else []:
            expected = [before.owner_at(p) != after.owner_at(p) for p in everywhere]
            assert plan.mask(keys_at(everywhere, ring.seed)).tolist() == expected
        self.old.append((plan, self.epoch))

    @rule(data=st.data(), add=some_nodes)
    def add(self, data: st.DataObject, add: list[Node]) -> None:
        self.change(data, [node for node in add if node.name not in self.nodes], [], {})

    @rule(data=st.data(), members=st.sampled_from([CROWD, NAMES[TIE], FIRST + LASTS]))
    def add_a_crowd(self, data: st.DataObject, members: list[str]) -> None:
        self.change(data, [Node(name) for name in members if name not in self.nodes], [], {})

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.change(data, [], self.some(data), {})

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), weight=weights)
    def reweight(self, data: st.DataObject, weight: float) -> None:
        self.change(data, [], [], dict.fromkeys(self.some(data), weight))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), add=some_nodes, weight=weights)
    def update(self, data: st.DataObject, add: list[Node], weight: float) -> None:
        remove = self.some(data)
        here = self.nodes.keys() - set(remove)
        add = [node for node in add if node.name not in here]  # some may be replaced
        self.change(data, add, remove, {name: weight for name in self.some(data) if name in here})

    @precondition(lambda self: self.old)
    @rule()
    def undo(self) -> None:
        plan, epoch = self.old.pop()
        if epoch == self.epoch:
            self.router.apply(plan.inverse())
            self.epoch += not plan.empty
            for before, after in plan.changes.nodes:
                if after:
                    del self.nodes[after.name]
                if before:
                    self.nodes[before.name] = before

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def apply_an_old_plan(self, data: st.DataObject) -> None:
        plan, epoch = data.draw(st.sampled_from(self.old))
        if not plan.empty:
            ring = self.router.placement
            with pytest.raises(StalePlanError):
                self.router.apply(plan)
            if epoch != self.epoch:
                with pytest.raises(StalePlanError):
                    self.router.apply(plan.inverse())
            assert self.router.placement is ring

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        (name,) = self.some(data, 1)[:1]
        ring = self.router.placement
        with pytest.raises(DuplicateNodeError):
            self.router.add("something new, not a member", name)
        with pytest.raises(UnknownNodeError):
            self.router.update(remove=[name, "something new, not a member"])
        with pytest.raises(ValueError, match="weight"):
            self.router.update(remove=[other for other in self.nodes if other != name], reweight={name: 0})
        assert self.router.placement is ring

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), some_keys=st.lists(keys, min_size=1, max_size=10))
    def look_up(self, data: st.DataObject, some_keys: list[Any]) -> None:
        model, router = self.model(), self.router
        here = data.draw(st.sampled_from(edges(router.placement)))
        some_keys.append(key_at(here, router.placement.seed))
        for key in some_keys:
            assert router.position(key) == model.position(key)
            assert router.owner(key) == router[key] == router.placement.owner(key) == model.owner(key)
            assert list(router.walk(key)) == model.walk(key)
            n = data.draw(st.integers(1, len(self.nodes)))
            assert router.owners(key, n) == model.owners(key, n)
            assert router.owners(key, n, distinct="zone") == model.owners(key, n, "zone")
        assert router.owner_many(some_keys) == [model.owner(key) for key in some_keys]
        assert [router.nodes[i].name for i in router.index_many(some_keys)] == router.owner_many(some_keys)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def ask_for_ranges(self, data: st.DataObject) -> None:
        model, ring = self.model(), self.router.placement
        for name in self.some(data):
            assert ring.ranges(name) == [KeyRange(*range_) for range_ in model.ranges(name)]
            assert ring.shares[name] == sum(range_.size for range_ in ring.ranges(name)) / 2**32
        assert sum(ring.shares.values()) == pytest.approx(1.0, abs=1e-12)

    @rule(other=some_nodes)
    def differ(self, other: list[Node]) -> None:
        ring = self.router.placement
        target = Ring(other, vnodes=ring.vnodes, seed=ring.seed, hash_tags=ring.hash_tags)
        assert moves_of(ring.diff(target)) == moves(model_of(ring), model_of(target))

    @invariant()
    def agree(self) -> None:
        assert self.router.epoch == self.epoch
        assert self.router.nodes == tuple(self.nodes[name] for name in sorted(self.nodes))
        check_ring(self.router.placement, self.model())


TestLife = pytest.mark.core(Life.TestCase)

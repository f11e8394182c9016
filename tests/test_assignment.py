"""assign: floor or ceiling of the fair share, the fewest moves, always the same answer."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import DuplicateNodeError, EmptyRingError, Node, Plan, UnknownNodeError
from ringhash.placement import verified
from ringhash.placements.assignment import Assignment, assign
from ringhash.placements.deal import fair_shares
from ringhash.placements.shards import Shards
from ringhash.placements.simulation import simulate
from ringhash.ranges import Ranges


def moves(before: Assignment | None, after: Assignment) -> int:
    olds = before.owners if before is not None else [None] * len(after.owners)
    return sum(old != new for old, new in zip(olds, after.owners, strict=True))


def within_bounds(counts: dict[str, int], shares: dict[str, Fraction]) -> bool:
    return all(math.floor(s) <= counts.get(name, 0) <= math.ceil(s) for name, s in shares.items())


def fewest_by_brute_force(before: tuple[str, ...], count: int, nodes: list[Node]) -> int:
    """Try every assignment there is."""
    shares = fair_shares(count, nodes)
    names = [node.name for node in nodes]
    return min(
        sum(a != b for a, b in zip(before, owners, strict=True))
        for owners in itertools.product(names, repeat=count)
        if within_bounds({name: owners.count(name) for name in names}, shares)
    )


def test_optimal_against_brute_force_with_equal_weights() -> None:
    """Every previous assignment of up to 5 shards to 3 workers, to every set of workers."""
    for count in range(1, 6):
        for owners in itertools.product("abc", repeat=count):
            before = Assignment(Shards(count), map(Node, "abc"), owners)
            for names in ("a", "b", "ab", "bc", "abc", "bcd", "abcd", "de"):
                after = assign(count, names_of(names), before)
                assert moves(before, after) == fewest_by_brute_force(owners, count, list(map(Node, names))), (
                    owners,
                    names,
                )


def names_of(letters: str) -> list[str]:
    return list(letters)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_optimal_against_brute_force_with_weights(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    names = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    nodes = [Node(name, data.draw(st.sampled_from([0.1, 0.5, 1.0, 1.5, 3.0, 7.0]))) for name in sorted(names)]
    owners = tuple(data.draw(st.lists(st.sampled_from("abcde"), min_size=count, max_size=count)))
    before = Assignment(Shards(count), map(Node, "abcde"), owners)
    after = assign(count, nodes, before)
    assert within_bounds(after.counts, fair_shares(count, nodes))
    assert moves(before, after) == fewest_by_brute_force(owners, count, nodes)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.lists(st.integers(1, 40), min_size=2, max_size=8), st.integers(0, 2**32))
def test_movement_meets_the_lower_bound_and_balance_holds(count: int, sizes: list[int], seed: int) -> None:
    """Large ones: what must move at least is what the workers that go had, and what the others have
    above the most they may have."""
    rng = random.Random(seed)
    before = None
    for size in sizes:
        names = sorted(rng.sample([f"w{i:02}" for i in range(60)], size))
        after = assign(count, rng.sample(names, size), before)
        counts = after.counts
        assert max(counts.values()) - min(counts.values()) <= 1
        assert count < size or min(counts.values()) >= 1
        if before is not None:
            had = {name: before.counts.get(name, 0) for name in names}
            floor, extra = divmod(count, size)
            may_stay = sum(min(h, floor) for h in had.values()) + min(
                extra, sum(h > floor for h in had.values())
            )
            assert moves(before, after) == count - may_stay
            assert before.diff(after).positions == moves(before, after)
        before = after


def test_the_same_whatever_the_order() -> None:
    before = assign(100, ["a", "b", "c"])
    names = ["a", "d", "c", "e"]
    answers = {assign(100, list(order), before).owners for order in itertools.permutations(names)}
    assert len(answers) == 1
    assert assign(100, names, before) == assign(100, dict.fromkeys(names, 1.0), before)


def test_nothing_moves_when_nothing_changes() -> None:
    first = assign(Shards(100), [f"w{i}" for i in range(7)])
    assert assign(Shards(100), [f"w{i}" for i in range(7)], first) == first
    assert len(first.diff(first)) == 0


def test_weights_share_in_proportion_and_nobody_idles() -> None:
    assert assign(10, {"a": 3.0, "b": 1.0, "c": 1.0}).counts == {"a": 6, "b": 2, "c": 2}
    assert assign(10, ["a", "b", "c"], weights={"a": 3.0}).counts == {"a": 6, "b": 2, "c": 2}
    assert assign(4, {"big": 1000.0, "s1": 0.001, "s2": 0.001}).counts == {"big": 2, "s1": 1, "s2": 1}
    assert assign(2, ["a", "b", "c"]).counts == {"a": 1, "b": 1, "c": 0}
    assert assign(4, {"a": 1.4, "b": 2.6}).counts == {"a": 1, "b": 3}  # 1.4 and 2.6: the larger remainder


@given(st.integers(1, 200), st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
def test_fair_shares_add_up(count: int, weights: list[float]) -> None:
    nodes = [Node(f"w{i:02}", weight) for i, weight in enumerate(weights)]
    shares = fair_shares(count, nodes)
    assert sum(shares.values()) == count
    assert count < len(nodes) or min(shares.values()) >= 1
    ordered = [shares[node.name] for node in sorted(nodes, key=lambda node: node.weight)]
    assert ordered == sorted(ordered)
    assert sum(assign(count, nodes).counts.values()) == count


def test_a_plan_names_every_move() -> None:
    before = assign(20, ["a", "b", "c"])
    after = assign(20, ["b", "c", "d", "e"], before)
    plan = before.diff(after)
    assert plan.space == before.space
    assert plan.space.size == 20
    assert (plan.before, plan.after) == (before.digest, after.digest)
    moved = {shard: move for move in plan.moves for shard in range(move.range.start, move.range.end + 1)}
    for shard in range(20):
        pair = (before.owner_at(shard), after.owner_at(shard))
        assert (shard in moved) == (pair[0] != pair[1])
        assert shard not in moved or (moved[shard].source, moved[shard].target) == pair
    keys = np.arange(1000)
    assert plan.mask(keys).tolist() == [
        a != b for a, b in zip(before.owner_many(keys), after.owner_many(keys), strict=True)
    ]
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    first = Assignment(before.shards).diff(before)
    assert first.fraction == 1.0
    assert {move.source for move in first.moves} == {None}
    assert [change.after.name for change in plan.changes.nodes if change.before is None] == ["d", "e"]


def test_touching_moves_are_one_and_only_if_both_ends_agree() -> None:
    def owned(text: str) -> Assignment:
        return Assignment(Shards(len(text)), map(Node, sorted("abc")), list(text))

    plan = owned("aabaca").diff(owned("ccbbca"))
    assert [(*move.range, move.source, move.target) for move in plan.moves] == [
        (0, 1, "a", "c"), (3, 3, "a", "b"),
    ]  # fmt: skip
    plan = owned("abb").diff(owned("ccb"))
    assert [(*move.range, move.source, move.target) for move in plan.moves] == [
        (0, 0, "a", "c"), (1, 1, "b", "c"),
    ]  # fmt: skip


def test_doubling_moves_nothing_between_workers() -> None:
    before = assign(Shards(10), ["a", "b", "c"])
    split = before.split()
    keys = np.arange(5000)
    assert split.owner_many(keys) == before.owner_many(keys)
    after = assign(Shards(10).double(), ["a", "b", "c"], split)
    assert sorted(after.counts.values()) == [6, 7, 7]
    with pytest.raises(ValueError, match="split"):
        assign(Shards(20), ["a"], before)
    with pytest.raises(ValueError, match="split"):
        before.diff(after)


def test_stats() -> None:
    assignment = assign(4, ["a", "b"])
    keys = ["hot"] * 6 + [f"k{i}" for i in range(4)]
    stats = assignment.stats(keys, oldest={0: 1.0, 1: 5.0, 3: 2.0}, previous=assign(4, ["a"]))
    assert sum(stats.loads.values()) == 10
    assert stats.peak_to_mean == max(stats.loads.values()) / 5
    assert stats.largest_key_share == 0.6
    assert stats.oldest == {"a": 5.0, "b": 2.0}
    assert stats.moved == 2
    assert assignment.stats(np.array([1, 1, 2])).largest_key_share == 2 / 3
    assert assignment.stats([]).peak_to_mean == 0.0
    assert assign(2, {"a": 1.0, "b": 2.0}).stats([1, 2, 3]).loads.keys() == {"a", "b"}


def test_identity_and_faults() -> None:
    assignment = assign(Shards(6, seed=1), [Node("a", 2.0, "z"), "b"])
    assert assignment == pickle.loads(pickle.dumps(assignment))
    assert Assignment.from_dict(json.loads(json.dumps(assignment.to_dict()))) == assignment
    assert assignment.shards_of("a") == (0, 1, 2, 3)
    assert assignment["k"] == assignment.owner("k")
    assert assignment.nodes[assignment.index_many(["k"])[0]].name == assignment.owner("k")
    assert len({assignment, assign(6, ["a", "b"])}) == 2
    with pytest.raises(IndexError, match="from 0 to 5"):
        assignment.owner_at(2**40)
    for make in (lambda: assignment.owner_at(-1), lambda: assignment.owner_at(6)):
        with pytest.raises(IndexError):
            make()
    with pytest.raises(UnknownNodeError):
        assignment.shards_of("c")
    with pytest.raises(AttributeError, match="immutable"):
        assignment.owners = ()
    with pytest.raises(DuplicateNodeError):
        assign(4, ["a", "a"])
    with pytest.raises(EmptyRingError):
        assign(4, [])
    with pytest.raises(UnknownNodeError):
        assign(4, ["a"], weights={"b": 1.0})
    with pytest.raises(ValueError, match="weight"):
        assign(4, ["a"], weights={"a": 0.0})
    with pytest.raises(ValueError, match="as many owners"):
        Assignment(Shards(3), [Node("a")], ["a"])
    with pytest.raises(ValueError, match="not a node"):
        Assignment.from_dict(assignment.to_dict() | {"owners": ["c"] * 6})


def test_the_digest_tells_of_all_that_is_kept() -> None:
    """Also of weights, zones and nodes that have no shard, which move nothing."""
    nodes, owners = [Node("a"), Node("b")], ["a", "b", "a"]
    several = [
        Assignment(Shards(3), nodes, owners),
        Assignment(Shards(3), nodes, ["a", "b", "b"]),
        Assignment(Shards(3), nodes, ["a", "b", None]),
        Assignment(Shards(3), [*nodes, Node("c")], owners),
        Assignment(Shards(3), [Node("a", 2.0), Node("b")], owners),
        Assignment(Shards(3), [Node("a", zone="z"), Node("b")], owners),
        Assignment(Shards(3, seed=1), nodes, owners),
        Assignment(Shards(3, hash_tags=True), nodes, owners),
        Assignment(Shards(3)),
    ]
    assert len({assignment.digest for assignment in several}) == len(several)
    assert several[0].digest == Assignment(Shards(3), nodes[::-1], owners).digest


def test_the_last_node_out_and_the_first_one_in() -> None:
    before = assign(6, ["a", "b"])
    nobody = before.changed(remove=["a", "b"])
    assert nobody.owners == (None,) * 6
    assert nobody == Assignment(before.shards) == pickle.loads(pickle.dumps(nobody))
    assert verified(before, before.diff(nobody)) == nobody
    assert verified(nobody, nobody.diff(before)) == before
    assert {move.target for move in before.diff(nobody).moves} == {None}
    for ask in (lambda: nobody.owner("k"), lambda: nobody.owner_many(["k"]), lambda: nobody.owner_at(0)):
        with pytest.raises(EmptyRingError, match="nobody has the shard"):
            ask()
    assert nobody.changed(add=["c"]).counts == {"c": 6}


def test_the_middle_of_a_handover_is_an_assignment() -> None:
    before = assign(20, ["a", "b", "c"])
    after = assign(20, ["b", "c", "d"], before)
    plan = before.diff(after)
    done = Ranges.of([plan.moves[0].range])
    middle = before.middle(after, done)
    for shard in range(20):
        assert middle.owner_at(shard) == (after if done.holds(shard) else before).owner_at(shard)
    assert middle.spans == before.spans.splice(after.spans, done)
    assert before.middle(after, plan.ranges).owners == after.owners


def test_the_comparison() -> None:
    steps = simulate(512, 40)
    by_method = {m: [s for s in steps if s.method == m] for m in ("sticky", "modulo", "ring", "proportional")}
    assert all([s.nodes for s in some] == list(range(2, 41)) for some in by_method.values())
    for step in by_method["sticky"]:
        assert step.moved == (512 // step.nodes) / 512 <= step.least
        assert step.peak_to_mean <= math.ceil(512 / step.nodes) * step.nodes / 512
    assert all(s.moved > 0.4 for s in by_method["modulo"])
    late = {m: some[-1] for m, some in by_method.items()}
    assert late["sticky"].peak_to_mean < late["ring"].peak_to_mean < late["proportional"].peak_to_mean
    assert late["modulo"].moved > 20 * late["sticky"].moved


def test_nodes_of_an_assignment_may_be_names() -> None:
    assert Assignment(Shards(2), ["a", "b"], ["a", "b"]).nodes == (Node("a"), Node("b"))
    with pytest.raises(TypeError, match=r"write \['a'\]"):
        Assignment(Shards(2), "a")

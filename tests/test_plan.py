"""Plans: exactly what moves, and nothing else."""

from __future__ import annotations

import copy
import json
import pickle
import uuid
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from chosen import edges, key_at, keys_at, model_of, moves_of, owners_at
from hypothesis import given
from hypothesis import strategies as st
from model import LAST, SPACE, moves
from test_ring import nodes

from ringhash import KeyRange, Move, Node, Plan, Ring, Router
from ringhash.plan import Changes
from ringhash.space import HashSpace, ModuloSpace

pytestmark = pytest.mark.core

BEFORE = Ring({"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5}, vnodes=20)
AFTER = Ring({"b": 2.0, "c": 1.0, "d": 0.5, "e": 1.0}, vnodes=20)
PLAN = BEFORE.diff(AFTER)
EMPTY = BEFORE.diff(BEFORE)
EVERYWHERE = edges(BEFORE, AFTER)


def test_a_plan_has_the_moves_of_the_model() -> None:
    assert len(PLAN) == len(PLAN.moves) > 50
    assert moves_of(PLAN) == moves(model_of(BEFORE), model_of(AFTER))


def test_moves_are_disjoint_in_order_and_as_few_as_can_be() -> None:
    for one, following in pairwise(PLAN.moves):
        assert one.range.end < following.range.start
        touching = one.range.end + 1 == following.range.start
        assert not touching or one[1:] != following[1:]
    for move in PLAN.moves:
        assert move.range.start <= move.range.end
        assert move.source != move.target


def test_a_key_moves_exactly_where_its_owners_differ() -> None:
    keys = keys_at(EVERYWHERE)
    expected = [
        one != other for one, other in zip(BEFORE.owner_many(keys), AFTER.owner_many(keys), strict=True)
    ]
    assert PLAN.mask(keys).tolist() == expected
    for key, moves_ in zip(keys.tolist(), expected, strict=True):
        move = PLAN.move_of(key)
        assert (move is not None) == moves_
        if move:
            assert (move.source, move.target) == (BEFORE.owner(key), AFTER.owner(key))
            assert BEFORE.position(key) in move.range


def test_the_moves_of_a_plan_are_a_sequence() -> None:
    all_moves = PLAN.moves
    first = all_moves[0]
    assert isinstance(first, Move)
    assert isinstance(first.range, KeyRange)
    assert list(map(type, first.range)) == [int, int]
    assert all_moves[-1] == list(all_moves)[-1]
    assert all_moves[3:9:2] == list(all_moves)[3:9:2]
    assert all_moves[::-1] == list(reversed(all_moves))
    assert all_moves == list(all_moves) == PLAN.moves
    assert all_moves != list(all_moves)[1:]
    assert first in all_moves
    assert all_moves.index(all_moves[5]) == 5
    assert all_moves != "moves"
    for index in (len(PLAN), -len(PLAN) - 1):
        with pytest.raises(IndexError):
            all_moves[index]
    assert repr(all_moves).endswith(f"({len(PLAN)} moves)")
    assert repr(EMPTY.moves) == "[] (0 moves)"


def test_the_fraction_is_exact() -> None:
    assert PLAN.moves.positions == sum(move.range.size for move in PLAN.moves)
    assert PLAN.fraction == PLAN.positions / PLAN.space.size == PLAN.ranges.size / SPACE
    assert PLAN.space == EMPTY.space == BEFORE.space
    assert PLAN.space.size == SPACE
    assert EMPTY.fraction == 0.0
    assert Ring().diff(BEFORE).fraction == BEFORE.diff(Ring()).fraction == 1.0


def test_moves_are_grouped() -> None:
    everything = list(PLAN.moves)
    by_source, by_target, pairs = PLAN.by_source(), PLAN.by_target(), PLAN.pairs()
    for source, group in by_source.items():
        assert group == [move for move in everything if move.source == source]
    for target, group in by_target.items():
        assert group == [move for move in everything if move.target == target]
    for (source, target), group in pairs.items():
        assert group == [move for move in everything if (move.source, move.target) == (source, target)]
        assert PLAN.between(source, target) == group
    for groups in (by_source.values(), by_target.values(), pairs.values()):
        assert sum(map(len, groups)) == len(everything)
        assert all(groups)
    for nowhere in (("a", "a"), ("e", "a"), ("x", "b"), (None, "b"), ("a", None)):
        assert len(PLAN.between(*nowhere)) == 0
    assert EMPTY.by_source() == EMPTY.by_target() == {}
    assert EMPTY.pairs() == {}


def test_the_first_node_in_and_the_last_one_out() -> None:
    first, last = Ring().diff(Ring(["a"])), Ring(["a"]).diff(Ring())
    assert first.moves == [Move(KeyRange(0, LAST), None, "a")]
    assert last.moves == [Move(KeyRange(0, LAST), "a", None)]
    assert list(first.by_source()) == list(last.by_target()) == [None]
    assert len(first.between(None, "a")) == len(last.between("a", None)) == 1
    assert first.inverse().moves == last.moves
    three = Ring().diff(BEFORE)
    assert {None: BEFORE.ranges("a")} == {None: [move.range for move in three.between(None, "a")]}


def test_a_plan_tells_what_becomes_of_each_node() -> None:
    assert PLAN.changes.nodes == (
        (Node("a"), None), (Node("b"), Node("b", 2.0)), (Node("c", 2.0), Node("c")), (None, Node("e")),
    )  # fmt: skip
    assert PLAN.changes.nodes[0].before == Node("a")
    assert PLAN.changes.nodes[0].after is None
    assert EMPTY.changes == ((), ())
    assert (PLAN.before, PLAN.after, PLAN.epoch) == (BEFORE.digest, AFTER.digest, None)


def test_another_zone_is_a_change_without_moves() -> None:
    plan = Ring([Node("a", zone="x")]).diff(Ring([Node("a", zone="y")]))
    assert len(plan) == 0
    assert plan.changes.nodes == ((Node("a", zone="x"), Node("a", zone="y")),)


def test_another_number_of_points_is_moves_without_a_change() -> None:
    plan = Ring(["a", "b"], vnodes=10).diff(Ring(["a", "b"], vnodes=20))
    assert len(plan) > 0
    assert plan.changes == ((), (("vnodes", 10, 20),))


def test_the_inverse_undoes() -> None:
    inverse = PLAN.inverse()
    assert inverse.moves == [Move(range_, target, source) for range_, source, target in PLAN.moves]
    assert inverse.inverse() == PLAN
    assert (inverse.before, inverse.after) == (PLAN.after, PLAN.before)
    assert inverse.changes.nodes == tuple((after, before) for before, after in PLAN.changes.nodes)
    assert moves_of(inverse) == moves_of(AFTER.diff(BEFORE))
    assert EMPTY.inverse() == EMPTY


@pytest.mark.parametrize("epoch", [0, 5])
def test_an_inverse_applies_at_the_epoch_its_plan_makes(epoch: int) -> None:
    router = Router.from_dict(Router(BEFORE).to_dict() | {"epoch": epoch})
    assert router.plan(add=["x"]).inverse().epoch == epoch + 1
    assert router.plan(add=["x"]).inverse().inverse().epoch == epoch + 2  # once more, after both
    assert router.plan().inverse().epoch == epoch


KEYS: list[Any] = ["", "é", b"", b"\0", 0, -1, 2**64 - 1, uuid.UUID(int=3), *map(str, range(300))]


def test_keys_of_every_kind_are_asked() -> None:
    expected = [BEFORE.owner(key) != AFTER.owner(key) for key in KEYS]
    assert True in expected
    assert [PLAN.move_of(key) is not None for key in KEYS] == expected
    for keys in (KEYS, tuple(KEYS), iter(KEYS)):
        mask = PLAN.mask(keys)
        assert mask.dtype == np.bool_
        assert mask.tolist() == expected
    numbers = np.arange(1000)
    assert PLAN.mask(numbers).tolist() == PLAN.mask(numbers.tolist()).tolist()
    assert PLAN.mask([]).tolist() == []
    assert EMPTY.mask(KEYS).tolist() == [False] * len(KEYS)


def test_hash_tags_count_in_plans_too() -> None:
    before = Ring(["a", "b"], hash_tags=True)
    plan = before.diff(before.with_nodes("c"))
    for i in range(100):
        assert plan.move_of(f"{{{i}}}x") == plan.move_of(f"{{{i}}}y")
        assert plan.mask([f"{{{i}}}x"]) == plan.mask([f"{{{i}}}y"])


def test_plans_are_values() -> None:
    same = BEFORE.diff(AFTER)
    others: list[Any] = [
        EMPTY, PLAN.inverse(), BEFORE.diff(AFTER.without("e")), Router(BEFORE).plan(add=["e"]), "plan",
        Plan.from_dict(PLAN.to_dict() | {"space": HashSpace(1).to_dict()}),
        Plan.from_dict(PLAN.to_dict() | {"space": HashSpace(0, True).to_dict()}),
        Plan.from_dict(PLAN.to_dict() | {"epoch": 1}), Plan.from_dict(PLAN.to_dict() | {"moves": []}),
        Plan.from_dict(PLAN.to_dict() | {"space": ModuloSpace(2**32).to_dict()}),
        Plan.from_dict(PLAN.to_dict() | {"rows": [["vnodes", 160, 161]]}),
    ]  # fmt: skip
    assert same == PLAN
    assert hash(same) == hash(PLAN)
    assert PLAN not in others


@pytest.mark.parametrize(
    "plan", [PLAN, EMPTY, PLAN.inverse(), Ring().diff(AFTER), Router(AFTER).plan(remove=["b"])], ids=repr
)
def test_a_plan_is_copied_pickled_and_goes_through_json(plan: Plan) -> None:
    same = [Plan.from_dict(json.loads(json.dumps(plan.to_dict()))), copy.copy(plan), copy.deepcopy(plan)]
    same += [pickle.loads(pickle.dumps(plan, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in same:
        assert other == plan
        assert hash(other) == hash(plan)
        assert other.to_dict() == plan.to_dict()
        assert str(other) == str(plan)
        assert other.pairs() == plan.pairs()
        assert other.mask(KEYS).tolist() == plan.mask(KEYS).tolist()
        assert other.inverse() == plan.inverse()


def test_a_plan_is_a_table_of_who_gives_to_whom() -> None:
    lines = str(PLAN).splitlines()
    assert lines[0].split() == ["from", "to", "ranges", "share"]
    assert lines[-1].split() == ["all", str(len(PLAN)), f"{PLAN.fraction:.3%}"]
    by_share = sorted(PLAN.pairs().items(), key=lambda pair: -pair[1].positions)
    assert [line.split()[:2] for line in lines[1:-1]] == [list(pair) for pair, _ in by_share]
    assert str(EMPTY).splitlines()[-1].split() == ["all", "0", "0.000%"]
    assert str(Ring().diff(Ring(["a"]))).splitlines()[1].split() == ["-", "a", "1", "100.000%"]
    assert repr(PLAN) == f"<Plan of {len(PLAN)} moves, {PLAN.fraction:.2%} of all keys>"
    assert repr(Router(BEFORE).plan()) == "<Plan of 0 moves, 0.00% of all keys at epoch 0>"


def test_a_long_plan_shows_its_largest_pairs_and_no_name_breaks_the_table() -> None:
    plan = Ring(map(str, range(30)), vnodes=20).diff(Ring(map(str, range(3)), vnodes=20))
    lines = str(plan).splitlines()
    assert len(lines) == 23
    assert lines[-2].startswith(f"{len(plan.pairs()) - 20} more pairs")
    assert str(Ring().diff(Ring(["a\nb"]))).splitlines()[1].split()[1] == "'a\\nb'"


def test_a_plan_may_count_other_positions_than_those_of_a_ring() -> None:
    space = ModuloSpace(12).to_dict()
    shards = Plan.from_dict(
        PLAN.to_dict()
        | {"space": space, "moves": [[0, 2, "a", "b"], [3, "3", "b", "a"], [11, 11, "a", None]]}
    )
    assert shards.fraction == 5 / 12
    assert shards.to_dict()["moves"][1] == [3, 3, "b", "a"]


class Words(ModuloSpace):
    """A space as large as can be."""

    @property
    def size(self) -> int:
        return 2**64


def test_positions_of_a_large_space_are_text() -> None:
    plan = Plan(
        before="b", after="a", space=Words(1), changes=Changes(),
        ranges=(np.array([0, 2**63 + 1], np.uint64), np.array([2**63, 2**64 - 1], np.uint64)),
        owners=(np.array([0, 1]), np.array([1, 0])), names=(("a", "b"), ("a", "b")),
    )  # fmt: skip
    assert plan.fraction == 1.0
    assert plan.positions == plan.moves.positions == plan.ranges.size == 2**64
    assert plan.to_dict()["moves"] == [
        ["0", str(2**63), "a", "b"],
        [str(2**63 + 1), str(2**64 - 1), "b", "a"],
    ]


def test_a_plan_of_nothing_is_empty_and_a_split_is_not() -> None:
    assert EMPTY.empty
    assert not PLAN.empty
    assert not Ring([Node("a", zone="x")]).diff(Ring([Node("a", zone="y")])).empty
    split = Plan(
        before="b", after="a", space=HashSpace(), changes=Changes(rows=(("k", None, "a"),)),
        ranges=(np.empty(0, np.uint64),) * 2, owners=(np.empty(0, np.int64),) * 2, names=((), ()),
    )  # fmt: skip
    assert len(split) == 0
    assert not split.empty
    assert split.inverse().changes.rows == (("k", "a", None),)


def test_a_plan_for_another_epoch_shares_its_arrays() -> None:
    later = PLAN.at(7)
    assert (later.epoch, PLAN.epoch) == (7, None)
    assert later != PLAN
    assert later.at(None) == PLAN
    assert later._starts is PLAN._starts


def test_a_plan_cannot_be_changed() -> None:
    plan = BEFORE.diff(AFTER)
    for name in ("before", "after", "epoch", "space", "changes", "moves", "fraction", "new"):
        with pytest.raises(AttributeError):
            setattr(plan, name, None)
        with pytest.raises(AttributeError):
            delattr(plan, name)
    assert plan == PLAN


members = st.lists(nodes, max_size=15, unique_by=lambda node: node.name)


@given(members, members, st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_the_plan_between_any_two_rings_is_that_of_the_model(
    one: list[Node], other: list[Node], vnodes: int, vnodes_after: int, seed: int
) -> None:
    before, after = Ring(one, vnodes=vnodes, seed=seed), Ring(other, vnodes=vnodes_after, seed=seed)
    plan = before.diff(after)
    assert moves_of(plan) == moves(model_of(before), model_of(after))
    assert moves_of(after.diff(before)) == moves_of(plan.inverse())
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    if one and other:
        everywhere = edges(before, after)
        expected = [
            a != b for a, b in zip(owners_at(before, everywhere), owners_at(after, everywhere), strict=True)
        ]
        assert plan.mask(keys_at(everywhere, seed)).tolist() == expected


def test_the_ends_of_a_plan_at_the_ends_of_the_ring() -> None:
    plan = Ring(["a"]).diff(Ring(["b"]))
    assert plan.moves == [Move(KeyRange(0, LAST), "a", "b")]
    for position in (0, 1, LAST - 1, LAST):
        assert plan.move_of(key_at(position)) == plan.moves[0]

"""The ring: what each of its names answers. Where points and keys lie is the matter of test_vectors.py."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import uuid
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from chosen import check_ring, edges, key_at, keys_at, model_of, owners_at
from hypothesis import given
from hypothesis import strategies as st
from model import LAST, SPACE, ModelRing

from ringhash import EmptyRingError, KeyRange, Node, Ring, UnknownNodeError
from ringhash.spans import Balance

pytestmark = pytest.mark.core

GATEWAYS: list[str | Node] = ["gw-1", "gw-2", Node("gw-3", weight=2.0, zone="b")]
RING = Ring(GATEWAYS)
KEYS = ["", "user:7", "ключ", b"", b"\0\xff", 0, -1, 2**64 - 1, -(2**63), uuid.UUID(int=7)]


# -- nodes ---------------------------------------------------------------------------------------------------


def test_a_node_has_a_name_a_weight_and_a_zone() -> None:
    node = Node("gw-3", weight=2, zone="b")
    assert (node.name, node.weight, node.zone) == ("gw-3", 2.0, "b")
    assert type(node.weight) is float
    assert (Node("a").weight, Node("a").zone) == (1.0, None)


def test_a_node_is_shown_as_it_is_made() -> None:
    for node in (Node("a"), Node("a", 2.5), Node("a", zone="b"), Node("a'\n", 0.1, "z")):
        assert eval(repr(node)) == node
    assert repr(Node("a")) == "Node('a')"


def test_nodes_are_values() -> None:
    one, same, others = (
        Node("a", 2.0, "z"),
        Node("a", 2, "z"),
        [Node("b", 2.0, "z"), Node("a"), Node("a", 2.0)],
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one not in others
    assert one != "a"
    for copied in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one
    assert Node.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_the_name_of_a_node_is_a_plain_str() -> None:
    class Name(str):
        __slots__ = ()

    assert type(Node(Name("a"), zone=Name("z")).name) is str
    assert type(Ring([Name("a")]).owner("key")) is str


# -- making a ring -------------------------------------------------------------------------------------------


def test_nodes_may_be_given_in_any_form_and_order() -> None:
    ring = Ring(["a", "b"])
    forms: list[Any] = [
        ("b", "a"),
        {"a", "b"},
        iter(["b", "a"]),
        {"b": 1.0, "a": 1},
        [Node("b"), "a"],
        ring,
        ring.nodes,
    ]
    for form in forms:
        assert Ring(form) == ring
    assert Ring({"gw-1": 1.0, "gw-2": 2.5}).nodes == (Node("gw-1"), Node("gw-2", 2.5))


def test_nodes_come_in_order_of_their_names() -> None:
    names = ["z", "\u00e9", "\uff5e", "\U0001f600", "a"]
    assert [node.name for node in Ring(names).nodes] == ["a", "z", "\u00e9", "\uff5e", "\U0001f600"]
    assert list(Ring(names)) == ["a", "z", "\u00e9", "\uff5e", "\U0001f600"]


def test_options_have_defaults_and_are_told() -> None:
    assert (RING.vnodes, RING.seed, RING.hash_tags) == (160, 0, False)
    ring = Ring([], vnodes=7, seed=2**64 - 1, hash_tags=True)
    assert (ring.vnodes, ring.seed, ring.hash_tags) == (7, 2**64 - 1, True)
    ring = Ring(["a"], vnodes=np.int32(7), seed=np.uint64(5))  # type: ignore[arg-type]
    assert ring == Ring(["a"], vnodes=7, seed=5)
    assert type(ring.vnodes) is type(ring.seed) is int


@pytest.mark.parametrize(
    ("weight", "vnodes", "points"),
    [(1, 160, 160), (0.001, 160, 1), (0.5, 5, 2), (1.5, 5, 8), (2.5, 1, 2), (5e-324, 1, 1), (1.15, 10, 12),
     (65_536, 1, 65_536), (65_536.5, 1, 65_536), (1, 65_536, 65_536)],
)  # fmt: skip
def test_a_node_has_points_by_its_weight(weight: float, vnodes: int, points: int) -> None:
    ring = Ring({"a": weight}, vnodes=vnodes)
    assert len(ring.points) == points
    if points < 1000:
        check_ring(ring, model_of(ring))


def test_a_ring_is_a_collection_of_names() -> None:
    assert len(RING) == 3
    assert list(RING) == ["gw-1", "gw-2", "gw-3"]
    assert "gw-1" in RING
    assert "gw-4" not in RING
    assert "" not in RING
    assert "\ud800" not in RING
    assert RING.node("gw-3") is RING.nodes[2]
    assert bool(RING)
    assert not Ring()
    with pytest.raises(UnknownNodeError, match=r"'gw-4'.*'gw-1', 'gw-2', 'gw-3'"):
        RING.node("gw-4")


# -- lookups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_every_lookup_tells_of_the_same_walk(key: Any) -> None:
    model = model_of(RING)
    walk = list(RING.walk(key))
    assert walk == model.walk(key)
    assert RING.owner(key) == RING[key] == walk[0]
    assert RING.position(key) == model.position(key)
    for n in range(1, 4):
        assert RING.owners(key, n) == RING.owners(key, n, "node") == tuple(walk[:n])
        assert RING.owners(key, n, distinct="zone") == model.owners(key, n, "zone")
    assert RING.owner_many([key, key]) == [walk[0]] * 2
    assert [RING.nodes[i].name for i in RING.index_many([key])] == walk[:1]


def test_a_walk_is_an_iterator_that_knows_what_is_left() -> None:
    walk = RING.walk("key")
    assert iter(walk) is walk
    assert [walk.__length_hint__() for _ in walk] == [2, 1, 0]
    assert next(walk, None) is None


def test_a_walk_goes_on_while_its_ring_is_gone() -> None:
    walk = Ring(["a", "b", "c"]).walk("key")
    assert sorted(walk) == ["a", "b", "c"]


def test_owners_of_many_nodes() -> None:
    ring = Ring((Node(f"n-{i}", zone=f"z-{i % 5}" if i % 3 else None) for i in range(60)), vnodes=4)
    model = model_of(ring)
    for key in range(40):
        walk = tuple(model.walk(key))
        spread = model.owners(key, 60, "zone")
        for n in (1, 2, 15, 16, 17, 18, 59, 60):
            assert ring.owners(key, n) == walk[:n]
            assert ring.owners(key, n, "zone") == spread[:n]


def test_zones_are_spread_over_first() -> None:
    zones = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b", "c1": "c", "x": None, "y": None}
    ring = Ring([Node(name, zone=zone) for name, zone in zones.items()])
    for key in range(100):
        owners = ring.owners(key, 8, distinct="zone")
        first_pass = [zones[name] or name for name in owners[:5]]
        assert sorted(first_pass) == ["a", "b", "c", "x", "y"]
        assert sorted(zones[name] or name for name in owners[5:7]) == ["a", "b"]
        assert zones[owners[7]] == "a"


def test_a_zone_named_as_a_node_is_not_that_node() -> None:
    ring = Ring([Node("a"), Node("b", zone="a"), Node("c", zone="a")])
    for key in range(50):
        assert ring.owners(key, 3, "zone") == model_of(ring).owners(key, 3, "zone")


def test_hash_tags_place_a_key_by_its_part_in_braces() -> None:
    ring, plain = Ring(["a", "b", "c"], hash_tags=True), Ring(["a", "b", "c"])
    for key, tag in {
        "{user:7}:cart": "user:7",
        "x{é}": "é",
        "{}x": "{}x",
        "{a}{b}": "a",
        "}{": "}{",
        "{{a}": "{a",
    }.items():
        for form in (key, key.encode(), bytearray(key.encode()), memoryview(key.encode())):
            assert ring.position(form) == plain.position(tag)
        assert list(ring.index_many([key, key.encode()])) == list(plain.index_many([tag] * 2))
        assert list(ring.index_many(np.array([key.encode()]))) == list(plain.index_many([tag]))
    number, identity = int.from_bytes(b"{a}bcdef", "little"), uuid.UUID(bytes=b"{a}bcdefghijklmn")
    assert ring.position(number) == plain.position(number)
    assert ring.position(identity) == plain.position(identity)


def test_seeds_make_different_tiers() -> None:
    one, two = Ring(RING.nodes, seed=1), Ring(RING.nodes, seed=2)
    keys = np.arange(3000)
    both = np.bincount(one.index_many(keys) * 3 + two.index_many(keys), minlength=9)
    assert both.min() > 0


# -- an empty ring -------------------------------------------------------------------------------------------


def test_an_empty_ring_answers_all_that_needs_no_owner() -> None:
    ring = Ring()
    assert ring == Ring([]) == Ring({})
    assert (len(ring), ring.nodes, list(ring), ring.shares) == (0, (), [], {})
    assert ring.points.tolist() == ring.point_owners.tolist() == []
    assert ring.points.dtype == np.uint32
    assert ring.point_owners.dtype == np.uint16
    assert ring.position("key") == RING.position("key")
    assert ring.owner_many([]) == []
    assert ring.index_many(np.array([], np.int64)).tolist() == []
    assert len(ring.diff(Ring(vnodes=5))) == 0
    for ask in (
        lambda: ring.owner("key"), lambda: ring["key"], lambda: ring.owners("key", 1), lambda: ring.walk("key"),
        lambda: ring.owners("key", 1, "zone"), lambda: ring.owner_many(["key"]), lambda: ring.index_many(["key"]),
        lambda: ring.index_many(np.arange(3)), lambda: ring.balance,
    ):  # fmt: skip
        with pytest.raises(EmptyRingError, match="no nodes"):
            ask()


# -- points, ranges, shares ----------------------------------------------------------------------------------


def test_points_are_sorted_and_read_only() -> None:
    assert RING.points.dtype == np.uint32
    assert len(RING.points) == len(RING.point_owners) == 640
    assert (np.diff(RING.points.astype(np.int64)) >= 0).all()
    assert np.bincount(RING.point_owners).tolist() == [160, 160, 320]
    check_ring(RING, model_of(RING))


def test_points_outlive_their_ring() -> None:
    points, owners = Ring(["a", "b"]).points, Ring(["a", "b"]).point_owners
    assert points.tolist() == Ring(["a", "b"]).points.tolist()
    assert owners.tolist() == Ring(["a", "b"]).point_owners.tolist()


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], {"a": 0.02, "b": 3, "c": 1}], ids=str)
def test_ranges_are_all_that_a_node_owns(nodes: Any) -> None:
    ring = Ring(nodes, vnodes=50)
    model = model_of(ring)
    ranges = sorted((range_, name) for name in ring for range_ in ring.ranges(name))
    assert {name: ring.ranges(name) for name in ring} == {name: model.ranges(name) for name in ring}
    assert (ranges[0][0].start, ranges[-1][0].end) == (0, LAST)
    for (one, name), (following, other) in pairwise(ranges):
        assert one.end + 1 == following.start
        assert name != other
    for range_, name in ranges:
        assert isinstance(range_, KeyRange)
        assert owners_at(ring, range_) == [name, name]


def test_a_key_range_has_a_size_and_both_its_ends() -> None:
    range_ = KeyRange(10, 19)
    assert (range_.start, range_.end, range_.size) == (10, 19, 10)
    assert [position in range_ for position in (9, 10, 19, 20)] == [False, True, True, False]
    assert np.uint32(10) in range_
    assert not range_.__contains__("10")


def test_shares_are_exact() -> None:
    model = model_of(RING)
    assert RING.shares == model.shares
    assert Ring(["a"]).shares == {"a": 1.0}
    assert math.fsum(Ring(f"n-{i}" for i in range(500)).shares.values()) == 1.0


def test_balance_is_relative_to_weights() -> None:
    assert Ring(["a"]).balance == Balance(1.0, 1.0, 0.0)
    shares = np.array(list(RING.shares.values())) / [0.25, 0.25, 0.5]
    assert RING.balance == pytest.approx((shares.max(), shares.min(), shares.std()))
    coarse, fine = (Ring(map(str, range(20)), vnodes=vnodes).balance for vnodes in (1, 1000))
    assert coarse.peak_to_mean > fine.peak_to_mean > 1 > fine.low_to_mean > coarse.low_to_mean
    huge = Ring({"a": 400.0, "b": 1e-320}).balance
    assert math.isfinite(huge.low_to_mean)


# -- changes: new snapshots ----------------------------------------------------------------------------------


def test_changes_make_new_rings_and_leave_the_old_one() -> None:
    before = pickle.dumps(RING)
    more = RING.with_nodes("gw-4", Node("gw-0", 0.5))
    assert more == Ring([*RING.nodes, "gw-4", Node("gw-0", 0.5)])
    assert more.without("gw-0", "gw-4") == RING
    assert RING.with_weights({"gw-3": 1.0}).nodes[2] == Node("gw-3", zone="b")
    assert RING.without(*RING) == Ring()
    assert Ring().with_nodes(*RING.nodes) == RING
    assert RING.with_nodes() == RING.without() == RING.with_weights({}) == RING
    for ring in (
        more,
        more.without("gw-0"),
        RING.with_weights({"gw-1": 0.1, "gw-3": 9}),
        RING.without(*RING),
    ):
        check_ring(ring, model_of(ring))
    assert pickle.dumps(RING) == before


def test_options_stay_through_changes() -> None:
    ring = Ring(["a"], vnodes=3, seed=9, hash_tags=True).with_nodes("b").without("a").with_weights({"b": 2})
    assert ring == Ring({"b": 2}, vnodes=3, seed=9, hash_tags=True)
    assert ring.position("{k}x") == ring.position("k")
    check_ring(ring, model_of(ring))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, -1])
def test_from_65536_nodes_on_an_owner_needs_more_than_16_bits(step: int) -> None:
    names = [f"n-{i}" for i in range(65_534)]
    extra = ["m", "x-1", "n-77+"]  # before, behind and among the others
    sizes: list[tuple[Ring, Any]] = [(Ring(names, vnodes=1), np.uint16)]
    for name, kind in zip(extra, (np.uint16, np.uint32, np.uint32), strict=True):
        sizes.append((sizes[-1][0].with_nodes(name), kind))
    if step == -1:
        for name, kind in zip(extra, (np.uint32, np.uint16, np.uint16), strict=True):
            sizes.append((sizes[-1][0].without(name), kind))
        del sizes[:4]
    for ring, kind in sizes:
        assert ring.point_owners.dtype == kind
        check_ring(ring)


# -- identity ------------------------------------------------------------------------------------------------


def test_rings_are_values() -> None:
    others: list[Any] = [
        Ring(["gw-1", "gw-2"]), Ring(GATEWAYS, vnodes=161), Ring(GATEWAYS, seed=1), Ring(GATEWAYS, hash_tags=True),
        RING.with_weights({"gw-3": 2.5}), Ring(["gw-1", "gw-2", Node("gw-3", 2.0)]), Ring(), "ring", None,
    ]  # fmt: skip
    assert RING not in others
    assert len({other.digest for other in others[:7]} | {RING.digest}) == 8
    assert len({RING, Ring(GATEWAYS[::-1]), Ring(GATEWAYS)}) == 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_ring_is_pickled(protocol: int) -> None:
    for ring in (RING, Ring(), Ring(["a"], vnodes=3, seed=2**64 - 1, hash_tags=True), RING.without("gw-1")):
        same = pickle.loads(pickle.dumps(ring, protocol))
        assert type(same) is Ring
        assert same == ring
        check_ring(same)


def test_a_copy_of_a_ring_is_the_ring() -> None:
    assert copy.copy(RING) is RING
    assert copy.deepcopy(RING) is RING
    assert copy.deepcopy([RING])[0] is RING


def test_a_ring_goes_through_json() -> None:
    for ring in (RING, Ring(), Ring(["é"], vnodes=3, seed=2**64 - 1, hash_tags=True), Ring({"a": 0.1})):
        assert Ring.from_dict(json.loads(json.dumps(ring.to_dict()))) == ring
    assert Ring(["a"]).to_dict() == {
        "kind": "ring", "version": 1, "nodes": [{"name": "a", "weight": 1.0, "zone": None}],
        "vnodes": 160, "seed": "0", "hash_tags": False,
    }  # fmt: skip


def test_a_small_ring_is_shown_as_it_is_made() -> None:
    for ring in (Ring(), RING, Ring(["a"], seed=5, hash_tags=True, vnodes=2), Ring(map(str, range(4)))):
        assert eval(repr(ring)) == ring
    assert repr(RING) == "Ring(['gw-1', 'gw-2', Node('gw-3', weight=2.0, zone='b')], vnodes=160)"
    assert repr(Ring(map(str, range(5)))) == "Ring(['0', '1', '2', '3', ... 5 nodes], vnodes=160)"


def test_a_subclass_stays_one() -> None:
    class Mine(Ring):
        __slots__ = ()

    ring = Mine(["a", "b"])
    assert type(ring.with_nodes("c")) is Mine
    assert ring == Ring(["a", "b"])
    assert ring.owner("key") == ring["key"] == Ring(["a", "b"]).owner("key")
    assert repr(ring).startswith("Mine(")


def test_a_ring_knows_its_size() -> None:
    assert 640 * 8 < sys.getsizeof(RING) < 640 * 16
    large = Ring(map(str, range(1000)), vnodes=150)
    assert sys.getsizeof(large) < 2_000_000


# -- nothing changes a ring or a node ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nodes", "vnodes", "seed", "hash_tags", "names", "points", "digest", "shares", "new"]
)
def test_an_attribute_of_a_ring_cannot_be_set_or_deleted(name: str) -> None:
    ring = Ring(["a"])
    with pytest.raises(AttributeError):
        setattr(ring, name, 5)
    with pytest.raises(AttributeError):
        delattr(ring, name)
    check_ring(ring)


@pytest.mark.parametrize("name", ["name", "weight", "zone", "new"])
def test_an_attribute_of_a_node_cannot_be_set_or_deleted(name: str) -> None:
    node = Node("a")
    with pytest.raises(AttributeError):
        setattr(node, name, "b")
    with pytest.raises(AttributeError):
        delattr(node, name)
    assert node == Node("a")


def test_a_second_init_changes_nothing() -> None:
    ring, node = Ring(["a"]), Node("a")
    with suppress(TypeError, AttributeError):
        cast("Any", Ring).__init__(ring, ["b"], vnodes=3)
    with suppress(TypeError, AttributeError):
        cast("Any", Node).__init__(node, "b", 2.0, "z")
    assert ring == Ring(["a"])
    assert ring.owner("key") == "a"
    assert node == Node("a")


def test_the_arrays_of_a_ring_cannot_be_written() -> None:
    arrays: list[Any] = [RING.points, RING.point_owners, RING.points[:3], RING.points.view(np.uint8)]
    for array in arrays:
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
        with pytest.raises(TypeError):
            memoryview(array)[0] = 0
    check_ring(RING)


# -- any ring ------------------------------------------------------------------------------------------------

weights = st.one_of(st.just(1.0), st.floats(0.01, 4.0))
nodes = st.builds(Node, st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), weights,
                  st.sampled_from([None, "a", "b", "c"]))  # fmt: skip
rings = st.builds(
    Ring,
    st.lists(nodes, max_size=20, unique_by=lambda node: node.name),
    vnodes=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    hash_tags=st.booleans(),
)


@given(rings)
def test_any_ring_agrees_with_the_model(ring: Ring) -> None:
    check_ring(ring, model_of(ring))


@given(rings.filter(bool), st.data())
def test_any_walk_agrees_with_the_model(ring: Ring, data: st.DataObject) -> None:
    model = model_of(ring)
    for position in data.draw(st.lists(st.sampled_from(edges(ring)), min_size=1, max_size=10)):
        key = key_at(position, ring.seed)
        assert list(ring.walk(key)) == list(model.walk_at(position))
        for n in {1, len(ring), data.draw(st.integers(1, len(ring)))}:
            assert ring.owners(key, n) == model.owners_at(position, n)
            assert ring.owners(key, n, "zone") == model.owners_at(position, n, "zone")


def test_a_wide_key_space_is_covered() -> None:
    ring = Ring(["a", "b", "c"], vnodes=5)
    model: ModelRing = model_of(ring)
    positions = range(0, SPACE, 1_000_003)
    assert owners_at(ring, positions) == [model.owner_at(p) for p in positions]
    assert ring.owner_many(keys_at(positions, low=2**32 - 1)) == owners_at(ring, positions)

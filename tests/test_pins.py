"""Pins: some keys go to a node of their own, by the very bytes that would be hashed."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import key_bytes

from ringhash import Node, RinghashError, Router, StalePlanError, UnknownNodeError
from ringhash.errors import PinnedNodeError
from ringhash.routing import Pin

NAMES = ["gw-1", "gw-2", "gw-3", "gw-4"]
KEYS = [f"tenant:{i}" for i in range(200)]


def pinned_router(**options):
    """A router, a key, and a node that the ring would not give it."""
    router = Router(NAMES, **options)
    *_, last = router.walk("tenant:7")
    router.pin("tenant:7", last)
    return router, "tenant:7", last


def nodes_of(router):
    return {key: pin.node for key, pin in router.pins.items()}


def test_a_pinned_key_goes_to_its_node_and_no_other_key_does():
    router, key, node = pinned_router()
    ring = router.placement
    assert ring.owner(key) != node, "the ring itself knows no pins"
    assert router.owner(key) == router[key] == node
    assert {other: router.owner(other) for other in KEYS if other != key} == {
        other: ring.owner(other) for other in KEYS if other != key
    }
    assert router.unpin(key)
    assert not router.unpin(key), "it was not pinned any more"
    assert router.owner(key) == ring.owner(key)
    assert router.epoch == 2, "a pin is a change, and so is its end"


keys = st.one_of(
    st.text(), st.binary(), st.binary().map(bytearray), st.binary().map(memoryview), st.integers(-(2**63), 2**64 - 1),
    st.uuids(), st.sampled_from(["{user:7}:cart", b"x{user:7}", "{}", "{", "a{b", "{a{b}c}", -1, 2**64 - 1]),
)  # fmt: skip


@given(one=keys, other=keys, hash_tags=st.booleans())
@settings(max_examples=300, deadline=None)
def test_two_keys_are_one_pin_when_the_bytes_that_would_be_hashed_are_the_same(one, other, hash_tags):
    router = Router(NAMES, hash_tags=hash_tags)
    for key in (one, other):
        assert router.placement.space.key_bytes(key) == key_bytes(key, hash_tags)
    node = list(router.walk(one))[-1]
    router.pin(one, node)
    assert nodes_of(router) == {key_bytes(one, hash_tags): node}
    assert router.owner(one) == node
    same = key_bytes(one, hash_tags) == key_bytes(other, hash_tags)
    assert router.owner(other) == (node if same else router.placement.owner(other))
    assert router.owner_many([other, one]) == [router.owner(other), node]


def test_keys_of_every_kind_agree():
    router, key, node = pinned_router()
    assert router.owner(key.encode()) == router.owner(bytearray(key.encode())) == node
    assert router.owner(memoryview(key.encode())) == node
    router.pin(-1, node)
    assert router.owner(2**64 - 1) == router.owner(np.int64(-1)) == router.owner(b"\xff" * 8) == node
    name = uuid.UUID(int=7)
    router.pin(name, node)
    assert router.owner(name.bytes) == node


def test_a_hash_tag_goes_along():
    router = Router(NAMES, hash_tags=True)
    *_, last = router.walk("user:7")
    router.pin("{user:7}:cart", last)
    assert router.owner("{user:7}:orders") == router.owner(b"user:7") == last
    assert nodes_of(router) == {b"user:7": last}


def test_many_keys_answer_as_one_key_does():
    router, key, _ = pinned_router()
    for number in (3, 700, 2**63):
        router.pin(number, list(router.walk(number))[-1])
    router.pin(b"\0\0", "gw-1")  # numpy takes the zeros off: never met in an array
    router.mark_down("gw-2")
    numbers = np.arange(1000, dtype=np.uint16)
    batches = [
        KEYS,
        tuple(KEYS),
        np.array(KEYS),
        np.array(KEYS, "S"),
        numbers,
        numbers[::-3],
        [key, 3, b"x"],
        [],
    ]
    for batch in batches:
        expected = [router.owner(one) for one in (batch.tolist() if isinstance(batch, np.ndarray) else batch)]
        assert router.owner_many(batch) == expected
        assert [router.nodes[i].name for i in router.index_many(batch)] == expected


def test_iterables_and_columns_too():
    router, key, node = pinned_router()
    expected = [router.owner(one) for one in KEYS]
    assert node in expected
    columns = [iter(KEYS), dict.fromkeys(KEYS), (one for one in KEYS), np.array(KEYS, object)]
    if pandas := optional("pandas"):
        columns.append(pandas.Series(KEYS, index=range(len(KEYS), 0, -1)))
    if pyarrow := optional("pyarrow"):
        columns += [pyarrow.array(KEYS), pyarrow.chunked_array([KEYS[:5], KEYS[5:]])]
    for column in columns:
        assert router.owner_many(column) == expected
    for column in columns[3:]:
        assert [router.nodes[i].name for i in router.index_many(column)] == expected
    for one in (key, key.encode(), bytearray(b"x"), 7, uuid.UUID(int=1), None):
        with pytest.raises(TypeError, match="keys must be"):
            router.owner_many(one)


def optional(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def test_the_walk_of_a_pinned_key_begins_at_its_node():
    router, key, node = pinned_router()
    plain = list(router.placement.walk(key))
    walk = [node] + [name for name in plain if name != node]
    assert list(router.walk(key)) == walk
    assert len(list(router.walk(key))) == router.walk(key).__length_hint__() == len(NAMES)
    for n in range(1, 5):
        assert router.owners(key, n) == tuple(walk[:n])
    assert router.owners(key, 5) == tuple(walk)
    with pytest.raises(ValueError, match="not 5"):
        router.owners(key, 5, strict=True)
    with pytest.raises(ValueError, match="at least 1"):
        router.owners(key, 0)
    with pytest.raises(ValueError, match="rack"):
        router.owners(key, 1, "rack")


def test_replicas_of_a_pinned_key_are_spread_over_the_other_zones():
    router = Router([Node("a1", zone="a"), Node("a2", zone="a"), Node("b1", zone="b"), Node("b2", zone="b")])
    for node in ("a1", "b2"):
        router.pin("tenant:7", node)
        first, second, *_ = router.owners("tenant:7", 4, distinct="zone")
        assert first == node
        assert second[0] != node[0]


def test_a_pin_to_a_node_that_is_down_waits():
    router, key, node = pinned_router()
    router.mark_down(node)
    assert router.owner(key) == router.placement.owner(key)
    assert router.owner_many([key]) == [router.placement.owner(key)]
    assert nodes_of(router) == {b"tenant:7": node}
    router.mark_up(node)
    assert router.owner(key) == node


def test_a_pin_names_a_node_and_a_key():
    router = Router(NAMES)
    with pytest.raises(UnknownNodeError, match="gw-9"):
        router.pin("tenant:7", "gw-9")
    with pytest.raises(TypeError, match="a key must be"):
        router.pin(None, "gw-1")
    with pytest.raises(OverflowError):
        router.pin(2**64, "gw-1")
    with pytest.raises(TypeError):
        router.pins[b"x"] = "gw-1"
    router.pin("tenant:7", "gw-1")
    router.pin("tenant:7", "gw-2")
    assert nodes_of(router) == {b"tenant:7": "gw-2"}, "one key has one pin, the last"


def test_a_node_that_keys_are_pinned_to_does_not_leave_by_mistake():
    router, key, node = pinned_router()
    plan = router.plan(remove=[node])
    assert router.unpins(plan) == (Pin(b"tenant:7", node, 1),)
    for refused in (
        lambda: router.remove(node), lambda: router.update(remove=[node]), lambda: router.apply(plan),
    ):  # fmt: skip
        with pytest.raises(PinnedNodeError, match="allow_unpin=True"):
            refused()
    assert issubclass(PinnedNodeError, RinghashError)
    assert (router.epoch, router.owner(key)) == (1, node)
    router.apply(plan, allow_unpin=True)
    assert router.owner(key) == router.placement.owner(key)
    assert not router.pins


def test_other_changes_leave_pins_alone():
    router, key, node = pinned_router()
    assert router.unpins(router.plan(add=["gw-5"], reweight={node: 2.0})) == ()
    router.update(remove=[node], add=[Node(node, zone="b")])  # replaced, so it does not leave
    router.reweight(node, 3.0)
    router.remove(next(name for name in NAMES if name != node))
    assert router.owner(key) == node


def test_the_pins_that_count_are_those_of_when_the_plan_is_applied():
    router = Router(NAMES)
    plan = router.plan(remove=["gw-2"])
    router.pin("tenant:7", "gw-2")
    with pytest.raises(StalePlanError, match="epoch 0, and the router is at epoch 1"):
        router.apply(plan)
    plan = router.placement.diff(router.placement.without("gw-2"))  # which is for any epoch
    with pytest.raises(PinnedNodeError):
        router.apply(plan)
    assert router.unpins(plan) == (Pin(b"tenant:7", "gw-2", 1),)


def test_pins_are_part_of_to_dict_and_of_what_a_router_is():
    router, key, node = pinned_router()
    router.pin(b"\xff\x00", "gw-1")
    record = router.to_dict()
    assert [pin["kind"] for pin in record["pins"]] == ["pin", "pin"]
    assert [(pin.get("key"), pin.get("key_hex"), pin["epoch"]) for pin in record["pins"]] == [
        ("tenant:7", None, 1), (None, "ff00", 2),
    ]  # fmt: skip
    for twin in (
        Router.from_dict(json.loads(json.dumps(record))), copy.deepcopy(router), pickle.loads(pickle.dumps(router)),
    ):  # fmt: skip
        assert twin == router
        assert twin.owner(key) == node
    assert router != Router(NAMES)
    assert "pins" not in Router(NAMES).to_dict()


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({}, "router.pins: must be a list, not an object"),
        ([7], r"router.pins\[0\]: must be an object"),
        ([{"kind": "node", "key": "a"}], r'router.pins\[0\].kind: must be "pin"'),
        ([{"key": "a"}], r"router.pins\[0\].node: is missing"),
        ([{"key": 7, "node": "gw-1"}], r"router.pins\[0\].key: must be a string"),
        ([{"key": "a", "node": ""}], r"router.pins\[0\].node: must not be empty"),
        ([{"key": "a", "node": "gw-1", "epoch": -1}], r"router.pins\[0\].epoch: must not be negative"),
        ([{"key_hex": "f", "node": "gw-1"}], r"router.pins\[0\].key_hex: "),
        ([{"key": "\ud800", "node": "gw-1"}], r"router.pins\[0\].key: "),
        ([{"key": "a", "node": "gw-9"}], "b'a' is pinned to 'gw-9', which is not a node"),
        ([{"key": "a", "node": "gw-1"}, {"key_hex": "61", "node": "gw-2"}], "b'a' is pinned twice"),
        ([{"key": "a", "node": "gw-1", "why": "big"}], "unknown field 'why'"),
    ],
)
def test_pins_from_outside_are_checked(pins, message):
    if isinstance(pins, list):
        pins = [{"kind": "pin", "version": 1} | pin if isinstance(pin, dict) else pin for pin in pins]
    with pytest.raises(ValueError, match=message):
        Router.from_dict({**Router(NAMES).to_dict(), "pins": pins})

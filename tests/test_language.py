"""What every placement has in common: one door for plans, nodes with data, one reading of keys and names."""

from __future__ import annotations

import copy
import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash import DuplicateNodeError, Move, Node, Plan, Ring, Router, StalePlanError
from ringhash.batch import readable
from ringhash.membership import changes_between
from ringhash.node import names_from, nodes_from
from ringhash.placement import KINDS, Placement, placement_from, verified
from ringhash.placements.assignment import Assignment, assign
from ringhash.placements.shards import Shards
from ringhash.records import document, not_too_deep, read_document, read_word, word
from ringhash.space import HashSpace, Keys, ModuloSpace, Space, space_from

pytestmark = pytest.mark.core

RING = Ring({"a": 1.0, "b": 2.0, "c": 0.5}, vnodes=9)
SHARDS = assign(Shards(40), ["a", "b", "c"])
PLACEMENTS = [RING, SHARDS]
PAIRS = [
    (RING, RING.changed(add=[Node("d", zone="z")], remove=["a"], reweight={"c": 3.0})),
    (RING, Ring(RING.nodes, vnodes=10)),
    (RING, Ring()),
    (SHARDS, SHARDS.changed(add=["d"], remove=["a"])),
    (SHARDS, Assignment(SHARDS.shards, SHARDS.nodes, SHARDS.owners[::-1])),
    (Assignment(SHARDS.shards), SHARDS),
]
IDS = ["ring nodes", "ring vnodes", "ring to nothing", "shards nodes", "shards moved", "shards from nobody"]
of_pairs = pytest.mark.parametrize(("before", "after"), PAIRS, ids=IDS)


# -- the one door ------------------------------------------------------------------------------------------


@of_pairs
def test_a_plan_leads_where_it_says(before: Placement, after: Placement) -> None:
    plan = before.diff(after)
    for same in (
        plan,
        Plan.from_dict(json.loads(json.dumps(plan.to_dict()))),
        pickle.loads(pickle.dumps(plan)),
    ):
        assert verified(before, same) == after
        assert verified(after, same.inverse()) == before


def edits(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents of a plan that somebody has changed, each in another way."""
    good = plan.to_dict()
    moves: Any = good["moves"]
    (start, end, source, target), *rest = moves
    yield "no moves", good | {"moves": []}
    yield "a move less", good | {"moves": rest}
    yield "another target", good | {"moves": [[start, end, source, "x"], *rest]}
    yield "another source", good | {"moves": [[start, end, "x", target], *rest]}
    if end > start:
        yield "a shorter move", good | {"moves": [[start, end - 1, source, target], *rest]}
    yield "leads elsewhere", good | {"after": "0" * 32}
    if "nodes" in good:
        yield "no changes of nodes", {name: value for name, value in good.items() if name != "nodes"}
    if "rows" in good:
        yield "another row", good | {"rows": [["vnodes", 9, 11]]}
    yield "a row more", good | {"rows": [["vnodes", 1, 2]]}
    yield "a row of another kind", good | {"rows": [["k", None, "a"]]}


@of_pairs
def test_an_edited_plan_is_refused(before: Placement, after: Placement) -> None:
    plan = before.diff(after)
    for what, document_ in edits(plan):
        edited = Plan.from_dict(document_)
        with pytest.raises(ValueError, match="plan"):
            raise_unless_refused(what, verified(before, edited))


def raise_unless_refused(what: str, after: object) -> None:
    pytest.fail(f"{what}: accepted, and leads to {after!r}")


def test_replaying_alone_would_accept_edited_moves() -> None:
    """The control: digests and changes of nodes are right, and a move goes to the wrong node."""
    before, after = PAIRS[0]
    good = before.diff(after).to_dict()
    moves: Any = good["moves"]
    edited = Plan.from_dict(good | {"moves": moves[1:]})
    assert before.replayed(edited) == after
    with pytest.raises(ValueError, match="not those of its changes"):
        verified(before, edited)


@of_pairs
def test_a_plan_of_another_placement_is_stale(before: Placement, after: Placement) -> None:
    plan = before.diff(after)
    with pytest.raises(StalePlanError, match="make a new plan"):
        verified(after, plan)
    with pytest.raises(TypeError, match="expected a Plan, not None"):
        verified(before, None)  # type: ignore[arg-type]


def test_a_diff_needs_one_kind_and_one_reading() -> None:
    with pytest.raises(TypeError, match=r"of kind 'ring' has plans .* not to one of kind 'assignment'"):
        RING.diff(SHARDS)
    with pytest.raises(TypeError, match="not to one of kind 'ring'"):
        SHARDS.diff(RING)
    with pytest.raises(ValueError, match=r"read keys alike.*seed=0.*seed=1"):
        RING.diff(Ring(["a"], seed=1))
    with pytest.raises(ValueError, match="split"):
        SHARDS.diff(SHARDS.split())


def test_a_mistaken_direction_is_found() -> None:
    """Every placement says `before.diff(after)`; the other way round is another plan."""
    for before, after in PAIRS:
        there, back = before.diff(after), after.diff(before)
        assert there.inverse() == back
        assert there != back
        assert [(move.source, move.target) for move in there.moves] == [
            (move.target, move.source) for move in back.moves
        ]


@given(
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.data(),
)
def test_what_becomes_of_each_node(before: list[str], after: list[str], data: st.DataObject) -> None:
    """Whether a node that stays is the same object, an equal one or another one."""
    old = {name: Node(name) for name in sorted(before)}
    kinds = {name: data.draw(st.sampled_from(["same", "equal", "heavier"])) for name in sorted(after)}
    new = {name: Node(name, 2.0 if kind == "heavier" else 1.0) for name, kind in kinds.items()}
    new.update({name: old[name] for name, kind in kinds.items() if kind == "same" and name in old})
    expected = [
        (old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)
    ]
    assert list(changes_between(tuple(old.values()), tuple(new.values()))) == expected


# -- every kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.kind)
def test_a_placement_answers_alike_for_a_key_many_keys_and_a_position(placement: Placement) -> None:
    keys: list[Any] = [*range(300), "é", b"\0", uuid.UUID(int=3)]
    owners = [placement.owner(key) for key in keys]
    assert placement.owner_many(keys) == [placement[key] for key in keys] == owners
    assert [placement.nodes[i].name for i in placement.index_many(keys)] == owners
    positions = placement.space.positions(keys)
    assert positions.tolist() == [placement.space.position(key) for key in keys]
    assert [placement.owner_at(position) for position in positions.tolist()] == owners
    assert [placement.spans.owner_at(position) for position in positions.tolist()] == owners
    for name in placement:
        assert placement.ranges(name) == placement.spans.ranges(name)
        assert placement.shares[name] == pytest.approx(placement.spans.shares()[name])
    assert placement.balance == pytest.approx(
        placement.spans.balance([node.weight for node in placement.nodes])
    )
    assert placement.owner_at(np.uint32(3)) == placement.owner_at(3)  # type: ignore[arg-type]
    for position in (-1, placement.space.size):
        with pytest.raises(IndexError):
            placement.owner_at(position)
    for wrong in (1.0, "1", None):
        for owner_at in (placement.owner_at, placement.spans.owner_at):
            with pytest.raises(TypeError):
                owner_at(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.kind)
def test_a_placement_is_a_value_whose_document_names_its_kind(placement: Placement) -> None:
    data = placement.to_dict()
    assert list(data)[:2] == ["kind", "version"]
    assert data["kind"] == placement.kind
    assert placement.kind in KINDS
    for same in (
        placement_from(json.loads(json.dumps(data))), pickle.loads(pickle.dumps(placement)),
        copy.copy(placement), copy.deepcopy(placement), placement.changed(),
    ):  # fmt: skip
        assert same == placement
        assert (hash(same), same.digest) == (hash(placement), placement.digest)
    with pytest.raises(AttributeError):
        placement.nodes = ()  # type: ignore[misc]


def test_a_seed_above_2_to_the_53_survives_a_reader_of_doubles() -> None:
    seed = 2**64 - 1
    for placement in (Ring(["a"], seed=seed), assign(Shards(4, seed=seed), ["a"])):

        def doubles(text: str) -> Any:
            return int(float(text))

        text = json.dumps(placement.to_dict())
        assert placement_from(json.loads(text, parse_int=doubles)) == placement
        plan = placement.diff(placement.changed(add=["b"]))
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()), parse_int=doubles)) == plan


def test_documents_may_leave_out_what_has_a_default() -> None:
    assert placement_from({"kind": "ring", "nodes": [{"name": "a"}]}) == Ring(["a"])
    assert placement_from({"kind": "ring", "version": 1, "nodes": [], "seed": 7}) == Ring(seed=7)
    assert placement_from({"kind": "assignment", "shards": {"kind": "shards", "count": 4}}) == Assignment(
        Shards(4)
    )
    assert space_from({"kind": "hash"}) == HashSpace()
    for wrong, message in (
        ({"nodes": []}, r"placement\.kind: must be one of"), ([], "placement: must be an object"),
        ({"kind": "ring", "version": 2, "nodes": []}, r"ring\.version: must be 1, not 2"),
        ({"kind": "ring", "nodes": [{}]}, r"ring\.nodes\[0\]\.name: is missing"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            placement_from(wrong)


def test_words_and_depth() -> None:
    assert read_word({"seed": word(2**64 - 1)}, "d", "seed") == 2**64 - 1
    assert read_document(document("x", a=1), "d", "x", frozenset({"a"})) == {
        "kind": "x",
        "version": 1,
        "a": 1,
    }
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="rows: is nested too deep"):
        not_too_deep(lambda: json.dumps(deep), "rows")
    while deep:
        deep = deep[0]


# -- spaces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [HashSpace(3, True), ModuloSpace(60, 5), Shards(60)], ids=repr)
def test_spaces_are_values_and_addresses_sort_as_positions_do(space: Space) -> None:
    for same in (
        (space_from(json.loads(json.dumps(space.to_dict()))),) if not isinstance(space, Shards) else ()
    ):
        assert same == space
    for same in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert same == space
        assert hash(same) == hash(space)
        assert same.same_reading(space)
    keys = sorted(range(500), key=space.position)
    addresses = [space.address(key) for key in keys]
    assert addresses == sorted(addresses)
    for key, address in zip(keys, addresses, strict=True):
        position = space.position(key)
        following = space.address_of(position + 1)
        assert space.address_of(position) == address
        assert following is None or address < following
    assert space.address_of(space.size) is None
    with pytest.raises(IndexError):
        space.address_of(space.size + 1)
    assert space.keys(Ring(["a"]).ranges("a")[0]) is None  # nothing that a database can filter by
    assert Keys("a", "b", None).single is None
    with pytest.raises(TypeError):
        iter(space)  # type: ignore[call-overload]


def test_a_reading_is_more_than_a_size() -> None:
    spaces = [
        HashSpace(),
        HashSpace(1),
        HashSpace(0, True),
        ModuloSpace(2**32),
        ModuloSpace(4),
        ModuloSpace(4, 1),
    ]
    assert len(set(spaces)) == len(spaces)
    assert not any(one.same_reading(other) for one in spaces for other in spaces if one is not other)
    assert HashSpace(0, True).key_bytes("{a}b") == b"a"
    assert ModuloSpace(4).key_bytes(-1) == b"\xff" * 8


# -- one reading of keys -------------------------------------------------------------------------------------


class Text(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"another"

    def __str__(self) -> str:
        return "another"


class Data(bytes):
    def __bytes__(self) -> bytes:
        return b"another"


class Number(int):
    def __index__(self) -> int:
        return 12345

    def __int__(self) -> int:
        return 12345


SAME = [
    ["é", "é".encode(), bytearray("é".encode()), memoryview("é".encode()), Text("é"), Data("é".encode())],
    [-1, 2**64 - 1, np.int64(-1), np.uint64(2**64 - 1), np.int8(-1), Number(-1)],
    [7, Number(7), np.uint8(7), (7).to_bytes(8, "little"), Data((7).to_bytes(8, "little"))],
    [uuid.UUID(int=5), uuid.UUID(int=5).bytes],
]
READERS: dict[str, Callable[[Any], Any]] = {
    "ring": RING.owner,
    "ring[]": RING.__getitem__,
    "position": RING.space.position,
    "key bytes": RING.space.key_bytes,
    "shard": SHARDS.space.position,
    "assignment": SHARDS.owner,
    "list": lambda key: RING.space.positions([key]).tolist(),
    "tuple": lambda key: SHARDS.space.positions((key,)).tolist(),
    "iterator": lambda key: RING.owner_many(iter([key])),
    "objects": lambda key: RING.space.positions(object_array(key)).tolist(),
    "assignment of many": lambda key: SHARDS.owner_many([key]),
    "plan": lambda key: RING.diff(Ring(list("xyz"))).move_of(key),
    "mask": lambda key: RING.diff(PAIRS[0][1]).mask([key]).tolist(),
    "walk": lambda key: list(RING.walk(key)),
    "address": SHARDS.space.address,
}


def object_array(key: Any) -> Any:
    array = np.empty(1, object)
    array[0] = key
    return array


@pytest.mark.parametrize("reader", READERS)
def test_everything_that_takes_keys_reads_them_alike(reader: str) -> None:
    for keys in SAME:
        answers = [READERS[reader](key) for key in keys]
        assert all(answer == answers[0] for answer in answers), keys
    for wrong, error in (
        ("\ud800", UnicodeEncodeError), (Text("\ud800"), UnicodeEncodeError), (2**64, OverflowError),
        (-(2**63) - 1, OverflowError), (None, TypeError), (True, TypeError), (1.0, TypeError), ((), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            READERS[reader](wrong)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.kind)
def test_a_pin_reads_keys_as_lookups_do(placement: Placement) -> None:
    for keys in SAME:
        owner = placement.owner(keys[0])
        elsewhere = next(name for name in placement.names if name != owner)
        for key in keys:
            router = Router(placement)
            router.pin(key, elsewhere)
            assert {router.owner(same) for same in keys} == {elsewhere}
            assert set(router.owner_many(keys)) == {elsewhere}
            assert all(Router.from_dict(router.to_dict()).owner(same) == elsewhere for same in keys)


# -- one text is never many ----------------------------------------------------------------------------------

TEXTS = ["hello", b"hello", bytearray(b"hello"), memoryview(b"hello"), Text("hello")]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: type(text).__name__)
def test_one_text_is_never_many(text: Any) -> None:
    for call in (
        readable, RING.index_many, RING.owner_many, SHARDS.index_many, SHARDS.owner_many, RING.space.positions,
        SHARDS.space.positions, Shards(4).of_many, RING.diff(RING).mask, SHARDS.stats, names_from, nodes_from,
        Ring, lambda names: assign(4, names), lambda names: RING.changed(add=names),
        lambda names: RING.changed(remove=names), lambda names: SHARDS.changed(remove=names),
        Router, lambda names: Router(RING).plan(add=names), lambda names: Router(RING).plan(remove=names),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="iterable"):
            call(text)


def test_names_are_read_once_into_plain_objects() -> None:
    assert names_from(name for name in ("a", Text("b"))) == ["a", "b"]
    assert [type(name) for name in names_from([Text("b")])] == [str]
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="remove must be an iterable of names, not"):
            names_from(wrong, "remove")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="named by a str, not int"):
        names_from([1])  # type: ignore[list-item]


# -- nodes with data -----------------------------------------------------------------------------------------


class Client:
    """What nobody may compare, copy or write down."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("data was compared")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise AssertionError("data was pickled")


def test_data_are_no_part_of_a_node_but_travel_with_it() -> None:
    client = Client()
    node = Node("a", 2.0, "z", data=client)
    assert node.data is client
    assert node == Node("a", 2.0, "z", data=Client()) == Node("a", 2.0, "z")
    assert hash(node) == hash(Node("a", 2.0, "z"))
    assert repr(node) == "Node('a', weight=2.0, zone='z')"
    assert "data" not in node.to_dict()
    assert pickle.loads(pickle.dumps(node)).data is None
    assert Node("a").data is None
    with pytest.raises(AttributeError, match="immutable"):
        node.data = None


@pytest.mark.parametrize("make", [Ring, lambda nodes: assign(12, nodes)], ids=["ring", "assignment"])
def test_placements_keep_data_when_they_change(make: Callable[[Any], Placement]) -> None:
    clients = {name: Client() for name in "abc"}
    placement = make([Node(name, data=client) for name, client in clients.items()])
    bare = make(list("abc"))
    assert (placement, placement.digest) == (bare, bare.digest)
    assert pickle.loads(pickle.dumps(placement)) == placement

    def kept(after: Any, names: str) -> bool:
        return all(after.node(name).data is clients[name] for name in names)

    assert kept(placement.changed(add=["d"], remove=["c"], reweight={"a": 3.0}), "ab")
    assert kept(
        placement.changed(remove=["a"], add=[Node("a", zone="y")]), "abc"
    )  # replaced: its zone is new
    other = Client()
    replaced = placement.changed(remove=["a"], add=[Node("a", data=other)])
    assert replaced.node("a").data is other
    router = Router(placement)
    plan = router.plan(reweight={"a": 3.0}, add=["d"])
    router.apply(Plan.from_dict(json.loads(json.dumps(plan.to_dict()))))
    assert kept(router.placement, "abc")
    assert kept(placement.middle(router.placement, plan.ranges), "abc")


def test_a_mapping_to_clients_gives_nodes_with_data() -> None:
    clients = {"a": Client(), "b": Client()}
    for nodes in (Ring(clients).nodes, assign(4, clients).nodes, Ring().changed(add=clients).nodes):  # type: ignore[arg-type]
        assert [node.name for node in nodes] == ["a", "b"]
        assert all(node.data is clients[node.name] for node in nodes)
    with pytest.raises(TypeError, match=r"not Client; for a node with an object write Node\('b', data="):
        Ring({"a": 1.0, "b": Client()})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a weight must be a number, not str"):
        Ring({"a": "1"})  # type: ignore[dict-item]


# -- arguments are plain before anything is done ---------------------------------------------------------------


def test_foreign_code_runs_before_anything_is_looked_at() -> None:
    """`changed` reads all of its arguments first, so that an error in one of them leaves nothing half done."""
    read: list[str] = []

    def says(what: str, *values: Any) -> Iterator[Any]:
        for value in values:
            read.append(what)
            yield value

    with pytest.raises(DuplicateNodeError):
        RING.changed(add=says("add", "b"), remove=says("remove", "a", "c"))
    assert read == ["add", "remove", "remove"]


def test_the_moves_of_a_plan_are_plain() -> None:
    move = RING.diff(Ring()).moves[0]
    assert isinstance(move, Move)
    assert move.target is None

"""The test vectors: the model ring, ringhash and the reference program of docs/spec.md all answer them.

The vectors are a promise to every program that routes by the same rules. A change that breaks one of these
tests moves the keys of everybody's clusters: change the code back, never the vectors.
"""

from __future__ import annotations

import doctest
import json
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol

import numpy as np
import pytest
from model import ModelRing, moves, point_count, point_position

from ringhash import Assignment, Node, Plan, Ring, Router, Shards

HERE = Path(__file__).parent
SPEC = HERE.parent / "docs" / "spec.md"

Key = str | bytes | int | uuid.UUID


class Placement(Protocol):
    """What a model ring and a Ring have in common."""

    def position(self, key: Any, /) -> int: ...
    def owner(self, key: Any, /) -> str: ...
    def owners(self, key: Any, n: int, /, *, distinct: Literal["node", "zone"] = ...) -> tuple[str, ...]: ...


class Build(Protocol):
    def __call__(self, ring: dict[str, Any]) -> Placement: ...


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((HERE / "vectors" / name).read_text(encoding="ascii"))
    return content


def key_of(row: dict[str, Any]) -> Key:
    ((kind, text),) = row["key"].items()
    match kind:
        case "str":
            return str(text)
        case "hex":
            return bytes.fromhex(text)
        case "int":
            return int(text)
        case "uuid":
            return uuid.UUID(text)
    raise AssertionError(kind)


def model_of(ring: dict[str, Any]) -> ModelRing:
    nodes = {name: (weight, zone) for name, weight, zone in ring["nodes"]}
    return ModelRing(nodes, ring["vnodes"], int(ring["seed"]), ring["hash_tags"])


def nodes_of(ring: dict[str, Any]) -> list[Node]:
    return [Node(name, weight=weight, zone=zone) for name, weight, zone in ring["nodes"]]


def options_of(ring: dict[str, Any]) -> dict[str, Any]:
    return {"vnodes": ring["vnodes"], "seed": int(ring["seed"]), "hash_tags": ring["hash_tags"]}


def ring_of(ring: dict[str, Any]) -> Ring:
    return Ring(nodes_of(ring), **options_of(ring))


def options(seed: int = 0, vnodes: int = 160, hash_tags: bool = False) -> dict[str, Any]:
    return {"nodes": [], "vnodes": vnodes, "seed": seed, "hash_tags": hash_tags}


POSITIONS, POINTS, RINGS = load("positions.json"), load("points.json"), load("rings.json")
PLANS, DIGESTS = load("plan.json")["plans"], load("digest.json")["digests"]

LARGE = options() | {
    "nodes": [
        [f"{RINGS['large']['numbered'][0]}{i}", 1.0, None] for i in range(RINGS["large"]["numbered"][1])
    ]
}

both = pytest.mark.parametrize("build", [model_of, ring_of], ids=["model", "ringhash"])


# -- positions ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("hash_tags", [False, True])
def test_positions(build: Build, hash_tags: bool) -> None:
    rows = POSITIONS["with_hash_tags" if hash_tags else "without_hash_tags"]
    assert len(rows) > 100
    for i, seed in enumerate(POSITIONS["seeds"]):
        ring = build(options(int(seed), hash_tags=hash_tags))
        for row in rows:
            assert ring.position(key_of(row)) == row["positions"][i], row["key"]


@both
def test_positions_of_every_length(build: Build) -> None:
    lengths = [row["length"] for row in POSITIONS["patterns"]]
    assert lengths[:301] == list(range(301))
    for i, seed in enumerate(POSITIONS["pattern_seeds"]):
        ring = build(options(int(seed)))
        for row in POSITIONS["patterns"]:
            pattern = bytes((i * 131 + 7) % 251 for i in range(row["length"]))
            assert ring.position(pattern) == row["positions"][i], row["length"]


@both
@pytest.mark.parametrize("hash_tags", [False, True])
def test_all_forms_of_a_key_have_its_position(build: Build, hash_tags: bool) -> None:
    ring = build(options(hash_tags=hash_tags))
    for row in POSITIONS["with_hash_tags" if hash_tags else "without_hash_tags"]:
        key, position = key_of(row), row["positions"][0]
        if isinstance(key, str):
            key = key.encode()
        if isinstance(key, bytes):
            backwards = memoryview(key[::-1])[::-1]
            for form in (key, bytearray(key), memoryview(key), backwards):
                assert ring.position(form) == position, row["key"]
        elif isinstance(key, int):
            for kind in (np.int16, np.int64, np.uint64):
                if np.iinfo(kind).min <= key <= np.iinfo(kind).max:
                    assert ring.position(kind(key)) == position, row["key"]


# -- points ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", POINTS["points"], ids=lambda row: f"{row['name'][:20]}-{row['weight']}")
def test_points(row: dict[str, Any]) -> None:
    name, weight, vnodes, seed = row["name"], row["weight"], row["vnodes"], int(row["seed"])
    count = point_count(weight, vnodes)
    assert [point_position(name, i, seed) for i in range(count)] == row["points"]
    ring = Ring([Node(name, weight=weight)], vnodes=vnodes, seed=seed)
    assert ring.points.tolist() == sorted(row["points"])
    assert ring.point_owners.tolist() == [0] * count


def test_the_points_of_a_node_do_not_depend_on_the_others() -> None:
    rows = {row["name"]: row for row in POINTS["points"] if (row["vnodes"], row["seed"]) == (40, "0")}
    assert len(rows) > 3
    ring = Ring([Node(row["name"], weight=row["weight"]) for row in rows.values()], vnodes=40)
    owners = [ring.nodes[i].name for i in ring.point_owners]
    expected = sorted((point, name) for name, row in rows.items() for point in row["points"])
    assert list(zip(ring.points.tolist(), owners, strict=True)) == expected


# -- owners ------------------------------------------------------------------------------------------------


def check_answers(ring: Placement, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        key = key_of(row)
        assert ring.owner(key) == row["owner"], row
        assert list(ring.owners(key, 3)) == row["owners"], row
        assert list(ring.owners(key, 6, distinct="zone")) == row["spread"], row


@both
@pytest.mark.parametrize("name", ["equal", "weighted", "tags"])
def test_owners(build: Build, name: str) -> None:
    assert len(RINGS[name]["answers"]) == 200
    check_answers(build(RINGS[name]["ring"]), RINGS[name]["answers"])


@both
def test_owners_behind_the_last_point(build: Build) -> None:
    ring = build(RINGS["equal"]["ring"])
    check_answers(ring, RINGS["equal_behind_the_last_point"])
    last = max(Ring([f"gw-{i}" for i in range(1, 11)]).points)
    assert all(ring.position(key_of(row)) > last for row in RINGS["equal_behind_the_last_point"])


@both
def test_owners_in_a_large_ring(build: Build) -> None:
    ring = build(LARGE)
    check_answers(ring, RINGS["large"]["answers"])
    check_answers(ring, RINGS["large_keys_on_a_point"])


def test_the_ties_of_a_large_ring() -> None:
    model, ring = model_of(LARGE), ring_of(LARGE)
    found: dict[int, list[str]] = {}
    for position, owner in zip(ring.points.tolist(), ring.point_owners.tolist(), strict=True):
        found.setdefault(position, []).append(ring.nodes[owner].name)
    ties = {tie["position"]: tie["names"] for tie in RINGS["large_ties"]}
    assert {position: names for position, names in found.items() if len(names) > 1} == ties
    for tie in RINGS["large_ties"]:
        assert model.owner_at(tie["position"]) == tie["owner"]
        assert any(range_.start <= tie["position"] <= range_.end for range_ in ring.ranges(tie["owner"]))


@both
def test_a_tie_before_and_after_each_of_its_nodes_left(build: Build) -> None:
    tie = RINGS["tie"]

    def without(name: str) -> Placement:
        return build(tie["ring"] | {"nodes": [node for node in tie["ring"]["nodes"] if node[0] != name]})

    ring, without_first, without_second = build(tie["ring"]), without(tie["first"]), without(tie["second"])
    for row in tie["answers"]:
        key = key_of(row)
        assert ring.owner(key) == row["owner"] == tie["first"]
        assert list(ring.owners(key, 3)) == row["owners"]
        assert without_first.owner(key) == row["without_first"] == tie["second"]
        assert without_second.owner(key) == row["without_second"] == tie["first"]
    assert ring.position(key_of({"key": tie["on_the_point"]})) == tie["position"]


def test_a_tie_in_a_living_ring() -> None:
    tie = RINGS["tie"]
    first, second = tie["first"], tie["second"]
    keys = [key_of(row) for row in tie["answers"]]
    router = Router(nodes_of(tie["ring"]))
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, first),
        ({"remove": [first]}, second),
        ({"add": [first]}, first),
        ({"remove": [second]}, first),
        ({"add": [second]}, first),
        ({"remove": [first, second]}, ""),
        ({"add": [second, first]}, first),
        ({"reweight": {first: 1.5, second: 1.25}}, first),
    ]
    for change, owner in changes:
        if change:
            router.update(**change)
        owners = set(router.owner_many(keys))
        assert owners == {router.owner(key) for key in keys}
        assert owners == {owner} if owner else owners <= {"gw-1", "gw-2"}


@pytest.mark.parametrize("name", ["equal", "weighted", "tags"])
def test_batches_agree(name: str) -> None:
    ring, rows = ring_of(RINGS[name]["ring"]), RINGS[name]["answers"]
    keys, owners = [key_of(row) for row in rows], [row["owner"] for row in rows]
    assert ring.owner_many(keys) == owners
    assert [ring.nodes[i].name for i in ring.index_many(keys)] == owners
    integers = {key: row["owner"] for key, row in zip(keys, rows, strict=True) if isinstance(key, int)}
    assert len(integers) == 40
    assert ring.owner_many(np.array(list(integers), dtype=np.int64)) == list(integers.values())


# -- plans -------------------------------------------------------------------------------------------------


def moves_of(plan: Plan) -> list[list[object]]:
    return [[move.range.start, move.range.end, move.source, move.target] for move in plan.moves]


by_change = pytest.mark.parametrize("row", PLANS, ids=lambda row: row["change"])


@by_change
def test_moves_of_the_model(row: dict[str, Any]) -> None:
    before, after = model_of(row["before"]), model_of(row["after"])
    assert [list(move) for move in moves(before, after)] == row["moves"]


@by_change
def test_moves_between_two_rings(row: dict[str, Any]) -> None:
    before, after = ring_of(row["before"]), ring_of(row["after"])
    plan = before.diff(after)
    assert moves_of(plan) == row["moves"]
    assert plan.fraction == sum(end - start + 1 for start, end, _, _ in row["moves"]) / 2**32
    backwards = [[start, end, target, source] for start, end, source, target in row["moves"]]
    assert moves_of(after.diff(before)) == moves_of(plan.inverse()) == backwards


# A router changes members and weights; it gives no node another zone and keeps its options.
@pytest.mark.parametrize(
    "row",
    [row for row in PLANS if row["change"] not in {"zone alone", "more points"}],
    ids=lambda row: row["change"],
)
def test_moves_of_a_router(row: dict[str, Any]) -> None:
    before = {node.name: node for node in nodes_of(row["before"])}
    after = {node.name: node for node in nodes_of(row["after"])}
    router = Router(before.values(), **options_of(row["before"]))
    plan = router.plan(
        add=[node for name, node in after.items() if name not in before],
        remove=[name for name in before if name not in after],
        reweight={
            name: node.weight
            for name, node in after.items()
            if name in before and before[name].weight != node.weight
        },
    )
    assert moves_of(plan) == row["moves"]
    router.apply(plan)
    assert router.placement == ring_of(row["after"])
    assert router.placement.digest == plan.after == ring_of(row["after"]).digest


# -- digests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", DIGESTS, ids=lambda row: row["digest"][:8])
def test_digests(row: dict[str, Any]) -> None:
    assert ring_of(row["ring"]).digest == row["digest"]
    backwards = row["ring"] | {"nodes": row["ring"]["nodes"][::-1]}
    assert ring_of(backwards).digest == row["digest"]


def test_other_members_and_options_have_other_digests() -> None:
    rings = [json.dumps(row["ring"] | {"nodes": sorted(row["ring"]["nodes"])}) for row in DIGESTS]
    assert len({row["digest"] for row in DIGESTS}) == len(set(rings))


# -- the reference program of the specification ------------------------------------------------------------


@pytest.fixture(scope="module")
def spec() -> SimpleNamespace:
    """The functions that the sessions of the page define."""
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(SPEC.read_text(encoding="utf-8")):
        exec(compile(example.source, SPEC, "single"), names)
    return SimpleNamespace(**names)


def spec_points(spec: SimpleNamespace, ring: dict[str, Any]) -> list[tuple[int, bytes]]:
    nodes = {name: (weight, zone) for name, weight, zone in ring["nodes"]}
    points: list[tuple[int, bytes]] = spec.points(nodes, ring["vnodes"], int(ring["seed"]))
    return points


def test_positions_of_the_specification(spec: SimpleNamespace) -> None:
    for hash_tags, rows in [(False, POSITIONS["without_hash_tags"]), (True, POSITIONS["with_hash_tags"])]:
        for row in rows:
            found = [spec.position(key_of(row), int(seed), hash_tags) for seed in POSITIONS["seeds"]]
            assert found == row["positions"], row["key"]


def test_points_of_the_specification(spec: SimpleNamespace) -> None:
    for row in POINTS["points"]:
        ring = options(int(row["seed"]), row["vnodes"]) | {"nodes": [[row["name"], row["weight"], None]]}
        assert [point for point, _ in spec_points(spec, ring)] == sorted(row["points"]), row["name"]


@pytest.mark.parametrize("name", ["equal", "weighted", "tags", "tie"])
def test_owners_of_the_specification(spec: SimpleNamespace, name: str) -> None:
    ring = RINGS[name]["ring"]
    points = spec_points(spec, ring)
    zones = {name: zone for name, _, zone in ring["nodes"]}
    for row in RINGS[name]["answers"]:
        here = spec.position(key_of(row), int(ring["seed"]), ring["hash_tags"])
        assert spec.owners(points, here, 1) == [row["owner"]], row
        assert spec.owners(points, here, 3) == row["owners"], row
        if name != "tie":
            assert spec.owners(points, here, 6, zones) == row["spread"], row


@by_change
def test_moves_of_the_specification(spec: SimpleNamespace, row: dict[str, Any]) -> None:
    assert spec.moves(spec_points(spec, row["before"]), spec_points(spec, row["after"])) == row["moves"]


def test_digests_of_the_specification(spec: SimpleNamespace) -> None:
    for row in DIGESTS:
        nodes = {name: (weight, zone) for name, weight, zone in row["ring"]["nodes"]}
        assert spec.digest(nodes, **options_of(row["ring"])) == row["digest"]


def test_digests_of_assignments_of_the_specification(spec: SimpleNamespace) -> None:
    nodes = [Node("ann"), Node("bob", 2.5, "z"), Node("é", 0.1)]
    plain = {node.name: (node.weight, node.zone) for node in nodes}
    for owners in (["ann", "é", "bob", None], ["ann"] * 7, [None]):
        for seed, tags in ((0, False), (2**64 - 1, True)):
            assignment = Assignment(Shards(len(owners), seed=seed, hash_tags=tags), nodes, owners)
            assert spec.assignment_digest(plain, owners, seed, tags) == assignment.digest

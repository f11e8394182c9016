"""Two implementations, one answer: ringhash, and the C program that was written from the documents alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance_program import ask, build, key_from, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringhash import (
    Directory,
    EmptyRingError,
    Node,
    NoNodeAvailableError,
    Placement,
    RangeMap,
    Ring,
    Router,
    Shards,
    assign,
)
from ringhash.handover import Handover
from ringhash.plan import Plan

VECTORS = Path(__file__).parent / "vectors"
DOCUMENTS = json.loads((VECTORS / "documents.json").read_text(encoding="utf-8"))["documents"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("conformance"))


def answered(ask_it: Callable[[], Any]) -> Any:
    """What ringhash answers, in the words of the program."""
    try:
        found = ask_it()
    except EmptyRingError:
        return {"error": "nobody"}
    except NoNodeAvailableError:
        return {"error": "down"}
    except (TypeError, ValueError, OverflowError):
        return {"error": "key"}
    return list(found) if isinstance(found, tuple) else found


def moves_of(plan: Plan) -> list[list[Any]]:
    return [[*move.range, move.source, move.target] for move in plan.moves]


def our_answer(document: dict[str, Any], question: dict[str, Any]) -> Any:
    if question["ask"] == "moves":
        before, after = Placement.from_dict(document), Placement.from_dict(question["after"])
        return moves_of(before.diff(after))
    key = key_from(question["key"])
    if document["kind"] == "plan":
        plan = Plan.from_dict(document)
        if question["ask"] == "position":
            return answered(lambda: str(plan.space.position(key)))
        move = answered(lambda: plan.move_of(key))
        return move if move is None or isinstance(move, dict) else [move[1], move[2]]
    if document["kind"] == "router":
        router = Router.from_dict(document)
        for name in question.get("down", []):
            router.mark_down(name)
        return answered(lambda: router.owner(key))
    placement = Placement.from_dict(document)
    if question["ask"] == "owners":
        distinct = "zone" if question.get("zones") else "node"
        return answered(lambda: placement.owners(key, question["n"], distinct))  # type: ignore[attr-defined]
    if question["ask"] == "position":
        return answered(lambda: str(placement.space.position(key)))
    return answered(lambda: placement.owner(key))


# --- the vectors ---


@pytest.mark.parametrize("number", range(len(DOCUMENTS)), ids=lambda i: DOCUMENTS[i]["about"])
def test_ringhash_gives_the_answers_of_the_vectors(number: int) -> None:
    vector = DOCUMENTS[number]
    assert [our_answer(vector["document"], one) for one in vector["ask"]] == vector["answers"]


def test_the_program_gives_the_answers_of_the_vectors(program: Path) -> None:
    assert ask(program, DOCUMENTS) == [vector["answers"] for vector in DOCUMENTS]


def test_the_program_knows_the_older_vectors(program: Path) -> None:
    requests, expected = [], []

    def ring_of(one: dict[str, Any]) -> dict[str, Any]:
        nodes = [dict(zip(("name", "weight", "zone"), node, strict=True)) for node in one["nodes"]]
        return {"kind": "ring", **one, "nodes": nodes}

    rings = json.loads((VECTORS / "rings.json").read_text(encoding="utf-8"))
    prefix, count = rings["large"]["numbered"]
    numbered = [[f"{prefix}{i}", 1.0, None] for i in range(count)]
    rings["large"]["ring"] = {**rings["equal"]["ring"], "nodes": numbered}
    for name in ("equal", "weighted", "tags", "large"):
        ring = rings[name]
        questions = [
            question
            for row in ring["answers"]
            for question in (
                {"ask": "owner", "key": row["key"]},
                {"ask": "owners", "key": row["key"], "n": 3},
                {"ask": "owners", "key": row["key"], "n": 6, "zones": True},
            )
        ]
        requests.append({"document": ring_of(ring["ring"]), "ask": questions})
        expected.append([row[name] for row in ring["answers"] for name in ("owner", "owners", "spread")])
    for plan in json.loads((VECTORS / "plan.json").read_text(encoding="utf-8"))["plans"]:
        question = {"ask": "moves", "after": ring_of(plan["after"])}
        requests.append({"document": ring_of(plan["before"]), "ask": [question]})
        expected.append([plan["moves"]])
    assert len(requests) > 6
    assert ask(program, requests) == expected


# --- drawn documents ---

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
WEIGHTS = st.one_of(st.just(1.0), st.floats(0.001, 4.0))
ZONES = st.one_of(st.none(), st.sampled_from(["a", "b", "é", "\0"]))
NODES = st.lists(st.builds(Node, NAMES, WEIGHTS, ZONES), min_size=1, max_size=6, unique_by=lambda n: n.name)
SEEDS = st.one_of(st.just(0), st.integers(0, 2**64 - 1))
KEYS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.text("{}ab\0", max_size=8),
    st.binary(max_size=8),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(2**64, 2**70),
    st.uuids(),
    st.none(),
    st.booleans(),
    st.datetimes(timezones=st.timezones()),
)
DRAWN = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def rings(draw: st.DrawFn) -> Ring:
    return Ring(draw(NODES), vnodes=draw(st.integers(1, 40)), seed=draw(SEEDS), hash_tags=draw(st.booleans()))


@st.composite
def maps(draw: st.DrawFn) -> RangeMap:
    parts = st.lists(st.sampled_from(["str", "bytes", "int", "uuid", "datetime"]), min_size=1, max_size=3)
    kinds = draw(parts)
    values = {
        "str": st.text("ab\0\1é\U00010002", max_size=4),
        "bytes": st.binary(max_size=3),
        "int": st.integers(-(2**63), 2**64 - 1),
        "uuid": st.uuids(),
        "datetime": st.datetimes(timezones=st.timezones()),
    }
    key = values[kinds[0]] if len(kinds) == 1 else st.tuples(*(values[kind] for kind in kinds))
    shape: Any = kinds[0] if len(kinds) == 1 else tuple(kinds)
    space = RangeMap([(None, "n")], keys=shape).space
    found = {space.key_bytes(one): one for one in draw(st.lists(key, max_size=6))}
    starts = [one for data, one in sorted(found.items()) if data]
    names = st.sampled_from(["db-1", "db-2", "é"])
    return RangeMap([(start, draw(names)) for start in (None, *starts)], keys=shape)


@given(
    placement=st.one_of(
        rings(), maps(), st.builds(lambda n, count: assign(count, n), NODES, st.integers(1, 40))
    ),
    keys=st.lists(KEYS, min_size=1, max_size=8),
    data=st.data(),
)
@DRAWN
def test_any_placement(program: Path, placement: Placement, keys: list[Any], data: st.DataObject) -> None:
    if isinstance(placement, RangeMap):
        keys = [*keys, *(row.start for row in placement.rows if row.start is not None)]
    questions: list[dict[str, Any]] = [{"ask": "owner", "key": plain(key)} for key in keys]
    if isinstance(placement, Ring):
        zones, n = data.draw(st.booleans()), data.draw(st.integers(1, 7))
        questions += [{"ask": "owners", "key": plain(key), "n": n, "zones": zones} for key in keys]
    document = placement.to_dict()
    (answers,) = ask(program, [{"document": document, "ask": questions}])
    assert answers == [our_answer(document, question) for question in questions]


@given(
    before=rings(),
    nodes=NODES,
    keys=st.lists(KEYS, min_size=1, max_size=8),
    entries=st.dictionaries(st.text("ab{}", min_size=1, max_size=4), st.integers(0, 9), max_size=4),
)
@DRAWN
def test_any_plan(
    program: Path, before: Ring, nodes: list[Node], keys: list[Any], entries: dict[str, int]
) -> None:
    after = Ring(nodes, vnodes=before.vnodes, seed=before.seed, hash_tags=before.hash_tags)
    first = before.names[0]
    directory = Directory(before, {key: before.names[i % len(before.names)] for key, i in entries.items()})
    other = directory.with_entries({keys[0]: first} if isinstance(keys[0], str) else {"a": first})
    requests: list[dict[str, Any]] = [
        {"document": before.to_dict(), "ask": [{"ask": "moves", "after": after.to_dict()}]},
        *(
            {"document": plan.to_dict(), "ask": [{"ask": what, "key": plain(key)} for key in keys]}
            for plan in (before.diff(after), directory.diff(other))
            for what in ("move", "position")
        ),
        {"document": directory.to_dict(), "ask": [{"ask": "owner", "key": plain(key)} for key in keys]},
    ]
    expected = [[our_answer(one["document"], question) for question in one["ask"]] for one in requests]
    assert ask(program, requests) == expected


@pytest.mark.parametrize("kind", ["ring", "assignment", "range_map", "directory"])
def test_routing_at_every_step_of_a_handover(program: Path, kind: str) -> None:
    ring = Ring(["a", "b", "c"], vnodes=8)
    placements: dict[str, Placement] = {
        "ring": ring,
        "assignment": assign(Shards(16), ["a", "b", "c"]),
        "range_map": RangeMap([(None, "a"), ("k2", "b"), ("k5", "c"), ("k8", "a")]),
        "directory": Directory(ring, {"k1": "b", "k7": "c"}),
    }
    before = placements[kind]
    router = Router(before)
    router.pin("k3", "a")
    if isinstance(before, RangeMap):
        plan = router.plan_to(before.move("k2", "c").move("k8", "b"))
    elif isinstance(before, Directory):
        plan = router.plan_to(before.with_entries({"k1": "c", "k4": "a"}).without_entries("k7"))
    else:
        plan = router.plan(add=["d"])
    states: list[dict[str, object]] = []
    Handover(router, plan, stop=lambda piece: None, start=lambda piece: None, on_epoch=states.append).run()
    states.append(router.to_dict())
    assert len({json.dumps(state) for state in states}) > 2
    keys = [f"k{i}" for i in range(40)]
    requests = [
        {"document": state, "ask": [{"ask": "route", "key": {"str": key}} for key in keys]}
        for state in states
    ]
    expected = [[Router.from_dict(state).owner(key) for key in keys] for state in states]
    assert ask(program, requests) == expected


# --- the control ---


@pytest.mark.parametrize("detail", ["seed", "vnodes", "hash_tags", "nodes"])
def test_a_detail_of_a_ring_that_is_read_wrongly_changes_the_answers(program: Path, detail: str) -> None:
    vector = next(one for one in DOCUMENTS if one["about"] == "a ring with tags, zones and weights")
    document = vector["document"]
    wrong = {
        "seed": str(int(document["seed"]) ^ 1),
        "vnodes": document["vnodes"] + 1,
        "hash_tags": not document["hash_tags"],
        "nodes": [{**node, "zone": None} for node in document["nodes"]],
    }
    altered = {**vector, "document": {**document, detail: wrong[detail]}}
    assert ask(program, [altered]) != [vector["answers"]]

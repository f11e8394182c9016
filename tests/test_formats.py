"""The formats: every document fits its schema, and what a schema refuses no reader takes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import Directory, Node, Placement, RangeMap, Ring, Router, Shards, assign
from ringhash.handover import Handover, Piece
from ringhash.handover.pieces import cut
from ringhash.placement import KINDS
from ringhash.plan import Plan
from ringhash.routing.pins import Pin
from ringhash.space import space_from

jsonschema = pytest.importorskip("jsonschema")
referencing = pytest.importorskip("referencing")

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "docs" / "schemas").glob("*.schema.json"))
}
REGISTRY = referencing.Registry().with_resources(
    (schema["$id"], referencing.Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
VECTORS = Path(__file__).parent / "vectors"
PLACEMENTS = [kind for kind in KINDS if kind != "wider"]


def read_space(data: object) -> object:
    return space_from(data, "space")


READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(PLACEMENTS, Placement.from_dict),
    "node": Node.from_dict,
    "shards": Shards.from_dict,
    "plan": Plan.from_dict,
    "router": Router.from_dict,
    "pin": Pin.from_dict,
    "piece": Piece.from_dict,
    "space": read_space,
}


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY)


def fits(name: str, document: Any) -> bool:
    return bool(validator(name).is_valid(document))


def takes(name: str, document: Any) -> bool:
    try:
        READERS[name](document)
    except ValueError:  # and nothing else: no reader fails in another way
        return False
    return True


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    from ringhash.interop import (
        CassandraRing,
        EnvoyMaglev,
        EnvoyRing,
        HAProxyRing,
        KafkaPartitioner,
        KetamaRing,
        NginxRing,
        RedisSlots,
        UHashPlacement,
    )

    ring = Ring([Node("a", 2.5, "z"), "b"], vnodes=4, seed=2**64 - 1, hash_tags=True)
    shards = assign(Shards(8), ["a", "b"])
    ranges = RangeMap([(None, "a"), (("m", -3), "b")], keys=(str, int), unit=2).pin(("m", -3), "2199-01-01")
    directory = Directory(ring, {"acme": "b", b"\xff": "a"}).dedicate("big", "own")
    yield "node", Node("a", 0.5, "z").to_dict()
    yield "shards", Shards(8).to_dict()
    changes: list[tuple[Placement, Placement]] = [
        (ring, ring.changed(add=["c"], remove=["b"])),
        (shards, shards.changed(add=["c"])),
        (ranges, ranges.move(("m", -3), "a").split(("q", 0))),
        (directory, directory.with_entries({"acme": "a"}).without_entries(b"\xff")),
    ]
    for before, after in changes:
        plan = before.diff(after)
        yield before.kind, before.to_dict()
        yield "plan", plan.to_dict()
        yield "space", plan.space.to_dict()
        yield from (("piece", piece.to_dict()) for piece in cut(plan)[:1])
        router = Router(before)
        router.pin(("zz", 1) if before is ranges else "user:1", "a")
        yield "router", router.to_dict()
        yield from (("pin", pin.to_dict()) for pin in router.pins.values())
        states: list[dict[str, object]] = []
        again = router.plan_to(after) if before is not ring else router.plan(add=["c"])
        Handover(router, again, stop=_nothing, start=_nothing, on_epoch=states.append).run()
        yield from (("router", state) for state in states)
    pytest.importorskip("xxhash")
    for other in (
        CassandraRing({"a": [1, -2]}),
        EnvoyMaglev(["a", "b"], table_size=7),
        EnvoyRing(["a"]),
        HAProxyRing({"a": 1}, ids={"a": 3}),
        KafkaPartitioner(2),
        KetamaRing(["a", "b"]),
        KetamaRing({"10.0.0.1:1": 1}, "twemproxy", hash_tag="{}"),
        NginxRing({"a:1": 1, "b:1": 2}, down=["a:1"]),
        RedisSlots({"a": [(0, 5), 7]}),
        UHashPlacement({"a": 1, "b": (1, 5)}),
    ):
        yield other.kind, other.to_dict()
    text = KetamaRing(["a", "b"])
    yield "space", text.space.to_dict()
    yield "plan", text.diff(text.changed(add=["c"])).to_dict()


def _nothing(piece: object) -> None:
    pass


EXAMPLES = list(examples())


def test_every_kind_has_a_schema_and_an_example() -> None:
    named = {name for name, _ in EXAMPLES}
    assert named == READERS.keys()
    assert SCHEMAS.keys() - named == {"common", "entry", "fence_row", "placement"}
    assert SCHEMAS["placement"]["properties"]["kind"]["enum"] == PLACEMENTS


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_a_schema_and_is_on_the_page(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == f"{name}.schema.json"
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert f"(schemas/{name}.schema.json)" in page


@pytest.mark.parametrize(("name", "document"), EXAMPLES)
def test_a_document_fits_its_schema_and_comes_back(name: str, document: dict[str, Any]) -> None:
    again = json.loads(json.dumps(document))
    validator(name).validate(again)
    if name in PLACEMENTS:
        validator("placement").validate(again)
    assert json.loads(json.dumps(READERS[name](again).to_dict())) == again


def test_documents_of_the_vectors_fit() -> None:
    for vector in json.loads((VECTORS / "documents.json").read_text(encoding="utf-8"))["documents"]:
        validator(vector["document"]["kind"]).validate(vector["document"])


# --- what is refused ---

REFUSED = json.loads((VECTORS / "refused.json").read_text(encoding="utf-8"))["documents"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['format']}: {case['about']}")
def test_what_is_no_document_is_refused(case: dict[str, Any]) -> None:
    assert not takes(case["format"], case["document"])
    assert fits(case["format"], case["document"]) == (case["by"] == "reader")
    if "right" in case:
        assert takes(case["format"], case["right"])
        assert fits(case["format"], case["right"])


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**65), st.floats(), st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a document, the outermost first."""
    yield path
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in inside:
        yield from places(value, (*path, name))


@given(st.sampled_from(EXAMPLES), st.data())
@settings(max_examples=400, deadline=None)
def test_no_reader_takes_what_a_schema_refuses(example: tuple[str, Any], data: st.DataObject) -> None:
    name, document = example[0], copy.deepcopy(example[1])
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    around = document
    for step in path[:-1]:
        around = around[step]
    how = data.draw(st.sampled_from(["another", "gone", "one more"]))
    if how == "another":
        around[path[-1]] = data.draw(ODD)
    elif how == "gone":
        del around[path[-1]]
    elif isinstance(around, dict):
        around[data.draw(st.text(min_size=1, max_size=3))] = data.draw(ODD)
    else:
        around.append(data.draw(ODD))
    if not fits(name, document):
        assert not takes(name, document), (name, path, document)
    else:
        takes(name, document)

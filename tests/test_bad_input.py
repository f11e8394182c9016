"""Every wrong call and the error it gives: a type that a caller can catch, and a message that says what to do.

Each row is what is called, the type of the error and a part of its message. A call that fails changes nothing.
"""

from __future__ import annotations

import decimal
import math
import pickle
import resource
import subprocess
import sys
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from chosen import check_ring
from hypothesis import given
from hypothesis import strategies as st

from ringhash import (
    DuplicateNodeError,
    EmptyRingError,
    KeyRange,
    Move,
    Node,
    Plan,
    Ring,
    RinghashError,
    Router,
    StalePlanError,
    UnknownNodeError,
    _core,
)
from ringhash.placement import placement_from

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.core

Row = tuple[Any, type[Exception], str]  # what is given, the error, a part of its message
SURROGATE = "a\ud800"
RING = Ring(["a", "b", Node("c", 2.0, "z")])
EMPTY = Ring()


def rows(*table: Row) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("given_", "error", "message"),
        table,
        ids=[f"{type(row[0]).__name__}-{i}" for i, row in enumerate(table)],
    )


def raises(error: type[Exception], message: str) -> Any:
    return pytest.raises(error, match=message or None)


def test_errors_are_what_a_caller_expects() -> None:
    pairs = {
        DuplicateNodeError: ValueError,
        UnknownNodeError: LookupError,
        EmptyRingError: LookupError,
        StalePlanError: RuntimeError,
    }
    for error, builtin in pairs.items():
        assert issubclass(error, RinghashError)
        assert issubclass(error, builtin)


# -- nodes ---------------------------------------------------------------------------------------------------

NAMES: list[Row] = [
    ("", ValueError, "name of a node must not be empty"),
    (SURROGATE, ValueError, "UTF-8 form.*lone surrogate at index 1"),
    (None, TypeError, "must be a str, not NoneType"),
    (5, TypeError, "must be a str, not int"),
    (b"a", TypeError, "must be a str, not bytes"),
    (True, TypeError, "must be a str, not bool"),
    (["a"], TypeError, "must be a str, not list"),
]
WEIGHTS: list[Row] = [
    (0, ValueError, "finite and above 0, not 0.0; to take a node out, remove it"),
    (-0.0, ValueError, "above 0, not -0.0"),
    (-1, ValueError, "above 0, not -1.0"),
    (math.nan, ValueError, "finite and above 0, not nan"),
    (math.inf, ValueError, "finite and above 0, not inf"),
    (-math.inf, ValueError, "finite and above 0, not -inf"),
    (10**400, ValueError, "finite and above 0, not inf"),
    (np.float64("nan"), ValueError, "finite"),
    (True, TypeError, "must be a number, not bool"),
    ("1", TypeError, "must be a number, not str"),
    (None, TypeError, "must be a number, not None"),
    (1j, TypeError, "must be a number, not complex"),
    (decimal.Decimal(1), TypeError, "must be a number, not Decimal"),
]
NO_NUMBERS = [  # which in a mapping of nodes are their data
    (np.bool_(True), TypeError, "must be a number, not bool"),
    ([1], TypeError, "must be a number, not list"),
]


@rows(*NAMES)
def test_names(given_: Any, error: type[Exception], message: str) -> None:
    for call in (
        lambda: Node(given_), lambda: Ring([given_]), lambda: Router([given_]), lambda: RING.with_nodes(given_),
        lambda: Router(RING).add(given_), lambda: Router(RING).plan(add=[given_]),
    ):  # fmt: skip
        with raises(error, message):
            call()


@rows(*NAMES[:2], *NAMES[3:])
def test_zones(given_: Any, error: type[Exception], message: str) -> None:
    with raises(error, message.replace("name of a node", "zone")):
        Node("a", zone=given_)


@rows(*NO_NUMBERS)
def test_weights_that_are_no_numbers(given_: Any, error: type[Exception], message: str) -> None:
    for call in (
        lambda: Node("a", given_), lambda: RING.with_weights({"a": given_}), lambda: Router(RING).reweight("a", given_),
    ):  # fmt: skip
        with raises(error, message):
            call()


@rows(*WEIGHTS)
def test_weights(given_: Any, error: type[Exception], message: str) -> None:
    for call in (
        lambda: Node("a", given_), lambda: Ring({"a": given_}), lambda: RING.with_weights({"a": given_}),
        lambda: Router(RING).reweight("a", given_), lambda: Router(RING).update(add={"d": given_}),
    ):  # fmt: skip
        with raises(error, message):
            call()


@pytest.mark.parametrize("weight", [409.7, 1e9, 1e308, sys.float_info.max])
def test_a_node_has_at_most_65536_points(weight: float) -> None:
    for call in (
        lambda: Ring({"a": weight}),
        lambda: RING.with_weights({"a": weight}),
        lambda: Router(RING).reweight("a", weight),
    ):
        with raises(ValueError, r"'a' of weight .* at most 65536; scale the weights down"):
            call()


@rows(
    ("a", TypeError, r"iterable of nodes; for one node write \['a'\]"),
    (b"a", TypeError, "for one node write"),
    (Node("a"), TypeError, r"for one node write \[Node\('a'\)\]"),
    (5, TypeError, "iterable of names or Nodes, or a mapping of names to weights, not int"),
    (None, TypeError, "not None"),
    (["a", "a"], DuplicateNodeError, "'a' is given twice"),
    (["b", Node("a"), "c", Node("a", 2)], DuplicateNodeError, "'a' is given twice"),
    ([("a", 2.0)], TypeError, "must be a str, not tuple"),
    ({5: 1.0}, TypeError, "must be a str, not int"),
)
def test_nodes(given_: Any, error: type[Exception], message: str) -> None:
    for make in (Ring, Router):
        with raises(error, message):
            make(given_)


# -- options -------------------------------------------------------------------------------------------------


@rows(
    ({"vnodes": 0}, ValueError, "vnodes must be from 1 to 65536, not 0"),
    ({"vnodes": -1}, ValueError, "vnodes must be from 1"),
    ({"vnodes": 65_537}, ValueError, "vnodes must be from 1 to 65536, not 65537"),
    ({"vnodes": 10**30}, ValueError, "vnodes must be from 1"),
    ({"vnodes": 160.0}, TypeError, "vnodes must be an integer, not float"),
    ({"vnodes": True}, TypeError, "vnodes must be an integer, not bool"),
    ({"vnodes": "160"}, TypeError, "vnodes must be an integer, not str"),
    ({"vnodes": None}, TypeError, "vnodes must be an integer, not None"),
    ({"vnodes": np.bool_(True)}, TypeError, "vnodes must be an integer"),
    ({"seed": -1}, ValueError, "seed must be from 0 to 18446744073709551615, not -1"),
    ({"seed": 2**64}, ValueError, "seed must be from 0 to 18446744073709551615"),
    ({"seed": 1.0}, TypeError, "seed must be an integer, not float"),
    ({"seed": True}, TypeError, "seed must be an integer, not bool"),
    ({"seed": None}, TypeError, "seed must be an integer, not None"),
    ({"hash_tags": 1}, TypeError, "hash_tags must be True or False, not int"),
    ({"hash_tags": None}, TypeError, "hash_tags must be True or False, not None"),
    ({"hash_tags": "yes"}, TypeError, "hash_tags must be True or False, not str"),
    ({"vnode": 160}, TypeError, "vnode"),
    ({"replicas": 3}, TypeError, "replicas"),
)
def test_options(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    for make in (Ring, Router):
        with raises(error, message):
            make(["a"], **given_)


def test_options_are_named() -> None:
    for make in (Ring, Router):
        with pytest.raises(TypeError):
            make(["a"], 160)  # type: ignore[call-arg]
    with raises(TypeError, "options already; leave out seed, vnodes"):
        Router(RING, vnodes=3, seed=1)


def test_too_many_points_are_refused_before_memory_is_taken() -> None:
    nodes = [f"n-{i}" for i in range(2049)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with raises(ValueError, "at most 134217728 points, not 134283264"):
        Ring(nodes, vnodes=65_536)
    with raises(ValueError, "at most 134217728 points"):
        Router(dict.fromkeys(nodes, 65536), vnodes=1)
    with raises(ValueError, "at most 134217728 points"):
        Ring(["a"], vnodes=65_536).with_nodes(*nodes)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024 * (1 if sys.platform == "linux" else 1024)


# -- keys ----------------------------------------------------------------------------------------------------


class Text:
    def __str__(self) -> str:
        return "text"

    def __index__(self) -> int:
        return 5

    def __bytes__(self) -> bytes:
        return b"5"


KEYS: list[Row] = [
    (None, TypeError, "a key must be str, bytes, .* int or uuid.UUID, not NoneType"),
    (1.0, TypeError, "not float"),
    (math.nan, TypeError, "not float"),
    (True, TypeError, "not bool"),
    (False, TypeError, "not bool"),
    (1j, TypeError, "not complex"),
    (("a",), TypeError, "not tuple"),
    (["a"], TypeError, "not list"),
    ({}, TypeError, "not dict"),
    (frozenset(), TypeError, "not frozenset"),
    (object(), TypeError, "not object"),
    (str, TypeError, "not type"),
    (Text(), TypeError, r"not test_bad_input\.Text"),
    (decimal.Decimal(1), TypeError, r"not decimal\.Decimal"),
    (np.bool_(True), TypeError, r"not numpy\.bool"),
    (np.float64(1), TypeError, r"not numpy\.float64"),
    (np.float32(1), TypeError, r"not numpy\.float32"),
    (np.timedelta64(1, "s"), TypeError, r"not numpy\.timedelta64"),
    (np.datetime64(1, "s"), TypeError, r"not numpy\.datetime64"),
    (np.complex128(1), TypeError, r"not numpy\.complex128"),
    (np.array(1), TypeError, r"not numpy\.ndarray"),
    (np.array([1]), TypeError, r"not numpy\.ndarray"),
    (np.void(b"a"), TypeError, r"not numpy\.void"),
    (2**64, OverflowError, "at least -2.*63 and less than 2.*64, not a number of 65 bits"),
    (-(2**63) - 1, OverflowError, "not a number of 64 bits"),
    (10**1000, OverflowError, "not a number of 3322 bits"),
    (-(10**1000), OverflowError, "not a number of 3322 bits"),
    (SURROGATE, UnicodeEncodeError, "surrogates not allowed"),
]


@rows(*KEYS)
def test_a_key(given_: Any, error: type[Exception], message: str) -> None:
    router, plan = Router(RING), RING.diff(RING.with_nodes("d"))
    for call in (
        RING.owner, RING.__getitem__, RING.walk, RING.position, EMPTY.owner, EMPTY.position, EMPTY.walk,
        router.owner, router.__getitem__, router.walk, router.position, plan.move_of,
        lambda key: RING.owners(key, 2), lambda key: RING.owners(key, 2, "zone"), lambda key: router.owners(key, 2),
        lambda key: router.owners(key, 2, distinct="zone"), lambda key: EMPTY.owners(key, 1),
    ):  # fmt: skip
        with raises(error, message):
            call(given_)
    for batch in (RING.owner_many, RING.index_many, router.owner_many, router.index_many, plan.mask):
        for keys in (["a", given_, "b"], ("a", given_, "b"), (key for key in ["a", given_, "b"])):
            with raises(error, message) as caught:
                batch(keys)
            assert caught.value.__notes__ == ["This was key 1 of 3."]
    assert RING.owner_many(["a"]) == [RING.owner("a")]


def test_a_key_late_in_a_batch() -> None:
    with pytest.raises(TypeError) as caught:
        RING.owner_many([*range(1000), None])
    assert caught.value.__notes__ == ["This was key 1000 of 1001."]


@rows(
    ("abc", TypeError, r"str is one key; write \[key\], or call owner\(key\)"),
    (b"abc", TypeError, "bytes is one key"),
    (bytearray(b"abc"), TypeError, "bytearray is one key"),
    (memoryview(b"abc"), TypeError, "memoryview is one key"),
    (uuid.UUID(int=1), TypeError, "not UUID; for one key"),
    (np.str_("abc"), TypeError, "is one key"),
    (np.bytes_(b"abc"), TypeError, "is one key"),
    (5, TypeError, "iterable of keys, not int"),
    (None, TypeError, "iterable of keys, not NoneType"),
    (1.5, TypeError, "iterable of keys, not float"),
    (object(), TypeError, "iterable of keys, not object"),
    (np.int64(5), ValueError, r"one dimension, not the shape \(\)"),
    (np.array(5), ValueError, r"one dimension, not the shape \(\)"),
    (np.zeros((2, 2), int), ValueError, r"one dimension, not the shape \(2, 2\); try keys\.ravel\(\)"),
    (np.zeros((0, 2), int), ValueError, "one dimension"),
    (np.array([["a"]]), ValueError, "one dimension"),
    (np.array([["a"]], object), ValueError, "one dimension"),
    (np.array([1.0]), TypeError, "integers, bytes, str or objects, not float64"),
    (np.array([], float), TypeError, "not float64"),
    (np.array([1], np.float16), TypeError, "not float16"),
    (np.array([True]), TypeError, "not bool"),
    (np.array([1j]), TypeError, "not complex128"),
    (np.array([1], "M8[s]"), TypeError, r"not datetime64\[s\]"),
    (np.array([1], "m8[s]"), TypeError, r"not timedelta64\[s\]"),
    (np.zeros(2, "V4"), TypeError, "not .*V4"),
    (np.zeros(2, [("a", int)]), TypeError, "integers, bytes, str or objects, not"),
    (np.array(["a", None], object), TypeError, "not NoneType"),
    (np.array([1, 1.5], object), TypeError, "not float"),
    (np.array([2**64], object), OverflowError, "65 bits"),
    (np.array(["a\ud800"]), UnicodeEncodeError, "surrogates"),
    ({"a": 1, None: 2}, TypeError, "not NoneType"),
)
def test_keys(given_: Any, error: type[Exception], message: str) -> None:
    router, plan = Router(RING), RING.diff(RING.with_nodes("d"))
    for batch in (RING.owner_many, RING.index_many, router.owner_many, router.index_many, plan.mask):
        with raises(error, message):
            batch(given_)
    with pytest.raises((error, EmptyRingError)):
        EMPTY.owner_many(given_)


def test_an_iterable_that_fails_says_so_itself() -> None:
    def keys() -> Any:
        yield "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RING.owner_many(keys())


# -- lookups -------------------------------------------------------------------------------------------------


@rows(
    ((0,), ValueError, "n must be at least 1, not 0"),
    ((-1,), ValueError, "n must be at least 1, not -1"),
    ((-(2**64),), ValueError, "n must be at least 1"),
    ((1.0,), TypeError, "n must be an int of at least 1, not 1.0"),
    (("1",), TypeError, "n must be an int of at least 1, not '1'"),
    ((None,), TypeError, "n must be an int of at least 1, not None"),
    ((True,), TypeError, "n must be an int of at least 1, not True"),
    ((False,), TypeError, "n must be an int of at least 1, not False"),
    ((), TypeError, ""),
    ((2, "rack"), ValueError, "distinct must be 'node' or 'zone', not 'rack'"),
    ((2, None), ValueError, "distinct must be 'node' or 'zone', not None"),
    ((2, "zone", False, 1), TypeError, ""),
)
def test_how_many_owners(given_: tuple[Any, ...], error: type[Exception], message: str) -> None:
    for ring in (RING, Router(RING)):
        with raises(error, message):
            ring.owners("key", *given_)
        if len(given_) == 1:
            with raises(error, message):
                ring.owners("key", *given_, distinct="zone")


@pytest.mark.parametrize("n", [4, 17, 2**40, 2**64, np.int64(5)])
@pytest.mark.parametrize("distinct", ["node", "zone"])
def test_where_fewer_are_there_owners_gives_them_all(n: Any, distinct: Any) -> None:
    router = Router(RING)
    for ring in (RING, router):
        assert ring.owners("key", n, distinct) == ring.owners("key", 3, distinct)
        with raises(ValueError, "from 1 to the number of nodes, 3, not"):
            ring.owners("key", n, distinct, strict=True)
    router.pin("key", RING.nodes[0].name)
    assert router.owners("key", n, distinct) == router.owners("key", 3, distinct)
    router.mark_down(*router.owners("key", 2))
    assert router.owners("key", n, distinct) == (router.owner("key"),)


@pytest.mark.parametrize("name", ["owner", "walk", "position", "__getitem__"])
def test_a_lookup_takes_one_key(name: str) -> None:
    for ring in (RING, Router(RING)):
        for arguments in ((), ("a", "b")):
            with pytest.raises(TypeError):
                getattr(ring, name)(*arguments)
        with pytest.raises(TypeError):
            getattr(ring, name)(key="a")
        with pytest.raises(TypeError):
            getattr(type(ring), name)(object(), "a")


@rows(
    ("x", UnknownNodeError, "no node 'x'; the nodes are 'a', 'b', 'c'"),
    ("", UnknownNodeError, "no node ''"),
    (SURROGATE, UnknownNodeError, "no node"),
    (5, TypeError, "a node is named by a str, not int"),
    (None, TypeError, "a node is named by a str, not None"),
    (Node("a"), TypeError, "a node is named by a str, not Node"),
    (b"a", TypeError, "a node is named by a str, not bytes"),
)
def test_a_name_that_should_be_there(given_: Any, error: type[Exception], message: str) -> None:
    for call in (
        RING.ranges, RING.node, RING.without, lambda name: RING.with_weights({name: 2.0}), Router(RING).remove,
        lambda name: Router(RING).reweight(name, 2.0), lambda name: Router(RING).plan(remove=[name]),
    ):  # fmt: skip
        with raises(error, message):
            call(given_)
    with raises(UnknownNodeError, "the nodes are none"):
        EMPTY.without("a")
    with raises(UnknownNodeError, r"'0', '1', '10', '11', '2', \.\.\."):
        Ring(map(str, range(12))).without("x")


# -- changes -------------------------------------------------------------------------------------------------


@rows(
    ({"add": "d"}, TypeError, r"add must be an iterable of nodes; for one node write \['d'\]"),
    ({"add": Node("d")}, TypeError, "add must be an iterable of nodes"),
    ({"add": 5}, TypeError, "add must be an iterable"),
    ({"add": None}, TypeError, "add must be an iterable"),
    ({"add": ["a"]}, DuplicateNodeError, "'a' is there already; to change its weight, reweight it"),
    ({"add": ["d", "d"]}, DuplicateNodeError, "'d' is added twice"),
    ({"add": ["a", "a"], "remove": ["a"]}, DuplicateNodeError, "'a' is added twice"),
    ({"remove": "a"}, TypeError, "remove must be an iterable of names, and a str is one"),
    ({"remove": b"a"}, TypeError, "remove must be an iterable of names, and a bytes is one"),
    ({"remove": None}, TypeError, "remove must be an iterable of names, not None"),
    ({"remove": 5}, TypeError, "remove must be an iterable of names, not int"),
    ({"remove": ["a", "a"]}, ValueError, "'a' is removed twice"),
    ({"remove": ["x"]}, UnknownNodeError, "no node 'x'"),
    ({"reweight": ["a"]}, TypeError, "reweight must be a mapping of names to weights, not list"),
    ({"reweight": "a"}, TypeError, "reweight must be a mapping"),
    ({"reweight": {"x": 1.0}}, UnknownNodeError, "no node 'x'"),
    ({"reweight": {"a": 2.0}, "remove": ["a"]}, ValueError, "'a' is reweighted and also removed or added"),
    ({"reweight": {"d": 2.0}, "add": ["d"]}, UnknownNodeError, "no node 'd'"),
    ({"added": ["d"]}, TypeError, "added"),
)
def test_changes(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    router = Router(RING)
    before = pickle.dumps(router)
    for call in (router.plan, router.update):
        with raises(error, message):
            call(**given_)
    assert router.placement is RING
    assert pickle.dumps(router) == before
    check_ring(router.placement)


@pytest.mark.parametrize("plan", [None, "plan", {}, RING, 5], ids=repr)
def test_only_plans_are_applied(plan: Any) -> None:
    with raises(TypeError, "expected a Plan, not"):
        Router(RING).apply(plan)


@rows(
    (None, TypeError, "to others of that kind, not None"),
    (Router(RING), TypeError, "not Router"),
    (["a"], TypeError, "not list"),
    (Ring(["a"], seed=1), ValueError, "read keys alike.*seed=0.*seed=1"),
    (Ring(["a"], hash_tags=True), ValueError, "hash_tags=False.*hash_tags=True"),
)
def test_diff(given_: Any, error: type[Exception], message: str) -> None:
    with raises(error, message):
        RING.diff(given_)


# -- dictionaries from outside -------------------------------------------------------------------------------

ROUTER = Router(RING)
PLAN = ROUTER.plan(add=["d"], reweight={"a": 2.0})
SEVERAL: list[Any] = [None, True, 5, 1.5, -1, "text", [], {}, [[]], [{}], [None]]
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "node": (Node, Node("a", 2.0, "z").to_dict()),
    "ring": (Ring, RING.to_dict()),
    "router": (Router, ROUTER.to_dict()),
    "plan": (Plan, PLAN.to_dict()),
}
FIELDS = [(kind, field) for kind, (_, good) in KINDS.items() for field in good]


DEFAULTS = {"version", "weight", "zone", "vnodes", "seed", "hash_tags"}  # of RING and of a node of weight 1
NEEDED_NOT = DEFAULTS | {"nodes@plan", "epoch@plan"}


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_missing_field_has_its_default_or_is_named(kind: str, field: str) -> None:
    made, good = KINDS[kind]
    rest = {name: value for name, value in good.items() if name != field}
    if field in NEEDED_NOT or f"{field}@{kind}" in NEEDED_NOT:
        same = made.from_dict(rest).to_dict()
        assert same.keys() <= good.keys()
        assert same == good or kind == "node" or field in {"nodes", "epoch"}
        return
    with raises(ValueError, rf"{kind}\.{field}: is missing"):
        made.from_dict(rest)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_field_is_named(kind: str) -> None:
    made, good = KINDS[kind]
    for extra in ("extra", "", 5, None):
        with raises(ValueError, rf"{kind}: unknown field {extra!r}; the fields are"):
            made.from_dict(good | {extra: 1})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [None, True, 5, 1.5, "text", [], b"{}"], ids=repr)
def test_what_is_no_object_is_told(kind: str, data: Any) -> None:
    with raises(ValueError, f"{kind}: must be an object, not"):
        KINDS[kind][0].from_dict(data)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
@pytest.mark.parametrize("value", SEVERAL, ids=repr)
def test_a_wrong_value_is_a_value_error_that_names_its_field(kind: str, field: str, value: Any) -> None:
    made, good = KINDS[kind]
    data = good | {field: value}
    names_its_field = pytest.raises(ValueError, match=rf"{field}|{kind}\b")
    try:
        read = made.from_dict(data).to_dict()
        accepted = made.from_dict(read).to_dict() == read and (read | data == data or value in {5, "5"})
        accepted = accepted or (value == [] and field not in read)  # nothing is left out
    except ValueError:
        accepted = False
    with nullcontext() if accepted else names_its_field:
        made.from_dict(data)


@rows(
    ({"name": ""}, ValueError, "node: the name of a node must not be empty"),
    ({"name": SURROGATE}, ValueError, "node: .*lone surrogate"),
    ({"name": None}, ValueError, "node.name: must be a string, not null"),
    ({"weight": "1"}, ValueError, "node.weight: must be a number or an integer, not a string"),
    ({"weight": True}, ValueError, "node.weight: must be a number or an integer, not true or false"),
    ({"weight": math.nan}, ValueError, "node: a weight must be finite"),
    ({"weight": 0}, ValueError, "node: a weight must be finite and above 0"),
    ({"zone": ""}, ValueError, "node: a zone must not be empty"),
    ({"zone": 5}, ValueError, "node.zone: must be a string or null, not an integer"),
)
def test_node_from_dict(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    good = Node("a").to_dict()
    with raises(error, message):
        Node.from_dict(good | given_)
    with raises(error, message.replace("node", r"ring\.nodes\[1\]", 1)):
        Ring.from_dict(RING.to_dict() | {"nodes": [Node("b").to_dict(), good | given_]})


@rows(
    ({"nodes": {}}, ValueError, "ring.nodes: must be a list, not an object"),
    ({"nodes": ["a"]}, ValueError, r"ring.nodes\[0\]: must be an object, not a string"),
    ({"nodes": [Node("a").to_dict()] * 2}, ValueError, "ring: the node 'a' is given twice"),
    ({"vnodes": 0}, ValueError, "ring: vnodes must be from 1"),
    ({"vnodes": 1.0}, ValueError, "ring.vnodes: must be an integer, or its digits as text, not a number"),
    ({"vnodes": True}, ValueError, "ring.vnodes: must be an integer.* not true or false"),
    ({"seed": -1}, ValueError, "ring.seed: must be from 0"),
    ({"seed": "-1"}, ValueError, "ring.seed: must be an integer, or its digits as text, not '-1'"),
    ({"seed": "9" * 5000}, ValueError, "ring.seed: must be an integer, or its digits as text, not a string"),
    ({"seed": "²"}, ValueError, "ring.seed: must be an integer"),
    ({"seed": str(2**64)}, ValueError, r"ring.seed: must be from 0 to 2\*\*64 - 1"),
    ({"seed": 10**5000}, ValueError, "ring.seed: must be from 0 .* a number of 16610 bits"),
    ({"kind": "plan"}, ValueError, "ring.kind: must be .*ring.*, not 'plan'"),
    ({"version": 2}, ValueError, "ring.version: must be 1, not 2; a later ringhash has made this"),
    ({"hash_tags": 0}, ValueError, "ring.hash_tags: must be true or false, not an integer"),
    (
        {"vnodes": 65_536, "nodes": [Node("a", 2).to_dict()]},
        ValueError,
        "ring: the node 'a' .* scale the weights down",
    ),
)
def test_ring_from_dict(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    with raises(error, message):
        Ring.from_dict(RING.to_dict() | given_)
    with raises(error, message):
        placement_from(RING.to_dict() | given_, "ring")


@rows(
    ({"epoch": -1}, ValueError, "router.epoch: must not be negative"),
    ({"epoch": 1.0}, ValueError, "router.epoch: must be an integer, not a number"),
    ({"epoch": None}, ValueError, "router.epoch: must be an integer, not null"),
    ({"placement": None}, ValueError, "placement: must be an object, not null"),
    ({"placement": {"kind": "stack"}}, ValueError, "placement.kind: must be one of .*ring.*, not 'stack'"),
)
def test_router_from_dict(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    with raises(error, message):
        Router.from_dict(ROUTER.to_dict() | given_)


def moves(*several: Any) -> dict[str, Any]:
    return {"moves": list(several)}


def modulo(**fields: Any) -> dict[str, Any]:
    return {"space": {"kind": "modulo", "version": 1, "count": 12, **fields}}


def changes(*pairs: Any) -> dict[str, Any]:
    return {"nodes": [{"before": b and b.to_dict(), "after": a and a.to_dict()} for b, a in pairs]}


@rows(
    ({"before": 5}, ValueError, "plan.before: must be a string"),
    ({"after": None}, ValueError, "plan.after: must be a string"),
    ({"epoch": -1}, ValueError, "plan.epoch: must not be negative"),
    ({"epoch": True}, ValueError, "plan.epoch: must be an integer or null"),
    ({"space": 0}, ValueError, "plan.space: must be an object"),
    ({"space": {"kind": "sphere"}}, ValueError, "plan.space.kind: must be one of .*hash.*, not 'sphere'"),
    (modulo(count=0), ValueError, r"plan.space.count: must be from 1 to 4294967296, not 0"),
    (modulo(count=2**32 + 1), ValueError, "plan.space.count: must be from 1"),
    (modulo(count=2.0**31), ValueError, "plan.space.count: must be an integer"),
    (modulo(seed=-1), ValueError, "plan.space.seed: must be from 0"),
    (modulo(seed=2**64), ValueError, "plan.space.seed: must be from 0"),
    (modulo(hash_tags=1), ValueError, "plan.space.hash_tags: must be true or false"),
    (modulo(size=1), ValueError, "plan.space: unknown field 'size'"),
    ({"nodes": {}}, ValueError, "plan.nodes: must be a list"),
    ({"nodes": [None]}, ValueError, r"plan.nodes\[0\]: must be an object"),
    ({"nodes": [{"before": None}]}, ValueError, r"plan.nodes\[0\]: changes nothing"),
    ({"nodes": [{"before": 5, "after": None}]}, ValueError, r"plan.nodes\[0\].before: must be an object"),
    ({"rows": {}}, ValueError, "plan.rows: must be a list"),
    ({"rows": [["vnodes", 1]]}, ValueError, r"plan.rows\[0\]: must be a list \[key, before, after\]"),
    ({"rows": [["vnodes", 1, 1]]}, ValueError, r"plan.rows\[0\]: .*that changes something"),
    (changes((None, None)), ValueError, r"plan.nodes\[0\]: changes nothing"),
    (changes((Node("a"), Node("a"))), ValueError, r"plan.nodes\[0\]: changes nothing"),
    (changes((Node("a"), Node("b"))), ValueError, r"plan.nodes\[0\]: before and after are two nodes"),
    (
        changes((None, Node("b")), (None, Node("a"))),
        ValueError,
        r"plan.nodes\[1\]: the names must be in order",
    ),
    (
        changes((None, Node("b")), (None, Node("b"))),
        ValueError,
        r"plan.nodes\[1\]: the names must be .* distinct",
    ),
    ({"moves": {}}, ValueError, "plan.moves: must be a list"),
    (
        moves([0, 1, "a", "b"], None),
        ValueError,
        r"plan.moves\[1\]: must be a list \[start, end, source, target\]",
    ),
    (moves([0, 1, "a"]), ValueError, r"plan.moves\[0\]: must be a list"),
    (moves((0, 1, "a", "b")), ValueError, r"plan.moves\[0\]: must be a list"),
    (
        moves([0, 2**32, "a", "b"]),
        ValueError,
        r"plan.moves\[0\].end: must be from 0 to 4294967295, not 4294967296",
    ),
    (moves([-1, 1, "a", "b"]), ValueError, r"plan.moves\[0\].start: must be from 0"),
    (moves([2, 1, "a", "b"]), ValueError, r"plan.moves\[0\]: ends at 1, before it starts at 2"),
    (moves([0.0, 1, "a", "b"]), ValueError, r"plan.moves\[0\].start: must be an integer"),
    (moves([False, True, "a", "b"]), ValueError, r"plan.moves\[0\].start: must be an integer"),
    (moves([0, 5, "a", "b"], [5, 6, "b", "a"]), ValueError, r"plan.moves\[1\]: begins at 5, before the end"),
    (moves([7, 9, "a", "b"], [1, 2, "b", "a"]), ValueError, r"plan.moves\[1\]: begins at 1"),
    (
        moves([0, 5, "a", "b"], [6, 7, "a", "b"]),
        ValueError,
        r"plan.moves\[1\]: goes on with the move before it",
    ),
    (moves([0, 5, "a", "a"]), ValueError, r"plan.moves\[0\]: source and target are the same: 'a'"),
    (moves([0, 5, None, None]), ValueError, r"plan.moves\[0\]: source and target are the same"),
    (moves([0, 5, "", "a"]), ValueError, r"plan.moves\[0\]: source and target must be names or null, not ''"),
    (moves([0, 5, 5, "a"]), ValueError, r"plan.moves\[0\]: source and target must be names or null, not 5"),
)
def test_plan_from_dict(given_: dict[str, Any], error: type[Exception], message: str) -> None:
    with raises(error, message):
        Plan.from_dict(PLAN.to_dict() | given_)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(FIELDS), json_values)
def test_any_json_is_read_or_refused_by_a_value_error(where: tuple[str, str], value: Any) -> None:
    made, good = KINDS[where[0]]
    try:
        again = made.from_dict(good | {where[1]: value})
    except ValueError:
        return
    assert type(again).from_dict(again.to_dict()) == again


# -- plans and ranges ----------------------------------------------------------------------------------------


def test_what_a_plan_does_not_have() -> None:
    for index in (len(PLAN), -len(PLAN) - 1, 2**70):
        with pytest.raises(IndexError):
            PLAN.moves[index]
    moves: Any = PLAN.moves
    for wrong in ("0", None, 1.5):
        with pytest.raises((TypeError, IndexError)):
            moves[wrong]
    for value, field in ((KeyRange(0, 1), "start"), (Move(KeyRange(0, 1), "a", "b"), "source")):
        with pytest.raises(AttributeError):
            setattr(value, field, 5)


# -- the core itself: misused, it raises and never crashes ---------------------------------------------------

T: Any = _core.Table
ASK: Any = RING


class Lying:
    """A count that is another number each time it is asked."""

    def __init__(self) -> None:
        self.answers = iter([1, 100_000, 1, 100_000])

    def __index__(self) -> int:
        return next(self.answers)


@pytest.mark.parametrize(
    "call",
    [
        lambda: T(), lambda: T(None, None), lambda: T(["a"], [1]), lambda: T(("a",), None), lambda: T(("a",), [1, 2]),
        lambda: T(("a",), [-1]), lambda: T(("a",), [2**32]), lambda: T(("a",), ["1"]),
        lambda: T((5,), [1]), lambda: T((None,), [1]), lambda: T((b"a",), [1]), lambda: T((SURROGATE,), [1]),
        lambda: T(("a",), [2**31]), lambda: T(("a", "b"), [2**32 - 1] * 2), lambda: T(("a",), [1], -1),
        lambda: T(("a",), [1], 2**64), lambda: T(("a",), [1], 0, False, "base"), lambda: T(("a",), [1], 1, False, T(("a",), [1])),
        lambda: T(("a",), [1])._moves_to(None), lambda: T(("a",), [1])._moves_to("table"),
        lambda: T((), ()).owner("key"), lambda: T((), ())["key"], lambda: T((), ()).walk("key"),
        lambda: T(("a",), [0]).owner("key"), lambda: T(("a",), [Lying()]),
        lambda: _core.KeySpace("0"), lambda: _core.KeySpace(2**64),  # type: ignore[arg-type]
        lambda: _core.LiveLookup()._publish(None, None), lambda: _core.LiveLookup()._publish("table", "table"),  # type: ignore[arg-type]
        lambda: _core.LiveLookup().owner("key"),
        lambda: _core.LiveLookup()["key"], lambda: _core.LiveLookup().walk("key"),
        lambda: _core.LiveLookup().owners("key", 1),
        lambda: next(_core.Walk()), lambda: ASK._indexes(b"abc"), lambda: ASK._indexes(None),
        lambda: ASK._indexes(5), lambda: ASK._indexes(memoryview(b"abc")),
        lambda: Ring.__new__(Ring, None), lambda: Ring.__new__(Router), lambda: Router.__new__(Ring),  # type: ignore[arg-type,type-var]
        lambda: Router.__new__(Router).owner("x"), lambda: Router.__new__(Router)["x"],
        lambda: T.__new__(Ring, ("a",), [1]).nodes, lambda: repr(T.__new__(Ring, ("a",), [1])),
    ],
)  # fmt: skip
def test_the_core_raises(call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, OverflowError, AttributeError)):
        call()


MISUSES = [
    'Table(("a",), [0]).owners("key", 1)',
    'Table(("a", "b"), [1, 0]).owners("key", 2)',
    'list(Table(("a", "b"), [1, 0]).walk("key"))',
    "ring._indexes(Batch(np.array(5)))",
    "ring._indexes(Batch(np.zeros((2, 2), int)))",
    "ring._owners(Batch(np.array([1.5])))",
    "ring._positions(np.array(5))",
    "ring.owner(Identity(int=1))",
    "ring.owner_many([Identity(int=1)])",
]
MISUSE = """
import uuid
import numpy as np
from ringhash import Ring
from ringhash._core import Batch, Table
class Identity(uuid.UUID):
    __slots__ = ()
    @property
    def bytes(self): return object()
ring = Ring(["a", "b"])
try:
    {}
except (TypeError, ValueError, LookupError):
    print("raised")
"""


@pytest.mark.parametrize("call", MISUSES)
def test_the_core_does_not_crash_or_hang(call: str) -> None:
    """In another process, so that a crash is a failure and not the end of the tests."""
    done = subprocess.run(
        [sys.executable, "-c", MISUSE.format(call)], capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.stdout, done.returncode) == ("raised\n", 0), done.stderr


def test_what_else_the_core_has_is_harmless() -> None:
    for name in ("Batch", "_Change", "_Exported", "Walk", "KeySpace", "Live"):
        made = getattr(_core, name, None)
        for arguments in ((), (None,), (5, 5), (RING, RING), (RING, EMPTY), (EMPTY, RING)):
            try:
                value = made(*arguments) if made else None
                memoryview(value)  # type: ignore[arg-type]
            except (TypeError, ValueError, AttributeError, OverflowError):
                pass
    check_ring(RING)

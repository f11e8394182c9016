"""What is true of every ring, every change and every way to ask for many keys."""

from __future__ import annotations

import array
import math
import random
import sysconfig
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from chosen import PROBE, check_ring, edges, keys_at, model_of, owners_at
from hypothesis import given
from hypothesis import strategies as st
from test_plan import members
from test_ring import nodes, rings

from ringhash import Node, Plan, Ring, Router

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.core


# -- order does not matter -----------------------------------------------------------------------------------


@given(members, st.randoms(use_true_random=False), st.integers(1, 10))
def test_any_order_makes_the_same_ring(some: list[Node], dice: random.Random, vnodes: int) -> None:
    shuffled = dice.sample(some, len(some))
    ring = Ring(some, vnodes=vnodes)
    one_by_one = Ring(vnodes=vnodes)
    for node in shuffled:
        one_by_one = one_by_one.with_nodes(node)
    for same in (Ring(shuffled, vnodes=vnodes), one_by_one):
        assert same == ring
        assert same.digest == ring.digest
        assert same.points.tobytes() == ring.points.tobytes()
        assert same.point_owners.tobytes() == ring.point_owners.tobytes()
        if some:
            assert (same.index_many(PROBE) == ring.index_many(PROBE)).all()


@pytest.mark.slow
def test_any_order_makes_the_same_ring_of_10000_nodes_with_ties() -> None:
    names = [f"node-{i}" for i in range(10_000)]
    ring = Ring(names, vnodes=16)
    assert (np.diff(ring.points) == 0).sum() > 1
    shuffled = random.Random(5).sample(names, len(names))
    assert shuffled != names
    grown = Ring(shuffled[:5000], vnodes=16).with_nodes(*shuffled[5000:9990])
    for name in shuffled[9990:]:
        grown = grown.with_nodes(name)
    shrunk = Ring([*names, *"abcdefgh"], vnodes=16).without(*"hgfedcba")
    tied = np.unique(ring.points[:-1][np.diff(ring.points) == 0])
    for same in (Ring(shuffled, vnodes=16), grown, shrunk):
        assert same == ring
        assert same.digest == ring.digest
        assert same.points.tobytes() == ring.points.tobytes()
        assert same.point_owners.tobytes() == ring.point_owners.tobytes()
        for keys in (keys_at(edges(ring)[::7]), keys_at(tied.tolist())):
            assert (same.index_many(keys) == ring.index_many(keys)).all()
    for position in tied.tolist():
        here = ring.point_owners[ring.points == position].tolist()
        assert here == sorted(here)
        assert owners_at(ring, [position]) == [ring.nodes[here[0]].name]
    check_ring(
        ring.without(*(ring.nodes[ring.point_owners[ring.points == p][0]].name for p in tied.tolist()))
    )


# -- only what must move moves -------------------------------------------------------------------------------


@given(rings, nodes)
def test_an_added_node_only_takes(ring: Ring, node: Node) -> None:
    before = ring.without(node.name) if node.name in ring else ring
    after = before.with_nodes(node)
    assert {move.target for move in before.diff(after).moves} <= {node.name}
    assert {move.source for move in after.diff(before).moves} <= {node.name}
    if before:
        sources, targets = before.owner_many(PROBE[:2000]), after.owner_many(PROBE[:2000])
        moved = [source != target for source, target in zip(sources, targets, strict=True)]
        assert {target for target, moves in zip(targets, moved, strict=True) if moves} <= {node.name}
        assert before.diff(after).mask(PROBE[:2000]).tolist() == moved
    assert after.without(node.name) == before
    check_ring(after)
    check_ring(after.without(node.name))


@given(rings.filter(bool), st.floats(0.01, 5), st.data())
def test_a_reweighted_node_gives_or_takes_and_no_other_does(
    ring: Ring, weight: float, data: st.DataObject
) -> None:
    node = data.draw(st.sampled_from(ring.nodes))
    after = ring.with_weights({node.name: weight})
    plan = ring.diff(after)
    if weight >= node.weight:
        assert {move.target for move in plan.moves} <= {node.name}
    else:
        assert {move.source for move in plan.moves} <= {node.name}
    assert after.with_weights({node.name: node.weight}) == ring
    check_ring(after)


@given(rings, members)
def test_a_plan_is_what_comparing_the_owners_everywhere_finds(before: Ring, some: list[Node]) -> None:
    after = Ring(some, vnodes=before.vnodes, seed=before.seed, hash_tags=before.hash_tags)
    plan = before.diff(after)
    if not before or not after:
        assert plan.fraction == float(bool(before) != bool(after))
        return
    keys = np.concatenate((keys_at(edges(before, after), before.seed), PROBE[:2000]))
    sources, targets = before.owner_many(keys), after.owner_many(keys)
    for key, source, target, moves in zip(keys.tolist(), sources, targets, plan.mask(keys), strict=True):
        assert moves == (source != target)
        if moves:
            move = plan.move_of(key)
            assert move is not None
            assert (move.source, move.target) == (source, target)
    router = Router(before)
    router.apply(plan)
    router.apply(Plan.from_dict(plan.inverse().to_dict()))
    assert router.placement == before


@given(rings.filter(bool))
def test_shares_add_up_to_the_whole(ring: Ring) -> None:
    assert math.fsum(ring.shares.values()) == 1.0
    sizes = {name: sum(range_.size for range_ in ring.ranges(name)) for name in ring}
    assert sum(sizes.values()) == 2**32
    assert ring.shares == {name: size / 2**32 for name, size in sizes.items()}


def test_shares_are_what_keys_find() -> None:
    ring = Ring({"a": 1, "b": 2, "c": 0.5}, vnodes=50)
    counted = np.bincount(ring.index_many(np.arange(200_000)), minlength=3) / 200_000
    assert counted == pytest.approx(list(ring.shares.values()), abs=0.005)


# -- many keys: every form, the same answers -----------------------------------------------------------------

NODES = [f"gw-{i}" for i in range(9)]
RINGS = [Ring(NODES, vnodes=16), Ring(NODES, vnodes=16, seed=77, hash_tags=True), Ring(["gw-0"])]


def agree(keys: Any, singles: list[Any]) -> None:
    """The batch answers are those of the single keys, whatever the ring."""
    for ring in RINGS:
        expected = [ring.owner(key) for key in singles]
        assert ring.owner_many(keys) == expected
        indexes = ring.index_many(keys)
        assert indexes.dtype == np.intp
        assert [ring.nodes[i].name for i in indexes] == expected
        plan = ring.diff(ring.with_nodes("gw-9"))
        assert plan.mask(keys).tolist() == [plan.move_of(key) is not None for key in singles]


MIXED: list[Any] = [
    "",
    "a",
    "é\U0001f600",
    "{t}x",
    b"",
    b"\0",
    b"{t}y",
    0,
    -1,
    2**64 - 1,
    -(2**63),
    uuid.UUID(int=9),
]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255, 256, 257, 1000])
def test_batches_of_every_size(size: int) -> None:
    agree(list(range(size)), list(range(size)))
    agree(np.arange(size), list(range(size)))
    agree([str(i) for i in range(size)], [str(i) for i in range(size)])


@pytest.mark.parametrize(
    "form", [list, tuple, dict.fromkeys, deque, lambda keys: np.array(keys, object)],
    ids=["list", "tuple", "dict", "deque", "object array"],
)  # fmt: skip
def test_any_iterable_of_keys(form: Callable[[list[Any]], Any]) -> None:
    agree(form(MIXED), MIXED)


def test_what_can_be_read_once() -> None:
    for ring in RINGS:
        expected = [ring.owner(key) for key in MIXED]
        assert ring.owner_many(iter(MIXED)) == ring.owner_many(key for key in MIXED) == expected
        assert ring.index_many(map(int, "123")).tolist() == ring.index_many([1, 2, 3]).tolist()
    agree(range(5), list(range(5)))
    agree({1, 2, 3}, list({1, 2, 3}))
    agree(array.array("q", [1, -1, 5]), [1, -1, 5])


INTEGERS = [
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.longlong,
    np.intc,
]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("order", "<>")
def test_integer_arrays_of_every_type_and_layout(
    kind: type[np.integer[Any]], order: Literal["<", ">"]
) -> None:
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    dice = random.Random(1)
    values = [low, low + 1, 0, 1, high - 1, high, *(dice.randint(low, high) for _ in range(300))]
    keys = np.array(values, np.dtype(kind).newbyteorder(order))
    agree(keys, values)
    agree(keys[::3], values[::3])
    agree(keys[::-1], values[::-1])
    agree(keys[5:1:-2], values[5:1:-2])
    agree(np.broadcast_to(keys[:1], 5), values[:1] * 5)
    agree(np.asfortranarray(np.stack([keys, keys[::-1]]))[1], values[::-1])
    readonly = keys.copy()
    readonly.flags.writeable = False
    agree(readonly, values)
    agree(list(keys), values)
    agree(keys.astype(object), values)
    records = np.zeros(len(keys), np.dtype([("pad", "u1"), ("key", keys.dtype), ("more", "u2")]))
    records["key"] = keys
    assert not records["key"].flags.aligned or keys.itemsize == 1
    agree(records["key"], values)
    agree(records["key"][::-2], values[::-2])
    agree(records.view(np.recarray).key, values)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 20, 300])
def test_arrays_of_fixed_width_bytes(width: int) -> None:
    dice = random.Random(width)
    values = [dice.randbytes(dice.randint(0, width)).rstrip(b"\0") for _ in range(300)] + [
        b"",
        b"{a}b"[:width],
    ]
    keys = np.array(values, f"S{width}")
    agree(keys, values)
    agree(keys[::-1], values[::-1])
    agree(keys[::7], values[::7])
    agree(keys.astype(object), values)
    records = np.zeros(len(keys), np.dtype([("pad", "u1"), ("key", keys.dtype)]))
    records["key"] = keys
    agree(records["key"], values)


def test_arrays_of_bytes_lose_trailing_zeros_as_numpy_does() -> None:
    keys = np.array([b"a\0", b"\0\0", b"\0a\0"])
    agree(keys, list(keys))
    assert keys.tolist() == [b"a", b"", b"\0a"]


TEXTS = ["", "a", "é", "\U0001f600", "{t}x", "a\0b", "user:7"]


def test_arrays_of_text() -> None:
    agree(np.array(TEXTS), TEXTS)
    agree(np.array(TEXTS)[::-2], TEXTS[::-2])
    agree(np.array(TEXTS, ">U9"), TEXTS)
    agree(np.array(TEXTS, object), TEXTS)
    agree(list(np.array(TEXTS)), TEXTS)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="StringDType came with numpy 2")
def test_arrays_of_strings_of_any_length() -> None:
    texts = [*TEXTS, "long" * 100]
    agree(np.array(texts, np.dtypes.StringDType()), texts)
    with pytest.raises(TypeError, match=r"NoneType.*|nan"):
        RINGS[0].owner_many(np.array(["a", None], np.dtypes.StringDType(na_object=None)))


def test_masked_arrays() -> None:
    agree(np.ma.masked_array([1, 2, 3]), [1, 2, 3])
    with pytest.raises(TypeError, match="NoneType"):
        RINGS[0].owner_many(np.ma.masked_array([1, 2, 3], [False, True, False]))


def test_memory_maps_and_subclasses(tmp_path: Any) -> None:
    class Mine(np.ndarray[Any, Any]):
        pass

    values = list(range(-50, 50))
    np.array(values, np.int64).tofile(tmp_path / "keys")
    agree(np.memmap(tmp_path / "keys", np.int64, "r"), values)
    agree(np.array(values, np.int16).view(Mine), values)


def test_what_becomes_an_array() -> None:
    class Column:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1, 2, 3], np.uint16)

    agree(Column(), [1, 2, 3])


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    agree(pandas.Series([1, -2, 3]), [1, -2, 3])
    agree(pandas.Series(range(9), dtype="uint8")[::-2], list(range(9))[::-2])
    agree(pandas.Series(TEXTS), TEXTS)
    agree(pandas.Series(TEXTS, dtype=object), TEXTS)
    agree(pandas.Index(TEXTS), TEXTS)
    agree(pandas.Series([1, 2], dtype="Int64"), [1, 2])
    agree(pandas.Series(["a", "b", "a"], dtype="category"), ["a", "b", "a"])
    with pytest.raises(TypeError):
        RINGS[0].owner_many(pandas.Series([1.5]))
    with pytest.raises(TypeError):
        RINGS[0].owner_many(pandas.Series(["a", None]))
    with pytest.raises(TypeError):
        RINGS[0].owner_many(pandas.Series([1, None], dtype="Int64"))
    with pytest.raises(ValueError, match="one dimension"):
        RINGS[0].owner_many(pandas.DataFrame({"a": [1], "b": [2]}))


ARROW_TEXTS = [*TEXTS, "x" * 12, "x" * 13, "x" * 16, "x" * 17, "long" * 100]


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "string_view", "binary", "large_binary", "binary_view"]
)
def test_arrow_text(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    type_ = getattr(arrow, kind)()
    values: list[Any] = ARROW_TEXTS if "string" in kind else [text.encode() for text in ARROW_TEXTS]
    agree_with_arrow(arrow, type_, values)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_arrow_integers(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    limits = np.iinfo(kind)
    agree_with_arrow(arrow, getattr(arrow, kind)(), [int(limits.min), 0, 1, 100, int(limits.max)])


def agree_with_arrow(arrow: Any, kind: Any, values: list[Any]) -> None:
    column = arrow.array(values, kind)
    agree(column, values)
    agree(column[:0], [])
    agree(column[2:5], values[2:5])
    agree(arrow.array(values * 100, kind), values * 100)
    agree(arrow.array([None, *values], kind)[1:], values)
    agree(arrow.chunked_array([column[:2], column[2:2], column[3:]]), values[:2] + values[3:])
    agree(arrow.chunked_array([], kind), [])
    agree(column.dictionary_encode() if "view" not in str(kind) else column, values)
    with pytest.raises(TypeError, match="must not be null, and key 0 is"):
        RINGS[0].owner_many(arrow.array([values[0], None, *values], kind)[1:])
    for rows in (arrow.array([*values, None], kind), arrow.chunked_array([values, [None]], kind)):
        with pytest.raises(TypeError, match=f"must not be null, and key {len(values)} is"):
            RINGS[0].owner_many(rows)


def test_other_arrow_columns() -> None:
    arrow = pytest.importorskip("pyarrow")
    fixed = [b"abcd", b"{a}\0", b"\0\0\0\0"]
    agree(arrow.array(fixed, arrow.binary(4)), fixed)
    agree(arrow.array(fixed, arrow.binary(4))[1:], fixed[1:])
    agree(arrow.array([b"", b""], arrow.binary(0)), [b"", b""])
    agree(arrow.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), ["a", "a", "b"])
    for wrong in (arrow.array([True]), arrow.array([1.5]), arrow.nulls(3), arrow.array([1], arrow.date32()),
                  arrow.array([1], arrow.duration("s")), arrow.array([[1]]), arrow.array([{"a": 1}])):  # fmt: skip
        with pytest.raises(TypeError):
            RINGS[0].owner_many(wrong)
    with pytest.raises(ValueError, match="one dimension"):
        RINGS[0].owner_many(arrow.table({"a": [1], "b": [2]}))


def test_arrow_uuids_are_uuids() -> None:
    """And not bytes in which a part in braces would count."""
    arrow = pytest.importorskip("pyarrow")
    identities = [uuid.UUID(bytes=b"{a}bcdefghijklmn"), *(uuid.UUID(int=i) for i in range(50))]
    agree(arrow.array([identity.bytes for identity in identities], arrow.uuid()), identities)


def test_an_arrow_capsule_is_read_only_while_it_is_full() -> None:
    arrow = pytest.importorskip("pyarrow")

    class Capsule:
        def __init__(self, capsules: object) -> None:
            self.capsules = capsules

        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return self.capsules

    capsules = arrow.array([1, 2, 3]).__arrow_c_array__()
    agree(Capsule(capsules), [1, 2, 3])
    del capsules
    for nonsense in (None, 5, (1, 2), (1,), arrow.array([1]).__arrow_c_array__()[::-1]):
        with pytest.raises((TypeError, ValueError)):
            RINGS[0].owner_many(Capsule(nonsense))
    emptied = arrow.array([1, 2, 3]).__arrow_c_array__()
    arrow.Array._import_from_c_capsule(*emptied)
    with pytest.raises((TypeError, ValueError)):
        RINGS[0].owner_many(Capsule(emptied))


@pytest.mark.parametrize("act", ["clear", "shrink", "grow", "swap"])
def test_a_list_may_change_while_it_is_read(act: str) -> None:
    class Changing(uuid.UUID):
        __slots__ = ()

        @property
        def bytes(self) -> bytes:
            match act:
                case "clear":
                    rows.clear()
                case "shrink":
                    del rows[7:]
                case "grow":
                    rows.extend(["more"] * 1000)
                case _:
                    rows[:] = [f"other {i}" for i in range(len(rows))]
            return b"\0" * 16

    for size in (200, 600):
        rows: list[Any] = [f"key {i} " * 3 for i in range(size)]
        rows[100] = Changing(int=1)
        if sysconfig.get_config_var("Py_GIL_DISABLED"):  # then the list is copied before it is read
            before = [RINGS[0].owner(row) for row in rows[101:]]
            assert RINGS[0].owner_many(rows)[101:] == before
        elif act in {"clear", "shrink"}:
            with pytest.raises(RuntimeError, match="became shorter"):
                RINGS[0].owner_many(rows)
        else:
            assert RINGS[0].owner_many(rows)[101:] == [RINGS[0].owner(row) for row in rows[101:size]]


def test_one_integer_is_one_key_in_every_form() -> None:
    for ring in RINGS:
        for number in (0, 7, 127):
            forms: list[Any] = [number, *(kind(number) for kind in INTEGERS)]
            assert len({ring.position(form) for form in forms}) == 1
            assert len(set(ring.owner_many(forms))) == 1


keys = st.one_of(
    st.text(st.characters(codec="utf-8")), st.binary(), st.integers(-(2**63), 2**64 - 1), st.uuids(),
    st.sampled_from(["{a}b", "a{é}", "{}", b"{a}{b}", "{", "}{"]),
)  # fmt: skip


@given(rings.filter(bool), st.lists(keys))
def test_any_keys_agree_with_the_model(ring: Ring, some: list[Any]) -> None:
    model = model_of(ring)
    expected = [model.owner(key) for key in some]
    assert [ring.owner(key) for key in some] == [ring[key] for key in some] == expected
    assert ring.owner_many(some) == ring.owner_many(tuple(some)) == ring.owner_many(iter(some)) == expected
    for key in some:
        if isinstance(key, bytes):
            forms: list[Any] = [bytearray(key), memoryview(key), memoryview(key[::-1])[::-1]]
            assert {ring.position(form) for form in forms} == {model.position(key)}
            assert ring.owner_many(forms) == [model.owner(key)] * 3

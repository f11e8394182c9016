"""The bytes of keys in order: vectors, Python's order as the oracle, and what is refused."""

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash._ordered import Shape

VECTORS = json.loads((Path(__file__).parent / "vectors" / "ordered.json").read_text())
READ = {
    "str": str,
    "bytes": bytes.fromhex,
    "int": int,
    "uuid": UUID,
    "datetime": datetime.fromisoformat,
    "str, int": lambda key: tuple(kind(part) for kind, part in zip((str, int), key, strict=False)),
}
BERLIN = ZoneInfo("Europe/Berlin")

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("\0\1\2a", max_size=5)
PARTS = {
    "str": text,
    "bytes": st.binary(max_size=6)
    | st.text("\0\1\2a\xff", max_size=5).map(lambda part: part.encode("latin-1")),
    "int": st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300),
    "uuid": st.uuids(),
    "datetime": st.datetimes(
        datetime(2, 1, 1),  # noqa: DTZ001  the zone is drawn
        datetime(9998, 1, 1),  # noqa: DTZ001
        timezones=st.integers(-800, 800).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    ),
}
shapes = st.sampled_from(sorted(PARTS)) | st.lists(
    st.sampled_from(sorted(PARTS)), min_size=1, max_size=4
).map(tuple)


def keys_of(shape):
    return st.tuples(*(PARTS[part] for part in shape)) if isinstance(shape, tuple) else PARTS[shape]


def shape_of(name):
    return Shape(tuple(name.split(", ")) if "," in name else name)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name):
    shape = shape_of(name)
    for row in VECTORS[name]:
        key = READ[name](row["key"])
        assert shape.encode(key, False).hex() == row["hex"]
        assert shape.decode(bytes.fromhex(row["hex"])) == key
    assert all(a["hex"] < b["hex"] for a, b in pairwise(VECTORS[name]))


@given(
    shapes.flatmap(lambda shape: st.tuples(st.just(shape), st.lists(keys_of(shape), min_size=2, max_size=6)))
)
def test_bytes_sort_as_python_sorts(case):
    parts, keys = case
    shape = Shape(parts)
    for a in keys:
        assert shape.decode(shape.encode(a)) == a
        for b in keys:
            assert (shape.encode(a) < shape.encode(b)) == (a < b)
            assert (shape.encode(a) == shape.encode(b)) == (a == b)


@given(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=4).map(tuple).flatmap(
    lambda shape: st.tuples(st.just(shape), keys_of(shape), keys_of(shape), st.integers(0, 4), st.integers(0, 4))
))  # fmt: skip
def test_beginnings_of_tuples_sort_as_python_sorts_them(case):
    parts, a, b, m, n = case
    shape = Shape(parts)
    a, b = a[:m], b[:n]
    assert (shape.encode(a, False) < shape.encode(b, False)) == (a < b)
    assert shape.decode(shape.encode(a, False)) == a


@given(shapes, st.binary(max_size=40))
def test_what_decodes_encodes_to_the_same_bytes(parts, data):
    shape = Shape(parts)
    try:
        key = shape.decode(data)
    except ValueError:  # also UnicodeDecodeError
        return
    assert shape.encode(key, False) == data


def test_integers_of_both_signs():
    # namely: two's complement bytes would make -10..10 empty, and text would sort -10, -9, 10, 9
    shape = Shape("int")
    numbers = [-(2**63), -256, -255, -129, -128, -1, 0, 1, 127, 128, 255, 256, 2**63 - 1]
    assert [shape.decode(data) for data in sorted(map(shape.encode, numbers))] == numbers
    inside = [n for n in numbers if shape.encode(-10) <= shape.encode(n) < shape.encode(10)]
    assert inside == [-1, 0, 1]
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match="at least -2"):
            shape.encode(wrong)
    assert shape.encode(np.int16(-7)) == shape.encode(-7)
    assert shape.encode(np.uint64(2**64 - 1)) == shape.encode(2**64 - 1)


@pytest.mark.parametrize("wrong", [1.0, True, np.bool_(True), "1", b"1", None, (1,), np.float64(1)])
def test_a_map_of_integers_takes_nothing_that_equals_one(wrong):
    with pytest.raises(TypeError, match="the keys of this map are int"):
        Shape("int").encode(wrong)


@pytest.mark.parametrize("wrong", [1.0, True, None, object(), ("a", False), ("a", ("b",))])
def test_a_shape_is_made_of_keys_only(wrong):
    with pytest.raises(TypeError, match="a key must be"):
        Shape.of(wrong)


def test_shapes():
    assert Shape.of(("a", 1, b"x", UUID(int=0), datetime.now(BERLIN))).parts == (
        "str",
        "int",
        "bytes",
        "uuid",
        "datetime",
    )
    assert Shape.of("a") == Shape("str") != Shape(("str",))
    assert str(Shape(("str", "int"))) == "(str, int)"
    assert str(Shape(("str",))) == "(str,)"
    for wrong in ("float", (), ("str",) * 17, ["str"]):
        with pytest.raises((ValueError, TypeError)):
            Shape(wrong)


def test_text_sorts_by_code_points_and_twins_are_two_keys():
    shape = Shape("str")
    keys = ["\uff61", "\U00010002", "\ufb00", "\U00010478", "z", "\ue000"]
    assert sorted(keys, key=shape.encode) == ["z", "\ue000", "\ufb00", "\uff61", "\U00010002", "\U00010478"]
    assert sorted(keys, key=lambda key: key.encode("utf-16-be")) != sorted(keys, key=shape.encode)
    above = {key for key in keys if shape.encode(key) >= shape.encode("\uff00")}
    assert above == {"\uff61", "\U00010002", "\U00010478"}
    assert shape.encode("caf\u00e9") != shape.encode("cafe\u0301")
    for shape, key in ((Shape("str"), "\ud800"), (Shape(("int", "str")), (1, "a\ud800"))):
        with pytest.raises(UnicodeEncodeError):
            shape.encode(key)


def test_the_repeated_hour_is_two_hours():
    shape = Shape("datetime")
    early = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    late = early.replace(fold=1)
    quarter = datetime(2024, 10, 27, 2, 45, tzinfo=BERLIN)
    bound = datetime.fromtimestamp(1729990800, UTC)
    assert early == late  # what Python says of two moments of one zone
    encoded = [shape.encode(moment) for moment in (early, quarter, bound, late)]
    assert encoded == sorted(set(encoded))
    skipped = [datetime(2024, 3, 31, hour, 30, tzinfo=BERLIN) for hour in (2, 3)]
    assert shape.encode(skipped[0]) == shape.encode(skipped[1])
    assert shape.decode(shape.encode(early)).utcoffset() == timedelta(0)


def test_a_moment_needs_a_zone():
    with pytest.raises(ValueError, match="needs a time zone"):
        Shape("datetime").encode(datetime(2024, 1, 1))  # noqa: DTZ001


def test_tuples_of_the_wrong_size():
    shape = Shape(("str", "int"))
    with pytest.raises(ValueError, match="this one has 1 parts"):
        shape.encode(("a",))
    with pytest.raises(ValueError, match="this one has 3 parts"):
        shape.encode(("a", 1, 2))
    with pytest.raises(ValueError, match="at most the parts"):
        shape.encode(("a", 1, 2), False)
    with pytest.raises(TypeError, match=r"part 1 of this one is str"):
        shape.encode(("a", "1"))
    assert shape.encode((), False) == b""


def test_long_keys_leave_the_stack():
    shape = Shape(("bytes", "str", "int"))
    key = (b"\0\1\2" * 5000, "é" * 9000, -1)
    assert shape.decode(shape.encode(key)) == key


@pytest.mark.parametrize(
    ("parts", "data"),
    [
        ("int", b"\1"),
        ("int", b"\2" + bytes(8)),
        ("int", b"\0" + bytes(8)),
        ("int", bytes(10)),
        ("uuid", bytes(15)),
        ("datetime", b"\xff" * 8),
        ("str", b"\xff"),
        (("str",), b"a"),
        (("str",), b"\1\0"),
        (("str",), b"\1\3\0"),
        (("str",), b"a\0b\0"),
    ],
)
def test_bytes_of_no_key(parts, data):
    with pytest.raises(ValueError, match=r".+"):
        Shape(parts).decode(data)

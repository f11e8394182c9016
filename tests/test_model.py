"""The oracle itself, on rings small enough to check by hand.

    position   0    10        20        30            2^32-1
    point      -    a         b         a

Keys 0..10 are a's, 11..20 b's, 21..30 a's, and all behind 30 wrap to the point at 10: a's again.
"""

from __future__ import annotations

import enum
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pytest
from model import LAST, SPACE, ModelMove, ModelRing, key_bytes, moves, point_count, position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def placed(points: Mapping[str, Sequence[int]], zones: Mapping[str, str | None] | None = None) -> ModelRing:
    """A ring whose nodes have exactly these points."""
    return ModelRing(
        {name: (len(places), (zones or {}).get(name)) for name, places in points.items()},
        vnodes=1,
        point=lambda name, i: points[name][i],
    )


def test_a_key_belongs_to_the_first_point_at_or_after_it() -> None:
    ring = placed({"a": [10, 30], "b": [20]})
    owners = {p: ring.owner_at(p) for p in (0, 9, 10, 11, 20, 21, 30, 31, LAST)}
    assert owners == {
        0: "a", 9: "a", 10: "a", 11: "b", 20: "b", 21: "a", 30: "a", 31: "a", LAST: "a",
    }  # fmt: skip


def test_points_at_both_ends_of_the_ring() -> None:
    ring = placed({"low": [0], "high": [LAST]})
    assert [ring.owner_at(p) for p in (0, 1, LAST - 1, LAST)] == ["low", "high", "high", "high"]
    assert ring.ranges("low") == [(0, 0)]
    assert ring.ranges("high") == [(1, LAST)]


def test_a_point_at_zero_takes_what_lies_behind_the_last_point() -> None:
    ring = placed({"low": [0], "mid": [100]})
    assert ring.owner_at(101) == ring.owner_at(LAST) == ring.owner_at(0) == "low"
    assert ring.ranges("low") == [(0, 0), (101, LAST)]


def test_the_lower_name_wins_a_tie_and_the_other_takes_over() -> None:
    tied = {"b": [50], "a": [50], "c": [90]}
    ring = placed(tied)
    assert list(ring.points) == [(50, "a"), (50, "b"), (90, "c")]
    assert ring.owner_at(50) == ring.owner_at(7) == "a"
    assert list(ring.walk_at(50)) == ["a", "b", "c"]
    assert list(ring.walk_at(51)) == ["c", "a", "b"]
    assert ring.ranges("b") == []
    assert ring.shares["b"] == 0.0
    without_a = placed({"b": [50], "c": [90]})
    assert without_a.owner_at(50) == "b"
    assert moves(ring, without_a) == [
        ModelMove(0, 50, "a", "b"), ModelMove(91, LAST, "a", "b"),
    ]  # fmt: skip
    assert moves(ring, placed({"a": [50], "c": [90]})) == []


def test_a_tie_is_decided_by_utf8_and_not_by_utf16() -> None:
    # UTF-16 would put U+1F600 (d83d de00) before U+FF5E.
    ring = placed({"\U0001f600": [5], "\uff5e": [5], "\u00e9": [5], "z": [5]})
    assert list(ring.walk_at(0)) == ["z", "\u00e9", "\uff5e", "\U0001f600"]


def test_a_node_may_meet_itself() -> None:
    ring = placed({"a": [5, 5, 5], "b": [6]})
    assert len(ring.points) == 4
    assert list(ring.walk_at(0)) == ["a", "b"]


def test_a_walk_names_every_node_once_and_owners_are_its_beginning() -> None:
    ring = placed({"a": [10, 40], "b": [20, 50], "c": [30]})
    assert list(ring.walk_at(11)) == ["b", "c", "a"]
    assert list(ring.walk_at(41)) == ["b", "a", "c"]
    assert list(ring.walk_at(51)) == ["a", "b", "c"]
    assert ring.owners_at(11, 2) == ("b", "c")
    for wrong in (0, 4, -1):
        with pytest.raises(ValueError, match="from 1 to 3"):
            ring.owners_at(11, wrong)
    with pytest.raises(ValueError, match="rack"):
        ring.owners_at(11, 1, distinct="rack")


def test_zones_are_taken_in_passes() -> None:
    points = {"a1": [1], "a2": [2], "a3": [3], "b1": [4], "b2": [5], "c1": [6]}
    ring = placed(points, {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b", "c1": "c"})
    # Pass one takes a1, b1, c1; pass two a2, b2; pass three a3.
    assert ring.owners_at(0, 6, distinct="zone") == ("a1", "b1", "c1", "a2", "b2", "a3")
    # From 3: a3, b1, c1; then, clockwise again from 3, b2, a1; then a2.
    assert ring.owners_at(3, 6, distinct="zone") == ("a3", "b1", "c1", "b2", "a1", "a2")


def test_a_node_without_a_zone_is_a_zone_of_its_own() -> None:
    ring = placed({"a1": [1], "a2": [2], "x": [3], "y": [4]}, {"a1": "a", "a2": "a"})
    assert ring.owners_at(0, 4, distinct="zone") == ("a1", "x", "y", "a2")


def test_a_zone_named_like_a_node_is_not_that_node() -> None:
    ring = placed({"a": [1], "b": [2], "c": [3]}, {"b": "a", "c": "a"})
    assert ring.owners_at(0, 3, distinct="zone") == ("a", "b", "c")


def test_ranges_are_merged_and_never_wrap() -> None:
    ring = placed({"a": [10, 30, 35], "b": [20]})
    assert ring.ranges("a") == [(0, 10), (21, LAST)]
    assert ring.ranges("b") == [(11, 20)]
    assert ring.shares == {"a": (SPACE - 10) / SPACE, "b": 10 / SPACE}
    assert placed({"a": [10, 30]}).ranges("a") == [(0, LAST)]
    with pytest.raises(LookupError):
        ring.ranges("c")


def test_an_empty_ring_has_no_owner() -> None:
    ring = placed({})
    assert ring.owner_at(0) is None
    assert ring.walk("key") == []
    assert ring.shares == {}
    with pytest.raises(LookupError):
        ring.owner("key")


def test_moves_of_the_first_node_in_and_the_last_node_out() -> None:
    empty, one = placed({}), placed({"a": [10]})
    assert moves(empty, empty) == moves(one, one) == []
    assert moves(empty, one) == [ModelMove(0, LAST, None, "a")]
    assert moves(one, empty) == [ModelMove(0, LAST, "a", None)]


def test_moves_of_a_new_node() -> None:
    before = placed({"a": [10, 30], "b": [20]})
    after = placed({"a": [10, 30], "b": [20], "c": [15, 25]})
    assert moves(before, after) == [
        ModelMove(11, 15, "b", "c"), ModelMove(21, 25, "a", "c"),
    ]  # fmt: skip
    assert moves(after, before) == [
        ModelMove(11, 15, "c", "b"), ModelMove(21, 25, "c", "a"),
    ]  # fmt: skip


def test_moves_beside_each_other_are_merged_only_for_the_same_pair() -> None:
    before = placed({"a": [10, 12, 14], "b": [20]})
    after = placed({"b": [20], "c": [12]})
    assert moves(before, after) == [
        ModelMove(0, 12, "a", "c"),
        ModelMove(13, 14, "a", "b"),
        # b's own 15..20 stay; behind 20 a had the wrap and c has it now.
        ModelMove(21, LAST, "a", "c"),
    ]


def test_moves_between_rings_that_place_keys_differently_are_refused() -> None:
    for other in (ModelRing({}, seed=1), ModelRing({}, hash_tags=True)):
        with pytest.raises(ValueError, match="differently"):
            moves(ModelRing({}), other)


def test_every_move_is_right_at_its_edges_and_nothing_else_moves() -> None:
    before = ModelRing(dict.fromkeys("abcd", (1.0, None)), vnodes=5)
    after = ModelRing({"b": (2.0, None), "c": (0.5, None), "d": (1.0, None), "e": (1, None)}, vnodes=5)
    found = moves(before, after)
    for start, end, source, target in found:
        assert (before.owner_at(start), after.owner_at(start)) == (source, target)
        assert (before.owner_at(end), after.owner_at(end)) == (source, target)
    for p in range(0, SPACE, 10_000_019):
        inside = any(start <= p <= end for start, end, _, _ in found)
        assert inside == (before.owner_at(p) != after.owner_at(p))


@pytest.mark.parametrize(
    ("weight", "vnodes", "count"),
    [
        (1.0, 160, 160), (2.5, 160, 400), (0.001, 160, 1), (0.5, 1, 1), (0.5, 3, 2), (0.5, 5, 2),
        (0.5, 7, 4), (1.5, 1, 2), (2.5, 1, 2), (3.5, 1, 4), (1e-300, 160, 1),
        (0.1, 5, 1),
        # 1.15 is stored below its decimal value, and the double product still rounds to exactly 11.5.
        (1.15, 10, 12), (1.25, 10, 12), (1.35, 10, 14),
    ],
)  # fmt: skip
def test_the_number_of_points(weight: float, vnodes: int, count: int) -> None:
    assert point_count(weight, vnodes) == count
    assert len(ModelRing({"a": (weight, None)}, vnodes=vnodes).points) == count


def test_weight_changes_only_the_last_points() -> None:
    light, heavy = (ModelRing({"a": (w, None)}, vnodes=8) for w in (1.0, 1.5))
    assert set(light.points) < set(heavy.points)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", b""), ("abc", b"abc"), ("é", b"\xc3\xa9"), (b"abc", b"abc"),
        (bytearray(b"abc"), b"abc"), (memoryview(b"abc"), b"abc"),
        (memoryview(b"a-b-c-")[::2], b"abc"),
        (0, bytes(8)), (1, b"\x01" + bytes(7)), (258, b"\x02\x01" + bytes(6)), (-1, b"\xff" * 8),
        (-(2**63), bytes(7) + b"\x80"), (2**63, bytes(7) + b"\x80"), (2**64 - 1, b"\xff" * 8),
        (np.int8(-1), b"\xff" * 8), (np.uint64(2**64 - 1), b"\xff" * 8),
        (uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f"), bytes(range(16))),
    ],
)  # fmt: skip
def test_key_bytes(key: object, expected: bytes) -> None:
    assert key_bytes(key) == expected
    assert key_bytes(key, hash_tags=True) == expected


def test_a_subclass_is_what_it_derives_from() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        LOW = 1

    assert key_bytes(Colour.RED) == key_bytes(np.str_("red")) == b"red"
    assert key_bytes(Level.LOW) == key_bytes(1)


@pytest.mark.parametrize("key", [2**64, -(2**63) - 1, 10**30])
def test_integers_of_more_than_64_bits_are_refused(key: int) -> None:
    with pytest.raises(OverflowError):
        key_bytes(key)


@pytest.mark.parametrize(
    "key",
    [
        None,
        1.0,
        True,
        np.bool_(True),
        np.float64(1),
        np.timedelta64(1, "s"),
        ("a",),
        ["a"],
        object(),
    ],
)
def test_other_types_are_refused_by_name(key: object) -> None:
    with pytest.raises(TypeError, match=type(key).__name__):
        key_bytes(key)


def test_a_str_that_has_no_utf8_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        key_bytes("\ud800")


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        ("{a}b", "a"), ("{}x", "{}x"), ("a{b}c{d}", "b"), ("{", "{"), ("}{a}", "a"), ("{{a}}", "{a"),
        ("{}{a}", "{}{a}"), ("a{b", "a{b"), ("a}b", "a}b"), ("}", "}"), ("{ü}x", "ü"), ("x{a}", "a"),
        ("{a}", "a"), ("", ""), ("{a{b}c}", "a{b"), ("}{", "}{"), ("a{\0}", "\0"),
    ],
)  # fmt: skip
def test_hash_tags(key: str, tag: str) -> None:
    data = key.encode()
    for form in (key, data, bytearray(data), memoryview(data)):
        assert key_bytes(form, hash_tags=True) == tag.encode()
        assert key_bytes(form) == data


def test_hash_tags_are_not_looked_for_in_integers_and_uuids() -> None:
    number = int.from_bytes(b"{a}bcdef", "little")
    identity = uuid.UUID(bytes=b"{a}bcdefghijklmn")
    assert key_bytes(number, hash_tags=True) == b"{a}bcdef"
    assert key_bytes(identity, hash_tags=True) == b"{a}bcdefghijklmn"


def test_a_position_is_the_upper_half_of_xxh3() -> None:
    # From xxHash itself: XXH3_64bits of nothing is 2d06800538d394c2.
    assert position("") == 0x2D068005
    assert position("", seed=1) != position("")
    assert position("x{}y{a}z") == position("x{}y{a}z", hash_tags=True)
    assert position("x{a}z", hash_tags=True) == position("a")

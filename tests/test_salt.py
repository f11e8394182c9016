"""Salt: one hot key over several, and reads that find all that was written."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import key_bytes

from ringhash import Router
from ringhash.balance import Salt

ITEMS = [f"user:{i}" for i in range(4000)]


@given(
    key=st.one_of(st.text(), st.binary()),
    spreads=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    items=st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
    hash_tags=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_reads_are_a_superset_of_writes_whatever_the_spread_was_before(key, spreads, items, hash_tags):
    salt = Salt(spreads[0], hash_tags=hash_tags)
    written = set()
    for spread in spreads:
        salt = salt.with_spread(spread)
        assert salt.spread == spread
        reads = salt.reads(key)
        assert written | {salt.write(key, item) for item in items} <= set(reads)
        assert len(set(reads)) == len(reads) == salt.read_spread
        written |= {salt.write(key, item) for item in items}


def test_a_spread_that_forgets_what_it_read_would_lose_writes():
    """The negative control: a smaller spread made anew does not read all of the old keys."""
    old, new = Salt(8), Salt(4)
    assert not {old.write("k", item) for item in ITEMS} <= set(new.reads("k"))
    assert {old.write("k", item) for item in ITEMS} <= set(old.with_spread(4).reads("k"))


def test_a_spread_of_one_is_the_key_itself():
    assert Salt(1).reads("k") == ["k"]
    assert Salt(1).write(b"k", 7) == b"k"
    assert Salt(3).reads(b"k") == [b"k", b"k#1", b"k#2"]


def test_items_are_spread_evenly_and_stay():
    salt = Salt(8)
    written = Counter(salt.write("k", item) for item in ITEMS)
    assert set(written) == set(salt.reads("k"))
    assert max(written.values()) < 1.2 * len(ITEMS) / 8
    assert [salt.write("k", item) for item in ITEMS] == [Salt(8).write("k", item) for item in ITEMS]
    moved = [item for item in ITEMS if Salt(9).write("k", item) != salt.write("k", item)]
    assert {Salt(9).write("k", item) for item in moved} == {"k#8"}, "only to the new key"
    assert 0.08 < len(moved) / len(ITEMS) < 0.15


def test_the_salted_keys_of_a_hot_key_are_on_several_nodes():
    for key, hash_tags in (("celebrity", False), ("{celebrity}:likes", True)):
        router = Router([f"gw-{i}" for i in range(20)], hash_tags=hash_tags)
        keys = Salt(16, hash_tags=hash_tags).reads(key)
        assert len(set(router.owner_many(keys))) > 6


def test_a_number_behind_a_hash_tag_would_change_nothing():
    """The negative control: salt that does not know of tags leaves all on one node."""
    router = Router([f"gw-{i}" for i in range(20)], hash_tags=True)
    assert len(set(router.owner_many(Salt(16).reads("{celebrity}:likes")))) == 1
    assert Salt(2, hash_tags=True).reads("{a}:b") == ["{a}:b", "{a#1}:b"]
    for key in ("{}x", "no}tag{", "x{", "{"):
        assert Salt(2, hash_tags=True).reads(key) == [key, key + "#1"]
        assert key_bytes(key + "#1", hash_tags=True) != key_bytes(key, hash_tags=True)


def test_its_hash_has_a_seed_of_its_own():
    assert [Salt(8, seed=0).write("k", i) for i in range(50)] != [Salt(8).write("k", i) for i in range(50)]
    assert Salt(8).write("k", "user:7") == Salt(8).write("k", b"user:7"), "items are keys"


def test_errors_and_equality():
    for wrong in ((0,), (8, 4), (70_000,), (-1,)):
        with pytest.raises(ValueError, match="1 <= spread <= reads"):
            Salt(*wrong)
    for wrong in ((1.5,), (True,), ("8",), (8, 9.0)):
        with pytest.raises(TypeError, match="must be an integer"):
            Salt(*wrong)
    with pytest.raises(TypeError, match="str or bytes"):
        Salt().write(7, "item")
    with pytest.raises(TypeError, match="a key must be"):
        Salt().write("k", None)
    for spread in (1, 8):
        for ask in (Salt(spread).reads, partial(Salt(spread).write, item=7)):
            with pytest.raises(UnicodeEncodeError):
                ask("\ud800")
    with pytest.raises(UnicodeEncodeError):
        Salt().write("k", "\ud800")
    for wrong in ({"seed": "7"}, {"seed": 1.0}, {"seed": True}, {"hash_tags": "no"}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            Salt(**wrong)
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="seed must be"):
            Salt(seed=seed)
    assert Salt(4, 8) == Salt(8).with_spread(4) != Salt(4)
    assert len({Salt(4, 8), Salt(8).with_spread(4), Salt(4)}) == 2
    assert repr(Salt(4, 8)) == "Salt(spread=4, reads=8)"


def test_a_salt_can_be_copied_and_pickled() -> None:
    salt = Salt(8, 12, seed=5, hash_tags=True)
    for other in (copy.copy(salt), copy.deepcopy(salt), pickle.loads(pickle.dumps(salt))):
        assert other == salt
        assert [other.write("k", i) for i in range(50)] == [salt.write("k", i) for i in range(50)]

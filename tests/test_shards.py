"""Shards: a key's shard, from an independent XXH3 and plain arithmetic, and what doubling does to it."""

from __future__ import annotations

import json
import pickle
import uuid
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from model import key_bytes

from ringhash import Plan, Ring
from ringhash.placements.shards import MAX_SHARDS, SHARD_SEED, Shards

KEYS = ["user:7", "", "é", b"\0\xff", 0, -1, 2**64 - 1, np.int32(-5), uuid.UUID(int=7), bytearray(b"x")]


def by_the_rules(key: object, count: int, seed: int = SHARD_SEED, hash_tags: bool = False) -> int:
    return (xxhash.xxh3_64_intdigest(key_bytes(key, hash_tags), seed) >> 32) % count


@given(
    st.one_of(st.text(), st.binary(), st.integers(-(2**63), 2**64 - 1), st.uuids()),
    st.integers(1, MAX_SHARDS),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
def test_a_shard_is_the_position_modulo_the_count(key: object, count: int, seed: int, tags: bool) -> None:
    try:
        expected = by_the_rules(key, count, seed, tags)
    except UnicodeEncodeError:
        return
    shards = Shards(count, seed=seed, hash_tags=tags)
    assert shards.of(key) == shards[key] == expected
    assert shards.of_many([key]).tolist() == [expected]


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100, 1000, 2**16, 2**31, 2**31 + 1, 2**32 - 1, 2**32])
def test_one_key_a_list_and_an_array_agree(count: int) -> None:
    shards = Shards(count)
    assert shards.of_many(KEYS).tolist() == [shards.of(key) for key in KEYS]
    for dtype in (np.uint64, np.int64, np.uint32, np.int8):
        array = np.arange(100).astype(dtype)
        assert shards.of_many(array).tolist() == [by_the_rules(int(i), count) for i in array]
    assert shards.of_many(np.array([b"a", b"bc"])).tolist() == [shards.of(b"a"), shards.of(b"bc")]
    assert shards.of_many(array).dtype == np.intp


def test_the_seed_is_a_documented_constant_and_not_the_rings() -> None:
    assert int.from_bytes(b"shards", "big") == SHARD_SEED == Shards(3).seed
    assert Ring(["a"]).seed == 0 != SHARD_SEED


def test_shards_and_ring_do_not_correlate() -> None:
    """The keys of one ring node are spread over all shards; with the ring's seed and the ring's own
    high bits they would not be."""
    keys = np.arange(200_000)
    ring = Ring(["a", "b"], vnodes=1)
    mine = keys[ring.index_many(keys) == 0]
    counts = np.bincount(Shards(64).of_many(mine), minlength=64)
    assert counts.min() > 0.8 * len(mine) / 64
    assert counts.max() < 1.2 * len(mine) / 64
    # The control: the top six bits of the ring's own position are the ring's ranges.
    top = np.bincount([ring.position(int(key)) >> 26 for key in mine[:20_000]], minlength=64)
    assert top.min() == 0


@pytest.mark.parametrize("count", [1, 2, 7, 64, 100, 1023])
def test_doubling_splits_in_place(count: int) -> None:
    keys = np.arange(20_000)
    old = Shards(count)
    new = old.double()
    before, after = old.of_many(keys), new.of_many(keys)
    assert new.count == 2 * count
    assert set((after - before).tolist()) <= {0, count}
    plan = old.split_plan()
    moved = plan.mask(keys)
    assert (moved == (after >= count)).all()
    assert plan.fraction == 0.5
    for key in range(200):
        move = plan.move_of(key)
        assert (move is None) == (after[key] < count)
        assert move is None or (move.source, move.target) == (str(before[key]), str(after[key]))
    assert plan.before == old.digest
    assert plan.after == new.digest
    assert [change.after.name for change in plan.changes.nodes] == sorted(map(str, range(count, 2 * count)))


def test_multiply_shift_would_not_split_in_place() -> None:
    """The control: the other unbiased rule sends most keys elsewhere when the count doubles."""
    positions = np.array([Ring(["a"]).position(key) for key in range(5000)], np.uint64)
    before, after = (positions * np.uint64(n) >> np.uint64(32) for n in (10, 20))
    assert not set((after - before).tolist()) <= {0, 10}


def test_a_plan_of_shards_survives_json() -> None:
    plan = Shards(10).split_plan()
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert again.space == Shards(20)
    assert again.mask(np.arange(1000)).tolist() == plan.mask(np.arange(1000)).tolist()
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.inverse().inverse() == plan
    assert plan.to_dict()["space"]["kind"] == "modulo"


def test_the_bias_of_a_count_that_is_no_power_of_two() -> None:
    """Exactly: so many of the 2^32 positions fall into a shard, and no two shards differ by more than 1."""
    for count in (3, 1000, 65_537):
        sizes = {(2**32 - shard + count - 1) // count for shard in (0, count // 2, count - 1)}
        assert sizes <= {2**32 // count, 2**32 // count + 1}


def test_identity() -> None:
    shards = Shards(10, seed=5, hash_tags=True)
    assert shards == pickle.loads(pickle.dumps(shards)) == Shards.from_dict(shards.to_dict())
    assert repr(shards) == "Shards(10, seed=5, hash_tags=True)"
    assert len({shards, Shards(10, seed=5, hash_tags=True), Shards(10, seed=5), Shards(10), Shards(11)}) == 4
    assert len({s.digest for s in (shards, Shards(10, seed=5), Shards(10), Shards(11))}) == 4
    assert shards.of("{a}b") == shards.of("{a}c")
    with pytest.raises(AttributeError, match="immutable"):
        shards.count = 11
    with pytest.raises(TypeError):
        list(shards)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        "user:7" in shards  # noqa: B015


@pytest.mark.parametrize("count", [0, -1, 2**32 + 1])
def test_a_count_out_of_range(count: int) -> None:
    with pytest.raises(ValueError, match="count"):
        Shards(count)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [((True,), {}), ((1.0,), {}), (("64",), {}), ((4,), {"seed": 1.5}), ((4,), {"hash_tags": 1})],
)
def test_an_argument_of_the_wrong_type(arguments: tuple[object], options: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be"):
        Shards(*arguments, **options)


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match=r"shards\.count: is missing"):
        Shards.from_dict({"kind": "shards"})
    with pytest.raises(ValueError, match=r"shards\.count: must be from 1"):
        Shards.from_dict({"kind": "shards", "count": 0})
    assert Shards.from_dict({"kind": "shards", "count": 4}) == Shards(4)
    with pytest.raises(ValueError, match=r"2\*\*32|4294967296"):
        Shards(2**32).double()
    with pytest.raises(TypeError, match="one key"):
        Shards(4).of_many("user:7")
    with pytest.raises(TypeError, match="float"):
        Shards(4).of(1.0)


def test_the_vectors() -> None:
    """The promise to routers in other languages."""
    data = json.loads((Path(__file__).parent / "vectors" / "shards.json").read_text(encoding="utf-8"))
    read = {"str": str, "hex": bytes.fromhex, "int": int}
    for record in data["keys"]:
        ((kind, text),) = record["key"].items()
        for count, expected in zip(data["counts"], record["shards"], strict=True):
            shards = Shards(count, seed=int(record["seed"]))
            assert shards.of(read[kind](text)) == expected
            assert shards.of_many([read[kind](text)])[0] == expected

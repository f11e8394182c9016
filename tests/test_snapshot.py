"""Entries, shards, and the one snapshot that a lookup reads."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash import Ring, Shards, _core
from ringhash._core import EntryTable, LiveLookup, ShardTable, Snapshot, own_methods
from ringhash.batch import readable

pytestmark = pytest.mark.core

ALL = 2**64 - 1
MASKS = [ALL, 0, 0xFFFFFFFF, ALL - 0xFFFFFFFF, 0x3]
ANY_KEY = [
    "é",
    "user:{7}x",
    b"user:{7}x",
    bytearray(b"{7}"),
    memoryview(b"a7a")[1:],
    -1,
    2**64 - 1,
    np.int16(-1),
    UUID(int=7),
    "7",
]


def some_key(rnd: random.Random, kinds: int) -> bytes:
    return b"%d" % rnd.randrange(kinds) * rnd.choice([1, 1, 1, 40, 200])


@pytest.mark.parametrize("mask", MASKS)
def test_entries_are_a_dict_whatever_the_hashes(mask: int) -> None:
    rnd, model = random.Random(mask), dict[bytes, int]()
    table = EntryTable((), (), 7, False, mask)
    for _ in range(40):
        puts = [(some_key(rnd, 300), rnd.randrange(2**31)) for _ in range(rnd.randrange(60))]
        deletes = [some_key(rnd, 300) for _ in range(rnd.randrange(60))]
        before, older = dict(table.items()), table
        table = table.with_changes(iter(puts), iter(deletes))
        assert dict(older.items()) == before == model, "a table never changes"
        for key in deletes:
            model.pop(key, None)
        model.update(puts)
        assert dict(table.items()) == model
        assert len(table) == len(model)
        assert set(table) == set(model)
    keys = [*model, b"none", b"", *(key + b"0" for key in model)]
    expected = [model.get(key, -1) for key in keys]
    assert [table.find(key) for key in keys] == expected
    assert table.find_many(readable(keys)).tolist() == expected
    assert table.find_many(readable(np.array(keys))).tolist() == expected
    copy = pickle.loads(pickle.dumps(table))
    assert dict(copy.items()) == model
    assert copy.with_changes([(b"more", 5)]).find("more") == 5


@pytest.mark.slow
def test_a_big_table_shares_its_block_with_the_ones_made_of_it() -> None:
    keys = [b"tenant:%d" % i for i in range(200_000)]
    table = EntryTable(keys, range(len(keys)))
    model = dict(zip(keys, range(len(keys)), strict=True))
    assert table.memory_size <= sum(map(len, keys)) + 16 * len(keys)
    merged = 0
    for round_ in range(12):
        size = table.memory_size
        puts = [(b"new:%d" % i, i) for i in range(10_000 * round_, 10_000 * round_ + 10_000)]
        deletes = [keys[i] for i in range(round_, len(keys), 997)]
        table = table.with_changes([*puts, (keys[round_], 1)], deletes)
        for key in deletes:
            model.pop(key, None)
        model.update([*puts, (keys[round_], 1)])
        merged += table.memory_size < size
        assert len(table) == len(model)
    assert merged, "the second block has been merged"
    assert dict(table.items()) == model
    assert dict(EntryTable.from_buffer(table.tobytes(), check=True).items()) == model
    one = table.with_changes([(b"x", 1)])
    assert one.find("x") == 1
    assert table.find("x") == -1


def test_bytes_of_a_table() -> None:
    table = EntryTable([b"a", b"b" * 300], [1, 2], 9, True)
    data = table.tobytes()
    again = EntryTable.from_buffer(data)
    assert (again.seed, again.hash_tags, again.find("{a}x"), again.tobytes()) == (9, True, 1, data)
    for wrong in (b"", data[:-1], data[:63], data + b"x", b"x" + data[1:]):
        with pytest.raises(ValueError, match="table of entries"):
            EntryTable.from_buffer(wrong)
    with pytest.raises(ValueError, match="checksum"):
        EntryTable.from_buffer(data[:-1] + b"x", check=True)


@given(st.data())
def test_damaged_bytes_give_wrong_answers_at_most(data: st.DataObject) -> None:
    table = EntryTable([b"%d" % i for i in range(50)], range(50))
    body = bytearray(table.tobytes())
    for _ in range(data.draw(st.integers(1, 30))):
        body[data.draw(st.integers(64, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = EntryTable.from_buffer(bytes(body))
    for i in range(60):
        damaged.find(b"%d" % i)
    list(damaged.items())
    with contextlib.suppress(ValueError):
        damaged.with_changes([(b"x", 1)], [b"1"])
    damaged.tobytes()


def test_slots_that_share_a_record_are_found() -> None:
    """A record of 10 kB, named by every slot: a copy of it all would not fit where it has been."""
    body = bytearray(EntryTable([b"%d" % i * (1 if i else 10_000) for i in range(50)], range(50)).tobytes())
    slots = int.from_bytes(body[24:32], "little")
    for slot in range(slots):
        body[64 + 8 * slot : 72 + 8 * slot] = (1).to_bytes(8, "little")
    damaged = EntryTable.from_buffer(bytes(body))
    for change in (([(b"x", 1)], ()), ((), [b"x"])):
        with pytest.raises(ValueError, match="damaged"):
            damaged.with_changes(*change)


@pytest.mark.parametrize(
    "wrong",
    [
        ([(b"a", -1)], ()),
        ([(b"a", 2**31)], ()),
        ([("a", 1)], ()),
        ([(b"a", "1")], ()),
        ((), ["a"]),
        ([5], ()),
    ],
)
def test_malformed_entries_change_nothing(wrong: Any) -> None:
    table = EntryTable([b"a"], [1])
    with pytest.raises((TypeError, ValueError)):
        table.with_changes(*wrong)
    assert dict(table.items()) == {b"a": 1}


@pytest.mark.parametrize("tags", [False, True])
def test_every_kind_of_key_is_read_as_by_a_lookup(tags: bool) -> None:
    ring = Ring(["a", "b"], hash_tags=tags, seed=3)
    for key in ANY_KEY:
        table = EntryTable([ring._key_bytes(key)], [5], 3, tags)
        assert table.find(key) == 5
        assert table.find_many(readable([key])).tolist() == [5]
        snapshot = Snapshot(ring, table, ("", "", "", "", "", "entry"))
        assert snapshot.owner(key) == snapshot.entry_of(key) == "entry"
        assert next(iter(snapshot.walk(key))) == snapshot.owners(key, 1)[0] == "entry"
        assert snapshot.owner("another") == ring.owner("another")
        assert snapshot.entry_of("another") is None


def test_subclasses_are_read_by_what_they_are() -> None:
    class Bytes(bytes):
        def __bytes__(self) -> bytes:
            return b"other"

    class Number(int):
        def __index__(self) -> int:
            return 99

        __lt__ = __gt__ = None  # type: ignore[assignment]

    ring = Ring(["a"])
    for plain, odd in ((b"key", Bytes(b"key")), (7, Number(7)), (2**64 - 1, Number(2**64 - 1))):
        assert ring._key_bytes(odd) == ring._key_bytes(plain)
        assert ring.position(odd) == ring.position(plain)
        assert EntryTable([ring._key_bytes(plain)], [1]).find(odd) == 1
        assert ring._positions(readable([odd])).tolist() == [ring.position(plain)]


def test_shards() -> None:
    shards = Shards(10, hash_tags=True)
    owners = [0, 1, 2, 0, 1, 2, 0, 1, 2, -1]
    table = ShardTable(("a", "b", "c"), owners, shards.seed, True)
    keys = [f"k{{{i}}}x" for i in range(300)]
    nobody = [key for key in keys if shards.of(key) == 9]
    keys = [key for key in keys if shards.of(key) != 9]
    expected = ["abc"[owners[shards.of(key)]] for key in keys]
    entries = EntryTable([b"none"], [0], shards.seed, True)
    assert [table.owner(key) for key in keys] == expected == [table[key] for key in keys]
    assert table._owners(readable(keys)) == expected
    assert [Snapshot(table).owner(key) for key in keys] == expected
    assert [Snapshot(table, entries, ("x",)).owner(key) for key in keys] == expected
    assert [table.position(key) for key in keys] == [shards.of(key) for key in keys]
    assert [table.owner_at(shard) for shard in range(9)] == list("abcabcabc")
    for call in (
        lambda: table.owner(nobody[0]),
        lambda: table._indexes(readable(nobody)),
        lambda: table.owner_at(9),
    ):
        with pytest.raises(LookupError, match="shard 9"):
            call()
    for wrong in ([], [3], [-2], [[0]], [0.5], ["a"]):
        with pytest.raises(ValueError, match="owners"):
            ShardTable(("a", "b", "c"), wrong)


class Plain:
    """A placement in Python that has no compiled table."""

    def owner(self, key: object) -> str:
        return f"owner of {key}"

    def owners(self, *arguments: object) -> tuple[object, ...]:
        return arguments


def test_what_a_snapshot_asks() -> None:
    entries = EntryTable([b"a", b"b"], [0, 1])
    snapshot = Snapshot(Plain(), entries, ("entry",))
    assert (snapshot.owner("x"), snapshot.owner("a")) == ("owner of x", "entry")
    assert snapshot.owners("x", 2, strict=True) == ("x", 2, "node", True)
    with pytest.raises(LookupError, match="'b'"):
        snapshot.owner("b")  # it has no name

    class Other(Snapshot):
        def _owner_of_entry(self, key: object, entry: int, /) -> str:
            return f"{key} {entry}"

    assert Other(Plain(), entries, (None,)).owner("a") == "a 0"
    assert Other(Plain(), entries, (None,)).owner("b") == "b 1"
    for wrong in ((None,), (5,), (Ring(["a"], seed=1), entries, ("a", "b")), (Ring(["a"]), None, None)):
        with pytest.raises((TypeError, ValueError)):
            Snapshot(*wrong)
    assert Snapshot(Ring(["a"]), EntryTable()).entries is None


@own_methods
class Lookup(LiveLookup):
    __slots__ = ()


def test_one_store_changes_table_and_entries() -> None:
    """Snapshots in which the key belongs to "a" by an entry, or to "c" by the ring, and never to "b"."""
    key = next(f"k{i}" for i in range(1000) if Ring(["a", "b", "c"]).owner(f"k{i}") == "b")
    pin = EntryTable([key.encode()], [0])
    moments = [Snapshot(Ring(["a", "b", "c"]), pin, ("a",)), Snapshot(Ring(["c"]))]
    lookup = Lookup()
    with pytest.raises(LookupError):
        lookup.owner(key)
    assert lookup._publish(moments[0], lookup.snapshot)
    assert not lookup._publish(moments[1], moments[1])
    assert lookup.snapshot is moments[0]
    done, seen = threading.Event(), set[tuple[str, ...]]()

    def read() -> None:
        while not done.is_set():
            seen.update([(lookup.owner(key),), lookup.owners(key, 1), (next(iter(lookup.walk(key))),)])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(20_000):
        lookup._publish(moments[i % 2], lookup.snapshot)
    done.set()
    for reader in readers:
        reader.join()
    assert seen <= {("a",), ("c",)}


def test_a_walk_shared_by_threads_gives_each_node_once() -> None:
    ring = Ring((f"n-{i}" for i in range(2000)), vnodes=1)
    for _ in range(5):
        walk, got, gate = ring.walk("key"), list[list[str]](), threading.Barrier(4)

        def body(walk: Any = walk, got: Any = got, gate: Any = gate) -> None:
            gate.wait()
            got.append(list(walk))

        threads = [threading.Thread(target=body) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert sorted(chain.from_iterable(got)) == sorted(ring.names)
        assert walk.__length_hint__() == 0


def test_positions_have_owners() -> None:
    ring = Ring(["a", "b", "c"])
    keys = [f"k{i}" for i in range(100)]
    at = ring._positions(readable(keys))
    assert [ring.owner_at(int(p)) for p in at] == ring.owner_many(keys)
    assert (ring._indexes_at(at) == ring.index_many(keys)).all()
    for wrong in (-1, 2**32):
        with pytest.raises(IndexError):
            ring.owner_at(wrong)
    with pytest.raises(LookupError):
        _core.Table((), ()).owner_at(0)

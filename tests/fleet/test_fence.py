"""The fence: rows of addresses that a database keeps, and what they let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import Directory, Moved, RangeMap, Ring, Router
from ringhash.databases import Database, open_database
from ringhash.errors import FenceError
from ringhash.fleet import Moving
from ringhash.fleet.addresses import addresses_of, fenced_by
from ringhash.fleet.fence import (
    FenceRow,
    check_fence,
    create_fence,
    drop_keys,
    join_rows,
    read_fence,
    set_fence,
    set_keys,
)
from ringhash.handover.pieces import cut


def opened(tmp_path: Path) -> Database:
    database = open_database(tmp_path / "fence.db")
    with database.transaction(write=True) as tx:
        create_fence(tx)
    return database


def test_a_new_database_lets_every_key_in(tmp_path: Path) -> None:
    with opened(tmp_path) as database, database.transaction(write=True) as tx:
        assert read_fence(tx) == [FenceRow(b"", None, "here", None, 0)]
        check_fence(tx, (b"\xff" * 9,), write=True)
        create_fence(tx)
        assert len(read_fence(tx)) == 1


def test_gone_names_the_owner_and_moving_lets_readers_in(tmp_path: Path) -> None:
    with opened(tmp_path) as database, database.transaction(write=True) as tx:
        set_fence(tx, [(b"f", b"m")], "moving", "db-2", 3)
        check_fence(tx, (b"f",), write=False)
        with pytest.raises(Moving) as moving:
            check_fence(tx, (b"f",), write=True)
        assert (moving.value.to, moving.value.epoch) == ("db-2", 3)
        set_fence(tx, [(b"f", b"m")], "gone", "db-2", 4)
        for write in (True, False):
            with pytest.raises(Moved) as moved:
                check_fence(tx, (b"l\xff",), write=write)
            assert (moved.value.to, moved.value.epoch) == ("db-2", 4)
            check_fence(tx, (b"m",), write=write)
            check_fence(tx, (b"e\xff",), write=write)


def test_a_row_of_a_single_key_counts_before_that_of_its_hash(tmp_path: Path) -> None:
    with opened(tmp_path) as database, database.transaction(write=True) as tx:
        set_fence(tx, [(b"\0", None)], "gone", "db-2", 1)
        set_keys(tx, [b"\1acme"], "here", None, 2)
        check_fence(tx, (b"\1acme", b"\0hash"), write=True)
        with pytest.raises(Moved):
            check_fence(tx, (b"\1acme\0", b"\0hash"), write=True)
        drop_keys(tx, [b"\1acme"])
        with pytest.raises(Moved):
            check_fence(tx, (b"\1acme", b"\0hash"), write=True)


@pytest.mark.parametrize(
    ("ranges", "state", "owner"),
    [
        ([(b"b", b"b")], "gone", "x"),
        ([(b"c", b"b")], "gone", "x"),
        ([(b"b", None)], "gone", None),
        ([(b"b", None)], "here", "x"),
        ([(b"b", None)], "lost", "x"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(tmp_path: Path, ranges: Any, state: Any, owner: Any) -> None:
    with opened(tmp_path) as database:
        with pytest.raises(ValueError, match=r"state|range"), database.transaction(write=True) as tx:
            set_fence(tx, ranges, state, owner, 1)
        with database.transaction(write=False) as tx:
            assert len(read_fence(tx)) == 1


def test_an_earlier_epoch_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        with database.transaction(write=True) as tx:
            set_fence(tx, [(b"f", None)], "gone", "db-2", 7)
            set_keys(tx, [b"k"], "gone", "db-2", 7)
        for change in (
            lambda tx: set_fence(tx, [(b"a", b"z")], "here", None, 6),
            lambda tx: set_keys(tx, [b"k"], "here", None, 6),
        ):
            with pytest.raises(FenceError, match="epoch 7"), database.transaction(write=True) as tx:
                change(tx)
        with database.transaction(write=False) as tx:
            assert [row.state for row in read_fence(tx)] == ["here", "gone", "gone"]


BOUNDS = st.binary(min_size=0, max_size=2).map(lambda data: bytes(byte % 3 for byte in data))


@given(
    st.lists(
        st.tuples(BOUNDS, st.one_of(st.none(), BOUNDS), st.sampled_from(["here", "moving", "gone"])),
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_rows_tile_all_addresses_and_say_what_was_said_last(
    changes: list[tuple[bytes, bytes | None, Any]],
) -> None:
    asked = [bytes(one) for one in ([], [0], [0, 0], [0, 1], [1], [1, 2], [2], [2, 2], [2, 2, 9])]
    model = dict.fromkeys(asked, ("here", None))
    with open_database(":memory:") as database, database.transaction(write=True) as tx:
        create_fence(tx)
        for epoch, (low, high, state) in enumerate(changes):
            if high is not None and low >= high:
                continue
            owner = None if state == "here" else f"n{epoch}"
            set_fence(tx, [(low, high)], state, owner, epoch)
            for address in asked:
                if low <= address and (high is None or address < high):
                    model[address] = (state, owner)
            rows = read_fence(tx)
            assert rows[0].low == b""
            assert [row.high for row in rows] == [*(row.low for row in rows[1:]), None]
            for address, said in model.items():
                (found,) = [row for row in rows if row.holds(address)]
                assert (found.state, found.owner) == said
            joined = list(join_rows(rows))
            for address, said in model.items():
                (found,) = [row for row in joined if row.holds(address)]
                assert (found.state, found.owner) == said


def test_addresses_of_a_piece_are_those_of_its_keys() -> None:
    ring = Ring(["a", "b", "c"])
    ranges = RangeMap([(None, "a"), ("g", "b"), ("p", "c")])
    directory = Directory(ring, {"acme": "b", "zoe": "c"})
    for before, after in (
        (ring, ring.without("b")),
        (ranges, ranges.move("g", "c").move(None, "c")),
        (directory, directory.with_entries({"acme": "c", "new": "a"}).without_entries("zoe")),
        (directory, directory.changed(add=["d"])),
    ):
        plan = before.diff(after)
        keys = ["acme", "zoe", "new", "", "g", "p", "q", *map(str, range(200))]
        moved = {key for key in keys if plan.move_of(key) is not None}
        fenced = [fenced_by(piece.space, piece.ranges) for piece in cut(plan)]
        for key in keys:
            # In a plan of entries a key whose entry changes counts by it, whatever its hash.
            for placement in (before, after):
                *single, address = addresses_of(placement, key)
                by_key = any(one in part.keys for part in fenced for one in single)
                by_range = any(
                    low <= address and (high is None or address < high)
                    for part in fenced
                    for low, high in part.ranges
                )
                own = isinstance(directory, Directory) and placement in (directory, after) and single
                if by_key or not (own and directory.entry(key) is not None):
                    assert (by_key or by_range) == (key in moved), (key, before, after)


def test_both_addresses_of_a_key_do_not_depend_on_entries() -> None:
    ring = Ring(["a", "b"])
    one, other = Directory(ring, {}), Directory(ring, {"acme": "b"})
    assert addresses_of(one, "acme") == addresses_of(other, "acme")
    assert addresses_of(ring, "acme") == (ring.space.address("acme"),)
    assert Router(one).placement.digest != other.digest

"""Rows that move while writes go on: copied, caught up, cut over, and taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fleet_world import make_table, rows_in

from ringhash import Directory, Placement, RangeMap, Ring, Router, Shards, assign
from ringhash.databases import Transaction
from ringhash.fleet import Fleet, Table, set_fence
from ringhash.fleet.addresses import fenced_by
from ringhash.handover import Handover, Piece
from ringhash.handover.pieces import cut
from ringhash.reshard import Reshard, ReshardError
from ringhash.reshard.keylog import LogBatch, capture, read_log, release

Make = Callable[..., Fleet]
ORDERS = Table("orders", key="tenant")
LINES = Table("lines", key=None, primary_key=("order_id", "n"), through=("order_id", ORDERS))
KEYS = [f"k{i}" for i in range(24)]
RING = Ring(["db-1", "db-2"], vnodes=4)
STARTS: dict[str, Placement] = {
    "ring": RING,
    "shards": assign(Shards(16), ["db-1", "db-2"]),
    "ranges": RangeMap([(None, "db-1"), ("k12", "db-2"), ("k2", "db-3"), ("k5", "db-1")]),
    "directory": Directory(RING, {"k1": "db-2", "k2": "db-1", "k3": "db-2"}),
}


def plan_for(router: Router) -> Any:
    placement = router.placement
    if isinstance(placement, RangeMap):
        return router.plan_to(placement.move("k12", "db-3"))
    if isinstance(placement, Directory):
        return router.plan_to(placement.with_entries({"k1": "db-1", "k7": "db-1", "k8": "db-2"}))
    return router.plan(add=["db-3"])


def filled(fleet: Fleet, times: int = 3) -> dict[int, str]:
    make_table(fleet)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE lines (order_id INTEGER, n INTEGER, PRIMARY KEY (order_id, n))")
    rows = dict(enumerate(KEYS * times))
    for number, key in rows.items():
        with fleet.write(key) as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?, ?)", [number, key, f"note {number}"])
            tx.execute("INSERT INTO lines VALUES (?, 1), (?, 2)", [number, number])
    return rows


def where(fleet: Fleet) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in fleet.names:
        for number, *_ in rows_in(fleet, name):
            found.setdefault(number, []).append(name)
        lines = [order for order, _ in rows_in(fleet, name, "lines")]
        assert sorted(set(lines)) == [row[0] for row in rows_in(fleet, name)]
    return found


def left_over(fleet: Fleet) -> list[str]:
    """What moves have left in the databases."""
    found = []
    for name in fleet.names:
        with fleet.database(name).transaction(write=False) as tx:
            if tx.dialect == "sqlite":
                rows = tx.execute("SELECT name FROM sqlite_master WHERE name LIKE 'ringhash%log%'").rows
            else:
                rows = tx.execute(
                    "SELECT tgname FROM pg_trigger WHERE tgname LIKE 'ringhash%' UNION "
                    "SELECT proname FROM pg_proc WHERE proname LIKE 'ringhash_log%' UNION "
                    "SELECT relname FROM pg_class WHERE relname LIKE 'ringhash_keylog%'"
                ).rows
            found += [f"{name}: {one}" for (one,) in rows]
            found += [
                f"{name}: {one}"
                for (one,) in tx.execute(
                    "SELECT name FROM ringhash_registry WHERE name LIKE 'piece%' OR name LIKE 'copy%'"
                )
            ]
    return found


class Meanwhile(Reshard):
    """Writes something at each step of a piece, as applications do."""

    def __init__(self, fleet: Fleet, write: Callable[[str], None], **options: Any) -> None:
        super().__init__(fleet, [ORDERS, LINES], **options)
        self._write = write

    def _copy_chunk(self, piece: Piece, table: Table) -> bool:
        more = super()._copy_chunk(piece, table)
        self._write(f"copied {table.name}")
        return more

    def verify(self, piece: Piece) -> Any:
        self._write("verify")
        return super().verify(piece)

    def hold(self, piece: Piece) -> bool:
        self._write("hold")
        return super().hold(piece)

    def stop(self, piece: Piece) -> None:
        self._write("stop")
        super().stop(piece)


@pytest.mark.parametrize("kind", STARTS)
def test_rows_move_while_they_are_written_and_are_in_one_place_at_the_end(fleet_of: Make, kind: str) -> None:
    fleet = fleet_of(STARTS[kind])
    rows = filled(fleet)
    router = fleet.router
    next_id = iter(range(1000, 10_000))

    def write(step: str) -> None:
        """An insert, an update, a delete, a key that changes, for keys of all kinds."""
        for number, key in list(rows.items())[:: max(1, len(rows) // 6)]:
            new = next(next_id)
            with fleet.write(key) as tx:
                tx.execute("UPDATE orders SET note = ? WHERE id = ?", [step, number])
                tx.execute("INSERT INTO orders VALUES (?, ?, ?)", [new, key, step])
                tx.execute("INSERT INTO lines VALUES (?, 1)", [new])
                if new % 3 == 0:
                    tx.execute("DELETE FROM lines WHERE order_id = ?", [number])
                    tx.execute("DELETE FROM orders WHERE id = ?", [number])
                    del rows[number]
            rows[new] = key

    handover = Handover(router, plan_for(router), Meanwhile(fleet, write, chunk=7, lag=1000), wait=False)
    status = handover.run()
    assert status.fraction == 1.0, status
    write("after")
    expected = contents(fleet, rows)
    handover.finish()
    handover.run()
    assert where(fleet) == {number: [router.owner(key)] for number, key in rows.items()}
    assert contents(fleet, rows) == expected
    assert left_over(fleet) == []


def contents(fleet: Fleet, rows: dict[int, str]) -> dict[int, Any]:
    found = {}
    for number, key in rows.items():
        with fleet.read(key) as tx:
            (row,) = tx.execute("SELECT * FROM orders WHERE id = ?", [number]).rows
            found[number] = tuple(row)
    return found


@pytest.mark.parametrize("kind", STARTS)
def test_a_reversal_loses_nothing_that_was_written_since(fleet_of: Make, kind: str) -> None:
    fleet = fleet_of(STARTS[kind])
    rows = filled(fleet)
    router = fleet.router
    plan = plan_for(router)
    handover = Handover(router, plan, Reshard(fleet, [ORDERS, LINES], chunk=10))
    handover.run()
    moved = [key for key in KEYS if plan.move_of(key) is not None]
    for i, key in enumerate(moved):
        number = next(n for n, k in rows.items() if k == key)
        with fleet.write(key) as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?, 'late')", [5000 + i, key])
            tx.execute("INSERT INTO lines VALUES (?, 9)", [5000 + i])
            tx.execute("DELETE FROM lines WHERE order_id = ?", [number])
            tx.execute("DELETE FROM orders WHERE id = ?", [number])
        rows[5000 + i] = key
        del rows[number]
    expected = contents(fleet, rows)
    handover.reverse()
    assert handover.run().fraction == 0.0
    assert router.placement == STARTS[kind]
    assert contents(fleet, rows) == expected
    for number, key in rows.items():
        assert router.owner(key) in where(fleet)[number]
    Reshard(fleet, [ORDERS, LINES]).clean()
    assert left_over(fleet) == []


def test_what_fails_before_the_start_leaves_the_first_state(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    rows = filled(fleet)
    before = {name: rows_in(fleet, name) for name in fleet.names}
    router = fleet.router

    class Broken(Reshard):
        def _raise_sequences(self, tx: Transaction) -> None:
            raise OSError("the last moment")

    handover = Handover(router, plan_for(router), Broken(fleet, [ORDERS, LINES], chunk=5))
    assert handover.run().fraction == 0.0
    assert {name: rows_in(fleet, name) for name in fleet.names} == before
    assert left_over(fleet) == []
    with fleet.write("k13") as tx:
        tx.execute("UPDATE orders SET note = 'here' WHERE tenant = 'k13'")
    assert set(where(fleet)) == set(rows)


def test_a_row_of_another_key_under_the_same_primary_key_stops_the_move(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    with fleet.write("k2") as tx:
        tx.execute("INSERT INTO orders VALUES (7777, 'k2', 'theirs')")
    with fleet.write("k13") as tx:
        tx.execute("INSERT INTO orders VALUES (7777, 'k13', 'ours')")
    router = fleet.router
    status = Handover(router, plan_for(router), Reshard(fleet, [ORDERS, LINES])).run()
    assert status.fraction == 0.0
    assert "7777" in status.pieces[0].note
    assert (7777, "k2", "theirs") in rows_in(fleet, "db-3")
    assert (7777, "k13", "ours") in rows_in(fleet, "db-2")


def test_a_key_column_that_changes_moves_the_row_and_those_that_follow_it(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    router = fleet.router
    reshard = Reshard(fleet, [ORDERS, LINES], lag=0)
    (piece,) = cut(plan_for(router))
    reshard.prepare(piece)
    with fleet.database("db-2").transaction(write=True) as tx:
        tx.execute("INSERT INTO orders VALUES (6000, 'k12', 'mine'), (6001, 'k21', 'not yet')")
        tx.execute("INSERT INTO lines VALUES (6000, 1), (6001, 1)")
    assert reshard.hold(piece)
    assert 6000 in dict(rows_in(fleet, "db-3", "lines"))
    with fleet.database("db-2").transaction(write=True) as tx:
        tx.execute("UPDATE orders SET tenant = 'k1x' WHERE id = 6001")
        tx.execute("UPDATE orders SET tenant = 'k99' WHERE id = 6000")
    assert reshard.hold(piece)
    lines = dict(rows_in(fleet, "db-3", "lines"))
    assert 6001 in lines
    assert 6000 not in lines
    assert not reshard.verify(piece)


def test_values_of_a_unique_column_that_rows_exchange_arrive(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE UNIQUE INDEX one_note ON orders (note)")
    reshard = Reshard(fleet, [ORDERS, LINES], lag=0)
    (piece,) = cut(plan_for(fleet.router))
    reshard.prepare(piece)
    ids = [row[0] for row in rows_in(fleet, "db-2") if row[1] == "k13"][:2]
    with fleet.database("db-2").transaction(write=True) as tx:
        for number, note in ((ids[0], "x"), (ids[1], f"note {ids[0]}"), (ids[0], f"note {ids[1]}")):
            tx.execute("UPDATE orders SET note = ? WHERE id = ?", [note, number])
    assert reshard.hold(piece)
    assert not reshard.verify(piece)


def test_a_truncate_is_refused_while_rows_move(fleet_of: Make, dialect: str) -> None:
    if dialect == "sqlite":
        pytest.skip("SQLite's DELETE fires the triggers of rows")
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    Reshard(fleet, [ORDERS, LINES]).prepare(piece)
    with (
        pytest.raises(Exception, match="cannot be truncated"),
        fleet.database("db-2").transaction(write=True) as tx,
    ):
        tx.execute("TRUNCATE orders")


def test_verify_names_the_rows(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    reshard = Reshard(fleet, [ORDERS, LINES])
    reshard.prepare(piece)
    assert not reshard.verify(piece)
    ids = [row[0] for row in rows_in(fleet, "db-3") if row[1] == "k13"]
    with fleet.database("db-3").transaction(write=True) as tx:
        tx.execute("DELETE FROM orders WHERE id = ?", [ids[0]])
        tx.execute("UPDATE orders SET note = '' WHERE id = ?", [ids[1]])
        tx.execute("INSERT INTO orders VALUES (9000, 'k13', NULL)")
    found = reshard.verify(piece)
    assert [key[0] for _, key in found.missing if len(key) == 1] in ([str(ids[0])], [ids[0]])
    assert len(found.different) == 1
    assert len(found.extra) == 1
    assert "9000" in str(found)
    reshard.repair(piece, found)
    assert not reshard.verify(piece)


def test_a_second_carrier_ends_the_first(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    old, new = Reshard(fleet, [ORDERS, LINES], chunk=5), Reshard(fleet, [ORDERS, LINES], chunk=5)
    old.prepare(piece)
    new.prepare(piece)
    with fleet.database("db-2").transaction(write=True) as tx:
        tx.execute("UPDATE orders SET note = 'newer' WHERE tenant = 'k13'")
    for call in (old.hold, old.stop):
        with pytest.raises(ReshardError, match="another process"):
            call(piece)
    assert new.hold(piece)
    assert not new.verify(piece)


def test_a_copy_goes_on_where_it_was(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))

    class Stopping(Reshard):
        left = 3
        copied = 0

        def _copy_chunk(self, piece: Piece, table: Table) -> bool:
            if not self.left:
                raise ConnectionError("killed")
            type(self).left -= 1
            self.copied += 1
            return super()._copy_chunk(piece, table)

    with pytest.raises(ConnectionError):
        Stopping(fleet, [ORDERS, LINES], chunk=4).prepare(piece)
    whole = len(rows_in(fleet, "db-2")) // 4
    Stopping.left = 10**6
    again = Stopping(fleet, [ORDERS, LINES], chunk=4)
    again.prepare(piece)
    assert not again.verify(piece)
    orders_left = whole - 3
    assert again.copied <= orders_left + len(rows_in(fleet, "db-2", "lines")) // 4 + 3


def test_sequences_go_on_behind_the_rows_that_came(fleet_of: Make, dialect: str) -> None:
    if dialect == "sqlite":
        pytest.skip("SQLite has no sequences")
    fleet = fleet_of(STARTS["ranges"])
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute(
                "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text, note text)"
            )
    with fleet.write("k13") as tx:
        tx.execute("INSERT INTO orders (tenant) SELECT 'k13' FROM generate_series(1, 5)")
    router = fleet.router
    assert Handover(router, plan_for(router), Reshard(fleet, [ORDERS])).run().fraction == 1.0
    with fleet.write("k13") as tx:
        assert tx.execute("INSERT INTO orders (tenant) VALUES ('k13') RETURNING id").rows == [(6,)]


def test_check_says_what_would_fail(fleet_of: Make, dialect: str) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    reshard = Reshard(fleet, [ORDERS, LINES])
    assert reshard.check(piece) == []
    with fleet.database("db-3").transaction(write=True) as tx:
        tx.execute("ALTER TABLE orders ADD COLUMN more INTEGER")
        tx.execute("DROP TABLE lines")
        if dialect == "sqlite":
            tx.execute("CREATE TRIGGER loud AFTER INSERT ON orders BEGIN SELECT 1; END")
        else:
            tx.execute("CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
            tx.execute("CREATE TRIGGER loud AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION loud()")
    found = " ".join(reshard.check(piece))
    for part in ("db-3 has no table lines", "more", "loud"):
        assert part in found


# --- the log ---


class Cursor(Reshard):
    """The control: what has a lower number than one that was seen is taken for done."""

    seen = 0

    def _batch(self, database: Any) -> LogBatch:
        batch = super()._batch(database)
        fresh = [number for number in batch.numbers if number > self.seen]
        with database.transaction(write=False) as tx:
            rows = tx.execute("SELECT seq, name, k0 FROM ringhash_keylog WHERE seq > ?", [self.seen]).rows
        self.seen = max(fresh, default=self.seen)
        keys: dict[str, set[tuple[Any, ...]]] = {}
        for _, name, key in rows:
            keys.setdefault(name, set()).add((key, None, None, None))
        return LogBatch(fresh, keys)


@pytest.mark.parametrize("kind", [Reshard, Cursor])
def test_a_transaction_with_a_lower_number_that_commits_later_is_carried(
    fleet_of: Make, dialect: str, kind: type[Reshard]
) -> None:
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    fleet = fleet_of(STARTS["ranges"])
    make_table(fleet)
    reshard = kind(fleet, [ORDERS], lag=0)
    (piece,) = cut(plan_for(fleet.router))
    reshard.prepare(piece)
    slow = fleet.database("db-2").connect()
    with slow.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'k13', 'slow')")  # takes the lower number
        with fleet.write("k14") as quick:
            quick.execute("INSERT INTO orders VALUES (2, 'k14', 'quick')")
        reshard.hold(piece)
        assert [row[0] for row in rows_in(fleet, "db-3")] == [2]
    slow.close()
    reshard.hold(piece)
    assert [row[0] for row in rows_in(fleet, "db-3")] == ([2] if kind is Cursor else [1, 2])


@pytest.mark.parametrize("again", [True, False])
def test_without_carrying_the_last_changes_over_a_write_is_lost(fleet_of: Make, again: bool) -> None:
    class Forgetful(Reshard):
        def _catch_up(self, node: str, *, rounds: int = 1, all_of_now: bool = False) -> int:
            return super()._catch_up(node, rounds=rounds, all_of_now=all_of_now) if again else 0

    fleet = fleet_of(STARTS["ranges"])
    make_table(fleet)
    reshard = Forgetful(fleet, [ORDERS])
    (piece,) = cut(plan_for(fleet.router))
    reshard.prepare(piece)
    with fleet.write("k13") as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'k13', 'late')")
    reshard.stop(piece)
    reshard.start(piece)
    assert len(rows_in(fleet, "db-3")) == again


def test_triggers_wait_for_who_is_writing(fleet_of: Make, dialect: str) -> None:
    """What was written before the triggers were there and committed later is in the copy."""
    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    reshard = Reshard(fleet, [ORDERS, LINES])
    slow = fleet.database("db-2").connect()
    began, done = threading.Event(), threading.Event()

    def move() -> None:
        began.set()
        reshard.prepare(piece)
        done.set()

    thread = threading.Thread(target=move)
    with slow.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (17000, 'k13', 'open')")
        thread.start()
        assert began.wait(60)
        assert not done.wait(0.3)
    assert done.wait(60)
    thread.join()
    slow.close()
    assert 17000 in [row[0] for row in rows_in(fleet, "db-3")]


def test_the_log_has_long_names_and_is_taken_away(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    long = "orders_archive_by_customer_and_month_and_region_and_more"
    tables = [Table(f"{long}_{end}", key="k", primary_key=("a", "b")) for end in ("a", "b")]
    with fleet.database("db-1").transaction(write=True) as tx:
        for table in tables:
            tx.execute(f"CREATE TABLE {table.name} (a INTEGER, b INTEGER, k TEXT, PRIMARY KEY (a, b))")
        capture(tx, tables)
        capture(tx, tables)
        for i, table in enumerate(tables):
            tx.execute(f"INSERT INTO {table.name} VALUES (1, ?, 'x')", [i])
        tx.execute(f"UPDATE {tables[0].name} SET a = 2")
        tx.execute(f"DELETE FROM {tables[1].name}")
        batch = read_log(tx, 100)
        assert {
            name: sorted(tuple(map(str, key[:2])) for key in keys) for name, keys in batch.keys.items()
        } == {
            tables[0].name: [("1", "0"), ("2", "0")],
            tables[1].name: [("1", "1")],
        }
        release(tx, tables)
        release(tx, tables)
    assert left_over(fleet) == []


def test_without_the_fence_a_write_of_the_last_moment_is_lost(fleet_of: Make) -> None:
    """The control: a writer that asks no fence writes to the source after the last changes were carried over."""
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    router = fleet.router

    class Late(Reshard):
        def start(self, piece: Piece) -> None:
            with self.fleet.database("db-2").transaction(write=True) as tx:
                tx.execute("INSERT INTO orders VALUES (9999, 'k13', 'foreign')")
            super().start(piece)

    reshard = Late(fleet, [ORDERS, LINES])
    handover = Handover(router, plan_for(router), reshard)
    handover.run()
    assert 9999 not in [row[0] for row in rows_in(fleet, "db-3")]
    (piece,) = handover.pieces
    assert "9999" in str(reshard.verify(piece))  # and verify names it


def test_the_fence_of_the_target_is_closed_until_the_end(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    (piece,) = cut(plan_for(fleet.router))
    Reshard(fleet, [ORDERS, LINES]).prepare(piece)
    fenced = fenced_by(piece.space, piece.ranges)
    assert fenced.ranges
    with fleet.database("db-3").transaction(write=True) as tx:
        (row,) = tx.execute(
            "SELECT state, owner FROM ringhash_fence WHERE low = ?", [fenced.ranges[0][0]]
        ).rows
        assert row == ("gone", "db-2")
        set_fence(tx, fenced.ranges, "here", None, 9)

"""Keys that go from one database to another: fences and rows, there and back, for every kind of placement."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from fleet_world import make_table, rows_in

from ringhash import Directory, Moved, Placement, RangeMap, Ring, Router, Shards, assign
from ringhash.databases import Transaction
from ringhash.errors import FenceError
from ringhash.fleet import Fleet, Moving, RowSwitch, Switch, Table
from ringhash.fleet.addresses import addresses_of
from ringhash.fleet.fence import check_fence
from ringhash.handover import Handover, Piece

Make = Callable[..., Fleet]
NODES = ["db-1", "db-2", "db-3"]
KEYS = [f"k{i}" for i in range(24)]
ORDERS = Table("orders", key="tenant")


def says(fleet: Fleet, node: str, key: Any) -> str:
    with fleet.database(node).transaction(write=True) as tx:
        try:
            check_fence(tx, addresses_of(fleet.router.placement, key), write=True)
        except Moved as moved:
            return f"gone to {moved.to}"
        except Moving as moving:
            return f"moving to {moving.to}"
        return "here"


def another(placement: Placement, rng: random.Random) -> Placement:
    """A placement one change away."""
    if isinstance(placement, RangeMap):
        row = rng.choice(list(placement.rows))
        return placement.move(row.start, rng.choice(NODES))
    if isinstance(placement, Directory):
        how = rng.choice(["entry", "entry", "removed", "default"])
        if how == "entry":
            return placement.with_entries({rng.choice(KEYS): rng.choice(placement.default.names)})
        if how == "removed":
            held = [key for key in KEYS if placement.entry(key) is not None]
            return placement.without_entries(rng.choice(held)) if held else placement
        busy = {entry.node for key in KEYS if (entry := placement.entry(key)) is not None}
        return changed(placement, rng, keep=busy)
    return changed(placement, rng, keep=set())


def changed(placement: Placement, rng: random.Random, keep: set[str]) -> Placement:
    name = rng.choice(NODES)
    names = placement.default.names if isinstance(placement, Directory) else placement.names
    if name not in names:
        return placement.changed(add=[name])
    if len(names) > 1 and name not in keep:
        return placement.changed(remove=[name])
    return placement


RING = Ring(NODES[:2], vnodes=4)
STARTS: dict[str, Placement] = {
    "ring": RING,
    "shards": assign(Shards(16), NODES[:2]),
    "ranges": RangeMap([(None, "db-1"), ("k12", "db-2"), ("k2", "db-3"), ("k5", "db-1")]),
    "directory": Directory(RING, {"k1": "db-2", "k2": "db-1", "k3": "db-2"}),
}


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_history_each_key_is_open_at_its_owner_and_at_nobody_who_had_it(
    fleet_of: Make, dialect: str, kind: str, seed: int
) -> None:
    """However old a router is, whoever it asks is the owner or says who knows more."""
    rng = random.Random(f"{kind} {seed}")
    fleet = fleet_of(STARTS[kind], wait=0.0)
    router = fleet.router
    had: dict[str, set[str]] = {key: {router.owner(key)} for key in KEYS}
    old = [Router.from_dict(router.to_dict())]
    while len(old) < (8 if dialect == "sqlite" else 4):
        after = another(router.placement, rng)
        if after.digest == router.placement.digest:
            continue
        Handover(router, router.plan_to(after), Switch(fleet)).run()
        old.append(Router.from_dict(router.to_dict()))
        for key in KEYS:
            owner = router.owner(key)
            had[key].add(owner)
            assert says(fleet, owner, key) == "here", (key, owner)
            for node in had[key] - {owner}:
                assert says(fleet, node, key).startswith("gone"), (key, node, owner)
    for one in old:
        fleet.router = one
        for key in KEYS:
            with fleet.write(key) as tx:
                assert database_of(fleet, tx) == router.owner(key)


def database_of(fleet: Fleet, tx: Transaction) -> str:
    where = "SELECT file FROM pragma_database_list" if tx.dialect == "sqlite" else "SELECT current_database()"
    place = str(tx.execute(where).rows[0][0])
    return next(
        name for name in fleet.names if fleet.database(name).address.endswith(place.rpartition("/")[2])
    )


# --- rows ---


def filled(fleet: Fleet) -> dict[int, str]:
    make_table(fleet)
    rows = dict(enumerate(KEYS * 3))
    for number, key in rows.items():
        with fleet.write(key) as tx:
            tx.execute(
                "INSERT INTO orders VALUES (?, ?, ?)", [number, key, None if number % 2 else "é'\0"[:2]]
            )
    return rows


def where(fleet: Fleet) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in fleet.names:
        for number, *_ in rows_in(fleet, name):
            found.setdefault(number, []).append(name)
    return found


@pytest.mark.parametrize("kind", STARTS)
def test_rows_go_with_their_keys_and_are_in_one_place_at_the_end(fleet_of: Make, kind: str) -> None:
    fleet = fleet_of(STARTS[kind])
    rows = filled(fleet)
    before = {name: rows_in(fleet, name) for name in fleet.names}
    router = fleet.router
    after = {
        "ring": lambda: router.placement.changed(add=["db-3"]),
        "shards": lambda: router.placement.changed(add=["db-3"]),
        "ranges": lambda: router.placement.move("k12", "db-3"),  # type: ignore[attr-defined]
        "directory": lambda: router.placement.with_entries({"k1": "db-1", "k7": "db-1", "k8": "db-2"}),  # type: ignore[attr-defined]
    }[kind]()
    handover = Handover(router, router.plan_to(after), RowSwitch(fleet, [ORDERS], chunk=7))
    handover.run()
    handover.finish()
    handover.run()
    assert where(fleet) == {number: [router.owner(key)] for number, key in rows.items()}
    assert router.placement == after
    total = sorted(row for name in fleet.names for row in rows_in(fleet, name))
    assert total == sorted(row for found in before.values() for row in found)


def test_a_handover_that_is_reversed_keeps_what_was_written_meanwhile(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    router = fleet.router
    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    handover = Handover(router, plan, RowSwitch(fleet, [ORDERS]))
    handover.run()
    assert router.owner("k13") == "db-3"
    with fleet.write("k13") as tx:
        tx.execute("INSERT INTO orders VALUES (1000, 'k13', 'late')")
        tx.execute("DELETE FROM orders WHERE id = 13")
    handover.reverse()
    handover.run()
    assert router.owner("k13") == "db-2"
    with fleet.read("k13") as tx:
        found = sorted(tx.execute("SELECT id FROM orders WHERE tenant = 'k13'").rows)
    assert found == [(37,), (61,), (1000,)]


def test_a_copy_that_fails_opens_the_source_again(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"], wait=0.0)
    rows = filled(fleet)
    router = fleet.router

    class Broken(RowSwitch):
        def _copy_rows(self, piece: Piece) -> None:
            super()._copy_rows(piece)
            raise OSError("the network is gone")

    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    handover = Handover(router, plan, Broken(fleet, [ORDERS]))
    status = handover.run()
    assert status.fraction == 0.0
    assert says(fleet, "db-2", "k13") == "here"
    assert says(fleet, "db-3", "k13") == "gone to db-2"
    with fleet.write("k13") as tx:
        tx.execute("UPDATE orders SET note = 'after' WHERE id = 13")
    handover.reverse()
    handover.run()
    assert says(fleet, "db-2", "k13") == "here"
    after = router.placement.move("k12", "db-3")  # type: ignore[attr-defined]
    again = Handover(router, router.plan_to(after), RowSwitch(fleet, [ORDERS]))
    again.run()
    again.finish()
    again.run()
    assert where(fleet) == {number: [router.owner(key)] for number, key in rows.items()}
    assert (13, "k13", "after") in rows_in(fleet, "db-3")


def test_rows_that_follow_those_of_another_table_go_with_them(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE lines (order_id INTEGER, n INTEGER, PRIMARY KEY (order_id, n))")
            tx.execute("INSERT INTO lines SELECT id, 1 FROM orders")
            tx.execute("CREATE TABLE countries (id INTEGER PRIMARY KEY)")
            tx.execute("INSERT INTO countries VALUES (49)")
    lines = Table("lines", key=None, primary_key=("order_id", "n"), through=("order_id", ORDERS))
    countries = Table("countries", key=None, reference=True)
    router = fleet.router
    handover = Handover(
        router,
        router.plan_to(router.placement.move("k12", "db-3")),  # type: ignore[attr-defined]
        RowSwitch(fleet, [ORDERS, lines, countries], chunk=5),
    )
    handover.run()
    handover.finish()
    handover.run()
    for name in fleet.names:
        assert [row[0] for row in rows_in(fleet, name, "lines")] == [row[0] for row in rows_in(fleet, name)]
        assert rows_in(fleet, name, "countries") == [(49,)]


def test_a_unique_key_in_the_way_at_the_target_stops_the_copy(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    make_table(fleet)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE UNIQUE INDEX one_note ON orders (note)")
    for number, key in ((1, "k13"), (2, "k2")):
        with fleet.write(key) as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?, 'same')", [number, key])
    router = fleet.router
    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    status = Handover(router, plan, RowSwitch(fleet, [ORDERS])).run()
    assert status.fraction == 0.0
    assert where(fleet) == {1: ["db-2"], 2: ["db-3"]}
    assert says(fleet, "db-2", "k13") == "here"


def test_an_old_carrier_writes_nothing(fleet_of: Make) -> None:
    fleet = fleet_of(STARTS["ranges"])
    filled(fleet)
    router = fleet.router
    pieces: list[Piece] = []

    class Noting(RowSwitch):
        def stop(self, piece: Piece) -> None:
            pieces.append(piece)
            super().stop(piece)

    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    Handover(router, plan, Noting(fleet, [ORDERS])).run()
    old = Router(STARTS["ranges"])
    fleet.router = old
    with pytest.raises(FenceError, match="later"):
        RowSwitch(fleet, [ORDERS]).undo(pieces[0])
    assert says(fleet, "db-2", "k13") == "gone to db-3"


def test_a_foreign_row_with_the_same_primary_key_is_not_written_over(fleet_of: Make) -> None:
    """Ids that two databases give out collide: the copy stops, and both rows stay."""
    fleet = fleet_of(STARTS["ranges"])
    make_table(fleet)
    for key in ("k13", "k2"):
        with fleet.write(key) as tx:
            tx.execute("INSERT INTO orders VALUES (1, ?, 'mine')", [key])
    router = fleet.router
    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    status = Handover(router, plan, RowSwitch(fleet, [ORDERS])).run()
    assert status.fraction == 0.0
    assert rows_in(fleet, "db-2") == [(1, "k13", "mine")]
    assert rows_in(fleet, "db-3") == [(1, "k2", "mine")]


IN_SQLITE = ["NULL", "1", "1.5", "'1'", "x'00ff'", "''", "'null'", "char(0)", "-9223372036854775808", "1e300"]
IN_POSTGRES = [
    "'1 mon'::interval", "'30 days'::interval", "'1.00'::numeric", "'NaN'::numeric", "'infinity'::timestamptz",
    "'0044-03-15 BC'::date", """'{"a": 1.0, "b": null}'::jsonb""", "'[1 ,2]'::json", r"'\x00ff5c'::bytea",
    """ARRAY[NULL, 'NULL', '', 'a,"b']::text[]""", "'ab'::char(5)", r"'\N'::text", "''::text", "NULL::text",
    "E'a\\tb'::text", "0.1::float8", "'-0'::float8", "'192.168.0.1/24'::inet", "'[1,5)'::int4range", "B'101'",
    "'a b'::tsvector", "'(1,2)'::point", "true", "'2024-10-27 02:30+02'::timestamptz", """'x'::"char\"""",
]  # fmt: skip


def test_values_arrive_as_they_were(fleet_of: Make, dialect: str) -> None:
    postgres = dialect == "postgres"
    values = IN_POSTGRES if postgres else IN_SQLITE
    fleet = fleet_of(STARTS["ranges"])
    names = ", ".join(f'"V {i}"' for i in range(len(values)))
    made = ", ".join(f'{value} AS "V {i}"' for i, value in enumerate(values))
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute(f"CREATE TABLE things AS SELECT 1 AS id, 'k13' AS tenant, {made}")
            tx.execute("DELETE FROM things")
            if postgres:
                tx.execute("ALTER TABLE things ADD PRIMARY KEY (id)")
                tx.execute("ALTER TABLE things ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
            else:
                tx.execute("ALTER TABLE things ADD twice int GENERATED ALWAYS AS (id * 2) VIRTUAL")
    with fleet.write("k13") as tx:
        tx.execute(f"INSERT INTO things (id, tenant, {names}) SELECT 1, 'k13', {', '.join(values)}")
    look = ", ".join(f'"V {i}"::text' if postgres else f'quote("V {i}")' for i in range(len(values)))
    with fleet.read("k13") as tx:
        before = tx.execute(f"SELECT {look} FROM things").rows
    assert len(set(before[0])) > 8
    router = fleet.router
    plan = router.plan_to(router.placement.move("k12", "db-3"))  # type: ignore[attr-defined]
    assert Handover(router, plan, RowSwitch(fleet, [Table("things", key="tenant")])).run().fraction == 1.0
    with fleet.read("k13") as tx:
        assert tx.execute(f"SELECT {look} FROM things").rows == before

"""The check: which database believes what, and which rows lie where their keys are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fleet_world import make_table

from ringhash import RangeMap, Ring
from ringhash.errors import FenceError
from ringhash.fleet import Finding, Fleet, Table, check_fleet, set_fence

Make = Callable[..., Fleet]
ORDERS = Table("orders", key="tenant")
MAP = RangeMap([(None, "db-1"), ("m", "db-2"), ("t", "db-3")], keys=str)


def kinds(found: list[Finding]) -> list[tuple[str, str | None, int]]:
    return [(one.kind, one.node, one.rows) for one in found]


def insert(fleet: Fleet, node: str, *rows: tuple[int, str]) -> None:
    with fleet.database(node).transaction(write=True) as tx:
        tx.executemany("INSERT INTO orders VALUES (?, ?, NULL)", rows)


def test_a_fleet_in_order_has_no_finding(fleet_of: Make) -> None:
    fleet = fleet_of(MAP)
    make_table(fleet)
    insert(fleet, "db-1", (1, "a"), (2, "b"))
    insert(fleet, "db-2", (3, "m"))
    assert check_fleet(fleet, [ORDERS]) == []


def test_rows_written_by_hand_to_the_wrong_database_are_found(fleet_of: Make) -> None:
    """vitess#8860: a job wrote to a shard that does not own the key."""
    fleet = fleet_of(MAP)
    make_table(fleet)
    insert(fleet, "db-1", (1, "a"), (2, "zoe"), (3, "zoe"), (4, "mia"))
    found = check_fleet(fleet, [ORDERS])
    assert kinds(found) == [("orphans", "db-1", 3)]
    assert found[0].examples == ("zoe", "mia")
    assert "'zoe' of db-3" in found[0].message
    assert check_fleet(fleet, [ORDERS], sample=1) == check_fleet(fleet, [ORDERS])  # one chunk is read whole


def test_a_router_that_is_behind_the_fence_is_named(fleet_of: Make) -> None:
    fleet = fleet_of(MAP)
    make_table(fleet)
    insert(fleet, "db-1", (1, "a"), (2, "f"))
    with fleet.database("db-1").transaction(write=True) as tx:
        set_fence(tx, [(b"f", b"g")], "gone", "db-2", 3)
        set_fence(tx, [(b"g", b"h")], "moving", "db-2", 3)
        set_fence(tx, [(b"h", b"i")], "gone", "db-9", 3)
    found = check_fleet(fleet, [ORDERS])
    assert [one.kind for one in found] == ["fence"] * 3
    assert "moves to db-2" in found[0].message
    assert "no database" in found[1].message
    assert "out of date" in found[2].message
    assert found[2].examples == ("f",)


def test_a_column_that_is_read_in_two_ways_is_found(fleet_of: Make) -> None:
    """7 and "7" are two keys: a table of numbers beside one of text needs key_of."""
    ring = Ring(["db-1", "db-2", "db-3"])
    fleet = fleet_of(ring)
    make_table(fleet)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL)")
    for tenant in range(30):
        owner = ring.owner(str(tenant))
        insert(fleet, owner, (tenant, str(tenant)))
        with fleet.database(owner).transaction(write=True) as tx:
            tx.execute("INSERT INTO visits VALUES (?, ?)", [tenant, tenant])
    found = check_fleet(fleet, [ORDERS, Table("visits", key="tenant")])
    assert {one.kind for one in found} == {"orphans", "reading"}
    assert "int: visits; str: orders" in found[-1].message
    assert any("key_of=str" in one.message for one in found)
    assert check_fleet(fleet, [ORDERS, Table("visits", key="tenant", key_of=str)]) == []


def test_values_that_are_no_keys_are_found(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, tenant TEXT, note TEXT)")
    with fleet.database("db-1").transaction(write=True) as tx:
        tx.execute("INSERT INTO orders VALUES (1, NULL, NULL)")
    found = check_fleet(fleet, [ORDERS])
    assert ("no key", "db-1", 1) in kinds(found)


def test_composite_keys_are_tuples(fleet_of: Make) -> None:
    ranges = RangeMap([(None, "db-1"), (("acme", 7), "db-2")], keys=(str, int))
    fleet = fleet_of(ranges)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE orders (tenant TEXT, n INTEGER, PRIMARY KEY (tenant, n))")
    table = Table("orders", key=("tenant", "n"), primary_key=("tenant", "n"))
    for key in (("acme", 6), ("acme", 7), ("acme", -1), ("b", 0)):
        with fleet.write(key) as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?)", key)
    assert check_fleet(fleet, [table]) == []
    with fleet.database("db-1").transaction(write=True) as tx:
        tx.execute("INSERT INTO orders VALUES ('acme', 8)")
    assert kinds(check_fleet(fleet, [table])) == [("orphans", "db-1", 1)]


def test_a_table_that_is_not_there_and_a_missing_fence_are_said(fleet_of: Make) -> None:
    fleet = fleet_of(MAP)
    with pytest.raises(LookupError, match="orders"):
        check_fleet(fleet, [ORDERS])
    with fleet.database("db-1").transaction(write=True) as tx:
        tx.execute("DELETE FROM ringhash_fence")
    with pytest.raises(FenceError, match="install"):
        check_fleet(fleet)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "orders; DROP TABLE x", "key": "a"}, "letters"),
        ({"name": "orders", "key": 'a"b'}, "letters"),
        ({"name": "orders", "key": ()}, "needs a column"),
        ({"name": "orders", "key": None}, "one of"),
        ({"name": "orders", "key": "a", "reference": True}, "one of"),
        ({"name": "o", "key": None, "through": ("x", Table("c", key=None, reference=True))}, "follow"),
        ({"name": "o", "key": None, "through": ("x", Table("p", key="a", primary_key=("a", "b")))}, "follow"),
    ],
)
def test_a_table_says_one_thing(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Table(arguments.pop("name"), **arguments)

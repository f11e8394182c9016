"""The position column: added, filled, checked, and used to read only what moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fleet_world import make_table, rows_in

from ringhash import Placement, RangeMap, Ring, Shards, assign
from ringhash.errors import ColumnError
from ringhash.fleet import Fleet, RowSwitch, Table
from ringhash.fleet.columns import (
    COLUMN,
    add_column,
    check_column,
    column_condition,
    column_value,
    fill_column,
    has_column,
)
from ringhash.handover import Handover
from ringhash.handover.pieces import cut

Make = Callable[..., Fleet]
ORDERS = Table("orders", key="tenant")
PLACEMENTS = {"ring": Ring(["db-1", "db-2"], vnodes=4), "shards": assign(Shards(16), ["db-1", "db-2"])}


def filled(fleet: Fleet, placement: Placement) -> None:
    make_table(fleet)
    for number in range(60):
        with fleet.write(f"k{number}") as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?, NULL)", [number, f"k{number}"])
    for name in fleet.names:
        add_column(fleet.database(name), ORDERS, placement)
        add_column(fleet.database(name), ORDERS, placement)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_column_is_filled_in_batches_and_holds_the_hash(fleet_of: Make, kind: str) -> None:
    placement = PLACEMENTS[kind]
    fleet = fleet_of(placement)
    filled(fleet, placement)
    database = fleet.database("db-1")
    with pytest.raises(ColumnError, match="fill_column"):
        check_column(database, ORDERS, placement)
    count = len(rows_in(fleet, "db-1"))
    assert fill_column(database, ORDERS, placement, chunk=7) == count
    assert fill_column(database, ORDERS, placement) == 0
    for _, tenant, _, position in rows_in(fleet, "db-1"):
        assert position == Ring(["x"], seed=placement.space.seed).position(tenant)  # type: ignore[attr-defined]
        assert position == column_value(placement, tenant)
    check_column(database, ORDERS, placement)
    with database.transaction(write=True) as tx:
        tx.execute("INSERT INTO orders (id, tenant) VALUES (1000, 'new')")
    assert fill_column(database, ORDERS, placement) == 1


def test_a_column_that_lies_is_not_believed(fleet_of: Make) -> None:
    placement = PLACEMENTS["ring"]
    fleet = fleet_of(placement)
    filled(fleet, placement)
    database = fleet.database("db-1")
    fill_column(database, ORDERS, placement)
    with pytest.raises(ColumnError, match="seed"):
        check_column(database, ORDERS, Ring(["db-1"], seed=7))
    with pytest.raises(ColumnError, match="seed"):
        add_column(database, ORDERS, Ring(["db-1"], seed=7))
    with pytest.raises(ColumnError, match="rings and shards"):
        add_column(database, ORDERS, RangeMap([(None, "db-1")], keys=str))
    with database.transaction(write=True) as tx:
        tx.execute(f"UPDATE orders SET {COLUMN} = 5")
    with pytest.raises(ColumnError, match="position 5"):
        check_column(database, ORDERS, placement)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_the_condition_holds_for_the_rows_of_a_piece(fleet_of: Make, kind: str) -> None:
    placement = PLACEMENTS[kind]
    fleet = fleet_of(placement)
    filled(fleet, placement)
    for name in fleet.names:
        fill_column(fleet.database(name), ORDERS, placement)
    for piece in cut(placement.diff(placement.changed(add=["db-3"]))):
        with fleet.database(str(piece.source)).transaction(write=False) as tx:
            assert has_column(tx, ORDERS, piece.space)
            assert not has_column(tx, Table("others", key="x"), piece.space)
            condition, values = column_condition(piece.space, piece.ranges)
            found = {row[0] for row in tx.execute(f"SELECT tenant FROM orders t0 WHERE {condition}", values)}
            there = {row[0] for row in tx.execute("SELECT tenant FROM orders")}
        assert found == {key for key in there if key in piece}


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_switch_reads_by_the_column_and_moves_rows_that_have_none_yet(fleet_of: Make, kind: str) -> None:
    placement = PLACEMENTS[kind]
    fleet = fleet_of(placement)
    filled(fleet, placement)
    for name in ("db-1", "db-2"):
        fill_column(fleet.database(name), ORDERS, placement)
    for number in range(100, 120):
        with fleet.write(f"k{number}") as tx:
            tx.execute("INSERT INTO orders (id, tenant) VALUES (?, ?)", [number, f"k{number}"])
    router = fleet.router
    handover = Handover(router, router.plan(add=["db-3"]), RowSwitch(fleet, [ORDERS]))
    handover.run()
    handover.finish()
    handover.run()
    found = {row[1]: name for name in fleet.names for row in rows_in(fleet, name)}
    assert found == {key: router.owner(key) for key in found}
    assert len(found) == 80

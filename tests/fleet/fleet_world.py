"""What the tests of fleets share: a table, and a look at its rows."""

from __future__ import annotations

from typing import Any

from ringhash.fleet import Fleet


def make_table(fleet: Fleet) -> None:
    """A table of orders in every database."""
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute(
                "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, note TEXT)"
            )


def rows_in(fleet: Fleet, node: str, table: str = "orders") -> list[tuple[Any, ...]]:
    with fleet.database(node).transaction(write=False) as tx:
        return sorted(map(tuple, tx.execute(f"SELECT * FROM {table}").rows))

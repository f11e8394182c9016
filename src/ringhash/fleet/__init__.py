"""The right database for a key, and never the wrong one.

    fleet = Fleet({"db-1": "postgresql://...", "db-2": "postgresql://..."}, router)
    fleet.install()                                   once: a table in each database
    with fleet.write("acme") as tx:                   a transaction on the owner, fenced
        tx.execute("INSERT INTO orders VALUES (?, ?)", [1, "acme"])
    with fleet.read("acme") as tx: ...                one moment, no lock

Each database says itself which keys it has (`fence`), so a router that is out of date costs a redirect and
never a wrong row. `Switch` and `RowSwitch` take keys from one database to another, as movers of a `Handover`.
"""

from ringhash.errors import DrainTimeoutError, FenceError, Moved, Moving, ReplicaLagError
from ringhash.fleet.aio import AsyncFleet, AsyncTransaction
from ringhash.fleet.check import Finding, check_fleet
from ringhash.fleet.connections import fence
from ringhash.fleet.fence import FenceRow, check_fence, create_fence, drain, read_fence, set_fence
from ringhash.fleet.fleet import Fleet
from ringhash.fleet.metrics import FleetMetrics, FleetReport
from ringhash.fleet.switch import RowSwitch, Switch
from ringhash.fleet.tables import Table

__all__ = [
    "AsyncFleet",
    "AsyncTransaction",
    "DrainTimeoutError",
    "FenceError",
    "FenceRow",
    "Finding",
    "Fleet",
    "FleetMetrics",
    "FleetReport",
    "Moved",
    "Moving",
    "ReplicaLagError",
    "RowSwitch",
    "Switch",
    "Table",
    "check_fence",
    "check_fleet",
    "create_fence",
    "drain",
    "fence",
    "read_fence",
    "set_fence",
]

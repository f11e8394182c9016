"""Leases on shards, and membership shared by many routers, in a database that you have already."""

from ringhash.errors import LeaseLost
from ringhash.leases.members import Follow, Guard, Member, Members
from ringhash.leases.status import LeaseStatus, Status, WorkerStatus, read_status
from ringhash.leases.table import Lease, LeaseTable, OnRelease, Worker

__all__ = [
    "Follow",
    "Guard",
    "Lease",
    "LeaseLost",
    "LeaseStatus",
    "LeaseTable",
    "Member",
    "Members",
    "OnRelease",
    "Status",
    "Worker",
    "WorkerStatus",
    "read_status",
]

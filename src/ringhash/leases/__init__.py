"""Leases on shards, in a database that you have already."""

from ringhash.errors import LeaseLost
from ringhash.leases.lease import Lease, OnRelease
from ringhash.leases.status import LeaseStatus, Status, WorkerStatus, read_status
from ringhash.leases.table import LeaseTable
from ringhash.leases.worker import Worker

__all__ = [
    "Lease",
    "LeaseLost",
    "LeaseStatus",
    "LeaseTable",
    "OnRelease",
    "Status",
    "Worker",
    "WorkerStatus",
    "read_status",
]

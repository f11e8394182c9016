"""chaos_worker.py DB GROUP NAME SHARDS TTL FENCE SHIFT LOG: one worker of the chaos run, in a process of its own.

Three threads choose a shard that the worker holds, think, and write: a count in a row of that shard, and a line in
a log. Half of the writes are blind: they do not ask the worker's own clock, and rely on the database's fence alone.
With FENCE 0 nothing is asked after the choice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

SHIFT = float(sys.argv[7])
_wall, _monotonic = time.time, time.monotonic
time.time = lambda: _wall() + SHIFT  # the clocks of this machine are an hour off

from ringhash.databases import OutcomeUnknownError  # noqa: E402
from ringhash.databases.clock import Clock  # noqa: E402
from ringhash.leases import Lease, LeaseLost, LeaseTable  # noqa: E402
from ringhash.leases.rows import Refused  # noqa: E402


class Shifted(Clock):
    def now(self) -> float:
        return super().now() + abs(SHIFT)


db, group, name = sys.argv[1:4]
shards, ttl, fence = int(sys.argv[4]), float(sys.argv[5]), sys.argv[6] == "1"
log = os.open(sys.argv[8], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
postgres = db.startswith("postgresql://")
mark = "%s" if postgres else "?"


def tell(event: str, lease: Lease, **more: object) -> None:
    """One write each, so that kill -9 tears no line."""
    record = {"event": event, "worker": me.identity, "shard": lease.shard, "epoch": lease.epoch, **more}
    os.write(log, json.dumps(record).encode() + b"\n")


@contextlib.contextmanager
def fenced_blindly(lease: Lease) -> Iterator[Any]:
    store = table.open_rows()
    try:
        with store.fence(me.identity, lease._grant, ttl) as tx:
            yield tx
    except Refused:
        raise LeaseLost("refused by the database") from None
    except OutcomeUnknownError:
        me.end(lease, "unknown")
        raise LeaseLost("unknown", None) from None
    finally:
        store.close()


@contextlib.contextmanager
def unfenced(lease: Lease) -> Iterator[Any]:
    store: Any = table.open_rows()
    try:
        with store.connection.transaction() as tx:
            yield tx
    finally:
        store.close()


def write(lease: Lease, tx: Any) -> None:
    key = (group, lease.shard)
    tx.execute(f"UPDATE chaos_state SET n = n + 1 WHERE grp = {mark} AND shard = {mark}", key)
    ((n,),) = tx.execute(f"SELECT n FROM chaos_state WHERE grp = {mark} AND shard = {mark}", key).fetchall()
    if postgres:
        time.sleep(random.uniform(0, 0.03))
    tx.execute(
        "INSERT INTO chaos_log (grp, shard, n, epoch, worker, current)"
        f" SELECT grp, shard, {mark}, {mark}, {mark}, epoch FROM ringhash_leases"
        f" WHERE grp = {mark} AND shard = {mark}",
        (n, lease.epoch, me.identity, *key),
    )


def work() -> None:
    while not over.is_set():
        leases = me.leases
        if not leases:
            time.sleep(0.02)
            continue
        lease = random.choice(leases)
        time.sleep(random.uniform(0, 0.1))  # think
        blind = random.random() < 0.5
        way = unfenced if not fence else fenced_blindly if blind else Lease.write
        try:
            with way(lease) as tx:
                write(lease, tx)
        except LeaseLost as lost:
            tell("unknown" if lost.written is None else "refused", lease, blind=blind)
        except Exception as error:  # noqa: BLE001  the database comes and goes
            tell("error", lease, error=type(error).__name__)
            time.sleep(0.05)
        else:
            tell("wrote", lease)


over = threading.Event()
table = LeaseTable(db, shards, ttl, name=group)
me = table.join(name, clock=Shifted())
while True:
    try:
        me.start()
        break
    except Exception:  # noqa: BLE001  the database comes and goes
        time.sleep(0.1)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
threading.Thread(target=lambda: (sys.stdin.read(), over.set(), me.leave()), daemon=True).start()
for got in me:
    tell("got", got)

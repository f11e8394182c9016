"""The processes of fleet_chaos.py: `worker` writes and reads through a router that is often out of date, `carrier` moves keys.

python fleet_chaos_process.py worker|carrier CONFIG NUMBER
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from ringhash import Directory, RangeMap, Router
from ringhash.databases import OutcomeUnknownError
from ringhash.errors import FenceError, JournalError, Moved, Moving
from ringhash.fleet import Fleet, RowSwitch, Table
from ringhash.handover import Handover

ENTRIES = Table("entries", key="tenant")


def keys_of(config: dict[str, Any]) -> list[str]:
    return [f"k{number:02}" for number in range(config["keys"])]


def read_router(config: dict[str, Any]) -> Router:
    while True:
        try:
            return Router.from_dict(json.loads(Path(config["router"]).read_text(encoding="utf-8")))
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.01)


def write_router(config: dict[str, Any], document: dict[str, object]) -> None:
    path = Path(config["router"])
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(document), encoding="utf-8")
    beside.replace(path)


class Plain(Fleet):
    """The control: the owner as the router knows it, and no fence."""

    def _block(self, key: Any, write: bool, wait: float | None, stale: float | None) -> Any:
        return self.database(self._owner(key)).transaction(write=write)


def worker(config: dict[str, Any], number: int) -> None:
    rng = random.Random(f"{config['seed']} {number} {time.time_ns()}")
    router = read_router(config)
    kind = Fleet if config["fenced"] else Plain
    fleet = kind(config["clients"], router, wait=10.0, timeout=10.0, pool=4)
    name = f"{number}-{time.time_ns()}"
    mine: dict[str, set[str]] = {}
    with Path(config["logs"], f"{name}.log").open("a", encoding="utf-8", buffering=1) as log:
        for count in range(10**9):
            if rng.random() < 0.03:  # most of the time the router is behind
                fleet.router = read_router(config)
            key = rng.choice(keys_of(config))
            entry = f"{name}-{count}"
            try:
                if rng.random() < 0.7:
                    log.write(f"try {entry} {key}\n")
                    with fleet.write(key) as tx:
                        tx.execute("INSERT INTO entries VALUES (?, ?)", [entry, key])
                        if rng.random() < 0.2:
                            time.sleep(rng.random() * 0.01)
                    log.write(f"ack {entry} {key}\n")
                    mine.setdefault(key, set()).add(entry)
                else:
                    with fleet.read(key) as tx:
                        found = {
                            row[0] for row in tx.execute("SELECT id FROM entries WHERE tenant = ?", [key])
                        }
                    missed = mine.get(key, set()) - found
                    log.write(f"missed {len(missed)} {key}\n" if missed else f"read {entry} {key}\n")
            except OutcomeUnknownError:
                log.write(f"unknown {entry} {key}\n")
            except (Moved, Moving) as error:
                log.write(f"refused {entry} {key} {type(error).__name__}\n")
            except fleet.database("db-1").errors as error:
                log.write(f"failed {entry} {key} {type(error).__name__}\n")
                time.sleep(0.02)


def carrier(config: dict[str, Any], number: int) -> None:
    rng = random.Random(f"{config['seed']} carrier {time.time_ns()}")
    journal = Path(config["journal"])
    router = read_router(config)
    fleet = Fleet(config["servers"], router, timeout=10.0)
    mover = RowSwitch(fleet, [ENTRIES], timeout=20.0)

    def told(document: dict[str, object]) -> None:
        write_router(config, document)

    with Path(config["logs"], "carrier.txt").open("a", encoding="utf-8", buffering=1) as log:
        while True:
            handover = None
            if journal.exists():
                try:
                    handover = Handover.resume(journal, mover, on_epoch=told)
                    log.write("resumed\n")
                except JournalError:
                    journal.unlink()
                    continue
            else:
                plan = router.plan_to(another(config, router, rng))
                if not len(plan):
                    continue
                handover = Handover(router, plan, mover, journal=journal, on_epoch=told, timeout=120.0)
            fleet.router = router = handover.router
            try:
                carry(handover, rng, log)
            except (FenceError, *fleet.database("db-1").errors) as error:
                log.write(f"failed {type(error).__name__} {error}\n")
                time.sleep(0.05)
                continue
            write_router(config, router.to_dict())
            journal.unlink()
            log.write("over\n")


def carry(handover: Handover, rng: random.Random, log: Any) -> None:
    """Run it to its end, some back before they are finished."""
    back = rng.random() < 0.25
    while True:
        status = handover.run()
        if status.awaits_finish:
            if back:
                back = False
                handover.reverse()
            else:
                handover.finish()
        elif status.over:
            log.write(f"moved {len(status.pieces)} pieces, {status.fraction:.0%}\n")
            return
        else:
            log.write("again\n")
            time.sleep(0.02)
            handover.retry()


def another(config: dict[str, Any], router: Router, rng: random.Random) -> Any:
    placement = router.placement
    if isinstance(placement, RangeMap):
        row = rng.choice(list(placement.rows))
        return placement.move(row.start, rng.choice(["db-1", "db-2"]))
    if isinstance(placement, Directory):
        tenant = rng.choice(keys_of(config))
        if placement.entry(tenant) is not None and rng.random() < 0.3:
            return placement.without_entries(tenant)
        return placement.with_entries({tenant: rng.choice(["db-1", "db-2"])})
    if len(placement.names) == 2:
        return placement.changed(remove=[rng.choice(["db-1", "db-2"])])
    return placement.changed(add=["db-1" if "db-2" in placement else "db-2"])


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    {"worker": worker, "carrier": carrier}[sys.argv[1]](settings, int(sys.argv[3]))

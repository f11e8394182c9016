"""Faults on a fleet: keys move to and fro between two databases while processes write and read through old routers.

    python tests/fleet/fleet_chaos.py --seconds 60 [--db sqlite] [--kind tenants] [--control]

Workers and the carrier are killed with SIGKILL and stopped with SIGSTOP for longer than a switch takes; PostgreSQL
servers are restarted at once; connections break after the COMMIT, before its answer. At the end every write that was
acknowledged must lie in the database of its owner, once; no reader may have missed one. `--control` takes the fence
away and must find both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "leases")]

from fleet_chaos_process import ENTRIES, keys_of  # noqa: E402
from proxy import Proxy  # noqa: E402

from ringhash import Directory, RangeMap, Ring, Router, Shards, assign  # noqa: E402
from ringhash.fleet import Fleet, RowSwitch  # noqa: E402
from ringhash.handover import Handover  # noqa: E402

NODES = ["db-1", "db-2"]
KINDS = ["ranges", "ring", "shards", "tenants"]


class Outcome(NamedTuple):
    """What a run found."""

    acknowledged: int
    lost: int
    double: int
    astray: int
    missed: int
    counts: Counter[str]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.double or self.astray or self.missed)


def placement_of(kind: str) -> Any:
    return {
        "ranges": lambda: RangeMap(
            [(None, "db-1"), ("k04", "db-2"), ("k08", "db-1"), ("k12", "db-2")], keys=str
        ),
        "ring": lambda: Ring(NODES, vnodes=4),
        "shards": lambda: assign(Shards(8), NODES),
        "tenants": lambda: Directory(Ring(NODES, vnodes=4), {"k03": "db-1", "k07": "db-2"}),
    }[kind]()


class Run:
    """One run: servers, processes, faults, and the reckoning."""

    def __init__(
        self, seconds: float, db: str, kind: str, fenced: bool, seed: int, workers: int = 4, moves: int = 0
    ) -> None:
        self.seconds, self.db, self.kind, self.fenced = seconds, db, kind, fenced
        self.random = random.Random(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="rh-chaos-", dir="/tmp"))
        self.servers: list[Any] = []
        self.proxies: list[Proxy] = []
        self.faults: Counter[str] = Counter()
        direct, clients = self._databases()
        self.config = {
            "seed": seed, "fenced": fenced, "keys": 16, "servers": direct, "clients": clients,
            "router": str(self.folder / "router.json"), "journal": str(self.folder / "journal.db"),
            "logs": str(self.folder / "logs"),
        }  # fmt: skip
        Path(self.config["logs"]).mkdir()
        (self.folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        self.workers = workers
        self._moves = moves  # goes on until there were as many, for a minute at most

    def _databases(self) -> tuple[dict[str, str], dict[str, str]]:
        if self.db == "sqlite":
            paths = {name: str(self.folder / f"{name}.db") for name in NODES}
            return paths, paths
        from postgres_server import PostgresServer

        direct, clients = {}, {}
        for name in NODES:
            server = PostgresServer()
            self.servers.append(server)
            beside = self.folder / name
            beside.mkdir()
            self.proxies.append(Proxy(server.folder, beside, 0.02, 0.002, self.random.randrange(1 << 30)))
            direct[name], clients[name] = server.address, server.address_by(beside)
        return direct, clients

    def run(self) -> Outcome:
        try:
            self._set_up()
            self._rage()
            return self._reckon()
        finally:
            for proxy in self.proxies:
                proxy.close()
            for server in self.servers:
                server.remove()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _set_up(self) -> None:
        router = Router(placement_of(self.kind))
        Path(self.config["router"]).write_text(json.dumps(router.to_dict()), encoding="utf-8")
        with Fleet(self.config["servers"], router) as fleet:
            fleet.install()
            for name in NODES:
                if self.db == "sqlite":
                    with fleet.database(name).connection() as connection:
                        connection.use_wal()  # type: ignore[attr-defined]
                with fleet.database(name).transaction(write=True) as tx:
                    tx.execute("CREATE TABLE entries (id TEXT PRIMARY KEY, tenant TEXT NOT NULL)")

    def _start(self, what: str, number: int) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{what}-{number}.err").open("ab")
        command = [
            sys.executable,
            str(HERE / "fleet_chaos_process.py"),
            what,
            str(self.folder / "config.json"),
            str(number),
        ]
        with log:
            return subprocess.Popen(command, stderr=log, stdout=log)

    def _rage(self) -> None:
        running = {("worker", number): self._start("worker", number) for number in range(self.workers)}
        running["carrier", 0] = self._start("carrier", 0)
        stopped: dict[tuple[str, int], float] = {}
        end = time.monotonic() + self.seconds
        try:
            while time.monotonic() < end or (time.monotonic() < end + 60 and self._moved() < self._moves):
                time.sleep(self.random.uniform(0.05, 0.25))
                for who, until in list(stopped.items()):
                    if time.monotonic() > until:
                        del stopped[who]
                        running[who].send_signal(signal.SIGCONT)
                for who, process in running.items():
                    if process.poll() is not None:
                        self.faults["ended by themselves"] += 1
                        running[who] = self._start(*who)
                dice = self.random.random()
                who = self.random.choice(list(running))
                if dice < 0.15:
                    self._kill(running, stopped, who)
                elif dice < 0.45 and who not in stopped:
                    running[who].send_signal(signal.SIGSTOP)
                    stopped[who] = time.monotonic() + self.random.uniform(0.1, 1.0)
                    self.faults["stopped"] += 1
                elif dice < 0.5 and self.servers and self.random.random() < 0.5:
                    server = self.random.choice(self.servers)
                    server.stop("immediate")
                    server.start()
                    self.faults["servers restarted"] += 1
        finally:
            for process in running.values():
                process.kill()
                process.wait()

    def _moved(self) -> int:
        carrier = Path(self.config["logs"], "carrier.txt")
        return carrier.read_text(encoding="utf-8").count("over\n") if carrier.exists() else 0

    def _kill(self, running: Any, stopped: dict[Any, float], who: tuple[str, int]) -> None:
        stopped.pop(who, None)
        running[who].kill()
        running[who].wait()
        running[who] = self._start(*who)
        self.faults["killed"] += 1

    def _reckon(self) -> Outcome:
        router = Router.from_dict(json.loads(Path(self.config["router"]).read_text(encoding="utf-8")))
        with Fleet(self.config["servers"], router, timeout=30.0) as fleet:
            journal = Path(self.config["journal"])
            if journal.exists():
                mover = RowSwitch(fleet, [ENTRIES])
                handover = Handover.resume(journal, mover)
                fleet.router = router = handover.router
                for _ in range(20):
                    status = handover.run()
                    if status.awaits_finish:
                        handover.finish()
                    elif status.over:
                        break
                    else:
                        handover.retry()
            found: dict[str, list[str]] = {}
            for name in fleet.names:
                with fleet.database(name).transaction(write=False) as tx:
                    for entry, _ in tx.execute("SELECT id, tenant FROM entries"):
                        found.setdefault(entry, []).append(name)
            return self._judge(router, found)

    def _judge(self, router: Router, found: dict[str, list[str]]) -> Outcome:
        counts: Counter[str] = Counter()
        acknowledged: dict[str, str] = {}
        owners: dict[str, str] = {}
        missed = 0
        for path in Path(self.config["logs"]).glob("*.log"):
            for line in path.read_text(encoding="utf-8").splitlines():
                words = line.split()
                if len(words) < 3:
                    continue  # killed in the middle of a line
                counts[words[0]] += 1
                if words[0] == "ack":
                    acknowledged[words[1]] = words[2]
                elif words[0] == "missed":
                    missed += int(words[1])
                if words[0] in ("try", "ack"):
                    owners[words[1]] = words[2]
        carrier = Path(self.config["logs"], "carrier.txt")
        for line in carrier.read_text(encoding="utf-8").splitlines() if carrier.exists() else ():
            counts[f"carrier {line.split()[0]}"] += 1
        lost = [entry for entry in acknowledged if entry not in found]
        double = [entry for entry, places in found.items() if len(places) > 1]
        astray = [
            entry for entry, places in found.items()
            if entry in owners and places != [router.owner(owners[entry])] and len(places) == 1
        ]  # fmt: skip
        assert set(owners.values()) <= set(keys_of(self.config))
        counts.update({f"fault: {name}": count for name, count in self.faults.items()})
        counts["fault: commits cut"] = sum(proxy.cut_commits for proxy in self.proxies)
        return Outcome(len(acknowledged), len(lost), len(double), len(astray), missed, counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--db", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--kind", choices=KINDS, default=None)
    parser.add_argument("--control", action="store_true", help="without the fence: must find faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else KINDS
    bad = 0
    for kind in kinds:
        outcome = Run(options.seconds / len(kinds), options.db, kind, not options.control, options.seed).run()
        print(f"{kind}: {outcome.acknowledged} writes acknowledged, {outcome.lost} lost, {outcome.double} in two places, "
              f"{outcome.astray} astray, {outcome.missed} missed by readers")  # fmt: skip
        print("   ", ", ".join(f"{name} {count}" for name, count in sorted(outcome.counts.items())))
        bad += outcome.clean == options.control
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    sys.exit(main())

"""The chaos run: real workers, a real database, and whatever can go wrong; then the history is checked.

    python tests/leases/chaos.py --seconds 60 [--db sqlite] [--no-fence] [--seed 7]

The faults: kill -9 and a start under the same name; SIGSTOP for longer than a ttl, wherever it hits, also in the
middle of a transaction; PostgreSQL stopped as by a crash, and started; connections cut after the server has done
the COMMIT (or anything else) and before its answer; workers whose clocks are an hour off.

The oracle is in the database: at each commit of a write it looks what epoch the shard has by then (PostgreSQL: a
deferred trigger; SQLite has one writer at a time, so in the transaction).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy import Proxy

from ringhash.leases import LeaseTable

HERE = Path(__file__).parent
_TABLES = """
CREATE TABLE IF NOT EXISTS chaos_state (grp text, shard bigint, n bigint, PRIMARY KEY (grp, shard));
CREATE TABLE IF NOT EXISTS chaos_log
    (grp text, shard bigint, n bigint, epoch bigint, worker text, current bigint);
CREATE TABLE IF NOT EXISTS chaos_claims (grp text, shard bigint, epoch bigint, owner text);
"""
_POSTGRES_TRIGGERS = """
CREATE OR REPLACE FUNCTION chaos_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chaos_log SET current = (SELECT l.epoch FROM ringhash_leases l WHERE l.grp = NEW.grp AND l.shard = NEW.shard)
    WHERE grp = NEW.grp AND shard = NEW.shard AND n = NEW.n;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION chaos_claimed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_claims VALUES (NEW.grp, NEW.shard, NEW.epoch, NEW.owner);
    RETURN NULL;
END $$;
CREATE INDEX IF NOT EXISTS chaos_log_n ON chaos_log (grp, shard, n);
DROP TRIGGER IF EXISTS chaos_at_commit ON chaos_log;
CREATE CONSTRAINT TRIGGER chaos_at_commit AFTER INSERT ON chaos_log DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION chaos_at_commit();
DROP TRIGGER IF EXISTS chaos_claimed ON ringhash_leases;
CREATE TRIGGER chaos_claimed AFTER UPDATE OF epoch ON ringhash_leases
    FOR EACH ROW EXECUTE FUNCTION chaos_claimed();
"""
_SQLITE_TRIGGERS = """
CREATE TRIGGER IF NOT EXISTS chaos_claimed AFTER UPDATE OF epoch ON ringhash_leases
BEGIN INSERT INTO chaos_claims VALUES (NEW.grp, NEW.shard, NEW.epoch, NEW.owner); END;
"""


@dataclass
class Report:
    writes: int = 0
    stale: int = 0
    claims: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    refused_by_database: int = 0
    converged_in: float = 0.0
    spread: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.writes} writes, {self.stale} of them stale; {self.claims} claims; "
            f"{self.refused_by_database} writes refused by the database alone, "
            f"{self.events['unknown']} of unknown outcome, {self.events['error']} errors; "
            f"converged in {self.converged_in:.2f} s to max - min {self.spread}\n"
            f"faults: {dict(self.faults)}\nproblems: {self.problems or 'none'}"
        )


class Chaos:
    def __init__(self, server: Any, *, fence: bool, seed: int, workers: int, shards: int, ttl: float) -> None:
        self.server = server  # None: SQLite
        self.random = random.Random(seed)
        self.fence = fence
        self.shards, self.ttl = shards, ttl
        self.group = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="ringhash-chaos-", dir="/tmp"))
        self.proxy: Proxy | None = None
        if server is None:
            self.db = self.worker_db = str(self.folder / "leases.db")
        else:
            self.db = server.address
            self.proxy = Proxy(server.folder, self.folder, commits=0.02, others=0.002, seed=seed)
            self.worker_db = server.address_by(self.folder)
        self.table = LeaseTable(self.db, shards, ttl, name=self.group)
        self.names = [f"worker-{i}" for i in range(workers)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped_until: dict[str, float] = {}
        self.report = Report()

    # --- the database ---

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        if self.server is None:
            connection: Any = sqlite3.connect(self.db, timeout=30, isolation_level=None)
        else:
            import psycopg

            connection = psycopg.connect(self.db, autocommit=True)
        try:
            yield connection
        finally:
            connection.close()

    def rows(self, sql: str) -> list[Any]:
        mark = "?" if self.server is None else "%s"
        with self.connection() as connection:
            return list(connection.execute(sql.replace("$", mark), (self.group,)).fetchall())

    def set_up(self) -> None:
        self.table.status()  # makes the tables
        with self.connection() as connection:
            if self.server is None:
                connection.executescript(_TABLES + _SQLITE_TRIGGERS)
            else:
                connection.execute(_TABLES + _POSTGRES_TRIGGERS)
            mark = "?" if self.server is None else "%s"
            for shard in range(self.shards):
                connection.execute(f"INSERT INTO chaos_state VALUES ({mark}, {mark}, 0)", (self.group, shard))

    # --- the workers ---

    def start(self, name: str) -> None:
        shift = self.random.choice([-3600, 0, 3600])
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.processes[name] = subprocess.Popen(
            [sys.executable, str(HERE / "chaos_worker.py"), self.worker_db, self.group, name, str(self.shards),
             str(self.ttl), str(int(self.fence)), str(shift), str(self.folder / f"{name}.log")],
            stdin=subprocess.PIPE, stderr=errors,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    # --- the faults ---

    def kill_and_start(self) -> None:
        name = self.random.choice(self.names)
        self.stopped_until.pop(name, None)
        self.kill(name)
        self.start(name)

    def stop(self) -> None:
        running = [name for name in self.names if name not in self.stopped_until]
        if len(running) > len(self.names) // 2:
            name = self.random.choice(running)
            os.kill(self.processes[name].pid, signal.SIGSTOP)
            self.stopped_until[name] = time.monotonic() + self.ttl * self.random.uniform(1.2, 2.0)

    def crash_database(self) -> None:
        if self.server is not None:
            self.server.stop("immediate")
            time.sleep(self.random.uniform(0.0, 0.4))
            self.server.start()

    def go_on(self, everybody: bool = False) -> None:
        now = time.monotonic()
        for name, until in list(self.stopped_until.items()):
            if everybody or until <= now:
                os.kill(self.processes[name].pid, signal.SIGCONT)
                del self.stopped_until[name]

    def run(self, seconds: float) -> Report:
        try:
            self.set_up()
            for name in self.names:
                self.start(name)
            self.wait_for_convergence(30 + 2 * self.ttl)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                fault = self.random.choices([self.kill_and_start, self.stop, self.crash_database], [3, 8, 1])[
                    0
                ]
                fault()
                self.report.faults[fault.__name__] += 1
                pause = time.monotonic() + self.random.uniform(0.1, 0.5)
                while time.monotonic() < pause:
                    self.go_on()
                    time.sleep(0.02)
            self.go_on(everybody=True)
            if self.proxy is not None:
                self.proxy.active = False
                self.report.faults["cut commits"] = self.proxy.cut_commits
                self.report.faults["cut others"] = self.proxy.cut_others
            self.report.converged_in = self.wait_for_convergence(2 * self.ttl + 10)
            self.finish()
            self.check()
        finally:
            self.end()
        return self.report

    def wait_for_convergence(self, limit: float) -> float:
        """All alive, every shard held by a worker that is there, max - min <= 1."""
        began = time.monotonic()
        while True:
            status = self.table.status()
            alive = [worker for worker in status.workers if worker.alive]
            self.report.spread = status.spread
            if (
                len(status.workers) == len(alive) == len(self.names)
                and not status.free
                and status.spread <= 1
            ):
                return time.monotonic() - began
            if time.monotonic() - began > limit:
                self.report.problems.append(f"no convergence in {limit:.1f} s:\n{status}")
                return limit
            time.sleep(0.02)

    def finish(self) -> None:
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for name, process in self.processes.items():
            if process.wait(10 + 2 * self.ttl):
                self.report.problems.append(f"{name} ended with {process.returncode}")

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self.table.close()
        if self.proxy is not None:
            self.proxy.close()
        if not self.report.problems:
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the history ---

    def check(self) -> None:
        report = self.report
        events = [
            json.loads(line) for path in self.folder.glob("*.log") for line in path.read_text().splitlines()
        ]
        report.events = Counter(event["event"] for event in events)
        report.refused_by_database = sum(event["event"] == "refused" and event["blind"] for event in events)
        writes = self.rows(
            "SELECT shard, n, epoch, worker, current FROM chaos_log WHERE grp = $ ORDER BY shard, n"
        )
        claims = self.rows("SELECT shard, epoch, owner FROM chaos_claims WHERE grp = $")
        report.writes, report.claims = len(writes), len(claims)

        holders: dict[tuple[int, int], set[str]] = defaultdict(set)
        for shard, epoch, owner in claims:
            holders[shard, epoch].add(owner)
        twice = Counter((shard, epoch) for shard, epoch, _ in claims)
        self.problem("granted twice", [grant for grant, times in twice.items() if times > 1])
        for event in events:
            holders[event["shard"], event["epoch"]].add(event["worker"])
        for shard, _, epoch, worker, _ in writes:
            holders[shard, epoch].add(worker)
        self.problem("two holders", [grant for grant, who in holders.items() if len(who) > 1])

        stale = [(shard, n, epoch, current) for shard, n, epoch, _, current in writes if current != epoch]
        newest: dict[int, int] = {}
        for shard, n, epoch, _, _ in writes:
            if epoch < newest.get(shard, 0):
                stale.append((shard, n, epoch, newest[shard]))
            newest[shard] = max(epoch, newest.get(shard, 0))
        report.stale = len({(shard, n) for shard, n, _, _ in stale})
        if self.fence:
            self.problem("stale writes", stale)

        # What was written is what the workers were told, but for the outcomes nobody knows.
        written = Counter((shard, epoch) for shard, _, epoch, _, _ in writes)
        told = Counter((event["shard"], event["epoch"]) for event in events if event["event"] == "wrote")
        self.problem("told of a write that is not there", [g for g, n in told.items() if n > written[g]])

    def problem(self, what: str, which: list[Any]) -> None:
        if which:
            self.report.problems.append(f"{what}: {len(which)}, such as {which[:3]}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--db", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument(
        "--no-fence", action="store_true", help="the negative control: must find stale writes"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--ttl", type=float, default=1.5)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    server = None
    if options.db == "postgres":
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from postgres_server import PostgresServer

        server = PostgresServer()
    try:
        chaos = Chaos(
            server, fence=not options.no_fence, seed=seed,
            workers=options.workers, shards=options.shards, ttl=options.ttl,
        )  # fmt: skip
        report = chaos.run(options.seconds)
    finally:
        if server is not None:
            server.remove()
    print(report)
    if options.no_fence:
        return int(report.stale == 0)
    late = report.converged_in > 2 * options.ttl
    return int(bool(report.problems) or late or report.stale > 0)


if __name__ == "__main__":
    sys.exit(main())

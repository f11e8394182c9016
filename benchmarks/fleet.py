"""What a fenced write costs beside the same transaction on a bare pool: python -m benchmarks.fleet

A PostgreSQL server of its own, ratios within one run, medians of many rounds, by turns: over a socket of
this machine, and over a wire that takes half a millisecond each way. Needs PostgreSQL and the extra `fleet`.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg_pool

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from postgres_server import PostgresServer

from ringhash import Ring, Router
from ringhash.fleet import Fleet, set_fence

EACH = 40
_INSERT = "INSERT INTO orders (tenant) VALUES (%s)"


class Wire:
    """Passes bytes on to a server's socket, each part after `delay` seconds; counts those of clients."""

    def __init__(self, server: Path, folder: Path, delay: float) -> None:
        self._server, self._delay = server / ".s.PGSQL.5432", delay
        self.requests = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.requests += counted
                time.sleep(self._delay)
                target.sendall(data)


def timed(what: Callable[[str], None], keys: list[str]) -> float:
    began = time.perf_counter()
    for key in keys:
        what(key)
    return (time.perf_counter() - began) / len(keys)


def measure(name: str, address: str, rounds: int, wire: Wire | None = None) -> None:
    router = Router(Ring(["db-1"]))
    with (
        Fleet({"db-1": address}, router) as fleet,
        psycopg_pool.ConnectionPool(address, min_size=1, max_size=1, open=True) as pool,
    ):

        def bare(key: str) -> None:
            with pool.connection() as connection:
                connection.execute(_INSERT, [key])

        def fenced(key: str) -> None:
            with fleet.write(key) as tx:
                tx.execute(_INSERT, [key])

        keys = [f"tenant-{i}" for i in range(EACH)]
        timed(bare, keys)
        timed(fenced, keys)
        pairs = [(timed(bare, keys), timed(fenced, keys)) for _ in range(rounds)]
        one = statistics.median(bare for bare, _ in pairs)
        other = statistics.median(fenced for _, fenced in pairs)
        ratio = statistics.median(fenced / bare for bare, fenced in pairs)
        print(f"{name}: bare {one * 1e6:.0f} us, fenced {other * 1e6:.0f} us, {ratio:.2f} times", end="")
        if wire is not None:
            trips = []
            for what in (bare, fenced):
                before = wire.requests
                timed(what, keys)
                trips.append((wire.requests - before) / EACH)
            print(f"; round trips {trips[0]:.0f} and {trips[1]:.0f}", end="")
        print()


def main() -> None:
    server = PostgresServer(fsync="on")
    try:
        with Fleet({"db-1": server.address}, Router(["db-1"])) as fleet:
            fleet.install()
            with fleet.database("db-1").transaction(write=True) as tx:
                tx.execute("CREATE TABLE orders (id serial PRIMARY KEY, tenant text NOT NULL)")
                low = [(i << 20).to_bytes(8, "big") for i in range(1, 1000)]  # ranges have come and gone
                set_fence(tx, [(one, one + b"\0") for one in low], "gone", "db-9", 1)
        measure("this machine", server.address, 60)
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            wire = Wire(server.folder, Path(folder), 0.0005)
            measure("a wire of 1 ms there and back", server.address_by(Path(folder)), 10, wire)
    finally:
        server.remove()


if __name__ == "__main__":
    main()

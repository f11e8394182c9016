"""A cluster on this machine: a front, gateways, clients. A gateway joins, one is killed, and nobody notices.

make gateway                     with a live view
python gateways.py --clients 2000 --nodes 5
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from sessions import Client, FrontDoor

from ringhash import Router

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Starts the processes, and ends those that it started."""

    def __init__(self, nodes: int, scripts: Path = HERE) -> None:
        self.scripts = scripts
        self.names = [f"gw-{i}" for i in range(1, nodes + 1)]
        self.http, self.control = free_port(), free_port()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.clients: list[Client] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.begin = time.time()

    async def __aenter__(self) -> Self:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        journal = str(Path(self.folder.name) / "handover.sqlite")
        front = self.start("front", str(self.http), str(self.control), ",".join(self.names), journal)
        assert front.stdout is not None
        ready = await asyncio.to_thread(front.stdout.readline)
        assert ready == "ready\n", ready
        self.front = FrontDoor(self.http)
        for name in self.names:
            self.start_gateway(name)
        await self.there(*self.names)
        return self

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        script = self.scripts / ("front.py" if name == "front" else "gateway.py")
        argv = [sys.executable, str(script), *arguments]
        self.processes[name] = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        return self.processes[name]

    def start_gateway(self, name: str) -> None:
        self.start(name, name, str(self.control))

    async def there(self, *names: str) -> None:
        async with asyncio.timeout(20):
            while not set(names) <= set(await self.front("ports")):
                await asyncio.sleep(0.05)

    async def router(self) -> Router:
        return Router.from_dict(await self.front("router"))

    async def connect(self, count: int, every: float) -> None:
        """Let clients come in, a few at a time, and wait until all are there."""
        for i in range(count):
            client = Client(f"session-{i}", self.front, every)
            self.clients.append(client)
            self.tasks.append(asyncio.ensure_future(client.run()))
            if i % 20 == 19:
                await asyncio.sleep(0.02)
        await self.settled()

    async def settled(self, seconds: float = 40) -> None:
        async with asyncio.timeout(seconds):
            while any(client.node is None for client in self.clients):
                await asyncio.sleep(0.05)

    async def join(self, name: str) -> dict[str, Any]:
        """Start one more gateway and let the front hand sessions over to it; return the plan."""
        self.start_gateway(name)
        await self.there(name)
        plan = (await self.router()).plan(add=[name]).to_dict()
        await self.front("plan", plan)
        return plan

    async def over(self, seconds: float = 40) -> None:
        async with asyncio.timeout(seconds):
            while not (await self.front("status"))["over"]:
                await asyncio.sleep(0.05)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    async def __aexit__(self, *exception: object) -> None:
        for client in self.clients:
            client.stopping = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.front.close()
        for process in reversed(self.processes.values()):  # the front last, so that nobody misses it
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.folder.cleanup()


# --- the live view ---


class View:
    """A table that is drawn again and again on a terminal, and a line a second elsewhere."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.says = cluster, "clients come in"
        self.plain = not sys.stdout.isatty()

    async def run(self) -> None:
        if self.plain:
            while True:
                print(await self.line(), flush=True)
                await asyncio.sleep(1)
        from rich.live import Live  # noqa: PLC0415 - only for a terminal

        with Live(refresh_per_second=8) as live:
            while True:
                live.update(await self.table())
                await asyncio.sleep(0.2)

    def reconnects(self) -> int:
        now = time.time()
        return sum(len(c.connects) > 1 and c.connects[-1][0] > now - 1 for c in self.cluster.clients)

    async def line(self) -> str:
        stats = await self.cluster.front("stats")
        held = "  ".join(f"{name} {it['sessions']:>4}" for name, it in sorted(stats.items()))
        clients = self.cluster.clients
        faults = sum(len(c.faults) for c in clients)
        acked = sum(c.acked for c in clients)
        return (
            f"{time.time() - self.cluster.begin:5.1f} s  {held}  reconnects/s {self.reconnects():>3}  "
            f"messages {acked:,}  faults {faults}  {self.says}"
        )

    async def table(self) -> Any:
        from rich.table import Table  # noqa: PLC0415

        stats = await self.cluster.front("stats")
        status = (await self.cluster.front("status"))["text"]
        clients = self.cluster.clients
        table = Table(title=self.says, caption=status, min_width=76)
        table.add_column("gateway")
        table.add_column("sessions", justify="right")
        table.add_column("", width=40)
        table.add_column("epoch", justify="right")
        most = max([it["sessions"] for it in stats.values()] or [1]) or 1
        for name, it in sorted(stats.items()):
            bar = "█" * round(40 * it["sessions"] / most)
            table.add_row(name, str(it["sessions"]), bar, str(it["epoch"]))
        table.add_section()
        table.add_row("reconnects a second", str(self.reconnects()))
        table.add_row("messages confirmed", f"{sum(c.acked for c in clients):,}")
        table.add_row("lost, doubled or out of order", str(sum(len(c.faults) for c in clients)))
        return table


async def show(clients: int, nodes: int) -> int:
    async with Cluster(nodes) as cluster:
        view = View(cluster)
        viewing = asyncio.ensure_future(view.run())
        try:
            await cluster.connect(clients, 1.0)
            await asyncio.sleep(2)
            new = f"gw-{nodes + 1}"
            view.says = f"{new} joins: sessions are handed over in waves"
            await cluster.join(new)
            await cluster.over()
            await cluster.settled()
            view.says = "all are where the plan wants them"
            await asyncio.sleep(2)
            view.says = "gw-2 is killed: its clients come back, spread by backoff"
            cluster.kill("gw-2")
            await asyncio.sleep(1)
            await cluster.settled()
            view.says = "all are back"
            await asyncio.sleep(3)
        finally:
            viewing.cancel()
            await asyncio.gather(viewing, return_exceptions=True)
        faults = [fault for client in cluster.clients for fault in client.faults]
        reconnected = sum(len(client.connects) > 1 for client in cluster.clients)
        print(f"{reconnected} of {clients} clients reconnected; faults: {faults or 'none'}")
        return len(faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=5)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(bool(asyncio.run(show(arguments.clients, arguments.nodes))))

"""The balancer and five backends under load, in a live table: `make balancer`.

A third of the way a backend is killed, and at two thirds it is started again. Watch its sessions go to the
others and come back, while those of the others stay where they are.
"""

import argparse
import asyncio
import time
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import aiohttp
from cluster import Cluster, running
from rich.live import Live
from rich.table import Table

SESSIONS = [f"user-{i}" for i in range(400)]
WORKERS = 40


class Load:
    """Clients that ask as fast as they are answered, and what they saw."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.sessions: dict[str, str] = {}
        self.first: dict[str, str] = {}
        self.moved: defaultdict[str, set[str]] = defaultdict(set)
        self.failed = 0

    async def run(self, client: aiohttp.ClientSession, url: str, worker: int) -> None:
        number = worker
        while True:
            session = SESSIONS[number % len(SESSIONS)]
            number += WORKERS
            async with client.get(url, headers={"X-Session": session}) as answer:
                if answer.status != 200:
                    self.failed += 1
                    continue
                backend = answer.headers["X-Backend"]
            self.answers[backend] += 1
            self.sessions[session] = backend
            if self.first.setdefault(session, backend) != backend:
                self.moved[self.first[session]].add(session)

    def table(self, ring: dict[str, Any], rates: dict[str, float], title: str) -> Table:
        table = Table(title=title)
        for name in (
            "backend",
            "",
            "share of keys",
            "in flight",
            "requests/s",
            "sessions",
            "of its sessions moved",
        ):
            table.add_column(
                name, justify="left" if name in {"backend", ""} else "right", no_wrap=name == "backend"
            )
        now = Counter(self.sessions.values())
        for node in ring["nodes"]:
            name = node["name"]
            state = "[red]down[/]" if node["down"] else "[green]up[/]"
            cells = f"{node['share']:.1%}", f"{node['held']}", f"{rates[name]:.0f}", f"{now[name]}"
            table.add_row(name, state, *cells, f"{len(self.moved[name])}")
        report = ring["loads"]
        table.caption = (
            f"{self.answers.total()} answers, {self.failed} failed; peak to mean {ring['peak_to_mean']:.2f}; "
            f"{report['elsewhere']} sent elsewhere, epoch {ring['epoch']}"
        )
        return table


async def watch(cluster: Cluster, seconds: float) -> None:
    load, began = Load(), time.monotonic()
    victim = list(cluster.backends)[1]
    schedule = [
        (seconds / 3, cluster.kill_backend, "killed"),
        (seconds * 2 / 3, cluster.restart_backend, "started again"),
    ]
    title, last = "all up", Counter[str]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        workers = [asyncio.create_task(load.run(client, cluster.url, i)) for i in range(WORKERS)]
        with Live(refresh_per_second=4) as live:
            while (now := time.monotonic() - began) < seconds:
                if schedule and now > schedule[0][0]:
                    _, action, what = schedule.pop(0)
                    await asyncio.to_thread(action, victim)
                    title = f"{victim} was {what}"
                await asyncio.sleep(0.5)
                async with client.get(f"{cluster.admin}/ring") as answer:
                    ring = await answer.json()
                rates = {
                    node["name"]: (load.answers[node["name"]] - last[node["name"]]) / 0.5
                    for node in ring["nodes"]
                }
                last = load.answers.copy()
                live.update(load.table(ring, rates, title))
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument(
        "--factor", type=float, default=5.0, help="try 1.25: then full backends pass sessions on"
    )
    options = parser.parse_args()
    with suppress(KeyboardInterrupt), running(5, work=0.01, factor=options.factor, interval=0.3) as cluster:
        asyncio.run(watch(cluster, options.seconds))


if __name__ == "__main__":
    main()

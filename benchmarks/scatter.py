"""Scatters as ratios to what one would write by hand: `python -m benchmarks.scatter`.

Each pair runs in turns, so that a slow moment of the machine falls on both; the medians of the ratios are
told. The overshoot of deadlines and the tail with slow shards are told in milliseconds, as they are of this
machine and its load."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import statistics
import threading
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from ringhash.scatter import By, Hedge, Merger, Order, Scatter, ScatterError

STREAMS, ROWS = 16, 100_000
WIDTH = 64
RUNS = 400


def paired(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> float:
    """The median of the ratios of their CPU times."""
    ratios = []
    for turn in range(rounds):
        spent = {}
        for run in (one, other) if turn % 2 else (other, one):
            start = time.process_time()
            run()
            spent[run] = time.process_time() - start
        ratios.append(spent[one] / spent[other])
    return statistics.median(ratios)


def merged(order: Order, runs: list[list[Any]], block: int = 1024) -> int:
    merger = Merger(order, [str(i) for i in range(len(runs))])
    places = [0] * len(runs)
    count = 0
    while not merger.over:
        for i in merger.hungry:
            rows = runs[i][places[i] : places[i] + block]
            places[i] += block
            if rows:
                merger.feed(i, rows)
            else:
                merger.end(i)
        count += len(merger.take())
    return count


def merging() -> None:
    rng = random.Random(1)
    kinds: dict[str, tuple[Order, Callable[[int], Any]]] = {
        "integers": (Order(0), lambda _: rng.randrange(10**9)),
        "text": (Order(By(0, collation="C")), lambda _: f"{rng.randrange(10**9):012}"),
        "integers, descending": (Order(By(0, descending=True)), lambda _: rng.randrange(10**9)),
        "integers, one in ten NULL": (
            Order(By(0, nulls="last")),
            lambda n: None if n % 10 == 0 else rng.randrange(10**9),
        ),
        "two columns": (Order([0, 1]), lambda _: rng.randrange(1000)),
    }
    for name, (order, make) in kinds.items():
        nulls = "NULL" in name
        key: Any = order.key if nulls else order.values
        down = order.descending
        runs = [
            sorted(((make(n), n, i) for n in range(ROWS)), key=key, reverse=down and not nulls)
            for i in range(STREAMS)
        ]

        def by_hand(runs: Any = runs, key: Any = key, down: bool = down) -> int:
            return sum(1 for _ in heapq.merge(*runs, key=key, reverse=down))

        ratio = paired(lambda order=order, runs=runs: merged(order, runs), by_hand, 3)
        print(f"merge of {STREAMS} x {ROWS:,} rows, {name}: {ratio:.2f} of heapq.merge (at most 0.6)")
    runs = [sorted((rng.randrange(10**9), i) for _ in range(ROWS)) for i in range(STREAMS)]

    def first_rows() -> None:
        rows = {str(i): run for i, run in enumerate(runs)}
        list(Scatter(lambda ask: rows[ask.node], list(rows)).merge(0, limit=50))

    def flattened() -> None:
        sorted((row for run in runs for row in run), key=itemgetter(0))[:50]

    print(
        f"the first 50 rows of them: {paired(first_rows, flattened, 3):.3f} of flatten and sort (at most 0.5)"
    )


async def _served(body: Callable[[int], Any]) -> Any:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the loop ends first
            while await reader.readline():
                writer.write(b"answer\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        return await body(server.sockets[0].getsockname()[1])


def fan_out() -> None:
    async def measure(port: int) -> tuple[float, float]:
        streams = {f"n{i}": await asyncio.open_connection("127.0.0.1", port) for i in range(WIDTH)}

        async def ask(node: str) -> bytes:
            reader, writer = streams[node]
            writer.write(b"question\n")
            return await reader.readline()

        async def bare() -> None:
            await asyncio.gather(*map(ask, streams))

        sockets = Scatter(lambda it: ask(it.node), list(streams), limit=WIDTH, deadline=10)

        async def nothing(_: str) -> None:
            await asyncio.sleep(0)

        async def bare_nothing() -> None:
            await asyncio.gather(*map(nothing, streams))

        empty = Scatter(lambda it: nothing(it.node), list(streams), limit=WIDTH, deadline=10)
        found = []
        for one, other in ((sockets.arun, bare), (empty.arun, bare_nothing)):
            ratios = []
            for turn in range(201):
                spent = {}
                for run in (one, other) if turn % 2 else (other, one):
                    start = time.perf_counter()
                    await run()
                    spent[run] = time.perf_counter() - start
                ratios.append(spent[one] / spent[other])
            found.append(statistics.median(ratios))
        for _, writer in streams.values():
            writer.close()
        return found[0], found[1]

    sockets, empty = asyncio.run(_served(measure))
    print(f"scatter over {WIDTH} loopback sockets: {sockets:.2f} of asyncio.gather (at most 1.3)")
    print(f"scatter over {WIDTH} calls that do nothing: {empty:.2f} of asyncio.gather")


def overshoot() -> None:
    forever = threading.Event()

    def late(_: Any) -> None:
        forever.wait()

    async def late_async(_: Any) -> None:
        await asyncio.sleep(3600)

    times: dict[str, list[float]] = {"threads": [], "tasks": []}
    for _ in range(30):
        for how, late_by in times.items():
            start = time.perf_counter()
            try:
                if how == "threads":
                    Scatter(late, [f"n{i}" for i in range(16)], deadline=0.05).run()
                else:
                    asyncio.run(Scatter(late_async, [f"n{i}" for i in range(WIDTH)], deadline=0.05).arun())
            except ScatterError:
                late_by.append(1000 * (time.perf_counter() - start - 0.05))
    forever.set()
    for how, over in times.items():
        middle, most = statistics.median(over), max(over)
        print(f"deadline with {how}: {middle:.2f} ms late at the median, {most:.2f} at most (at most 10)")


def tail() -> None:
    """64 parts, each with a node and a replica; a node is slow in 1 call of 100, 100 times as slow."""

    async def measure(hedge: Hedge | None) -> tuple[float, float, float]:
        rng = random.Random(3)

        async def call(ask: Any) -> None:
            slow = ask.node == ask.part and rng.random() < 0.01
            await asyncio.sleep(0.5 if slow else 0.005 + 0.001 * rng.random())

        names = [f"n{i}" for i in range(WIDTH)]
        scatter = Scatter(call, names, limit=2 * WIDTH, replicas={n: [f"{n}-b"] for n in names}, hedge=hedge)
        times, calls = [], 0
        for _ in range(RUNS):
            start = time.perf_counter()
            coverage = (await scatter.arun()).coverage
            times.append(time.perf_counter() - start)
            calls += coverage.calls
        times = sorted(times[10:])
        return statistics.median(times), times[int(0.99 * len(times))], calls / (RUNS * WIDTH) - 1

    p50, p99, _ = asyncio.run(measure(None))
    print(f"1 call in 100 slow, {WIDTH} parts: p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms")
    p50, p99, more = asyncio.run(measure(Hedge(quantile=0.97, budget=0.05)))
    print(
        f"  with hedges: p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f}: {p99 / p50:.2f} x p50 (at most 2), "
        f"{more:.1%} more calls (at most 5)"
    )


if __name__ == "__main__":
    fan_out()
    overshoot()
    tail()
    merging()

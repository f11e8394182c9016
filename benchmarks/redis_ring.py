"""What the ring of Redis servers costs beside a bare client: python -m benchmarks.redis_ring

Servers of its own, ratios within one run, medians of many rounds. Needs redis-server and the extra `redis`.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from ringhash.contrib.redis import Ring

ROUNDS = 40


@contextmanager
def servers(count: int) -> Iterator[dict[str, str]]:
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("there is no redis-server here")
    with tempfile.TemporaryDirectory() as folder:
        started = []
        urls = {}
        try:
            for i in range(count):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                place = Path(folder) / str(i)
                place.mkdir()
                words = [
                    program,
                    "--port",
                    str(port),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ]
                started.append(subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL))
                urls[f"node-{i}"] = f"redis://127.0.0.1:{port}"
            for url in urls.values():
                with redis.Redis.from_url(url) as client:
                    while True:
                        try:
                            client.ping()
                            break
                        except redis.ConnectionError:
                            time.sleep(0.01)
            yield urls
        finally:
            for process in started:
                process.terminate()
                process.wait()


def medians(one: Callable[[], object], other: Callable[[], object], number: int) -> tuple[float, float]:
    """Seconds of one call of each, taken in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for work, times in zip((one, other), found, strict=True):
            start = time.perf_counter()
            for _ in range(number):
                work()
            times.append((time.perf_counter() - start) / number)
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    with servers(4) as urls, Ring(urls) as ring:
        client = ring.client_for("key")
        ring.set("key", "value")
        bare, ours = medians(lambda: client.get("key"), lambda: ring.get("key"), 200)
        more = (ours - bare) * 1e6
        print(f"get            {bare * 1e6:8.1f} us bare {ours * 1e6:8.1f} us ring  {ours / bare:.3f} x")
        print(f"               which is {more:+.2f} us a call")
        routing, _ = medians(
            lambda: ring.routes.target(("GET", "key"), ring.routes.keys(("GET", "key"))), int, 2000
        )
        print(f"routing alone  {routing * 1e6:8.2f} us")
        keys = [f"k{i}" for i in range(100)]
        ring.mset(dict.fromkeys(keys, "value"))
        client.mset(dict.fromkeys(keys, "value"))
        bare, ours = medians(lambda: client.mget(keys), lambda: ring.mget(keys), 20)
        print(f"mget of 100    {bare * 1e6:8.1f} us bare {ours * 1e6:8.1f} us ring  {ours / bare:.3f} x")
        pipe = ring.pipeline()
        for i in range(1000):
            pipe.get(f"k{i}")
        calls = pipe._stack
        split, _ = medians(lambda: ring._stack(calls), int, 5)
        print(f"a pipeline of 1,000 is split in {split * 1e3:.2f} ms")


if __name__ == "__main__":
    main()

"""How fast data is looked at: python -m benchmarks.analysis [--small]

Figures beside their bounds: a column of integers against `numpy.unique`, by turns and as medians; the growth
of the memory of a process that reads a stream (Linux); statements of a log; and a comparison of eight
policies. `--small` takes a tenth of everything, to see that it runs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ringhash.analysis import Queries, analyze
from ringhash.analysis.compare import (
    Bounded,
    Direct,
    Dynamic,
    Fixed,
    Modulo,
    PerNode,
    Policy,
    RingPolicy,
    Trace,
    compare,
)

ROUNDS = 5
POLICIES: list[Policy] = [
    Modulo(), RingPolicy(), Fixed(480), Fixed(4096), Dynamic(), PerNode(), Direct(), Bounded()
]  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def column(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """Return the time of `analyze` by that of `numpy.unique`, the median of rounds taken by turns."""
    ratios = []
    for _ in range(ROUNDS):
        plain = seconds(lambda: np.unique(keys, return_counts=True))
        ratios.append(seconds(lambda: analyze({"k": keys}, ["k"])) / plain)
    return statistics.median(ratios)


def columns(rows: int) -> Iterator[tuple[str, float]]:
    """Yield columns of integers by name, with what `column` says of each."""
    random = np.random.default_rng(1)
    ids = random.integers(0, rows // 10, rows)
    yield "a power law of ids", column(random.zipf(1.2, rows) % (rows // 10))
    yield "even ids", column(ids)
    yield "even numbers of 64 bits", column(ids * 977_000_001)


def streamed(rows: int, kind: str) -> None:
    """In a process of its own: read rows that are made as they are read, and print MiB of growth."""

    def some(count: int) -> Iterator[dict[str, object]]:
        for i in range(count):
            yield {"k": f"user:{i * 7919 % count}" if kind == "distinct" else i % 1000, "at": i}

    analyze(some(1000), ["k"], order="at")
    before = peak()
    analyze(some(rows), ["k"], order="at")
    print(peak() - before)


def peak() -> float:
    """Return the most memory that this process has had, in MiB; `ru_maxrss` has that of its parent, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def growth(rows: int, kind: str) -> float:
    """Return by how many MiB a process grows that reads a stream."""
    command = [sys.executable, "-m", "benchmarks.analysis", "--stream", str(rows), kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def statements(count: int) -> float:
    """Return how long the statements of three shapes take."""
    made = [
        (
            f"SELECT * FROM orders WHERE customer_id = {i} AND total > {i * 3}",
            f"UPDATE orders SET total = {i} WHERE id = {i}",
            f"SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer WHERE c.id IN ({i}, {i + 1})",
        )[i % 3]
        for i in range(count)
    ]
    return statistics.median(seconds(lambda: Queries(made).align("customer_id")) for _ in range(3))


def comparison(keys: int, steps: int) -> float:
    """Return how long eight policies take for four rows a key."""
    random = np.random.default_rng(2)
    drawn = np.concatenate([np.arange(keys), random.zipf(1.3, 3 * keys) % keys])
    trace = Trace(random.permutation(drawn), np.sort(random.integers(0, steps, len(drawn))))
    return seconds(lambda: compare(trace, [(0, 4), (0.5, 6), (0.8, 5)], POLICIES))


def main() -> None:
    """Print every figure beside its bound."""
    if sys.argv[1:2] == ["--stream"]:
        streamed(int(sys.argv[2]), sys.argv[3])
        return
    part = 10 if "--small" in sys.argv else 1
    for name, ratio in columns(10_000_000 // part):
        print(f"{10_000_000 // part:,} rows, {name}: {ratio:.2f} x numpy.unique (bound 2)", flush=True)
    for kind in ("few", "distinct"):
        for rows in (1_000_000 // part, 4_000_000 // part):
            print(
                f"a stream of {rows:,} rows, {kind} keys: {growth(rows, kind):.1f} MiB more (bound 64)",
                flush=True,
            )
    print(f"{100_000 // part:,} statements: {statements(100_000 // part):.2f} s (bound 2)", flush=True)
    keys = 1_000_000 // part
    print(f"{keys:,} keys, 1,000 steps, 8 policies: {comparison(keys, 1000):.1f} s (bound 60)")


if __name__ == "__main__":
    main()

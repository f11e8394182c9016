"""All that the page tells, measured. The result is plain data: the page can be written again from it."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases, exact, memory, peers
from benchmarks.cases import SIZES, YARDSTICK
from benchmarks.timing import LOOP, Case, Times, interleaved
from ringhash import Ring, Router
from ringhash.balance.sizing import expected_peak

PEER_SIZES = (10, 100, 1000)
MOVED_NODES = 100
MOVED_KEYS = 20_000
PEAK_NODES = (10, 100, 1000)
GRID_NODES = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
GRID_VNODES = (40, 160, 400)
MOST_POINTS = 100_000 * 160

Results = dict[str, Any]


def everything(say: Callable[[str], None]) -> Results:
    """Measure it all; minutes, of which the peers take the most."""
    results: Results = {"machine": machine()}
    for name, part in (
        ("lookups", lookups),
        ("peer_lookups", peer_lookups),
        ("changes", changes),
        ("peer_changes", peer_changes),
        ("memory", memories),
        ("vnodes", vnodes),
        ("peaks", peaks),
        ("moved", moved),
        ("grid", grid),
        ("import_ms", import_ms),
    ):
        began = time.monotonic()
        results[name] = part()
        say(f"{name}: {time.monotonic() - began:.0f} s")
    return results


def machine() -> Results:
    """Where and with what."""
    versions = {"ringhash": importlib.metadata.version("ringhash"), "numpy": np.__version__}
    versions["xxhash"] = importlib.metadata.version("xxhash")
    if cases.arrow_keys() is not None:
        versions["pyarrow"] = importlib.metadata.version("pyarrow")
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": versions,
        "peers": {peer.label: peer.version() for peer in peers.here()},
        "missing": {peer.label: peer.missing() for peer in peers.ALL if peer.missing()},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "unknown"


def lookups() -> Results:
    """Of each size of ring: every way to ask, and the floor, all in the same rounds."""
    return {str(nodes): _lookups(nodes) for nodes in SIZES}


def _lookups(nodes: int) -> Results:
    ring = cases.ring_of(nodes)
    all_cases = {
        **cases.floor(),
        **cases.lookups(ring),
        **cases.batches(ring),
        "numpy.searchsorted": cases.searchsorted(ring),
    }
    times = interleaved(all_cases, 31)
    return {
        "loop_ns": times.loop_ns,
        "ns": {name: times.ns(name) for name in all_cases if name != LOOP},
        "yardsticks": {name: times.ratio(name, YARDSTICK) for name in all_cases if name != LOOP},
        "router_to_ring": times.ratio("router.owner(str)", "owner(str)"),
        "owners_to_owner": times.ratio("owners(str, 3)", "owner(str)"),
        "searchsorted_to_index_many": times.ratio("numpy.searchsorted", "index_many(uint64 array)"),
    }


def peer_lookups() -> Results:
    """The peers, and ours once more, in the same rounds. Their rings are so large that with many nodes each
    drives the others out of the cache: what a lookup costs when the program does other things as well."""
    found: Results = {}
    for nodes in SIZES:
        ring = cases.ring_of(nodes)
        all_cases = cases.floor()
        all_cases["ringhash"] = cases.looped(ring.owner, cases.text_keys())
        all_cases["ringhash, batch"] = cases.batch(ring.owner_many, cases.text_keys())
        for kind in peers.here():
            peer = kind(cases.names(nodes))
            keys = cases.fitting(peer.owner, cases.text_keys())
            all_cases[peer.label] = cases.looped(peer.owner, keys)
            if peer.many is not None:
                all_cases[f"{peer.label}, batch"] = cases.batch(peer.many, cases.text_keys())
        times = interleaved(all_cases, 21)
        found[str(nodes)] = {
            "ns": {name: times.ns(name) for name in all_cases if name != LOOP},
            "yardsticks": {name: times.ratio(name, YARDSTICK) for name in all_cases if name != LOOP},
        }
    return found


def changes() -> Results:
    """Of each size of ring: build, one node more, one less; beside numpy's sort and copy."""
    found = {}
    for nodes in SIZES:
        rounds = 41 if nodes <= 1000 else 15
        churn, building = cases.churn(cases.ring_of(nodes)), cases.building(nodes)
        # Apart, since a large array freed in between gives the heap back to the system.
        changed, built = interleaved(churn, rounds), interleaved(building, rounds)
        found[str(nodes)] = {
            "us": {
                **{name: built.ns(name) / 1e3 for name in building},
                **{name: changed.ns(name) / 1e3 for name in churn},
            },
            "build_to_sort": built.ratio("build", "numpy.sort"),
            "add_to_copy": changed.ratio("add one node", "copy of the arrays"),
            "remove_to_copy": changed.ratio("remove one node", "copy of the arrays"),
        }
    return found


def peer_changes() -> Results:
    """The same of the peers, whose changes come without a plan."""
    found: Results = {}
    for nodes in PEER_SIZES:
        members = cases.names(nodes)
        all_cases: dict[str, Case] = {}
        for kind in peers.here():
            all_cases[f"{kind.label}/build"] = Case(partial(kind, members))
            for name, case in _peer_churn(kind(members)).items():
                all_cases[f"{kind.label}/{name}"] = case
        times = interleaved(all_cases, 9)
        found[str(nodes)] = {name: times.ns(name) / 1e3 for name in all_cases}
    return found


def _peer_churn(peer: peers.Peer) -> dict[str, Case]:
    present = False

    def bring(there: bool) -> None:
        nonlocal present
        if there != present:
            (peer.add if there else peer.remove)("one-more")
            present = there

    def add() -> None:
        nonlocal present
        peer.add("one-more")
        present = True

    def remove() -> None:
        nonlocal present
        peer.remove("one-more")
        present = False

    return {
        "add": Case(add, before=lambda: bring(there=False)),
        "remove": Case(remove, before=lambda: bring(there=True)),
    }


def memories() -> Results:
    """Bytes a point of ours, traced; and what fresh processes grow by for 1,000 nodes, of all."""
    labels = ["ringhash", *(peer.label for peer in peers.here())]
    return {
        "bytes_a_point": {str(nodes): memory.traced(nodes) for nodes in SIZES},
        "resident": {label: memory.resident(label, 1000) for label in labels},
    }


def vnodes() -> Results:
    """100 nodes with each number of virtual nodes, looked up in the same rounds."""
    nodes = 100
    rings = {count: cases.ring_of(nodes, count) for count in cases.VNODE_COUNTS}
    all_cases = cases.floor()
    for count, ring in rings.items():
        all_cases[f"owner {count}"] = cases.looped(ring.owner, cases.text_keys())
        all_cases[f"batch {count}"] = cases.batch(ring.index_many, cases.word_keys())
        all_cases[f"build {count}"] = Case(partial(Ring, cases.names(nodes), vnodes=count))
    times = interleaved(all_cases, 31)
    return {str(count): _vnodes_row(ring, count, times) for count, ring in rings.items()}


def _vnodes_row(ring: Ring, count: int, times: Times) -> Results:
    members = list(ring)
    after = ring.with_nodes("one-more")
    plan = ring.diff(after)
    must_move, needless = exact.moved(members, [*members, "one-more"], count)
    if (plan.moves.positions, needless) != (must_move, 0):
        raise AssertionError(f"{count}: {plan.moves.positions} positions move, and {must_move} have to")
    return {
        "ns": times.ns(f"owner {count}"),
        "yardsticks": times.ratio(f"owner {count}", YARDSTICK),
        "batch_ns": times.ns(f"batch {count}"),
        "build_us": times.ns(f"build {count}") / 1e3,
        "peak": ring.balance.peak_to_mean,
        "expected_peak": expected_peak(len(ring), count),
        "moved": plan.fraction,
        "ideal": 1 / (len(ring) + 1),
        "memory": ring.memory_size,
        "bytes_a_point": ring.memory_size / len(ring.points),
    }


def peaks() -> Results:
    """The fullest node of many rings (each another seed): 10th, 50th, 90th percentile and mean."""
    found: Results = {}
    for nodes in PEAK_NODES:
        names = cases.names(nodes)
        rows = found[str(nodes)] = {}
        for count in cases.VNODE_COUNTS:
            rings = max(20, min(200, 2_000_000 // (nodes * count)))
            seen = [Ring(names, vnodes=count, seed=seed).balance.peak_to_mean for seed in range(rings)]
            rows[str(count)] = [*np.percentile(seen, [10, 50, 90]).tolist(), float(np.mean(seen)), rings]
    return found


def moved() -> Results:
    """The share of 20,000 keys that changes its node when one comes, and when one from the middle goes."""
    found: Results = {}
    keys = cases.text_keys()[:MOVED_KEYS]
    members = cases.names(MOVED_NODES)
    gone = members[MOVED_NODES // 3]
    kinds: Sequence[type[peers.Peer]] = (Ours, *peers.here(), peers.Modulo)
    for kind in kinds:
        peer = kind(members)
        before = [peer.owner(key) for key in keys]
        peer.add("one-more")
        more = [peer.owner(key) for key in keys]
        peer.remove("one-more")
        peer.remove(gone)
        less = [peer.owner(key) for key in keys]
        added = list(zip(before, more, strict=True))
        removed = list(zip(before, less, strict=True))
        found[kind.label] = {
            "add": _share(a != b for a, b in added),
            "add_needless": _share(b not in {a, "one-more"} for a, b in added),
            "remove": _share(a != b for a, b in removed),
            "remove_needless": _share(a not in {b, gone} for a, b in removed),
            "peak": max(before.count(name) for name in members) / MOVED_KEYS * MOVED_NODES,
        }
    return found


def _share(marks: Iterable[bool]) -> float:
    return sum(marks) / MOVED_KEYS


class Ours(peers.Peer):
    """ringhash behind the adapter of the peers."""

    label = "ringhash"

    def build(self) -> None:
        self.router = Router(self.names)
        self.owner = self.router.owner

    def add(self, name: str) -> None:
        self.router.add(name)

    def remove(self, name: str) -> None:
        self.router.remove(name)


def grid() -> Results:
    """How cost grows with nodes and with virtual nodes, up to 16 million points."""
    found: Results = {}
    for count in GRID_VNODES:
        rows = found[str(count)] = {}
        for nodes in GRID_NODES:
            if nodes * count <= MOST_POINTS:
                rows[str(nodes)] = _grid_row(nodes, count)
    return found


def _grid_row(nodes: int, count: int) -> Results:
    names = cases.names(nodes)
    ring = Ring(names, vnodes=count)
    large = nodes * count > 2_000_000
    numbers = np.random.default_rng(5).integers(0, 2**64, nodes * count, dtype=np.uint64)
    fast = {
        **cases.floor(),
        "owner": cases.looped(ring.owner, cases.text_keys()),
        "batch": cases.batch(ring.index_many, cases.word_keys()),
    }
    slow: Mapping[str, Case] = {
        **cases.churn(ring),
        "build": Case(partial(Ring, names, vnodes=count)),
        "numpy.sort": Case(lambda: np.sort(numbers)),
    }
    quick, changed = interleaved(fast, 15), interleaved(slow, 5 if large else 11)
    return {
        "points": nodes * count,
        "owner_ns": quick.ns("owner"),
        "owner_yardsticks": quick.ratio("owner", YARDSTICK),
        "batch_ns": quick.ns("batch"),
        "build_ms": changed.ns("build") / 1e6,
        "build_to_sort": changed.ratio("build", "numpy.sort"),
        "add_ms": changed.ns("add one node") / 1e6,
        "add_to_copy": changed.ratio("add one node", "copy of the arrays"),
        "remove_ms": changed.ns("remove one node") / 1e6,
        "memory": ring.memory_size,
    }


def import_ms(rounds: int = 21) -> float:
    """How long a fresh interpreter takes to import ringhash after numpy: the median.

    Of the thread alone, since numpy's own threads are still busy with starting; and from compiled
    files, as an installed package has them.
    """
    code = (
        "import numpy, time; began = time.thread_time(); import ringhash; "
        "print((time.thread_time() - began) * 1e3)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = [sys.executable, "-c", code]
    times = [
        float(subprocess.run(run, check=True, capture_output=True, text=True, env=env).stdout)
        for _ in range(rounds)
    ]
    return float(np.median(times[1:]))

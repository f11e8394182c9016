"""What a ring keeps in memory. `python -m benchmarks.memory LABEL NODES` prints by how many bytes a fresh
process grew for it: the only way to see into a peer's own allocator."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

from benchmarks import cases, peers
from ringhash import Ring

_STATM = Path("/proc/self/statm")


def traced(nodes: int) -> float:
    """Bytes a point of our ring with all that it holds: its memory, nodes and names (not their text, which is
    the caller's)."""
    names = cases.names(nodes)
    gc.collect()
    tracemalloc.start()
    try:
        ring = Ring(names, vnodes=cases.VNODES)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return size / len(ring.points)


def resident(label: str, nodes: int) -> int | None:
    """By how much a fresh process grows; None where the system does not say."""
    if not _STATM.exists():
        return None
    run = [sys.executable, "-m", "benchmarks.memory", label, str(nodes)]
    here = Path(__file__).parent.parent
    return int(subprocess.run(run, check=True, capture_output=True, text=True, cwd=here).stdout)


def _resident_pages() -> int:
    return int(_STATM.read_text().split()[1])


def main(label: str, nodes: int) -> None:
    kind = Ring if label == "ringhash" else peers.by_label(label)
    kind(cases.names(3))  # imports and first allocations
    names = cases.names(nodes)
    gc.collect()
    before = _resident_pages()
    ring = kind(names)
    gc.collect()
    print((_resident_pages() - before) * os.sysconf("SC_PAGE_SIZE"))
    del ring


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

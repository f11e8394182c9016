"""What lookups.sh runs under callgrind: each job between two marks."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ringhash import Ring, Router, assign
from ringhash.balance import BoundedRouter

NAMES = [f"gw-{i}" for i in range(100)]
KEYS = [f"user:{i}" for i in range(2000)]
NUMBERS = np.arange(2000, dtype=np.uint64)


def one(lookup: Callable[[Any], object]) -> None:
    for key in KEYS:
        lookup(key)


def three(lookup: Callable[[Any, int], object]) -> None:
    for key in KEYS:
        lookup(key, 3)


def empty(_: object) -> None:
    for _key in KEYS:
        pass


def held(acquire: Callable[[Any], Any]) -> None:
    for key in KEYS:
        acquire(key).release()


def many(call: Callable[[], object]) -> None:
    call()


def pinned(router: Router, count: int) -> Router:
    for i in range(count):
        router.pin(f"tenant:{i}", "gw-5")
    return router


ring = Ring(NAMES)
router = Router(ring)
JOBS: list[tuple[str, Callable[[Any], None], Any]] = [
    ("empty", empty, None),
    ("ring.owner", one, ring.owner),
    ("router.owner", one, router.owner),
    ("ring.owners(3)", three, ring.owners),
    ("router.owners(3)", three, router.owners),
    ("index_many", many, lambda: ring.index_many(KEYS)),
    ("index_many, column", many, lambda: ring.index_many(NUMBERS)),
    ("owner_many", many, lambda: ring.owner_many(KEYS)),
    ("assignment.owner", one, Router(assign(1024, NAMES)).owner),
    ("1 pin", one, pinned(Router(ring), 1).owner),
    ("1000 pins", one, pinned(Router(ring), 1000).owner),
    ("acquire, release", held, BoundedRouter(router).acquire),
]

marks = ctypes.CDLL(sys.argv[1])
gc.disable()
for _, run, target in JOBS:
    run(target)
marks.begin()
for name, run, target in JOBS:
    run(target)
    marks.zero()
    run(target)
    marks.dump(name.encode())

"""Nothing is kept of what was dropped: neither Python objects nor memory of the core."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ringhash import Node, Plan, Ring, Router
from ringhash._core import Table, xxh3_64

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.slow,  # and not for `make asan`, which keeps freed memory for a while, on purpose
    pytest.mark.skipif(
        not Path("/proc/self/statm").exists(), reason="the memory of the process is read from /proc"
    ),
]

NODES = [Node(f"gw-{i}", zone=f"z-{i % 3}") for i in range(50)]
RING = Ring(NODES)  # 8,000 points: about 100 KB each time it is made
ROUTER = Router(RING)
TEXTS = [f"user:{i}" for i in range(500)]
NUMBERS = np.arange(5000)
MEMORYVIEW = memoryview(bytes(range(256)))


def resident() -> int:
    """The memory of the process; what was freed before is given back first, or growth would hide in it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def failing(call: Callable[[], object]) -> None:
    try:
        call()
    except (TypeError, ValueError, LookupError, OverflowError, RuntimeError, BufferError, AttributeError):
        return
    raise AssertionError("no error")


def rings() -> None:
    ring = Ring(NODES)
    ring.with_nodes("a", "b").without("a").with_weights({"b": 3.0})
    Ring.from_dict(ring.to_dict())
    copy.deepcopy(ring)
    pickle.loads(pickle.dumps(ring))
    hash(ring), repr(ring), ring.digest, ring == RING.without("gw-1")


def arrays() -> None:
    ring = Ring(NODES)
    points, owners, view = ring.points, ring.point_owners, np.asarray(ring.counts)
    del ring
    points.sum(), owners.sum(), view[0]
    RING.ranges("gw-1"), RING.shares, RING.balance


def plans() -> None:
    plan = RING.diff(RING.with_nodes("a").without("gw-1"))
    plan.inverse(), plan.by_source(), plan.by_target(), plan.pairs(), str(plan), list(plan.moves[:9])
    plan.move_of("key"), plan.mask(TEXTS), plan.mask(NUMBERS)
    Plan.from_dict(plan.to_dict())
    RING.diff(Ring()), Ring().diff(RING)


def routers() -> None:
    router = Router(RING)
    for plan in (router.add("a"), router.reweight("a", 2.0), router.remove("a", "gw-1")):
        router.owner(len(plan))
    router.apply(router.plan(add=["gw-1"]))
    copy.copy(router), pickle.loads(pickle.dumps(router)), Router.from_dict(router.to_dict())


def lookups() -> None:
    keys: list[Any] = [
        *TEXTS,
        "ключ",
        b"bytes",
        bytearray(b"bytes"),
        MEMORYVIEW,
        MEMORYVIEW[::2],
        5,
        2**64 - 1,
        np.int8(3),
    ]
    for key in keys:
        RING.owner(key), RING[key], ROUTER.owner(key), RING.owners(key, 3), RING.position(key)
    RING.owners("key", 20), RING.owners("key", 3, "zone"), xxh3_64(b"bytes")


def walks() -> None:
    list(RING.walk("key"))
    next(Ring(NODES).walk("key"))  # left in the middle
    next(ROUTER.walk("key"))


def batches() -> None:
    for keys in (
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, "S"),
        NUMBERS,
        NUMBERS[::-2],
        [],
    ):
        RING.owner_many(keys)
    for numbers in (NUMBERS, NUMBERS.astype(">i4"), NUMBERS.astype(np.uint8)):
        RING.index_many(numbers)


def errors() -> None:
    for key in (None, 1.5, True, 2**64, "\ud800", object()):
        for ask in (RING.owner, RING.walk, RING.position, ROUTER.owner, lambda key: RING.owners(key, 2),
                    lambda key: RING.owner_many(["a", key]), lambda key: RING.index_many([key])):  # fmt: skip
            failing(lambda ask=ask, key=key: ask(key))  # type: ignore[misc]
    for keys in (np.array([1.5]), np.zeros((2, 2)), "one key", None):
        failing(lambda keys=keys: RING.owner_many(keys))  # type: ignore[misc]
    failing(lambda: RING.owners("key", 51, strict=True))
    failing(lambda: RING.owners("key", 0))
    failing(lambda: Ring().owner("key"))
    failing(lambda: RING.diff(Ring(seed=1)))
    failing(lambda: ROUTER.add("gw-1"))
    failing(lambda: ROUTER.apply(Router().plan(add=["a"])))
    failing(lambda: Plan.from_dict(RING.to_dict()))
    failing(lambda: xxh3_64(MEMORYVIEW[::2]))


def constructors_that_fail() -> None:
    new: Any = Table.__new__
    failing(lambda: Ring([*NODES, "gw-1"]))
    failing(lambda: Ring(NODES, vnodes=0))
    failing(lambda: Ring([f"n-{i}" for i in range(2049)], vnodes=65_536))
    failing(lambda: new(Ring, ("a", "\ud800"), (30_000, 1)))
    failing(lambda: new(Ring, ("a", "b"), (30_000, "1")))
    failing(lambda: new(Ring, ("\ud800",), (30_000,), 0, False, RING))
    failing(lambda: new(Ring, ("a",), (30_000,), 1, False, RING))


def growth(work: Callable[[], object], rounds: int, warm_up: int = 15) -> tuple[int, int]:
    """How many bytes more Python holds after `rounds` rounds, and how many the whole process."""
    for _ in range(warm_up):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        traced, before = tracemalloc.get_traced_memory()[0], resident()
        for _ in range(rounds):
            work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - traced, resident() - before
    finally:
        tracemalloc.stop()


TRACED, RESIDENT = 30_000, 3 << 20


@pytest.mark.parametrize(
    "work", [rings, arrays, plans, routers, lookups, walks, batches, errors, constructors_that_fail], ids=lambda f: f.__name__
)  # fmt: skip
def test_nothing_is_kept(work: Callable[[], object]) -> None:
    rounds, traced, whole = 60, 0, 0
    for attempt in range(3):  # caches of others may grow once
        traced, whole = growth(work, rounds)
        if traced < TRACED and whole < RESIDENT:
            return
        print(f"attempt {attempt}: {traced} bytes of Python, {whole} of the process")
    pytest.fail(
        f"{work.__name__} keeps {traced / rounds:.0f} bytes of Python, {whole / rounds:.0f} of the process a round"
    )


def test_what_is_kept_is_noticed() -> None:
    kept: list[object] = []
    assert growth(lambda: kept.append(Ring(NODES, vnodes=1600)), 60)[1] >= RESIDENT
    assert growth(lambda: kept.append([1] * 100), 60)[0] >= TRACED
    assert growth(lambda: kept.append(Ring(NODES, vnodes=1600).points), 60)[1] >= RESIDENT


def test_no_reference_is_lost_or_kept() -> None:
    """Names and keys are handed out again and again; their counts of references stay."""
    key, name = "a key of its own " * 2, RING.names[7]
    numbers = [12345678901 + i for i in range(10)]
    gc.collect()  # what other tests dropped in circles may hold the name too
    before = [sys.getrefcount(thing) for thing in (key, name, numbers[0], RING, None)]
    for _ in range(200):
        RING.owner(key), RING[key], RING.owners(key, 20), list(RING.walk(key)), RING.owner_many([key] * 10)
        RING.index_many(numbers), RING.position(key), ROUTER.owner(key), ROUTER.owners(key, 3)
        RING.points, RING.point_owners, RING.walk(key), RING.names, RING.nodes
        failing(lambda: RING.owner_many([key, None]))
    gc.collect()
    after = [sys.getrefcount(thing) for thing in (key, name, numbers[0], RING, None)]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True)), (before, after)

"""The keys, the nodes, and the cases that more than one table measures."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import xxhash

from benchmarks.timing import LOOP, Case, clock
from ringhash import Ring, Router

SIZES = (10, 100, 1000, 10_000)
VNODES = 160
VNODE_COUNTS = (40, 80, 100, 120, 160, 200, 400, 1000)
KEYS = 100_000
YARDSTICK = "yardstick"  # one xxhash.xxh3_64_intdigest(bytes)
PASS_NS = 10_000_000  # a case that needs longer for all keys is given fewer of them


@cache
def text_keys() -> list[str]:
    """100,000 distinct str of 12 to 25 characters, made in the order in which they are visited, so that they
    lie in memory in that order: a request's key is in cache when the router is asked."""
    draw = random.Random(3)
    letters = string.ascii_letters + string.digits
    made: dict[str, None] = {}
    while len(made) < KEYS:
        made["".join(draw.choices(letters, k=draw.randint(12, 25)))] = None
    return [key.encode().decode() for key in made]


@cache
def byte_keys() -> list[bytes]:
    return [key.encode() for key in text_keys()]


@cache
def int_keys() -> list[int]:
    return [int(word) for word in word_keys()]


@cache
def word_keys() -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.random.default_rng(3).integers(0, 2**63, KEYS, dtype=np.uint64)


@cache
def arrow_keys() -> Any:
    """The same text in an Arrow array; None where pyarrow is not installed."""
    try:
        return import_module("pyarrow").array(text_keys())
    except ImportError:
        return None


def names(count: int) -> list[str]:
    return [f"gateway-{i}.example.net" for i in range(count)]


@cache
def ring_of(count: int, vnodes: int = VNODES) -> Ring:
    return Ring(names(count), vnodes=vnodes)


def looped(call: Callable[[Any], object], keys: Sequence[Any]) -> Case:
    """Call with each key in turn, as a program does that has one key at a time."""

    def run() -> None:
        for key in keys:
            call(key)

    return Case(run, len(keys), looped=True)


def subscripted(ring: Any, keys: Sequence[Any]) -> Case:
    def run() -> None:
        for key in keys:
            ring[key]

    return Case(run, len(keys), looped=True)


def batch(call: Callable[[Any], object], keys: Any) -> Case:
    return Case(lambda: call(keys), len(keys))


def fitting(call: Callable[[Any], object], keys: Sequence[Any]) -> Sequence[Any]:
    """As many of the keys as a case may have."""
    call(keys[0])
    began = clock()
    for key in islice(keys, 20):
        call(key)
    count = int(PASS_NS * 20 / (clock() - began))
    return keys if count >= len(keys) else keys[: max(count, 1)]


def floor() -> dict[str, Case]:
    """The empty loop, and the yardstick."""

    def loop() -> None:
        for _ in text_keys():
            pass

    return {LOOP: Case(loop, KEYS), YARDSTICK: looped(xxhash.xxh3_64_intdigest, byte_keys())}


def lookups(ring: Ring) -> dict[str, Case]:
    """Every way to ask for the owner of one key."""
    router = Router(ring)
    cases = {
        "owner(str)": looped(ring.owner, text_keys()),
        "owner(bytes)": looped(ring.owner, byte_keys()),
        "owner(int)": looped(ring.owner, int_keys()),
        "ring[str]": subscripted(ring, text_keys()),
        "router.owner(str)": looped(router.owner, text_keys()),
    }
    if len(ring) >= 3:
        cases["owners(str, 3)"] = preferences(ring)
    return cases


def preferences(ring: Ring) -> Case:
    owners = ring.owners
    keys = text_keys()

    def run() -> None:
        for key in keys:
            owners(key, 3)

    return Case(run, len(keys), looped=True)


def batches(ring: Ring) -> dict[str, Case]:
    """Every way to ask for the owners of many keys."""
    cases = {
        "index_many(uint64 array)": batch(ring.index_many, word_keys()),
        "index_many(list of str)": batch(ring.index_many, text_keys()),
        "index_many(list of bytes)": batch(ring.index_many, byte_keys()),
        "owner_many(list of str)": batch(ring.owner_many, text_keys()),
    }
    if arrow_keys() is not None:
        cases["index_many(Arrow strings)"] = batch(ring.index_many, arrow_keys())
    return cases


def searchsorted(ring: Ring) -> Case:
    """numpy's search of ready positions: no hashing, and an index into the points instead of an owner."""
    points = ring.points
    positions = (word_keys() >> np.uint64(32)).astype(np.uint32)
    return Case(lambda: np.searchsorted(points, positions), len(positions))


def churn(ring: Ring) -> dict[str, Case]:
    """One node more and one less, each with its exact plan and a name of its own every time, at a router in
    service: it holds the only reference to its ring and knows its digest, as it does from its first change
    on. A newcomer's name lies in the middle, so that half of the nodes get other indexes. Beside it numpy,
    copying the ring's arrays."""
    _ = ring.digest
    members = list(ring)
    middle = members[len(members) // 2]
    points, owners = ring.points, ring.point_owners
    router = Router()
    count = 0

    def reset() -> None:
        nonlocal router, count
        router = Router(ring.with_nodes())
        count += 1

    return {
        "add one node": Case(lambda: router.add(f"{middle}-{count}"), before=reset),
        "remove one node": Case(lambda: router.remove(members[count % len(members)]), before=reset),
        "copy of the arrays": Case(lambda: (points.copy(), owners.copy())),
    }


def building(count: int) -> dict[str, Case]:
    """A ring from names, beside numpy sorting as many random integers."""
    members = names(count)
    numbers = np.random.default_rng(5).integers(0, 2**64, count * VNODES, dtype=np.uint64)
    return {
        "build": Case(lambda: Ring(members, vnodes=VNODES)),
        "numpy.sort": Case(lambda: np.sort(numbers)),
    }

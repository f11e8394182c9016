"""Moving connections without a storm: who must go, in what waves, and when to come back."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Iterable
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ringhash.batch import readable
from ringhash.placement import Placement
from ringhash.routing import Router

__all__ = ["Closable", "backoff", "displaced", "drain", "retry_after"]

SERVICE_RESTART = 1012
_HINT = "retry-after="


class Closable(Protocol):
    """A connection: `close(code, reason)`, a function or a coroutine, as in `websockets`."""

    def close(self, code: int = ..., reason: str = ...) -> Any:
        """Close it."""


async def drain(
    connections: Iterable[Closable],
    batch: int = 100,
    every: float = 1.0,
    jitter: float = 0.2,
    *,
    code: int = SERVICE_RESTART,
    rng: random.Random | None = None,
) -> int:
    """Close connections in waves, each with a hint when to come back, and return how many there were.

    Args:
        connections: The connections that must go; see `displaced`. They are taken as they are needed.
        batch: Connections a wave.
        every: Seconds from one wave to the next, at least: never more than `batch / every` a second.
        jitter: The part of `every` by which a pause may be longer, at random, so that several nodes
            that drain at once do not do it in step.
        code: The WebSocket close code; 1012 is "service restart": come again.
        rng: Where the chance comes from.

    The reason of each close is `retry-after=` and a random number of seconds up to `every`, which
    `retry_after` reads. A connection whose close raises is gone already, and counts.

    Raises:
        ValueError: An argument is out of its range.

    Method: the close codes of RFC 6455 as registered by IANA; waves, as in rolling restarts.

    >>> import asyncio
    >>> class Socket:
    ...     def close(self, code, reason): print(code, 0 <= retry_after(reason) <= 0.01)
    >>> asyncio.run(drain([Socket(), Socket()], batch=1, every=0.01))
    1012 True
    1012 True
    2
    """
    import asyncio  # noqa: PLC0415 - it takes longer to load than all of ringhash

    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    if not 0 <= every < float("inf") or not 0 <= jitter < float("inf"):
        raise ValueError("every and jitter must be finite and not negative")
    chance = rng or random.Random()  # noqa: S311 - it spreads load, and guards nothing
    closed = 0
    rest = iter(connections)
    wave = list(islice(rest, batch))
    while wave:
        await asyncio.gather(*(_close(one, code, chance.uniform(0, every)) for one in wave))
        closed += len(wave)
        wave = list(islice(rest, batch))
        if wave:
            await asyncio.sleep(every * (1 + chance.uniform(0, jitter)))
    return closed


async def _close(connection: Closable, code: int, seconds: float) -> None:
    with contextlib.suppress(Exception):  # it is gone already
        result = connection.close(code, f"{_HINT}{seconds:.3f}")
        if inspect.isawaitable(result):
            await result


def retry_after(reason: str | None) -> float | None:
    """Return the seconds that the reason of a close asks a client to wait; None when it does not.

    >>> retry_after("retry-after=1.500"), retry_after("bye")
    (1.5, None)
    """
    if reason is None or not reason.startswith(_HINT):
        return None
    try:
        seconds = float(reason[len(_HINT) :])
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def backoff(attempt: int, base: float = 0.5, cap: float = 60.0, rng: random.Random | None = None) -> float:
    """Return the seconds to wait before a retry: full jitter, in the first retry too.

    Args:
        attempt: How many retries there have been; 0 for the first.
        base: The most that the first retry waits; each one doubles it.
        cap: The most that any waits.
        rng: Where the chance comes from.

    Raises:
        ValueError: An argument is out of its range.

    Method: "full jitter" (Marc Brooker, Exponential Backoff and Jitter, AWS, 2015): a random time
    from 0 to min(cap, base * 2**attempt) spreads clients that failed together as far as can be.

    >>> [0 <= backoff(attempt) <= most for attempt, most in [(0, 0.5), (1, 1.0), (99, 60.0)]]
    [True, True, True]
    """
    if attempt < 0:
        raise ValueError(f"attempt must not be negative, not {attempt}")
    if not 0 <= base < float("inf") or not 0 <= cap < float("inf"):
        raise ValueError("base and cap must be finite and not negative")
    chance = rng or random
    return chance.uniform(0, min(cap, base * 2.0 ** min(attempt, 64)))


def displaced(before: Placement | Router, after: Placement | Router, keys: Any) -> np.ndarray[Any, Any]:
    """Return those of `keys` that have another owner afterwards, as an array, in their order.

    Args:
        before: The placement or router that the keys were placed by.
        after: The one that places them now; of any kind and seed.
        keys: As for `Ring.index_many`.

    Returns:
        An array of the type of `keys` if that is an array, and of objects if not.

    Raises:
        EmptyRingError, TypeError, OverflowError, ValueError: As `Ring.index_many`.

    Cost: two lookups a key, in batches.

    >>> from ringhash import Ring
    >>> ring = Ring(["gw-1", "gw-2"])
    >>> after = ring.with_nodes("gw-3")
    >>> set(map(after.owner, displaced(ring, after, [f"user:{i}" for i in range(100)])))
    {'gw-3'}
    """
    given = keys
    if not isinstance(keys, np.ndarray):
        if isinstance(keys, (str, bytes, bytearray, memoryview)):
            readable(keys)  # one key is no collection of keys: its error says so
        keys = keys if isinstance(keys, (list, tuple)) else list(keys)
        given = np.empty(len(keys), object)
        given[:] = keys
    numbers: dict[str, int] = {}
    owners = []
    for placement in (before, after):
        table = np.array([numbers.setdefault(n.name, len(numbers)) for n in placement.nodes], np.intp)
        owners.append(table[placement.index_many(keys)] if len(given) else np.empty(0, np.intp))
    moved: np.ndarray[Any, Any] = given[owners[0] != owners[1]]
    return moved

"""Hot keys: which keys bring the most load, counted in little memory and with known errors."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import log1p
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from ringhash.node import plain_type
from ringhash.placement import Placement
from ringhash.routing import Router
from ringhash.space import HashSpace

__all__ = ["HotKey", "HotKeys", "HotReport"]

Unit = str | bytes | int | UUID


class HotKey(NamedTuple):
    """A key, how often it came at least and at most, and its node (None when no router was asked).

    Where only a sample is counted, the bounds are scaled up to all keys and hold but for the chance
    of the sample.
    """

    key: Unit
    at_least: float
    at_most: float
    node: str | None = None


class HotReport(NamedTuple):
    """The heaviest keys and what they mean for the balance; made by `HotKeys.report`.

    `total` is how many keys came. `least_peak_to_mean` is a floor: no placement of whole keys, by
    whatever method, has its fullest node below that multiple of the mean. 1.0 means that the keys
    seen do not stand in the way; above what is bearable only `Salt` helps.
    """

    keys: list[HotKey]
    total: float
    least_peak_to_mean: float


class HotKeys:
    """Counts the heaviest of any number of keys with a fixed number of counters.

    Keys count by the bytes that are hashed: a str and its UTF-8 are one key, as are -1 and 2**64 - 1. With
    hash tags all keys of one tag are one, since they go to one node together; it is reported by the tag.

    Args:
        k: How many keys are reported.
        sample: The part of the keys that is counted, above 0 and up to 1; 0.01 costs little and
            serves for what comes often.
        counters: How many keys are counted at a time, at least k; 10 * k by default. A count is
            too high by at most total / counters, and no key that came more often than that is
            missed.
        hash_tags: As the ring has it.
        seed: Of the choice of the sample.

    Raises:
        TypeError, ValueError: An argument is malformed.

    Not thread-safe: let each thread have its own, or take a lock. Cost of `add`: O(1).
    Method: Space-Saving (Metwally, Agrawal, El Abbadi, 2005).

    >>> hot = HotKeys(k=1)
    >>> hot.add_many(["a", "b", "a", b"a"])
    >>> hot.report(Router(["gw-1"]))
    HotReport(keys=[HotKey(key='a', at_least=3, at_most=3, node='gw-1')], total=4, least_peak_to_mean=1.0)
    """

    def __init__(
        self,
        k: int = 100,
        *,
        sample: float = 1.0,
        counters: int | None = None,
        hash_tags: bool = False,
        seed: int | None = None,
    ) -> None:
        counters = 10 * k if counters is None else counters
        if type(k) is not int or type(counters) is not int or not 1 <= k <= counters:
            raise ValueError(f"it must be that 1 <= k <= counters, not {k!r} and {counters!r}")
        if type(sample) not in {int, float} or not 0.0 < sample <= 1.0:
            raise ValueError(f"sample must be a number above 0 and up to 1, not {sample!r}")
        self.k = k
        self.sample = sample
        self.counters = counters
        if not isinstance(hash_tags, bool):
            raise TypeError(f"hash_tags must be True or False, not {plain_type(hash_tags)}")
        self.hash_tags = hash_tags
        self._space = HashSpace(0, hash_tags)
        self._random = random.Random(seed)  # noqa: S311 - a sample needs no secret
        self.clear()

    def clear(self) -> None:
        """Forget everything: the next period begins."""
        self._counted = 0
        self._skip = self._next_skip()
        self._counts: dict[bytes, int] = {}
        self._errors: dict[bytes, int] = {}
        self._shown: dict[bytes, Unit] = {}  # where that is not the text of the bytes
        # The keys of each count, and the least count.
        self._with_count: dict[int, dict[bytes, None]] = {}
        self._least = 0

    def _next_skip(self) -> int:
        """How many keys to pass before the next that is counted: geometric, one draw a sample."""
        if self.sample == 1.0:
            return 0
        return int(log1p(-self._random.random()) / log1p(-self.sample))

    def add(self, key: Any) -> None:
        """Count a key, as for `Ring.owner`.

        Raises:
            TypeError, OverflowError, UnicodeEncodeError: As for `Ring.owner`; a key that the sample
                passes is not looked at.
        """
        if self._skip:
            self._skip -= 1
            return
        unit = self._space.key_bytes(key)
        self._skip = self._next_skip()
        count = self._counts.get(unit)
        if count is None:
            if len(self._counts) < self.counters:
                count = 0
            else:
                count = self._take_over()
                self._errors[unit] = count
            if not isinstance(key, (str, bytes)):
                self._show(unit, key)
        else:
            self._leave(unit, count)
        self._counted += 1
        self._counts[unit] = count + 1
        self._with_count.setdefault(count + 1, {})[unit] = None
        if count == 0:
            self._least = 1

    def add_many(self, keys: Iterable[Any]) -> None:
        """Count keys, one after another; those before one that raises are counted.

        Raises:
            TypeError: One key was given instead of many; and as for `add`.
        """
        if isinstance(keys, (str, bytes, bytearray, memoryview)):
            raise TypeError(
                f"keys must be an iterable of keys, and a {type(keys).__name__} is one key; write [key], or "
                "call add(key)"
            )
        for key in keys:
            self.add(key)

    def _show(self, unit: bytes, key: Any) -> None:
        """Keep how a key that is no text is reported: as it came first."""
        if isinstance(key, UUID):
            self._shown[unit] = UUID(bytes=unit)
        elif isinstance(key, (int, np.integer)):
            plain = type(key) is int or isinstance(key, np.integer)
            self._shown[unit] = int(key) if plain else int.from_bytes(unit, "little")

    def _take_over(self) -> int:
        """Let the key go that has the least count, and return that count."""
        least = self._least
        same = self._with_count[least]
        victim, _ = same.popitem()  # not the first: behind many that left, a dict finds it slowly
        if not same:
            self._no_more_of(least)
        del self._counts[victim]
        self._errors.pop(victim, None)
        self._shown.pop(victim, None)
        return least

    def _leave(self, unit: bytes, count: int) -> None:
        same = self._with_count[count]
        del same[unit]
        if not same:
            self._no_more_of(count)

    def _no_more_of(self, count: int) -> None:
        del self._with_count[count]
        if count == self._least:
            self._least = count + 1  # where the key that left, or takes over, is about to be

    @property
    def total(self) -> float:
        """How many keys came; an estimate where only a sample is counted."""
        return self._counted if self.sample == 1.0 else self._counted / self.sample

    def top(self, n: int | None = None) -> list[HotKey]:
        """Return the heaviest keys, at most n (or k), the heaviest first."""
        scale = 1 if self.sample == 1.0 else 1 / self.sample
        ordered = sorted(self._counts.items(), key=lambda item: -item[1])[: self.k if n is None else n]
        return [
            HotKey(self._reported(unit), (count - self._errors.get(unit, 0)) * scale, count * scale)
            for unit, count in ordered
        ]

    def _reported(self, unit: bytes) -> Unit:
        shown = self._shown.get(unit)
        if shown is not None:
            return shown
        try:
            return unit.decode()
        except UnicodeDecodeError:
            return unit

    def report(self, router: Router | Placement) -> HotReport:
        """Return the heaviest keys, their nodes, and how even any placement could be.

        Args:
            router: What says which node a key is at; a router also says which nodes are up.

        Raises:
            EmptyRingError, NoNodeAvailableError: As `router.owner` does.

        Cost: O(counters * log counters + nodes).
        """
        # A unit is what was hashed, tags narrowed, and has no tag of its own to narrow.
        keys = [hot._replace(node=router.owner(hot.key)) for hot in self.top()]
        down = frozenset(router.down) if isinstance(router, Router) else frozenset()
        weights = np.array([node.weight for node in router.nodes if node.name not in down])
        sure = sorted((hot.at_least for hot in self.top(self.counters)), reverse=True)
        return HotReport(keys, self.total, _least_peak_to_mean(sure, weights, self.total))


def _least_peak_to_mean(
    counts: list[float], weights: np.ndarray[Any, np.dtype[np.float64]], total: float
) -> float:
    """Return the floor of peak to mean, by what is sure of the counts, the greatest first.

    Somewhere the heaviest key is; and of the n + 1 heaviest, two share one of n nodes. The node of
    the greatest weight bears either best.
    """
    nodes = len(weights)
    if not total or not nodes:
        return 1.0
    heaviest = counts[0] if counts else 0.0
    pair = counts[nodes - 1] + counts[nodes] if len(counts) > nodes else 0.0
    mean = total * float(weights.max() / weights.sum())
    return max(1.0, heaviest / mean, pair / mean)

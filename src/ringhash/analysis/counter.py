"""What is counted of one candidate key while the rows go by: all in bounded memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringhash.analysis.columns import Keys, hashes
from ringhash.analysis.counting import ERROR_OF_REGISTERS, Distinct, Heavy, Registers, joined
from ringhash.placements.ring import Ring
from ringhash.placements.shards import Shards

__all__ = ["Candidate", "Counter", "Placements"]

Array = np.ndarray[Any, Any]
NAMED = 10  # the most frequent keys whose values are looked for in each block
IDENTITIES = 1 << 14
DENSE = 1 << 21  # numbers this near to each other are counted in an array
GATHERED = 1 << 20  # distinct numbers that are counted before they are placed


class Candidate(NamedTuple):
    """A candidate key: its columns, and its name in reports."""

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The columns with commas between."""
        return ", ".join(self.columns)


class Placements:
    """The live placements that keys are put through: a ring of as many nodes, and fixed shards."""

    def __init__(self, shards: int) -> None:
        self.count = shards
        self.ring = Ring([f"shard-{i:0{len(str(shards - 1))}}" for i in range(shards)])
        self.shards = Shards(shards)

    def index(self, method: str, keys: Any) -> Array:
        """Return the shard of each key by "ring" or "shards"."""
        return self.ring.index_many(keys) if method == "ring" else self.shards.of_many(keys)


class Counter:
    """Counts one candidate key."""

    def __init__(
        self, candidate: Candidate, placements: Placements, weighted: bool, identified: bool
    ) -> None:
        self.candidate = candidate
        self.placements = placements
        self.rows = self.nulls = 0
        self.weight = self.null_weight = 0.0
        self.heavy = Heavy()
        self.heavy_weight = Heavy() if weighted else None
        self.names: dict[int, Any] = {}
        methods = ("ring", "shards")
        self.loads = {method: np.zeros(placements.count) for method in methods}
        self.weights = {method: np.zeros(placements.count) for method in methods} if weighted else None
        self._numbers: tuple[Array, Array] | None = None  # distinct numbers not placed yet, and their rows
        self._dense: tuple[int, Array] | None = None  # the lowest number, and the rows of each from there
        self._kind = np.dtype(np.int64)
        self._registers: Registers | None = None
        self._identities: dict[int, int] | None = {} if identified else None
        self._changed: set[int] = set()
        self._mask = np.uint64(0)  # identities are followed whose hash ends in these bits being 0

    def add(self, keys: Keys, weights: Array | None, identities: Array | None) -> None:
        """Count a block: its keys, and for each row its weight and the hash of what it identifies."""
        count = len(keys.keys)
        self.rows += count
        present, weights_here = keys.keys, weights
        if keys.nulls is not None:
            self.nulls += int(np.count_nonzero(keys.nulls))
            there = ~keys.nulls
            present = present[there] if isinstance(present, np.ndarray) else _picked(present, there)
            if weights is not None:
                self.null_weight += float(weights[keys.nulls].sum())
                weights_here = weights[there]
        if weights is not None:
            self.weight += float(weights.sum())
        plain = isinstance(present, np.ndarray) and present.dtype.kind in "iu" and len(present)
        if plain and weights is None and self._identities is None:
            self._gather(present)
            return
        for method in self.loads:
            index = self.placements.index(method, present)
            self.loads[method] += np.bincount(index, minlength=self.placements.count)
            if self.weights is not None:
                self.weights[method] += np.bincount(index, weights_here, self.placements.count)
        if len(present):
            self._count(present, hashes(present), weights_here, keys.nulls, identities)

    def _gather(self, numbers: Array) -> None:
        """Count equal numbers before they are hashed: each of them is then placed once."""
        low, high = int(numbers.min()), int(numbers.max())
        if self._dense is None and high - low < DENSE:
            self._dense = low, np.zeros(DENSE, np.int64)
        if self._dense is not None and self._dense[0] <= low and high - self._dense[0] < DENSE:
            base, totals = self._dense
            found = np.bincount((numbers - numbers.dtype.type(base)).view(np.int64))
            totals[: len(found)] += found
            self._kind = numbers.dtype
            return
        distinct, counts = np.unique(numbers, return_counts=True)
        self._add_numbers(distinct, counts.astype(np.float64))

    def _add_numbers(self, distinct: Array, amounts: Array) -> None:
        if self._numbers is not None:
            if self._numbers[0].dtype != distinct.dtype:
                self._place()
            else:
                distinct, amounts = joined(*self._numbers, distinct, amounts)
        self._numbers = (distinct, amounts)
        if len(distinct) > GATHERED:
            self._place()

    def finish(self) -> None:
        """Place the numbers that were gathered. Call it after the last block."""
        if self._dense is not None:
            (base, totals), self._dense = self._dense, None
            there = np.flatnonzero(totals)
            self._add_numbers(
                there.astype(self._kind) + self._kind.type(base), totals[there].astype(np.float64)
            )
        self._place()

    def _place(self) -> None:
        if self._numbers is None:
            return
        (numbers, amounts), self._numbers = self._numbers, None
        for method in self.loads:
            index = self.placements.index(method, numbers)
            self.loads[method] += np.bincount(index, amounts, self.placements.count)
        hashed = hashes(numbers)
        order = np.argsort(hashed)
        self._tally(numbers, hashed, hashed[order], amounts[order])

    def _tally(self, present: Any, hashed: Array, distinct: Array, amounts: Array) -> None:
        """Count distinct, sorted hashes."""
        before = self.heavy.keys
        self.heavy.add(distinct, amounts)
        if not self.heavy.exact:
            if self._registers is None:
                self._registers = Registers()
                self._registers.add(before)
            self._registers.add(distinct)
        for heavy in (self.heavy, self.heavy_weight):
            self._name(heavy, present, hashed)

    def _count(
        self,
        present: Any,
        hashed: Array,
        weights: Array | None,
        nulls: Array | None,
        identities: Array | None,
    ) -> None:
        if weights is None:
            ordered = np.sort(hashed)
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
            distinct = ordered[first]
            counts = np.diff(np.append(first, len(ordered)))
        else:
            distinct, inverse, counts = np.unique(hashed, return_inverse=True, return_counts=True)
            assert self.heavy_weight is not None  # noqa: S101 - for mypy
            self.heavy_weight.add(distinct, np.bincount(inverse, weights))
        self._tally(present, hashed, distinct, counts.astype(np.float64))
        if identities is not None and self._identities is not None:
            self._follow(identities if nulls is None else identities[~nulls], hashed)

    def _name(self, heavy: Heavy | None, present: Any, hashed: Array) -> None:
        if heavy is None:
            return
        # What a sketch dropped is no candidate for the top.
        for key, amount in zip(*heavy.top(NAMED), strict=True):
            if int(key) not in self.names and amount > (1 if not heavy.exact else 0):
                places = np.flatnonzero(hashed == key)
                if len(places):
                    value = present[int(places[0])]
                    self.names[int(key)] = value.item() if isinstance(value, np.generic) else value

    def _follow(self, identities: Array, hashed: Array) -> None:
        """Note which identities had another key before. Of many, a part is followed, chosen by hash."""
        known = self._identities or {}
        chosen = (identities & self._mask) == 0
        for identity, key in zip(identities[chosen].tolist(), hashed[chosen].tolist(), strict=True):
            if known.setdefault(identity, key) != key:
                self._changed.add(identity)
        while len(known) > IDENTITIES:
            self._mask = (self._mask << np.uint64(1)) | np.uint64(1)
            mask = int(self._mask)
            known = {identity: key for identity, key in known.items() if not identity & mask}
        self._identities = known
        self._changed &= known.keys()

    # --- what came of it ---

    def distinct(self, sampled: bool) -> Distinct:
        """Return how many distinct keys there are, NULL not among them."""
        if self._registers is not None:
            return Distinct(self._registers.estimate(), ERROR_OF_REGISTERS, sampled)
        counted = len(self.heavy.keys)
        if not sampled:
            return Distinct(counted, 0.0, False)
        once = int(np.count_nonzero(self.heavy.amounts == 1))
        twice = int(np.count_nonzero(self.heavy.amounts == 2))
        # Chao (1984), in the form that needs no key seen twice.
        unseen = once * (once - 1) / (2 * (twice + 1))
        return Distinct(counted + round(unseen), 0.0, True)

    def changed(self) -> tuple[int, int] | None:
        """Return (identities whose key changed, identities followed); None if there is no identity."""
        return None if self._identities is None else (len(self._changed), len(self._identities))


def _picked(keys: list[Any], mask: Array) -> list[Any]:
    return [keys[i] for i in np.flatnonzero(mask).tolist()]

"""What a change of the number of partitions does to the order of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from ringhash.contrib.kafka.partitioner import Partitioner, Partitions, placement_of
from ringhash.interop import KafkaPartitioner
from ringhash.placements.shards import Shards

__all__ = ["BrokenKey", "PartitionPlan", "partition_plan"]


@dataclass(frozen=True)
class BrokenKey:
    """A key whose records lie in one partition so far, and go to another one from now on."""

    key: str | bytes
    before: int
    after: int


class PartitionPlan:
    """What a change of the number of partitions does; `partition_plan` makes it.

    Kafka moves no record. A key whose partition changes has its old records in one partition and its new ones
    in another, and their order is lost, unless the consumer of the new one waits.
    """

    def __init__(self, before: Shards | KafkaPartitioner, after: Shards | KafkaPartitioner) -> None:
        self.before = before
        self.after = after
        self._old = Partitioner(before)
        self._new = Partitioner(after)

    @property
    def is_one_hash(self) -> bool:
        """Whether both sides hash keys alike, and only the number changes."""
        return _hash_of(self.before) == _hash_of(self.after)

    @property
    def fraction(self) -> float:
        """The share of all possible keys that break their order, to within partitions / 2^31.

        Method: of the remainders modulo the least common multiple, as many as the smaller number stay.
        """
        old, new = self._old.count, self._new.count
        if not self.is_one_hash:
            return 1 - 1 / max(old, new)
        return 1 - min(old, new) * gcd(old, new) / (old * new)

    def breaks(self, key: str | bytes) -> BrokenKey | None:
        """Return how a key breaks its order; None if it stays in its partition."""
        old, new = self._old.partition(key), self._new.partition(key)
        return None if old == new else BrokenKey(key, old, new)

    def broken(self, keys: Iterable[str | bytes]) -> Iterator[BrokenKey]:
        """Yield the keys that break their order."""
        for key in keys:
            found = self.breaks(key)
            if found is not None:
                yield found

    def mask(self, keys: Sequence[str | bytes]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each key whether it breaks its order; for many keys. O(keys)."""
        old, new = (np.asarray(_space(side).positions(keys)) for side in (self.before, self.after))
        changed: np.ndarray[Any, np.dtype[np.bool_]] = old != new
        return changed

    def waits_for(self, partition: int) -> tuple[int, ...]:
        """Return the old partitions from which keys come to a new one.

        Its consumer keeps the order if it first reads these to the offsets that they ended at when the
        producers changed.

        Raises:
            ValueError: There is no such partition.
        """
        old, new = self._old.count, self._new.count
        if not 0 <= partition < new:
            raise ValueError(f"there are the partitions 0 to {new - 1}, not {partition}")
        step = gcd(old, new) if self.is_one_hash else 1
        return tuple(other for other in range(partition % step, old, step) if other != partition)

    def __repr__(self) -> str:
        counts = f"{self._old.count} to {self._new.count}"
        return f"<PartitionPlan from {counts} partitions: {self.fraction:.1%} of keys>"


def partition_plan(before: Partitions, after: Partitions) -> PartitionPlan:
    """Say which keys break their order if a topic gets another number of partitions, or another placement.

    Args:
        before: As those of `Partitioner`.
        after: The same for the topic after the change.

    >>> plan = partition_plan(12, 24)
    >>> plan
    <PartitionPlan from 12 to 24 partitions: 50.0% of keys>
    >>> plan.breaks("user:10"), plan.breaks("user:9")
    (BrokenKey(key='user:10', before=7, after=19), None)
    >>> plan.waits_for(19), plan.waits_for(7)
    ((7,), ())
    >>> partition_plan(12, 13)
    <PartitionPlan from 12 to 13 partitions: 92.3% of keys>
    """
    return PartitionPlan(placement_of(before), placement_of(after))


def _space(placement: Shards | KafkaPartitioner) -> Any:
    return placement if isinstance(placement, Shards) else placement.space


def _hash_of(placement: Shards | KafkaPartitioner) -> tuple[Any, ...]:
    if isinstance(placement, Shards):
        return ("shards", placement.seed)
    return ("kafka", placement.to_dict()["partitioner"])

"""The partition of a key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ringhash.contrib.kafka.errors import NoKeyError, PartitionCountError
from ringhash.interop import KafkaPartitioner
from ringhash.placements.shards import Shards

__all__ = ["Partitioner", "Partitions", "check_count", "placement_of"]

Partitions = int | Shards | KafkaPartitioner


class Partitioner:
    """Which partition a key belongs to; what aiokafka takes as `partitioner`.

    Args:
        partitions: `Shards(12)`; or the number of partitions, for those that Java's default partitioner
            chooses; or a `KafkaPartitioner`, for those of librdkafka.

    Threads may share it. Cost: a lookup of the placement, 0.1 to 0.3 us.

    >>> java = Partitioner(12)
    >>> java.partition("user:7"), java.partition(b"user:7"), java.partition("")
    (4, 4, 9)
    """

    def __init__(self, partitions: Partitions) -> None:
        self.placement = placement_of(partitions)
        self.count = count_of(self.placement)
        self._position = self.placement.position

    def partition(self, key: str | bytes) -> int:
        """Return the partition of a key.

        Raises:
            NoKeyError: The key is None. An empty key is a key.
            TypeError: It is neither str nor bytes: how a number becomes bytes is for your serializer to say.
        """
        if key is None:
            raise NoKeyError(
                "a record without a key may go to any partition: send it without this partitioner"
            )
        if not isinstance(key, (str, bytes, bytearray, memoryview)):
            raise TypeError(
                f"a key of Kafka is bytes, or str for its UTF-8, not {type(key).__name__}; "
                "your serializer says how it becomes bytes"
            )
        return int(self._position(key))

    def __call__(self, key: bytes, all_partitions: Collection[int], available: Any = None) -> int:  # noqa: ARG002
        """Return the partition of a key, as aiokafka asks for it.

        Raises:
            NoKeyError: The record has no key.
            PartitionCountError: The topic has another number of partitions.
        """
        check_count(len(all_partitions), self.count)
        return self.partition(key)

    def __repr__(self) -> str:
        return f"Partitioner({self.placement!r})"


def placement_of(partitions: Any) -> Shards | KafkaPartitioner:
    """Return the placement that is meant: a number is that of Java's partitions."""
    if isinstance(partitions, (Shards, KafkaPartitioner)):
        if isinstance(partitions, Shards) and partitions.hash_tags:
            raise ValueError("keys of Kafka have no hash tags: use Shards(..., hash_tags=False)")
        return partitions
    if isinstance(partitions, int) and not isinstance(partitions, bool):
        return KafkaPartitioner(partitions)
    raise TypeError(
        f"partitions must be their number, Shards or a KafkaPartitioner, not {type(partitions).__name__}"
    )


def count_of(placement: Shards | KafkaPartitioner) -> int:
    return placement.count if isinstance(placement, Shards) else len(placement.names)


def check_count(found: int, expected: int, topic: str | None = None) -> None:
    """Refuse a topic with another number of partitions than its keys were placed by."""
    if found != expected:
        name = "the topic" if topic is None else repr(topic)
        raise PartitionCountError(
            f"{name} has {found} partitions, and its keys were placed by {expected}: "
            f"partition_plan({expected}, {found}) says which keys would break their order"
        )

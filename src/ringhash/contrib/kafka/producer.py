"""Keyed records with confluent-kafka, which takes no partitioner in Python."""

from __future__ import annotations

from typing import Any

from ringhash.contrib.kafka.errors import PartitionCountError
from ringhash.contrib.kafka.partitioner import Partitioner, Partitions, check_count

__all__ = ["KeyedProducer"]


class KeyedProducer:
    """A producer of confluent-kafka for one topic, whose records go to the partitions of their keys.

    Args:
        producer: A `confluent_kafka.Producer`. Poll and flush it as always.
        topic: The topic. How many partitions it has is asked once, here. If it gets more later, keys stay
            where they are until you make a new `KeyedProducer`.
        partitions: As those of `Partitioner`.
        timeout: Seconds to wait for the answer.

    Raises:
        PartitionCountError: The topic has another number of partitions.

    Threads may share it, as they may share the producer.
    """

    def __init__(self, producer: Any, topic: str, partitions: Partitions, *, timeout: float = 10.0) -> None:
        self.producer = producer
        self.topic = topic
        self.partitioner = Partitioner(partitions)
        found = producer.list_topics(topic, timeout).topics[topic]
        if found.error is not None:
            raise PartitionCountError(f"the partitions of {topic!r} cannot be counted: {found.error}")
        check_count(len(found.partitions), self.partitioner.count, topic)

    def produce(self, key: str | bytes, value: str | bytes | None = None, **options: Any) -> int:
        """Send a record to the partition of its key, and return the partition.

        Args:
            key: The key; None is refused.
            value: The value.
            options: Those of `Producer.produce`, but for `partition`.

        Raises:
            NoKeyError: There is no key.
            BufferError: As that of the producer.
        """
        if "partition" in options:
            raise TypeError("the key says the partition; to choose one yourself, use producer.produce")
        partition = self.partitioner.partition(key)
        self.producer.produce(self.topic, value, key, partition, **options)
        return partition

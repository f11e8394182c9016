"""kafka-python 3 wants a partitioner of its own class; version 2 takes our `Partitioner` as it is."""

from __future__ import annotations

from typing import Any

import kafka.partitioner

from ringhash.contrib.kafka.partitioner import Partitioner, Partitions

__all__ = ["KafkaPythonPartitioner"]


class KafkaPythonPartitioner(kafka.partitioner.Partitioner):  # type: ignore[misc]  # it has no annotations
    """Which partition a key belongs to; what kafka-python takes as `partitioner`.

    Args:
        partitions: As those of `ringhash.contrib.kafka.Partitioner`.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._partitioner = Partitioner(partitions)

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002
        serialized_key: Any,
        value: Any,  # noqa: ARG002
        serialized_value: Any,  # noqa: ARG002
        cluster: Any,
    ) -> int:
        """Return the partition of a key, as kafka-python asks for it.

        Raises:
            NoKeyError: The record has no key.
            PartitionCountError: The topic has another number of partitions.
        """
        return self._partitioner(serialized_key, cluster.partitions_for_topic(topic) or ())

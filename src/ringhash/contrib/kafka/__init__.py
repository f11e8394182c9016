"""Kafka: the partition of a record by its key, and what a change of their number does to the order of keys.

Two placements: `Shards`, so that a partition is a shard and its consumer the owner of the shard, and
`KafkaPartitioner`, the partition that Java's default partitioner chooses, so that producers in several
languages agree. Keys are hashed by the bytes that are sent.
"""

from ringhash.contrib.kafka.errors import NoKeyError, PartitionCountError
from ringhash.contrib.kafka.partitioner import Partitioner
from ringhash.contrib.kafka.plan import BrokenKey, PartitionPlan, partition_plan
from ringhash.contrib.kafka.producer import KeyedProducer

__all__ = [
    "BrokenKey",
    "KeyedProducer",
    "NoKeyError",
    "PartitionCountError",
    "PartitionPlan",
    "Partitioner",
    "partition_plan",
]

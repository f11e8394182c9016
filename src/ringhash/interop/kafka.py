"""Kafka: the partition of a record that has a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from ringhash.interop.given import check_points, read_listed, whole_number
from ringhash.interop.placement import Options, ProgramPlacement
from ringhash.plan import NodeChange

__all__ = ["KafkaPartitioner"]

_HASHES = {"murmur2": "kafka-murmur2", "consistent": "crc32", "fnv1a": "kafka-fnv1a"}


class KafkaPartitioner(ProgramPlacement):
    """The partition to which a producer sends a record by its key. Exact for the Java client and kafka-python
    ("murmur2") and for librdkafka 2.16.

    Source: DefaultPartitioner and Utils.murmur2 of the Java client; rdkafka_msg.c. A position is a
    partition, and an owner is its number as text.

    Args:
        partitions: Their number, or their names, the numbers from 0 on as text.
        partitioner: "murmur2" (Java's default, librdkafka's `murmur2`), "consistent" (librdkafka's
            `consistent`, CRC-32) or "fnv1a" (librdkafka's `fnv1a`, as Sarama).

    A record without a key goes to any partition. librdkafka's names with `_random` send an empty key to
    any partition too. `shares` take every partition as equal; the hashes have 31 or 32 bits, so they are, to
    within partitions / 2^31.

    >>> partitions = KafkaPartitioner(4)
    >>> partitions.owner("foobar"), partitions.position("foobar")
    ('2', 2)
    >>> f"{partitions.diff(KafkaPartitioner(5)).fraction:.0%}"
    '80%'
    """

    kind = "kafka"
    _options: ClassVar[Options] = {"partitioner": (str,)}

    def __init__(
        self,
        partitions: int | Iterable[str],
        partitioner: Literal["murmur2", "consistent", "fnv1a"] = "murmur2",
    ) -> None:
        if isinstance(partitions, (bool, int, np.integer)):
            count = whole_number(partitions, "partitions", 0, (1 << 63) - 1)
            check_points(count, "partitions")
            names = [str(i) for i in range(count)]
        else:
            if isinstance(partitions, Mapping):  # partitions are equal
                for name, weight in partitions.items():
                    whole_number(weight, f"the weight of {name!r}", 1, 1)
            names = read_listed(partitions, "partitions")
        if not names or names != [str(i) for i in range(len(names))]:
            raise ValueError("there must be a partition, and they are named by the numbers from 0 on")
        if partitioner not in _HASHES:
            raise ValueError(f"there is no partitioner {partitioner!r}; there are {', '.join(_HASHES)}")
        count = len(names)
        self._place(
            dict.fromkeys(names, 1),
            {"partitioner": partitioner},
            keys=(_HASHES[partitioner], count, None),
            stretches=(np.arange(count, dtype=np.uint64), np.arange(count, dtype=np.int32)),
        )

    def _servers_after(self, changes: tuple[NodeChange, ...]) -> dict[str, Any]:
        servers = super()._servers_after(changes)
        return {name: servers[name] for name in sorted(servers, key=lambda name: (len(name), name))}

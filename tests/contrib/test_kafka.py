"""Kafka: partitions of keys, and real clients against the mock brokers of librdkafka."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from math import lcm
from pathlib import Path
from typing import Any

import pytest

from ringhash import Shards
from ringhash.contrib.kafka import (
    BrokenKey,
    KeyedProducer,
    NoKeyError,
    PartitionCountError,
    Partitioner,
    partition_plan,
)
from ringhash.interop import KafkaPartitioner

MOCK = 4  # the partitions of a topic of librdkafka's mock brokers
KEYS = [f"user:{i}" for i in range(200)] + ["", "über", "x" * 300]
PLACEMENTS = [MOCK, Shards(MOCK)]


# --- placement ---


def test_an_empty_key_is_a_key_and_none_is_none() -> None:
    """The trap: librdkafka's default sends both to any partition, Java only None."""
    assert [Partitioner(count).partition("") for count in (7, 12, 15)] == [2, 9, 6]
    assert [Partitioner(count).partition(b"") for count in (7, 12, 15)] == [2, 9, 6]
    for placement in (7, Shards(7), KafkaPartitioner(7, "consistent")):
        partitioner = Partitioner(placement)
        assert partitioner.partition("") == partitioner.partition(b"")
        with pytest.raises(NoKeyError):
            partitioner.partition(None)  # type: ignore[arg-type]
        with pytest.raises(NoKeyError):
            partitioner(None, range(7), range(7))  # type: ignore[arg-type]


def test_keys_are_the_bytes_that_are_sent() -> None:
    for placement in (12, Shards(12)):
        partitioner = Partitioner(placement)
        assert all(partitioner.partition(key) == partitioner.partition(key.encode()) for key in KEYS)
        for wrong in (7, 1.0, ("a",)):
            with pytest.raises(TypeError, match="serializer"):
                partitioner.partition(wrong)  # type: ignore[arg-type]
    shards = Shards(12)
    assert [Partitioner(shards).partition(key) for key in KEYS] == [shards.of(key) for key in KEYS]


def test_kafka_python_chooses_as_java() -> None:
    """The copy of Java's hash that kafka-python has."""
    murmur2 = pytest.importorskip("kafka.partitioner.default").murmur2
    for count in (1, 2, 3, 7, 12, 64, 1000):
        mine = Partitioner(count)
        for key in KEYS:
            assert mine(key.encode(), range(count)) == (murmur2(key.encode()) & 0x7FFFFFFF) % count


def test_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(PartitionCountError, match=r"partition_plan\(12, 13\)"):
        Partitioner(12)(b"k", list(range(13)), list(range(13)))
    for wrong in ("12", True, 1.5, None):
        with pytest.raises(TypeError):
            Partitioner(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hash tags"):
        Partitioner(Shards(4, hash_tags=True))


# --- plans ---


@pytest.mark.parametrize("counts", [(4, 8), (4, 5), (12, 18), (8, 4), (7, 7), (1, 3), (6, 4)])
@pytest.mark.parametrize("kind", [lambda count: count, Shards], ids=["java", "shards"])
def test_a_plan_says_which_keys_break(counts: tuple[int, int], kind: Any) -> None:
    old, new = counts
    plan = partition_plan(kind(old), kind(new))
    # The share and the pairs, counted over all remainders.
    remainders = range(lcm(old, new))
    assert plan.fraction == pytest.approx(sum(r % old != r % new for r in remainders) / len(remainders))
    pairs = {(r % old, r % new) for r in remainders if r % old != r % new}
    assert {(i, j) for j in range(new) for i in plan.waits_for(j)} == pairs
    # And key by key.
    before, after = Partitioner(kind(old)), Partitioner(kind(new))
    keys = [f"k{i}" for i in range(2000)]
    broken = [
        BrokenKey(key, before.partition(key), after.partition(key))
        for key in keys
        if before.partition(key) != after.partition(key)
    ]
    assert list(plan.broken(keys)) == broken
    assert [key for key, breaks in zip(keys, plan.mask(keys), strict=True) if breaks] == [
        b.key for b in broken
    ]
    assert all((found.before, found.after) in pairs for found in broken)
    assert abs(len(broken) / len(keys) - plan.fraction) < 0.05


def test_a_plan_from_one_hash_to_another() -> None:
    plan = partition_plan(12, Shards(12))
    keys = [f"k{i}" for i in range(3000)]
    assert not plan.is_one_hash
    assert abs(sum(plan.mask(keys)) / len(keys) - plan.fraction) < 0.03
    assert plan.waits_for(3) == tuple(i for i in range(12) if i != 3)
    assert not partition_plan(12, KafkaPartitioner(12, "consistent")).is_one_hash
    assert partition_plan(12, KafkaPartitioner(12)).fraction == 0
    for wrong in (-1, 12):
        with pytest.raises(ValueError, match="0 to 11"):
            plan.waits_for(wrong)


# --- real clients ---


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[str]]:
    confluent = pytest.importorskip("confluent_kafka")
    host = confluent.Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "mock", "log_level": 0})
    yield [f"{one.host}:{one.port}" for one in host.list_topics(timeout=60).brokers.values()]
    del host


@pytest.fixture
def producer(brokers: list[str]) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer({"bootstrap.servers": ",".join(brokers), "log_level": 0})


def consumed(brokers: list[str], topic: str, count: int) -> dict[str, list[tuple[int, bytes]]]:
    """What lies in the topic: (partition, value) by key, in the order in which it is read."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": ",".join(brokers), "group.id": "none", "log_level": 0}
    )
    found: dict[str, list[tuple[int, bytes]]] = {}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, i, 0) for i in range(MOCK)])
        for _ in range(count):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            # An empty key may arrive as none.
            key = (message.key() or b"").decode()
            found.setdefault(key, []).append((message.partition(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["java", "shards"])
def test_confluent_kafka(brokers: list[str], producer: Any, placement: Any) -> None:
    topic = f"confluent-{type(placement).__name__}"
    keyed = KeyedProducer(producer, topic, placement)
    told = {key: keyed.produce(key, str(i), headers=[("h", b"1")]) for i in range(3) for key in KEYS}
    assert producer.flush(60) == 0
    found = consumed(brokers, topic, 3 * len(KEYS))
    for key in KEYS:
        partition = Partitioner(placement).partition(key)
        assert told[key] == partition
        assert found[key] == [(partition, b"0"), (partition, b"1"), (partition, b"2")]  # in order
    with pytest.raises(NoKeyError):
        keyed.produce(None, "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the key says"):
        keyed.produce("k", "x", partition=1)
    with pytest.raises(PartitionCountError, match="has 4 partitions"):
        KeyedProducer(producer, topic, 12)


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_librdkafka_chooses_as_we_say(brokers: list[str], name: Any) -> None:
    """The placement is that of librdkafka itself, left to choose."""
    import confluent_kafka

    own = confluent_kafka.Producer(
        {"bootstrap.servers": ",".join(brokers), "partitioner": name, "log_level": 0}
    )
    for key in KEYS:
        own.produce(f"own-{name}", b"v", key)
    assert own.flush(60) == 0
    partitioner = Partitioner(KafkaPartitioner(MOCK, name))
    found = consumed(brokers, f"own-{name}", len(KEYS))
    assert {key: rows[0][0] for key, rows in found.items()} == {
        key: partitioner.partition(key) for key in KEYS
    }


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["java", "shards"])
def test_aiokafka(brokers: list[str], placement: Any) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def main() -> dict[str, int]:
        own = aiokafka.AIOKafkaProducer(bootstrap_servers=brokers, partitioner=Partitioner(placement))
        await own.start()
        try:
            sent = [await own.send("aio", b"v", key=key.encode()) for key in KEYS]
            return {key: (await one).partition for key, one in zip(KEYS, sent, strict=True)}
        finally:
            await own.stop()

    found = asyncio.run(asyncio.wait_for(main(), 120))
    assert found == {key: Partitioner(placement).partition(key) for key in KEYS}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["java", "shards"])
def test_kafka_python(brokers: list[str], placement: Any) -> None:
    """The mock brokers answer its older protocol; it cannot ask them for their version."""
    kafka = pytest.importorskip("kafka")
    from ringhash.contrib.kafka.kafka_python import KafkaPythonPartitioner

    own = kafka.KafkaProducer(
        bootstrap_servers=brokers,
        partitioner=KafkaPythonPartitioner(placement),
        api_version=(2, 0),
        enable_idempotence=False,
    )
    try:
        sent = [(key, own.send("python", b"v", key=key.encode())) for key in KEYS]
        found = {key: one.get(60).partition for key, one in sent}
    finally:
        own.close(10)
    assert found == {key: Partitioner(placement).partition(key) for key in KEYS}


def test_the_snippets_run(brokers: list[str]) -> None:
    """Those that talk to brokers; the others are sessions."""
    page = (Path(__file__).parent.parent.parent / "docs" / "kafka.md").read_text(encoding="utf-8")
    blocks = [
        block
        for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if not block.startswith(">>>")
    ]
    assert len(blocks) == 2
    addresses = ",".join(brokers)
    names: dict[str, Any] = {}
    exec(blocks[0].replace("10.0.0.1:9092", addresses), names)
    assert names["partition"] == Partitioner(4).partition("user:7")
    assert "user:7" in consumed(brokers, "orders", 2)
    if pytest.importorskip("aiokafka"):
        exec(blocks[1].replace("10.0.0.1:9092", addresses), names)
        asyncio.run(asyncio.wait_for(names["main"](), 60))
        assert len(consumed(brokers, "orders", 3)["user:7"]) == 2

"""redis-server, kafka-python and uhashring beside `RedisSlots`, `KafkaPartitioner` and `UHashPlacement`."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from conftest import Check
from programs import answers, binary, connect, ends_after, free_ports, fresh_keys, lines, running

from ringhash.interop import KafkaPartitioner, RedisSlots, UHashPlacement


def test_redis_cluster_keyslot(tmp_path: Path) -> None:
    program = binary("redis-server")
    (port,) = free_ports(1)
    command = [
        program, "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--save", "",
        "--dir", str(tmp_path), "--cluster-port", str(free_ports(1)[0]),
    ]  # fmt: skip
    slots = RedisSlots({"all": [(0, 16383)]})
    keys = fresh_keys(2000)
    keys += [
        form % key
        for key in fresh_keys(300)
        for form in ("{%s}:x", "a{%s}b{c}", "{}%s", "{%s", "}%s{", "{{%s}}")
    ]
    with running(command, tmp_path / "redis.log", lambda: answers(port)), connect(port) as sock:
        for start in range(0, len(keys), 100):
            part = keys[start : start + 100]
            asked = b"".join(
                b"*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n$%d\r\n%b\r\n" % (len(key.encode()), key.encode())
                for key in part
            )
            got = lines(sock, asked, ends_after(len(part)))
            said = [int(line[1:]) for line in got.split(b"\r\n")[:-1]]
            assert said == [slots.position(key) for key in part]


class OneTopic:
    """As much of the producer's view of the cluster as its partitioner asks for."""

    def __init__(self, partitions: int) -> None:
        self.every = set(range(partitions))

    def topics(self) -> set[str]:
        return {"topic"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self.every

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        return self.every


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 12, 100])
def test_kafka_python(partitions: int) -> None:
    producer = pytest.importorskip("kafka.partitioner.default")
    keys = fresh_keys(1000)
    choose = producer.DefaultPartitioner()
    every = list(range(partitions))
    if callable(choose):  # before 3.0
        said = [choose(key.encode(), every, every) for key in keys]
    else:
        cluster = OneTopic(partitions)
        said = [choose.partition("topic", key, key.encode(), None, None, cluster) for key in keys]
    ours = KafkaPartitioner(partitions)
    assert [ours.position(key) for key in keys] == said
    assert ours.owner_many(keys) == [str(one) for one in said]


@pytest.mark.parametrize("mode", ["default", "ketama"])
@pytest.mark.parametrize(
    "nodes",
    [
        {f"node{i}": 1 for i in range(5)},
        {"a": 1, "b": 2, "c": 3, "d": 1, "e": 5},
        {f"10.0.0.{i}:11211": i % 3 + 1 for i in range(25)},
    ],
    ids=["equal", "unequal", "25 nodes"],
)
def test_uhashring(check: Check, mode: Any, nodes: dict[str, int]) -> None:
    uhashring = pytest.importorskip("uhashring")
    real = uhashring.HashRing(nodes, **({"hash_fn": "ketama"} if mode == "ketama" else {}))
    keys = [*fresh_keys(1000), *(f"{name}-{i}" for name in nodes for i in range(10))]
    ours = UHashPlacement(nodes, mode)
    program = f"uhashring {importlib.metadata.version('uhashring')}"
    check(
        program,
        f"{mode} {len(nodes)} {max(nodes.values())}",
        ours,
        keys,
        [real.get_node(key) for key in keys],
    )

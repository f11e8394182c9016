"""The recipe of docs/tasks.md runs, with dramatiq over a real Redis server."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

dramatiq = pytest.importorskip("dramatiq")
redis = pytest.importorskip("redis")

from ringhash import Shards, assign

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks.md"


def run_until(done: list[Any], count: int) -> None:
    end = time.monotonic() + 60  # only a hang reaches it
    while len(done) < count:
        assert time.monotonic() < end, len(done)
        time.sleep(0.01)


def test_jobs_of_a_user_run_in_sequence(redis_nodes: list[Any]) -> None:
    with redis.Redis.from_url(redis_nodes[0].url) as client:
        client.flushall()
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    sending, working = (block.replace("redis://10.0.0.1", redis_nodes[0].url) for block in blocks)
    names: dict[str, Any] = {"done": []}
    done: list[tuple[str, int]] = names["done"]
    exec(sending, names)
    shards, assignment = Shards(64), assign(64, ["worker-1", "worker-2"])
    jobs = [(f"user:{i % 40}", i) for i in range(400)]
    for user, i in jobs:
        names["send"](names["charge"], user, user, i)
    sent = [("user:7", 10), ("user:8", 3), ("user:7", 20), *jobs]
    mine = [job for job in sent if assignment.owner(job[0]) == "worker-1"]
    assert 100 < len(mine) < 300
    exec(working, names)
    try:
        run_until(done, len(mine))
    finally:
        names["worker"].stop()
    # Only the jobs of its own shards, and those of each user in the order in which they were sent.
    assert sorted(done) == sorted(mine)
    for user in {user for user, _ in mine}:
        assert [job for job in done if job[0] == user] == [job for job in mine if job[0] == user]
    other = dramatiq.Worker(
        names["broker"],
        queues={f"jobs-{shard}" for shard in assignment.shards_of("worker-2")},
        worker_threads=1,
    )
    other.start()
    try:
        run_until(done, len(sent))
    finally:
        other.stop()
        names["broker"].close()
    assert sorted(done) == sorted(sent)
    assert all(shards.of(user) in assignment.shards_of(assignment.owner(user)) for user, _ in sent)


def test_with_one_queue_for_all_the_order_is_lost(redis_nodes: list[Any]) -> None:
    """The negative control: two workers on one queue; one is held up at its first job."""
    import threading

    from dramatiq.brokers.redis import RedisBroker

    with redis.Redis.from_url(redis_nodes[1].url) as client:
        client.flushall()
    broker = RedisBroker(url=redis_nodes[1].url, middleware=[])
    done: list[int] = []
    held = threading.Event()

    @dramatiq.actor(broker=broker, queue_name="jobs")
    def charge(number: int) -> None:
        if number == 0:
            held.wait(60)
        done.append(number)
        if number == 1:
            held.set()

    for number in range(2):
        charge.send(number)
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    try:
        run_until(done, 2)
    finally:
        worker.stop()
        broker.close()
    assert done == [1, 0]

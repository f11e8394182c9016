"""Keys move to another node while they are read and written: none is lost, none comes back, none is old."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pytest

redis = pytest.importorskip("redis")

from redis_servers import PROGRAM, Server, servers

from ringhash.contrib.redis import KeyMover, Ring
from ringhash.contrib.redis.exchange import Batch
from ringhash.contrib.redis.marks import MARKED
from ringhash.contrib.redis.moving import copy_marked, copy_piece
from ringhash.contrib.redis.sweep import drive, pages
from ringhash.errors import DuplicateNodeError, HandoverError
from ringhash.handover import Handover
from ringhash.handover.pieces import cut

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no redis-server here")

DAY = 86_400_000


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with servers(4, tmp_path_factory.mktemp("redis")) as found:
        yield dict(zip("abcd", found, strict=True))


@pytest.fixture
def ring(started: dict[str, Server]) -> Iterator[Ring]:
    for server in started.values():
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
    with Ring({name: started[name].url for name in "abc"}, socket_timeout=30.0) as ring:
        yield ring


def everything(ring: Ring) -> dict[bytes, bytes]:
    """What every node holds, each key once: a key on two nodes is an error."""
    found: dict[bytes, bytes] = {}
    for name, client in ring.each().items():
        for key in client.scan_iter(count=1000):
            assert not key.startswith(b"ringhash:"), f"{key!r} is left behind on {name}"
            assert key not in found, f"{key!r} is on two nodes"
            assert ring.node_of(key) == name, f"{key!r} is on {name}"
            found[key] = client.get(key)
    return found


def test_just_the_keys_of_the_plan_move_with_their_time_to_live(
    ring: Ring, started: dict[str, Server]
) -> None:
    keys = [f"k{i}" for i in range(3000)]
    ring.mset({key: f"v{key}" for key in keys})
    for key in keys[::10]:
        ring.pexpire(key, DAY)
    before = {key: ring.node_of(key) for key in keys}
    plan = ring.plan(add=["d"])
    status = ring.change(add={"d": started["d"].url})
    assert status.over
    moved = {key for key in keys if ring.node_of(key) != before[key]}
    assert moved == {key for key, yes in zip(keys, plan.mask(keys), strict=True) if yes}
    assert {ring.node_of(key) for key in moved} == {"d"}
    assert everything(ring) == {key.encode(): f"v{key}".encode() for key in keys}
    for i, key in enumerate(keys[:200]):
        left = ring.pttl(key)
        assert DAY - 600_000 < left <= DAY if i % 10 == 0 else left == -1

    # And back: the node leaves, and its keys go to the others.
    assert ring.change(remove=["d"]).over
    assert ring.names == ("a", "b", "c")
    assert {key: ring.node_of(key) for key in keys} == before
    assert everything(ring) == {key.encode(): f"v{key}".encode() for key in keys}


def test_every_kind_of_value_moves(ring: Ring, started: dict[str, Server]) -> None:
    for i in range(60):
        ring.set(f"s{i}", bytes(range(256)))
        ring.hset(f"h{i}", mapping={"a": 1, "b": 2})
        ring.rpush(f"l{i}", *range(20))
        ring.zadd(f"z{i}", {"m": 1.5})
        ring.xadd(f"x{i}", {"f": "v"})
    ring.change(add={"d": started["d"].url})
    for i in range(60):
        assert ring.get(f"s{i}") == bytes(range(256))
        assert ring.hgetall(f"h{i}") == {b"a": b"1", b"b": b"2"}
        assert ring.lrange(f"l{i}", 0, -1) == [str(n).encode() for n in range(20)]
        assert ring.zscore(f"z{i}", "m") == 1.5
        assert ring.xlen(f"x{i}") == 1


class Writers:
    """Threads that write, increment and delete keys of their own, and remember what was acknowledged."""

    def __init__(self, ring: Ring, count: int = 4) -> None:
        self.ring = ring
        self.stop = threading.Event()
        self.known: dict[bytes, bytes | None] = {}
        self.errors: list[BaseException] = []
        self.written = 0
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number: int) -> None:
        draw = random.Random(number)
        mine: dict[bytes, bytes | None] = {}
        try:
            while not self.stop.is_set():
                key = f"w{number}:{draw.randrange(200)}".encode()
                kind = draw.randrange(6)
                if kind == 0:
                    self.ring.delete(key)
                    mine[key] = None
                elif kind == 1:
                    mine[key] = str(self.ring.incr(key) if (mine.get(key) or b"0").isdigit() else 0).encode()
                    if mine[key] == b"0":
                        self.ring.set(key, b"0")
                elif kind == 2:
                    other = f"w{number}:{draw.randrange(200)}".encode()
                    self.ring.mset({key: b"1", other: b"2"})
                    mine |= {key: b"1", other: b"2"}
                elif kind == 3:
                    pipe = self.ring.pipeline()
                    assert pipe.set(key, b"3").get(key).execute() == [True, b"3"]
                    mine[key] = b"3"
                elif kind == 4:
                    with self.ring.pipeline(transaction=True) as pipe:
                        assert pipe.set(key, b"4").incr(key).execute() == [True, 5]
                    mine[key] = b"5"
                else:
                    value = str(draw.randrange(1000)).encode()
                    self.ring.set(key, value)
                    mine[key] = value
                assert self.ring.get(key) == mine[key], key  # its own write is read
                self.written += 1
        except BaseException as error:  # noqa: BLE001  the test shows it
            self.errors.append(error)
        finally:
            self.known |= mine


def test_writes_go_on_and_none_is_lost(ring: Ring, started: dict[str, Server]) -> None:
    with Writers(ring) as writers:
        while writers.written < 500:
            assert not writers.errors
            time.sleep(0.001)
        for _ in range(3):
            assert ring.change(add={"d": started["d"].url}, pause=0.01).over
            before = writers.written
            assert ring.change(remove=["d"]).over
            while writers.written < before + 100:
                assert not writers.errors
                time.sleep(0.001)
    assert not writers.errors
    expected = {key: value for key, value in writers.known.items() if value is not None}
    assert everything(ring) == expected


def test_the_control_without_marks_loses_writes(ring: Ring, started: dict[str, Server]) -> None:
    """If what is written during the copy is not copied again, it is lost: so the test above can fail."""
    ring.mset({f"k{i}": "old" for i in range(300)})
    plan = ring.plan(add=["d"])
    moving = [f"k{i}" for i in range(300) if plan.mask([f"k{i}"])[0]]

    class Forgetful(KeyMover):
        def prepare(self, piece: Any) -> bool:
            done = super().prepare(piece)
            for key in moving:
                if key in piece:
                    ring.set(key, "new")
            ring.node(piece.source).delete(MARKED)
            return done

    ring._join({"d": redis.Redis.from_url(started["d"].url)})
    Handover(ring.router, plan, Forgetful(ring), pause=0).run()
    assert moving
    assert {ring.get(key) for key in moving} == {b"old"}


def test_a_change_that_fails_leaves_everything_where_it_was(ring: Ring, started: dict[str, Server]) -> None:
    ring.mset({f"k{i}": i for i in range(500)})
    before = everything(ring)
    started["d"].stop()
    try:
        with pytest.raises(HandoverError, match="all is as before"):
            ring.change(add={"d": started["d"].url}, timeout=30.0)
    finally:
        started["d"].start()
    assert ring.names == ("a", "b", "c")
    assert everything(ring) == before
    assert ring.router.running is None
    assert ring.change(add={"d": started["d"].url}).over
    assert everything(ring) == before


def test_what_cannot_be_is_refused_before_anything_moves(ring: Ring, started: dict[str, Server]) -> None:
    with pytest.raises(DuplicateNodeError, match="'a' is there already"):
        ring.change(add={"a": started["a"].url})
    with pytest.raises(TypeError, match="list of names"):
        ring.change(remove="a")  # type: ignore[arg-type]
    assert ring.names == ("a", "b", "c")


class TestTheCopy:
    """The steps alone: what is copied, and over what."""

    @pytest.fixture
    def piece(self, ring: Ring, started: dict[str, Server]) -> Any:
        plan = ring.plan(add=["d"])
        ring._join({"d": redis.Redis.from_url(started["d"].url, socket_timeout=30.0)})
        return cut(plan)[0]

    @staticmethod
    def keys_in(piece: Any, count: int) -> list[str]:
        return [key for key in (f"k{i}" for i in range(10_000)) if key in piece][:count]

    @pytest.mark.parametrize("absolute", [True, False])
    def test_a_time_to_live_is_kept_and_none_is_none(self, ring: Ring, piece: Any, absolute: bool) -> None:
        source, target = ring.node(piece.source), ring.node(piece.target)
        plain, volatile, gone = self.keys_in(piece, 3)
        source.set(plain, 1)
        source.set(volatile, 1, px=DAY)
        source.set(gone, 1, px=1)
        time.sleep(0.01)
        drive(ring.each(), copy_piece(piece, absolute=absolute))
        assert target.pttl(plain) == -1
        assert DAY - 600_000 < target.pttl(volatile) <= DAY
        assert target.exists(gone) == 0

    def test_a_second_visit_of_scan_writes_over_nothing(self, ring: Ring, piece: Any) -> None:
        """SCAN may give a key twice; what the target has by then is newer."""
        source, target = ring.node(piece.source), ring.node(piece.target)
        (key,) = self.keys_in(piece, 1)
        source.set(key, "old")
        drive(ring.each(), copy_piece(piece, absolute=True))
        target.set(key, "newer")
        drive(ring.each(), copy_piece(replace(piece, repeat=True), absolute=True))
        assert target.get(key) == b"newer"

    def test_an_old_copy_from_before_is_not_served(self, ring: Ring, piece: Any) -> None:
        source, target = ring.node(piece.source), ring.node(piece.target)
        kept, dropped = self.keys_in(piece, 2)
        target.mset({kept: "ancient", dropped: "ancient"})
        source.set(kept, "now")
        drive(ring.each(), copy_piece(piece, absolute=True))
        assert target.get(kept) == b"now"
        assert target.get(dropped) is None

    def test_marked_keys_are_copied_again_and_deleted_ones_removed(self, ring: Ring, piece: Any) -> None:
        source, target = ring.node(piece.source), ring.node(piece.target)
        changed, removed, other = self.keys_in(piece, 3)
        source.mset({changed: 1, removed: 1, other: 1})
        drive(ring.each(), copy_piece(piece, absolute=True))
        source.set(changed, 2)
        source.delete(removed)
        source.sadd(MARKED, changed, removed)
        assert drive(ring.each(), copy_marked(piece, absolute=True)) == 2
        assert target.mget(changed, removed, other) == [b"2", None, b"1"]
        assert source.exists(MARKED) == 0

    def test_an_empty_page_of_scan_is_not_the_end(self) -> None:
        replies = [[b"7", []], [b"3", [b"k1", b"ringhash:x"]], [b"5", []], [b"0", [b"k2"]]]
        seen: list[bytes] = []

        def work(keys: list[bytes]) -> Any:
            seen.extend(keys)
            return
            yield

        steps = pages("a", lambda keys: [True] * len(keys), work)
        next(steps)
        for reply in replies[:-1]:
            assert isinstance(steps.send([[reply]])[0], Batch)
        with pytest.raises(StopIteration) as end:
            steps.send([[replies[-1]]])
        assert end.value.value == 2
        assert seen == [b"k1", b"k2"]

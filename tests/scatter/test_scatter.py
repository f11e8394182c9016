"""Scatters over real SQLite files and real sockets, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringhash import Ring, Router, assign
from ringhash.scatter import (
    Ask,
    By,
    Hedge,
    Need,
    Order,
    OrderError,
    Retry,
    Scatter,
    ScatterError,
    ScatterForbiddenError,
    ScatterMetrics,
    ScatterWarning,
    no_scatter,
)  # fmt: skip
from ringhash.scatter.parts import Part, read_parts

# --- peers that answer, fail, or never answer ---


class Peers:
    """Servers on loopback: `answer` replies, `fail` hangs up, `silent` accepts and says nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._sockets: list[socket.socket] = []
        self._how: dict[str, tuple[int, str]] = {}

    def add(self, name: str, how: str) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(server)
        self._how[name] = server.getsockname()[1], how
        threading.Thread(target=self._serve, args=(server, name, how), daemon=True).start()

    def _serve(self, server: socket.socket, name: str, how: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                self.asked.append(name)
                self._sockets.append(connection)
                if how == "answer":
                    connection.sendall(name.encode())
                if how != "silent":
                    connection.close()

    def call(self, ask: Ask) -> str:
        with socket.create_connection(("127.0.0.1", self._how[ask.node][0])) as connection:
            # Not close(): that does not wake up a thread that reads.
            ask.on_cancel(lambda: connection.shutdown(socket.SHUT_RDWR))
            answer = connection.recv(100).decode()
        if not answer:
            raise ConnectionError(f"{ask.node} hung up")
        return answer

    async def acall(self, ask: Ask) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._how[ask.node][0])
        try:
            answer = (await reader.read(100)).decode()
        finally:
            writer.close()
        if not answer:
            raise ConnectionError(f"{ask.node} hung up")
        return answer

    def close(self) -> None:
        for it in self._sockets:
            it.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    world = Peers()
    yield world
    world.close()


def run(how: str, peers: Peers, *names: str, **options: Any) -> Any:
    if how == "threads":
        return Scatter(peers.call, names, **options).run()
    return asyncio.run(Scatter(peers.acall, names, **options).arun())


HOW = pytest.mark.parametrize("how", ["threads", "tasks"])


@HOW
def test_values_come_in_the_order_of_the_nodes(how: str, peers: Peers) -> None:
    names = [f"db-{i}" for i in range(30)]
    for name in names:
        peers.add(name, "answer")
    result = run(how, peers, *names)
    assert list(result.values.items()) == [(name, name) for name in names]
    assert result.coverage.complete
    assert result.slowest[0] in names
    assert sorted(peers.asked) == sorted(names)


# --- TRAPS: one shard fails or is late ---


@HOW
def test_one_fails_and_one_is_silent(how: str, peers: Peers) -> None:
    """By default an error that names both, and it comes although C never answers."""
    for name, kind in (("A", "answer"), ("B", "fail"), ("C", "silent")):
        peers.add(name, kind)
    with pytest.raises(ScatterError, match=r"B: ConnectionError: B hung up.*C: ") as caught:
        run(how, peers, "A", "B", "C", deadline=60)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert set(caught.value.coverage.missing) >= {"B", "C"}


@HOW
def test_a_partial_answer_only_where_it_is_asked_for(how: str, peers: Peers) -> None:
    for name, kind in (("A", "answer"), ("B", "fail"), ("C", "silent")):
        peers.add(name, kind)
    result = run(how, peers, "A", "B", "C", deadline=0.3, need=0.3)
    assert result.values == {"A": "A"}
    assert (result.coverage.answered, result.coverage.failed, result.coverage.timed_out) == (1, 1, 1)
    assert not result.coverage.complete


@HOW
def test_a_silent_peer_does_not_hold_the_deadline(how: str, peers: Peers) -> None:
    """More parts than may be asked at a time, all silent: one deadline for the whole."""
    names = [f"s{i}" for i in range(6)]
    for name in names:
        peers.add(name, "silent")
    with pytest.raises(ScatterError, match=r"within 0.2 s.*and 1 more") as caught:
        run(how, peers, *names, deadline=0.2, limit=2)
    assert (caught.value.coverage.timed_out, caught.value.coverage.skipped) == (2, 4)
    assert len(peers.asked) == 2


@HOW
def test_no_answer_is_an_error_whatever_the_need(how: str, peers: Peers) -> None:
    peers.add("A", "fail")
    with pytest.raises(ScatterError, match="0 of 1 answered"):
        run(how, peers, "A", need=0.0001)
    with pytest.raises(ScatterError, match="no nodes to ask"):
        run(how, peers, need=0.5)


@HOW
def test_retry_and_hedge_over_real_sockets(how: str, peers: Peers) -> None:
    for name, kind in (("x", "fail"), ("y", "answer"), ("z", "silent")):
        peers.add(name, kind)
    result = run(how, peers, "x", "z", replicas={"x": ["y"], "z": ["y"]}, retry=1, hedge=0.01)
    assert result.values == {"x": "y", "z": "y"}
    # A slow machine may hedge the call that fails before its failure is heard, and then need not retry it.
    assert result.coverage.retries + result.coverage.hedges == 2
    assert result.coverage.hedges >= 1


def test_the_call_of_a_late_thread_is_ended(peers: Peers) -> None:
    peers.add("C", "silent")
    ended = threading.Event()

    def call(ask: Ask) -> str:
        try:
            return peers.call(ask)
        finally:
            assert ask.cancelled
            assert ask.timeout == 0
            ended.set()

    with pytest.raises(ScatterError):
        Scatter(call, ["C"], deadline=0.1).run()
    assert ended.wait(30)


def test_late_tasks_are_cancelled_and_awaited() -> None:
    ended: list[str] = []

    async def call(ask: Ask) -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(ask.node)
        return 1

    async def main() -> None:
        with pytest.raises(ScatterError):
            await Scatter(call, ["a", "b"], deadline=0.05).arun()
        assert sorted(ended) == ["a", "b"]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_task_that_does_not_want_to_end_is_left_behind() -> None:
    release = []

    async def call(ask: Ask) -> int:
        while not release:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return 1

    async def main() -> None:
        with pytest.raises(ScatterError):
            await Scatter(call, ["a"], deadline=0.05).arun()
        release.append(True)

    asyncio.run(main())


def test_cancelling_the_caller_cancels_the_calls() -> None:
    ended: list[str] = []

    async def call(ask: Ask) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(ask.node)

    async def main() -> None:
        task = asyncio.create_task(Scatter(call, ["a", "b"]).arun())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == ["a", "b"]

    asyncio.run(main())


def test_a_clock_of_ones_own() -> None:
    """The deadline passes on the given clock, without any waiting of ours."""
    times = iter([0.0, 0.0, *[100.0] * 1000])
    block = threading.Event()
    with pytest.raises(ScatterError, match="within 50 s"):
        Scatter(lambda ask: block.wait(60), ["a"], deadline=50, clock=lambda: next(times)).run()
    block.set()


def test_many_threads_run_one_scatter() -> None:
    """The totals are exact, and never more than `limit` calls of one run are under way."""
    metrics = ScatterMetrics()
    lock, now, most = threading.Lock(), 0, 0

    def call(ask: Ask) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        with lock:
            now -= 1
        return 1

    scatter = Scatter(call, [f"n{i}" for i in range(20)], limit=3, metrics=metrics)
    threads = [threading.Thread(target=lambda: [scatter.run() for _ in range(20)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = metrics.report()
    assert (report.runs, report.calls, report.answered) == (100, 2000, 2000)
    assert report.fan_out == {20: 100}
    assert most <= 15


# --- who is asked ---


def test_nodes_of_a_ring_a_router_and_an_assignment() -> None:
    ring = Ring(["a", "b", "c"])
    assert [part.name for part in read_parts(ring).parts] == ["a", "b", "c"]
    shares = read_parts(ring).shares
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["a"] == pytest.approx(ring.shares["a"])
    router = Router(["a", "b"])
    router.mark_down("b")
    assert read_parts(router).down == {"b"}
    assignment = assign(8, ["x", "y"])
    if hasattr(assignment, "names") or hasattr(assignment, "nodes"):
        assert [part.name for part in read_parts(assignment).parts] == ["x", "y"]
    assert read_parts({"s1": "x", "s2": "x"}).parts == (Part("s1", ("x",)), Part("s2", ("x",)))


def test_a_router_is_read_at_every_run() -> None:
    router = Router(["a", "b"])
    scatter = Scatter(lambda ask: ask.node, router, need=0.1)
    assert list(scatter.run().values) == ["a", "b"]
    router.add("c")
    result = scatter.run()
    assert list(result.values) == ["a", "b", "c"]
    assert result.coverage.keys == 1.0
    router.mark_down("c")
    result = scatter.run()
    assert result.coverage.skipped == 1
    assert 0 < result.coverage.keys < 1


@pytest.mark.parametrize("nodes", ["a", 5, [1], None])
def test_nodes_that_are_none(nodes: object) -> None:
    with pytest.raises(TypeError, match="node"):
        Scatter(lambda ask: 1, nodes)


def test_a_part_twice_and_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="twice"):
        Scatter(lambda ask: 1, ["a", "a"])
    with pytest.raises(ScatterError, match="not asked"):
        Scatter(lambda ask: 1, ["a"], need={"b"}).run()


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"per_node": 0},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"block": 0},
        {"need": 2},
        {"hedge": -1},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Scatter(lambda ask: 1, ["a"], **options)


# --- where it is not wanted ---


def test_no_scatter_is_an_error_inside() -> None:
    called: list[str] = []
    scatter = Scatter(lambda ask: called.append(ask.node), ["a", "b"])
    with no_scatter("checkout"), pytest.raises(ScatterForbiddenError, match=r"2 parts.*checkout"):
        scatter.run()
    assert called == []
    with no_scatter():
        assert Scatter(lambda ask: 1, ["a"]).run().values == {"a": 1}  # one part is no scatter
    scatter.run()
    assert sorted(called) == ["a", "b"]


def test_no_scatter_reaches_calls_and_tasks() -> None:
    inner = Scatter(lambda ask: 1, ["a", "b"])
    outer = Scatter(lambda ask: inner.run(), ["x"])
    with no_scatter(), pytest.raises(ScatterError, match="ScatterForbiddenError"):
        outer.run()

    async def main() -> None:
        with no_scatter():
            task = asyncio.create_task(inner.arun())
        with pytest.raises(ScatterForbiddenError):
            await task

    asyncio.run(main())


def test_a_warning_above_a_number_of_parts() -> None:
    with pytest.warns(ScatterWarning, match="over 3 parts, above 2") as caught:
        Scatter(lambda ask: 1, ["a", "b", "c"], warn_above=2).run()
    assert caught[0].filename == __file__
    Scatter(lambda ask: 1, ["a", "b"], warn_above=2).run()


def test_metrics_show_the_worst() -> None:
    metrics = ScatterMetrics()

    def call(ask: Ask) -> int:
        if ask.node == "bad":
            raise OSError("gone")
        return 1

    scatter = Scatter(call, ["a", "bad"], need=0.5, metrics=metrics)
    scatter.run()
    with pytest.raises(ScatterError):
        Scatter(call, ["bad"], metrics=metrics).run()
    report = metrics.report()
    assert (report.runs, report.refused, report.partial, report.failed) == (2, 1, 1, 2)
    assert report.nodes["bad"].missing == 2
    assert report.slowest == "a"


# --- rows of SQLite ---


class Shards:
    """SQLite files with the rows of `items`, by shard; every call opens its own connection."""

    def __init__(self, folder: Path, rows: dict[str, list[tuple[Any, ...]]]) -> None:
        self.folder = folder
        self.read = 0
        self.closed = 0
        for name, some in rows.items():
            with contextlib.closing(sqlite3.connect(folder / name)) as database, database:
                database.execute("CREATE TABLE items (id INTEGER, at INTEGER, name TEXT)")
                database.executemany("INSERT INTO items VALUES (?, ?, ?)", some)

    def rows(self, order: Order, *, heed: bool = True) -> Callable[[Ask], Iterator[sqlite3.Row]]:
        def call(ask: Ask) -> Iterator[sqlite3.Row]:
            condition, arguments = ("1 = 1", [])
            if ask.after is not None and heed:
                condition, arguments = order.after(ask.after)
            statement = f"SELECT * FROM items WHERE {condition} ORDER BY {order.sql('sqlite')}"
            with contextlib.closing(sqlite3.connect(self.folder / ask.node)) as database:
                database.row_factory = sqlite3.Row
                for row in database.execute(statement, arguments):
                    self.read += 1
                    yield row
            self.closed += 1

        return call


def items(count: int) -> list[tuple[int, int | None, str]]:
    return [(i, None if i % 7 == 0 else i * 37 % 50, f"n{i}") for i in range(count)]


def order_of(down: bool, nulls: Any) -> Order:
    return Order([By("at", down, nulls), By("name", not down, collation="C"), "id"])


@HOW
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("nulls", ["first", "last"])
def test_merged_as_one_database_sorts(how: str, down: bool, nulls: str, tmp_path: Path) -> None:
    everything = items(500)
    rows = {f"s{i}": everything[i::4] for i in range(4)} | {"empty": [], "whole": everything}
    shards, order = Shards(tmp_path, rows), order_of(down, nulls)
    scatter = Scatter(shards.rows(order), [name for name in rows if name != "whole"], block=16)
    if how == "threads":
        found = [row["id"] for row in scatter.merge(order.columns)]
    else:

        async def main() -> list[int]:
            return [row["id"] async for row in scatter.amerge(order.columns)]

        found = asyncio.run(main())
    with contextlib.closing(sqlite3.connect(tmp_path / "whole")) as database:
        expected = [i for (i,) in database.execute(f"SELECT id FROM items ORDER BY {order.sql('sqlite')}")]
    assert found == expected


def test_a_limit_reads_little_and_closes_the_streams(tmp_path: Path) -> None:
    shards = Shards(tmp_path, {f"s{i}": items(2000) for i in range(4)})
    order = Order(["id"])
    merged = Scatter(shards.rows(order), [f"s{i}" for i in range(4)]).merge("id", limit=20)
    assert [row["id"] for row in merged] == [i for i in range(5) for _ in range(4)]
    assert merged.coverage is not None
    assert merged.coverage.complete
    assert shards.read <= 20 + 4 * 2 * 5
    rest = Scatter(shards.rows(order), [f"s{i}" for i in range(4)], block=100).merge("id")
    with rest:
        next(rest)
    assert list(rest) == []
    assert shards.read < 4 * 2000


def test_a_row_in_two_places_comes_once(tmp_path: Path) -> None:
    """As during a backfill: shard 1 has copies of some rows of shard 0."""
    shards = Shards(tmp_path, {"s0": items(100), "s1": items(50)})
    order = order_of(False, "last")
    scatter = Scatter(shards.rows(order), ["s0", "s1"])
    assert sorted(row["id"] for row in scatter.merge(order.columns, unique="id")) == list(range(100))
    assert len(list(scatter.merge(order.columns))) == 150  # the control


def test_a_stream_that_breaks_is_an_error_and_not_an_end(tmp_path: Path) -> None:
    def call(ask: Ask) -> Iterator[dict[str, int]]:
        for i in range(100):
            if ask.node == "b" and i == 50:
                raise OSError("reset")
            yield {"id": i}

    merged = Scatter(call, ["a", "b"], block=10, retry=5).merge("id")
    seen = []
    with pytest.raises(ScatterError, match="b: OSError: reset"):
        seen.extend(row["id"] for row in merged)
    assert seen == [i for i in range(100) for _ in range(2)][: len(seen)]
    partial = Scatter(call, ["a", "b"], block=10, need=0.5).merge("id")
    ids = [row["id"] for row in partial]
    assert ids == sorted(ids)
    assert set(ids) == set(range(100))
    assert partial.coverage is not None
    assert partial.coverage.failed == 1


def test_a_stream_that_falls_silent_does_not_hold_the_deadline() -> None:
    def call(ask: Ask) -> Iterator[dict[str, int]]:
        yield {"id": 1}
        if ask.node == "b":
            forever = threading.Event()
            ask.on_cancel(forever.set)
            forever.wait()

    with pytest.raises(ScatterError, match="b: no answer within"):
        list(Scatter(call, ["a", "b"], block=1, deadline=0.2).merge("id"))


def test_an_unsorted_shard_is_an_error(tmp_path: Path) -> None:
    rows = {"a": [{"id": 1}, {"id": 2}], "b": [{"id": 3}, {"id": 0}]}
    with pytest.raises(OrderError, match="'b' are not in the order id"):
        list(Scatter(lambda ask: rows[ask.node], ["a", "b"]).merge("id"))


# --- pages ---


@HOW
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("nulls", ["first", "last"])
def test_pages_survive_a_resharding(how: str, down: bool, nulls: str, tmp_path: Path) -> None:
    """Each page is read from other shards than the one before, and no row is missed or doubled."""
    everything = items(200)
    order = order_of(down, nulls)
    tokens: list[str | None] = [None]
    found: list[int] = []
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = {f"s{i}": everything[i::number] for i in range(min(number, 9))}
        rows["s0"] = [row for i, row in enumerate(everything) if i % number not in range(1, min(number, 9))]
        shards = Shards(folder, rows)
        scatter = Scatter(shards.rows(order), list(rows))
        if how == "threads":
            page = scatter.page(order.columns, 23, unique="id", after=tokens[-1])
        else:
            page = asyncio.run(scatter.apage(order.columns, 23, unique="id", after=tokens[-1]))
        found += [row["id"] for row in page.rows]
        tokens.append(page.next)
        if page.next is None:
            break
    whole = Shards(tmp_path, {"whole": everything})
    assert found == [row["id"] for row in Scatter(whole.rows(order), ["whole"]).merge(order.columns)]
    assert len(tokens) == 10


def test_a_page_that_ends_with_the_rows_is_the_last() -> None:
    call: Callable[[Ask], Any] = lambda ask: [{"id": i} for i in range(10)]  # noqa: E731
    assert Scatter(call, ["a"]).page("id", 10, unique="id").next is None
    assert Scatter(call, ["a"]).page("id", 9, unique="id").next is not None


def test_a_call_that_does_not_heed_the_token_is_found(tmp_path: Path) -> None:
    shards, order = Shards(tmp_path, {"s0": items(50)}), Order("id")
    first = Scatter(shards.rows(order), ["s0"]).page("id", 5, unique="id")
    with pytest.raises(ScatterError, match=r"ask\.after"):
        Scatter(shards.rows(order, heed=False), ["s0"]).page("id", 5, unique="id", after=first.next)


def test_a_page_needs_a_place_that_is_one_row() -> None:
    with pytest.raises(OrderError, match="last column of order_by must be 'id'"):
        Scatter(lambda ask: [], ["a"]).page("at", 5, unique="id")


def test_need_and_retry_given_as_objects() -> None:
    scatter = Scatter(
        lambda ask: 1, ["a", "b"], need=Need(0.5, frozenset({"a"})), retry=Retry(2), hedge=Hedge()
    )
    assert scatter.run().coverage.complete

"""A fleet opens the right database, however old its router is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet_world import make_table, rows_in

from ringhash import Moved, RangeMap, Ring, Router, UnknownNodeError
from ringhash.databases import open_database
from ringhash.errors import DatabaseAddressError, FenceError, TransactionEndedError
from ringhash.fleet import AsyncFleet, Fleet, Moving, set_fence

Make = Callable[..., Fleet]


def key_of(router: Router, node: str) -> str:
    return next(key for key in map(str, range(10_000)) if router.owner(key) == node)


def say(fleet: Fleet, node: str, key: Any, state: Any, owner: str | None, epoch: int = 1) -> None:
    """Write to the fence of a node, for one key of a ring."""
    low = fleet.router.placement.space.address(key)
    high = (int.from_bytes(low, "big") + 1).to_bytes(len(low), "big")
    with fleet.database(node).transaction(write=True) as tx:
        set_fence(tx, [(low, high)], state, owner, epoch)


def test_a_block_runs_on_the_owner_and_commits(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    make_table(fleet)
    for number in range(12):
        with fleet.write(f"t{number}") as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?, NULL)", [number, f"t{number}"])
    for name in fleet.names:
        assert {fleet.router.owner(row[1]) for row in rows_in(fleet, name)} <= {name}
    assert sum(len(rows_in(fleet, name)) for name in fleet.names) == 12
    with fleet.read("t3") as tx:
        assert tx.execute("SELECT id FROM orders WHERE tenant = ?", ["t3"]).rows == [(3,)]
    assert fleet.metrics.report()[:3] == (12, 1, 0)


def test_a_block_that_raises_stores_nothing_and_cannot_commit_itself(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    make_table(fleet)
    with pytest.raises(ZeroDivisionError), fleet.write("a") as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'a', NULL)")
        1 / 0  # noqa: B018
    with pytest.raises(TransactionEndedError), fleet.write("a") as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'a', NULL)")
        tx.execute("COMMIT")
    assert rows_in(fleet, fleet.router.owner("a")) == []


def test_a_key_that_went_is_followed_once(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    make_table(fleet)
    key = key_of(fleet.router, "db-1")
    say(fleet, "db-1", key, "gone", "db-3")
    with fleet.write(key) as tx:
        tx.execute("INSERT INTO orders VALUES (1, ?, NULL)", [key])
    assert [len(rows_in(fleet, name)) for name in fleet.names] == [0, 0, 1]
    assert fleet.metrics.report().redirects == 1
    with fleet.read(key) as tx:
        assert len(tx.execute("SELECT * FROM orders").rows) == 1


def test_a_key_that_moves_is_waited_for(fleet_of: Make) -> None:
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        if len(slept) == 5:
            say(fleet, "db-1", key, "here", None, 2)

    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]), wait=1.0, clock=lambda: now[0], sleep=sleep)
    key = key_of(fleet.router, "db-1")
    say(fleet, "db-1", key, "moving", "db-2")
    with fleet.read(key):
        pass  # readers do not wait
    assert slept == []
    with fleet.write(key):
        pass
    assert len(slept) == 5
    report = fleet.metrics.report()
    assert (report.waits, report.refused) == (1, 0)
    say(fleet, "db-1", key, "moving", "db-2", 3)
    with pytest.raises(Moving, match="db-2"), fleet.write(key, wait=0.3):
        pass
    assert fleet.metrics.report().refused == 1


def test_two_databases_that_name_each_other_are_waited_for(fleet_of: Make) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 0.5:
            say(fleet, "db-2", key, "here", None, 2)

    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]), clock=lambda: now[0], sleep=sleep)
    key = key_of(fleet.router, "db-1")
    say(fleet, "db-1", key, "gone", "db-2")
    say(fleet, "db-2", key, "gone", "db-1")
    with fleet.write(key) as tx:
        assert tx.execute("SELECT count(*) FROM ringhash_fence").rows
    assert 0.5 < now[0] < 1.0


def test_a_node_without_a_database_is_named(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    key = key_of(fleet.router, "db-1")
    say(fleet, "db-1", key, "gone", "db-9")
    with pytest.raises(Moved, match="db-9"), fleet.write(key):
        pass


def test_marks_of_nodes_that_are_down_send_nobody_to_another_database(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    make_table(fleet)
    key = key_of(fleet.router, "db-1")
    fleet.router.mark_down("db-1")
    assert fleet.router.owner(key) != "db-1"
    with fleet.write(key) as tx:
        tx.execute("INSERT INTO orders VALUES (1, ?, NULL)", [key])
    assert len(rows_in(fleet, "db-1")) == 1


def test_another_address_changes_nothing_of_the_placement(fleet_of: Make, addresses: dict[str, str]) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2"]))
    before = fleet.router.to_dict()
    fleet.replace("db-1", addresses["db-3"])
    make_table(fleet)
    key = key_of(fleet.router, "db-1")
    with fleet.write(key) as tx:
        tx.execute("INSERT INTO orders VALUES (1, ?, NULL)", [key])
    with open_database(addresses["db-3"]) as third:
        assert third.execute("SELECT count(*) FROM orders").rows == [(1,)]
    assert fleet.router.to_dict() == before


def test_a_fence_of_other_keys_is_refused(fleet_of: Make) -> None:
    fleet_of(Ring(["db-1", "db-2"]))
    fleet_of(Ring(["db-1", "db-2", "db-3"]))  # other nodes are the same keys
    with pytest.raises(FenceError, match="seed"):
        fleet_of(Ring(["db-1", "db-2"], seed=7))
    with pytest.raises(FenceError, match="ordered"):
        fleet_of(RangeMap([(None, "db-1")], keys=str))


def test_a_database_without_a_fence_lets_nobody_in(addresses: dict[str, str]) -> None:
    with Fleet(addresses, Router(["db-1"])) as fleet:
        with pytest.raises(Exception, match="ringhash_fence"), fleet.write("a"):
            pass
        fleet.install()
        with fleet.write("a") as tx:
            tx.execute("DELETE FROM ringhash_fence")
        with pytest.raises(FenceError, match="install"), fleet.write("a"):
            pass


def test_asyncio(fleet_of: Make) -> None:
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    make_table(fleet)
    tasks = AsyncFleet(fleet)

    async def one(number: int) -> None:
        async with tasks.write(f"t{number}") as tx:
            await tx.execute("INSERT INTO orders VALUES (?, ?, NULL)", [number, f"t{number}"])

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(8)))
        with pytest.raises(ZeroDivisionError):
            async with tasks.write("t1") as tx:
                await tx.execute("DELETE FROM orders")
                1 / 0  # noqa: B018
        async with tasks.read("t1") as tx:
            found = await tx.execute("SELECT id FROM orders WHERE tenant = ?", ["t1"])
            assert found.rows == [(1,)]
        task = asyncio.create_task(slow(started := asyncio.Event()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def slow(started: asyncio.Event) -> None:
        async with tasks.write("t1") as tx:
            await tx.execute("DELETE FROM orders")
            started.set()
            await asyncio.Event().wait()

    asyncio.run(main())
    assert sum(len(rows_in(fleet, name)) for name in fleet.names) == 8


def test_a_mover_waits_for_a_writer_and_for_nobody_who_came_later(fleet_of: Make, dialect: str) -> None:
    from ringhash.errors import DrainTimeoutError
    from ringhash.fleet import drain

    if dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time, so the change of the fence itself waits")
    fleet = fleet_of(Ring(["db-1", "db-2", "db-3"]))
    key = key_of(fleet.router, "db-1")
    entered, leave = threading.Event(), threading.Event()

    def writer() -> None:
        with fleet.write(key):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=writer)
    thread.start()
    assert entered.wait(60)
    say(fleet, "db-1", key, "moving", "db-2")
    with pytest.raises(DrainTimeoutError) as late:
        drain(fleet.database("db-1"), 0.0)
    assert len(late.value.pids) == 1
    other = key_of(Router(["db-1", "db-2", "db-3"]), "db-1") + "x"
    with fleet.write(next(k for k in (f"{other}{i}" for i in range(99)) if fleet.router.owner(k) == "db-1")):
        pass  # writers of other keys go on meanwhile
    leave.set()
    drain(fleet.database("db-1"), 60.0)
    thread.join()


# --- arguments ---


def test_arguments_are_checked(tmp_path: Path) -> None:
    paths = {"db-1": str(tmp_path / "1.db")}
    with pytest.raises(UnknownNodeError, match="'db-2'"):
        Fleet(paths, Router(["db-1", "db-2"]))
    with pytest.raises(TypeError, match="Router"):
        Fleet(paths, Ring(["db-1"]))  # type: ignore[arg-type]
    for wrong in ("mysql://u:secret@h/d", ":memory:", "mariadb://u:secret@h/d"):
        with pytest.raises(DatabaseAddressError) as refused:
            Fleet({"db-1": wrong}, Router(["db-1"]))
        assert "secret" not in str(refused.value)
    with pytest.raises(UnknownNodeError):
        Fleet(paths, Router(["db-1"]), replicas={"db-7": ["x"]})
    with Fleet(paths, Router(["db-1"])) as fleet:
        with pytest.raises(UnknownNodeError):
            fleet.database("db-7")
        fleet.install()
        with pytest.raises(TypeError), fleet.write(None):
            pass


def test_no_password_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("psycopg_pool")
    address = "postgresql://app:s3cret@127.0.0.1:1/shop"
    with Fleet({"db-1": address}, Router(["db-1"]), timeout=1.0) as fleet:
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError) as failed, fleet.write("a"):
            pass
        assert time.monotonic() - began < 60
        shown = f"{fleet!r} {failed.value!r} {failed.value} {fleet.database('db-1')!r} {caplog.text}"
    assert "s3cret" not in shown
    assert "127.0.0.1" in shown

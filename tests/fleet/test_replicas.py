"""Reads from a replica, with a bound on how far it is behind: a real one, that streams."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("psycopg_pool")
import psycopg

from ringhash import Moved, Ring, Router
from ringhash.errors import ReplicaLagError
from ringhash.fleet import Fleet, set_fence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    """A primary and its streaming replica."""
    from postgres_server import NoServerError, PostgresServer

    try:
        primary = PostgresServer(wal_level="replica", max_wal_senders="4", hot_standby="on")
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    replica = PostgresServer.__new__(PostgresServer)
    replica.__dict__.update(vars(primary))
    import shutil
    import tempfile
    from pathlib import Path

    replica.folder = Path(tempfile.mkdtemp(prefix="ringhash-pg-", dir="/tmp"))
    replica.data, replica.log = replica.folder / "data", replica.folder / "log"
    if primary.user is not None:
        os.chown(replica.folder, pwd.getpwnam(primary.user).pw_uid, -1)
    subprocess.run(
        [str(primary.binaries / "pg_basebackup"), "-h", str(primary.folder), "-U", "ringhash", "-D", str(replica.data),
         "-R", "-X", "stream", "-c", "fast"],
        user=primary.user, cwd=replica.folder, check=True, capture_output=True,
    )  # fmt: skip
    replica.process = None
    replica.start()
    yield primary, replica
    replica.stop("immediate")
    shutil.rmtree(replica.folder, ignore_errors=True)
    primary.remove()


def wait_until(what: Any) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_replica_answers_within_the_bound_and_not_beyond_it(pair: Any) -> None:
    primary, replica = pair
    router = Router(Ring(["db-1"]))
    with Fleet({"db-1": primary.address}, router, replicas={"db-1": [replica.address]}, timeout=5.0) as fleet:
        fleet.install()
        with fleet.write("acme") as tx:
            tx.execute("CREATE TABLE orders (id int PRIMARY KEY)")
            tx.execute("INSERT INTO orders VALUES (1)")

        def there() -> bool:
            try:
                with fleet.read("acme", stale=60.0) as tx:
                    assert tx.execute("SELECT pg_is_in_recovery()").rows == [(True,)]
                    return bool(tx.execute("SELECT * FROM orders").rows == [(1,)])
            except (psycopg.Error, ReplicaLagError):
                return False

        wait_until(there)
        with fleet.read("acme") as tx:
            assert tx.execute("SELECT pg_is_in_recovery()").rows == [(False,)]
        with fleet.read("acme", stale=0.0) as tx:  # all that was sent is replayed, however long ago that was
            assert tx.execute("SELECT pg_is_in_recovery()").rows == [(True,)]
        with psycopg.connect(replica.address, autocommit=True) as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
        with fleet.write("acme") as tx:
            tx.execute("INSERT INTO orders VALUES (2)")

        def behind() -> bool:
            try:
                with fleet.read("acme", stale=0.01):
                    return False
            except ReplicaLagError as error:
                return "s behind" in str(error)

        wait_until(behind)
        with fleet.read("acme", stale=3600.0) as tx:
            assert tx.execute("SELECT * FROM orders").rows == [(1,)]
        with psycopg.connect(replica.address, autocommit=True) as connection:
            connection.execute("SELECT pg_wal_replay_resume()")
        with fleet.database("db-1").transaction(write=True) as tx:
            set_fence(tx, [(b"", None)], "gone", "db-9", 1)

        def moved() -> bool:
            try:
                with fleet.read("acme", stale=3600.0):
                    return False
            except Moved as error:
                return error.to == "db-9"

        wait_until(moved)
        primary.stop("immediate")
        with pytest.raises(ReplicaLagError), fleet.read("acme", stale=-1.0):
            pass
        primary.start()


def test_a_node_without_replicas_answers_itself(pair: Any) -> None:
    primary, _ = pair
    with Fleet({"db-1": primary.address}, Router(Ring(["db-1"]))) as fleet:
        with fleet.database("db-1").transaction(write=True) as tx:
            set_fence(tx, [(b"", None)], "here", None, 2)
        with fleet.read("acme", stale=1.0) as tx:
            assert tx.execute("SELECT pg_is_in_recovery()").rows == [(False,)]

"""Seeing leases: the status, and the command that shows it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ringhash.databases import open_database
from ringhash.leases import LeaseTable, read_status
from ringhash.leases.rows import LeaseRow, WorkerRow
from ringhash.leases.status import status_from


def test_a_status_says_what_is_wrong() -> None:
    rows = [
        LeaseRow(0, "a#1", 3, 5.0, 25.0),
        LeaseRow(1, "a#1", 1, 5.0, 25.0),
        LeaseRow(2, "b#2", 1, 60.0, -1.0),  # expired
        LeaseRow(3, "c#3", 2, 9.0, 1.0),  # its worker's heartbeat has run out
        LeaseRow(4, None, 0, None, None),
    ]
    workers = [WorkerRow("a#1", 2.0, 28.0), WorkerRow("c#3", 31.0, -1.0), WorkerRow("d#4", 0.0, 30.0)]
    status = status_from(rows, [*workers, WorkerRow("long gone#5", 999.0, -900.0)])
    assert status.free == (2, 4)
    assert [(w.name, w.incarnation, w.shards, w.alive) for w in status.workers] == [
        ("a", "1", (0, 1), True),
        ("c", "3", (3,), False),
        ("d", "4", (), True),
    ]
    assert (status.claims, status.spread, status.peak_to_mean) == (7, 2, 2.0)
    assert str(status).splitlines() == [
        "worker  incarnation  shards  heartbeat",
        "a       1                 2      2.0 s  0-1",
        "c       3                 1     31.0 s  DEAD 3",
        "d       4                 0      0.0 s",
        "5 shards, 2 free (2, 4); max - min 2, max/mean 2.000; 7 claims so far",
    ]
    json.dumps(status.to_dict())


def test_a_name_may_hold_anything() -> None:
    status = status_from([LeaseRow(0, "a#b#1", 1, 0.0, 1.0)], [WorkerRow("a#b#1", 0.0, 1.0)])
    assert status.workers[0][:2] == ("a#b", "1")


def test_reading_changes_nothing(db: Any, group: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_status(tmp_path / "not there.db")
    assert not (tmp_path / "not there.db").exists()
    with open_database(db) as database:
        database.execute("SELECT 1")
    with pytest.raises(LookupError, match="no lease table"):
        read_status(db, group)
    table = LeaseTable(db, 3, 30, name=group)
    assert table.status().free == (0, 1, 2)
    assert read_status(db, group) == table.status()


def test_reading_writes_nothing(tmp_path: Path) -> None:
    """Neither an empty file nor a SQLite file of another program becomes anything else by being looked at."""
    (tmp_path / "empty.db").touch()
    with open_database(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE theirs (n)")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("empty.db", "other.db"):
        with pytest.raises(LookupError, match="no lease table"):
            read_status(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_commands(db: Any, group: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from ringhash.cli import run

    def cli(*arguments: object) -> tuple[int, str, str]:
        found = run(["leases", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return found, out.decode(), err.decode()

    table = LeaseTable(db, 2, 30, name=group)
    where = ("--db", db, "--name", group)
    assert cli("status", *where)[0] == 2
    table.status()
    code, out, _ = cli("status", *where)
    assert code == 1
    assert "2 free (0-1)" in out
    with table.join("worker-a") as me:
        while len(me.leases) < 2:
            time.sleep(0.01)
        code, out, _ = cli("status", *where, "--json")
        assert code == 0
        assert json.loads(out)["workers"][0]["shards"] == [0, 1]
        code, out, _ = cli("watch", *where, "--count", 2, "--interval", 0.05)
        assert code == 0
        assert out.count("worker-a") == 2
        assert out.count("0 claimed since the last look") == 2
        code, out, _ = cli("watch", *where, "--count", 1, "--json")
        assert json.loads(out)["claimed"] == 0
    assert "no lease table 'x'" in cli("status", "--db", db, "--name", "x")[2]
    assert "No such file" in cli("status", "--db", tmp_path / "gone.db")[2]
    assert "not an address of PostgreSQL" in cli("status", "--db", "postgresql://me:%zzsecret@db/app")[2]
    (tmp_path / "text").write_text("this is no database, however long one looks at it" * 20)
    assert "not a database" in cli("status", "--db", tmp_path / "text")[2]
    assert "Missing option '--db'" in cli("status")[2]


def test_a_name_cannot_control_the_terminal() -> None:
    rows = [LeaseRow(0, "evil\x1b[2J\nname#1", 3, 5.0, 25.0)]
    found = str(status_from(rows, [WorkerRow("evil\x1b[2J\nname#1", 2.0, 28.0)]))
    assert "\x1b" not in found
    assert "evil\\x1b[2J\\nname" in found
    assert len(found.splitlines()) == 3

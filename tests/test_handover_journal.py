"""The journal of a handover: every step is in it, whatever happens to the process, to the file, or to its reader."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ringhash import Ring, Router, StalePlanError, assign
from ringhash.errors import HandoverTaken, JournalError
from ringhash.handover import FileJournal, Handover, MemoryJournal, Piece, Record, read_status
from ringhash.handover import journal as journal_module

KEYS = [f"user:{i}" for i in range(3000)]


def nothing(piece: Piece) -> None:
    pass


def gentle(router: Router, plan: Any, **options: Any) -> Handover:
    return Handover(router, plan, **{"stop": nothing, "start": nothing, "pause": 0.0, **options})


def over_a(kind: str) -> tuple[Router, Any]:
    """A router over a placement of some kind, and a plan of it."""
    router = Router(["a", "b", "c"]) if kind == "ring" else Router(assign(12, ["a", "b", "c"]))
    return router, router.plan(add=["d"])


def test_a_journal_is_a_file_with_every_step(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    router = Router(["a", "b"])
    handover = gentle(router, router.plan(add=["c"]), journal=path)
    assert handover.run().over
    with FileJournal(path) as journal:
        assert [r.state for r in journal.records() if r.piece == 1] == [
            "STOPPING",
            "STOPPED",
            "STARTING",
            "DONE",
        ]
        assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert str(read_status(path)) == str(handover.status())
    again = Handover.resume(path, stop=nothing, start=nothing)
    assert again.run().over
    assert again.router == router
    with pytest.raises(JournalError, match="resume it"):
        gentle(router, router.plan(add=["d"]), journal=path)
    with pytest.raises(JournalError, match="no journal"):
        Handover.resume(tmp_path / "other", stop=nothing, start=nothing)


class Gone(BaseException):
    """The process is no more."""


class Dies(FileJournal):
    """A journal whose process ends at some write: before it, or after it."""

    left = 0
    after = False

    def append(self, record: Record) -> None:
        cls = type(self)
        cls.left -= 1
        if cls.left < 0:
            if cls.after:
                super().append(record)
            raise Gone
        super().append(record)


@pytest.mark.parametrize("kind", ["ring", "shards"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_every_write_of_a_running_handover(tmp_path: Path, kind: str, after: bool) -> None:
    """As in the tests of the machine, through the journal, the driver and the router."""
    Dies.after = after
    for write in range(100):
        path = tmp_path / f"{write}.sqlite"
        router, plan = over_a(kind)
        expected = plan.after
        Dies.left = write
        handover = gentle(router, plan, journal=lambda meta, path=path: Dies(path, meta))
        try:
            handover.run()
            break
        except Gone:
            pass
        owners = router.owner_many(KEYS)
        resumed = Handover.resume(path, stop=nothing, start=nothing)
        differ = sum(a != b for a, b in zip(owners, resumed.router.owner_many(KEYS), strict=True))
        assert after or not differ  # no more and no less than what was written
        assert resumed.router.epoch >= router.epoch
        assert resumed.run().over
        assert resumed.router.placement.digest == expected
        if (write, after) == (13, True):  # nothing was left to do
            assert handover.run().over
            continue
        with pytest.raises(HandoverTaken):  # the process that lived on takes nothing back by itself
            handover.run()
    assert write == 14


@pytest.mark.parametrize("after", [False, True])
def test_a_run_whose_journal_could_not_be_written_can_be_called_again(tmp_path: Path, after: bool) -> None:
    for write in range(100):
        path = tmp_path / f"{after}{write}.sqlite"
        Dies.after, Dies.left = after, write
        router, plan = over_a("ring")
        handover = gentle(router, plan, journal=lambda meta, path=path: Dies(path, meta))
        try:
            handover.run()
            break
        except Gone:
            Dies.left = 1000
        assert handover.run().over
        assert router.placement.digest == plan.after
        assert str(read_status(path)) == str(handover.status())
    assert write == 14


# --- two processes ---


class Loose(FileJournal):
    """The control: a journal that anybody may write."""

    _INSERT = FileJournal._INSERT.replace("INSERT", "INSERT OR REPLACE")


def two_at_once(path: Path, kind: type[FileJournal]) -> list[str]:
    """A process that was thought dead goes on beside the one that took over; what both have called."""
    calls: list[str] = []
    reached, go = threading.Event(), threading.Event()

    def slow(piece: Piece) -> None:
        calls.append("first stop")
        reached.set()
        go.wait(60)

    router = Router(["a"])
    first = gentle(
        router, router.plan(add=["b"]), stop=slow, start=lambda p: calls.append("first start"),
        journal=lambda meta: kind(path, meta),
    )  # fmt: skip
    failed: list[BaseException] = []

    def run() -> None:
        try:
            first.run()
        except JournalError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert reached.wait(60)
    second = Handover.resume(path, stop=nothing, start=lambda p: calls.append("second start"))
    second.run()
    go.set()
    thread.join(60)
    assert not thread.is_alive()
    if failed:
        calls.append("first failed")
        with pytest.raises(HandoverTaken):
            first.run()  # it takes nothing back by itself
    return calls


def test_a_process_that_was_thought_dead_does_nothing_more(tmp_path: Path) -> None:
    assert two_at_once(tmp_path / "j", FileJournal) == ["first stop", "second start", "first failed"]


def test_that_test_finds_a_journal_that_anybody_may_write(tmp_path: Path) -> None:
    assert "first start" in two_at_once(tmp_path / "j", Loose)


def test_another_process_may_ask_for_an_abort(tmp_path: Path) -> None:
    path = tmp_path / "j"
    router = Router(["a", "b", "c"])

    def stop(piece: Piece) -> None:
        if piece.source == "a":
            with FileJournal(path) as other:
                other.request("abort")
                other.request("dance")  # nothing that a handover does
                other.request("go", "77")  # no such piece
            handover._driver.post("wake")

    handover = gentle(router, router.plan(add=["d"]), journal=path, stop=stop)
    assert handover.run().counts == {"DONE": 1, "PENDING": 2}
    with FileJournal(path) as other:
        other.request("retry")
        other.request("reverse")
    assert Handover.resume(path, stop=nothing, start=nothing).run().counts == {"UNDONE": 1, "PENDING": 2}


# --- what is refused ---


def edited(path: Path, change: Callable[[dict[str, Any]], object], name: str = "plan") -> None:
    """Change what a journal began with."""
    db = sqlite3.connect(path)
    [(text,)] = db.execute("SELECT value FROM meta WHERE name = ?", (name,))
    data = json.loads(text)
    change(data)
    db.execute("UPDATE meta SET value = ? WHERE name = ?", (json.dumps(data), name))
    db.commit()
    db.close()


@pytest.mark.parametrize("kind", ["ring", "shards"])
def test_a_journal_whose_plan_was_edited_is_not_carried_out(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "j"
    router, plan = over_a(kind)
    gentle(router, plan, journal=path)
    assert Handover.resume(path, stop=nothing, start=nothing).plan == plan

    def other_target(data: dict[str, Any]) -> None:
        data["moves"][0][3] = "a" if data["moves"][0][2] != "a" else "b"

    edited(path, other_target)
    called: list[Piece] = []
    for given in (None, router):
        with pytest.raises(JournalError, match="cannot be resumed"):
            Handover.resume(path, stop=called.append, start=called.append, router=given)
    assert called == []


def test_a_router_of_other_nodes_cannot_go_on_with_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    router, plan = over_a("ring")
    gentle(router, plan, journal=path, start=lambda piece: piece.source != "b").run()
    with pytest.raises(StalePlanError):
        Handover.resume(path, stop=nothing, start=nothing, router=Router(["x"]))


def test_the_calls_that_a_handover_began_with_must_be_there_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    router, plan = over_a("ring")
    gentle(router, plan, journal=path, prepare=nothing, finish=nothing)
    with pytest.raises(TypeError, match="began with finish, prepare"):
        Handover.resume(path, stop=nothing, start=nothing)
    resumed = Handover.resume(path, stop=nothing, start=nothing, prepare=nothing, finish=nothing)
    assert resumed.run().awaits_finish
    assert read_status(path).awaits_finish
    resumed.finish()
    assert resumed.run().counts == {"FINISHED": 3}


def some_journal(path: Path) -> bytes:
    router, plan = over_a("ring")
    gentle(router, plan, journal=path, start=lambda piece: piece.source != "b").run()
    return path.read_bytes()


def test_a_file_that_is_no_journal_or_a_damaged_one_is_a_journal_error(tmp_path: Path) -> None:
    whole, path = some_journal(tmp_path / "whole"), tmp_path / "j"
    draw = random.Random(1)
    damaged = [b"", b"x", b"this is no database" * 100, whole[:100], whole[: len(whole) // 2]]
    for _ in range(300):
        bad = bytearray(whole)
        for _ in range(draw.choice([1, 8, 200])):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        damaged.append(bytes(bad))
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        for read in (read_status, lambda it: Handover.resume(it, stop=nothing, start=nothing)):
            try:
                read(path)
            except JournalError:
                refused += 1
            finally:
                for beside in tmp_path.glob("j-*"):
                    beside.unlink()
    assert refused > 50


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("records", "state", "DANCING"),
        ("records", "piece", 99),
        ("records", "holder", "nobody"),
        ("records", "seq", 40),
        ("records", "tries", "many"),
        ("meta", "value", "{"),
        ("meta", "value", "[" * 100_000),
        ("meta", "value", '{"kind": "plan"}'),
        ("meta", "value", "7"),
        ("meta", "value", "²"),
    ],
)
def test_what_a_damaged_journal_may_hold(tmp_path: Path, table: str, column: str, value: Any) -> None:
    some_journal(tmp_path / "j")
    db = sqlite3.connect(tmp_path / "j")
    where = "name = 'plan'" if table == "meta" else "seq = 4"
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
    db.commit()
    db.close()
    for read in (read_status, lambda it: Handover.resume(it, stop=nothing, start=nothing)):
        with pytest.raises(JournalError):
            read(tmp_path / "j")


def test_to_read_the_status_writes_nothing(tmp_path: Path) -> None:
    some_journal(tmp_path / "j")
    other = tmp_path / "other.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE mine (a)")
    db.commit()
    db.close()
    (tmp_path / "empty").touch()
    before = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    assert read_status(tmp_path / "j").counts == {"DONE": 2, "FAILED": 1}
    for name in ("other.sqlite", "empty"):
        with pytest.raises(JournalError):
            read_status(tmp_path / name)
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == before


def test_the_status_can_be_read_while_the_handover_runs(tmp_path: Path) -> None:
    path = tmp_path / "j"
    router, plan = over_a("ring")
    seen: list[str] = []
    gentle(router, plan, journal=path, start=lambda piece: seen.append(str(read_status(path)))).run()
    assert seen[1].startswith("RUN: ")
    assert "1 STARTING" in seen[1]


def test_a_journal_is_closed_whatever_becomes_of_its_handover(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        router, plan = over_a("ring")
        gentle(router, plan, journal=tmp_path / "never run")
        gentle(router, plan, journal=tmp_path / "run", start=lambda piece: piece.source != "b").run()
        read_status(tmp_path / "run")
        Handover.resume(tmp_path / "run", stop=nothing, start=nothing)
    left = [it.name for it in tmp_path.iterdir()]
    assert sorted(left) == ["never run", "run"], "no -wal, no -shm: nobody has the files open"


# --- a journal of one's own ---


class Remote(MemoryJournal):
    """A journal that is kept elsewhere, by somebody else's class."""

    kept: dict[str, Remote] = {}  # noqa: RUF012

    @classmethod
    def of(cls, name: str) -> Callable[[Mapping[str, object] | None], Remote]:
        def opens(meta: Mapping[str, object] | None) -> Remote:
            if meta is not None:
                cls.kept[name] = cls(json.loads(json.dumps(meta)))
            return cls.kept[name]

        return opens


def test_a_journal_may_be_kept_anywhere() -> None:
    router, plan = over_a("shards")
    handover = gentle(router, plan, journal=Remote.of("x"), start=lambda piece: piece.source != "b")
    handover.run()
    assert str(read_status(Remote.of("x"))) == str(handover.status())
    resumed = Handover.resume(Remote.of("x"), stop=nothing, start=nothing)
    assert resumed.router.owner_many(KEYS) == router.owner_many(KEYS)
    resumed.retry()
    assert resumed.run().over
    with pytest.raises(HandoverTaken):
        handover.run()


# --- real processes ---

VICTIM = """
import sys, time
from ringhash import Router
from ringhash.handover import Handover

log = open(sys.argv[2], "a", buffering=1)
def call(name):
    def function(piece):
        log.write(f"{name} {piece.number} {piece.source} {piece.target} {piece.token} {piece.repeat}\\n")
        time.sleep(0.004)
    return function

callbacks = {name: call(name) for name in ("stop", "start", "prepare")}
if len(sys.argv) > 3:
    router = Router([f"n{i}" for i in range(8)])
    handover = Handover(router, router.plan(add=["new"]), journal=sys.argv[1], pause=0.002, **callbacks)
else:
    handover = Handover.resume(sys.argv[1], **callbacks)
print("running", flush=True)
status = handover.run()
print(status, handover.router.placement.digest, flush=True)
"""


def count_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")


@pytest.mark.slow
@needs_kill
def test_kill_minus_9_again_and_again(tmp_path: Path) -> None:
    """A real process, killed at random moments of its handover until one comes to the end."""
    script, journal, log = tmp_path / "victim.py", tmp_path / "j.sqlite", tmp_path / "log"
    script.write_text(VICTIM)
    kills, out = 0, ""
    for attempt in range(60):
        argv = [sys.executable, str(script), str(journal), str(log)]
        with subprocess.Popen(
            argv + (["new"] if attempt == 0 else []), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            if kills < 6:
                calls = count_lines(log)
                while count_lines(log) < calls + 1 + kills % 3:  # somewhere in its first pieces
                    time.sleep(0.001)
                os.kill(process.pid, signal.SIGKILL)
            out = process.stdout.read()
            process.wait(30)
        if process.returncode == 0:
            break
        kills += 1
    assert kills == 6
    *said, digest = out.split()
    assert " ".join(said) == "OVER: 100% handed over at epoch 10 (8 DONE)"
    assert digest == Ring([*(f"n{i}" for i in range(8)), "new"]).digest
    called: set[tuple[str, str]] = set()
    tokens: list[int] = []
    for line in log.read_text().splitlines():
        name, number, _, target, token, repeat = line.split()
        assert target == "new"
        assert repeat == "True" or (name, number) not in called
        if name == "start":
            assert ("stop", number) in called
        called.add((name, number))
        tokens.append(int(token))
    assert tokens == sorted(set(tokens))
    assert len(called) == 24


MAKER = """
import os, sys
from ringhash import Router
from ringhash.handover import Handover, journal

step = int(sys.argv[2])
def count(*_):
    global step
    step -= 1
    if step < 0:
        os.kill(os.getpid(), 9)
    return 0

if sys.argv[3] == "traced":
    import sqlite3
    genuine = sqlite3.connect
    def connect(*args, **options):
        db = genuine(*args, **options)
        db.set_trace_callback(count)
        return db
    journal.sqlite3.connect = connect
    link = os.link
    journal.os.link = lambda *a: (count(), link(*a), count())
router = Router(["a"])
Handover(router, router.plan(add=["b"]), stop=print, start=print, journal=sys.argv[1])
print("made")
"""


@pytest.mark.slow
@needs_kill
def test_a_journal_killed_while_it_is_made_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    script = tmp_path / "maker.py"
    script.write_text(MAKER)
    there = made = 0
    for step in range(40):
        path = tmp_path / f"j{step}"
        done = subprocess.run(
            [sys.executable, str(script), str(path), str(step), "traced"], capture_output=True, text=True, timeout=120
        )  # fmt: skip
        made += done.returncode == 0
        if path.exists():
            there += 1
            assert read_status(path).counts == {"PENDING": 1}
        else:
            router = Router(["a"])
            gentle(router, router.plan(add=["b"]), journal=path)
            assert read_status(path).counts == {"PENDING": 1}
        if done.returncode == 0:
            break
    assert made == 1, done.stderr
    assert 2 <= there < step, "killed before it was there, and after"


def test_of_two_that_make_one_journal_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is made between the look and the link."""
    router, plan = over_a("ring")
    genuine = os.link

    def slow(beside: Any, path: Any) -> None:
        monkeypatch.setattr(journal_module.os, "link", genuine)
        gentle(router, plan, journal=path)
        genuine(beside, path)

    monkeypatch.setattr(journal_module.os, "link", slow)
    with pytest.raises(JournalError, match="already"):
        gentle(router, plan, journal=tmp_path / "j")
    assert [it.name for it in tmp_path.iterdir()] == ["j"]

"""Connections and transactions: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from ringhash.databases import (
    Database,
    DatabaseAddressError,
    ForkedError,
    OutcomeUnknownError,
    TransactionEndedError,
    open_database,
)
from ringhash.databases.sqlite import SqliteDatabase
from ringhash.databases.statements import control_word, with_percent_marks


def stored(database: Database, table: str) -> list[int]:
    return [n for (n,) in database.execute(f"SELECT n FROM {table} ORDER BY n")]


def test_a_block_commits_or_rolls_back(database: Database, table: str) -> None:
    with database.transaction() as tx:
        assert tx.execute(f"INSERT INTO {table} VALUES (?, ?)", [1, "100% sure?"]).rowcount == 1
        assert tx.executemany(f"INSERT INTO {table} (n) VALUES (?)", ([n] for n in (2, 3))) == 2
        assert tx.execute(f"SELECT t FROM {table} WHERE n = ? AND t LIKE '100%?'", [1]).fetchone() == (
            "100% sure?",
        )
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        tx.execute(f"INSERT INTO {table} VALUES (?, ?)", [1 // 0, None])
    assert stored(database, table) == [1, 2, 3]
    with pytest.raises(TransactionEndedError, match="over"):
        tx.execute("SELECT 1")


WAYS = {
    "commit": ["COMMIT"],
    "rollback": ["ROLLBACK"],
    "commented": ["/* /* a */ b */ -- c\n ; CoMmIt"],
    "end": ["END"],
    "commit and begin": ["COMMIT", "BEGIN"],
    "two in one": ["SELECT 1; COMMIT"],
    "begin": ["BEGIN"],
}


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_block_cannot_end_its_transaction(
    database: Database, table: str, way: str, swallowed: bool
) -> None:
    def block(tx: Any) -> None:
        tx.execute(f"INSERT INTO {table} (n) VALUES (1)")
        for sql in [*WAYS[way], f"INSERT INTO {table} (n) VALUES (2)"]:
            try:
                tx.execute(sql)
            except Exception:
                if not swallowed:
                    raise

    caught: tuple[type[Exception], ...] = (TransactionEndedError,)
    if way == "two in one":  # the database itself takes one statement at a time
        caught = (sqlite3.ProgrammingError, sqlite3.Warning, TransactionEndedError, *database.errors)
    if way == "two in one" and swallowed and database.dialect == "sqlite":
        with database.transaction() as tx:  # it was refused before anything ran
            block(tx)
        assert stored(database, table) == [1, 2]
        return
    with pytest.raises(caught), database.transaction() as tx:
        block(tx)
    assert stored(database, table) == []


@pytest.mark.parametrize("statements", [["COMMIT"], ["ROLLBACK"], ["COMMIT", "BEGIN"]])
def test_the_net_below_the_words(
    database: Database, table: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what no word gives away is found, and nothing after it is stored."""
    monkeypatch.setattr("ringhash.databases.connection.control_word", lambda sql: None)

    def block(tx: Any) -> None:
        for sql in [*statements, f"INSERT INTO {table} (n) VALUES (2)"]:
            with contextlib.suppress(TransactionEndedError):
                tx.execute(sql)

    with pytest.raises(TransactionEndedError), database.transaction() as tx:
        block(tx)
    assert stored(database, table) == []


def test_what_goes_past_the_transaction_is_found_at_the_commit(database: Database, table: str) -> None:
    """By the driver's own connection: COMMIT; BEGIN. On SQLite the authorizer sees it, on PostgreSQL the number."""
    with pytest.raises(TransactionEndedError), database.transaction() as tx:  # noqa: PT012
        raw: Any = tx._connection._raw  # type: ignore[attr-defined]
        for sql in ("COMMIT", "BEGIN"):
            with contextlib.suppress(sqlite3.DatabaseError):
                raw.execute(sql)
        tx.execute(f"INSERT INTO {table} (n) VALUES (2)")
    assert stored(database, table) == []


def test_without_the_number_it_would_be_stored(
    database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    if database.dialect == "sqlite":
        monkeypatch.setattr("ringhash.databases.sqlite.SqliteConnection._authorize", lambda *_: 0)
    else:
        monkeypatch.setattr("ringhash.databases.postgres._SAME_TRANSACTION", "")
    with database.transaction() as tx:
        raw: Any = tx._connection._raw  # type: ignore[attr-defined]
        raw.execute("COMMIT")
        raw.execute("BEGIN")
        tx.execute(f"INSERT INTO {table} (n) VALUES (2)")
    assert stored(database, table) == [2]


def test_sqlite_may_roll_back_by_itself(tmp_path: Path) -> None:
    database = open_database(tmp_path / "a.db")
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")

    def block(tx: Any) -> None:
        tx.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(TransactionEndedError):
            tx.execute("INSERT OR ROLLBACK INTO t VALUES (1)")
        with pytest.raises(TransactionEndedError):
            tx.execute("INSERT INTO t VALUES (2)")

    with pytest.raises(TransactionEndedError), database.transaction() as tx:
        block(tx)
    assert stored(database, "t") == []
    database.close()


def test_savepoints_stay_inside(database: Database, table: str) -> None:
    with database.transaction() as tx:
        tx.execute("SAVEPOINT a")
        tx.execute(f"INSERT INTO {table} (n) VALUES (1)")
        tx.execute("ROLLBACK TO SAVEPOINT a")
        tx.execute(f"INSERT INTO {table} (n) VALUES (2)")
        tx.execute("RELEASE SAVEPOINT a")
    assert stored(database, table) == [2]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("commit", "COMMIT"),
        (" ;\n--x\nEND", "END"),
        ("/*/* COMMIT */*/ abort", "ABORT"),
        ("ROLLBACK WORK", "ROLLBACK"),
        ("rollback transaction to a", None),
        ("rollback /* TO */", "ROLLBACK"),
        ("prepare transaction 'x'", "PREPARE TRANSACTION"),
        ("PREPARE x AS SELECT 1", None),
        ("START TRANSACTION", "START"),
        ("SELECT 'COMMIT'", None),
        ("", None),
    ],
)
def test_words(sql: str, word: str | None) -> None:
    assert control_word(sql) == word


def test_placeholders() -> None:
    assert with_percent_marks("a ?? b AND c = ?") == "a ? b AND c = %s"
    assert with_percent_marks("$x$ ? $x$, E'\\'?', \"?\", -- ?\n /* ? */ ?") == (
        "$x$ ? $x$, E'\\'?', \"?\", -- ?\n /* ? */ %s"
    )
    assert with_percent_marks("SELECT %s") == "SELECT %s"


@pytest.mark.parametrize(
    "address",
    ["mysql://u:secret@h/d", "postgresql+psycopg://u:secret@h", "file:secret.db?mode=ro", "postgresql:secret", "",
     "host=h password=secret", "password = secret", "sqlite://secret", "postgresql://u:%zzsecret@h/d", "a\0secret",
     b"secret", "sqlite:///"],
)  # fmt: skip
def test_an_address_that_is_none(address: Any) -> None:
    with pytest.raises((DatabaseAddressError, TypeError)) as caught:
        open_database(address)
    assert "secret" not in str(caught.value)
    assert "postgresql://" in str(caught.value) or isinstance(caught.value, TypeError)


def test_a_password_is_nowhere() -> None:
    pytest.importorskip("psycopg")
    database = open_database("postgresql://me:secret@127.0.0.1:1/app", timeout=1)
    assert repr(database) == "<Database postgresql://me@127.0.0.1:1/app>"
    with pytest.raises(database.errors) as caught:
        database.execute("SELECT 1")
    assert "secret" not in str(caught.value)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("a.db", "sqlite:///b.db", f"sqlite:///{tmp_path}/c.db", tmp_path / "odd ?#%.db"):
        with open_database(address) as database:
            database.execute("CREATE TABLE t (n)")
    assert {path.name for path in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db", "odd ?#%.db"}
    with open_database(tmp_path / "odd ?#%.db", read_only=True) as database:
        assert database.execute("SELECT * FROM t").rows == []


def test_reading_leaves_a_file_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_database(tmp_path / "none.db", read_only=True)
    (tmp_path / "empty.db").touch()
    with open_database(tmp_path / "empty.db", read_only=True) as database:
        assert database.execute("SELECT * FROM sqlite_master").rows == []
        with pytest.raises(database.errors):
            database.execute("CREATE TABLE t (n)")
    assert (tmp_path / "empty.db").stat().st_size == 0
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]


def test_reading_only_refuses_on_postgres(postgres: str) -> None:
    with open_database(postgres, read_only=True) as database:
        assert database.execute("SELECT 1").rows == [(1,)]
        with pytest.raises(database.errors, match="read-only"):
            database.execute("CREATE TABLE ringhash_never (n int)")


def test_in_memory() -> None:
    with open_database(":memory:", timeout=0.01) as database:
        database.execute("CREATE TABLE t (n)")
        with pytest.raises(ZeroDivisionError), database.transaction() as tx:
            tx.execute("INSERT INTO t VALUES (?)", [1 // 0])
        with database.transaction() as tx:
            tx.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(database.errors, match="locked"):
                database.execute("SELECT 1")
        assert database.execute("SELECT n FROM t").rows == [(1,)]
        with pytest.raises(ValueError, match="memory"):
            database.connect()


def forked(child: Any) -> bytes:
    """What `child` returns in a forked process."""
    end, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, repr(child()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_has_no_connections(database: Database, table: str) -> None:
    own = database.connect()
    with database.transaction() as tx:
        tx.execute(f"INSERT INTO {table} (n) VALUES (1)")

        def child() -> object:
            seen = []
            for call in (lambda: tx.execute("SELECT 1"), lambda: own.execute("SELECT 1")):
                try:
                    call()
                except ForkedError:
                    seen.append("forked")
            own.close()
            return seen, database.execute("SELECT 1").rows, database._idle[0] is not own

        assert forked(child) == b"(['forked', 'forked'], [(1,)], True)"
        tx.execute(f"INSERT INTO {table} (n) VALUES (2)")
    assert stored(database, table) == [1, 2]
    idle = database._idle[0]
    assert forked(lambda: (len(database._idle), database.execute("SELECT 1").rows)) == b"(0, [(1,)])"
    assert idle.execute("SELECT 1").rows == [(1,)]
    own.close()


LONG = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "postgresql": "SELECT pg_sleep(600)",
}


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_running_statement_is_ended(database: Database, end: str) -> None:
    """Nothing is freed under a statement that another thread runs."""
    connection = database.connect()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            connection.execute(LONG[database.dialect])
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not connection._using._is_owned() and connection._using.acquire(blocking=False):  # type: ignore[attr-defined]
        connection._using.release()
    while thread.is_alive():  # an interrupt before the first step is for nobody
        getattr(connection, end)()
        if end == "close":
            break
        thread.join(0.05)
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(failed[0], database.errors)
    connection.close()


def test_a_connection_that_died_in_the_meantime_is_replaced(postgres: str) -> None:
    with open_database(postgres) as database, open_database(postgres) as other:
        ((pid,),) = database.execute("SELECT pg_backend_pid()").rows
        other.execute("SELECT pg_terminate_backend(?, 10000)", [pid])
        assert database.execute("SELECT pg_backend_pid()").rows != [(pid,)]


def test_a_commit_without_an_answer_is_unknown(postgres: str) -> None:
    with open_database(postgres) as database, open_database(postgres) as other:
        with pytest.raises(OutcomeUnknownError), database.transaction() as tx:  # noqa: PT012
            ((pid,),) = tx.execute("SELECT pg_backend_pid()").rows
            other.execute("SELECT pg_terminate_backend(?, 10000)", [pid])
        assert database.execute("SELECT 1").rows == [(1,)]


def test_being_told(database: Database, table: str) -> None:
    connection = database.connect()
    connection.listen("ringhash_test")
    assert not connection.wait(0)
    if database.dialect == "sqlite":
        database.execute(f"INSERT INTO {table} (n) VALUES (1)")
    else:
        database.execute("SELECT pg_notify(?, ?)", ["ringhash_test", "x"])
    assert connection.wait(60)
    assert not connection.wait(0)
    connection.close()


def test_time_is_the_databases(database: Database) -> None:
    ((before,),) = database.execute(f"SELECT {database.now}").rows
    ((after,),) = database.execute(f"SELECT {database.now}").rows
    assert 0 < before <= after


def test_the_clock_of_sqlite_is_given(tmp_path: Path) -> None:
    with SqliteDatabase(str(tmp_path / "a.db"), time_now=lambda: 12.5) as database:
        assert database.execute(f"SELECT {database.now}").rows == [(12.5,)]

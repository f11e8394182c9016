"""The fence from connections of one's own: sqlite3, psycopg, SQLAlchemy, Django."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from fleet_world import make_table, rows_in

from ringhash import Moved, RangeMap, Router
from ringhash.fleet import Fleet, Moving, fence, set_fence

Make = Callable[..., Fleet]
MAP = RangeMap([(None, "db-1"), ("m", "db-2")], keys=str)


@pytest.fixture
def fleet(fleet_of: Make) -> Fleet:
    """db-1 has the keys below "m" still; those from "f" on are gone, those from "d" to "f" are moving."""
    fleet = fleet_of(MAP)
    make_table(fleet)
    with fleet.database("db-1").transaction(write=True) as tx:
        set_fence(tx, [(b"f", None)], "gone", "db-2", 3)
        set_fence(tx, [(b"d", b"f")], "moving", "db-2", 4)
    return fleet


def judge(check: Callable[[str, bool], None]) -> None:
    check("a", True)
    check("a", False)
    check("d", False)
    with pytest.raises(Moving, match="db-2"):
        check("d", True)
    for write in (True, False):
        with pytest.raises(Moved, match="db-2"):
            check("f", write)


def test_sqlite3(fleet: Fleet, dialect: str, addresses: dict[str, str]) -> None:
    if dialect != "sqlite":
        pytest.skip("a driver of SQLite")
    connection = sqlite3.connect(addresses["db-1"], isolation_level=None)
    with pytest.raises(RuntimeError, match="BEGIN IMMEDIATE"):
        fence(connection, "a", MAP)
    connection.execute("BEGIN IMMEDIATE")
    judge(lambda key, write: fence(connection, key, Router(MAP), write=write))
    connection.execute("INSERT INTO orders VALUES (1, 'a', NULL)")
    connection.execute("COMMIT")
    connection.close()
    assert len(rows_in(fleet, "db-1")) == 1


def test_psycopg(fleet: Fleet, dialect: str, addresses: dict[str, str]) -> None:
    if dialect != "postgres":
        pytest.skip("a driver of PostgreSQL")
    import psycopg
    from psycopg.rows import dict_row

    for row_factory in (psycopg.rows.tuple_row, dict_row):
        with psycopg.connect(addresses["db-1"], autocommit=True, row_factory=row_factory) as connection:  # type: ignore[arg-type]
            with pytest.raises(RuntimeError, match=r"connection\.transaction"):
                fence(connection, "a", MAP)
            with connection.transaction():
                judge(lambda key, write, c=connection: fence(c, key, MAP, write=write))  # type: ignore[misc]
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with connection.transaction():
                fence(connection, "a", MAP, write=False)
            with (
                pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED"),
                connection.transaction(),
            ):
                fence(connection, "a", MAP)


def test_a_mover_waits_for_the_transaction_of_a_foreign_connection(
    fleet: Fleet, dialect: str, addresses: dict[str, str]
) -> None:
    if dialect != "postgres":
        pytest.skip("SQLite has one writer at a time")
    import psycopg

    from ringhash.errors import DrainTimeoutError
    from ringhash.fleet import drain

    with psycopg.connect(addresses["db-1"]) as connection:
        fence(connection, "a", MAP, write=False)
        drain(fleet.database("db-1"), 0.0)  # who only reads is not waited for
        fence(connection, "a", MAP)
        with pytest.raises(DrainTimeoutError) as late:
            drain(fleet.database("db-1"), 0.0)
        assert late.value.pids == [connection.info.backend_pid]
        connection.commit()
        drain(fleet.database("db-1"), 60.0)


def engine_for(address: str) -> Any:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    if address.startswith("postgresql"):
        import psycopg

        return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(address))
    return sqlalchemy.create_engine(f"sqlite:///{address}")


def test_sqlalchemy(fleet: Fleet, addresses: dict[str, str]) -> None:
    engine = engine_for(addresses["db-1"])
    from sqlalchemy import text
    from sqlalchemy.orm import Session

    with engine.connect() as connection:
        judge(lambda key, write: fence(connection, key, MAP, write=write))
        connection.rollback()
    with Session(engine) as session, session.begin():
        fence(session, "a", MAP)
        session.execute(text("INSERT INTO orders VALUES (1, 'a', NULL)"))
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(RuntimeError, match="AUTOCOMMIT"):
        fence(connection, "a", MAP)
    connection.close()
    engine.dispose()
    assert len(rows_in(fleet, "db-1")) == 1


def test_sqlalchemy_on_sqlite_holds_the_file_from_the_check_on(
    fleet: Fleet, dialect: str, addresses: dict[str, str]
) -> None:
    if dialect != "sqlite":
        pytest.skip("a trait of SQLite")
    engine = engine_for(addresses["db-1"])
    with engine.connect() as connection:
        fence(connection, "a", MAP)
        mover = sqlite3.connect(addresses["db-1"], timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            mover.execute("BEGIN IMMEDIATE")
        connection.rollback()
        mover.execute("BEGIN IMMEDIATE")
        mover.close()
    engine.dispose()


def test_django(fleet: Fleet, dialect: str, addresses: dict[str, str]) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import transaction
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()
    if dialect == "sqlite":
        one = {"ENGINE": "django.db.backends.sqlite3", "NAME": addresses["db-1"]}
    else:
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(addresses["db-1"])
        one = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "HOST": parts["host"],
        }
    connection = ConnectionHandler({"default": one})["default"]
    with pytest.raises(RuntimeError, match=r"transaction\.atomic"):
        fence(connection, "a", MAP)
    original = transaction.get_connection
    transaction.get_connection = lambda using=None: connection
    try:
        with transaction.atomic():
            judge(lambda key, write: fence(connection, key, MAP, write=write))
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders VALUES (1, 'a', NULL)")
    finally:
        transaction.get_connection = original
        connection.close()
    assert len(rows_in(fleet, "db-1")) == 1

"""SQLAlchemy over several real databases: SQLite files, and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sa = pytest.importorskip("sqlalchemy")
pytest.importorskip("greenlet")  # for asyncio
from sqlalchemy import (
    ForeignKey,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    union,
    update,
)
from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    aliased,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
)

from ringhash import Directory, Moved, Ring, Router, assign
from ringhash.contrib.sqlalchemy import CrossShardError, KeyChangeError, NoKeyError, Sharding
from ringhash.fleet import Fleet, fence, set_fence

NAMES = ("db-1", "db-2", "db-3")


class Base(DeclarativeBase):
    pass


class Country(Base):
    __tablename__ = "country"
    code: Mapped[str] = mapped_column(primary_key=True)


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    country_code: Mapped[str | None] = mapped_column(ForeignKey("country.code"))
    orders: Mapped[list[Order]] = relationship(back_populates="user")
    country: Mapped[Country | None] = relationship()


class Order(Base):
    """The key is no part of the primary key, so one primary key may be on two shards."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    what: Mapped[str]
    user: Mapped[User] = relationship(back_populates="orders")


# A table without a class.
tags = sa.Table(
    "tags",
    Base.metadata,
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True),
    sa.Column("what", sa.String, primary_key=True),
)


class Stray(Base):
    __tablename__ = "stray"
    id: Mapped[int] = mapped_column(primary_key=True)


class Asked:
    """Which statements each shard got."""

    def __init__(self, engines: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str]] = []
        for name, engine in engines.items():
            sync = getattr(engine, "sync_engine", engine)
            sa.event.listen(sync, "before_cursor_execute", self._of(name))

    def _of(self, name: str) -> Callable[..., None]:
        def heard(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            self.asked.append((name, statement))

        return heard

    def shards(self, action: Callable[[], Any]) -> list[str]:
        self.asked.clear()
        action()
        return [name for name, _ in self.asked]


class World:
    def __init__(self, engines: dict[str, Any], router: Any = None) -> None:
        self.engines = engines
        self.router = Router(NAMES) if router is None else router
        self.sharding = Sharding(
            self.router,
            engines,
            keys={User: "id", Order: Order.user_id, tags: "user_id"},
            everywhere=[Country],
        )
        self.Session = self.sharding.sessionmaker()
        self.asked = Asked(engines)
        for engine in engines.values():
            Base.metadata.create_all(engine)
        # Two users on each shard, and one more; orders 1 and 2 on every shard, of other users.
        self.of: dict[str, list[int]] = {name: [] for name in NAMES}
        for key in range(1, 200):
            self.of[self.router.owner(key)].append(key)
        with self.Session.begin() as session:
            session.execute(
                insert(Country), [{"code": "at"}, {"code": "jp"}], execution_options={"scatter": True}
            )
        for name, engine in engines.items():
            with engine.begin() as connection:  # by hand, so that no chooser is its own witness
                for key in self.of[name][:2]:
                    connection.execute(
                        insert(User.__table__), {"id": key, "name": f"{name}-{key}", "country_code": "at"}
                    )
                for i, key in enumerate(self.of[name][:2]):
                    connection.execute(insert(Order.__table__), {"id": i + 1, "user_id": key, "what": name})

    def ids(self, name: str, table: Any = User.__table__) -> list[int]:
        with self.engines[name].connect() as connection:
            return list(connection.scalars(select(table.c.id).order_by(table.c.id)))


@contextmanager
def sqlite(folder: Path) -> Iterator[dict[str, Any]]:
    engines = {name: sa.create_engine(f"sqlite:///{folder / name}.db") for name in NAMES}
    for engine in engines.values():
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
    try:
        yield engines
    finally:
        for engine in engines.values():
            engine.dispose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    pytest.importorskip("psycopg")
    from postgres_server import NoServerError, PostgresServer

    try:
        server = PostgresServer()
    except NoServerError as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def postgresql(server: Any) -> Iterator[dict[str, Any]]:
    def url(name: str) -> str:
        return f"postgresql+psycopg://ringhash@/{name}?host={server.folder}"

    root = sa.create_engine(url("postgres"), isolation_level="AUTOCOMMIT")
    engines = {name: sa.create_engine(url(name)) for name in NAMES}
    try:
        with root.connect() as connection:
            for name in NAMES:
                connection.execute(text(f'CREATE DATABASE "{name}"'))
        yield engines
    finally:
        for engine in engines.values():
            engine.dispose()
        with root.connect() as connection:
            for name in NAMES:
                connection.execute(text(f'DROP DATABASE IF EXISTS "{name}"'))
        root.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "sqlite":
        with sqlite(tmp_path) as engines:
            yield World(engines)
    else:
        with postgresql(request.getfixturevalue("postgres")) as engines:
            yield World(engines)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[World]:
    with sqlite(tmp_path) as engines:
        yield World(engines)


# --- reading ---


def test_a_condition_on_the_key_decides(files: World) -> None:
    """Each form asks exactly the owner, and finds the row there."""
    world = files
    user = world.of["db-2"][0]
    other = world.of["db-2"][1]
    alias = aliased(User)
    forms: list[tuple[Any, dict[str, Any]]] = [
        (select(User).where(User.id == user), {}),
        (select(User).where(user == User.id), {}),
        (select(User).where(User.id == literal(user)), {}),
        (select(User).where(User.id == bindparam("x")), {"x": user}),
        (select(User).where(User.id.in_([user])), {}),
        (select(User).where(User.id.in_(bindparam("x", expanding=True))), {"x": [user]}),
        (select(User).where(User.name.like("db%"), and_(User.id == user, User.name != "x")), {}),
        (select(User).where(or_(User.id == user, and_(User.id == other, User.name == "no"))), {}),
        (select(User).where(User.id.in_([user, 10**6]), User.id.in_([user, 10**7])), {}),
        (select(alias).where(alias.id == user), {}),
        (select(User).filter_by(id=user), {}),
        (select(User).join(User.orders).where(Order.user_id == user), {}),
        (select(User).join(Order).where(User.id == user), {}),
        (select(User).outerjoin(User.orders).where(User.id == user), {}),
        (select(User).where(User.id == user, User.orders.any(Order.what == "db-2")), {}),
        (
            select(User).where(
                User.id == user, User.id.in_(select(Order.user_id).where(Order.user_id == user))
            ),
            {},
        ),
        (select(User).join(User.country).where(User.id == user), {}),
        (select(User).join(tags, isouter=True).where(User.id == user), {}),
        (select(User).outerjoin(tags, tags.c.user_id == User.id).where(User.id == user), {}),
        (select(User).options(joinedload(User.orders)).where(User.id == user), {}),
        (select(User).where(User.id == user).order_by(User.name).limit(1), {}),
    ]
    with world.Session() as session:
        for statement, parameters in forms:
            found: list[User] = []
            asked = world.asked.shards(
                lambda s=statement, p=parameters, f=found: f.extend(session.scalars(s, p).unique().all())
            )
            assert asked == ["db-2"], str(statement)
            assert [row.id for row in found] == [user], str(statement)
            session.expunge_all()


def test_a_statement_without_a_key_is_refused_before_anything_is_asked(files: World) -> None:
    user, far = files.of["db-1"][0], files.of["db-2"][0]
    alias = aliased(User)
    refused: list[Any] = [
        select(User),
        select(User).where(User.name == "x"),
        select(User).where(User.id != user),
        select(User).where(User.id > user),
        select(User).where(~User.id.in_([user])),
        select(User).where(or_(User.id == user, User.name == "x")),
        select(User).where(sa.not_(User.id == user)),
        select(User).where(User.id + 1 == user),
        select(func.count()).select_from(User),
        select(Order).join(User, Order.what == User.name).where(User.id == user),
        select(User, alias).where(User.id == user),
        select(User).outerjoin(Order, and_(Order.user_id == User.id, User.id == user)),
        select(User).where(User.id == user, User.id.in_(select(Order.user_id))),
        select(User).where(sa.exists().where(Order.user_id == user, Order.user_id == User.id)),
        select(select(User).subquery()).where(sa.column("id") == user),
        union(select(User).where(User.id == user), select(User)),
        select(Stray),
        text("SELECT 1"),
        select(User).from_statement(text("SELECT * FROM users")),
        update(User).values(name="x"),
        delete(Order).where(Order.what == "x"),
        delete(Country).where(Country.code == "at"),
        select(User.id).join(tags, tags.c.what == User.name).where(User.id == user),
    ]
    crossing: list[Any] = [
        select(User, alias).where(User.id == user, alias.id == far),
        union(select(User).where(User.id == user), select(User).where(User.id == far)),
        select(User.id).where(User.id.in_([user, far])).order_by(User.id),
        select(User).where(User.id.in_([user, far])).limit(1),
        select(func.count(User.id)).where(User.id.in_([user, far])),
        select(User.name).where(User.id.in_([user, far])).distinct(),
        select(User.name).where(User.id.in_([user, far])).group_by(User.name),
        select(User.id).where(User.id.in_([user, far])).offset(1),
        select(select(User.id).where(User.id.in_([user, far])).limit(1).subquery()),
        select(select(User.id).where(User.id.in_([user, far])).order_by(User.id).cte()),
        select(sa.literal_column("count(*)")).where(User.id.in_([user, far])),
        select(text("max(id)")).where(User.id.in_([user, far])),
    ]
    with files.Session() as session:
        for kind, statements in ((NoKeyError, refused), (CrossShardError, crossing)):
            for statement in statements:
                files.asked.asked.clear()
                with pytest.raises(kind):
                    session.execute(statement)
                assert files.asked.asked == [], str(statement)


def test_scatter_is_allowed_by_name(world: World) -> None:
    everyone = sorted(key for name in NAMES for key in world.of[name][:2])
    with world.Session() as session:
        found = session.scalars(select(User), execution_options={"scatter": True}).all()
        assert sorted(user.id for user in found) == everyone
        pairs = session.execute(
            select(User.id, Order.what).join(User.orders).execution_options(scatter=True)
        ).all()
        assert sorted(pair[0] for pair in pairs) == everyone
        for wrong in (
            select(User).order_by(User.id),
            select(func.count()).select_from(User),
            select(User).limit(2),
        ):
            with pytest.raises(CrossShardError, match="over several shards"):
                session.execute(wrong.execution_options(scatter=True))
        with pytest.raises(NoKeyError):  # two tables that are not joined by key
            session.execute(select(User, Order).execution_options(scatter=True))
        done = session.execute(update(User).values(name="z").execution_options(scatter=True))
        assert done.rowcount == len(everyone)
        session.rollback()


def test_several_keys_ask_only_their_owners(world: World) -> None:
    keys = [world.of["db-1"][0], world.of["db-3"][0], world.of["db-3"][1]]
    with world.Session() as session:
        found: list[User] = []
        asked = world.asked.shards(
            lambda: found.extend(session.scalars(select(User).where(User.id.in_(keys))))
        )
        assert sorted(asked) == ["db-1", "db-3"]
        assert sorted(user.id for user in found) == sorted(keys)
        assert session.scalars(select(User).where(User.id.in_([]))).all() == []
        ordering = select(User.id).where(User.id.in_(keys), User.orders.any(Order.what.like("db%")))
        assert sorted(session.scalars(ordering)) == sorted(keys)


def test_a_key_of_another_type_is_another_key(files: World) -> None:
    """SQL would find the row of 7 by "7"; the router would send them to two shards."""
    with files.Session() as session:
        for wrong in (str(files.of["db-1"][0]), True, 1.0):
            with pytest.raises(TypeError, match="of type int"):
                session.execute(select(User).where(User.id == sa.literal(wrong)))
            with pytest.raises(TypeError, match="of type int"):
                session.get(User, wrong)


# --- identities, refresh, lazy loads ---


def test_identities_refresh_and_lazy_loads_stay_on_the_shard(world: World) -> None:
    user = world.of["db-2"][0]
    with world.Session() as session:
        found: list[Any] = []
        assert world.asked.shards(lambda: found.append(session.get(User, user))) == ["db-2"]
        ann = found[0]
        assert ann.name == f"db-2-{user}"
        assert world.asked.shards(lambda: session.get(User, user)) == []  # it is in the session
        assert world.asked.shards(lambda: session.refresh(ann)) == ["db-2"]
        assert world.asked.shards(lambda: found.append(ann.orders)) == ["db-2"]
        (order,) = ann.orders
        assert order.what == "db-2"
        assert world.asked.shards(lambda: found.append(ann.country)) == ["db-2"]
        session.expire(order)
        assert world.asked.shards(lambda: found.append(order.what)) == ["db-2"]
        session.expunge_all()
        statement = select(User).options(selectinload(User.orders)).where(User.id == user)
        assert world.asked.shards(lambda: found.append(session.scalars(statement).one())) == ["db-2"] * 2
        assert [order.what for order in found[-1].orders] == ["db-2"]


def test_one_primary_key_on_two_shards(files: World) -> None:
    """The trap: order 1 is on every shard."""
    first, second = files.of["db-1"][0], files.of["db-2"][0]
    with files.Session() as session:
        with pytest.raises(NoKeyError, match=r"'db-1', 'db-2', 'db-3'"):
            session.get(Order, 1)
        one = session.get(Order, 1, bind_arguments=files.sharding.at(first))
        two = session.get(Order, 1, bind_arguments=files.sharding.at(second))
        assert one is not two
        assert (one.what, two.what) == ("db-1", "db-2")
        assert files.asked.shards(lambda: session.refresh(two)) == ["db-2"]
        with pytest.raises(NoKeyError):  # and not whichever the session has
            session.get(Order, 1)
        two.what = "changed"
        session.commit()
        assert session.scalars(select(Order.what).where(Order.user_id == first)).all() == ["db-1"]
        assert session.scalars(select(Order.what).where(Order.user_id == second)).all() == ["changed"]


def test_the_key_of_a_row_cannot_change(world: World) -> None:
    user = world.of["db-2"][0]
    far = world.of["db-1"][0]
    with world.Session() as session:
        order = session.scalars(select(Order).where(Order.user_id == user)).one()
        order.user_id = far
        with pytest.raises(KeyChangeError, match=r"Order\.user_id"):
            session.commit()
        session.rollback()
        with pytest.raises(KeyChangeError):
            session.execute(update(Order).where(Order.user_id == user).values(user_id=far))
        assert session.scalars(select(Order).where(Order.user_id == user)).one().what == "db-2"


def test_without_the_guards_rows_are_lost(tmp_path: Path) -> None:
    """The negative control: this is what SQLAlchemy alone does."""
    from ringhash.contrib.sqlalchemy import session as module

    engines = {name: sa.create_engine(f"sqlite:///{tmp_path / name}.db") for name in NAMES}  # no foreign keys
    world = World(engines)
    here, far = world.of["db-2"][0], world.of["db-1"][0]
    with world.Session() as session:
        sa.event.remove(session, "before_flush", module._refuse_key_changes)
        order = session.scalars(select(Order).where(Order.user_id == here)).one()
        order.user_id = far
        session.commit()
        assert (
            len(session.scalars(select(Order.id).where(Order.user_id == far)).all()) == 1
        )  # its own, not this
        with engines["db-2"].connect() as connection:
            assert (
                connection.scalar(select(Order.__table__.c.user_id).where(Order.__table__.c.id == 1)) == far
            )
        user = User(id=far, name="twice")
        session.add(user)
        with pytest.raises(sa_exc.IntegrityError):
            session.flush()
        session.rollback()
        user.id = world.of["db-3"][9]
        session.add(user)
        session.commit()
        assert world.of["db-3"][9] in world.ids("db-1")  # where nobody looks for it
    for engine in engines.values():
        engine.dispose()


# --- writing ---


def test_new_objects_go_to_their_owners(world: World) -> None:
    keys = [world.of[name][5] for name in NAMES]
    with world.Session.begin() as session:
        for key in keys:
            user = User(id=key, name="new", country_code="jp")
            user.orders.append(Order(id=900, what="first"))  # its key comes from the user
            session.add(user)
    for name, key in zip(NAMES, keys, strict=True):
        assert key in world.ids(name)
        assert 900 in world.ids(name, Order.__table__)
        assert all(key not in world.ids(other) for other in NAMES if other != name)
    with world.Session.begin() as session:
        session.delete(session.scalars(select(Order).where(Order.user_id == keys[0], Order.id == 900)).one())
    assert [900 in world.ids(name, Order.__table__) for name in NAMES] == [False, True, True]
    for keyless, message in ((User(name="keyless"), "is None"), (Country(code="xx"), "scatter")):
        with world.Session() as session:
            session.add(keyless)
            with pytest.raises(NoKeyError, match=message):
                session.flush()


def test_an_object_that_failed_may_get_another_key(files: World) -> None:
    """SQLAlchemy keeps the shard that a failed flush chose."""
    there, later = files.of["db-1"][0], files.of["db-3"][9]
    with files.Session() as session:
        user = User(id=there, name="twice")
        session.add(user)
        with pytest.raises(sa_exc.IntegrityError):
            session.flush()
        session.rollback()
        user.id = later
        session.add(user)
        session.commit()
    assert later in files.ids("db-3")
    assert later not in files.ids("db-1")


def test_bulk_inserts_are_split(world: World) -> None:
    rows = [{"id": key, "name": f"bulk-{key}"} for name in NAMES for key in world.of[name][10:30]]
    with world.Session.begin() as session:
        pending = User(id=world.of["db-2"][40], name="pending")
        session.add(pending)  # what is flushed on the way goes to its own shard
        session.execute(insert(User), rows)
        back = session.scalars(
            insert(User).returning(User.id),
            [{"id": k, "name": "r"} for k in world.of["db-1"][50:52] + world.of["db-3"][50:52]],
        )
        assert sorted(back) == sorted(world.of["db-1"][50:52] + world.of["db-3"][50:52])
        session.execute(
            insert(User).values(id=world.of["db-3"][60 % len(world.of["db-3"])] + 10**9, name="one")
        )
    for name in NAMES:
        assert set(world.of[name][10:30]) <= set(world.ids(name))
        assert all(world.router.owner(key) == name for key in world.ids(name))
    assert world.of["db-2"][40] in world.ids("db-2")
    with world.Session.begin() as session:
        session.execute(update(User), [{"id": row["id"], "name": "again"} for row in rows])
    with world.Session() as session:
        names = session.scalars(select(User.name).where(User.id.in_([row["id"] for row in rows]))).all()
        assert names == ["again"] * len(rows)
        far = [{"id": world.of["db-1"][31], "name": "a"}, {"id": world.of["db-2"][31], "name": "b"}]
        with pytest.raises(CrossShardError, match="beside the statement"):
            session.execute(insert(User).values(far))
        with pytest.raises(CrossShardError, match="sort_by_parameter_order"):
            session.execute(insert(User).returning(User.id, sort_by_parameter_order=True), far)
        with pytest.raises(NoKeyError):
            session.execute(insert(User), [{"name": "keyless"}, {"name": "too"}])
        with pytest.raises(NoKeyError):
            session.execute(insert(User).from_select(["id", "name"], select(User.id, User.name)))
        with pytest.raises(KeyChangeError):
            session.execute(update(Order), [{"id": 1, "what": "x"}, {"id": 2, "what": "y"}])


def test_updates_and_deletes_by_key(world: World) -> None:
    key = world.of["db-1"][0]
    with world.Session.begin() as session:
        assert world.asked.shards(
            lambda: session.execute(update(User).where(User.id == key).values(name="u"))
        ) == ["db-1"]
        session.execute(delete(Order).where(Order.user_id == bindparam("k")), {"k": key})
        session.execute(delete(User).where(User.id == key))
    assert key not in world.ids("db-1")


# --- sessions of one owner ---


def test_a_session_of_one_key_stays_on_its_shard(world: World) -> None:
    key, far = world.of["db-3"][0], world.of["db-1"][0]
    with world.Session(key=key) as session:
        assert world.asked.shards(lambda: session.scalars(select(User)).all()) == ["db-3"]
        assert world.asked.shards(lambda: session.execute(text("SELECT 1"))) == ["db-3"]
        assert world.asked.shards(lambda: session.scalars(select(Country)).all()) == ["db-3"]
        assert session.get(Order, 1).what == "db-3"
        assert session.scalar(select(func.count()).select_from(User)) == 2
        assert session.scalars(select(User).order_by(User.id.desc()).limit(1)).one().id == world.of["db-3"][1]
        session.connection()
        for action in (
            lambda: session.scalars(select(User).where(User.id == far)),
            lambda: session.get(User, far),
            lambda: session.execute(insert(User), [{"id": far, "name": "x"}, {"id": key, "name": "x"}]),
            lambda: session.execute(insert(User).values(id=far, name="x")),
            lambda: session.execute(text("SELECT 1"), bind_arguments=world.sharding.at(far)),
        ):
            world.asked.asked.clear()
            with pytest.raises(CrossShardError, match="stays on 'db-3'"):
                action()
            assert world.asked.asked == []
        session.add(User(id=far, name="x"))
        with pytest.raises(CrossShardError):
            session.flush()


def test_a_statement_may_name_its_shard(files: World) -> None:
    key = files.of["db-2"][0]
    with files.Session() as session:
        at = files.sharding.at(key)
        assert files.asked.shards(lambda: session.execute(text("SELECT 1"), bind_arguments=at)) == ["db-2"]
        assert len(session.scalars(select(User), bind_arguments=at).all()) == 2


# --- any router, and asyncio ---


@pytest.mark.parametrize(
    "router",
    [
        Ring(NAMES, seed=3),
        assign(64, NAMES),
        Directory(Ring(NAMES), {5: "db-2"}),
    ],
    ids=lambda router: router.kind,
)
def test_any_router(router: Any, tmp_path: Path) -> None:
    with sqlite(tmp_path) as engines:
        world = World(engines, Router(router))
        with world.Session.begin() as session:
            session.execute(insert(User), [{"id": key, "name": "k"} for key in range(1000, 1100)])
        for name in NAMES:
            assert all(router.owner(key) == name for key in world.ids(name))
        assert set().union(*map(world.ids, NAMES)) >= set(range(1000, 1100))


def test_wrong_shardings_are_refused(files: World) -> None:
    with pytest.raises(ValueError, match="has no engine"):
        Sharding(Ring([*NAMES, "db-4"]), files.engines, keys={User: "id"})
    with pytest.raises(ValueError, match="no column attribute"):
        Sharding(Ring(NAMES), files.engines, keys={User: "orders"})
    with pytest.raises(ValueError, match="name the key"):
        Sharding(Ring(NAMES), files.engines, keys={})
    with pytest.raises(ValueError, match="both"):
        Sharding(Ring(NAMES), files.engines, keys={User: "id"}, everywhere=[User])


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_asyncio(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main(sync: dict[str, Any], world: World) -> None:
        engines = {}
        for name, engine in sync.items():
            url = engine.url
            if kind == "sqlite":
                url = url.set(drivername="sqlite+aiosqlite")
            engines[name] = create_async_engine(url)
        sharding = Sharding(world.router, engines, keys={User: "id", Order: "user_id"}, everywhere=[Country])
        asked = Asked(engines)
        sessions = sharding.async_sessionmaker(expire_on_commit=False)
        try:
            async with sessions() as session:
                user = await session.get(User, world.of["db-2"][0], options=[selectinload(User.orders)])
                assert user is not None
                assert [order.what for order in user.orders] == ["db-2"]
                await session.refresh(user)
                assert {name for name, _ in asked.asked} == {"db-2"}
                with pytest.raises(NoKeyError):
                    await session.execute(select(User))
                await session.execute(
                    insert(User), [{"id": world.of[name][20], "name": "a"} for name in NAMES]
                )
                session.add(User(id=world.of["db-1"][21], name="b"))
                await session.commit()
            async with sessions(key=world.of["db-1"][0]) as session:
                found = (await session.scalars(select(User.id))).all()
                assert set(found) == {*world.of["db-1"][:2], *world.of["db-1"][20:22]}

            async def one(key: int) -> str | None:
                async with sessions() as own:
                    return await own.scalar(select(User.name).where(User.id == key))

            keys = [world.of[name][i] for name in NAMES for i in (0, 1)]
            names = await asyncio.gather(*map(one, keys))
            assert names == [f"{world.router.owner(key)}-{key}" for key in keys]
        finally:
            for engine in engines.values():
                await engine.dispose()

    if kind == "sqlite":
        pytest.importorskip("aiosqlite")
    databases = sqlite(tmp_path) if kind == "sqlite" else postgresql(request.getfixturevalue("postgres"))
    with databases as sync:
        world = World(sync)
        asyncio.run(main(sync, world))


def test_rows_of_parameters_are_never_read_as_one(files: World) -> None:
    """A default of a parameter would send all rows to its shard."""
    key, far = files.of["db-1"][0], files.of["db-2"][0]
    rows = [{"k": key}, {"k": far}]
    with files.Session() as session:
        for statement in (
            delete(Order).where(Order.user_id == bindparam("k", key)),
            update(User.__table__).where(User.__table__.c.id == bindparam("k", key)).values(name="x"),
            update(User.__table__)
            .where(User.__table__.c.id == bindparam("k", key))
            .values(id=bindparam("id", far)),
        ):
            files.asked.asked.clear()
            with pytest.raises((NoKeyError, KeyChangeError)):
                session.execute(statement, rows)
            assert files.asked.asked == []


def test_the_legacy_query(files: World) -> None:
    key = files.of["db-3"][0]
    with files.Session() as session:
        assert files.asked.shards(lambda: session.query(User).filter(User.id == key).one()) == ["db-3"]
        assert session.query(User).filter_by(id=key).count() == 1
        with pytest.raises(NoKeyError):
            session.query(User).all()
        with pytest.raises(CrossShardError):
            session.query(User).filter(User.id.in_([key, files.of["db-1"][0]])).count()


def test_a_connection_needs_a_shard(files: World) -> None:
    key = files.of["db-2"][0]
    with files.Session() as session:
        with pytest.raises(CrossShardError, match="connection"):
            session.connection()
        found = session.connection(bind_arguments=files.sharding.at(key))
        assert found.engine is files.engines["db-2"]
    with files.Session(key=key) as session:
        assert session.connection().engine is files.engines["db-2"]


def test_the_snippets_run(files: World) -> None:
    pytest.importorskip("aiosqlite")
    page = Path(__file__).parent.parent.parent / "docs" / "sqlalchemy.md"
    block, fenced = [
        block
        for block in page.read_text(encoding="utf-8").split("```python\n")[1:]
        if not block.startswith(">>>")
    ]
    urls = {name: engine.url.set(drivername="sqlite+aiosqlite") for name, engine in files.engines.items()}
    names = {"urls": urls, "router": files.router, "User": User, "Sharding": Sharding, "select": select}
    exec(compile("from __future__ import annotations\n" + block.split("```")[0], page.name, "exec"), names)

    async def main() -> Any:
        try:
            return await names["name_of"](files.of["db-3"][1])
        finally:
            for engine in names["engines"].values():
                await engine.dispose()

    assert asyncio.run(main()) == f"db-3-{files.of['db-3'][1]}"
    with Fleet({name: str(engine.url) for name, engine in files.engines.items()}, files.router) as fleet:
        fleet.install()
    with files.Session.begin() as session:
        session.merge(User(id=7, name="Ann"))
    names = {"Session": files.Session, "router": files.router, "User": User, "update": update}
    exec(compile(fenced.split("```")[0], page.name, "exec"), names)
    with files.Session() as session:
        assert session.get(User, 7).name == "Anna"


def test_the_database_itself_refuses_a_key_that_moved(world: World) -> None:
    """With the fence of a fleet, as the page has it."""
    key = world.of["db-1"][0]
    driver = world.engines["db-1"].dialect.name
    if driver == "postgresql":
        pytest.importorskip("psycopg_pool")
    urls = {
        name: engine.url.set(drivername=driver).render_as_string() for name, engine in world.engines.items()
    }
    with Fleet(urls, world.router) as fleet:
        fleet.install()
        with world.Session(key=key) as session, session.begin():
            fence(session, key, world.router)
            session.execute(update(User).where(User.id == key).values(name="fenced"))
        with fleet.database("db-1").transaction(write=True) as tx:
            set_fence(tx, [(world.router.placement.space.address(key), None)], "gone", "db-2", 9)
        with world.Session(key=key) as session, pytest.raises(Moved) as moved:
            fence(session, key, world.router)
        assert moved.value.to == "db-2"
        with world.Session() as session:
            assert session.get(User, key).name == "fenced"

"""Django over three real databases, and its cache over four real Redis servers."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

django = pytest.importorskip("django")
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models.signals import pre_save
from django.test.utils import CaptureQueriesContext
from django_project import MANY, NAMES, folder, shards

from ringhash import Moved, Router
from ringhash.contrib.django import (
    CrossShardError,
    NoKeyError,
    ShardRouter,
    current_database,
    migrate_shards,
    using_key,
)
from ringhash.contrib.django.apps import check_save
from ringhash.fleet import Fleet, fence, set_fence

User, Order, Country, Setting = (
    apps.get_model("django_shop", name) for name in ("User", "Order", "Country", "Setting")
)


def keys_of(name: str, count: int = 3, start: int = 1) -> list[int]:
    return [key for key in range(start, start + 500) if shards.owner(key) == name][:count]


@pytest.fixture(scope="module")
def migrated() -> Iterator[None]:
    results = migrate_shards(shards=NAMES, workers=2)
    assert [(result.database, result.error) for result in results] == [(name, None) for name in NAMES]
    call_command("migrate", database="default", verbosity=0)
    yield
    for name in connections:
        connections[name].close()


@pytest.fixture
def world(migrated: None) -> dict[str, list[int]]:
    """Two users and their orders on each shard."""
    of = {name: keys_of(name) for name in NAMES}
    for name in NAMES:
        for model in (Order, User):
            model.objects.using(name).all().delete()
        for key in of[name][:2]:
            User.objects.using(name).create(id=key, name=f"{name}-{key}")
            Order(number=1, user_id=key).save(using=name)
    return of


def ids(name: str, table: str = "django_shop_user", column: str = "id") -> set[int]:
    """Read past Django."""
    connection = sqlite3.connect(f"{folder.name}/{name}.db")
    try:
        return {row[0] for row in connection.execute(f"SELECT {column} FROM {table}")}
    finally:
        connection.close()


# --- the key in force ---


def test_queries_go_to_the_database_of_the_key(world: dict[str, list[int]]) -> None:
    for name in NAMES:
        key = world[name][0]
        with using_key(key) as database, CaptureQueriesContext(connections[name]) as seen:
            assert database == name == current_database()
            assert {user.id for user in User.objects.all()} == set(world[name][:2])
            assert User.objects.get(id=key).name == f"{name}-{key}"
            assert Order.objects.filter(user__name=f"{name}-{key}").count() == 1
            assert Country.objects.count() == 1
        assert len(seen) == 4
    assert current_database() is None
    customer = apps.get_model("django_shop", "Customer")
    with using_key(world["db-2"][0]):  # a proxy is where its model is
        assert customer.objects.count() == 2
        with pytest.raises(CrossShardError):
            customer(id=world["db-1"][0], name="x").save(using="db-2")
    with using_key(str(world["db-3"][0])) as database:  # as a URL gives it
        assert database == "db-3"


def test_without_a_key_nothing_is_asked(world: dict[str, list[int]]) -> None:
    for action in (
        lambda: list(User.objects.all()),
        lambda: User.objects.filter(id=7).exists(),
        lambda: Order.objects.create(number=1, user_id=7),
        lambda: User.objects.filter(id=7).update(name="x"),
        lambda: Order.objects.all().delete(),
        lambda: User(name="keyless").save(),
    ):
        with pytest.raises(NoKeyError):
            action()
    with pytest.raises(NoKeyError), using_key(None):
        pass
    with pytest.raises(CrossShardError, match="every shard"):
        Country.objects.create(code="xx")
    Setting.objects.create(name="n")  # what is not sharded is in the default database
    assert Setting.objects.get().name == "n"
    Setting.objects.all().delete()


def test_what_starts_from_an_object_stays_in_its_database(world: dict[str, list[int]]) -> None:
    key = world["db-2"][0]
    user = User.objects.using("db-2").get(id=key)
    assert [order.number for order in user.orders.all()] == [1]
    user.orders.create(number=2)
    (first, second) = user.orders.order_by("number")
    assert (first._state.db, second.user._state.db) == ("db-2", "db-2")
    first.refresh_from_db()
    first.number = 7
    first.save()
    with using_key(world["db-1"][0]):  # another key in force changes nothing for them
        assert sorted(order.number for order in user.orders.all()) == [2, 7]
        user.delete()
    assert key not in ids("db-2")
    assert key not in ids("db-2", "django_shop_order", "user_id")


def test_new_rows_go_to_their_owners(world: dict[str, list[int]]) -> None:
    new = {name: keys_of(name, 20, 1000) for name in NAMES}
    for name in NAMES:
        User(id=new[name][0], name="saved").save()
        User.objects.create(id=new[name][1], name="created")
    User.objects.bulk_create(User(id=key, name="bulk") for name in NAMES for key in new[name][2:])
    for name in NAMES:
        assert ids(name) == {*world[name][:2], *new[name]}


def test_a_row_is_never_written_where_its_key_does_not_belong(world: dict[str, list[int]]) -> None:
    here, far = world["db-1"][0], world["db-2"][0]
    before = {name: (ids(name), ids(name, "django_shop_order", "user_id")) for name in NAMES}
    user = User.objects.using("db-1").get(id=here)
    order = user.orders.get()
    for action in (
        lambda: Order.objects.create(number=9, user_id=far),
        lambda: Order(number=9, user_id=far).save(using="db-1"),
        lambda: User.objects.using("db-1").bulk_create([User(id=far, name="x")]),
        lambda: User.objects.filter(id=here).update(id=far),
        lambda: User.objects.filter(id=here).update(pk=far),
        lambda: setattr(order, "user_id", far) or order.save(),
    ):
        with using_key(here), pytest.raises(CrossShardError):
            action()
    assert {name: (ids(name), ids(name, "django_shop_order", "user_id")) for name in NAMES} == before
    with pytest.raises(ValueError, match="database router prevents"):
        user.orders.get().user = User.objects.using("db-2").get(id=far)


def test_without_the_guard_the_row_would_be_lost(world: dict[str, list[int]]) -> None:
    """The negative control: what Django alone does."""
    here, far = world["db-1"][0], world["db-2"][0]
    with connections["db-1"].cursor() as cursor:  # a user of that number, so that the foreign key holds
        cursor.execute("INSERT INTO django_shop_user (id, name) VALUES (%s, 'copy')", [far])
    pre_save.disconnect(dispatch_uid="ringhash")
    try:
        with using_key(here):
            Order.objects.create(number=9, user_id=far)
    finally:
        pre_save.connect(check_save, dispatch_uid="ringhash")
    assert far in ids("db-1", "django_shop_order", "user_id")


def test_relations(world: dict[str, list[int]]) -> None:
    here, near, far = world["db-1"][0], world["db-1"][1], world["db-2"][0]
    assert shards.allow_relation(User(id=here), Order(user_id=near)) is True
    assert shards.allow_relation(User(id=here), Order(user_id=far)) is False
    assert shards.allow_relation(User(id=here), Country(code="at")) is True
    assert shards.allow_relation(User(id=here), Setting(name="x")) is False
    assert shards.allow_relation(Country(code="x"), Setting(name="x")) is False
    assert shards.allow_relation(Setting(name="y"), Setting(name="x")) is None


# --- blocks, decorators, tasks, threads ---


def test_blocks_nest_and_end_with_errors(world: dict[str, list[int]]) -> None:
    one, two = world["db-1"][0], world["db-2"][0]
    block = using_key(one)
    with block as outer, using_key(two) as inner, block as again:
        assert (outer, inner, again, current_database()) == ("db-1", "db-2", "db-1", "db-1")
    assert current_database() is None
    with pytest.raises(ZeroDivisionError), using_key(one):
        _ = 1 / 0
    assert current_database() is None
    with using_key(one, atomic=True):
        assert connections["db-1"].in_atomic_block
        assert not connections["db-2"].in_atomic_block

    @using_key(one, atomic=True)
    def fails() -> None:
        User.objects.filter(id=one).update(name="undone")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert User.objects.using("db-1").get(id=one).name == f"db-1-{one}"
    with using_key(one) as database, transaction.atomic(using=database):
        assert User.objects.select_for_update().get(id=one).id == one


def test_decorators(world: dict[str, list[int]]) -> None:
    @using_key(lambda key, *_: key, atomic=True)
    def name_of(key: int) -> str:
        assert connections[current_database()].in_atomic_block
        return User.objects.get(id=key).name

    @using_key(world["db-3"][0])
    def count() -> int:
        return User.objects.count()

    @using_key(lambda key: key)
    async def name_later(key: int) -> str:
        await asyncio.sleep(0)
        return (await User.objects.aget(id=key)).name

    keys = [world[name][0] for name in NAMES]
    names = [f"{name}-{world[name][0]}" for name in NAMES]
    assert [name_of(key) for key in keys] == names
    assert count() == 2

    async def main() -> list[str]:
        return await asyncio.gather(*(name_later(key) for key in keys * 5))

    assert asyncio.run(main()) == names * 5
    assert current_database() is None
    with pytest.raises(TypeError, match="generator"):

        @using_key(7)
        def rows() -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="coroutines"):

        @using_key(7, atomic=True)
        async def wrong() -> None: ...

    with pytest.raises(TypeError, match="decorator"), using_key(lambda: 7):
        pass


def test_tasks_of_asyncio_have_their_own_key(world: dict[str, list[int]]) -> None:
    """The trap of a thread-local: all tasks run in one thread, and take turns within their blocks."""

    async def names(key: int, barrier: asyncio.Barrier) -> tuple[str | None, int]:
        with using_key(key):
            await barrier.wait()  # every task is within its block now
            user = await User.objects.aget(id=key)
            await barrier.wait()
            return current_database(), user.id

    async def main() -> Any:
        keys = [world[name][i] for name in NAMES for i in (0, 1)]
        barrier = asyncio.Barrier(len(keys))
        found = await asyncio.gather(*(names(key, barrier) for key in keys))
        assert found == [(shards.owner(key), key) for key in keys]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_threads_have_their_own_key(world: dict[str, list[int]]) -> None:
    found: dict[str, Any] = {}
    barrier = threading.Barrier(len(NAMES))

    def work(name: str) -> None:
        with using_key(world[name][0]):
            barrier.wait(60)
            found[name] = sorted(User.objects.values_list("id", flat=True))
            barrier.wait(60)
        connections[name].close()

    threads = [threading.Thread(target=work, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {name: sorted(world[name][:2]) for name in NAMES}


def test_the_database_itself_refuses_a_key_that_moved(world: dict[str, list[int]]) -> None:
    """With the fence of a fleet, as the page has it."""
    key, router = world["db-1"][0], shards.router
    fleet = Fleet({name: f"sqlite:///{folder.name}/{name}.db" for name in NAMES}, router)
    try:
        fleet.install()
        with using_key(key, atomic=True) as database:
            fence(connections[database], key, router)
            User.objects.filter(id=key).update(name="fenced")
        with fleet.database("db-1").transaction(write=True) as tx:
            set_fence(tx, [(router.placement.space.address(key), None)], "gone", "db-2", 9)
        with pytest.raises(Moved) as moved, using_key(key, atomic=True) as database:
            fence(connections[database], key, router)
        assert moved.value.to == "db-2"
        assert User.objects.using("db-1").get(id=key).name == "fenced"
        with fleet.database("db-1").transaction(write=True) as tx:
            set_fence(tx, [(b"", None)], "here", None, 10)
    finally:
        fleet.close()


# --- migrations ---


def test_tables_lie_where_they_belong(migrated: None) -> None:
    def tables(name: str) -> set[str]:
        with connections[name].cursor() as cursor:
            return {
                t for t in connections[name].introspection.table_names(cursor) if t.startswith("django_shop")
            }

    for name in NAMES:
        assert tables(name) == {"django_shop_user", "django_shop_order", "django_shop_country"}
    assert tables("default") == {"django_shop_setting"}


def test_all_shards_are_migrated_side_by_side(migrated: None) -> None:
    together = threading.Barrier(4)
    seen: list[str] = []
    original = connections[MANY[0]].__class__.ensure_connection

    def meet(connection: Any) -> None:
        # Four of the seven that follow the first are at work at one time, or this breaks.
        if connection.alias in MANY[1:5] and connection.connection is None:
            together.wait(60)
        original(connection)

    connections[MANY[0]].__class__.ensure_connection = meet
    try:
        results = migrate_shards(shards=MANY, workers=4, heard=lambda result: seen.append(result.database))
    finally:
        connections[MANY[0]].__class__.ensure_connection = original
    assert [(r.database, r.error, r.tried) for r in results] == [(name, None, True) for name in MANY]
    assert seen == list(MANY)
    assert all(ids(name, "django_shop_country", "code") == {"at"} for name in MANY)
    output = io.StringIO()
    call_command("migrate_shards", shards=list(MANY), stdout=output)
    assert output.getvalue().splitlines()[-1] == "8 of 8 shards are migrated"


def test_a_shard_that_fails(migrated: None) -> None:
    def broken(*names: str) -> Any:
        for name in names:
            connections.databases[name]["NAME"] = f"{folder.name}/no/{name}.db"

    def whole(*names: str) -> Any:
        for name in names:
            connections.databases[name]["NAME"] = f"{folder.name}/{name}.db"

    broken("more-3", "more-5")
    output = io.StringIO()
    try:
        with pytest.raises(CommandError, match=r"failed: more-3, more-5$"):
            call_command("migrate_shards", "django_shop", shards=list(MANY), stdout=output)
        lines = output.getvalue().splitlines()
        assert lines[-1] == "6 of 8 shards are migrated"
        assert lines[3].startswith("more-3: OperationalError: unable to open")
        broken("more-0")  # the first: the others are not begun
        with pytest.raises(CommandError, match=r"failed: more-0; not begun: more-1, more-2"):
            call_command("migrate_shards", shards=list(MANY[:3]), stdout=io.StringIO())
    finally:
        whole(*MANY)
    for wrong in ({"shards": ["nowhere"]}, {"workers": 0}):
        with pytest.raises(CommandError):
            call_command("migrate_shards", stdout=io.StringIO(), **wrong)


def test_a_sharded_model_with_another_manager_is_noticed() -> None:
    """Its bulk_create and update do not look at keys."""
    from django.core.checks import run_checks

    assert [(found.id, found.obj) for found in run_checks() if found.id.startswith("ringhash")] == [
        ("ringhash.W001", Order)
    ]


def test_wrong_routers_are_refused() -> None:
    for keys, everywhere in (({}, ()), ({"User": "id"}, ()), ({"a.B": "id"}, ["a.b"])):
        with pytest.raises(ValueError, match=r"key|named"):
            ShardRouter(Router(NAMES), keys, everywhere=everywhere)

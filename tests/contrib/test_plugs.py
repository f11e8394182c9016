"""One table of keys: whichever plug asks, a key goes to the same node. See vectors/make_plugs.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringhash import Ring, Router, Shards, assign
from ringhash.interop import UHashPlacement, UHashRing

TABLE = json.loads((Path(__file__).parent.parent / "vectors" / "plugs.json").read_text(encoding="utf-8"))
NODES: list[str] = TABLE["nodes"]
ROWS: list[dict[str, Any]] = TABLE["rows"]
TEXTS = [row for row in ROWS if isinstance(row["key"], str)]
NUMBERS = [row for row in ROWS if isinstance(row["key"], int)]
ASSIGNMENT = assign(TABLE["shards"], NODES)


def node_of_shard(row: dict[str, Any]) -> str:
    return str(ASSIGNMENT.owner_at(row["shard"]))


# Each column of the table: a router, and the node of a row.
COLUMNS: dict[str, tuple[Callable[[], Any], Callable[[dict[str, Any]], str]]] = {
    "ring": (lambda: Router(NODES), lambda row: row["ring"]),
    "shards": (lambda: Router(ASSIGNMENT), node_of_shard),
    "uhashring": (lambda: UHashPlacement(NODES), lambda row: row["uhashring"]),
}


@pytest.fixture(params=COLUMNS)
def column(
    request: pytest.FixtureRequest,
) -> tuple[Any, Callable[[dict[str, Any]], str], list[dict[str, Any]]]:
    make, node = COLUMNS[request.param]
    return make(), node, TEXTS if request.param == "uhashring" else ROWS


def wrong(
    rows: list[dict[str, Any]], node: Callable[[dict[str, Any]], str], found: Callable[[Any], Any]
) -> list[Any]:
    """The rows of which a plug says something else."""
    return [(row["key"], node(row), found(row["key"])) for row in rows if found(row["key"]) != node(row)]


def test_the_table_can_be_wrong() -> None:
    """The negative control: another seed, another number of shards, and keys that are read as text."""
    assert wrong(ROWS, lambda row: row["ring"], Ring(NODES, seed=1).owner)
    assert wrong(ROWS, node_of_shard, assign(TABLE["shards"] + 1, NODES).owner)
    assert wrong(NUMBERS, lambda row: row["ring"], lambda key: Ring(NODES).owner(str(key)))
    assert {row["ring"] for row in ROWS} == {node_of_shard(row) for row in ROWS} == set(NODES)


def test_router(column: Any) -> None:
    router, node, rows = column
    assert wrong(rows, node, router.owner) == []
    assert list(router.owner_many([row["key"] for row in rows])) == [node(row) for row in rows]
    if isinstance(router, Router):
        assert wrong(rows, node, router.placement.owner) == []


def test_uhashring() -> None:
    assert wrong(TEXTS, lambda row: row["uhashring"], UHashRing(NODES).get_node) == []


def test_pymemcache() -> None:
    pytest.importorskip("pymemcache")
    from ringhash.contrib.pymemcache import HashClient

    client = HashClient(NODES)
    assert wrong(TEXTS, lambda row: row["ring"], client.hasher.get_node) == []


def test_redis(column: Any, redis_nodes: list[Any]) -> None:
    """Asked of the servers: which of them has the key that was set."""
    redis = pytest.importorskip("redis")
    from ringhash.contrib.redis import Ring as RedisRing

    router, node, rows = column
    rows = [row for row in rows if isinstance(row["key"], str)]
    urls = {name: server.url for name, server in zip(NODES, redis_nodes, strict=False)}
    clients = {name: redis.Redis.from_url(url) for name, url in urls.items()}
    try:
        for client in clients.values():
            client.flushall()
        with RedisRing(urls, router) as ring:
            ring.mset({row["key"]: "1" for row in rows})
            assert wrong(rows, node, ring.node_of) == []
        for name, client in clients.items():
            there = {key.decode() for key in client.scan_iter()}
            assert there == {row["key"] for row in rows if node(row) == name}
    finally:
        for client in clients.values():
            client.close()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[dict[str, Any]]:
    sa = pytest.importorskip("sqlalchemy")
    made = {name: sa.create_engine(f"sqlite:///{tmp_path / str(i)}.db") for i, name in enumerate(NODES)}
    yield made
    for engine in made.values():
        engine.dispose()


@pytest.mark.parametrize("kind", [str, int])
def test_sqlalchemy(column: Any, engines: dict[str, Any], kind: type) -> None:
    """Asked of the databases: which of them has the row that was added."""
    sa = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import DeclarativeBase, mapped_column

    from ringhash.contrib.sqlalchemy import Sharding

    class Base(DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = "thing"
        key = mapped_column(sa.String if kind is str else sa.BigInteger, primary_key=True)

    router, node, rows = column
    rows = [row for row in rows if isinstance(row["key"], kind)]
    for engine in engines.values():
        Base.metadata.create_all(engine)
    sessions = Sharding(router, engines, keys={Thing: "key"}).sessionmaker()
    with sessions.begin() as session:
        session.add_all(Thing(key=row["key"]) for row in rows[::2])
        if rows[1::2]:
            session.execute(sa.insert(Thing), [{"key": row["key"]} for row in rows[1::2]])
    for name, engine in engines.items():
        with engine.connect() as connection:
            assert set(connection.scalars(sa.select(Thing.__table__.c.key))) == {
                row["key"] for row in rows if node(row) == name
            }
    with sessions() as session:
        for row in rows:
            assert session.get(Thing, row["key"]) is not None
            assert session.scalar(sa.select(Thing.key).where(Thing.key == row["key"])) == row["key"]


@pytest.mark.parametrize(("kind", "name"), [(str, "name"), (int, "id")])
def test_django(column: Any, kind: type, name: str) -> None:
    pytest.importorskip("django")
    import django_project  # noqa: F401  Django needs settings
    from django.apps import apps

    from ringhash.contrib.django import ShardRouter

    router, node, rows = column
    user = apps.get_model("django_shop", "User")
    shards = ShardRouter(router, {"django_shop.User": name})
    rows = [row for row in rows if isinstance(row["key"], kind)]
    assert wrong(rows, node, lambda key: shards.db_for_write(user, instance=user(**{name: key}))) == []
    assert wrong(rows, node, shards.owner) == []
    if kind is int:  # as a URL gives it
        assert wrong(rows, node, lambda key: shards.owner(str(key))) == []


def test_kafka() -> None:
    from ringhash.contrib.kafka import Partitioner

    shards = Partitioner(Shards(TABLE["shards"]))
    java = Partitioner(TABLE["partitions"])
    for key in (str, str.encode):
        assert [shards.partition(key(row["key"])) for row in TEXTS] == [row["shard"] for row in TEXTS]
        assert [java.partition(key(row["key"])) for row in TEXTS] == [row["java"] for row in TEXTS]
    # And so the owner of a partition is the owner of its keys.
    assert all(ASSIGNMENT.owner(row["key"]) == ASSIGNMENT.owner_at(row["shard"]) for row in TEXTS)

"""Any condition is refused, or answered as the union of all databases would answer it."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sa = pytest.importorskip("sqlalchemy")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import and_, exists, not_, or_, select
from sqlalchemy.orm import aliased
from test_sqlalchemy import Country, Order, User, World, sqlite

from ringhash.contrib.sqlalchemy import CrossShardError, NoKeyError

OTHER = aliased(User)


@pytest.fixture(scope="module")
def world() -> Any:
    with tempfile.TemporaryDirectory() as folder, sqlite(Path(folder)) as engines:
        yield World(engines)


def keys_of(world: World) -> list[int]:
    return [key for keys in world.of.values() for key in keys[:3]]


def conditions(keys: list[int]) -> Any:
    key = st.sampled_from(keys)
    some = st.lists(key, max_size=3)
    atoms = st.one_of(
        key.map(lambda k: User.id == k),
        key.map(lambda k: sa.literal(k) == User.id),
        some.map(User.id.in_),
        some.map(User.id.not_in),
        key.map(lambda k: User.id != k),
        key.map(lambda k: User.id < k),
        key.map(lambda k: User.name == f"db-1-{k}"),
        st.just(User.country_code == "at"),
        st.just(sa.true()),
        st.just(sa.false()),
        key.map(lambda k: User.orders.any(Order.user_id == k)),
        key.map(lambda k: exists().where(Order.user_id == k)),
        key.map(lambda k: ~exists().where(Order.user_id == k, Order.user_id == User.id).correlate(User)),
        key.map(lambda k: User.id.in_(select(Order.user_id).where(Order.user_id == k))),
        st.just(User.id.in_(select(Order.user_id).where(Order.user_id == User.id).correlate(User))),
        # What is not correlated reads a whole table, and so all shards.
        st.just(User.id == select(sa.func.max(User.id)).scalar_subquery()),
        st.just(User.id.not_in(select(OTHER.id).where(OTHER.name.like("db-1%")))),
        key.map(
            lambda k: (
                User.id == select(sa.func.min(User.id)).where(User.id > k).correlate(None).scalar_subquery()
            )
        ),
        key.map(lambda k: User.id == select(sa.func.max(User.id)).where(User.id == k).scalar_subquery()),
    )
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: and_(*parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: or_(*parts)),
            inner.map(not_),
        ),
        max_leaves=6,
    )


def shapes(condition: Any) -> list[Any]:
    """A condition in the places where it may stand."""
    on = and_(Order.user_id == User.id, condition)
    return [
        select(User.id).where(condition),
        select(User.id, Order.what).join(User.orders).where(condition),
        select(User.id, Order.what).outerjoin(User.orders).where(condition),
        select(User.id, Order.what).join(Order, on),
        select(User.id, Order.what).outerjoin(Order, on),
        select(User.id, OTHER.id).where(condition, User.id == OTHER.id),
        select(User.id, OTHER.id).where(condition, User.country_code == OTHER.country_code),
        select(User.id, Country.code).outerjoin(User.country).where(condition),
        select(select(User.id).where(condition).subquery()),
        select(User.id).where(condition).union_all(select(User.id).join(User.orders).where(condition)),
        select(User.id, select(User.id).where(condition).subquery()).where(User.id == 1),
        select(User.id).where(
            condition, User.id == select(sa.func.max(OTHER.id)).where(OTHER.id == User.id).scalar_subquery()
        ),
        select(
            User.id,
            select(sa.func.count(OTHER.id)).where(OTHER.country_code == User.country_code).scalar_subquery(),
        ).where(condition),
    ]


def copied(world: World) -> Any:
    """All rows of all shards in one database: what a statement means."""
    one = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    User.metadata.create_all(one)
    with one.begin() as connection:
        for engine in world.engines.values():
            with engine.connect() as shard:
                for table in (Country.__table__, User.__table__, Order.__table__):
                    # Order 1 is on every shard; what it says is all that counts here.
                    for row in shard.execute(select(table)).mappings():
                        values = dict(row)
                        if table is Order.__table__:
                            values["id"] = values["user_id"] * 10 + values["id"]
                        connection.execute(sa.insert(table).prefix_with("OR IGNORE"), values)
    return one


@pytest.fixture(scope="module")
def whole(world: World) -> Any:
    one = copied(world)
    yield one
    one.dispose()


answered: Counter[str] = Counter()


@pytest.mark.filterwarnings("ignore:SELECT statement has a cartesian")
@settings(
    max_examples=int(os.environ.get("RINGHASH_FUZZ", "150")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_answer_is_wrong(world: World, whole: Any, data: st.DataObject) -> None:
    condition = data.draw(conditions(keys_of(world)))
    statement = data.draw(st.sampled_from(shapes(condition)))
    scatter = data.draw(st.booleans())
    with world.Session() as session:
        try:
            found = session.execute(statement, execution_options={"scatter": scatter}).all()
        except (NoKeyError, CrossShardError):
            answered["refused"] += 1
            return
    answered["answered"] += 1
    with whole.connect() as connection:
        wanted = connection.execute(statement).all()
    assert Counter(map(tuple, found)) == Counter(map(tuple, wanted)), str(statement)


def test_many_were_answered_and_many_refused() -> None:
    """Refusing everything would be right, too."""
    if answered:
        assert min(answered["answered"], answered["refused"]) > sum(answered.values()) // 10


def test_without_reading_conditions_answers_are_wrong(world: World, whole: Any) -> None:
    """The negative control: a chooser that takes the first key that it sees."""
    key, far = world.of["db-1"][0], world.of["db-2"][0]
    statement = select(User.id).where(or_(User.id == key, User.id == far))
    with world.Session() as session, whole.connect() as connection:
        found = session.execute(statement, bind_arguments=world.sharding.at(key)).all()
        assert Counter(map(tuple, found)) != Counter(map(tuple, connection.execute(statement).all()))

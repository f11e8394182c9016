"""Tokens of pages: every value comes back as it was, and a damaged one is refused."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash.scatter import By, Order, PageError
from ringhash.scatter.pages import read_token, token_of

ORDER = Order(["a", By("b", descending=True)])

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.datetimes(), st.dates(), st.uuids(), st.decimals(allow_nan=False),
)  # fmt: skip


@given(scalars, scalars)
def test_values_come_back_as_they_were(a: Any, b: Any) -> None:
    back = read_token(ORDER, token_of(ORDER, (a, b)))
    assert back == (a, b)
    assert [type(value) for value in back] == [type(a), type(b)]


def test_nan_and_time_zones() -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    back = read_token(ORDER, token_of(ORDER, (math.nan, at)))
    assert math.isnan(back[0])
    assert back[1] == at


@given(st.text() | st.binary().map(lambda raw: raw.hex()))
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(PageError):
        read_token(ORDER, text)


@given(st.data())
def test_a_damaged_token_is_refused(data: st.DataObject) -> None:
    token = token_of(ORDER, (5, "x" * 20))
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCxyz059-_"))
    damaged = token[:place] + letter + token[place + 1 :]
    if damaged != token:
        with pytest.raises(PageError):
            read_token(ORDER, damaged)


def test_a_token_of_another_order_is_refused() -> None:
    token = token_of(ORDER, (1, 2))
    for other in (Order(["a", "b"]), Order("a"), Order(["b", By("a", descending=True)])):
        with pytest.raises(PageError, match="another order"):
            read_token(other, token)


def test_a_value_that_no_token_holds() -> None:
    with pytest.raises(PageError, match="complex"):
        token_of(ORDER, (1j, uuid.uuid4()))
    assert read_token(ORDER, token_of(ORDER, (Decimal("1.10"), 2)))[0] == Decimal("1.10")

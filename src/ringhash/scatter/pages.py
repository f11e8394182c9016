"""Pages of a merged answer. The token holds the place in the order, and nothing about shards.

A token with a position for each shard breaks when shards split. This one holds the values of the last row,
in the columns of the order: every shard is asked for what comes after them, whichever shards there are.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import json
import uuid
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ringhash.scatter.coverage import Coverage
from ringhash.scatter.errors import PageError
from ringhash.scatter.order import Order, Row

__all__ = ["Page", "read_token", "token_of"]

_VERSION = 1
_CHECK = 6  # bytes


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a page, the token of the next one (None after the last), and the coverage."""

    rows: list[Row]
    next: str | None
    coverage: Coverage


def token_of(order: Order, values: tuple[Any, ...]) -> str:
    """Return the token of the place after a row with these values in the columns of the order.

    Raises:
        PageError: A value is of a type that a token cannot hold.
    """
    body = json.dumps(
        [_VERSION, _name_of(order), [_written(value) for value in values]], separators=(",", ":")
    )
    raw = body.encode()
    return _encoded(_check(raw) + raw)


def read_token(order: Order, token: str) -> tuple[Any, ...]:
    """Return the values that `token_of` was given.

    Raises:
        PageError: The token is damaged, of another order, or of a later version.
    """
    try:
        whole = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        check, raw = whole[:_CHECK], whole[_CHECK:]
        if check != _check(raw) or _encoded(whole) != token:
            raise ValueError("its check does not match")  # noqa: TRY301
        version, name, values = json.loads(raw)
        if version == _VERSION:
            values = tuple(map(_read, values))
    except (
        ValueError,
        TypeError,
        KeyError,
        binascii.Error,
        RecursionError,
        decimal.InvalidOperation,
    ) as error:
        raise PageError(f"the page token is damaged ({error}); start again at the first page") from None
    if version != _VERSION:
        raise PageError(f"the page token has version {version}, and this program reads {_VERSION}")
    if name != _name_of(order) or len(values) != len(order.columns):
        raise PageError(
            "the page token belongs to another order; ask for a page in the order in which the first one was"
        )
    return values  # type: ignore[no-any-return]


def _name_of(order: Order) -> str:
    text = json.dumps([[by.column, by.descending, by.nulls] for by in order.columns])
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _check(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_CHECK, key=b"ringhash-page").digest()


def _written(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"i": str(value)}
    if isinstance(value, float):
        return {"f": value.hex()}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, dt.datetime):
        return {"t": value.isoformat()}
    if isinstance(value, dt.date):
        return {"d": value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"n": str(value)}
    if isinstance(value, uuid.UUID):
        return {"u": value.hex}
    raise PageError(
        f"a page token holds numbers, text, bytes, dates and UUIDs, not {type(value).__name__}; order by "
        "another column"
    )


_READERS = {
    "i": int, "f": float.fromhex, "b": bytes.fromhex, "t": dt.datetime.fromisoformat,
    "d": dt.date.fromisoformat, "n": decimal.Decimal, "u": uuid.UUID,
}  # fmt: skip


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        [(kind, text)] = value.items()
        return _READERS[kind](text)  # type: ignore[operator]
    return value

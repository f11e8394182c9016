"""Merging sorted streams block by block: no input or output, no row compared in Python without need.

`heapq.merge` compares row by row. Here the streams hand in blocks of rows. Of all blocks at hand, the rows
up to the least of their last keys are safe: whatever is not here yet comes after them. They are cut off
with a binary search, put one after the other and sorted by `list.sort`, which finds the runs and merges
them, compiled. Rows with equal keys come in the order of the streams, as with `heapq.merge`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import Any

from ringhash.scatter.errors import OrderError
from ringhash.scatter.order import Order, Row

__all__ = ["Merger", "Unique", "frozen"]


class _Block:
    """Rows of one stream, with their keys: plain values if Python compares them rightly, or `Order.key`s."""

    __slots__ = ("first", "keys", "kinds", "last", "place", "rows", "upwards")

    def __init__(self, order: Order, rows: Sequence[Row]) -> None:
        values = list(map(order.values, rows))
        self.rows = rows
        self.place = 0  # how many rows were taken
        self.kinds = order.kinds(values)
        self.keys = values if self.kinds is not None else list(map(order.key, rows))
        self.first, self.last = order.key(rows[0]), order.key(rows[-1])
        # bisect wants keys that ascend.
        self.upwards = self.keys[::-1] if self.kinds is not None and order.descending else self.keys

    def use_full_keys(self, order: Order) -> None:
        """Compare by `Order.key`, since another stream has values that are not plain."""
        if self.kinds is not None:
            self.kinds = None
            self.keys = self.upwards = list(map(order.key, self.rows))

    def cut(self, bound: Any, after: bool, downwards: bool) -> Sequence[Row]:
        """Take the rows before `bound` off, and with `after` also those that equal it."""
        start, count = self.place, len(self.rows)
        if downwards:
            search = bisect_left if after else bisect_right
            self.place = count - search(self.upwards, bound, 0, count - start)
        else:
            self.place = (bisect_right if after else bisect_left)(self.upwards, bound, start)
        return self.rows[start : self.place]


class _Stream:
    """One sorted stream: the block being taken from, and those that wait behind it."""

    __slots__ = ("block", "ended", "last", "waiting")

    def __init__(self) -> None:
        self.block: _Block | None = None
        self.waiting: deque[_Block] = deque()
        self.last: Any = None  # the key of the last row that was handed in
        self.ended = False


class Merger:
    """Merges sorted streams of rows.

    Args:
        order: The order of every stream.
        names: What the streams are called in messages.

    >>> merger = Merger(Order(0), ["a", "b"])
    >>> merger.feed(0, [(1,), (4,)])
    >>> merger.feed(1, [(2,), (3,)])
    >>> merger.take(), merger.hungry
    ([(1,), (2,), (3,)], [1])
    >>> merger.end(1)
    >>> merger.take()
    [(4,)]
    """

    def __init__(self, order: Order, names: Sequence[str]) -> None:
        self.order = order
        self.names = tuple(names)
        self._streams = [_Stream() for _ in self.names]
        self.begun: list[int] = []  # streams of which a block was begun since this was last emptied

    @property
    def hungry(self) -> list[int]:
        """The streams without which nothing can be taken: each has no row here and has not ended."""
        return [i for i, it in enumerate(self._streams) if it.block is None and not it.ended]

    @property
    def over(self) -> bool:
        """Whether every stream has ended and every row was taken."""
        return all(it.ended and it.block is None for it in self._streams)

    def feed(self, stream: int, rows: Sequence[Row]) -> None:
        """Hand in the next rows of a stream, at least one.

        Raises:
            OrderError: They are not in the order, or cannot be brought in any.
        """
        it = self._streams[stream]
        block = _Block(self.order, rows)
        if not self.order.in_order(block.keys, block.kinds is not None) or (
            it.last is not None and block.first < it.last
        ):
            raise OrderError(
                f"the rows of {self.names[stream]!r} are not in the order {self._order_text()}; give its "
                "statement the same ORDER BY, and for text a COLLATE that compares by code point"
            )
        it.last = block.last
        it.waiting.append(block)
        if it.block is None:
            self._begin(stream)

    def end(self, stream: int) -> None:
        """Say that a stream has no more rows."""
        self._streams[stream].ended = True

    def take(self) -> list[Row]:
        """Return the rows that are safe to give out, in order; none while a stream is hungry."""
        live = [(i, it.block) for i, it in enumerate(self._streams) if it.block is not None]
        if not live or self.hungry:
            return []
        if len(live) == 1:
            return self._all_of(*live[0])
        try:
            return self._merged(live)
        except TypeError as error:
            raise OrderError(f"rows of two streams cannot be compared: {error}") from None

    def _merged(self, live: list[tuple[int, _Block]]) -> list[Row]:
        order = self.order
        # The block that ends first; where two end alike, the stream that comes first in the order of ties.
        least, end = live[0]
        for i, block in live[1:]:
            if block.last < end.last:
                least, end = i, block
        plain = end.kinds is not None and all(block.kinds == end.kinds for _, block in live)
        if not plain:
            for _, block in live:
                block.use_full_keys(order)
        downwards = plain and order.descending
        bound = end.keys[-1]
        rows: list[Row] = []
        runs = 0
        for i, block in live:
            if i == least:
                some: Sequence[Row] = self._all_of(i, block)
            else:
                # What comes of `end` later may equal the bound: only streams before it may give theirs now.
                some = block.cut(bound, i < least, downwards)
                if block.place == len(block.rows):
                    self._begin(i)
            runs += bool(some)
            rows += some
        if runs > 1:
            if plain:
                rows.sort(key=order.values, reverse=downwards)
            else:
                rows.sort(key=order.key)
        return rows

    def _all_of(self, stream: int, block: _Block) -> list[Row]:
        self._begin(stream)
        return list(block.rows[block.place :])

    def _begin(self, stream: int) -> None:
        it = self._streams[stream]
        it.block = it.waiting.popleft() if it.waiting else None
        if it.block is not None:
            self.begun.append(stream)

    def _order_text(self) -> str:
        return ", ".join(f"{by.column}{' descending' if by.descending else ''}" for by in self.order.columns)


class Unique:
    """Lets the first row of each identity through. Memory: an entry for each row.

    >>> unique = Unique("id")
    >>> unique([{"id": 1}, {"id": 1}]), unique([{"id": 1}, {"id": 2}])
    ([{'id': 1}], [{'id': 2}])
    """

    def __init__(self, columns: str | int | Sequence[str | int]) -> None:
        names = (columns,) if isinstance(columns, str | int) else tuple(columns)
        if not names:
            raise ValueError("unique needs at least one column")
        self.columns = names
        self._get = itemgetter(*names)
        self._seen: set[Hashable] = set()

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that were not met before."""
        seen, fresh = self._seen, []
        for row in rows:
            identity = self._get(row)
            try:
                known = identity in seen
            except TypeError:  # a list or a dict, as JSON columns have them
                identity = frozen(identity)
                known = identity in seen
            if not known:
                seen.add(identity)
                fresh.append(row)
        return fresh


def frozen(value: Any) -> Hashable:
    """Return something hashable that is equal where databases call values equal.

    NaN equals NaN, lists and dicts are equal by their contents, and a list is no tuple.

    >>> frozen(float("nan")) == frozen(float("nan")), frozen({"a": 1}) == frozen({"a": 1.0})
    (True, True)
    """
    if isinstance(value, dict):
        return "dict", frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return "list", tuple(map(frozen, value))
    if isinstance(value, tuple):
        return "tuple", tuple(map(frozen, value))
    if isinstance(value, set | frozenset):
        return "set", frozenset(map(frozen, value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool):
        return "bool", value  # False is not 0: a database keeps them apart, a dict does not
    if value != value:  # noqa: PLR0124
        return ("NaN",)
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{type(value).__name__} has no hash; give the column as a number, text, bytes, list or dict"
        ) from None
    return value  # type: ignore[no-any-return]

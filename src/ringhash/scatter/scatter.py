"""Asking many nodes at once: values, merged rows, pages and aggregates, with threads or with asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Self

from ringhash.scatter import tasks, threads
from ringhash.scatter.aggregates import Aggregate, Aggregated, Aggregation, GroupBy
from ringhash.scatter.budget import Hedge, Latencies, Retry
from ringhash.scatter.coverage import Coverage, Need, read_need
from ringhash.scatter.errors import OrderError, ScatterError
from ringhash.scatter.limits import check_fan_out
from ringhash.scatter.machine import Call, Fan, Rules
from ringhash.scatter.merge import Unique
from ringhash.scatter.metrics import ScatterMetrics
from ringhash.scatter.order import Order, OrderBy, Row
from ringhash.scatter.pages import Page, read_token, token_of
from ringhash.scatter.parts import read_parts
from ringhash.scatter.session import Ask, Merging, Observer, Session

__all__ = ["AsyncMerged", "Gathered", "Merged", "Scatter"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The values by part, in the order of the parts; the coverage; and the node that answered last.

    `slowest` is that node and its seconds.
    """

    values: dict[str, Any]
    coverage: Coverage
    slowest: tuple[str, float] | None


class Merged:
    """The rows of a merge, one by one; `coverage` is there once the last row was given out.

    Close it (or use it as a context manager) if you stop before the end: streams are open until then.
    """

    def __init__(self, blocks: Iterator[list[Row]], session: Merging, clock: Callable[[], float]) -> None:
        self.coverage: Coverage | None = None
        self._blocks = blocks
        self._rows = self._flat(session, clock)

    def _flat(self, session: Merging, clock: Callable[[], float]) -> Iterator[Row]:
        for rows in self._blocks:
            yield from rows
        self.coverage = finished(session, clock())

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def __next__(self) -> Row:
        return next(self._rows)

    def close(self) -> None:
        """Cancel the streams that are open. Harmless at the end."""
        self._rows.close()  # type: ignore[attr-defined]
        self._blocks.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncMerged:
    """As `Merged`, for `async for` and `async with`."""

    def __init__(
        self, blocks: AsyncIterator[list[Row]], session: Merging, clock: Callable[[], float]
    ) -> None:
        self.coverage: Coverage | None = None
        self._blocks = blocks
        self._rows = self._flat(session, clock)

    async def _flat(self, session: Merging, clock: Callable[[], float]) -> AsyncIterator[Row]:
        async for rows in self._blocks:
            for row in rows:
                yield row
        self.coverage = finished(session, clock())

    def __aiter__(self) -> AsyncIterator[Row]:
        return self._rows

    async def aclose(self) -> None:
        """Cancel the streams that are open. Harmless at the end."""
        await self._rows.aclose()  # type: ignore[attr-defined]
        await self._blocks.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Scatter:
    """Asks many nodes the same question at once, within limits, and says how much of the answer is there.

    Args:
        call: Asks one node. It is given an `Ask`; `ask.node` says whom, `ask.timeout` how many seconds are
            left, and `ask.on_cancel` takes what ends the wait. For `run` and its kin it is called on
            threads, at the same time; for `arun` and its kin on the event loop, and what it returns is
            awaited. It returns a value; for `merge` and `page` an iterable of sorted rows; for `aggregate`
            an iterable of rows. It must be safe to repeat if you retry or hedge.
        nodes: Names; a mapping of parts (shards, ranges) to the node that has each; or anything with
            `.names` or `.nodes`, which is read anew at every run: a router, a ring, an assignment.
        replicas: Other nodes that can answer for a part; retries and hedges go there.
        limit: The most calls under way.
        per_node: The most calls under way at one node.
        deadline: Seconds for the whole request, its queue and its retries included. What is late is
            cancelled. None waits for ever.
        need: "all"; a share such as 0.95, of the keys if the nodes have `.shares` and else of the parts; or
            names of parts that must answer. With less than "all", the run waits for the rest until the
            deadline.
        retry: A `Retry`, or how often to try again.
        hedge: A `Hedge`, or after how many seconds to ask a replica as well.
        warn_above: A `ScatterWarning` if more parts than this are asked.
        metrics: Counts what happens.
        block: Rows that a merge reads of a stream at a time.
        clock: Where the time comes from, for tests; seconds that only go forward.

    Raises:
        ValueError: A value is out of range; the message names it.

    Thread-safe: many threads and loops may run one `Scatter` at a time. The limits hold for each run;
    budgets and the latencies that hedges go by are shared by all runs.

    >>> scatter = Scatter(lambda ask: len(ask.node), ["db-1", "db-22"])
    >>> result = scatter.run()
    >>> result.values, str(result.coverage)
    ({'db-1': 4, 'db-22': 5}, '2 of 2 answered')
    """

    def __init__(
        self,
        call: Callable[[Ask], Any],
        nodes: Any,
        *,
        replicas: Mapping[str, Iterable[str]] | None = None,
        limit: int = 16,
        per_node: int | None = None,
        deadline: float | None = None,
        need: str | float | Collection[str] | Need = "all",
        retry: Retry | int | None = None,
        hedge: Hedge | float | None = None,
        warn_above: int | None = None,
        metrics: ScatterMetrics | None = None,
        block: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(call):
            raise TypeError(f"call must be callable, not {call!r}")
        if block < 1:
            raise ValueError(f"block must be at least 1 row, not {block}")
        self.rules = Rules(
            limit=limit,
            per_node=per_node,
            deadline=deadline,
            need=read_need(need),
            retry=Retry(retry) if isinstance(retry, int) else retry,
            hedge=Hedge(after=hedge) if isinstance(hedge, int | float) else hedge,
        )
        self.metrics = metrics
        self._call = call
        self._nodes = nodes if hasattr(nodes, "names") or hasattr(nodes, "nodes") else _plain(nodes)
        self._replicas = None if replicas is None else {part: tuple(more) for part, more in replicas.items()}
        self._warn_above = warn_above
        self._block = block
        self._clock = clock
        self._workers = threads.Workers()
        self._latencies = Latencies()
        read_parts(self._nodes, self._replicas)  # so that what is wrong with them is said here

    # --- values ---

    def run(self) -> Gathered:
        """Ask all, and return their values.

        Raises:
            ScatterError: Too few answered: less than `need`, or nobody. It has the coverage, and the error
                of the first part that failed as its cause.
            ScatterForbiddenError: It is inside `no_scatter()`.

        Cost: a thread for each call under way, kept for the next run; some 20 microseconds a call.
        """
        session = Session(*self._fan())
        threads.run(session, self._call, self._asks(session.fan), self._clock, self._workers)
        return self._gathered(session)

    async def arun(self) -> Gathered:
        """As `run`, with a task for each call under way. Late tasks are cancelled and awaited."""
        session = Session(*self._fan())
        await tasks.run(session, self._call, self._asks(session.fan), self._clock)
        return self._gathered(session)

    # --- rows ---

    def merge(
        self,
        order_by: OrderBy,
        *,
        limit: int | None = None,
        unique: str | int | Sequence[str | int] | None = None,
    ) -> Merged:
        """Return the rows of all in one order, as they come: nothing is held but a block or two of each.

        Args:
            order_by: The order in which each node gives its rows: columns, or `By` for direction, NULL and
                text. `Order(order_by).sql()` is the ORDER BY for their statement.
            limit: The most rows; then the streams are cancelled.
            unique: The column or columns that identify a row. A row that is in two places, as during a
                backfill, comes once. Memory: an entry for each row given out.

        Rows with equal keys come in the order of the nodes. The deadline covers the reading, too. Errors are
        raised where the rows are read: those of `run`, and `OrderError` if a stream is not in the order.
        """
        session, ahead = self._merging(order_by, limit, unique)
        block = self._block_for(limit, session)
        make_ask = self._asks(session.fan)
        blocks = threads.merge(session, self._call, make_ask, self._clock, self._workers, block, ahead)
        return Merged(blocks, session, self._clock)

    def amerge(
        self,
        order_by: OrderBy,
        *,
        limit: int | None = None,
        unique: str | int | Sequence[str | int] | None = None,
    ) -> AsyncMerged:
        """As `merge`, for `async for`. `call` may return an async iterator, or be a coroutine for rows."""
        session, ahead = self._merging(order_by, limit, unique)
        block = self._block_for(limit, session)
        blocks = tasks.merge(session, self._call, self._asks(session.fan), self._clock, block, ahead)
        return AsyncMerged(blocks, session, self._clock)

    def page(self, order_by: OrderBy, size: int, *, unique: str | int, after: str | None = None) -> Page:
        """Return the next rows of a long answer, and the token of the page after them.

        Args:
            order_by: As for `merge`. Its last column must be `unique`, so that a place in it is one row.
            size: Rows of a page.
            unique: The column that identifies a row.
            after: The token of the page before. `call` finds its values as `ask.after`;
                `Order(order_by).after(ask.after)` is the condition for the statement.

        The token holds a place in the order and nothing about nodes, so it is good after a resharding. It is
        not signed: who may read the rows may start at any of them.

        Raises:
            PageError: The token is damaged, or of another order.
            OrderError: As for `merge`; or `call` does not heed `ask.after`.
        """
        order, values = _paged(order_by, size, unique, after)
        session, ahead = self._merging(order, size + 1, unique)
        make_ask = self._asks(session.fan, values)
        call = _checked(self._call, order, values)
        block = self._block_for(size, session)
        blocks = threads.merge(session, call, make_ask, self._clock, self._workers, block, ahead)
        rows = [row for some in blocks for row in some]
        return _page(order, rows, size, finished(session, self._clock()))

    async def apage(
        self, order_by: OrderBy, size: int, *, unique: str | int, after: str | None = None
    ) -> Page:
        """As `page`, with asyncio."""
        order, values = _paged(order_by, size, unique, after)
        session, ahead = self._merging(order, size + 1, unique)
        make_ask = self._asks(session.fan, values)
        call = _checked_async(self._call, order, values)
        block = self._block_for(size, session)
        rows: list[Row] = []
        async for some in tasks.merge(session, call, make_ask, self._clock, block, ahead):
            rows += some
        return _page(order, rows, size, finished(session, self._clock()))

    # --- aggregates ---

    def aggregate(self, *, by: GroupBy = (), pushed: bool = False, **aggregates: Aggregate) -> Aggregated:
        """Return aggregates of the rows of all.

        Args:
            by: Columns to group by. NULLs are one group, NaNs one, and 0.0 and -0.0 one; JSON values are
                equal by their contents. A mapping of columns to functions says what makes values equal where
                the database ignores case or padding: `by={"name": str.casefold}`.
            pushed: The nodes have computed their part: `call` returns rows with the columns of
                `Aggregation(aggregates, by).sql()`, one for each group.
            **aggregates: The aggregates by the name that each has in the result, such as `n=Count()`.

        Of no rows at all, a count is 0 and the others None; with `by` there are no groups. Errors as for
        `run`. Cost: O(rows) on the threads of the calls, then O(groups) for each node.
        """
        aggregation = Aggregation(aggregates, by)
        part = aggregation.read if pushed else aggregation.part
        session = Session(*self._fan())

        def call(ask: Ask) -> Any:
            return part(self._call(ask))

        threads.run(session, call, self._asks(session.fan), self._clock, self._workers)
        return self._aggregated(aggregation, session)

    async def aaggregate(
        self, *, by: GroupBy = (), pushed: bool = False, **aggregates: Aggregate
    ) -> Aggregated:
        """As `aggregate`, with asyncio."""
        aggregation = Aggregation(aggregates, by)
        part = aggregation.read if pushed else aggregation.part
        session = Session(*self._fan())

        async def call(ask: Ask) -> Any:
            return part(await _all_rows(self._call(ask)))

        await tasks.run(session, call, self._asks(session.fan), self._clock)
        return self._aggregated(aggregation, session)

    # --- how ---

    def _fan(self) -> tuple[Fan, Observer, float]:
        parts, shares, down = read_parts(self._nodes, self._replicas)
        if not parts:
            raise ScatterError("there are no nodes to ask", Coverage(0, 0))
        unknown = sorted(self.rules.need.names - {part.name for part in parts})
        if unknown:
            raise ScatterError(f"need names {unknown[0]!r}, which is not asked", Coverage(len(parts), 0))
        check_fan_out(len(parts), self._warn_above)
        hedge = self.rules.hedge
        wait = None
        if hedge is not None:
            wait = (
                hedge.after
                if hedge.after is not None
                else self._latencies.quantile(hedge.quantile, hedge.least)
            )
        now = self._clock()
        fan = Fan(parts, self.rules, now, shares=shares, down=down, hedge_after=wait)
        return fan, Observer(self._latencies, self.metrics), now

    def _asks(self, fan: Fan, after: tuple[Any, ...] | None = None) -> Callable[[Call], Ask]:
        def make(call: Call) -> Ask:
            return Ask(
                call.part, call.node, call.attempt, after=after, deadline=fan.deadline, clock=self._clock
            )

        return make

    def _merging(self, order_by: OrderBy | Order, limit: int | None, unique: Any) -> tuple[Merging, int]:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 row, not {limit}")
        order = order_by if isinstance(order_by, Order) else Order(order_by)
        only = None if unique is None else Unique(unique)
        fan, observer, now = self._fan()
        session = Merging(fan, observer, now, order=order, names=fan.parts, limit=limit, unique=only)
        # With a limit, most of what is read ahead would be thrown away.
        return session, 1 if limit is not None else 2

    def _block_for(self, limit: int | None, session: Merging) -> int:
        """Rows to read at a time: with a limit, about what each stream has to give to it."""
        if limit is None:
            return self._block
        return max(1, min(self._block, limit // len(session.fan.parts)))

    def _gathered(self, session: Session) -> Gathered:
        coverage = finished(session, self._clock())
        values = {part: session.values[part] for part in session.fan.parts if part in session.values}
        return Gathered(values, coverage, session.slowest)

    def _aggregated(self, aggregation: Aggregation, session: Session) -> Aggregated:
        gathered = self._gathered(session)
        whole = aggregation.joined(gathered.values.values())
        return Aggregated(aggregation.rows(whole), aggregation.bounds(gathered.coverage), gathered.coverage)


def _plain(nodes: Any) -> Any:
    """Read an iterator once, so that every run asks the same."""
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        return nodes  # read_parts says what is wrong with it
    return dict(nodes) if isinstance(nodes, Mapping) else tuple(nodes)


def finished(session: Session, now: float) -> Coverage:
    try:
        return session.finish(now)
    except ScatterError as error:
        causes = [it.error for it in error.coverage.missing.values() if it.error is not None]
        raise error from (causes[0] if causes else None)


def _paged(
    order_by: OrderBy, size: int, unique: str | int, after: str | None
) -> tuple[Order, tuple[Any, ...] | None]:
    order = Order(order_by)
    if size < 1:
        raise ValueError(f"size must be at least 1 row, not {size}")
    if order.columns[-1].column != unique:
        raise OrderError(
            f"the last column of order_by must be {unique!r}, so that a place in the order is one row; add "
            "it, here and in the statement"
        )
    return order, None if after is None else read_token(order, after)


def _page(order: Order, rows: list[Row], size: int, coverage: Coverage) -> Page:
    more = len(rows) > size
    last = None
    if more:
        row = rows[size - 1]
        last = token_of(order, tuple(row[by.column] for by in order.columns))
    return Page(rows[:size], last, coverage)


def _checked(call: Callable[[Ask], Any], order: Order, after: tuple[Any, ...] | None) -> Callable[[Ask], Any]:
    """The call, with a look at its first row: a statement that does not heed `ask.after` repeats rows."""
    if after is None:
        return call
    place = _place(order, after)

    def rows_after(ask: Ask) -> Iterator[Row]:
        for i, row in enumerate(call(ask)):
            if i == 0:
                _check_after(order, place, row, ask)
            yield row

    return rows_after


def _checked_async(
    call: Callable[[Ask], Any], order: Order, after: tuple[Any, ...] | None
) -> Callable[[Ask], Any]:
    if after is None:
        return call
    place = _place(order, after)

    async def rows_after(ask: Ask) -> AsyncIterator[Row]:
        rows = call(ask)
        if isawaitable(rows):
            rows = await rows
        first = True
        if hasattr(rows, "__aiter__"):
            async for row in rows:
                if first:
                    _check_after(order, place, row, ask)
                    first = False
                yield row
            return
        for row in rows:
            if first:
                _check_after(order, place, row, ask)
                first = False
            yield row

    return rows_after


def _place(order: Order, after: tuple[Any, ...]) -> tuple[Any, ...]:
    key: tuple[Any, ...] = ()
    for by, value in zip(order.columns, after, strict=True):
        key += by.part(value)
    return key


def _check_after(order: Order, place: tuple[Any, ...], row: Row, ask: Ask) -> None:
    if not place < order.key(row):
        raise OrderError(
            f"{ask.node!r} gave a row that comes before this page; use ask.after in its statement: "
            "Order(...).after(ask.after) is the condition"
        )


async def _all_rows(rows: Any) -> Iterable[Row]:
    if isawaitable(rows):
        rows = await rows
    if hasattr(rows, "__aiter__"):
        return [row async for row in rows]
    return rows  # type: ignore[no-any-return]

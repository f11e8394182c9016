"""Drives a scatter with asyncio: one task for each call under way, and the caller's own to wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from inspect import isawaitable
from itertools import islice
from typing import Any

from ringhash.scatter.machine import Call, Cancel
from ringhash.scatter.order import Row
from ringhash.scatter.session import Ask, Driven, Event, Merging, Session

__all__ = ["merge", "run"]

GRACE = 0.005  # seconds that cancelled tasks have to end before the answer is given without waiting

_abandoned: set[asyncio.Task[None]] = set()  # the loop itself only has weak references


class _Driver:
    def __init__(
        self,
        call: Callable[[Ask], Any],
        make_ask: Callable[[Call], Ask],
        clock: Callable[[], float],
        block: int | None,
        ahead: int,
    ) -> None:
        self._call, self._make_ask, self._clock = call, make_ask, clock
        self._block, self._ahead = block, ahead
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at: float | None = None
        self._tasks: dict[int, tuple[asyncio.Task[None], Ask]] = {}
        self._late: list[asyncio.Task[None]] = []
        self._credits: dict[int, asyncio.Semaphore] = {}

    def command(self, session: Driven) -> None:
        for command in session.due(self._clock()):
            token = command.token
            if isinstance(command, Call):
                ask = self._make_ask(command)
                if self._block is None:
                    work = self._value(token, ask)
                else:
                    self._credits[token] = asyncio.Semaphore(self._ahead)
                    work = self._stream(token, ask, self._block)
                self._tasks[token] = self._loop.create_task(work), ask
            elif isinstance(command, Cancel):
                self._cancel(token)
            elif token in self._credits:
                self._credits[token].release()

    async def wait(self, session: Driven) -> None:
        """Hand over what happened, or wait for it."""
        if not self._events:
            self._set_timer(session.wake_at())
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
            if not self._events:
                # The time has come. After a stall of the loop many answers are ready as well, two steps away;
                # they count first, or a stall would look like slow nodes.
                self._timer = None
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        while self._events:
            event = self._events.popleft()
            if event.kind != "block":
                self._tasks.pop(event.token, None)
            session.event(event, self._clock())

    async def close(self) -> None:
        """Cancel all that is under way, and wait for it to end; but not for what does not want to end."""
        self._set_timer(None)
        for token in list(self._tasks):
            self._cancel(token)
        if self._late:
            _, stubborn = await asyncio.wait(self._late, timeout=GRACE)
            for task in stubborn:
                _abandoned.add(task)
                task.add_done_callback(_abandoned.discard)

    def _set_timer(self, wake: float | None) -> None:
        if self._timer is not None:
            if wake == self._wake_at:
                return
            self._timer.cancel()
            self._timer = None
        self._wake_at = wake
        if wake is not None:
            self._timer = self._loop.call_later(max(0.0, wake - self._clock()), self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _put(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def _cancel(self, token: int) -> None:
        found = self._tasks.pop(token, None)
        if found is None:
            return
        task, ask = found
        for callback in ask._cancel():
            self._loop.call_soon(_quietly, callback)
        task.cancel()
        self._late.append(task)

    async def _value(self, token: int, ask: Ask) -> None:
        try:
            value = self._call(ask)
            self._put(Event("value", token, await value if isawaitable(value) else value))
        except asyncio.CancelledError as error:
            if ask.cancelled:
                raise
            self._put(Event("error", token, error))  # the call cancelled itself
        except Exception as error:  # noqa: BLE001 - whatever ends a call is its answer
            self._put(Event("error", token, error))

    async def _stream(self, token: int, ask: Ask, size: int) -> None:
        credit = self._credits[token]
        rows: Any = None
        try:
            rows = self._call(ask)
            if isawaitable(rows):
                rows = await rows
            take = _blocks(rows, size)
            while True:
                await credit.acquire()
                block = await take()
                if block:
                    self._put(Event("block", token, block))
                if len(block) < size:
                    self._put(Event("end", token))
                    return
        except asyncio.CancelledError as error:
            if ask.cancelled:
                raise
            self._put(Event("error", token, error))
        except Exception as error:  # noqa: BLE001
            self._put(Event("error", token, error))
        finally:
            if hasattr(rows, "aclose"):
                await rows.aclose()


def _blocks(rows: Any, size: int) -> Callable[[], Any]:
    """Return what reads the next block of an iterator of either kind."""
    if not hasattr(rows, "__aiter__"):
        plain = iter(rows)

        async def take() -> list[Row]:
            return list(islice(plain, size))

        return take
    stream = aiter(rows)

    async def take_async() -> list[Row]:
        block: list[Row] = []
        async for row in stream:
            block.append(row)
            if len(block) == size:
                break
        return block

    return take_async


def _quietly(callback: Callable[[], object]) -> None:
    with suppress(Exception):
        callback()


async def run(
    session: Session, call: Callable[[Ask], Any], make_ask: Callable[[Call], Ask], clock: Callable[[], float]
) -> None:
    """Carry a session out until it is over."""
    driver = _Driver(call, make_ask, clock, None, 0)
    try:
        driver.command(session)
        while not session.over:
            await driver.wait(session)
            driver.command(session)
    finally:
        await driver.close()


async def merge(
    session: Merging,
    call: Callable[[Ask], Any],
    make_ask: Callable[[Call], Ask],
    clock: Callable[[], float],
    block: int,
    ahead: int,
) -> AsyncIterator[list[Row]]:
    """Carry a session out, and yield its rows in lists as they are ready."""
    driver = _Driver(call, make_ask, clock, block, ahead)
    try:
        driver.command(session)
        while not session.over:
            if session.can_take:
                rows = session.take()
                driver.command(session)
                if rows:
                    yield rows
            else:
                await driver.wait(session)
                driver.command(session)
    finally:
        await driver.close()

"""Drives a scatter with threads: one for each call under way, and the caller's own to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

from ringhash.scatter.machine import Call, Cancel
from ringhash.scatter.order import Row
from ringhash.scatter.session import Ask, Driven, Event, Merging, Session

__all__ = ["Workers", "merge", "run"]

IDLE = 5.0  # seconds that a thread waits for its next call


class Workers:
    """Threads that are made when one is needed and end when idle.

    They are daemons: a call that never returns keeps one of them, and neither a later call nor the end of
    the process waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Callable[[], object]]] = []

    def start(self, job: Callable[[], object]) -> None:
        """Run `job` on an idle thread, or on a new one."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="ringhash-scatter", daemon=True).start()
        inbox.put(job)

    def _serve(self, inbox: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # it was taken from the idle just now, so a job is coming
            job()
            del job  # it may hold a large answer
            with self._lock:
                self._idle.append(inbox)


class _Driver:
    def __init__(
        self,
        call: Callable[[Ask], Any],
        make_ask: Callable[[Call], Ask],
        clock: Callable[[], float],
        workers: Workers,
        block: int | None,
        ahead: int,
    ) -> None:
        self._call, self._make_ask, self._clock, self._workers = call, make_ask, clock, workers
        self._block, self._ahead = block, ahead
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._asks: dict[int, Ask] = {}
        self._credits: dict[int, threading.Semaphore] = {}
        self._context = copy_context()

    def command(self, session: Driven) -> None:
        for command in session.due(self._clock()):
            token = command.token
            if isinstance(command, Call):
                ask = self._asks[token] = self._make_ask(command)
                if self._block is None:
                    self._workers.start(_job(self._context.copy().run, self._value, token, ask))
                else:
                    credit = self._credits[token] = threading.Semaphore(self._ahead)
                    job = _job(self._context.copy().run, self._stream, token, ask, credit, self._block)
                    self._workers.start(job)
            elif isinstance(command, Cancel):
                self._cancel(token)
            elif token in self._credits:
                self._credits[token].release()

    def wait(self, session: Driven) -> None:
        """Hand over what happened, or wait for it."""
        wake = session.wake_at()
        with suppress(Empty):
            event = self._events.get(timeout=None if wake is None else max(0.0, wake - self._clock()))
            while True:
                if event.kind in {"value", "end", "error"}:
                    self._asks.pop(event.token, None)
                    self._credits.pop(event.token, None)
                session.event(event, self._clock())
                event = self._events.get_nowait()

    def close(self) -> None:
        """Cancel all that is under way."""
        for token in list(self._asks):
            self._cancel(token)

    def _cancel(self, token: int) -> None:
        ask = self._asks.pop(token, None)
        if ask is None:
            return
        for callback in ask._cancel():
            self._workers.start(_job(_quietly, callback))  # it may take a while, and the deadline is now
        if token in self._credits:
            self._credits.pop(token).release()

    def _value(self, token: int, ask: Ask) -> None:
        if ask.cancelled:
            return
        try:
            event = Event("value", token, self._call(ask))
        except BaseException as error:  # noqa: BLE001 - whatever ends a call is its answer
            event = Event("error", token, error)
        self._events.put(event)

    def _stream(self, token: int, ask: Ask, credit: threading.Semaphore, size: int) -> None:
        if ask.cancelled:
            return
        rows: Iterator[Row] | None = None
        try:
            rows = iter(self._call(ask))
            while credit.acquire() and not ask.cancelled:
                block = list(islice(rows, size))
                if block:
                    self._events.put(Event("block", token, block))
                if len(block) < size:
                    self._events.put(Event("end", token))
                    break
        except BaseException as error:  # noqa: BLE001
            self._events.put(Event("error", token, error))
        finally:
            if rows is not None and hasattr(rows, "close"):
                _quietly(rows.close)


def _job(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


def _quietly(callback: Callable[[], object]) -> None:
    with suppress(Exception):
        callback()


def run(
    session: Session,
    call: Callable[[Ask], Any],
    make_ask: Callable[[Call], Ask],
    clock: Callable[[], float],
    workers: Workers,
) -> None:
    """Carry a session out until it is over."""
    driver = _Driver(call, make_ask, clock, workers, None, 0)
    try:
        driver.command(session)
        while not session.over:
            driver.wait(session)
            driver.command(session)
    finally:
        driver.close()


def merge(
    session: Merging,
    call: Callable[[Ask], Any],
    make_ask: Callable[[Call], Ask],
    clock: Callable[[], float],
    workers: Workers,
    block: int,
    ahead: int,
) -> Iterator[list[Row]]:
    """Carry a session out, and yield its rows in lists as they are ready."""
    driver = _Driver(call, make_ask, clock, workers, block, ahead)
    try:
        driver.command(session)
        while not session.over:
            if session.can_take:
                rows = session.take()
                driver.command(session)
                if rows:
                    yield rows
            else:
                driver.wait(session)
                driver.command(session)
    finally:
        driver.close()

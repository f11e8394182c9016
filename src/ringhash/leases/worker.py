"""A worker: one process that takes its share of the leases.

One thread talks to the database, and may hang in a call for as long as a network can hang. The other
watches the time and never talks, so a lease ends here by ttl whatever the database does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, Self

from ringhash.databases import Database, Transaction
from ringhash.databases.clock import Clock
from ringhash.leases.lease import Lease, OnRelease
from ringhash.leases.protocol import Grant, Holder
from ringhash.leases.rows import LeaseRows, lease_rows_over
from ringhash.placements.shards import Shards

__all__ = ["Table", "Worker"]

_log = logging.getLogger("ringhash.leases")
_BEATS = 5  # a ttl
_CROWD = 8  # so many workers may look as often as the pace allows; more look more seldom


class Table(Protocol):
    """What a worker asks of the table that it joins."""

    database: Database
    shards: Shards
    ttl: float
    name: str

    def set_up(self) -> None:
        """Make the tables if need be."""

    def open_rows(self) -> LeaseRows:
        """Return the rows over a new connection."""


class Worker:
    """One process that takes its share of the leases; made by `LeaseTable.join`.

    While it is entered, iterating over it gives every lease as it comes, and waits for the next one;
    several threads may iterate, and each lease goes to one of them. Leaving releases everything. After a
    fork the child's worker has left, and the parent goes on.

    Attributes:
        name, identity: The name given, and the name with this process's incarnation.
        table: The table that was joined.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(self, table: Table, name: str, on_release: OnRelease | None, clock: Clock) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a worker's name is text, not {type(name).__name__}")
        if not name:
            raise ValueError("a worker needs a name")
        self.table = table
        self.name = name
        self.identity = f"{name}#{uuid.uuid4().hex[:16]}"
        self.error: BaseException | None = None
        self.pid = os.getpid()
        self._on_release = on_release
        self._clock = clock
        self._holder = Holder(self.identity, table.ttl)
        self._leases: dict[Grant, Lease] = {}
        self._fresh: deque[Lease] = deque()
        self._to_release: list[Grant] = []
        self._asked: set[Grant] = set()  # those that on_release is thinking about
        self._refused: set[Grant] = set()  # those that it would not let go
        self._changed = threading.Condition(threading.RLock())
        self._listeners: set[Callable[[], None]] = set()
        self._woken = False
        self._state = "new"  # then running, leaving, left
        self._rows: LeaseRows | None = None
        self._called_at: float | None = None
        self._threads: list[threading.Thread] = []
        # In a ttl, the first worker can hand over all its shards, one a step.
        self._pace = min(table.ttl / 20, max(0.01, table.ttl / (2 * table.shards.count)))
        self._beat = table.ttl / _BEATS
        _all.add(self)

    # --- what a user sees ---

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases held now, in order of their shards."""
        with self._changed:
            return tuple(lease for _, lease in sorted(self._leases.items()) if not lease.lost.is_set())

    def start(self) -> Self:
        """Begin; `with` does it for you.

        Raises:
            ValueError: The table has another number of shards.
            RuntimeError: This worker was started before.
            The database's own error, when it cannot be reached.
        """
        if self._state != "new":
            raise RuntimeError("a worker is started once; join again for a new incarnation")
        self.table.set_up()
        self._state = "running"
        for target in (self._control, self._watch):
            thread = threading.Thread(target=target, name=f"ringhash {self.name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def leave(self) -> None:
        """Release everything, each lease through `on_release` if there is one, and stop.

        Waits for `on_release` as long as it takes, and for the database for a ttl; without it, the
        leases run out there by themselves. What `on_release` raises beside an `Exception` (Ctrl-C) is
        raised again when everything is released.
        """
        with self._changed:
            if self._state != "running":
                return
            self._state = "leaving"
            self._fresh.clear()
        self._wake()
        escaped: BaseException | None = None
        try:
            for lease in self.leases:
                with self._changed:
                    self._changed.wait_for(lambda it=lease: it._grant not in self._asked)  # type: ignore[misc]
                if not lease.lost.is_set():
                    escaped = self._hand_over(lease, insist=True) or escaped
        finally:
            with self._changed:
                self._state = "left"
                for lease in list(self._leases.values()):
                    self.end(lease, "released")
            self._wake()
            for thread in self._threads:
                thread.join(self.table.ttl)
        if escaped is not None:
            raise escaped

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.leave()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.leave)

    def __iter__(self) -> Iterator[Lease]:
        while (lease := self.next_lease()) is not None:
            yield lease

    def next_lease(self, timeout: float | None = None) -> Lease | None:
        """Return the next lease that comes, or None after `timeout` seconds, or when left."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh_one() or self._over, timeout)
            return self._fresh.popleft() if self._fresh_one() else None

    async def __aiter__(self) -> AsyncIterator[Lease]:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def notify() -> None:
            loop.call_soon_threadsafe(news.set)

        self._listeners.add(notify)
        try:
            while not self._over:
                news.clear()
                lease = self.next_lease(0)
                if lease is not None:
                    yield lease
                else:
                    await news.wait()
        finally:
            self._listeners.discard(notify)

    def __repr__(self) -> str:
        return f"<Worker {self.identity!r}: {self._state}, {len(self._leases)} leases>"

    # --- what a lease asks (`Keeper`) ---

    def remaining(self, grant: Grant) -> float:
        """For how many seconds `grant` is certainly held."""
        deadline = self._holder.deadline(grant)
        return 0.0 if deadline is None else max(0.0, deadline - self._clock.now())

    @contextlib.contextmanager
    def fenced(self, grant: Grant) -> Iterator[Transaction]:
        """Open a transaction in which nobody else can claim the shard."""
        with self.table.database.connection() as connection:
            rows = lease_rows_over(connection, self.table.name)
            with rows.fence(self.identity, grant, self.table.ttl) as tx:
                yield tx

    def end(self, lease: Lease, reason: str) -> bool:
        """End a lease here, and have the database told; return whether it was held."""
        with self._changed:
            held = self._holder.drop(lease._grant)
            if held:
                self._finish(lease, reason)
        self._wake()
        return held

    # --- the two threads ---

    @property
    def _over(self) -> bool:
        return self._state in ("leaving", "left")

    def _fresh_one(self) -> bool:
        """Whether a fresh lease is there; those that are over are taken out first."""
        while self._fresh and self._fresh[0].lost.is_set():
            self._fresh.popleft()
        return bool(self._fresh)

    def _notify(self) -> None:
        with self._changed:
            self._clock.notify(self._changed)
            for notify in list(self._listeners):
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    notify()

    def _wake(self) -> None:
        """Have the next turn at once."""
        with self._changed:
            self._woken = True
            self._notify()

    def _control(self) -> None:
        """Beat, read, act; the only thread that uses `_rows`."""
        while True:
            last = self._state == "left"
            try:
                delay = self._turn()
                self.error = None
            except BaseException as error:  # noqa: BLE001  whatever it is, the next turn tries again
                self._drop_rows()
                self.error = error
                if _is_of_a_database(error):
                    _log.warning("%s: %s", self.identity, error)
                else:
                    _log.exception("%s", self.identity)
                delay = self._beat / 2
            if last:
                self._drop_rows()
                return
            until = self._clock.now() + delay
            with self._changed:
                while not self._woken and (left := until - self._clock.now()) > 0:
                    self._clock.wait(self._changed, left)
                self._woken = False

    def _turn(self) -> float:
        """One turn of the protocol; return the seconds until the next."""
        began = self._clock.now()
        with self._timed():
            if self._rows is None:
                self._rows = self.table.open_rows()
            rows = self._rows
            with self._changed:
                self._expire()
                self._to_release, released = [], self._to_release
                leaving = self._over
                asked = self._holder.grants
            if released:
                try:
                    rows.release(self.identity, released)
                except BaseException:
                    with self._changed:
                        self._to_release += released
                    raise
            sent = self._clock.now()
            answer = rows.beat(self.identity, self.table.ttl, asked, leaving=leaving)
            with self._changed:
                for grant in self._holder.renewed(sent, asked, answer):
                    self._finish(self._leases[grant], "taken")
                self._expire()
            self._notify()
            if leaving:
                return self._pace if self._to_release else self._beat
            view = rows.read()
            with self._changed:
                step = self._holder.decide(view)
            if step.disown:
                # Not those that were released by hand meanwhile, which come to the same.
                rows.release(self.identity, step.disown)
            if step.claim:
                sent = self._clock.now()
                self._take(sent, rows.claim(self.identity, step.claim, self.table.ttl))
            if step.release is not None:
                self._begin_release()
        if step.settled:
            return self._beat
        if step.release is not None:
            return self._pace
        # Waiting for others. Many that look at once keep each other, and the renewals, from the database;
        # so they look more seldom the more they are, and the slower it answers.
        crowd = self._pace * max(1.0, len(view.workers) / _CROWD)
        return min(self._beat, max(crowd, 2 * (self._clock.now() - began)))

    def _take(self, sent: float, grants: list[Grant]) -> None:
        with self._changed:
            for grant in self._holder.claimed(sent, grants):
                self._finish(self._leases[grant], "taken")
            for grant in grants:
                self._leases[grant] = lease = Lease(self, grant)
                if self._over:
                    self.end(lease, "released")
                else:
                    self._fresh.append(lease)
            self._expire()
        self._notify()

    def _watch(self) -> None:
        """End leases at their deadlines, and calls that hang for more than a ttl."""
        with self._changed:
            while self._state != "left":
                self._expire()
                now = self._clock.now()
                waits = [self.table.ttl]
                deadline = self._holder.next_deadline
                if deadline is not None:
                    waits.append(deadline - now)
                if self._called_at is not None:
                    hanging = now - self._called_at
                    if hanging >= self.table.ttl and self._rows is not None:
                        self._rows.abort()
                        self._called_at = now
                    else:
                        waits.append(max(self._pace, self.table.ttl - hanging))
                self._clock.wait(self._changed, max(0.001, min(waits)))

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        self._called_at = self._clock.now()
        try:
            yield
        finally:
            self._called_at = None

    def _drop_rows(self) -> None:
        with self._changed:
            rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    # --- the end of a lease ---

    def _expire(self) -> None:
        for grant in self._holder.expire(self._clock.now()):
            self._finish(self._leases[grant], "expired")

    def _finish(self, lease: Lease, reason: str) -> None:
        del self._leases[lease._grant]
        self._asked.discard(lease._grant)
        self._refused.discard(lease._grant)
        if reason in ("released", "unknown"):
            self._to_release.append(lease._grant)
        lease._finish(reason)
        self._notify()

    def _begin_release(self) -> None:
        """Release the last lease, or the last that was not refused in this round."""
        with self._changed:
            if self._asked or not self._leases:
                return  # one at a time
            if self._leases.keys() <= self._refused:
                self._refused.clear()
            grant = max(self._leases.keys() - self._refused)
            lease = self._leases[grant]
            if self._on_release is None:
                self.end(lease, "released")
                return
            self._asked.add(grant)
        threading.Thread(
            target=self._hand_over, args=(lease,), name=f"ringhash {self.name} release", daemon=True
        ).start()

    def _hand_over(self, lease: Lease, *, insist: bool = False) -> BaseException | None:
        """Ask `on_release`, and release when it agrees; `insist` when the worker goes away anyway.

        Whatever the hook raises, the worker goes on; what is no Exception is returned.
        """
        lease.stopping.set()
        confirmed = True
        escaped: BaseException | None = None
        if self._on_release is not None and not lease.lost.is_set():
            try:
                confirmed = bool(self._on_release(lease))
            except BaseException as error:  # noqa: BLE001  the user's; logged, and asked again
                _log.exception("on_release failed for %r", lease)
                confirmed = False
                escaped = None if isinstance(error, Exception) else error
        if confirmed or insist:
            self.end(lease, "released")
        else:
            with self._changed:
                self._asked.discard(lease._grant)
                self._refused.add(lease._grant)
                self._clock.notify(self._changed)
                if lease._grant in self._leases:
                    lease.stopping.clear()
        return escaped

    def _forget(self) -> None:
        """After a fork, in the child: there are no threads, and locks may be held for ever."""
        self._changed = threading.Condition(threading.RLock())
        self._state = "left"
        self._leases, self._fresh, self._threads = {}, deque(), []
        _inherited.append(self._rows)
        self._rows = None


_all: weakref.WeakSet[Worker] = weakref.WeakSet()
_inherited: list[object] = []


def _forget_all() -> None:
    for worker in list(_all):
        worker._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _is_of_a_database(error: BaseException) -> bool:
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in ("psycopg", "sqlite3")

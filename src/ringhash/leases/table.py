"""The lease table, the workers that join it and the leases they hold.

    LeaseTable      where the leases are; makes connections
    Worker          one process: a thread that beats, reads and acts, and one that watches the time
    Lease           one shard in this worker's hands

The thread that talks to the database may hang in a call for as long as a network can hang. The one
that watches the time never talks, so a lease ends here by ttl whatever the database does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, Self

from ringhash.errors import LeaseLost
from ringhash.leases import clock
from ringhash.leases.protocol import Grant, Holder
from ringhash.leases.status import Status, status_from
from ringhash.leases.store import OutcomeUnknown, Refused, Store, open_store
from ringhash.placements.shards import Shards

__all__ = ["Lease", "LeaseTable", "OnRelease", "Worker"]

_log = logging.getLogger("ringhash.leases")
_BEATS = 5  # a ttl
_IDLE_CONNECTIONS = 8
_LONGEST_WAIT = 30.0  # seconds, for a connection or the lock of a whole database


class OnRelease(Protocol):
    """What is asked before a live worker gives a lease up.

    Stop the work on `lease` and hand it over; the lease stays valid meanwhile. Return True when the
    shard may go to somebody else; False, or an exception, keeps it, and then another one is asked for.
    """

    def __call__(self, lease: Lease, /) -> bool:
        """Hand `lease` over; return whether it may go."""


class LeaseTable:
    """The leases of a fixed number of shards, in a database: who may work on which shard.

    Args:
        db: A path (SQLite: the processes of one machine), or an address `postgresql://...` (needs
            the extra `postgres`).
        shards: `Shards`, or how many; the same for everyone who uses the table.
        ttl: For how many seconds a lease is granted. A crashed worker's shards are free after it; a
            worker that cannot reach the database stops by it. It renews five times a ttl.
        name: One database has any number of lease tables, by name.

    Raises:
        TypeError, ValueError: An argument is out of its range.

    The epochs that a table has granted must never come again, so never delete its rows.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = LeaseTable(folder.name + "/leases.db", shards=2, ttl=30)
    >>> with table.join("worker-a") as me:
    ...     for lease in me:
    ...         print(lease)
    ...         if lease.shard == 1: break
    <Lease of shard 0 at epoch 1: held>
    <Lease of shard 1 at epoch 1: held>
    >>> print(lease)
    <Lease of shard 1 at epoch 1: released>
    >>> table.close()
    >>> folder.cleanup()
    """

    def __init__(
        self,
        db: str | os.PathLike[str],
        shards: Shards | int = 64,
        ttl: float = 30.0,
        *,
        name: str = "default",
    ) -> None:
        if not 0.1 <= ttl <= 86_400:
            raise ValueError(f"ttl must be from 0.1 to 86400 seconds, not {ttl}")
        self.db = db
        self.shards = shards if isinstance(shards, Shards) else Shards(shards)
        self.ttl = float(ttl)
        self.name = name
        self._lock = threading.Lock()
        self._idle: list[Store] = []
        self._ready = False

    def join(self, name: str, *, on_release: OnRelease | None = None) -> Worker:
        """Return a worker of this table; it begins when it is entered with `with` or `async with`.

        Args:
            name: For people. The identity is the name and a fresh incarnation, so a process that is
                started again under its name inherits nothing.
            on_release: See `OnRelease`; without it a lease that is to go is released at once.
        """
        return Worker(self, name, on_release)

    def status(self) -> Status:
        """Return who holds what, how old the heartbeats are and how even it is. One read.

        Raises:
            The database's own error, when it cannot be reached.
        """
        self._set_up()
        store = self._open()
        try:
            return status_from(*store.leases())
        finally:
            store.close()

    def close(self) -> None:
        """Close the connections that are kept for later."""
        with self._lock:
            idle, self._idle = self._idle, []
        for store in idle:
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LeaseTable {self.name!r} of {self.shards!r}, ttl {self.ttl:g} s>"

    def _open(self) -> Store:
        return open_store(self.db, self.name, min(self.ttl, _LONGEST_WAIT))

    def _set_up(self) -> None:
        if not self._ready:
            store = self._open()
            try:
                store.setup(self.shards.count)
            finally:
                store.close()
            self._ready = True

    def _take_idle(self) -> Store | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give(self, store: Store) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(store)
                return
        store.close()


@contextlib.contextmanager
def _entered(context: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    """The rest of a `with` whose context was entered already."""
    try:
        yield
    except BaseException as error:
        if not context.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        context.__exit__(None, None, None)


class _Lost(threading.Event):
    """An event that is also set the moment the time is over, before any thread could set it."""

    def __init__(self, overdue: Callable[[], bool]) -> None:
        super().__init__()
        self._overdue = overdue

    def is_set(self) -> bool:
        return super().is_set() or self._overdue()


class Lease:
    """One shard in this worker's hands; made by a `Worker`.

    Attributes:
        shard: The shard.
        epoch: Grows with every claim of the shard; no two holders ever have the same.
        token: The epoch, for stores that compare tokens themselves.
        stopping: An Event, set when the lease is to be released: finish, begin nothing new.
        lost: An Event, set when the lease is over, for whatever reason.
        reason: Why it is over: "released", "expired", "taken" or "unknown"; None while it is held.
    """

    def __init__(self, worker: Worker, grant: Grant) -> None:
        self.shard, self.epoch = grant
        self.reason: str | None = None
        self.stopping = threading.Event()
        self.lost: threading.Event = _Lost(self._overdue)
        self._worker = worker
        self._grant = grant
        self._listeners: set[Callable[[], None]] = set()

    @property
    def token(self) -> int:
        """The epoch, under the name that a store knows it by: see docs/leases.md."""
        return self.epoch

    @property
    def remaining(self) -> float:
        """For how many seconds from now the lease is certainly held; 0.0 when it is over."""
        deadline = self._worker._holder.deadline(self._grant)
        return 0.0 if deadline is None else max(0.0, deadline - clock.now())

    def _overdue(self) -> bool:
        return self.remaining <= 0.0

    def write(self) -> contextlib.AbstractContextManager[Any]:
        """Do some writes that only the holder may do: the fence.

        The value is the database's own connection (`sqlite3.Connection` or `psycopg.Connection`), in
        a transaction in which the lease's row is locked against claims, not against renewals. The
        block commits when it ends and rolls back when it raises. In PostgreSQL at most ttl may pass
        between two statements; in SQLite the block holds the lock of the whole database, so be short.

        Raises:
            LeaseLost: The lease is over, and nothing was written (`written` is False); or the
                connection broke on the commit, and nobody knows (`written` is None): the lease is
                given up, and the shard will be claimed anew with a new epoch.

        Cost: one round trip more than the transaction itself.
        """
        return self._write()

    @contextlib.contextmanager
    def _write(self) -> Iterator[Any]:
        table = self._worker.table
        store, fence, connection = self._enter_fence()
        whole = False
        try:
            with _entered(fence):
                yield connection
            whole = True
        except OutcomeUnknown as unknown:
            self._worker._give_up(self)
            raise LeaseLost(
                f"the connection broke on the commit, so whether it was written is unknown; the lease "
                f"of shard {self.shard} at epoch {self.epoch} is given up",
                None,
            ) from unknown.__cause__
        finally:
            if whole:
                table._give(store)
            else:
                store.close()

    def _enter_fence(self) -> tuple[Store, contextlib.AbstractContextManager[Any], Any]:
        """A transaction with the lock; with a new connection where one that was kept has died."""
        table = self._worker.table
        while True:
            if self.lost.is_set():
                raise self._lost_error()
            kept = table._take_idle()
            store = kept or table._open()
            fence = store.fence(self._worker.identity, self._grant, table.ttl)
            try:
                return store, fence, fence.__enter__()
            except Refused:
                table._give(store)
                self._worker._end(self, "taken")
                raise self._lost_error() from None
            except BaseException as error:
                store.close()
                if kept is None or not isinstance(error, store.errors):
                    raise
                table.close()  # the others will not be better

    @contextlib.asynccontextmanager
    async def write_async(self) -> AsyncIterator[Any]:
        """As `write`, for `async with`: begins and commits in a thread, and so may the block's calls
        of the connection (`await asyncio.to_thread(tx.execute, ...)`)."""
        context = self.write()
        connection = await asyncio.to_thread(context.__enter__)
        try:
            yield connection
        except BaseException as error:
            if not await asyncio.to_thread(context.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await asyncio.to_thread(context.__exit__, None, None, None)

    def release(self) -> None:
        """Give the lease up now; nothing happens when it is over. The database is told soon after."""
        self._worker._release(self)

    async def wait_lost(self) -> None:
        """Wait until the lease is over."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def notify() -> None:
            loop.call_soon_threadsafe(over.set)

        self._listeners.add(notify)
        try:
            if not self.lost.is_set():
                await over.wait()
        finally:
            self._listeners.discard(notify)

    def _lost_error(self) -> LeaseLost:
        why = self.reason or "expired"
        return LeaseLost(f"the lease of shard {self.shard} at epoch {self.epoch} is over: {why}")

    def __repr__(self) -> str:
        state = self.reason or ("expired" if self._overdue() else "held")
        return f"<Lease of shard {self.shard} at epoch {self.epoch}: {state}>"


class Worker:
    """One process that takes its share of the leases; made by `LeaseTable.join`.

    While it is entered, iterating over it gives every lease as it comes, and waits for the next one;
    several threads may iterate, and each lease goes to one of them. Leaving releases everything.

    Attributes:
        name, identity: The name given, and the name with this process's incarnation.
        table: The table that was joined.
        error: The last error of the database, or None since it was last reached.
    """

    def __init__(self, table: LeaseTable, name: str, on_release: OnRelease | None) -> None:
        if not name:
            raise ValueError("a worker needs a name")
        self.table = table
        self.name = name
        self.identity = f"{name}#{uuid.uuid4().hex[:16]}"
        self.error: Exception | None = None
        self._on_release = on_release
        self._holder = Holder(self.identity, table.ttl)
        self._leases: dict[Grant, Lease] = {}
        self._fresh: deque[Lease] = deque()
        self._to_release: list[Grant] = []
        self._asked: set[Grant] = set()  # those that on_release is thinking about
        self._refused: set[Grant] = set()  # those that it would not let go
        self._changed = threading.Condition(threading.RLock())
        self._listeners: set[Callable[[], None]] = set()
        self._wake = threading.Event()
        self._state = "new"  # then running, leaving, left
        self._store: Store | None = None
        self._called_at: float | None = None
        self._threads: list[threading.Thread] = []
        # In a ttl, the first worker can hand over all its shards, one a step.
        self._pace = min(table.ttl / 20, max(0.01, table.ttl / (2 * table.shards.count)))
        self._beat = table.ttl / _BEATS

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
        self.table._set_up()
        self._state = "running"
        for target in (self._control, self._watch):
            thread = threading.Thread(target=target, name=f"ringhash {self.name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def leave(self) -> None:
        """Release everything, each lease through `on_release` if there is one, and stop.

        Waits for `on_release` as long as it takes, and for the database for a ttl; without it, the
        leases run out there by themselves.
        """
        with self._changed:
            if self._state != "running":
                return
            self._state = "leaving"
            self._fresh.clear()
        self._wake.set()
        for lease in self.leases:
            with self._changed:
                self._changed.wait_for(lambda lease=lease: lease._grant not in self._asked)  # type: ignore[misc]
            if not lease.lost.is_set():
                self._hand_over(lease, insist=True)
        with self._changed:
            self._state = "left"
            for lease in list(self._leases.values()):
                self._end(lease, "released")
        self._notify()
        self._wake.set()
        for thread in self._threads:
            thread.join(self.table.ttl)

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
            self._changed.notify_all()
            for notify in list(self._listeners):
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    notify()

    def _control(self) -> None:
        """Beat, read, act; the only thread that uses `_store`."""
        while True:
            last = self._state == "left"
            try:
                delay = self._turn()
                self.error = None
            except Exception as error:  # noqa: BLE001  whatever it is, the next turn tries again
                self._drop_store()
                self.error = error
                if _is_of_a_database(error):
                    _log.warning("%s: %s", self.identity, error)
                else:
                    _log.exception("%s", self.identity)
                delay = self._beat / 2
            if last:
                self._drop_store()
                return
            self._wake.wait(delay)
            self._wake.clear()

    def _turn(self) -> float:
        """One turn of the protocol; return the seconds until the next."""
        with self._timed():
            if self._store is None:
                self._store = self.table._open()
            store = self._store
            with self._changed:
                self._expire()
                self._to_release, released = [], self._to_release
                leaving = self._over
                asked = self._holder.grants
            if released:
                try:
                    store.release(self.identity, released)
                except BaseException:
                    with self._changed:
                        self._to_release += released
                    raise
            sent = clock.now()
            answer = store.beat(self.identity, self.table.ttl, asked, leaving=leaving)
            with self._changed:
                for grant in self._holder.renewed(sent, asked, answer):
                    self._finish(self._leases[grant], "taken")
                self._expire()
            self._wake_watch()
            if leaving:
                return self._pace if self._to_release else self._beat
            view = store.read()
            with self._changed:
                step = self._holder.decide(view)
            if step.disown:
                # Not those that were released by hand meanwhile, which come to the same.
                store.release(self.identity, step.disown)
            if step.claim:
                sent = clock.now()
                self._take(sent, store.claim(self.identity, step.claim, self.table.ttl))
            if step.release is not None:
                self._begin_release()
        return self._beat if step.settled else self._pace

    def _take(self, sent: float, grants: list[Grant]) -> None:
        with self._changed:
            for grant in self._holder.claimed(sent, grants):
                self._finish(self._leases[grant], "taken")
            for grant in grants:
                self._leases[grant] = lease = Lease(self, grant)
                if self._over:
                    self._release(lease)
                else:
                    self._fresh.append(lease)
            self._expire()
        self._wake_watch()
        self._notify()

    def _wake_watch(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _watch(self) -> None:
        """End leases at their deadlines, and calls that hang for more than a ttl."""
        with self._changed:
            while self._state != "left":
                self._expire()
                now = clock.now()
                waits = [self.table.ttl]
                deadline = self._holder.next_deadline
                if deadline is not None:
                    waits.append(deadline - now)
                if self._called_at is not None:
                    hanging = now - self._called_at
                    if hanging >= self.table.ttl and self._store is not None:
                        self._store.abort()
                        self._called_at = now
                    else:
                        waits.append(max(self._pace, self.table.ttl - hanging))
                self._changed.wait(max(0.001, min(waits)))

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        self._called_at = clock.now()
        try:
            yield
        finally:
            self._called_at = None

    def _drop_store(self) -> None:
        with self._changed:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    # --- the end of a lease ---

    def _expire(self) -> None:
        for grant in self._holder.expire(clock.now()):
            self._finish(self._leases[grant], "expired")

    def _end(self, lease: Lease, reason: str) -> bool:
        """End a lease here; return whether it was held."""
        with self._changed:
            held = self._holder.drop(lease._grant)
            if held:
                self._finish(lease, reason)
        return held

    def _finish(self, lease: Lease, reason: str) -> None:
        del self._leases[lease._grant]
        self._asked.discard(lease._grant)
        self._refused.discard(lease._grant)
        lease.reason = reason
        if reason in ("released", "unknown"):
            self._to_release.append(lease._grant)
        lease.stopping.set()
        lease.lost.set()
        for notify in list(lease._listeners):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                notify()
        self._notify()

    def _give_up(self, lease: Lease) -> None:
        self._end(lease, "unknown")
        self._wake.set()

    def _release(self, lease: Lease) -> None:
        self._end(lease, "released")
        self._wake.set()

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
                self._release(lease)
                return
            self._asked.add(grant)
        threading.Thread(
            target=self._hand_over, args=(lease,), name=f"ringhash {self.name} release", daemon=True
        ).start()

    def _hand_over(self, lease: Lease, *, insist: bool = False) -> None:
        """Ask `on_release`, and release when it agrees; `insist` when the worker goes away anyway."""
        lease.stopping.set()
        confirmed = True
        if self._on_release is not None and not lease.lost.is_set():
            try:
                confirmed = self._on_release(lease)
            except Exception:  # noqa: BLE001  the user's; logged, and asked again
                _log.exception("on_release failed for %r", lease)
                confirmed = False
        if confirmed or insist:
            self._release(lease)
        else:
            with self._changed:
                self._asked.discard(lease._grant)
                self._refused.add(lease._grant)
                self._changed.notify_all()
                if lease._grant in self._leases:
                    lease.stopping.clear()


def _is_of_a_database(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in ("psycopg", "sqlite3")

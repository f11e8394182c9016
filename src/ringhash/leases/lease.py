"""One shard in a worker's hands, and the fence in front of what only its holder may write."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

from ringhash.databases import OutcomeUnknownError, Transaction
from ringhash.errors import LeaseLost
from ringhash.leases.protocol import Grant
from ringhash.leases.rows import Refused

__all__ = ["Keeper", "Lease", "OnRelease"]


class Keeper(Protocol):
    """What a lease asks of the worker that holds it."""

    pid: int

    def remaining(self, grant: Grant, /) -> float:
        """For how many seconds `grant` is certainly held."""

    def end(self, lease: Lease, reason: str, /) -> bool:
        """End `lease` here, and have the database told; return whether it was held."""

    def fenced(self, grant: Grant, /) -> contextlib.AbstractContextManager[Transaction]:
        """Open a transaction of this holder's."""


class OnRelease(Protocol):
    """What is asked before a live worker gives a lease up.

    Stop the work on `lease` and hand it over; the lease stays valid meanwhile. Return True when the
    shard may go to somebody else; False, or an exception, keeps it, and then another one is asked for.
    """

    def __call__(self, lease: Lease, /) -> bool:
        """Hand `lease` over; return whether it may go."""


class _Lost(threading.Event):
    """An event that is also set the moment the time is over, before any thread could set it."""

    def __init__(self, overdue: Callable[[], bool]) -> None:
        super().__init__()
        self._overdue = overdue

    def is_set(self) -> bool:
        return self._overdue() or super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._overdue() or super().wait(timeout)


class Lease:
    """One shard in this worker's hands; made by a `Worker`.

    After a fork, all leases of the parent are over in the child.

    Attributes:
        shard: The shard.
        epoch: Grows with every claim of the shard; no two holders ever have the same.
        token: The epoch, for stores that compare tokens themselves.
        stopping: An Event, set when the lease should be released: finish, and begin nothing new.
        lost: An Event, set when the lease is over, for whatever reason.
        reason: Why it is over: "released", "expired", "taken", "unknown" or "forked"; None while it is held.
    """

    def __init__(self, keeper: Keeper, grant: Grant) -> None:
        self.shard, self.epoch = grant
        self.stopping = threading.Event()
        self.lost: threading.Event = _Lost(self._overdue)
        self._reason: str | None = None
        self._keeper = keeper
        self._grant = grant
        self._listeners: set[Callable[[], None]] = set()

    @property
    def token(self) -> int:
        """The epoch, under the name that a store knows it by: see docs/leases.md."""
        return self.epoch

    @property
    def reason(self) -> str | None:
        """Why the lease is over, or None while it is held."""
        return "forked" if self._keeper.pid != os.getpid() else self._reason

    @property
    def remaining(self) -> float:
        """For how many seconds from now the lease is certainly held; 0.0 when it is over."""
        if self._keeper.pid != os.getpid():
            return 0.0
        return self._keeper.remaining(self._grant)

    def _overdue(self) -> bool:
        return self.remaining <= 0.0

    def write(self) -> contextlib.AbstractContextManager[Transaction]:
        """Do some writes that only the holder may do: the fence.

        The value is a `ringhash.databases.Transaction`, in which the lease's row is locked against claims,
        not against renewals. The block commits when it ends and rolls back when it raises; it cannot commit
        or roll back itself. In PostgreSQL at most ttl may pass between two statements; in SQLite the block
        holds the lock of the whole database, so be short.

        Raises:
            LeaseLost: The lease is over, and nothing was written (`written` is False); or the
                connection broke on the commit, and nobody knows (`written` is None): the lease is
                given up, and the shard will be claimed anew with a new epoch.
            TransactionEndedError: The block tried to end its transaction itself; nothing was written.

        Cost: two round trips more than your statements.
        """
        return self._write()

    @contextlib.contextmanager
    def _write(self) -> Iterator[Transaction]:
        if self.lost.is_set():
            raise self._lost_error()
        entered = whole = False
        try:
            with self._keeper.fenced(self._grant) as tx:
                entered = True
                yield tx
                whole = True
        except Refused:
            if entered:
                raise
            self._keeper.end(self, "taken")
            raise self._lost_error() from None
        except OutcomeUnknownError as unknown:
            if not whole:
                raise  # of something that the block did elsewhere
            self._keeper.end(self, "unknown")
            raise LeaseLost(
                f"the connection broke on the commit, so whether it was written is unknown; the lease "
                f"of shard {self.shard} at epoch {self.epoch} is given up",
                None,
            ) from unknown.__cause__

    @contextlib.asynccontextmanager
    async def write_async(self) -> AsyncIterator[Transaction]:
        """As `write`, for `async with`: begins and commits in a thread, and so may the block's calls
        of the transaction (`await asyncio.to_thread(tx.execute, ...)`)."""
        context = self.write()
        tx = await asyncio.to_thread(context.__enter__)
        try:
            yield tx
        except BaseException as error:
            if not await asyncio.to_thread(context.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await asyncio.to_thread(context.__exit__, None, None, None)

    def release(self) -> None:
        """Give the lease up now; nothing happens when it is over. The database is told soon after."""
        self._keeper.end(self, "released")

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

    def _finish(self, reason: str) -> None:
        """Say everywhere that it is over; the worker does it, once."""
        self._reason = reason
        self.stopping.set()
        self.lost.set()
        for notify in list(self._listeners):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                notify()

    def _lost_error(self) -> LeaseLost:
        why = self.reason or "expired"
        return LeaseLost(f"the lease of shard {self.shard} at epoch {self.epoch} is over: {why}")

    def __repr__(self) -> str:
        state = self.reason or ("expired" if self._overdue() else "held")
        return f"<Lease of shard {self.shard} at epoch {self.epoch}: {state}>"

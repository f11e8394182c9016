"""The fleet for asyncio: its transactions run in threads, so the loop never waits for a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from ringhash.databases import Result, Transaction
from ringhash.fleet.fleet import Fleet

__all__ = ["AsyncFleet", "AsyncTransaction"]


class AsyncTransaction:
    """A `ringhash.databases.Transaction` whose calls are awaited. One task at a time uses it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    @property
    def dialect(self) -> str:
        """Either "sqlite" or "postgresql"."""
        return self._tx.dialect

    async def execute(self, sql: str, params: Iterable[Any] = ()) -> Result:
        """Run one statement; as `Transaction.execute`."""
        return await asyncio.to_thread(self._tx.execute, sql, params)

    async def executemany(self, sql: str, rows: Iterable[Iterable[Any]]) -> int:
        """Run one statement for each of `rows`; as `Transaction.executemany`."""
        return await asyncio.to_thread(self._tx.executemany, sql, rows)


class AsyncFleet:
    """A `Fleet` for asyncio: `async with fleet.write(key) as tx: await tx.execute(...)`.

    Args:
        fleet: The fleet; threads may go on to use it directly.

    Cost: as the fleet's, and two switches of threads a call, some 50 us. A block whose task is cancelled
    rolls back.

    >>> import tempfile
    >>> from ringhash import Router
    >>> folder = tempfile.TemporaryDirectory()
    >>> fleet = Fleet({"db-1": folder.name + "/1.db"}, Router(["db-1"]))
    >>> fleet.install()
    >>> async def main():
    ...     async with AsyncFleet(fleet).write("acme") as tx:
    ...         return (await tx.execute("SELECT 1 + 1")).rows
    >>> asyncio.run(main())
    [(2,)]
    >>> fleet.close(); folder.cleanup()
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @asynccontextmanager
    async def write(self, key: Any, *, wait: float | None = None) -> AsyncIterator[AsyncTransaction]:
        """Open a transaction that writes, on the owner of a key; as `Fleet.write`."""
        async with _in_threads(self.fleet.write(key, wait=wait)) as tx:
            yield AsyncTransaction(tx)

    @asynccontextmanager
    async def read(
        self, key: Any, *, wait: float | None = None, stale: float | None = None
    ) -> AsyncIterator[AsyncTransaction]:
        """Open a transaction that reads, on the owner of a key; as `Fleet.read`."""
        async with _in_threads(self.fleet.read(key, wait=wait, stale=stale)) as tx:
            yield AsyncTransaction(tx)


@asynccontextmanager
async def _in_threads(context: AbstractContextManager[Transaction]) -> AsyncIterator[Transaction]:
    """Enter and leave a context in threads; a task that is cancelled meanwhile leaves what it entered."""
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        tx = await asyncio.shield(entering)
    except asyncio.CancelledError as error:
        try:
            await entering
        except Exception:  # noqa: BLE001  it was not entered, and nobody waits for why
            raise error from None
        await _leave(context, error)
        raise
    try:
        yield tx
    except BaseException as error:
        if not await _leave(context, error):
            raise
    else:
        await _leave(context, None)


async def _leave(context: AbstractContextManager[Transaction], error: BaseException | None) -> bool | None:
    kind = None if error is None else type(error)
    leaving = asyncio.ensure_future(
        asyncio.to_thread(context.__exit__, kind, error, None if error is None else error.__traceback__)
    )
    try:
        return await asyncio.shield(leaving)
    except asyncio.CancelledError:
        await leaving  # a commit that was sent is waited for
        raise

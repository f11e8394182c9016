"""The right database for a key, and never the wrong one."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Self, TypeAlias

from ringhash.databases import Database, Transaction, open_database
from ringhash.errors import DatabaseAddressError, FenceError, Moved, Moving, UnknownNodeError
from ringhash.fleet.addresses import addresses_of, reading_of
from ringhash.fleet.fence import REGISTRY, RETRY, create_fence, fence_statement, verdict
from ringhash.fleet.metrics import FleetMetrics
from ringhash.fleet.replicas import Replicas
from ringhash.membership import find_name
from ringhash.node import plain_type
from ringhash.routing import Router
from ringhash.routing.snapshot import RouterSnapshot

__all__ = ["Fleet"]

_REGISTER = "INSERT INTO ringhash_registry (name, value) VALUES ('fence', ?) ON CONFLICT (name) DO NOTHING"
_MOST_REDIRECTS = 4  # in one round; keys that are sent on and on are moving


_Entered: TypeAlias = tuple[AbstractContextManager[Transaction], Transaction]


class Fleet:
    """The databases of a router's nodes: opens the owner of a key, in a transaction that the database has let
    in.

    Args:
        databases: The address of each node's database, by name: `postgresql://...`, or a path (SQLite). Or a
            `Database`.
        router: Who owns a key; any placement. It may be out of date: the databases know better, and say so.
        wait: For how many seconds a block waits for a key that is moving.
        pool: How many connections to one PostgreSQL server, at most.
        timeout: For how many seconds to wait for a connection or a lock.
        replicas: The addresses of read replicas, by node.

    Raises:
        UnknownNodeError: The router has a node without a database.
        DatabaseAddressError: An address is not of a database that ringhash can open: MySQL and MariaDB are
            not supported.

    Thread-safe. After a fork, make a new one. Method: the shard validates the mapping itself, as in Azure
    Elastic Database tools (`OpenConnectionForKey`); the refusal names the new owner, as in Redis Cluster.

    >>> import tempfile
    >>> from ringhash import Router
    >>> folder = tempfile.TemporaryDirectory()
    >>> paths = {name: f"{folder.name}/{name}.db" for name in ("db-1", "db-2")}
    >>> fleet = Fleet(paths, Router(["db-1", "db-2"]))
    >>> fleet.install()
    >>> with fleet.write("acme") as tx:
    ...     _ = tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, tenant TEXT)")
    ...     _ = tx.execute("INSERT INTO orders VALUES (?, ?)", [1, "acme"])
    >>> with fleet.read("acme") as tx:
    ...     tx.execute("SELECT * FROM orders").rows
    [(1, 'acme')]
    >>> fleet.close(); folder.cleanup()
    """

    def __init__(
        self,
        databases: Mapping[str, str | Database],
        router: Router,
        *,
        wait: float = 5.0,
        pool: int = 10,
        timeout: float = 10.0,
        replicas: Mapping[str, list[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not isinstance(router, Router):
            raise TypeError(f"a fleet needs a Router, not {plain_type(router)}; write Router(placement)")
        self.router = router
        self.wait = wait
        self.metrics = FleetMetrics()
        self._pool, self._timeout = pool, timeout
        self._clock, self._sleep = clock, sleep
        self._databases: dict[str, Database] = {}
        self._seen: tuple[RouterSnapshot, RouterSnapshot] | None = None
        with ExitStack() as made:
            made.callback(self.close)
            for name, given in databases.items():
                self._databases[name] = self._open(given)
            missing = [name for name in router.placement.names if name not in self._databases]
            if missing:
                raise UnknownNodeError(
                    f"the node {missing[0]!r} of the router has no database; give its address"
                )
            followers = {
                name: [self._open(one) for one in listed] for name, listed in (replicas or {}).items()
            }
            for name in followers:
                find_name(self.names, name)
            self._replicas = Replicas(followers)
            made.pop_all()

    def _open(self, given: str | Database) -> Database:
        if isinstance(given, Database):
            return given
        if given.partition(":")[0].lower() in ("postgresql", "postgres"):
            try:
                from ringhash.fleet.pool import PooledPostgres  # noqa: PLC0415  an extra
            except ImportError as error:
                raise ImportError("PostgreSQL needs psycopg's pool: pip install 'ringhash[fleet]'") from error
            return PooledPostgres(given, size=self._pool, timeout=self._timeout)
        database = open_database(given, timeout=self._timeout)
        if database.address == ":memory:":
            raise DatabaseAddressError("a fleet needs files, since several connections use them; give a path")
        return database

    # --- the databases ---

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes that have a database, in order."""
        return tuple(sorted(self._databases))

    def database(self, node: str) -> Database:
        """Return the database of a node.

        Raises:
            UnknownNodeError: There is none.
        """
        find_name(self.names, node)
        return self._databases[node]

    def replace(self, node: str, database: str | Database) -> None:
        """Use another address for a node, after a failover of its server, or add a node that is to come.

        Nothing of the placement changes. Blocks that run go on with the old connections.
        """
        new = self._open(database)
        old, self._databases = self._databases.get(node), {**self._databases, node: new}
        if old is not None:
            old.close()

    def install(self) -> None:
        """Make the fence in every database; where it is, nothing happens. Idempotent, and safe to run at each
        start.

        Raises:
            FenceError: A database has the fence of a placement that reads keys in another way.
        """
        reading = json.dumps(reading_of(self.router.placement), sort_keys=True)
        for name in self.names:
            database = self._databases[name]
            with database.transaction(write=True) as tx:
                if tx.dialect == "postgresql":
                    tx.execute("SELECT pg_advisory_xact_lock(hashtext('ringhash_fence'))")
                create_fence(tx)
                tx.execute(REGISTRY)
                tx.execute(_REGISTER, [reading])
                there = tx.execute("SELECT value FROM ringhash_registry WHERE name = 'fence'").rows[0][0]
            if there != reading:
                raise FenceError(
                    f"the fence of {name} is of keys read by {there}, and the router reads by {reading}"
                )

    # --- blocks ---

    def write(self, key: Any, *, wait: float | None = None) -> AbstractContextManager[Transaction]:
        """Open a transaction that writes, on the owner of a key: for `with`.

        The block commits at its end and rolls back when it raises; it cannot end the transaction itself. A
        mover that takes the key away waits for the block.

        Args:
            key: Any key of the placement.
            wait: For how many seconds to wait while the key moves; by default those of the fleet.

        Raises:
            Moving: The key still moves after `wait` seconds.
            Moved: It belongs to a node that this fleet has no database of, or to nobody.
            OutcomeUnknownError: The connection broke on the commit, so nobody knows whether it is stored.
            TransactionEndedError: The block tried to end its transaction.

        Cost: the begin and the check are one round trip, so it is as many as a transaction has anyhow.
        """
        return self._block(key, True, wait, None)

    def read(
        self, key: Any, *, wait: float | None = None, stale: float | None = None
    ) -> AbstractContextManager[Transaction]:
        """Open a transaction that reads a single moment, on the owner of a key: for `with`. No lock is taken.

        Args:
            key: Any key of the placement.
            wait: As for `write`.
            stale: A replica may answer that is at most as many seconds behind. By default only the node
                itself does.

        Raises:
            Moving, Moved: As for `write`.
            ReplicaLagError: No replica of the owner is as fresh as `stale`.
        """
        return self._block(key, False, wait, stale)

    def _block(
        self, key: Any, write: bool, wait: float | None, stale: float | None
    ) -> AbstractContextManager[Transaction]:
        return _Block(self, key, write, self.wait if wait is None else wait, stale)

    def _admitted(self, key: Any, write: bool, wait: float, stale: float | None) -> _Entered:
        """Enter the transaction that lets the key in; follow who names another node, wait for who says so."""
        began, waited, redirects = self._clock(), None, 0
        while True:
            node = self._owner(key)
            seen: list[str] = []
            while True:
                try:
                    entered = self._ask(node, key, write, stale)
                except Moved as moved:
                    refusal: Moved | Moving = moved
                    seen.append(node)
                    if moved.to is None or moved.to not in self._databases:
                        self.metrics.count(write=write, redirects=redirects, waited=waited, refused=True)
                        raise
                    if moved.to in seen or len(seen) > _MOST_REDIRECTS:
                        break  # from one to the other and back: it is on its way
                    node, redirects = moved.to, redirects + 1
                except Moving as moving:
                    refusal = moving
                    break
                else:
                    self.metrics.count(write=write, redirects=redirects, waited=waited, refused=False)
                    return entered
            waited = self._clock() - began
            if waited >= wait:
                self.metrics.count(write=write, redirects=redirects, waited=waited, refused=True)
                raise Moving(refusal.to, refusal.epoch, RETRY) from None
            self._sleep(min(RETRY * (0.5 + random.random()), wait - waited))  # noqa: S311  to spread them

    def _ask(self, node: str, key: Any, write: bool, stale: float | None) -> _Entered:
        addresses = addresses_of(self.router.placement, key)
        if stale is not None:
            return self._replicas.enter(node, addresses, stale, self._databases[node])
        database = self._databases[node]
        first = fence_statement(database.dialect, addresses, write=write)
        context = database.transaction(write=write, first=[first])
        tx = context.__enter__()
        try:
            verdict(tx.first[0], addresses, write=write)
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise
        return context, tx

    def _owner(self, key: Any) -> str:
        """The owner as the router knows it, marks aside: for rows another node is a wrong one."""
        snapshot = self.router.snapshot
        if snapshot.down:
            if self._seen is None or self._seen[0] is not snapshot:
                self._seen = (snapshot, snapshot.marked(frozenset()))
            snapshot = self._seen[1]
        return snapshot.route(key).node

    def close(self) -> None:
        """Close all connections that are not in use."""
        for database in (*self._databases.values(), *getattr(self, "_replicas", ())):
            database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Fleet of {', '.join(f'{name} at {self._databases[name].address}' for name in self.names)}>"


class _Block:
    """One block of a fleet, for `with`: what it enters is known only when a database has let the key in."""

    __slots__ = ("_asked", "_context", "_fleet")

    def __init__(self, fleet: Fleet, *asked: Any) -> None:
        self._fleet = fleet
        self._asked = asked
        self._context: AbstractContextManager[Transaction] | None = None

    def __enter__(self) -> Transaction:
        if self._context is not None:
            raise RuntimeError("a block is entered once; call write() or read() again")
        self._context, tx = self._fleet._admitted(*self._asked)
        return tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None  # noqa: S101  it was entered
        return self._context.__exit__(kind, error, trace)

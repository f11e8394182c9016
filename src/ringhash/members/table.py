"""The members that any number of routers share, in a database."""

from __future__ import annotations

import os
from collections.abc import Callable

from ringhash.databases import Database, open_database
from ringhash.databases.clock import SYSTEM, Clock
from ringhash.members.follow import Follow, Guard, nodes_of
from ringhash.members.member import Member
from ringhash.members.rows import MemberRows, member_rows
from ringhash.node import Node
from ringhash.routing import Router

__all__ = ["Members"]


class Members:
    """The members that any number of routers share, in a database.

    Args:
        db: A path (SQLite), an address `postgresql://...` (needs the extra `postgres`), or a `Database`.
        name: One database has any number of memberships, by name.
        timeout: For how many seconds to wait for the database.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> members = Members(folder.name + "/members.db")
    >>> router = Router()
    >>> with members.join("gw-1"), members.join("gw-2", weight=2.0), members.follow(router) as follow:
    ...     follow.wait_for(2, timeout=5)
    ...     router.epoch, [node.name for node in router.nodes]
    True
    (2, ['gw-1', 'gw-2'])
    >>> folder.cleanup()
    """

    def __init__(
        self, db: str | os.PathLike[str] | Database, *, name: str = "default", timeout: float = 10.0
    ) -> None:
        self.database = db if isinstance(db, Database) else open_database(db, timeout=timeout)
        if self.database.address == ":memory:":
            raise ValueError("members in memory cannot be shared; give a path")
        self.name = name
        self.timeout = timeout

    def _open(self) -> MemberRows:
        return member_rows(self.database, self.name)

    def _set_up(self) -> MemberRows:
        rows = self._open()
        try:
            rows.setup()
        except BaseException:
            rows.close()
            raise
        return rows

    def nodes(self) -> tuple[int, tuple[Node, ...]]:
        """Return the epoch and the members, of one moment."""
        source = self._set_up()
        try:
            epoch, rows = source.members()
        finally:
            source.close()
        return epoch, nodes_of(rows)

    def join(
        self,
        name: str,
        weight: float = 1.0,
        zone: str | None = None,
        *,
        ttl: float = 30.0,
        clock: Clock = SYSTEM,
    ) -> Member:
        """Return a member; it begins when it is entered with `with`, and leaves at the end.

        A process that starts again under its name with the same weight and zone changes nothing.

        Args:
            name, weight, zone: As for `Node`.
            ttl: For how many seconds the node counts as alive after a heartbeat; it beats five times.
            clock: What it counts its own time by; for tests.

        Raises:
            TypeError, ValueError: As for `Node`, or ttl is out of its range.
        """
        return Member(Node(name, weight, zone), ttl, clock, self._set_up, self._open)

    def follow(
        self,
        *routers: Router,
        grace: float = 30.0,
        guard: Guard | None = None,
        poll: float = 1.0,
        settle: float = 0.05,
        on_change: Callable[[int], None] | None = None,
        clock: Clock = SYSTEM,
    ) -> Follow:
        """Keep routers in step with the members; begins when it is entered with `with`.

        A router's epoch is the store's, and its ring at an epoch is that of every other router with
        the same options. While the database cannot be reached, the routers stay as they are.

        Args:
            routers: Any number of them; they should be changed by nobody else.
            grace: How many seconds after its ttl a dead node's keys are given away. Any follower
                does it, for all.
            guard: Asked first: a function of a `Plan` that says True or False, or a
                `ringhash.handover.Guard`.
                See `ringhash.members.Guard`. Where several follow, each asks its own.
            poll: How often to look, in seconds; PostgreSQL also tells of changes at once.
            settle: How long to wait after such a message for more, so that a burst is one change.
            on_change: Called with each epoch after the routers have it.
            clock: What it counts its own time by; for tests.
        """
        if not routers:
            raise TypeError("follow needs a Router")
        return Follow(
            routers, grace, guard, poll, settle, on_change, clock, self.timeout, self._set_up, self._open
        )

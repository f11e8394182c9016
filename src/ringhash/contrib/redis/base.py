"""What a ring of Redis servers is with threads and with asyncio alike. No input or output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ringhash.contrib.redis.commands import CommandTable
from ringhash.contrib.redis.errors import NodeDownError
from ringhash.contrib.redis.exchange import FAILURES, Batch, Command
from ringhash.contrib.redis.health import Health
from ringhash.contrib.redis.marks import Marks
from ringhash.contrib.redis.routes import Routes, key_of, router_for
from ringhash.contrib.redis.stack import Call, Stack, stacked
from ringhash.errors import DuplicateNodeError

if TYPE_CHECKING:
    from ringhash.plan import Plan

__all__ = ["COMMAND_TABLE", "RingBase", "table_of"]

COMMAND_TABLE: list[Command] = [(("COMMAND",), {})]


class RingBase:
    """The nodes of a ring, which of them are down, and where a command goes."""

    routes: Routes  # with the first answer of a node
    marks: Marks

    def __init__(
        self,
        clients: Mapping[str, Any],
        router: Any,
        on_down: Literal["error", "next"],
        stale: Literal["drop", "serve"],
        down_after: int,
        min_up: float,
        every: float,
    ) -> None:
        if on_down not in ("error", "next"):
            raise ValueError(f"on_down must be 'error' or 'next', not {on_down!r}")
        if stale not in ("drop", "serve"):
            raise ValueError(f"stale must be 'drop' or 'serve', not {stale!r}")
        if not 0 < every < float("inf"):
            raise ValueError(f"every must be finite and above 0, not {every!r}")
        self.router = router_for(router, clients)
        self._clients = dict(clients)
        self._health = Health(clients, down_after, min_up)
        self._on_down, self._every = on_down, every
        self._drops = on_down == "next" and stale == "drop"
        self._suspect: frozenset[str] = frozenset()  # revived, and others may still hold old values of theirs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self._clients)

    @property
    def down(self) -> frozenset[str]:
        """The names of the nodes that are down."""
        return self._health.down

    def node(self, name: str) -> Any:
        """Return the client of a node, for commands without a key; `LookupError` if there is none."""
        try:
            return self._clients[name]
        except KeyError:
            there = ", ".join(self._clients)
            raise LookupError(f"there is no node {name!r}; the nodes are {there}") from None

    def each(self) -> dict[str, Any]:
        """Return the clients of all nodes, by name."""
        return dict(self._clients)

    def node_of(self, key: Any) -> str:
        """Return the name of the node that a key is on now."""
        return self.router.owner(key_of(key))

    def client_for(self, key: Any) -> Any:
        """Return the client of the node that a key is on now."""
        return self._clients[self.node_of(key)]

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return next(iter(self._clients.values())).get_encoder()

    def _learn(self, table: CommandTable) -> None:
        self.routes = Routes(self.router, table)
        self.marks = Marks(self.router, table)

    def _asking(self, args: Sequence[Any]) -> list[Batch]:
        """What asks the server for the keys of a command that its table cannot say."""
        up = next((name for name in self._clients if name not in self._health.down), self.names[0])
        return [Batch(up, [(("COMMAND", "GETKEYS", *args), {})], raw=True)]

    def _stack(self, calls: Sequence[Call]) -> Stack:
        stack = stacked(self.routes, self.marks, self.names, calls)
        for batch in stack.batches:
            if batch.node in self._health.down:
                raise self._down_error(batch.node)
        return stack

    def _down_error(self, name: str) -> NodeDownError:
        return NodeDownError(f"the node {name!r} is down; it is looked at every {self._every:g} s")

    def _heard(self, batches: Sequence[Batch], replies: Sequence[Any]) -> list[str]:
        """Count failures and answers; return the nodes that go down with it."""
        gone = []
        for batch, reply in zip(batches, replies, strict=True):
            if not isinstance(reply, FAILURES):
                if self._health.failing:
                    self._health.answered(batch.node)
            elif self._failed(batch.node):
                gone.append(batch.node)
        return gone

    def _failed(self, name: str) -> bool:
        """Count a failure; return whether the node goes down with it."""
        if not self._health.failed(name):
            return False
        if self._on_down == "next" and name not in self._suspect:
            self.router.mark_down(name)
        return True

    def _revived(self, name: str) -> None:
        self._health.revived(name)
        if self._on_down == "next":
            self.router.mark_up(name)

    def _copies_of(self, name: str) -> dict[str, Any]:
        """The nodes that may hold copies for one that was down, and how to tell which keys these are."""
        return {
            other: partial(self._are_of, name)
            for other in self._clients
            if other != name and other not in self._health.down
        }

    def _are_of(self, name: str, keys: list[bytes]) -> list[bool]:
        return [owner == name for owner in self.router.owner_many(keys)]

    def _kept(self, name: str, keys: Sequence[Any]) -> list[Any]:
        """The keys that a node answers for; others are copies, made ahead or left behind by a move."""
        if self.router.running is None:
            return list(keys)
        return [key for key in keys if self.node_of(key) == name]

    def _planned(self, add: Mapping[str, Any], remove: Sequence[str]) -> Plan:
        """The plan of other nodes, whose clients are there already; what cannot be is refused here."""
        if isinstance(remove, (str, bytes)):
            raise TypeError(f"remove takes a list of names; write [{remove!r}]")
        for name in add:
            if name in self._clients:
                raise DuplicateNodeError(f"the node {name!r} is there already")
        if self._health.down:
            raise NodeDownError(
                f"nodes are down: {', '.join(sorted(self._health.down))}; change the others later"
            )
        return self.router.plan(add=list(add), remove=list(remove))

    def _join(self, clients: Mapping[str, Any]) -> None:
        self._clients = {**self._clients, **clients}
        self._health.members(self._clients)

    def _leave(self, names: Iterable[str]) -> list[Any]:
        """Forget nodes; return their clients, which may be closed."""
        gone = set(names)
        left = [client for name, client in self._clients.items() if name in gone]
        self._clients = {name: client for name, client in self._clients.items() if name not in gone}
        self._health.members(self._clients)
        return left

    def __repr__(self) -> str:
        down = f", {len(self.down)} down" if self.down else ""
        return f"<{type(self).__name__} of {len(self._clients)} Redis nodes{down}: {self.router!r}>"


def table_of(replies: Sequence[Any]) -> CommandTable:
    """Return the table of the first node that answered.

    Raises:
        NodeDownError: None did.
    """
    why: object = None
    for reply in replies:
        if not isinstance(reply, Exception) and not isinstance(reply[0], Exception):
            return CommandTable(reply[0])
        why = reply if isinstance(reply, Exception) else reply[0]
    raise NodeDownError(f"no node of the ring answers: {why}")

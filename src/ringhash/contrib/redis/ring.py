"""A ring of Redis servers with the methods of a redis-py client."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import redis
from redis.commands import CoreCommands
from redis.exceptions import RedisError, ResponseError, WatchError
from redis.lock import Lock

from ringhash.contrib.redis.calls import Calls
from ringhash.contrib.redis.commands import CommandTable, word
from ringhash.contrib.redis.errors import NodeDownError
from ringhash.contrib.redis.exchange import FAILURES, Batch, exchange
from ringhash.contrib.redis.health import Health
from ringhash.contrib.redis.pipeline import Pipeline, Transaction, answers_of, batches_of
from ringhash.contrib.redis.pubsub import PubSub
from ringhash.contrib.redis.routes import ALL, Routes, key_of, router_for
from ringhash.contrib.redis.split import EVERYWHERE, Part, merge
from ringhash.contrib.redis.sweep import drive, emptied, sweep

__all__ = ["Ring"]


class Ring(CoreCommands):  # type: ignore[misc]
    """A client for several Redis servers: each key lives on the node that the router names.

    Every command of redis-py works that has a key. MGET, MSET, DEL, UNLINK, EXISTS and TOUCH are cut up by
    node and answered as one, which is not atomic. Other commands with keys on several nodes raise
    `CrossNodeError` before anything is sent; give such keys a common hash tag, as in `{user:7}:cart`.

    Args:
        nodes: The URL or the redis-py client of each node, by name.
        router: A `Router`, or a placement for a new one, also that of another program. Its nodes must have
            the same names. By default a ring of the names, with hash tags.
        on_down: What becomes of the keys of a node that is down. "error": they raise `NodeDownError`. "next":
            the next node of the walk answers, as caches want it.
        stale: With `on_down="next"`, what becomes of a node that answers again. "drop": it is emptied first,
            and what other nodes stored for it is removed, so no old value is ever read. "serve": it answers
            with what it has.
        down_after: Failures in a row that put a node down.
        min_up: The least part of the nodes that must stay up; no more are put down than that allows.
        every: Seconds between two looks at a node that is down.
        options: For the clients that are made from URLs, such as `socket_timeout` (1 second by default) and
            `decode_responses`.

    Threads may share it. A lookup costs about a microsecond beside that of the client.

    Raises:
        ValueError: There are no nodes, or the router has others.
        NodeDownError: No node answers.
    """

    def __init__(
        self,
        nodes: Mapping[str, str | redis.Redis],
        router: Any = None,
        *,
        on_down: Literal["error", "next"] = "error",
        stale: Literal["drop", "serve"] = "drop",
        down_after: int = 3,
        min_up: float = 0.5,
        every: float = 0.5,
        **options: Any,
    ) -> None:
        if on_down not in ("error", "next"):
            raise ValueError(f"on_down must be 'error' or 'next', not {on_down!r}")
        if stale not in ("drop", "serve"):
            raise ValueError(f"stale must be 'drop' or 'serve', not {stale!r}")
        if not 0 < every < float("inf"):
            raise ValueError(f"every must be finite and above 0, not {every!r}")
        self.options = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0} | options
        self.router = router_for(router, nodes)
        self._clients = {name: self._client(node) for name, node in nodes.items()}
        self._health = Health(nodes, down_after, min_up)
        self._on_down, self._stale, self._every = on_down, stale, every
        self._suspect: frozenset[str] = frozenset()  # revived, and others may still hold old values of theirs
        self._lock = threading.Lock()
        self._probing: threading.Thread | None = None
        self._closed = threading.Event()
        self._subscriptions: weakref.WeakSet[PubSub] = weakref.WeakSet()
        self.calls = Calls()
        self.routes = Routes(self.router, self._command_table())

    # --- the nodes ---

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self._clients)

    @property
    def down(self) -> frozenset[str]:
        """The names of the nodes that are down."""
        return self._health.down

    def node(self, name: str) -> redis.Redis:
        """Return the client of a node, for commands without a key; `LookupError` if there is none."""
        try:
            return self._clients[name]
        except KeyError:
            raise LookupError(
                f"there is no node {name!r}; the nodes are {', '.join(self._clients)}"
            ) from None

    def each(self) -> dict[str, redis.Redis]:
        """Return the clients of all nodes, by name."""
        return dict(self._clients)

    def node_of(self, key: Any) -> str:
        """Return the name of the node that a key is on now."""
        return self.routes.node_of(key)

    def client_for(self, key: Any) -> redis.Redis:
        """Return the client of the node that a key is on now."""
        return self._clients[self.routes.node_of(key)]

    def keys_of(self, args: Sequence[Any]) -> list[Any]:
        """Return the keys of a command; the server is asked where its table cannot say them."""
        keys = self.routes.keys(args)
        if keys is None:
            up = next((name for name in self._clients if name not in self._health.down), self.names[0])
            (reply,) = exchange(self._clients, [Batch(up, [(("COMMAND", "GETKEYS", *args), {})], raw=True)])
            if isinstance(reply, Exception):
                raise reply
            keys = [] if isinstance(reply[0], ResponseError) else reply[0]
        return keys

    # --- commands ---

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Carry a command out where its keys are; every method of the client comes through here."""
        cell = self.calls.cell()
        cell.count += 1
        try:
            if args[0] in self.routes.table.single and len(args) > 1:
                return self._at(self.router.owner(key_of(args[1])), args, options)
            keys = self.keys_of(args)
            target = self.routes.target(args, keys)
            if isinstance(target, str):
                return self._at(target, args, options)
            return self._at_several(target, args, options)
        finally:
            cell.count += 1

    def _at(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        health = self._health
        if name in health.down:
            raise self._down_error(name)
        try:
            found = self._clients[name].execute_command(*args, **options)
        except FAILURES:
            self._failed(name)
            raise
        if health.failing:
            health.answered(name)
        return found

    def _at_several(self, parts: list[Part] | None, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        name = word(args[0]).upper()
        if parts is ALL:
            batches = [Batch(node, [(args, dict(options))]) for node in self._clients]
        else:
            batches = [Batch(part.node, [(part.args, dict(options))]) for part in parts]
        answers = []
        for reply in self._exchange(batches):
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply[0], Exception):
                raise reply[0]
            answers.append(reply[0])
        return EVERYWHERE[name](answers) if parts is ALL else merge((name, *args[1:]), parts, answers)

    def _exchange(self, batches: Sequence[Batch]) -> list[list[Any] | Exception]:
        for batch in batches:
            if batch.node in self._health.down:
                raise self._down_error(batch.node)
        replies = exchange(self._clients, batches)
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, FAILURES):
                self._failed(batch.node)
            elif self._health.failing:
                self._health.answered(batch.node)
        return replies

    def pipeline(self, transaction: bool = False, node: str | None = None) -> Any:
        """Return a pipeline over all nodes; with `transaction=True` a MULTI ... EXEC at one node."""
        return Transaction(self, node) if transaction else Pipeline(self)

    def transaction(
        self, func: Callable[[Any], Any], *watches: Any, value_from_callable: bool = False
    ) -> Any:
        """Carry out `func(pipeline)` as a transaction, again if a watched key changed; as in redis-py."""
        while True:
            with self.pipeline(transaction=True) as pipe:
                try:
                    if watches:
                        pipe.watch(*watches)
                    value = func(pipe)
                    answers = pipe.execute()
                except WatchError:
                    continue
                return value if value_from_callable else answers

    def execute_stack(self, stack: Any, *, raise_on_error: bool) -> list[Any]:
        """Send the commands of a pipeline, and return their answers in order."""
        cell = self.calls.cell()
        cell.count += 1
        try:
            batches, places = batches_of(self, stack)
            replies = self._exchange(batches)
            return answers_of(batches, replies, places, raise_on_error=raise_on_error)
        finally:
            cell.count += 1

    def transact(self, name: str | None, inner: Any, raise_on_error: bool) -> Any:
        """Carry out a transaction at a node."""
        cell = self.calls.cell()
        cell.count += 1
        try:
            return inner.execute(raise_on_error=raise_on_error)
        except FAILURES:
            if name is not None:
                self._failed(name)
            raise
        finally:
            cell.count += 1

    def scan_iter(
        self, match: Any = None, count: int | None = None, _type: str | None = None, **options: Any
    ) -> Iterator[Any]:
        """Iterate over the keys of all nodes, one after the other; a key may come twice, as with SCAN."""
        for client in list(self._clients.values()):
            yield from client.scan_iter(match=match, count=count, _type=_type, **options)

    def lock(self, name: str, *args: Any, **options: Any) -> Lock:
        """Return a lock at the node of its name; as in redis-py."""
        return Lock(self.client_for(name), name, *args, **options)

    def pubsub(self, **options: Any) -> PubSub:
        """Return a subscription over all nodes."""
        found = PubSub(self, **options)
        self._subscriptions.add(found)
        return found

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return next(iter(self._clients.values())).get_encoder()

    # --- health ---

    def _failed(self, name: str) -> None:
        if not self._health.failed(name):
            return
        if self._on_down == "next" and name not in self._suspect:
            self.router.mark_down(name)
            self._subscriptions_follow()
        with self._lock:
            if self._probing is None:
                self._probing = threading.Thread(target=self._probe, daemon=True, name="redis-ring-probe")
                self._probing.start()

    def _down_error(self, name: str) -> NodeDownError:
        return NodeDownError(f"the node {name!r} is down; it is looked at every {self._every:g} s")

    def _probe(self) -> None:
        """Look at the nodes that are down, until none is."""
        while not self._closed.wait(self._every):
            for name in sorted(self._health.down):
                try:
                    self._clients[name].ping()
                    self.revive(name)
                except (RedisError, OSError, KeyError):
                    continue  # the next look is soon
            for name in sorted(self._suspect - self._health.down):
                self._drop_copies(name)
            with self._lock:
                if not self._health.down and not self._suspect:
                    self._probing = None
                    return

    def revive(self, name: str) -> None:
        """Let a node that was down answer again; with `stale="drop"` it is emptied first."""
        if self._on_down == "next" and self._stale == "drop":
            drive(self._clients, emptied(name))
            with self._lock:
                self._suspect |= {name}
        self._health.revived(name)
        if self._on_down == "next":
            self.router.mark_up(name)
            self._subscriptions_follow()
            if self._stale == "drop":
                self._drop_copies(name)

    def _drop_copies(self, name: str) -> None:
        """Remove what others stored for a node while it was down: it is old when they answer again."""
        for other in self._clients:
            if other == name or other in self._health.down:
                continue
            try:
                drive(self._clients, sweep(other, partial(self._are_of, name)))
            except (RedisError, OSError):
                return  # tried again at the next look; until then nobody answers for the node
        with self._lock:
            self._suspect -= {name}

    def _are_of(self, name: str, keys: list[bytes]) -> list[bool]:
        return [owner == name for owner in self.router.owner_many(keys)]

    def _subscriptions_follow(self) -> None:
        for subscription in list(self._subscriptions):
            try:
                subscription.follow()
            except (RedisError, OSError):
                continue  # its node has just failed; the next change tries again

    # --- the rest ---

    def _client(self, node: Any) -> redis.Redis:
        return redis.Redis.from_url(node, **self.options) if isinstance(node, str) else node

    def _command_table(self) -> CommandTable:
        why: Exception | None = None
        for name in self._clients:
            (reply,) = exchange(self._clients, [Batch(name, [(("COMMAND",), {})], raw=True)])
            if not isinstance(reply, Exception) and not isinstance(reply[0], Exception):
                return CommandTable(reply[0])
            why = reply if isinstance(reply, Exception) else reply[0]
        raise NodeDownError(f"no node of the ring answers: {why}") from why

    def close(self) -> None:
        """Close every connection."""
        self._closed.set()
        for subscription in list(self._subscriptions):
            subscription.close()
        probing = self._probing
        if probing is not None and probing is not threading.current_thread():
            probing.join()
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        down = f", {len(self.down)} down" if self.down else ""
        return f"<{type(self).__name__} of {len(self._clients)} Redis nodes{down}: {self.router!r}>"

"""A ring of Redis servers with the methods of a redis-py client."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import redis
from redis.commands import CoreCommands
from redis.exceptions import RedisError, ResponseError, WatchError
from redis.lock import Lock

from ringhash.contrib.redis.base import COMMAND_TABLE, RingBase, table_of
from ringhash.contrib.redis.calls import Calls
from ringhash.contrib.redis.errors import MovingError
from ringhash.contrib.redis.exchange import FAILURES, Batch, exchange
from ringhash.contrib.redis.marks import Stopped
from ringhash.contrib.redis.mover import KeyMover
from ringhash.contrib.redis.moving import unmarked
from ringhash.contrib.redis.pipeline import Pipeline, Transaction
from ringhash.contrib.redis.pubsub import PubSub
from ringhash.contrib.redis.routes import key_of
from ringhash.contrib.redis.stack import Call, answers_of, raise_first
from ringhash.contrib.redis.sweep import drive, emptied, sweep
from ringhash.errors import HandoverError
from ringhash.handover import Handover, Status
from ringhash.plan import Plan

__all__ = ["Ring"]

_LOOK = 0.005  # seconds between two looks whether a piece has moved


class Ring(RingBase, CoreCommands):  # type: ignore[misc]
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

    Threads may share it. A call costs about a microsecond beside that of the client.

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
        self._options = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0} | options
        clients = {name: self._client(node) for name, node in nodes.items()}
        super().__init__(clients, router, on_down, stale, down_after, min_up, every)
        self._lock = threading.Lock()
        self._probing: threading.Thread | None = None
        self._closed = threading.Event()
        self._subscriptions: weakref.WeakSet[PubSub] = weakref.WeakSet()
        self.calls = Calls()
        self._learn(table_of(exchange(clients, [Batch(name, COMMAND_TABLE, raw=True) for name in clients])))

    def keys_of(self, args: Sequence[Any]) -> list[Any]:
        """Return the keys of a command; the server is asked where its table cannot say them."""
        keys = self.routes.keys(args)
        if keys is None:
            (reply,) = exchange(self._clients, self._asking(args))
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
            if args[0] in self.routes.table.single and len(args) > 1 and self.router.running is None:
                return self._at(self.router.owner(key_of(args[1])), args, options)
        finally:
            cell.count += 1
        call = Call(args, options, self.keys_of(args))
        (answer,) = self._counted(self._answers, [call])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _at(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        health = self._health
        if name in health.down:
            raise self._down_error(name)
        try:
            found = self._clients[name].execute_command(*args, **options)
        except FAILURES:
            if self._failed(name):
                self._went_down()
            raise
        if health.failing:
            health.answered(name)
        return found

    def _answers(self, calls: Sequence[Call]) -> list[Any]:
        stack = self._stack(calls)
        if len(calls) == 1 and len(stack.batches) == 1 and len(stack.batches[0].commands) == 1:
            batch = stack.batches[0]
            try:
                return [self._at(batch.node, *batch.commands[0])]
            except ResponseError as error:
                return [error]
        replies = exchange(self._clients, stack.batches)
        if self._heard(stack.batches, replies):
            self._went_down()
        return answers_of(stack, replies)

    def _counted(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work as a call that a mover waits for; again when a key of it has moved meanwhile."""
        while True:
            cell = self.calls.cell()
            cell.count += 1
            try:
                return work(*arguments)
            except Stopped as stopped:
                key = stopped.key
            finally:
                cell.count += 1
            self._wait_for(key)

    def _wait_for(self, key: Any) -> None:
        end = time.monotonic() + self.patience
        while self.marks.waits(key):
            if time.monotonic() > end:
                raise MovingError(
                    f"the key {key!r} is being moved, and it takes more than {self.patience:g} s"
                )
            time.sleep(_LOOK)

    patience = 5.0  # seconds that a write waits for its key to be moved

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

    def execute_stack(self, calls: Sequence[Call], *, raise_on_error: bool) -> list[Any]:
        """Send the commands of a pipeline, and return their answers in order."""
        answers: list[Any] = self._counted(self._answers, calls)
        if raise_on_error:
            raise_first(answers)
        return answers

    def transact(self, prepared: Callable[..., Any], calls: list[Call], raise_on_error: bool) -> list[Any]:
        """Carry out a transaction where its keys are."""
        found: list[Any] = self._counted(self._transacted, prepared, calls, raise_on_error)
        return found

    def _transacted(self, prepared: Callable[..., Any], calls: list[Call], raise_on_error: bool) -> list[Any]:
        written = [key for call in calls for key in self.marks.written(call.args, call.keys)]
        inner = prepared(calls, written)
        answers: list[Any] = inner.execute(raise_on_error=raise_on_error)
        return answers[1:] if written else answers

    def scan_iter(
        self, match: Any = None, count: int | None = None, _type: str | None = None, **options: Any
    ) -> Iterator[Any]:
        """Iterate over the keys of all nodes, one after the other; a key may come twice, as with SCAN."""
        for name, client in list(self._clients.items()):
            for key in client.scan_iter(match=match, count=count, _type=_type, **options):
                yield from self._kept(name, [key])

    def lock(self, name: str, *args: Any, **options: Any) -> Lock:
        """Return a lock at the node of its name; as in redis-py."""
        return Lock(self.client_for(name), name, *args, **options)

    def pubsub(self, **options: Any) -> PubSub:
        """Return a subscription over all nodes."""
        found = PubSub(self, **options)
        self._subscriptions.add(found)
        return found

    # --- health ---

    def _went_down(self) -> None:
        self._subscriptions_follow()
        with self._lock:
            if self._probing is None:
                self._probing = threading.Thread(target=self._probe, daemon=True, name="redis-ring-probe")
                self._probing.start()

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
        if self._drops:
            drive(self._clients, emptied(name))
            with self._lock:
                self._suspect |= {name}
        self._revived(name)
        self._subscriptions_follow()
        if self._drops:
            self._drop_copies(name)

    def _drop_copies(self, name: str) -> None:
        """Remove what others stored for a node while it was down: it is old when they answer again."""
        for other, doomed in self._copies_of(name).items():
            try:
                drive(self._clients, sweep(other, doomed))
            except (RedisError, OSError):
                return  # tried again at the next look; until then nobody answers for the node
        with self._lock:
            self._suspect -= {name}

    def _subscriptions_follow(self) -> None:
        for subscription in list(self._subscriptions):
            try:
                subscription.follow()
            except (RedisError, OSError):
                continue  # its node has just failed; the next change tries again

    # --- other nodes ---

    def plan(self, add: Mapping[str, Any] | Sequence[str] = (), remove: Sequence[str] = ()) -> Plan:
        """Return the exact moves that other nodes would bring, and change nothing; as `Router.plan`."""
        return self.router.plan(add=list(add), remove=list(remove))

    def change(
        self,
        add: Mapping[str, str | redis.Redis] | None = None,
        remove: Sequence[str] = (),
        *,
        settle: float = 0.0,
        **options: Any,
    ) -> Status:
        """Add and remove nodes, and move just the keys whose owner changes, while the ring is used.

        Each piece of the plan is copied with DUMP and RESTORE, with its time to live. Writes go on; what is
        written meanwhile is copied again before the new node answers. Then the old node is emptied of it.

        Args:
            add: The URL or the client of each new node, by name.
            remove: The names of the nodes to take out.
            settle: Seconds to wait before anything is copied: as long as other processes that use the same
                nodes may take to hear of the change (`Router.follow`).
            options: For the `Handover`: `journal`, `progress`, `on_epoch`, `timeout`, `parallel` and so on.

        Returns:
            The status of the handover, which is over.

        Raises:
            HandoverError: A piece could not be moved. Everything is where it was before.
            DuplicateNodeError, UnknownNodeError, NodeDownError: The change is not possible.
        """
        new = {name: self._client(node) for name, node in (add or {}).items()}
        plan = self._planned(new, remove)
        self._join(new)
        try:
            handover = Handover(self.router, plan, KeyMover(self, settle), **({"pause": 0.0} | options))
            status = handover.run()
            if not status.awaits_finish and not status.over:
                why = "; ".join(sorted({row.note for row in status.pieces if row.note}))
                handover.reverse()
                status = handover.run()
                raise HandoverError(f"the keys could not be moved, and all is as before: {why}")
            if status.awaits_finish:
                handover.finish()
                status = handover.run()
        finally:
            there = {node.name for node in self.router.nodes}
            for client in self._leave(set(self._clients) - there):
                client.close()
            self.marks.stopped = ()
            self._subscriptions_follow()
        self.calls.wait(self.patience)
        drive(self._clients, unmarked(self._clients))
        return status

    # --- the rest ---

    def _client(self, node: Any) -> Any:
        return redis.Redis.from_url(node, **self._options) if isinstance(node, str) else node

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

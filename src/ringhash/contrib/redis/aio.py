"""A ring of Redis servers with the methods of a client of redis.asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Self

import redis.asyncio
from redis.asyncio.lock import Lock
from redis.commands import AsyncCoreCommands
from redis.exceptions import RedisError, ResponseError, WatchError

from ringhash.contrib.redis.aio_mover import KeyMover
from ringhash.contrib.redis.aio_pubsub import PubSub
from ringhash.contrib.redis.base import COMMAND_TABLE, RingBase, table_of
from ringhash.contrib.redis.commands import word
from ringhash.contrib.redis.errors import MovingError, NoKeyError
from ringhash.contrib.redis.exchange import FAILURES, Batch, exchange_async
from ringhash.contrib.redis.marks import Stopped, marking
from ringhash.contrib.redis.moving import unmarked
from ringhash.contrib.redis.routes import key_of
from ringhash.contrib.redis.stack import Call, answers_of, raise_first
from ringhash.contrib.redis.sweep import drive_async, emptied, sweep
from ringhash.errors import HandoverError
from ringhash.handover import Handover, Status
from ringhash.plan import Plan

__all__ = ["Pipeline", "Ring", "Transaction"]

_LOOK = 0.005  # seconds between two looks whether a piece has moved


class Ring(RingBase, AsyncCoreCommands):  # type: ignore[misc]
    """As `ringhash.contrib.redis.Ring`, for asyncio: every method of the client is a coroutine.

    Arguments and errors as there; the clients are those of `redis.asyncio`. Use it as `async with Ring(...)`,
    or call `connect` before the first command and `aclose` after the last. One event loop may use it.
    """

    patience = 5.0  # seconds that a write waits for its key to be moved

    def __init__(
        self,
        nodes: Mapping[str, str | redis.asyncio.Redis],
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
        self._probing: asyncio.Task[None] | None = None
        self._subscriptions: weakref.WeakSet[PubSub] = weakref.WeakSet()
        self._under_way: dict[int, None] = {}
        self._calls = 0

    async def connect(self) -> None:
        """Read the table of commands from the nodes; `NodeDownError` if none answers."""
        batches = [Batch(name, COMMAND_TABLE, raw=True) for name in self._clients]
        self._learn(table_of(await exchange_async(self._clients, batches)))

    # --- commands ---

    async def keys_of(self, args: Sequence[Any]) -> list[Any]:
        """Return the keys of a command; the server is asked where its table cannot say them."""
        keys = self.routes.keys(args)
        if keys is None:
            (reply,) = await exchange_async(self._clients, self._asking(args))
            if isinstance(reply, Exception):
                raise reply
            keys = [] if isinstance(reply[0], ResponseError) else reply[0]
        return keys

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Carry a command out where its keys are; every method of the client comes through here."""
        if args[0] in self.routes.table.single and len(args) > 1 and self.router.running is None:
            with self._counting():
                return await self._at(self.router.owner(key_of(args[1])), args, options)
        call = Call(args, options, await self.keys_of(args))
        (answer,) = await self._counted(self._answers, [call])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _at(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        health = self._health
        if name in health.down:
            raise self._down_error(name)
        try:
            found = await self._clients[name].execute_command(*args, **options)
        except FAILURES:
            if self._failed(name):
                await self._went_down()
            raise
        if health.failing:
            health.answered(name)
        return found

    async def _answers(self, calls: Sequence[Call]) -> list[Any]:
        stack = self._stack(calls)
        replies = await exchange_async(self._clients, stack.batches)
        if self._heard(stack.batches, replies):
            await self._went_down()
        return answers_of(stack, replies)

    @contextlib.contextmanager
    def _counting(self) -> Generator[None, None, None]:
        number = self._calls = self._calls + 1
        self._under_way[number] = None
        try:
            yield
        finally:
            del self._under_way[number]

    async def wait_for_calls(self, patience: float) -> bool:
        """Wait until every call that is under way now is over; return whether they were in time."""
        before = set(self._under_way)
        try:
            async with asyncio.timeout(patience):
                while before & self._under_way.keys():
                    await asyncio.sleep(0.001)
        except TimeoutError:
            return False
        return True

    async def _counted(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Do some work as a call that a mover waits for; again when a key of it has moved meanwhile."""
        while True:
            try:
                with self._counting():
                    return await work(*arguments)
            except Stopped as stopped:
                key = stopped.key
            try:
                async with asyncio.timeout(self.patience):
                    while self.marks.waits(key):
                        await asyncio.sleep(_LOOK)
            except TimeoutError:
                raise MovingError(
                    f"the key {key!r} is being moved, and it takes more than {self.patience:g} s"
                ) from None

    def pipeline(self, transaction: bool = False, node: str | None = None) -> Any:
        """Return a pipeline over all nodes; with `transaction=True` a MULTI ... EXEC at one node."""
        return Transaction(self, node) if transaction else Pipeline(self)

    async def transaction(
        self, func: Callable[[Any], Any], *watches: Any, value_from_callable: bool = False
    ) -> Any:
        """Carry out `func(pipeline)` as a transaction, again if a watched key changed; as in redis-py."""
        while True:
            async with self.pipeline(transaction=True) as pipe:
                try:
                    if watches:
                        await pipe.watch(*watches)
                    value = func(pipe)
                    if isinstance(value, Awaitable):
                        value = await value
                    answers = await pipe.execute()
                except WatchError:
                    continue
                return value if value_from_callable else answers

    async def execute_stack(self, calls: Sequence[Call], *, raise_on_error: bool) -> list[Any]:
        """Send the commands of a pipeline, and return their answers in order."""
        answers: list[Any] = await self._counted(self._answers, calls)
        if raise_on_error:
            raise_first(answers)
        return answers

    async def transact(
        self, prepared: Callable[..., Awaitable[Any]], calls: list[Call], raise_on_error: bool
    ) -> Any:
        """Carry out a transaction where its keys are."""
        return await self._counted(self._transacted, prepared, calls, raise_on_error)

    async def _transacted(
        self, prepared: Callable[..., Awaitable[Any]], calls: list[Call], raise_on_error: bool
    ) -> list[Any]:
        written = [key for call in calls for key in self.marks.written(call.args, call.keys)]
        inner = await prepared(calls, written)
        answers: list[Any] = await inner.execute(raise_on_error=raise_on_error)
        return answers[1:] if written else answers

    async def scan_iter(
        self, match: Any = None, count: int | None = None, _type: str | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Iterate over the keys of all nodes, one after the other; a key may come twice, as with SCAN."""
        for name, client in list(self._clients.items()):
            async for key in client.scan_iter(match=match, count=count, _type=_type, **options):
                for kept in self._kept(name, [key]):
                    yield kept

    def lock(self, name: str, *args: Any, **options: Any) -> Lock:
        """Return a lock at the node of its name; as in redis-py."""
        return Lock(self.client_for(name), name, *args, **options)

    def pubsub(self, **options: Any) -> PubSub:
        """Return a subscription over all nodes."""
        found = PubSub(self, **options)
        self._subscriptions.add(found)
        return found

    # --- health ---

    async def _went_down(self) -> None:
        await self._subscriptions_follow()
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        """Look at the nodes that are down, until none is."""
        while self._health.down or self._suspect:
            await asyncio.sleep(self._every)
            for name in sorted(self._health.down):
                try:
                    await self._clients[name].ping()
                    await self.revive(name)
                except (RedisError, OSError, KeyError):
                    continue  # the next look is soon
            for name in sorted(self._suspect - self._health.down):
                await self._drop_copies(name)
        self._probing = None

    async def revive(self, name: str) -> None:
        """Let a node that was down answer again; with `stale="drop"` it is emptied first."""
        if self._drops:
            await drive_async(self._clients, emptied(name))
            self._suspect |= {name}
        self._revived(name)
        await self._subscriptions_follow()
        if self._drops:
            await self._drop_copies(name)

    async def _drop_copies(self, name: str) -> None:
        """Remove what others stored for a node while it was down: it is old when they answer again."""
        for other, doomed in self._copies_of(name).items():
            try:
                await drive_async(self._clients, sweep(other, doomed))
            except (RedisError, OSError):
                return  # tried again at the next look; until then nobody answers for the node
        self._suspect -= {name}

    async def _subscriptions_follow(self) -> None:
        for subscription in list(self._subscriptions):
            try:
                await subscription.follow()
            except (RedisError, OSError):
                continue  # its node has just failed; the next change tries again

    # --- other nodes ---

    def plan(self, add: Mapping[str, Any] | Sequence[str] = (), remove: Sequence[str] = ()) -> Plan:
        """Return the exact moves that other nodes would bring, and change nothing; as `Router.plan`."""
        return self.router.plan(add=list(add), remove=list(remove))

    async def change(
        self,
        add: Mapping[str, str | redis.asyncio.Redis] | None = None,
        remove: Sequence[str] = (),
        *,
        settle: float = 0.0,
        **options: Any,
    ) -> Status:
        """Add and remove nodes, and move just the keys whose owner changes; as the ring of threads."""
        new = {name: self._client(node) for name, node in (add or {}).items()}
        plan = self._planned(new, remove)
        self._join(new)
        try:
            handover = Handover(self.router, plan, KeyMover(self, settle), **({"pause": 0.0} | options))
            status = await handover.arun()
            if not status.awaits_finish and not status.over:
                why = "; ".join(sorted({row.note for row in status.pieces if row.note}))
                handover.reverse()
                await handover.arun()
                raise HandoverError(f"the keys could not be moved, and all is as before: {why}")
            if status.awaits_finish:
                handover.finish()
                status = await handover.arun()
        finally:
            there = {node.name for node in self.router.nodes}
            for client in self._leave(set(self._clients) - there):
                await client.aclose()
            self.marks.stopped = ()
            await self._subscriptions_follow()
        await self.wait_for_calls(self.patience)
        await drive_async(self._clients, unmarked(self._clients))
        return status

    # --- the rest ---

    def _client(self, node: Any) -> Any:
        return redis.asyncio.Redis.from_url(node, **self._options) if isinstance(node, str) else node

    async def aclose(self) -> None:
        """Close every connection."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        for subscription in list(self._subscriptions):
            await subscription.aclose()
        for client in self._clients.values():
            await client.aclose()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Pipeline(AsyncCoreCommands):  # type: ignore[misc]
    """As `ringhash.contrib.redis.Pipeline`: commands are put on a stack, and `execute` is a coroutine."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._stack: list[tuple[tuple[Any, ...], dict[str, Any], list[Any] | None]] = []

    def execute_command(self, *args: Any, **options: Any) -> Pipeline:
        """Put a command on the stack; errors of its keys are raised here, where the table can say them."""
        keys = self._ring.routes.keys(args)
        if keys is not None:
            self._ring.routes.target(args, keys)
        self._stack.append((args, options, keys))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send everything, and return the answers in order; errors as for the pipeline of threads."""
        stack, self._stack = self._stack, []
        calls = [
            Call(args, options, await self._ring.keys_of(args) if keys is None else keys)
            for args, options, keys in stack
        ]
        return await self._ring.execute_stack(calls, raise_on_error=raise_on_error) if calls else []

    async def reset(self) -> None:
        """Forget the commands on the stack."""
        self._stack = []

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return self._ring.get_encoder()

    def __len__(self) -> int:
        return len(self._stack)

    def __bool__(self) -> bool:
        return True  # as in redis-py: an empty pipeline is a pipeline

    def __await__(self) -> Generator[Any, None, Pipeline]:
        return self._itself().__await__()

    async def _itself(self) -> Pipeline:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reset()


class Transaction(AsyncCoreCommands):  # type: ignore[misc]
    """As `ringhash.contrib.redis.Transaction`, for asyncio."""

    def __init__(self, ring: Ring, node: str | None) -> None:
        self._ring = ring
        self._node = node
        self._inner: Any = None if node is None else ring.node(node).pipeline(transaction=True)
        self._seen: list[Call] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue a command, or carry it out while keys are watched; its keys must be on the node."""
        keys = self._ring.routes.keys(args)
        if keys is None:
            raise NoKeyError(
                f"only the server knows the keys of {word(args[0])}: use it outside of a transaction"
            )
        if self._inner is None and not keys:
            raise NoKeyError(f"{word(args[0])} has no key, and no key came before: name the node with node=")
        call = Call(args, options, keys)
        if keys:
            node = self._ring.routes.one_node([*self._seen, call], "a transaction")
            if self._node is None:
                self._node = node
                self._inner = self._ring.node(node).pipeline(transaction=True)
        self._seen.append(call)
        found = self._inner.execute_command(*args, **options)
        return self if found is self._inner else found

    async def watch(self, *names: Any) -> Any:
        """Watch keys: the transaction fails with `WatchError` if one changes before `execute`."""
        return await self.execute_command("WATCH", *names)

    def multi(self) -> None:
        """Begin to queue commands, after `watch`."""
        if self._inner is not None:
            self._inner.multi()

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Carry the transaction out; answers and errors as for `ringhash.contrib.redis.Transaction`."""
        seen, self._seen = self._seen, []
        if self._inner is None:
            return []
        found: list[Any] = await self._ring.transact(self._prepared, seen, raise_on_error)
        return found

    async def _prepared(self, seen: list[Call], written: list[Any]) -> Any:
        keyed = [call for call in seen if call.keys]
        node = self._ring.routes.one_node(keyed, "a transaction") if keyed else self._node
        if node is not None and node != self._node:
            watching = self._inner.watching
            await self._inner.reset()
            if watching:
                raise WatchError("the watched keys have moved to another node; begin the transaction again")
            self._node = node
            self._inner = self._ring.node(node).pipeline(transaction=True)
            for call in seen:
                self._inner.execute_command(*call.args, **call.options)
        if written:
            self._inner.command_stack.insert(0, marking(written))
        return self._inner

    async def reset(self) -> None:
        """Forget the commands, and end the watching."""
        self._seen = []
        if self._inner is not None:
            await self._inner.reset()

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return self._ring.get_encoder()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reset()

"""Pipelines over a ring: cut up by node, answered in the order of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from redis.commands import CoreCommands
from redis.exceptions import WatchError

from ringhash.contrib.redis.commands import word
from ringhash.contrib.redis.errors import NoKeyError
from ringhash.contrib.redis.marks import marking
from ringhash.contrib.redis.stack import Call

if TYPE_CHECKING:
    from ringhash.contrib.redis.ring import Ring

__all__ = ["Pipeline", "Transaction"]


class Pipeline(CoreCommands):  # type: ignore[misc]
    """Commands that are sent together: one round trip to each node, all at the same time.

    Answers come in the order of the commands. Two commands of one key are carried out in that order, on one
    connection. Commands of different nodes have no order, and there is no transaction.

    One thread may use it. Made by `Ring.pipeline`.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._stack: list[Call] = []

    def execute_command(self, *args: Any, **options: Any) -> Pipeline:
        """Put a command on the stack; errors of its keys are raised here, before anything is sent."""
        keys = self._ring.keys_of(args)
        self._ring.routes.target(args, keys)
        self._stack.append(Call(args, options, keys))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send everything, and return the answers in order.

        Args:
            raise_on_error: Raise the first error that a server answered. Without it, errors stand in their
                places.
        """
        stack, self._stack = self._stack, []
        return self._ring.execute_stack(stack, raise_on_error=raise_on_error) if stack else []

    def reset(self) -> None:
        """Forget the commands on the stack."""
        self._stack = []

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return self._ring.get_encoder()

    def __len__(self) -> int:
        return len(self._stack)

    def __bool__(self) -> bool:
        return True  # as in redis-py: an empty pipeline is a pipeline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()


class Transaction(CoreCommands):  # type: ignore[misc]
    """MULTI ... EXEC at one node: all keys, also the watched ones, must be there.

    The node follows from the first key, or is named with `Ring.pipeline(transaction=True, node=...)`. As in
    redis-py: after `watch`, commands are carried out at once until `multi`.
    """

    def __init__(self, ring: Ring, node: str | None) -> None:
        self._ring = ring
        self._node = node
        self._inner: Any = None if node is None else ring.node(node).pipeline(transaction=True)
        self._seen: list[Call] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue a command, or carry it out while keys are watched; its keys must be on the node."""
        call = Call(args, options, self._ring.keys_of(args))
        if self._inner is None and not call.keys:
            raise NoKeyError(f"{word(args[0])} has no key, and no key came before: name the node with node=")
        if call.keys:
            node = self._ring.routes.one_node([*self._seen, call], "a transaction")
            if self._node is None:
                self._node = node
                self._inner = self._ring.node(node).pipeline(transaction=True)
        self._seen.append(call)
        found = self._inner.execute_command(*args, **options)
        return self if found is self._inner else found

    def watch(self, *names: Any) -> Any:
        """Watch keys: the transaction fails with `WatchError` if one changes before `execute`."""
        return self.execute_command("WATCH", *names)

    def multi(self) -> None:
        """Begin to queue commands, after `watch`."""
        if self._inner is not None:
            self._inner.multi()

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Carry the transaction out, and return the answers in order.

        Raises:
            redis.exceptions.WatchError: A watched key has changed, or has moved to another node.
        """
        seen, self._seen = self._seen, []
        if self._inner is None:
            return []
        found: list[Any] = self._ring.transact(self._prepared, seen, raise_on_error)
        return found

    def _prepared(self, seen: list[Call], written: list[Any]) -> Any:
        """The transaction of the node's client, at the node where the keys are now."""
        keyed = [call for call in seen if call.keys]
        node = self._ring.routes.one_node(keyed, "a transaction") if keyed else self._node
        if node is not None and node != self._node:
            if self._inner.watching:
                self._inner.reset()
                raise WatchError("the watched keys have moved to another node; begin the transaction again")
            self._node = node
            self._inner.reset()
            self._inner = self._ring.node(node).pipeline(transaction=True)
            for call in seen:
                self._inner.execute_command(*call.args, **call.options)
        if written:
            self._inner.command_stack.insert(0, marking(written))
        return self._inner

    def reset(self) -> None:
        """Forget the commands, and end the watching."""
        self._seen = []
        if self._inner is not None:
            self._inner.reset()

    def get_encoder(self) -> Any:
        """The encoder of the first node's client."""
        return self._ring.get_encoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()

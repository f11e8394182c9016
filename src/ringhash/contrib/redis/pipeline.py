"""Pipelines over a ring: cut up by node, answered in the order of the commands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from redis.commands import CoreCommands
from redis.exceptions import ResponseError

from ringhash.contrib.redis.commands import word
from ringhash.contrib.redis.errors import NoKeyError
from ringhash.contrib.redis.exchange import Batch, Command
from ringhash.contrib.redis.routes import ALL
from ringhash.contrib.redis.split import EVERYWHERE, merge

if TYPE_CHECKING:
    from ringhash.contrib.redis.ring import Ring

__all__ = ["Pipeline", "Transaction", "answers_of", "batches_of"]

Place = tuple[int, int]  # the batch, and where in it


def batches_of(ring: Any, stack: Sequence[tuple[tuple[Any, ...], dict[str, Any], list[Any]]]) -> Any:
    """Return the batches of a stack of commands with their keys, and where the answers of each are.

    The commands of one node stay in their order, on one connection. Nothing is sent if one command cannot be
    routed.
    """
    nodes: dict[str, list[Command]] = {}
    places: list[tuple[list[tuple[str, int]], Any]] = []

    def put(node: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, int]:
        commands = nodes.setdefault(node, [])
        commands.append((args, options))
        return node, len(commands) - 1

    for args, options, keys in stack:
        target = ring.routes.target(args, keys)
        name = word(args[0]).upper()
        if target is ALL:
            places.append(([put(node, args, dict(options)) for node in ring.names], EVERYWHERE[name]))
        elif isinstance(target, str):
            places.append(([put(target, args, options)], None))
        else:
            where = [put(part.node, part.args, dict(options)) for part in target]
            places.append((where, partial(merge, (name, *args[1:]), target)))
    return [Batch(node, commands) for node, commands in nodes.items()], places


def answers_of(
    batches: Sequence[Batch], replies: Sequence[list[Any] | Exception], places: Any, *, raise_on_error: bool
) -> list[Any]:
    """Return the answers in the order of the commands; an error stands in its own place."""
    by_node = {batch.node: reply for batch, reply in zip(batches, replies, strict=True)}
    found: list[Any] = []
    for where, combine in places:
        answers = []
        for node, i in where:
            reply = by_node[node]
            answers.append(reply if isinstance(reply, Exception) else reply[i])
        wrong = next((one for one in answers if isinstance(one, Exception)), None)
        found.append(wrong if wrong is not None else answers[0] if combine is None else combine(answers))
    for one in found:
        if isinstance(one, Exception) and not isinstance(one, ResponseError):
            raise one
    if raise_on_error:
        for i, one in enumerate(found):
            if isinstance(one, ResponseError):
                one.args = (f"command {i + 1} of the pipeline: {one}",)
                raise one
    return found


class Pipeline(CoreCommands):  # type: ignore[misc]
    """Commands that are sent together: one round trip to each node, all at the same time.

    Answers come in the order of the commands. Two commands of one key are carried out in that order, on one
    connection. Commands of different nodes have no order, and there is no transaction.

    One thread may use it. Made by `Ring.pipeline`.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._stack: list[tuple[tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def execute_command(self, *args: Any, **options: Any) -> Pipeline:
        """Put a command on the stack; errors of its keys are raised here, before anything is sent."""
        keys = self._ring.keys_of(args)
        self._ring.routes.target(args, keys)
        self._stack.append((args, options, keys))
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
        self._seen: list[tuple[tuple[Any, ...], list[Any]]] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue a command, or carry it out while keys are watched; its keys must be on the node."""
        keys = self._ring.keys_of(args)
        if keys or self._inner is None:
            if not keys:
                raise NoKeyError(
                    f"{word(args[0])} has no key, and no key came before: name the node with node="
                )
            node = self._ring.routes.one_node([*self._seen, (args, keys)], "a transaction")
            if self._node is None:
                self._node = node
                self._inner = self._ring.node(node).pipeline(transaction=True)
            self._seen.append((args, keys))
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
        """Carry the transaction out, and return the answers in order."""
        self._seen = []
        if self._inner is None:
            return []
        found: list[Any] = self._ring.transact(self._node, self._inner, raise_on_error)
        return found

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

"""A stack of commands, cut up by node and put together again. No input or output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from ringhash.contrib.redis.commands import word
from ringhash.contrib.redis.exchange import Batch, Command
from ringhash.contrib.redis.marks import Marks, marking
from ringhash.contrib.redis.routes import ALL, Routes
from ringhash.contrib.redis.split import EVERYWHERE, merge

__all__ = ["Call", "Stack", "answers_of", "stacked"]


class Call(NamedTuple):
    """A command, the options of its answer, and its keys."""

    args: tuple[Any, ...]
    options: dict[str, Any]
    keys: Sequence[Any]


Places = tuple[list[tuple[int, int]], Callable[[list[Any]], Any] | None]


class Stack(NamedTuple):
    """What each node gets, and for each command where its answers are and how they become one."""

    batches: list[Batch]
    places: list[Places]


def stacked(routes: Routes, marks: Marks, names: Sequence[str], calls: Sequence[Call]) -> Stack:
    """Return what to send for some commands.

    The commands of one node stay in their order, on one connection. A write to a key that moves is marked
    before and after, in the same packet.

    Raises:
        CrossNodeError, NoKeyError: A command cannot be routed; nothing is sent then.
        Stopped: A key is written whose node has stopped taking writes of it.
    """
    nodes: dict[str, list[Command]] = {}
    batch_of: dict[str, int] = {}
    idle = marks.idle

    def put(
        node: str, args: tuple[Any, ...], options: dict[str, Any], keys: Sequence[Any]
    ) -> tuple[int, int]:
        mine = nodes.get(node)
        if mine is None:
            mine = nodes[node] = []
            batch_of[node] = len(batch_of)
        written = [] if idle else marks.written(args, keys)
        if written:
            mine.append(marking(written))
        mine.append((args, options))
        place = len(mine) - 1
        if written:
            mine.append(marking(written))
        return batch_of[node], place

    owners = routes.owners([key for call in calls for key in call.keys])  # of one moment, and much faster
    first = 0
    places: list[Places] = []
    for args, options, keys in calls:
        mine = owners[first : first + len(keys)]
        first += len(keys)
        target = mine[0] if len(mine) == 1 else routes.target(args, keys, mine)
        if isinstance(target, str):
            places.append(([put(target, args, options, keys)], None))
            continue
        name = word(args[0]).upper()
        if target is ALL:
            places.append(([put(node, args, dict(options), ()) for node in names], EVERYWHERE[name]))
        else:
            where = [
                put(part.node, part.args, dict(options), [keys[place] for place in part.places])
                for part in target
            ]
            places.append((where, partial(merge, (name, *args[1:]), target)))
    return Stack([Batch(node, commands) for node, commands in nodes.items()], places)


def answers_of(stack: Stack, replies: Sequence[list[Any] | Exception]) -> list[Any]:
    """Return the answers in the order of the commands; an error of the server stands in its own place.

    Raises:
        redis.exceptions.RedisError, OSError: A node gave no answers.
    """
    found: list[Any] = []
    for where, combine in stack.places:
        answers = []
        for batch, place in where:
            reply = replies[batch]
            if isinstance(reply, Exception):
                raise reply
            answers.append(reply[place])
        wrong = next((one for one in answers if isinstance(one, ResponseError)), None)
        found.append(wrong if wrong is not None else answers[0] if combine is None else combine(answers))
    return found


def raise_first(answers: Sequence[Any]) -> None:
    """Raise the first error among the answers of a pipeline, and say of which command it is."""
    for i, one in enumerate(answers):
        if isinstance(one, ResponseError):
            one.args = (f"command {i + 1} of the pipeline: {one}",)
            raise one

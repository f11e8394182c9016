"""Work on all keys of a node, as generators that yield what to send and are sent the answers.

So the same steps run with threads and with asyncio: `drive` and `drive_async` are all there is of input and
output.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

from ringhash.contrib.redis.exchange import Batch, exchange, exchange_async

__all__ = ["OURS", "Steps", "answered", "drive", "drive_async", "emptied", "pages", "sweep"]

T = TypeVar("T")
Steps = Generator[list[Batch], list[list[Any] | Exception], T]
Picks = Callable[[list[bytes]], Iterable[Any]]  # whether each of some keys is meant

OURS = b"ringhash:"  # keys that a ring keeps for itself on a node; they never move
COUNT = 1000


def drive(clients: Mapping[str, Any], steps: Steps[T]) -> T:
    """Run the steps with clients of redis."""
    try:
        batches = next(steps)
        while True:
            batches = steps.send(exchange(clients, batches))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def drive_async(clients: Mapping[str, Any], steps: Steps[T]) -> T:
    """Run the steps with clients of redis.asyncio."""
    try:
        batches = next(steps)
        while True:
            batches = steps.send(await exchange_async(clients, batches))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def answered(answers: list[Any] | Exception) -> list[Any]:
    """Return the answers of a batch, or raise the first error among them."""
    if isinstance(answers, Exception):
        raise answers
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def pages(node: str, wanted: Picks, work: Callable[[list[bytes]], Steps[Any]]) -> Steps[int]:
    """Do some work for each page of the keys of a node that are wanted; return how many keys there were.

    A page of SCAN may be empty, and a key may come twice: the end is the cursor 0 and nothing else.
    """
    cursor: Any = b"0"
    count = 0
    while True:
        (reply,) = yield [Batch(node, [(("SCAN", cursor, "COUNT", COUNT), {})], raw=True)]
        cursor, keys = answered(reply)[0]
        mine = [key for key in keys if not key.startswith(OURS)]
        found = [key for key, yes in zip(mine, wanted(mine), strict=True) if yes] if mine else []
        if found:
            count += len(found)
            yield from work(found)
        if int(cursor) == 0:
            return count


def sweep(node: str, doomed: Picks) -> Steps[int]:
    """Remove the keys of a node that are doomed; return how many there were."""

    def unlink(keys: list[bytes]) -> Steps[None]:
        (reply,) = yield [Batch(node, [(("UNLINK", *keys), {})], raw=True)]
        answered(reply)

    return (yield from pages(node, doomed, unlink))


def emptied(node: str) -> Steps[None]:
    """Remove every key of a node's database."""
    (reply,) = yield [Batch(node, [(("FLUSHDB",), {})], raw=True)]
    answered(reply)

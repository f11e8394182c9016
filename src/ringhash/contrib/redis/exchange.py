"""Several nodes asked at once: everything is written before anything is read, so the round trips overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis.client import NEVER_DECODE
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as TookTooLong

__all__ = ["FAILURES", "Batch", "Command", "exchange", "exchange_async"]

Command = tuple[tuple[Any, ...], dict[str, Any]]  # arguments, options of the answer
FAILURES = (NoConnection, TookTooLong, OSError)


class Batch(NamedTuple):
    """Commands for one node, answered in order.

    With `transaction` they are one MULTI ... EXEC. With `raw` the answers are bytes as the server sent them,
    and no callback of the client changes them.
    """

    node: str
    commands: Sequence[Command]
    transaction: bool = False
    raw: bool = False


def exchange(clients: Mapping[str, Any], batches: Sequence[Batch]) -> list[list[Any] | Exception]:
    """Send every batch to its node, then read all answers.

    Returns:
        For each batch its answers, an error of the server in its place among them; or the one exception
        because of which the node gave no answers. A broken connection is never used again.
    """
    found: list[list[Any] | Exception] = [[] for _ in batches]
    open_: list[tuple[int, Any, Any]] = []
    try:
        for i, batch in enumerate(batches):
            client = clients[batch.node]
            connection = None
            try:
                connection = client.connection_pool.get_connection()
                connection.send_packed_command(connection.pack_commands(_wire(batch)))
            except (RedisError, OSError) as error:
                found[i] = error
                _drop(client, connection)
            else:
                open_.append((i, client, connection))
        while open_:
            i, client, connection = open_[0]
            try:
                found[i] = _read(client, connection, batches[i])
            except (RedisError, OSError) as error:
                found[i] = error
                open_.pop(0)
                _drop(client, connection)
            else:
                open_.pop(0)
                client.connection_pool.release(connection)
    finally:
        for _, client, connection in open_:  # an interrupt: half of an answer may be on the way
            _drop(client, connection)
    return found


async def exchange_async(clients: Mapping[str, Any], batches: Sequence[Batch]) -> list[list[Any] | Exception]:
    """As `exchange`, with clients of redis.asyncio."""
    return list(await asyncio.gather(*(_one_async(clients[batch.node], batch) for batch in batches)))


async def _one_async(client: Any, batch: Batch) -> list[Any] | Exception:
    connection = None
    try:
        connection = await client.connection_pool.get_connection()
        await connection.send_packed_command(connection.pack_commands(_wire(batch)))
        found = await _read_async(client, connection, batch)
    except BaseException as error:
        if connection is not None:
            await connection.disconnect(nowait=True)
            await client.connection_pool.release(connection)
        if isinstance(error, (RedisError, OSError)):
            return error
        raise
    await client.connection_pool.release(connection)
    return found


def _drop(client: Any, connection: Any) -> None:
    if connection is not None:
        connection.disconnect()
        client.connection_pool.release(connection)


def _wire(batch: Batch) -> list[tuple[Any, ...]]:
    words = [args for args, _ in batch.commands]
    return [("MULTI",), *words, ("EXEC",)] if batch.transaction else words


def _read(client: Any, connection: Any, batch: Batch) -> list[Any]:
    if not batch.transaction:
        return [_answer(client, connection, batch.raw, *command) for command in batch.commands]
    queued = [_answer(client, connection, True, ("_",), {}) for _ in range(len(batch.commands) + 1)]
    answers = _answer(client, connection, batch.raw, ("_",), {})
    return _of_transaction(client, batch, queued, answers)


async def _read_async(client: Any, connection: Any, batch: Batch) -> list[Any]:
    if not batch.transaction:
        return [await _answer_async(client, connection, batch.raw, *command) for command in batch.commands]
    queued = [
        await _answer_async(client, connection, True, ("_",), {}) for _ in range(len(batch.commands) + 1)
    ]
    answers = await _answer_async(client, connection, batch.raw, ("_",), {})
    return _of_transaction(client, batch, queued, answers)


def _of_transaction(client: Any, batch: Batch, queued: list[Any], answers: Any) -> list[Any]:
    if isinstance(answers, Exception):  # EXECABORT: the first refusal says why
        raise next((one for one in queued if isinstance(one, Exception)), answers)
    if batch.raw:
        return list(answers)
    callbacks = client.response_callbacks
    return [
        callbacks[args[0]](one, **options) if args[0] in callbacks and not isinstance(one, Exception) else one
        for one, (args, options) in zip(answers, batch.commands, strict=True)
    ]


def _answer(client: Any, connection: Any, raw: bool, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        if raw:
            return client.parse_response(connection, "_", **{NEVER_DECODE: []})
        return client.parse_response(connection, args[0], **options)
    except ResponseError as error:
        return error


async def _answer_async(
    client: Any, connection: Any, raw: bool, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    try:
        if raw:
            return await client.parse_response(connection, "_", **{NEVER_DECODE: []})
        return await client.parse_response(connection, args[0], **options)
    except ResponseError as error:
        return error

"""Keys that move between servers while they are read and written: the steps, without input or output.

A copy is made while the old node still answers. Whatever is written meanwhile is marked in a set on the old
node, in the same transaction as the write; before the new node answers, the marked keys are copied again. So
the copy never has to be right while writes go on, only in the end:

    prepare   empty the piece on the new node, then SCAN the old one and copy: DUMP -> RESTORE (over no key)
    stop      writers wait; copy the marked keys again, over the first copy, or remove them
    start     the router names the new node, and writers go on there
    finish    what was marked after that, by a process that had not heard, is removed on both sides: a miss,
              never an old value; then the old node is emptied of the piece
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from ringhash.contrib.redis.exchange import FAILURES, Batch, Command
from ringhash.contrib.redis.marks import MARKED
from ringhash.contrib.redis.sweep import COUNT, Steps, answered, pages, sweep
from ringhash.handover.pieces import Piece

__all__ = ["copy_marked", "copy_piece", "drop_late", "forget", "unmarked"]

_NO_EXPIRY, _GONE = -1, -2


def copy_piece(piece: Piece, *, absolute: bool) -> Steps[int]:
    """Copy the keys of a piece to its target; return how many were looked at.

    Args:
        piece: Which keys, from where to where.
        absolute: Whether the servers know absolute times of expiry (Redis 7).

    What the target has of the piece from before is removed first, unless the call is a repetition: it has
    never been the owner, so it is old.
    """
    if not piece.repeat:
        yield from sweep(_target(piece), piece.mask)
    copy = partial(_copy, piece, absolute=absolute, replace=False)
    return (yield from pages(_source(piece), piece.mask, copy))


def copy_marked(piece: Piece, *, absolute: bool) -> Steps[int]:
    """Copy the marked keys of a piece again until none is marked; return how many there were."""
    return (yield from _each_marked(piece, partial(_copy, piece, absolute=absolute, replace=True)))


def drop_late(piece: Piece) -> Steps[int]:
    """Remove from both nodes what was written on the old one too late, then the piece from the old one."""

    def drop(keys: list[bytes]) -> Steps[None]:
        words: Command = (("UNLINK", *keys), {})
        replies = yield [Batch(_target(piece), [words], raw=True), Batch(_source(piece), [words], raw=True)]
        for reply in replies:
            answered(reply)

    yield from _each_marked(piece, drop)
    return (yield from sweep(_source(piece), piece.mask))


def forget(piece: Piece) -> Steps[None]:
    """Undo the preparation of a piece: its copies go, and its marks.

    A target that does not answer keeps its copies. The next preparation takes them away first.
    """
    yield from _each_marked(piece, _nothing)
    try:
        yield from sweep(_target(piece), piece.mask)
    except FAILURES:
        return


def unmarked(nodes: Iterable[str]) -> Steps[None]:
    """Remove the marks of all nodes, once no handover runs: new owners mark too, for the way back."""
    replies = yield [Batch(node, [(("UNLINK", MARKED), {})], raw=True) for node in nodes]
    for reply in replies:
        answered(reply)


def _nothing(_: list[bytes]) -> Steps[None]:
    return
    yield


def _each_marked(piece: Piece, work: Any) -> Steps[int]:
    """Do some work for the marked keys of a piece, and take their marks away, until there are none."""
    total = 0
    while True:
        cursor: Any = b"0"
        found = 0
        while True:
            scan: Command = (("SSCAN", MARKED, cursor, "COUNT", COUNT), {})
            (reply,) = yield [Batch(_source(piece), [scan], raw=True)]
            cursor, marked = answered(reply)[0]
            keys = (
                [key for key, mine in zip(marked, piece.mask(marked), strict=True) if mine] if marked else []
            )
            if keys:
                found += len(keys)
                # The mark goes first: a write during the work marks the key anew.
                (reply,) = yield [Batch(_source(piece), [(("SREM", MARKED, *keys), {})], raw=True)]
                answered(reply)
                yield from work(keys)
            if int(cursor) == 0:
                break
        total += found
        if not found:
            return total


def _copy(piece: Piece, keys: list[bytes], *, absolute: bool, replace: bool) -> Steps[None]:
    expiry = "PEXPIRETIME" if absolute else "PTTL"
    look: list[Command] = []
    for key in keys:
        look += [(("DUMP", key), {}), ((expiry, key), {})]
    (reply,) = yield [Batch(_source(piece), look, transaction=True, raw=True)]
    answers = answered(reply)
    commands: list[Command] = []
    for key, dump, until in zip(keys, answers[::2], answers[1::2], strict=True):
        if dump is None or until == _GONE:
            if replace:
                commands.append((("UNLINK", key), {}))
            continue
        words: list[Any] = ["RESTORE", key, 0 if until == _NO_EXPIRY else max(1, until), dump]
        words += ["REPLACE"] if replace else []
        words += ["ABSTTL"] if absolute and until != _NO_EXPIRY else []
        commands.append((tuple(words), {}))
    if not commands:
        return
    (reply,) = yield [Batch(_target(piece), commands, raw=True)]
    if isinstance(reply, Exception):
        raise reply
    for answer in reply:
        there_already = isinstance(answer, ResponseError) and "BUSYKEY" in str(answer) and not replace
        if isinstance(answer, Exception) and not there_already:
            raise answer


def _source(piece: Piece) -> str:
    if piece.source is None:
        raise ValueError("nobody gives this piece away, so there is nothing to copy")
    return piece.source


def _target(piece: Piece) -> str:
    if piece.target is None:
        raise ValueError("nobody takes this piece: a ring of Redis nodes cannot lose its last node")
    return piece.target

"""Which arguments of a Redis command are keys: read from the server's own `COMMAND` table.

The table says for each command where its keys begin and how many there are. A list kept here would be wrong
with the next release or the next module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringhash.contrib.redis.errors import UnknownCommandError

__all__ = ["CommandTable", "KeySpec", "word"]


class KeySpec(NamedTuple):
    """Where some keys of a command begin, and how many there are; see the `COMMAND` page of Redis.

    `begin` is an index, or the keyword that stands before the first key, searched from `start`. With
    `count_at`, the number of keys is an argument; else the keys go to `last`, or to a `limit`-th of the rest.
    """

    begin: int | str
    start: int
    first: int
    last: int
    step: int
    limit: int
    count_at: int | None

    def indexes(self, words: Sequence[Any]) -> Iterator[int]:
        """Yield the indexes of the keys among the words of a command."""
        begin = self.begin if isinstance(self.begin, int) else self._after_keyword(words, self.begin)
        if begin is None or begin >= len(words):
            return
        first = begin + self.first
        if self.count_at is not None:
            count = _number(words[begin + self.count_at])
            yield from range(first, first + count * self.step, self.step)
            return
        if self.last >= 0:
            last = begin + self.last
        elif self.limit >= 2:
            last = begin + (len(words) - begin) // self.limit - 1
        else:
            last = len(words) + self.last
        yield from range(first, last + 1, self.step)

    def _after_keyword(self, words: Sequence[Any], keyword: str) -> int | None:
        backwards = self.start < 0
        where = range(len(words) + self.start, 0, -1) if backwards else range(self.start, len(words))
        return next((i + 1 for i in where if word(words[i]).upper() == keyword), None)


class _Command(NamedTuple):
    specs: tuple[KeySpec, ...]
    movable: bool  # the table cannot say where all keys are: only the server can
    readonly: bool
    subcommands: Mapping[str, Any]


class CommandTable:
    """The commands of a server. Immutable, so threads may share it.

    Args:
        reply: What `COMMAND` answered, undecoded, by either version of the protocol.

    `single` has the commands whose only key is their first argument: the fast path of nearly every call.
    """

    def __init__(self, reply: Iterable[Any]) -> None:
        self._commands = dict(map(_read, reply))
        self.single = frozenset(
            spelling
            for name, command in self._commands.items()
            if not command.movable and not command.subcommands and _is_single(command.specs)
            for spelling in (name, name.upper())
        )
        self.readonly = frozenset(
            spelling
            for name, command in self._commands.items()
            if command.readonly
            for spelling in (name, name.upper())
        )

    def key_indexes(self, args: Sequence[Any]) -> list[int] | None:
        """Return the indexes in `args` of the keys; None where only the server can say it.

        Raises:
            UnknownCommandError: The server has no such command.
        """
        words, shift = _words(args)
        command = self._command(words)
        if command.movable:
            return None
        found = [i - shift for spec in command.specs for i in spec.indexes(words)]
        return [i for i in found if i < len(args)]

    def is_readonly(self, args: Sequence[Any]) -> bool:
        """Whether a command only reads. A script may write, so it does not."""
        return args[0] in self.readonly or self._command(_words(args)[0]).readonly

    def _command(self, words: Sequence[Any]) -> _Command:
        name = word(words[0]).lower()
        command = self._commands.get(name)
        if command is None:
            raise UnknownCommandError(f"the server has no command {word(words[0])!r}")
        if command.subcommands and len(words) > 1:
            found: _Command = command.subcommands.get(f"{name}|{word(words[1]).lower()}", command)
            return found
        return command


def word(value: Any) -> str:
    """Return an argument of a command as text."""
    return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)


def _words(args: Sequence[Any]) -> tuple[Sequence[Any], int]:
    """The words of a command, and how many more they are: redis-py writes `CONFIG GET` as one."""
    name = args[0]
    if isinstance(name, str) and " " in name:
        words = name.split()
        return [*words, *args[1:]], len(words) - 1
    return args, 0


def _number(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0  # the server will refuse it


def _is_single(specs: Sequence[KeySpec]) -> bool:
    return len(specs) == 1 and specs[0].begin == 1 and specs[0].count_at is None and specs[0].last == 0


def _read(row: Sequence[Any]) -> tuple[str, _Command]:
    name, _, flags, first, last, step = row[:6]
    marks = {word(flag).lower() for flag in flags}
    raw = row[8] if len(row) > 8 else None
    specs: list[KeySpec] = []
    movable = "movablekeys" in marks
    if raw is None:  # before Redis 7: only the first key, the last and the step
        if first:
            specs = [KeySpec(first, 0, 0, last - first if last >= 0 else last, step, 0, None)]
    else:
        movable = False
        for spec in map(_mapping, raw):
            notes = {word(flag).lower() for flag in spec.get("flags", ())}
            read = _spec(spec)
            if read is None or "incomplete" in notes:
                movable = True
            else:
                specs.append(read)
    subcommands = dict(map(_read, row[9])) if len(row) > 9 and row[9] else {}
    return word(name).lower(), _Command(tuple(specs), movable, "readonly" in marks, subcommands)


def _spec(spec: Mapping[str, Any]) -> KeySpec | None:
    begin, find = _mapping(spec["begin_search"]), _mapping(spec["find_keys"])
    at, keys = _mapping(begin.get("spec", ())), _mapping(find.get("spec", ()))
    kinds = word(begin["type"]), word(find["type"])
    if kinds[0] not in ("index", "keyword") or kinds[1] not in ("range", "keynum"):
        return None
    where = at["index"] if kinds[0] == "index" else word(at["keyword"]).upper()
    start = at.get("startfrom", 0)
    if kinds[1] == "keynum":
        return KeySpec(where, start, keys["firstkey"], 0, keys["keystep"], 0, keys["keynumidx"])
    return KeySpec(where, start, 0, keys["lastkey"], keys["keystep"], keys["limit"], None)


def _mapping(value: Any) -> dict[str, Any]:
    """A map of the newer protocol, or the flat list of the older one."""
    pairs = value.items() if isinstance(value, Mapping) else zip(value[::2], value[1::2], strict=True)
    return {word(key): item for key, item in pairs}

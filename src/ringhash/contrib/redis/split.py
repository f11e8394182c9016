"""Commands that are answered by several nodes: how to cut them up, and how to put the answers together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["EVERYWHERE", "SPLIT", "Part", "merge", "split"]


class Part(NamedTuple):
    """What one node gets of a command: its arguments, and the places of its keys among all."""

    node: str
    args: tuple[Any, ...]
    places: tuple[int, ...]


# name -> arguments for each key. Splitting loses atomicity: MSET may be seen half done.
SPLIT = {"MGET": 1, "MSET": 2, "DEL": 1, "UNLINK": 1, "EXISTS": 1, "TOUCH": 1}


def split(args: Sequence[Any], owners: Sequence[str]) -> list[Part]:
    """Return the parts of a command of `SPLIT` whose keys have these owners, each node once."""
    width = SPLIT[args[0]]
    places: dict[str, list[int]] = {}
    for place, owner in enumerate(owners):
        places.setdefault(owner, []).append(place)
    parts = []
    for node, mine in places.items():
        if width == 1:
            words = [args[place + 1] for place in mine]
        else:
            words = [args[at] for place in mine for at in (2 * place + 1, 2 * place + 2)]
        parts.append(Part(node, (args[0], *words), tuple(mine)))
    return parts


def merge(args: Sequence[Any], parts: Sequence[Part], answers: Sequence[Any]) -> Any:
    """Return the answer of the whole command, from those of its parts in the same order."""
    if args[0] == "MGET":
        values: list[Any] = [None] * sum(len(part.places) for part in parts)
        for part, answer in zip(parts, answers, strict=True):
            for place, value in zip(part.places, answer, strict=True):
                values[place] = value
        return values
    return all(answers) if args[0] == "MSET" else sum(answers)


def _every_one(answers: Sequence[Any]) -> list[bool]:
    return [all(column) for column in zip(*answers, strict=True)]


def _together(answers: Sequence[Any]) -> list[Any]:
    return [item for answer in answers for item in answer]


# Commands without a key that have one obvious meaning over a ring: asked of every node, answered as one.
EVERYWHERE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "PING": all,
    "DBSIZE": sum,
    "FLUSHALL": all,
    "FLUSHDB": all,
    "KEYS": _together,
    "SCRIPT LOAD": lambda answers: answers[0],
    "SCRIPT EXISTS": _every_one,
    "SCRIPT FLUSH": all,
    "FUNCTION LOAD": lambda answers: answers[0],
}

"""The fence, model-checked: every interleaving of writers, a reader and a mover that may crash after each statement.

One key, two databases. A writer comes with a router of any age, asks the fence in its transaction and commits later.
The mover prepares, closes, drains, copies, sends on, opens, as `RowSwitch` does; after a crash it repeats the call it
was in, or undoes it; at the end it may go back. Two things must hold whatever happens: a reader that is let in sees
every write that was acknowledged before it began, and at the end all of them are where the key is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

A, B = 0, 1
# The calls of a mover on a piece, as single statements: (what, side) with 0 for the source and 1 for the target.
# A call ends with a line in the journal: a crash before it has the call made again.
JOURNAL = ("journal", 0)
PREPARE = (("gone", 1), JOURNAL)
STOP = (("gone", 1), ("moving", 0), ("drain", 0), ("copy", 0), ("gone", 0), JOURNAL)
START = (("here", 1), JOURNAL)
UNDO = (("gone", 1), ("here", 0), JOURNAL)
CALLS = {"prepare": PREPARE, "stop": STOP, "start": START, "undo": UNDO}
NEXT = {"prepare": "stop", "stop": "start", "start": "flip"}


class Rules(NamedTuple):
    """What is guarded; a control takes one guard away."""

    fenced: bool = True
    drained: bool = True
    closed_target: bool = True
    copies: bool = True


class World(NamedTuple):
    fence: tuple[str, str] = ("here", "here")
    data: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    writers: tuple[str, ...] = ("new", "new", "new")  # "open A", "open B", "done"
    acknowledged: frozenset[int] = frozenset()
    source: int = A  # the side that the present direction comes from
    call: str = "prepare"
    step: int = 0
    owner: int = A  # what a router that is up to date says
    crashes: int = 2
    reversals: int = 1


def replaced(pair: tuple, side: int, value: object) -> tuple:
    return (value, pair[1]) if side == A else (pair[0], value)


def routes(world: World) -> set[int]:
    """Where a client may come to: any owner there has been, and where a fence sends it."""
    found = {A, world.owner}
    if world.fence[A] == "gone":
        found.add(B)
    return found


def steps(world: World, rules: Rules) -> Iterator[World]:
    for number, state in enumerate(world.writers):
        if state == "new":
            for side in routes(world):
                if world.fence[side] == "here" or not rules.fenced:
                    yield world._replace(writers=put(world.writers, number, f"open {'AB'[side]}"))
        elif state.startswith("open"):
            side = "AB".index(state[-1])
            yield world._replace(
                writers=put(world.writers, number, "done"),
                data=replaced(world.data, side, world.data[side] | {number}),
                acknowledged=world.acknowledged | {number},
            )
    yield from mover(world, rules)


def put(writers: tuple[str, ...], number: int, state: str) -> tuple[str, ...]:
    return (*writers[:number], state, *writers[number + 1 :])


def mover(world: World, rules: Rules) -> Iterator[World]:
    if world.call in ("over", "undone"):
        return
    if world.call == "flip":
        target = 1 - world.source
        yield world._replace(call="over", owner=target)
        if world.reversals:  # back, before anybody has thrown anything away
            yield world._replace(owner=target, source=target, call="stop", step=0, reversals=0)
        return
    statements = CALLS[world.call]
    if world.crashes:
        if world.step:  # the call is made again
            yield world._replace(step=0, crashes=world.crashes - 1)
        if world.call in ("prepare", "stop"):
            yield world._replace(call="undo", step=0, crashes=world.crashes - 1)
    what, relative = statements[world.step]
    side = world.source if relative == 0 else 1 - world.source
    after = world
    if what == "drain":
        if rules.drained and f"open {'AB'[side]}" in world.writers:
            return
    elif what == "copy":
        if rules.copies:
            after = world._replace(data=replaced(world.data, 1 - side, world.data[side]))
    elif what == "journal":
        pass
    elif rules.closed_target or not (world.call in ("prepare", "stop") and relative == 1):
        after = world._replace(fence=replaced(world.fence, side, what))
    if world.step + 1 < len(statements):
        yield after._replace(step=world.step + 1)
    else:
        yield after._replace(call="undone" if world.call == "undo" else NEXT[world.call], step=0)


def readers_let_in(world: World, rules: Rules) -> Iterator[int]:
    for side in routes(world):
        if not rules.fenced or world.fence[side] in ("here", "moving"):
            yield side


def fault(world: World, rules: Rules) -> set[str]:
    found = {
        f"a reader of {'AB'[side]} misses a write"
        for side in readers_let_in(world, rules)
        if not world.acknowledged <= world.data[side]
    }
    if world.call in ("over", "undone") and not any(state.startswith("open") for state in world.writers):
        home = world.owner if world.call == "over" else world.source
        if not world.acknowledged <= world.data[home]:
            found.add("a write is lost")
        if world.fence[home] != "here":
            found.add("the key stays closed")
    return found


def explore(rules: Rules) -> tuple[int, set[str]]:
    """How many worlds there are, and the faults of all of them."""
    seen = {World()}
    todo = [World()]
    faults = set()
    while todo:
        world = todo.pop()
        faults |= fault(world, rules)
        for after in steps(world, rules):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), faults


def test_no_write_is_lost_and_no_reader_misses_one() -> None:
    count, found = explore(Rules())
    assert found == set()
    assert count > 4_000


@pytest.mark.parametrize(
    ("rules", "finds"),
    [
        (Rules(fenced=False), "misses a write"),
        (Rules(fenced=False), "is lost"),
        (Rules(drained=False), "misses a write"),
        (Rules(drained=False), "is lost"),
        (Rules(closed_target=False), "is lost"),
        (Rules(copies=False), "is lost"),
    ],
)
def test_without_a_guard_the_model_finds_the_fault(rules: Rules, finds: str) -> None:
    assert any(finds in found for found in explore(rules)[1])

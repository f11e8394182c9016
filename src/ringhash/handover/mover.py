"""What carries a piece from node to node: one object, or functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from ringhash.handover.pieces import Piece

__all__ = ["Callback", "Mover", "functions_of"]

Callback: TypeAlias = Callable[[Piece], object]

_NEEDED = ("stop", "start")
_OPTIONAL = ("prepare", "hold", "undo", "finish", "cancel")


class Mover(Protocol):
    """The calls that a handover makes, as methods of one object. `stop` and `start` must be there.

    A mover may also have these, each called with a `Piece` as the two are:

    - `prepare(piece)`: `piece.target` gets what it needs, a copy or a warm cache. Nothing has been
      given away. After a crash it is called again, with `piece.repeat`: go on where it was.
    - `hold(piece)`: the piece waits for its turn, or for `go`: catch up once more. It is called again
      and again. A piece is not cut over until the last one succeeds.
    - `undo(piece)`: a preparation or a stop failed: `piece.source` keeps the piece, takes
      work again if it had stopped, and what was prepared may go. Without it, `start` is called with
      the piece reversed after a stop, and nothing after a preparation.
    - `finish(piece)`: there is no way back any more: `piece.source` may drop what it still has of the piece.
    - `cancel(piece)`: the call of that `piece.token` is not waited for any more; let it return.

    Each method may be a function or a coroutine function. Returning confirms it; raising, or returning
    False, means it failed.
    """

    def stop(self, piece: Piece, /) -> object:
        """`piece.source` takes no new work of it and finishes what it holds."""

    def start(self, piece: Piece, /) -> object:
        """`piece.target` takes work."""


def functions_of(mover: Mover | None, given: Mapping[str, Callback | None]) -> dict[str, Callback]:
    """Return the calls that there are, by name, of a mover or of single functions.

    Raises:
        TypeError: There is a mover and functions beside it; or `stop` or `start` is missing; or one
            of them cannot be called.
    """
    functions = {name: function for name, function in given.items() if function is not None}
    if mover is not None:
        if functions:
            raise TypeError(f"give a mover or functions, not both: there is also {next(iter(functions))}")
        names = (*_NEEDED, *_OPTIONAL)
        functions = {name: getattr(mover, name) for name in names if getattr(mover, name, None) is not None}
    for name in _NEEDED:
        if name not in functions:
            raise TypeError(f"a handover needs {name}: give a mover that has it, or {name}=")
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function of a piece, not {type(function).__name__}")
    return functions

"""What a resharding has written down in the databases: who carries, which pieces, and how far each copy is.

Everything is in `ringhash_registry`, beside what the fleet keeps there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ringhash.databases import Transaction
from ringhash.errors import ReshardError
from ringhash.fleet.fence import REGISTRY
from ringhash.handover import Piece

__all__ = [
    "check_token",
    "forget_piece",
    "note_piece",
    "noted_pieces",
    "progress_of",
    "set_progress",
    "take_over",
]

_TOKEN = "carrier"  # noqa: S105  a name


def _put(tx: Transaction, name: str, value: str) -> None:
    tx.execute(
        "INSERT INTO ringhash_registry (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )


def _get(tx: Transaction, name: str, lock: str = "") -> str | None:
    found = tx.execute(f"SELECT value FROM ringhash_registry WHERE name = ?{lock}", [name]).fetchone()
    return None if found is None else str(found[0])


def take_over(tx: Transaction, token: str) -> None:
    """Become the carrier of a database: whoever was it before writes nothing more."""
    tx.execute(REGISTRY)
    _put(tx, _TOKEN, token)


def check_token(tx: Transaction, token: str) -> None:
    """Return if this is the carrier, and keep others from taking over until the transaction ends.

    Raises:
        ReshardError: Another process has taken over.
    """
    if _get(tx, _TOKEN, " FOR SHARE" if tx.dialect == "postgresql" else "") != token:
        raise ReshardError("another process goes on with this resharding; this one has ended")


def _piece_name(piece: Piece) -> str:
    return f"piece {piece.number}{' back' if piece.back else ''}"


def note_piece(tx: Transaction, piece: Piece) -> None:
    """Write down that changes of a piece are to be carried to its target from here."""
    _put(tx, _piece_name(piece), json.dumps(piece.to_dict()))


def noted_pieces(tx: Transaction) -> list[Piece]:
    """Return the pieces whose changes are carried from here."""
    found = tx.execute("SELECT value FROM ringhash_registry WHERE name LIKE 'piece %' ORDER BY name")
    return [Piece.from_dict(json.loads(value)) for (value,) in found]


def forget_piece(tx: Transaction, piece: Piece) -> None:
    """Take back what `note_piece` wrote."""
    tx.execute("DELETE FROM ringhash_registry WHERE name = ?", [_piece_name(piece)])


def _copy_name(piece: Piece, table: str) -> str:
    return f"copy {piece.number} {table}"


def progress_of(tx: Transaction, piece: Piece, table: str) -> Any:
    """Return how far the copy of a table is: a primary key, "done", or None."""
    found = _get(tx, _copy_name(piece, table))
    return None if found is None else json.loads(found)


def set_progress(tx: Transaction, piece: Piece, table: str, value: Sequence[Any] | str | None) -> None:
    """Write how far the copy is, in the transaction of the rows."""
    if value is None:
        tx.execute("DELETE FROM ringhash_registry WHERE name = ?", [_copy_name(piece, table)])
    else:
        _put(tx, _copy_name(piece, table), json.dumps(value))

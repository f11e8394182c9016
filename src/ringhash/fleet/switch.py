"""Taking keys from one database to another: the fences of a piece, and its rows while they are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from ringhash.databases import Transaction
from ringhash.errors import FenceError
from ringhash.fleet.addresses import Fenced, address_of_key, addresses_of, fenced_by, key_of_address
from ringhash.fleet.columns import column_condition, has_column
from ringhash.fleet.fence import FenceRow, State, drain, drop_keys, read_fence, set_fence, set_keys
from ringhash.fleet.fleet import Fleet
from ringhash.fleet.rows import Column, columns_of, delete_rows, read_rows, write_rows
from ringhash.fleet.tables import Table
from ringhash.handover import Piece
from ringhash.placement import Layered, Placement
from ringhash.placements.entry_space import EntrySpace

__all__ = ["RowSwitch", "Switch"]

_MOST_RANGES = 1000  # in one statement


class Switch:
    """Moves the fences of each piece; a `Mover` for `Handover`.

    `prepare` closes the target, so nobody writes there early. `stop` closes the source, waits until its
    writers are through, and has the rows copied. `start` opens the target. `undo` opens the source again.
    What is between is the fleet's to wait
    for: writers of other keys are never held up.

    Args:
        fleet: Whose databases.
        copy: Called with a piece between the two; it must be idempotent, and raise if it fails. None: there
            is nothing to copy, as with databases that share their storage.
        timeout: For how many seconds to wait for writers of the source.

    >>> Switch.__mro__[1] is object
    True
    """

    def __init__(
        self, fleet: Fleet, copy: Callable[[Piece], object] | None = None, *, timeout: float = 30.0
    ) -> None:
        self.fleet = fleet
        self._copy = copy
        self._timeout = timeout

    def prepare(self, piece: Piece) -> None:
        """Close the target: its keys are at the source still."""
        self._set(piece.target, piece, "gone", piece.source)

    def stop(self, piece: Piece) -> None:
        """Close the source, wait for its writers, copy, and send everybody on to the target.

        Raises:
            DrainTimeoutError: A transaction of the source did not end in time. `undo` opens the source again.
        """
        if piece.source is None:
            return
        self._set(piece.target, piece, "gone", piece.source)
        self._set(piece.source, piece, "moving", piece.target)
        drain(self.fleet.database(piece.source), self._timeout)
        if self._copy is not None and piece.target is not None:
            self._copy(piece)
        self._set(piece.source, piece, "gone", piece.target)

    def start(self, piece: Piece) -> None:
        """Open the target."""
        self._open(piece.target, piece)

    def undo(self, piece: Piece) -> None:
        """Open the source again, and close the target."""
        self._set(piece.target, piece, "gone", piece.source)
        self._open(piece.source, piece)

    def _set(self, node: str | None, piece: Piece, state: State, owner: str | None) -> None:
        if node is None or owner is None:
            return  # nobody to close, or nobody to send anybody to
        fenced = fenced_by(piece.space, piece.ranges)
        epoch = self.fleet.router.epoch
        kept = self._kept(node, piece, fenced)
        with self.fleet.database(node).transaction(write=True) as tx:
            set_keys(tx, kept, "here", None, epoch)
            set_fence(tx, fenced.ranges, state, owner, epoch)
            set_keys(tx, fenced.keys, state, owner, epoch)

    def _open(self, node: str | None, piece: Piece) -> None:
        if node is None:
            return
        fenced = fenced_by(piece.space, piece.ranges)
        epoch = self.fleet.router.epoch
        entries = self._entries(node, fenced.keys)
        with self.fleet.database(node).transaction(write=True) as tx:
            set_fence(tx, fenced.ranges, "here", None, epoch)
            set_keys(tx, entries, "here", None, epoch)
            drop_keys(tx, [key for key in fenced.keys if key not in entries])
            drop_keys(tx, self._left_behind(tx, fenced.ranges))

    def _placements(self) -> tuple[Placement, ...]:
        running = self.fleet.router.running
        return (self.fleet.router.placement,) if running is None else (running.before, running.after)

    def _entries(self, node: str, keys: list[bytes]) -> set[bytes]:
        """Those of `keys` that have an entry which names the node; the others are there by their hash."""
        named = set()
        for placement in self._placements():
            if isinstance(placement, Layered):
                entry_of = cast("Any", placement).entry
                found = ((key, entry_of(key_of_address(key))) for key in keys)
                named |= {key for key, entry in found if entry is not None and entry.node == node}
        return named

    def _kept(self, node: str, piece: Piece, fenced: Fenced) -> set[bytes]:
        """Keys whose entries hold them at a node while their hash goes elsewhere."""
        if not fenced.ranges or not isinstance(piece.space, EntrySpace):
            return set()
        moving = set(fenced.keys)
        entries = [address for key in piece.space.entries if (address := address_of_key(key)) not in moving]
        return self._entries(node, entries)

    def _left_behind(self, tx: Transaction, ranges: list[tuple[bytes, bytes | None]]) -> list[bytes]:
        """The rows of single keys that left once, have no entry any more, and come back with `ranges`."""
        placements = [one for one in self._placements() if isinstance(one, Layered)]
        if not placements or not ranges:
            return []
        space = FenceRow
        found = []
        for row in read_fence(tx):
            if not row.single or row.state != "gone":
                continue
            key = key_of_address(row.low)
            if any(cast("Any", one).entry(key) is not None for one in placements):
                continue
            address = addresses_of(placements[0], key)[-1]
            if any(space(low, high, "here", None, 0).holds(address) for low, high in ranges):
                found.append(row.low)
        return found


class RowSwitch(Switch):
    """A `Switch` that copies the rows of its tables while their keys are closed, and deletes them at the end.

    For tenants and pieces that can be closed for as long as their rows take, some ten thousand a second. Give
    the handover a `timeout` that allows for it, and small pieces (`max_share=`, `by="range"`).

    Args:
        fleet: Whose databases.
        tables: Parents before those that follow them. Reference tables are left alone.
        timeout: For how many seconds to wait for writers of the source.
        chunk: How many rows are read at once.

    Raises:
        FenceError: After the copy the target does not have the rows of the source.
    """

    def __init__(
        self, fleet: Fleet, tables: Iterable[Table], *, timeout: float = 30.0, chunk: int = 1000
    ) -> None:
        super().__init__(fleet, self._copy_rows, timeout=timeout)
        self.tables = tuple(table for table in tables if not table.reference)
        self._chunk = chunk

    def _copy_rows(self, piece: Piece) -> None:
        source = self.fleet.database(cast("str", piece.source))
        target = self.fleet.database(cast("str", piece.target))
        with source.transaction(write=False) as theirs, target.transaction(write=True) as ours:
            for table in self.tables:
                columns = columns_of(theirs, table)
                self._drop(ours, table, columns, piece)  # of an attempt before, or of a time before
                sent = 0
                where = _where(theirs, table, piece)
                for chunk in read_rows(theirs, table, columns, chunk=self._chunk, where=where):
                    mask = piece.mask(chunk.keys)
                    sent += write_rows(
                        ours,
                        table,
                        columns,
                        [row for row, goes in zip(chunk.rows, mask, strict=True) if goes],
                    )
                there = self._count(ours, table, columns, piece)
                if there != sent:
                    raise FenceError(f"{table.name}: {sent} rows were copied and {there} are at the target")

    def _count(self, tx: Transaction, table: Table, columns: list[Column], piece: Piece) -> int:
        found = read_rows(tx, table, columns, chunk=self._chunk, where=_where(tx, table, piece))
        return sum(int(piece.mask(chunk.keys).sum()) for chunk in found)

    def _drop(self, tx: Transaction, table: Table, columns: list[Column], piece: Piece) -> None:
        found = read_rows(tx, table, columns, chunk=self._chunk, where=_where(tx, table, piece))
        for chunk in list(found):
            mask = piece.mask(chunk.keys)
            delete_rows(tx, table, columns, [row for row, goes in zip(chunk.rows, mask, strict=True) if goes])

    def finish(self, piece: Piece) -> None:
        """Delete the rows that went away from the source: there is no way back any more."""
        if piece.source is None or piece.target is None:
            return
        with self.fleet.database(piece.source).transaction(write=True) as tx:
            for table in reversed(self.tables):
                self._drop(tx, table, columns_of(tx, table), piece)


def _where(tx: Transaction, table: Table, piece: Piece) -> tuple[str, list[int]] | None:
    """The rows that may belong to a piece, by the position column; None where there is none: all rows."""
    if len(piece.ranges) > _MOST_RANGES or not has_column(tx, table, piece.space):
        return None
    return column_condition(piece.space, piece.ranges)

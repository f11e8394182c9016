"""Moving rows online: the mover that copies, catches up, cuts over and can go back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, cast

from ringhash.databases import Database, Transaction
from ringhash.errors import ReshardError
from ringhash.fleet import Fleet, Switch, Table, drain
from ringhash.fleet.rows import Chunk, Column, columns_of, delete_rows, read_rows
from ringhash.handover import Piece
from ringhash.reshard.carrier import (
    check_token,
    forget_piece,
    note_piece,
    noted_pieces,
    progress_of,
    set_progress,
    take_over,
)
from ringhash.reshard.keylog import LogBatch, capture, forget, read_log, release
from ringhash.reshard.sync import sync
from ringhash.reshard.verify import Diff, compare

__all__ = ["Reshard"]

_ROUNDS = 1000  # of catching up, before it is said that writers are faster


class Reshard(Switch):
    """Moves the rows of each piece while writes go on; a `Mover` for `Handover`.

    `prepare` captures changes at the source by triggers, copies the rows in chunks, catches up and compares
    both sides. `hold` goes on catching up. `stop` closes the keys at the source, waits for its writers,
    copies what they wrote last, and captures at the target what is written there from then on, so that a
    reversal loses nothing. `start` opens the target. `undo` opens the source again and takes the copy away.
    `finish` deletes the rows at the source, and all that was made for the move.

    Args:
        fleet: Whose databases. Writers go through `fleet.write` or `fence`.
        tables: Parents before those that follow them. Reference tables are left alone.
        chunk: How many rows are copied in one transaction.
        lag: How many changes may wait to be carried over when a piece is cut over.
        timeout: For how many seconds to wait for writers of the source.

    One process carries at a time: one that goes on with the journal of another takes over in each database,
    and the other one writes nothing more. Threads may share it, as the handover's do.

    Method: the copy and its log as in gh-ost and Ghostferry, with keys in place of rows; the order of the
    switch as in Vitess' SwitchTraffic.

    >>> Reshard.__mro__[1].__name__
    'Switch'
    """

    def __init__(
        self,
        fleet: Fleet,
        tables: Iterable[Table],
        *,
        chunk: int = 1000,
        lag: int = 200,
        timeout: float = 30.0,
    ) -> None:
        super().__init__(fleet, timeout=timeout)
        self.tables = tuple(table for table in tables if not table.reference)
        self._chunk, self._lag = chunk, lag
        self._by_name = {table.name: table for table in self.tables}
        self._children = {
            table: [child for child in self.tables if child.through and child.through[1] is table]
            for table in self.tables
        }
        self._token = uuid.uuid4().hex
        self._carried: set[str] = set()  # the databases that this process has taken over
        self._locks: dict[str, threading.RLock] = {}
        self._making = threading.Lock()

    # --- the steps of a piece ---

    def prepare(self, piece: Piece) -> None:
        """Copy the rows of a piece to its target, and catch up; goes on where it was.

        Raises:
            ReshardError: The target has rows in the way, or differs after the copy; the message names the
                rows.
        """
        if piece.source is None or piece.target is None:
            super().prepare(piece)
            return
        self._take(piece)
        super().prepare(piece)
        with self._lock(piece.source), self._database(piece.source).transaction(write=True) as tx:
            capture(tx, self.tables)
            note_piece(tx, piece)
        self._copy_all(piece)
        self._catch_up(piece.source)
        found = self.verify(piece)
        if found:
            raise ReshardError(f"after the copy the target differs: {found}")

    def hold(self, piece: Piece) -> bool:
        """Catch up; say whether few enough changes are left."""
        if piece.source is None or piece.target is None:
            return True
        self._take(piece)
        return self._catch_up(piece.source, rounds=3) <= self._lag

    def stop(self, piece: Piece) -> None:
        """Close the keys at the source, carry the last changes over, and send everybody on to the target.

        Raises:
            DrainTimeoutError: A transaction of the source did not end in time. `undo` opens the source again.
        """
        if piece.source is None or piece.target is None:
            super().stop(piece)
            return
        self._take(piece)
        self._catch_up(piece.source)
        self._set(piece.target, piece, "gone", piece.source)
        self._set(piece.source, piece, "moving", piece.target)
        drain(self._database(piece.source), self._timeout)
        self._catch_up(piece.source, all_of_now=True)
        if not piece.back:  # from here on the way back is fed
            back = piece.reversed()
            with self._database(piece.target).transaction(write=True) as tx:
                check_token(tx, self._token)
                capture(tx, self.tables)
                note_piece(tx, back)
                self._raise_sequences(tx)
        with self._lock(piece.source), self._database(piece.source).transaction(write=True) as tx:
            check_token(tx, self._token)
            forget_piece(tx, piece)
        self._set(piece.source, piece, "gone", piece.target)

    def undo(self, piece: Piece) -> None:
        """Open the source again. What was copied is deleted, and the changes are captured no more."""
        super().undo(piece)
        if piece.source is None or piece.target is None:
            return
        self._take(piece)
        if piece.back:
            return  # the rows of the other side are the old ones of the move; they stay until it is decided
        with self._database(piece.target).transaction(write=True) as tx:
            check_token(tx, self._token)
            self._delete(tx, piece)
            for table in self.tables:
                set_progress(tx, piece, table.name, None)
            forget_piece(tx, piece.reversed())
            self._release_if_idle(tx)
        with self._lock(piece.source), self._database(piece.source).transaction(write=True) as tx:
            check_token(tx, self._token)
            forget_piece(tx, piece)
            self._release_if_idle(tx)

    def finish(self, piece: Piece) -> None:
        """Delete the rows that went from the source, and what was made for the move: no way back now."""
        if piece.source is None or piece.target is None:
            return
        self._take(piece)
        source, target = self._database(piece.source), self._database(piece.target)
        with source.transaction(write=True) as tx:
            check_token(tx, self._token)
            self._delete(tx, piece)
            forget_piece(tx, piece)
            self._release_if_idle(tx)
        with self._lock(piece.target), target.transaction(write=True) as tx:
            check_token(tx, self._token)
            for table in self.tables:
                set_progress(tx, piece, table.name, None)
            forget_piece(tx, piece.reversed())
            self._release_if_idle(tx)

    # --- what can be asked at any time ---

    def verify(self, piece: Piece) -> Diff:
        """Return how the target of a piece differs from its source, but for changes that wait in a log.

        What a writer wrote to the source that went past the fence is found, also after the switch.

        Cost: reads the tables once on each side, and rows by their primary keys once; catching up waits
            meanwhile.
        """
        with self._lock(str(piece.source)), ExitStack() as stack:
            source, target = self._both(stack, piece, write=False)
            found = compare(source, target, self.tables, self._columns(source), piece, self._chunk)
            for tx, here in ((source, piece), (target, piece.reversed())):
                # Before the switch changes come from the source, and after it from the target.
                if found and any(_same(here, noted) for noted in noted_pieces(tx)):
                    found = found.without(self._explained(read_log(tx, 10**9).keys))
            return found

    def _explained(self, waiting: dict[str, set[tuple[Any, ...]]]) -> Callable[[str, tuple[Any, ...]], bool]:
        """Whether a waiting change says why a row differs: its own, or one of a row that it follows."""

        def explained(name: str, key: tuple[Any, ...]) -> bool:
            here: Table | None = self._by_name[name]
            if any(one[: len(key)] == key for one in waiting.get(name, ())):
                return True
            while here is not None and here.through is not None:
                here = here.through[1]
                if waiting.get(here.name):
                    return True
            return False

        return explained

    def repair(self, piece: Piece, found: Diff) -> None:
        """Make the rows that `verify` named at the target equal to those at the source."""
        dirty: dict[Table, set[tuple[Any, ...]]] = {}
        for name, key in (*found.missing, *found.extra, *found.different):
            dirty.setdefault(self._by_name[name], set()).add(key)
        self._take(piece)
        with self._lock(str(piece.source)):
            self._sync(piece, dirty, replace=False)

    def pending(self, node: str) -> int:
        """Return how many changes of a node wait to be carried over; 0 without a capture."""
        with self._database(node).transaction(write=False) as tx:
            if not _has_log(tx):
                return 0
            return int(tx.execute("SELECT count(*) FROM ringhash_keylog").rows[0][0])

    def check(self, piece: Piece) -> list[str]:
        """Return what would fail later: tables that differ, primary keys, triggers, foreign keys."""
        from ringhash.reshard.check import problems  # noqa: PLC0415  few ask

        with ExitStack() as stack:
            source, target = self._both(stack, piece, write=False)
            return problems(source, target, self.tables, str(piece.source), str(piece.target))

    def clean(self) -> None:
        """Take away all that moves have left in the databases: triggers, logs, notes. No row is touched.

        Raises:
            ReshardError: Keys are moving still: undo or finish first.
        """
        for name in self.fleet.names:
            with self._database(name).transaction(write=True) as tx:
                moving = tx.execute("SELECT count(*) FROM ringhash_fence WHERE state = 'moving'").rows[0][0]
                if moving:
                    raise ReshardError(
                        f"keys of {name} are moving; resume, reverse or finish the handover first"
                    )
                release(tx, self.tables)
                tx.execute(
                    "DELETE FROM ringhash_registry "
                    "WHERE name LIKE 'piece %' OR name LIKE 'copy %' OR name = 'carrier'"
                )

    # --- copying ---

    def _copy_all(self, piece: Piece) -> None:
        for table in self.tables:
            while self._copy_chunk(piece, table):
                pass

    def _copy_chunk(self, piece: Piece, table: Table) -> bool:
        """Copy the next rows of a table, and write down how far it is in the same transaction; False at the
        end.

        The lock keeps catching up from running between the reading and the writing of the chunk: a later
            state of a row
        would be written over by an earlier one.
        """
        with self._lock(str(piece.source)), ExitStack() as stack:
            source, target = self._both(stack, piece, write=True)
            check_token(target, self._token)
            progress = progress_of(target, piece, table.name)
            if progress == "done":
                return False
            last, bound = progress if progress is not None else (None, self._bound(source, table))
            chunk = self._next(source, table, last, bound)
            places = self._places(source, table)
            keys = [tuple(row[i] for i in places) for row in chunk.rows]
            if keys:
                dirty = {table: set(keys)}
                self._with_parents(source, dirty)
                sync(source, target, self.tables, self._columns(source), dirty, piece)
            more = len(keys) == self._chunk
            set_progress(target, piece, table.name, [list(keys[-1]), bound] if more else "done")
            return more

    def _places(self, tx: Transaction, table: Table) -> list[int]:
        columns = self._columns(tx)[table]
        return [next(i for i, one in enumerate(columns) if one.name == name) for name in table.primary_key]

    def _bound(self, tx: Transaction, table: Table) -> list[Any] | None:
        """The last primary key at the start: what comes later is in the log, or the copy would never end."""
        names = ", ".join(f"t0.{name}" for name in table.primary_key)
        order = ", ".join(f"t0.{name} DESC" for name in table.primary_key)
        chosen = ", ".join(one.chosen(True) for one in self._primary(tx, table))
        found = tx.execute(f"SELECT {chosen} FROM {table.name} AS t0 ORDER BY {order} LIMIT 1").fetchone()
        return None if found is None or not names else list(found)

    def _primary(self, tx: Transaction, table: Table) -> list[Column]:
        by_name = {one.name: one for one in self._columns(tx)[table]}
        return [by_name[name] for name in table.primary_key]

    def _next(self, tx: Transaction, table: Table, last: list[Any] | None, bound: list[Any] | None) -> Chunk:
        if bound is None:
            return Chunk([], [])
        primary = self._primary(tx, table)
        tuple_of = ", ".join(f"t0.{one.sql}" for one in primary)
        marks = ", ".join(one.parameter for one in primary)
        condition, values = f"({tuple_of}) <= ({marks})", list(bound)
        if last is not None:
            condition += f" AND ({tuple_of}) > ({marks})"
            values += last
        found = read_rows(tx, table, self._columns(tx)[table], chunk=self._chunk, where=(condition, values))
        return next(found, Chunk([], []))

    # --- catching up ---

    def _catch_up(self, node: str, *, rounds: int = _ROUNDS, all_of_now: bool = False) -> int:
        """Carry changes of a node to the targets of its pieces; return how many are left.

        Args:
            node: Whose log.
            rounds: How many batches, at most.
            all_of_now: Carry everything that is in the log now, however much comes meanwhile.
        """
        database = self._database(node)
        last = None
        if all_of_now:
            with database.transaction(write=False) as tx:
                last = tx.execute("SELECT max(seq) FROM ringhash_keylog").rows[0][0] if _has_log(tx) else None
            if last is None:
                return 0
        for _ in range(10**9 if all_of_now else rounds):
            with self._lock(node):
                batch = self._batch(database)
                if batch.numbers:
                    self._carry(node, batch)
            if not batch.numbers or (last is not None and batch.numbers[-1] >= last):
                break
            if not all_of_now and len(batch.numbers) < self._lag:
                break
        return self.pending(node)

    def _batch(self, database: Database) -> LogBatch:
        with database.transaction(write=False) as tx:
            return read_log(tx, self._chunk) if _has_log(tx) else LogBatch([], {})

    def _carry(self, node: str, batch: LogBatch) -> None:
        database = self._database(node)
        with database.transaction(write=False) as tx:
            pieces = noted_pieces(tx)
        for piece in pieces:
            if piece.source == node and piece.target is not None:
                self._carry_to(piece, batch)
        with database.transaction(write=True) as tx:
            check_token(tx, self._token)
            forget(tx, batch.numbers)

    def _carry_to(self, piece: Piece, batch: LogBatch) -> None:
        dirty: dict[Table, set[tuple[Any, ...]]] = {
            self._by_name[name]: keys for name, keys in batch.keys.items() if name in self._by_name
        }
        try:
            self._sync(piece, dirty, replace=False)
        except self._database(str(piece.target)).errors as error:
            if "unique" not in str(error).lower():
                raise
            self._sync(piece, dirty, replace=True)  # values of unique columns that rows have exchanged

    def _sync(self, piece: Piece, dirty: dict[Table, set[tuple[Any, ...]]], *, replace: bool) -> None:
        with ExitStack() as stack:
            source, target = self._both(stack, piece, write=True)
            check_token(target, self._token)
            every = {table: set(keys) for table, keys in dirty.items()}
            self._with_parents(source, every)
            for table in self.tables:  # rows follow those of their parents, which may have come or gone
                for child in self._children[table]:
                    for tx in (source, target):
                        every.setdefault(child, set()).update(
                            self._followers(tx, child, every.get(table, set()))
                        )
            sync(source, target, self.tables, self._columns(source), every, piece, replace=replace)

    def _with_parents(self, tx: Transaction, dirty: dict[Table, set[tuple[Any, ...]]]) -> None:
        """Add the rows that some rows follow: they are to be there first."""
        for table in reversed(self.tables):
            if table.through is None or not dirty.get(table):
                continue
            column, parent = table.through
            kinds = {one.name: one for one in self._columns(tx)[table]}
            primary = [kinds[name] for name in table.primary_key]
            condition = " AND ".join(f"t0.{one.sql} = {one.parameter}" for one in primary)
            for key in dirty[table]:
                rows = tx.execute(
                    f"SELECT {kinds[column].chosen(True)} FROM {table.name} AS t0 WHERE {condition}",
                    key[: len(primary)],
                )
                dirty.setdefault(parent, set()).update((row[0],) for row in rows if row[0] is not None)

    def _followers(
        self, tx: Transaction, child: Table, parents: set[tuple[Any, ...]]
    ) -> set[tuple[Any, ...]]:
        """The primary keys of the rows of `child` that follow some rows of its parent."""
        column = cast("tuple[str, Table]", child.through)[0]
        kinds = {one.name: one for one in self._columns(tx)[child]}
        chosen = ", ".join(one.chosen(True) for one in self._primary(tx, child))
        found: set[tuple[Any, ...]] = set()
        for parent in parents:
            rows = tx.execute(
                f"SELECT {chosen} FROM {child.name} AS t0 WHERE t0.{column} = {kinds[column].parameter}",
                [parent[0]],
            )
            found.update(map(tuple, rows))
        return found

    # --- the databases ---

    def _database(self, node: str) -> Database:
        return self.fleet.database(node)

    def _both(self, stack: ExitStack, piece: Piece, *, write: bool) -> tuple[Transaction, Transaction]:
        """Transactions on the target, which writes, and on the source, whose snapshot is the later one."""
        target = stack.enter_context(self._database(str(piece.target)).transaction(write=write))
        source = stack.enter_context(self._database(str(piece.source)).transaction(write=False))
        return source, target

    def _columns(self, tx: Transaction) -> dict[Table, list[Column]]:
        return {table: columns_of(tx, table) for table in self.tables}

    def _lock(self, node: str) -> threading.RLock:
        with self._making:
            return self._locks.setdefault(node, threading.RLock())

    def _take(self, piece: Piece) -> None:
        """Take over the databases of a piece, once in the life of this object."""
        for node in piece.nodes:
            with self._making:
                if node in self._carried:
                    continue
                with self._database(node).transaction(write=True) as tx:
                    take_over(tx, self._token)
                self._carried.add(node)

    def _delete(self, tx: Transaction, piece: Piece) -> None:
        columns = self._columns(tx)
        for table in reversed(self.tables):
            for chunk in list(read_rows(tx, table, columns[table], chunk=self._chunk)):
                mask = piece.mask(chunk.keys)
                delete_rows(
                    tx, table, columns[table], [row for row, its in zip(chunk.rows, mask, strict=True) if its]
                )

    def _release_if_idle(self, tx: Transaction) -> None:
        if not noted_pieces(tx):
            release(tx, self.tables)

    def _raise_sequences(self, tx: Transaction) -> None:
        """Let sequences of the target go on behind the ids that came."""
        if tx.dialect != "postgresql":
            return
        for table, columns in self._columns(tx).items():
            for one in columns:
                name = tx.execute("SELECT pg_get_serial_sequence(?, ?)", [table.name, one.name]).rows[0][0]
                if name is not None:
                    tx.execute(
                        f"SELECT setval(?, greatest((SELECT max({one.sql}) FROM {table.name}), "
                        f"(SELECT last_value FROM {name}), 1))",
                        [name],
                    )


def _same(one: Piece, other: Piece) -> bool:
    return (one.number, one.back) == (other.number, other.back)


def _has_log(tx: Transaction) -> bool:
    if tx.dialect == "postgresql":
        return bool(tx.execute("SELECT to_regclass('ringhash_keylog') IS NOT NULL").rows[0][0])
    return bool(tx.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ringhash_keylog'").rows[0][0])

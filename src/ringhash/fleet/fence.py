"""The fence: which keys a database has, said by the database itself, in rows of addresses.

A row is a half-open range of addresses with a state. "here": work on its keys. "moving": they are on their
way to another node, so reads go on and writes wait. "gone": they belong to `owner`. The rows tile all
addresses. Beside them are rows for single keys, which count before: that is how entries of directories are
fenced, whatever their hash says.

A writer reads the rows in its own transaction, behind a lock that only movers look at; so a mover that has
changed the state waits until the writers that read the old one are through (`drain`), and holds nobody up.
SQLite has one writer at a time, so there is nothing to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from ringhash.databases import Database, Transaction
from ringhash.errors import DrainTimeoutError, FenceError, Moved, Moving

__all__ = [
    "REGISTRY",
    "FenceRow",
    "Ranges",
    "State",
    "check_fence",
    "create_fence",
    "drain",
    "drop_keys",
    "fence_statement",
    "join_rows",
    "read_fence",
    "set_fence",
    "set_keys",
    "verdict",
]

State = Literal["here", "moving", "gone"]
Ranges = Iterable[tuple[bytes, "bytes | None"]]

# What else a database says of itself: how the keys of its fence and its columns are read.
REGISTRY = "CREATE TABLE IF NOT EXISTS ringhash_registry (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_COLUMNS = "low, high, state, owner, epoch"
_STATES = ("here", "moving", "gone")
_POLL = 0.002  # seconds, between two looks at who still writes
RETRY = 0.02  # seconds: what a writer waits before it asks again


class FenceRow(NamedTuple):
    """What a database says of a range of addresses.

    `low` is the first address, `high` the first one behind it (None: no end); they are equal in a row for a
    single key. `owner` is the node that the keys went or go to, None while they are here. `epoch` is that of
    the change.
    """

    low: bytes
    high: bytes | None
    state: State
    owner: str | None
    epoch: int

    @property
    def single(self) -> bool:
        """Whether the row is for a single key."""
        return self.low == self.high

    def holds(self, address: bytes) -> bool:
        """Return whether the row has an address."""
        if self.single:
            return self.low == address
        return self.low <= address and (self.high is None or address < self.high)


# --- the table ---------------------------------------------------------------------------------------

# The function locks, and only then takes the snapshot in which it reads: each statement of it has a new one.
_POSTGRES = (
    "CREATE TABLE IF NOT EXISTS ringhash_fence (low bytea PRIMARY KEY, high bytea, state text NOT NULL, "
    "owner text, epoch bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ringhash_fence_key (low bytea PRIMARY KEY, state text NOT NULL, owner text, "
    "epoch bigint NOT NULL)",
    """
    CREATE OR REPLACE FUNCTION ringhash_fence_of(address bytea, single bytea, writes boolean)
    RETURNS SETOF ringhash_fence LANGUAGE plpgsql AS $fence$
    BEGIN
        IF writes THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE EXCEPTION 'ringhash: a fenced write needs the isolation level READ COMMITTED'
                    USING ERRCODE = 'feature_not_supported';
            END IF;
            LOCK TABLE ringhash_fence IN ROW SHARE MODE;
        END IF;
        RETURN QUERY
            (SELECT * FROM ringhash_fence f WHERE f.low <= address ORDER BY f.low DESC LIMIT 1)
            UNION ALL (SELECT k.low, k.low, k.state, k.owner, k.epoch FROM ringhash_fence_key k WHERE k.low =
            single);
    END $fence$
    """,
)
_SQLITE = (
    "CREATE TABLE IF NOT EXISTS ringhash_fence (low BLOB PRIMARY KEY, high BLOB, state TEXT NOT NULL, "
    "owner TEXT, epoch INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ringhash_fence_key (low BLOB PRIMARY KEY, state TEXT NOT NULL, owner TEXT, "
    "epoch INTEGER NOT NULL) WITHOUT ROWID",
)
_READ = {
    "postgresql": f"SELECT {_COLUMNS} FROM ringhash_fence_of(?, ?, {{}})",
    "sqlite": (
        f"SELECT * FROM (SELECT {_COLUMNS} FROM ringhash_fence WHERE low <= ? ORDER BY low DESC LIMIT 1) "
        "UNION ALL SELECT low, low, state, owner, epoch FROM ringhash_fence_key WHERE low = ?"
    ),
}


def create_fence(tx: Transaction) -> None:
    """Make the fence of a database in which all keys are open; nothing happens if it is there. Idempotent."""
    for sql in _POSTGRES if tx.dialect == "postgresql" else _SQLITE:
        tx.execute(sql)
    tx.execute(
        f"INSERT INTO ringhash_fence ({_COLUMNS}) SELECT ?, NULL, 'here', NULL, 0 "
        "WHERE NOT EXISTS (SELECT 1 FROM ringhash_fence)",
        [b""],
    )


def read_fence(tx: Transaction) -> list[FenceRow]:
    """Return all rows: those of ranges in order of their addresses, then those of single keys. O(rows)."""
    ranges = tx.execute(f"SELECT {_COLUMNS} FROM ringhash_fence ORDER BY low")
    keys = tx.execute("SELECT low, low, state, owner, epoch FROM ringhash_fence_key ORDER BY low")
    return [_row(row) for rows in (ranges, keys) for row in rows]


def _row(row: Iterable[Any]) -> FenceRow:
    low, high, state, owner, epoch = row
    return FenceRow(bytes(low), None if high is None else bytes(high), state, owner, epoch)


# --- reading it for one key --------------------------------------------------------------------------


def fence_statement(dialect: str, addresses: tuple[bytes, ...], *, write: bool) -> tuple[str, list[Any]]:
    """Return the one statement that reads the fence for a key, and its parameters.

    Args:
        dialect: "postgresql" or "sqlite".
        addresses: The address of the key, and before it the one of its own entry, if its placement has
            entries.
        write: Whether the transaction goes on to write.
    """
    single = addresses[0] if len(addresses) > 1 else None
    return _READ[dialect].format("true" if write else "false"), [addresses[-1], single]


def verdict(rows: Iterable[Iterable[Any]], addresses: tuple[bytes, ...], *, write: bool) -> None:
    """Return if the rows let a key in.

    Raises:
        Moved: The key belongs to another node, which it names.
        Moving: It is on its way; ask again in `after` seconds.
        FenceError: The database has no fence, or a hole in it.
    """
    found = [row for row in map(_row, rows) if any(map(row.holds, addresses))]
    if not found:
        raise FenceError("the fence of this database says nothing of the key; call Fleet.install()")
    row = next((row for row in found if row.single), found[0])
    if row.state == "gone":
        raise Moved(row.owner, row.epoch)
    if row.state == "moving" and write:
        raise Moving(row.owner, row.epoch, RETRY)


def check_fence(tx: Transaction, addresses: tuple[bytes, ...], *, write: bool) -> None:
    """Ask the fence in an open transaction, with one statement; raise as `verdict` does.

    With `write`, a mover that closes the key waits for this transaction from here on.
    """
    sql, values = fence_statement(tx.dialect, addresses, write=write)
    verdict(tx.execute(sql, values), addresses, write=write)


# --- changing it -------------------------------------------------------------------------------------


def set_fence(tx: Transaction, ranges: Ranges, state: State, owner: str | None, epoch: int) -> None:
    """Give ranges of addresses a state. Rows that they cut are cut; nothing else changes. Idempotent.

    Writers that read the old state may still be at work: after the commit, call `drain`.

    Raises:
        ValueError: A range is empty, or the state is unknown or does not fit the owner.
        FenceError: A later epoch has written there already.

    Cost: O(rows in the ranges); holds no lock on other rows.
    """
    _check_state(state, owner)
    for low, high in ranges:
        if high is not None and low >= high:
            raise ValueError(f"a range of addresses ends behind its start, not {low!r} to {high!r}")
        _cut(tx, low)
        if high is not None:
            _cut(tx, high)
        bound, values = ("AND low < ?", [low, high]) if high is not None else ("", [low])
        newest = tx.execute(f"SELECT max(epoch) FROM ringhash_fence WHERE low >= ? {bound}", values).rows[0][
            0
        ]
        _check_epoch(newest, epoch)
        tx.execute(f"DELETE FROM ringhash_fence WHERE low > ? {bound}", values)
        tx.execute(
            "UPDATE ringhash_fence SET high = ?, state = ?, owner = ?, epoch = ? WHERE low = ?",
            [high, state, owner, epoch, low],
        )


def set_keys(tx: Transaction, keys: Iterable[bytes], state: State, owner: str | None, epoch: int) -> None:
    """Give single keys, by their addresses, a state of their own; raises as `set_fence` does. O(keys)."""
    _check_state(state, owner)
    for key in keys:
        found = tx.execute("SELECT epoch FROM ringhash_fence_key WHERE low = ?", [key]).fetchone()
        _check_epoch(None if found is None else found[0], epoch)
        tx.execute(
            "INSERT INTO ringhash_fence_key (low, state, owner, epoch) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (low) DO UPDATE "
            "SET state = excluded.state, owner = excluded.owner, epoch = excluded.epoch",
            [key, state, owner, epoch],
        )


def drop_keys(tx: Transaction, keys: Iterable[bytes]) -> None:
    """Take the rows of single keys away: what their hash says counts again. O(keys)."""
    for key in keys:
        tx.execute("DELETE FROM ringhash_fence_key WHERE low = ?", [key])


def _check_state(state: object, owner: str | None) -> None:
    if state not in _STATES or (state == "here") != (owner is None):
        raise ValueError(f"a state is here, or moving or gone with the owner; not {state!r} with {owner!r}")


def _check_epoch(newest: int | None, epoch: int) -> None:
    if newest is not None and newest > epoch:
        raise FenceError(f"epoch {newest} has written to the fence here, which is later than {epoch}")


def _cut(tx: Transaction, at: bytes) -> None:
    """Make `at` the start of a row."""
    found = tx.execute(
        f"SELECT {_COLUMNS} FROM ringhash_fence WHERE low <= ? ORDER BY low DESC LIMIT 1", [at]
    ).fetchone()
    if found is None:
        raise FenceError("this database has no fence; call Fleet.install()")
    row = _row(found)
    if row.low == at:
        return
    tx.execute("UPDATE ringhash_fence SET high = ? WHERE low = ?", [at, row.low])
    tx.execute(
        f"INSERT INTO ringhash_fence ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
        [at, row.high, row.state, row.owner, row.epoch],
    )


def join_rows(rows: Iterable[FenceRow]) -> Iterator[FenceRow]:
    """Join neighbours that say the same, for people: epochs apart."""
    last: FenceRow | None = None
    for row in rows:
        if last is not None and last.high == row.low and (last.state, last.owner) == (row.state, row.owner):
            last = last._replace(high=row.high, epoch=max(last.epoch, row.epoch))
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


_WRITERS = """
    SELECT l.pid, l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = 'ringhash_fence'::regclass AND l.mode = 'RowShareLock'
      AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid IS DISTINCT FROM pg_backend_pid()
"""


def drain(
    database: Database,
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until the writers are through that may have read the fence before its last commit.

    Nobody is held up meanwhile, and writers that come later are not waited for: they have read the new state.

    Raises:
        DrainTimeoutError: Some still write after `timeout` seconds; it names their server processes.
    """
    if database.dialect != "postgresql":
        return
    end = clock() + timeout
    with database.connection() as connection:
        before = {tuple(row) for row in connection.execute(_WRITERS)}
        while before:
            before &= {tuple(row) for row in connection.execute(_WRITERS)}
            if not before:
                return
            if clock() > end:
                raise DrainTimeoutError(sorted(pid or 0 for pid, _ in before), timeout)
            sleep(_POLL)

"""The journal: one SQLite file that has every transition of a handover before it takes effect.

    meta       what the handover is: the plan, the router as it was, the options
    records    seq, piece, state, ...; in order, never changed
    requests   what other processes ask of the one that carries the handover out, such as an abort

A record's `seq` is the primary key, and whoever goes on writes a record first. So of two processes
that both believe the handover is theirs, the one that came first fails at its next record, before it
does anything: nothing else keeps a process that was thought dead from acting.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from ringhash.errors import JournalError
from ringhash.handover.machine import Record

__all__ = ["Journal"]

_FORMAT = 1
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY, at REAL NOT NULL, piece INTEGER NOT NULL, state TEXT NOT NULL,
        holder TEXT NOT NULL, heading TEXT NOT NULL, verdict TEXT NOT NULL, call TEXT NOT NULL,
        tries INTEGER NOT NULL, stuck INTEGER NOT NULL, note TEXT NOT NULL
    );
    CREATE TABLE requests (id INTEGER PRIMARY KEY, what TEXT NOT NULL, name TEXT NOT NULL);
"""


class Journal:
    """A file with the transitions of one handover, each on the disk before it takes effect.

    SQLite in WAL mode with `synchronous=FULL`: a record that was written is there after a kill and
    after a power cut. Not safe to use from several threads at once; any number of processes may read.

    Args:
        path: The file; `:memory:` for a journal that ends with the process.
        meta: What the handover is, for a new journal. Without it the journal must be there.

    Raises:
        JournalError: A new journal is there already, or the file is none.

    Cost: one fsync a record.

    >>> journal = Journal(":memory:", {"plan": "..."})
    >>> journal.append(Record(1, 0, "STOPPING", "source", "target"))
    >>> [record.state for record in journal.records()]
    ['STOPPING']
    """

    def __init__(self, path: str | Path, meta: dict[str, object] | None = None) -> None:
        self.path = str(path)
        new = meta is not None
        if self.path != ":memory:":
            there = Path(self.path).exists()
            if not new and not there:
                raise JournalError(f"there is no journal {self.path}")
            if new and there and Path(self.path).stat().st_size:
                raise JournalError(
                    f"there is a journal {self.path} already; resume it with Handover.resume, or name "
                    "a new file"
                )
        # Autocommit: every statement outside of BEGIN is a transaction of its own.
        self._db = sqlite3.connect(self.path, timeout=10.0, isolation_level=None, check_same_thread=False)
        try:
            self.meta = self._open(meta)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise JournalError(f"{self.path} is no journal: {error}") from error
        if self.meta.get("format") != _FORMAT:
            self._db.close()
            raise JournalError(f"{self.path}: a journal of format {self.meta.get('format')}, not {_FORMAT}")

    def _open(self, meta: dict[str, object] | None) -> dict[str, Any]:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if meta is not None:
            self._create(meta)
        rows = self._db.execute("SELECT name, value FROM meta")
        return {name: json.loads(value) for name, value in rows}

    def _create(self, meta: dict[str, object]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.strip().split(";"):
            if statement.strip():
                self._db.execute(statement)
        rows = [("format", _FORMAT), *meta.items()]
        self._db.executemany(
            "INSERT INTO meta VALUES (?, ?)", [(name, json.dumps(value)) for name, value in rows]
        )
        self._db.execute("COMMIT")

    def append(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns.

        Raises:
            JournalError: Another process has written a record of that number: the handover is that
                process's now. Or the file cannot be written. Nothing may be done in either case.
        """
        try:
            self._db.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (record.seq, time.time(), *record[1:]),
            )
        except sqlite3.IntegrityError:
            raise JournalError(
                f"another process has gone on with the handover of {self.path}; this one must stop"
            ) from None
        except sqlite3.Error as error:
            raise JournalError(f"{self.path} cannot be written: {error}") from error

    def records(self) -> Iterator[Record]:
        """Return the records in order."""
        rows = self._db.execute(
            "SELECT seq, piece, state, holder, heading, verdict, call, tries, stuck, note "
            "FROM records ORDER BY seq"
        )
        for seq, piece, state, holder, heading, verdict, call, tries, stuck, note in rows:
            yield Record(seq, piece, state, holder, heading, verdict, call, tries, bool(stuck), note)

    def request(self, what: str, name: str = "") -> None:
        """Ask something of the process that carries the handover out, or will: see `requests`."""
        self._db.execute("INSERT INTO requests (what, name) VALUES (?, ?)", (what, name))

    def requests(self, after: int) -> list[tuple[int, str, str]]:
        """Return the requests that came after the one of number `after`: number, what, name."""
        return list(
            self._db.execute("SELECT id, what, name FROM requests WHERE id > ? ORDER BY id", (after,))
        )

    def forget(self, upto: int) -> None:
        """Take away the requests up to that number, whose effect is in the records."""
        self._db.execute("DELETE FROM requests WHERE id <= ?", (upto,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

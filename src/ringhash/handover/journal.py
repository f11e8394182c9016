"""The journal: every transition of a handover, kept before it takes effect.

    meta       what the handover is: the plan, the router as it was, the options
    records    seq, piece, state, ...; in order, never changed
    requests   what other processes ask of the one that carries the handover out, such as an abort

A record's `seq` is unique, and a process that takes over writes a record first. So of two processes that both
believe the handover is theirs, the one that came first fails at its next record, before it does
anything: nothing else keeps a process that was thought dead from acting.

`FileJournal` is one SQLite file. To keep journals elsewhere, write a class with the methods of
`Journal` and give the handover a function that opens one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from ringhash.errors import HandoverTaken, JournalError
from ringhash.handover.record import Record

__all__ = ["FileJournal", "Journal", "MemoryJournal", "Opener", "opener"]

Opener: TypeAlias = "Callable[[Mapping[str, object] | None], Journal]"
Request = tuple[int, str, str]

_FORMAT = 2
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY, at REAL NOT NULL, piece INTEGER NOT NULL, state TEXT NOT NULL,
        holder TEXT NOT NULL, heading TEXT NOT NULL, verdict TEXT NOT NULL, call TEXT NOT NULL,
        tries INTEGER NOT NULL, stuck INTEGER NOT NULL, note TEXT NOT NULL
    );
    CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, name TEXT NOT NULL)
"""
_COLUMNS = (int, int, str, str, str, str, str, int, int, str)


class Journal(Protocol):
    """Where a handover keeps its steps. One is opened for each run, and used by one thread.

    An `Opener` makes one: it is called with what the journal begins with for a new one, which must
    not be there yet, and with None for one that must be there.
    """

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the journal began with."""

    def records(self) -> Iterator[Record]:
        """Return the records in order."""

    def append(self, record: Record) -> None:
        """Keep a record for good before this returns; `HandoverTaken` if its `seq` is there already."""

    def requests(self, after: int) -> list[Request]:
        """Return the requests that came after the one of number `after`: number, what, name."""

    def request(self, what: str, name: str = "") -> None:
        """Ask something of the process that carries the handover out, or will."""

    def forget(self, upto: int) -> None:
        """Take away the requests up to that number, whose effect is in the records."""

    def close(self) -> None:
        """Give back what the journal holds open."""


class MemoryJournal:
    """A journal that ends with the process; what a handover without a `journal` has.

    >>> journal = MemoryJournal({"plan": "..."})
    >>> journal.append(Record(1, 0, "STOPPING", "source", "target"))
    >>> [record.state for record in journal.records()]
    ['STOPPING']
    """

    def __init__(self, meta: Mapping[str, object]) -> None:
        self.meta = meta
        self._records: list[Record] = []
        self._requests: list[Request] = []

    def records(self) -> Iterator[Record]:
        """Return the records in order."""
        return iter(list(self._records))

    def append(self, record: Record) -> None:
        """Keep a record."""
        if record.seq != len(self._records) + 1:
            raise HandoverTaken("another process has gone on with the handover; this one must stop")
        self._records.append(record)

    def requests(self, after: int) -> list[Request]:
        """Return the requests after that number."""
        return [request for request in self._requests if request[0] > after]

    def request(self, what: str, name: str = "") -> None:
        """Ask something of the handover."""
        number = self._requests[-1][0] + 1 if self._requests else 1
        self._requests.append((number, what, name))

    def forget(self, upto: int) -> None:
        """Take away the requests up to that number."""
        self._requests = self.requests(upto)

    def close(self) -> None:
        """Do nothing."""


class FileJournal:
    """A SQLite file with the transitions of one handover, each on the disk before it takes effect.

    A record that was written is there after a kill and after a power cut. A new journal is made
    beside its place and then put there whole, so a file that is there can always be resumed. Of one
    thread; any number of processes may read.

    Args:
        path: The file.
        meta: What the handover is, for a new journal. Without it the journal must be there.
        read_only: Only look: nothing is written, whatever the file is.

    Raises:
        JournalError: A new journal exists already, or the file is missing or is not a journal.

    Cost: one fsync a record.

    Method: SQLite in WAL mode with `synchronous=FULL`.
    """

    _INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

    def __init__(
        self, path: str | Path, meta: Mapping[str, object] | None = None, *, read_only: bool = False
    ) -> None:
        self.path = str(path)
        self._seen: list[Record] | None = None  # by one who only looks: all there was then
        if meta is not None:
            _make(Path(self.path), meta)
        elif not Path(self.path).exists():
            raise JournalError(f"there is no journal {self.path}")
        wal = Path(f"{self.path}-wal")
        quiet = read_only and not wal.exists()
        self._db = self._connect("ro&immutable=1" if quiet else "ro" if read_only else "rw")
        try:
            self._open(read_only)
            if quiet and wal.exists():  # somebody has begun to write meanwhile
                self._db.close()
                self._db = self._connect("ro")
                self._open(read_only)
        except BaseException:
            self._db.close()
            raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        where = f"{Path(self.path).absolute().as_uri()}?mode={mode}"
        try:
            # Autocommit: every statement outside of BEGIN is a transaction of its own.
            return sqlite3.connect(where, timeout=10.0, isolation_level=None, uri=True)
        except sqlite3.Error as error:
            raise JournalError(f"{self.path} cannot be opened: {error}") from error

    def _open(self, read_only: bool) -> None:
        with self._reading():
            rows = self._db.execute("SELECT name, value FROM meta").fetchall()
            self.meta: Mapping[str, Any] = {name: json.loads(value) for name, value in rows}
        if self.meta.get("format") != _FORMAT:
            raise JournalError(f"{self.path}: a journal of format {self.meta.get('format')!r}, not {_FORMAT}")
        if read_only:
            self._seen = list(self.records())
        else:
            with self._reading():
                self._db.execute("PRAGMA synchronous = FULL")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise JournalError(f"{self.path} is not a journal: {error}") from error

    def records(self) -> Iterator[Record]:
        """Return the records in order."""
        if self._seen is not None:
            return iter(self._seen)
        last = 0
        with self._reading():
            rows = self._db.execute(
                "SELECT seq, piece, state, holder, heading, verdict, call, tries, stuck, note "
                "FROM records ORDER BY seq"
            ).fetchall()
            for row in rows:
                if tuple(map(type, row)) != _COLUMNS or row[0] != last + 1:
                    raise ValueError(f"the record after number {last} is damaged")
                last = row[0]
        return (Record._make((*row[:8], bool(row[8]), row[9])) for row in rows)

    def append(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns.

        Raises:
            HandoverTaken: Another process has written a record of that number: the handover is that
                process's now. Nothing may be done.
            JournalError: The file cannot be written. Nothing may be done.
        """
        try:
            self._db.execute(self._INSERT, (record.seq, time.time(), *record[1:]))
        except sqlite3.IntegrityError:
            raise HandoverTaken(
                f"another process has gone on with the handover of {self.path}; this one must stop"
            ) from None
        except sqlite3.Error as error:
            raise JournalError(f"{self.path} cannot be written: {error}") from error

    def requests(self, after: int) -> list[Request]:
        """Return the requests that came after the one of number `after`: number, what, name."""
        with self._reading():
            found: list[Request] = self._db.execute(
                "SELECT id, what, name FROM requests WHERE id > ? ORDER BY id", (after,)
            ).fetchall()
        return found

    def request(self, what: str, name: str = "") -> None:
        """Ask something of the process that carries the handover out, or will: see `requests`."""
        with self._writing():
            self._db.execute("INSERT INTO requests (what, name) VALUES (?, ?)", (what, name))

    def forget(self, upto: int) -> None:
        """Take away the requests up to that number, whose effect is in the records."""
        with self._writing():
            self._db.execute("DELETE FROM requests WHERE id <= ?", (upto,))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(f"{self.path} cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _make(path: Path, meta: Mapping[str, object]) -> None:
    """Make a journal beside its place, and put it there whole, unless something is there."""
    taken = JournalError(
        f"there is a journal {path} already; resume it with Handover.resume, or name a new file"
    )
    if path.exists():
        raise taken
    beside = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.new")
    try:
        db = sqlite3.connect(beside, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                db.execute(statement)
            rows = [("format", _FORMAT), *meta.items()]
            db.executemany("INSERT INTO meta VALUES (?, ?)", [(name, json.dumps(it)) for name, it in rows])
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode = WAL")
        finally:
            db.close()
        try:
            os.link(beside, path)  # unlike a rename it fails if another process was first
        except FileExistsError:
            raise taken from None
        except OSError:  # a file system without links
            if path.exists():
                raise taken from None
            beside.rename(path)
        _sync(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"{path} cannot be made: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Let the name of a new file in a folder survive a power cut."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def opener(journal: str | Path | Opener) -> Opener:
    """Return what opens a journal: of a file, or what the caller has."""
    if callable(journal):
        return journal
    path = journal
    return lambda meta: FileJournal(path, meta)

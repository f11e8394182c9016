"""Where keys come from: text files with a key a line, columns of CSV and Parquet files, gzip, stdin.

A file is read in blocks, never as a whole. The keys of a text file are bytes, exactly as they stand in it.
So any encoding works, and a key in UTF-8 has the owner that the same `str` has in Python. A Parquet column
of integers holds `int` keys.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import IO, Any

from ringhash.cli.column import column_in
from ringhash.cli.errors import InputError

__all__ = ["BLOCK", "KeyFile"]

BLOCK = 1 << 20  # bytes
ROWS = 1 << 14
LONGEST = 1 << 20

# How binary files begin that people have given for text, and what to write instead.
_BINARY = {
    b"PAR1": "is a Parquet file; give it a name that ends in .parquet",
    b"\x1f\x8b": "is a gzip file; give it a name that ends in .gz",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"SQLite format 3\0": "is a SQLite database; export the column first",
    b"ARROW1": "is an Arrow file; write it as Parquet or CSV",
}


class KeyFile:
    """The keys of a file, in blocks of a bounded size. Iterate once.

    Args:
        path: A file of one key a line, or `-` for stdin. It is unzipped if it ends in `.gz`, and read
            as Parquet if it ends in `.parquet`.
        column: The column that holds the keys. With it, a file that is not Parquet is CSV with a heading.

    A line ends in LF or CRLF. A byte order mark is dropped. Empty lines and empty fields are not
    keys; `empty` counts the ones met so far and `taken` the keys.
    """

    def __init__(self, path: str, column: str | None = None) -> None:
        self.path = path
        self.column = column
        self.name = "stdin" if path == "-" else path
        self.taken = 0
        self.empty = 0
        self.bytes_read = 0
        self.size: int | None = None  # where it is known: not of a pipe

    def __iter__(self) -> Iterator[list[Any]]:
        if self.path.endswith(".parquet"):
            from ringhash.cli.parquet import column_blocks  # noqa: PLC0415  an extra

            for values in column_blocks(self.path, self.column):
                keys = [key for key in values if key is not None and key not in ("", b"")]
                self.taken += len(keys)
                self.empty += len(values) - len(keys)
                yield keys
            return
        with self._opened() as (raw, data), closing(self._read(data)) as blocks:
            for lines in blocks:
                keys = [line for line in lines if line]
                self.taken += len(keys)
                self.empty += len(lines) - len(keys)
                if self.size is not None:
                    self.bytes_read = raw.tell()
                if keys:
                    yield keys

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], Any]]:
        """The file as it lies on the disk, and what is in it."""
        zipped = self.path.endswith(".gz")
        with open(self._number_or_path(), "rb", closefd=self.path != "-") as raw:
            status = os.fstat(raw.fileno())
            self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
            try:
                yield raw, gzip.GzipFile(fileobj=raw) if zipped else raw
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(f"{self.name}: is no whole gzip file: {error}") from None

    def _number_or_path(self) -> int | str:
        if self.path != "-":
            return self.path
        if sys.stdin is None:
            raise InputError("stdin is closed")
        return sys.stdin.fileno()

    def _read(self, data: Any) -> Generator[list[bytes], None, None]:
        return self._lines(data) if self.column is None else self._fields(data)

    def _lines(self, data: Any) -> Generator[list[bytes], None, None]:
        at_start = True
        rest = b""
        # read1 and not read: what a slow pipe has given so far is answered now.
        while block := data.read1(BLOCK):
            lines = (rest + block).replace(b"\r\n", b"\n").split(b"\n")
            rest = lines.pop()
            if len(rest) > LONGEST:
                raise InputError(f"{self.name}: a line is longer than 1 MiB; are these keys, one a line?")
            if at_start:
                self._refuse_binary(block)
            if lines:
                if at_start:
                    lines[0] = self._unmarked(lines[0])
                    at_start = False
                yield lines
        if rest:
            yield [(self._unmarked(rest) if at_start else rest).removesuffix(b"\r")]

    def _refuse_binary(self, block: bytes) -> None:
        for start, what in _BINARY.items():
            if block.startswith(start):
                raise InputError(f"{self.name}: {what}")
        if (
            b"\0" in block
            and not self.path.endswith(".gz")
            and not block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        ):
            raise InputError(f"{self.name}: is a binary file, not text with a key a line")

    def _unmarked(self, line: bytes) -> bytes:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in line:
            raise InputError(f"{self.name}: is UTF-16; convert it to UTF-8")
        return line.removeprefix(codecs.BOM_UTF8)

    def _fields(self, data: Any) -> Generator[list[bytes], None, None]:
        # surrogateescape there and back leaves the bytes of a field as they are, whatever they are.
        text = io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="")
        rows = csv.reader(text, strict=True)
        try:
            column = self._column_in(next(rows, []))
            while block := [
                self._field(row, column, rows.line_num).encode("utf-8", "surrogateescape")
                for row in islice(rows, ROWS)
            ]:
                yield block
        except csv.Error as error:
            raise InputError(f"{self.name}, line {rows.line_num}: is not CSV: {error}") from None
        finally:
            text.detach()  # the file is closed by who opened it

    def _field(self, row: list[str], column: int, line: int) -> str:
        if len(row) > column:
            return row[column]
        if not row:
            return ""  # an empty line
        raise InputError(
            f"{self.name}, line {line}: has {len(row)} fields, and {self.column!r} is field {column + 1}"
        )

    def _column_in(self, heading: list[str]) -> int:
        return column_in(self.name, heading, self.column or "")

    def heading(self) -> list[str]:
        """Return the first row of a CSV file, or the columns of a Parquet file."""
        if self.path.endswith(".parquet"):
            from ringhash.cli.parquet import columns  # noqa: PLC0415  an extra

            return columns(self.path)
        with self._opened() as (_, data):
            text = io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="")
            try:
                return next(csv.reader(text), [])
            except csv.Error as error:
                raise InputError(f"{self.name}: is not CSV: {error}") from None
            finally:
                text.detach()

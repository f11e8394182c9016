"""Where rows come from: files, frames, arrays, iterators and tables, in blocks of a bounded size."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ringhash.databases import open_database

__all__ = ["Block", "Table", "blocks_of"]

Block: TypeAlias = dict[str, Any]  # a column by its name: an array, or a list
ROWS = 1 << 16  # of a block of Python objects
ITEMS = 1 << 20  # of a block of an array


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a database, read in one pass.

    Args:
        address: A path of SQLite, or `postgresql://...` (needs the extra `postgres`).
        name: The table; for PostgreSQL also `schema.table`.
        sample: The share of the rows to read, above 0 and up to 1. PostgreSQL takes whole pages
            (`TABLESAMPLE SYSTEM`), which costs less and is less even; SQLite looks at every row.
    """

    address: str | os.PathLike[str]
    name: str
    sample: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample must be above 0 and up to 1, not {self.sample}")

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        """Yield the rows in blocks."""
        database = open_database(self.address, read_only=True)
        table = ".".join(map(_quoted, self.name.split(".")))
        names = ", ".join(map(_quoted, columns))
        with closing(database), database.transaction(write=False) as tx:
            if tx.dialect == "sqlite":
                chance = 1 << 30
                some = (
                    f" AND abs(random()) % {chance} < {int(self.sample * chance)}" if self.sample < 1 else ""
                )
                statement = (
                    f"SELECT rowid, {names} FROM {table} WHERE rowid > ?{some} ORDER BY rowid LIMIT {ROWS}"
                )
                last: Any = -(1 << 63)
                while rows := tx.execute(statement, [last]).rows:
                    last = rows[-1][0]
                    yield {name: [row[i + 1] for row in rows] for i, name in enumerate(columns)}
                return
            some = f" TABLESAMPLE SYSTEM ({100 * self.sample})" if self.sample < 1 else ""
            tx.execute(f"DECLARE ringhash_rows NO SCROLL CURSOR FOR SELECT {names} FROM {table}{some}")
            while rows := tx.execute(f"FETCH {ROWS} FROM ringhash_rows").rows:
                yield {name: [row[i] for row in rows] for i, name in enumerate(columns)}


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def blocks_of(rows: Any, columns: Sequence[str]) -> Iterator[Block]:
    """Yield some columns of the rows in blocks.

    Args:
        rows: A path of a CSV file with a heading (also `.gz`) or of a Parquet file; a mapping of column
            names to arrays or lists; a DataFrame of pandas or polars; a Table of pyarrow; a `Table` of a
            database; or any iterable of dicts.
        columns: Their names, each once.

    Raises:
        ValueError: A column is missing; the message names those that are there.
        TypeError: `rows` is none of these.
    """
    if isinstance(rows, Table):
        yield from rows.blocks(columns)
    elif isinstance(rows, str | os.PathLike):
        path = Path(rows)
        suffixes = [suffix.lower() for suffix in path.suffixes]
        yield from _parquet(path, columns) if ".parquet" in suffixes else _csv(path, columns)
    elif isinstance(rows, Mapping):
        _check_columns(columns, list(rows))
        yield from _slices({name: rows[name] for name in columns})
    elif hasattr(rows, "columns") and hasattr(rows, "__getitem__"):
        names = getattr(rows, "column_names", None) or list(rows.columns)
        _check_columns(columns, names)
        yield from _slices({name: _plain(rows[name]) for name in columns})
    elif isinstance(rows, Iterable):
        yield from _dicts(rows, columns)
    else:
        raise TypeError(
            f"rows must be a path, a table, a frame, a mapping of columns or dicts, not {type(rows).__name__}"
        )


def _check_columns(columns: Sequence[str], there: Iterable[Any]) -> None:
    names = list(there)
    for column in columns:
        if column not in names:
            raise ValueError(f"there is no column {column!r}; the columns are {', '.join(map(str, names))}")


def _plain(column: Any) -> Any:
    """An array of numbers as it is, anything else as a list of Python objects."""
    array = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if array.dtype.kind in "iufM":
        return array
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return getattr(column, method)()
    return array.tolist()


def _slices(columns: Block) -> Iterator[Block]:
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the columns differ in length: {sizes}")
    count = next(iter(sizes.values()), 0)
    arrays = all(
        isinstance(column, np.ndarray) and column.dtype.kind in "iufM" for column in columns.values()
    )
    step = ITEMS if arrays else ROWS
    for start in range(0, count, step):
        yield {name: column[start : start + step] for name, column in columns.items()}


def _csv(path: Path, columns: Sequence[str]) -> Iterator[Block]:
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as raw:
        text = io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="")
        reader = csv.reader(text, strict=True)
        heading = next(reader, [])
        _check_columns(columns, heading)
        places = [heading.index(column) for column in columns]
        while rows := list(islice(reader, ROWS)):
            try:
                yield {
                    name: [row[i] or None for row in rows] for name, i in zip(columns, places, strict=True)
                }
            except IndexError:
                number = next(n for n, row in enumerate(rows) if len(row) <= max(places))
                line = reader.line_num - len(rows) + number + 1
                raise ValueError(f"{path}, line {line}: has fewer fields than the heading") from None


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Block]:
    try:
        import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
        import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    with pq.ParquetFile(path) as file:
        _check_columns(columns, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=ROWS, columns=list(columns)):
            block = pa.Table.from_batches([batch])
            yield {name: _plain(block[name]) for name in columns}


def _dicts(rows: Iterable[Any], columns: Sequence[str]) -> Iterator[Block]:
    source = iter(rows)
    while some := list(islice(source, ROWS)):
        try:
            yield {name: [row[name] for row in some] for name in columns}
        except KeyError as error:
            _check_columns([error.args[0]], some[0])
            raise ValueError(f"a row has no column {error.args[0]!r}") from None
        except TypeError:
            raise TypeError(f"rows must be dicts, not {type(some[0]).__name__}") from None

"""Keys from a column of a Parquet file, by pyarrow: the extra `parquet`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringhash.cli.column import column_in
from ringhash.cli.errors import InputError

__all__ = ["column_blocks", "columns"]

_ROWS = 1 << 16


def columns(path: str) -> list[str]:
    """Return the names of the columns."""
    return list(_opened(path).schema_arrow.names)


def column_blocks(path: str, column: str | None) -> Iterator[list[Any]]:
    """Yield the values of a column in blocks: `str`, `bytes` or `int`, and None for a null.

    A file of a single column needs no name.
    """
    file = _opened(path)
    names = list(file.schema_arrow.names)
    if column is None:
        if len(names) != 1:
            raise InputError(f"{path}: say which column holds the keys: --column {' or '.join(names)}")
        column = names[0]
    kind = file.schema_arrow.field(column_in(path, names, column)).type
    if str(kind) not in _KEYS and not str(kind).startswith("dictionary"):
        raise InputError(f"{path}: the column {column!r} holds {kind}, and keys are text, binary or integers")
    for batch in file.iter_batches(_ROWS, columns=[column]):
        yield batch.column(0).to_pylist()


_INTEGERS = [f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)]
_TEXTS = ["string", "large_string", "string_view", "binary", "large_binary", "binary_view"]
_KEYS = frozenset([*_INTEGERS, *_TEXTS])


def _opened(path: str) -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise InputError(f"{path}: Parquet needs pyarrow: pip install 'ringhash[parquet]'") from None
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise InputError(f"{path}: is not a Parquet file: {error}") from None

"""Many keys at once: what a caller may give, turned into what the core can read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from ringhash._core import Batch, UnreadableColumnError

__all__ = ["readable"]


def readable(keys: Any) -> Batch:
    """Return many keys as the core reads them: objects one by one, columns in place.

    Args:
        keys: A list, tuple or any iterable of keys, or a one-dimensional array or column: of numpy,
            with the Arrow PyCapsule interface (pyarrow, polars, pandas), or what becomes one.

    Raises:
        TypeError: One key was given instead of many, or an array of a type that no key has.
        ValueError: The array has not one dimension.
    """
    if isinstance(keys, Batch):  # that is asked of several rings
        return keys
    if type(keys) is list or type(keys) is tuple:
        return Batch(keys)
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(
            f"keys must be an iterable of keys, and a {type(keys).__name__} is one key; "
            "write [key], or call owner(key)"
        )
    # A column in which pandas holds a numpy array is read as that: it needs no conversion.
    is_numpy = isinstance(keys, np.ndarray) or isinstance(getattr(keys, "dtype", None), np.dtype)
    if not is_numpy and (hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")):
        try:
            return Batch(keys)
        except UnreadableColumnError:
            pass
    if is_numpy or hasattr(keys, "__array__"):
        return Batch(_from_array(np.asanyarray(keys)))
    if isinstance(keys, Iterable):
        return Batch(tuple(keys))
    raise TypeError(
        f"keys must be an iterable of keys, not {type(keys).__name__}; for one key call owner(key)"
    )


def _from_array(keys: np.ndarray[Any, Any]) -> list[Any] | np.ndarray[Any, Any]:
    if keys.ndim != 1:
        raise ValueError(
            f"an array of keys must have one dimension, not the shape {keys.shape}; try keys.ravel()"
        )
    kind = keys.dtype.kind
    if kind in "OUT" or isinstance(keys, np.ma.MaskedArray):
        return cast("list[Any]", keys.tolist())
    if kind not in "iuS":
        raise TypeError(f"an array of keys must hold integers, bytes, str or objects, not {keys.dtype}")
    if not keys.dtype.isnative:
        return keys.astype(keys.dtype.newbyteorder("="))
    return keys if keys.flags.aligned else keys.copy()

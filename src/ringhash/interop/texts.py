"""Many keys at once, each the text that a program sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["texts"]


def texts(keys: Any) -> tuple[Any, ...] | list[Any]:
    """Return many keys one by one.

    Args:
        keys: Any iterable of keys, or a one-dimensional column of numpy, pandas, polars or pyarrow.

    Raises:
        TypeError: One key was given instead of many.
        ValueError: The array has not one dimension.

    >>> import numpy as np
    >>> texts(np.array([b"a", b"bc"])), texts(iter("ab"))
    ([b'a', b'bc'], ('a', 'b'))
    """
    if isinstance(keys, (list, tuple)):
        return keys
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(
            f"keys must be an iterable of keys, and a {type(keys).__name__} is one key; "
            "write [key], or call owner(key)"
        )
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; numpy
        if hasattr(keys, method):
            if len(getattr(keys, "shape", (0,))) != 1:
                raise ValueError(f"an array of keys must have one dimension, not the shape {keys.shape}")
            return list(getattr(keys, method)())
    if isinstance(keys, Iterable):
        return tuple(keys)
    raise TypeError(f"keys must be an iterable of keys, not {type(keys).__name__}")

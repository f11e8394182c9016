"""Many keys at once: what a caller may give, turned into what the core can read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

import numpy as np

__all__ = ["readable"]


def readable(keys: Any) -> tuple[Any, ...] | list[Any] | np.ndarray[Any, Any]:
    """Return `keys` as a tuple or list, or as an array that the core reads in place.

    Args:
        keys: A list, tuple or any iterable of keys, or a one-dimensional array (numpy, or anything
            that becomes one, such as a pandas Series).

    Raises:
        TypeError: One key was given instead of many, or an array of a type that no key has.
        ValueError: The array has not one dimension.
    """
    if type(keys) is list or type(keys) is tuple:
        return keys
    if isinstance(keys, (str, bytes, bytearray, memoryview, UUID)):
        raise TypeError(
            f"keys must be an iterable of keys, and a {type(keys).__name__} is one key; "
            "write [key], or call owner(key)"
        )
    if isinstance(keys, np.ndarray):
        return _from_array(keys)
    if hasattr(keys, "__array__"):
        return _from_array(np.asarray(keys))
    if isinstance(keys, Iterable):
        return tuple(keys)
    raise TypeError(f"keys must be an iterable of keys, not {type(keys).__name__}")


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

"""How other programs read a key: as text, by a hash of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np

from ringhash.interop._table import Keys
from ringhash.interop.given import check_tag, whole_number
from ringhash.interop.hashes import hash_named, hash_size
from ringhash.records import document, field, read_document, read_word, word
from ringhash.space import Space

__all__ = ["TextSpace", "texts"]

_NEEDED = frozenset({"hash"})
_OPTIONAL = frozenset({"modulus", "hash_tag"})


class TextSpace(Keys, Space):
    """How one program turns a key, which is text, into a position.

    Its size is what the hash can give: "crc32-15" has 32,768 positions, whatever ring they lie on.

    Args:
        hash_name: A name that `ringhash.interop.hashes.hash_named` knows.
        modulus: The position is the remainder of the hash by this number; 0 for the hash itself.
        hash_tag: Two characters; what stands between them in a key is hashed alone.

    Raises:
        ValueError: There is no such hash, or a setting is out of range.

    >>> TextSpace("crc16", 16384, "{}").position("user:{7}:cart") == TextSpace("crc16", 16384).position("7")
    True
    """

    kind: ClassVar[str] = "text"

    def __init__(self, hash_name: str, modulus: int = 0, hash_tag: str | None = None) -> None:
        modulus = whole_number(modulus, "modulus", 0, (1 << 64) - 1)
        self._set_keys(hash_name, hash_named(hash_name), modulus, check_tag(hash_tag))

    @property
    def size(self) -> int:
        """How many positions keys can have."""
        size = hash_size(self.hash_name)
        return min(size, self.modulus) if self.modulus else size

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the positions of many keys, as uint64; `keys` as for `texts`."""
        return self._positions(texts(keys))

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key that are hashed: its UTF-8, less what is outside of its tag."""
        return self._key_bytes(key)

    def with_modulus(self, modulus: int) -> TextSpace:
        """Return the space in which a position is the remainder by another number."""
        return TextSpace(self.hash_name, modulus, self.hash_tag)

    def same_reading(self, other: Space) -> bool:
        """Return whether both hash keys alike; two that take a remainder may take it by two numbers."""
        if not isinstance(other, TextSpace):
            return False
        same_way = bool(self.modulus) == bool(other.modulus)
        return same_way and (self.hash_name, self.hash_tag) == (other.hash_name, other.hash_tag)

    def _reading(self) -> tuple[str, int, object]:
        return self.hash_name, self.modulus, self.hash_tag

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        return document("text", hash=self.hash_name, modulus=word(self.modulus), hash_tag=self.hash_tag)

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described; `ValueError` names what is wrong."""
        record = read_document(data, where, "text", _NEEDED, _OPTIONAL)
        try:
            return cls(
                field(record, where, "hash", str),
                read_word(record, where, "modulus") if "modulus" in record else 0,
                field(record, where, "hash_tag", str, type(None)) if "hash_tag" in record else None,
            )
        except ValueError as error:
            raise ValueError(f"{where}: {str(error).removeprefix(where + ': ')}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextSpace):
            return NotImplemented
        return self._reading() == other._reading()

    def __hash__(self) -> int:
        return hash(self._reading())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.hash_name, self.modulus, self.hash_tag)

    def __repr__(self) -> str:
        return f"TextSpace({self.hash_name!r}, {self.modulus}, {self.hash_tag!r})"


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

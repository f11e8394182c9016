"""How a key becomes a position: what a plan needs to know of the placement that it was made for."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ringhash._core import Batch, KeySpace
from ringhash.immutable import Immutable, slot_setter

__all__ = ["Positions", "ShardSpace"]


class Positions(Protocol):
    """Where keys lie: a ring's `KeySpace` or a shard table's `ShardSpace`."""

    @property
    def seed(self) -> int:
        """The seed of the hash."""

    @property
    def hash_tags(self) -> bool:
        """Whether a part in braces stands for the whole key."""

    def position(self, key: Any, /) -> int:
        """Return the position of `key`."""

    def _positions(self, batch: Batch, /) -> np.ndarray[Any, Any]: ...


class ShardSpace(Immutable):
    """Positions that are shards: the ring position of a key, modulo the number of shards.

    The remainder is taken of the upper 32 bits of XXH3-64, so it uses their low bits (all of them
    where `count` is no power of two), and the ring uses their high ones.
    """

    __slots__ = ("_keys", "count")

    count: int
    _keys: KeySpace

    def __init__(self, count: int, seed: int, hash_tags: bool) -> None:
        _set_count(self, count)
        _set_keys(self, KeySpace(seed, hash_tags))

    @property
    def seed(self) -> int:
        """The seed of the hash."""
        return self._keys.seed

    @property
    def hash_tags(self) -> bool:
        """Whether a part in braces stands for the whole key."""
        return bool(self._keys.hash_tags)

    def position(self, key: Any, /) -> int:
        """Return the shard of `key`."""
        return self._keys.position(key) % self.count

    def _positions(self, batch: Batch, /) -> np.ndarray[Any, np.dtype[np.uint32]]:
        positions = self._keys._positions(batch)
        count = self.count
        if count & (count - 1) == 0:
            positions &= np.uint32(count - 1)
            return positions
        # Eight times as fast as numpy's %: division by a scalar is vectorised, the remainder is not.
        multiple = positions // np.uint32(count)
        multiple *= np.uint32(count)
        positions -= multiple
        return positions


_set_count = slot_setter(ShardSpace, "count")
_set_keys = slot_setter(ShardSpace, "_keys")

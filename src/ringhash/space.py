"""How a key becomes a position: what a plan needs to know of the placement that it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ringhash._core import KeySpace
from ringhash.batch import readable
from ringhash.immutable import Immutable, slot_setter
from ringhash.records import field

if TYPE_CHECKING:
    from ringhash.interop.placement import TextKeys

# How a key becomes a position: in a ring, in a shard table, as another program does it.
Positions: TypeAlias = "KeySpace | ShardSpace | TextKeys"

__all__ = ["Positions", "ShardSpace", "describe", "positions_of", "read_positions"]


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

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the shards of many keys; `keys` as for `Ring.index_many`."""
        positions = self._keys._positions(readable(keys))
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


def positions_of(space: Positions, keys: Any) -> np.ndarray[Any, Any]:
    """Return the positions of many keys, as unsigned integers."""
    return space._positions(readable(keys)) if isinstance(space, KeySpace) else space.positions(keys)


def describe(positions: Positions) -> dict[str, object]:
    """Return what a plan says in JSON of how keys become positions, as fields of its dictionary."""
    if isinstance(positions, (KeySpace, ShardSpace)):
        shards = {"shards": True} if isinstance(positions, ShardSpace) else {}
        return {"seed": positions.seed, "hash_tags": bool(positions.hash_tags), **shards}
    return {"placement": positions.to_dict()}


def read_positions(record: Mapping[str, object], space: int) -> Positions:
    """Return what `describe` described, for a plan of `space` positions.

    Raises:
        ValueError: A field is wrong; the message names it.
    """
    if "placement" in record:
        from ringhash.interop.placement import TextKeys  # noqa: PLC0415  (that module is above this one)

        return TextKeys.from_dict(record["placement"], "plan.placement")
    seed = field(record, "plan", "seed", int)
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"plan.seed: must be from 0 to 2**64 - 1, not {seed}")
    hash_tags = field(record, "plan", "hash_tags", bool)
    if "shards" not in record:
        return KeySpace(seed, hash_tags)
    if record["shards"] is not True:
        raise ValueError(f"plan.shards: must be true or left out, not {record['shards']!r}")
    if space > 1 << 32:
        raise ValueError(f"plan.space: there are at most 2**32 shards, not {space}")
    return ShardSpace(space, seed, hash_tags)

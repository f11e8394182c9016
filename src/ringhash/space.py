"""Spaces: how a key is read, and which integer is its position."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, cast

import numpy as np

from ringhash import _core
from ringhash.batch import readable
from ringhash.immutable import Immutable, slot_setter
from ringhash.node import plain_type
from ringhash.ranges import KeyRange
from ringhash.records import document, field, read_document, read_word, word

__all__ = [
    "ADDRESS_BYTES", "HashSpace", "Keys", "ModuloSpace", "Space", "check_integer", "check_options", "load",
    "read_reading", "space_from",
]  # fmt: skip

ADDRESS_BYTES = 8
_HASH_SIZE = 1 << 32
_MOST = (1 << 64) - 1

# Where the spaces are, by kind; loaded when they are first asked for.
_SPACES = {
    "hash": "ringhash.space:HashSpace",
    "modulo": "ringhash.space:ModuloSpace",
    "text": "ringhash.interop.texts:TextSpace",
    "ordered": "ringhash.ordered:OrderedSpace",
    "entry": "ringhash.placements.entry_space:EntrySpace",
}


class Keys(NamedTuple):
    """The keys of some positions, as a database can filter by them.

    Either from `start` (included; None: from the lowest) to `end` (not included; None: to the highest), or,
    if `single` is a tuple, just its keys.
    """

    start: Any
    end: Any
    single: tuple[Any, ...] | None


class Space(Immutable):
    """How a key is read, and which integer from 0 to `size - 1` is its position; the base of all spaces.

    `measured` says whether a part of the positions is a part of the keys.
    """

    __slots__ = ()

    kind: ClassVar[str] = ""
    measured: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """The number of positions."""
        raise NotImplementedError

    def position(self, key: Any, /) -> int:
        """Return the position of a key."""
        raise NotImplementedError

    def positions(self, keys: Any) -> np.ndarray[Any, Any]:
        """Return the positions of many keys, as an array of unsigned integers."""
        raise NotImplementedError

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes that a key counts by: two keys with equal bytes are one key."""
        raise NotImplementedError

    def address(self, key: Any) -> bytes:
        """Return bytes that sort as the positions do and depend on no plan: what fences and logs store."""
        return self.address_of(self.position(key)) or b""

    def address_of(self, position: int) -> bytes | None:
        """Return the lowest address of a position; None for `size`, above all of them."""
        if not 0 <= position <= self.size:
            raise IndexError(f"a position is from 0 to {self.size - 1}, not {position}")
        return None if position == self.size else position.to_bytes(ADDRESS_BYTES, "big")

    def keys(self, positions: KeyRange) -> Keys | None:  # noqa: ARG002  (others need it)
        """Return what a database can filter by to find the keys of some positions; None if nothing does."""
        return None

    def same_reading(self, other: Space) -> bool:
        """Return whether both read keys alike, so that a plan from one to the other means something."""
        return self == other

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        raise NotImplementedError

    # A compiled space has a `__getitem__` or none; either way nothing iterates over a space.
    __iter__ = None
    __contains__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)


class HashSpace(_core.HashSpace, Space):
    """Positions of a ring: the upper half of the XXH3-64 hash of a key.

    Args:
        seed: An unsigned 64-bit integer.
        hash_tags: Whether a part in braces stands for the whole key.

    >>> space = HashSpace()
    >>> space.position("user:7"), space.address("user:7").hex(), space.size == 2**32
    (6795815, '000000000067b227', True)
    """

    __slots__ = ()

    kind: ClassVar[str] = "hash"

    def __init__(self, seed: int = 0, hash_tags: bool = False) -> None:
        check_options(seed, hash_tags)
        super().__init__(int(seed), hash_tags)

    @property
    def size(self) -> int:
        """2**32."""
        return _HASH_SIZE

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the positions of many keys, as uint32; `keys` as for `Ring.index_many`."""
        return self._positions(readable(keys))

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key that are hashed: its UTF-8, less what is outside of its tag."""
        return self._key_bytes(key)

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        return document("hash", seed=word(self.seed), hash_tags=bool(self.hash_tags))

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described; `ValueError` names the field that is wrong."""
        record = read_document(data, where, "hash", frozenset(), frozenset({"seed", "hash_tags"}))
        return cls(*read_reading(record, where))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashSpace):
            return NotImplemented
        return (self.seed, self.hash_tags) == (other.seed, other.hash_tags)

    def __hash__(self) -> int:
        return hash(("hash", self.seed, self.hash_tags))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seed, bool(self.hash_tags))

    def __repr__(self) -> str:
        return f"HashSpace(seed={self.seed}, hash_tags={bool(self.hash_tags)})"


class ModuloSpace(Space):
    """Positions that are shards: the ring position of a key, modulo the number of shards.

    The remainder is taken of the upper 32 bits of XXH3-64, so it uses their low bits (all of them
    if `count` is no power of two), and the ring uses their high ones.

    >>> ModuloSpace(64, seed=1).position("user:7") == HashSpace(1).position("user:7") % 64
    True
    """

    __slots__ = ("_hashes", "count")

    kind: ClassVar[str] = "modulo"
    count: int
    _hashes: HashSpace

    def __init__(self, count: int, seed: int = 0, hash_tags: bool = False) -> None:
        check_integer("count", count, 1, _HASH_SIZE)
        _set_hashes(self, HashSpace(seed, hash_tags))
        _set_count(self, int(count))

    @property
    def size(self) -> int:
        """The number of shards."""
        return self.count

    @property
    def seed(self) -> int:
        """The seed of the hash."""
        return self._hashes.seed

    @property
    def hash_tags(self) -> bool:
        """Whether a part in braces stands for the whole key."""
        return bool(self._hashes.hash_tags)

    def position(self, key: Any, /) -> int:
        """Return the shard of `key`."""
        return self._hashes.position(key) % self.count

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the shards of many keys, as uint32; `keys` as for `Ring.index_many`."""
        positions = self._hashes.positions(keys)
        count = self.count
        if count & (count - 1) == 0:
            positions &= np.uint32(count - 1)
            return positions
        # Eight times as fast as numpy's %: division by a scalar is vectorised, the remainder is not.
        multiple = positions // np.uint32(count)
        multiple *= np.uint32(count)
        positions -= multiple
        return positions

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key that are hashed, as `HashSpace.key_bytes`."""
        return self._hashes.key_bytes(key)

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        return document("modulo", count=self.count, seed=word(self.seed), hash_tags=self.hash_tags)

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described; `ValueError` names the field that is wrong."""
        needed, optional = frozenset({"count"}), frozenset({"seed", "hash_tags"})
        record = read_document(data, where, "modulo", needed, optional)
        return cls(read_word(record, where, "count", 1, _HASH_SIZE), *read_reading(record, where))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModuloSpace):
            return NotImplemented
        return self.count == other.count and self._hashes == other._hashes

    def __hash__(self) -> int:
        return hash(("modulo", self.count, self._hashes))

    def __repr__(self) -> str:
        return f"ModuloSpace({self.count}, seed={self.seed}, hash_tags={self.hash_tags})"


_set_count = slot_setter(ModuloSpace, "count")
_set_hashes = slot_setter(ModuloSpace, "_hashes")


def space_from(data: object, where: str = "space") -> Space:
    """Return the space that its `to_dict` described, whatever its kind.

    Raises:
        ValueError: There is no such kind, or a field is missing, unknown or wrong.
    """
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _SPACES:
        _fail_kind(data, where)
    return cast("Space", load(_SPACES[kind]).from_dict(data, where))


def _fail_kind(data: object, where: str) -> NoReturn:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: must be an object, not {plain_type(data)}")
    raise ValueError(f"{where}.kind: must be one of {', '.join(sorted(_SPACES))}, not {data.get('kind')!r}")


def load(place: str) -> Any:
    """Return what is at `module:name`, imported now."""
    module, name = place.split(":")
    return getattr(import_module(module), name)


def read_reading(record: Any, where: str, seed: int = 0) -> tuple[int, bool]:
    """Return the fields `seed` and `hash_tags` of a document; `seed` is what stands for one left out."""
    if "seed" in record:
        seed = read_word(record, where, "seed")
    return seed, field(record, where, "hash_tags", bool) if "hash_tags" in record else False


def check_options(seed: object, hash_tags: object) -> None:
    """Raise `TypeError` or `ValueError` unless both are what a hash may be told."""
    check_integer("seed", seed, 0, _MOST)
    if not isinstance(hash_tags, bool):
        raise TypeError(f"hash_tags must be True or False, not {plain_type(hash_tags)}")


def check_integer(name: str, value: object, least: int, most: int) -> None:
    """Raise `TypeError` or `ValueError` unless `value` is an integer, and no bool, from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {plain_type(value)}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")

"""The positions of another space, and one more for each of some keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ringhash._core import EntryTable
from ringhash.batch import readable
from ringhash.immutable import slot_setter
from ringhash.ranges import KeyRange
from ringhash.records import document, field, read_document
from ringhash.space import HashSpace, Keys, ModuloSpace, Space, space_from

__all__ = ["EntrySpace", "key_of", "plain_entry_key", "positions_of_bytes", "read_entry_key", "reader_of"]

_MOST = 1 << 64


def reader_of(space: Space) -> HashSpace:
    """Return what reads the keys of entries over a space: with its tags and seed where it hashes keys."""
    if isinstance(space, (HashSpace, ModuloSpace)):
        return HashSpace(space.seed, bool(space.hash_tags))
    return HashSpace()


def key_of(data: bytes) -> str | bytes:
    """Return a key that has these bytes: text if they are UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def plain_entry_key(data: bytes) -> object:
    """Return the bytes of a key as JSON holds them: text if they are UTF-8, else {"hex": digits}."""
    key = key_of(data)
    return key if isinstance(key, str) else {"hex": key.hex()}


def read_entry_key(value: object, where: str) -> bytes:
    """Return the bytes that `plain_entry_key` described.

    Raises:
        ValueError: They are none; the message names `where`.
    """
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and value.keys() == {"hex"} and isinstance(value["hex"], str):
            return bytes.fromhex(value["hex"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    raise ValueError(f'{where}: must be text, or {{"hex": digits}}, not {value!r}')


def positions_of_bytes(space: Space, keys: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the positions of keys that are given by their bytes, as uint64."""
    if not keys:
        return np.empty(0, np.uint64)
    if isinstance(space, (HashSpace, ModuloSpace)):
        return space.positions(list(keys)).astype(np.uint64)
    return np.array([space.position(_readable_key(space, key)) for key in keys], np.uint64)


def _readable_key(space: Space, data: bytes) -> str | bytes:
    return data if getattr(getattr(space, "shape", None), "parts", None) == "bytes" else key_of(data)


class EntrySpace(Space):
    """The positions of another space, and behind them one for each of some keys.

    Args:
        below: The space of the other keys.
        keys: The bytes of keys with a position of their own, as `key_bytes` gives them.

    >>> space = EntrySpace(ModuloSpace(4), [b"acme", b"beta"])
    >>> space.size, space.position("acme"), space.position("gamma") < 4
    (6, 4, True)
    """

    __slots__ = ("_table", "below", "entries")

    kind: ClassVar[str] = "entry"
    measured: ClassVar[bool] = False
    below: Space
    entries: tuple[bytes, ...]
    _table: EntryTable

    def __init__(self, below: Space, keys: Iterable[bytes]) -> None:
        entries = tuple(sorted(set(keys)))
        if below.size + len(entries) > _MOST:
            raise ValueError("there is no room for entries behind a space of 2**64 positions")
        reader = reader_of(below)
        table = EntryTable(entries, range(len(entries)), reader.seed, bool(reader.hash_tags))
        for set_slot, value in zip(_SET_SLOTS, (table, below, entries), strict=True):
            set_slot(self, value)

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.below.size + len(self.entries)

    def position(self, key: Any, /) -> int:
        """Return the position of a key: one of its own, or that in the space below."""
        found = self._table.find(key)
        return self.below.position(key) if found < 0 else self.below.size + found

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the positions of many keys, as uint64."""
        if not hasattr(keys, "__len__"):
            keys = list(keys)
        positions = self.below.positions(keys).astype(np.uint64)
        found = self._table.find_many(readable(keys))
        own = found >= 0
        positions[own] = found[own].astype(np.uint64) + np.uint64(self.below.size)
        return positions

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes that a key counts by, tags narrowed."""
        return reader_of(self.below).key_bytes(key)

    def address(self, key: Any) -> bytes:
        """Return the address: byte 1 and the key's bytes if it has an entry, else byte 0 and that below."""
        data = self.key_bytes(key)
        return b"\1" + data if self._table.find(data) >= 0 else b"\0" + self.below.address(key)

    def address_of(self, position: int) -> bytes | None:
        """Return the lowest address of a position; None for `size`, above all of them."""
        if not 0 <= position <= self.size:
            raise IndexError(f"a position is from 0 to {self.size - 1}, not {position}")
        if position < self.below.size:
            return b"\0" + (self.below.address_of(position) or b"")
        number = position - self.below.size
        return b"\1" + self.entries[number] if number < len(self.entries) else None

    def keys(self, positions: KeyRange) -> Keys | None:
        """Return the keys of entries one by one, those of other positions as the space below does."""
        if positions.start >= self.below.size:
            first, last = positions.start - self.below.size, positions.end - self.below.size
            return Keys(None, None, tuple(map(key_of, self.entries[first : last + 1])))
        return self.below.keys(positions) if positions.end < self.below.size else None

    def same_reading(self, other: Space) -> bool:
        """Return whether the spaces below read keys alike; entries may differ."""
        return isinstance(other, EntrySpace) and self.below.same_reading(other.below)

    def to_dict(self) -> dict[str, object]:
        """Return the space as a dictionary that JSON can hold."""
        return document(
            "entry", below=self.below.to_dict(), entries=[plain_entry_key(key) for key in self.entries]
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "space") -> Self:
        """Return the space that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = read_document(data, where, "entry", frozenset({"below", "entries"}))
        below = space_from(record["below"], f"{where}.below")
        entries = [
            read_entry_key(key, f"{where}.entries[{i}]")
            for i, key in enumerate(field(record, where, "entries", list))
        ]
        if entries != sorted(set(entries)):
            raise ValueError(f"{where}.entries: must be in order of their bytes, and distinct")
        return cls(below, entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EntrySpace):
            return NotImplemented
        return (self.below, self.entries) == (other.below, other.entries)

    def __hash__(self) -> int:
        return hash((self.below, self.entries))

    def __repr__(self) -> str:
        return f"<EntrySpace: {len(self.entries)} entries over {self.below!r}>"


_SET_SLOTS = tuple(slot_setter(EntrySpace, name) for name in EntrySpace.__slots__)

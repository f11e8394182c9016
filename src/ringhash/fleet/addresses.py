"""Addresses: the bytes by which databases know keys, whatever plan is under way.

A key has the address of its space. Over a directory it has two: one for an entry of its own, and one for the
default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from ringhash.placement import Layered, Placement
from ringhash.placements.entry_space import EntrySpace
from ringhash.ranges import KeyRange
from ringhash.space import Space

__all__ = ["Fenced", "address_of_key", "addresses_of", "fenced_by", "key_of_address", "reading_of"]

_ENTRY, _DEFAULT = b"\1", b"\0"


class Fenced(NamedTuple):
    """What some positions are to a fence: ranges of addresses, and addresses of single keys."""

    ranges: list[tuple[bytes, bytes | None]]
    keys: list[bytes]


def addresses_of(placement: Placement, key: Any) -> tuple[bytes, ...]:
    """Return the address of a key; over a directory that of its entry, whether it has one or not, and then
    the default's.

    Raises:
        TypeError, ValueError, OverflowError: It is no key of this placement.
    """
    if isinstance(placement, Layered):
        own = cast("Any", placement).key_bytes(key)
        return _ENTRY + own, _DEFAULT + placement.default.space.address(key)
    return (placement.space.address(key),)


def fenced_by(space: Space, positions: Iterable[KeyRange]) -> Fenced:
    """Return the addresses of positions, such as those of a piece. O(ranges, and single keys)."""
    ranges: list[tuple[bytes, bytes | None]] = []
    keys: list[bytes] = []
    size = space.below.size if isinstance(space, EntrySpace) else space.size
    for start, end in positions:
        if start < size:
            behind = min(end, size - 1) + 1
            high = None if behind == size else space.address_of(behind)
            ranges.append((space.address_of(start) or b"", high))
        if end >= size:
            entries = cast("EntrySpace", space).entries[max(start, size) - size : end + 1 - size]
            keys += map(address_of_key, entries)
    return Fenced(ranges, keys)


def address_of_key(key: bytes) -> bytes:
    """Return the address of a single key, given by its bytes."""
    return _ENTRY + key


def key_of_address(address: bytes) -> bytes:
    """Return the bytes of the single key that has this address."""
    return address.removeprefix(_ENTRY)


def reading_of(placement: Placement) -> dict[str, object]:
    """Return how a placement reads keys: what must stay as it is for addresses to keep their meaning."""
    if isinstance(placement, Layered):
        return {"kind": "entry", "below": reading_of(placement.default)}
    reading = dict(placement.space.to_dict())
    for name in ("cuts", "count"):  # a plan cuts where it likes, and shards may be split
        reading.pop(name, None)
    return reading

"""Pins: a few keys that go to a node of their own, whatever the ring says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from ringhash._core import KeySpace, Table
from ringhash.batch import readable
from ringhash.records import check_fields, plain_name

__all__ = ["Pin", "Pins", "kept"]


class Pin(NamedTuple):
    """A key, as the bytes that would be hashed, and the node it is pinned to."""

    key: bytes
    node: str

    def to_dict(self) -> dict[str, str]:
        """Return the pin as a dictionary that JSON can hold: `key` is text, or `key_hex` is not."""
        try:
            return {"key": self.key.decode(), "node": self.node}
        except UnicodeDecodeError:
            return {"key_hex": self.key.hex(), "node": self.node}

    @classmethod
    def list_from(cls, data: object, where: str) -> list[Self]:
        """Return the pins of a list of what `to_dict` makes, in order of their keys."""
        if type(data) is not list:
            raise ValueError(f"{where}: must be a list, not {plain_name(data)}")
        pins = [cls._from_dict(record, f"{where}[{i}]") for i, record in enumerate(data)]
        pins.sort()
        for one, other in pairwise(pins):
            if one.key == other.key:
                raise ValueError(f"{where}: the key {one.key!r} is pinned twice")
        return pins

    @classmethod
    def _from_dict(cls, data: object, where: str) -> Self:
        is_text = isinstance(data, Mapping) and "key" in data
        name = "key" if is_text else "key_hex"
        record = check_fields(data, where, frozenset({name, "node"}))
        key, node = record[name], record["node"]
        if not isinstance(key, str) or not isinstance(node, str) or not node:
            raise ValueError(f"{where}: {name} and node must be strings, and node must not be empty")
        try:
            return cls(key.encode() if is_text else bytes.fromhex(key), node)
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {error}") from None


class Pins:
    """An immutable set of pins, by key."""

    __slots__ = ("_positions", "nodes")

    nodes: Mapping[bytes, str]

    def __init__(self, nodes: Mapping[bytes, str] | Iterable[Pin] = ()) -> None:
        self.nodes = MappingProxyType(dict(sorted(dict(nodes).items())))
        self._positions: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Pin]:
        return (Pin(key, node) for key, node in self.nodes.items())

    def with_pin(self, key: bytes, node: str) -> Pins:
        """Return these pins and one more, which takes the place of an old one of that key."""
        return Pins({**self.nodes, key: node})

    def without(self, pins: Iterable[Pin]) -> Pins:
        """Return these pins, less those of the same keys as `pins`."""
        ended = {pin.key for pin in pins}
        return Pins({key: node for key, node in self.nodes.items() if key not in ended}) if ended else self

    def to(self, names: Iterable[str]) -> tuple[Pin, ...]:
        """Return the pins to nodes of these names."""
        wanted = frozenset(names)
        return tuple(pin for pin in self if pin.node in wanted) if wanted else ()

    def rows(self, table: Table, keys: Any) -> Iterator[tuple[int, str]]:
        """Yield the index and the node of each of many keys that is pinned; `keys` from `kept`.

        One hash a key; only keys at the position of a pinned one are looked at.
        """
        if self._positions is None:
            space = KeySpace(table.seed)  # no tags: the bytes are narrowed already
            self._positions = np.array([space.position(key) for key in self.nodes], np.uint32)
        positions = table._positions(readable(keys))
        for row in np.flatnonzero(np.isin(positions, self._positions)).tolist():
            node = self.nodes.get(table._key_bytes(_item(keys, row)))
            if node is not None:
                yield row, node


def kept(keys: Any) -> Any:
    """Return many keys in a form that can be read more than once, and by index."""
    if isinstance(keys, (list, tuple, str, bytes, bytearray, memoryview)):
        return keys  # those that are one key are refused by `readable`
    if any(hasattr(keys, name) for name in ("__array__", "__arrow_c_array__", "__arrow_c_stream__")):
        return keys
    return tuple(keys) if isinstance(keys, Iterable) else keys


def _item(keys: Any, row: int) -> Any:
    item = keys.iloc[row] if hasattr(keys, "iloc") else keys[row]
    return item.as_py() if hasattr(item, "as_py") else item

"""Pins: a few keys that go to a node of their own, whatever the placement says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, Self

from ringhash.records import document, field, plain_name, read_document

__all__ = ["Pin", "Pins"]


class Pin(NamedTuple):
    """A pinned key.

    Args:
        key: The bytes that the key counts by: its UTF-8, narrowed to its tag where tags count.
        node: The node that it goes to.
        epoch: The epoch that the pin made.
    """

    key: bytes
    node: str
    epoch: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the pin as a dictionary that JSON can hold: `key` if it is text, else `key_hex`."""
        try:
            key = {"key": self.key.decode()}
        except UnicodeDecodeError:
            key = {"key_hex": self.key.hex()}
        return document("pin", **key, node=self.node, epoch=self.epoch)

    @classmethod
    def from_dict(cls, data: object, where: str = "pin") -> Self:
        """Return the pin that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        is_text = isinstance(data, Mapping) and "key" in data
        name = "key" if is_text else "key_hex"
        record = read_document(data, where, "pin", frozenset({name, "node"}), frozenset({"epoch"}))
        key = field(record, where, name, str)
        node = field(record, where, "node", str)
        epoch = field(record, where, "epoch", int) if "epoch" in record else 0
        if not node:
            raise ValueError(f"{where}.node: must not be empty")
        if epoch < 0:
            raise ValueError(f"{where}.epoch: must not be negative, not {epoch}")
        try:
            return cls(key.encode() if is_text else bytes.fromhex(key), node, epoch)
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {error}") from None

    @classmethod
    def list_from(cls, data: object, where: str) -> list[Self]:
        """Return the pins of a list of what `to_dict` makes, in order of their keys."""
        if type(data) is not list:
            raise ValueError(f"{where}: must be a list, not {plain_name(data)}")
        pins = [cls.from_dict(record, f"{where}[{i}]") for i, record in enumerate(data)]
        pins.sort()
        for one, other in pairwise(pins):
            if one.key == other.key:
                raise ValueError(f"{where}: the key {one.key!r} is pinned twice")
        return pins


class Pins(Mapping[bytes, Pin]):
    """The pins of a router at one moment, by key and in order of keys; read-only.

    >>> pins = Pins([Pin(b"tenant:7", "gw-2", epoch=1)])
    >>> pins[b"tenant:7"].node, len(pins)
    ('gw-2', 1)
    """

    __slots__ = ("_pins",)

    _pins: dict[bytes, Pin]

    def __init__(self, pins: Iterable[Pin] = ()) -> None:
        self._pins = {pin.key: pin for pin in sorted(pins)}

    def __getitem__(self, key: bytes) -> Pin:
        return self._pins[key]

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pins)

    def with_pin(self, pin: Pin) -> Pins:
        """Return these pins and one more, which takes the place of an old one of that key."""
        return Pins({**self._pins, pin.key: pin}.values())

    def without(self, pins: Iterable[Pin]) -> Pins:
        """Return these pins without those of the same keys as `pins`."""
        ended = {pin.key for pin in pins}
        return Pins(pin for pin in self.values() if pin.key not in ended) if ended else self

    def to(self, names: Iterable[str]) -> tuple[Pin, ...]:
        """Return the pins to nodes of these names."""
        wanted = frozenset(names)
        return tuple(pin for pin in self.values() if pin.node in wanted) if wanted else ()

    def __repr__(self) -> str:
        return f"<Pins: {len(self)} keys>"

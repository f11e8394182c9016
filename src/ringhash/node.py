"""A node: its name, its weight and its zone."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from ringhash.immutable import Immutable, slot_setter
from ringhash.records import check_fields, field

__all__ = [
    "Node",
    "names_from",
    "nodes_from",
    "plain_name_of",
    "plain_type",
    "refuse_one_text",
    "token",
    "token_sum",
    "weight_from",
]

# What nobody has as the client of a node: where it stands for a weight, it is a mistake.
_PLAIN = (str, bytes, numbers.Number, np.generic, list, tuple, dict, set)
_NEEDED = frozenset({"name"})
_OPTIONAL = frozenset({"weight", "zone"})


class Node(Immutable):
    """One member of a ring; immutable, and equal to a node with the same name, weight and zone.

    Args:
        name: A non-empty str. It alone decides where the points of the node lie.
        weight: A finite number above 0. A node of weight 2 has twice the points of a node of
            weight 1, and owns about twice as many keys.
        zone: The failure domain (rack, room, region) that `owners(key, n, distinct="zone")`
            spreads over; None is a zone of the node's own.
        data: Anything you want to have at hand with the node, such as a client. It is no part of
            placement, equality, digests, documents or pickles; placements keep it when they change.

    Raises:
        TypeError: The name or zone is not a str, or the weight is not a real number.
        ValueError: The name or zone is empty or has no UTF-8 form, or the weight is not a finite
            number above 0.

    >>> Node("gw-3", weight=2.0, zone="b")
    Node('gw-3', weight=2.0, zone='b')
    """

    __slots__ = ("data", "name", "weight", "zone")

    name: str
    weight: float
    zone: str | None
    data: Any

    def __new__(cls, name: str, weight: float = 1.0, zone: str | None = None, *, data: object = None) -> Self:
        """Check and set everything; there is no `__init__` that could be called again."""
        self = object.__new__(cls)
        _set_name(self, name if type(name) is str and name and name.isascii() else _text(name))
        _set_weight(self, weight if weight == 1.0 and type(weight) is float else weight_from(weight))
        _set_zone(self, zone if zone is None else _text(zone, "a zone"))
        _set_data(self, data)
        return self

    def weighing(self, weight: float) -> Self:
        """Return the node with another weight."""
        return type(self)(self.name, weight, self.zone, data=self.data)

    def keeping(self, data: object) -> Self:
        """Return the node with `data`, unless it has its own."""
        if data is None or self.data is not None:
            return self
        return type(self)(self.name, self.weight, self.zone, data=data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return self.name == other.name and self.weight == other.weight and self.zone == other.zone

    def __hash__(self) -> int:
        return hash((self.name, self.weight, self.zone))

    def __repr__(self) -> str:
        weight = "" if self.weight == 1.0 else f", weight={self.weight!r}"
        zone = "" if self.zone is None else f", zone={self.zone!r}"
        return f"Node({self.name!r}{weight}{zone})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.weight, self.zone)

    def to_dict(self) -> dict[str, object]:
        """Return the node as a dictionary that JSON can hold.

        >>> Node("gw-1").to_dict()
        {'name': 'gw-1', 'weight': 1.0, 'zone': None}
        """
        return {"name": self.name, "weight": self.weight, "zone": self.zone}

    @classmethod
    def from_dict(cls, data: object, where: str = "node") -> Self:
        """Return the node that `to_dict` described.

        Args:
            data: A mapping with the field name; weight and zone may be left out.
            where: How error messages name `data`.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, where, _NEEDED, _OPTIONAL)
        name = field(record, where, "name", str)
        weight = field(record, where, "weight", float, int) if "weight" in record else 1.0
        zone = field(record, where, "zone", str, type(None)) if "zone" in record else None
        try:
            return cls(name, weight, zone)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


_set_name = slot_setter(Node, "name")
_set_weight = slot_setter(Node, "weight")
_set_zone = slot_setter(Node, "zone")
_set_data = slot_setter(Node, "data")


def token(node: Node) -> int:
    """Return the 128 bits that stand for a node in digests, as docs/spec.md says."""
    from hashlib import blake2b  # noqa: PLC0415  (it loads OpenSSL, and not every placement has a digest)

    name = node.name.encode()
    record = struct.pack("<I", len(name)) + name + struct.pack("<d", node.weight)
    record += b"\0" if node.zone is None else b"\1" + node.zone.encode()
    return int.from_bytes(blake2b(record, digest_size=16).digest(), "little")


def token_sum(nodes: Iterable[Node]) -> int:
    """Return the sum of the tokens of nodes, modulo 2**128."""
    return sum(map(token, nodes)) % (1 << 128)


def _text(value: object, what: str = "the name of a node") -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} must have a UTF-8 form, and {value!r} has a lone surrogate at index {error.start}"
        ) from None
    return str.__str__(value)  # a plain str also of a subclass, such as an enum


def weight_from(value: object) -> float:
    """Return `value` as the weight of a node: a finite float above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, numbers.Real)):
        raise TypeError(f"a weight must be a number, not {plain_type(value)}")
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if not 0.0 < weight < math.inf:
        raise ValueError(f"a weight must be finite and above 0, not {weight}; to take a node out, remove it")
    return weight


def plain_type(value: object) -> str:
    """Return the name of the type of a value, as an error shows it."""
    return "None" if value is None else type(value).__name__


def plain_name_of(name: object) -> str:
    """Return the name of a node as exactly a str, whose comparisons are nobody's code."""
    if not isinstance(name, str):
        raise TypeError(f"a node is named by a str, not {plain_type(name)}")
    return name if type(name) is str else str.__str__(name)


def refuse_one_text(value: object, what: str, of: str = "names") -> None:
    """Raise `TypeError` if one text was given in place of many, or what is no iterable at all."""
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        one = repr(value) if len(value) < 40 else "it"
        raise TypeError(
            f"{what} must be an iterable of {of}, and a {type(value).__name__} is one; write [{one}]"
        )
    if not isinstance(value, Iterable):
        raise TypeError(f"{what} must be an iterable of {of}, not {plain_type(value)}")


def names_from(names: Iterable[str], what: str = "names") -> list[str]:
    """Return the names of nodes that a caller gave, as a plain list.

    Raises:
        TypeError: One text was given instead of many, or one of them is no str.
    """
    refuse_one_text(names, what)
    return list(map(plain_name_of, names))


def nodes_from(nodes: Iterable[str | Node] | Mapping[str, Any], what: str = "nodes") -> list[Node]:
    """Return the nodes that a caller gave, as a plain list.

    Args:
        nodes: Names or `Node`s, or a mapping from names to weights, or to other things, none of which is a
            number: they become the `data` of the nodes.
        what: How error messages name it.

    Raises:
        TypeError: It is neither, or one name was given instead of many.
        ValueError: A name or a weight is out of its range.
    """
    if isinstance(nodes, (str, bytes, bytearray, memoryview, Node)):
        raise TypeError(f"{what} must be an iterable of nodes; for one node write [{nodes!r}]")
    if isinstance(nodes, Mapping):
        pairs = list(nodes.items())
        if pairs and not any(_like_weight(value) for _, value in pairs):
            return [Node(name, data=value) for name, value in pairs]
        return [_weighted(name, weight) for name, weight in pairs]
    if not isinstance(nodes, Iterable):
        raise TypeError(
            f"{what} must be an iterable of names or Nodes, or a mapping of names to weights, "
            f"not {plain_type(nodes)}"
        )
    return [node if isinstance(node, Node) else Node(node) for node in nodes]


def _like_weight(value: object) -> bool:
    """Whether a value of a mapping of nodes is meant as a weight, right or wrong."""
    return value is None or isinstance(value, _PLAIN)


def _weighted(name: str, weight: object) -> Node:
    try:
        return Node(name, weight_from(weight))
    except TypeError as error:
        if not isinstance(name, str):
            raise
        raise TypeError(f"{error}; for a node with an object write Node({name!r}, data=...)") from None

"""A node: its name, its weight and its zone."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ringhash.immutable import Immutable, slot_setter
from ringhash.records import check_fields, field

__all__ = ["Node", "nodes_from", "weight_from"]

_FIELDS = frozenset({"name", "weight", "zone"})


class Node(Immutable):
    """One member of a ring; immutable, and equal to a node with the same name, weight and zone.

    Args:
        name: A non-empty str. It alone decides where the points of the node lie.
        weight: A finite number above 0. A node of weight 2 has twice the points of a node of
            weight 1, and owns about twice as many keys.
        zone: The failure domain (rack, room, region) that `owners(key, n, distinct="zone")`
            spreads over; None is a zone of the node's own.

    Raises:
        TypeError: The name or zone is not a str, or the weight is not a real number.
        ValueError: The name or zone is empty or has no UTF-8 form, or the weight is not a finite
            number above 0.

    >>> Node("gw-3", weight=2.0, zone="b")
    Node('gw-3', weight=2.0, zone='b')
    """

    __slots__ = ("name", "weight", "zone")

    name: str
    weight: float
    zone: str | None

    def __new__(cls, name: str, weight: float = 1.0, zone: str | None = None) -> Self:
        """Check and set everything; there is no `__init__` that could be called again."""
        self = object.__new__(cls)
        _set_name(self, name if type(name) is str and name and name.isascii() else _text(name))
        _set_weight(self, weight if weight == 1.0 and type(weight) is float else weight_from(weight))
        _set_zone(self, zone if zone is None else _text(zone, "a zone"))
        return self

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
            data: A mapping with the fields name, weight and zone.
            where: How error messages name `data`.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, where, _FIELDS)
        name = field(record, where, "name", str)
        weight = field(record, where, "weight", float, int)
        zone = field(record, where, "zone", str, type(None))
        try:
            return cls(name, weight, zone)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


_set_name = slot_setter(Node, "name")
_set_weight = slot_setter(Node, "weight")
_set_zone = slot_setter(Node, "zone")


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
    return "None" if value is None else type(value).__name__


def nodes_from(nodes: Iterable[str | Node] | Mapping[str, float], what: str = "nodes") -> list[Node]:
    """Return the nodes that a caller gave as names, as `Node`s or as a mapping name -> weight."""
    if isinstance(nodes, (str, bytes, Node)):
        raise TypeError(f"{what} must be an iterable of nodes; for one node write [{nodes!r}]")
    if isinstance(nodes, Mapping):
        return [Node(name, weight) for name, weight in nodes.items()]
    if not isinstance(nodes, Iterable):
        raise TypeError(
            f"{what} must be an iterable of names or Nodes, or a mapping of names to weights, "
            f"not {plain_type(nodes)}"
        )
    return [node if isinstance(node, Node) else Node(node) for node in nodes]

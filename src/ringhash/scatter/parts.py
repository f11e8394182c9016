"""Who is asked: parts, and the nodes that each can be asked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ringhash.node import Node

__all__ = ["Part", "Parts", "read_parts"]


class Part(NamedTuple):
    """One part of a scatter: its name, the nodes that can answer for it in the order of preference."""

    name: str
    nodes: tuple[str, ...]


class Parts(NamedTuple):
    """The parts of one scatter, and the share of the keys behind each if it is known (sums up to 1)."""

    parts: tuple[Part, ...]
    shares: dict[str, float] | None
    down: frozenset[str]


def read_parts(nodes: Any, replicas: Mapping[str, Iterable[str]] | None = None) -> Parts:
    """Return the nodes to ask.

    Args:
        nodes: Names or `Node`s; or a mapping of parts (shards, ranges) to the node that has each; or
            anything with `.names` or `.nodes`: a router, a ring, an assignment. `.shares` gives the
            share of the keys, `.down` the nodes not to ask.
        replicas: Other nodes that can answer for a part.

    Raises:
        TypeError: `nodes` is of another type.
        ValueError: A part is named twice.

    >>> read_parts(["a", "b"], {"a": ["a2"]}).parts
    (Part(name='a', nodes=('a', 'a2')), Part(name='b', nodes=('b',)))
    """
    down: frozenset[str] = frozenset()
    if isinstance(nodes, Mapping):
        pairs = [(_name(part), _name(node)) for part, node in nodes.items()]
        found: Any = None
    else:
        found = _names_in(nodes)
        pairs = [(name, name) for name in map(_name, found)]
        down = frozenset(map(_name, getattr(nodes, "down", ()) or ()))
    names = [part for part, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{twice!r} is given twice; give each part once")
    others = {part: tuple(map(_name, more)) for part, more in (replicas or {}).items()}
    parts = tuple(Part(part, tuple(dict.fromkeys((node, *others.get(part, ()))))) for part, node in pairs)
    shares = None if isinstance(nodes, Mapping) else _shares(nodes, names)
    return Parts(parts, shares, down)


def _names_in(nodes: Any) -> Iterable[Any]:
    for attribute in ("names", "nodes"):
        found = getattr(nodes, attribute, None)
        if found is not None and not callable(found):
            return tuple(found)
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        raise TypeError(
            f"nodes must be names, a mapping of parts to nodes, or have .names or .nodes, not {nodes!r}"
        )
    return tuple(nodes)


def _name(node: Any) -> str:
    if isinstance(node, Node):
        return node.name
    if isinstance(node, str):
        return node
    raise TypeError(f"a node is a name or a Node, not {node!r}")


def _shares(nodes: Any, names: list[str]) -> dict[str, float] | None:
    shares = getattr(nodes, "shares", None)
    if shares is None:  # a router has its ring's
        for attribute in ("placement", "ring"):
            shares = getattr(getattr(nodes, attribute, None), "shares", None)
            if shares is not None:
                break
    if not isinstance(shares, Mapping) or not all(name in shares for name in names):
        return None
    total = sum(shares[name] for name in names)
    return {name: shares[name] / total for name in names} if total > 0 else None

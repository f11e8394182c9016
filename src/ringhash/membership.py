"""Which changes of the members are allowed, and what each does to one node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import compress, count
from operator import is_not

from ringhash.errors import DuplicateNodeError, UnknownNodeError
from ringhash.node import Node, names_from, nodes_from, plain_name_of, plain_type, weight_from
from ringhash.plan import NodeChange

__all__ = ["changed", "changed_nodes", "changes_between", "changes_for", "find_name", "weights_from"]

Adds = Iterable[str | Node] | Mapping[str, float]


def find_name(names: tuple[str, ...], name: object) -> int:
    """Return the index of `name`, or raise `UnknownNodeError`. O(log nodes)."""
    if not isinstance(name, str):
        raise TypeError(f"a node is named by a str, not {plain_type(name)}")
    index = bisect_left(names, name)
    if index == len(names) or names[index] != name:
        few = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        raise UnknownNodeError(f"there is no node {name!r}; the nodes are {few or 'none'}")
    return index


def changes_for(
    names: tuple[str, ...],
    nodes: tuple[Node, ...],
    add: Adds = (),
    remove: Iterable[str] = (),
    reweight: Mapping[str, float] | None = None,
) -> tuple[NodeChange, ...]:
    """Return what the request does to each node, in order of names; a no-op does nothing.

    Everything is a plain list before anything is looked at, so no code of the caller's runs in between.

    A name that is both removed and added is replaced, for instance to change its zone.

    Raises:
        DuplicateNodeError: A node to add is there already, or is added twice.
        UnknownNodeError: A node to remove or reweight is not there.
        TypeError, ValueError: The request is malformed; nothing was changed.
    """
    news, gone, weights = nodes_from(add, "add"), names_from(remove, "remove"), weights_from(reweight)
    changes: dict[str, NodeChange] = {}
    for name in gone:
        node = nodes[find_name(names, name)]
        if node.name in changes:
            raise ValueError(f"the node {name!r} is removed twice")
        changes[node.name] = NodeChange(node, None)
    for new in news:
        change = changes.get(new.name)
        if change is None:
            index = bisect_left(names, new.name)
            if index < len(names) and names[index] == new.name:
                raise DuplicateNodeError(
                    f"the node {new.name!r} is there already; to change its weight, reweight it"
                )
            changes[new.name] = NodeChange(None, new)
        elif change.after is None:
            changes[new.name] = NodeChange(change.before, new.keeping(node_data(change.before)))
        else:
            raise DuplicateNodeError(f"the node {new.name!r} is added twice")
    for name, weight in weights.items():
        node = nodes[find_name(names, name)]
        if node.name in changes:
            raise ValueError(f"the node {name!r} is reweighted and also removed or added")
        changes[node.name] = NodeChange(node, node.weighing(weight))
    return tuple(
        changes[name]
        for name in sorted(changes)
        if _matters(changes[name]) or node_data(changes[name].before) is not node_data(changes[name].after)
    )


def weights_from(weights: Mapping[str, float] | None, what: str = "reweight") -> dict[str, float]:
    """Return weights by name that a caller gave, as a plain dictionary; empty for None."""
    if weights is not None and not isinstance(weights, Mapping):
        raise TypeError(f"{what} must be a mapping of names to weights, not {plain_type(weights)}")
    return {plain_name_of(name): weight_from(weight) for name, weight in (weights or {}).items()}


def node_data(node: Node | None) -> object:
    """Return the data of a node, None if there is none."""
    return None if node is None else node.data


def changes_between(before: tuple[Node, ...], after: tuple[Node, ...]) -> tuple[NodeChange, ...]:
    """Return what became of each node between two memberships, in order of names. O(nodes)."""
    # Most nodes are the same objects on both sides: what both begin and end with is not looked at.
    first = _same(before, after)
    before, after = before[first:], after[first:]
    last = _same(before[::-1], after[::-1])
    old = {node.name: node for node in before[: len(before) - last]}
    new = {node.name: node for node in after[: len(after) - last]}
    pairs = (NodeChange(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys()))
    return tuple(filter(_matters, pairs))


def _same(one: tuple[Node, ...], other: tuple[Node, ...]) -> int:
    """Return how many nodes at the beginning of both are the same objects."""
    return next(compress(count(), map(is_not, one, other)), min(len(one), len(other)))


def changed(
    names: tuple[str, ...], nodes: tuple[Node, ...], changes: Iterable[NodeChange]
) -> tuple[tuple[int, NodeChange], ...]:
    """Return each change with the index of its node, or of the place where it comes in.

    Raises:
        ValueError: The nodes are not what a change says they were.
    """
    found = []
    for change in changes:
        name = (change.before or change.after).name  # type: ignore[union-attr]
        index = bisect_left(names, name)
        here = nodes[index] if index < len(names) and names[index] == name else None
        if here != change.before:
            raise ValueError(f"the change expects {change.before!r}, and here is {here!r}")
        if change.after is not None and here is not None:
            change = NodeChange(here, change.after.keeping(here.data))  # noqa: PLW2901
        found.append((index, change))
    return tuple(found)


def changed_nodes(
    names: tuple[str, ...], nodes: tuple[Node, ...], changes: Iterable[NodeChange]
) -> list[Node]:
    """Return the nodes after some changes, in order of their names; errors as for `changed`."""
    after = list(nodes)
    for index, change in reversed(changed(names, nodes, changes)):
        after[index : index + (change.before is not None)] = [] if change.after is None else [change.after]
    return after


def _matters(change: NodeChange) -> bool:
    return change.before != change.after

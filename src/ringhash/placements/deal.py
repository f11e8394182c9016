"""Dealing shards to nodes: even, sticky, and with the fewest moves. Plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from ringhash.node import Node

__all__ = ["deal", "fair_shares"]


def deal(count: int, nodes: Sequence[Node], before: Sequence[str | None] | None = None) -> list[str]:
    """Return the name of the node of each of `count` shards.

    No deal as even as this one moves fewer shards. A node that had `h` shards and will have `t` keeps at
    most `min(h, t)`. This one keeps exactly that, so only the choice of who has the ceiling counts. The
    ceiling keeps one shard more at a node that has more than its floor, and nothing at another, so the
    former come first; ties go to the larger remainder (Hamilton's method), then by name. A node gives up
    its highest shards; free shards go out in order, to nodes in order of name.

    Args:
        count: How many shards.
        nodes: The nodes, in order of their names.
        before: The name of the node of each shard before, if there was one.

    Cost: O(shards + nodes * log nodes).

    >>> deal(5, [Node("a"), Node("b"), Node("c")], ["a", "a", "a", "b", "b"])
    ['a', 'a', 'c', 'b', 'b']
    """
    names = [node.name for node in nodes]
    had: dict[str, list[int]] = {name: [] for name in names}
    owners: list[str | None] = [None] * count
    for shard, name in enumerate(before or ()):
        if name is not None and name in had:
            had[name].append(shard)
            owners[shard] = name
    targets = _targets(fair_shares(count, nodes), {name: len(had[name]) for name in names})
    for name in names:
        for shard in had[name][targets[name] :]:
            owners[shard] = None
    room = (name for name in names for _ in range(targets[name] - len(had[name])))
    return [next(room) if owner is None else owner for owner in owners]


def fair_shares(count: int, nodes: Sequence[Node]) -> dict[str, Fraction]:
    """Return the exact fair share of each node, in shards, by name.

    In proportion to the weights; but where there are as many shards as nodes, one that would have
    less than 1 has 1, and the others share the rest in proportion.

    >>> {name: str(share) for name, share in fair_shares(4, [Node("a", 6.0), Node("b"), Node("c")]).items()}
    {'a': '2', 'b': '1', 'c': '1'}
    """
    weights = {node.name: Fraction(node.weight) for node in nodes}
    shares: dict[str, Fraction] = {}
    left = Fraction(count)
    total = sum(weights.values(), Fraction(0))
    if count >= len(nodes):
        for name in sorted(weights, key=lambda name: (weights[name], name)):
            if left * weights[name] >= total:
                break  # and so has every heavier one
            shares[name] = Fraction(1)
            left -= 1
            total -= weights[name]
    return {node.name: shares.get(node.name) or left * weights[node.name] / total for node in nodes}


def _targets(shares: Mapping[str, Fraction], had: Mapping[str, int]) -> dict[str, int]:
    targets = {name: int(share) for name, share in shares.items()}
    extra = int(sum(shares.values())) - sum(targets.values())
    fractional = [name for name, share in shares.items() if share != targets[name]]
    fractional.sort(key=lambda name: (had[name] <= targets[name], targets[name] - shares[name], name))
    for name in fractional[:extra]:
        targets[name] += 1
    return targets

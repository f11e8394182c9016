"""A change of the nodes, read into plain objects before anything depends on it.

Names may be of a class of their own, and arguments may be generators that call the router themselves. All of
their code runs here, once, so that the steps of a change run none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from ringhash.membership import Adds, weights_from
from ringhash.node import Node, names_from, nodes_from
from ringhash.placement import Placement

__all__ = ["Request", "to_become"]


class Request(NamedTuple):
    """What a change of the nodes adds, removes and reweights: the arguments of `Placement.changed`."""

    add: list[Node]
    remove: list[str]
    reweight: dict[str, float]

    @classmethod
    def of(cls, add: Adds, remove: Iterable[str], reweight: Mapping[str, float] | None) -> Self:
        """Read the arguments of `Router.plan`; errors as there."""
        return cls(nodes_from(add, "add"), names_from(remove, "remove"), weights_from(reweight))


def to_become(before: Placement, wanted: Mapping[str, Node]) -> Request:
    """Return the change that makes just these the nodes of a placement."""
    there = {node.name: node for node in before.nodes}
    return Request(
        [node for name, node in wanted.items() if name not in there or there[name].zone != node.zone],
        [name for name, node in there.items() if name not in wanted or wanted[name].zone != node.zone],
        {
            name: node.weight
            for name, node in wanted.items()
            if name in there and there[name].zone == node.zone and there[name].weight != node.weight
        },
    )

"""What a policy is: it drives the live class of its method, and says which node has each key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ringhash.placement import Placement
from ringhash.plan import Plan

__all__ = ["Change", "Placed", "Policy", "World", "compact_size"]

Array = np.ndarray[Any, Any]


class World:
    """What a policy may look at: the distinct keys in order, and the rows that each has by now."""

    def __init__(self, keys: Any, total: float, names: tuple[str, ...]) -> None:
        self.keys = keys
        self.total = total  # of the whole trace
        self.names = names  # all nodes that ever are; owners are indexes into them
        self.place = {name: i for i, name in enumerate(names)}
        self.rows: Array = np.zeros(len(keys))

    def key(self, index: int) -> Any:
        """Return one key as a Python object."""
        key = self.keys[index]
        return key.item() if isinstance(key, np.generic) else key

    def owners(self, placement: Placement) -> Array:
        """Return the node of each key by a placement."""
        owners: Array = self.numbers(placement.names)[placement.index_many(self.keys)]
        return owners

    def numbers(self, names: Sequence[str]) -> Array:
        """Return the numbers of nodes."""
        return np.array([self.place[name] for name in names], np.int32)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a placement: the plan of the live class, None for a method that has none."""

    plan: Plan | None
    moves: int
    splits: int = 0
    merges: int = 0


class Placed(Protocol):
    """A policy at work."""

    owner: Array  # of each key the node, as an index into the names of the world; replaced, never changed
    served: Array | None  # of each row of the last step the node that served it, where that is not the owner

    @property
    def placement(self) -> Any:
        """The live object, as it is now."""

    @property
    def shards(self) -> int:
        """How many pieces (shards, ranges, stretches, entries) the nodes have together."""

    @property
    def metadata(self) -> int:
        """How many bytes a client needs to know where every key is."""

    def resize(self, names: Sequence[str]) -> list[Change]:
        """Have these nodes from now on."""

    def tend(self, step: int, keys: Array) -> list[Change]:
        """Look at the rows of a step, after they arrived."""


class Policy(Protocol):
    """A way to place keys, with its settings."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def begin(self, world: World, names: Sequence[str]) -> Placed:
        """Place the keys on the first nodes."""


def compact_size(placement: Any) -> int:
    """Return how many bytes the JSON of a live object has."""
    return len(json.dumps(placement.to_dict(), separators=(",", ":"), ensure_ascii=False).encode())

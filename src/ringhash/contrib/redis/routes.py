"""Where a command goes: one node, several, or all. No input or output, and shared by both kinds of ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ringhash.contrib.redis.commands import CommandTable, word
from ringhash.contrib.redis.errors import CrossNodeError, NoKeyError
from ringhash.contrib.redis.split import EVERYWHERE, SPLIT, Part, split
from ringhash.routing import Router

__all__ = ["ALL", "Routes", "key_of", "router_for"]

ALL = None  # a command goes to every node


def key_of(value: Any) -> str | bytes:
    """Return a key as Redis sees it: redis-py sends 7 as b"7", so for a ring it is "7" too."""
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return repr(value) if isinstance(value, float) else str(value)


def router_for(router: Any, names: Iterable[str]) -> Router:
    """Return the router of a ring: the one given, one over the placement given, or one of these nodes.

    Raises:
        ValueError: Its nodes are not those of the ring.
    """
    mine = set(names)
    if not mine:
        raise ValueError(
            "a ring needs at least one node: give names and URLs, as in {'a': 'redis://10.0.0.1'}"
        )
    if router is None:
        return Router(sorted(mine), hash_tags=True)
    found = router if isinstance(router, Router) else Router(router)
    theirs = {node.name for node in found.nodes}
    if theirs != mine:
        raise ValueError(
            f"the ring has the nodes {', '.join(sorted(mine))}, and the router has "
            f"{', '.join(sorted(theirs))}; both need the same names"
        )
    return found


class Routes:
    """Routes commands by their keys.

    Args:
        router: Decides who owns a key.
        table: Says which arguments are keys.
    """

    def __init__(self, router: Router, table: CommandTable) -> None:
        self.router = router
        self.table = table

    def node_of(self, key: Any) -> str:
        """Return the node of a key."""
        return self.router.owner(key_of(key))

    def keys(self, args: Sequence[Any]) -> list[Any] | None:
        """Return the keys of a command; None where only the server can say them."""
        name = args[0]
        if name in self.table.single:
            return [args[1]] if len(args) > 1 else []
        found = self.table.key_indexes(args)
        return None if found is None else [args[i] for i in found]

    def owners(self, keys: Sequence[Any]) -> list[str]:
        """Return the nodes of many keys, all of one moment."""
        return self.router.owner_many([key_of(key) for key in keys])

    def target(
        self, args: Sequence[Any], keys: Sequence[Any], owners: Sequence[str] | None = None
    ) -> str | list[Part] | None:
        """Return the node that a command with these keys goes to, its parts, or `ALL`.

        `owners` are the nodes of the keys, if they are known already.

        Raises:
            CrossNodeError: The keys are on several nodes and the command cannot be split.
            NoKeyError: There is no key, and the command has no meaning over all nodes.
        """
        if not keys:
            return self._without_key(args)
        if owners is None:
            owners = self.owners(keys) if len(keys) > 1 else [self.node_of(keys[0])]
        if len(set(owners)) == 1:
            return owners[0]
        name = word(args[0]).upper()
        if name in SPLIT:
            return split((name, *args[1:]), owners)
        raise CrossNodeError(name, _grouped(keys, owners))

    def one_node(self, calls: Iterable[Any], what: str) -> str:
        """Return the one node of all keys of some calls.

        Raises:
            CrossNodeError: The keys are on several nodes.
            NoKeyError: There is no key at all.
        """
        keys = [key for call in calls for key in call.keys]
        if not keys:
            raise NoKeyError(f"{what} without a key has no node: name one with node=, or watch a key first")
        owners = self.owners(keys)
        if len(set(owners)) > 1:
            raise CrossNodeError(what, _grouped(keys, owners))
        return owners[0]

    def _without_key(self, args: Sequence[Any]) -> str | None:
        name = word(args[0]).upper()
        if name in ("PUBLISH", "SPUBLISH") and len(args) > 1:
            return self.node_of(args[1])
        if name in EVERYWHERE:
            return ALL
        raise NoKeyError(
            f"{name} has no key, so no node follows from it; ask one node with ring.node(name), "
            "or each with ring.each()"
        )


def _grouped(keys: Iterable[Any], owners: Iterable[str]) -> Mapping[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for key, owner in zip(keys, owners, strict=True):
        groups.setdefault(owner, []).append(key)
    return groups

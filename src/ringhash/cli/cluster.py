"""Which nodes: lists of names, weights, and the JSON files that hold a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringhash.cli.errors import InputError, refusals
from ringhash.node import Node
from ringhash.plan import Plan
from ringhash.ring import Ring
from ringhash.router import Router

__all__ = [
    "Cluster",
    "named_weights",
    "names_in",
    "nodes_in",
    "planned",
    "read_cluster",
    "read_json",
    "write_plan",
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A ring, and the epoch of the router it came from, if it came from one."""

    ring: Ring
    epoch: int | None = None


def read_cluster(
    nodes: str,
    weights: Iterable[str] = (),
    *,
    vnodes: int | None = None,
    seed: int | None = None,
    hash_tags: bool | None = None,
) -> Cluster:
    """Return the cluster that `--nodes` and the options beside it describe; an option beats a file."""
    found = _members(nodes)
    given: dict[str, Any] = {"vnodes": vnodes, "seed": seed, "hash_tags": hash_tags}
    options = {name: value for name, value in given.items() if value is not None}
    with refusals():
        if isinstance(found, Cluster):
            ring, epoch = found.ring, found.epoch
            if options:
                kept = {name: getattr(ring, name) for name in given}
                ring = Ring(ring.nodes, **(kept | options))
        else:
            ring, epoch = Ring(found, **options), None
        heavier = named_weights("--weights", weights)
        return Cluster(ring.with_weights(heavier) if heavier else ring, epoch)


def planned(
    cluster: Cluster, add: Iterable[Node], remove: Iterable[str], reweight: Mapping[str, float]
) -> tuple[Plan, Ring]:
    """Return the plan of a change, and the ring after it.

    A plan from a router's JSON is for that router's epoch. Others have no epoch: they apply to any
    router with these members, whatever it went through before.
    """
    before, epoch = cluster.ring, cluster.epoch
    with refusals():
        router = (
            Router(before) if epoch is None else Router.from_dict({"epoch": epoch, "ring": before.to_dict()})
        )
        plan = router.update(list(add), list(remove), reweight)
        return (before.diff(router.ring) if epoch is None else plan), router.ring


# --- lists on the command line ---


def nodes_in(value: str) -> list[Node]:
    """Return the nodes of a list `a,b=2,c`, or of a JSON file of nodes."""
    found = _members(value)
    if isinstance(found, Cluster):
        raise InputError(f"{value}: is a whole ring, and only nodes can be added")
    return found


def names_in(values: Iterable[str]) -> list[str]:
    """Return the names of lists `a,b`."""
    return [name.strip() for value in values for name in value.split(",")]


def named_weights(option: str, values: Iterable[str]) -> dict[str, float]:
    """Return the weights of lists `a=2,b=0.5`."""
    weights: dict[str, float] = {}
    for item in names_in(values):
        name, equals, weight = item.rpartition("=")
        if not equals:
            raise InputError(f"{option}: write NAME=WEIGHT, not {item!r}")
        if name in weights:
            raise InputError(f"{option}: {name!r} is given twice")
        weights[name] = _weight(weight, item)
    return weights


def _listed(value: str) -> list[Node]:
    nodes = []
    for item in names_in([value]):
        name, equals, weight = item.rpartition("=")
        nodes.append(Node(name, _weight(weight, item)) if equals else Node(item))
    return nodes


def _weight(text: str, item: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{item!r}: the weight must be a number, not {text!r}") from None


# --- JSON files ---


def _members(value: str) -> list[Node] | Cluster:
    # A file is told by its name and not by looking for it, so that a file that happens to be called
    # as a node is changes nothing.
    path = value.removeprefix("@")
    if path != value or value.lower().endswith(".json"):
        data = read_json(path)
        with refusals(path):
            return _from_json(data)
    if value.isdecimal():
        raise InputError(
            f"{value} is a number, not a list of nodes; name them, as in node-1,node-2,node-3. "
            "A node whose name is a number goes into a JSON file"
        )
    with refusals():
        return _listed(value)


def read_json(path: str) -> Any:
    """Return what a file of JSON holds; `-` is stdin."""
    if path == "-" and sys.stdin is None:
        raise InputError("stdin is closed")
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None


def write_plan(path: str, plan: Plan) -> None:
    """Write a plan as JSON; `-` is stdout."""
    text = json.dumps(plan.to_dict()) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _from_json(data: Any) -> list[Node] | Cluster:
    if isinstance(data, list):
        return [_node(item, f"nodes[{i}]") for i, item in enumerate(data)]
    if not isinstance(data, dict):
        raise ValueError("must be a list of nodes, a mapping of names to weights, a ring or a router")
    if isinstance(data.get("ring"), dict):
        router = Router.from_dict(data)
        return Cluster(router.ring, router.epoch)
    if isinstance(data.get("nodes"), list):
        return Cluster(Ring.from_dict(data))
    return [_node({"name": name, "weight": weight}, name) for name, weight in data.items()]


def _node(item: Any, where: str) -> Node:
    if isinstance(item, str):
        with refusals(where):
            return Node(item)
    if isinstance(item, dict):
        return Node.from_dict({"weight": 1.0, "zone": None} | item, where)
    raise ValueError(f"{where}: must be a name or an object")

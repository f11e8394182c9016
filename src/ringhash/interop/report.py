"""What a change of another program moves, how much of it is needless, and what would avoid that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ringhash.interop.envoy import EnvoyMaglev, EnvoyRing
from ringhash.interop.haproxy import HAProxyRing
from ringhash.interop.kafka import KafkaPartitioner
from ringhash.interop.ketama import KetamaRing
from ringhash.interop.nginx import NginxRing
from ringhash.interop.placement import ProgramPlacement
from ringhash.interop.texts import texts
from ringhash.interop.uhash_placement import UHashPlacement
from ringhash.placement import Placement
from ringhash.placements.ring import Ring
from ringhash.plan import Plan

__all__ = ["KeyMoves", "Report", "add_keys", "compare", "moving_keys"]

_NOTICED = 0.0005  # below this part of all keys, nothing is said of needless moves
_MOST_WEIGHT = 100
_RING_SIZES = (16_384, 131_072, 1_048_576)
_TABLE_SIZES = (655_373, 5_000_011)


@dataclass
class KeyMoves:
    """What becomes of real keys: how many were asked, and how many go from one owner to another."""

    total: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    unplaced: int = 0

    @property
    def moved(self) -> int:
        """How many keys have another owner afterwards."""
        return self.pairs.total()

    def between(self, names: Iterable[str]) -> int:
        """How many keys move from one of `names` to another."""
        among = set(names)
        return sum(n for (a, b), n in self.pairs.items() if a in among and b in among)


@dataclass(frozen=True)
class Report:
    """What a change moves in a program; made by `compare`.

    `plan` is the exact plan, or None where the two hash keys in different ways, so that only keys can
    tell. `ours` is the plan of a `Ring` of the same names and weights. `least` is what any placement must
    move for these weights. `advice` says what setting would move less.
    """

    before: ProgramPlacement
    after: ProgramPlacement
    plan: Plan | None
    ours: Plan
    least: float
    keys: KeyMoves | None
    advice: tuple[str, ...]

    @property
    def unchanged(self) -> list[str]:
        """The servers that are there before and after, with one weight."""
        same = {node.name for node in self.before.nodes if node in set(self.after.nodes)}
        return [name for name in self.before.names if name in same]

    def with_keys(self, keys: KeyMoves | None) -> Report:
        """Return the report with what becomes of real keys."""
        return replace(self, keys=keys)

    def to_dict(self) -> dict[str, object]:
        """Return the figures as a dictionary that JSON can hold."""
        keys = self.keys
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "fraction": self.plan and self.plan.fraction,
            "needless": self.plan and self.plan.needless,
            "least": self.least,
            "ours": self.ours.fraction,
            "moves": self.plan
            and [
                {"source": source, "target": target, "ranges": len(moves), "share": moves.fraction}
                for (source, target), moves in self.plan.pairs().items()
            ],
            "keys": keys
            and {
                "total": keys.total,
                "moved": keys.moved,
                "needless": keys.between(self.unchanged),
                "unplaced": keys.unplaced,
            },
            "advice": list(self.advice),
        }


def compare(before: ProgramPlacement, after: ProgramPlacement, keys: Any = None) -> Report:
    """Return what a change from one placement to the other moves.

    Args:
        before: The placement as it is.
        after: The placement as it will be.
        keys: Real keys to be asked before and after, as for `owner_many`; or None.

    Cost: O(points); for advice, a few more placements are made.

    >>> from ringhash.interop import HAProxyRing
    >>> before = HAProxyRing(["s1", "s2", "s3", "s4"])
    >>> report = compare(before, before.changed(remove=["s1"]))
    >>> report.plan.needless > 0.5, report.plan.fraction > 2 * report.ours.fraction
    (True, True)
    >>> "explicit id" in report.advice[0]
    True
    """
    try:
        plan = before.diff(after)
    except ValueError:
        plan = None
    return Report(
        before=before,
        after=after,
        plan=plan,
        ours=_ours(before, after),
        least=_least(before, after),
        keys=None if keys is None else moving_keys(before, after, keys),
        advice=tuple(_advice(before, after, plan)),
    )


def moving_keys(before: Placement, after: Placement, keys: Any) -> KeyMoves:
    """Return how many of `keys` go from which server to which; the two may hash keys in different ways.

    So it tells also what leaving a program for a `Ring` moves.

    >>> from ringhash import Ring
    >>> from ringhash.interop import UHashPlacement
    >>> nodes = ["a", "b", "c"]
    >>> moves = moving_keys(UHashPlacement(nodes), Ring(nodes), [f"user:{i}" for i in range(1000)])
    >>> moves.total, 500 < moves.moved < 800
    (1000, True)
    """
    found = KeyMoves()
    add_keys(found, before, after, keys)
    return found


def add_keys(found: KeyMoves, before: Placement, after: Placement, keys: Any) -> None:
    """Count more keys into `found`."""
    keys = list(texts(keys))
    sources, targets = before.index_many(keys), after.index_many(keys)
    placed = (sources >= 0) & (targets >= 0)
    width = len(after.names)
    codes, counts = np.unique(sources[placed] * width + targets[placed], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        source, target = before.names[code // width], after.names[code % width]
        if source != target:
            found.pairs[source, target] += count
    found.total += len(keys)
    found.unplaced += int((~placed).sum())


def _ours(before: ProgramPlacement, after: ProgramPlacement) -> Plan:
    most = max(node.weight for node in (*before.nodes, *after.nodes))
    scale = max(1.0, most / _MOST_WEIGHT)
    rings = [Ring({node.name: node.weight / scale for node in one.nodes}) for one in (before, after)]
    return rings[0].diff(rings[1])


def _least(before: ProgramPlacement, after: ProgramPlacement) -> float:
    fair = []
    for one in (before, after):
        total = sum(node.weight for node in one.nodes)
        fair.append({node.name: node.weight / total for node in one.nodes})
    return sum(max(0.0, share - fair[0].get(name, 0.0)) for name, share in fair[1].items())


def _advice(before: ProgramPlacement, after: ProgramPlacement, plan: Plan | None) -> Iterable[str]:
    gone = [name for name in before.names if name not in after]
    came = [name for name in after.names if name not in before]
    if plan is None:
        yield (
            "a key has another position afterwards, so nearly every key moves: change the hash and the "
            "servers at different times, or warm up what comes"
        )
    elif (plan.needless or 0.0) > _NOTICED:
        for advise in (_haproxy, _envoy, _maglev, _ketama, _kafka):
            yield from advise(before, after, plan)
    if gone and came:
        yield from _replaced(after, gone, came)


def _haproxy(before: ProgramPlacement, after: ProgramPlacement, plan: Plan) -> Iterable[str]:
    if not isinstance(before, HAProxyRing) or not isinstance(after, HAProxyRing):
        return
    if not any(before.ids[name] != after.ids[name] for name in after.names if name in before):
        return
    ids = {name: number for name, number in before.ids.items() if name in after}
    try:
        settings = {**after._settings, "ids": ids}
        kept = before.diff(HAProxyRing(after.servers, **settings))
    except ValueError:
        return
    shown = ", ".join(f"{name} id {number}" for name, number in list(ids.items())[:3])
    yield (
        "automatic ids follow the order of the lines, and here servers that stay get other ids: give each "
        f"its explicit id as it is now ({shown}{', ...' if len(ids) > 3 else ''}), and {kept.fraction:.1%} "
        f"of all keys move instead of {plan.fraction:.1%}"
    )


def _envoy(before: ProgramPlacement, after: ProgramPlacement, plan: Plan) -> Iterable[str]:
    if not isinstance(before, EnvoyRing) or not isinstance(after, EnvoyRing):
        return

    def sized(size: int) -> Plan:
        return _resized(before, size).diff(_resized(after, size))

    yield from _larger(
        plan, _RING_SIZES, max(len(before.points), len(after.points)), sized, "minimum_ring_size"
    )


def _resized(ring: EnvoyRing, size: int) -> EnvoyRing:
    return EnvoyRing(ring.servers, **{**ring._settings, "min_ring_size": size, "max_ring_size": 8_388_608})


def _maglev(before: ProgramPlacement, after: ProgramPlacement, plan: Plan) -> Iterable[str]:
    if not isinstance(before, EnvoyMaglev) or not isinstance(after, EnvoyMaglev):
        return

    def sized(size: int) -> Plan:
        return EnvoyMaglev(before.servers, size).diff(EnvoyMaglev(after.servers, size))

    yield from _larger(plan, _TABLE_SIZES[:1], before.space.size, sized, "table_size")


def _larger(
    plan: Plan, sizes: Iterable[int], now: int, sized: Callable[[int], Plan], setting: str
) -> Iterable[str]:
    best = plan.needless or 0.0
    for size in sizes:
        if size <= now:
            continue
        other = sized(size)
        if (other.needless or 0.0) < best / 2:
            yield (
                f"with {setting}: {size}, {other.needless:.2%} of all keys would move needlessly instead of "
                f"{plan.needless:.2%}; setting it moves keys once"
            )
            return
    yield (
        "the points of every host follow the sum of the weights, and no size of the ring or table avoids "
        "that; change few hosts at a time"
    )


def _ketama(before: ProgramPlacement, after: ProgramPlacement, _: Plan) -> Iterable[str]:
    if not isinstance(before, KetamaRing) or not isinstance(after, KetamaRing):
        return
    equal = len({*before.servers.values(), *after.servers.values()}) == 1
    if equal and before._settings["flavour"] == "libmemcached-weighted":
        yield (
            "weighted ketama rounds the points of every server by their sum, and all weights are equal: "
            "KETAMA without weights (a change that moves keys once) has 100 points a server, and moves "
            "nothing needlessly"
        )
        return
    yield (
        "weighted ketama gives every server points by its part of the sum of the weights, so a change of one "
        "adds or takes points of the others; no setting avoids that"
    )


def _kafka(before: ProgramPlacement, after: ProgramPlacement, _: Plan) -> Iterable[str]:
    if isinstance(before, KafkaPartitioner) and isinstance(after, KafkaPartitioner):
        a, b = before.space.size, after.space.size
        better = f"; from {a} to {a * 2}, half of the keys would stay" if b != a * 2 else ""
        yield f"partitions are remainders by their number, which goes from {a} to {b}{better}"


def _replaced(after: ProgramPlacement, gone: list[str], came: list[str]) -> Iterable[str]:
    swap = f"{gone[0]!r} is replaced by {came[0]!r}"
    if isinstance(after, EnvoyRing | EnvoyMaglev):
        yield f"{swap}: with the metadata envoy.lb.hash_key, a host with the same one takes over its keys"
    elif isinstance(after, KetamaRing) and after._settings["flavour"] == "twemproxy":
        yield f"{swap}: with a name (host:port:weight name), one of the same name takes over its keys"
    elif isinstance(after, HAProxyRing):
        yield f"{swap}: a server that is given the id of another takes over its keys"
    elif isinstance(after, NginxRing | KetamaRing | UHashPlacement):
        yield f"{swap}: where servers have host names, one that takes over the name takes over its keys"

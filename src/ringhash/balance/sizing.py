"""How many virtual nodes a ring needs: from the theory, and from rings built to compare."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from ringhash._core import MAX_POINTS
from ringhash.errors import EmptyRingError
from ringhash.node import Node, plain_type
from ringhash.placements.ring import MAX_POINTS_PER_NODE, Ring

__all__ = ["VnodesRow", "compare_vnodes", "expected_peak", "recommended_vnodes"]

_STEPS = 4096  # of the integrals: the error is below 1e-4 for one virtual node, 1e-5 for ten
_SAMPLE = 20_000  # keys that a lookup is timed with, when none are given
_PASSES = 7
# The thread's own time where it is fine enough, so that other programs do not count.
_FINE = time.get_clock_info("thread_time").resolution <= 1e-6
_clock = time.thread_time_ns if _FINE else time.perf_counter_ns


def recommended_vnodes(nodes: int, peak_to_mean: float = 1.1) -> int:
    """Return the fewest virtual nodes with which the fullest of `nodes` equal nodes owns, on average
    over names or seeds, at most `peak_to_mean` times its fair share.

    One ring has its own luck: the standard deviation of its peak is about a third of the excess over
    1 with 10 nodes, a fifth with 100 and an eighth with 1,000. `Ring.balance` says what a ring really
    got. A node of less weight has fewer points, so it strays further than this says.

    Args:
        nodes: How many nodes the ring will have, from 1.
        peak_to_mean: Above 1. Halving the excess over 1 takes about four times the virtual nodes.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is out of its range, or no ring is that even: a node has at most
            65,536 points, a ring 2**27.

    Cost: a few milliseconds. Method: see `expected_peak`.

    >>> recommended_vnodes(100), recommended_vnodes(100, peak_to_mean=1.25)
    (665, 115)
    """
    _check_count("nodes", nodes)
    if isinstance(peak_to_mean, bool) or not isinstance(peak_to_mean, (int, float)):
        raise TypeError(f"peak_to_mean must be a number, not {plain_type(peak_to_mean)}")
    if not 1 < peak_to_mean < math.inf:
        raise ValueError(f"peak_to_mean must be finite and above 1, not {peak_to_mean}")
    most = min(MAX_POINTS_PER_NODE, MAX_POINTS // nodes)
    if most < 1:
        raise ValueError(f"a ring has at most {MAX_POINTS} points, too few for {nodes} nodes")
    best = expected_peak(nodes, most)
    if best > peak_to_mean:
        raise ValueError(
            f"no ring of {nodes} nodes is that even: with the most virtual nodes it can have, "
            f"{most}, expect a peak of {best:.4f} times the mean, not {peak_to_mean}"
        )
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if expected_peak(nodes, middle) <= peak_to_mean:
            high = middle
        else:
            low = middle + 1
    return low


def expected_peak(nodes: int, vnodes: int) -> float:
    """Return the expected share of the fullest of `nodes` equal nodes, relative to the mean.

    Points that lie at random cut the ring into gaps that are, together, distributed as independent
    exponential variables divided by their sum. A node owns `vnodes` of them, so its share is
    G / (G1 + ... + Gn) with independent G ~ Gamma(vnodes), and those quotients do not depend on the
    sum (Lukacs, 1955). Hence, exactly,

        E[peak / mean] = E[max(G1, ..., Gn)] / vnodes = 1 / vnodes * integral of 1 - F(x)**n over x >= 0

    with F the distribution function of Gamma(vnodes). For many points that is near
    1 + sqrt(2 ln(n) / vnodes). The gaps: Pyke, "Spacings", 1965; the sum: Lukacs, "A
    characterization of the gamma distribution", 1955. Only the 2**32 positions being finite is left out.

    >>> round(expected_peak(100, 160), 3), expected_peak(1, 160)
    (1.21, 1.0)
    """
    _check_count("nodes", nodes)
    _check_count("vnodes", vnodes)
    if nodes == 1:
        return 1.0
    # Over t with x = v t^3, where Gamma is nearly normal (Wilson and Hilferty, 1931).
    spread = (14 + math.sqrt(2 * math.log(nodes))) / (3 * math.sqrt(vnodes))
    t = np.linspace(max(1e-9, 1 - spread), 1 + spread, _STEPS + 1)
    exponent = (vnodes - 1) * 3 * np.log(t) - vnodes * (t**3 - 1)
    scale = vnodes * math.log(vnodes) - vnodes - math.lgamma(vnodes)
    density = np.exp(exponent + scale) * 3 * t**2
    step = t[1] - t[0]
    # The tail, summed from above so that small ones keep their digits: P(x > x_i).
    above = np.concatenate((np.cumsum(((density[1:] + density[:-1]) / 2)[::-1])[::-1], [0.0])) * step
    with np.errstate(divide="ignore"):
        some_above = -np.expm1(nodes * np.log1p(-np.minimum(above, 1.0)))
    heights = some_above * 3 * t**2
    return float(t[0] ** 3 + (heights[1:] + heights[:-1]).sum() / 2 * step)


class VnodesRow(NamedTuple):
    """What one number of virtual nodes gives and costs; a row of `compare_vnodes`.

    `peak_to_mean`, `low_to_mean` and `stddev` are those of `Ring.balance`, `expected_peak` what the
    theory expects of equal nodes. `key_peak_to_mean` is the fullest node by the keys that were
    given, None without keys. `moved` is the exact share that one more node of weight 1 takes, and
    `fair_moved` what it should take. `bytes` is the memory of the ring, `build_ms` and `lookup_ns`
    were measured here and now: compare them only within one table.
    """

    vnodes: int
    points: int
    peak_to_mean: float
    low_to_mean: float
    stddev: float
    expected_peak: float
    key_peak_to_mean: float | None
    moved: float
    fair_moved: float
    bytes: int
    build_ms: float
    lookup_ns: float


def compare_vnodes(
    nodes: int | Iterable[str | Node] | Mapping[str, float],
    counts: Iterable[int] = (40, 80, 160, 400),
    *,
    keys: Iterable[Any] | None = None,
    seed: int = 0,
    hash_tags: bool = False,
) -> list[VnodesRow]:
    """Build a ring with each number of virtual nodes, and return what each gives and costs.

    Args:
        nodes: As for `Ring`, or a number: then they are called node-1, node-2, ...
        counts: The numbers of virtual nodes to compare.
        keys: Keys to count at each node, beside the exact shares.
        seed, hash_tags: As for `Ring`.

    Raises:
        EmptyRingError: There are no nodes.
        TypeError, ValueError: As `Ring` does.

    Cost: a few times that of building every ring, and some milliseconds of lookups each.

    >>> [row.vnodes for row in compare_vnodes(10, [40, 160])]
    [40, 160]
    """
    counts = list(counts)
    if isinstance(nodes, (int, np.integer)):
        _check_count("nodes", nodes)
        check_points(int(nodes), counts)
        members: Any = [f"node-{i}" for i in range(1, nodes + 1)]
    else:
        members = Ring(nodes, vnodes=1).nodes  # checked, and read once
        check_points(len(members), counts)
    given = None if keys is None else keys if isinstance(keys, np.ndarray) else list(keys)
    sample = [f"key:{i:08d}" for i in range(_SAMPLE)] if given is None else list(given[:_SAMPLE])
    return [_row(members, int(count), given, sample, seed, hash_tags) for count in counts]


def check_points(nodes: int, counts: Iterable[int]) -> None:
    """Raise `ValueError` where one of the rings to compare would have too many points; build none."""
    for count in map(int, counts):
        if nodes * count > MAX_POINTS:
            raise ValueError(
                f"a ring has at most {MAX_POINTS} points, too few for {nodes} nodes of {count} virtual nodes"
            )


def _row(
    nodes: Any, vnodes: int, keys: Any | None, sample: list[Any], seed: int, hash_tags: bool
) -> VnodesRow:
    began = _clock()
    ring = Ring(nodes, vnodes=vnodes, seed=seed, hash_tags=hash_tags)
    build_ms = (_clock() - began) / 1e6
    if not len(ring):
        raise EmptyRingError("there are no nodes to compare virtual nodes with")
    balance = ring.balance
    newcomer = "one-more"
    while newcomer in ring:
        newcomer += "-"
    weights = np.array([node.weight for node in ring.nodes])
    return VnodesRow(
        vnodes=vnodes,
        points=len(ring.points),
        peak_to_mean=balance.peak_to_mean,
        low_to_mean=balance.low_to_mean,
        stddev=balance.stddev,
        expected_peak=expected_peak(len(ring), vnodes),
        key_peak_to_mean=None if keys is None else _key_peak(ring, keys, weights),
        moved=cast("float", ring.diff(ring.with_nodes(newcomer)).fraction),
        fair_moved=1 / (1 + math.fsum(weights)),
        bytes=ring.memory_size,
        build_ms=build_ms,
        lookup_ns=_lookup_ns(ring, sample),
    )


def _key_peak(ring: Ring, keys: Any, weights: np.ndarray[Any, Any]) -> float | None:
    if not len(keys):
        return None
    counts = np.bincount(ring.index_many(keys), minlength=len(ring))
    return float((counts / weights).max() / (len(keys) / math.fsum(weights)))


def _lookup_ns(ring: Ring, keys: list[Any]) -> float:
    """The median of a few passes over `keys`, without what the loop costs; NaN without keys."""
    if not keys:
        return math.nan
    owner = ring.owner
    passes = []
    for _ in range(_PASSES):
        began = _clock()
        for _key in keys:
            pass
        middle = _clock()
        for key in keys:
            owner(key)
        ended = _clock()
        passes.append(((ended - middle) - (middle - began)) / len(keys))
    return float(np.median(passes))


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {plain_type(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")

"""Where to cut before there is any data: by a sample of keys."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

from ringhash._ordered import Shape
from ringhash.node import Node, plain_type

__all__ = ["even_rows"]


def even_rows(
    shape: Shape,
    unit: int | None,
    sample: Sequence[Any],
    weights: Sequence[float] | None,
    nodes: Sequence[Node],
    ranges: int,
    tolerance: float | None,
) -> list[tuple[Any, str]]:
    """Return rows (start, node) that carry about the same.

    The heaviest range is as light as cuts between keys allow: the least limit is searched with which a
    sweep from the lowest key, which fills each range as far as the limit goes, needs no more ranges than
    there are. Then each range goes to the node that has the least for its weight, the heaviest first.
    """
    if isinstance(ranges, bool) or not isinstance(ranges, int):
        raise TypeError(f"ranges must be an int, not {plain_type(ranges)}")
    if ranges < 1:
        raise ValueError(f"a map has at least one range, not {ranges}")
    if weights is not None and len(weights) != len(sample):
        raise ValueError(f"{len(sample)} keys need as many weights, not {len(weights)}")
    loads: dict[bytes, float] = {}
    for i, key in enumerate(sample):
        load = 1.0 if weights is None else float(weights[i])
        if not 0.0 <= load < math.inf:
            raise ValueError(
                f"the weight of a key must be finite and not negative, and that of {key!r} is {load}"
            )
        whole = shape.encode(key)
        start = whole if unit is None else shape.encode(tuple(key[:unit]), False)
        loads[start] = loads.get(start, 0.0) + load
    starts = sorted(loads)
    if len(starts) < ranges:
        what = "keys" if unit is None else f"units of {unit} parts"
        raise ValueError(f"the sample has {len(starts)} distinct {what}, too few for {ranges} ranges")
    amounts = [loads[start] for start in starts]
    cuts = _cuts(amounts, ranges)
    sums = [math.fsum(amounts[begin:end]) for begin, end in zip(cuts, [*cuts[1:], len(starts)], strict=True)]
    mean = math.fsum(sums) / ranges
    if tolerance is not None and max(sums) > (1 + tolerance) * mean:
        heaviest = max(range(len(starts)), key=amounts.__getitem__)
        raise ValueError(
            f"the fullest of {ranges} ranges would carry {max(sums) / mean:.2f} times the mean; the "
            f"heaviest key, {shape.decode(starts[heaviest])!r}, alone carries "
            f"{amounts[heaviest] / mean:.2f} times the mean"
        )
    owners = _spread(sums, nodes)
    bounds = [None, *(shape.decode(starts[cut]) for cut in cuts[1:])]
    return list(zip(bounds, owners, strict=True))


def _cuts(amounts: list[float], ranges: int) -> list[int]:
    """Return where each range begins: the heaviest as light as possible, and each at least one key."""
    low, high = max(*amounts, math.fsum(amounts) / ranges), math.fsum(amounts)
    for _ in range(60):  # to the last bits of a double
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if len(_sweep(amounts, middle)) <= ranges:
            high = middle
        else:
            low = middle
    # Even within that limit: each range takes its part of what is left, as far as the limit allows.
    cuts = [0]
    left = math.fsum(amounts)
    load = 0.0
    for i, amount in enumerate(amounts):
        open_ranges = ranges - len(cuts) + 1
        keys_left = len(amounts) - i
        target = left / open_ranges
        needed = keys_left < open_ranges and i > cuts[-1]
        if (
            i > cuts[-1]
            and len(cuts) < ranges
            and (needed or load + amount > high or load + amount / 2 > target)
        ):
            cuts.append(i)
            left -= load
            load = 0.0
        load += amount
    if max(_loads(amounts, cuts)) > high or len(cuts) != ranges:
        cuts = _sweep(amounts, high)
        while len(cuts) < ranges:  # split what has most keys; it makes nothing heavier
            widths = [end - begin for begin, end in zip(cuts, [*cuts[1:], len(amounts)], strict=True)]
            widest = max(range(len(widths)), key=widths.__getitem__)
            cuts.insert(widest + 1, cuts[widest] + widths[widest] // 2)
    return cuts


def _loads(amounts: list[float], cuts: list[int]) -> list[float]:
    return [math.fsum(amounts[begin:end]) for begin, end in zip(cuts, [*cuts[1:], len(amounts)], strict=True)]


def _sweep(amounts: list[float], limit: float) -> list[int]:
    cuts = [0]
    load = 0.0
    for i, amount in enumerate(amounts):
        if load + amount > limit and i > cuts[-1]:
            cuts.append(i)
            load = 0.0
        load += amount
    return cuts


def _spread(sums: list[float], nodes: Sequence[Node]) -> list[str]:
    heap = [(0.0, 0, i) for i in range(len(nodes))]
    owners = [""] * len(sums)
    for i in sorted(range(len(sums)), key=lambda i: (-sums[i], i)):
        load, count, k = heapq.heappop(heap)
        owners[i] = nodes[k].name
        heapq.heappush(heap, (load + sums[i] / nodes[k].weight, count + 1, k))
    return owners

"""From figures to sentences: what is wrong with a key, and what to do, with what it would give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ringhash.analysis.counting import Distinct
from ringhash.analysis.measures import Growth, Monotone

__all__ = ["Facts", "Reason", "reasons_of"]

Verdict = Literal["bad", "doubtful", "good"]
FEW = 20  # values for each shard, below which shards are uneven by chance alone
BUCKETS = 16


class Reason(NamedTuple):
    """One thing to know of a key: how grave it is, what kind of thing, and the sentence.

    The kinds are "few values", "nulls", "heavy key", "uneven", "changes", "moves with time", "time unknown",
    "queries" and "good".
    """

    verdict: Verdict
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the reasons are made of."""

    rows: int
    nulls: float
    distinct: Distinct
    shards: int
    tolerance: float
    peak: float
    loads: Any
    heavy: list[tuple[Any, int]]
    monotone: Monotone | None
    changed: float | None
    growth: Growth | None
    place: Callable[[list[Any]], Any]


def reasons_of(facts: Facts) -> tuple[Reason, ...]:
    """Return the reasons, the gravest first; at least one."""
    found = [*_values(facts), *_nulls(facts), *_heavy(facts), *_changes(facts), *_time(facts)]
    grave = {reason.verdict for reason in found}
    if "bad" not in grave and "doubtful" not in grave and facts.peak > facts.tolerance:
        found.append(
            Reason(
                "doubtful",
                "uneven",
                f"the fullest of {facts.shards} shards has {facts.peak:.2f} times the mean though no key "
                "is heavy; "
                "take fewer shards, or more values",
            )
        )
    if all(reason.verdict == "good" for reason in found):
        share = facts.heavy[0][1] / facts.rows if facts.heavy else 0.0
        found.append(
            Reason(
                "good",
                "good",
                f"{facts.distinct.value:,} values, the most frequent has {share:.2%} of the rows, "
                "and hashed to "
                f"{facts.shards} shards the fullest has {facts.peak:.2f} times the mean",
            )
        )
    order = {"bad": 0, "doubtful": 1, "good": 2}
    return tuple(sorted(found, key=lambda reason: order[reason.verdict]))


def _values(facts: Facts) -> list[Reason]:
    values, shards = facts.distinct.value, facts.shards
    if values < shards:
        empty = shards - values
        text = (
            f"too few values: {values:,} for {shards} shards, so at least {empty} stay empty; add a "
            "column that "
            "tells its rows apart"
        )
        return [Reason("bad", "few values", text)]
    if values < FEW * shards:
        text = (
            f"few values: {values:,} for {shards} shards, {values / shards:.1f} each, so some shards have "
            "several "
            f"and some have none; {FEW} each even out"
        )
        return [Reason("doubtful", "few values", text)]
    return []


def _nulls(facts: Facts) -> list[Reason]:
    if not facts.nulls:
        return []
    expected = 1 - facts.nulls + facts.nulls * facts.shards
    if expected <= 1 + (facts.tolerance - 1) / 2:
        return []
    verdict: Verdict = "bad" if expected > facts.tolerance else "doubtful"
    text = (
        f"{facts.nulls:.2%} of the rows have no value, and all of these go to one of {facts.shards} "
        "shards, which has "
        f"{expected:.2f} times the mean then; give them a value, such as their own id"
    )
    return [Reason(verdict, "nulls", text)]


def _heavy(facts: Facts) -> list[Reason]:
    mean = facts.rows / facts.shards
    heavy = [(value, rows) for value, rows in facts.heavy if rows > facts.tolerance * mean]
    if not heavy:
        return []
    value, rows = heavy[0]
    # So that what one part adds to a shard is a small part of the mean.
    spread = min(max(2, math.ceil(4 * rows / mean)), 4 * facts.shards)
    salted = _salted(facts, heavy, spread)
    others = f" (and {len(heavy) - 1} more)" if len(heavy) > 1 else ""
    text = (
        f"one key is too heavy: {value!r}{others} has {rows / facts.rows:.1%} of the rows, so its shard "
        "has at least "
        f"{rows / mean:.1f} times the mean, whatever the placement; salted by {spread} the fullest has "
        f"{salted:.2f}"
    )
    return [Reason("bad", "heavy key", text)]


def _salted(facts: Facts, heavy: list[tuple[Any, int]], spread: int) -> float:
    """The fullest shard by the mean if the heavy keys are spread as `Salt` does: the key, key#1, key#2 ..."""
    loads = np.array(facts.loads, np.float64)
    for value, rows in heavy:
        loads[int(facts.place([value])[0])] -= rows
        keys: list[Any] = [str(value), *(f"{value}#{i}" for i in range(1, spread))]
        loads += np.bincount(facts.place(keys), minlength=len(loads)) * (rows / spread)
    return float(loads.max() / loads.mean())


def _changes(facts: Facts) -> list[Reason]:
    if not facts.changed:
        return []
    verdict: Verdict = "bad" if facts.changed > 0.01 else "doubtful"
    text = (
        f"it changes: {facts.changed:.1%} of the things that the rows are about had more than one value, "
        "and each "
        "change moves a row to another shard"
    )
    return [Reason(verdict, "changes", text)]


def _time(facts: Facts) -> list[Reason]:
    it = facts.monotone
    if it is None:
        text = "whether it moves with time is unknown: say which column tells when a row came (order=)"
        return [Reason("good", "time unknown", text)]
    if not it.moves:
        return []
    way = "falls" if it.global_ < 0 else "grows"
    bucketed = max(it.hot_tail / BUCKETS, 1 / 64)
    text = (
        f"moves with time: it {way} with the order of the rows ({it.global_:+.2f}), and {it.hot_tail:.0%} "
        "of the newest "
        f"1 % go to one of 64 ranges; hash it (the fullest shard has {facts.peak:.2f} times the mean), or "
        "for scans "
        f"put one of {BUCKETS} buckets in front: {bucketed:.0%}, and a scan reads {BUCKETS} places"
    )
    return [Reason("doubtful", "moves with time", text)]

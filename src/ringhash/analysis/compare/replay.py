"""`compare`: keys replayed over time, while nodes come and go and the data grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringhash.analysis.compare.policy import Array, Change, Placed, Policy, World
from ringhash.analysis.compare.trace import Trace
from ringhash.placements.shards import Shards
from ringhash.plan import Plan

__all__ = ["Comparison", "Outcome", "compare"]

SCAN = 100  # a scan reads a 100th of the keys that are neighbours
TIMES, CELLS, LORENZ = 48, 64, 101


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did with a trace.

    `rows_peak`, `load_peak`: the fullest node by the mean, in stored rows and in arriving rows, the mean
    over all steps with rows; `rows_last`: that of the rows at the end. `out_of_tolerance`: the hours in which
    the fullest node stored more than the tolerance allows. `moved`: the rows that changed their node, in all;
    `moved_share`: by the rows at the end; `moved_worst`: in the worst hour. `moves`, `splits`, `merges`: of
    the plans; a method without plans (modulo, bounded loads) counts keys as moves. `shards_per_node`,
    `metadata`: pieces by nodes, and the bytes of the JSON that a client needs, both at the end. `scatter`:
    how many nodes a scan of 1 % of the keys asks, on average. `loads`: rows by node at the end. `peaks`,
    `moved_by_step`: by step. `plans`: each plan of the live class with its step. `placement`: the live object
    as it is at the end.

    Rows are weights if the trace has them.
    """

    policy: str
    rows_peak: float
    rows_last: float
    load_peak: float
    out_of_tolerance: float
    moved: float
    moved_share: float
    moved_worst: float
    moves: int
    splits: int
    merges: int
    shards_per_node: float
    metadata: int
    scatter: float
    loads: dict[str, float]
    peaks: tuple[float, ...]
    moved_by_step: tuple[float, ...]
    plans: tuple[tuple[int, Plan], ...] = field(repr=False)
    placement: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found: an `Outcome` for each policy, in the order given.

    `nodes`: how many nodes there are, by step. `lorenz`: the share of the rows that the most frequent part
    of the keys has, at 0 %, 1 % ... 100 %. `heat`: rows by time (up to 48 columns) and shard (64), for "hash"
    and for "range".
    """

    outcomes: tuple[Outcome, ...]
    rows: int
    keys: int
    hours: float
    tolerance: float
    nodes: tuple[int, ...]
    lorenz: tuple[float, ...]
    heat: dict[str, list[list[float]]] = field(repr=False)

    def __getitem__(self, policy: str) -> Outcome:
        for outcome in self.outcomes:
            if outcome.policy == policy:
                return outcome
        raise KeyError(f"{policy!r} was not compared; the policies are {[it.policy for it in self.outcomes]}")

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a dictionary that JSON can hold."""
        from ringhash.analysis.compare.report import comparison_to_dict  # noqa: PLC0415

        return comparison_to_dict(self)

    def html(self) -> str:
        """Return the comparison as one page of HTML that needs nothing else."""
        from ringhash.analysis.compare.page import comparison_page  # noqa: PLC0415

        return comparison_page(self)

    def __str__(self) -> str:
        from ringhash.analysis.compare.report import comparison_text  # noqa: PLC0415

        return comparison_text(self)


Nodes = int | Sequence[str] | Iterable[tuple[float, int | Sequence[str]]]


def compare(
    trace: Trace,
    nodes: Nodes,
    policies: Iterable[Policy],
    *,
    tolerance: float = 1.5,
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """Replay keys over time with several ways to place them, while nodes come and go.

    Args:
        trace: The keys; see `Trace`.
        nodes: How many nodes, or their names; or pairs (when, how many or which), where `when` is a share of
            the time from 0 (the first must be 0) up to, but not including, 1. Nodes by number are `node-1`
            and so on, and the last ones leave first.
        policies: What to compare, as in `[Modulo(), Fixed(480), Dynamic()]`; no two of one name.
        tolerance: How full the fullest node may be by the mean.
        progress: Called with (steps done, steps in all) of all policies together.

    Returns:
        A `Comparison`. Each policy drives the live class of its method: what the simulation moves is what the
        plans of that class move, and `Outcome.placement` can be applied.

    Raises:
        ValueError: There is no policy or no node, two have one name, or `nodes` is not in order of time.
        TypeError: An argument has the wrong type.

    Cost: O(rows + changes * keys) a policy. The same arguments always give the same comparison.

    >>> from ringhash.analysis.compare import Fixed, Modulo, RingPolicy
    >>> trace = Trace(range(10_000), [0] * 9_999 + [1])
    >>> found = compare(trace, [(0, 4), (0.5, 5)], [Modulo(), RingPolicy(), Fixed(480)])
    >>> [round(outcome.moved_share, 1) for outcome in found]
    [0.8, 0.2, 0.2]
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a Trace, not {type(trace).__name__}; see Trace.from_rows")
    chosen = list(policies)
    titles = [policy.name for policy in chosen]
    if not chosen or len(set(titles)) < len(titles):
        raise ValueError(f"give at least one policy, and no two of one name; these are {titles}")
    if not tolerance > 1:
        raise ValueError(f"tolerance must be above 1, not {tolerance}")
    plan = _node_plan(nodes, trace.steps)
    every = tuple(dict.fromkeys(name for names in plan.values() for name in names))
    totals = trace.totals()
    outcomes = []
    for number, policy in enumerate(chosen):
        world = World(trace.keys, float(totals.sum()), every)

        def done(steps: int, before: int = number * trace.steps) -> None:
            if progress is not None:
                progress(before + steps, len(chosen) * trace.steps)

        outcomes.append(_replay(policy, world, trace, plan, tolerance, done))
    counts, now = [], 0
    for step in range(trace.steps):
        now = len(plan[step]) if step in plan else now
        counts.append(now)
    return Comparison(
        tuple(outcomes),
        trace.rows,
        len(trace.keys),
        trace.hours,
        tolerance,
        tuple(counts),
        _lorenz(totals),
        _heat(trace, totals),
    )


def _node_plan(nodes: Any, steps: int) -> dict[int, tuple[str, ...]]:
    """The names of the nodes by the step at which they are there."""
    if isinstance(nodes, bool | str | bytes):
        raise TypeError(f"nodes must be a number, names or pairs (when, nodes), not {nodes!r}")
    listed: list[Any] = [(0, nodes)] if isinstance(nodes, int) else list(nodes)
    if listed and all(isinstance(item, str) for item in listed):
        listed = [(0, listed)]
    plan: dict[int, tuple[str, ...]] = {}
    last = -1
    for item in listed:
        try:
            when, given = item
        except (TypeError, ValueError):
            raise TypeError(f"nodes has {item!r}, which is no pair (when, nodes)") from None
        if isinstance(given, bool | str) or not isinstance(given, int | Sequence):
            raise TypeError(f"nodes must be a number or names, not {given!r}")
        names = tuple(f"node-{i + 1}" for i in range(given)) if isinstance(given, int) else tuple(given)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"there must be at least one node, and none twice, not {given!r}")
        if not 0 <= when < 1:
            raise ValueError(f"when must be a share of the time from 0 and below 1, not {when!r}")
        step = int(when * steps)
        if step <= last or (last < 0 and when):
            raise ValueError(
                f"nodes must begin at 0 and be in order of time, each in a step of its own; {when!r} is not"
            )
        plan[step] = names
        last = step
    if not plan:
        raise ValueError("nodes must have at least one node")
    return plan


def _replay(
    policy: Policy,
    world: World,
    trace: Trace,
    plan: dict[int, tuple[str, ...]],
    tolerance: float,
    done: Callable[[int], None],
) -> Outcome:
    placed = policy.begin(world, plan[0])
    active = world.numbers(plan[0])
    log = _Log(trace.steps)
    stored = np.zeros(len(world.names))
    for step in range(trace.steps):
        if step and step in plan:
            active = world.numbers(plan[step])
            stored = log.changed(step, placed, world, stored, lambda: placed.resize(plan[step]))  # noqa: B023
        keys, weights = trace.step(step)
        if len(keys):
            np.add.at(world.rows, keys, 1.0 if weights is None else weights)
        # A policy looks at the rows that arrived; a router that decides as they arrive is asked here.
        stored = log.changed(step, placed, world, stored, lambda: placed.tend(step, keys), keys, weights)  # noqa: B023
        served = placed.owner[keys] if placed.served is None else placed.served
        load = np.bincount(served, weights, len(world.names))
        log.note(step, load[active], stored[active])
        done(step + 1)
    return log.outcome(policy.name, placed, world, trace, tolerance, active, stored)


class _Log:
    """What happened to the rows of one policy, by step."""

    def __init__(self, steps: int) -> None:
        self.rows_peaks = np.zeros(steps)  # 0 as long as there are no rows
        self.load_peaks = np.zeros(steps)
        self.moved = np.zeros(steps)
        self.changes: list[tuple[int, Change]] = []

    def changed(
        self,
        step: int,
        placed: Placed,
        world: World,
        stored: Array,
        change: Callable[[], list[Change]],
        fresh: Array | None = None,
        weights: Array | None = None,
    ) -> Array:
        """Let the policy change, and return what each node stores then.

        `fresh` are the rows of this step: they are placed first where the policy has their keys.
        """
        before = placed.owner
        stored = stored if fresh is None else stored + np.bincount(before[fresh], weights, len(stored))
        made = change()
        self.changes += [(step, it) for it in made]
        if placed.owner is before:
            return stored
        gone = np.flatnonzero(before != placed.owner)
        rows = world.rows[gone]
        if fresh is not None and any(it.plan is None for it in made):
            # Decided as the rows arrived: only what was there before has moved.
            rows = rows.copy()
            new = np.bincount(fresh, weights, len(world.rows)) if len(fresh) else np.zeros(len(world.rows))
            rows -= new[gone]
        self.moved[step] += rows.sum()
        return np.bincount(placed.owner, world.rows, len(stored))

    def note(self, step: int, load: Array, stored: Array) -> None:
        for peaks, amounts in ((self.load_peaks, load), (self.rows_peaks, stored)):
            total = amounts.sum()
            peaks[step] = amounts.max() * len(amounts) / total if total else 0.0

    def outcome(
        self,
        name: str,
        placed: Placed,
        world: World,
        trace: Trace,
        tolerance: float,
        active: Array,
        stored: Array,
    ) -> Outcome:
        total = float(stored.sum())
        at_once = max(1, round(1 / trace.hours)) if trace.hours < 1 else 1
        by_hour = np.add.reduceat(self.moved, np.arange(0, trace.steps, at_once))
        seen, loaded = self.rows_peaks > 0, self.load_peaks > 0
        changes = [it for _, it in self.changes]
        return Outcome(
            policy=name,
            rows_peak=float(self.rows_peaks[seen].mean()) if seen.any() else 0.0,
            rows_last=float(self.rows_peaks[-1]),
            load_peak=float(self.load_peaks[loaded].mean()) if loaded.any() else 0.0,
            out_of_tolerance=float(np.count_nonzero(self.rows_peaks > tolerance)) * trace.hours,
            moved=float(self.moved.sum()),
            moved_share=float(self.moved.sum()) / total if total else 0.0,
            moved_worst=float(by_hour.max()),
            moves=sum(it.moves for it in changes),
            splits=sum(it.splits for it in changes),
            merges=sum(it.merges for it in changes),
            shards_per_node=placed.shards / len(active),
            metadata=placed.metadata,
            scatter=scatter_width(placed.owner, len(world.names)),
            loads={world.names[i]: float(stored[i]) for i in active.tolist()},
            peaks=tuple(self.rows_peaks.tolist()),
            moved_by_step=tuple(self.moved.tolist()),
            plans=tuple((step, it.plan) for step, it in self.changes if it.plan is not None),
            placement=placed.placement,
        )


def scatter_width(owner: Array, nodes: int, scans: int = SCAN) -> float:
    """Return how many nodes each of so many equal stretches of the sorted keys is on, on average."""
    stretch = np.arange(len(owner)) * scans // len(owner)
    seen = np.bincount(stretch * nodes + owner, minlength=scans * nodes).reshape(scans, nodes) > 0
    counted = seen.sum(axis=1)
    return float(counted[counted > 0].mean())


def _lorenz(totals: Array) -> tuple[float, ...]:
    sums = np.concatenate([[0.0], np.cumsum(np.sort(totals)[::-1])])
    places = np.linspace(0, len(totals), LORENZ)
    return tuple((np.interp(places, np.arange(len(sums)), sums) / (sums[-1] or 1.0)).tolist())


def _heat(trace: Trace, totals: Array) -> dict[str, list[list[float]]]:
    times = min(TIMES, trace.steps)
    column = np.repeat(np.arange(trace.steps) * times // trace.steps, np.diff(trace.offsets))
    # A key is in the range in which the middle of its rows is, if all rows are sorted by key.
    middle = (np.cumsum(totals) - totals / 2) / (totals.sum() or 1.0)
    by_range = np.minimum((middle * CELLS).astype(np.intp), CELLS - 1)
    found = {}
    for method, shard in (("hash", Shards(CELLS).of_many(trace.keys)), ("range", by_range)):
        cells = np.bincount(column * CELLS + shard[trace.index], trace.weights, times * CELLS)
        found[method] = cells.astype(np.float64).reshape(times, CELLS).tolist()
    return found

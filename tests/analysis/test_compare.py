"""What `compare` says against closed forms, and against the plans of the live classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringhash import RangeMap, Ring, Router, assign
from ringhash.analysis.compare import (
    Bounded,
    Change,
    Comparison,
    Direct,
    Dynamic,
    Fixed,
    Modulo,
    Outcome,
    PerNode,
    Policy,
    RingPolicy,
    Trace,
    World,
    compare,
)
from ringhash.errors import RinghashError
from ringhash.placements.directory import Directory

ROOT = Path(__file__).parent.parent.parent
FLIGHTS = ROOT / "examples" / "data" / "flights.csv.gz"
needs_flights = pytest.mark.skipif(not FLIGHTS.exists(), reason="the sdist does not hold the flights")
KEYS = 20_000
ALL: list[Policy] = [Modulo(), RingPolicy(), Fixed(480), Dynamic(), PerNode(16), Direct(50), Bounded(1.25)]


def flat(before: int, after: int, *policies: Any) -> Comparison:
    """Every key has one row, and then the nodes change: nothing arrives at that step."""
    trace = Trace(range(KEYS), [0] * (KEYS - 1) + [3])
    return compare(trace, [(0, before), (0.5, after)], policies)


def names(count: int) -> list[str]:
    return [f"node-{i + 1}" for i in range(count)]


def skewed(kind: str = "text", rows: int = 30_000) -> Trace:
    """Keys of a power law; rows arrive at even steps only, so nodes can change between."""
    random = np.random.default_rng(4)
    keys = np.minimum(random.zipf(1.3, rows), 5000)
    steps = np.sort(random.integers(0, 20, rows)) * 2
    weights = random.integers(1, 9, rows)
    return Trace(keys if kind == "int" else [f"k{key}" for key in keys.tolist()], steps, weights)


# --- known results ---


@pytest.mark.parametrize(("before", "after"), [(4, 5), (5, 4), (4, 8)])
def test_modulo_moves_what_arithmetic_says(before: int, after: int) -> None:
    """A key stays where hash % before == hash % after: min(before, after) in each lcm of hashes."""
    moved = flat(before, after, Modulo())["modulo"].moved_share
    expected = 1 - min(before, after) / math.lcm(before, after)
    assert abs(moved - expected) < 4 * math.sqrt(expected * (1 - expected) / KEYS)
    if (before, after) == (4, 5):
        assert expected == 0.8


@pytest.mark.parametrize("policy", [RingPolicy(160), PerNode(16)])
def test_the_ring_moves_one_part_in_n(policy: Any) -> None:
    outcome = flat(4, 5, policy).outcomes[0]
    assert outcome.moved_share == pytest.approx(1 / 5, rel=0.25)


@pytest.mark.parametrize(("before", "after"), [(4, 5), (5, 4), (4, 6), (6, 4)])
def test_fixed_shards_move_as_few_as_they_must(before: int, after: int) -> None:
    """480 divide by all of these: each node has 480 / n, and what is above that moves."""
    outcome = flat(before, after, Fixed(480))["fixed 480"]
    assert outcome.moves <= 480 * abs(after - before) // max(before, after)
    [(_, plan)] = outcome.plans
    assert plan.positions == 480 * abs(after - before) // max(before, after)
    assert set(outcome.placement.counts.values()) == {480 // after}


def test_a_scan_asks_all_nodes_under_hash_and_few_under_ranges() -> None:
    found = flat(4, 5, Fixed(480), Dynamic())
    assert found["fixed 480"].scatter == pytest.approx(5, abs=0.05)
    assert 1 <= found["dynamic"].scatter < 2


def test_the_three_families_have_the_pieces_that_they_are_named_for() -> None:
    found = flat(4, 8, Fixed(480), Dynamic(500), PerNode(16))
    assert [found[name].shards_per_node for name in ("fixed 480", "per node 16")] == [60, 16]
    ranges = found["dynamic 500"]
    assert ranges.shards_per_node * 8 == ranges.splits + 1 - ranges.merges
    assert KEYS / 500 <= ranges.splits + 1 <= 2 * KEYS / 500 + 1


# --- a simulated step is the plan of the live class ---


def start_of(policy: Any, trace: Trace, count: int) -> Any:
    """The live class, made by hand."""
    match policy:
        case RingPolicy():
            return Ring(names(count), vnodes=policy.vnodes)
        case Fixed():
            return assign(policy.shards, names(count))
        case Dynamic():
            shape = int if isinstance(trace.keys, np.ndarray) else str
            return RangeMap([(None, "node-1")], nodes=names(count), keys=shape)
        case Direct():
            return Directory(Ring(names(count), vnodes=policy.vnodes))
    return None


def check_against_plans(trace: Trace, counts: list[tuple[float, int]], policy: Any) -> Outcome:
    """Apply the plans one by one to a live router, and count what each step moves by their masks."""
    outcome = compare(trace, counts, [policy]).outcomes[0]
    keys = list(map(str, trace.keys)) if isinstance(policy, PerNode) else trace.keys
    start = start_of(policy, trace, counts[0][1])
    router = None if start is None else Router(start)
    moved = np.zeros(trace.steps)
    for step, plan in outcome.plans:
        # Nodes change at odd steps, when nothing arrives: rows before the step are those after it.
        rows = np.zeros(len(trace.keys))
        for earlier in range(step + 1):
            index, weights = trace.step(earlier)
            np.add.at(rows, index, 1 if weights is None else weights)
        moved[step] += rows[plan.mask(keys)].sum()
        if router is not None:
            router.apply(router.plan_to(start_after(router, plan)))
    assert moved.tolist() == list(outcome.moved_by_step)
    if router is not None:
        assert router.placement.digest == outcome.placement.digest
    owners = outcome.placement.owner_many(keys)
    loads = dict.fromkeys(outcome.loads, 0.0)
    for name, rows_of_key in zip(owners, trace.totals(), strict=True):
        loads[name] += rows_of_key
    assert loads == outcome.loads
    return outcome


def start_after(router: Router, plan: Any) -> Any:
    assert plan.before == router.placement.digest
    return router.placement.replayed(plan)


@pytest.mark.parametrize("kind", ["text", "int"])
@pytest.mark.parametrize("policy", [RingPolicy(40), Fixed(96), Dynamic(), PerNode(8), Direct(20)])
def test_a_simulated_step_is_the_plan_of_the_live_class(policy: Any, kind: str) -> None:
    outcome = check_against_plans(skewed(kind), [(0, 3), (0.35, 5), (0.7, 4)], policy)
    assert len(outcome.plans) >= 2
    assert outcome.moved > 0


class Liar:
    """Moves what its live class does not: the control of the test above."""

    name = "liar"

    def begin(self, world: World, given: Sequence[str]) -> Any:
        placed = RingPolicy(40).begin(world, given)
        honest = placed.resize

        def resize(wanted: Sequence[str]) -> list[Change]:
            changes = honest(wanted)
            placed.owner = np.roll(placed.owner, 1)
            return changes

        setattr(placed, "resize", resize)  # noqa: B010
        return placed


def test_a_policy_that_differs_from_its_plans_is_found() -> None:
    with pytest.raises(AssertionError):
        check_against_plans(skewed(), [(0, 3), (0.35, 5)], Liar())


def test_bounded_loads_hold_at_every_step() -> None:
    """The live router serves each request; the fullest node is below what the factor allows."""
    trace = Trace(["hot"] * 500 + [f"k{i}" for i in range(500)], [0, 1] * 500)
    found = compare(trace, [(0, 4), (0.5, 5)], [Bounded(1.25), RingPolicy()])
    assert found["bounded 1.25"].load_peak <= 1.25 * (1 + 2 * 5 / 500)
    assert found["ring 160"].load_peak > 2  # the control: the hot key is half of all
    assert found["bounded 1.25"].placement.held == 0


# --- ranges ---


def test_ranges_settle_under_a_constant_load() -> None:
    trace = Trace.from_counts({f"k{i}": 1 for i in range(2000)}, 40_000, 100, seed=2)
    outcome = compare(trace, 4, [Dynamic(split=1e9, merge=0)])["dynamic 1e+09"]
    assert (outcome.splits, outcome.moves, outcome.moved) == (0, 0, 0)
    settled = compare(trace, 4, [Dynamic(2000)])["dynamic 2000"]
    late = [step for step, plan in settled.plans if step >= 90]
    assert len(late) <= 10
    assert settled.rows_last < 1.3


def test_one_hot_key_is_never_split() -> None:
    trace = Trace(["hot"] * 5000 + ["a", "z"], [i // 100 for i in range(5002)])
    outcome = compare(trace, 3, [Dynamic(100)])["dynamic 100"]
    starts = [row.start for row in outcome.placement.rows]
    assert len(starts) <= 3
    assert outcome.rows_last == pytest.approx(3, rel=0.01)


def test_a_directory_evens_out_heavy_keys() -> None:
    trace = Trace.from_counts({f"k{i}": 1 / i for i in range(1, 400)}, 50_000, 50, seed=3)
    found = compare(trace, 4, [Direct(100), RingPolicy()])
    assert found["direct 100"].rows_last < 1.1 < found["ring 160"].rows_last


# --- what holds for all ---


def test_nothing_is_lost_and_the_same_comes_out_again() -> None:
    trace = skewed()
    one = compare(trace, [(0, 3), (0.35, 5), (0.7, 4)], ALL)
    again = compare(trace, [(0, 3), (0.35, 5), (0.7, 4)], ALL)
    assert one.to_dict() == again.to_dict()
    for outcome in one:
        assert sum(outcome.loads.values()) == trace.totals().sum()
        assert outcome.rows_last == pytest.approx(max(outcome.loads.values()) * 4 / trace.totals().sum())
        assert 0 <= outcome.moved_worst <= outcome.moved
        assert list(outcome.loads) == names(4)
    assert set(one.nodes) == {3, 4, 5}
    assert sum(map(sum, one.heat["hash"])) == sum(map(sum, one.heat["range"])) == trace.totals().sum()


def test_hours_out_of_tolerance_are_counted_by_hand() -> None:
    trace = Trace(["a", *(f"k{i}" for i in range(3000))], [0] + [5] * 3000, hours=2)
    outcome = compare(trace, 4, [Fixed(4)], tolerance=1.5)["fixed 4"]
    assert outcome.peaks[:5] == (4.0,) * 5  # one key alone
    assert outcome.peaks[5] < 1.2
    assert outcome.out_of_tolerance == 10


def test_rows_and_times_of_every_kind() -> None:
    times = ["2024-01-01T00:00:00", "2024-01-01T03:30:00", None, "2024-01-01T05:00:00Z"]
    trace = Trace.from_rows({"k": ["a", "b", "c", None], "at": times}, "k", "at", hours=0.5)
    assert (trace.rows, trace.steps, list(trace.keys)) == (2, 8, ["a", "b"])
    numpy_times = np.array(times[:2], "datetime64[s]")
    same = Trace.from_rows({"k": np.array([1, 2]), "at": numpy_times}, "k", "at", hours=0.5)
    assert (same.rows, same.steps) == (2, 8)
    seconds = Trace.from_rows({"k": ["a", "b"], "at": [0, 7200], "w": [3, None]}, "k", "at", weight="w")
    assert (seconds.steps, seconds.totals().tolist()) == (3, [3.0, 0.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Trace([], []), "needs rows"),
        (lambda: Trace(["a"], [0, 1]), "1 whole numbers"),
        (lambda: Trace(["a"], [-1]), "at least 0"),
        (lambda: Trace(["a"], [0], [-1.0]), "weights"),
        (lambda: Trace(["a"], [0], hours=0), "hours"),
        (lambda: Trace.from_rows({"k": ["a"], "at": ["soon"]}, "k", "at"), "no time"),
        (lambda: Trace.from_rows({"k": ["a"], "at": [None]}, "k", "at"), "both a key and a time"),
        (lambda: Trace.from_rows({"k": ["a"]}, "k", "at"), "no column 'at'"),
        (lambda: Trace.from_counts({}, 1, 1), "above 0"),
        (lambda: compare(Trace(["a"], [0]), 2, []), "at least one policy"),
        (lambda: compare(Trace(["a"], [0]), 2, [Modulo(), Modulo()]), "no two of one name"),
        (lambda: compare(Trace(["a"], [0]), 0, [Modulo()]), "at least one node"),
        (lambda: compare(Trace(["a"], [0]), [(0.5, 2)], [Modulo()]), "begin at 0"),
        (lambda: compare(Trace(["a"], [9]), [(0, 2), (0.01, 3)], [Modulo()]), "step of its own"),
        (lambda: compare(Trace(["a"], [9]), [(0, 2), (1, 3)], [Modulo()]), "below 1"),
        (lambda: compare(Trace(["a"], [9]), "abc", [Modulo()]), "nodes must be"),
        (lambda: compare(Trace(["a"], [0]), 2, [Modulo()], tolerance=1), "tolerance"),
        (lambda: compare(["a"], 2, [Modulo()]), "must be a Trace"),  # type: ignore[arg-type]
        (lambda: Dynamic(split=-1), "above 0"),
        (lambda: Dynamic(split=10, merge=6), "half of split"),
        (lambda: Direct(0), "at least 1"),
        (lambda: compare(Trace(["a"], [0]), 2, [Fixed(0)]), "from 1"),
    ],
)
def test_what_cannot_be_compared(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, RinghashError), match=message):
        make()


# --- real data ---


@needs_flights
def test_flights_by_destination() -> None:
    """Few heavy keys: no placement of whole keys is even, and a directory is nearest to it."""
    trace = Trace.from_rows(FLIGHTS, "dest", "time_hour", hours=24)
    assert (trace.steps, len(trace.keys)) == (365, 104)
    found = compare(trace, [(0, 4), (0.5, 6), (0.8, 5)], ALL)
    last = {outcome.policy: outcome.rows_last for outcome in found}
    assert last["direct 50"] < 1.1
    assert last["dynamic"] < 1.1
    assert last["ring 160"] > 1.2
    assert found["modulo"].moved_share > 2 * found["fixed 480"].moved_share


def test_words_are_a_power_law() -> None:
    wordfreq = pytest.importorskip("wordfreq")
    counts = {word: wordfreq.word_frequency(word, "en") for word in wordfreq.top_n_list("en", 5000)}
    trace = Trace.from_counts(counts, 60_000, 48, growth=3.0)
    found = compare(trace, [(0, 8), (0.5, 9)], [RingPolicy(), Direct(100), Dynamic()])
    assert found["direct 100"].rows_last < 1.1
    assert found["ring 160"].rows_last > 1.15
    # The rows grow threefold: the last quarter of the steps has more of them than the first half.
    arrived = np.diff(trace.offsets)
    assert arrived[36:].sum() > arrived[:18].sum() * 1.25

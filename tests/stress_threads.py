"""Threads against one router, with or without the GIL: python stress_threads.py [--seconds 3] [--threads 4] [NAME ...]

Every answer is checked against the states that there were; a hang or an exception is a wrong answer too. The exit
status is 1 if anything was wrong. `--broken` publishes states that never were, which must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ringhash import Ring, Router, StalePlanError
from ringhash.balance import BoundedRouter
from ringhash.errors import GuardError
from ringhash.handover import Guard
from ringhash.ranges import Ranges
from ringhash.routing import Progress, RouterSnapshot

Worker = Callable[[threading.Event], int]
WRONG: Counter[str] = Counter()
LIMIT = 120.0  # seconds after which a thread that does not come back hangs


def together(name: str, workers: list[Worker], seconds: float) -> list[int]:
    """Run workers until the time is over, each in a thread; return what each counted."""
    stop, gate, counts = threading.Event(), threading.Barrier(len(workers) + 1), [0] * len(workers)

    def body(number: int, worker: Worker) -> None:
        gate.wait()
        try:
            counts[number] = worker(stop)
        except BaseException as error:  # noqa: BLE001 - any is a finding
            WRONG[f"{name}: {type(error).__name__}: {error}"] += 1

    threads = [threading.Thread(target=body, args=item, daemon=True) for item in enumerate(workers)]
    for thread in threads:
        thread.start()
    gate.wait()
    time.sleep(seconds)
    stop.set()
    end = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(0.1, end - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        WRONG[f"{name}: hangs"] += 1
        faulthandler.dump_traceback(all_threads=True)
    return counts


class World:
    """One key per kind of change, a router, and what each public lookup may answer in any of its states."""

    def __init__(self) -> None:
        names = [f"n{i}" for i in range(6)]
        base = Ring(names, vnodes=12)
        more, less = base.with_nodes("x"), base.without("n3")
        self.plan_more, self.plan_less = base.diff(more), base.diff(less)
        self.keys = [f"key-{i}" for i in range(60)]
        self.numbers = np.arange(60)
        self.router = Router(base)
        self.pinned = next(k for k in self.keys if base.owner(k) == "n1")
        self.states: list[RouterSnapshot] = []
        self.build()
        self.possible = {name: {ask(s) for s in self.routers()} for name, ask in self.questions().items()}

    def build(self) -> None:
        """Go through every state once: marks and pins, whole changes, and the middles of a handover."""
        router, keep = self.router, lambda: self.states.append(self.router.snapshot)
        keep()
        for plan in (self.plan_more, self.plan_less):
            back = plan.inverse()
            router.apply(plan)
            keep()
            router.apply(back)
        router.pin(self.pinned, "n2")
        keep()
        router.mark_down("n1", "n2")  # changes the table and the pins at once
        keep()
        router.mark_up("n1", "n2")
        moves = list(self.plan_more.ranges)
        for part in range(0, len(moves) + 1, 3):
            done = Ranges.of([(r.start, r.end) for r in moves[:part]])
            router.carry(Progress(self.plan_more, done, 0))
            keep()
        router.carry(Progress(self.plan_more, Ranges.of([]), 0))
        router.carry(Progress(self.plan_more, Ranges.of([]), 0, "back"))
        router.unpin(self.pinned)

    def routers(self) -> list[Router]:
        return [Router._of(state) for state in self.states]

    def questions(self) -> dict[str, Callable[[Router], Any]]:
        keys, pinned = [*self.keys[:12], self.pinned], self.pinned
        return {
            "owner": lambda r: r.owner(pinned),
            "item": lambda r: r[keys[3]],
            "owners": lambda r: r.owners(pinned, 3),
            "zones": lambda r: r.owners(keys[1], 2, distinct="zone"),
            "walk": lambda r: tuple(r.walk(pinned)),
            "owner_many": lambda r: tuple(r.owner_many(self.keys)),
            "columns": lambda r: tuple(r.owner_many(self.numbers)),
            "route": lambda r: r.route(pinned).node,
            "owner_at": lambda r: r.owner_at(7),
            "position": lambda r: r.position(pinned),
            "names": lambda r: (r.names, len(r.nodes)) if r.running is None else None,
        }


def states(seconds: float, threads: int, broken: bool) -> None:
    """Every lookup against every state that a router can be in, published in any order."""
    world = World()
    router, published = world.router, list(world.states)
    if broken:
        published.append(RouterSnapshot(Ring(["half", "of", "it"], vnodes=2)))

    def write(stop: threading.Event) -> int:
        rng, count = random.Random(1), 0
        while not stop.is_set():
            router._publish(rng.choice(published), router.snapshot)
            count += 1
            if count % 50 == 0:
                time.sleep(0)
        return count

    def read(name: str, ask: Callable[[Router], Any]) -> Worker:
        def worker(stop: threading.Event) -> int:
            count, possible = 0, world.possible[name]
            while not stop.is_set():
                answer = ask(router)
                if answer not in possible and not (name == "names" and answer is not None):
                    WRONG[f"states: {name}"] += 1
                count += 1
            return count

        return worker

    asked = list(world.questions().items())
    readers = [read(*asked[i % len(asked)]) for i in range(max(threads, len(asked)))]
    counts = together("states", [write, *readers], seconds)
    print(f"states: {sum(counts[1:])} answers against {counts[0]} changes between {len(published)} states")


def changes(seconds: float, threads: int, broken: bool) -> None:
    """Every public change at once: no owner but a node that may be there, one epoch for each change."""
    router = Router([f"n{i}" for i in range(6)], vnodes=20)
    allowed = {*router.names, "x", "y"}
    expected: tuple[type[Exception], ...] = (StalePlanError, ValueError, LookupError, RuntimeError)

    def write(number: int) -> Worker:
        def worker(stop: threading.Event) -> int:
            rng, count = random.Random(number), 0

            def handover() -> None:
                plan = router.plan(add=["x"])
                router.carry(Progress(plan, Ranges.of([]), 0))
                moves = list(plan.ranges)
                for part in range(1, len(moves) + 1, 4):
                    router.carry(Progress(plan, Ranges.of([(m.start, m.end) for m in moves[:part]]), 0))
                if rng.random() < 0.5:
                    router.carry(Progress(plan, plan.ranges, 0, "carried"))
                    router.carry(Progress(plan, plan.ranges, 0, "forward"))
                else:
                    router.carry(Progress(plan, Ranges.of([]), 0))
                    router.carry(Progress(plan, Ranges.of([]), 0, "back"))

            steps: list[Callable[[], object]] = [
                lambda: router.add("x"),
                lambda: router.remove("x", allow_unpin=True),
                lambda: router.apply(router.plan(add=["y"])),
                lambda: router.apply(router.plan(remove=["y"]), allow_unpin=True),
                lambda: router.reweight("n1", 1.0 + rng.random()),
                lambda: router.mark_down("n1", "n2"),
                lambda: router.mark_up("n1", "n2"),
                lambda: router.pin("hot", "n2"),
                lambda: router.unpin("hot"),
                lambda: router.follow(Router.from_dict(router.to_dict()).to_dict()),
                handover,
            ]
            while not stop.is_set():
                with contextlib.suppress(expected):
                    rng.choice(steps)()
                count += 1
            return count

        return worker

    def read(stop: threading.Event) -> int:
        count, last = 0, 0
        while not stop.is_set():
            seen = router.snapshot
            if seen.epoch < last:
                WRONG["changes: an epoch went back"] += 1
            last = seen.epoch
            two = router.owners("hot", 2)
            if len(set(two)) != 2 or not allowed.issuperset(two):
                WRONG["changes: owners"] += 1
            walk = list(router.walk("hot"))
            if len(set(walk)) != len(walk) or not allowed.issuperset(walk):
                WRONG["changes: walk"] += 1
            if not allowed.issuperset(router.owner_many(range(40))) or router.owner("hot") not in allowed:
                WRONG["changes: owner"] += 1
            one, many = seen.owner("hot"), seen.owner_many(["hot"])[0]
            if one != many or seen.route("hot").node != one:
                WRONG["changes: one snapshot answers twice"] += 1
            count += 5
        return count

    half = max(2, threads // 2)
    counts = together("changes", [*(write(i) for i in range(half)), *[read] * half], seconds)
    print(
        f"changes: {sum(counts[half:])} answers against {sum(counts[:half])} changes, to epoch {router.epoch}"
    )


def loads(seconds: float, threads: int, broken: bool) -> None:
    """Tickets end at exactly 0, a ticket is given back once, and a report is of one moment."""
    router = Router([f"n{i}" for i in range(6)], vnodes=20)
    bounded = BoundedRouter(router, 1.25)

    def write(stop: threading.Event) -> int:
        count = 0
        while not stop.is_set():
            router.mark_down("n1")
            router.pin("hot", "n2")
            router.mark_up("n1")
            router.unpin("hot")
            (router.remove if "x" in router else router.add)("x")
            count += 5
        return count

    def work(number: int) -> Worker:
        def worker(stop: threading.Event) -> int:
            rng, mine, count = random.Random(number), [], 0
            while not stop.is_set():
                key = "hot" if rng.random() < 0.3 else rng.randrange(10_000)
                mine.append(bounded.acquire(key, avoid=("n3",) if rng.random() < 0.1 else None))
                if len(mine) > rng.randrange(30):
                    ticket = mine.pop(rng.randrange(len(mine)))
                    if not ticket.release() or ticket.release():
                        WRONG["loads: release"] += 1
                count += 1
            for ticket in mine:
                ticket.release()
            return count

        return worker

    def look(stop: threading.Event) -> int:
        count = 0
        while not stop.is_set():
            report = bounded.report()
            if sum(report.loads.values()) != report.held or min(report.loads.values()) < 0:
                WRONG["loads: report"] += 1
            count += 1
        return count

    counts = together("loads", [write, look, *(work(i) for i in range(threads))], seconds)
    report = bounded.report()
    if report.held or any(report.loads.values()):
        WRONG["loads: held at the end"] += 1
    if report.acquired != sum(counts[2:]):
        WRONG["loads: acquired"] += 1
    print(f"loads: {report.acquired} tickets against {counts[0]} changes, {report.held} held at the end")


def caps(seconds: float, threads: int, broken: bool) -> None:
    """With the same nodes all the time, no node is above its cap; of many releases of a ticket one counts."""
    end, rounds, each = time.monotonic() + seconds, 0, 400
    while not rounds or time.monotonic() < end:
        bounded = BoundedRouter(Router([f"n{i}" for i in range(7)], vnodes=20), 1.1)
        tickets: list[list[Any]] = [[] for _ in range(threads)]

        def take(number: int, bounded: Any = bounded, tickets: Any = tickets) -> Worker:
            def worker(stop: threading.Event) -> int:
                tickets[number].extend(bounded.acquire("one hot key") for _ in range(each))
                return each

            return worker

        together("caps", [take(i) for i in range(threads)], 0)
        report, total = bounded.report(), each * threads
        if report.held != total or max(report.loads.values()) > -(-1.1 * total // 7):
            WRONG["caps: exceeded"] += 1
        if Counter(t.node for part in tickets for t in part) != Counter(report.loads) - Counter():
            WRONG["caps: by node"] += 1

        def give(stop: threading.Event, tickets: Any = tickets) -> int:
            return sum(ticket.release() for ticket in tickets[0])

        if sum(together("caps", [give] * threads, 0)) != each or bounded.held != total - each:
            WRONG["caps: released twice"] += 1
        rounds += 1
    print(f"caps: {rounds} rounds of {each * threads} tickets")


def guard(seconds: float, threads: int, broken: bool) -> None:
    """Of changes that many threads make at once, one is let through in a cooldown."""
    end, rounds = time.monotonic() + seconds, 0
    while not rounds or time.monotonic() < end:
        router = Router([f"n{i}" for i in range(4)], vnodes=5)
        rule = Guard(max_fraction=1.0, min_alive=0, grace=0)
        plans = [router.plan(add=[f"x{i}"]) for i in range(threads)]

        def apply(number: int, router: Any = router, rule: Any = rule, plans: Any = plans) -> Worker:
            def worker(stop: threading.Event) -> int:
                try:
                    rule.apply(router, plans[number])
                except (GuardError, StalePlanError):
                    return 0
                return 1

            return worker

        if sum(together("guard", [apply(i) for i in range(threads)], 0)) != 1 or router.epoch != 1:
            WRONG["guard: changes in one cooldown"] += 1
        rounds += 1
    print(f"guard: {rounds} rounds")


def walks(seconds: float, threads: int, broken: bool) -> None:
    """One walk of many threads gives each node to one of them, and ends."""
    ring = Ring((f"n-{i}" for i in range(2000)), vnodes=1)
    end, rounds = time.monotonic() + seconds, 0
    while not rounds or time.monotonic() < end:
        walk, got = ring.walk("key"), [[] for _ in range(threads)]

        def take(number: int, walk: Any = walk, got: Any = got) -> Worker:
            def worker(stop: threading.Event) -> int:
                got[number].extend(walk)
                return len(got[number])

            return worker

        together("walks", [take(i) for i in range(threads)], 0)
        if sorted(name for part in got for name in part) != list(ring):
            WRONG["walks: names missing or given twice"] += 1
        rounds += 1
    print(f"walks: {rounds} walks of {len(ring)} nodes")


PARTS = {part.__name__: part for part in (states, changes, loads, caps, guard, walks)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="NAME", help=", ".join(PARTS))
    options = parser.parse_args()
    faulthandler.enable()
    sys.setswitchinterval(5e-6)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        f"Python {sys.version.split()[0]}, GIL {'on' if gil else 'off'}, {options.threads} threads",
        flush=True,
    )
    for name in options.parts or PARTS:
        PARTS[name](options.seconds, options.threads, options.broken)
        sys.stdout.flush()
    wrong = dict(WRONG)
    print("wrong:", wrong or "nothing", flush=True)
    os._exit(bool(wrong))  # threads that hang would keep it from ending


if __name__ == "__main__":
    main()

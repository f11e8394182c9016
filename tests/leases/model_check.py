"""A model checker for the protocol of leases: every interleaving, to a stated depth.

The workers are the real `Holder` and `decide`; the database is a few lines of Python, which `test_protocol.py`
compares with the real ones. One action is one atomic step: a statement in the database, or a step in one
process. Time is whatever the adversary wants: a lease may expire, a process may sleep, between any two actions,
and a process that sleeps does not know how late it is when it goes on. So a worker may begin a write with a
lease that is long over: the fence alone has to stop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringhash.leases.protocol import Grant, Holder, Row, View

NOBODY = -1


class Lease(NamedTuple):
    owner: str | None
    epoch: int
    expired: bool
    writer: int  # whose fenced transaction has the row's lock
    written: int  # the highest epoch that was ever written with


class Process(NamedTuple):
    held: tuple[Grant, ...]
    beat: bool  # whether its heartbeat is fresh
    todo: tuple[tuple[str, object], ...]  # what it decided from a view that may be stale by now
    writing: Grant | None


class State(NamedTuple):
    leases: tuple[Lease, ...]
    processes: tuple[Process, ...]
    ghosts: tuple[bool, ...]  # whether the heartbeat of a crashed incarnation is still fresh


class FoundError(AssertionError):
    """An invariant is broken."""


@dataclass(frozen=True)
class Model:
    workers: int
    shards: int
    most_epochs: int
    # The faults of real systems, to see that the check would find them.
    fence: bool = True
    claims_wait: bool = True
    renews_by_owner: bool = False
    takes_unexpired: bool = False
    counts_owners: bool = False

    def start(self) -> State:
        return State(
            tuple(Lease(None, 0, True, NOBODY, 0) for _ in range(self.shards)),
            tuple(Process((), False, (), None) for _ in range(self.workers)),
            (False,) * self.workers,
        )

    def view(self, state: State) -> View:
        fresh = [f"w{w}" for w, process in enumerate(state.processes) if process.beat]
        fresh += [f"g{w}" for w, ghost in enumerate(state.ghosts) if ghost]
        if self.counts_owners:
            fresh = sorted({lease.owner for lease in state.leases if lease.owner is not None})
        rows = tuple(Row(s, x.owner, x.epoch, x.expired) for s, x in enumerate(state.leases))
        return View(rows, tuple(fresh))

    def holder(self, w: int, process: Process) -> Holder:
        holder = Holder(f"w{w}", 1.0)
        holder.claimed(0.0, process.held)
        return holder

    def actions(self, state: State) -> Iterator[tuple[str, State]]:
        """Every action that may come next, and what it leads to."""
        for s, lease in enumerate(state.leases):
            if lease.owner is not None and not lease.expired:
                yield f"lease {s} expires", with_lease(state, s, lease._replace(expired=True))
        for w, ghost in enumerate(state.ghosts):
            if ghost:
                yield f"ghost {w} fades", state._replace(ghosts=put(state.ghosts, w, False))
        for w, process in enumerate(state.processes):
            if process.beat:
                yield f"heartbeat {w} expires", with_process(state, w, process._replace(beat=False))
            yield from self.process_actions(state, w, process)

    def process_actions(self, state: State, w: int, process: Process) -> Iterator[tuple[str, State]]:
        if process.todo:
            yield from self.next_todo(state, w, process)
        else:
            yield f"{w} beats", self.beat(state, w, process)
            yield f"{w} reads", self.read(state, w, process)
        if process.held:
            gone = process._replace(held=())  # its own clock says that the time is over
            yield f"{w} stops itself", with_process(state, w, gone)
        if process.writing is not None:
            yield f"{w} commits", self.commit(state, w, process)
        else:
            for grant in process.held:
                yield f"{w} begins to write {grant}", self.begin_write(state, w, process, grant)
        if process != Process((), False, (), None):
            yield f"{w} crashes", self.crash(state, w, process)

    def beat(self, state: State, w: int, process: Process) -> State:
        holder = self.holder(w, process)
        if self.renews_by_owner:
            mine = [Grant(s, x.epoch) for s, x in enumerate(state.leases) if x.owner == f"w{w}"]
            holder.claimed(0.0, mine)
        answer = [g for g in holder.grants if owns(state, w, g)]
        holder.renewed(0.0, holder.grants, answer)
        return with_process(state, w, process._replace(beat=True, held=tuple(holder.grants)))

    def read(self, state: State, w: int, process: Process) -> State:
        step = self.holder(w, process).decide(self.view(state))
        todo: list[tuple[str, object]] = []
        if step.disown:
            todo.append(("disown", step.disown))
        if step.claim:
            todo.append(("claim", step.claim))
        if step.release is not None:
            todo.append(("stop", step.release))
        return with_process(state, w, process._replace(todo=tuple(todo)))

    def next_todo(self, state: State, w: int, process: Process) -> Iterator[tuple[str, State]]:
        (what, argument), *rest = process.todo
        process = process._replace(todo=tuple(rest))
        if what == "claim":
            after, grants = self.claim(state, w, argument)  # type: ignore[arg-type]
            holder = self.holder(w, process)
            holder.claimed(0.0, grants)
            yield f"{w} claims", with_process(after, w, process._replace(held=tuple(holder.grants)))
            if grants:
                yield f"{w} claims, without an answer", with_process(after, w, process)
        elif what == "stop":  # first here, then in the database
            grant: Grant = argument  # type: ignore[assignment]
            kept = tuple(g for g in process.held if g != grant)
            rest = [("disown", (grant,)), *rest]
            yield f"{w} stops", with_process(state, w, process._replace(held=kept, todo=tuple(rest)))
        else:
            yield f"{w} releases", with_process(self.release(state, w, argument), w, process)  # type: ignore[arg-type]

    def claim(self, state: State, w: int, limit: int) -> tuple[State, list[Grant]]:
        grants: list[Grant] = []
        for s, lease in enumerate(state.leases):
            free = lease.owner is None or lease.expired or self.takes_unexpired
            waits = lease.writer != NOBODY and self.claims_wait
            if free and not waits and len(grants) < limit and lease.epoch < self.most_epochs:
                grants.append(Grant(s, lease.epoch + 1))
                claimed = lease._replace(owner=f"w{w}", epoch=lease.epoch + 1, expired=False)
                state = with_lease(state, s, claimed)
        return state, grants

    def release(self, state: State, w: int, grants: tuple[Grant, ...]) -> State:
        for grant in grants:
            lease = state.leases[grant.shard]
            if lease.owner == f"w{w}" and lease.epoch == grant.epoch:
                state = with_lease(state, grant.shard, lease._replace(owner=None, expired=True))
        return state

    def begin_write(self, state: State, w: int, process: Process, grant: Grant) -> State:
        lease = state.leases[grant.shard]
        if self.fence and not owns(state, w, grant):
            kept = tuple(g for g in process.held if g != grant)
            return with_process(state, w, process._replace(held=kept))
        if self.fence:
            state = with_lease(state, grant.shard, lease._replace(writer=w))
        return with_process(state, w, process._replace(writing=grant))

    def commit(self, state: State, w: int, process: Process) -> State:
        grant = process.writing
        assert grant is not None
        lease = state.leases[grant.shard]
        if grant.epoch < lease.epoch:
            raise FoundError(f"stale write: {grant}, and the shard is at epoch {lease.epoch}")
        if grant.epoch < lease.written:
            raise FoundError(f"the log of writes goes back from {lease.written} to {grant.epoch}")
        lease = lease._replace(writer=NOBODY, written=grant.epoch)
        return with_process(with_lease(state, grant.shard, lease), w, process._replace(writing=None))

    def crash(self, state: State, w: int, process: Process) -> State:
        """Its transaction is rolled back; it starts again under its name, with a fresh incarnation."""
        leases = tuple(
            lease._replace(
                owner=f"g{w}" if lease.owner == f"w{w}" else lease.owner,
                writer=NOBODY if lease.writer == w else lease.writer,
            )
            for lease in state.leases
        )
        ghosts = put(state.ghosts, w, process.beat or state.ghosts[w])
        return State(leases, put(state.processes, w, Process((), False, (), None)), ghosts)

    def check(self, state: State) -> None:
        """No two processes ever hold one (shard, epoch)."""
        grants = [grant for process in state.processes for grant in process.held]
        if len(set(grants)) != len(grants):
            raise FoundError(f"two holders of one grant: {sorted(grants)}")

    # --- what must happen once the faults end ---

    def settle(self, state: State) -> State:
        """Let the crashed be forgotten and everybody run, one after the other, until nothing happens."""
        calm = replace(self, most_epochs=10**6)
        state = state._replace(ghosts=(False,) * self.workers)
        leases = [x._replace(expired=True) if (x.owner or "").startswith("g") else x for x in state.leases]
        state = state._replace(leases=tuple(leases))
        for _ in range(6 * self.shards + 6):
            before = state
            for w in range(self.workers):
                if state.processes[w].writing is not None:
                    state = calm.commit(state, w, state.processes[w])
                while state.processes[w].todo:
                    state = next(iter(calm.next_todo(state, w, state.processes[w])))[1]
                for act in (calm.beat, calm.read):
                    state = act(state, w, state.processes[w])
                while state.processes[w].todo:
                    state = next(iter(calm.next_todo(state, w, state.processes[w])))[1]
            if state == before:
                break
        else:
            raise FoundError(f"never settles: {state}")
        counts = [len(process.held) for process in state.processes]
        if sum(counts) != self.shards or max(counts) - min(counts) > 1:
            raise FoundError(f"settles unevenly, at {counts}: {state}")
        return state


def owns(state: State, w: int, grant: Grant) -> bool:
    lease = state.leases[grant.shard]
    return (lease.owner, lease.epoch, lease.expired) == (f"w{w}", grant.epoch, False)


def put(items: tuple, index: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:index], item, *items[index + 1 :])


def with_lease(state: State, s: int, lease: Lease) -> State:
    return state._replace(leases=put(state.leases, s, lease))


def with_process(state: State, w: int, process: Process) -> State:
    return state._replace(processes=put(state.processes, w, process))


def symmetric(state: State) -> State:
    """One state for all that differ only in which worker is which."""
    if len(state.processes) == 1:
        return state
    order = sorted(
        range(len(state.processes)),
        key=lambda w: str(
            (
                state.processes[w],
                state.ghosts[w],
                [(x.owner == f"w{w}", x.owner == f"g{w}", x.writer == w) for x in state.leases],
            )
        ),
    )
    if order == list(range(len(order))):
        return state
    new = {f"{kind}{w}": f"{kind}{i}" for i, w in enumerate(order) for kind in "wg"}
    places = {w: i for i, w in enumerate(order)}
    return State(
        tuple(
            lease._replace(
                owner=None if lease.owner is None else new[lease.owner],
                writer=places.get(lease.writer, NOBODY),
            )
            for lease in state.leases
        ),
        tuple(state.processes[w] for w in order),
        tuple(state.ghosts[w] for w in order),
    )


class Result(NamedTuple):
    states: int
    actions: int
    depth: int  # of the deepest state
    complete: bool  # whether there is nothing beyond


def explore(model: Model, depth: int, settle_every: int = 1, start: State | None = None) -> Result:
    """Breadth first, so a fault is found by a shortest way, which the error tells."""
    start = start or model.start()
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    frontier = [start]
    actions = level = 0
    while frontier and level < depth:
        level += 1
        reached = []
        for state in frontier:
            name = ""
            try:
                for name, raw in model.actions(state):
                    actions += 1
                    after = symmetric(raw)
                    if after in came_from:
                        continue
                    came_from[after] = (state, name)
                    model.check(after)
                    if len(came_from) % settle_every == 0:
                        model.settle(after)
                    reached.append(after)
            except FoundError as error:
                raise FoundError(f"{error}\n" + "\n".join([*way(came_from, state), name])) from None
        frontier = reached
    return Result(len(came_from), actions, level, not frontier)


def way(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps = []
    while (link := came_from[state]) is not None:
        state, name = link
        steps.append(name)
    return steps[::-1]

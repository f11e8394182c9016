"""A world to run a handover in: nodes that serve or do not, calls that are lost, late or doubled, crashes.

The clock is a number. Every rule that a handover promises is checked here, after every step, whatever the
machine believes: the nodes know themselves whether they serve a piece.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ringhash.errors import HandoverError
from ringhash.handover.machine import Command, Machine
from ringhash.handover.pieces import Piece
from ringhash.handover.record import Options, Record, Side
from ringhash.ranges import Ranges
from ringhash.space import HashSpace


class Crash(Exception):  # noqa: N818
    """The process ends here."""


CUTOVER = {"STOPPING", "STOPPED", "STARTING"}
UNDER_WAY = {"PREPARING", "PREPARED", *CUTOVER}
FIRST_NODE = {"stop", "undo", "finish"}  # the calls that are about the source of their piece


def some_pieces() -> tuple[Piece, ...]:
    """Pieces between a few nodes, some of which share a node and some not."""
    pairs = ["ae", "bf", "ce", "af", "bc"]
    return tuple(
        Piece(i, source, target, Ranges.of([(100 * i, 100 * i + 9)]), HashSpace(), 0.01)
        for i, (source, target) in enumerate(pairs)
    )


def all_goes_well(world: World, command: Command) -> bool:
    world.answer(command.token)
    return True


class World:
    def __init__(
        self,
        pieces: tuple[Piece, ...],
        options: Options,
        kind: type[Machine] = Machine,
        written: list[Record] | None = None,
    ) -> None:
        self.pieces, self.options, self.kind = pieces, options, kind
        self.now = 100.0
        self.disk: list[Record] = [] if written is None else written
        self.serving: dict[int, set[str]] = {p.number: {p.source} - {None} for p in pieces}  # type: ignore[misc]
        self.fence: dict[tuple[int, str], int] = defaultdict(int)
        self.confirmed: set[tuple[int, str]] = (
            set()
        )  # (piece, node): its stop was confirmed and it was not started since
        self.unanswered: set[tuple[int, str, str | None]] = set()
        self.calls: dict[int, Command] = {}
        self.ghosts: list[Command] = []  # calls of processes that crashed, still on their way
        self.answered: list[int] = []
        self.dead: set[str] = set()
        self.running: set[int] = set()
        self.cutting: set[int] = set()
        self.dropped: set[tuple[int, str]] = set()  # (piece, node): it was finished there
        self.ended: list[float] = []
        self.fuse: int | None = None
        self.crash_after = False
        self.writes = 0
        self.crashes = 0
        self.boot()

    # --- the process, its disk, its crashes ---

    def boot(self) -> None:
        # What a new process does not know: when the last piece ended. It must pause, to be sure.
        holds = self.machine.holds if self.writes else 0  # as the driver does in the same process
        self.machine = self.kind(self.pieces, self.options, self.write, list(self.disk))
        self.machine.holds = holds

    def write(self, record: Record) -> None:
        self.writes += 1
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                if self.crash_after:
                    self.keep(record)
                raise Crash
        self.keep(record)

    def keep(self, record: Record) -> None:
        self.disk.append(Record(*(str(x) if isinstance(x, str) else x for x in record)))
        number, state = record.piece, record.state
        if number < 0:
            if record.state == "REVERSE":
                assert not self.dropped, "a way back after a finish"
            return
        self.cut_over(record)
        answered = {"STOPPED": {"stop"}, "DONE": {"stop", "start", "prepare", "undo"}}
        answered["UNDONE"] = answered["DONE"]
        self.unanswered = {
            key for key in self.unanswered if key[0] != number or key[1] not in answered.get(state, ())
        }
        if state in UNDER_WAY and number not in self.running:
            most = self.options.parallel + self.options.ahead
            lately = [] if self.options.ahead else self.lately()
            assert len(self.running) + len(lately) < most, "no pause between two pieces"
            self.running.add(number)
        elif state not in UNDER_WAY and number in self.running:
            self.running.discard(number)
            self.ended.append(self.now)

    def lately(self) -> list[float]:
        return [t for t in self.ended if t > self.now - self.options.pause]

    def cut_over(self, record: Record) -> None:
        """What must be so when a piece is about to stop, or is no longer between two owners."""
        number, state = record.piece, record.state
        if state not in CUTOVER:
            self.cutting.discard(number)
        elif state == "STOPPING" and number not in self.cutting:
            if self.options.wait and self.machine.standings[number].state.value == "PREPARED":
                said = {"-1", str(number)} & {r.note for r in self.disk if r.state == "GO"}
                assert said or self.machine.backward, "a stop before `go`"
            others = self.cutting if self.options.ahead else self.running - {number}
            for other in others:
                assert not self.pieces[other].nodes & self.pieces[number].nodes, "two pieces of one node"
            assert len(self.cutting) + len(self.lately()) < self.options.parallel, (
                "no pause between two pieces"
            )
            self.cutting.add(number)

    def guarded(self, event: Callable[[], object]) -> None:
        try:
            event()
            self.turn()
        except Crash:
            self.crash()

    def crash(self) -> None:
        self.crashes += 1
        self.fuse = None
        self.ghosts += self.calls.values()
        self.calls = {}
        self.boot()
        self.turn()

    def turn(self) -> None:
        try:
            commands = self.machine.tick(self.now)
        except Crash:
            self.crash()
            return
        for command in commands:
            if command.call != "cancel":
                self.send(command)
        self.check()

    # --- calls ---

    def send(self, command: Command) -> None:
        piece, number = command.piece, command.piece.number
        written = self.disk[-1].seq if self.disk else 0
        assert piece.token <= written, "a call before its record"
        assert all(c.piece.number != number for c in self.calls.values()), "two calls of one piece at once"
        assert all(piece.token > c.piece.token for c in self.ghosts), "a token that a dead process has used"
        if command.call in ("start", "undo"):
            back_to = piece.target if command.call == "start" else piece.source
            assert (number, str(back_to)) not in self.dropped, "a way back after a finish"
            me = piece.target if command.call == "start" else piece.source
            other = piece.source if command.call == "start" else piece.target
            if command.call == "start" and other is not None and other not in self.dead:
                assert (number, other) in self.confirmed, "a start before a confirmed stop"
            assert not self.serving[number] - {me}, "a start while another serves"
        key = (number, command.call, piece.source)
        assert command.piece.repeat or key not in self.unanswered, "a repeated call that does not say so"
        self.unanswered.add(key)
        self.calls[command.token] = command

    def effect(self, command: Command) -> None:
        """The call reaches its node, which knows tokens."""
        piece, number = command.piece, command.piece.number
        node = piece.source if command.call in FIRST_NODE else piece.target
        if node is None or node in self.dead or piece.token < self.fence[number, node]:
            return
        self.fence[number, node] = piece.token
        if command.call == "stop":
            self.serving[number].discard(node)
        elif command.call == "finish":
            assert node not in self.serving[number], "what is finished serves"
            self.dropped.add((number, node))
        elif command.call in ("start", "undo"):
            self.serving[number].add(node)
            self.confirmed.discard((number, node))
        self.check()

    def answer(self, token: int, ok: bool = True, effect: bool = True) -> None:
        command = self.calls.pop(token)
        if ok or effect:
            self.effect(command)
        piece = command.piece
        stopped = ok and command.call == "stop" and piece.source is not None

        def tell() -> None:
            if stopped:
                self.confirmed.add((piece.number, str(piece.source)))
            if ok:
                self.machine.confirm(token, self.now)
            else:
                self.machine.fail(token, "it broke", self.now)

        self.answered.append(token)
        crashes = self.crashes
        self.guarded(tell)
        if self.crashes == crashes:
            self.unanswered.discard((piece.number, command.call, piece.source))

    def lose(self, name: str) -> None:
        self.dead.add(name)
        for nodes in self.serving.values():
            nodes.discard(name)
        for token, command in list(self.calls.items()):
            if name == (command.piece.source if command.call in FIRST_NODE else command.piece.target):
                del self.calls[token]  # nobody is there to answer; an answer that comes all the same is late
                self.answered.append(token)
        self.guarded(lambda: self.machine.lost(name, self.now))

    def say(self, what: str) -> None:
        def event() -> None:
            with suppress(HandoverError):  # too late, or too early
                getattr(self.machine, what)()

        self.guarded(event)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    # --- what must always be so ---

    def check(self) -> None:
        for number, nodes in self.serving.items():
            assert len(nodes) <= 1, f"piece {number} has two owners: {nodes}"
        for piece, it in zip(self.pieces, self.machine.standings, strict=True):
            holder = piece.target if it.holder == Side.TARGET else piece.source
            settled = it.state.value not in UNDER_WAY and not it.stuck
            alive = holder is not None and holder not in self.dead
            pending = it.state.value == "PENDING" and it.holder == Side.TARGET
            if settled and not pending and alive:
                assert self.serving[piece.number] == {holder}, f"{holder} does not serve {piece.number}"

        if self.machine.mode.value == "OVER":
            for piece in self.pieces:
                owner = piece.source if self.machine.backward else piece.target
                if owner is not None and owner not in self.dead:
                    assert self.serving[piece.number] == {owner}, "over, and not all pieces are there"

    # --- what happens in the end ---

    def finish(
        self, act: Callable[[World, Command], bool] = all_goes_well, steps: int = 2000
    ) -> list[tuple[Any, ...]]:
        """Do with every call what `act` does until the machine has settled; return the end."""
        self.turn()
        for _ in range(steps):
            if self.machine.settled and not self.machine.awaits_finish:
                break
            if self.machine.awaits_finish or (self.options.wait and -1 not in self.machine.going):
                self.say("finish" if self.machine.awaits_finish else "go")
                continue
            if any(act(self, command) for command in list(self.calls.values())):
                continue
            wake = self.machine.wake_at()
            self.pass_time(max(0.0, (wake if wake is not None else self.now) - self.now) + 1e-6)
        assert self.machine.settled, "it never comes to an end"
        return self.end()

    def end(self) -> list[tuple[Any, ...]]:
        state = [(it.state.value, it.holder.value, it.stuck) for it in self.machine.standings]
        return [(self.machine.mode.value,), *state]

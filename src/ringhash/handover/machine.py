"""The state machine of a handover: events in, commands out, and no input or output of its own.

    PENDING --prepare--> PREPARING --ok--> STOPPING --ok--> STOPPED --> STARTING --ok--> DONE
                             |                |                            |
                             |                | undo                       | stop target, start source
                             v                v                            v
                          KEPT (a time-out) or FAILED (an error): the piece stays with its source

A piece has a *holder*, the node that the router names: the source until the target has confirmed
its start. A piece that is under way has a *heading*. Where the two are the same, the piece is on its
way back to its holder. In a reversal the holder is the target and the heading the source, and the
same steps lead from DONE to UNDONE.

All that lasts is changed in one place, `Machine._apply`, by a `Record`, and a record is written
before it is applied. A machine that reads the same records is in the same state: that is all there
is to a resumption. Time is a number that the caller gives, so a test can have a clock of its own.

Four rules keep a piece from having two owners:

1. A start is called only after the stop of the other side was confirmed.
2. An answer counts only when it is the answer to the last call of its piece.
3. There is one call of a piece at a time: one that timed out must come back before the next is made.
4. A target that was told to start, and did not confirm it, is told to stop before the source goes on.

Method: a two-step handover with confirmation, as slots move in Redis Cluster and tablets in
Bigtable; a write-ahead log replayed from its beginning, as in ARIES, with no undo log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from ringhash.errors import HandoverError
from ringhash.handover.pieces import Piece

__all__ = ["Command", "Machine", "Mode", "OnTimeout", "Options", "Progress", "Record", "Side", "State"]

OnTimeout = Literal["keep", "abort"]
Call = Literal["prepare", "stop", "start", "undo", "cancel"]


class State(enum.StrEnum):
    """Where a piece is on its way; see the drawing at the top of the module."""

    PENDING = "PENDING"
    PREPARING = "PREPARING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    DONE = "DONE"
    KEPT = "KEPT"
    FAILED = "FAILED"
    UNDONE = "UNDONE"


class Side(enum.StrEnum):
    """The two nodes of a piece, seen from the plan."""

    SOURCE = "source"
    TARGET = "target"

    @property
    def other(self) -> Side:
        """The other side."""
        return Side.TARGET if self is Side.SOURCE else Side.SOURCE


class Mode(enum.StrEnum):
    """What the whole handover is doing."""

    RUN = "RUN"
    ABORT = "ABORT"
    REVERSE = "REVERSE"
    OVER = "OVER"


_UNDO: Call = "undo"
_STOP: Call = "stop"
UNDER_WAY = frozenset({State.PREPARING, State.STOPPING, State.STOPPED, State.STARTING})


class Record(NamedTuple):
    """One line of the journal: what a piece becomes, or (`piece` is -1) what the handover does."""

    seq: int
    piece: int
    state: str
    holder: str = ""
    heading: str = ""
    verdict: str = ""
    call: str = ""
    tries: int = 0
    stuck: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How a handover goes about it.

    Args:
        pause: Seconds between the end of a piece and the begin of the next.
        timeout: Seconds that each step may take.
        on_timeout: "keep": a piece whose step timed out stays with its old owner, and the next
            piece follows. "abort": likewise, and no next piece follows.
        parallel: Pieces under way at a time; never two of one node.
        prepare: Whether targets are prepared.
        tries: How often a step on the way back is tried.

    Raises:
        ValueError: An option is out of its range; the message names it.

    >>> Options(pause=1.0).timeout
    60.0
    """

    pause: float = 0.2
    timeout: float = 60.0
    on_timeout: OnTimeout = "keep"
    parallel: int = 1
    prepare: bool = False
    tries: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.pause < float("inf"):
            raise ValueError(f"pause must be finite and not negative, not {self.pause}")
        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"timeout must be finite and above 0, not {self.timeout}")
        if self.on_timeout not in ("keep", "abort"):
            raise ValueError(f"on_timeout must be 'keep' or 'abort', not {self.on_timeout!r}")
        if self.parallel < 1 or self.tries < 1:
            raise ValueError("parallel and tries must be at least 1")


@dataclass(slots=True)
class Progress:
    """A piece on its way. The last three fields are of this process and in no journal."""

    state: State = State.PENDING
    holder: Side = Side.SOURCE
    heading: Side = Side.TARGET
    verdict: State | None = None  # what it ends as when it is back
    call: Call | None = None
    tries: int = 0
    stuck: bool = False  # the way back was not confirmed
    note: str = ""
    token: int = 0
    unsure: bool = False  # the other side was told to start, and has not confirmed a stop since
    rounds: int = 0  # how often it has begun since it was last handed over
    deadline: float | None = None
    due: float | None = None  # when the call is to be made, if not yet
    away: tuple[int, Side, str | None] | None = None  # the call not come back: token, heading, whom

    @property
    def under_way(self) -> bool:
        """Whether the piece is between its begin and its end."""
        return self.state in UNDER_WAY


class Command(NamedTuple):
    """What a driver must do: make a call, or cancel the one that took too long (`cancel`)."""

    call: Call
    piece: Piece
    token: int


class Machine:
    """A handover without its input and output.

    Give it events (`confirm`, `fail`, `abort`, `reverse`, `retry`, `lost`) and the time (`tick`,
    which returns the commands that are due).

    Args:
        pieces: The pieces, in the order in which they are to go.
        options: How to go about it.
        write: Called with every record before the record takes effect. When it raises, nothing
            has changed, and the machine must not be used any more.
        records: What an earlier machine wrote; the new one goes on where that one ended.

    >>> from ringhash import Router
    >>> from ringhash.handover.pieces import cut
    >>> machine = Machine(cut(Router(["a"]).plan(add=["b"])), Options())
    >>> [stop] = machine.tick(0.0)
    >>> stop.call, machine.progress[0].state.value
    ('stop', 'STOPPING')
    >>> machine.confirm(stop.token, 0.5)
    >>> [start] = machine.tick(0.5)
    >>> machine.confirm(start.token, 1.0)
    >>> machine.tick(1.0), machine.progress[0].state.value, machine.mode.value
    ([], 'DONE', 'OVER')
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        options: Options,
        write: Callable[[Record], object] = lambda _: None,
        records: Iterable[Record] = (),
    ) -> None:
        self.pieces = tuple(pieces)
        self.options = options
        self.progress = [Progress() for _ in self.pieces]
        self.mode = Mode.RUN
        self.gone: set[str] = set()
        self.changes = 0  # how often a piece changed its holder
        self.resumed = False
        self.forward = True  # whether it is over with all pieces at their targets
        self._write = write
        self._seq = 0
        self._out: list[Command] = []
        self._cooling: list[float] = []
        for record in records:
            self._apply(record)
            self.resumed = True

    # --- what lasts: written first, then applied ---

    def _record(
        self,
        piece: int,
        state: str,
        *,
        holder: Side | None = None,
        heading: Side | None = None,
        verdict: State | None = None,
        call: Call | None = None,
        tries: int = 0,
        stuck: bool = False,
        note: str = "",
    ) -> None:
        old = self.progress[piece] if piece >= 0 else Progress()
        record = Record(
            self._seq + 1,
            piece,
            state,
            holder or (old.holder if piece >= 0 else ""),
            heading or (old.heading if piece >= 0 else ""),
            verdict or "",
            call or "",
            tries,
            stuck,
            note,
        )
        self._write(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        self._seq = record.seq
        if record.piece < 0:
            if record.state == "LOST":
                self.gone.add(record.note)
            elif record.state == "RETRY":
                self._apply_retry()
            elif record.state in Mode.__members__:
                self.mode = Mode(record.state)
                self.forward = record.note != "before"
            return
        if not record.piece < len(self.pieces):
            raise HandoverError(f"record {record.seq} is of piece {record.piece}, which is not there")
        it = self.progress[record.piece]
        holder = Side(record.holder)
        state = State(record.state)
        heading = Side(record.heading)
        if state in UNDER_WAY and not it.under_way:
            it.rounds += 1
        elif state in (State.DONE, State.UNDONE):
            it.rounds = 0
        if holder is not it.holder:
            self.changes += 1
            it.unsure = False
        elif state is State.STARTING and record.call == "start" and heading is not holder:
            it.unsure = True
        elif state is State.STOPPED and heading is holder:
            it.unsure = False
        it.state = state
        it.holder = holder
        it.heading = heading
        it.verdict = State(record.verdict) if record.verdict else None
        it.tries = record.tries
        it.stuck = record.stuck
        it.note = record.note
        it.token = record.seq
        it.deadline = it.due = None
        it.call = cast("Call", record.call) if record.call else None

    def _apply_retry(self) -> None:
        if self.mode is Mode.ABORT:
            self.mode = Mode.RUN
        for it in self.progress:
            if it.stuck or it.state in (State.KEPT, State.FAILED, State.UNDONE):
                if self.mode is Mode.RUN and (it.stuck or it.holder is Side.SOURCE):
                    it.state = State.PENDING
                elif it.stuck or it.holder is Side.TARGET:
                    it.state = State.DONE
                it.verdict, it.note = None, ""

    # --- what can be asked ---

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the pieces that the target owns now."""
        return frozenset(i for i, it in enumerate(self.progress) if it.holder is Side.TARGET)

    @property
    def written(self) -> int:
        """How many records there are."""
        return self._seq

    @property
    def complete(self) -> bool:
        """Whether no piece is between two owners, and all are where the handover takes them."""
        if self.mode is Mode.REVERSE:
            return all(it.holder is Side.SOURCE and not it.under_way and not it.stuck for it in self.progress)
        return all(it.state is State.DONE and not it.stuck for it in self.progress)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way and nothing is left to begin."""
        return not any(it.under_way for it in self.progress) and not list(self._eligible())

    def wake_at(self) -> float | None:
        """Return when `tick` must be called next if no event comes before; None: no need."""
        times = [t for it in self.progress for t in (it.deadline, it.due) if t is not None]
        if self._cooling and list(self._eligible()):
            times += self._cooling
        return min(times, default=None)

    # --- events ---

    def tick(self, now: float) -> list[Command]:
        """Let time pass, begin what may begin, and return the commands that are due."""
        if self.resumed:
            self.resumed = False
            self._resume(now)
        for number, it in enumerate(self.progress):
            if it.due is not None and it.due <= now:
                self._let_go(number, now)
            if it.deadline is not None and it.deadline <= now:
                self._time_out(number, now)
        self._cooling = [until for until in self._cooling if until > now]
        self._begin_some(now)
        if self.mode is not Mode.OVER and self.complete:
            self._record(-1, Mode.OVER, note="before" if self.mode is Mode.REVERSE else "after")
        out, self._out = self._out, []
        return out

    def confirm(self, token: int, now: float) -> None:
        """The call of that token was done. One that is late or was answered already gives nothing
        away."""
        number = self._answered(token, now)
        if number is None:
            return
        it = self.progress[number]
        if it.state is State.PREPARING:
            self._stop(number, now)
        elif it.state is State.STOPPING:
            self._stopped(number, now)
        elif it.state is State.STARTING:
            self._started(number, now)

    def fail(self, token: int, why: str, now: float) -> None:
        """The call of that token came to nothing, or may have."""
        number = self._answered(token, now)
        if number is not None:
            self._back(number, State.FAILED, why, now)

    def abort(self) -> None:
        """Finish what is under way, and begin no other piece."""
        if self.mode is not Mode.OVER:
            self._record(-1, Mode.ABORT)

    def reverse(self) -> None:
        """Finish what is under way, and hand every piece that is DONE back to its source."""
        if self.mode is Mode.OVER:
            raise HandoverError("the handover is over, and its plan is applied; plan the inverse")
        self._record(-1, Mode.REVERSE)

    def retry(self) -> None:
        """Go on after an abort, and try the pieces again that were kept or failed."""
        if self.mode is Mode.OVER:
            return
        self._record(-1, "RETRY")

    def lost(self, name: str, now: float) -> None:
        """A node is gone for good and serves nothing: what it would have to stop is stopped.

        Only a person, or a system that has fenced the node, can know that.
        """
        if self.mode is Mode.OVER or name in self.gone:
            return
        self._record(-1, "LOST", note=name)
        for number, it in enumerate(self.progress):
            if it.away is not None and it.away[2] == name:
                it.away = None  # nobody is there to answer
            if not it.under_way or it.call is None:
                continue
            if self._whom(number) != name:
                self._let_go(number, now)
            elif it.state is State.STOPPING:
                self._stopped(number, now)
            else:
                self._back(number, State.FAILED, f"{name!r} was lost", now)

    # --- the steps ---

    def _eligible(self) -> Iterator[int]:
        for number, it in enumerate(self.progress):
            if self.mode is Mode.RUN:
                ready = it.state is State.PENDING
            elif self.mode is Mode.REVERSE:
                unclear = it.stuck or it.holder is Side.TARGET
                ready = it.state is State.DONE or (it.state is State.PENDING and unclear)
            else:
                ready = False
            if ready:
                yield number

    def _begin_some(self, now: float) -> None:
        running = [n for n, it in enumerate(self.progress) if it.under_way]
        busy = {name for n in running for name in self.pieces[n].nodes}
        for number in list(self._eligible()):
            if len(running) + len(self._cooling) >= self.options.parallel:
                break
            if busy & self.pieces[number].nodes:
                continue
            it = self.progress[number]
            goal = Side.TARGET if self.mode is Mode.RUN else Side.SOURCE
            taker = self._name(number, goal)
            if taker is not None and taker in self.gone:
                self._record(number, State.KEPT, stuck=it.stuck, note=f"{taker!r} was lost")
                continue
            running.append(number)
            busy |= self.pieces[number].nodes
            fresh = goal is Side.TARGET and it.holder is Side.SOURCE and not it.stuck
            if fresh and self.options.prepare and taker is not None:
                self._record(number, State.PREPARING, heading=goal, call="prepare")
            else:
                self._record(number, State.STOPPING, heading=goal, call="stop")
            self._ask(number, now)

    def _stop(self, number: int, now: float) -> None:
        self._record(number, State.STOPPING, call="stop")
        self._ask(number, now)

    def _stopped(self, number: int, now: float) -> None:
        it = self.progress[number]
        self._record(number, State.STOPPED, verdict=it.verdict, note=it.note)
        self._start(number, now)

    def _start(self, number: int, now: float) -> None:
        it = self.progress[number]
        self._record(number, State.STARTING, verdict=it.verdict, call="start", note=it.note)
        self._ask(number, now)

    def _started(self, number: int, now: float) -> None:
        it = self.progress[number]
        end = State.DONE if it.heading is Side.TARGET else State.UNDONE
        if it.heading is it.holder and it.verdict is not None:
            end = it.verdict
        self._record(number, end, holder=it.heading, note=it.note)
        self._end(now)

    def _time_out(self, number: int, now: float) -> None:
        it = self.progress[number]
        if it.away is not None:
            piece = self._view(number, it.away[1])
            self._out.append(Command("cancel", piece, it.away[0]))
        why = f"{it.call} was not confirmed within {self.options.timeout:g} s"
        if self.options.on_timeout == "abort" and self.mode in (Mode.RUN, Mode.REVERSE):
            self._record(-1, Mode.ABORT, note=f"piece {number}: {why}")
        self._back(number, State.KEPT, why, now)

    def _back(self, number: int, verdict: State, why: str, now: float) -> None:
        """The step came to nothing: the piece goes back to its holder."""
        it = self.progress[number]
        home = it.holder
        if it.state is State.PREPARING:
            self._record(number, verdict, heading=home, note=why)
            self._end(now)
        elif it.heading is not home:
            # A target that was told nothing needs no stop; one that may have started does: rule 4.
            if it.state is State.STOPPING and not it.unsure:
                state, call = State.STARTING, _UNDO
            else:
                state, call = State.STOPPING, _STOP
            self._record(number, state, heading=home, verdict=verdict, call=call, note=why)
            self._ask(number, now)
        elif it.tries + 1 < self.options.tries:
            self._record(number, it.state, verdict=it.verdict, call=it.call, tries=it.tries + 1, note=it.note)
            self._ask(number, now, after=self.options.pause * 4**it.tries)
        else:
            end = it.verdict or verdict
            note = f"{it.note}; on the way back: {why}" if it.note else why
            self._record(number, end, stuck=True, note=note)
            self._end(now)

    def _end(self, now: float) -> None:
        self._cooling.append(now + self.options.pause)

    def _resume(self, now: float) -> None:
        """Make the calls again whose answers died with the process that made them."""
        self._record(-1, "RESUMED")
        self._cooling = [now + self.options.pause] * self.options.parallel
        for number, it in enumerate(self.progress):
            if it.state is State.STOPPED:
                self._start(number, now)
            elif it.under_way:
                self._again(number, now)

    def _again(self, number: int, now: float) -> None:
        it = self.progress[number]
        self._record(number, it.state, verdict=it.verdict, call=it.call, tries=it.tries, note=it.note)
        self._ask(number, now, repeat=True)

    # --- calls and answers ---

    def _ask(self, number: int, now: float, repeat: bool = False, after: float = 0.0) -> None:
        """Make the call that the last record of the piece speaks of, once the one before is back and
        `after` seconds have passed."""
        it = self.progress[number]
        whom = self._whom(number)
        if whom is None or (it.call == "stop" and whom in self.gone):
            if it.call == "stop":
                self._stopped(number, now)
            else:
                self._started(number, now)
        elif whom in self.gone:
            it.tries = self.options.tries
            self._back(number, State.FAILED, f"{whom!r} was lost", now)
        elif after:
            it.due = now + after
        else:
            it.deadline = now + self.options.timeout
            self._send(number, repeat or it.tries > 0 or it.rounds > 1)

    def _send(self, number: int, repeat: bool) -> None:
        it = self.progress[number]
        if it.away is not None:
            return  # rule 3: `_answered` lets this call go
        call = it.call or "start"
        it.away = (it.token, it.heading, self._whom(number))
        view = self._view(number, it.heading.other if call == "undo" else it.heading)
        self._out.append(Command(call, replace(view, token=it.token, repeat=repeat), it.token))

    def _answered(self, token: int, now: float) -> int | None:
        """Return the piece whose last call has that token, or None. A call that comes back late
        lets the next call of its piece go, which had to wait for it."""
        for number, it in enumerate(self.progress):
            if it.away is not None and it.away[0] == token:
                it.away = None
                if it.token == token:
                    return number
                self._let_go(number, now)
                return None
        return None

    def _let_go(self, number: int, now: float) -> None:
        """Make the call that waited for another one of its piece to come back."""
        it = self.progress[number]
        if it.call is not None and (it.due is None or it.due <= now):
            it.due = None
            it.deadline = now + self.options.timeout
            self._send(number, True)

    def _whom(self, number: int) -> str | None:
        """The node that the call of a piece is about."""
        it = self.progress[number]
        return self._name(number, it.heading.other if it.call == "stop" else it.heading)

    def _name(self, number: int, side: Side) -> str | None:
        piece = self.pieces[number]
        return piece.source if side is Side.SOURCE else piece.target

    def _view(self, number: int, heading: Side) -> Piece:
        piece = self.pieces[number]
        return piece if heading is Side.TARGET else piece.reversed()

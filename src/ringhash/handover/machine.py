"""The state machine of a handover: events in, commands out, and no input or output of its own.

    PENDING -> PREPARING -ok-> PREPARED -its turn, go-> STOPPING -ok-> STOPPED -> STARTING -ok-> DONE
                   |              |                        |                          |
                   | undo         | undo                   | undo                     | stop the target,
                   v              v                        v                          v start the source
                     KEPT (a time-out) or FAILED (an error): the piece stays with its holder

    once all are DONE and `finish` was said:  DONE -> FINISHING -ok-> FINISHED, or UNFINISHED

A piece has a *holder*, the node that the router names: the source until the target has confirmed its
start. A piece that is under way has a *heading*. Where the two are the same, the piece is on its way back
to its holder. A reversal exchanges the sides: the holder is the target, the heading the source, and the
same steps lead from DONE to UNDONE. Only `finish` takes the way back away.

What lasts is in `ledger.py`; a step is taken by writing a record. Time is a number that the caller
gives, so a test can have a clock of its own.

Four rules keep a piece from having two owners:

1. A start is called only after the stop of the other side was confirmed.
2. An answer counts only when it is the answer to the last call of its piece.
3. There is one call of a piece at a time: one that timed out must come back before the next is made.
4. A target that was told to start, and did not confirm it, is told to stop before the source goes on.

Method: a two-step handover with confirmation, as slots move in Redis Cluster and tablets in Bigtable; a
write-ahead log replayed from its beginning, as in ARIES, with no undo log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from ringhash.errors import HandoverError
from ringhash.handover.ledger import CUTOVER, PREPARATION, UNDER_WAY, Ledger, Standing
from ringhash.handover.pieces import Piece
from ringhash.handover.record import Call, Mode, Options, Record, Side, State

__all__ = ["Command", "Machine"]

_LEAST_PAUSE = 0.1  # seconds between two catch-ups of a piece


class Command(NamedTuple):
    """What a driver must do: make a call, or cancel the one that took too long (`cancel`).

    `token` is what the answer is known by: that of the piece, but for a `hold` a number of its own.
    """

    call: Call
    piece: Piece
    token: int


class Machine(Ledger):
    """A handover without its input and output.

    Give it events (`confirm`, `fail`, `go`, `abort`, `reverse`, `retry`, `finish`, `lost`) and the
    time (`tick`, which returns the commands that are due).

    Args:
        pieces: The pieces, in the order in which they go.
        options: How to go about it.
        write: Called with every record before the record takes effect. When it raises, nothing
            has changed, and the machine must not be used any more.
        records: What an earlier machine wrote; the new one goes on where that one ended.

    >>> from ringhash import Router
    >>> from ringhash.handover.pieces import cut
    >>> machine = Machine(cut(Router(["a"]).plan(add=["b"])), Options())
    >>> [stop] = machine.tick(0.0)
    >>> stop.call, machine.standings[0].state.value
    ('stop', 'STOPPING')
    >>> machine.confirm(stop.token, 0.5)
    >>> [start] = machine.tick(0.5)
    >>> machine.confirm(start.token, 1.0)
    >>> machine.tick(1.0), machine.standings[0].state.value, machine.mode.value
    ([], 'DONE', 'OVER')
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        options: Options,
        write: Callable[[Record], object] = lambda _: None,
        records: Iterable[Record] = (),
    ) -> None:
        super().__init__(pieces, options, write, records)
        self._out: list[Command] = []
        self._cooling: list[float] = []
        self.holds = 0  # how many catch-ups were asked for, negative: they are no records, and have no seq

    # --- events ---

    def tick(self, now: float) -> list[Command]:
        """Let time pass, begin what may begin, and return the commands that are due."""
        if self.resumed:
            self.resumed = False
            if not self.over:
                self._resume(now)
        for number, it in enumerate(self.standings):
            if it.state in PREPARATION and self.backward and it.heading is not self.goal and not self.aborted:
                self._cancel(number)
                self._back(number, State.KEPT, "the handover was reversed", now)
            elif it.state is State.PREPARED:
                self._catch_up(number, now)
            elif it.due is not None and it.due <= now:
                self._let_go(number, now)
            if it.deadline is not None and it.deadline <= now:
                self._time_out(number, now)
        self._cooling = [until for until in self._cooling if until > now]
        if not self.aborted and not self.over:
            self._begin_some(now)
            self._cut_over_some(now)
        if not self.over and self.arrived and not self._to_finish():
            self._record(-1, Mode.OVER)
        out, self._out = self._out, []
        return out

    def wake_at(self) -> float | None:
        """Return when `tick` must be called next if no event comes before; None: no need."""
        times = [it.deadline for it in self.standings if it.deadline is not None]
        times += [it.due for it in self.standings if it.due is not None and not self._rests(it)]
        if self._cooling and not self.aborted:
            times += self._cooling
        return min(times, default=None)

    def confirm(self, token: int, now: float) -> None:
        """The call of that token was done. One that is late or was answered already gives nothing
        away."""
        number = self._answered(token, now)
        if number is None:
            return
        it = self.standings[number]
        if it.state is State.PREPARING:
            self._prepared(number, now)
        elif it.state is State.PREPARED:
            it.caught_up, it.caught_at, it.note = True, now, ""
            it.deadline, it.due = None, now + max(self.options.pause, _LEAST_PAUSE)
        elif it.state is State.STOPPING:
            self._stopped(number, now)
        elif it.state is State.STARTING:
            self._started(number, now)
        elif it.state is State.FINISHING:
            self._record(number, State.FINISHED)

    def fail(self, token: int, why: str, now: float) -> None:
        """The call of that token failed, or may have failed."""
        number = self._answered(token, now)
        if number is None:
            return
        if self.standings[number].state is State.PREPARED:
            self._missed(number, why, now)
        else:
            self._failed(number, why, now)

    def _failed(self, number: int, why: str, now: float) -> None:
        self._back(number, State.FAILED, why, now)

    def go(self, number: int = -1) -> None:
        """Let a prepared piece stop and start when its turn comes; -1: all pieces."""
        if not -1 <= number < len(self.pieces):
            raise HandoverError(f"there is no piece {number}; there are {len(self.pieces)}, from 0")
        if not self.over and number not in self.going:
            self._record(-1, "GO", note=str(number))

    def abort(self) -> None:
        """Finish what is under way, and begin no other piece; what is prepared stays so."""
        if not self.over:
            self._record(-1, Mode.ABORT)

    def reverse(self) -> None:
        """Hand every piece that is DONE back to its source, in the same steps."""
        if self.over:
            raise HandoverError("the handover is over, and its plan is applied; plan the inverse")
        if self.finishing:
            raise HandoverError(
                "the finish has begun, and there is no way back; plan the inverse when it is over"
            )
        self._record(-1, Mode.REVERSE)

    def finish(self) -> None:
        """Call `finish` for every piece. From here on there is no way back."""
        if self.over or self.finishing:
            return
        if not self.awaits_finish:
            raise HandoverError(
                "only a handover whose pieces are all there, and that has a `finish`, can be finished"
            )
        self._record(-1, Mode.FINISH)

    def retry(self) -> None:
        """Go on after an abort, and try the pieces again that were kept or failed."""
        if not self.over:
            self._record(-1, "RETRY")

    def begun(self, epoch: int) -> None:
        """The router enters the middle with that epoch, or has got ahead by other changes."""
        self._record(-1, "EPOCH", note=str(epoch))

    def lost(self, name: str, now: float) -> None:
        """A node is gone for good and serves nothing: what it would have to stop is stopped.

        Only a person, or a system that has fenced the node, can know that.
        """
        if self.over or name in self.gone:
            return
        self._record(-1, "LOST", note=name)
        for number, it in enumerate(self.standings):
            if it.away is not None and it.away[2] == name:
                it.away = None  # nobody is there to answer
            if it.state is State.PREPARED:
                if self._name(number, it.heading) == name:
                    self._back(number, State.FAILED, f"{name!r} was lost", now)
            elif (not it.under_way and it.state is not State.FINISHING) or it.call is None:
                continue
            elif self._whom(number) != name:
                self._let_go(number, now)
            elif it.state is State.STOPPING:
                self._stopped(number, now)
            elif it.state is State.FINISHING:
                self._record(number, State.FINISHED)
            else:
                self._back(number, State.FAILED, f"{name!r} was lost", now)

    # --- what may begin ---

    def _clashes(self, number: int, others: list[int]) -> bool:
        """Whether a piece has a node in common with others."""
        return any(self.pieces[number].nodes & self.pieces[other].nodes for other in others)

    def _is_room(self, count: int, most: int) -> bool:
        """Whether one more piece may begin beside `count` others; one that has just ended is in the way."""
        return count + len(self._cooling) < most

    def _may_go(self, number: int) -> bool:
        """Whether a prepared piece has nothing more to wait for than its turn."""
        it = self.standings[number]
        if it.away is not None or ("hold" in self.options.calls and not it.caught_up):
            return False
        return not self.options.wait or self.backward or bool({-1, number} & self.going)

    def _cut_over_some(self, now: float) -> None:
        cutting = self._in(CUTOVER)
        for number, it in enumerate(self.standings):
            if it.state is not State.PREPARED or not self._may_go(number):
                continue
            if not self._is_room(len(cutting), self.options.parallel):
                break
            if not self._clashes(number, cutting):
                cutting.append(number)
                self._stop(number, now)

    def _begin_some(self, now: float) -> None:
        ahead = self.options.ahead
        in_hand, cutting = self._in(UNDER_WAY), self._in(CUTOVER)
        finishing = len(self._in(frozenset({State.FINISHING})))
        for number in list(self._eligible()):
            it, goal = self.standings[number], self.goal
            if self.finishing:
                if finishing < self.options.parallel:
                    finishing += 1
                    self._record(number, State.FINISHING, call="finish")
                    self._ask(number, now)
                continue
            if not self._is_room(len(in_hand), self.options.parallel + ahead):
                break
            taker = self._name(number, goal)
            fresh = it.holder is goal.other and not it.stuck and taker is not None
            prepares = fresh and bool(self.options.wait or {"prepare", "hold"} & self.options.calls)
            if not prepares and not self._is_room(len(cutting), self.options.parallel):
                break
            if self._clashes(number, cutting if ahead else in_hand) and not (prepares and ahead):
                continue
            if taker is not None and taker in self.gone:
                self._record(number, State.KEPT, stuck=it.stuck, note=f"{taker!r} was lost")
                continue
            in_hand.append(number)
            if not prepares:
                cutting.append(number)
                self._record(number, State.STOPPING, heading=goal, call="stop")
                self._ask(number, now)
            elif "prepare" in self.options.calls:
                self._record(number, State.PREPARING, heading=goal, call="prepare")
                self._ask(number, now)
            else:
                self._prepared(number, now, goal)
        for number in self._in(frozenset({State.PREPARED})):
            self._catch_up(number, now)

    # --- the steps ---

    def _prepared(self, number: int, now: float, heading: Side | None = None) -> None:
        self._record(number, State.PREPARED, heading=heading)
        self.standings[number].caught_at = now

    def _catch_up(self, number: int, now: float) -> None:
        """Let the target of a piece that waits catch up once more, when it is time."""
        it = self.standings[number]
        if it.deadline is not None and it.deadline <= now:
            self._cancel(number)
            self._missed(number, self._late("hold"), now)
            return
        if "hold" not in self.options.calls or it.away is not None or self.aborted:
            return
        if it.due is None or it.due <= now:
            it.due, it.deadline = None, now + self.options.limit("hold")
            self._send_as("hold", number, repeat=True)

    def _missed(self, number: int, why: str, now: float) -> None:
        """A catch-up failed: the next one follows, for as long as a preparation may take."""
        it = self.standings[number]
        it.caught_up, it.note, it.deadline = False, why, None
        it.due = now + max(self.options.pause, _LEAST_PAUSE)
        if now - it.caught_at >= self.options.limit("prepare"):
            self._back(number, State.FAILED, f"it could not catch up: {why}", now)

    def _stop(self, number: int, now: float) -> None:
        self._record(number, State.STOPPING, call="stop")
        self._ask(number, now)

    def _stopped(self, number: int, now: float) -> None:
        it = self.standings[number]
        self._record(number, State.STOPPED, verdict=it.verdict, note=it.note)
        self._start(number, now)

    def _start(self, number: int, now: float) -> None:
        it = self.standings[number]
        self._record(number, State.STARTING, verdict=it.verdict, call="start", note=it.note)
        self._ask(number, now)

    def _started(self, number: int, now: float) -> None:
        it = self.standings[number]
        end = State.DONE if it.heading is Side.TARGET else State.UNDONE
        if it.heading is it.holder and it.verdict is not None:
            end = it.verdict
        self._record(number, end, holder=it.heading, note=it.note)
        self._end(now)

    def _time_out(self, number: int, now: float) -> None:
        it = self.standings[number]
        self._cancel(number)
        why = self._late(it.call or "start")
        if self.options.on_timeout == "abort" and it.state is not State.FINISHING and not self.aborted:
            self._record(-1, Mode.ABORT, note=f"piece {number}: {why}")
        self._timed_out(number, why, now)

    def _timed_out(self, number: int, why: str, now: float) -> None:
        self._back(number, State.KEPT, why, now)

    def _late(self, call: str) -> str:
        return f"{call} was not confirmed within {self.options.limit(call):g} s"

    def _cancel(self, number: int) -> None:
        it = self.standings[number]
        if it.away is not None:
            self._out.append(Command("cancel", self._view(number, it.away[1]), it.away[0]))

    def _back(self, number: int, verdict: State, why: str, now: float) -> None:
        """The step failed: the piece goes back to its holder."""
        it = self.standings[number]
        home = it.holder
        if it.state is State.FINISHING:
            if it.tries + 1 < self.options.tries:
                self._try_again(number, now)
            else:
                self._record(number, State.UNFINISHED, note=why)
        elif it.state in PREPARATION:
            if "undo" in self.options.calls:
                self._record(number, State.STARTING, heading=home, verdict=verdict, call="undo", note=why)
                self._ask(number, now)
            else:  # the source never stopped
                self._record(number, verdict, heading=home, note=why)
                self._end(now)
        elif it.heading is not home:
            state, call = (State.STOPPING, "stop") if self._needs_stop(it) else (State.STARTING, "undo")
            self._record(number, state, heading=home, verdict=verdict, call=cast("Call", call), note=why)
            self._ask(number, now)
        elif it.tries + 1 < self.options.tries:
            self._try_again(number, now)
        else:
            end = it.verdict or verdict
            note = f"{it.note}; on the way back: {why}" if it.note else why
            self._record(number, end, stuck=True, note=note)
            self._end(now)

    def _needs_stop(self, it: Standing) -> bool:
        """Whether the other side may have started: rule 4. One that was told nothing needs no stop."""
        return it.state is not State.STOPPING or it.unsure

    def _try_again(self, number: int, now: float) -> None:
        it = self.standings[number]
        self._record(number, it.state, verdict=it.verdict, call=it.call, tries=it.tries + 1, note=it.note)
        self._ask(number, now, after=self.options.pause * 4**it.tries)

    def _end(self, now: float) -> None:
        self._cooling.append(now + self.options.pause)

    def _resume(self, now: float) -> None:
        """Make the calls again whose answers died with the process that made them."""
        self._record(-1, "RESUMED")
        self._rest(now)
        for number, it in enumerate(self.standings):
            if it.state is State.PREPARED:
                self._prepared(number, now)  # a new token: a catch-up of that process may be on its way
            elif it.state is State.STOPPED:
                self._start(number, now)
            elif it.under_way or it.state is State.FINISHING:
                self._again(number, now)

    def _rest(self, now: float) -> None:
        """Nobody knows when the last pieces ended: let them all have ended now."""
        self._cooling = [now + self.options.pause] * self.options.parallel

    def _again(self, number: int, now: float) -> None:
        it = self.standings[number]
        self._record(number, it.state, verdict=it.verdict, call=it.call, tries=it.tries, note=it.note)
        self._ask(number, now, repeat=True)

    # --- calls and answers ---

    def _ask(self, number: int, now: float, repeat: bool = False, after: float = 0.0) -> None:
        """Make the call that the last record of the piece speaks of, once the one before is back and
        `after` seconds have passed."""
        it = self.standings[number]
        whom = self._whom(number)
        if it.call == "finish" and whom in self.gone:
            self._record(number, State.FINISHED)
        elif it.call == "stop" and (whom is None or whom in self.gone):
            self._stopped(number, now)
        elif whom is None and it.call != "finish":
            self._started(number, now)
        elif whom in self.gone:
            it.tries = self.options.tries
            self._back(number, State.FAILED, f"{whom!r} was lost", now)
        elif after:
            it.due = now + after
        else:
            it.deadline = now + self.options.limit(it.call or "start")
            self._send(number, repeat or it.tries > 0 or it.rounds > 1)

    def _send(self, number: int, repeat: bool) -> None:
        it = self.standings[number]
        if not self._is_away(it):  # rule 3: otherwise `_answered` lets this call go
            self._send_as(it.call or "start", number, repeat)

    def _is_away(self, it: Standing) -> bool:
        return it.away is not None

    def _send_as(self, call: Call, number: int, repeat: bool) -> None:
        it = self.standings[number]
        token, whom = it.token, self._whom(number)
        if call == "hold":
            self.holds -= 1
            token = it.holding = self.holds
            whom = self._name(number, it.heading)
        it.away = (token, it.heading, whom)
        view = self._view(number, it.heading.other if call == "undo" else it.heading)
        self._out.append(Command(call, replace(view, token=it.token, repeat=repeat), token))

    def _answered(self, token: int, now: float) -> int | None:
        """Return the piece whose last call has that token, or None. A call that comes back late
        lets the next call of its piece go, which had to wait for it."""
        for number, it in enumerate(self.standings):
            if it.away is not None and it.away[0] == token:
                it.away = None
                if self._is_last(it, token):
                    return number
                self._let_go(number, now)
                return None
        return None

    def _is_last(self, it: Standing, token: int) -> bool:
        return token in (it.token, it.holding)

    def _let_go(self, number: int, now: float) -> None:
        """Make the call that waited for another one of its piece to come back."""
        it = self.standings[number]
        if it.call is not None and (it.due is None or it.due <= now):
            it.due = None
            it.deadline = now + self.options.limit(it.call)
            self._send(number, True)

    def _whom(self, number: int) -> str | None:
        """The node that the call of a piece is about."""
        it = self.standings[number]
        return self._name(number, it.heading.other if it.call in ("stop", "finish") else it.heading)

    def _name(self, number: int, side: Side) -> str | None:
        piece = self.pieces[number]
        return piece.source if side is Side.SOURCE else piece.target

    def _view(self, number: int, heading: Side) -> Piece:
        piece = self.pieces[number]
        return piece if heading is Side.TARGET else piece.reversed()

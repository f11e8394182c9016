"""What of a handover lasts: where each piece stands, and what was said of the whole.

All of it is changed in one place, `Ledger._apply`, by a `Record`, and a record is written before it is
applied. Two ledgers that read the same records are in the same state: that is all there is to a resumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from ringhash.errors import HandoverError
from ringhash.handover.pieces import Piece
from ringhash.handover.record import Call, Mode, Options, Record, Side, State

__all__ = ["CUTOVER", "PREPARATION", "UNDER_WAY", "Ledger", "Standing"]

PREPARATION = frozenset({State.PREPARING, State.PREPARED})
CUTOVER = frozenset({State.STOPPING, State.STOPPED, State.STARTING})
UNDER_WAY = PREPARATION | CUTOVER
_ARRIVED = frozenset({State.DONE, State.FINISHING, State.FINISHED, State.UNFINISHED})
_TO_FINISH = frozenset({State.DONE, State.UNDONE, State.FINISHING, State.UNFINISHED})


@dataclass(slots=True)
class Standing:
    """Where a piece stands. The fields from `unsure` on are of this process and in no record."""

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
    due: float | None = None  # when to make the call or the next catch-up, if not yet
    away: tuple[int, Side, str | None] | None = None  # the call not come back: token, heading, whom
    holding: int = 0  # the number of the last catch-up
    caught_up: bool = False  # whether the last catch-up succeeded
    caught_at: float = 0.0  # when one last did

    @property
    def under_way(self) -> bool:
        """Whether the piece is between its begin and its end."""
        return self.state in UNDER_WAY


class Ledger:
    """Where the pieces of a handover stand.

    Args:
        pieces: The pieces, in the order in which they go.
        options: How to go about it.
        write: Called with every record before the record takes effect. When it raises, nothing
            has changed, and the ledger must not be used any more.
        records: What an earlier ledger wrote; this one goes on where that one ended.
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
        self.standings = [Standing() for _ in self.pieces]
        self.backward = self.aborted = self.finishing = self.over = False
        self.gone: set[str] = set()
        self.going: set[int] = set()  # the pieces that need not wait any more; -1: all
        self.first: int | None = None  # the epoch with which the router entered the middle
        self.changes = 0  # how often a piece changed its holder
        self.resumed = False
        self._write = write
        self._seq = 0
        for record in records:
            self._apply(record)
            self.resumed = True

    # --- written first, then applied ---

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
        old = self.standings[piece] if piece >= 0 else None
        sides = (holder or (old.holder if old else ""), heading or (old.heading if old else ""))
        record = Record(
            self._seq + 1, piece, state, *sides, verdict or "", call or "", tries, stuck, note
        )  # fmt: skip
        self._log(record)
        self._apply(record)

    def _log(self, record: Record) -> None:
        self._write(record)

    def _apply(self, record: Record) -> None:
        self._seq = record.seq
        if record.piece < 0:
            self._apply_to_all(record)
            return
        if not record.piece < len(self.pieces):
            raise HandoverError(f"record {record.seq} is of piece {record.piece}, which is not there")
        it = self.standings[record.piece]
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
        it.caught_up, it.holding = False, 0
        it.call = cast("Call", record.call) if record.call else None

    def _apply_to_all(self, record: Record) -> None:
        what = record.state
        if what == "EPOCH":
            self.first = int(record.note)
        elif what == "GO":
            self.going.add(int(record.note))
        elif what == "LOST":
            self.gone.add(record.note)
        elif what == "RETRY":
            self.aborted = False
            self._apply_retry()
        elif what == Mode.ABORT:
            self.aborted = True
        elif what == Mode.REVERSE:
            self.backward, self.aborted = True, False
        elif what == Mode.FINISH:
            self.finishing, self.aborted = True, False
        elif what == Mode.OVER:
            self.over = True
        elif what != "RESUMED":
            raise HandoverError(f"record {record.seq} says {what!r}, which is nothing that a handover does")

    def _apply_retry(self) -> None:
        for it in self.standings:
            if it.state is State.UNFINISHED:
                it.state = State.DONE if it.holder is Side.TARGET else State.UNDONE
            elif not self.finishing and (it.stuck or it.state in (State.KEPT, State.FAILED, State.UNDONE)):
                if not self.backward:
                    it.state = State.PENDING
                elif it.stuck or it.holder is Side.TARGET:
                    it.state = State.DONE
                it.verdict, it.note = None, ""

    # --- what can be asked ---

    @property
    def mode(self) -> Mode:
        """What the whole handover is doing."""
        if self.over:
            return Mode.OVER
        if self.aborted:
            return Mode.ABORT
        if self.finishing:
            return Mode.FINISH
        return Mode.REVERSE if self.backward else Mode.RUN

    @property
    def goal(self) -> Side:
        """The side that pieces are taken to."""
        return Side.SOURCE if self.backward else Side.TARGET

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the pieces that the target owns now."""
        return frozenset(i for i, it in enumerate(self.standings) if it.holder is Side.TARGET)

    @property
    def written(self) -> int:
        """How many records there are."""
        return self._seq

    @property
    def arrived(self) -> bool:
        """Whether no piece is between two owners, and all are where the handover takes them."""
        if self.backward:
            return all(
                it.holder is Side.SOURCE and not it.under_way and not it.stuck for it in self.standings
            )
        return all(it.state in _ARRIVED and not it.stuck for it in self.standings)

    @property
    def awaits_finish(self) -> bool:
        """Whether all pieces are there, and `finish` or `reverse` is what comes next."""
        return self.arrived and not self.over and not self.finishing and self._to_finish()

    def _to_finish(self) -> bool:
        return "finish" in self.options.calls and any(it.state in _TO_FINISH for it in self.standings)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way and nothing is left to begin."""
        return not any(map(self._active, self.standings)) and not list(self._eligible())

    def _active(self, it: Standing) -> bool:
        if self._rests(it):
            return it.away is not None
        return it.under_way or it.state is State.FINISHING

    def _rests(self, it: Standing) -> bool:
        """Whether a prepared piece stays so, since the handover was aborted."""
        return it.state is State.PREPARED and self.aborted

    def _eligible(self) -> Iterator[int]:
        if self.aborted or self.over:
            return
        for number, it in enumerate(self.standings):
            if self.finishing:
                ready = it.state in (State.DONE, State.UNDONE)
            elif self.backward:
                unclear = it.stuck or it.holder is Side.TARGET
                ready = it.state is State.DONE or (it.state is State.PENDING and unclear)
            else:
                ready = it.state is State.PENDING
            if ready:
                yield number

    def _in(self, states: frozenset[State]) -> list[int]:
        return [number for number, it in enumerate(self.standings) if it.state in states]

"""What both drivers of a handover do: let the machine, the journal and the router follow one another.

A change is in the journal before the router has it, and in the router before anybody is told. If a run ends
in any other way than by coming to its end (an interrupt, a full disk), the machine is made anew from the
journal by the next run, as after a crash.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ringhash.errors import HandoverError, HandoverRunningError, HandoverTaken, JournalError, StalePlanError
from ringhash.handover.journal import Journal, Opener
from ringhash.handover.machine import Command, Machine
from ringhash.handover.mover import Callback
from ringhash.handover.pieces import Piece
from ringhash.handover.record import Mode, Options, Record
from ringhash.handover.status import Status, status_of
from ringhash.plan import Plan
from ringhash.ranges import Ranges
from ringhash.routing import Progress

if TYPE_CHECKING:
    from ringhash.routing import Router

__all__ = ["Driver", "Hooks"]

POLL = 0.5  # seconds between two looks for requests of other processes
_SAID = frozenset({"abort", "finish", "go", "lost", "retry", "reverse"})
_log = logging.getLogger("ringhash.handover")

Event = tuple[str, Any, Any]


class Hooks:
    """Functions that are only told: an error of theirs is logged, and changes nothing."""

    def __init__(
        self,
        progress: Callable[[Status], object] | None = None,
        on_epoch: Callable[[dict[str, object]], object] | None = None,
    ) -> None:
        self.progress = progress
        self.on_epoch = on_epoch

    @staticmethod
    def tell(hook: Callable[[Any], object], what: object) -> None:
        """Call a hook."""
        try:
            hook(what)
        except Exception:  # noqa: BLE001 - whatever it is, it is only for showing
            _log.exception("%r failed; the handover goes on", hook)


class Driver:
    """A handover with its journal and its router, without threads or tasks.

    Args:
        router: The router that it changes.
        plan: What it carries out.
        pieces: The plan, cut.
        options: How to go about it.
        functions: The calls, by name.
        opens: What opens the journal.
        hooks: Who is told.
        clock: Seconds that never go backwards.
    """

    def __init__(
        self,
        router: Router,
        plan: Plan,
        pieces: tuple[Piece, ...],
        options: Options,
        functions: Mapping[str, Callback],
        opens: Opener,
        hooks: Hooks,
        clock: Callable[[], float],
    ) -> None:
        self.router = router
        self.plan = plan
        self.pieces = pieces
        self.options = options
        self.functions = functions
        self.hooks = hooks
        self.wake: Callable[[], object] | None = None
        self.away: set[int] = set()  # the tokens of the calls that were made and have not come back
        self._opens = opens
        self._clock = clock
        self._journal: Journal | None = None
        self._meta: Callable[[], Mapping[str, object]] | None = None  # of a journal still to be made
        self._gave_up = False
        self._taken: HandoverTaken | None = None
        self._tried: Record | None = None  # the last record that it wanted to write
        self._torn = False  # whether the machine may not be what the journal says
        self._carried: tuple[int, str] | None = None
        self._asked = 0
        self._told = 0
        self._driving = threading.Lock()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.machine = Machine(pieces, options, self._write)

    # --- its journal ---

    def make_journal(self, meta: Callable[[], Mapping[str, object]], later: bool) -> None:
        """Make the journal, now or, for a handover that waits behind another, when its turn comes."""
        if later:
            self._meta = meta
        else:
            self._opens(meta()).close()

    def read_journal(self, records: list[Record]) -> None:
        """Become what the records say."""
        machine = Machine(self.pieces, self.options, self._write, records)
        for it, old in zip(machine.standings, self.machine.standings, strict=True):
            if old.away is not None and old.away[0] in self.away:
                it.away = old.away  # a call of the run that ended is still to come back
        machine.holds = self.machine.holds
        self.machine = machine
        self._carried, self._torn = None, False

    def _write(self, record: Record) -> None:
        assert self._journal is not None  # noqa: S101 - only a run writes
        self._tried = record
        self._journal.append(record)

    @property
    def waiting(self) -> bool:
        """Whether it waits behind another handover of its router."""
        return self._meta is not None

    def enter(self) -> None:
        """Take the router of a resumed handover to where the journal says that it is."""
        if self.machine.first is not None:
            with self.driving():
                pass

    # --- a run ---

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Have the handover, alone, for one run."""
        if self._taken is not None:
            raise HandoverTaken(*self._taken.args)
        if not self._driving.acquire(blocking=False):
            raise HandoverRunningError("this handover is being run already")
        try:
            self._open()
            yield
        except HandoverTaken as taken:
            self._taken = taken
            raise
        except BaseException:
            self._torn = True
            raise
        finally:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close()
            self._driving.release()

    def _open(self) -> None:
        if self.waiting:
            return
        self._journal = self._opens(None)
        records = list(self._journal.records())
        others = records[self.machine.written :]
        if others and not (self._torn and others == [self._tried]):
            raise HandoverTaken("another process has gone on with the handover; this one must stop")
        if self._torn:
            self.read_journal(records)
        self._carry()

    def _begin_behind(self) -> bool:
        """Begin if the handover that was before it is over; else go on waiting."""
        if self._meta is None or self.router.running is not None:
            return False
        self.router.check_plan(self.plan)
        journal = self._opens(self._meta())
        self._meta = None
        self._journal = journal
        self._carry()
        return True

    def turn(self) -> list[Command]:
        """Take what has happened, and return the commands that are due."""
        if self.waiting:
            self._take_all(self._take_waiting)
            if not self._begin_behind():
                return []
        self._take_all(self._take)
        assert self._journal is not None  # noqa: S101
        for number, what, name in self._journal.requests(self._asked):
            if what in _SAID:
                self._say(what, name, self._clock())
            self._asked = number
            self._journal.forget(number)
        self._carry()
        commands = self.machine.tick(self._clock())
        self._carry()
        if self.hooks.progress is not None and (commands or self.machine.written != self._told):
            self._told = self.machine.written
            self.hooks.tell(self.hooks.progress, self.status())
        return commands

    def _take_all(self, take: Callable[[Event], None]) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if event is not None:
                    take(event)

    def _take_waiting(self, event: Event) -> None:
        if event[0] in ("abort", "retry"):
            self._gave_up = event[0] == "abort"

    def _take(self, event: Event) -> None:
        what, first, second = event
        now, machine = self._clock(), self.machine
        if what == "confirm":
            machine.confirm(first, now)
        elif what == "fail":
            machine.fail(first, second, now)
        elif what in _SAID:
            self._say(what, first, now)

    def _say(self, what: str, name: str, now: float) -> None:
        try:
            if what == "go":
                self.machine.go(int(name) if name else -1)
            elif what == "lost":
                self.machine.lost(name, now)
            else:
                getattr(self.machine, what)()
        except JournalError:
            raise
        except (HandoverError, ValueError) as error:  # too late, or of a piece that is not there
            _log.warning("%s was asked of the handover, and is left out: %s", what, error)

    def _carry(self) -> None:
        """Let the router follow the machine: a change is in the journal before it is here."""
        machine = self.machine
        state = (machine.changes, self._phase())
        if state == self._carried:
            return
        if machine.first is None:
            self.router.check_plan(self.plan)
            machine.begun(self.router.epoch + 1)
        assert machine.first is not None  # noqa: S101
        epoch = machine.first + machine.changes + machine.over
        at = self.router.carry(Progress(self.plan, self._done(), epoch, state[1]))
        if at != epoch:  # other changes, such as pins, have raised it
            machine.begun(machine.first + at - epoch)
        self._carried = state
        if self.hooks.on_epoch is not None:
            self.hooks.tell(self.hooks.on_epoch, self.router.to_dict())

    def _phase(self) -> Any:
        machine = self.machine
        if machine.over:
            return "back" if machine.backward else "forward"
        if machine.backward or not (machine.awaits_finish or machine.finishing):
            return "running"
        return "carried"

    def _done(self) -> Ranges:
        done = self.machine.done
        return Ranges.of([r for number in sorted(done) for r in self.pieces[number].ranges])

    # --- what the drivers ask ---

    def at_end(self) -> bool:
        """Whether a run has nothing more to do."""
        return (self._gave_up if self.waiting else self.machine.settled) and self._events.empty()

    def wait_seconds(self) -> float:
        """Return how long there is nothing to do if nothing happens."""
        wake = self.machine.wake_at()
        return POLL if wake is None else min(POLL, max(0.0, wake - self._clock()))

    def wait(self) -> None:
        """Wait until something happens or time has passed."""
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=self.wait_seconds())
            if event is not None:
                (self._take_waiting if self.waiting else self._take)(event)

    def post(self, what: str, first: object = None, second: object = None) -> None:
        """Let the run know of something; from any thread."""
        self._events.put((what, first, second))
        wake = self.wake
        if wake is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
                wake()

    def function(self, command: Command) -> Callback | None:
        """Return the function of a command; None: there is nobody to tell."""
        if command.call == "undo":
            return self.functions.get("undo") or self.functions["start"]
        return self.functions.get(command.call)

    def argument(self, command: Command) -> Piece:
        """Return the piece that it is called with."""
        turned = command.call == "undo" and "undo" not in self.functions
        return command.piece.reversed() if turned else command.piece

    def answer(self, command: Command, result: object) -> None:
        """A call has returned."""
        self.away.discard(command.token)
        if command.call == "cancel":
            return
        if result is False:
            self.post("fail", command.token, f"{command.call} returned False")
        else:
            self.post("confirm", command.token)

    def broke(self, command: Command, error: BaseException) -> None:
        """A call has raised."""
        if command.call == "cancel":
            return
        self.away.discard(command.token)
        text = str(error)
        self.post("fail", command.token, f"{type(error).__name__}: {text}" if text else type(error).__name__)

    def status(self) -> Status:
        """Return how far it is."""
        found = status_of(self.machine, self.router.epoch)
        return found._replace(mode=Mode.ABORT) if self._gave_up else found

    def check_behind(self) -> bool:
        """Whether another handover runs that this one may wait behind.

        Raises:
            StalePlanError: The plan does not begin where the other one ends.
        """
        running = self.router.running
        if running is None:
            return False
        if self.plan.before != running.after.digest:
            raise StalePlanError(
                "the plan does not begin where the handover that runs ends; make it from router.running.after"
            )
        return True

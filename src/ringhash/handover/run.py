"""The handover as its users see it: thin drivers that run the state machine with threads or asyncio."""

from __future__ import annotations

import contextlib
import inspect
import queue
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, cast

from ringhash.errors import HandoverError, HandoverRunningError, JournalError
from ringhash.handover.journal import Journal
from ringhash.handover.machine import (
    Command,
    Machine,
    Mode,
    OnTimeout,
    Options,
    Record,
    Side,
    State,
)  # fmt: skip
from ringhash.handover.pieces import By, Piece, cut
from ringhash.plan import Plan
from ringhash.routing import Router
from ringhash.shard_router import ShardRouter

__all__ = ["Callback", "Handover", "PieceStatus", "Status"]

Callback = Callable[[Piece], object]

_POLL = 0.5  # seconds between two looks for requests of other processes
_Event = tuple[str, Any, Any]


class Live(Protocol):
    """What a handover needs of what it changes: `Router` and `ShardRouter` have it.

    A plan may begin, or is refused with the errors of `apply`; then some of its ranges are done, by
    which the placement routes at once; in the end it is the one after the plan or before it.
    """

    @property
    def epoch(self) -> int:
        """How many changes there have been."""

    def to_dict(self) -> dict[str, object]:
        """Return all of it, as JSON can hold it."""

    def _may_begin(self, plan: Plan) -> None: ...

    def _begin(self, plan: Plan, done: Any = (), epoch: int | None = None) -> Any: ...

    def _advance(self, done: Any, epoch: int) -> None: ...

    def _leave(self, forward: bool, epoch: int) -> None: ...

    def _has_left(self, plan: Plan, forward: bool) -> bool: ...


class PieceStatus(NamedTuple):
    """How far a piece is: its state, who owns it now, and what went wrong if something did."""

    piece: Piece
    state: State
    owner: str | None
    stuck: bool
    note: str


class Status(NamedTuple):
    """How far a handover is.

    `mode` is RUN, ABORT, REVERSE or OVER; `counts` has the number of pieces in each state; `fraction`
    is the part of what moves that has gone to its target. A piece is `stuck` when its way back to its
    owner was not confirmed: the router names the owner, but it may have stopped, and a person must look.
    """

    mode: Mode
    epoch: int
    fraction: float
    pieces: tuple[PieceStatus, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of pieces in each state that any is in."""
        return dict(Counter(it.state.value for it in self.pieces))

    @property
    def over(self) -> bool:
        """Whether all pieces are where they were to go, and the router has left the middle."""
        return self.mode is Mode.OVER

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.counts.items()))
        far = f"{self.fraction:.0%} handed over at epoch {self.epoch}"
        return f"{self.mode}: {far} ({states or 'nothing to do'})"


class Handover:
    """Carry out a plan piece by piece, so that no key ever has two owners.

    Of each piece the old owner stops and confirms it, the new owner starts and confirms it, and from
    then on the router names the new owner. A crash, a time-out or an error never gives a piece away.
    `run` (threads) or `arun` (asyncio) do it; both return how far they came.

    Args:
        router: The `Router` whose members, or the `ShardRouter` whose assignment the plan changes.
            It refuses other changes meanwhile.
        plan: A plan of that router, made at its epoch.
        stop: Called with a `Piece`: `piece.source` takes no new work of it and finishes what it
            holds. To return is to confirm. An exception, or False, says that it did not come about.
        start: Called when the stop was confirmed: `piece.target` takes work.
        prepare: Called before the stop: `piece.target` warms up. Nothing has been given away yet.
        undo: Called when a stop came to nothing: `piece.source` keeps the piece, and takes work again.
            Without it `start` is called with the piece turned round.
        by: "pair": all ranges of one source and target are one piece; "range": each is one.
        max_share: The largest part of all keys in one piece; larger ones are split.
        pause: Seconds between the end of a piece and the begin of the next.
        timeout: Seconds that each call may take.
        on_timeout: "keep": a piece that timed out stays with its old owner and the next one follows;
            "abort": likewise, and no other one follows.
        parallel: How many pieces may be under way at once; never two of one node.
        journal: A file that is not there yet. Without it a crash is the end of the handover.
        progress: Called with a `Status` after every change.

    Each callback may be a function or a coroutine function. It may be called again for the same
    piece after a crash (`piece.repeat`), and must then do no harm.

    Raises:
        StalePlanError: The plan was made for other members or another epoch.
        HandoverRunningError: Another handover of this router is under way.
        JournalError: The journal is there already.
        ValueError: An option is out of its range.

    >>> router = Router(["gw-1", "gw-2"])
    >>> def stop(piece): print("stop", piece.source)
    >>> def start(piece): print("start", piece.target)
    >>> handover = Handover(router, router.plan(add=["gw-3"]), stop=stop, start=start, pause=0)
    >>> print(handover.run())
    stop gw-1
    start gw-3
    stop gw-2
    start gw-3
    OVER: 100% handed over at epoch 4 (2 DONE)
    """

    def __init__(
        self,
        router: Live,
        plan: Plan,
        *,
        stop: Callback,
        start: Callback,
        prepare: Callback | None = None,
        undo: Callback | None = None,
        by: By = "pair",
        max_share: float | None = None,
        pause: float = 0.2,
        timeout: float = 60.0,
        on_timeout: OnTimeout = "keep",
        parallel: int = 1,
        journal: str | Path | None = None,
        progress: Callable[[Status], object] | None = None,
    ) -> None:
        options = Options(pause, timeout, on_timeout, parallel, prepare is not None)
        pieces = cut(plan, by, max_share)
        router._may_begin(plan)
        meta: dict[str, object] = {
            "plan": plan.to_dict(),
            "router": router.to_dict(),
            "cut": {"by": by, "max_share": max_share},
            "options": {
                "pause": pause, "timeout": timeout, "on_timeout": on_timeout, "parallel": parallel,
            },
        }  # fmt: skip
        self._start(
            router,
            plan,
            pieces,
            options,
            Journal(":memory:" if journal is None else journal, meta),
            {"stop": stop, "start": start, "prepare": prepare, "undo": undo},
            progress,
            router.epoch + 1,
        )

    @classmethod
    def resume(
        cls,
        journal: str | Path,
        *,
        stop: Callback,
        start: Callback,
        prepare: Callback | None = None,
        undo: Callback | None = None,
        router: Live | None = None,
        progress: Callable[[Status], object] | None = None,
    ) -> Self:
        """Return the handover of a journal, to go on where the process that wrote it ended.

        A call whose answer is not in the journal is made again, with `piece.repeat`. The process that
        wrote the journal, should it still live, fails at its next step. Cost: O(pieces + records).

        Args:
            journal: The file.
            stop: As for `Handover`; so are `start`, `prepare`, `undo` and `progress`.
            router: A router with the members, or a shard router with the assignment, from before the
                handover. Without it one is made from the journal, of the kind that it was; it is the
                `router` of what is returned.

        Raises:
            JournalError: There is no such journal, or the file is none.
            StalePlanError: The router has other members than the handover began with.
        """
        opened = Journal(journal)
        plan, pieces, options, before, first = _read(opened, prepare is not None)
        self = cls.__new__(cls)
        self._start(
            before if router is None else router,
            plan,
            pieces,
            options,
            opened,
            {"stop": stop, "start": start, "prepare": prepare, "undo": undo},
            progress,
            first,
        )
        self._enter()
        return self

    def _start(
        self,
        router: Live,
        plan: Plan,
        pieces: tuple[Piece, ...],
        options: Options,
        journal: Journal,
        callbacks: dict[str, Callback | None],
        progress: Callable[[Status], object] | None,
        first: int,
    ) -> None:
        self._live = router
        self.plan = plan
        self._journal = journal
        self._callbacks = callbacks
        self._progress = progress
        self._first = first  # the epoch with which the handover begins
        self._entered = False
        self._left = False
        self._seen = -1
        self._asked = 0
        self._driving = threading.Lock()
        self._events: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
        self._wake: Callable[[], object] | None = None
        self._machine = Machine(pieces, options, self._write, journal.records())

    # --- what can be asked and said at any time, from any thread ---

    @property
    def router(self) -> Any:
        """The `Router` or `ShardRouter` that it changes."""
        return self._live

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, in the order in which they go."""
        return self._machine.pieces

    def status(self) -> Status:
        """Return how far the handover is."""
        return _status(self._machine, self._live.epoch)

    def abort(self) -> None:
        """Finish the pieces in hand and begin no other; `run` then returns.

        What is done stays with its new owners and the rest with its old ones, and so the router
        routes, until `retry` or `reverse` and another `run`.
        """
        self._post("abort")

    def reverse(self) -> None:
        """Hand everything that is done back to its old owners, in the same careful way.

        The pieces in hand are finished first. Call `run` again if it has returned.

        Raises:
            HandoverError: The handover is over. Plan the inverse: `plan.inverse()`.
        """
        if self._machine.mode is Mode.OVER:
            raise HandoverError("the handover is over, and its plan is applied; plan the inverse")
        self._post("reverse")

    def retry(self) -> None:
        """Go on after an abort, and try again what was kept or failed. Call `run` again."""
        self._post("retry")

    def lost(self, name: str) -> None:
        """Say that a node is gone for good and serves nothing: what it would have to stop is stopped.

        A handover never decides this by itself, since a node that does not answer may be serving.
        """
        self._post("lost", name)

    def _post(self, what: str, first: object = None, second: object = None) -> None:
        self._events.put((what, first, second))
        wake = self._wake
        if wake is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
                wake()

    # --- threads ---

    def run(self) -> Status:
        """Carry the plan out, as far as it goes, and return how far that was; threads make the calls.

        Raises:
            JournalError: Another process has taken the handover over, or the journal cannot be
                written. Nothing that is not in the journal has been done.
            HandoverRunningError: Another handover of this router is under way.
        """
        with self._drive():
            while not self._turn_threads():
                with contextlib.suppress(queue.Empty):
                    event = self._events.get(timeout=self._wait())
                    if event is not None:
                        self._take(event)
        return self.status()

    def _turn_threads(self) -> bool:
        commands = self._turn()
        for command in commands:
            if command.call != "cancel":  # a thread cannot be; its late answer is known by its token
                threading.Thread(
                    target=self._call, args=(command,), daemon=True, name=f"handover-{command.call}"
                ).start()
        return not commands and self._at_end()

    def _call(self, command: Command) -> None:
        try:
            result = self._callback(command)()
            if inspect.isawaitable(result):
                import asyncio  # noqa: PLC0415 - it takes longer to load than all of ringhash

                result = asyncio.run(_awaited(result))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the piece must go back
            self._post("fail", command.token, _reason(error))
        else:
            self._answer(command, result)

    # --- asyncio ---

    async def arun(self) -> Status:
        """As `run`, on the event loop; functions that are no coroutines are called in threads.

        A coroutine that takes too long is cancelled. The journal is written on the loop: some
        milliseconds a transition, where the disk is slow.
        """
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        wake = asyncio.Event()
        tasks: dict[int, asyncio.Task[None]] = {}
        with self._drive():
            self._wake = lambda: loop.call_soon_threadsafe(wake.set)
            try:
                while True:
                    wake.clear()
                    commands = self._turn()
                    for command in commands:
                        if command.call != "cancel":
                            tasks[command.token] = loop.create_task(self._acall(command))
                        elif command.token in tasks:
                            tasks[command.token].cancel()
                    if not commands and self._at_end():
                        break
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._wait()):
                            await wake.wait()
                    tasks = {token: task for token, task in tasks.items() if not task.done()}
            finally:
                self._wake = None
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
        return self.status()

    async def _acall(self, command: Command) -> None:
        import asyncio  # noqa: PLC0415

        try:
            callback = self._callback(command)
            if _is_async(self._function(command)):
                result = await cast("Awaitable[object]", callback())
            else:
                result = await asyncio.to_thread(callback)
                if inspect.isawaitable(result):
                    result = await result
        except BaseException as error:  # noqa: BLE001 - whatever it is, the piece must go back
            self._post("fail", command.token, _reason(error))
        else:
            self._answer(command, result)

    # --- what both drivers do ---

    def _write(self, record: Record) -> None:
        self._journal.append(record)

    @contextlib.contextmanager
    def _drive(self) -> Any:
        if not self._driving.acquire(blocking=False):
            raise HandoverRunningError("this handover is being run already")
        try:
            self._enter()
            yield
        finally:
            self._driving.release()

    def _enter(self) -> None:
        """Take the router into the middle, where the journal says that it is."""
        if self._entered:
            return
        machine = self._machine
        if machine.mode is Mode.OVER and self._live._has_left(self.plan, machine.forward):
            self._entered = self._left = True
            return
        epoch = self._first + machine.changes if machine.written else None
        transit = self._live._begin(self.plan, self._done(), epoch)
        self._first = transit.epoch - machine.changes
        self._entered = True
        self._route()

    def _done(self) -> list[tuple[int, int]]:
        done = self._machine.done
        return [(start, end) for number in sorted(done) for start, end in self.pieces[number].ranges]

    def _turn(self) -> list[Command]:
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if event is not None:
                    self._take(event)
        for number, what, name in self._journal.requests(self._asked):
            with contextlib.suppress(HandoverError):
                self._take((what, name, None))
            self._asked = number
            self._journal.forget(number)
        self._route()
        before = self._machine.written
        commands = self._machine.tick(time.monotonic())
        self._route()
        if self._progress is not None and (commands or self._machine.written != before):
            self._progress(self.status())
        return commands

    def _take(self, event: _Event) -> None:
        what, first, second = event
        now = time.monotonic()
        machine = self._machine
        if what == "confirm":
            machine.confirm(first, now)
        elif what == "fail":
            machine.fail(first, second, now)
        elif what == "abort":
            machine.abort()
        elif what == "reverse":
            machine.reverse()
        elif what == "retry":
            machine.retry()
        elif what == "lost":
            machine.lost(first, now)

    def _route(self) -> None:
        """Let the router follow the machine: a change is in the journal before it is here."""
        machine = self._machine
        if machine.changes != self._seen:
            self._seen = machine.changes
            self._live._advance(self._done(), self._first + machine.changes)
        if machine.mode is Mode.OVER and not self._left:
            self._left = True
            self._live._leave(machine.forward, self._first + machine.changes + 1)

    def _wait(self) -> float:
        wake = self._machine.wake_at()
        return _POLL if wake is None else min(_POLL, max(0.0, wake - time.monotonic()))

    def _at_end(self) -> bool:
        return self._machine.settled and self._events.empty()

    def _function(self, command: Command) -> Callback:
        found = self._callbacks.get(command.call) or self._callbacks["start"]
        return cast("Callback", found)

    def _callback(self, command: Command) -> Callable[[], object]:
        piece = command.piece
        if command.call == "undo" and self._callbacks["undo"] is None:
            piece = piece.reversed()
        function = self._function(command)
        return lambda: function(piece)

    def _answer(self, command: Command, result: object) -> None:
        if result is False:
            self._post("fail", command.token, f"{command.call} returned False")
        else:
            self._post("confirm", command.token)

    def __repr__(self) -> str:
        return f"<Handover of {len(self.pieces)} pieces, {self.status()}>"


def read_status(journal: str | Path) -> Status:
    """Return how far the handover of a journal is; it may be under way in another process.

    Raises:
        JournalError: There is no such journal, or the file is none.
    """
    with Journal(journal) as opened:
        _, pieces, options, _, first = _read(opened, False)
        machine = Machine(pieces, options, records=opened.records())
    return _status(machine, first + machine.changes + (machine.mode is Mode.OVER))


def _read(journal: Journal, prepare: bool) -> tuple[Plan, tuple[Piece, ...], Options, Live, int]:
    meta = journal.meta
    try:
        plan = Plan.from_dict(meta["plan"])
        kind = ShardRouter if "assignment" in meta["router"] else Router
        router: Live = kind.from_dict(meta["router"])
        pieces = cut(plan, **meta["cut"])
        options = Options(**meta["options"], prepare=prepare)
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"{journal.path}: cannot be read: {error}") from error
    return plan, pieces, options, router, router.epoch + 1


def _status(machine: Machine, epoch: int) -> Status:
    rows = []
    done = total = 0.0
    for piece, it in zip(machine.pieces, machine.progress, strict=True):
        there = it.holder is Side.TARGET
        rows.append(PieceStatus(piece, it.state, piece.target if there else piece.source, it.stuck, it.note))
        total += piece.share
        done += piece.share * there
    fraction = done / total if total else float(machine.mode is Mode.OVER)
    return Status(machine.mode, epoch, fraction, tuple(rows))


def _is_async(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def _reason(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

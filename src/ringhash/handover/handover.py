"""The handover as its users see it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ringhash.errors import HandoverError, JournalError, StalePlanError
from ringhash.handover.driver import Driver, Hooks
from ringhash.handover.journal import FileJournal, Journal, MemoryJournal, Opener, opener
from ringhash.handover.ledger import Ledger
from ringhash.handover.mover import Callback, Mover, functions_of
from ringhash.handover.pieces import By, Piece, cut
from ringhash.handover.record import OnTimeout, Options, Record
from ringhash.handover.status import Status, status_of
from ringhash.placement import verified
from ringhash.plan import Plan
from ringhash.records import field

if TYPE_CHECKING:
    from ringhash.routing import Router

__all__ = ["Handover", "read_status"]

_OPTIONAL_CALLS = ("prepare", "hold", "undo", "finish")


class Handover:
    """Carry out a plan piece by piece, so that no key ever has two owners.

    Of each piece the old owner stops and confirms it, the new owner starts and confirms it, and from
    then on the router names the new owner. A crash, a time-out or an error never gives a piece away.
    `run` (threads) or `arun` (asyncio) do it; both return how far they came. Its methods may be
    called from any thread.

    Args:
        router: The `Router` that the plan is of. It refuses other changes meanwhile.
        plan: A plan of that router, made at its epoch.
        mover: An object with the calls as methods, see `Mover`; or give them as functions:
        stop: Called with a `Piece`: `piece.source` takes no new work of it and finishes what it
            holds. Returning confirms it; raising, or returning False, means it failed.
        start: Called when the stop was confirmed: `piece.target` takes work.
        prepare: Called before the stop: `piece.target` gets what it needs. Nothing was given away yet.
        hold: Called again and again while a prepared piece waits: `piece.target` catches up.
        undo: Called when a preparation or a stop failed: `piece.source` keeps the piece. Without
            it, `start` is called with the piece reversed after a stop, and nothing otherwise.
        finish: Called after `finish()`: what `piece.source` still has of the piece may go.
        by: "pair": all ranges of one source and target are one piece; "range": each is one.
        max_share: The largest part of all keys in one piece; larger ones are split.
        pause: Seconds between the end of a piece and the begin of the next, and between two `hold`.
        timeout: Seconds that each call may take; or of each step: {"prepare": 7200, "stop": 30}.
        on_timeout: "keep": a piece that timed out stays with its old owner and the next one follows;
            "abort": likewise, and no other one follows.
        parallel: How many pieces may be in hand at once; never two of one node.
        ahead: How many more may prepare meanwhile.
        wait: Whether a prepared piece waits for `go`.
        behind: Whether it waits for the handover that runs, if one does. The plan is then made from
            `router.running.after`.
        journal: A file that is not there yet, or a function that opens a `Journal`. Without it a crash
            is the end of the handover.
        progress: Called with a `Status` after every change.
        on_epoch: Called with `router.to_dict()` at every epoch, for other routers to `follow`.
        clock: Seconds that never go backwards.

    Each call may be a function or a coroutine function. After a crash it may be made again for the same
    piece, with `piece.repeat` set, so it must be idempotent. `progress` and `on_epoch` are functions;
    their errors are logged and change nothing.

    Raises:
        StalePlanError: The plan was made for another placement or epoch.
        HandoverRunningError: Another handover of this router is under way.
        JournalError: The journal is there already.
        ValueError: An option is out of its range.
        TypeError: `stop` or `start` is missing.

    >>> from ringhash import Router
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
        router: Router,
        plan: Plan,
        mover: Mover | None = None,
        *,
        stop: Callback | None = None,
        start: Callback | None = None,
        prepare: Callback | None = None,
        hold: Callback | None = None,
        undo: Callback | None = None,
        finish: Callback | None = None,
        by: By = "pair",
        max_share: float | None = None,
        pause: float = 0.2,
        timeout: float | Mapping[str, float] = 60.0,
        on_timeout: OnTimeout = "keep",
        parallel: int = 1,
        ahead: int = 0,
        wait: bool = False,
        behind: bool = False,
        journal: str | Path | Opener | None = None,
        progress: Callable[[Status], object] | None = None,
        on_epoch: Callable[[dict[str, object]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        functions = functions_of(
            mover,
            {"stop": stop, "start": start, "prepare": prepare, "hold": hold, "undo": undo, "finish": finish},
        )
        calls = frozenset(name for name in _OPTIONAL_CALLS if name in functions)
        options = Options(pause, timeout, on_timeout, parallel, ahead, wait, calls=calls)
        pieces = cut(plan, by, max_share)
        opens = _InMemory() if journal is None else opener(journal)
        self._driver = Driver(
            router, plan, pieces, options, functions, opens, _hooks(progress, on_epoch), clock
        )
        later = behind and self._driver.check_behind()
        if not later:
            router.check_plan(plan)

        def meta() -> dict[str, object]:
            return {
                "plan": plan.to_dict(),
                "router": router.to_dict(),
                "cut": {"by": by, "max_share": max_share},
                "options": options.to_dict(),
                "calls": sorted(calls),
            }

        self._driver.make_journal(meta, later)

    @classmethod
    def resume(
        cls,
        journal: str | Path | Opener,
        mover: Mover | None = None,
        *,
        stop: Callback | None = None,
        start: Callback | None = None,
        prepare: Callback | None = None,
        hold: Callback | None = None,
        undo: Callback | None = None,
        finish: Callback | None = None,
        router: Router | None = None,
        progress: Callable[[Status], object] | None = None,
        on_epoch: Callable[[dict[str, object]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return the handover of a journal, to go on where the process that wrote it ended.

        A call whose answer is not in the journal is made again, with `piece.repeat`. The process that
        wrote the journal, should it still live, fails at its next step. Cost: O(pieces + records).

        Args:
            journal: The file, or what opens the journal.
            mover: As for `Handover`; so are the functions, the hooks and `clock`.
            router: A router with the placement from before the handover. Without it one is made from
                the journal; it is the `router` of what is returned.

        Raises:
            JournalError: There is no such journal, or it is damaged.
            StalePlanError: The router has another placement than the handover began with.
            TypeError: A call is missing that the handover began with.
        """
        functions = functions_of(
            mover,
            {"stop": stop, "start": start, "prepare": prepare, "hold": hold, "undo": undo, "finish": finish},
        )
        opens = opener(journal)
        opened = opens(None)
        try:
            calls = frozenset(name for name in _OPTIONAL_CALLS if name in functions)
            found = _read(opened, calls)
            records = list(opened.records())
            missing = sorted(set(_began_with(opened)) - functions.keys())
            if missing:
                raise TypeError(f"the handover began with {', '.join(missing)}; give it too")
            before = _router_of(opened, found[0])
            self = cls.__new__(cls)
            self._driver = Driver(
                before if router is None else router,
                *found,
                functions,
                opens,
                _hooks(progress, on_epoch),
                clock,
            )
            _replay(opened, self._driver.read_journal, records)
        finally:
            opened.close()
        self._driver.enter()
        return self

    # --- what can be asked and said at any time, from any thread ---

    @property
    def router(self) -> Router:
        """The router that it changes."""
        return self._driver.router

    @property
    def plan(self) -> Plan:
        """The plan that it carries out."""
        return self._driver.plan

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, in the order in which they go."""
        return self._driver.pieces

    def status(self) -> Status:
        """Return how far the handover is."""
        return self._driver.status()

    def go(self, piece: Piece | int | None = None) -> None:
        """Let prepared pieces be cut over when their turn comes: one, by itself or its number, or all."""
        number = piece.number if isinstance(piece, Piece) else piece
        if number is not None and not 0 <= number < len(self.pieces):
            raise ValueError(f"there is no piece {number}; there are {len(self.pieces)}, from 0")
        self._driver.post("go", "" if number is None else str(number))

    def abort(self) -> None:
        """Finish the pieces in hand and begin no other; `run` then returns.

        What is done stays with its new owners and the rest with its old ones, and so the router
        routes, until `retry` or `reverse` and another `run`. What is prepared stays prepared.
        """
        self._driver.post("abort")

    def reverse(self) -> None:
        """Hand everything that is done back to its old owners, in the same steps.

        A piece that is between two owners is finished first; a preparation is undone. Call `run` again
        if it has returned.

        Raises:
            HandoverError: The handover is over, or was finished. Plan the inverse: `plan.inverse()`.
        """
        machine = self._driver.machine
        if machine.over:
            raise HandoverError("the handover is over, and its plan is applied; plan the inverse")
        if machine.finishing:
            raise HandoverError("the finish has begun, and there is no way back; plan the inverse later")
        self._driver.post("reverse")

    def finish(self) -> None:
        """Let the old owners throw away what they still have: from here on there is no way back.

        For a handover that has a `finish`, whose pieces are all there. Call `run` again.

        Raises:
            HandoverError: There is nothing to finish yet, or there is no `finish`.
        """
        machine = self._driver.machine
        if not machine.awaits_finish and not machine.finishing:
            raise HandoverError(
                "there is nothing to finish: the handover needs a `finish`, and all pieces at their targets"
            )
        self._driver.post("finish")

    def retry(self) -> None:
        """Go on after an abort, and try again what was kept, failed or unfinished. Call `run` again."""
        self._driver.post("retry")

    def lost(self, name: str) -> None:
        """Say that a node is gone for good and serves nothing: what it would have to stop is stopped.

        A handover never decides this by itself, since a node that does not answer may be serving.
        """
        self._driver.post("lost", name)

    # --- carrying out ---

    def run(self) -> Status:
        """Carry the plan out, as far as it goes, and return how far that was; threads make the calls.

        If it is interrupted, by Ctrl-C or a full disk, it can be called again, and goes on from what
        the journal says.

        Raises:
            HandoverTaken: Another process has gone on with the handover. This one has done nothing
                since.
            JournalError: The journal cannot be written. Nothing that is not in it has been done.
            HandoverRunningError: Another handover of this router is under way.
        """
        from ringhash.handover.threads import run_with_threads  # noqa: PLC0415

        run_with_threads(self._driver)
        return self.status()

    async def arun(self) -> Status:
        """As `run`, on the event loop; functions that are no coroutines are called in threads.

        A coroutine that takes too long is cancelled. The journal is written on the loop: some
        milliseconds a transition, where the disk is slow.
        """
        from ringhash.handover.tasks import run_with_tasks  # noqa: PLC0415 - asyncio is slow to load

        await run_with_tasks(self._driver)
        return self.status()

    def __repr__(self) -> str:
        return f"<Handover of {len(self.pieces)} pieces, {self.status()}>"


def read_status(journal: str | Path | Opener) -> Status:
    """Return how far the handover of a journal is; it may be under way in another process.

    A file is only read, whatever it is.

    Raises:
        JournalError: The file is missing, is not a journal, or is damaged.
    """
    opened = journal(None) if callable(journal) else FileJournal(journal, read_only=True)
    try:
        _, pieces, options = _read(opened, frozenset())
        calls = frozenset(_began_with(opened))
        options = Options(**{**_options_of(opened.meta), "calls": calls})
        ledger: list[Ledger] = []
        _replay(
            opened,
            lambda records: ledger.append(Ledger(pieces, options, records=records)),
            list(opened.records()),
        )
        found = ledger[0]
        first = found.first
        epoch = opened.meta["router"]["epoch"] if first is None else first + found.changes + found.over
    finally:
        opened.close()
    return status_of(found, epoch)


class _InMemory:
    """Opens the one journal of a handover that has no other."""

    def __init__(self) -> None:
        self._journal: MemoryJournal | None = None

    def __call__(self, meta: Mapping[str, object] | None) -> Journal:
        if meta is not None:
            self._journal = MemoryJournal(meta)
        assert self._journal is not None  # noqa: S101
        return self._journal


def _hooks(
    progress: Callable[[Status], object] | None, on_epoch: Callable[[dict[str, object]], object] | None
) -> Hooks:
    hooks: dict[str, object] = {"progress": progress, "on_epoch": on_epoch}
    for name, hook in hooks.items():
        if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
            raise TypeError(f"{name} must be a plain function, not {hook!r}")
    return Hooks(progress, on_epoch)


# --- reading a journal ---


def _where(journal: Journal) -> str:
    return str(getattr(journal, "path", "the journal"))


def _options_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    return dict(meta["options"])


def _read(journal: Journal, calls: frozenset[str]) -> tuple[Plan, tuple[Piece, ...], Options]:
    meta = journal.meta
    try:
        plan = Plan.from_dict(meta["plan"])
        pieces = cut(plan, **meta["cut"])
        options = Options(**{**_options_of(meta), "calls": calls})
        field(meta["router"], "router", "epoch", int)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"{_where(journal)}: cannot be read: {error}") from error
    return plan, pieces, options


def _began_with(journal: Journal) -> list[str]:
    calls = journal.meta.get("calls")
    if not isinstance(calls, list) or not set(calls) <= set(_OPTIONAL_CALLS):
        raise JournalError(f"{_where(journal)}: cannot be read: calls must be a list of calls, not {calls!r}")
    return calls


def _router_of(journal: Journal, plan: Plan) -> Router:
    """The router of a journal; its plan must be the one that leads from there to where it says."""
    from ringhash.routing import Router  # noqa: PLC0415 - only a resumption makes one

    try:
        router = Router.from_dict(journal.meta["router"])
        verified(router.placement, plan)
    except (KeyError, TypeError, ValueError, StalePlanError) as error:
        raise JournalError(f"{_where(journal)}: cannot be resumed: {error}") from error
    return router


def _replay(journal: Journal, read: Callable[[list[Record]], object], records: list[Record]) -> None:
    try:
        read(records)
    except (KeyError, TypeError, ValueError, HandoverError) as error:
        raise JournalError(f"{_where(journal)}: its records cannot be read: {error}") from error

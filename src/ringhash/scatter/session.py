"""What a run of a scatter is, whoever drives it: the machine, the answers so far, and the rows to give out.

A driver (threads or tasks) does four things: it carries out the commands of `due`, waits for the next event
or until `wake_at`, hands the event to `event`, and gives out what `take` returns. It decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ringhash.scatter.budget import Latencies
from ringhash.scatter.coverage import Coverage
from ringhash.scatter.errors import ScatterError
from ringhash.scatter.machine import Call, Cancel, Fan
from ringhash.scatter.merge import Merger, Unique
from ringhash.scatter.metrics import ScatterMetrics
from ringhash.scatter.order import Order, Row

__all__ = ["Ask", "Event", "Merging", "More", "Observer", "Session"]


class More(NamedTuple):
    """The stream of this call may read one block more."""

    token: int


class Event(NamedTuple):
    """What a call did: returned a value, handed in a block, came to its end, or raised an error."""

    kind: Literal["value", "block", "end", "error"]
    token: int
    payload: Any = None


class Ask:
    """One question to one node: what your `call` is given.

    `part` is what is asked for and `node` where; they differ if the parts are shards of nodes, or if a
    replica is asked. `attempt` counts the calls of this part from 0. `after` holds the values of the last
    row of the page before, or None.

    Thread-safe.
    """

    __slots__ = (
        "_callbacks",
        "_cancelled",
        "_clock",
        "_deadline",
        "_lock",
        "after",
        "attempt",
        "node",
        "part",
    )

    def __init__(
        self,
        part: str,
        node: str,
        attempt: int = 0,
        *,
        after: tuple[Any, ...] | None = None,
        deadline: float | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.part, self.node, self.attempt, self.after = part, node, attempt, after
        self._deadline, self._clock = deadline, clock
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def timeout(self) -> float | None:
        """Seconds left until the deadline of the whole scatter, never below 0; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock())

    @property
    def cancelled(self) -> bool:
        """Whether the answer is not wanted any more."""
        return self._cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `callback` called when the answer is not wanted any more; at once if it is so already.

        A thread cannot be stopped from outside, so give what ends the wait: `connection.interrupt` of
        sqlite3, `connection.cancel` of psycopg, `socket.shutdown`. It runs on a thread of its own, and
        may run although the call has just ended; what it raises is ignored.
        """
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def _cancel(self) -> list[Callable[[], object]]:
        """Mark it, and return what to call."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def __repr__(self) -> str:
        where = "" if self.node == self.part else f" at {self.node!r}"
        return f"<Ask {self.part!r}{where}, attempt {self.attempt}>"


class Observer(NamedTuple):
    """Who is told what happened: the latencies that hedges go by, and the metrics if there are any."""

    latencies: Latencies
    metrics: ScatterMetrics | None


class Driven(Protocol):
    """What a driver drives."""

    def due(self, now: float) -> Sequence[Call | Cancel | More]: ...

    def wake_at(self) -> float | None: ...

    def event(self, event: Event, now: float) -> None: ...


class Session:
    """A scatter whose calls return values."""

    def __init__(self, fan: Fan, observer: Observer, now: float) -> None:
        self.fan = fan
        self.values: dict[str, Any] = {}
        self.slowest: tuple[str, float] | None = None  # the node and the seconds of the slowest answer
        self._observer = observer
        self._began = now
        self._calls: dict[int, tuple[Call, float]] = {}
        self._closed = False

    def due(self, now: float) -> Sequence[Call | Cancel | More]:
        """Return the commands that are due."""
        commands = self.fan.due(now)
        for command in commands:
            if isinstance(command, Call):
                self._calls[command.token] = command, now
        return commands

    def wake_at(self) -> float | None:
        """Return when `due` must be called next if no event comes before."""
        return self.fan.wake_at()

    @property
    def over(self) -> bool:
        """Whether nothing more is waited for."""
        return self.fan.over

    def event(self, event: Event, now: float) -> None:
        """Take in what a call did."""
        if event.kind == "value":
            if self.fan.answered(event.token, now):
                self._timed(event.token, now)
                self.values[self._calls[event.token][0].part] = event.payload
        else:
            self.fan.failed(event.token, event.payload, now)

    def finish(self, now: float) -> Coverage:
        """Return the coverage, once it is enough; count the run in the metrics.

        Raises:
            ScatterError: Too few parts answered.
        """
        coverage = self.fan.coverage()
        met = self.fan.met
        if not self._closed and self._observer.metrics is not None:
            self._observer.metrics.count(coverage, met, now - self._began, self.slowest)
        self._closed = True
        if not met:
            late = self.fan.rules.deadline is not None and coverage.timed_out
            when = f" within {self.fan.rules.deadline:g} s" if late else ""
            raise ScatterError(f"{coverage}{when}, which is too few: {coverage.reasons()}", coverage)
        return coverage

    def _timed(self, token: int, now: float) -> None:
        call, began = self._calls[token]
        seconds = now - began
        self._observer.latencies.add(seconds)
        if self.slowest is None or seconds > self.slowest[1]:
            self.slowest = call.node, seconds


class Merging(Session):
    """A scatter whose calls return sorted streams of rows, which are merged."""

    def __init__(
        self,
        fan: Fan,
        observer: Observer,
        now: float,
        *,
        order: Order,
        names: Sequence[str],
        limit: int | None = None,
        unique: Unique | None = None,
    ) -> None:
        super().__init__(fan, observer, now)
        self._merger = Merger(order, names)
        self._index = {name: i for i, name in enumerate(names)}
        self._left = limit
        self._unique = unique
        self._more: list[More] = []
        self._winner: dict[int, int] = {}  # of each stream, the call that feeds it
        self._ended: set[int] = set()  # streams that the merger knows to be over
        self._known_missing = 0

    def due(self, now: float) -> Sequence[Call | Cancel | More]:
        """Return the commands that are due."""
        commands = [*super().due(now), *self._more]
        self._more.clear()
        return commands

    @property
    def over(self) -> bool:
        """Whether all rows were given out, or no more are wanted."""
        return self.fan.over and (self._left == 0 or self._merger.over or not self.fan.met)

    def event(self, event: Event, now: float) -> None:
        """Take in what a call did."""
        call = self._calls[event.token][0]
        stream = self._index[call.part]
        if event.kind == "block":
            first = self._winner.get(stream) is None
            if self.fan.opened(event.token, now):
                if first:
                    self._winner[stream] = event.token
                    self._timed(event.token, now)
                self._merger.feed(stream, event.payload)
                self._begun()
        elif event.kind == "end":
            first = self._winner.get(stream) is None
            if self.fan.answered(event.token, now):
                if first:
                    self._timed(event.token, now)
                self._end(stream)
        else:
            self.fan.failed(event.token, event.payload, now)
        self._end_missing()

    def take(self) -> list[Row]:
        """Return the rows that can be given out now."""
        self._end_missing()
        if self._left == 0 or (self.fan.over and not self.fan.met):
            return []
        rows = self._merger.take()
        self._begun()
        if self._unique is not None:
            rows = self._unique(rows)
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
            if self._left == 0:
                self.fan.enough()
        return rows

    @property
    def can_take(self) -> bool:
        """Whether `take` may give something without another event."""
        return not self._merger.hungry and not self._merger.over and self._left != 0

    def _begun(self) -> None:
        for stream in self._merger.begun:
            if stream not in self._ended:
                self._more.append(More(self._winner[stream]))
        self._merger.begun.clear()

    def _end(self, stream: int) -> None:
        self._ended.add(stream)
        self._merger.end(stream)

    def _end_missing(self) -> None:
        """A part that is missing for good has no more rows."""
        while self._known_missing < len(self.fan.missing):
            self._end(self._index[self.fan.missing[self._known_missing]])
            self._known_missing += 1

"""The state machine of one scatter: events in, commands out, and no input or output of its own.

    WAITING --call--> ASKED --opened--> OPEN --answered--> ANSWERED
                       |  ^              |
                error  |  | retry        | error, deadline
                       v  |              v
                      (again)           FAILED, TIMED_OUT or SKIPPED

A part has one attempt under way, or two while it is hedged. The first attempt that opens wins and the
other is cancelled. A call that returns a value opens and answers in one event; a call that returns a
stream opens with its first block and answers with its end.

Four rules hold after every event:

1. No more than `limit` calls are under way, and no more than `per_node` at any node. An open stream
   waits for its reader and is not counted.
2. There is one deadline, for all parts together. What waits for its turn then is never called.
3. As soon as the need cannot be met any more, everything under way is cancelled.
4. An event of an attempt that was cancelled changes nothing.

Time is a number that the caller gives, so a test can have a clock of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from ringhash.scatter.budget import Budget, Hedge, Retry
from ringhash.scatter.coverage import Coverage, Missing, Need, Reason
from ringhash.scatter.parts import Part

__all__ = ["Call", "Cancel", "Fan", "Rules"]


class Call(NamedTuple):
    """Ask `node` for `part`; report back with `token`. `attempt` counts from 0 within the part."""

    token: int
    part: str
    node: str
    attempt: int


class Cancel(NamedTuple):
    """The answer of this call is not wanted any more."""

    token: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How a scatter goes about it; `Scatter` explains each.

    Raises:
        ValueError: A value is out of range; the message names it.
    """

    limit: int = 16
    per_node: int | None = None
    deadline: float | None = None
    need: Need = field(default_factory=Need)
    retry: Retry | None = None
    hedge: Hedge | None = None

    def __post_init__(self) -> None:
        if self.limit < 1 or (self.per_node is not None and self.per_node < 1):
            raise ValueError("limit and per_node must be at least 1")
        if self.deadline is not None and not 0 < self.deadline < float("inf"):
            raise ValueError(f"deadline must be finite and above 0 seconds, not {self.deadline}")


@dataclass(slots=True)
class _Progress:
    """A part on its way. `attempts` are the tokens under way, each with its node."""

    part: Part
    attempts: dict[int, str] = field(default_factory=dict)
    made: int = 0
    retries: int = 0
    turn: int = 0  # which of the part's nodes comes next
    opened: int | None = None
    answered: bool = False
    missing: Missing | None = None

    @property
    def over(self) -> bool:
        return self.answered or self.missing is not None


class Fan:
    """One scatter without its input and output.

    Give it events (`opened`, `answered`, `failed`, `enough`) and the time, and carry out the commands
    that `due` returns.

    Args:
        parts: Who is asked, each part once.
        rules: How.
        now: The time at which it starts.
        shares: The share of the keys behind each part, summing up to 1; None if it is not known.
        down: Nodes that are not asked.
        hedge_after: Seconds after which a call is hedged; None: never.

    >>> fan = Fan([Part("a", ("a",)), Part("b", ("b",))], Rules(deadline=1.0), now=0.0)
    >>> first, second = fan.due(0.0)
    >>> fan.answered(first.token, 0.1)
    True
    >>> fan.due(1.0), fan.over, str(fan.coverage())
    ([Cancel(token=1)], True, '1 of 2 answered, 1 timed out')
    """

    def __init__(
        self,
        parts: Sequence[Part],
        rules: Rules,
        now: float,
        *,
        shares: Mapping[str, float] | None = None,
        down: frozenset[str] = frozenset(),
        hedge_after: float | None = None,
    ) -> None:
        self.rules = rules
        self.deadline = None if rules.deadline is None else now + rules.deadline
        self.calls = self.retries = self.hedges = 0
        self.missing: list[str] = []  # parts that are missing for good, in the order of time
        self.parts = tuple(part.name for part in parts)
        self._progress = {part.name: _Progress(part) for part in parts}
        self._keys = shares
        self._shares = shares or dict.fromkeys(self._progress, 1 / max(1, len(self._progress)))
        self._waiting = deque(self._progress.values())
        self._tokens: dict[int, _Progress] = {}
        self._per_node: Counter[str] = Counter()
        self._calling = 0
        self._left = len(self._progress)
        self._hedge_after = hedge_after
        self._hedges: deque[tuple[float, int]] = deque()  # in the order of time: all wait as long
        self._out: list[Call | Cancel] = []
        if rules.retry is not None:
            cast("Budget", rules.retry.budget).earn(len(self._progress))
        if rules.hedge is not None:
            cast("Budget", rules.hedge.budget).earn(len(self._progress))
        for it in self._progress.values():
            up = tuple(node for node in it.part.nodes if node not in down)
            if up:
                it.part = Part(it.part.name, up)
            else:
                self._miss(it, "skipped", it.part.nodes[0], "its node is down")
        self._hopeless()

    # --- what can be asked ---

    @property
    def over(self) -> bool:
        """Whether every part has answered or is missing for good."""
        return self._left == 0

    @property
    def met(self) -> bool:
        """Whether the parts that answered are enough. No answer at all never is."""
        answered = [name for name, it in self._progress.items() if it.answered]
        return bool(answered) and self.rules.need.met(answered, self._shares)

    def wake_at(self) -> float | None:
        """Return when `due` must be called next if no event comes before; None: no need."""
        while self._hedges and self._hedges[0][1] not in self._tokens:
            self._hedges.popleft()
        if self._hedges and (self.deadline is None or self._hedges[0][0] < self.deadline):
            return self._hedges[0][0]
        return self.deadline

    def node_of(self, part: str) -> str:
        """Return the node that a part is or was asked at last."""
        it = self._progress[part]
        return next(reversed(it.attempts.values()), it.part.nodes[0])

    def coverage(self) -> Coverage:
        """Return the count of the parts; those still under way count as skipped."""
        missing = {
            name: it.missing or Missing("skipped", self.node_of(name), "still under way")
            for name, it in self._progress.items()
            if not it.answered
        }
        reasons = Counter(it.reason for it in missing.values())
        answered = len(self._progress) - len(missing)
        keys = None
        if self._keys is not None:
            # Of all parts this is 1.0, and not a sum that is nearly so.
            keys = sum(s for name, s in self._keys.items() if name not in missing) if missing else 1.0
        return Coverage(
            asked=len(self._progress),
            answered=answered,
            timed_out=reasons["timed out"],
            failed=reasons["failed"],
            skipped=reasons["skipped"],
            keys=keys,
            calls=self.calls,
            retries=self.retries,
            hedges=self.hedges,
            missing=missing,
        )

    # --- events ---

    def due(self, now: float) -> list[Call | Cancel]:
        """Return what must be done now: calls to make, calls to cancel."""
        if self.deadline is not None and now >= self.deadline and self._left:
            self._too_late()
        elif self._left:
            self._hedge(now)
            self._call(now)
        out, self._out = self._out, []
        return out

    def opened(self, token: int, now: float) -> bool:
        """The first block of a stream is here. Returns False if nobody wants it any more."""
        it = self._tokens.get(token)
        if it is None or it.over:
            return False
        if it.opened is None:
            self._free(it.attempts[token])
            it.opened = token
            for other in [other for other in it.attempts if other != token]:
                self._cancel(it, other)
        self._check_late(now)
        return not it.over

    def answered(self, token: int, now: float) -> bool:
        """A call is over and its answer is whole. Returns False if nobody wants it any more."""
        it = self._tokens.get(token)
        if it is None or not self.opened(token, now):
            return False
        del self._tokens[token]
        it.attempts.pop(token)
        it.answered = True
        self._left -= 1
        return True

    def failed(self, token: int, error: BaseException, now: float) -> None:
        """A call raised an error. It is retried if the rules say so and nothing of it was used."""
        it = self._tokens.pop(token, None)
        if it is None or it.over:
            return
        node = it.attempts.pop(token)
        broke = it.opened == token
        if not broke:
            self._free(node)
        if it.attempts and not broke:
            return  # the other attempt may still answer
        retry = self.rules.retry
        if (
            retry is not None
            and not broke
            and it.retries < retry.times
            and (self.deadline is None or now < self.deadline)
            and retry.when(error)
            and cast("Budget", retry.budget).take()
        ):
            it.retries += 1
            self.retries += 1
            self._waiting.append(it)
            return
        self._miss(it, "failed", node, _text(error), error)
        self._hopeless()

    def enough(self) -> None:
        """The reader needs no more: open streams count as answered, and all else is cancelled."""
        for it in self._progress.values():
            if it.over:
                continue
            if it.opened is not None:
                it.answered = True
                self._left -= 1
            else:
                self._miss(it, "skipped", self.node_of(it.part.name), "the reader needed no more")
            for token in list(it.attempts):
                self._cancel(it, token)

    # --- how ---

    def _call(self, now: float) -> None:
        held: list[_Progress] = []
        while self._waiting and self._calling < self.rules.limit:
            it = self._waiting.popleft()
            if it.over:
                continue
            node = it.part.nodes[it.turn % len(it.part.nodes)]
            if self._full(node):
                held.append(it)
            else:
                self._start(it, node, now)
        self._waiting.extendleft(reversed(held))

    def _full(self, node: str) -> bool:
        return self.rules.per_node is not None and self._per_node[node] >= self.rules.per_node

    def _start(self, it: _Progress, node: str, now: float) -> None:
        token = self.calls
        self.calls += 1
        self._calling += 1
        self._per_node[node] += 1
        it.attempts[token] = node
        it.turn += 1
        self._tokens[token] = it
        self._out.append(Call(token, it.part.name, node, it.made))
        it.made += 1
        if self._hedge_after is not None and len(it.part.nodes) > 1 and it.made == 1:
            self._hedges.append((now + self._hedge_after, token))

    def _hedge(self, now: float) -> None:
        hedge = self.rules.hedge
        while hedge is not None and self._hedges and self._hedges[0][0] <= now:
            _, token = self._hedges.popleft()
            it = self._tokens.get(token)
            if it is None or it.over or it.opened is not None or self._calling >= self.rules.limit:
                continue
            node = it.part.nodes[it.turn % len(it.part.nodes)]
            if (
                node not in it.attempts.values()
                and not self._full(node)
                and cast("Budget", hedge.budget).take()
            ):
                self.hedges += 1
                self._start(it, node, now)

    def _free(self, node: str) -> None:
        self._calling -= 1
        self._per_node[node] -= 1

    def _cancel(self, it: _Progress, token: int) -> None:
        node = it.attempts.pop(token)
        self._tokens.pop(token, None)
        if it.opened != token:
            self._free(node)
        self._out.append(Cancel(token))

    def _miss(
        self, it: _Progress, reason: Reason, node: str, note: str, error: BaseException | None = None
    ) -> None:
        it.missing = Missing(reason, node, note, error)
        self.missing.append(it.part.name)
        self._left -= 1

    def _check_late(self, now: float) -> None:
        if self.deadline is not None and now >= self.deadline:
            self._too_late()

    def _too_late(self) -> None:
        for it in self._progress.values():
            if it.over:
                continue
            node = self.node_of(it.part.name)
            if it.made:
                self._miss(it, "timed out", node, f"no answer within {self.rules.deadline:g} s")
            else:
                self._miss(it, "skipped", node, "the deadline came before its turn")
            for token in list(it.attempts):
                self._cancel(it, token)

    def _hopeless(self) -> None:
        """Give up what is under way if even its answers could not meet the need."""
        possible = [name for name, it in self._progress.items() if it.missing is None]
        if possible and self.rules.need.met(possible, self._shares):
            return
        for it in self._progress.values():
            if it.over:
                continue
            node = self.node_of(it.part.name)
            self._miss(it, "skipped", node, "given up, since the answer could not be complete")
            for token in list(it.attempts):
                self._cancel(it, token)


def _text(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__

"""The words of a handover: states of a piece, modes of the whole, a line of the journal, options."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

__all__ = ["Call", "Mode", "OnTimeout", "Options", "Record", "Side", "State"]

OnTimeout = Literal["keep", "abort"]
Call = Literal["prepare", "hold", "stop", "start", "undo", "finish", "cancel"]

STEPS = ("prepare", "hold", "stop", "start", "undo", "finish")  # each may have a time-out of its own
_SECONDS = 60.0


class State(enum.StrEnum):
    """Where a piece is on its way; `machine.py` draws how one follows another."""

    PENDING = "PENDING"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    DONE = "DONE"
    KEPT = "KEPT"
    FAILED = "FAILED"
    UNDONE = "UNDONE"
    FINISHING = "FINISHING"
    FINISHED = "FINISHED"
    UNFINISHED = "UNFINISHED"


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
    FINISH = "FINISH"
    OVER = "OVER"


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
        pause: Seconds between the end of a piece and the begin of the next, and between two catch-ups.
        timeout: Seconds that each call may take; or a mapping from "prepare", "hold", "stop",
            "start", "undo" and "finish" to seconds, 60 for those it leaves out.
        on_timeout: "keep": a piece whose step timed out stays with its old owner, and the next
            piece follows. "abort": likewise, and no next piece follows.
        parallel: Pieces in hand at a time; never two of one node.
        ahead: Pieces that may prepare in addition to those in hand.
        wait: Whether a prepared piece waits for `go`.
        tries: How often a step on the way back, or a `finish`, is tried.
        calls: The optional calls that there are: "prepare", "hold", "undo", "finish".

    Raises:
        ValueError: An option is out of its range; the message names it.

    >>> options = Options(timeout={"prepare": 7200})
    >>> options.limit("prepare"), options.limit("stop")
    (7200.0, 60.0)
    """

    pause: float = 0.2
    timeout: float | Mapping[str, float] = _SECONDS
    on_timeout: OnTimeout = "keep"
    parallel: int = 1
    ahead: int = 0
    wait: bool = False
    tries: int = 3
    calls: frozenset[str] = frozenset()
    _limits: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is_number(self.pause) or not 0 <= self.pause < float("inf"):
            raise ValueError(f"pause must be finite and not negative, not {self.pause!r}")
        object.__setattr__(self, "_limits", MappingProxyType(_limits_of(self.timeout)))
        if self.on_timeout not in ("keep", "abort"):
            raise ValueError(f"on_timeout must be 'keep' or 'abort', not {self.on_timeout!r}")
        for name, least in (("parallel", 1), ("ahead", 0), ("tries", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        if type(self.wait) is not bool:
            raise ValueError(f"wait must be True or False, not {self.wait!r}")

    def limit(self, call: str) -> float:
        """Return the seconds that a call of that name may take."""
        return self._limits[call]

    def to_dict(self) -> dict[str, object]:
        """Return what a journal keeps of them."""
        return {
            "pause": self.pause,
            "timeout": dict(self._limits),
            "on_timeout": self.on_timeout,
            "parallel": self.parallel,
            "ahead": self.ahead,
            "wait": self.wait,
        }


def _limits_of(timeout: float | Mapping[str, float]) -> dict[str, float]:
    given: Mapping[str, float] = timeout if isinstance(timeout, Mapping) else dict.fromkeys(STEPS, timeout)
    unknown = [name for name in given if name not in STEPS]
    if unknown:
        raise ValueError(f"timeout: there is no step {unknown[0]!r}; the steps are {', '.join(STEPS)}")
    for name, seconds in given.items():
        if not _is_number(seconds) or not 0 < seconds < float("inf"):
            where = f"timeout[{name!r}]" if isinstance(timeout, Mapping) else "timeout"
            raise ValueError(f"{where} must be finite and above 0, not {seconds!r}")
    return {name: float(given.get(name, _SECONDS)) for name in STEPS}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

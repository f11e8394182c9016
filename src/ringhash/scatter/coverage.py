"""How much of what was asked has answered, counted part by part."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = ["Coverage", "Missing", "Need", "read_need"]

Reason = Literal["timed out", "failed", "skipped"]
SHOWN = 5  # missing parts that a message names


class Missing(NamedTuple):
    """Why a part has no answer: the reason, the node asked last, and a text for the reader."""

    reason: Reason
    node: str
    note: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Who was asked, who answered, and how large a share of the keys stands behind the answers.

    `asked` is always `answered + timed_out + failed + skipped`. A part is *skipped* if it was never
    called or its call was given up because the answer could no longer be complete; *timed out* if the
    deadline passed first; *failed* if its last attempt raised an error. `keys` is the share of the keys
    that the answering parts own, of the keys of all parts; None if the shares are not known. `missing`
    maps each part without an answer to its reason. `calls` counts the calls, with retries and hedges.

    >>> Coverage(asked=4, answered=3, missing={"db-2": Missing("failed", "db-2", "refused")}).complete
    False
    """

    asked: int
    answered: int
    timed_out: int = 0
    failed: int = 0
    skipped: int = 0
    keys: float | None = None
    calls: int = 0
    retries: int = 0
    hedges: int = 0
    missing: Mapping[str, Missing] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every part answered."""
        return self.answered == self.asked

    def __str__(self) -> str:
        text = f"{self.answered} of {self.asked} answered"
        counts = (("timed out", self.timed_out), ("failed", self.failed), ("skipped", self.skipped))
        for what, count in counts:
            if count:
                text += f", {count} {what}"
        if self.keys is not None:
            text += f"; {self.keys:.1%} of the keys"
        return text

    def reasons(self) -> str:
        """Return the missing parts and their reasons as one line; at most five parts are named."""
        order = {"failed": 0, "timed out": 1, "skipped": 2}
        parts = sorted(self.missing.items(), key=lambda item: order[item[1].reason])
        named = [
            f"{part}{'' if it.node == part else f' (asked at {it.node})'}: {it.note}"
            for part, it in parts[:SHOWN]
        ]
        if len(parts) > SHOWN:
            named.append(f"and {len(parts) - SHOWN} more")
        return "; ".join(named)


@dataclass(frozen=True, slots=True)
class Need:
    """What an answer must have: a share of the keys, and the parts in `names`.

    Args:
        share: The least share, above 0 and up to 1. It counts keys if the shares of the parts are known,
            and parts if not.
        names: Parts that must answer, whatever the share.
    """

    share: float = 1.0
    names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or (self.share == 0 and not self.names):
            raise ValueError(f"need must be a share above 0 and up to 1, not {self.share}")

    def met(self, answered: Collection[str], shares: Mapping[str, float]) -> bool:
        """Whether these parts are enough; `shares` sums up to 1 over all parts."""
        if not self.names <= set(answered):
            return False
        if self.share == 1.0:
            return len(answered) == len(shares)
        # A sum of floats may be short of a share by its rounding, never by a part.
        return math.fsum(shares[part] for part in answered) >= self.share - 1e-9


def read_need(need: str | float | Collection[str] | Need) -> Need:
    """Return `need` as a `Need`: "all", a share such as 0.95, or the names that must answer.

    Raises:
        TypeError: It is something else.
        ValueError: It is another text, no names, or a share out of range.
    """
    if isinstance(need, Need):
        return need
    if isinstance(need, str):
        if need != "all":
            raise ValueError(f'need must be "all", a share such as 0.95, or a set of names, not {need!r}')
        return Need()
    if isinstance(need, bool):
        raise TypeError('need must be "all", a share such as 0.95, or a set of names, not a bool')
    if isinstance(need, int | float):
        if need <= 0:
            raise ValueError(f"need must be a share above 0 and up to 1, not {need}")
        return Need(float(need))
    names = frozenset(need)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("need must name at least one part, each by a str")
    return Need(0.0, names)

"""What second attempts may cost: budgets for retries and hedges, and when a hedge is due."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Budget", "Hedge", "Latencies", "Retry"]


class Budget:
    """A budget of extra calls: a share of the first calls, over the life of what it is given to.

    Args:
        ratio: Extra calls for each first call, such as 0.05.
        reserve: Extra calls that may be made at once; the budget starts with as many.

    Thread-safe; several scatters may share one. Method: the retry budget of Finagle, a token bucket that
    first calls fill instead of time.

    >>> budget = Budget(0.5, reserve=1)
    >>> budget.take(), budget.take()
    (True, False)
    >>> budget.earn(2)
    >>> budget.take()
    True
    """

    def __init__(self, ratio: float, reserve: float = 10.0) -> None:
        if not 0 <= ratio <= 1:
            raise ValueError(f"a budget is a share of the calls from 0 to 1, not {ratio}")
        if not 0 <= reserve < float("inf"):
            raise ValueError(f"reserve must be finite and not negative, not {reserve}")
        self.ratio = ratio
        self.reserve = reserve
        self._left = reserve
        self._lock = threading.Lock()

    def earn(self, calls: int) -> None:
        """Add what `calls` first calls are worth, up to the reserve or one run's worth."""
        with self._lock:
            self._left = min(self._left + calls * self.ratio, max(self.reserve, calls * self.ratio))

    def take(self) -> bool:
        """Take one extra call; False if there is none left."""
        with self._lock:
            # Tenths do not add up to one exactly.
            if self._left < 1 - 1e-9:
                return False
            self._left -= 1
            return True


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again where a call failed: at the next replica if there is one, else at the same node.

    Args:
        times: Extra attempts for each part.
        budget: The share of the first calls that retries may add up to, or a `Budget`.
        when: Whether an error is worth a retry; by default every `Exception` is.
    """

    times: int = 1
    budget: float | Budget = 0.1
    when: Callable[[BaseException], bool] = field(default=lambda error: isinstance(error, Exception))

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"times must not be negative, not {self.times}")
        if not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", Budget(self.budget))


@dataclass(frozen=True, slots=True)
class Hedge:
    """Ask a replica as well if the first node is slow, and take the answer that comes first.

    Only parts with `replicas` can be hedged.

    Args:
        after: Seconds to wait before the second call; None takes `quantile` of the calls before.
        quantile: The part of the calls that is not slow; 0.95 hedges the slowest 5 %.
        budget: The share of the first calls that hedges may add up to, or a `Budget`.
        least: Calls that must have come back before `quantile` means something.

    Method: hedged requests, Dean and Barroso, "The Tail at Scale" (2013).
    """

    after: float | None = None
    quantile: float = 0.95
    budget: float | Budget = 0.05
    least: int = 20

    def __post_init__(self) -> None:
        if self.after is not None and not 0 <= self.after < float("inf"):
            raise ValueError(f"after must be finite and not negative, not {self.after}")
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, not {self.quantile}")
        if not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", Budget(self.budget))


class Latencies:
    """How long the last calls took. Thread-safe; memory: 1,024 numbers."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=1024)

    def add(self, seconds: float) -> None:
        """Add the time of a call that came back."""
        self._seconds.append(seconds)

    def quantile(self, quantile: float, least: int) -> float | None:
        """Return the time that this part of the calls stays below; None with fewer than `least` calls."""
        seconds = sorted(self._seconds.copy())
        return seconds[int(quantile * len(seconds))] if len(seconds) >= max(least, 1) else None

"""The guard: refuses automatic changes of the members that look like a cascade."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ringhash.errors import GuardError
from ringhash.plan import Plan

if TYPE_CHECKING:
    from ringhash.routing import Router

__all__ = ["Guard"]

_RULES = ("max_fraction", "min_alive", "cooldown", "grace")


class Guard:
    """Decide whether an automatic change of the members may be made, or a person must decide.

    A detector that is wrong about one node is wrong about many, and each node taken out moves its load
    to the next. Tell the guard what the detector sees (`gone`, `back`), and let it make the changes
    (`apply`). Thread-safe: of two threads that want to change something, one passes.

    Args:
        max_fraction: The largest part of all keys that one change may move. What part a plan moves is
            not known where a placement has no fractions; only 1 allows such a plan.
        min_alive: The least part of the members that must be alive.
        cooldown: Seconds that must have passed since the last change.
        grace: Seconds that a node must have been gone before it may be removed.
        clock: Seconds that never go backwards.

    Raises:
        ValueError: An argument is out of its range.

    Method: the panic threshold of Envoy, the flap damping of BGP (RFC 2439), and the pause of
    Elasticsearch before it moves the shards of a node that left.

    >>> from ringhash import Router
    >>> from ringhash.handover import Guard
    >>> router, guard = Router(["gw-1", "gw-2", "gw-3", "gw-4"]), Guard(grace=0)
    >>> guard.gone("gw-1"); guard.gone("gw-2")
    >>> guard.reasons(router, router.plan(remove=["gw-1"]))
    {'min_alive': '2 of 4 nodes are alive, 50%, and it must be 75%'}
    >>> guard.check(router, router.plan(remove=["gw-1"]), override=["min_alive"])
    """

    def __init__(
        self,
        max_fraction: float = 0.5,
        min_alive: float = 0.75,
        cooldown: float = 300.0,
        grace: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, part in (("max_fraction", max_fraction), ("min_alive", min_alive)):
            if not 0 <= part <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {part}")
        for name, seconds in (("cooldown", cooldown), ("grace", grace)):
            if not 0 <= seconds < float("inf"):
                raise ValueError(f"{name} must be finite and not negative, not {seconds}")
        self.max_fraction = max_fraction
        self.min_alive = min_alive
        self.cooldown = cooldown
        self.grace = grace
        self._clock = clock
        self._lock = threading.Lock()  # held for a few assignments only, never while others' code runs
        self._gone: dict[str, float] = {}
        self._changed: float | None = None
        self._pending: object = None  # of the thread whose change is being made

    def gone(self, name: str) -> None:
        """A node does not answer; the first time counts, until it is `back`."""
        now = self._clock()
        with self._lock:
            self._gone.setdefault(name, now)

    def back(self, name: str) -> None:
        """A node answers again."""
        with self._lock:
            self._gone.pop(name, None)

    def changed(self) -> None:
        """Record that a change was just made; the cooldown begins. `apply` calls this itself."""
        now = self._clock()
        with self._lock:
            self._changed = now

    def reasons(self, router: Router, plan: Plan) -> dict[str, str]:
        """Return the rules that speak against a plan, by name, and why; empty if it may be made.

        Cost: O(nodes + moves).
        """
        now = self._clock()
        with self._lock:
            gone, cooling = dict(self._gone), self._cooling(now)
        found = self._steady(router, plan, gone, now)
        return {**found, "cooldown": cooling} if cooling else found

    def _cooling(self, now: float) -> str:
        """Why it is too early for a change; empty if it is not. Called under the lock."""
        if self.cooldown == 0:
            return ""
        if self._pending is not None:
            return f"a change is being made, and {self.cooldown:g} s must pass after it"
        if self._changed is not None and now - self._changed < self.cooldown:
            return f"the last change was {now - self._changed:.0f} s ago, and {self.cooldown:g} s must pass"
        return ""

    def _steady(self, router: Router, plan: Plan, gone: dict[str, float], now: float) -> dict[str, str]:
        """The reasons that do not depend on what other threads change."""
        found: dict[str, str] = {}
        fraction = plan.fraction
        if fraction is None and self.max_fraction < 1:
            found["max_fraction"] = (
                "nobody knows what part of all keys would move: this placement has no fractions"
            )
        elif fraction is not None and fraction > self.max_fraction:
            found["max_fraction"] = f"{fraction:.0%} of all keys would move, and {self.max_fraction:.0%} may"
        names = {node.name for node in router.nodes}
        alive = len(names) - len(names & gone.keys())
        if names and alive / len(names) < self.min_alive:
            found["min_alive"] = (
                f"{alive} of {len(names)} nodes are alive, {alive / len(names):.0%}, "
                f"and it must be {self.min_alive:.0%}"
            )
        for change in plan.changes.nodes:
            if change.after is None and change.before is not None:
                name = change.before.name
                since = gone.get(name)
                if since is None and self.grace > 0:
                    found["grace"] = f"nobody has said that {name!r} is gone"
                elif since is not None and now - since < self.grace:
                    found["grace"] = (
                        f"{name!r} has been gone for {now - since:.0f} s, and it must be {self.grace:g} s"
                    )
        return found

    def check(self, router: Router, plan: Plan, override: Iterable[str] = ()) -> None:
        """Return if the plan may be carried out now.

        Another thread may act between your check and your change. `apply` does both in one step.

        Args:
            router: The router to change.
            plan: The change.
            override: Names of rules that a person sets aside for this once: "max_fraction",
                "min_alive", "cooldown" or "grace".

        Raises:
            GuardError: A rule speaks against it that is not overridden; `reasons` has them all.
            ValueError: There is no rule of a name in `override`.
        """
        names = _rules(override)
        left = {name: why for name, why in self.reasons(router, plan).items() if name not in names}
        if left:
            raise GuardError(left)

    def apply(self, router: Router, plan: Plan, override: Iterable[str] = ()) -> None:
        """Check a plan, apply it, and let the cooldown begin, in one step.

        Errors are those of `check` and of `Router.apply`; after one nothing has changed, and no
        cooldown begins.

        >>> from ringhash import Router
        >>> from ringhash.handover import Guard
        >>> router, guard = Router(["gw-1", "gw-2"]), Guard()
        >>> guard.apply(router, router.plan(add=["gw-3"]))
        >>> guard.apply(router, router.plan(add=["gw-4"]))
        Traceback (most recent call last):
        ringhash.errors.GuardError: cooldown: the last change was 0 s ago, and 300 s must pass
        """
        names = _rules(override)
        mine = self._claim(router, plan, names)
        try:
            router.apply(plan)
            now = self._clock()
            with self._lock:
                self._changed = now
        finally:
            with self._lock:
                if self._pending is mine:
                    self._pending = None

    def _claim(self, router: Router, plan: Plan, override: frozenset[str]) -> object:
        """Check a plan, and keep every other change out until this one is made."""
        now = self._clock()
        with self._lock:
            gone = dict(self._gone)
        left = self._steady(router, plan, gone, now)
        mine = object()
        with self._lock:
            cooling = self._cooling(now)
            if cooling:
                left["cooldown"] = cooling
            left = {name: why for name, why in left.items() if name not in override}
            if not left:
                self._pending = mine
        if left:
            raise GuardError(left)
        return mine


def _rules(override: Iterable[str]) -> frozenset[str]:
    names = [override] if isinstance(override, str) else list(override)
    for name in names:
        if name not in _RULES:
            raise ValueError(f"there is no rule {name!r}; the rules are {', '.join(_RULES)}")
    return frozenset(names)

"""The handover inside a router: which plan is under way, and which part of it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from ringhash.errors import HandoverRunningError, StalePlanError
from ringhash.placement import verified
from ringhash.plan import Move, Plan
from ringhash.ranges import Ranges
from ringhash.records import check_fields, field

if TYPE_CHECKING:
    from ringhash.placement import Placement

__all__ = ["Phase", "Progress", "Running", "check_phase"]

Phase = Literal["running", "carried", "forward", "back"]
_FIELDS = frozenset({"plan", "done", "epoch", "phase"})
_PHASES = ("running", "carried", "forward", "back")


class Progress(NamedTuple):
    """How far a handover is: what `Router.carry` takes.

    Args:
        plan: The plan that the handover carries out.
        done: The positions that have gone to their targets, in the plan's space.
        epoch: The least epoch that the router shall be at.
        phase: "running"; "carried" if everything is done and the handover waits for `finish`; "forward"
            or "back" if it is over and the placement is the one after or before the plan.
    """

    plan: Plan
    done: Ranges
    epoch: int
    phase: Phase = "running"


class Running(NamedTuple):
    """The handover that a router is in the middle of; immutable, made by `Router.carry`.

    `before` and `after` are the placements at its two ends, `done` the positions that have gone to their
    targets, `epoch` the one at which it came as far as this. `phase` is "running" or "carried".
    """

    plan: Plan
    before: Placement
    after: Placement
    done: Ranges
    epoch: int
    phase: Phase = "running"

    @property
    def fraction(self) -> float:
        """The part of what the plan moves that is done, from 0 to 1."""
        moving = self.plan.positions
        return self.done.size / moving if moving else float(self.awaits_finish)

    @property
    def awaits_finish(self) -> bool:
        """Whether all of it is done, so that only `finish` or `reverse` can follow."""
        return self.phase == "carried"

    def at(self, done: Ranges, epoch: int, phase: Phase) -> Self:
        """Return the same handover when it has come as far as `done`."""
        return self._replace(done=done, epoch=epoch, phase=phase)

    def move_of(self, key: Any) -> tuple[Move | None, bool]:
        """Return the move that takes a key, or None, and whether that move is done. O(log moves)."""
        move = self.plan.move_of(key)
        return move, move is not None and self.done.holds(self.plan.space.position(key))

    def refuse(self) -> HandoverRunningError:
        """Return the error of a change that this handover stands in the way of."""
        ends = f"from {self.plan.before[:8]} to {self.plan.after[:8]}"
        if self.awaits_finish:
            return HandoverRunningError(
                f"a handover {ends} has moved everything and waits for its end; finish it or reverse it"
            )
        return HandoverRunningError(
            f"a handover {ends} is running, {self.fraction:.0%} of it done; wait for its end, or abort and "
            "reverse it"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the handover as a dictionary that JSON can hold; `read` reads it."""
        return {
            "plan": self.plan.to_dict(),
            "done": self.done.to_list(),
            "epoch": self.epoch,
            "phase": self.phase,
        }

    @classmethod
    def read(cls, data: object, before: Placement, where: str) -> Self:
        """Return the handover that `to_dict` described, of a router over `before`.

        Raises:
            ValueError: A field is missing, unknown or wrong, or the plan was not made from `before` or
                was edited; the message names the field.
        """
        record: Mapping[str, object] = check_fields(data, where, _FIELDS)
        plan = Plan.from_dict(record["plan"])
        try:
            after = verified(before, plan)
        except (StalePlanError, ValueError) as error:
            raise ValueError(f"{where}.plan: {error}") from None
        done = Ranges.read(record["done"], f"{where}.done", plan.space.size)
        epoch = field(record, where, "epoch", int)
        phase = field(record, where, "phase", str)
        if epoch < 0:
            raise ValueError(f"{where}.epoch: must not be negative, not {epoch}")
        if phase not in _PHASES[:2]:
            raise ValueError(f'{where}.phase: must be "running" or "carried", not {phase!r}')
        try:
            check_phase(plan, done, phase)
        except ValueError as error:
            raise ValueError(f"{where}.done: {error}") from None
        return cls(plan, before, after, done, epoch, cast("Phase", phase))


def check_phase(plan: Plan, done: Ranges, phase: object) -> None:
    """Raise `ValueError` unless `done` is a part of what the plan moves that suits the phase."""
    if phase not in _PHASES:
        raise ValueError(f"phase must be one of {', '.join(_PHASES)}, not {phase!r}")
    moving = plan.ranges
    if not done <= moving:
        raise ValueError("done has positions that the plan does not move")
    if phase in {"carried", "forward"} and done != moving:
        raise ValueError(f"a handover is not {phase} before everything is done")
    if phase == "back" and len(done):
        raise ValueError("a handover is not back while a part of it is done")

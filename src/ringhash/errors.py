"""The errors of ringhash. Each is a `RinghashError` and the built-in error that a caller expects."""

from __future__ import annotations

__all__ = [
    "ColumnError",
    "DatabaseAddressError",
    "DrainTimeoutError",
    "DuplicateNodeError",
    "EmptyRingError",
    "FenceError",
    "ForkedError",
    "GuardError",
    "HandoverError",
    "HandoverRunningError",
    "HandoverTaken",
    "JournalError",
    "LeaseLost",
    "Moved",
    "Moving",
    "NoNodeAvailableError",
    "NoWalkError",
    "OutcomeUnknownError",
    "OwnedEntriesError",
    "OwnedRangesError",
    "PinnedNodeError",
    "PinnedSplitError",
    "ReplicaLagError",
    "RinghashError",
    "StalePlanError",
    "StaleRouterError",
    "TransactionEndedError",
    "UnknownNodeError",
]


class RinghashError(Exception):
    """The base of every error that only ringhash raises."""


class DuplicateNodeError(RinghashError, ValueError):
    """A node was added whose name is in the ring already."""


class UnknownNodeError(RinghashError, LookupError):
    """A node was named that the ring does not have."""


class EmptyRingError(RinghashError, LookupError):
    """A key was looked up in a ring that has no nodes."""


class NoNodeAvailableError(RinghashError, LookupError):
    """A key was looked up while every node is down or avoided."""


class NoWalkError(RinghashError, TypeError):
    """The nodes behind the owner of a key were asked for, and the placement has no order of them."""


class OwnedEntriesError(RinghashError, ValueError):
    """A node was to be removed, or to be one key's own, that entries of a directory name."""


class OwnedRangesError(RinghashError, ValueError):
    """Removing a node from a range map was refused because it still owns ranges; move them first."""


class PinnedSplitError(RinghashError, ValueError):
    """Merging a split away was refused because it is pinned until a later day."""


class PinnedNodeError(RinghashError, ValueError):
    """Removing a node was refused because keys are pinned to it."""


class StalePlanError(RinghashError, RuntimeError):
    """A plan was applied to a membership that is not the one it was made for."""


class HandoverError(RinghashError, RuntimeError):
    """A handover cannot do what was asked of it."""


class HandoverRunningError(HandoverError):
    """A change was asked of a router while a handover is carrying out another one."""


class JournalError(HandoverError):
    """The journal of a handover cannot be used: it is another's, broken, or taken over."""


class HandoverTaken(JournalError):  # noqa: N818  it names what happened
    """Another process has gone on with a handover that this one began."""


class StaleRouterError(RinghashError, RuntimeError):
    """A client has seen a later epoch than this router: catch up, and check again."""


class GuardError(RinghashError, RuntimeError):
    """A guard refused an automatic change; `reasons` has the rules, by name, and why.

    A person who has read them may override a rule by its name.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(f"{name}: {why}" for name, why in reasons.items()))

    def __reduce__(self) -> tuple[type[GuardError], tuple[dict[str, str]]]:
        return type(self), (self.reasons,)


class Moved(RinghashError, LookupError):  # noqa: N818 - the answer of a node, named as Redis Cluster names it
    """The key belongs to another node: `to`, as of `epoch`. None: no node owns it.

    Method: the MOVED redirection of Redis Cluster, with an epoch so that an old answer is known.
    """

    def __init__(self, to: str | None, epoch: int) -> None:
        self.to = to
        self.epoch = epoch
        super().__init__(to, epoch)

    def __str__(self) -> str:
        return f"the key belongs to {self.to!r} as of epoch {self.epoch}"


class Moving(RinghashError, RuntimeError):  # noqa: N818 - as Moved
    """The key is on its way to the node `to`, as of `epoch`; ask again in `after` seconds."""

    def __init__(self, to: str | None, epoch: int, after: float) -> None:
        self.to = to
        self.epoch = epoch
        self.after = after
        super().__init__(to, epoch, after)

    def __str__(self) -> str:
        return f"the key is moving to {self.to!r} as of epoch {self.epoch}; ask again in {self.after} s"


class FenceError(RinghashError, RuntimeError):
    """The fence of a database is missing, is of other keys, or was changed by a later epoch."""


class ColumnError(RinghashError, ValueError):
    """A position column is missing, incomplete, or of other keys."""


class DrainTimeoutError(FenceError):
    """Transactions that began before a range was closed did not end in time; `pids` are their servers'."""

    def __init__(self, pids: list[int], timeout: float) -> None:
        self.pids = pids
        self.timeout = timeout
        super().__init__(pids, timeout)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.pids[:8]))
        return (
            f"{len(self.pids)} transactions that write are still open after {self.timeout} s (server "
            f"processes {shown}); wait for them, or end them with pg_terminate_backend"
        )


class ReplicaLagError(RinghashError, RuntimeError):
    """No replica is as fresh as the read asked for."""


class LeaseLost(RinghashError, RuntimeError):  # noqa: N818  it names what happened, as StopIteration does
    """A worker acted on a lease that it no longer has.

    `written` is False where nothing was written, and None where nobody can know: the commit was sent,
    and the connection broke before the answer.
    """

    def __init__(self, message: str, written: bool | None = False) -> None:
        super().__init__(message, written)
        self.written = written

    def __str__(self) -> str:
        return str(self.args[0])


class DatabaseAddressError(RinghashError, ValueError):
    """The address is not of a database that ringhash can open."""


class TransactionEndedError(RinghashError, RuntimeError):
    """A block ended, or tried to end, a transaction that is not its own; nothing after that is stored."""


class OutcomeUnknownError(RinghashError, RuntimeError):
    """A commit was sent and its answer never came, so nobody knows whether it was stored."""


class ForkedError(RinghashError, RuntimeError):
    """A connection or a lease was used in a child process that belongs to its parent."""

"""The errors of ringhash. Each is a `RinghashError` and the built-in error that a caller expects."""

__all__ = [
    "DuplicateNodeError",
    "EmptyRingError",
    "LeaseLost",
    "NoNodeAvailableError",
    "PinnedNodeError",
    "RinghashError",
    "StalePlanError",
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
    """A key was looked up while every node is down, or is to be avoided."""


class PinnedNodeError(RinghashError, ValueError):
    """A node was to be removed that keys are pinned to."""


class StalePlanError(RinghashError, RuntimeError):
    """A plan was applied to a membership that is not the one it was made for."""


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

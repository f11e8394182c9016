"""The errors of ringhash. Each is a `RinghashError` and the built-in error that a caller expects."""

__all__ = [
    "DuplicateNodeError",
    "EmptyRingError",
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

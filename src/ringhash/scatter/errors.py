"""What can go wrong when many nodes are asked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringhash.errors import RinghashError

if TYPE_CHECKING:
    from ringhash.scatter.coverage import Coverage

__all__ = ["OrderError", "PageError", "ScatterError", "ScatterForbiddenError", "ScatterWarning"]


class ScatterError(RinghashError, RuntimeError):
    """Too few parts answered. `coverage` says which ones are missing, and why."""

    def __init__(self, message: str, coverage: Coverage) -> None:
        super().__init__(message)
        self.coverage = coverage

    def __reduce__(self) -> tuple[type, tuple[str, Coverage]]:
        return type(self), (str(self), self.coverage)


class ScatterForbiddenError(RinghashError, RuntimeError):
    """A scatter was started inside `no_scatter()`."""


class OrderError(RinghashError, ValueError):
    """Rows cannot be merged in the order that was asked for."""


class PageError(RinghashError, ValueError):
    """A page token is damaged, or belongs to a query in another order."""


class ScatterWarning(UserWarning):
    """A scatter asks more parts than `warn_above`."""

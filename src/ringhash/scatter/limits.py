"""Where scatters are not wanted: an error inside `no_scatter()`, a warning above a number of parts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ringhash.scatter.errors import ScatterForbiddenError, ScatterWarning

__all__ = ["check_fan_out", "no_scatter"]

_forbidden: ContextVar[str | None] = ContextVar("ringhash_no_scatter", default=None)


@contextmanager
def no_scatter(reason: str = "") -> Iterator[None]:
    """Make every scatter of more than one part inside the block a `ScatterForbiddenError`.

    Args:
        reason: What the message adds, such as "checkout must find one shard".

    The block covers the tasks and calls that are started inside it. A plain thread started inside it
    has a context of its own and is not covered.

    >>> from ringhash.scatter import Scatter
    >>> with no_scatter("a request of one tenant"):
    ...     try:
    ...         Scatter(lambda ask: 1, ["a", "b"]).run()
    ...     except ScatterForbiddenError:
    ...         print("refused")
    refused
    """
    token = _forbidden.set(reason)
    try:
        yield
    finally:
        _forbidden.reset(token)


def check_fan_out(parts: int, warn_above: int | None) -> None:
    """Refuse or warn before anything is called.

    Raises:
        ScatterForbiddenError: A scatter inside `no_scatter()` asks more than one part.
    """
    reason = _forbidden.get()
    if reason is not None and parts > 1:
        why = f": {reason}" if reason else ""
        raise ScatterForbiddenError(
            f"a scatter over {parts} parts inside no_scatter(){why}; give the statement its shard key"
        )
    if warn_above is not None and parts > warn_above:
        warnings.warn(
            f"a scatter over {parts} parts, above {warn_above}; a statement with a shard key asks one",
            ScatterWarning,
            stacklevel=4,
        )

"""The database in force: a context variable, so that each asyncio task and each thread has its own."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["current_database", "database_in_force"]

database_in_force: ContextVar[str | None] = ContextVar("ringhash_database", default=None)


def current_database() -> str | None:
    """Return the database of the key in force; None outside of `using_key`."""
    return database_in_force.get()

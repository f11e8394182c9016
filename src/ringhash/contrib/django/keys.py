"""A block or a function whose queries go to the database of a key."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any, TypeVar

from ringhash.contrib.django.context import database_in_force
from ringhash.contrib.django.errors import NoKeyError
from ringhash.contrib.django.router import shard_router

__all__ = ["using_key"]

_F = TypeVar("_F", bound=Callable[..., Any])


class using_key:  # noqa: N801  it reads as a statement
    """Send the queries of sharded models to the database of a key, in a block or in a function.

    Args:
        key: The key; for a function also what returns it from the arguments of each call.
        atomic: Whether the block is one transaction of that database.

    The block has the name of the database: `with using_key(7) as database`. It is found at the start of the
    block, and stays. As a decorator it goes onto functions and coroutine functions.

    Raises:
        TypeError: It decorates a generator, whose body runs in the context of its caller; or it is a block
            with a function for its key.

    The key is a context variable: asyncio tasks and threads each have their own, and `sync_to_async` hands it
    on. Make one for each block.
    """

    def __init__(self, key: Hashable | Callable[..., Hashable], *, atomic: bool = False) -> None:
        self._key = key
        self._atomic = atomic
        self._entered: list[ExitStack] = []

    def __enter__(self) -> str:
        if callable(self._key):
            raise TypeError("a block needs the key itself; what returns it from arguments is for a decorator")
        with ExitStack() as stack:
            database = _enter(self._key, self._atomic, stack)
            self._entered.append(stack.pop_all())
        return database

    def __exit__(self, *exception: object) -> bool:
        return bool(self._entered.pop().__exit__(*exception))  # type: ignore[arg-type]

    def __call__(self, function: _F) -> _F:
        """Decorate a function or a coroutine function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "a generator runs in the context of its caller: use the block within it, without yield"
            )
        if inspect.iscoroutinefunction(function):
            if self._atomic:
                raise TypeError(
                    "Django has no transactions in coroutines; use atomic=True in a sync function"
                )

            @functools.wraps(function)
            async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
                with using_key(self._of(args, kwargs)):
                    return await function(*args, **kwargs)

            return wrapped_async  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with using_key(self._of(args, kwargs), atomic=self._atomic):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        return self._key(*args, **kwargs) if callable(self._key) else self._key


def _enter(key: Hashable, atomic: bool, stack: ExitStack) -> str:
    from django.db import transaction  # noqa: PLC0415  settings import this file

    if key is None:
        raise NoKeyError("the key is None: it names no database")
    database = shard_router().owner(key)
    token = database_in_force.set(database)
    stack.callback(database_in_force.reset, token)
    if atomic:
        stack.enter_context(transaction.atomic(using=database))
    return database

"""A handover that is carried out with threads."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable

from ringhash.handover.driver import Driver
from ringhash.handover.machine import Command

__all__ = ["run_with_threads"]


def run_with_threads(driver: Driver) -> None:
    """Carry it out as far as it goes; each call has a thread of its own."""
    with driver.driving():
        while True:
            commands = driver.turn()
            for command in commands:
                _begin(driver, command)
            if not commands and driver.at_end():
                return
            driver.wait()


def _begin(driver: Driver, command: Command) -> None:
    # A thread cannot be cancelled; a late answer is known by its token.
    if driver.function(command) is None:
        return
    thread = threading.Thread(
        target=_call, args=(driver, command), daemon=True, name=f"handover-{command.call}"
    )
    if command.call != "cancel":
        driver.away.add(command.token)
    try:
        thread.start()
    except BaseException:
        if command.call != "cancel":
            driver.away.discard(command.token)
        raise


def _call(driver: Driver, command: Command) -> None:
    try:
        function = driver.function(command)
        assert function is not None  # noqa: S101
        result = function(driver.argument(command))
        if inspect.isawaitable(result):
            import asyncio  # noqa: PLC0415 - it takes longer to load than all of ringhash

            result = asyncio.run(_awaited(result))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the piece must go back
        driver.broke(command, error)
    else:
        driver.answer(command, result)


async def _awaited(result: Awaitable[object]) -> object:
    return await result

"""A handover that is carried out with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable
from typing import cast

from ringhash.handover.driver import Driver
from ringhash.handover.machine import Command

__all__ = ["run_with_tasks"]


async def run_with_tasks(driver: Driver) -> None:
    """Carry it out as far as it goes; each call is a task, and functions that block have threads."""
    loop = asyncio.get_running_loop()
    wake = asyncio.Event()
    tasks: dict[int, asyncio.Task[None]] = {}
    others: set[asyncio.Task[None]] = set()
    with driver.driving():
        driver.wake = lambda: loop.call_soon_threadsafe(wake.set)
        try:
            while True:
                wake.clear()
                commands = driver.turn()
                for command in commands:
                    if driver.function(command) is not None:
                        task = _begin(driver, command)
                        if command.call == "cancel":
                            others.add(task)
                        else:
                            tasks[command.token] = task
                    if command.call == "cancel" and command.token in tasks:
                        tasks[command.token].cancel()
                if not commands and driver.at_end():
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(driver.wait_seconds()):
                        await wake.wait()
                tasks = {token: task for token, task in tasks.items() if not task.done()}
                others = {task for task in others if not task.done()}
        finally:
            driver.wake = None
            for task in (*tasks.values(), *others):
                task.cancel()
            await asyncio.gather(*tasks.values(), *others, return_exceptions=True)


def _begin(driver: Driver, command: Command) -> asyncio.Task[None]:
    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before it began
            driver.broke(command, asyncio.CancelledError())

    task = asyncio.get_running_loop().create_task(_call(driver, command))
    if command.call != "cancel":
        driver.away.add(command.token)
    task.add_done_callback(ended)
    return task


async def _call(driver: Driver, command: Command) -> None:
    try:
        function = driver.function(command)
        assert function is not None  # noqa: S101
        piece = driver.argument(command)
        if _is_async(function):
            result = await cast("Awaitable[object]", function(piece))
        else:
            result = await _in_thread(driver, command)
            if inspect.isawaitable(result):
                result = await result
    except _StillRuns:
        pass  # its thread answers
    except BaseException as error:  # noqa: BLE001 - whatever it is, the piece must go back
        driver.broke(command, error)
    else:
        driver.answer(command, result)


class _StillRuns(BaseException):
    """The task of a call was cancelled, and its thread cannot be."""


async def _in_thread(driver: Driver, command: Command) -> object:
    """Call a function in a thread. Cancelled, it leaves the answer to the thread: rule 3 of the machine."""
    function, piece = driver.function(command), driver.argument(command)
    assert function is not None  # noqa: S101
    lock, left, ended = threading.Lock(), False, False

    def work() -> object:
        nonlocal ended
        try:
            result = function(piece)
        except BaseException as error:
            with lock:
                ended = True
                if left:
                    driver.broke(command, error)
            raise
        with lock:
            ended = True
            if left:
                driver.answer(command, result)
        return result

    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with lock:
            if not ended:
                left = True
                future.add_done_callback(lambda it: it.cancelled() or it.exception())  # it is told already
                raise _StillRuns from None
        raise


def _is_async(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

"""Migrate the databases of all shards, several at a time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ringhash.contrib.django.router import shard_router

__all__ = ["Migrated", "migrate_shards"]


@dataclass(frozen=True)
class Migrated:
    """How the migration of one database went.

    `error` is None if it went well; `tried` is False if it was not begun since the first one failed.
    """

    database: str
    seconds: float
    output: str
    error: Exception | None = None
    tried: bool = True


def migrate_shards(
    *arguments: str,
    shards: Iterable[str] | None = None,
    workers: int = 4,
    heard: Callable[[Migrated], None] | None = None,
    **options: Any,
) -> list[Migrated]:
    """Run Django's `migrate` on all shards: on the first alone, and then on the others side by side.

    Args:
        arguments: Those of `migrate`: the application, and the migration.
        shards: The databases; by default all of the `ShardRouter`.
        workers: How many are migrated at a time.
        heard: Called with each result as it comes, in the thread that called this.
        options: Options of `migrate`, such as `fake=True`.

    If the first fails, the others are not begun. After it, the failure of one stops no other, and what failed
    may be run again. Each thread has a connection of its own and closes it.

    Raises:
        ValueError: There is no such shard, or `workers` is below 1.
    """
    known = shard_router().shards
    names = list(known if shards is None else shards)
    wrong = [name for name in names if name not in known]
    if wrong:
        raise ValueError(f"there is no shard {wrong[0]!r}; there are {list(known)}")
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    results: list[Migrated] = []

    def take(result: Migrated) -> None:
        results.append(result)
        if heard is not None:
            heard(result)

    with ThreadPoolExecutor(workers, thread_name_prefix="migrate") as pool:
        for name in names[:1]:
            take(pool.submit(_migrate, name, arguments, options).result())
        if results and results[0].error is not None:
            for name in names[1:]:
                take(Migrated(name, 0.0, "", tried=False))
        else:
            for result in pool.map(lambda name: _migrate(name, arguments, options), names[1:]):
                take(result)
    return results


def _migrate(name: str, arguments: tuple[str, ...], options: dict[str, Any]) -> Migrated:
    from django.core.management import call_command  # noqa: PLC0415  settings import this room
    from django.db import connections  # noqa: PLC0415

    output = io.StringIO()
    begun = time.perf_counter()
    error = None
    try:
        call_command(
            "migrate",
            *arguments,
            **{"verbosity": 1, "interactive": False, "no_color": True} | options,
            database=name,
            stdout=output,
            stderr=output,
        )
    except Exception as found:  # noqa: BLE001  it is the result of this database, whatever it is
        error = found
    finally:
        connections[name].close()
    return Migrated(name, time.perf_counter() - begun, output.getvalue(), error)

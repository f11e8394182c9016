"""What is wrong in a configuration file, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn, TypeVar

from ringhash.errors import RinghashError

__all__ = ["ConfigError", "at", "choose", "needs", "placing"]

T = TypeVar("T")


class ConfigError(RinghashError, ValueError):
    """A configuration file says something that cannot be read or is not covered."""


def at(path: str, line: int, message: str) -> NoReturn:
    """Raise a `ConfigError` that begins with the place."""
    raise ConfigError(f"{path}:{line}: {message}")


@contextmanager
def placing(path: str, line: int) -> Iterator[None]:
    """Name the place in what a placement refuses."""
    try:
        yield
    except ConfigError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise ConfigError(f"{path}:{line}: {error}") from None


def choose(path: str, what: str, there: dict[str, T], name: str | None, fits: Callable[[T], bool]) -> T:
    """Return the block of that name, or the only one that fits."""
    if not there:
        raise ConfigError(f"{path}: has no {what}")
    if name is not None:
        if name not in there:
            few = ", ".join(there)
            raise ConfigError(f"{path}: there is no {what} {name!r}; there are {few}")
        return there[name]
    if len(there) == 1:
        return next(iter(there.values()))
    fitting = [key for key, value in there.items() if fits(value)]
    if len(fitting) != 1:
        few = ", ".join(fitting or there)
        raise ConfigError(f"{path}: say which {what} is meant; there are {few}")
    return there[fitting[0]]


def needs(module: str, package: str) -> ModuleType:
    """Import a parser, or say which extra brings it."""
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f"reading this file needs {package}: pip install 'ringhash[interop]'", name=module
        ) from None

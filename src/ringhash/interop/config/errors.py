"""What is wrong in a configuration file, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeVar

from ringhash.errors import RinghashError

__all__ = ["ConfigError", "at", "choose", "needs", "placing", "read_text"]

T = TypeVar("T")


class ConfigError(RinghashError, ValueError):
    """A configuration file says something that cannot be read or is not covered.

    What the file holds comes into the message, so what a terminal would obey is escaped there.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


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


def read_text(path: str) -> str:
    """Return what stands in a file, which must be UTF-8."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at(path, data.count(b"\n", 0, error.start) + 1, f"the byte {data[error.start]:#04x} is not UTF-8")


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

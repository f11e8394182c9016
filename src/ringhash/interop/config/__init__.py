"""Reading the placement out of a program's own configuration file.

A setting that changes the placement and is not known here is refused with its line, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path

from ringhash.interop.config.envoy import read_envoy
from ringhash.interop.config.errors import ConfigError
from ringhash.interop.config.haproxy import read_haproxy
from ringhash.interop.config.nginx import read_nginx
from ringhash.interop.config.servers import LISTED, read_list
from ringhash.interop.config.twemproxy import read_twemproxy
from ringhash.interop.placement import ProgramPlacement

__all__ = ["PROGRAMS", "ConfigError", "read_config"]

_FILES: dict[str, Callable[[str, str | None], ProgramPlacement]] = {
    "nginx": read_nginx,
    "haproxy": read_haproxy,
    "envoy": read_envoy,
    "twemproxy": read_twemproxy,
}
PROGRAMS: tuple[str, ...] = tuple(sorted({*_FILES, *LISTED}))


def read_config(path: str | PathLike[str], like: str, name: str | None = None) -> ProgramPlacement:
    """Return the placement that a configuration file describes.

    Args:
        path: The file. One that ends in .txt or .list is a list of servers, one a line: a name, and
            after blanks its weight. A program that has no file of its own, such as libmemcached, takes
            only a list.
        like: The program, one of `PROGRAMS`.
        name: Which upstream, backend, cluster or pool; it may be left out where there is only one.

    Raises:
        ConfigError: The file cannot be read as that, or has a setting that changes the placement and is
            not covered; the message begins with the file and the line.
        ImportError: A parser is missing; the extra `interop` brings it.
        OSError: The file cannot be read.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "servers.txt"
    >>> _ = path.write_text("10.0.0.1:80 2\\n10.0.0.2:80\\n")
    >>> read_config(path, "nginx")
    NginxRing({'10.0.0.1:80': 2, '10.0.0.2:80': 1}, down=[])
    """
    if like not in PROGRAMS:
        raise ConfigError(f"there is no program {like!r}; there are {', '.join(PROGRAMS)}")
    place = fspath(path)
    if like in LISTED and (like not in _FILES or Path(place).suffix in (".txt", ".list")):
        return read_list(place, like)
    try:
        return _FILES[like](place, name)
    except RecursionError:  # brackets in brackets, or an alias of YAML within itself
        raise ConfigError(f"{place}: is nested too deeply") from None

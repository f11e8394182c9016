"""The upstream block of an nginx configuration, parsed by crossplane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ringhash.interop.config.errors import ConfigError, at, choose, needs, placing
from ringhash.interop.given import digits, shortened
from ringhash.interop.nginx import NginxRing

__all__ = ["read_nginx"]

_HARMLESS = {
    "zone", "keepalive", "keepalive_requests", "keepalive_time", "keepalive_timeout", "state_file",
}  # fmt: skip
_METHODS = {"ip_hash", "least_conn", "random", "least_time", "sticky", "queue", "ntlm", "fair"}
_RUNNING = {"max_fails", "fail_timeout", "max_conns"}  # what counts only for a server that failed or is full


class _Block(NamedTuple):
    path: str
    directive: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.directive["block"] if row["directive"] != "#"]


def read_nginx(path: str, name: str | None) -> NginxRing:
    """Return the ring of an upstream block of http or stream; files that are included are read too."""
    crossplane = needs("crossplane", "crossplane")
    with Path(path).open("rb"):  # or crossplane would list a missing file among its errors
        pass
    parsed = crossplane.parse(path, check_ctx=False, check_args=False, strict=False, onerror=_itself)
    for error in parsed["errors"]:
        raise ConfigError(_problem(**error))
    there = {
        block.directive["args"][0]: block
        for file in parsed["config"]
        for block in _upstreams(file["file"], file["parsed"])
    }
    return _ring(choose(path, "upstream", there, name, _is_consistent))


def _itself(error: BaseException) -> BaseException:
    return error


def _problem(file: str, line: int | None, error: str, callback: BaseException) -> str:
    """What crossplane found, with its place."""
    if isinstance(callback, RecursionError):
        return f"{file}: is nested too deeply"
    if isinstance(callback, OSError):
        return f"{file}: {callback.strerror}"
    if not error:  # it has met the end of the file
        return f"{file}: is no nginx configuration: it ends within a directive, without `;` or a block"
    return f"{file}:{line or 1}: {error.partition(' in ')[0]}"


def _upstreams(path: str, rows: list[dict[str, Any]]) -> Iterator[_Block]:
    for row in rows:
        if row["directive"] == "upstream":
            yield _Block(path, row)
        else:
            yield from _upstreams(path, row.get("block") or [])


def _is_consistent(block: _Block) -> bool:
    return any(row["directive"] == "hash" and row["args"][1:] == ["consistent"] for row in block.rows)


def _ring(block: _Block) -> NginxRing:
    path = block.path
    servers: dict[str, int] = {}
    down: list[str] = []
    for row in block.rows:
        directive, args, line = row["directive"], row["args"], row["line"]
        if directive == "server":
            address, weight, is_down = _server(path, line, args)
            if "\ufffd" in address:  # what crossplane makes of it
                at(path, line, f"the server {address!r} is not UTF-8")
            if address in servers:
                at(path, line, f"the server {address!r} is given twice")
            servers[address] = weight
            down += [address] * is_down
        elif directive == "hash":
            if args[1:] != ["consistent"]:
                at(path, line, "`hash` without `consistent` places keys by a remainder; it is not covered")
        elif directive in _METHODS:
            at(path, line, f"`{directive}` does not place keys by a consistent hash")
        elif directive not in _HARMLESS:
            at(path, line, f"`{directive}` is not known here, and may change the placement")
    line = block.directive["line"]
    if not _is_consistent(block):
        at(path, line, "the upstream has no `hash KEY consistent;`, so it goes round and places no keys")
    with placing(path, line):
        return NginxRing(servers, down=down)


def _server(path: str, line: int, args: list[str]) -> tuple[str, int, bool]:
    address, *settings = args
    weight, down = 1, False
    for setting in settings:
        name, _, value = setting.partition("=")
        if name == "weight" and digits(value):
            weight = digits(value) or 0
        elif setting == "down":
            down = True
        elif name not in _RUNNING:
            at(path, line, f"`{shortened(setting)}` of a server is not covered, and may change the placement")
    return address, weight, down

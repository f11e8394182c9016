"""A backend of an HAProxy configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ringhash.interop.config.errors import ConfigError, at, choose, placing
from ringhash.interop.given import digits, shortened
from ringhash.interop.haproxy import HAProxyRing

__all__ = ["read_haproxy"]

_SECTIONS = {
    "global", "defaults", "frontend", "backend", "listen", "userlist", "peers", "resolvers", "mailers",
    "cache", "program", "http-errors", "ring", "log-forward", "fcgi-app", "crt-store", "traces",
}  # fmt: skip
# Of a backend, what says nothing about which server a key goes to.
_HARMLESS = {
    "mode", "timeout", "option", "no", "http-request", "http-response", "http-after-response", "http-check",
    "tcp-request", "tcp-response", "tcp-check", "acl", "log", "log-format", "log-tag", "description", "bind",
    "maxconn", "fullconn", "errorfile", "errorfiles", "errorloc", "errorloc302", "errorloc303", "retries",
    "retry-on", "compression", "filter", "http-reuse", "http-send-name-header", "source", "rate-limit",
    "redirect", "stats", "use_backend", "default_backend", "unique-id-format", "unique-id-header", "capture",
    "email-alert", "external-check", "max-keep-alive-queue", "max-session-srv-conns", "backlog", "id", "guid",
    "enabled", "monitor", "monitor-uri", "declare", "grace", "clitcpka-cnt", "clitcpka-idle",
    "clitcpka-intvl",
    "srvtcpka-cnt", "srvtcpka-idle", "srvtcpka-intvl", "http-error", "error-log-format",
    "load-server-state-from-file",
}  # fmt: skip
_OVERRIDES = {
    "cookie": "binds clients to servers by a cookie",
    "stick": "binds keys to servers by a table",
    "stick-table": "binds keys to servers by a table",
    "appsession": "binds clients to servers",
    "use-server": "sends some requests past the hash",
    "persist": "binds clients to servers",
    "force-persist": "binds clients to servers",
    "dispatch": "sends all to one address",
    "server-template": "makes servers by a pattern; write them out",
}
_HASHED = {"uri", "url_param", "rdp-cookie", "hash"}
# What a server may say that does not move its points, and how many words follow.
_SERVER = {
    "addr": 1, "agent-addr": 1, "agent-inter": 1, "agent-port": 1, "agent-send": 1, "allow-0rtt": 0,
    "alpn": 1,
    "ca-file": 1, "check": 0, "check-alpn": 1, "check-proto": 1, "check-send-proxy": 0, "check-sni": 1,
    "check-ssl": 0, "check-via-socks4": 0, "ciphers": 1, "ciphersuites": 1, "crl-file": 1, "crt": 1,
    "downinter": 1, "enabled": 0, "error-limit": 1, "fall": 1, "fastinter": 1, "force-sslv3": 0,
    "force-tlsv10": 0, "force-tlsv11": 0, "force-tlsv12": 0, "force-tlsv13": 0, "init-addr": 1, "inter": 1,
    "log-proto": 1, "maxconn": 1, "maxqueue": 1, "max-reuse": 1, "minconn": 1, "namespace": 1,
    "no-agent-check": 0,
    "no-backup": 0, "no-check": 0, "no-check-ssl": 0, "no-send-proxy": 0, "no-send-proxy-v2": 0, "no-ssl": 0,
    "no-tls-tickets": 0, "no-verifyhost": 0, "no-sslv3": 0, "no-tlsv10": 0, "no-tlsv11": 0, "no-tlsv12": 0,
    "no-tlsv13": 0, "npn": 1, "observe": 1, "on-error": 1, "on-marked-down": 1, "on-marked-up": 1,
    "pool-low-conn": 1, "pool-max-conn": 1, "pool-purge-delay": 1, "port": 1, "proto": 1, "redir": 1,
    "resolve-net": 1, "resolve-opts": 1, "resolve-prefer": 1, "resolvers": 1, "rise": 1, "send-proxy": 0,
    "send-proxy-v2": 0, "send-proxy-v2-ssl": 0, "send-proxy-v2-ssl-cn": 0, "sni": 1, "socks4": 1, "source": 1,
    "ssl": 0, "ssl-max-ver": 1, "ssl-min-ver": 1, "ssl-reuse": 0, "stick": 0, "tcp-ut": 1, "tfo": 0,
    "tls-tickets": 0, "track": 1, "verify": 1, "verifyhost": 1, "ws": 1, "guid": 1, "cookie": 1,
    "slowstart": 1, "usesrc": 1, "interface": 1,
}  # fmt: skip


class _Row(NamedTuple):
    line: int
    words: list[str]


class _Section(NamedTuple):
    line: int
    defaults: list[_Row]
    rows: list[_Row]


def read_haproxy(path: str, name: str | None) -> HAProxyRing:
    """Return the ring of a backend or a listen section, with what the defaults before it say."""
    there = _sections(path, Path(path).read_text(encoding="utf-8", errors="surrogateescape"))
    return _ring(path, choose(path, "backend", there, name, _is_consistent))


def _sections(path: str, text: str) -> dict[str, _Section]:
    there: dict[str, _Section] = {}
    defaults: list[_Row] = []
    named_defaults: dict[str, list[_Row]] = {}
    current: list[_Row] = []
    for line, row in enumerate(text.splitlines(), 1):
        words = _words(path, line, row)
        if not words:
            continue
        if words[0] not in _SECTIONS:
            current.append(_Row(line, words))
            continue
        current = []
        base = defaults
        if "from" in words[1:]:
            wanted = words[words.index("from") + 1 :][:1]
            if not wanted or wanted[0] not in named_defaults:
                at(path, line, f"there are no defaults {' '.join(wanted)!r}")
            base = named_defaults[wanted[0]]
        if words[0] == "defaults":
            current = list(base) if "from" in words[1:] else []
            defaults = current
            if len(words) > 1:
                named_defaults[words[1]] = defaults
        elif words[0] in ("backend", "listen"):
            if len(words) < 2:
                at(path, line, f"the {words[0]} has no name")
            there[words[1]] = _Section(line, base, current)
    return there


def _words(path: str, line: int, row: str) -> list[str]:
    """The words of a line, as HAProxy splits it: blanks, quotes, backslashes, # for a comment."""
    found = re.findall(r"""#.*|(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s#"'\\])+|\S""", row)
    words = []
    for word in found:
        if word.startswith("#"):
            break
        if "$" in word and '"' in word:
            at(path, line, f"{word} depends on the environment; write it out")
        words.append(re.sub(r"""\\(.)|["']""", lambda match: match[1] or "", word))
    return words


def _is_consistent(section: _Section) -> bool:
    rows = [row.words for row in [*section.defaults, *section.rows] if row.words[0] == "hash-type"]
    return (
        bool(rows)
        and rows[-1][1:2] == ["consistent"]
        and any(row.words[0] == "server" for row in section.rows)
    )


def _ring(path: str, section: _Section) -> HAProxyRing:
    balance: _Row | None = None
    hash_type: _Row | None = None
    settings: dict[str, Any] = {"weight": 1, "away": False}
    weights: dict[str, int] = {}
    ids: dict[str, int] = {}
    for row in [*section.defaults, *section.rows]:
        line, words = row
        first = words[0]
        if first == "balance":
            balance = row
        elif first == "hash-type":
            hash_type = row
        elif first == "hash-balance-factor":
            if words[1:2] != ["0"]:
                at(
                    path,
                    line,
                    "`hash-balance-factor` sends keys of a full server elsewhere; it is not covered",
                )
        elif first == "default-server":
            settings = _server(path, line, words[1:], settings)
        elif first == "server":
            if len(words) < 3:
                at(path, line, "a server needs a name and an address")
            if words[1] in weights:
                at(path, line, f"the server {words[1]!r} is given twice")
            own = _server(path, line, words[3:], settings)
            weights[words[1]] = 0 if own["away"] else own["weight"]
            if "id" in own:
                ids[words[1]] = own["id"]
        elif first in _OVERRIDES:
            at(path, line, f"`{first}` {_OVERRIDES[first]}; it is not covered")
        elif first not in _HARMLESS:
            at(path, line, f"`{first}` is not known here, and may change the placement")
    if hash_type is None:
        at(path, section.line, "there is no `hash-type consistent`, and HAProxy's default is map-based")
    if balance is None:
        at(path, section.line, "there is no `balance`, and HAProxy's default goes round and places no keys")
    _check_balance(path, balance)
    with placing(path, section.line):
        return HAProxyRing(weights, ids=ids or None, **_hash_type(path, hash_type))


def _check_balance(path: str, row: _Row) -> None:
    method = row.words[1] if len(row.words) > 1 else ""
    if method == "source":
        at(path, row.line, "`balance source` hashes the bytes of the address; it is not covered")
    if method not in _HASHED and not re.fullmatch(r"(hdr|rdp-cookie)\(.*\)", method):
        at(path, row.line, f"`balance {method}` does not place keys by a hash")


def _hash_type(path: str, row: _Row) -> dict[str, Any]:
    method, *rest = row.words[1:] or [""]
    if method != "consistent":
        at(path, row.line, f"`hash-type {method}` places keys by a table of remainders; it is not covered")
    functions = [word for word in rest if word != "avalanche"]
    if len(functions) > 1 or (functions and functions[0] not in ("sdbm", "djb2", "wt6", "crc32")):
        at(path, row.line, f"the hash {' '.join(rest)!r} is not covered")
    return {
        "hash": functions[0] if functions else "sdbm",
        "avalanche": not rest or "avalanche" in rest,
    }


def _server(path: str, line: int, words: list[str], inherited: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in inherited.items() if key != "id"}
    rest = iter(words)
    for word in rest:
        if word in ("weight", "id"):
            value = next(rest, "")
            number = digits(value)
            if number is None:
                at(path, line, f"the {word} must be a whole number, not {shortened(value)!r}")
            found[word] = number
        elif word in ("disabled", "backup"):
            found["away"] = True  # it has an id, but no points
        elif word == "hash-key":
            if next(rest, "") != "id":
                at(path, line, "`hash-key` by address is not covered")
        elif word == "agent-check":
            at(path, line, "`agent-check` lets the server set its own weight; it is not covered")
        elif word in _SERVER:
            for _ in range(_SERVER[word]):
                next(rest, None)
        else:
            raise ConfigError(
                f"{path}:{line}: `{word}` of a server is not known here, and may change the placement"
            )
    return found

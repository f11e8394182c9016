"""Statements from logs: PostgreSQL, MySQL's general and slow logs, and plain SQL."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["Format", "Statement", "statements_of"]

Format: TypeAlias = Literal["postgresql", "mysql", "sql"]


class Statement(NamedTuple):
    """One call: its text, the session that made it (None if the log does not say), and its parameters."""

    text: str
    session: str | None
    parameters: dict[int, str | None] | None = None


# 2026-12-01 10:00:00.123 UTC [4711] app@shop LOG:  duration: 0.1 ms  execute <unnamed>: SELECT ...
_POSTGRES = re.compile(
    r"^(?P<prefix>.{0,200}?)\b(?P<level>LOG|DETAIL|ERROR|STATEMENT|HINT|FATAL|WARNING|CONTEXT):  ?"
    r"(?P<rest>.*)$",
    re.DOTALL,
)
_POSTGRES_CALL = re.compile(
    r"^(?:duration: [\d.]+ ms  )?(?:statement|execute [^:]*): (?P<text>.*)$", re.DOTALL
)
_POSTGRES_PID = re.compile(r"\[(\d+)[\]-]")
_PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")
# 2026-12-01T10:00:00.123456Z	    8 Query	SELECT ...
_MYSQL_GENERAL = re.compile(
    r"^(?:\S+[ T]\S*)?\s*(?P<session>\d+) (?P<what>[A-Z][A-Za-z ]+?)\t(?P<text>.*)$", re.DOTALL
)
_MYSQL_USER = re.compile(r"^# User@Host:.*?\bId:\s*(\d+)")
_MYSQL_SKIPPED = re.compile(r"^(?:SET timestamp=|use )", re.IGNORECASE)
_CALLS = {"Query", "Execute"}


def statements_of(
    source: str | os.PathLike[str] | Iterable[str], kind: Format | None = None
) -> Iterator[Statement]:
    """Yield the statements of a log.

    Args:
        source: A path (also `.gz`), or lines.
        kind: "postgresql", "mysql" (the general or the slow log) or "sql" (statements that end in `;`). None
            looks at the first lines.
    """
    lines = _lines(source)
    first: list[str] = []
    if kind is None:
        for line in lines:
            first.append(line)
            if len(first) >= 50:
                break
        kind = _kind(first)
    whole = _chained(first, lines)
    if kind == "postgresql":
        yield from _postgres(whole)
    elif kind == "mysql":
        yield from _mysql(whole)
    else:
        yield from _plain(whole)


def _lines(source: str | os.PathLike[str] | Iterable[str]) -> Iterator[str]:
    if not isinstance(source, str | os.PathLike):
        for line in source:
            yield line.rstrip("\r\n")
        return
    path = Path(source)
    raw: Any = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115 - the wrapper closes it
    with io.TextIOWrapper(raw, "utf-8", "replace") as text:
        for line in text:
            yield line.rstrip("\r\n")


def _chained(first: list[str], rest: Iterator[str]) -> Iterator[str]:
    yield from first
    yield from rest


def _kind(lines: list[str]) -> Format:
    for line in lines:
        match = _POSTGRES.match(line)
        if match and (_POSTGRES_CALL.match(match["rest"]) or match["level"] != "LOG"):
            return "postgresql"
        if line.startswith(("# Time:", "# User@Host:")):
            return "mysql"
        match = _MYSQL_GENERAL.match(line)
        if match and match["what"] in (*_CALLS, "Connect", "Prepare", "Quit"):
            return "mysql"
    return "sql"


def _postgres(lines: Iterator[str]) -> Iterator[Statement]:
    for entry in _entries(lines):
        if entry.detail is not None:
            parameters = {
                int(number): None if value == "NULL" else value
                for number, value in _PARAMETER.findall(entry.detail)
            }
            yield Statement(entry.text, entry.session, parameters)
        else:
            yield Statement(entry.text, entry.session)


class _Entry(NamedTuple):
    text: str
    session: str | None
    detail: str | None


def _entries(lines: Iterator[str]) -> Iterator[_Entry]:
    """Statements with the DETAIL that follows them; lines that begin with a tab go on with the one before."""
    waiting: _Entry | None = None
    for whole in _folded(lines):
        match = _POSTGRES.match(whole)
        if match is None:
            continue
        if match["level"] == "DETAIL" and waiting is not None:
            waiting = waiting._replace(detail=match["rest"])
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        call = _POSTGRES_CALL.match(match["rest"]) if match["level"] == "LOG" else None
        if call is not None:
            pid = _POSTGRES_PID.search(match["prefix"])
            waiting = _Entry(call["text"], pid[1] if pid else None, None)
    if waiting is not None:
        yield waiting


def _folded(lines: Iterator[str]) -> Iterator[str]:
    whole: list[str] = []
    for line in lines:
        if line.startswith("\t") and whole:
            whole.append(line[1:])
            continue
        if whole:
            yield "\n".join(whole)
        whole = [line]
    if whole:
        yield "\n".join(whole)


def _mysql(lines: Iterator[str]) -> Iterator[Statement]:
    session: str | None = None
    parts: list[str] = []
    slow = False

    def taken() -> Iterator[Statement]:
        for text in _split(parts):
            if not _MYSQL_SKIPPED.match(text):
                yield Statement(text, session)
        parts.clear()

    for line in lines:
        if line.startswith("#"):
            if not slow or parts:
                yield from taken()
            slow = True
            user = _MYSQL_USER.match(line)
            session = user[1] if user else session
            continue
        match = None if slow else _MYSQL_GENERAL.match(line)
        if match is not None:
            yield from taken()
            session = match["session"]
            if match["what"] in _CALLS:
                parts.append(match["text"])
        elif slow or parts:
            parts.append(line)
    yield from taken()


def _plain(lines: Iterator[str]) -> Iterator[Statement]:
    parts: list[str] = []
    for line in lines:
        parts.append(line)
        if line.rstrip().endswith(";") and sum(part.count("'") for part in parts) % 2 == 0:
            for text in _split(parts):
                yield Statement(text, None)
            parts.clear()
    for text in _split(parts):
        yield Statement(text, None)


_SEPARATOR = re.compile(r"((?:[^;'\"`]|'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`)*);?", re.DOTALL)


def _split(parts: list[str]) -> Iterator[str]:
    """Cut text at the semicolons outside of quotes."""
    whole = "\n".join(parts)
    if whole.count(";") <= 1 and whole.rstrip().endswith(";"):
        texts: Iterable[str] = (whole.rstrip()[:-1],)
    elif ";" not in whole:
        texts = (whole,)
    else:
        texts = (match[1] for match in _SEPARATOR.finditer(whole))
    for text in texts:
        if stripped := text.strip():
            yield stripped

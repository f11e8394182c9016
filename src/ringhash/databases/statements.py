"""Reading SQL as far as a connection must: its placeholders, and whether it ends a transaction."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["control_word", "with_percent_marks"]

_TOKEN = re.compile(
    r"""
    (?P<text> --[^\n]* | /\*.*?\*/
      | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
      | \$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$ )
    | (?P<twice>\?\?) | (?P<mark>\?) | (?P<percent>%) | (?P<other>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_WORDS = re.compile(r"[A-Za-z]+")
_CONTROL = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})


@lru_cache(512)
def with_percent_marks(sql: str) -> str:
    """Return `sql` with its `?` as `%s`, `??` as `?` and `%` as `%%`; one without `?` stays as it is.

    >>> with_percent_marks("SELECT a LIKE '50%' FROM t WHERE b = ? AND c = '?'")
    "SELECT a LIKE '50%%' FROM t WHERE b = %s AND c = '?'"
    """
    tokens = list(_TOKEN.finditer(sql))
    if not any(token["mark"] for token in tokens):
        return sql
    parts = []
    for token in tokens:
        if token["mark"]:
            parts.append("%s")
        elif token["twice"]:
            parts.append("?")
        else:
            parts.append(token[0].replace("%", "%%"))
    return "".join(parts)


@lru_cache(512)
def control_word(sql: str) -> str | None:
    """Return the word by which `sql` would begin or end a transaction, or None.

    Savepoints stay inside their transaction, so `ROLLBACK TO` does not count.

    >>> control_word("/* now */ commit"), control_word("ROLLBACK TO SAVEPOINT a"), control_word("SELECT 1")
    ('COMMIT', None, None)
    """
    words = [word.upper() for word in _WORDS.findall(_without_comments(sql[_beginning(sql) :])[:200])[:4]]
    if not words:
        return None
    if words[:2] == ["PREPARE", "TRANSACTION"]:
        return "PREPARE TRANSACTION"
    if words[0] == "ROLLBACK" and "TO" in words[1:3]:
        return None
    return words[0] if words[0] in _CONTROL else None


def _without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)


def _beginning(sql: str) -> int:
    """Where the first word begins: after spaces, semicolons and comments, which PostgreSQL nests."""
    at = 0
    while at < len(sql):
        if sql[at].isspace() or sql[at] in ";\ufeff\0":
            at += 1
        elif sql.startswith("--", at):
            end = sql.find("\n", at)
            at = len(sql) if end < 0 else end + 1
        elif sql.startswith("/*", at):
            depth, at = 1, at + 2
            while depth and at < len(sql):
                if sql.startswith("*/", at):
                    depth, at = depth - 1, at + 2
                elif sql.startswith("/*", at):
                    depth, at = depth + 1, at + 2
                else:
                    at += 1
        else:
            break
    return at

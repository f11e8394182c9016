"""Text of others, such as names of nodes, made safe for a terminal."""

from __future__ import annotations

import re

__all__ = ["printable"]

# Control characters, and those that turn the direction of text: a name with them could rewrite a terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text as a terminal may show it: what would control the terminal is escaped.

    >>> printable("gw-1\x1b[2J")
    'gw-1\\x1b[2J'
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)

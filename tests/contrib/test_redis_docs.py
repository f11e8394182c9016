"""The snippets of docs/redis.md run, with the servers of the tests in place of those of the page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

redis = pytest.importorskip("redis")

PAGE = Path(__file__).parent.parent.parent / "docs" / "redis.md"


def test_the_snippets_run(redis_nodes: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for server in redis_nodes:
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
    blocks = [
        re.sub(r"redis://10\.0\.0\.(\d)", lambda match: redis_nodes[int(match[1]) - 1].url, block)
        for block in blocks
    ]
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    try:
        assert names["names"] == [b"Ann", b"Bo", b"Cy"]
        assert names["answers"] == [b"Ann", 1]
        assert names["ring"].names == ("cache-1", "cache-2", "cache-3", "cache-4")
        assert names["ring"].get("user:7") == b"Ann"
        assert "cache-4" in capsys.readouterr().out
    finally:
        names["ring"].close()
    exec(blocks[1], names)
    assert asyncio.run(names["main"]()) == b"Ann"

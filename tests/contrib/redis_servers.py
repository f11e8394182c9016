"""Real Redis servers on loopback, in temporary folders, ended with the tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

redis = pytest.importorskip("redis")

PROGRAM = shutil.which("redis-server")
DEADLINE = 60.0  # only a hang reaches it


class Server:
    """A redis-server that can be stopped and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        words = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "no", "--save", ""]
        self.process = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                except (redis.ConnectionError, OSError):
                    assert time.monotonic() < end, "the server does not start"
                    time.sleep(0.02)
                else:
                    return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def servers(count: int, folder: Path) -> Iterator[list[Server]]:
    """Start some servers."""
    started: list[Server] = []
    try:
        for i in range(count):
            place = folder / f"node-{i}"
            place.mkdir()
            started.append(Server(place))
        yield started
    finally:
        for server in started:
            server.stop()

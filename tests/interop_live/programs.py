"""Starting the real programs on loopback, asking them, and ending just what was started."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import shutil
import signal
import socket
import string
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LETTERS = string.ascii_letters + string.digits + ":/._-?&=%+*!$'(),;@~[]^|<>{}#"
DEADLINE = 20.0


def binary(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def version(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[0]


def fresh_keys(count: int, *, letters: str = LETTERS, other: str = "äßé→漢", shortest: int = 1) -> list[str]:
    """Random keys of up to 60 characters, one in eight of them with some that are not ASCII."""
    source = random.SystemRandom()
    keys: set[str] = set()
    while len(keys) < count:
        pool = letters + other * 4 if other and source.random() < 0.125 else letters
        keys.add("".join(source.choices(pool, k=source.randint(shortest, 60))))
    return list(keys)


def stored_keys(count: int) -> list[str]:
    """Fresh keys that no two cases have in common, for backends that keep what was stored before."""
    return fresh_keys(count, shortest=8)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return found


@contextlib.contextmanager
def running(
    command: list[str], log: Path, ready: Callable[[], bool], stop: signal.Signals = signal.SIGTERM
) -> Iterator[None]:
    """A process in the foreground until the block ends; `ready` says when it answers."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + DEADLINE
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                text = log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{command[0]} did not start ({process.poll()}):\n{text}")
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(stop)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def answers(address: int | Path) -> bool:
    """Whether something listens at a port of loopback or at a socket file."""
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(1)
        try:
            one.connect(("127.0.0.1", address) if isinstance(address, int) else str(address))
        except OSError:
            return False
        return True


def ask(port: int, keys: list[str], *, path: Callable[[str], str] | None = None) -> list[str]:
    """What the server behind each key says, over one connection; the key is the header X-Key, or the path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    said = []
    for key in keys:
        connection.putrequest("GET", path(key) if path else "/", skip_accept_encoding=True)
        if path is None:
            connection.putheader("X-Key", key.encode())
        connection.endheaders()
        reply = connection.getresponse()
        body = reply.read().decode()
        said.append(body if reply.status == 200 else f"status {reply.status}")
        if reply.will_close:
            connection.close()
    connection.close()
    return said


def ends_after(count: int) -> Callable[[bytes], bool]:
    """Whether an answer has that many lines."""
    return lambda got: got.count(b"\r\n") >= count


def lines(sock: socket.socket, data: bytes, ends: Callable[[bytes], bool]) -> bytes:
    sock.sendall(data)
    got = b""
    while not ends(got):
        part = sock.recv(1 << 16)
        if not part:
            raise RuntimeError(f"closed after {got[-200:]!r}")
        got += part
    return got


def connect(address: int | Path) -> socket.socket:
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", address) if isinstance(address, int) else str(address))
    return sock


def memcached_set(address: int | Path, keys: list[str]) -> None:
    with connect(address) as sock:
        for start in range(0, len(keys), 100):
            part = keys[start : start + 100]
            data = b"".join(b"set %b 0 0 1\r\nx\r\n" % key.encode() for key in part)
            got = lines(sock, data, ends_after(len(part)))
            assert got == b"STORED\r\n" * len(part), got[:200]


def memcached_has(address: int | Path, keys: list[str]) -> set[str]:
    """Which of `keys` this memcached holds."""
    held: set[str] = set()
    with connect(address) as sock:
        for start in range(0, len(keys), 50):
            part = [key.encode() for key in keys[start : start + 50]]
            got = lines(sock, b"get %b\r\n" % b" ".join(part), lambda b: b.endswith(b"END\r\n"))
            held |= {
                line.split(b" ")[1].decode() for line in got.split(b"\r\n") if line.startswith(b"VALUE ")
            }
    return held


def located(backends: dict[str, int | Path], keys: list[str]) -> list[str]:
    """The one backend that holds each key."""
    where: dict[str, list[str]] = {key: [] for key in keys}
    for name, address in backends.items():
        for key in memcached_has(address, keys):
            where[key].append(name)
    assert all(len(names) == 1 for names in where.values()), [k for k, n in where.items() if len(n) != 1][:5]
    return [where[key][0] for key in keys]


def user() -> list[str]:
    return ["-u", "root"] if os.geteuid() == 0 else []

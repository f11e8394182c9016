"""Backends that all live tests share, and the comparison itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from programs import answers, binary, free_ports, running, user, version

from ringhash.interop import ProgramPlacement

# RINGHASH_RECORD=FOLDER writes what was compared as vectors, for tests/vectors/interop/recorded.
RECORD = os.environ.get("RINGHASH_RECORD")
RECORDED_KEYS = 60


class Check:
    """Compares a placement with the answers of the running program, and counts."""

    def __init__(self) -> None:
        self.compared = 0
        self.cases = 0
        self.rows: dict[str, list[str]] = {}

    def __call__(
        self,
        program: str,
        label: str,
        placement: ProgramPlacement,
        keys: Sequence[str],
        said: Sequence[str],
        *,
        fewest: int = 2,
    ) -> None:
        assert len(keys) == len(said) >= 1000
        ours = placement.owner_many(list(keys))
        wrong = [(k, a, b) for k, a, b in zip(keys, said, ours, strict=True) if a != b]
        assert not wrong, f"{label}: {len(wrong)} of {len(keys)} differ; (key, {program}, ours): {wrong[:5]}"
        assert [placement.owner(key) for key in keys] == list(said)
        assert len(set(said)) >= fewest, "every key went to one server: that shows nothing"
        self.compared += len(keys)
        self.cases += 1
        if RECORD:
            self.rows.setdefault(program, []).append(row(label, placement, list(keys)[:RECORDED_KEYS]))


def row(label: str, placement: ProgramPlacement, keys: list[str]) -> str:
    """What the program was seen to answer: the comparison has passed, so it is what we answer."""
    place = {name: i for i, name in enumerate(placement.servers)}
    return json.dumps(
        {
            "case": label,
            "placement": placement.to_dict(),
            "keys": keys,
            "answer_index": [place[owner] for owner in placement.owner_many(keys)],
        }
    )


def write_vectors(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program, rows in _CHECK.rows.items():
        name = re.sub(r"[^a-z0-9.]+", "-", program.lower()).strip("-")
        head = f'{{\n"program": {json.dumps(program)},\n"cases": [\n'
        (folder / f"{name}.json").write_text(head + ",\n".join(rows) + "\n]\n}\n")


_CHECK = Check()


@pytest.fixture(scope="session")
def check() -> Check:
    return _CHECK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        f"compared with running programs: {_CHECK.compared} keys in {_CHECK.cases} configurations"
    )
    if RECORD:
        write_vectors(Path(RECORD))


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    # Not pytest's: the paths of sockets are hashed, so they come into the vectors, and must be short.
    with tempfile.TemporaryDirectory(prefix="ringhash-", dir="/tmp") as path:
        yield Path(path)


class Backends:
    """25 HTTP servers on ports and 5 on sockets; each says its own address."""

    def __init__(self, ports: list[int], sockets: list[Path]) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.sockets = sockets


@pytest.fixture(scope="session")
def backends(folder: Path) -> Iterator[Backends]:
    ports = free_ports(25)
    sockets = [folder / f"backend-{i}.sock" for i in range(5)]
    listens = [(f"127.0.0.1:{port}", f"127.0.0.1:{port}") for port in ports]
    listens += [(f"unix:{path}", f"unix:{path}") for path in sockets]
    servers = "\n".join(
        f'server {{ listen {listen}; location / {{ return 200 "{name}"; }} }}' for listen, name in listens
    )
    with nginx(folder / "backends", f"http {{ {HTTP} {servers} }}", ports[-1]):
        yield Backends(ports, sockets)


HTTP = """access_log off; keepalive_requests 1000000; default_type text/plain;
    large_client_header_buffers 8 64k; client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;"""


@contextlib.contextmanager
def nginx(home: Path, body: str, port: int) -> Iterator[None]:
    """nginx in the foreground, with one worker and all its files in `home`."""
    home.mkdir()
    modules = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
    load = f"load_module {modules};" if modules.exists() else ""
    root = "user root;" if os.geteuid() == 0 else ""
    (home / "nginx.conf").write_text(
        f"{load} {root} daemon off; worker_processes 1; pid nginx.pid; error_log stderr error;\n"
        f"events {{ worker_connections 4096; }}\n{body}\n"
    )
    command = [binary("nginx"), "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "stderr"]
    with running(command, home / "log", lambda: answers(port)):
        yield


@pytest.fixture(scope="session")
def memcacheds(folder: Path) -> Iterator[dict[str, int | Path]]:
    """25 memcached on ports and 5 on sockets, by their addresses."""
    program = binary("memcached")
    ports = free_ports(25)
    sockets = [folder / f"memcached-{i}.sock" for i in range(5)]
    with contextlib.ExitStack() as stack:
        kill = signal.SIGKILL  # it takes a second to end otherwise, and holds nothing
        for port in ports:
            command = [program, *user(), "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "8"]
            stack.enter_context(running(command, folder / f"{port}.log", lambda p=port: answers(p), kill))
        for path in sockets:
            command = [program, *user(), "-s", str(path), "-t", "1", "-m", "8"]
            stack.enter_context(
                running(command, folder / f"{path.name}.log", lambda p=path: answers(p), kill)
            )
        yield {**{f"127.0.0.1:{port}": port for port in ports}, **{str(path): path for path in sockets}}


@pytest.fixture(scope="session")
def nginx_version() -> str:
    return version(binary("nginx"), "-v").replace("nginx version: nginx/", "nginx ")

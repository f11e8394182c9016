"""nginx itself, http and stream, beside `NginxRing`."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest
from conftest import HTTP, Backends, Check, nginx
from programs import ask, free_ports, fresh_keys

from ringhash.interop import NginxRing

WEIGHTS = [1, 2, 3, 1, 5]


def cases(backends: Backends) -> dict[str, tuple[dict[str, int], list[str]]]:
    five, all_25 = backends.addresses[:5], backends.addresses
    sockets = [f"unix:{path}" for path in backends.sockets]
    return {
        "equal": (dict.fromkeys(five, 1), []),
        "unequal weights": (dict(zip(five, WEIGHTS, strict=True)), []),
        "25 servers": (dict.fromkeys(all_25, 1), []),
        "25 servers, unequal weights": ({name: i % 7 + 1 for i, name in enumerate(all_25)}, []),
        "one down": (dict(zip(five, WEIGHTS, strict=True)), [five[2]]),
        "two down of 25": (dict.fromkeys(all_25, 1), [all_25[3], all_25[20]]),
        "unix sockets": (dict(zip(sockets, WEIGHTS, strict=True)), []),
        "ports and sockets": (dict.fromkeys([*five[:2], *sockets[:3]], 2), []),
        "named server": ({name.replace("127.0.0.1", "localhost"): w for name, w in zip(five, WEIGHTS, strict=True)}, []),
    }  # fmt: skip


def upstream(name: str, servers: dict[str, int], down: list[str], extra: str = "") -> str:
    rows = "".join(
        f"server {one} weight={weight} max_fails=0 {'down' if one in down else ''};\n"
        for one, weight in servers.items()
    )
    return f"upstream {name} {{ hash $key consistent; {rows} {extra} }}\n"


def test_http(folder: Path, backends: Backends, check: Check, nginx_version: str) -> None:
    todo = cases(backends)
    ports = free_ports(len(todo))
    body = f"http {{ {HTTP} map $http_x_key $key {{ default $http_x_key; }}\n"
    for i, (port, (servers, down)) in enumerate(zip(ports, todo.values(), strict=True)):
        body += upstream(f"u{i}", servers, down, "keepalive 32;")
        body += (
            f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u{i}; "
            'proxy_http_version 1.1; proxy_set_header Connection ""; } }\n'
        )
    with nginx(folder / "front", body + "}", ports[-1]):
        for port, (label, (servers, down)) in zip(ports, todo.items(), strict=True):
            keys = fresh_keys(1000)
            said = [one.replace("127.0.0.1", "localhost") if label == "named server" else one
                    for one in ask(port, keys)]  # fmt: skip
            check(nginx_version, f"http {label}", NginxRing(servers, down=down), keys, said)


def test_servers_that_fail_are_passed_over_in_the_order_of_the_walk(
    folder: Path, backends: Backends, check: Check, nginx_version: str
) -> None:
    dead = [f"127.0.0.1:{port}" for port in free_ports(3)]  # nobody listens there
    servers = dict.fromkeys([*dead[:1], *backends.addresses[:4], *dead[1:], *backends.addresses[4:8]], 1)
    (port,) = free_ports(1)
    body = f"http {{ {HTTP} map $http_x_key $key {{ default $http_x_key; }}\n" + upstream("u", servers, [])
    body += f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; }} }} }}"
    keys = fresh_keys(1000)
    ring = NginxRing(servers)
    with nginx(folder / "failing", body, port):
        said = ask(port, keys)
    compared = 0
    for key, answer in zip(keys, said, strict=True):
        expected = next((name for name in ring.walk(key) if name not in dead), None)
        if expected is not None:  # else 20 steps found none, and round robin took over
            assert answer == expected, key
            compared += 1
    assert compared > 990
    assert sum(ring.owner(key) in dead for key in keys) > 100


def test_one_server_has_every_key_and_an_empty_key_goes_round(
    folder: Path, backends: Backends, nginx_version: str
) -> None:
    one, five = backends.addresses[:1], backends.addresses[:5]
    ports = free_ports(2)
    body = f"http {{ {HTTP} map $http_x_key $key {{ default $http_x_key; }}\n"
    for i, servers in enumerate((one, five)):
        body += upstream(f"u{i}", dict.fromkeys(servers, 1), [])
        body += f"server {{ listen 127.0.0.1:{ports[i]}; location / {{ proxy_pass http://u{i}; }} }}\n"
    with nginx(folder / "empty", body + "}", ports[-1]):
        assert set(ask(ports[0], [""] * 5)) == {NginxRing(one).owner("")}
        assert len(set(ask(ports[1], [""] * 10))) == 5
    assert NginxRing(five).index_many([""]).tolist() == [-1]


def test_stream(folder: Path, backends: Backends, check: Check, nginx_version: str) -> None:
    if not Path("/usr/lib/nginx/modules/ngx_stream_module.so").exists():
        pytest.skip("nginx has no stream module here")
    servers = dict(zip(backends.addresses[:5], WEIGHTS, strict=True))
    (port,) = free_ports(1)
    rows = "".join(f"server {one} weight={weight};" for one, weight in servers.items())
    body = f"stream {{ upstream u {{ hash $remote_addr consistent; {rows} }} server {{ listen 127.0.0.1:{port}; proxy_pass u; }} }}"
    keys = list({f"127.{random.randrange(256)}.{random.randrange(256)}.{random.randrange(1, 255)}" for _ in range(1100)})[:1000]  # fmt: skip
    said = []
    with nginx(folder / "stream", body, port):
        for key in keys:
            with socket.create_connection(("127.0.0.1", port), 10, (key, 0)) as sock:
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
                reply = b""
                while part := sock.recv(4096):
                    reply += part
            said.append(reply.rpartition(b"\r\n\r\n")[2].decode())
    check(nginx_version, "stream weighted", NginxRing(servers), keys, said)

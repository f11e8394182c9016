"""HAProxy itself beside `HAProxyRing`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Backends, Check
from programs import LETTERS, answers, ask, binary, free_ports, fresh_keys, running, version

from ringhash.interop import HAProxyRing

WEIGHTS = [1, 2, 3, 1, 5]
NO_COMMA = LETTERS.replace(",", "")  # `balance hdr` takes the first value of a list
HEAD = """
global
    maxconn 2000
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    option http-keep-alive
"""


@pytest.fixture(scope="session")
def haproxy_version() -> str:
    return re.sub(r"HAProxy version (\S+).*", r"HAProxy \1", version(binary("haproxy"), "-v"))


def named(addresses: list[str], weights: list[int]) -> list[tuple[str, str, int]]:
    return [
        (f"s{i}", address, weight) for i, (address, weight) in enumerate(zip(addresses, weights, strict=True))
    ]


def case(
    servers: list[tuple[str, str, int]],
    hash_type: str = "",
    ids: dict[str, int] | None = None,
    disabled: tuple[str, ...] = (),
    balance: str = "hdr(X-Key)",
    **settings: Any,
) -> tuple[str, HAProxyRing, dict[str, str]]:
    rows = "".join(
        f"    server {name} {address} weight {weight}"
        f"{f' id {ids[name]}' if ids and name in ids else ''}{' disabled' if name in disabled else ''}\n"
        for name, address, weight in servers
    )
    text = f"    balance {balance}\n    hash-type consistent {hash_type}\n{rows}"
    ring = HAProxyRing({name: weight for name, _, weight in servers}, ids=ids, **settings)
    return text, ring, {address: name for name, address, _ in servers}


def cases(backends: Backends) -> dict[str, tuple[str, HAProxyRing, dict[str, str]]]:
    five = named(backends.addresses[:5], WEIGHTS)
    all_25 = named(backends.addresses, [1] * 25)
    sockets = named([f"unix@{path}" for path in backends.sockets], WEIGHTS)
    found = {
        "equal": case(named(backends.addresses[:5], [1] * 5)),
        "unequal weights": case(five),
        "25 servers": case(all_25),
        "weights to 256": case(named(backends.addresses[:5], [100, 256, 10, 1, 37])),
        "explicit ids": case(five, ids={"s0": 101, "s1": 57, "s2": 3, "s3": 1999, "s4": 42}),
        "some ids": case(named(backends.addresses[:8], [1] * 8), ids={"s1": 1, "s3": 4, "s4": 6, "s6": 100}),
        "a weight of 0": case(named(backends.addresses[:5], [1, 0, 3, 1, 5])),
        "unix sockets": case(sockets),
        "by path": case(five, balance="uri"),
    }
    for name in ("sdbm", "djb2", "wt6", "crc32"):
        found[f"{name}"] = case(five, name, hash=name, avalanche=False)
        found[f"{name} avalanche"] = case(five, f"{name} avalanche", hash=name, avalanche=True)
    return found


def test_every_key_goes_to_the_same_server(
    folder: Path, backends: Backends, check: Check, haproxy_version: str
) -> None:
    todo = cases(backends)
    ports = free_ports(len(todo))
    config = HEAD + "".join(
        f"listen l{i}\n    bind 127.0.0.1:{port}\n{text}"
        for i, (port, (text, _, _)) in enumerate(zip(ports, todo.values(), strict=True))
    )
    (folder / "haproxy.cfg").write_text(config)
    command = [binary("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]
    with running(command, folder / "haproxy.log", lambda: answers(ports[-1])):
        for port, (label, (_, ring, names)) in zip(ports, todo.items(), strict=True):
            names = {address.replace("unix@", "unix:"): name for address, name in names.items()}
            if label == "by path":
                keys = ["/" + key for key in fresh_keys(1000, letters="abcdefghij0123456789/-_.", other="")]
                said = ask(port, keys, path=lambda key: key + "?version=3")
            else:
                keys = fresh_keys(1000, letters=NO_COMMA)
                said = ask(port, keys)
            check(haproxy_version, label, ring, keys, [names[one] for one in said])


def test_the_walk_is_who_takes_over_when_servers_are_down(
    folder: Path, backends: Backends, haproxy_version: str
) -> None:
    servers = named(backends.addresses[:8], [1, 2, 3, 1, 5, 1, 1, 2])
    down = ("s1", "s4", "s6")
    text, ring, names = case(servers, disabled=down)
    (port,) = free_ports(1)
    (folder / "down.cfg").write_text(f"{HEAD}listen l\n    bind 127.0.0.1:{port}\n{text}")
    keys = fresh_keys(1000, letters=NO_COMMA)
    with running(
        [binary("haproxy"), "-db", "-f", str(folder / "down.cfg")], folder / "down.log", lambda: answers(port)
    ):
        said = [names[one] for one in ask(port, keys)]
    assert said == [next(name for name in ring.walk(key) if name not in down) for key in keys]
    assert sum(ring.owner(key) in down for key in keys) > 100

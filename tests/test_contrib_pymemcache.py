"""The hasher for pymemcache, asked by the real `HashClient`, over real memcached servers."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ringhash import DuplicateNodeError, Ring
from ringhash.interop import KetamaRing

pymemcache: Any = pytest.importorskip("pymemcache")
from pymemcache.client.hash import HashClient as TheirClient
from pymemcache.client.rendezvous import RendezvousHash

from ringhash.contrib.pymemcache import HashClient, Hasher, hasher

SERVERS = [f"10.0.0.{i}:11211" for i in range(1, 9)]
KEYS = [f"user:{i}" for i in range(2000)]
MAKERS: dict[str, Any] = {
    "ours": Hasher,
    "vnodes": hasher(vnodes=40, seed=7, weights={SERVERS[0]: 2.5}),
    "rendezvous": hasher(compatible="rendezvous"),
    "libmemcached": hasher(compatible="libmemcached"),
    "weighted": hasher(compatible="libmemcached-weighted", weights={SERVERS[1]: 3}),
    "twemproxy": hasher(compatible="twemproxy", hash="md5"),
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def filled(make: Any, servers: list[str] = SERVERS) -> Any:
    found = make()
    for server in servers:
        found.add_node(server)
    return found


# --- the hasher ---


@EACH
def test_a_server_comes_twice_leaves_twice_and_returns(make: Any) -> None:
    one = make()
    assert one.get_node("a") is None
    one.remove_node(SERVERS[0])
    assert one.get_node("a") is None
    one = filled(make)
    before = [one.get_node(key) for key in KEYS]
    assert set(before) == set(SERVERS)
    one.add_node(SERVERS[3])
    assert [one.get_node(key) for key in KEYS] == before
    one.remove_node(SERVERS[3])
    one.remove_node(SERVERS[3])
    without = [one.get_node(key) for key in KEYS]
    assert SERVERS[3] not in without
    if "weighted" not in repr(one) and "twemproxy" not in repr(one):  # those move others' keys too
        assert all(a == b for a, b in zip(before, without, strict=True) if a != SERVERS[3])
    one.add_node(SERVERS[3])
    assert [one.get_node(key) for key in KEYS] == before
    for server in SERVERS:
        one.remove_node(server)
    assert one.get_node("a") is None


def test_each_places_keys_as_its_original() -> None:
    servers = filled(MAKERS["vnodes"])
    ring = Ring({name: 2.5 if name == SERVERS[0] else 1.0 for name in SERVERS}, vnodes=40, seed=7)
    assert [servers.get_node(key) for key in KEYS] == ring.owner_many(KEYS)
    for flavour in ("libmemcached", "twemproxy", "spymemcached", "libketama"):
        servers = filled(hasher(compatible=flavour))
        assert [servers.get_node(key) for key in KEYS] == KetamaRing(SERVERS, flavour).owner_many(KEYS)
    weighted = KetamaRing({name: 3 if name == SERVERS[1] else 1 for name in SERVERS}, "libmemcached-weighted")
    servers = filled(MAKERS["weighted"])
    assert [servers.get_node(key) for key in KEYS] == weighted.owner_many(KEYS)


def test_rendezvous_is_pymemcaches_own() -> None:
    random.seed(5)
    letters = "abcxyz:/-é→漢\x7f0123"
    for count in (1, 2, 9):
        names = random.sample([*SERVERS, "/run/é.sock", "h:1", "h:2"], count)
        theirs = RendezvousHash()
        for name in names:
            theirs.add_node(name)
        ours = filled(hasher(compatible="rendezvous"), names[::-1])
        keys: list[Any] = ["".join(random.choices(letters, k=random.randrange(60))) for _ in range(1500)]
        keys += [b"bytes", b"\xff", "k" * 250]
        assert [ours.get_node(key) for key in keys] == [theirs.get_node(key) for key in keys]


def test_of_equal_hashes_the_last_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two texts with one MurmurHash3 are at hand, so both are given a hash that is always 7."""
    monkeypatch.setattr("ringhash.contrib.pymemcache.highest", lambda prefixes, key: 0)
    theirs = RendezvousHash(hash_function=lambda text, seed: 7)
    for name in SERVERS:
        theirs.add_node(name)
    assert filled(hasher(compatible="rendezvous")).get_node("k") == theirs.get_node("k")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compatible": "ketama"}, "must be one of rendezvous, libketama"),
        ({"compatible": "rendezvous", "vnodes": 10}, "options of our ring"),
        ({"compatible": "rendezvous", "weights": {"a:1": 2}}, "no weights"),
        ({"compatible": "rendezvous", "hash": "md5"}, "flavour of ketama"),
        ({"compatible": "libmemcached", "hash": "sha1"}, "no hash 'sha1'"),
        ({"compatible": "libmemcached", "weights": {"a:1": 1.5}}, "whole number"),
        ({"vnodes": 0}, "vnodes"),
        ({"weights": {"a:1": -1}}, "weight"),
        ({"replicas": 3}, "unexpected keyword"),
    ],
)
def test_a_wrong_option_is_told_at_once(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hasher(**options)


def test_a_node_is_a_name() -> None:
    with pytest.raises(TypeError, match="must be a str"):
        Hasher().add_node(("10.0.0.1", 11211))  # type: ignore[arg-type]
    servers = filled(hasher(compatible="libmemcached"), ["h", "h:11211"])
    with pytest.raises(DuplicateNodeError, match="are one server"):
        servers.get_node("a")


# --- every server dead ---


def closed_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return found


CLIENTS = pytest.mark.parametrize("client_class", [TheirClient, HashClient], ids=["theirs", "ours"])


@EACH
@CLIENTS
def test_every_server_dead(make: Any, client_class: Any) -> None:
    """What pymemcache 4.0 answers with its own hasher."""
    servers = [("127.0.0.1", port) for port in closed_ports(2)]
    options = {"retry_attempts": 0, "connect_timeout": 2}
    for one in (make, RendezvousHash):
        client = client_class(servers, hasher=one, ignore_exc=True, **options)
        for _ in range(3):  # until each has been tried, and is dead
            client.get_many([f"k{i}" for i in range(50)])
        assert client.get("k", "D") == "D"
        assert client.set("k", "v") is False
        assert client.get_many(["a", "b"]) == {}
        assert sorted(client.set_many({"a": 1, "b": 2})) == ["a", "b"]
        assert client.delete("k") is False
        assert client.gets("k") is None
        client = client_class(servers, hasher=one, ignore_exc=False, **options)
        for _ in servers:
            with pytest.raises(OSError, match="refused"):
                client.set_many(dict.fromkeys(KEYS[:50], "1"))
        with pytest.raises(pymemcache.MemcacheError, match="All servers seem to be down"):
            client.get("k")


# --- real servers ---


@contextlib.contextmanager
def memcached(port: int) -> Iterator[None]:
    program = shutil.which("memcached")
    if program is None:
        pytest.skip("memcached is not installed: .ci/interop installs it")
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "8"]
    command += ["-u", "root"] if os.geteuid() == 0 else []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.01)
        assert process.poll() is None, "memcached ended"
        yield
    finally:
        process.kill()
        process.wait(20)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[tuple[str, int]]]:
    ports = closed_ports(4)
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(memcached(port))
        yield [("127.0.0.1", port) for port in ports]


@EACH
@CLIENTS
def test_keys_lie_where_the_hasher_says(make: Any, client_class: Any, servers: Any) -> None:
    client = client_class(servers, hasher=make)
    assert client.set_many({key: key for key in KEYS[:300]}, noreply=False) == []
    assert client.get_many(KEYS[:300]) == {key: key.encode() for key in KEYS[:300]}
    places = filled(make, [f"{host}:{port}" for host, port in servers])
    for server in servers:
        alone = pymemcache.Client(server)
        held = [key for key in KEYS[:300] if places.get_node(key) == f"{server[0]}:{server[1]}"]
        assert sorted(alone.get_many(KEYS[:300])) == sorted(held)
        alone.flush_all(noreply=False)
        alone.close()
    client.close()


def test_a_switch_from_pymemcaches_own_hasher_misses_nothing(servers: Any) -> None:
    theirs = TheirClient(servers)
    theirs.set_many(dict.fromkeys(KEYS[:300], "1"), noreply=False)
    ours = HashClient(servers, hasher=hasher(compatible="rendezvous"))
    assert len(ours.get_many(KEYS[:300])) == 300
    other = HashClient(servers)
    assert len(other.get_many(KEYS[:300])) < 200  # our ring puts most of them elsewhere
    for client in (theirs, ours, other):
        client.flush_all(noreply=False)
        client.close()


@EACH
def test_a_healthy_server_is_removed_for_good(make: Any, servers: Any) -> None:
    theirs = TheirClient(servers, hasher=make)
    with pytest.raises(KeyError):
        theirs.remove_server(servers[0])
    client = HashClient(servers, hasher=make, dead_timeout=0)
    gone = [key for key in KEYS[:200] if client._get_client(key).server == servers[0]]
    for spec in (servers[0], f"{servers[1][0]}:{servers[1][1]}"):
        client.remove_server(spec)
    client.remove_server(*servers[2])
    assert gone
    assert {client._get_client(key).server for key in KEYS[:200]} == {servers[3]}
    assert client.set("k", "v", noreply=False) is True
    with pytest.raises(KeyError):
        client.remove_server(servers[0])
    client.add_server(servers[0])
    assert {client._get_client(key).server for key in KEYS[:200]} == {servers[0], servers[3]}
    for one in (theirs, client):
        one.flush_all(noreply=False)
        one.close()


@CLIENTS
def test_a_server_that_dies_and_returns_has_its_old_keys(client_class: Any, servers: Any) -> None:
    (port,) = closed_ports(1)
    options = {"retry_attempts": 0, "dead_timeout": 0, "ignore_exc": True, "connect_timeout": 2}
    with memcached(port):
        client = client_class([*servers, ("127.0.0.1", port)], hasher=Hasher, **options)
        mine = [key for key in KEYS if client._get_client(key).server[1] == port]
        others = {key: client._get_client(key).server for key in KEYS if key not in mine}
        assert client.set(mine[0], "v", noreply=False) is True
    client.dead_timeout = 1e9
    client.get_many(mine[:5])
    client.get_many(mine[:5])
    assert all(client._get_client(key).server[1] != port for key in mine)
    assert {key: client._get_client(key).server for key in others} == others
    client.dead_timeout = -1
    with memcached(port):
        assert all(client._get_client(key).server[1] == port for key in mine)
        assert client.set(mine[0], "again", noreply=False) is True
        assert client.get(mine[0]) == b"again"
        client.close()

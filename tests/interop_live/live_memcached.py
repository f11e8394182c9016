"""nutcracker in front of memcached, libmemcached, pylibmc and libketama beside `KetamaRing`."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from conftest import Check
from programs import (
    answers,
    binary,
    free_ports,
    fresh_keys,
    located,
    memcached_set,
    running,
    stored_keys,
    version,
)

from ringhash.interop import KetamaRing

WEIGHTS = [1, 2, 3, 1, 5]
TWEMPROXY_HASHES = (
    "one_at_a_time", "md5", "crc16", "crc32", "crc32a", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32",
    "hsieh", "murmur", "jenkins",
)  # fmt: skip
LIBMEMCACHED_HASHES = (
    "default",
    "md5",
    "crc",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "murmur",
    "jenkins",
)
PRINTABLE = "".join(chr(i) for i in range(33, 127))


def weighted(names: list[str], weights: list[int] | None = None) -> dict[str, int]:
    return dict(zip(names, weights or [1] * len(names), strict=True))


# --- twemproxy ---


def twemproxy_cases(memcacheds: dict[str, int | Path]) -> dict[str, tuple[dict[str, int], str, str | None]]:
    ports = [name for name, where in memcacheds.items() if isinstance(where, int)]
    sockets = [name for name, where in memcacheds.items() if isinstance(where, Path)]
    named = ["alpha", "beta", "gamma", "delta", "a-much-longer-name.example:99"]
    with_names = [f"{address} {name}" for address, name in zip(ports[:5], named, strict=True)]
    found: dict[str, tuple[dict[str, int], str, str | None]] = {
        f"{name}": (weighted(ports[:5], WEIGHTS), name, None) for name in TWEMPROXY_HASHES
    }
    found["equal"] = (weighted(ports[:5]), "fnv1a_64", None)
    found["25 servers"] = (weighted(ports), "fnv1a_64", None)
    found["25 servers, unequal weights"] = (weighted(ports, [i % 7 + 1 for i in range(25)]), "murmur", None)
    found["named servers"] = (weighted(with_names, WEIGHTS), "fnv1a_64", None)
    found["hash tags"] = (weighted(ports[:5], WEIGHTS), "fnv1a_64", "{}")
    found["hash tags of dollars"] = (weighted(with_names), "md5", "$$")
    found["unix sockets"] = (
        weighted([f"{path} sock{i}" for i, path in enumerate(sockets)], WEIGHTS),
        "fnv1a_64",
        None,
    )
    found["a long name"] = (weighted([*ports[:4], f"{ports[4]} {'x' * 82}"]), "fnv1a_64", None)
    return found


def pool(servers: dict[str, int], key_hash: str, hash_tag: str | None, port: int) -> str:
    rows = ""
    for name, weight in servers.items():
        address, _, own = name.partition(" ")
        rows += f"   - {address}:{weight}{' ' + own if own else ''}\n"
    tag = f'  hash_tag: "{hash_tag}"\n' if hash_tag else ""
    return (
        f"p{port}:\n  listen: 127.0.0.1:{port}\n  hash: {key_hash}\n  distribution: ketama\n"
        f"  timeout: 5000\n{tag}  servers:\n{rows}"
    )


def tagged(keys: list[str]) -> list[str]:
    forms = ("{%s}:cart", "x{%s}y{zz}", "%s{}q", "open{%s", "$%s$tail", "$$%s", "%s")
    return [forms[i % len(forms)] % key for i, key in enumerate(keys)]


def test_twemproxy(folder: Path, memcacheds: dict[str, int | Path], check: Check) -> None:
    program = binary("nutcracker")
    todo = twemproxy_cases(memcacheds)
    *ports, stats = free_ports(len(todo) + 1)
    (folder / "nutcracker.yml").write_text(
        "\n".join(pool(*case, port) for port, case in zip(ports, todo.values(), strict=True))
    )
    command = [
        program,
        "-c",
        str(folder / "nutcracker.yml"),
        "-s",
        str(stats),
        "-a",
        "127.0.0.1",
        "-m",
        "16384",
    ]
    running_version = version(program, "-V").replace("This is nutcracker-", "nutcracker ")
    with running(command, folder / "nutcracker.log", lambda: all(map(answers, ports))):
        for port, (label, (servers, key_hash, hash_tag)) in zip(ports, todo.items(), strict=True):
            keys = tagged(stored_keys(1000)) if hash_tag else stored_keys(1000)
            memcached_set(port, keys)
            backends = {name: memcacheds[name.partition(" ")[0]] for name in servers}
            ring = KetamaRing(servers, "twemproxy", hash=key_hash, hash_tag=hash_tag)
            fewest = 1 if key_hash in ("crc16", "crc32") else 2  # 15 or 16 bits of 32: the first points
            check(running_version, label, ring, keys, located(backends, keys), fewest=fewest)


# --- libmemcached, asked where it would send a key ---

KETAMA_WEIGHTED, HASH, DISTRIBUTION = 16, 2, 9
DISTRIBUTIONS = {"consistent": 1, "ketama": 2, "spy": 4}
HASH_NUMBERS = {name: i for i, name in enumerate(("default", "md5", "crc", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32", "hsieh", "murmur", "jenkins", "murmur3"))}  # fmt: skip


class Libmemcached:
    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL("libmemcached.so.11")
        except OSError:
            pytest.skip("libmemcached is not installed")
        lib.memcached_create.restype = ctypes.c_void_p
        lib.memcached_create.argtypes = [ctypes.c_void_p]
        lib.memcached_free.argtypes = [ctypes.c_void_p]
        lib.memcached_behavior_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
        lib.memcached_server_add_with_weight.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_uint16,
            ctypes.c_uint32,
        ]
        lib.memcached_server_add_unix_socket_with_weight.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_uint32,
        ]
        lib.memcached_generate_hash.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        lib.memcached_generate_hash.restype = ctypes.c_uint32
        lib.memcached_lib_version.restype = ctypes.c_char_p
        self.lib = lib
        self.version = f"libmemcached {lib.memcached_lib_version().decode()}"

    def owners(
        self, servers: dict[str, int], keys: list[str], *, distribution: str, key_hash: str
    ) -> list[str]:
        lib = self.lib
        client = lib.memcached_create(None)
        try:
            if distribution == "weighted":
                assert lib.memcached_behavior_set(client, KETAMA_WEIGHTED, 1) == 0
                if key_hash != "md5":
                    assert lib.memcached_behavior_set(client, HASH, HASH_NUMBERS[key_hash]) == 0
            else:
                assert lib.memcached_behavior_set(client, HASH, HASH_NUMBERS[key_hash]) == 0
                assert lib.memcached_behavior_set(client, DISTRIBUTION, DISTRIBUTIONS[distribution]) == 0
            for name, weight in servers.items():
                if name.startswith("/"):
                    assert (
                        lib.memcached_server_add_unix_socket_with_weight(client, name.encode(), weight) == 0
                    )
                else:
                    host, _, port = name.partition(":")
                    assert (
                        lib.memcached_server_add_with_weight(
                            client, host.encode(), int(port or 11211), weight
                        )
                        == 0
                    )
            names = list(servers)
            return [names[lib.memcached_generate_hash(client, k.encode(), len(k.encode()))] for k in keys]
        finally:
            lib.memcached_free(client)


HOSTS = {
    "ports": ["10.0.0.1:11212", "10.0.0.1:11213", "10.0.0.2:11211", "10.0.0.3", "cache.example.com:11300"],
    "25 servers": [f"10.0.0.{i}:11312" for i in range(1, 26)],
    "unix sockets": [f"/run/memcached/{i}.sock" for i in range(5)],
}
FLAVOURS = {"ketama": "libmemcached", "consistent": "libmemcached", "weighted": "libmemcached-weighted", "spy": "spymemcached"}  # fmt: skip


@pytest.mark.parametrize("distribution", FLAVOURS)
def test_libmemcached(check: Check, distribution: str) -> None:
    real = Libmemcached()
    flavour: Any = FLAVOURS[distribution]
    for label, names in HOSTS.items():
        for weights in (
            [1] * len(names),
            [i * 3 % 7 + 1 for i in range(len(names))],
            [0, *[2] * (len(names) - 1)],
        ):
            if 0 in weights and flavour == "spymemcached":
                continue
            keys = fresh_keys(1000)
            servers = dict(zip(names, weights, strict=True))
            default = "md5" if distribution == "weighted" else "default"
            said = real.owners(servers, keys, distribution=distribution, key_hash=default)
            kind = "equal" if len(set(weights)) == 1 else "a weight of 0" if 0 in weights else "unequal"
            check(real.version, f"{distribution} {label} {kind}", KetamaRing(servers, flavour), keys, said)


@pytest.mark.parametrize("key_hash", [*LIBMEMCACHED_HASHES, "murmur3"])
@pytest.mark.parametrize("distribution", ["ketama", "weighted", "spy"])
def test_libmemcached_hashes(check: Check, distribution: str, key_hash: str) -> None:
    real = Libmemcached()
    flavour: Any = FLAVOURS[distribution]
    for weights in ([1] * 5, WEIGHTS):
        servers = weighted(HOSTS["ports"], weights)
        keys = fresh_keys(1000)
        try:
            ring = KetamaRing(servers, flavour, hash=key_hash)
            ours = set(ring.owner_many(keys))
        except ValueError as error:  # pragma: no cover
            raise AssertionError(key_hash) from error
        said = real.owners(servers, keys, distribution=distribution, key_hash=key_hash)
        if len(ours) == 1:
            assert set(said) == ours
            continue
        kind = "equal" if weights[1] == 1 else "unequal"
        check(real.version, f"{distribution} {key_hash} {kind}", ring, keys, said)


# --- pylibmc, which brings a libmemcached of its own ---


@pytest.mark.parametrize(
    ("label", "behaviors", "flavour", "weights"),
    [
        ("ketama", {"ketama": True}, "libmemcached", None),
        ("ketama unequal", {"ketama": True}, "libmemcached", WEIGHTS),
        ("ketama weighted", {"ketama_weighted": True}, "libmemcached-weighted", WEIGHTS),
        ("ketama weighted equal", {"ketama_weighted": True}, "libmemcached-weighted", None),
        ("ketama murmur", {"ketama": True, "hash": "murmur"}, "libmemcached", None),
        ("spy", {"distribution": "consistent ketama spy"}, "spymemcached", None),
    ],
)
def test_pylibmc(
    memcacheds: dict[str, int | Path],
    check: Check,
    label: str,
    behaviors: dict[str, Any],
    flavour: Any,
    weights: Any,
) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    names = [name for name, where in memcacheds.items() if isinstance(where, int)][:5]
    servers = weighted(names, weights)
    client = pylibmc.Client(
        [f"{name}:{weight}" if weights else name for name, weight in servers.items()], behaviors=behaviors
    )
    keys = stored_keys(1000)
    for key in keys:
        assert client.set(key, "x")
    ring = KetamaRing(servers, flavour, hash=behaviors.get("hash"))
    program = f"pylibmc {pylibmc.__version__} with libmemcached {pylibmc.libmemcached_version}"
    check(program, label, ring, keys, located({name: memcacheds[name] for name in names}, keys))


# --- what pylibmc has stored, read by pymemcache with our hasher ---


@pytest.mark.parametrize(
    ("behaviors", "options"),
    [
        ({"ketama": True}, {"compatible": "libmemcached"}),
        ({"ketama": True, "hash": "murmur"}, {"compatible": "libmemcached", "hash": "murmur"}),
        ({"ketama_weighted": True}, {"compatible": "libmemcached-weighted"}),
        ({"distribution": "consistent ketama spy"}, {"compatible": "spymemcached"}),
    ],
    ids=["ketama", "murmur", "weighted", "spy"],
)
def test_pymemcache_after_pylibmc(
    memcacheds: dict[str, int | Path], behaviors: dict[str, Any], options: dict[str, Any]
) -> None:
    pylibmc = pytest.importorskip("pylibmc")
    contrib = pytest.importorskip("ringhash.contrib.pymemcache")
    names = [name for name, where in memcacheds.items() if isinstance(where, int)][5:17]
    there = pylibmc.Client(names, behaviors=behaviors)
    keys = [key for key in stored_keys(1200) if key.isascii()][:1000]
    for key in keys:
        assert there.set(key, "x")
    for make, least, most in (
        (contrib.hasher(**options), len(keys), len(keys)),
        (contrib.Hasher, 0, len(keys) / 2),  # our own ring finds only what happens to lie in both places
    ):
        client = contrib.HashClient(names, hasher=make)
        assert least <= len(client.get_many(keys)) <= most
        client.close()


# --- libketama, the original ---


@pytest.mark.parametrize(
    "weights", [[100] * 5, [600, 300, 200, 350, 1000], [1] * 25, [i * 5 % 13 + 1 for i in range(61)]]
)
def test_libketama(tmp_path: Path, check: Check, weights: list[int]) -> None:
    ketama = pytest.importorskip("ketama")
    servers = {f"10.0.1.{i}:11211": weight for i, weight in enumerate(weights, 1)}
    listing = tmp_path / f"ketama-{len(weights)}-{weights[0]}.servers"
    listing.write_text("".join(f"{name}\t{weight}\n" for name, weight in servers.items()))
    continuum = ketama.Ketama(str(listing))
    keys = fresh_keys(1000, other="")  # of others, the binding hashes as many bytes as they have characters
    said = [continuum.get_server(key)[1] for key in keys]
    program = f"libketama of ketama {importlib.metadata.version('ketama')}"
    check(program, f"{len(weights)} servers from {weights[0]}", KetamaRing(servers, "libketama"), keys, said)

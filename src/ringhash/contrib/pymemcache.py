"""pymemcache: where its `HashClient` sends a key, and a client that can let a server go.

`HashClient` asks a hasher with three methods, `add_node`, `remove_node` and `get_node`, and makes it from a
class without arguments; `Hasher` is such a class, and `hasher(...)` is one with options.

The placements that pymemcache's users come from are here too, so that a switch loses no key: its own
rendezvous hashing, and the rings of libmemcached (pylibmc).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any, Literal, get_args

from pymemcache.client import hash as _hash  # type: ignore[import-untyped]

from ringhash.interop._table import highest
from ringhash.interop.ketama import Flavour, KetamaRing
from ringhash.node import Node
from ringhash.placements.ring import Ring

__all__ = ["Compatible", "HashClient", "Hasher", "hasher"]

Compatible = Literal["rendezvous"] | Flavour

_COMPATIBLE = ("rendezvous", *get_args(Flavour))


class Hasher:
    """Which memcached server has a key; what `HashClient(servers, hasher=...)` takes.

    Args:
        vnodes: Points a server on our ring.
        seed: Of the hash of our ring.
        hash_tags: Whether a part of a key in braces stands for the whole of it on our ring.
        weights: Weights by server, "host:port" or the path of a socket; 1 for the others.
        compatible: Instead of our ring the placement of another client: "rendezvous" (pymemcache's own),
            or a flavour of `ringhash.interop.KetamaRing`, such as "libmemcached" (pylibmc's `ketama`) or
            "libmemcached-weighted" (`ketama_weighted`).
        hash: With a flavour, the hash of keys by its name there; None for its default.

    Raises:
        TypeError, ValueError: An option is wrong, or does not go with `compatible`.

    A server that is added twice, or removed although it is not there, changes nothing. One that comes back
    has exactly its old keys. Threads may share a hasher; a lookup sees a change whole or not at all.

    Cost: a lookup is one of our ring or of the flavour; O(servers) for rendezvous. The placement is built
    at the first lookup after a change.

    >>> servers = Hasher()
    >>> servers.get_node("user:7") is None
    True
    >>> for server in ("10.0.0.1:11211", "10.0.0.2:11211"):
    ...     servers.add_node(server)
    >>> servers.get_node("user:7")
    '10.0.0.1:11211'
    >>> servers.remove_node("10.0.0.1:11211")
    >>> servers.get_node("user:7")
    '10.0.0.2:11211'
    """

    def __init__(
        self,
        *,
        vnodes: int = 160,
        seed: int = 0,
        hash_tags: bool = False,
        weights: Mapping[str, float] | None = None,
        compatible: Compatible | None = None,
        hash: str | None = None,  # noqa: A002  (as KetamaRing calls it)
    ) -> None:
        if compatible is not None:
            if compatible not in _COMPATIBLE:
                raise ValueError(f"compatible must be one of {', '.join(_COMPATIBLE)}, not {compatible!r}")
            if (vnodes, seed, hash_tags) != (160, 0, False):
                raise ValueError(f"vnodes, seed and hash_tags are options of our ring, not of {compatible}")
        if hash is not None and compatible in (None, "rendezvous"):
            raise ValueError("hash is that of a flavour of ketama: say which with compatible")
        if weights and compatible == "rendezvous":
            raise ValueError("pymemcache's rendezvous hashing has no weights")
        self._options: dict[str, Any] = {"vnodes": vnodes, "seed": seed, "hash_tags": hash_tags}
        self._weights = dict(weights or {})
        self._compatible = compatible
        self._hash = hash
        self._there: dict[str, bool] = {}  # in the order in which they first came, for ties of ketama
        self._lock = Lock()
        self._get: Callable[[Any], str | None] | None = None
        self._place(list(self._weights) or ["127.0.0.1:11211"])  # so that a wrong option is told here

    def add_node(self, node: str) -> None:
        """Let a server own keys."""
        Node(node)
        self._set(node, True)

    def remove_node(self, node: str) -> None:
        """Give the keys of a server to the others."""
        if node in self._there:
            self._set(node, False)

    def _set(self, node: str, there: bool) -> None:
        with self._lock:
            self._there[node] = there
            self._get = None

    def get_node(self, key: str | bytes) -> str | None:
        """Return the server that has `key`; None if there is none."""
        get = self._get
        if get is None:
            get = self._made()
        return get(key)

    def _made(self) -> Callable[[Any], str | None]:
        with self._lock:
            if self._get is None:
                nodes = [node for node, there in self._there.items() if there]
                self._get = self._place(nodes) if nodes else _nobody
            return self._get

    def _place(self, nodes: list[str]) -> Callable[[Any], str]:
        if self._compatible is None:
            weighted = {node: self._weights.get(node, 1.0) for node in nodes}
            return Ring(weighted, **self._options).owner
        if self._compatible == "rendezvous":
            return _rendezvous(nodes)
        whole: dict[str, Any] = {node: self._weights.get(node, 1) for node in nodes}
        return KetamaRing(whole, self._compatible, hash=self._hash).owner

    def __repr__(self) -> str:
        there = [node for node, is_there in self._there.items() if is_there]
        return f"<{type(self).__name__} {self._compatible or 'ring'} {there}>"


def hasher(**options: Any) -> Callable[[], Hasher]:
    """Return what makes a `Hasher` with these options, as `HashClient(servers, hasher=...)` takes it.

    Raises:
        TypeError, ValueError: An option is wrong.

    >>> make = hasher(compatible="rendezvous")
    >>> make()
    <Hasher rendezvous []>
    """
    Hasher(**options)
    return partial(Hasher, **options)


def _nobody(key: object) -> None:  # noqa: ARG001
    return None


def _rendezvous(nodes: list[str]) -> Callable[[Any], str]:
    """pymemcache.client.rendezvous: the greatest MurmurHash3 of "node-key"; of equal ones, the last name."""
    ordered = sorted(nodes, reverse=True)
    prefixes = tuple(_low_bytes(f"{node}-") for node in ordered)

    def owner(key: object) -> str:
        return ordered[highest(prefixes, _low_bytes(str(key)))]

    return owner


def _low_bytes(text: str) -> bytes:
    """The low byte of each character, which is all that pymemcache's murmur3_32 looks at."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return bytes(ord(character) & 0xFF for character in text)


class HashClient(_hash.HashClient):  # type: ignore[misc]  # pymemcache's own stubs say Any
    """A `pymemcache.HashClient` whose `remove_server` takes a server out for good, healthy or not.

    There it raises `KeyError` for a healthy server, and brings every other back after `dead_timeout`.
    By default its keys are placed by `Hasher`; all else is as there, and takes the same arguments.
    """

    def __init__(self, servers: Any, hasher: Callable[[], Any] = Hasher, **options: Any) -> None:
        super().__init__(servers, hasher=hasher, **options)

    def remove_server(self, server: Any, port: int | None = None) -> None:
        """Take a server out: its keys go to the others, and its connections are closed.

        Args:
            server: (host, port), "host:port", the path of a socket, or a host, with its port beside it.

        Raises:
            KeyError: There is no such server.
        """
        server = (server, port) if port is not None else _hash.normalize_server_spec(server)
        client = self.clients.pop(self._make_client_key(server))
        self.hasher.remove_node(self._make_client_key(server))
        self._failed_clients.pop(server, None)
        self._dead_clients.pop(server, None)
        client.close()

    # pymemcache itself calls remove_server for a server that it finds dead, and has it come back later.
    # So this happens here, before it would.

    def _bury(self, server: Any) -> None:
        self._failed_clients.pop(server, None)
        self._dead_clients[server] = _hash.time.time()
        self.hasher.remove_node(self._make_client_key(server))

    def _bury_if_given_up(self, server: Any) -> None:
        failed = self._failed_clients.get(server)
        if failed is not None and failed["attempts"] >= self.retry_attempts:
            self._bury(server)

    def _safely_run_func(self, client: Any, func: Any, default_val: Any, *args: Any, **kwargs: Any) -> Any:
        self._bury_if_given_up(client.server)
        return super()._safely_run_func(client, func, default_val, *args, **kwargs)

    def _safely_run_set_many(self, client: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        self._bury_if_given_up(client.server)
        return super()._safely_run_set_many(client, values, *args, **kwargs)

    def _mark_failed_server(self, server: Any) -> None:
        if self.retry_attempts <= 0 and server not in self._failed_clients:
            self._bury(server)
        else:
            super()._mark_failed_server(server)

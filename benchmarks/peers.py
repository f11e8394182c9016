"""The peers, each behind one small adapter: build from names, `owner(key)`, `add`, `remove`, and `many` if
there is a batch. `make bench` tries to install what benchmarks/peers.txt names; a missing one is listed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar

import xxhash

from benchmarks.cases import VNODES


class Peer:
    """`names` are those of the nodes; a subclass sets `owner` (and `many`) whenever they change."""

    label: ClassVar[str]
    distribution: ClassVar[str]
    module: ClassVar[str]
    method: ClassVar[str]
    beyond: ClassVar[str]  # what it does that ringhash does not
    replaced: ClassVar[bool] = False  # whether a change makes all of it anew
    owner: Callable[[str], object]
    many: Callable[[list[str]], object] | None = None

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def add(self, name: str) -> None:
        self.names.append(name)
        self.build()

    def remove(self, name: str) -> None:
        self.names.remove(name)
        self.build()

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.distribution)

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, or None."""
        try:
            import_module(cls.module)
        except ImportError:
            return "not installed"
        except SyntaxError:
            return "is written for Python 2"
        return None


class Fastring(Peer):
    label = "fastring"
    distribution = module = "fastring"
    method = "ring of XXH3 points, in Rust"
    beyond = (
        "keeps a host, a port and any object with each node; needs no numpy, so it is a smaller thing to "
        "install and to import"
    )

    def build(self) -> None:
        self.ring = import_module("fastring").HashRing(VNODES)
        for name in self.names:
            self.ring.add_node(name)
        self.owner = self.ring.get_node
        self.many = self.ring.get_node_batch

    def add(self, name: str) -> None:
        self.ring.add_node(name)

    def remove(self, name: str) -> None:
        self.ring.remove_node(name)


class Uhashring(Peer):
    label = "uhashring"
    distribution = module = "uhashring"
    method = "ring of MD5 points, in Python"
    beyond = (
        "takes any function for its hash and for its weights; keeps a host, a port and an object with each "
        "node; patches python-memcached; is pure Python, so it runs where nothing can be compiled"
    )

    def build(self) -> None:
        self.ring = import_module("uhashring").HashRing(list(self.names), vnodes=VNODES)
        self.owner = self.ring.get_node

    def add(self, name: str) -> None:
        self.ring.add_node(name)

    def remove(self, name: str) -> None:
        self.ring.remove_node(name)


class Hashring(Peer):
    label = "hashring"
    distribution = module = "hashring"
    method = "ring of MD5 points (120 a node), in Python"
    beyond = "answers as the old `hash_ring` for Python 2 did; is one file of pure Python"
    replaced = True

    def build(self) -> None:
        self.owner = import_module("hashring").HashRing(self.names).get_node


class HashRing(Peer):
    label = "hash_ring"
    distribution = module = "hash_ring"
    method = "ring of MD5 points, in Python"
    beyond = "talks to memcached by itself"
    replaced = True

    def build(self) -> None:
        self.owner = import_module("hash_ring").HashRing(self.names).get_node


class Jump(Peer):
    label = "jump hash"
    distribution = "jump-consistent-hash"
    module = "jump"
    method = "jump consistent hash in C, of the key's XXH3"
    beyond = (
        "needs no memory, and is as even as the hash itself: every node has its fair share. "
        "Only the last node can come or go, so it numbers shards and not machines"
    )

    def build(self) -> None:
        jump, digest, names = import_module("jump").hash, xxhash.xxh3_64_intdigest, self.names
        count = len(names)
        self.owner = lambda key: names[jump(digest(key.encode()), count)]


class Clandestined(Peer):
    label = "clandestined"
    distribution = module = "clandestined"
    method = "rendezvous of MurmurHash3, hash in C"
    beyond = (
        "is as even as the hash itself, with no points and no memory; "
        "its `Cluster` takes one replica from each zone by rule, without a walk"
    )

    def build(self) -> None:
        self.ring = import_module("clandestined").RendezvousHash(list(self.names))
        self.owner = self.ring.find_node

    def add(self, name: str) -> None:
        self.ring.add_node(name)

    def remove(self, name: str) -> None:
        self.ring.remove_node(name)


class Pymemcache(Peer):
    label = "pymemcache"
    distribution = "pymemcache"
    module = "pymemcache.client.rendezvous"
    method = "rendezvous of MurmurHash3, in Python"
    beyond = (
        "is part of a memcached client, which connects, retries and takes dead servers out; "
        "is as even as the hash itself"
    )

    def build(self) -> None:
        self.ring = import_module(self.module).RendezvousHash(list(self.names))
        self.owner = self.ring.get_node

    def add(self, name: str) -> None:
        self.ring.add_node(name)

    def remove(self, name: str) -> None:
        self.ring.remove_node(name)


class Modulo(Peer):
    """No peer but what a ring replaces: the key's hash, modulo the number of nodes."""

    label = "hash % N"
    distribution = module = "xxhash"
    method = "the key's XXH3 modulo the nodes"
    beyond = ""

    def build(self) -> None:
        digest, names, count = xxhash.xxh3_64_intdigest, self.names, len(self.names)
        self.owner = lambda key: names[digest(key.encode()) % count]


ALL: tuple[type[Peer], ...] = (Fastring, Uhashring, Hashring, HashRing, Jump, Clandestined, Pymemcache)
NOT_ON_PYPI = "discord's hash_ring (C, installed from its repository)"


def here() -> list[type[Peer]]:
    return [peer for peer in ALL if peer.missing() is None]


def by_label(label: str) -> Any:
    return next(peer for peer in ALL if peer.label == label)

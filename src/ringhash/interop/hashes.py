"""The hashes of the programs, by name: from a library where that is as fast, else compiled here.

A name says what a key becomes in one program, so two rings agree on positions when they agree on the
name.

    name        where it is used                                  from
    md5         ketama: the first word, little endian             hashlib
    md5-128     uhashring: the first eight bytes, big endian      hashlib
    crc16       Redis Cluster: CRC-16/XMODEM                      binascii.crc_hqx
    crc32       nginx; HAProxy; twemproxy's crc32a; librdkafka    compiled, as zlib's
    crc32-15    libmemcached's crc, twemproxy's crc32             compiled: bits 16 to 30 of it
    xxh64       Envoy                                             compiled, as xxhash's
    the others  see _hashes.pxd                                   compiled, each with its source
"""

from __future__ import annotations

import binascii
import hashlib
import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from ringhash.interop._table import COMPILED

__all__ = ["hash_named", "hash_names", "hash_size", "library", "md5"]

HashFunction = Callable[[bytes], int]


def library(name: str) -> ModuleType:
    """Return the hash library of that name, or say which extra brings it.

    >>> library("binascii") is binascii
    True
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"this placement needs {name}: pip install 'ringhash[interop]'", name=name
        ) from None


def _crc16(data: bytes) -> int:
    return binascii.crc_hqx(data, 0)


def _plain_md5() -> Callable[[bytes], Any]:
    """Python's own MD5, which is what hashlib falls back on: for short texts twice as fast as OpenSSL's."""
    try:
        function: Callable[[bytes], Any] = importlib.import_module("_md5").md5
    except ImportError:
        return partial(hashlib.md5, usedforsecurity=False)
    return function


md5 = _plain_md5()


def _md5_32(data: bytes) -> int:
    return int.from_bytes(md5(data).digest()[:4], "little")


def _md5_64(data: bytes) -> int:
    return int.from_bytes(md5(data).digest()[:8])


_PLAIN: dict[str, HashFunction] = {
    **COMPILED,
    "crc16": _crc16,
    "md5": _md5_32,
    "md5-128": _md5_64,
}


# Most hashes give any number of 32 bits. Positions that a hash cannot give are no part of a space.
_BITS = {
    "cassandra-murmur3": 64, "envoy-murmur2": 64, "md5-128": 64, "xxh64": 64,
    "kafka-fnv1a": 31, "kafka-murmur2": 31, "crc16": 16, "crc32-15": 15,
}  # fmt: skip


def hash_size(name: str) -> int:
    """Return how many numbers a hash can give: they are from 0 to one below.

    >>> hash_size("crc32"), hash_size("crc32-15")
    (4294967296, 32768)
    """
    return 1 << _BITS.get(name, 32)


def hash_names() -> list[str]:
    """Return the names that `hash_named` knows."""
    return sorted(_PLAIN)


def hash_named(name: str) -> HashFunction:
    """Return the hash of that name: bytes to an int of at most 64 bits.

    Raises:
        ValueError: There is no hash of that name.

    >>> hash_named("crc16")(b"123456789"), hash_named("fnv1_32")(b"a")
    (12739, 84696446)
    """
    try:
        return _PLAIN[name]
    except KeyError:
        raise ValueError(f"there is no hash {name!r}; there are {', '.join(hash_names())}") from None

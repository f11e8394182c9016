"""The hashes of the programs, by name: from a kept library where one has it, else compiled here.

A name says what a key becomes in one program, so two rings agree on positions when they agree on the
name. `xxhash` and `mmh3` come with the extra `interop` and are imported when they are first needed.

    name                where it is used                       source
    crc32               nginx; HAProxy; twemproxy crc32a;      zlib
                        librdkafka's consistent
    crc32-15            libmemcached, twemproxy, nginx's       zlib, then bits 16 to 30
                        plain hash
    crc16               Redis Cluster: CRC-16/XMODEM           binascii.crc_hqx
    md5                 ketama: the first word, little endian  hashlib
    md5-128             uhashring: the first eight bytes       hashlib
    murmur3             libmemcached, 32 bits                  mmh3
    xxh64               Envoy                                  xxhash
    the others          see _hashes.pxd                        compiled, each with its source
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable
from hashlib import md5
from types import ModuleType

from ringhash.interop._table import COMPILED, avalanche

__all__ = ["avalanche", "hash_named", "hash_names", "library"]

HashFunction = Callable[[bytes], int]


def library(name: str) -> ModuleType:
    """Return the hash library of that name, or say which extra brings it.

    >>> library("zlib") is zlib
    True
    """
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"this placement needs {name}: pip install 'ringhash[interop]'", name=name
        ) from None


def _crc32_15(data: bytes) -> int:
    return zlib.crc32(data) >> 16 & 0x7FFF


def _crc32_avalanche(data: bytes) -> int:
    return avalanche(zlib.crc32(data))


def _crc16(data: bytes) -> int:
    return binascii.crc_hqx(data, 0)


def _md5(data: bytes) -> int:
    return int.from_bytes(md5(data, usedforsecurity=False).digest()[:4], "little")


def _md5_64(data: bytes) -> int:
    return int.from_bytes(md5(data, usedforsecurity=False).digest()[:8], "big")


def _murmur3() -> HashFunction:
    hash32 = library("mmh3").hash

    def murmur3(data: bytes) -> int:
        """MurmurHash3_x86_32 with the seed of libhashkit/murmur3.cc."""
        return int(hash32(data, 0xDEADBEEF * len(data) & 0xFFFFFFFF, False))

    return murmur3


def _xxh64() -> HashFunction:
    function: HashFunction = library("xxhash").xxh64_intdigest
    return function


_PLAIN: dict[str, HashFunction] = {
    **COMPILED,
    "crc32": zlib.crc32,
    "crc32-avalanche": _crc32_avalanche,
    "crc32-15": _crc32_15,
    "crc16": _crc16,
    "md5": _md5,
    "md5-128": _md5_64,
}
_FROM_EXTRAS: dict[str, Callable[[], HashFunction]] = {"murmur3": _murmur3, "xxh64": _xxh64}


def hash_names() -> list[str]:
    """Return the names that `hash_named` knows."""
    return sorted((*_PLAIN, *_FROM_EXTRAS))


def hash_named(name: str) -> HashFunction:
    """Return the hash of that name: bytes to an int of at most 64 bits.

    Raises:
        ValueError: There is no hash of that name.
        ImportError: Its library is not installed; the extra `interop` brings it.

    >>> hash_named("crc16")(b"123456789"), hash_named("fnv1_32")(b"a")
    (12739, 84696446)
    """
    plain = _PLAIN.get(name)
    if plain is not None:
        return plain
    if name in _FROM_EXTRAS:
        return _FROM_EXTRAS[name]()
    raise ValueError(f"there is no hash {name!r}; there are {', '.join(hash_names())}")

"""Write plugs.json beside this file: where a key goes, whichever plug asks. Run once; it never changes.

    python make_plugs.py

It shares no code with ringhash: the ring and the shards are built here from the specification, Java's hash is
that of the published code, and the ring of uhashring is asked of uhashring itself.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from pathlib import Path

import uhashring
import xxhash

NODES = ("10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211")  # names that all plugs take
SHARDS = 64
SHARD_SEED = 0x736861726473
PARTITIONS = 12


def ring() -> list[tuple[int, bytes, str]]:
    return sorted(
        (xxhash.xxh3_64_intdigest(name.encode() + struct.pack("<I", i)) >> 32, name.encode(), name)
        for name in NODES
        for i in range(160)
    )


def owner(points: list[tuple[int, bytes, str]], key: bytes) -> str:
    found = bisect_left(points, (xxhash.xxh3_64_intdigest(key) >> 32, b"", ""))
    return points[found % len(points)][2]


def murmur2(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, with the sign taken off."""
    mask = 0xFFFFFFFF
    value = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * 0x5BD1E995 & mask
        mixed ^= mixed >> 24
        value = (value * 0x5BD1E995 & mask) ^ (mixed * 0x5BD1E995 & mask)
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    value = (value ^ value >> 13) * 0x5BD1E995 & mask
    return (value ^ value >> 15) & 0x7FFFFFFF


def main() -> None:
    texts = [f"user:{i}" for i in range(40)] + ["", "7", "über", "日本", "x" * 200, "{user:7}:cart", "a b"]
    numbers = [0, 1, 7, -7, 2**31 - 1, *(i * i * 7919 for i in range(3, 25))]
    points = ring()
    other = uhashring.HashRing(list(NODES))
    rows = []
    for key in texts:
        data = key.encode()
        rows.append({
            "key": key,
            "ring": owner(points, data),
            "shard": (xxhash.xxh3_64_intdigest(data, SHARD_SEED) >> 32) % SHARDS,
            "java": murmur2(data) % PARTITIONS,
            "uhashring": other.get_node(key),
        })  # fmt: skip
    for number in numbers:
        data = struct.pack("<q", number)
        shard = (xxhash.xxh3_64_intdigest(data, SHARD_SEED) >> 32) % SHARDS
        rows.append({"key": number, "ring": owner(points, data), "shard": shard})
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = json.dumps({"nodes": NODES, "shards": SHARDS, "partitions": PARTITIONS})[:-1]
    Path(__file__).with_name("plugs.json").write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()

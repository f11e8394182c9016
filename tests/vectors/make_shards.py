"""Write shards.json beside this file. Run once; the vectors are a promise and never change.

    python make_shards.py

It shares no code with ringhash: the shard is taken from the two halves of the hash, digit by digit.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import xxhash

COUNTS = (1, 2, 3, 10, 64, 100, 1000, 1023, 65_536, 4_294_967_295, 4_294_967_296)
SEEDS = (0x736861726473, 0)


def shard(data: bytes, count: int, seed: int) -> int:
    rest = 0
    for byte in xxhash.xxh3_64_digest(data, seed)[:4]:  # the upper half, as a number of base 256
        rest = (rest * 256 + byte) % count
    return rest


def main() -> None:
    keys: list[tuple[dict[str, str], bytes]] = []
    for i in range(20):
        text = f"user:{i * i * i}"
        keys.append(({"str": text}, text.encode()))
        blob = bytes((i * j) % 251 for j in range(i * 13))
        keys.append(({"hex": blob.hex()}, blob))
        number = (-1) ** i * 3 ** (2 * i)
        keys.append(({"int": str(number)}, struct.pack("<q", number)))
    lines = [
        json.dumps({"key": key, "seed": str(seed), "shards": [shard(data, count, seed) for count in COUNTS]})
        for seed in SEEDS
        for key, data in keys
    ]
    text = f'{{\n"counts": {list(COUNTS)},\n"keys": [\n' + ",\n".join(lines) + "\n]\n}\n"
    Path(__file__).with_name("shards.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write chosen.json: names and str keys whose positions are wanted by the tests of edges. It was run once.

    python find_chosen.py

A name is wanted for its one point when vnodes is 1, which lies at hash(name + four zero bytes) >> 32. All names
`gw-0000000`, `gw-0000001`, ... and all keys `user:0000000`, ... are hashed, about twenty million a second, until
enough are found: thirty thousand million take half an hour. The first ones found are kept.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAST = 2**32 - 1
CROWD = 2**30  # where many names are wanted within 256 positions, and five at one
TIE = CROWD + 80
NAMES = {
    0: 3,
    1: 2,
    2: 1,
    3: 1,
    2**31 - 1: 1,
    2**31: 3,
    2**31 + 1: 1,
    LAST - 2: 1,
    LAST - 1: 2,
    LAST: 4,
    TIE: 5,
}
NAMES |= dict.fromkeys(range(CROWD, CROWD + 24), 1)
KEYS = dict.fromkeys([0, 1, 2, 2**31, TIE, LAST - 1, LAST], 1)

DIGITS = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
TAILS = DIGITS[np.indices((36,) * 4).reshape(4, -1).T]  # every four digits, in order

Words = np.ndarray[Any, np.dtype[np.uint64]]


def word(data: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(data, "little"))


# Bytes 24 to 55 of the secret of XXH3.
SECRET = bytes.fromhex("7240a4a4b7b3671f cb79e64eccc0e578 825ad07dccff7221 b8084674f743248e")
LOW_FLIP = word(SECRET[0:8]) ^ word(SECRET[8:16])
HIGH_FLIP = word(SECRET[16:24]) ^ word(SECRET[24:32])


def positions(data: np.ndarray[Any, np.dtype[np.uint8]]) -> Words:
    """XXH3 of rows of 9 to 16 bytes, its upper half."""
    size = data.shape[1]
    low = np.ascontiguousarray(data[:, :8]).view("<u8")[:, 0] ^ LOW_FLIP
    high = np.ascontiguousarray(data[:, -8:]).view("<u8")[:, 0] ^ HIGH_FLIP
    h = np.uint64(size) + low.byteswap() + high + folded_product(low, high)
    h = (h ^ h >> np.uint64(37)) * np.uint64(0x165667919E3779F9)
    return (h ^ h >> np.uint64(32)) >> np.uint64(32)


def folded_product(a: Words, b: Words) -> Words:
    half, lower = np.uint64(32), np.uint64(LAST)
    cross = (a >> half) * (b & lower) + ((a & lower) * (b & lower) >> half)
    middle = (a & lower) * (b >> half) + (cross & lower)
    high = (a >> half) * (b >> half) + (cross >> half) + (middle >> half)
    result: Words = a * b ^ high
    return result


def blocks(prefix: str, suffix: bytes) -> Iterator[tuple[str, Words]]:
    for head in map("".join, itertools.product(DIGITS.tobytes().decode(), repeat=3)):
        start = np.frombuffer((prefix + head).encode(), np.uint8)
        end = np.frombuffer(suffix, np.uint8)
        rows = [np.broadcast_to(part, (len(TAILS), len(part))) for part in (start, end)]
        yield prefix + head, positions(np.concatenate((rows[0], TAILS, rows[1]), axis=1))


def search(prefix: str, suffix: bytes, wanted: dict[int, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {position: [] for position in wanted}
    interesting = np.array(sorted(wanted), np.uint64)
    for head, here in blocks(prefix, suffix):
        for row in np.flatnonzero(np.isin(here, interesting)):
            names = found[int(here[row])]
            if len(names) < wanted[int(here[row])]:
                names.append(head + TAILS[row].tobytes().decode())
        if all(len(found[position]) == wanted[position] for position in wanted):
            return found
    raise LookupError("not all were found")


def find_one_that_meets_itself() -> str:
    """A name whose points 0 and 1 are at one position."""
    for (head, zero), (_, one) in zip(blocks("gw-", bytes(4)), blocks("gw-", b"\1\0\0\0"), strict=True):
        for row in np.flatnonzero(zero == one):
            return str(head + TAILS[row].tobytes().decode())
    raise LookupError("none was found")


def main(write: Callable[[str], object]) -> None:
    chosen = {
        "names": search("gw-", bytes(4), NAMES),
        "keys": {position: keys[0] for position, keys in search("user:", b"", KEYS).items()},
        "meets_itself": find_one_that_meets_itself(),
    }
    write(json.dumps(chosen, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main((Path(__file__).parent / "chosen.json").write_text)

"""The hash of the core is XXH3-64, as the xxhash package has it."""

from __future__ import annotations

import random

import pytest
import xxhash
from chosen import key_at
from hypothesis import given
from hypothesis import strategies as st

from ringhash._core import KeySpace, xxh3_64

pytestmark = pytest.mark.core

SEEDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
seeds = st.integers(0, 2**64 - 1)


def test_every_length() -> None:
    dice = random.Random(3)
    for length in range(2049):
        data = dice.randbytes(length)
        for seed in (0, dice.getrandbits(64)):
            assert xxh3_64(data, seed) == xxhash.xxh3_64_intdigest(data, seed), (length, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("byte", [b"\0", b"\x7f", b"\x80", b"\xff"])
def test_every_short_length_of_one_byte(byte: bytes, seed: int) -> None:
    for length in range(513):
        assert xxh3_64(byte * length, seed) == xxhash.xxh3_64_intdigest(byte * length, seed), length


@pytest.mark.parametrize(
    "length", [0, 1, 3, 4, 8, 9, 16, 17, 32, 64, 96, 128, 129, 240, 241, 1024, 1025, 4096]
)
def test_every_alignment(length: int) -> None:
    data = random.Random(length).randbytes(length + 16)
    for start in range(16):
        piece = memoryview(data)[start : start + length]
        assert xxh3_64(piece, start) == xxhash.xxh3_64_intdigest(bytes(piece), start)


@given(st.binary(max_size=2000), seeds)
def test_any_bytes(data: bytes, seed: int) -> None:
    assert xxh3_64(data, seed) == xxhash.xxh3_64_intdigest(data, seed)


@given(st.integers(0, 2**64 - 1), seeds)
def test_a_word_is_hashed_as_its_eight_bytes(word: int, seed: int) -> None:
    assert KeySpace(seed).position(word) == xxh3_64(word.to_bytes(8, "little"), seed) >> 32


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), seeds)
def test_a_key_is_made_for_any_hash(position: int, low: int, seed: int) -> None:
    key = key_at(position, seed, low)
    assert xxhash.xxh3_64_intdigest(key.to_bytes(8, "little"), seed) == position << 32 | low


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits(seed: int) -> None:
    with pytest.raises(OverflowError):
        xxh3_64(b"", seed)


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
def test_only_bytes_are_hashed(data: bytes) -> None:
    with pytest.raises(TypeError):
        xxh3_64(data)


def test_scattered_bytes_are_refused() -> None:
    with pytest.raises(BufferError):
        xxh3_64(memoryview(b"a-b-c-")[::2])

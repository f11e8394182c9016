"""Salt: one hot key spread over several, so that several nodes share it."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from ringhash._core import xxh3_64
from ringhash.node import plain_type
from ringhash.space import HashSpace

__all__ = ["Salt"]

MAX_SPREAD = 65_536
_Text = TypeVar("_Text", str, bytes)


class Salt:
    """Spreads what belongs to one key over `spread` keys: an item is written to one, reads ask all.

    The first of them is the key itself, the others are the key, a `#` and a number. So a spread of
    1 changes nothing, and salt may be given to a key that is in use already.

    A greater spread reads all that was written with a smaller one, and moves as few items as can
    be. To go back, write to fewer while reads go on as before (`with_spread` does), move what is
    left, and only then read fewer. Where writers and readers cannot be changed at once, let the
    readers have the greater `reads` first.

    Args:
        spread: How many keys are written to, from 1 to 65,536.
        reads: How many are read, at least `spread`, which is also the default.
        seed: Of the hash of an item. It differs from the ring's own, so that the items of a key and
            the keys of a ring have nothing to do with each other.
        hash_tags: As the ring has it. With it the number goes into the tag, as in
            `{user:7#3}:cart`; behind it, it would change nothing.

    Raises:
        TypeError, ValueError: An argument is malformed.

    Method: sharding a hot partition by a calculated suffix (DynamoDB's guide to write sharding),
    which is the jump hash of Lamping and Veach (2014).

    >>> salt = Salt(spread=8)
    >>> key = salt.write("likes:celebrity", "user:7")
    >>> key in salt.reads("likes:celebrity"), len(salt.reads("likes:celebrity"))
    (True, 8)
    """

    __slots__ = ("_items", "hash_tags", "read_spread", "seed", "spread")

    def __init__(
        self,
        spread: int = 8,
        reads: int | None = None,
        *,
        seed: int = 0x5A17_5A17_5A17_5A17,
        hash_tags: bool = False,
    ) -> None:
        reads = spread if reads is None else reads
        for name, value in (("spread", spread), ("reads", reads)):
            if type(value) is not int:
                raise TypeError(f"{name} must be an integer, not {plain_type(value)}")
        if not 1 <= spread <= reads <= MAX_SPREAD:
            raise ValueError(
                f"it must be that 1 <= spread <= reads <= {MAX_SPREAD}, not {spread} and {reads}"
            )
        if type(seed) is not int:
            raise TypeError(f"seed must be an integer, not {plain_type(seed)}")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, not {seed}")
        if not isinstance(hash_tags, bool):
            raise TypeError(f"hash_tags must be True or False, not {plain_type(hash_tags)}")
        self.spread = spread
        self.read_spread = reads
        self.seed = seed
        self.hash_tags = hash_tags
        self._items = HashSpace(seed)

    def write(self, key: _Text, item: Any) -> _Text:
        """Return the key that `item` of `key` is written to; always the same one.

        Args:
            key: str or bytes.
            item: What tells the items of the key apart: any key, as for `Ring.owner`.

        Raises:
            TypeError, OverflowError, UnicodeEncodeError: As for `Ring.owner`.
        """
        return self._salted(key, _jump(xxh3_64(self._items.key_bytes(item), self.seed), self.spread))

    def reads(self, key: _Text) -> list[_Text]:
        """Return every key that items of `key` may have been written to; the key itself is first."""
        return [self._salted(key, number) for number in range(self.read_spread)]

    def with_spread(self, spread: int) -> Salt:
        """Return salt that writes to `spread` keys and reads no fewer than this one does.

        >>> Salt(spread=8).with_spread(4)
        Salt(spread=4, reads=8)
        """
        reads = max(spread, self.read_spread)
        return Salt(spread, reads, seed=self.seed, hash_tags=self.hash_tags)

    def _salted(self, key: _Text, number: int) -> _Text:
        if isinstance(key, (str, bytes)):
            self._items.key_bytes(key)  # what is no key raises here, not when it is looked up
        if isinstance(key, str):
            return self._with_suffix(key, f"#{number}", "{", "}") if number else key
        if isinstance(key, bytes):
            return self._with_suffix(key, b"#%d" % number, b"{", b"}") if number else key
        raise TypeError(f"a key to salt must be str or bytes, not {plain_type(key)}")

    def _with_suffix(self, key: _Text, suffix: _Text, opening: _Text, closing: _Text) -> _Text:
        if self.hash_tags:
            start = key.find(opening) + 1
            end = key.find(closing, start) if start else -1
            if end > start:
                return key[:end] + suffix + key[end:]
        return key + suffix

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Salt):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[int, int, int, bool]:
        return self.spread, self.read_spread, self.seed, self.hash_tags

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), seed=self.seed, hash_tags=self.hash_tags)
        return make, (self.spread, self.read_spread)

    def __repr__(self) -> str:
        reads = f", reads={self.read_spread}" if self.read_spread != self.spread else ""
        return f"Salt(spread={self.spread}{reads})"


def _jump(hashed: int, buckets: int) -> int:
    """Return the bucket of a 64-bit hash; one more bucket takes its part of all, and moves no more.

    Method: Lamping and Veach, A Fast, Minimal Memory, Consistent Hash Algorithm (2014).
    """
    bucket, candidate = 0, 0
    while candidate < buckets:
        bucket = candidate
        hashed = (hashed * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((bucket + 1) * (2.0**31 / ((hashed >> 33) + 1)))
    return bucket

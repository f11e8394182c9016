"""A fixed number of shards: which shard a key is in, for ever."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Self, cast

import numpy as np

from ringhash.node import Node
from ringhash.plan import Changes, NodeChange, Plan
from ringhash.records import document, read_document, read_word, word
from ringhash.space import ModuloSpace, read_reading

__all__ = ["MAX_SHARDS", "SHARD_SEED", "Shards"]

MAX_SHARDS = 1 << 32
# The bytes of "shards", big endian. Not the ring's 0: two levels hashed alike correlate, and a worker
# whose ring range is fixed would see keys of some shards only.
SHARD_SEED = int.from_bytes(b"shards")
_NEEDED, _OPTIONAL = frozenset({"count"}), frozenset({"seed", "hash_tags"})


class Shards(ModuloSpace):
    """A fixed number of shards; which one a key is in never changes.

    The shard of a key is `position % count`, where `position` is the upper half of its XXH3-64 hash
    as in docs/spec.md, with the seed of the shards. A power of two takes the low bits; any other
    count makes some shards larger than others by one part in `2**32 // count`: 1 in 4 million at
    1,000 shards, 1 in 4,000 at a million. The remainder, and not multiply-shift (Lemire, 2019),
    because only it splits in place: `hash % (2 * count)` is `hash % count` or that plus `count`,
    whatever the count.

    Args:
        count: From 1 to 2**32. Choose some ten times the nodes you will ever have.
        seed: As for `Ring`; `SHARD_SEED` by default, which is not the ring's.
        hash_tags: As for `Ring`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of its range.

    >>> shards = Shards(64)
    >>> shards.of("user:7") == shards["user:7"], shards.of("user:7") < 64
    (True, True)
    """

    __slots__ = ()

    def __init__(self, count: int = 64, *, seed: int = SHARD_SEED, hash_tags: bool = False) -> None:
        super().__init__(count, seed, hash_tags)

    def of(self, key: Any, /) -> int:
        """Return the shard of `key`, from 0 to count - 1; keys and errors as for `Ring.owner`.

        Cost: one hash and one division.

        >>> Shards(1).of("anything")
        0
        """
        return self._hashes.position(key) % self.count

    __getitem__ = of

    def of_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the shards of many keys; `keys` and errors as for `Ring.index_many`.

        Cost: faster than `Ring.index_many`: about 3 ns a key of an array.

        >>> shards = Shards(10)
        >>> shards.of_many(["a", "b"]).tolist() == [shards.of("a"), shards.of("b")]
        True
        """
        positions = self.positions(keys)
        return cast("np.ndarray[Any, np.dtype[np.intp]]", positions.astype(np.intp))

    def double(self) -> Shards:
        """Return twice as many shards: a key's new shard is its old one, or its old one + count.

        Raises:
            ValueError: There would be more than 2**32.

        >>> old, new = Shards(10), Shards(10).double()
        >>> all(new.of(key) in (old.of(key), old.of(key) + 10) for key in range(1000))
        True
        """
        return type(self)(2 * self.count, seed=self.seed, hash_tags=self.hash_tags)

    def split_plan(self) -> Plan:
        """Return what `double` moves: of each shard the keys of the new one, half of all keys.

        The plan counts the positions of the doubled shards, and names a shard by its number as text.
        Cost: O(count).

        >>> plan = Shards(2).split_plan()
        >>> for move in plan.moves: print(move)
        Move(range=KeyRange(start=2, end=2), source='0', target='2')
        Move(range=KeyRange(start=3, end=3), source='1', target='3')
        >>> plan.fraction
        0.5
        """
        after = self.double()
        old = tuple(map(str, range(self.count)))
        new = tuple(map(str, range(self.count, after.count)))
        starts = np.arange(self.count, after.count, dtype=np.uint64)
        index = np.arange(self.count, dtype=np.int64)
        return Plan(
            before=self.digest,
            after=after.digest,
            space=ModuloSpace(after.count, after.seed, after.hash_tags),
            changes=Changes(tuple(NodeChange(None, Node(name)) for name in sorted(new))),
            ranges=(starts, starts.copy()),
            owners=(index, index.copy()),
            names=(old, new),
        )

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal wherever every key has the same shard."""
        record = f"ringhash-shards-1 {self.count} {self.seed} {int(self.hash_tags)}"
        return blake2b(record.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed != SHARD_SEED else ""
        tags = ", hash_tags=True" if self.hash_tags else ""
        return f"{type(self).__name__}({self.count}{seed}{tags})"

    def to_dict(self) -> dict[str, object]:
        """Return the shards as a dictionary that JSON can hold."""
        return document("shards", count=self.count, seed=word(self.seed), hash_tags=self.hash_tags)

    @classmethod
    def from_dict(cls, data: object, where: str = "shards") -> Self:
        """Return the shards that `to_dict` described; seed and tags may be left out.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.

        >>> Shards.from_dict(Shards(10).to_dict())
        Shards(10)
        """
        record = read_document(data, where, "shards", _NEEDED, _OPTIONAL)
        count = read_word(record, where, "count", 1, MAX_SHARDS)
        seed, hash_tags = read_reading(record, where, SHARD_SEED)
        return cls(count, seed=seed, hash_tags=hash_tags)

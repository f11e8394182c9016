"""Which worker has which shard: sticky, as even as whole shards can be, with the fewest moves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, Self, cast

import numpy as np

from ringhash._core import KeySpace
from ringhash.batch import readable
from ringhash.errors import DuplicateNodeError, EmptyRingError, UnknownNodeError
from ringhash.immutable import Immutable, slot_setter
from ringhash.membership import changes_between
from ringhash.node import Node, nodes_from, plain_type
from ringhash.plan import Plan
from ringhash.records import check_fields, field
from ringhash.ring import SPACE, Ring
from ringhash.shards import SHARD_SEED, Shards

__all__ = ["Assignment", "ShardStats", "Step", "assign", "fair_shares", "simulate"]

_FIELDS = frozenset({"shards", "workers", "owners"})


class ShardStats(NamedTuple):
    """What a sample of keys says about an assignment: see `Assignment.stats`."""

    loads: dict[str, int]
    peak_to_mean: float
    largest_key_share: float
    oldest: dict[str, float]
    moved: int


class Assignment(Immutable):
    """Which worker has which shard; immutable. Made by `assign`.

    `workers` are `Node`s by name, `owners` the name of each shard's worker.

    >>> assignment = assign(4, ["b", "a"])
    >>> assignment.owners, assignment.counts
    (('a', 'a', 'b', 'b'), {'a': 2, 'b': 2})
    >>> assignment.owner("user:7") == assignment.worker_of(assignment.shards.of("user:7"))
    True
    """

    __slots__ = ("_index", "owners", "shards", "workers")

    shards: Shards
    workers: tuple[Node, ...]
    owners: tuple[str, ...]
    _index: np.ndarray[Any, np.dtype[np.intp]]

    def __init__(self, shards: Shards, workers: Iterable[Node], owners: Sequence[str]) -> None:
        members = tuple(sorted(workers, key=lambda node: node.name))
        numbers = {node.name: i for i, node in enumerate(members)}
        if len(owners) != shards.count:
            raise ValueError(f"{shards.count} shards need as many owners, not {len(owners)}")
        for name in owners:
            if name not in numbers:
                raise UnknownNodeError(f"a shard belongs to {name!r}, which is no worker")
        _set_shards(self, shards)
        _set_workers(self, members)
        _set_owners(self, tuple(owners))
        _set_index(self, np.array([numbers[name] for name in owners], np.intp))

    def worker_of(self, shard: int) -> str:
        """Return the worker that has `shard`; IndexError unless 0 <= shard < count."""
        if shard < 0:
            raise IndexError(f"a shard is from 0 to {self.shards.count - 1}, not {shard}")
        return self.owners[shard]

    def owner(self, key: Any) -> str:
        """Return the worker that has the shard of `key`; keys and errors as for `Ring.owner`."""
        return self.owners[self.shards.of(key)]

    __getitem__ = owner
    __iter__ = None
    __contains__ = None

    def owner_many(self, keys: Any) -> list[str]:
        """Return the workers of many keys; `keys` and errors as for `Ring.index_many`."""
        names = self.owners
        return [names[shard] for shard in self.shards.of_many(keys).tolist()]

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the workers of many keys as indexes into `workers`, compiled."""
        return cast("np.ndarray[Any, np.dtype[np.intp]]", self._index[self.shards.positions(keys)])

    def shards_of(self, worker: str) -> tuple[int, ...]:
        """Return the shards of a worker, in order.

        Raises:
            UnknownNodeError: There is no worker of that name.
        """
        for i, node in enumerate(self.workers):
            if node.name == worker:
                return tuple(np.flatnonzero(self._index == i).tolist())
        raise UnknownNodeError(f"there is no worker {worker!r}")

    @property
    def counts(self) -> dict[str, int]:
        """How many shards each worker has, by name."""
        counts = np.bincount(self._index, minlength=len(self.workers)).tolist()
        return {node.name: count for node, count in zip(self.workers, counts, strict=True)}

    def plan(self, previous: Assignment | None = None) -> Plan:
        """Return the exact moves from `previous` to this assignment; from nobody where it is None.

        A position of the plan is a shard, so a `KeyRange` is a run of shards.

        Raises:
            ValueError: `previous` has other shards; after `Shards.double`, give `previous.split()`.

        >>> before = assign(4, ["a", "b"])
        >>> list(assign(4, ["a", "b", "c"], before).plan(before).moves)
        [Move(range=KeyRange(start=3, end=3), source='b', target='c')]
        """
        return self._plan(previous, None)

    def _plan(self, previous: Assignment | None, epoch: int | None) -> Plan:
        if previous is not None:
            self._check_shards(previous)
        there = self._index
        here = np.full_like(there, -1) if previous is None else previous._index
        mine = tuple(node.name for node in self.workers)
        theirs = () if previous is None else tuple(node.name for node in previous.workers)
        # The same worker has two indexes where the workers differ: compare by this one's.
        renamed = np.array([*(mine.index(name) if name in mine else -2 for name in theirs), -1])
        moved = renamed[here] != there
        first = moved.copy()
        first[1:] &= ~(moved[:-1] & (here[1:] == here[:-1]) & (there[1:] == there[:-1]))
        last = moved.copy()
        last[:-1] &= ~moved[1:] | first[1:]
        starts, ends = np.flatnonzero(first), np.flatnonzero(last)
        return Plan(
            before="" if previous is None else previous.digest,
            after=self.digest,
            epoch=epoch,
            space=self.shards.count,
            key_space=self.shards,
            changes=changes_between(() if previous is None else previous.workers, self.workers),
            ranges=(starts.astype(np.uint64), ends.astype(np.uint64)),
            owners=(here[starts].astype(np.int64), there[starts].astype(np.int64)),
            names=(theirs, mine),
        )

    def _moved(self, plan: Plan, workers: Iterable[Node]) -> Assignment:
        """The assignment to `workers` that a plan for this one leads to."""
        if plan.space != self.shards.count:
            raise ValueError(f"the plan is of {plan.space} shards, and there are {self.shards.count}")
        owners: list[Any] = list(self.owners)
        for (start, end), source, target in plan.moves:
            if owners[start : end + 1] != [source] * (end - start + 1):
                raise ValueError(
                    f"the plan takes shards {start} to {end} from {source!r}, which has them not"
                )
            owners[start : end + 1] = [target] * (end - start + 1)
        try:
            after = type(self)(self.shards, workers, owners)
        except UnknownNodeError as error:
            raise ValueError(f"the plan cannot be carried out: {error}") from None
        if after.digest != plan.after:
            raise ValueError("the plan does not lead where it says that it leads; make a new plan")
        return after

    def split(self) -> Assignment:
        """Return this assignment of twice as many shards: the new half stays where its keys were.

        Nothing moves between workers; `assign` with the result as `previous` then evens out.

        >>> assign(2, ["a", "b"]).split().owners
        ('a', 'b', 'a', 'b')
        """
        return type(self)(self.shards.double(), self.workers, self.owners * 2)

    def stats(
        self,
        keys: Any,
        *,
        oldest: Mapping[int, float] | None = None,
        previous: Assignment | None = None,
    ) -> ShardStats:
        """Return what a sample of keys says about the load.

        Args:
            keys: The sample, as for `Ring.index_many`; a key that is asked for often is in it often.
            oldest: The age of the oldest work of a shard, by shard.
            previous: The assignment before, to count the shards that moved.

        Returns:
            `loads`: keys of each worker. `peak_to_mean`: the highest load by the mean, each relative
            to the worker's weight. `largest_key_share`: what part of all keys the most frequent
            one is; no assignment can bring the fullest worker below it. `oldest`: the oldest work of
            each worker that has any. `moved`: shards that changed their worker.
        """
        sample = readable(keys)
        counts = np.bincount(self._index[self.shards.positions(sample)], minlength=len(self.workers))
        total = int(counts.sum())
        loads = {node.name: int(count) for node, count in zip(self.workers, counts, strict=True)}
        weights = np.array([node.weight for node in self.workers])
        weights /= weights.max()
        peak = float((counts / (weights / weights.sum())).max() / total) if total else 0.0
        # A key is known by 64 bits of its hash, so that it may be of any kind.
        halves = [KeySpace(seed, self.shards.hash_tags)._positions(sample) for seed in (0, 1)]
        whole = halves[0].astype(np.uint64) << np.uint64(32) | halves[1]
        most = int(np.unique(whole, return_counts=True)[1].max()) if total else 0
        ages: dict[str, float] = {}
        for shard, age in (oldest or {}).items():
            name = self.worker_of(shard)
            ages[name] = max(age, ages.get(name, age))
        return ShardStats(
            loads=loads,
            peak_to_mean=peak,
            largest_key_share=most / total if total else 0.0,
            oldest=ages,
            moved=0 if previous is None else self.plan(previous).moves.positions,
        )

    def _check_shards(self, other: Assignment) -> None:
        if other.shards != self.shards:
            raise ValueError(
                f"the previous assignment is of {other.shards}, and this one of {self.shards}; "
                "where the shards were doubled, give previous.split()"
            )

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal wherever every key has the same worker."""
        hashed = blake2b(b"ringhash-assignment-1", digest_size=16)
        hashed.update(self.shards.digest.encode())
        for name in self.owners:
            text = name.encode()
            hashed.update(len(text).to_bytes(4, "little") + text)
        return hashed.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignment):
            return NotImplemented
        return (self.shards, self.workers, self.owners) == (
            other.shards, other.workers, other.owners,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.shards, self.owners))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"<Assignment of {self.shards!r} to {len(self.workers)} workers>"

    def to_dict(self) -> dict[str, object]:
        """Return the assignment as a dictionary that JSON can hold."""
        return {
            "shards": self.shards.to_dict(),
            "workers": [node.to_dict() for node in self.workers],
            "owners": list(self.owners),
        }

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the assignment that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.
        """
        record = check_fields(data, "assignment", _FIELDS)
        shards = Shards.from_dict(record["shards"])
        workers = [
            Node.from_dict(node, f"assignment.workers[{i}]")
            for i, node in enumerate(field(record, "assignment", "workers", list))
        ]
        owners = field(record, "assignment", "owners", list)
        if not all(isinstance(name, str) for name in owners):
            raise ValueError("assignment.owners: must be a list of names")
        try:
            return cls(shards, _distinct(workers), owners)
        except (ValueError, LookupError) as error:
            raise ValueError(f"assignment: {error}") from None


_set_shards = slot_setter(Assignment, "shards")
_set_workers = slot_setter(Assignment, "workers")
_set_owners = slot_setter(Assignment, "owners")
_set_index = slot_setter(Assignment, "_index")


def assign(
    shards: Shards | int,
    workers: Iterable[str | Node] | Mapping[str, float],
    previous: Assignment | None = None,
    weights: Mapping[str, float] | None = None,
) -> Assignment:
    """Return which worker has which shard: even, with the fewest moves from `previous`.

    Every worker has the floor or the ceiling of its fair share: `count * weight / total weight`, and
    at least 1 while there are as many shards as workers. With equal weights no two workers differ by
    more than one shard.

    No assignment within these bounds moves fewer shards. A worker that had `h` shards and is to have
    `t` keeps at most `min(h, t)`; this one keeps exactly that, so only the choice of who has the
    ceiling counts. It gains a kept shard for a worker that has more than its floor and nothing for
    another, so those come first; ties go to the larger remainder (Hamilton's method), then by name.
    A worker gives up its highest shards; free shards go out in order, to workers in order of name.

    Args:
        shards: `Shards`, or how many.
        workers: Names or `Node`s, or a mapping of names to weights.
        previous: The assignment before, of the same shards; its workers may be others.
        weights: Weights by name, in place of those of the workers.

    Raises:
        DuplicateNodeError: Two workers have one name.
        EmptyRingError: There are no workers.
        UnknownNodeError: A weight is given for a worker that is not there.
        ValueError: `previous` is of other shards.

    Cost: O(shards + workers * log workers). The same arguments always give the same assignment.

    >>> one = assign(5, ["a", "b"])
    >>> one.counts
    {'a': 3, 'b': 2}
    >>> two = assign(5, ["a", "b", "c"], one)
    >>> two.counts, two.plan(one).moves.positions
    ({'a': 2, 'b': 2, 'c': 1}, 1)
    """
    if not isinstance(shards, Shards):
        shards = Shards(shards)
    members = _distinct(nodes_from(workers, "workers"))
    if weights is not None:
        if not isinstance(weights, Mapping):
            raise TypeError(f"weights must map names to weights, not be a {plain_type(weights)}")
        unknown = sorted(weights.keys() - {node.name for node in members})
        if unknown:
            raise UnknownNodeError(f"there is no worker {unknown[0]!r} to have a weight")
        members = [Node(node.name, weights.get(node.name, node.weight), node.zone) for node in members]
    if not members:
        raise EmptyRingError("there are no workers, so no shard has one; add a worker first")
    names = [node.name for node in members]
    had: dict[str, list[int]] = {name: [] for name in names}
    owners: list[str | None] = [None] * shards.count
    if previous is not None:
        if previous.shards != shards:
            raise ValueError(
                f"the previous assignment is of {previous.shards}, and this one of {shards}; where "
                "the shards were doubled, give previous.split()"
            )
        for shard, name in enumerate(previous.owners):
            if name in had:
                had[name].append(shard)
                owners[shard] = name
    targets = _targets(fair_shares(shards.count, members), {name: len(had[name]) for name in names})
    for name in names:
        for shard in had[name][targets[name] :]:
            owners[shard] = None
    room = (name for name in names for _ in range(targets[name] - len(had[name])))
    return Assignment(shards, members, [next(room) if owner is None else owner for owner in owners])


def fair_shares(count: int, workers: Sequence[Node]) -> dict[str, Fraction]:
    """Return the exact fair share of each worker, in shards, by name.

    In proportion to the weights; but where there are as many shards as workers, one that would have
    less than 1 has 1, and the others share the rest in proportion.

    >>> {name: str(share) for name, share in fair_shares(4, [Node("a", 6.0), Node("b"), Node("c")]).items()}
    {'a': '2', 'b': '1', 'c': '1'}
    """
    weights = {node.name: Fraction(node.weight) for node in workers}
    shares: dict[str, Fraction] = {}
    left = Fraction(count)
    total = sum(weights.values(), Fraction(0))
    if count >= len(workers):
        for name in sorted(weights, key=lambda name: (weights[name], name)):
            if left * weights[name] >= total:
                break  # and so has every heavier one
            shares[name] = Fraction(1)
            left -= 1
            total -= weights[name]
    return {node.name: shares.get(node.name) or left * weights[node.name] / total for node in workers}


def _targets(shares: Mapping[str, Fraction], had: Mapping[str, int]) -> dict[str, int]:
    targets = {name: int(share) for name, share in shares.items()}
    extra = int(sum(shares.values())) - sum(targets.values())
    fractional = [name for name, share in shares.items() if share != targets[name]]
    fractional.sort(key=lambda name: (had[name] <= targets[name], targets[name] - shares[name], name))
    for name in fractional[:extra]:
        targets[name] += 1
    return targets


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    members = sorted(nodes, key=lambda node: node.name)
    for one, other in pairwise(members):
        if one.name == other.name:
            raise DuplicateNodeError(f"the worker {one.name!r} is given twice")
    return members


# --- a comparison ---


class Step(NamedTuple):
    """One step of `simulate`: from `workers - 1` workers to `workers`, by one method.

    `moved` is the part of all keys that changed its worker, `least` the part that any even placement
    must move; `peak_to_mean` the share of the fullest worker by the mean, `low_to_mean` that of the
    emptiest.
    """

    method: str
    workers: int
    moved: float
    least: float
    peak_to_mean: float
    low_to_mean: float


def simulate(shards: int = 1024, most: int = 100, *, vnodes: int = 160, splits: int = 160) -> list[Step]:
    """Compare four placements while workers are added one by one, up to `most`.

    `sticky` is `assign`; `modulo` gives shard s to worker s % n; `ring` is a `Ring`; `proportional`
    keeps a number of partitions in proportion to the workers: a newcomer halves those in which
    `splits` points fall that a hash chooses, and takes one half of each (Cassandra's way before it
    chose its tokens). All figures are exact parts of the key space.

    >>> steps = {step.method: step for step in simulate(64, 4) if step.workers == 4}
    >>> {method: round(step.moved, 2) for method, step in steps.items()}
    {'sticky': 0.25, 'modulo': 0.72, 'ring': 0.22, 'proportional': 0.19}
    """
    names = [f"w{i:03}" for i in range(most)]
    return [
        *_steps("sticky", _sticky(shards, names)),
        *_steps("modulo", _modulo(shards, names)),
        *_steps("ring", _ring(vnodes, names)),
        *_steps("proportional", _proportional(splits, names)),
    ]


def _steps(method: str, run: Iterator[tuple[float, Iterable[float]]]) -> Iterator[Step]:
    for n, (moved, shares) in enumerate(run, 1):
        sizes = list(shares)
        if n > 1:
            yield Step(method, n, moved, 1 / n, max(sizes) * n, min(sizes) * n)


def _sticky(count: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    now: Assignment | None = None
    for n in range(1, len(names) + 1):
        before, now = now, assign(count, names[:n], now)
        yield now.plan(before).fraction, [size / count for size in now.counts.values()]


def _modulo(count: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    numbers = np.arange(count)
    for n in range(1, len(names) + 1):
        moved = int(np.count_nonzero(numbers % n != numbers % max(1, n - 1)))
        yield moved / count, (np.bincount(numbers % n, minlength=n) / count).tolist()


def _ring(vnodes: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    ring = Ring((), vnodes=vnodes)
    for name in names:
        before, ring = ring, ring.with_nodes(name)
        yield before.diff(ring).fraction, ring.shares.values()


def _proportional(splits: int, names: list[str]) -> Iterator[tuple[float, Iterable[float]]]:
    keys = KeySpace(SHARD_SEED)
    starts = [i * SPACE // splits for i in range(splits)]
    owners = [0] * splits
    for n, name in enumerate(names):
        moved = 0
        for point in (keys.position(f"{name}/{i}") for i in range(splits if n else 0)):
            i = bisect_right(starts, point) - 1
            end = starts[i + 1] if i + 1 < len(starts) else SPACE
            half = (end - starts[i]) // 2
            if half and owners[i] != n:
                starts.insert(i + 1, end - half)
                owners.insert(i + 1, n)
                moved += half
        sizes = np.bincount(owners, np.diff([*starts, SPACE]), n + 1)
        yield moved / SPACE, (sizes / SPACE).tolist()

"""What every program's placement is: a space cut into stretches, each with an owner.

A program differs in how it hashes, where it puts its points and who wins between two of them. Once that
is worked out it is a sorted table of inclusive ends and owners, and `owner`, `shares`, `ranges` and
`diff` are the same for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, NoReturn, Self, cast

import numpy as np

from ringhash.errors import DuplicateNodeError, RinghashError, UnknownNodeError
from ringhash.interop._table import Keys, Table, own_methods
from ringhash.interop.given import Servers, check_tag, read_mapping, read_servers, whole_number
from ringhash.interop.hashes import hash_named, hash_size
from ringhash.interop.stretches import Array, cut, merged, starts_of
from ringhash.interop.texts import texts
from ringhash.membership import changes_between
from ringhash.node import Node, plain_type
from ringhash.plan import KeyRange, Plan
from ringhash.records import check_fields, field
from ringhash.spans import Balance

__all__ = ["Clockwise", "Options", "Placement", "TextKeys", "UnplacedKeyError", "first_of"]

Options = Mapping[str, tuple[type, ...]]

_KEY_FIELDS = frozenset({"hash", "modulus", "hash_tag"})
_MOST_STRETCHES = 1 << 22


class UnplacedKeyError(RinghashError, LookupError):
    """The program does not place this key by its hash, for instance because the key is empty."""


class TextKeys(Keys):
    """How one program turns a key into a position; two placements with equal `TextKeys` can be compared.

    Args:
        hash_name: A name that `ringhash.interop.hashes.hash_named` knows.
        modulus: The position is the remainder of the hash by this number; 0 for the hash itself.
        hash_tag: Two characters; what stands between them in a key is hashed alone.

    >>> TextKeys("crc16", 16384, "{}").position("user:{7}:cart") == TextKeys("crc16", 16384).position("7")
    True
    """

    def __init__(self, hash_name: str, modulus: int = 0, hash_tag: str | None = None) -> None:
        whole_number(modulus, "modulus", 0, (1 << 64) - 1)
        self._set_keys(hash_name, hash_named(hash_name), modulus, check_tag(hash_tag))

    def positions(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return the positions of many keys."""
        return self._positions(texts(keys))

    def to_dict(self) -> dict[str, object]:
        """Return the key space as a dictionary that JSON can hold."""
        return _key_fields(self)

    @classmethod
    def from_dict(cls, data: object, where: str = "placement") -> Self:
        """Return the key space that `to_dict` described; `ValueError` names what is wrong."""
        record = check_fields(data, where, _KEY_FIELDS)
        modulus = field(record, where, "modulus", int)
        if not 0 <= modulus < 1 << 64:
            raise ValueError(f"{where}.modulus: must be from 0 to 2**64 - 1, not {modulus}")
        try:
            return cls(
                field(record, where, "hash", str),
                modulus,
                field(record, where, "hash_tag", str, type(None)),
            )
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Keys):
            return NotImplemented
        return _key_fields(self) == _key_fields(other)

    def __hash__(self) -> int:
        return hash(tuple(_key_fields(self).values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.hash_name, self.modulus, self.hash_tag)

    def __repr__(self) -> str:
        return f"TextKeys({self.hash_name!r}, {self.modulus}, {self.hash_tag!r})"


def _size(hash_name: str, modulus: int) -> int:
    """How many positions keys can have."""
    size = hash_size(hash_name)
    return min(size, modulus) if modulus else size


def _key_fields(keys: Keys) -> dict[str, object]:
    return {"hash": keys.hash_name, "modulus": keys.modulus, "hash_tag": keys.hash_tag}


class Placement(Table):
    """The base of all placements: who owns a key in one program, with the methods of `Ring`.

    A placement never changes, so threads may share it. `names` are the servers as they were given, in
    that order, and `index_many` counts in it. `space` is the number of positions.
    """

    program: ClassVar[str] = ""
    _options: ClassVar[Options] = {}  # settings, and what JSON holds
    _defaults: ClassVar[Mapping[str, object]] = {}  # of those that JSON may leave out
    _programs: ClassVar[dict[str, type[Placement]]] = {}

    servers: dict[str, Any]  # as the program has them: name -> weight, slots or tokens
    space: int
    _settings: dict[str, Any]
    _ends: Array
    _owners_of: Array

    def __init_subclass__(cls) -> None:
        own_methods(cls)
        if cls.program:
            Placement._programs[cls.program] = cls

    def _place(
        self,
        servers: dict[str, Any],
        settings: dict[str, Any],
        *,
        keys: tuple[str, int, str | None],
        stretches: tuple[Array, Array],
        drops_empty: bool = False,
    ) -> None:
        """Set everything, once. `stretches` are ends and owners that `whole` or its like has made."""
        name, modulus, hash_tag = keys
        size = _size(name, modulus)
        ends, owners = merged(*cut(*stretches, size))
        self._set_keys(name, hash_named(name), modulus, check_tag(hash_tag), drops_empty)
        self._set_table(tuple(servers), ends, owners)
        self.servers = servers
        self.space = size
        self._settings = settings
        self._ends = ends
        self._owners_of = owners

    # --- many keys ---

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `names`; -1 where the program has none.

        `keys` are as for `Ring.index_many`, and each is text, as for `owner`.
        """
        return self._indexes(texts(keys))

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; keys and errors as for `owner`."""
        return self._owners(texts(keys))

    def _fail_unplaced(self, key: object) -> NoReturn:
        raise UnplacedKeyError(f"{self.program} does not place the key {key!r} by its hash")

    # --- the servers ---

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The servers that can own keys, as nodes of the weight they were given."""
        return tuple(Node(name, weight) for name, weight in self._weights().items() if weight > 0)

    def _weights(self) -> Mapping[str, float]:
        """What each server weighs for the program; 0 for one that cannot own a key."""
        return {name: value if isinstance(value, int) else 1 for name, value in self.servers.items()}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.servers

    def without(self, *names: str) -> Self:
        """Return the placement that the program makes when these servers are not configured.

        Raises:
            UnknownNodeError: There is no server of that name.
        """
        for name in names:
            self._index(name)
        return self._with({k: v for k, v in self.servers.items() if k not in names})

    def with_servers(self, servers: Servers) -> Self:
        """Return the placement with more servers, written after those that are there."""
        more = self._more(servers)
        for name in more:
            if name in self.servers:
                raise DuplicateNodeError(f"the server {name!r} is there already")
        return self._with({**self.servers, **more})

    def _more(self, servers: object) -> dict[str, Any]:
        return read_servers(servers, least=0)

    def with_weights(self, weights: Mapping[str, int]) -> Self:
        """Return the placement in which some servers have other weights."""
        for name in read_mapping(weights, "weights"):
            self._index(name)
        return self._with({**self.servers, **weights})

    def _with(self, servers: dict[str, Any]) -> Self:
        make = cast("Callable[..., Self]", type(self))
        return make(servers, **self._settings_for(servers))

    def _settings_for(self, servers: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return dict(self._settings)

    def _index(self, name: object) -> int:
        try:
            return self.names.index(cast("str", name))
        except ValueError:
            few = ", ".join(map(repr, self.names[:5])) + (", ..." if len(self) > 5 else "")
            raise UnknownNodeError(f"there is no server {name!r}; the servers are {few}") from None

    # --- what each owns ---

    def ranges(self, name: str) -> list[KeyRange]:
        """Return the positions that a server owns, in order. O(stretches).

        Raises:
            UnknownNodeError: There is no server of that name.
        """
        mine = self._owners_of == self._index(name)
        starts = starts_of(self._ends)
        return list(map(KeyRange, starts[mine].tolist(), self._ends[mine].tolist()))

    @property
    def shares(self) -> dict[str, float]:
        """The part of all positions that each server owns, by name. O(stretches)."""
        return dict(zip(self.names, self._shares().tolist(), strict=True))

    def _shares(self) -> Array:
        sizes = (self._ends - starts_of(self._ends)).astype(np.float64) + 1.0
        placed = self._owners_of >= 0
        return np.bincount(self._owners_of[placed], sizes[placed], len(self)) / self.space

    @property
    def balance(self) -> Balance:
        """How evenly the positions are spread, relative to each server's weight. O(stretches)."""
        weights = np.array(list(self._weights().values()), np.float64)
        able = weights > 0
        relative = self._shares()[able] / (weights[able] / weights.sum())
        return Balance(float(relative.max()), float(relative.min()), float(relative.std()))

    # --- comparing ---

    def diff(self, other: Placement) -> Plan:
        """Return the exact moves from this placement to `other`, in positions of this program.

        Where a position is a remainder (Kafka) and the two divide by different numbers, the plan counts
        remainders by their least common multiple.

        Args:
            other: A placement that hashes keys in the same way; of any program.

        Raises:
            ValueError: A key has another position there, so no ranges of positions can move.

        Cost: O(stretches).

        >>> from ringhash.interop import NginxRing
        >>> before = NginxRing(["10.0.0.1:80", "10.0.0.2:80"])
        >>> plan = before.diff(before.with_servers(["10.0.0.3:80"]))
        >>> set(plan.by_target()), plan.needless
        ({'10.0.0.3:80'}, 0.0)
        """
        if not isinstance(other, Placement):
            raise TypeError(f"a placement differs from a placement, not from {plain_type(other)}")
        here, there = _key_fields(self), _key_fields(other)
        modulus = math.lcm(self.modulus, other.modulus)
        same_space = self.space == other.space or modulus
        if here | {"modulus": 0} != there | {"modulus": 0} or not same_space:
            raise ValueError(
                "the two hash keys in different ways, so no range of positions can move from one to the "
                f"other: {here} and {there}; compare them key by key (ringhash.interop.report)"
            )
        ends, sources = self._repeated(modulus)
        other_ends, targets = other._repeated(modulus)
        starts, ends, sources, targets = _difference(
            (ends, sources, self.names), (other_ends, targets, other.names)
        )
        return Plan(
            before=self.digest,
            after=other.digest,
            epoch=None,
            space=modulus or self.space,
            key_space=TextKeys(self.hash_name, modulus, self.hash_tag),
            changes=changes_between(self.nodes, other.nodes),
            ranges=(starts, ends),
            owners=(sources, targets),
            names=(self.names, other.names),
        )

    def _repeated(self, modulus: int) -> tuple[Array, Array]:
        """The stretches, for remainders by a multiple of this placement's modulus."""
        times = modulus // self.modulus if modulus else 1
        if times == 1:
            return self._ends, self._owners_of
        if times * len(self._ends) > _MOST_STRETCHES:
            raise ValueError(
                f"the placements count remainders by {self.modulus} and by a number that has with it the "
                f"least common multiple {modulus}, which is too many positions for a plan"
            )
        shifts = np.arange(times, dtype=np.uint64) * np.uint64(self.modulus)
        return (shifts[:, None] + self._ends).ravel(), np.tile(self._owners_of, times)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for two placements of one program with the same settings."""
        text = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return self is other or self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Placement.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {value!r}" for name, value in list(self.servers.items())[:4])
        more = f", ... {len(self)} servers" if len(self) > 4 else ""
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        return f"{type(self).__name__}({{{shown}{more}}}{settings})"

    def to_dict(self) -> dict[str, object]:
        """Return the placement as a dictionary that JSON can hold."""
        servers = [[name, value] for name, value in self.servers.items()]
        settings = {
            name: value
            for name, value in self._settings.items()
            if name not in self._defaults or value != self._defaults[name]
        }
        return {"program": self.program, "servers": servers, **settings}

    @staticmethod
    def from_dict(data: object) -> Placement:
        """Return the placement that `to_dict` described, of the program that it names.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.

        >>> from ringhash.interop import NginxRing
        >>> Placement.from_dict(NginxRing(["10.0.0.1:80"]).to_dict())
        NginxRing({'10.0.0.1:80': 1}, down=[])
        """
        if not isinstance(data, Mapping):
            raise ValueError("placement: must be an object")
        cls = Placement._programs.get(str(data.get("program")))
        if cls is None:
            raise ValueError(
                f"placement.program: must be one of {', '.join(sorted(Placement._programs))}, "
                f"not {data.get('program')!r}"
            )
        needed = frozenset({"program", "servers", *cls._options}) - frozenset(cls._defaults)
        record = check_fields(data, "placement", needed, frozenset(cls._defaults))
        settings: dict[str, Any] = {
            name: field(record, "placement", name, *kinds)
            for name, kinds in cls._options.items()
            if name in record
        }
        servers = {}
        for i, pair in enumerate(field(record, "placement", "servers", list)):
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
                raise ValueError(f"placement.servers[{i}]: must be a list [name, value]")
            if pair[0] in servers:
                raise ValueError(f"placement.servers[{i}]: {pair[0]!r} is given twice")
            servers[pair[0]] = pair[1]
        try:
            make = cast("Callable[..., Placement]", cls)
            return make(servers, **settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"placement: {error}") from None


class Clockwise(Placement):
    """A placement whose program goes on clockwise, point by point, when a server fails."""

    _points: Array  # sorted; all of them, also where two are equal
    _point_owners: Array
    _after: bool = False  # whether a key on a point belongs to the next one

    def walk(self, key: Any) -> Iterator[str]:
        """Iterate over the servers in the order in which the program tries them for `key`.

        Each server comes once. The cost is O(points) for all of them.
        """
        first = self._first_point(key)
        seen: set[int] = set()
        for index in self._from(first):
            if index not in seen:
                seen.add(index)
                yield self.names[index]

    def _first_point(self, key: Any) -> int:
        position = np.uint64(self.position(key))
        return int(np.searchsorted(self._points, position, "right" if self._after else "left"))

    def _from(self, first: int) -> Iterator[int]:
        yield from self._point_owners[first:].tolist()
        yield from self._point_owners[:first].tolist()

    def owners(self, key: Any, n: int) -> tuple[str, ...]:
        """Return the first n servers of `walk(key)`: the owner, and who takes over when it fails.

        Raises:
            ValueError: The program tries fewer than n servers for this key.
        """
        return first_of(self.walk(key), n)


def first_of(walk: Iterator[str], n: int) -> tuple[str, ...]:
    """Return the first n of a walk, or raise ValueError where there are fewer."""
    whole_number(n, "n", 1)
    found = tuple(name for name, _ in zip(walk, range(n), strict=False))
    if len(found) < n:
        raise ValueError(f"the program tries {len(found)} servers for this key, not {n}")
    return found


def _difference(
    before: tuple[Array, Array, tuple[str, ...]], after: tuple[Array, Array, tuple[str, ...]]
) -> tuple[Array, Array, Array, Array]:
    """The stretches that have another owner: first and last position, and the owners here and there."""
    ends = np.union1d(before[0], after[0])
    sources = before[1][np.searchsorted(before[0], ends)].astype(np.int64)
    targets = after[1][np.searchsorted(after[0], ends)].astype(np.int64)
    common = {name: i for i, name in enumerate(before[2])}
    renamed = np.array([common.get(name, -2 - i) for i, name in enumerate(after[2])] + [-1])
    moved = sources != renamed[targets]  # index -1 is the last: nobody there
    starts = starts_of(ends)[moved]
    ends, sources, targets = ends[moved], sources[moved], targets[moved]
    touches = np.zeros(len(ends), np.bool_)
    touches[1:] = (
        (starts[1:] == ends[:-1] + np.uint64(1))
        & (sources[1:] == sources[:-1])
        & (targets[1:] == targets[:-1])
    )
    begins = ~touches
    finishes = np.append(begins[1:], True)[: len(ends)]
    return starts[begins], ends[finishes], sources[begins], targets[begins]

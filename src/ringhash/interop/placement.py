"""What every program's placement is: a `Placement` over a table of stretches, made of servers and settings.

A program differs in how it hashes, where it puts its points and who wins between two of them. Once that is
worked out it is a sorted table of inclusive ends and owners, and everything else is the same for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Literal, NoReturn, Self, cast

import numpy as np

from ringhash.errors import DuplicateNodeError, RinghashError, UnknownNodeError
from ringhash.interop._table import Table, own_methods
from ringhash.interop.given import Servers, read_mapping, read_servers, whole_number
from ringhash.interop.stretches import Array, cut, merged
from ringhash.interop.texts import TextSpace, texts
from ringhash.membership import changed, changes_between
from ringhash.node import Node, plain_type
from ringhash.placement import Placement, Walkable, placement_from
from ringhash.plan import Changes, NodeChange, Plan
from ringhash.ranges import Ranges
from ringhash.records import document, field, read_document
from ringhash.spans import Spans

__all__ = ["Clockwise", "Options", "ProgramPlacement", "UnplacedKeyError", "first_of"]

Options = Mapping[str, tuple[type, ...]]

_MOST_STRETCHES = 1 << 22


class UnplacedKeyError(RinghashError, LookupError):
    """The program does not place this key by its hash, for instance because the key is empty."""


class ProgramPlacement(Table, Placement):
    """The base of all placements of other programs: who owns a key there.

    `servers` is what the placement was given, in that order. `nodes` and `names` are the servers that can
    own keys, in order of their names, and `index_many` counts in them.
    """

    _options: ClassVar[Options] = {}  # settings, and what JSON holds
    _defaults: ClassVar[Mapping[str, object]] = {}  # of those that JSON may leave out

    servers: dict[str, Any]  # as the program has them: name -> weight, slots or tokens
    _settings: dict[str, Any]
    _nodes: tuple[Node, ...]
    _ends: Array
    _owners_of: Array  # of each stretch, as an index into names; -1 is nobody
    _spans: Spans | None
    _digest: str | None

    def __init_subclass__(cls) -> None:
        own_methods(cls)

    def _keep(self, **values: Any) -> None:
        """Set attributes, while the placement is made: afterwards it never changes."""
        vars(self).update(values)

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
        space = TextSpace(*keys)
        self._keep(servers=servers, _settings=settings, _spans=None, _digest=None)
        weights = self._weights()
        nodes = tuple(Node(name, weights[name]) for name in sorted(weights) if weights[name] > 0)
        names = tuple(node.name for node in nodes)
        place = {name: i for i, name in enumerate(names)}
        ends, owners = cut(*stretches, space.size)
        owners = np.array([*(place.get(name, -1) for name in servers), -1], np.int32)[owners]
        ends, owners = merged(ends, owners)
        self._keep(_nodes=nodes, _ends=ends, _owners_of=owners)
        self._set_table(space, names, ends, owners, drops_empty)

    def _weights(self) -> Mapping[str, float]:
        """What each server weighs for the program; 0 for one that cannot own a key."""
        return {name: value if isinstance(value, int) else 1 for name, value in self.servers.items()}

    # --- lookups ---

    def position(self, key: Any) -> int:
        """Return the position of a key in the space of the program."""
        return int(self.space.position(key))

    def index_many(self, keys: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the owners of many keys, as indexes into `nodes`; -1 where the program has none.

        `keys` are as for `Ring.index_many`, and each is text, as for `owner`.
        """
        return self._indexes(texts(keys))

    def owner_many(self, keys: Any) -> list[str]:
        """Return the names of the owners of many keys; keys and errors as for `owner`."""
        return self._owners(texts(keys))

    def _fail_unplaced(self, key: object) -> NoReturn:
        raise UnplacedKeyError(f"{self.kind} does not place the key {key!r} by its hash")

    def _fail_owner(self) -> NoReturn:
        raise UnplacedKeyError(f"{self.kind} places no key there by its hash")

    # --- what each owns ---

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The servers that can own keys, in order of their names, as nodes of the weight they count with."""
        return self._nodes

    @property
    def spans(self) -> Spans:
        """The whole space, cut up among the servers."""
        if self._spans is None:
            self._keep(_spans=Spans(self.space.size, self._ends, self._owners_of, self.names))
        return cast("Spans", self._spans)

    # --- the servers ---

    def without(self, *names: str) -> Self:
        """Return the placement that the program makes when these servers are not configured.

        Raises:
            UnknownNodeError: There is no server of that name.
        """
        self._check_names(names)
        return self._with({name: value for name, value in self.servers.items() if name not in names})

    def with_servers(self, servers: Servers) -> Self:
        """Return the placement with more servers, written after those that are there."""
        more = self._more(servers)
        for name in more:
            if name in self.servers:
                raise DuplicateNodeError(f"the server {name!r} is there already")
        return self._with({**self.servers, **more})

    def with_weights(self, weights: Mapping[str, int]) -> Self:
        """Return the placement in which some servers have other weights."""
        self._check_names(read_mapping(weights, "weights"))
        return self._with({**self.servers, **weights})

    def _check_names(self, names: Any) -> None:
        for name in names:
            if name not in self.servers:
                few = ", ".join(map(repr, [*self.servers][:5])) + (", ..." if len(self.servers) > 5 else "")
                raise UnknownNodeError(f"there is no server {name!r}; the servers are {few}")

    def _more(self, servers: object) -> dict[str, Any]:
        return read_servers(servers, least=0)

    def _with(self, servers: dict[str, Any]) -> Self:
        make = cast("Callable[..., Self]", type(self))
        return make(servers, **self._settings_for(servers))

    def _settings_for(self, servers: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return dict(self._settings)

    # --- changes ---

    def _with_changes(self, changes: tuple[NodeChange, ...]) -> Self:
        return self._with(self._servers_after(changes))

    def _servers_after(self, changes: tuple[NodeChange, ...]) -> dict[str, Any]:
        """The servers after changes of nodes; those that come are written after those that are there."""
        servers = dict(self.servers)
        for _, (before, after) in changed(self.names, self.nodes, changes):
            if after is None:
                del servers[cast("Node", before).name]
            elif before is None and after.name in servers:
                raise DuplicateNodeError(f"the server {after.name!r} is there already, and takes no keys")
            else:
                servers[after.name] = self._server(after, servers.get(after.name))
        return servers

    def _server(self, node: Node, now: Any) -> Any:  # noqa: ARG002
        """What the program is given for a node; `now` is what it is given now, None for a new one."""
        if node.zone is not None:
            raise ValueError(f"{self.kind} knows no zones, and the node {node.name!r} has one")
        if node.weight != int(node.weight):
            raise ValueError(f"{self.kind} has whole weights; that of {node.name!r} is {node.weight}")
        return int(node.weight)

    def _changes_to(self, after: Any) -> Changes:
        """What changes: nodes, if they tell all of it, both ways; else a row with both documents."""
        nodes = changes_between(self.nodes, after.nodes)
        back = tuple(NodeChange(there, here) for here, there in nodes)
        if self._leads_to(nodes, after) and after._leads_to(back, self):
            return Changes(nodes)
        return Changes(nodes, (("placement", self.to_dict(), after.to_dict()),))

    def _leads_to(self, changes: tuple[NodeChange, ...], after: ProgramPlacement) -> bool:
        if type(self) is not type(after):
            return False
        try:
            servers = self._servers_after(changes)
        except ValueError:
            return False
        return (
            list(servers.items()) == list(after.servers.items())
            and self._settings_for(servers) == after._settings
        )

    def replayed(self, plan: Plan) -> Self:
        """Return the placement that the changes of a plan lead to; as `Placement.replayed`."""
        rows = plan.changes.rows
        if not rows:
            return self._with_changes(plan.changes.nodes)
        if len(rows) != 1 or rows[0][0] != "placement" or rows[0][1] != self.to_dict():
            raise ValueError("the changes of the plan are not of this placement")
        return cast("Self", placement_from(rows[0][2], "plan.rows[0]"))

    def diff(self, after: Placement) -> Plan:
        """Return the exact moves from this placement to `after`, in positions of this program.

        `after` may be of another program that hashes keys in the same way. If a position is a remainder
        (Kafka) and the two divide by different numbers, the plan counts remainders by their least common
        multiple.

        Raises:
            TypeError: `after` is no placement of a program.
            ValueError: A key has another position there, so no ranges of positions can move.

        Cost: O(stretches).

        >>> from ringhash.interop import NginxRing
        >>> before = NginxRing(["10.0.0.1:80", "10.0.0.2:80"])
        >>> plan = before.diff(before.with_servers(["10.0.0.3:80"]))
        >>> set(plan.by_target()), plan.needless
        ({'10.0.0.3:80'}, 0.0)
        """
        modulus = self._common_modulus(after)
        other = cast("ProgramPlacement", after)
        starts, ends, sources, targets = self._spans_by(modulus).diff(other._spans_by(modulus))
        return Plan(
            before=self.digest,
            after=other.digest,
            space=self._space_by(modulus),
            changes=self._changes_to(other),
            ranges=(starts, ends),
            owners=(sources, targets),
            names=(self.names, other.names),
        )

    def middle(self, after: Any, done: Ranges) -> Placement:
        """Return what answers in the middle of a handover to `after`; as `Placement.middle`."""
        modulus = self._common_modulus(after)
        if modulus == self.space.modulus == after.space.modulus:
            return super().middle(after, done)
        return _Wider(self, modulus).middle(_Wider(after, modulus), done)

    def _common_modulus(self, after: object) -> int:
        """By what both can take the remainder; 0 if the positions are hashes."""
        if not isinstance(after, ProgramPlacement):
            raise TypeError(f"a placement of a program has a plan to another one, not to {plain_type(after)}")
        if not self.space.same_reading(after.space):
            raise ValueError(
                "the two hash keys in different ways, so no range of positions can move from one to the "
                f"other: {self.space} and {after.space}; compare them key by key (ringhash.interop.report)"
            )
        return math.lcm(self.space.modulus, after.space.modulus)

    def _space_by(self, modulus: int) -> TextSpace:
        same = modulus == self.space.modulus
        return cast("TextSpace", self.space if same else self.space.with_modulus(modulus))

    def _spans_by(self, modulus: int) -> Spans:
        """The spans, for remainders by a multiple of this placement's modulus."""
        if modulus == self.space.modulus:
            return self.spans
        own = self.space.modulus
        if modulus // own * len(self._ends) > _MOST_STRETCHES:
            raise ValueError(
                f"the placements count remainders by {own} and by a number that has with it the "
                f"least common multiple {modulus}, which is too many positions for a plan"
            )
        shifts = np.arange(modulus // own, dtype=np.uint64) * np.uint64(own)
        ends, owners = (shifts[:, None] + self._ends).ravel(), np.tile(self._owners_of, modulus // own)
        return Spans(modulus, ends, owners, self.names)

    # --- identity ---

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for two placements of one program with the same settings."""
        if self._digest is None:
            text = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True)
            self._keep(_digest=blake2b(text.encode(), digest_size=16).hexdigest())
        return cast("str", self._digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {value!r}" for name, value in list(self.servers.items())[:4])
        more = f", ... {len(self.servers)} servers" if len(self.servers) > 4 else ""
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        return f"{type(self).__name__}({{{shown}{more}}}{settings})"

    def to_dict(self) -> dict[str, object]:
        """Return the placement as a dictionary that JSON can hold."""
        settings = {
            name: value
            for name, value in self._settings.items()
            if name not in self._defaults or value != self._defaults[name]
        }
        return document(
            self.kind, servers=[[name, value] for name, value in self.servers.items()], **settings
        )

    @classmethod
    def from_dict(cls, data: object, where: str = "placement") -> Self:
        """Return the placement that `to_dict` described.

        Raises:
            ValueError: A field is missing, unknown or wrong; the message names it.

        >>> from ringhash.interop import NginxRing
        >>> NginxRing.from_dict(NginxRing(["10.0.0.1:80"]).to_dict())
        NginxRing({'10.0.0.1:80': 1}, down=[])
        """
        where = where or "placement"
        needed = frozenset({"servers", *cls._options}) - frozenset(cls._defaults)
        record = read_document(data, where, cls.kind, needed, frozenset(cls._defaults))
        settings: dict[str, Any] = {
            name: field(record, where, name, *kinds) for name, kinds in cls._options.items() if name in record
        }
        servers = {}
        for i, pair in enumerate(field(record, where, "servers", list)):
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
                raise ValueError(f"{where}.servers[{i}]: must be a list [name, value]")
            if pair[0] in servers:
                raise ValueError(f"{where}.servers[{i}]: {pair[0]!r} is given twice")
            servers[pair[0]] = pair[1]
        try:
            make = cast("Callable[..., Self]", cls)
            return make(servers, **settings)
        except (TypeError, ValueError, LookupError) as error:
            raise ValueError(f"{where}: {error}") from None


class _Wider(Placement):
    """A placement whose positions are remainders by a multiple of its own number."""

    kind = "wider"

    __slots__ = ("_of", "_spans", "_wide_space")

    def __init__(self, of: ProgramPlacement, modulus: int) -> None:
        object.__setattr__(self, "_of", of)
        object.__setattr__(self, "_spans", of._spans_by(modulus))
        object.__setattr__(self, "_wide_space", of._space_by(modulus))

    _of: ProgramPlacement
    _spans: Spans
    _wide_space: TextSpace

    @property
    def space(self) -> TextSpace:
        return self._wide_space

    @property
    def spans(self) -> Spans:
        return self._spans

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._of.nodes

    @property
    def digest(self) -> str:
        return self._of.digest


class Clockwise(ProgramPlacement, Walkable):
    """A placement whose program goes on clockwise, point by point, when a server fails."""

    _points: Array  # sorted; all of them, also where two are equal
    _point_owners: Array  # as indexes of servers
    _after: ClassVar[bool] = False  # whether a key on a point belongs to the next one

    def walk(self, key: Any) -> Iterator[str]:
        """Iterate over the servers in the order in which the program tries them for `key`.

        Each server comes once. The cost is O(points) for all of them.
        """
        names = list(self.servers)
        first = self._first_point(key)
        seen: set[int] = set()
        for index in self._from(first):
            if index not in seen:
                seen.add(index)
                yield names[index]

    def _first_point(self, key: Any) -> int:
        position = np.uint64(self.position(key))
        return int(np.searchsorted(self._points, position, "right" if self._after else "left"))

    def _from(self, first: int) -> Iterator[int]:
        yield from self._point_owners[first:].tolist()
        yield from self._point_owners[:first].tolist()

    def owners(
        self, key: Any, n: int, distinct: Literal["node", "zone"] = "node", strict: bool = False
    ) -> tuple[str, ...]:
        """Return the first n servers of `walk(key)`: the owner, and who takes over when it fails.

        Fewer if the program tries fewer servers for this key, unless `strict`. Programs know no zones, so
        every server is a zone of its own.

        Raises:
            ValueError: `strict`, and the program tries fewer.
        """
        return first_of(self.walk(key), n, distinct, strict)


def first_of(walk: Iterator[str], n: int, distinct: object, strict: bool) -> tuple[str, ...]:
    """Return the first n of a walk; with `strict`, `ValueError` if there are fewer."""
    whole_number(n, "n", 1)
    if distinct not in ("node", "zone"):
        raise ValueError(f"distinct must be 'node' or 'zone', not {distinct!r}")
    found = tuple(name for name, _ in zip(walk, range(n), strict=False))
    if strict and len(found) < n:
        raise ValueError(f"the program tries {len(found)} servers for this key, not {n}")
    return found

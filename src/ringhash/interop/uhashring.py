"""An object with the methods of `uhashring.HashRing`, over its placement."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ringhash.errors import UnknownNodeError
from ringhash.interop.given import read_listed, whole_number
from ringhash.interop.hashes import md5
from ringhash.interop.uhash_placement import VNODES, Mode, UHashPlacement, read_nodes
from ringhash.node import plain_type

__all__ = ["UHashRing"]

_CONF = ("hostname", "instance", "nodename", "port", "vnodes", "weight")


class _MissingNodeError(UnknownNodeError, KeyError):
    """There is no such node; uhashring raises a KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Points(NamedTuple):
    """The points of a ring as uhashring keeps them, with all the bits of their hashes."""

    keys: list[int]  # in order; with ketama, twice where two nodes share one
    ring: dict[int, str]
    distribution: Counter[str]


class _State:
    """A ring between two changes. The points are made when somebody asks for them."""

    def __init__(
        self, conf: dict[str, dict[str, Any]], placement: UHashPlacement | None, replicas: int | None = None
    ) -> None:
        self.conf = conf
        self.placement = placement
        self._replicas = replicas  # None: the default mode
        self._points: _Points | None = None

    def points(self) -> _Points:
        if self._points is None:
            self._points = self._made()
        return self._points

    def _made(self) -> _Points:
        keys: list[int] = []
        ring: dict[int, str] = {}
        distribution: Counter[str] = Counter()
        total = sum(conf["weight"] for conf in self.conf.values()) or 1
        for name, conf in self.conf.items():
            count = conf["vnodes"] * conf["weight"]
            if self._replicas:
                count = count * len(self.conf) // total
            for i in range(count):
                digest = md5(b"%b-%d" % (name.encode(), i)).digest()
                if self._replicas:
                    found = [
                        int.from_bytes(digest[k * 4 : k * 4 + 4], "little") for k in range(self._replicas)
                    ]
                else:
                    found = [int.from_bytes(digest)]
                keys += found
                ring |= dict.fromkeys(found, name)
                distribution[name] += len(found)
        return _Points(sorted(keys), ring, distribution)


class UHashRing:
    """A ring with the methods of `uhashring.HashRing`, so that a script changes one import.

    Args:
        nodes: A name, a list of names, or a mapping of names to weights or to configurations: mappings
            with any of `hostname`, `instance`, `nodename`, `port`, `vnodes` and `weight`.
        hash_fn: None, or "ketama".
        vnodes: 160 by default, 40 with ketama.
        weight_fn: Called with a node's configuration as keywords; what it returns is the node's weight.
        replicas: With ketama, how many points each hash gives.

    Raises:
        TypeError, ValueError: A configuration is not one that uhashring takes; nothing has changed.

    Every answer is that of uhashring 2.5. What differs: a hash function of your own is refused, and so are
    names that are no `str`, weights that are no whole number from 0 on, and arguments that uhashring
    silently ignores; the ring always follows the configuration of its nodes.

    `placement` is the ring as it is now: compare two of them for what a change moves, or hand one to
    `Router`. Lookups may run while one thread changes the ring; they see it before the change or after it.

    >>> ring = UHashRing({"cache-1": {"hostname": "10.0.0.1", "port": 11211}, "cache-2": {"weight": 2}})
    >>> ring.get_node("user:7"), ring.get("user:4")["hostname"], ring.get_node_port("user:4")
    ('cache-2', '10.0.0.1', 11211)
    >>> before = ring.placement
    >>> ring.add_node("cache-3")
    >>> sorted(before.diff(ring.placement).by_target())
    ['cache-3']
    """

    def __init__(
        self,
        nodes: Any = (),
        *,
        hash_fn: str | None = None,
        vnodes: int | None = None,
        weight_fn: Callable[..., int] | None = None,
        replicas: int = 4,
    ) -> None:
        if callable(hash_fn):
            raise TypeError("a hash function of your own is not covered; leave hash_fn out, or say 'ketama'")
        if hash_fn not in (None, "ketama"):
            raise TypeError(f"hash_fn must be None or 'ketama', not {hash_fn!r}")
        if weight_fn is not None and not callable(weight_fn):
            raise TypeError(f"weight_fn must be a function, not {plain_type(weight_fn)}")
        self._mode: Mode = "ketama" if hash_fn else "default"
        self._vnodes = VNODES[self._mode] if vnodes is None else whole_number(vnodes, "vnodes", 1)
        self._replicas = whole_number(replicas, "replicas", 1, 4)
        self._weight_fn = weight_fn
        self._state = _State({}, None)
        self._configure(nodes)

    # --- nodes come and go ---

    def _configure(self, nodes: Any) -> None:
        if isinstance(nodes, str):
            nodes = [nodes]
        given = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(read_listed(nodes, "nodes"), 1)
        self._publish({**self._state.conf, **{name: self._read(name, one) for name, one in given.items()}})

    def _read(self, name: str, given: Any) -> dict[str, Any]:
        conf: dict[str, Any] = dict(zip(_CONF, (name, None, name, None, self._vnodes, 1), strict=True))
        if isinstance(given, Mapping):
            conf |= {field: value for field, value in given.items() if field in conf}
        elif isinstance(given, int) and not isinstance(given, bool):
            conf["weight"] = given
        else:
            raise ValueError(f"the configuration of a node must be a mapping or a weight, not {given!r}")
        if self._weight_fn is not None:
            conf["weight"] = self._weight_fn(**conf)
        return conf

    def _publish(self, conf: dict[str, dict[str, Any]]) -> None:
        """Swap in the ring of these nodes, with one assignment; or raise, and change nothing."""
        pairs = {name: (one["weight"], one["vnodes"]) for name, one in conf.items()}
        read = read_nodes(pairs, self._vnodes) if pairs else {}
        placement = None
        if any(weight and vnodes for weight, vnodes in pairs.values()):
            placement = UHashPlacement(read, self._mode, self._vnodes, self._replicas)
        self._state = _State(conf, placement, self._replicas if self._mode == "ketama" else None)

    def add_node(self, nodename: str, conf: Mapping[str, Any] | int = 1) -> None:
        """Add a node, or configure one anew."""
        self._configure({nodename: conf})

    def remove_node(self, nodename: str) -> None:
        """Remove a node.

        Raises:
            UnknownNodeError: There is no such node; it is a `KeyError` too, as in uhashring.
        """
        conf = dict(self._state.conf)
        if conf.pop(nodename, None) is None:
            raise _MissingNodeError(f"there is no node {nodename!r}; the nodes are {', '.join(conf)}")
        self._publish(conf)

    __setitem__ = add_node
    __delitem__ = remove_node

    def regenerate(self) -> None:
        """Ask `weight_fn` again about every node."""
        self._configure(self._state.conf)

    # --- who owns a key ---

    def get_node(self, key: object) -> str | None:
        """Return the name of the node that owns `str(key)`; None if there is no node."""
        placement = self._state.placement
        return None if placement is None else placement.owner(key if type(key) is str else str(key))

    def get(self, key: object) -> dict[str, Any] | None:
        """Return the configuration of the node that owns `key`."""
        state = self._state
        return None if state.placement is None else state.conf[state.placement.owner(str(key))]

    def _of(self, key: object, field: str) -> Any:
        conf = self.get(key)
        return None if conf is None else conf[field]

    def get_node_instance(self, key: object) -> Any:
        """Return the `instance` of the node that owns `key`, as `ring[key]` does."""
        return self._of(key, "instance")

    __getitem__ = get_node_instance

    def get_node_hostname(self, key: object) -> Any:
        """Return the `hostname` of the node that owns `key`; its name by default."""
        return self._of(key, "hostname")

    def get_node_port(self, key: object) -> Any:
        """Return the `port` of the node that owns `key`."""
        return self._of(key, "port")

    def get_node_weight(self, key: object) -> Any:
        """Return the `weight` of the node that owns `key`."""
        return self._of(key, "weight")

    def get_node_pos(self, key: object) -> int | None:
        """Return the index, among the points in order, of the one that `key` belongs to."""
        points = self._state.points()
        return bisect(points.keys, self.hashi(key)) % len(points.keys) if points.keys else None

    def get_server(self, key: object) -> tuple[int, str] | None:
        """Return the point that `key` belongs to, and its node."""
        pos = self.get_node_pos(key)
        return None if pos is None else self.get_points()[pos]

    def range(self, key: object, size: int | None = None, unique: bool = True) -> Iterator[dict[str, Any]]:
        """Iterate over the configurations of nodes, from the owner of `key` on, each once if `unique`."""
        state = self._state
        if state.placement is None:
            return
        names = state.placement.walk(str(key)) if unique else self._every_point(state, key)
        for count, name in enumerate(names, 1):
            yield state.conf[name]
            if count == size:
                return

    def _every_point(self, state: _State, key: object) -> Iterator[str]:
        points = state.points()
        pos = bisect(points.keys, self.hashi(key)) % len(points.keys)
        yield from (points.ring[point] for point in points.keys[pos:])
        yield from (points.ring[point] for point in points.keys[:pos])

    def iterate_nodes(self, key: object, distinct: bool = True) -> Iterator[str | None]:
        """Iterate over the names of nodes, from the owner of `key` on."""
        if self._state.placement is None:
            yield None
            return
        yield from (conf["nodename"] for conf in self.range(key, unique=distinct))

    def hashi(self, key: object) -> int:
        """Return the hash of `str(key)`: 128 bits, or 32 with ketama."""
        digest: bytes = md5(str(key).encode()).digest()
        return int.from_bytes(digest[:4], "little") if self._mode == "ketama" else int.from_bytes(digest)

    get_key = hashi

    # --- the ring as it is ---

    @property
    def placement(self) -> UHashPlacement:
        """The ring as it is now, which never changes.

        Raises:
            ValueError: No node has a point.
        """
        if self._state.placement is None:
            raise ValueError("a placement needs at least one server, and this ring has no node with a point")
        return self._state.placement

    @property
    def conf(self) -> dict[str, dict[str, Any]]:
        """The configurations of the nodes by name."""
        return self._state.conf

    nodes = conf

    def get_nodes(self) -> Iterable[str]:
        """Return the names of the nodes."""
        return self._state.conf.keys()

    def get_instances(self) -> list[Any]:
        """Return the instances of the nodes that have one."""
        return [conf["instance"] for conf in self._state.conf.values() if conf["instance"]]

    @property
    def distribution(self) -> Counter[str]:
        """How many points each node has."""
        return self._state.points().distribution

    @property
    def ring(self) -> dict[int, str]:
        """The node of each point."""
        return self._state.points().ring

    continuum = ring

    @property
    def size(self) -> int:
        """The number of points."""
        return len(self.ring)

    def get_points(self) -> list[tuple[int, str]]:
        """Return the points in order, each with its node."""
        points = self._state.points()
        return [(point, points.ring[point]) for point in points.keys]

    def print_continuum(self) -> None:
        """Print the points in order, each with its node."""
        points = self.get_points()
        print(f"Numpoints in continuum: {len(points)}" if points else "Continuum empty")
        for point, name in points:
            print(f"{name} ({point})")

    def __repr__(self) -> str:
        return f"UHashRing({self._state.conf!r}, hash_fn={'ketama' if self._mode == 'ketama' else None!r})"

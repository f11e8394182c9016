"""The placement of uhashring, the Python library; `UHashRing` has its methods too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from ringhash.errors import DuplicateNodeError
from ringhash.interop.given import check_points, read_listed, whole_number
from ringhash.interop.hashes import md5
from ringhash.interop.placement import Clockwise, Options
from ringhash.interop.stretches import distinct_points, sorted_points, whole
from ringhash.node import Node

__all__ = ["VNODES", "Mode", "UHashPlacement", "read_nodes"]

Mode = Literal["default", "ketama"]

_SPACES = {"default": 1 << 64, "ketama": 1 << 32}
VNODES = {"default": 160, "ketama": 40}
_MOST = (1 << 31) - 1


class UHashPlacement(Clockwise):
    """The owners of `uhashring.HashRing`, as a placement. Exact for uhashring 2.5.

    Args:
        nodes: Names, or a mapping of names to whole weights or to pairs (weight, vnodes), in the order in
            which `HashRing` has them.
        mode: "default", or "ketama" for `hash_fn="ketama"`.
        vnodes: Of a node that has none of its own: 160 by default, 40 in the ketama mode.
        replicas: In the ketama mode, how many points each hash gives, from 1 to 4.

    Raises:
        DuplicateNodeError: A node is given twice.
        ValueError: A weight, the mode or vnodes is not one that uhashring takes.

    Keys are text. The default ring of uhashring has 2^128 positions, of which the upper 64 bits count here.

    Cost: O(points).

    >>> UHashPlacement({"a": 1, "b": 2}).owner("user:7")
    'b'
    """

    kind = "uhashring"
    _options: ClassVar[Options] = {"mode": (str,), "vnodes": (int, type(None)), "replicas": (int,)}
    _defaults: ClassVar[Mapping[str, object]] = {"replicas": 4}
    _vnodes: int
    _after = True  # bisect.bisect: a key on a point belongs to the next one

    def __init__(
        self,
        nodes: Iterable[str] | Mapping[str, int | tuple[int, int]],
        mode: Mode = "default",
        vnodes: int | None = None,
        replicas: int = 4,
    ) -> None:
        if mode not in _SPACES:
            raise ValueError(f"there is no mode {mode!r}; there are default and ketama")
        replicas = whole_number(replicas, "replicas", 1, 4)
        each = VNODES[mode] if vnodes is None else whole_number(vnodes, "vnodes", 1, _MOST)
        servers = read_nodes(nodes, each)
        pairs = [value if isinstance(value, list) else [value, each] for value in servers.values()]
        if mode == "default":
            counts, width = [own * weight for weight, own in pairs], 1
        else:
            total = sum(weight for weight, _ in pairs) or 1
            counts, width = [own * len(pairs) * weight // total for weight, own in pairs], replicas
        check_points(sum(counts) * width)
        digests = b"".join(
            md5(b"%b-%d" % (name.encode(), i)).digest()
            for name, count in zip(servers, counts, strict=True)
            for i in range(count)
        )
        if mode == "default":
            points = np.frombuffer(digests, ">u8")[::2].astype(np.uint64)
        else:
            points = np.frombuffer(digests, "<u4").reshape(-1, 4)[:, :width].ravel().astype(np.uint64)
        if not len(points):
            raise ValueError("no node has a point: the weights are 0 or too far apart")
        owners = np.repeat(np.arange(len(counts)), np.array(counts) * width)
        # A dict holds the points there, so the node that came last has a point that two share.
        points, owners = distinct_points(*sorted_points(points, owners), last=True)
        self._keep(_points=points, _point_owners=owners, _vnodes=each)
        self._place(
            servers,
            {"mode": mode, "vnodes": vnodes, "replicas": replicas},
            keys=("md5-128" if mode == "default" else "md5", 0, None),
            stretches=whole(points, owners, _SPACES[mode], after=True),
        )

    def _weights(self) -> dict[str, float]:
        return {
            name: value[0] * value[1] / self._vnodes if isinstance(value, list) else value
            for name, value in self.servers.items()
        }

    def _server(self, node: Node, now: Any) -> Any:
        if not isinstance(now, list):
            return super()._server(node, now)
        return [super()._server(node.weighing(node.weight * self._vnodes / now[1]), None), now[1]]

    def _more(self, servers: object) -> dict[str, Any]:
        return read_nodes(servers, self._vnodes)


def read_nodes(nodes: object, each: int) -> dict[str, Any]:
    """Weights by name; [weight, vnodes] for a node with vnodes of its own."""
    if not isinstance(nodes, Mapping):
        listed = read_listed(nodes, "nodes")
        nodes = dict.fromkeys(listed, 1)
        if len(nodes) < len(listed):
            raise DuplicateNodeError("a node is given twice")
    found: dict[str, Any] = {}
    for name, value in nodes.items():
        Node(name)  # a name that a node may have
        weight, vnodes = value if isinstance(value, (list, tuple)) and len(value) == 2 else (value, each)
        weight = whole_number(weight, f"the weight of {name!r}", 0, _MOST)
        vnodes = whole_number(vnodes, f"the vnodes of {name!r}", 0, _MOST)
        found[name] = weight if vnodes == each else [weight, vnodes]
    if not found:
        raise ValueError("a placement needs at least one server")
    return found

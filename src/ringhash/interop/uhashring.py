"""uhashring, the Python library: its default ring and its ketama mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from ringhash.interop.given import Servers, check_points, read_servers, whole_number
from ringhash.interop.hashes import md5
from ringhash.interop.placement import Clockwise, Options
from ringhash.interop.stretches import distinct_points, sorted_points, whole

__all__ = ["UHashRing"]

_SPACES = {"default": 1 << 64, "ketama": 1 << 32}
_VNODES = {"default": 160, "ketama": 40}


class UHashRing(Clockwise):
    """The owners of `uhashring.HashRing`, to leave it without moving a key. Exact for uhashring 2.5.

    Args:
        nodes: Names, or a mapping of names to whole weights, as `HashRing` takes them, in that order.
        mode: "default", or "ketama" for `hash_fn="ketama"`.
        vnodes: As for `HashRing`: 160 by default, 40 in the ketama mode.

    Raises:
        DuplicateNodeError: A node is given twice.
        ValueError: A weight, the mode or vnodes is not one that uhashring takes.

    `get_node` and `iterate_nodes` take any key, as uhashring does: they hash `str(key)`. `owner` takes
    text. The default ring has 2^128 positions, of which the upper 64 bits count here. Not covered: a
    `weight_fn`, a hash function of your own, and nodes with `vnodes` of their own.

    Cost: O(points).

    >>> ring = UHashRing({"a": 1, "b": 2})
    >>> ring.get_node("user:7"), ring.get_node(7)
    ('b', 'b')
    """

    program = "uhashring"
    _options: ClassVar[Options] = {"mode": (str,), "vnodes": (int, type(None))}
    _after = True  # bisect.bisect: a key on a point belongs to the next one

    def __init__(
        self,
        nodes: Servers,
        mode: Literal["default", "ketama"] = "default",
        vnodes: int | None = None,
    ) -> None:
        weights = read_servers(nodes)
        if mode not in _SPACES:
            raise ValueError(f"there is no mode {mode!r}; there are default and ketama")
        if vnodes is not None:
            vnodes = whole_number(vnodes, "vnodes", 1, (1 << 31) - 1)
        each = vnodes or _VNODES[mode]
        if mode == "default":
            counts = [each * weight for weight in weights.values()]
        else:
            total = sum(weights.values())
            counts = [each * len(weights) * weight // total for weight in weights.values()]
        check_points(sum(counts) * (1 if mode == "default" else 4))
        digests = b"".join(
            md5(b"%b-%d" % (name.encode(), i)).digest()
            for name, count in zip(weights, counts, strict=True)
            for i in range(count)
        )
        if mode == "default":
            points = np.frombuffer(digests, ">u8")[::2].astype(np.uint64)
        else:
            points = np.frombuffer(digests, "<u4").astype(np.uint64)
            counts = [4 * count for count in counts]
        if not len(points):
            raise ValueError("no node has a point: the weights are too far apart")
        owners = np.repeat(np.arange(len(counts)), counts)
        # A dict holds the points there, so the node that came last has a point that two share.
        self._points, self._point_owners = distinct_points(*sorted_points(points, owners), last=True)
        space = _SPACES[mode]
        self._place(
            weights,
            {"mode": mode, "vnodes": vnodes},
            keys=("md5-128" if mode == "default" else "md5", 0, None),
            stretches=whole(self._points, self._point_owners, space, after=True),
        )

    def get_node(self, key: object) -> str:
        """Return the owner of `str(key)`, as `HashRing.get_node`."""
        return self.owner(str(key))

    def iterate_nodes(self, key: object) -> Iterator[str]:
        """Iterate over every node once, from `str(key)` on, as `HashRing.iterate_nodes`."""
        return self.walk(str(key))

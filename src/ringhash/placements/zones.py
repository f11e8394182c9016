"""Replicas in different zones: the walk of a key, taken in passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringhash.node import Node

__all__ = ["spread"]


def spread(
    walk: Iterable[str], zone_of: Mapping[str, str | Node], zone_sizes: Mapping[str | Node, int], n: int
) -> tuple[str, ...]:
    """Take n nodes in passes over the walk: a pass takes the first node left of every zone."""
    found: list[str] = []
    taken: set[str] = set()
    taken_of: dict[str | Node, int] = {}
    zones_left = len(zone_sizes)
    walked: list[str] = []
    rest = iter(walk)
    while True:
        this_pass: set[str | Node] = set()
        zones_now = zones_left
        for name in chain(walked, _recorded(rest, walked)):
            zone = zone_of[name]
            if name in taken or zone in this_pass:
                continue
            found.append(name)
            if len(found) == n:
                return tuple(found)
            taken.add(name)
            this_pass.add(zone)
            taken_of[zone] = taken_of.get(zone, 0) + 1
            zones_left -= taken_of[zone] == zone_sizes[zone]
            if len(this_pass) == zones_now:
                break  # nothing left for this pass: save the rest of the walk


def _recorded(walk: Iterator[str], walked: list[str]) -> Iterator[str]:
    for name in walk:
        walked.append(name)
        yield name

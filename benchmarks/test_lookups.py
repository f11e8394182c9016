"""One key at a time and many at once, by kind of key and size of ring."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import cases

pytestmark = pytest.mark.benchmark(max_time=0.2, min_rounds=5, disable_gc=True)

SIZES = pytest.mark.parametrize("nodes", cases.SIZES)


@SIZES
@pytest.mark.parametrize("way", list(cases.lookups(cases.ring_of(3))))
def test_lookup(timed: Callable[..., None], nodes: int, way: str) -> None:
    timed(cases.lookups(cases.ring_of(nodes))[way])


@SIZES
@pytest.mark.parametrize("way", list(cases.batches(cases.ring_of(3))))
def test_batch(timed: Callable[..., None], nodes: int, way: str) -> None:
    ring = cases.ring_of(nodes)
    timed(cases.batches(ring)[way], {"numpy.searchsorted": cases.searchsorted(ring)})
    owners = [ring.owner(key) for key in cases.text_keys()]
    assert ring.owner_many(cases.text_keys()) == owners
    assert [ring.names[i] for i in ring.index_many(cases.text_keys())] == owners

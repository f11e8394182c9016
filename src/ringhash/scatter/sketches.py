"""Mergeable sketches of Apache DataSketches. Needs the extra: pip install ringhash[sketches]."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self

__all__ = ["DistinctSketch", "QuantileSketch"]

_LG_K = 12  # 4,096 registers: 1.04 / sqrt(4096) is 1.6 %


def _library() -> Any:
    try:
        import datasketches  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise ImportError("sketches need DataSketches: pip install 'ringhash[sketches]'") from None
    return datasketches


class DistinctSketch:
    """How many distinct values, by HyperLogLog."""

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        library = _library()
        self._sketch = library.hll_sketch(_LG_K, library.HLL_8)
        for value in values:
            # Equal numbers of different types are one value, as in a set.
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # noqa: PLW2901
            self._sketch.update(repr(value))

    def __ior__(self, other: DistinctSketch) -> Self:
        library = _library()
        union = library.hll_union(_LG_K)
        union.update(self._sketch)
        union.update(other._sketch)
        self._sketch = union.get_result(library.HLL_8)
        return self

    def estimate(self) -> int:
        """Return the estimated number."""
        return int(self._sketch.get_estimate() + 0.5)

    def __bytes__(self) -> bytes:
        return bytes(self._sketch.serialize_updatable())

    @classmethod
    def read(cls, data: bytes | None) -> DistinctSketch:
        """Return the sketch that `bytes` wrote; None is an empty one."""
        sketch = cls()
        if data:
            sketch._sketch = _library().hll_sketch.deserialize(bytes(data))
        return sketch


class QuantileSketch:
    """Quantiles of numbers, by KLL."""

    def __init__(self, values: Sequence[float] = (), k: int = 400) -> None:
        self._sketch = _library().kll_doubles_sketch(k)
        for value in values:
            self._sketch.update(float(value))

    def __ior__(self, other: QuantileSketch) -> Self:
        self._sketch.merge(other._sketch)
        return self

    def quantile(self, q: float) -> float | None:
        """Return a quantile; None of nothing."""
        return None if self._sketch.is_empty() else float(self._sketch.get_quantile(q))

    def __bytes__(self) -> bytes:
        return bytes(self._sketch.serialize())

    @classmethod
    def read(cls, data: bytes | None, k: int = 400) -> QuantileSketch:
        """Return the sketch that `bytes` wrote; None is an empty one."""
        sketch = cls((), k)
        if data:
            sketch._sketch = _library().kll_doubles_sketch.deserialize(bytes(data))
        return sketch

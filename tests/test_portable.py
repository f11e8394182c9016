"""The core of a machine without SSE2 answers as this one's: cells are compared by the million."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from chosen import NAMES

from ringhash import _core

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.core

ROOT = Path(__file__).parent.parent
LAST = 2**32 - 1


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The core, built from the same source with -DRINGHASH_PORTABLE and loaded beside the one in use.

    Where it cannot be built (.ci/everywhere/foreign.sh), RINGHASH_PORTABLE_CORE is the folder that has it.
    """
    if built := os.environ.get("RINGHASH_PORTABLE_CORE"):
        return load(Path(built))
    pytest.importorskip("Cython", reason="the core is built from its source")
    if not (ROOT / "setup.py").is_file():
        pytest.skip("the source of the core is not here")
    folder = tmp_path_factory.mktemp("portable")
    subprocess.run(
        [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            "--build-lib",
            folder,
            "--build-temp",
            folder / "temp",
        ],
        cwd=ROOT,
        env={**os.environ, "RINGHASH_PORTABLE": "1", "RINGHASH_CORE_ALONE": "1"},
        check=True,
        timeout=600,
    )
    return load(folder)


def load(folder: Path) -> ModuleType:
    (file,) = (folder / "ringhash").glob("_core.*")
    loader = importlib.machinery.ExtensionFileLoader("portable._core", str(file))
    spec = importlib.util.spec_from_file_location("portable._core", file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def table_of(core: Any, points: np.ndarray[Any, Any], nodes: int) -> Any:
    """A table of these points, which belong to the nodes by turns."""
    owners = np.arange(len(points), dtype=np.uint64) % np.uint64(nodes)
    keys = np.sort((np.sort(points).astype(np.uint64) << np.uint64(32)) | owners)
    counts = np.bincount((keys & np.uint64(LAST)).astype(np.int64), minlength=nodes).tolist()
    return core.Table(tuple(f"n{i:06}" for i in range(nodes)), counts, 0, False, None, keys)


def drawn_points(rng: np.random.Generator, case: int) -> np.ndarray[Any, Any]:
    """Points in few buckets, many of them where a bucket ends and its rests are the greatest."""
    count = int(rng.integers(1, 60))
    points = rng.integers(0, 2**32, count, dtype=np.uint64)
    kind = case % 4
    if kind == 1:  # a crowd at the end of the ring
        points = np.concatenate(
            (points, LAST - rng.integers(0, 1 << int(rng.integers(1, 20)), 20, np.uint64))
        )
    elif kind == 2:  # crowds at the ends of buckets of every size
        ends = (np.arange(1, 9, dtype=np.uint64) << np.uint64(29)) - np.uint64(1)
        points = np.concatenate((points, *(ends - d for d in rng.integers(0, 1 << 16, (4, 8), np.uint64))))
    elif kind == 3:  # nothing but crowds
        base = rng.integers(0, 2**32 - 2**20, dtype=np.uint64)
        points = base + rng.integers(0, 1 << int(rng.integers(1, 20)), 40, np.uint64)
    return points & np.uint64(LAST)


def wrong_answers(core: Any, cases: int, seed: int = 7) -> tuple[int, int]:
    """How many of the drawn lookups differ from a search among the points, and how many there were."""
    rng = np.random.default_rng(seed)
    wrong = asked = 0
    for case in range(cases):
        drawn = drawn_points(rng, case)
        table = table_of(core, drawn, min(len(drawn), int(rng.integers(1, 7))))
        points = table.points.astype(np.int64)
        near = (points[:, None] + np.arange(-3, 4)).ravel() & LAST
        at = np.concatenate((near, rng.integers(0, 2**32, 300, np.int64))).astype(np.uint32)
        right = table.point_owners[np.searchsorted(points, at.astype(np.int64)) % len(points)]
        wrong += int((table._indexes_at(at) != right).sum())
        asked += len(at)
    return wrong, asked


def lowered_cells(points: np.ndarray[Any, Any]) -> int:
    """How many buckets have the greatest rest at the 15th and 16th of 17 points or more."""
    buckets = max(1, (len(points) + 9) // 10)
    scaled = np.sort(points) * np.uint64(buckets)
    bucket, rest = scaled >> np.uint64(32), (scaled >> np.uint64(16)) & np.uint64(0xFFFF)
    cells = [rest[bucket == number] for number in np.unique(bucket)]
    return sum(len(cell) > 16 and cell[14] == cell[15] == 0xFFFF for cell in cells)


def test_the_draw_has_the_cells_that_once_were_wrong() -> None:
    """The negative control: of cells with a rest out of order there are many among those compared."""
    rng = np.random.default_rng(7)
    assert sum(lowered_cells(drawn_points(rng, case)) for case in range(4000)) > 100


def test_millions_of_lookups_in_drawn_cells_are_those_of_a_search(portable: ModuleType) -> None:
    for core in (_core, portable):
        wrong, asked = wrong_answers(core, 4000)
        assert asked > 2_000_000
        assert wrong == 0, core.__name__


@pytest.mark.parametrize("beside", range(10, 18))
def test_chosen_names_at_the_end_of_the_ring(portable: ModuleType, beside: int) -> None:
    """17 points or more in a bucket whose 15th and 16th both have the greatest rest: the 16th is lowered."""
    ending = [name for position in (LAST, LAST - 1, LAST - 2) for name in NAMES[position]]
    crowd = _core.Table(tuple(f"crowd-{i:04}" for i in range(3000)), [1] * 3000)
    inside = np.flatnonzero((crowd.points > 2**31 + 2**20) & (crowd.points < LAST - 2**26))[:beside]
    others = [crowd.names[i] for i in crowd.point_owners[inside]]
    at = np.array([LAST - 3, LAST - 2, LAST - 1, LAST, 0], np.uint32)
    for last in range(3, len(ending) + 1):
        names = tuple(sorted(others + ending[:last]))
        for core in (_core, portable):
            table = core.Table(names, [1] * len(names))
            right = np.searchsorted(table.points, at) % len(table.points)
            assert table._indexes_at(at).tolist() == table.point_owners[right].tolist()


def test_the_portable_core_is_another_one(portable: ModuleType) -> None:
    """A comparison of one code with itself would show nothing."""
    here = {"x86_64": "sse2", "aarch64": "neon"}.get(platform.machine(), _core.CELL_CODE)
    assert {here, "portable"} >= {_core.CELL_CODE}  # `make portable` runs this with the portable one in use
    assert portable.CELL_CODE == "portable"


def test_both_answer_alike(portable: ModuleType) -> None:
    names = tuple(f"gw-{i:03}" for i in range(100))
    one, other = (core.Table(names, [40] * 100, 5) for core in (_core, portable))
    for i in range(3000):
        key = f"user:{i}"
        assert one.owner(key) == other.owner(key)
        assert one.owners(key, 3) == other.owners(key, 3) == tuple(other.walk(key))[:3]
    keys = np.arange(100_000, dtype=np.uint64)
    assert (one._indexes(_core.Batch(keys)) == other._indexes(portable.Batch(keys))).all()

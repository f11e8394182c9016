"""Columns that are read in place give the answers of the keys they hold, one by one."""

from __future__ import annotations

import ctypes
import random
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash import Ring

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.core

RING = Ring([f"n-{i}" for i in range(40)], seed=7)
TAGS = Ring([f"n-{i}" for i in range(40)], hash_tags=True)
# Around every threshold: 4, 9, 17, 33, 129 and 241 bytes of the hash, 12 of a view, 256 keys of a block.
TEXTS = ["", "é", "a" * 200 + "ü", "{tag}x", "no{}tag", "{open", *("kx" * n for n in range(130))]
TEXTS += [f"{'user:' * (i % 4)}{{{i % 7}}}{i}" for i in range(700)]
BYTES = [text.encode() for text in TEXTS]
INTEGERS = {
    f"{kind}{bits}": [random.Random(bits).randrange(*limits) for _ in range(300)] + [limits[0], limits[1] - 1]
    for bits in (8, 16, 32, 64)
    for kind, limits in (("int", (-(2 ** (bits - 1)), 2 ** (bits - 1))), ("uint", (0, 2**bits)))
}


def check(column: Any, keys: list[Any]) -> None:
    for ring in (RING, TAGS):
        owners = [ring.owner(key) for key in keys]
        assert ring.owner_many(column) == owners
        assert [ring.nodes[i].name for i in ring.index_many(column)] == owners


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_arrow_text(kind: str) -> None:
    column = pa.array(TEXTS, getattr(pa, kind)())
    check(column, TEXTS)
    check(column[5:-3], TEXTS[5:-3])
    check(pa.chunked_array([column[:300], column[300:300], column[300:301], column[301:]]), TEXTS)
    check(pa.chunked_array([], column.type), [])
    check(column[:0], [])


@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view"])
def test_arrow_bytes(kind: str) -> None:
    check(pa.array(BYTES, getattr(pa, kind)()), BYTES)


def test_arrow_bytes_of_one_width_keep_their_zeros() -> None:
    fixed = [data[:6].ljust(6, b"\0") for data in BYTES]
    check(pa.array(fixed, pa.binary(6)), fixed)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: str) -> None:
    numbers = INTEGERS[kind]
    check(pa.array(numbers, getattr(pa, kind)())[1:], numbers[1:])
    check(pl.Series(numbers, dtype=getattr(pl, kind.replace("u", "U").replace("int", "Int"))), numbers)
    check(pd.Series(numbers, dtype=kind), numbers)
    array = np.array(numbers, kind)
    for column in (array, array[::-1], array[::3], array.astype(array.dtype.newbyteorder())):
        check(column, column.tolist())


def test_columns_of_data_frames() -> None:
    for column in (
        pl.Series(TEXTS), pl.Series(TEXTS, dtype=pl.Categorical), pl.Series(BYTES),
        pd.Series(TEXTS), pd.Series(TEXTS, dtype=object), pd.Series(TEXTS, dtype="category"), pd.Index(TEXTS),
        pd.Series(TEXTS, dtype="string"), pa.array(TEXTS).dictionary_encode(),
    ):  # fmt: skip
        check(column, [text.encode() for text in TEXTS] if column is BYTES else list(TEXTS))


def test_numpy_text() -> None:
    plain = [text for text in TEXTS if not text.endswith("\0")]
    check(np.array(plain), plain)
    check(np.array([text.encode() for text in plain]), plain)
    check(np.array([text.encode() for text in plain])[::-2], plain[::-2])
    check(np.array(TEXTS, object), TEXTS)
    if hasattr(np.dtypes, "StringDType"):
        check(np.array(TEXTS, np.dtypes.StringDType()), TEXTS)


def test_numpy_bytes_end_where_numpy_says() -> None:
    array = np.array([b"a\0b\0\0", b"\0\0", b"", b"full!"], "S5")
    check(array, [b"a\0b", b"", b"", b"full!"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pa.array(["a", None]), "key 1 is"),
        (lambda: pa.chunked_array([["a"] * 300, ["b", None]]), "key 301 is"),
        (lambda: pa.array(["x", "a", None, "b"])[1:], "key 1 is"),
        (lambda: pa.array([1, 2, None]), "key 2 is"),
        (lambda: pl.Series(["a", None]), "key 1 is"),
        (lambda: pd.Series(["a", None]), "key 1 is|NoneType"),
        (lambda: pd.Series([1, None], dtype="Int64"), "key 1 is"),
        (lambda: pa.array([1.5]), "float64"),
        (lambda: pa.array([True]), "bool"),
        (lambda: pl.Series([1.5]), "float64"),
        (lambda: pd.Series([1.5]), "float64"),
        (lambda: pd.Series(["2020-01-01"], dtype="datetime64[ns]"), "datetime64"),
    ],
)
def test_what_is_no_key(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        RING.owner_many(make())


def test_frames_are_no_columns() -> None:
    for frame in (pa.table({"a": [1]}), pl.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]})):
        with pytest.raises(ValueError, match="one dimension"):
            RING.owner_many(frame)


class BrokenColumn:
    """A column whose stream fails, as one that is read from a disk may."""

    class Stream(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in ("schema", "next", "error", "release", "data")]

    def __arrow_c_stream__(self, schema: object = None) -> object:
        text = ctypes.create_string_buffer(b"the disk is gone")
        fails = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 5)
        reason = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: ctypes.addressof(text))
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
        self.stream = self.Stream(
            *(ctypes.cast(f, ctypes.c_void_p).value for f in (fails, fails, reason, free))
        )
        self.kept = fails, reason, free, text
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule: object = new(ctypes.addressof(self.stream), b"arrow_array_stream", None)
        return capsule


def test_a_stream_that_fails_says_why() -> None:
    with pytest.raises(OSError, match="the Arrow stream failed: the disk is gone"):
        RING.owner_many(BrokenColumn())


@given(
    st.lists(st.text(max_size=40)),
    st.integers(0, 10),
    st.sampled_from(["string", "large_string", "string_view"]),
)
def test_any_text(texts: list[str], cut: int, kind: str) -> None:
    check(pa.array(texts, getattr(pa, kind)())[cut:], texts[cut:])


def test_no_library_is_imported_for_its_columns() -> None:
    code = "import sys, ringhash; print(sorted({'pyarrow', 'polars', 'pandas'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL to release")
def test_the_gil_is_released() -> None:
    """While a long column is read, another thread runs; while a list is, it does not."""
    rng = random.Random(1)
    texts = ["".join(rng.choices(string.ascii_lowercase, k=24)) for _ in range(2000)] * 2500
    column = pa.array(texts)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())

    def ticks_during(keys: Any) -> int:
        begin = time.perf_counter()
        RING.index_many(keys)
        end = time.perf_counter()
        return sum(begin + (end - begin) / 4 < tick < end - (end - begin) / 4 for tick in list(ticks))

    before, thread = sys.getswitchinterval(), threading.Thread(target=tick)
    sys.setswitchinterval(1e-4)
    thread.start()
    try:
        assert ticks_during(column) > 0
        assert ticks_during(texts) == 0
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)

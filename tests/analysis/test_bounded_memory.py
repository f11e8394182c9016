"""A stream of any length is looked at in bounded memory, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")

ROWS = 400_000
PROGRAM = """
import sys
from pathlib import Path
from ringhash.analysis import analyze

def peak():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

def some(count):
    for i in range(count):
        yield {"k": f"user:{i % 1000}", "at": i}

rows, kept = int(sys.argv[1]), sys.argv[2] == "kept"
analyze(some(1000), ["k"], order="at")
before = peak()
analyze(list(some(rows)) if kept else some(rows), ["k"], order="at")
print(peak() - before)
"""


def growth(kind: str) -> float:
    command = [sys.executable, "-c", PROGRAM, str(ROWS), kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


def test_a_stream_takes_less_than_64_mib() -> None:
    assert 0 < growth("streamed") <= 64


def test_rows_that_are_kept_take_more() -> None:
    """The control: the measure sees what a list of the same rows takes."""
    assert growth("kept") > 64

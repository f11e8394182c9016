"""The demonstration runs on the real flights, and every one of them moves as the plan says."""

from __future__ import annotations

import csv
import gzip
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ringhash import Ring

pytest.importorskip("click")
pytest.importorskip("rich")

EXAMPLES = Path(__file__).parent.parent / "examples"
FLIGHTS = EXAMPLES / "data" / "flights.csv.gz"

pytestmark = pytest.mark.skipif(not FLIGHTS.exists(), reason="the sdist does not hold the flights")


def test_the_demonstration() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "flights_demo.py"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    with gzip.open(FLIGHTS, "rt", encoding="utf-8", newline="") as file:
        tails = Counter(row["tailnum"] for row in csv.DictReader(file))
    names = [f"gw-{i}" for i in range(1, 10)]
    eight, nine = Ring(names[:8]), Ring(names)
    owned: Counter[str] = Counter()
    for tail, flights in tails.items():
        owned[eight.owner(tail)] += flights
    moved = sum(flights for tail, flights in tails.items() if eight.owner(tail) != nine.owner(tail))

    output = done.stdout
    assert f"{tails.total():,} flights from New York in 2013 by {len(tails):,} aircraft" in output
    for name in names[:8]:
        assert re.search(rf"^{name} .* {owned[name]:,} ", output, re.MULTILINE)
    assert re.search(rf"^all .* {eight.diff(nine).fraction:.3%}$", output, re.MULTILINE)
    assert re.search(rf"^ *{moved:,} moved as predicted", output, re.MULTILINE)
    assert re.search(r"^ *0 otherwise$", output, re.MULTILINE)
    assert "All of them to gw-9" in output

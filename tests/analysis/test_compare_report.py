"""Comparisons as text, JSON, a page in a real browser, and the command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringhash.analysis.compare import (
    Bounded,
    Comparison,
    Direct,
    Dynamic,
    Fixed,
    Modulo,
    PerNode,
    RingPolicy,
    Trace,
    compare,
)

sys.path.insert(0, str(Path(__file__).parent))
from looks import check_page


@pytest.fixture(scope="module")
def found() -> Comparison:
    trace = Trace.from_counts({f"k{i}": 1 / i for i in range(1, 600)}, 9000, 60, growth=2.0)
    nodes: Any = [(0, 4), (0.5, ["<b>", *(f"node-{i}" for i in range(1, 6))])]
    policies: Any = [
        Modulo(),
        RingPolicy(),
        Fixed(480),
        Fixed(512),
        Dynamic(),
        PerNode(),
        Direct(),
        Bounded(),
    ]
    return compare(trace, nodes, policies)


def test_the_text_has_a_row_for_each(found: Comparison) -> None:
    lines = str(found).splitlines()
    assert lines[0] == "9,000 rows, 585 keys, 60 steps of 1 h, 4 -> 6 nodes"
    assert [line.split("  ")[0] for line in lines[5:]] == [outcome.policy for outcome in found]
    assert max(map(len, lines)) <= 100
    assert found["modulo"].policy == "modulo"
    with pytest.raises(KeyError, match="fixed 480"):
        found["fixed 481"]


def test_json_holds_all_of_it(found: Comparison) -> None:
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (data["kind"], data["version"], len(data["nodes"])) == ("comparison", 1, 60)
    assert [policy["policy"] for policy in data["policies"]] == [outcome.policy for outcome in found]
    assert data["policies"][2]["moved_by_step"] == list(found["fixed 480"].moved_by_step)
    assert len(data["heat"]["hash"]) == 48


def test_the_page_has_titles_and_no_markup_of_the_data(found: Comparison) -> None:
    html = found.html()
    assert html.count("<svg ") == html.count('role="img" aria-label="')
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert html == found.html()


@pytest.mark.browser
def test_the_page_in_a_browser(found: Comparison, browser: Any, tmp_path: Path) -> None:
    check_page(browser, found.html(), tmp_path / "compare.html", 6 + len(found))


@pytest.mark.browser
def test_the_page_of_one_row(browser: Any, tmp_path: Path) -> None:
    one = compare(Trace(["a"], [0]), 1, [Modulo(), Dynamic(), Direct(), Bounded(), PerNode()])
    check_page(browser, one.html(), tmp_path / "compare.html", 6 + len(one))


# --- the command ---


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringhash", "compare", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    lines = [f"u{i % 500},2024-01-{1 + i // 300:02}T{i % 24:02}:00:00" for i in range(3000)]
    path.write_text("user,at\n" + "\n".join(lines) + "\n")
    return path


def test_the_command(rows: Path, tmp_path: Path) -> None:
    result = run("rows.csv", "--key", "user", "--at", "at", "--html", "page.html", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    trace = Trace.from_rows(rows, "user", "at")
    policies: Any = [
        Modulo(), RingPolicy(160), Fixed(480), Dynamic(), PerNode(16), Direct(100), Bounded(1.25)
    ]  # fmt: skip
    expected = compare(trace, [(0, 4), (0.5, 5)], policies)
    assert result.stdout == f"{expected}\n"
    assert (tmp_path / "page.html").read_text() == expected.html()
    options = ("--policy", "fixed:12", "--nodes", "2,3@0.2", "--hours", "24", "--json")
    result = run("rows.csv", "--key", "user", "--at", "at", *options, folder=tmp_path)
    data = json.loads(result.stdout)
    assert [policy["policy"] for policy in data["policies"]] == ["fixed 12"]
    assert data["nodes"] == [2, 2, *[3] * 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "fixd"), "there is no policy 'fixd'"),
        (("--policy", "fixed:many"), "--policy fixed:many"),
        (("--policy", "modulo:3"), "takes no number"),
        (("--policy", "dynamic:-1"), "above 0"),
        (("--nodes", "four"), "--nodes takes numbers"),
        (("--nodes", "4@0.5"), "begin at 0"),
        (("--key", "usr"), "no column 'usr'"),
        (("--at", "user"), "no time"),
    ],
)
def test_what_the_command_refuses(options: tuple[str, str], message: str, rows: Path, tmp_path: Path) -> None:
    result = run(rows.name, "--key", "user", "--at", "at", *options, folder=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_terminal_sees_a_bar(rows: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ringhash", "compare", str(rows), "--key", "user", "--at", "at"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path) as process:
            os.close(theirs)
            shown = b""
            try:
                while part := os.read(ours, 4096):
                    shown += part
            except OSError:  # Linux says so at the end of a terminal
                pass
            assert process.stdout is not None
            assert process.stdout.read().startswith(b"3,000 rows")
    finally:
        os.close(ours)
    assert process.returncode == 0
    assert b"comparing" in shown

"""Reports of keys: text, JSON, a page of HTML in a real browser, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringhash.analysis import Report, analyze

sys.path.insert(0, str(Path(__file__).parent))
from looks import check_page

ROWS: dict[str, list[Any]] = {
    "user": [f"user:{i % 900}" for i in range(3000)],
    "country": ["de"] * 2000 + ["<script>alert(1)</script>"] * 1000,
    "at": list(range(3000)),
}


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze(ROWS, ["country", "user", ("country", "user"), "at"], shards=16, order="at")


def test_the_text_has_a_row_and_the_reasons_of_each(report: Report) -> None:
    text = str(report)
    rows = text.split("\n\n")[1].splitlines()
    assert rows[0].split() == [
        "key",
        "values",
        "top",
        "floor",
        "shards",
        "ring",
        "range",
        "with",
        "time",
        "verdict",
    ]
    assert [row.split("  ")[0] for row in rows[1:]] == [key.name for key in report.best()]
    assert "country, user" in text
    assert "\n  bad: too few values: 2 for 16 shards" in text
    assert max(map(len, text.splitlines())) <= 100
    assert report.best()[-1].name == "country"


def test_json_holds_the_whole_report(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (data["kind"], data["version"], data["rows"], data["shards"]) == ("key_report", 1, 3000, 16)
    assert [key["columns"] for key in data["keys"]] == [list(key.columns) for key in report.best()]
    country = data["keys"][-1]
    assert country["top"][0] == {"value": "de", "rows": 2000, "share": 2000 / 3000}
    assert country["verdict"] == "bad"
    assert sum(country["loads"]["shards"]) == 3000
    assert len(country["lorenz"]) == 101


def test_the_page_holds_no_markup_of_the_data(report: Report) -> None:
    html = report.html()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert html == report.html()


@pytest.mark.browser
def test_the_page_in_a_browser(report: Report, browser: Any, tmp_path: Path) -> None:
    check_page(browser, report.html(), tmp_path / "keys.html", 1 + 5 * len(report))


@pytest.mark.browser
@pytest.mark.parametrize("shards", [2, 1000])
def test_pages_of_few_and_many_shards(shards: int, browser: Any, tmp_path: Path) -> None:
    rows = {"a": [None] * 50 + list(range(50))}
    check_page(browser, analyze(rows, ["a"], shards=shards).html(), tmp_path / "keys.html", 4)


# --- the command ---


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringhash", "analyze", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"{a},{b}" for a, b in zip(ROWS["user"], ROWS["at"], strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["user,at", *lines]) + "\n")
    return tmp_path


def test_the_command_prints_and_writes(folder: Path) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    done = run(
        "rows.csv", "--key", "user", "--key", "user,at", "--order", "at", "--html", "x.html", folder=folder
    )
    assert done.returncode == 0, done.stderr
    expected = analyze({"user": ROWS["user"], "at": ROWS["at"]}, ["user", ("user", "at")], order="at")
    # Of a file every field is text, so times sort as text, and the placement is the same.
    assert [line.split("  ")[0] for line in done.stdout.split("\n\n")[1].splitlines()[1:]] == [
        key.name for key in expected.best()
    ]
    assert (folder / "x.html").read_text().startswith("<!doctype html>")
    data = json.loads(run("rows.csv", "--key", "user", "--json", folder=folder).stdout)
    assert data["keys"][0]["distinct"]["value"] == 900


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.csv", "--key", "nobody"], "there is no column 'nobody'"),
        (["--key", "user"], "give a FILE, or --db"),
        (["rows.csv", "--key", "user", "--table", "t"], "--table and --sample go with --db"),
        (["absent.csv", "--key", "user"], "absent.csv: No such file"),
        (["rows.csv", "--key", "user", "--shards", "1"], "shards must be"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(arguments: list[str], message: str, folder: Path) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    done = run(*arguments, folder=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1

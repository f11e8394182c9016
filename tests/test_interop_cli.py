"""`ringhash plan --like`: the plan of another program's change, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringhash import Plan
from ringhash.interop import HAProxyRing

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("crossplane")

from ringhash.cli import run

BACKEND = "backend app\n balance uri\n hash-type consistent\n server s1 10.0.0.1:80\n server s2 10.0.0.2:80\n server s3 10.0.0.3:80\n"
UPSTREAM = "upstream u {\n hash $uri consistent;\n server 10.0.0.1:80;\n server 10.0.0.2:80;\n}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("old.cfg").write_text(BACKEND)
    Path("new.cfg").write_text(BACKEND.replace(" server s1 10.0.0.1:80\n", ""))
    Path("old.conf").write_text(UPSTREAM)
    Path("new.conf").write_text(UPSTREAM.replace("}", " server 10.0.0.3:80;\n}"))
    Path("bad.conf").write_text(UPSTREAM.replace("}", " least_conn;\n}"))
    Path("huge.txt").write_text("a 1000000000\nb\n")
    Path("none.conf.d").write_text("events {}\n")
    Path("keys.txt").write_text("".join(f"/page/{i}\n" for i in range(3000)) + "\n")
    return tmp_path


def ringhash(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert run(["plan", *arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_a_change_of_nginx(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ringhash(
        capsys, "--like", "nginx", "--before", "old.conf", "--after", "new.conf", "--keys", "keys.txt"
    )
    assert "0.000% move needlessly" in out
    assert "would move in a ring of ringhash" in out
    assert "3,000 keys: " in out
    assert "0 of them needlessly" in out
    assert "1 empty line left out" in out


def test_a_change_of_haproxy_that_moves_most_keys_needlessly(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = ("--like", "haproxy", "--before", "old.cfg", "--after", "new.cfg", "--keys", "keys.txt")
    out = ringhash(capsys, *change, "-o", "plan.json")
    assert "advice: automatic ids follow the order of the lines" in out
    assert "(s2 id 2, s3 id 3)" in out
    plan = Plan.from_dict(json.loads(Path("plan.json").read_text()))
    assert plan == HAProxyRing(["s1", "s2", "s3"]).diff(HAProxyRing(["s2", "s3"]))
    record = json.loads(ringhash(capsys, *change, "--json"))
    assert record["needless"] == plan.needless > 0.3
    assert record["fraction"] == plan.fraction
    assert record["keys"]["moved"] == int(plan.mask([f"/page/{i}" for i in range(3000)]).sum())
    assert record["keys"]["needless"] > 900
    assert record["advice"]


def test_the_plan_on_stdout(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ringhash(capsys, "--like", "haproxy", "--before", "old.cfg", "--after", "new.cfg", "-o", "-")
    plan = HAProxyRing(["s1", "s2", "s3"]).diff(HAProxyRing(["s2", "s3"]))
    assert Plan.from_dict(json.loads(out)) == plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--like", "nginx", "--before", "old.conf"], "--like takes --before and --after"),
        (["--like", "nginx", "--before", "old.conf", "--after", "new.conf", "--add", "x"], "no nodes or changes"),
        (["--before", "old.conf", "--nodes", "a"], "say which with --like"),
        (["--like", "nginx", "--before", "old.conf", "--after", "bad.conf"], "bad.conf:5: `least_conn` does not place"),
        (["--like", "nginx", "--before", "old.conf", "--after", "none.conf"], "none.conf: No such file"),
        (["--like", "apache", "--before", "old.conf", "--after", "new.conf"], "no program 'apache'"),
        (["--like", "nginx", "--before", "old.conf", "--after", "new.conf", "--block", "v"], "no upstream 'v'"),
        (["--like", "nginx", "--before", "huge.txt", "--after", "huge.txt"], "huge.txt:1: a placement has at most 134217728 points"),
        (["--like", "nginx", "--before", "none.conf.d", "--after", "old.conf"], "none.conf.d: has no upstream"),
        (["--add", "x"], "Missing option '--nodes'"),
    ],
)  # fmt: skip
def test_refused(files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    err = ringhash(capsys, *arguments, status=2)
    assert err.startswith("ringhash: ")
    assert message in err
    assert err.count("\n") == 1

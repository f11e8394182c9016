"""The command line: what it prints, what it refuses, and how it behaves among other programs."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ringhash import Node, Plan, Ring, Router

pytest.importorskip("click")
pytest.importorskip("rich")

from ringhash.cli import run

POSIX = os.name == "posix"
NODES = "gw-1,gw-2,gw-3"
KEYS = [b"user:%d" % i for i in range(1000)]
PLAIN = {
    name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
}


class Cli:
    """Runs the command in this process; what it wrote is in `out` and `err`."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self.capture = capture
        self.raw = b""
        self.err = ""

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        found = run(list(map(str, arguments)))
        self.raw, err = self.capture.readouterr()
        self.err = err.decode()
        assert found == status, self.err
        if not status:
            assert self.err == ""
        return self.raw.decode(errors="replace")

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str | Path) -> str:
        """The one line that says why not."""
        self(*arguments, status=2)
        prefix, _, message = self.err.partition(": ")
        assert prefix == "ringhash"
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        return message.rstrip("\n")


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return Cli(capfdbinary)


def command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    words = [sys.executable, "-m", "ringhash", *map(str, arguments)]
    settings: dict[str, Any] = {
        "env": PLAIN,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "timeout": 60,
    }
    return subprocess.run(words, check=False, **settings | options)


def started(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "ringhash", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, env=PLAIN, **pipes | options)


def answers(output: bytes) -> list[tuple[str, bytes]]:
    """The (owner, key) of each line."""
    pairs = [line.split(b"\t", 1) for line in output.split(b"\n")[:-1]]
    return [(owner.decode(), key) for owner, key in pairs]


def expected(keys: list[bytes], ring: Ring | None = None) -> list[tuple[str, bytes]]:
    ring = ring or Ring(NODES.split(","))
    return [(ring.owner(key), key) for key in keys]


# --- owner ---


def test_owner_of_arguments(cli: Cli) -> None:
    cli("owner", "--nodes", NODES, "user:7", "ключ", "")
    assert answers(cli.raw) == expected([b"user:7", "ключ".encode(), b""])


def test_owner_of_a_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(b"\n".join(KEYS))
    cli("owner", "--nodes", NODES, "--keys", path)
    assert answers(cli.raw) == expected(KEYS)


def test_a_zipped_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt.gz"
    path.write_bytes(gzip.compress(b"\n".join(KEYS[:500]) + b"\n") + gzip.compress(b"\n".join(KEYS[500:])))
    cli("owner", "--nodes", NODES, "--keys", path)
    assert answers(cli.raw) == expected(KEYS)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"", []),
        (b"\n\n\r\n\n", []),
        (b"a", [b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n\r\nc\r\n", [b"a", b"b", b"c"]),
        (b"a\r\nb\r", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n a \n\tb\t\n \n", [b" a ", b"\tb\t", b" "]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xff\xfe\n\x00\n\xc3\xa9\n", [b"\xff\xfe", b"\x00", "é".encode()]),
        (b"x" * 70_000 + b"\n" + b"y" * 1_000_000, [b"x" * 70_000, b"y" * 1_000_000]),
    ],
)
def test_lines_are_bytes(cli: Cli, tmp_path: Path, data: bytes, keys: list[bytes]) -> None:
    path = tmp_path / "keys"
    path.write_bytes(data)
    cli("owner", "--nodes", NODES, "--keys", path)
    assert answers(cli.raw) == expected(keys)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"id,key\n", []),
        (b"id,key\n1,a\n2,b", [b"a", b"b"]),
        (b"id,key\r\n1,a\r\n\r\n2,b\r\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfkey,id\na,1\n", [b"a"]),
        (b'"key"\n"a,b"\n"say ""hi"""\n"two\nlines"\n', [b"a,b", b'say "hi"', b"two\nlines"]),
        (b"id,key\n1,\n2,  \n3,a,too many\n", [b"  ", b"a"]),
        (b"id,key\n1,\xff\xfe\n2,\xc3\xa9\n", [b"\xff\xfe", "é".encode()]),
    ],
)
def test_a_column_of_csv(cli: Cli, tmp_path: Path, data: bytes, keys: list[bytes]) -> None:
    for path, stored in ((tmp_path / "a.csv", data), (tmp_path / "a.csv.gz", gzip.compress(data))):
        path.write_bytes(stored)
        cli("owner", "--nodes", NODES, "--csv", path, "--column", "key", "--json")
        found = [json.loads(line) for line in cli.raw.splitlines()]
        given = [
            bytes.fromhex(k["hex"]) if isinstance(k, dict) else k.encode() for k in (f["key"] for f in found)
        ]
        assert [(f["owner"], key) for f, key in zip(found, given, strict=True)] == expected(keys)


def test_owner_as_json(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b'plain\nwith "quotes"\n\xc3\xa9\n\xff\n')
    owners = [owner for owner, _ in expected([b"plain", b'with "quotes"', "é".encode(), b"\xff"])]
    output = cli("owner", "--nodes", NODES, "--keys", path, "--json")
    assert [json.loads(line) for line in output.splitlines()] == [
        {"key": "plain", "owner": owners[0]},
        {"key": 'with "quotes"', "owner": owners[1]},
        {"key": "é", "owner": owners[2]},
        {"key": {"hex": "ff"}, "owner": owners[3]},
    ]


# --- which nodes ---

ZONED = [Node("gw-1", 2.0, "b"), Node("gw-2"), Node("gw-3")]


@pytest.mark.parametrize(
    ("content", "ring"),
    [
        (["gw-1", "gw-2"], Ring(["gw-1", "gw-2"])),
        ({"gw-1": 2, "gw-2": 0.5}, Ring({"gw-1": 2, "gw-2": 0.5})),
        ({"nodes": 2, "ring": 1}, Ring({"nodes": 2, "ring": 1})),
        ([{"name": "gw-1", "weight": 2, "zone": "b"}, {"name": "gw-2"}, "gw-3"], Ring(ZONED)),
        (
            Ring(ZONED, vnodes=40, seed=9, hash_tags=True).to_dict(),
            Ring(ZONED, vnodes=40, seed=9, hash_tags=True),
        ),
        (Router(ZONED, seed=3).to_dict(), Ring(ZONED, seed=3)),
    ],
    ids=["names", "weights", "odd names", "nodes", "ring", "router"],
)
def test_nodes_from_json(cli: Cli, tmp_path: Path, content: Any, ring: Ring) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    assert cli.json("plan", "--nodes", path)["before"] == ring.digest
    assert cli.json("plan", "--nodes", f"@{path}")["before"] == ring.digest


def test_weights_and_options(cli: Cli, tmp_path: Path) -> None:
    def digest(*arguments: str) -> str:
        return str(cli.json("plan", *arguments)["before"])

    weighted = Ring({"a": 2, "b": 0.5, "c": 1})
    assert digest("--nodes", "a, b,c", "--weights", "a=2,b=0.5") == weighted.digest
    assert digest("--nodes", "a=2,b=.5,c") == weighted.digest
    assert digest("--nodes", "a=7,b,c", "--weights", "a=2", "--weights", "b=0.5") == weighted.digest
    options = ["--vnodes", "40", "--seed", str(2**64 - 1), "--hash-tags"]
    ring = Ring(["a", "b"], vnodes=40, seed=2**64 - 1, hash_tags=True)
    assert digest("--nodes", "a,b", *options) == ring.digest
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(ring.to_dict()))
    changed = Ring({"a": 3, "b": 1}, vnodes=40, seed=5, hash_tags=False)
    assert digest("--nodes", str(path), "--seed", "5", "--no-hash-tags", "--weights", "a=3") == changed.digest


def test_hash_tags(cli: Cli) -> None:
    cli("owner", "--nodes", NODES, "--hash-tags", "{7}:cart", "{7}:name", "7")
    assert len({owner for owner, _ in answers(cli.raw)}) == 1


# --- plan ---


def test_plan_as_json(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join([*KEYS, b"", b""]) + b"\n")
    before = Ring(NODES.split(","))
    after = Ring({"gw-2": 2, "gw-3": 1, "gw-4": 1})
    plan = before.diff(after)
    change = ["--add", "gw-4", "--remove", "gw-1", "--reweight", "gw-2=2"]
    record = cli.json("plan", "--nodes", NODES, *change, "--keys", keys)
    assert list(record) == ["before", "after", "ranges", "fraction", "ideal", "moves", "keys"]
    pairs = ((before.owner(key), after.owner(key)) for key in KEYS)
    moved: Counter[tuple[str | None, str | None]] = Counter(pair for pair in pairs if pair[0] != pair[1])
    assert record["before"] == before.digest
    assert record["after"] == after.digest
    assert record["ranges"] == len(plan)
    assert record["fraction"] == plan.fraction
    assert record["ideal"] == pytest.approx(1 / 6 + 1 / 4)  # gw-2: 1/3 -> 1/2; gw-4: 0 -> 1/4
    assert record["moves"] == [
        {"source": s, "target": t, "ranges": len(m), "share": m.fraction, "keys": moved[s, t]}
        for (s, t), m in plan.pairs().items()
    ]
    assert record["keys"] == {"total": 1000, "empty": 2, "as_predicted": moved.total(), "otherwise": 0}


def test_plan_without_keys_counts_none(cli: Cli) -> None:
    record = cli.json("plan", "--nodes", NODES, "--add", "gw-4")
    assert record["keys"] is None
    assert {move["keys"] for move in record["moves"]} == {None}
    assert record["ideal"] == pytest.approx(1 / 4)


def test_plan_as_a_table(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join(KEYS))
    output = cli("plan", "--nodes", NODES, "--add", "gw-4", "--keys", keys)
    plan = Ring(NODES.split(",")).diff(Ring([*NODES.split(","), "gw-4"]))
    moved = int(plan.mask(KEYS).sum())
    for part in (
        f"all {len(plan)} {plan.fraction:.3%} {moved}\n",
        f"{plan.fraction:.3%} of all keys move: {plan.fraction * 4:.2f} times the ideal of 25.000%\n",
        "1,000 keys, each asked before and after:\n",
        f"{moved} moved as predicted, {moved / 1000:.3%}\n",
        "0 otherwise\n",
    ):
        assert part in "".join(f"{' '.join(line.split())}\n" for line in output.splitlines())


def test_a_key_that_moves_otherwise_is_seen(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join(KEYS))
    right = Ring(NODES.split(",")).diff(Ring([*NODES.split(","), "gw-4"]))
    wrong = Ring(NODES.split(",")).diff(Ring([*NODES.split(","), "gw-4"], vnodes=1))
    monkeypatch.setattr(
        "ringhash.cli.commands.planned", lambda *_: (wrong, Ring([*NODES.split(","), "gw-4"]))
    )
    output = cli("plan", "--nodes", NODES, "--add", "gw-4", "--keys", keys, status=1)
    missed = [
        key for key in KEYS
        if (a := right.move_of(key)) != (b := wrong.move_of(key)) and (a and a[1:]) != (b and b[1:])
    ]  # fmt: skip
    assert len(missed) > 100
    assert f"{len(missed)} otherwise" in output


def test_the_plan_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    router = Router(NODES.split(","))
    router.add("gw-9")
    router.remove("gw-9")
    cli("plan", "--nodes", NODES, "--add", "gw-4", "-o", path)
    plan = Plan.from_dict(json.loads(path.read_text()))
    assert plan == Ring(NODES.split(",")).diff(Ring([*NODES.split(","), "gw-4"]))
    router.apply(plan)  # whatever its epoch
    assert "gw-4" in router


def test_the_plan_on_stdout(cli: Cli) -> None:
    change = ("plan", "--nodes", NODES, "--add", "gw-4")
    ring = Ring(NODES.split(","))
    assert Plan.from_dict(json.loads(cli(*change, "-o", "-"))) == ring.diff(ring.with_nodes("gw-4"))
    assert not Path("-").exists()
    assert "both write to stdout" in cli.refused(*change, "-o", "-", "--json")


def test_help_fits_a_terminal(cli: Cli) -> None:
    for words in (["owner"], ["plan"], ["balance"]):
        assert all(len(line) <= 80 for line in cli(*words, "--help").splitlines() if "  ringhash " in line)


def test_one_virtual_node_is_singular(cli: Cli) -> None:
    last = cli("balance", "--nodes", "1", "--compare", "40").splitlines()[-1]
    assert last == "1 virtual node keeps the fullest of 1 equal node at 1.1 times the mean, on average."


def test_the_plan_of_a_router_is_for_its_epoch(cli: Cli, tmp_path: Path) -> None:
    state, path = tmp_path / "router.json", tmp_path / "plan.json"
    router = Router(NODES.split(","))
    router.add("gw-4")
    state.write_text(json.dumps(router.to_dict()))
    cli("plan", "--nodes", state, "--remove", "gw-1", "-o", path)
    assert Plan.from_dict(json.loads(path.read_text())) == router.plan(remove=["gw-1"])


def test_the_first_node_in_and_the_last_one_out(cli: Cli, tmp_path: Path) -> None:
    keys, none = tmp_path / "keys", tmp_path / "none.json"
    keys.write_bytes(b"\n".join(KEYS))
    none.write_text("[]")
    first = cli.json("plan", "--nodes", none, "--add", "a", "--keys", keys)
    last = cli.json("plan", "--nodes", "a", "--remove", "a", "--keys", keys)
    for record, source, target in ((first, None, "a"), (last, "a", None)):
        assert record["moves"] == [
            {"source": source, "target": target, "ranges": 1, "share": 1.0, "keys": 1000}
        ]
        assert record["keys"]["otherwise"] == 0
        assert record["ideal"] == 1.0


def test_a_plan_of_many_pairs_shows_the_largest(cli: Cli) -> None:
    names = ",".join(f"n{i}" for i in range(30))
    change = ["plan", "--nodes", names, "--add", "new"]
    lines = cli(*change).splitlines()
    assert len(lines) == 2 + 20 + 2 + 2
    assert lines[21].startswith("11 smaller pairs")
    assert len(cli(*change, "--all").splitlines()) == 2 + 30 + 2 + 2


def test_a_change_of_nothing(cli: Cli) -> None:
    assert cli("plan", "--nodes", NODES) == "0.000% of all keys move\n"


# --- balance ---


def test_balance_as_json(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join([*KEYS, b"", b""]) + b"\n")
    ring = Ring({"gw-1": 2.0, "gw-2": 1.0})
    counts = Counter(map(ring.owner, KEYS))
    record = cli.json("balance", "--nodes", "gw-1=2,gw-2", "--keys", keys)
    assert record["nodes"] == [
        {"name": "gw-1", "weight": 2.0, "fair": 2 / 3, "share": ring.shares["gw-1"], "keys": counts["gw-1"]},
        {"name": "gw-2", "weight": 1.0, "fair": 1 / 3, "share": ring.shares["gw-2"], "keys": counts["gw-2"]},
    ]
    assert record["balance"] == ring.balance._asdict()
    relative = sorted([counts["gw-1"] / 1000 * 3 / 2, counts["gw-2"] / 1000 * 3])
    assert record["keys"]["total"] == 1000
    assert record["keys"]["empty"] == 2
    assert list(record["keys"]["balance"]) == ["peak_to_mean", "low_to_mean", "stddev"]
    assert record["keys"]["balance"]["peak_to_mean"] == pytest.approx(relative[1])
    assert record["keys"]["balance"]["low_to_mean"] == pytest.approx(relative[0])


def test_balance_without_keys(cli: Cli, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    record = cli.json("balance", "--nodes", NODES)
    assert record["keys"] is None
    assert {node["keys"] for node in record["nodes"]} == {None}
    record = cli.json("balance", "--nodes", NODES, "--keys", empty)
    assert record["keys"] == {"total": 0, "empty": 0, "balance": None}
    assert "by keys" not in cli("balance", "--nodes", NODES, "--keys", empty)


def test_balance_as_bars(cli: Cli) -> None:
    output = cli("balance", "--nodes", "small,large=3").splitlines()
    assert output[0].split() == ["node", "weight", "fair", "by", "arcs", "of", "fair"]
    large, small = (line.count("█") for line in output[2:4])
    assert large > 2 * small > 0
    assert all(line.count("│") == 1 for line in output[2:4])
    assert output[-1].startswith("by arcs: peak/mean 1.")


def test_numbers_of_vnodes_are_compared(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"\n".join([*KEYS, b""]))
    nodes = {"gw-1": 2.0, "gw-2": 1.0}
    record = cli.json("balance", "--nodes", "gw-1=2,gw-2", "--compare", "40,160", "--keys", keys, "--seed", 7)
    assert (record["nodes"], record["keys"]) == (2, {"total": 1000, "empty": 0})
    assert [row["vnodes"] for row in record["vnodes"]] == [40, 160]
    for row in record["vnodes"]:
        ring = Ring(nodes, vnodes=row["vnodes"], seed=7)
        counts = Counter(map(ring.owner, KEYS))
        assert row["peak_to_mean"] == ring.balance.peak_to_mean
        assert row["bytes"] == ring.memory_size
        fullest = max(counts["gw-1"] / 1000 * 3 / 2, counts["gw-2"] / 1000 * 3)
        assert row["key_peak_to_mean"] == pytest.approx(fullest)


def test_a_number_of_nodes_is_enough_to_compare(cli: Cli) -> None:
    lines = cli("balance", "--nodes", "100", "--compare", "40,80,160").splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["40", "80", "160"]
    assert lines[-1].startswith("665 virtual nodes keep the fullest of 100 equal nodes at 1.1 times the mean")
    assert "by keys" not in lines[0]
    one = cli.json("balance", "--nodes", "3", "--compare", "1")
    named = cli.json("balance", "--nodes", "node-1,node-2,node-3", "--compare", "1")
    assert one["vnodes"][0]["moved"] == named["vnodes"][0]["moved"]


def test_what_cannot_be_compared(cli: Cli) -> None:
    compare = ["balance", "--nodes", NODES, "--compare"]
    assert cli.refused(*compare, "40,x") == "--compare takes numbers as in 40,80,160, not '40,x'"
    assert cli.refused(*compare, "0") == "vnodes must be from 1 to 65536, not 0"
    assert cli.refused(*compare, "40", "--vnodes", "40") == "give --vnodes or --compare, not both"
    assert cli.refused("balance", "--nodes", "0", "--compare", "40").startswith("a ring of no nodes")
    assert cli.refused(*compare, "40,-1") == "vnodes must be from 1 to 65536, not -1"
    assert "there can be no -5 nodes" in cli.refused("balance", "--nodes", "-5", "--compare", "40")
    refused = cli.refused("balance", "--nodes", "1000000", "--compare", "40,160")
    assert "too few for 1000000 nodes of 160 virtual nodes" in refused
    assert "too few for 999999999 nodes" in cli.refused("balance", "--nodes", "9" * 9, "--compare", "40")


def test_names_are_not_cut_and_not_read_as_markup(cli: Cli) -> None:
    name = "[red]" + "a-long-name-" * 30
    assert name in cli("balance", "--nodes", f"{name},b")
    assert name in cli("plan", "--nodes", "b", "--add", name)


def test_empty_lines_are_told(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "keys.csv"
    keys.write_bytes(b"key,id\na,1\n,2\n,3\n")
    source: list[str | Path] = ["--csv", keys, "--column", "key"]
    assert cli("balance", "--nodes", NODES, *source).endswith("\n2 empty fields left out\n")
    assert cli("plan", "--nodes", NODES, *source).endswith("\n2 empty fields left out\n")


# --- errors ---


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    content = {
        "a.csv": b"id,key\n1,a\n2\n",
        "keys.txt": b"a\n",
        "twice.csv": b"key,key\n1,a\n",
        "quotes.csv": b'key\n"a"b\n',
        "open.csv": b'key\n"a\n',
        "empty.csv": b"",
        "plain.gz": b"not zipped",
        "short.gz": gzip.compress(b"a" * 1000)[:-9],
        "broken.gz": gzip.compress(os.urandom(1000))[:500] + bytes(600),
        "utf16.txt": "key\n".encode("utf-16"),
        "long.txt": b"x" * (1 << 22),
        "bad.json": b"{",
        "deep.json": b"[" * 100_000,
        "latin.json": b'["\xe9"]',
        "number.json": b"7",
        "twice.json": b'{"a": 1, "a": 2}',
        "weight.json": b'{"a": "heavy"}',
        "field.json": b'[{"name": "a", "wieght": 2}]',
        "item.json": b'["a", 7]',
        "empty.json": b"[]",
        "ring.json": b'{"nodes": ["a"], "seed": 0}',
        "whole.json": json.dumps(Ring(["z"]).to_dict()).encode(),
    }
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    return tmp_path


A = ("owner", "--nodes", "a,b")
CSV = (*A, "--csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["owner", "k"], "Missing option '--nodes'."),
        ([*A, "--nods", "k"], "No such option"),
        ([*A, "--vnodes", "many", "k"], "'many' is not a valid integer"),
        # which nodes
        (["owner", "--nodes", "", "k"], "the name of a node must not be empty"),
        (["owner", "--nodes", "a,,b", "k"], "the name of a node must not be empty"),
        (["owner", "--nodes", "a,a", "k"], "the node 'a' is given twice"),
        (["owner", "--nodes", "a=x", "k"], "'a=x': the weight must be a number, not 'x'"),
        (["owner", "--nodes", "a=-1", "k"], "a weight must be finite and above 0"),
        (["owner", "--nodes", "a=nan", "k"], "a weight must be finite and above 0"),
        ([*A, "--weights", "a", "k"], "--weights: write NAME=WEIGHT, not 'a'"),
        ([*A, "--weights", "a=1,a=2", "k"], "--weights: 'a' is given twice"),
        ([*A, "--weights", "c=1", "k"], "there is no node 'c'; the nodes are 'a', 'b'"),
        ([*A, "--vnodes", "0", "k"], "vnodes must be from 1 to 65536, not 0"),
        ([*A, "--seed", "-1", "k"], "seed must be from 0 to"),
        (["owner", "--nodes", "none.json", "k"], "none.json: No such file or directory"),
        (["owner", "--nodes", "@folder", "k"], "folder: "),
        (["owner", "--nodes", "bad.json", "k"], "bad.json: is not JSON: "),
        (["owner", "--nodes", "deep.json", "k"], "deep.json: is not JSON: "),
        (["owner", "--nodes", "latin.json", "k"], "latin.json: is not JSON: "),
        (["owner", "--nodes", "number.json", "k"], "number.json: must be a list of nodes, a mapping"),
        (["owner", "--nodes", "twice.json", "k"], "twice.json: is not JSON: 'a' is there twice"),
        (["owner", "--nodes", "weight.json", "k"], "weight.json: a.weight: must be a number or an integer"),
        (["owner", "--nodes", "field.json", "k"], "field.json: nodes[0]: unknown field 'wieght'"),
        (["owner", "--nodes", "item.json", "k"], "item.json: nodes[1]: must be a name or an object"),
        (["owner", "--nodes", "ring.json", "k"], "ring.json: ring.kind: is missing"),
        (["owner", "--nodes", "empty.json", "k"], "there are no nodes, so no key has an owner"),
        (["balance", "--nodes", "empty.json"], "there are no nodes to balance"),
        # which keys
        ([*A, "--keys", "none.txt"], "none.txt: No such file or directory"),
        ([*A, "--keys", "folder"], "folder: "),
        ([*A, "--keys", "utf16.txt"], "utf16.txt: is UTF-16; convert it to UTF-8"),
        ([*A, "--keys", "long.txt"], "long.txt: a line is longer than 1 MiB; are these keys, one a line?"),
        ([*A, "--keys", "plain.gz"], "plain.gz: is no whole gzip file: Not a gzipped file"),
        ([*A, "--keys", "short.gz"], "short.gz: is no whole gzip file: "),
        ([*A, "--keys", "broken.gz"], "broken.gz: is no whole gzip file: "),
        ([*A, "--keys", "keys.txt", "k"], "give keys as arguments or in a file, not both"),
        ([*A, "--keys", "a.csv", "--csv", "a.csv", "--column", "key"], "give --keys or --csv, not both"),
        ([*A, "--column", "key"], "--column belongs to a file: give --csv FILE"),
        ([*CSV, "a.csv"], "--csv needs --column NAME, the column that holds the keys"),
        ([*CSV, "a.csv", "--column", "kye"], "a.csv: has no column 'kye'; did you mean 'key'?; its columns are 'id', 'key'"),
        ([*CSV, "twice.csv", "--column", "key"], "twice.csv: has two columns 'key'"),
        ([*CSV, "empty.csv", "--column", "key"], "empty.csv: has no heading, so no column 'key'"),
        ([*CSV, "a.csv", "--column", "key"], "a.csv, line 3: has 1 fields, and 'key' is field 2"),
        ([*CSV, "quotes.csv", "--column", "key"], "quotes.csv, line 2: is not CSV: "),
        ([*CSV, "open.csv", "--column", "key"], "open.csv, line 2: is not CSV: "),
        ([*CSV, "plain.gz", "--column", "key"], "plain.gz: is no whole gzip file: "),
        (["owner", "--nodes", "@-", "--keys", "-"], "stdin can be read only once"),
        # which change
        (["plan", "--nodes", "a,b", "--add", "a"], "the node 'a' is there already"),
        (["plan", "--nodes", "a,b", "--add", "c,c"], "the node 'c' is added twice"),
        (["plan", "--nodes", "a,b", "--add", "whole.json"], "whole.json: is a whole ring, and only nodes can be added"),
        (["plan", "--nodes", "a,b", "--remove", "c"], "there is no node 'c'; the nodes are 'a', 'b'"),
        (["plan", "--nodes", "a,b", "--reweight", "a"], "--reweight: write NAME=WEIGHT, not 'a'"),
        (["plan", "--nodes", "a,b", "--reweight", "a=0"], "a weight must be finite and above 0"),
        (["plan", "--nodes", "a,b", "--reweight", "a=1e9"], "the node 'a' of weight 1000000000.0 would have"),
        (["plan", "--nodes", "a,b", "--remove", "a", "--reweight", "a=2"], "the node 'a' is reweighted and also removed"),
        (["leases", "status", "--db", "a.csv"], "a.csv: file is not a database"),
        (["leases", "status", "--db", "mysql://u:secret@x"], "--db takes only SQLite paths and postgresql://, not mysql://"),
        (["plan", "--nodes", "a,b", "-o", "none/plan.json"], "none/plan.json: No such file or directory"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(cli: Cli, files: Path, arguments: list[str], message: str) -> None:
    assert message in cli.refused(*arguments)


def test_a_fault_of_ringhash_is_no_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("ringhash.cli.commands.fair_shares", fail)
    with pytest.raises(ValueError, match="a fault"):
        run(["balance", "--nodes", "a", "--json"])


# --- help ---


def test_help_and_version(cli: Cli) -> None:
    for words in ([], ["--help"], ["owner", "-h"], ["plan", "--help"], ["balance", "--help"]):
        output = cli(*words)
        assert output.startswith("Usage: ringhash")
        assert "..." not in output.partition("Commands:")[2]
    assert cli("--version") == f"ringhash {version('ringhash')}\n"


def test_a_missing_extra_says_how_to_install_it() -> None:
    for missing in ("click", "rich"):
        program = f"import sys; sys.modules[{missing!r}] = None; from ringhash.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            b"ringhash: this command needs click and rich: pip install 'ringhash[cli]'"
        ]


def test_owner_loads_no_more_of_rich_than_its_name() -> None:
    program = (
        "import sys\n"
        "from ringhash.cli import run\n"
        "assert run(['owner', '--nodes', 'a,b', 'k']) == 0\n"
        "assert run(['plan', '--nodes', 'a,b', '--add', 'c', '--json']) == 0\n"
        "assert 'rich.console' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


# --- among other programs ---


def test_keys_from_a_pipe() -> None:
    done = command("owner", "--nodes", NODES, input=b"\n".join(KEYS))
    assert answers(done.stdout) == expected(KEYS)
    assert (done.returncode, done.stderr) == (0, b"")


def test_csv_from_a_pipe() -> None:
    rows = b"key\n" + b"\n".join(KEYS)
    done = command("owner", "--nodes", NODES, "--csv", "-", "--column", "key", input=rows)
    assert answers(done.stdout) == expected(KEYS)


def test_nodes_from_a_pipe() -> None:
    nodes = json.dumps(NODES.split(",")).encode()
    done = command("owner", "--nodes", "@-", "user:7", input=nodes)
    assert answers(done.stdout) == expected([b"user:7"])


def test_a_slow_pipe_is_answered_at_once() -> None:
    with started("owner", "--nodes", NODES) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for key in KEYS[:3]:
            process.stdin.write(key + b"\n")
            process.stdin.flush()
            assert answers(process.stdout.readline()) == expected([key])


def test_output_in_a_pipe_is_plain() -> None:
    for words in (["plan", "--nodes", NODES, "--add", "gw-4"], ["balance", "--nodes", NODES]):
        output = command(*words).stdout
        assert b"\x1b" not in output
        assert all(line == line.rstrip() for line in output.splitlines())
        ascii_output = command(*words, env=PLAIN | {"PYTHONIOENCODING": "ascii"}).stdout
        assert ascii_output.isascii()
        assert len(ascii_output.splitlines()) == len(output.splitlines())


@pytest.mark.skipif(not POSIX, reason="pipes of POSIX")
def test_a_broken_pipe_is_silent(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"user\n" * 500_000)
    for words in (["owner", "--nodes", NODES, "--keys", keys], ["--help"], ["balance", "--nodes", NODES]):
        with started(*words) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if words[0] == "owner":
                assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""


@pytest.mark.skipif(not POSIX, reason="signals of POSIX")
def test_an_interrupt_is_quiet() -> None:
    def hear() -> None:  # run in the background, tests ignore it, and their children do too
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with started("owner", "--nodes", NODES, preexec_fn=hear) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"user:7\n")
        process.stdin.flush()
        assert process.stdout.readline()  # so it runs, and waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    for words in (["owner", "--nodes", "a", "k"], ["balance", "--nodes", "a"], ["--help"]):
        with Path("/dev/full").open("wb") as full:
            done = command(*words, stdout=full)
        assert done.returncode == 2
        assert done.stderr == b"ringhash: No space left on device\n"
    done = command("plan", "--nodes", "a", "--add", "b", "-o", "/dev/full")
    assert (done.returncode, done.stderr) == (2, b"ringhash: /dev/full: No space left on device\n")


@pytest.mark.skipif(not POSIX, reason="needs a shell")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("owner --nodes a,b <&-", b"no keys: give some, or a file with --keys, or pipe them in"),
        ("owner --nodes a,b --keys - <&-", b"stdin is closed"),
        ("owner --nodes @- k <&-", b"stdin is closed"),
        ("balance --nodes a,b >&-", b"stdout is closed"),
    ],
)
def test_a_closed_stream_is_one_line(words: str, message: bytes) -> None:
    shell = ["sh", "-c", f'"$0" -m ringhash {words}', sys.executable]
    done = subprocess.run(shell, check=False, env=PLAIN, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"ringhash: " + message + b"\n")
    silent = [*shell[:2], f"{shell[2]} 2>&-", shell[3]]
    assert subprocess.run(silent, check=False, env=PLAIN, capture_output=True, timeout=60).returncode == 2


@pytest.mark.slow
@pytest.mark.skipif(not POSIX, reason="needs wait4")
def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """80 MB of keys, 5 million of them: as objects they would take half a gigabyte."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"\n".join(KEYS) + b"\n")
    large.write_bytes((b"\n".join(b"visitor-%07d" % i for i in range(50_000)) + b"\n") * 100)
    peaks: list[int] = []
    record: Any = None
    for path in (small, large):
        process = started("balance", "--nodes", NODES, "--keys", path, "--json", stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        record = json.loads(process.stdout.read())
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
    assert record["keys"]["total"] == 5_000_000
    assert peaks[1] - peaks[0] < 40e6


# --- on a terminal ---


@pytest.fixture
def terminal() -> Any:
    """Run a command on a terminal of its own; returns (status, what it showed)."""
    pty = pytest.importorskip("pty")

    def run_there(*arguments: str | Path, **environment: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "ringhash", *map(str, arguments)]
        process, terminal = pty.fork()
        if process == 0:
            os.execve(sys.executable, words, PLAIN | {"TERM": "xterm-256color"} | environment)
        shown = b""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                more = os.read(terminal, 1 << 16)
            except OSError:  # Linux reports the end of a terminal like this
                break
            if not more:
                break
            shown += more
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode()

    return run_there


# Forking beside the threads of numpy is what pty does, and the child execs at once.
quiet_fork = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@quiet_fork
def test_colour_on_a_terminal_but_for_no_color(terminal: Any) -> None:
    words = ["balance", "--nodes", NODES]
    assert "\x1b[36m" in terminal(*words)[1]
    assert "\x1b" not in terminal(*words, NO_COLOR="1")[1]


@quiet_fork
@pytest.mark.parametrize("length", [33, 60, 200])
def test_long_names_are_shortened_and_numbers_are_whole(terminal: Any, length: int) -> None:
    names = [f"host-{i}-{'x' * (length - 9)}-{i}" for i in range(3)]
    for words in (
        ["plan", "--nodes", ",".join(names[:2]), "--add", names[2]],
        ["balance", "--nodes", ",".join(names)],
    ):
        plain = command(*words).stdout.decode().splitlines()
        shown = terminal(*words, COLUMNS="80", NO_COLOR="1", PYTHONUTF8="1")[1].splitlines()
        assert len(shown) == len(plain)
        for here, there in zip(shown[2:4], plain[2:4], strict=True):
            assert len(here.rstrip()) <= 80
            figures = [word for word in there.split() if word[0].isdigit()]
            assert [word for word in here.split() if word[0].isdigit()] == figures
            assert here.startswith("host-")


@quiet_fork
@pytest.mark.parametrize("nodes", ["1", "100", "2000"])
def test_a_comparison_fits_a_terminal(terminal: Any, nodes: str) -> None:
    words = ["balance", "--nodes", nodes, "--compare", "40,160"]
    shown = terminal(*words, COLUMNS="80", NO_COLOR="1", PYTHONUTF8="1")[1].splitlines()
    assert all(len(line.rstrip()) <= 80 for line in shown[:4])
    assert "…" not in "".join(shown)
    assert "kB" in shown[3]


@quiet_fork
def test_without_keys_a_terminal_is_not_read(terminal: Any) -> None:
    status, shown = terminal("owner", "--nodes", NODES)
    assert status == 2
    assert "no keys: give some, or a file with --keys, or pipe them in" in shown


@pytest.mark.slow
@quiet_fork
def test_who_waits_sees_a_bar(terminal: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"user:7\n" * 200_000 + b"visitor\n" * 3_800_000)  # user:7 moves, which takes longer
    words = ["plan", "--nodes", NODES, "--add", "gw-4", "--keys", keys]
    status, shown = terminal(*words)
    assert status == 0
    assert "MiB" in shown
    assert "4,000,000 keys, each asked before and after:" in shown
    assert "MiB" not in terminal("owner", "--nodes", NODES, "user:7")[1]

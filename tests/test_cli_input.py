"""What people give the command line by mistake, and what it then tells them to write."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ringhash import Ring

pytest.importorskip("click")
pytest.importorskip("rich")

from test_cli import NODES, Cli, cli

from ringhash.printable import printable

__all__ = ["cli"]

RING = Ring(NODES.split(","))


def test_a_number_is_not_a_list_of_nodes(cli: Cli) -> None:
    assert "3 is a number, not a list of nodes; name them, as in node-1,node-2" in cli.refused(
        "owner", "--nodes", "3", "k"
    )
    assert "is a number" in cli.refused("plan", "--nodes", "a,b", "--add", "3")
    # The control: where a number has a meaning, and where a name only begins with one.
    assert cli.json("balance", "--nodes", "3", "--compare", "40")["nodes"] == 3
    assert cli("owner", "--nodes", "3a", "k") == "3a\tk\n"


def test_a_node_whose_name_is_a_number_goes_into_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('["3"]')
    assert cli("owner", "--nodes", tmp_path / "nodes.json", "k") == "3\tk\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1\x15\x04", "is a Parquet file; give it a name that ends in .parquet"),
        (b"\x1f\x8b\x08\0", "is a gzip file; give it a name that ends in .gz"),
        (b"PK\x03\x04abc", "is a zip archive"),
        (b"ARROW1\0\0", "is an Arrow file"),
        (b"\x7fELF\x02\x01\0\0", "is a binary file"),
    ],
)
def test_a_binary_file_holds_no_keys(cli: Cli, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    assert message in cli.refused("owner", "--nodes", NODES, "--keys", path)


def test_a_database_holds_no_keys(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    assert "is a SQLite database" in cli.refused("owner", "--nodes", NODES, "--keys", path)


def test_lines_that_are_not_utf8_are_keys_all_the_same(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"caf\xe9\n")
    cli("owner", "--nodes", NODES, "--keys", tmp_path / "keys")
    assert cli.raw == RING.owner(b"caf\xe9").encode() + b"\tcaf\xe9\n"


def test_a_csv_file_is_noticed_and_its_columns_are_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("id,user\n1,ann\n")
    refused = cli.refused("owner", "--nodes", NODES, "--keys", path)
    assert f"give --csv {path} --column NAME; its columns are id, user" in refused
    assert "its columns are id, user" in cli.refused("owner", "--nodes", NODES, "--csv", path)
    assert "did you mean 'user'?" in cli.refused("owner", "--nodes", NODES, "--csv", path, "--column", "usr")


class TestParquet:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "visits.parquet"
        columns = {"user": ["ann", None, "", "bob"], "id": [7, 8, None, -1], "score": [0.5, 1.0, 1.5, 2.0]}
        pq.write_table(pa.table(columns), path)
        return path

    def test_text_and_integers_are_keys_as_in_python(self, cli: Cli, path: Path) -> None:
        found = cli("owner", "--nodes", NODES, "--keys", path, "--column", "user")
        assert found.splitlines() == [f"{RING.owner(key)}\t{key}" for key in ("ann", "bob")]
        found = cli("owner", "--nodes", NODES, "--keys", path, "--column", "id")
        assert found.splitlines() == [f"{RING.owner(key)}\t{key}" for key in (7, 8, -1)]
        found = cli("owner", "--nodes", NODES, "--keys", path, "--column", "id", "--json")
        assert json.loads(found.splitlines()[0]) == {"key": 7, "owner": RING.owner(7)}

    def test_a_plan_asks_each_key(self, cli: Cli, path: Path) -> None:
        found = cli.json("plan", "--nodes", NODES, "--add", "gw-4", "--keys", path, "--column", "id")
        assert (found["keys"]["total"], found["keys"]["empty"], found["keys"]["otherwise"]) == (3, 1, 0)

    def test_what_it_needs_is_said(self, cli: Cli, path: Path) -> None:
        assert "say which column holds the keys: --column user or id or score" in cli.refused(
            "owner", "--nodes", NODES, "--keys", path
        )
        assert "the column 'score' holds double" in cli.refused(
            "owner", "--nodes", NODES, "--keys", path, "--column", "score"
        )
        assert "did you mean 'user'?" in cli.refused(
            "owner", "--nodes", NODES, "--keys", path, "--column", "users"
        )
        path.write_bytes(b"PAR1 and no more")
        assert "is not a Parquet file" in cli.refused(
            "owner", "--nodes", NODES, "--keys", path, "--column", "user"
        )

    def test_a_single_column_needs_no_name(self, cli: Cli, path: Path) -> None:
        pq = pytest.importorskip("pyarrow.parquet")
        one = path.with_name("one.parquet")
        pq.write_table(pq.read_table(path, columns=["user"]), one)
        assert len(cli("owner", "--nodes", NODES, "--keys", one).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gw-1\x1b[2J", "gw-1\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("caf\xe9 \u4e2d", "caf\xe9 \u4e2d"),
    ],
)
def test_text_that_would_control_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_cannot_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(["evil\x1b[2J\nname", "b"]))
    for command in (["balance"], ["plan", "--remove", "b"], ["plan", "--remove", "no\x1b[1m"]):
        status = 2 if "no\x1b[1m" in command else 0
        out = cli(*command, "--nodes", tmp_path / "nodes.json", status=status)
        assert "\x1b" not in out + cli.err
        assert "evil\\x1b[2J\\nname" in out or status
    # The control: a pipe gets keys and names as they are.
    assert "\x1b" in cli("owner", "--nodes", tmp_path / "nodes.json", *map(str, range(20)))


class TestDoctor:
    def test_it_says_what_is_installed(self, cli: Cli) -> None:
        found = cli.json("doctor")
        assert found["core"].startswith("compiled, checked")
        assert set(found["extras"]["cli"]) == {"click", "rich"}
        assert found["extras"]["cli"]["click"]
        assert "click" in cli("doctor")

    def test_it_asks_databases_and_changes_none(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "leases.db"
        sqlite3.connect(path).close()
        path.touch()
        assert cli.json("doctor", "--db", path)["databases"] == {str(path): None}
        assert path.stat().st_size == 0
        out = cli(
            "doctor", "--db", tmp_path / "none.db", "--db", "postgresql://u:secret@127.0.0.1:1/x", status=1
        )
        assert "none.db" in out
        assert "secret" not in out + cli.err
        assert not (tmp_path / "none.db").exists()


def test_a_shell_completes_commands_and_options(cli: Cli) -> None:
    assert "_RINGHASH_COMPLETE=bash_complete" in cli("completion", "bash")
    environment = {
        **os.environ,
        "_RINGHASH_COMPLETE": "bash_complete",
        "COMP_WORDS": "ringhash pl",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "ringhash"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["plain,plan"]

"""`ringhash fleet`: check, fence, export, delete, from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet_world import rows_in

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner, Result

from ringhash import RangeMap, Router
from ringhash.cli.commands import ringhash
from ringhash.fleet import Fleet, set_fence
from ringhash.fleet.config import read_config

Make = Callable[..., Fleet]
MAP = RangeMap([(None, "db-1"), ("m", "db-2"), ("t", "db-3")], keys=str)


@pytest.fixture
def config(fleet_of: Make, addresses: dict[str, str], tmp_path: Path) -> tuple[Path, Fleet]:
    fleet = fleet_of(MAP)
    for name in fleet.names:
        with fleet.database(name).transaction(write=True) as tx:
            tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, price NUMERIC)")
            tx.execute("CREATE TABLE lines (order_id INTEGER, n INTEGER, PRIMARY KEY (order_id, n))")
    with fleet.write("acme") as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'acme', 2), (2, 'acme', NULL), (3, 'beta', 1)")
        tx.execute("INSERT INTO lines VALUES (1, 1), (1, 2), (3, 1)")
    (tmp_path / "router.json").write_text(json.dumps(Router(MAP).to_dict()), encoding="utf-8")
    path = tmp_path / "fleet.toml"
    path.write_text(
        'router = "router.json"\n[databases]\n'
        + "".join(f"{name} = {json.dumps(address)}\n" for name, address in addresses.items())
        + '[[tables]]\nname = "orders"\nkey = "tenant"\n'
        + '[[tables]]\nname = "lines"\nprimary_key = ["order_id", "n"]\nthrough = ["order_id", "orders"]\n',
        encoding="utf-8",
    )
    return path, fleet


def ran(*arguments: Any, **options: Any) -> Result:
    return CliRunner().invoke(ringhash, ["fleet", *map(str, arguments)], **options)


def test_check(config: tuple[Path, Fleet]) -> None:
    path, fleet = config
    fine = ran("check", "--config", path)
    assert (fine.exit_code, fine.output) == (0, "All is well: 3 databases, 2 tables.\n")
    with fleet.database("db-1").transaction(write=True) as tx:
        tx.execute("INSERT INTO orders VALUES (9, 'zoe', 1)")
    found = ran("check", "--config", path)
    assert found.exit_code == 1
    assert "orphans: db-1 orders: 1 rows here belong elsewhere: 'zoe' of db-3" in found.output
    assert json.loads(ran("check", "--config", path, "--json").output)[0]["examples"] == ["zoe"]


def test_fence(config: tuple[Path, Fleet]) -> None:
    path, fleet = config
    with fleet.database("db-1").transaction(write=True) as tx:
        set_fence(tx, [(b"m", None)], "gone", "db-2", 4)
    output = ran("fence", "--config", path).output
    assert 'here: from the lowest key to "m", epoch 0' in output
    assert 'gone to db-2: from "m" on, epoch 4' in output
    rows = [json.loads(line) for line in ran("fence", "--config", path, "--json").output.splitlines()]
    assert {row["database"] for row in rows} == {"db-1", "db-2", "db-3"}
    jsonschema = pytest.importorskip("jsonschema")
    referencing = pytest.importorskip("referencing")
    folder = Path(__file__).parent.parent.parent / "docs" / "schemas"
    schemas = {
        name: json.loads((folder / name).read_text())
        for name in ("fence_row.schema.json", "common.schema.json")
    }
    registry = referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(schema)) for name, schema in schemas.items()
    )
    validator = jsonschema.Draft202012Validator(schemas["fence_row.schema.json"], registry=registry)
    for row in rows:
        validator.validate(row)


def test_export_and_delete(config: tuple[Path, Fleet]) -> None:
    path, fleet = config
    lines = [json.loads(line) for line in ran("export", "acme", "--config", path).output.splitlines()]
    assert [line["table"] for line in lines] == ["orders", "orders", "lines", "lines"]
    assert lines[0]["row"]["tenant"] == "acme"
    assert ran("export", "nobody", "--config", path).output == ""
    no = ran("delete", "acme", "--config", path, input="n\n")
    assert "Delete 4 rows of acme (2 of orders, 2 of lines)?" in no.output
    assert len(rows_in(fleet, "db-1")) == 3
    yes = ran("delete", "acme", "--config", path, "--yes")
    assert yes.output == "Deleted 4 rows of acme.\n"
    assert [row[0] for row in rows_in(fleet, "db-1")] == [3]
    assert rows_in(fleet, "db-1", "lines") == [(3, 1)]
    assert ran("delete", "acme", "--config", path).output == "There are no rows of acme.\n"


def test_what_is_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "router.json").write_text('{"kind": "ring", "nodes": [{"name": "a"}]}', encoding="utf-8")
    path = tmp_path / "fleet.toml"
    good = 'router = "router.json"\n[databases]\na = "a.db"\n'
    for text, message in (
        ("router = ", "Invalid value"),
        ('router = "router.json"', "databases"),
        (good.replace("a.db", "$NOT_THERE_AT_ALL"), "NOT_THERE_AT_ALL"),
        (good.replace("a = ", "b = "), "'a' of the router has no database"),
        (good.replace("a.db", "mysql://u:secret@h/d"), "mysql"),
        (good + '[[tables]]\nname = "t"\n', "one of"),
        (good + '[[tables]]\nname = "t"\nkey = "k"\nread = "float"\n', "str, int, uuid, bytes"),
        (good + '[[tables]]\nname = "t"\nthrough = ["a", "b"]\n', "above it"),
        (good + '[[tables]]\nname = "t"\nkay = "k"\n', "kay"),
        (good, "ringhash_fence"),
    ):
        path.write_text(text, encoding="utf-8")
        result = ran("check", "--config", path)
        assert result.exit_code == 2, result.output
        assert message in result.output
        assert "secret" not in result.output
    monkeypatch.setenv("A_PLACE", "a.db")
    path.write_text(good.replace("a.db", "$A_PLACE"), encoding="utf-8")
    assert read_config(path).databases == {"a": str(tmp_path / "a.db")}
    assert ran("export", "x", "--int", "--config", path).exit_code == 2

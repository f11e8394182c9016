"""TPC-H: which key its joins and its rows ask for. The statements have the joins of its queries, in short."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringhash.analysis import Queries, analyze

SCHEMA: Any = {
    "orders": ["o_orderkey", "o_custkey", "o_orderdate", "o_orderpriority"],
    "lineitem": ["l_orderkey", "l_partkey", "l_suppkey", "l_shipdate", "l_shipmode", "l_quantity"],
    "customer": ["c_custkey", "c_nationkey", "c_mktsegment"],
    "part": ["p_partkey", "p_brand"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
}
STATEMENTS = [
    # The joins of queries 3, 10 and 18, of 12, of 14 and 17, of 16, of 13; and the scans of 1 and 6.
    "SELECT l_orderkey FROM customer, orders, lineitem WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey",
    "SELECT l_shipmode FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')",
    "SELECT sum(l_quantity) FROM lineitem, part WHERE l_partkey = p_partkey AND p_brand = 'Brand#23'",
    "SELECT count(*) FROM partsupp, part WHERE p_partkey = ps_partkey",
    "SELECT c_custkey FROM customer LEFT JOIN orders ON c_custkey = o_custkey",
    "SELECT sum(l_quantity) FROM lineitem WHERE l_shipdate < '1998-09-02'",
    "SELECT sum(l_quantity) FROM lineitem WHERE l_shipdate >= '1994-01-01' AND l_quantity < 24",
    # What an application asks beside them.
    "SELECT l_partkey FROM orders, lineitem WHERE l_orderkey = o_orderkey AND o_orderkey = 7",
]


def test_joins_without_qualified_columns_need_the_schema() -> None:
    pytest.importorskip("sqlglot")
    queries = Queries(STATEMENTS, schema=SCHEMA)
    groups = [set(columns) for _, columns in queries.groups()]
    assert {("orders", "o_orderkey"), ("lineitem", "l_orderkey")} in groups
    assert {("customer", "c_custkey"), ("orders", "o_custkey")} in groups
    fit = queries.align("o_orderkey")
    assert fit.tables["lineitem"] == ("l_orderkey",)
    assert fit.tables["orders"] == ("o_orderkey",)
    assert fit.single == 1 / 8
    assert Queries(STATEMENTS).groups() == []  # the control: nothing says whose the columns are


@pytest.fixture(scope="module")
def lineitem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    beside = Path(sys.prefix) / "bin" / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("needs tpchgen-cli")
    folder = tmp_path_factory.mktemp("tpch")
    command = [program, "csv", "-s", "0.01", "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / "lineitem.csv"


def test_the_rows_of_tpch_have_good_and_bad_keys(lineitem: Path) -> None:
    keys: Any = ["l_orderkey", "l_suppkey", "l_returnflag", ("l_orderkey", "l_linenumber")]
    report = analyze(lineitem, keys, shards=16, order=True)
    assert report.rows == 60_175  # as the specification has it
    assert report["l_orderkey"].distinct.value == 15_000
    assert report["l_orderkey"].verdict != "bad"
    assert report["l_orderkey", "l_linenumber"].unique
    assert report["l_returnflag"].verdict == "bad"
    assert report["l_suppkey"].distinct.value == 100

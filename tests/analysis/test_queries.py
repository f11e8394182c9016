"""Statements of logs against candidate keys: one shard, few or all; what stays together; what to fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlglot")

from ringhash.analysis import Queries, Statement, analyze
from ringhash.analysis.logs import statements_of
from ringhash.analysis.shapes import shape_of, values_in


def width(text: str, key: Any = "customer_id", **options: Any) -> str:
    fit = Queries([text], **options).align(key)
    found = {"one": fit.single, "few": fit.few, "all": fit.all, "elsewhere": fit.elsewhere}
    assert sorted(found.values()) == [0, 0, 0, 1]
    return max(found, key=lambda name: found[name])


# --- how many shards one statement asks ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM orders WHERE customer_id = 5", "one"),
        ("SELECT * FROM orders WHERE 5 = customer_id AND total > 3", "one"),
        ("SELECT * FROM orders o WHERE (o.customer_id = 'a''b')", "one"),
        ("SELECT * FROM orders WHERE customer_id IN (5)", "few"),
        ("SELECT * FROM orders WHERE customer_id IN (5, 6, 7)", "few"),
        ("SELECT * FROM orders WHERE customer_id = 5 OR customer_id = 6", "few"),
        ("SELECT * FROM orders WHERE customer_id = 5 OR total > 6", "all"),
        ("SELECT * FROM orders WHERE customer_id > 5", "all"),
        ("SELECT * FROM orders WHERE customer_id BETWEEN 5 AND 6", "all"),
        ("SELECT * FROM orders WHERE customer_id <> 5", "all"),
        ("SELECT * FROM orders WHERE NOT customer_id = 5", "all"),
        ("SELECT * FROM orders WHERE customer_id + 1 = 5", "all"),
        ("SELECT customer_id, count(*) FROM orders GROUP BY customer_id", "all"),
        ("SELECT 1", None),
        ("SELECT * FROM countries", "elsewhere"),
        ("INSERT INTO orders (customer_id, total) VALUES (5, 10)", "one"),
        ("INSERT INTO orders (total, customer_id) VALUES (now(), 10)", "one"),
        ("INSERT INTO orders (customer_id, total) VALUES (5, 10), (6, 11)", "few"),
        ("UPDATE orders SET total = 1 WHERE customer_id = 5", "one"),
        ("UPDATE orders SET total = 1 WHERE customer_id = 5 AND total = 2", "one"),
        ("UPDATE orders SET customer_id = 1", "all"),
        ("DELETE FROM orders WHERE customer_id = 5", "one"),
        ("DELETE FROM orders WHERE customer_id < 5", "all"),
        ("SELECT * FROM orders WHERE customer_id = (SELECT max(customer_id) FROM orders)", "all"),
        ("SELECT * FROM orders WHERE customer_id IN (SELECT customer_id FROM orders)", "all"),
        ("WITH mine AS (SELECT * FROM orders WHERE customer_id = 5) SELECT * FROM mine", "one"),
        ("SELECT * FROM (SELECT * FROM orders WHERE customer_id = 5) x WHERE x.total > 1", "one"),
        ("SELECT * FROM orders WHERE customer_id = 5 UNION ALL SELECT * FROM orders WHERE customer_id = 5", "one"),
        ("SELECT * FROM orders WHERE customer_id = 5 UNION ALL SELECT * FROM orders WHERE customer_id = 6", "few"),
        ("SELECT * FROM orders WHERE customer_id = 5 UNION ALL SELECT customer_id FROM orders", "all"),
        ("SELECT * FROM orders o JOIN items i ON o.customer_id = i.customer_id WHERE o.customer_id = 5", "one"),
        ("SELECT * FROM orders o JOIN items i USING (customer_id) WHERE o.customer_id = 5", "one"),
        ("SELECT * FROM orders o, items i WHERE o.customer_id = i.customer_id AND i.customer_id = 5", "one"),
        ("SELECT * FROM orders o JOIN items i ON o.id = i.order_id AND i.customer_id > 0 WHERE o.customer_id = 5", "all"),
        ("SELECT * FROM orders o JOIN countries c ON o.country = c.code WHERE o.customer_id = 5", "one"),
    ],
)  # fmt: skip
def test_how_many_shards_a_statement_asks(text: str, expected: str | None) -> None:
    if expected is None:
        assert Queries([text]).total == 0
    else:
        assert width(text) == expected or (expected == "elsewhere" and width(text) == "elsewhere")


def test_a_composite_key_needs_all_its_columns() -> None:
    key = ("region", "customer_id")
    assert width("SELECT * FROM orders WHERE region = 'eu' AND customer_id = 5", key) == "one"
    assert width("SELECT * FROM orders WHERE customer_id = 5 AND region > 'a'", key) == "all"
    both = "SELECT * FROM orders o JOIN items i ON o.region = i.region AND {} WHERE o.region = 'eu' AND o.customer_id = 5"
    assert width(both.format("o.customer_id = i.customer_id"), key) == "one"
    assert width(both.format("i.customer_id > 0"), key) == "all"


def test_a_schema_says_which_table_has_the_key() -> None:
    text = "SELECT count(*) FROM orders"
    assert Queries([text]).align("customer_id").elsewhere == 1
    assert Queries([text], schema={"Orders": ["Customer_ID"]}).align("customer_id").all == 1


# --- shapes ---


def test_values_make_no_other_shape() -> None:
    texts = [
        "SELECT * FROM t WHERE a = 5 AND b IN (1, 2)",
        "SELECT * FROM t  WHERE a = 'x''y' AND b IN ('q') -- a comment",
        "SELECT *\nFROM t WHERE a = $1 AND b IN ($2, $3, $4)",
    ]
    assert {shape_of(text)[0] for text in texts} == {"SELECT * FROM t WHERE a = ? AND b IN (?)"}
    assert shape_of('SELECT "a 1" FROM t1 WHERE x2 = 3')[0] == 'SELECT "a 1" FROM t1 WHERE x2 = ?'
    assert shape_of('SELECT * FROM t WHERE a = "x"', mysql=True) == ("SELECT * FROM t WHERE a = ?", ["'x'"])
    assert values_in("VALUES (1, 'a,b'), (2, NULL)") == [["1", "'a,b'"], ["2", "NULL"]]


def test_each_shape_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlglot

    parsed: list[str] = []
    real = sqlglot.parse_one

    def counting(text: str, **options: Any) -> Any:
        parsed.append(text)
        return real(text, **options)

    monkeypatch.setattr(sqlglot, "parse_one", counting)
    queries = Queries(f"SELECT * FROM orders WHERE customer_id = {i} AND x IN ({i}, 2)" for i in range(1000))
    assert len(parsed) == 1
    assert queries.align("customer_id").single == 1
    assert queries.total == 1000


def test_what_cannot_be_read_is_told() -> None:
    queries = Queries(["SELEC nonsense FROM (", "SELECT * FROM orders WHERE customer_id = 1"])
    assert list(queries.unread) == ["SELEC nonsense FROM ("]
    assert queries.align("customer_id").single == 1


# --- what stays together ---

SHOP = [
    *["SELECT * FROM customers WHERE id = 5"] * 10,
    *["SELECT * FROM orders WHERE customer_id = 5"] * 40,
    *["SELECT * FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.id = 7"] * 20,
    *["SELECT * FROM items i JOIN orders o ON o.id = i.order_id WHERE o.customer_id = 7"] * 5,
    *["SELECT * FROM orders WHERE total > 100"] * 15,
    *["SELECT * FROM orders WHERE customer_id IN (1, 2, 3)"] * 5,
    *["UPDATE orders SET customer_id = 8 WHERE customer_id = 5"] * 2,
    *["SELECT name FROM countries WHERE code = 'de'"] * 3,
]


def test_tables_are_kept_together_by_what_joins_them() -> None:
    fit = Queries(SHOP).align("customer_id")
    assert fit.tables == {"customers": ("id",), "orders": ("customer_id",)}
    assert (fit.single, fit.few, fit.all, fit.elsewhere) == pytest.approx((0.77, 0.05, 0.15, 0.03))
    assert fit.updates == pytest.approx(0.02)
    assert [(fix.text, fix.calls, fix.width) for fix in fit.fixes] == [
        ("SELECT * FROM orders WHERE total > ?", 15, "all"),
        ("SELECT * FROM orders WHERE customer_id IN (?)", 5, "few"),
    ]
    assert fit.fixes[0].why == "no condition on customer_id of orders"
    groups = Queries(SHOP).groups()
    assert groups[0] == (20, [("customers", "id"), ("orders", "customer_id")])
    assert groups[1] == (5, [("items", "order_id"), ("orders", "id")])


def test_joins_that_cross_are_told() -> None:
    text = "SELECT * FROM orders o JOIN refunds r ON r.order_id = o.id WHERE o.customer_id = 1 AND r.customer_id = 1"
    fit = Queries([text] * 3).align("customer_id")
    assert fit.broken == (("orders and refunds", 3),)


# --- transactions ---


def transaction(*texts: str, session: str = "1", end: str = "COMMIT") -> list[Statement]:
    return [Statement(text, session) for text in ("BEGIN", *texts, end)]


def test_transactions_that_stay_on_one_value() -> None:
    def buys(customer: int, seller: int) -> list[Statement]:
        return transaction(
            f"UPDATE accounts SET eur = eur - 5 WHERE customer_id = {customer}",
            f"INSERT INTO orders (customer_id, total) VALUES ({seller}, 5)",
        )

    calls = [one for i in range(100, 130) for one in buys(i, i)] + [
        one for i in range(100, 110) for one in buys(i, i + 1)
    ]
    calls += transaction(
        "UPDATE accounts SET eur = 0 WHERE customer_id = 1", "SELECT * FROM orders", end="ROLLBACK"
    )
    fit = Queries(calls).align("customer_id")
    assert fit.transactions == 0.75
    assert fit.single == pytest.approx(81 / 82)
    assert len(Queries(calls)._transactions) == 2  # by what they do, and not by their values


def test_transactions_of_two_sessions_are_told_apart() -> None:
    one = transaction("UPDATE a SET x = 1 WHERE k = 1", "UPDATE a SET x = 2 WHERE k = 1", session="1")
    two = transaction("UPDATE a SET x = 1 WHERE k = 2", "UPDATE a SET x = 2 WHERE k = 2", session="2")
    mixed = [statement for pair in zip(one, two, strict=True) for statement in pair]
    assert Queries(mixed).align("k").transactions == 1
    mixed_up = [statement._replace(session="1") for statement in mixed]
    assert Queries(mixed_up).align("k").transactions != 1  # the control
    assert Queries(["SELECT * FROM a WHERE k = 1"]).align("k").transactions is None


# --- logs ---

POSTGRES_LOG = """\
2026-12-01 10:00:00.000 UTC [11] LOG:  connection received: host=[local]
2026-12-01 10:00:00.001 UTC [11] app@shop LOG:  statement: BEGIN
2026-12-01 10:00:00.002 UTC [11] app@shop LOG:  duration: 0.100 ms  execute <unnamed>: UPDATE accounts
\tSET eur = $1
\tWHERE customer_id = $2
2026-12-01 10:00:00.003 UTC [11] app@shop DETAIL:  parameters: $1 = '5', $2 = '42'
2026-12-01 10:00:00.004 UTC [12] app@shop LOG:  duration: 1.5 ms  statement: SELECT * FROM orders WHERE note = 'x;y'
2026-12-01 10:00:00.005 UTC [11] app@shop LOG:  statement: INSERT INTO orders (customer_id) VALUES (42)
2026-12-01 10:00:00.006 UTC [11] app@shop ERROR:  something else
2026-12-01 10:00:00.006 UTC [11] app@shop STATEMENT:  SELECT broken
2026-12-01 10:00:00.007 UTC [11] app@shop LOG:  statement: COMMIT
"""
MYSQL_GENERAL = """\
/usr/sbin/mysqld, Version: 8.0.36. started with:
Tcp port: 3306  Unix socket: /tmp/mysql.sock
Time                 Id Command    Argument
2026-12-01T10:00:00.000000Z\t    8 Connect\troot@localhost on shop using Socket
2026-12-01T10:00:01.000000Z\t    8 Query\tSTART TRANSACTION
2026-12-01T10:00:02.000000Z\t    8 Query\tSELECT * FROM `orders`
WHERE customer_id = "a;b"
2026-12-01T10:00:02.000000Z\t    9 Query\tSELECT * FROM `orders`
2026-12-01T10:00:03.000000Z\t    8 Execute\tUPDATE `orders` SET total = 1 WHERE customer_id = 'a;b'
2026-12-01T10:00:04.000000Z\t    8 Query\tCOMMIT
2026-12-01T10:00:05.000000Z\t    8 Quit\t
"""
MYSQL_SLOW = """\
# Time: 2026-12-01T10:00:00.000000Z
# User@Host: root[root] @ localhost []  Id:     8
# Query_time: 2.000000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 0
use shop;
SET timestamp=1764583200;
SELECT *
FROM orders WHERE customer_id = 5;
# Time: 2026-12-01T10:00:01.000000Z
# User@Host: root[root] @ localhost []  Id:     9
# Query_time: 2.000000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 0
SET timestamp=1764583201;
SELECT * FROM orders;
"""
PLAIN = "SELECT * FROM orders\n WHERE customer_id = 5;\nSELECT ';' FROM orders; SELECT 2 FROM orders;\nDELETE FROM orders"


def test_the_log_of_postgresql(tmp_path: Path) -> None:
    found = list(statements_of(POSTGRES_LOG.splitlines()))
    assert [statement.session for statement in found] == ["11", "11", "12", "11", "11"]
    assert found[1].text == "UPDATE accounts\nSET eur = $1\nWHERE customer_id = $2"
    assert found[1].parameters == {1: "'5'", 2: "'42'"}
    path = tmp_path / "postgresql.log"
    path.write_text(POSTGRES_LOG)
    fit = Queries.from_log(path).align("customer_id")
    assert fit.transactions == 1
    assert (fit.single, fit.all) == pytest.approx((2 / 3, 1 / 3))


def test_the_logs_of_mysql() -> None:
    found = list(statements_of(MYSQL_GENERAL.splitlines()))
    assert [(statement.session, statement.text.split()[0]) for statement in found] == [
        ("8", "START"), ("8", "SELECT"), ("9", "SELECT"), ("8", "UPDATE"), ("8", "COMMIT"),
    ]  # fmt: skip
    fit = Queries.from_log(MYSQL_GENERAL.splitlines(), kind="mysql").align("customer_id")
    assert (fit.single, fit.all) == pytest.approx((2 / 3, 1 / 3))
    assert fit.transactions == 1
    slow = list(statements_of(MYSQL_SLOW.splitlines()))
    assert slow == [
        Statement("SELECT *\nFROM orders WHERE customer_id = 5", "8"),
        Statement("SELECT * FROM orders", "9"),
    ]


def test_plain_statements() -> None:
    found = [statement.text for statement in statements_of(PLAIN.splitlines())]
    assert found == [
        "SELECT * FROM orders\n WHERE customer_id = 5",
        "SELECT ';' FROM orders",
        "SELECT 2 FROM orders",
        "DELETE FROM orders",
    ]


def test_a_real_log_of_postgresql(postgres: str, tmp_path: Path) -> None:
    """What a server writes: its log is read back and understood."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres, autocommit=True) as connection:
        destination = connection.execute("SHOW log_destination").fetchone()
        assert destination is not None
        logs: list[str] = []
        connection.add_notice_handler(
            lambda notice: logs.append(f"{notice.severity}:  {notice.message_primary}")
        )
        connection.execute("SET client_min_messages = log")
        connection.execute("SET log_min_duration_statement = 0")
        connection.execute("CREATE TEMP TABLE orders (customer_id int, total int)")
        for i in range(5):
            connection.execute("INSERT INTO orders (customer_id, total) VALUES (%s, %s)", (i, 3))
            connection.execute(f"SELECT * FROM orders WHERE customer_id = {i}")
        connection.execute("SELECT sum(total) FROM orders")
    queries = Queries.from_log(logs, kind="postgresql", schema={"orders": ["customer_id", "total"]})
    fit = queries.align("customer_id")
    assert queries.unread == {}
    assert (fit.single, fit.all) == pytest.approx((10 / 11, 1 / 11))


# --- in the report ---


def test_a_report_with_queries() -> None:
    rows = {"customer_id": [i % 5000 for i in range(20_000)], "total": list(range(20_000))}
    queries = Queries(SHOP)
    report = analyze(rows, ["total", "customer_id"]).with_queries(queries)
    assert report.best()[0].name == "customer_id" or report["customer_id"].verdict == "bad"
    reasons = {reason.kind: reason for reason in report["customer_id"].reasons}
    assert "77% ask one shard" in reasons["queries"].text
    assert "15 calls" in reasons["queries"].text
    assert reasons["changed by statements"].verdict == "bad"
    assert report["total"].queries is not None
    assert report["total"].queries.single == 0
    assert "one shard" in str(report)
    assert report.to_dict()["keys"][0]["queries"]["tables"]
    again = report.with_queries(queries)
    assert again["total"].reasons == report["total"].reasons

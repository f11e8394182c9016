"""What `analyze` says of planted data whose answers are known, and of real flights."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import math
import random
import sqlite3
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringhash import Ring, Shards
from ringhash.analysis import KeyReport, Table, analyze
from ringhash.analysis import counter as counter_module
from ringhash.analysis.columns import Keys

ROOT = Path(__file__).parent.parent.parent
FLIGHTS = ROOT / "examples" / "data" / "flights.csv.gz"
needs_flights = pytest.mark.skipif(not FLIGHTS.exists(), reason="the sdist does not hold the flights")


def kinds(report: KeyReport) -> list[str]:
    return [reason.kind for reason in report.reasons]


def one(values: Any, **options: Any) -> KeyReport:
    return analyze({"k": values, "n": range(len(values))}, ["k"], **options)["k"]


# --- figures against a plain count ---


def test_the_figures_are_those_of_a_plain_count() -> None:
    rng = random.Random(1)
    values = [f"user:{int(rng.paretovariate(1.1))}" for _ in range(20_000)]
    weights = [rng.randrange(1000) for _ in values]
    report = analyze({"k": values, "w": weights}, ["k"], shards=32, weight="w")["k"]
    counts = Counter(values)
    assert report.distinct == (len(counts), 0.0, False)
    assert [(top.value, top.rows) for top in report.top] == counts.most_common(5)
    assert report.floor == 32 * counts.most_common(1)[0][1] / len(values)
    heavy: Counter[str] = Counter()
    for value, weight in zip(values, weights, strict=True):
        heavy[value] += weight
    assert report.top_weight is not None
    assert [(top.value, top.rows) for top in report.top_weight] == heavy.most_common(5)
    shards = Shards(32)
    loads, heavier = Counter(map(shards.of, values)), [0.0] * 32
    for value, weight in zip(values, weights, strict=True):
        heavier[shards.of(value)] += weight
    assert report.loads["shards"] == [loads[i] for i in range(32)]
    assert report.peaks["shards"].rows == pytest.approx(max(loads.values()) * 32 / len(values))
    assert report.peaks["shards"].weight == pytest.approx(max(heavier) * 32 / sum(weights))
    ring = Ring([f"shard-{i:02}" for i in range(32)])
    assert report.loads["ring"] == [Counter(ring.owner_many(values))[name] for name in ring.names]


@pytest.mark.parametrize("make", ["numbers", "floats", "dates", "texts", "uuids"])
def test_kinds_of_values(make: str) -> None:
    base = list(range(500)) * 2
    columns: dict[str, Any] = {
        "numbers": np.array(base),
        "floats": np.array([float(i) for i in base] + [math.nan] * 10),
        "dates": np.array(base, "datetime64[D]"),
        "texts": [f"t{i}" for i in base] + [None] * 10,
        "uuids": [uuid.UUID(int=i) for i in base],
    }
    report = one(columns[make])
    assert report.distinct.value == 500
    assert report.nulls == (10 if make in ("floats", "texts") else 0)
    assert report.rows == len(columns[make])
    assert report.unique is False


def test_composites_are_keys_with_a_separator() -> None:
    rows = {"a": ["x", "y"] * 50, "b": list(range(50)) * 2}
    report = analyze(rows, [("a", "b"), "a"], shards=4)
    assert report["a", "b"].distinct.value == len(set(zip(rows["a"], rows["b"], strict=True)))
    shards = Shards(4)
    expected = Counter(shards.of(f"{a}:{b}") for a, b in zip(rows["a"], rows["b"], strict=True))
    assert report["a, b"].loads["shards"] == [expected[i] for i in range(4)]


# --- every kind of input says the same ---


def test_every_input_says_the_same(tmp_path: Path) -> None:
    rng = random.Random(2)
    rows = [{"k": f"k{int(rng.paretovariate(1))}", "t": i, "w": rng.randrange(9)} for i in range(3000)]
    columns = {name: [row[name] for row in rows] for name in ("k", "t", "w")}
    options: dict[str, Any] = {"shards": 8, "weight": "w"}
    expected = analyze(rows, ["k"], **options)["k"]

    def same(source: Any) -> None:
        found = analyze(source, ["k"], **options)["k"]
        assert (found.top, found.loads, found.peaks, found.top_weight) == (
            expected.top, expected.loads, expected.peaks, expected.top_weight,
        )  # fmt: skip

    same(columns)
    same(iter(rows))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["w", "k", "t"])
        writer.writeheader()
        writer.writerows(rows)
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as zipped:
        zipped.write((tmp_path / "rows.csv").read_bytes())
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
        database.execute("CREATE TABLE rows (k TEXT, t INTEGER, w INTEGER)")
        database.executemany("INSERT INTO rows VALUES (:k, :t, :w)", rows)
    same(Table(tmp_path / "rows.db", "rows"))


def test_weights_of_a_file_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,w\na,5\nb,\nc,2.5\n")
    report = analyze(path, ["k"], weight="w", shards=2)["k"]
    assert report.top_weight is not None
    assert [(top.value, top.share) for top in report.top_weight][:2] == [("a", 5 / 7.5), ("c", 2.5 / 7.5)]
    path.write_text("k,w\na,many\n")
    with pytest.raises(ValueError, match="no number"):
        analyze(path, ["k"], weight="w")


def test_frames_of_other_libraries(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"k": [f"k{i % 17}" for i in range(400)], "n": [i % 5 for i in range(400)]}
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "rows.parquet")
    expected = analyze(columns, ["k", "n", ("k", "n")], shards=4)
    for rows in (pandas.DataFrame(columns), polars.DataFrame(columns), table, tmp_path / "rows.parquet"):
        found = analyze(rows, ["k", "n", ("k", "n")], shards=4)
        assert [key.loads for key in found] == [key.loads for key in expected]
        assert [key.top for key in found] == [key.top for key in expected]


def test_a_table_of_postgres(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE analysed (k text, at timestamptz)")
        connection.execute(
            "INSERT INTO analysed SELECT 'k' || i % 1000, now() + i * interval '1 second' "
            "FROM generate_series(1, 100000) i"
        )
    try:
        report = analyze(Table(postgres, "public.analysed"), ["k", "at"], order="at")
        assert (report.rows, report["k"].distinct.value) == (100_000, 1000)
        assert report["at"].monotone is not None
        assert report["at"].monotone.moves
        sampled = analyze(Table(postgres, "analysed", sample=0.2), ["k"])
        assert 5_000 < sampled.rows < 40_000
        assert sampled.sampled == 0.2
        assert sampled["k"].peaks["shards"].error > 0
    finally:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("DROP TABLE analysed")


def test_a_sample_of_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
        database.execute("CREATE TABLE rows (k INTEGER)")
        database.executemany("INSERT INTO rows VALUES (?)", ((i,) for i in range(20_000)))
    report = analyze(Table(tmp_path / "rows.db", "rows", sample=0.1), ["k"])
    assert 1_700 < report.rows < 2_300
    assert report["k"].distinct.at_least
    assert report["k"].distinct.value > 20_000 / 2


# --- planted data: 17.5 ---


@pytest.mark.parametrize("shards", [16, 64])
def test_a_planted_zipf_is_as_theory_says(shards: int) -> None:
    """The share of the first key and the floor that it sets, within 3 sigma."""
    n, s = 1000, 1.1
    weights = np.arange(1, n + 1) ** -s
    weights /= weights.sum()
    rows = 200_000
    values = np.random.default_rng(5).choice(n, rows, p=weights)
    report = one(values, shards=shards)
    sigma = math.sqrt(weights[0] * (1 - weights[0]) / rows)
    assert report.top[0].value == 0
    assert abs(report.top[0].share - weights[0]) < 3 * sigma
    assert abs(report.floor - weights[0] * shards) < 3 * sigma * shards
    assert report.peaks["shards"].rows >= report.floor
    exact = Counter(Shards(shards).of_many(np.arange(n)).tolist())
    loads = np.bincount(Shards(shards).of_many(np.arange(n)), weights, shards)
    assert abs(report.peaks["shards"].rows - loads.max() * shards) < 3 * shards * math.sqrt(
        loads.max() / rows
    )
    assert exact.total() == n


def test_a_hot_key_is_named_and_salting_it_helps() -> None:
    values = ["whale"] * 3000 + [f"user:{i}" for i in range(27_000)]
    random.Random(3).shuffle(values)
    report = one(values, shards=64)
    assert report.verdict == "bad"
    assert kinds(report)[0] == "heavy key"
    text = report.reasons[0].text
    assert "'whale'" in text
    assert "10.0%" in text
    assert "6.4 times" in text
    salted = float(text.rpartition(" ")[2])
    spread = int(text.partition("salted by ")[2].partition(" ")[0])
    # The same, done by hand with the live shards.
    rest = [value for value in values if value != "whale"]
    loads = np.bincount(Shards(64).of_many(rest), minlength=64).astype(float)
    parts = ["whale", *(f"whale#{i}" for i in range(1, spread))]
    loads += np.bincount(Shards(64).of_many(parts), minlength=64) * 3000 / spread
    assert salted == pytest.approx(loads.max() / loads.mean(), abs=0.006)
    assert salted < report.peaks["shards"].rows
    assert "heavy key" not in kinds(one(rest, shards=64))  # the control


def test_too_few_values() -> None:
    report = one(["a", "b", "c"] * 100, shards=8)
    assert report.reasons[0][:2] == ("bad", "few values")
    assert report.peaks["shards"].empty >= 5
    assert one(list(range(100)), shards=8).reasons[0].kind == "few values"
    assert "few values" not in kinds(one(list(range(1000)), shards=8))


def test_a_mutable_key_is_found() -> None:
    rows = {"user": list(range(1000)) * 2, "city": ["a"] * 1000 + ["a"] * 700 + ["b"] * 300}
    rows["home"] = [f"h{user % 200}" for user in rows["user"]]
    report = analyze(rows, ["city", "home"], identity="user", shards=2)
    assert report["city"].changed == 0.3
    assert ("bad", "changes") in [reason[:2] for reason in report["city"].reasons]
    assert report["home"].changed == 0
    assert "changes" not in kinds(report["home"])


def test_many_identities_are_followed_in_part() -> None:
    users = np.arange(200_000)
    rows = {
        "user": np.concatenate([users, users]),
        "k": np.concatenate([users, np.where(users % 4 == 0, 7, users)]),
    }
    changed = analyze(rows, ["k"], identity="user")["k"].changed
    assert changed == pytest.approx(0.25, abs=0.02)


# --- TRAPS: the share of NULL ---


@pytest.mark.parametrize(("shards", "expected"), [(4, 1.070), (16, 1.350), (64, 2.471), (256, 6.953)])
def test_nulls_are_as_bad_as_the_number_of_shards(shards: int, expected: float) -> None:
    """67 of 2,870 rows are NULL: fine for 4 shards, doubtful for 16, bad for 64 and more."""
    values: list[Any] = [None] * 6_700 + [i % 100_000 for i in range(280_300)]
    report = one(values, shards=shards)
    assert report.nulls == 6_700
    reasons = [reason for reason in report.reasons if reason.kind == "nulls"]
    if shards == 4:
        assert reasons == []
        return
    assert f"{expected:.2f} times" in reasons[0].text
    assert reasons[0].verdict == ("doubtful" if shards == 16 else "bad")
    assert report.peaks["shards"].rows >= 0.9 * expected


# --- TRAPS: monotonic keys, seen and unseen ---


def uuid7(i: int) -> str:
    return str(uuid.UUID(int=((1_700_000_000_000 + i) << 80) | (7 << 76) | random.Random(i).getrandbits(62)))


rng = random.Random(9)
LATE = list(range(1, 1001))
for _place in rng.sample(range(980), 50):
    LATE.insert(_place + rng.randrange(20), LATE.pop(_place))
STREAMS: dict[str, tuple[list[Any], bool]] = {
    "serial": (list(range(1, 1001)), True),
    "uuid7": ([uuid7(i) for i in range(1000)], True),
    "uuid4": ([str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(1000)], False),
    "iso_text": (
        [(dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i)).isoformat() for i in range(1000)],
        True,
    ),
    "descending": (list(range(1000, 0, -1)), True),
    "nearly": (LATE, True),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_move_with_time(name: str) -> None:
    values, moves = STREAMS[name]
    report = one(values, order="n")
    assert report.monotone is not None
    assert report.monotone.moves == moves, report.monotone
    assert ("moves with time" in kinds(report)) == moves
    by_rows = one(values, order=True).monotone
    assert by_rows == report.monotone


def test_without_an_order_time_is_unknown() -> None:
    for values, _ in STREAMS.values():
        report = one(values)
        assert report.monotone is None
        assert "moves with time" not in kinds(report)
    # What comes sorted by its key looks monotonic by its rows, so the order of rows is never taken by itself.
    assert one(sorted(STREAMS["uuid4"][0])).monotone is None


def test_a_sequence_within_each_tenant_is_local_and_not_global() -> None:
    rows = {"device": [f"d{i % 50:02}" for i in range(5000)], "counter": [i // 50 for i in range(5000)]}
    rows["n"] = list(range(5000))
    report = analyze(rows, [("device", "counter"), "counter"], order="n")
    monotone = report["device", "counter"].monotone
    assert monotone is not None
    assert monotone.local == pytest.approx(1.0)
    assert not monotone.moves
    assert report["counter"].monotone is not None
    assert report["counter"].monotone.moves  # the control: without the device in front


def test_mongodb_agrees_where_the_definitions_do() -> None:
    """Its monotonicity is Pearson's correlation of ranks of record and index; one value is not monotonic."""
    values = [rng.randrange(1000) + i for i in range(3000)]
    found = one(values, order="n").monotone
    assert found is not None
    by_key = np.argsort(np.argsort(values, kind="stable"))
    assert found.global_ == pytest.approx(np.corrcoef(by_key, np.arange(3000))[0, 1], abs=0.001)
    single = one(["same"] * 100, order="n")
    assert single.monotone is not None
    assert single.monotone.global_ == 0
    assert (single.distinct.value, single.unique) == (1, False)
    assert one(list(range(50))).unique is True


# --- growth ---


def test_growth_of_the_largest_key() -> None:
    """A key that has a tenth of the rows, one row a second in ten: 10,000 rows more come in 100,000 s."""
    values = ["big" if i % 10 == 0 else f"k{i}" for i in range(20_000)]
    report = one(values, order="n", capacity=12_000)
    assert report.growth is not None
    assert report.growth.most_shards == 10
    assert report.growth.rate == pytest.approx(0.1, rel=0.02)
    assert report.growth.full_at == pytest.approx(20_000 + 100_000, rel=0.02)


# --- invariance ---


def test_shuffling_changes_nothing_but_time() -> None:
    values = [f"k{int(rng.paretovariate(1))}" for _ in range(5000)]
    shuffled = values.copy()
    rng.shuffle(shuffled)
    one_way, other = one(values), one(shuffled)
    assert (one_way.top, one_way.loads, one_way.lorenz, one_way.peaks) == (
        other.top, other.loads, other.lorenz, other.peaks,
    )  # fmt: skip


def test_renaming_renames_the_report() -> None:
    columns = {"a": [i % 7 for i in range(500)], "b": list(range(500))}
    report = analyze(columns, ["a", "b"])
    renamed = analyze({"b": columns["a"], "a": columns["b"]}, ["b", "a"])
    assert [(key.top, key.reasons) for key in report] == [(key.top, key.reasons) for key in renamed]
    assert [key.name for key in report.best()] == ["b", "a"]
    assert [key.name for key in renamed.best()] == ["a", "b"]


# --- more keys than are counted one by one ---


def test_many_keys_are_estimated_and_the_heavy_ones_stay() -> None:
    tail = np.random.default_rng(1).integers(1000, 2**62, 3_000_000)
    heads = np.repeat(np.arange(5), [50_000, 40_000, 30_000, 20_000, 10_000])
    values = np.concatenate([tail, heads])
    np.random.default_rng(2).shuffle(values)
    report = one(values, shards=16)
    assert report.distinct.error == pytest.approx(0.008, abs=0.001)
    assert abs(report.distinct.value - 3_000_005) < 3 * report.distinct.error * 3_000_005
    assert [top.value for top in report.top] == [0, 1, 2, 3, 4]
    for top, rows in zip(report.top, (50_000, 40_000, 30_000, 20_000, 10_000), strict=True):
        assert rows - 20 <= top.rows <= rows
    assert report.unique is None
    assert report.loads["shards"] == np.bincount(Shards(16).of_many(values), minlength=16).tolist()


# --- what is wrong ---


@pytest.mark.parametrize(
    ("rows", "keys", "options", "message"),
    [
        ({"a": [1]}, ["b"], {}, "no column 'b'; the columns are a"),
        ({"a": []}, ["a"], {}, "no rows"),
        ({"a": [1]}, [], {}, "at least one"),
        ({"a": [1]}, ["a", ("a",)], {}, "twice"),
        ({"a": [1]}, ["a"], {"shards": 1}, "shards must"),
        ({"a": [1]}, ["a"], {"sampled": 0}, "sampled must"),
        ({"a": [1]}, ["a"], {"tolerance": 1}, "tolerance must"),
        ({"a": [1], "w": [-1]}, ["a"], {"weight": "w"}, "negative"),
        ({"a": [1], "b": [1, 2]}, ["a", "b"], {}, "differ in length"),
        ([{"a": 1}, {"b": 1}], ["a"], {}, "'a'"),
    ],
)
def test_what_cannot_be_analysed(rows: Any, keys: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        analyze(rows, keys, **options)


def test_rows_that_are_none(tmp_path: Path) -> None:
    for rows in (5, [1, 2], None):
        with pytest.raises(TypeError, match="rows must be"):
            analyze(rows, ["a"])
    (tmp_path / "short.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="line 3: has fewer fields"):
        analyze(tmp_path / "short.csv", ["b"])
    report = analyze({"a": [1, 2]}, ["a"])
    with pytest.raises(KeyError, match="was not analysed"):
        report["b"]


# --- real data ---


@needs_flights
def test_flights_have_good_and_bad_keys() -> None:
    seen: list[int] = []
    report = analyze(
        FLIGHTS,
        ["carrier", "origin", "tailnum", "time_hour", ("carrier", "flight")],
        shards=64, order="time_hour", progress=seen.append,
    )  # fmt: skip
    assert report.rows == seen[-1] == 334_264
    assert seen == sorted(seen)
    assert report["carrier"].distinct.value == 16
    assert report["carrier"].reasons[0].kind == "few values"
    assert report["origin"].top[0].value == "EWR"
    assert report["time_hour"].monotone is not None
    assert report["time_hour"].monotone.global_ > 0.99
    assert report["tailnum"].verdict == "good"
    assert report.best()[0].name == "tailnum"
    assert report["origin"].verdict == "bad"


def test_word_frequencies_are_a_power_law() -> None:
    wordfreq = pytest.importorskip("wordfreq")
    words = wordfreq.top_n_list("en", 2000)
    counts = np.array([round(1e6 * wordfreq.word_frequency(word, "en")) for word in words])
    values = [word for word, count in zip(words, counts.tolist(), strict=True) for _ in range(count)]
    report = one(values, shards=64)
    assert report.top[0].value == "the"
    assert report.top[0].rows == counts[0]
    assert report.reasons[0].kind == "heavy key"
    assert report.lorenz[10] > 0.6  # a tenth of the words is most of the text


@pytest.mark.parametrize("kind", ["near", "far", "mixed", "unsigned", "falling", "many"])
def test_numbers_counted_together_are_placed_as_one_by_one(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However integers are gathered, all figures are those of the same keys as a list of Python integers."""
    random = np.random.default_rng(8)
    near = random.integers(-500, 500, 30_000)
    numbers = {
        "near": near,
        "far": near * (1 << 40),
        "mixed": np.concatenate([near, near * (1 << 40), near + 7]),
        "unsigned": np.abs(near).astype(np.uint64) + np.uint64((1 << 64) - 5000),
        "falling": np.sort(near)[::-1].copy(),
        "many": random.integers(0, 1 << 62, 30_000),
    }[kind]
    size = 7_000
    monkeypatch.setattr(counter_module, "GATHERED", 10_000)
    blocks = [numbers[i : i + size] for i in range(0, len(numbers), size)]
    placements = counter_module.Placements(16)
    found, expected = (
        counter_module.Counter(counter_module.Candidate(("k",)), placements, False, False) for _ in range(2)
    )
    for block in blocks:
        found.add(Keys(block, None), None, None)
        expected.add(Keys(block.tolist(), None), None, None)
    found.finish()
    expected.finish()
    assert found.rows == expected.rows == len(numbers)
    for method in ("ring", "shards"):
        assert found.loads[method].tolist() == expected.loads[method].tolist()
    assert found.distinct(False) == expected.distinct(False)
    if kind != "many":
        assert found.heavy.keys.tolist() == expected.heavy.keys.tolist()
        assert found.heavy.amounts.tolist() == expected.heavy.amounts.tolist()
        tops = [int(key) for key in found.heavy.top(10)[0]]
        assert [found.names[key] for key in tops] == [expected.names[key] for key in tops]

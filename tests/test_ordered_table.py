"""The compiled table of a range map against a dict of starts: lookups, changes, what differs, tokens."""

import random
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash._ordered import RangeTable, Shape, range_table, token

NAMES = ("x", "y", "z")
# Long common beginnings, zero bytes, and more than 8 bytes of which the first 8 are equal.
PIECES = [b"a", b"b", b"\0", b"\xff", b"aaaaaaaa", b"aaaaaaaaaa", b"c"]
keys = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(b"".join) | st.binary(
    min_size=1, max_size=20
)
rows = st.dictionaries(keys, st.integers(0, 2), max_size=60)


def table_of(model, names=NAMES):
    starts = sorted(model)
    return range_table(RangeTable, Shape("bytes"), names, starts[1:], [model[start] for start in starts])


def check(table, model, asked):
    starts = sorted(model)
    assert table._starts() == starts
    assert table._numbers_all().tolist() == [model[start] for start in starts]
    assert table.cuts == len(starts) - 1
    asked = [
        *asked,
        *starts,
        *(start + b"\0" for start in starts),
        *(start[:-1] for start in starts),
        b"\xff" * 30,
    ]
    rows = [bisect_right(starts, key) - 1 for key in asked]
    assert [table.position(key) for key in asked] == rows
    assert [table._row(key) for key in asked] == rows
    assert table._positions(asked).tolist() == rows
    assert table._indexes(asked).tolist() == [model[starts[row]] for row in rows]
    owners = [table.numbered[model[starts[row]]] for row in rows]
    assert (
        table._owners(asked) == owners == [table.owner(key) for key in asked] == [table[key] for key in asked]
    )
    column = np.array(asked)  # numpy takes zero bytes at the end away
    assert table._positions(column).tolist() == [bisect_right(starts, key) - 1 for key in column.tolist()]
    for row in {0, len(starts) // 2, len(starts) - 1}:
        assert table._start(row) == starts[row]
        assert table._number(row) == model[starts[row]]
    assert table._end(len(starts) - 1) is None
    assert [table._end(row) for row in range(len(starts) - 1)][:50] == starts[1:51]
    assert table._total() == sum(token(start, table.numbered[n]) for start, n in model.items()) % 2**128


def edited(model, edits):
    changed = {**model, **edits}
    return {start: number for start, number in changed.items() if number >= 0}


def differences(before, after):
    return sorted(
        (start, before.get(start, -1), after.get(start, -1))
        for start in before.keys() | after.keys()
        if before.get(start) != after.get(start)
    )


@given(
    rows,
    st.lists(st.dictionaries(keys, st.integers(-1, 2), max_size=20), max_size=3),
    st.lists(keys, max_size=20),
    st.integers(0, 2),
)
def test_rows_and_changes(model, changes, asked, lowest):
    model = {**model, b"": lowest}
    table = table_of(model)
    check(table, model, asked)
    for edits in changes:
        after = edited(model, edits)
        changed = table._edited(sorted(edits.items()), NAMES)
        check(changed, after, asked)
        assert table._edits_to(changed) == differences(model, after)
        assert changed._edits_to(table) == differences(after, model)
        check(table, model, asked)  # the old one is as it was
        table, model = changed, after


@pytest.mark.parametrize("seed", range(3))
def test_many_leaves(seed):
    random_of = random.Random(seed)

    def key():
        if random_of.random() < 0.5:
            return b"".join(random_of.choices(PIECES, k=random_of.randint(1, 6)))
        return random_of.randbytes(random_of.randint(1, 12))

    model = {key(): random_of.randrange(3) for _ in range(9_000)} | {b"": 0}
    table = table_of(model)
    for count in (1, 300, 5_000, 20, 8_000, 9_000):
        starts = sorted(model)[1:]
        edits = {
            key() if random_of.random() < 0.4 or not starts else random_of.choice(starts): random_of.choice(
                [-1, -1, 0, 1, 2]
            )
            for _ in range(count)
        }
        after = edited(model, edits)
        changed = table._edited(sorted(edits.items()), NAMES)
        check(changed, after, [key() for _ in range(300)])
        assert table._edits_to(changed) == differences(model, after)
        table, model = changed, after
    everything = [(start, -1) for start in sorted(model) if start]
    check(table._edited(everything, NAMES), {b"": model[b""]}, [key()])


def test_a_long_chain_of_splits_stays_small():
    # 20,000 single splits: leaves divide, and what was left behind is not more than a new table needs
    random_of = random.Random(4)
    table = table_of({b"": 0})
    model = {b"": 0}
    for _ in range(20_000):
        start = random_of.randbytes(8)
        model[start] = 1
        table = table._edited([(start, 1)], NAMES)
    check(table, model, [random_of.randbytes(8) for _ in range(100)])
    assert table.memory_size < 1.3 * table_of(model).memory_size


def test_names_with_other_numbers():
    model = {b"": 0, b"b": 1, b"d": 2}
    same = range_table(RangeTable, Shape("bytes"), ("w", "z", "y", "x"), [b"b", b"d"], [3, 2, 1])
    assert table_of(model)._edits_to(same) == []
    assert same._edits_to(table_of(model)) == []
    other = range_table(RangeTable, Shape("bytes"), ("w", "z", "y", "x"), [b"b", b"d"], [0, 2, 1])
    assert table_of(model)._edits_to(other) == [(b"", 0, 0)]  # of each table's own names


@settings(max_examples=30)
@given(
    st.sets(st.integers(-(2**63), 2**64 - 1), max_size=40),
    st.lists(st.integers(-(2**63), 2**64 - 1), max_size=40),
)
def test_columns_of_integers(cuts, asked):
    shape = Shape("int")
    starts = sorted(cuts)
    table = range_table(
        RangeTable, shape, ("x",), [shape.encode(cut) for cut in starts], [0] * (len(starts) + 1)
    )
    for dtype in (np.int64, np.uint64, np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8):
        info = np.iinfo(dtype)
        column = np.array([key for key in [*asked, *starts, -1, 0, 7] if info.min <= key <= info.max], dtype)
        expected = [bisect_right(starts, key) for key in column.tolist()]
        assert table._positions(column).tolist() == expected
        assert table._positions(column.tolist()).tolist() == expected
        assert table._positions(np.repeat(column, 2)[::2]).tolist() == expected


def test_what_is_refused():
    shape = Shape("bytes")
    for starts, owners in (([b"b", b"a"], [0] * 3), ([b"a", b"a"], [0] * 3), ([b""], [0] * 2), ([b"a"], [0])):
        with pytest.raises(ValueError, match=r"start|rows"):
            range_table(RangeTable, shape, ("x",), starts, owners)
    with pytest.raises(ValueError, match="no name 1"):
        range_table(RangeTable, shape, ("x",), [], [1])
    table = table_of({b"": 0})
    with pytest.raises(TypeError, match="an array of int64 holds none"):
        table._positions(np.arange(3))
    with pytest.raises(TypeError, match="the keys of this map are bytes, not str") as error:
        table._positions([b"a", "b"])
    assert error.value.__notes__ == ["This was key 1 of 2."]
    for ask in (table._number, table._start):
        with pytest.raises(IndexError):
            ask(1)


def test_a_key_may_be_long_and_a_prefix_of_others():
    long = b"k" * 100_000
    model = {b"": 0, long: 1, long + b"\0": 2, long + b"a": 0, b"k": 1, b"k" * 8: 2, b"k" * 9: 0}
    check(table_of(model), model, [long + b"\0\0", long[:-1], b"k" * 10])


def test_tuples_and_text_beyond_ascii():
    shape = Shape(("str", "int"))
    keys = sorted([("a", -5), ("a", 5), ("a\0", 1), ("é", 0), ("é", 2**64 - 1)])
    table = range_table(RangeTable, shape, ("x",), [shape.encode(key) for key in keys], [0] * 6)
    asked = [("a", 0), ("", 0), ("é", 7), ("\U0010ffff", 0), ("a", -5)]
    expected = [bisect_right(keys, key) for key in asked]
    assert [table.position(key) for key in asked] == expected == table._positions(asked).tolist()
    words = range_table(RangeTable, Shape("str"), ("x",), ["é".encode(), "ö".encode()], [0] * 3)
    assert words._positions(["e", "é", "ñ", "ö", "\U0001f600"]).tolist() == [0, 1, 1, 2, 2]

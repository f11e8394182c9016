"""Range maps against a sorted dict of starts: rows, changes, plans at every door, and what is refused."""

import json
import pickle
from bisect import bisect_right
from datetime import UTC, date, datetime
from itertools import pairwise
from uuid import UUID

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from ringhash import (
    DuplicateNodeError,
    EmptyRingError,
    Handover,
    Plan,
    RangeMap,
    Ring,
    Router,
    StalePlanError,
    UnknownNodeError,
)
from ringhash.errors import OwnedRangesError, PinnedSplitError
from ringhash.ordered import OrderedSpace, Shape, prefix_end
from ringhash.placement import placement_from, verified
from ringhash.plan import Changes
from ringhash.ranges import Ranges

THREE = [(None, "db-1"), ("f", "db-2"), ("m", "db-1")]
texts = st.text("abz\0é", max_size=3)


def through_json(value):
    return json.loads(json.dumps(value))


class Model:
    """Starts and what begins there; None is the lowest."""

    def __init__(self, rows, nodes, pins=()):
        self.rows = dict(rows)
        self.nodes = set(nodes)
        self.pins = dict(pins)

    def copy(self):
        return Model(self.rows, self.nodes, self.pins)

    @property
    def starts(self):
        return sorted(self.rows, key=lambda start: (start is not None, start or ""))

    def at(self, key):
        starts = self.starts
        return starts[bisect_right(starts[1:], key)]

    def owner(self, key):
        return self.rows[self.at(key)]


class Machine(RuleBasedStateMachine):
    """Two maps of one history: the plan between any two of them is the brute-force difference."""

    maps = Bundle("maps")

    @initialize(target=maps, starts=st.sets(texts.filter(bool), max_size=4))
    def begin(self, starts):
        rows = [(None, "a"), *((start, "ab"[i % 2]) for i, start in enumerate(sorted(starts)))]
        return RangeMap(rows, ["a", "b", "c"], str), Model(rows, "abc")

    @rule(target=maps, pair=maps, at=texts, pin=st.none() | st.just("2030-01-01"))
    def split(self, pair, at, pin):
        ranges, model = pair
        if at == "" or at in model.rows:
            with pytest.raises(ValueError, match="already"):
                ranges.split(at)
            return pair
        after = model.copy()
        after.rows[at] = model.owner(at)
        if pin:
            after.pins[at] = pin
        split = ranges.split(at, pin=pin)
        assert not len(ranges.diff(split))
        assert ranges.digest != split.digest
        if pin is None:
            assert split.merge(at) == ranges
            assert split.merge(at).digest == ranges.digest
        return split, after

    @rule(target=maps, pair=maps, data=st.data())
    def merge(self, pair, data):
        ranges, model = pair
        if len(model.rows) < 2:
            return pair
        starts = model.starts
        i = data.draw(st.integers(1, len(starts) - 1))
        left, right = model.rows[starts[i - 1]], model.rows[starts[i]]
        node = data.draw(st.sampled_from(sorted(model.nodes))) if left != right else None
        if left != right:
            with pytest.raises(ValueError, match="name the node of both"):
                ranges.merge(starts[i], today=date(2040, 1, 1))
        if starts[i] in model.pins:
            with pytest.raises(PinnedSplitError, match="2030-01-01"):
                ranges.merge(starts[i], node, today=date(2030, 1, 1))
        after = model.copy()
        del after.rows[starts[i]]
        after.pins.pop(starts[i], None)
        after.rows[starts[i - 1]] = node or left
        return ranges.merge(starts[i], node, today=date(2030, 1, 2)), after

    @rule(target=maps, pair=maps, data=st.data())
    def move(self, pair, data):
        ranges, model = pair
        start = data.draw(st.sampled_from(model.starts))
        node = data.draw(st.sampled_from(sorted(model.nodes)))
        after = model.copy()
        after.rows[start] = node
        return ranges.move(start, node), after

    @rule(target=maps, pair=maps, name=st.sampled_from("cde"))
    def nodes(self, pair, name):
        ranges, model = pair
        after = model.copy()
        if name not in model.nodes:
            after.nodes.add(name)
            return ranges.changed(add=[name]), after
        if name in model.rows.values():
            with pytest.raises(OwnedRangesError, match="move them first"):
                ranges.changed(remove=[name])
            return pair
        after.nodes.remove(name)
        return ranges.changed(remove=[name]), after

    @rule(pair=maps, asked=st.lists(texts, max_size=8), low=st.none() | texts, high=st.none() | texts)
    def look(self, pair, asked, low, high):
        ranges, model = pair
        starts = model.starts
        assert [tuple(row) for row in ranges.rows] == [
            (start, end, model.rows[start]) for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        assert ranges.names == tuple(sorted(model.nodes))
        assert ranges.pins == model.pins
        asked = [*asked, *filter(None, starts)]
        owners = [model.owner(key) for key in asked]
        assert [ranges.owner(key) for key in asked] == owners == ranges.owner_many(asked)
        assert [ranges.names[i] for i in ranges.index_many(asked).tolist()] == owners
        assert [ranges.owner_at(ranges.position(key)) for key in asked] == owners
        assert [ranges.row_of(key).start for key in asked] == [model.at(key) for key in asked]
        if high is not None and high < (low or ""):
            with pytest.raises(ValueError, match="is below"):
                ranges.between(low, high)
            return
        rows = ranges.between(low, high)
        for key in asked:
            inside = (low is None or key >= low) and (high is None or key < high)
            holders = [row for row in rows if key >= (row.start or "") and (row.end is None or key < row.end)]
            assert [row.node for row in holders] == [model.owner(key)] * inside
        assert all(a.end == b.start for a, b in pairwise(rows))
        if rows:
            assert (rows[0].start or "", rows[-1].end) == (low or "", high)

    @rule(one=maps, other=maps, asked=st.lists(texts, max_size=8), data=st.data())
    def plan(self, one, other, asked, data):
        (before, was), (after, then) = one, other
        plan = before.diff(after)
        asked = [*asked, *filter(None, was.starts), *filter(None, then.starts), ""]
        for key in asked:
            move = plan.move_of(key)
            source, target = was.owner(key), then.owner(key)
            assert (source, target) == ((move.source, move.target) if move else (source, source))
        assert plan.mask(asked).tolist() == [was.owner(key) != then.owner(key) for key in asked]
        for a, b in pairwise(plan.moves):
            assert (a.range.end + 1, a.source, a.target) != (b.range.start, b.source, b.target)
        assert plan.fraction is None
        assert plan.empty == (before == after) == (before.digest == after.digest)
        for read in (plan, Plan.from_dict(through_json(plan.to_dict())), pickle.loads(pickle.dumps(plan))):
            assert read == plan
            assert verified(before, read) == after
        assert verified(after, plan.inverse()) == before
        # in the middle of a handover, the moves of some pieces are done
        done = [move for move in plan.moves if data.draw(st.booleans())]
        middle = before.middle(after, Ranges.of([move.range for move in done]))
        for key in asked:
            move = plan.move_of(key)
            assert middle.owner(key) == (then if move in done else was).owner(key)

    @rule(pair=maps)
    def write(self, pair):
        ranges, model = pair
        for again in (placement_from(through_json(ranges.to_dict())), pickle.loads(pickle.dumps(ranges))):
            assert again == ranges
            assert hash(again) == hash(ranges)
            assert again.digest == ranges.digest
        rows = [(start, model.rows[start]) for start in model.starts]
        made = RangeMap(rows, sorted(model.nodes), str)
        for at, until in model.pins.items():
            made = made.pin(at, until)
        assert made == ranges
        assert made.digest == ranges.digest


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_spaces_of_plans_are_cut_at_their_moves():
    before = RangeMap(THREE)
    plan = before.diff(before.split("h").move("h", "db-1"))
    assert plan.space == OrderedSpace(["h", "m"], "str")
    assert [tuple(move.range) for move in plan.moves] == [(1, 1)]
    assert plan.space.keys(plan.moves[0].range) == ("h", "m", None)
    assert [plan.space.address_of(position) for position in range(4)] == [b"", b"h", b"m", None]
    assert plan.space.address("h") == b"h"
    assert str(plan).splitlines()[1].split() == ["db-2", "db-1", "1", "1"]


@pytest.mark.parametrize(
    ("key", "other"),
    [
        (b"\0\xff", b"\1"),
        (-7, 2**64 - 1),
        (UUID(int=7), UUID(int=2**128 - 1)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)),
        (("a", -1, b"\0"), ("a", 0, b"")),
    ],
)
def test_every_kind_of_key(key, other):
    ranges = RangeMap([(None, "x"), (key, "y"), (other, "z")])
    assert ranges.owner_many([key, other]) == ["y", "z"] == [ranges.owner(key), ranges.owner(other)]
    assert [row.start for row in ranges.rows] == [None, key, other]
    assert placement_from(through_json(ranges.to_dict())) == ranges
    plan = ranges.diff(ranges.move(key, "x").merge(other, "x"))
    assert verified(ranges, Plan.from_dict(through_json(plan.to_dict()))).owner(other) == "x"
    assert plan.move_of(key).target == "x"


def test_rows_may_start_at_the_beginning_of_a_tuple():
    ranges = RangeMap([(None, "x"), (("acme",), "y"), (("acme", 7), "z")])
    assert str(ranges.keys) == "(str, int)"
    assert ranges.owner_many([("acm", 9), ("acme", -(2**63)), ("acme", 7), ("b", 0)]) == ["x", "y", "z", "z"]
    assert [row.node for row in ranges.prefix(("acme",))] == ["y", "z"]
    assert ranges.prefix(()) == list(ranges.rows)


def test_numpy_and_frames():
    ranges = RangeMap([(None, "x"), (10, "y")])
    for column in (np.array([9, 10]), np.array([9, 10], np.uint8), np.array([9, 10], object), iter([9, 10])):
        assert ranges.owner_many(column) == ["x", "y"]
    words = RangeMap([(None, "x"), ("f", "y")])
    assert words.owner_many(np.array(["a", "f"])) == ["x", "y"]
    with pytest.raises(TypeError, match="for one key call owner"):
        words.owner_many("f")
    with pytest.raises(TypeError, match=r"the keys of this map are int"):
        ranges.owner_many(np.array([9.0, 10.0]))
    with pytest.raises(ValueError, match="one dimension"):
        ranges.owner_many(np.array([[9, 10]]))


def test_arrow_columns():
    pyarrow = pytest.importorskip("pyarrow")
    words = RangeMap([(None, "x"), ("f", "y")])
    assert words.owner_many(pyarrow.array(["a", "f"])) == ["x", "y"]
    assert words.owner_many(pyarrow.chunked_array([["a"], ["f"]])) == ["x", "y"]


# --- traps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("03aaff", "03ab"), ("ffff", None), ("", None), ("61", "62"), ("c3a9", "c3aa"), ("6162ffff", "6163")],
)
def test_the_end_of_a_prefix(prefix, end):
    # the upper bound of a prefix that ends with 0xFF reached into the neighbouring one
    above = prefix_end(Shape("bytes"), bytes.fromhex(prefix))
    assert (above and above.hex()) == end


def test_a_prefix_holds_its_keys_and_no_others():
    keys = [bytes.fromhex(key) for key in ("03aaff", "03aaff00", "03ab", "03ab00", "03abfe")]
    ranges = RangeMap([(None, "x")], keys=bytes)

    def under(prefix):
        return [
            key.hex()
            for row in ranges.prefix(prefix)
            for key in keys
            if key >= (row.start or b"") and (row.end is None or key < row.end)
        ]

    assert under(bytes.fromhex("03aaff")) == ["03aaff", "03aaff00"]
    assert under(b"") == [key.hex() for key in keys]
    assert RangeMap([(None, "x")], keys=str).prefix("\ud7ff")[0].end == "\ue000"
    assert RangeMap([(None, "x")], keys=str).prefix("a\U0010ffff")[0].end == "b"
    for shape, last in (("int", 2**64 - 1), ("uuid", UUID(int=2**128 - 1))):
        assert prefix_end(Shape((shape, "str")), (last,)) is None
        assert prefix_end(Shape(("str", shape)), ("a", last)) == ("a\0",)
    with pytest.raises(TypeError, match="have no prefix"):
        RangeMap([(None, "x")], keys=int).prefix(3)


def test_splits_at_bounds_that_exist_and_merges_of_two_nodes():
    ranges = RangeMap([(None, "s1"), ("m", "s2")])
    for at in ("m", ""):
        with pytest.raises(ValueError, match="already"):
            ranges.split(at)
    with pytest.raises(ValueError, match="twice"):
        ranges.split("x", "x")
    with pytest.raises(ValueError, match="name the node of both"):
        ranges.merge("m")
    assert ranges.merge("m", "s2").rows == [(None, None, "s2")]
    assert ranges.split("z").merge("z") == ranges
    one_key = ranges.split("x", "x\0")  # the range from x to x and NUL holds x alone
    for at in ("x", "x\0"):
        with pytest.raises(ValueError, match="already"):
            one_key.split(at)
    with pytest.raises(ValueError, match="none before it"):
        ranges.merge(None)
    with pytest.raises(ValueError, match="no range starts at 'n'"):
        ranges.merge("n")


def test_no_split_falls_inside_of_a_unit():
    nodes = ["x", "y"]
    sample = [("t1", 5, 1), ("t1", 5, 2), ("t1", 5, 3), ("t1", 6, 1)]
    ranges = RangeMap.presplit(sample, nodes, 2, unit=2)
    assert [row.start for row in ranges.rows] == [None, ("t1", 6)]
    with pytest.raises(ValueError, match="inside a unit: the first 2 parts stay together; write"):
        ranges.split(("t1", 5, 2))
    with pytest.raises(ValueError, match="inside a unit"):
        RangeMap([(None, "x"), (("t1", 5, 2), "y")], unit=2)
    assert ranges.split(("t1", 5)).row_of(("t1", 5, 9)).start == ("t1", 5)
    with pytest.raises(ValueError, match="1 distinct units of 1 parts, too few for 2 ranges"):
        RangeMap.presplit(sample, nodes, 2, unit=1)
    # the control: without a unit the cut falls between the lines of one order
    assert RangeMap.presplit(sample, nodes, 2).rows[1].start == ("t1", 5, 3)
    for wrong, error in ((0, ValueError), (4, ValueError), (True, TypeError), ("2", TypeError)):
        with pytest.raises(error):
            RangeMap([(None, "x")], keys=(str, int, int), unit=wrong)
    with pytest.raises(ValueError, match="only keys that are tuples"):
        RangeMap([(None, "x")], keys=str, unit=1)


def test_values_that_are_equal_in_python_are_no_keys_of_one_map():
    ranges = RangeMap([(None, "x"), (1, "y")])
    for wrong in (1.0, True, "1", b"1"):
        with pytest.raises(TypeError, match="the keys of this map are int"):
            ranges.owner(wrong)
        with pytest.raises(TypeError, match="the keys of this map are int"):
            ranges.owner_many([1, wrong])
    with pytest.raises(TypeError, match="one shape"):
        RangeMap([(None, "x"), (1, "y"), ("a", "z")])
    with pytest.raises(TypeError, match="a key must be"):
        RangeMap([(None, "x"), (1.0, "y")])


def test_a_lone_surrogate_changes_nothing():
    ranges = RangeMap(THREE)
    for call in (ranges.owner, ranges.split, lambda key: ranges.owner_many([key])):
        with pytest.raises(UnicodeEncodeError):
            call("\ud800")


# --- many nodes, plans, routers ----------------------------------------------------------------------


def test_what_is_refused():
    with pytest.raises(ValueError, match="row 2 starts at 'b', which is not above 'c'"):
        RangeMap([(None, "x"), ("c", "y"), ("b", "z")])
    with pytest.raises(ValueError, match="the first row starts at None"):
        RangeMap([("a", "x")])
    with pytest.raises(ValueError, match="the first row starts at None"):
        RangeMap([(None, "x"), (None, "y")], keys=str)
    with pytest.raises(ValueError, match="nothing shows what the keys are"):
        RangeMap([(None, "x")])
    with pytest.raises(EmptyRingError):
        RangeMap([], keys=str)
    with pytest.raises(UnknownNodeError, match="row 1 is of 'z'"):
        RangeMap([(None, "x"), ("a", "z")], nodes=["x"])
    with pytest.raises(DuplicateNodeError):
        RangeMap([(None, "x")], nodes=["x", "x"], keys=str)
    for wrong in ("abc", {None: "x"}, [("a",)], [(None, 3)], 7):
        with pytest.raises(TypeError):
            RangeMap(wrong, keys=str)
    ranges = RangeMap(THREE)
    with pytest.raises(UnknownNodeError):
        ranges.move("f", "db-9")
    with pytest.raises(ValueError, match="no range starts at 'g'"):
        ranges.move("g", "db-1")
    with pytest.raises(ValueError, match="moved twice"):
        ranges.move([("f", "db-1"), ("f", "db-2")])
    assert ranges.move({"f": "db-1", None: "db-2"}).owner_many(["a", "g"]) == ["db-2", "db-1"]
    with pytest.raises(IndexError):
        ranges.owner_at(3)
    with pytest.raises(TypeError):
        ranges.diff(Ring(["a"]))
    with pytest.raises(ValueError, match="read keys alike"):
        ranges.diff(RangeMap([(None, "db-1")], keys=int))
    with pytest.raises(AttributeError):
        ranges.unit = 3


def test_plans_that_were_edited_or_are_stale():
    before = RangeMap(THREE)
    plan = before.diff(before.split("h").move("h", "db-1"))
    with pytest.raises(StalePlanError):
        verified(before.split("z"), plan)
    for rows in (
        (),
        (("h", None, "db-2"),),
        (("h", "db-1", "db-2"),),
        (("h", None, "db-9"),),
        ((None, "db-1", None),),
        (("h", None, "db-1"), ("h", None, "db-1")),
        (("h", None, ["db-1", "x"]),),
        ((7, None, "db-1"),),
        (("h", None, "db-1"), ("", None, "db-1")),
    ):
        edited = Plan(
            before=plan.before,
            after=plan.after,
            space=plan.space,
            changes=Changes((), rows),
            ranges=(plan._starts, plan._ends),
            owners=(plan._source_index, plan._target_index),
            names=(plan._sources, plan._targets),
        )
        with pytest.raises((ValueError, StalePlanError)):
            verified(before, edited)
    data = plan.to_dict()
    data["moves"] = [[0, 0, "db-1", "db-2"]]
    with pytest.raises(ValueError, match="edited"):
        verified(before, Plan.from_dict(data))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keys", "float"), ("keys", ["str", 7]), ("unit", 1), ("rows", []), ("rows", [["a", "db-1"]]), ("rows", [[None]]),
        ("rows", [[None, "db-9"]]), ("rows", [[None, "db-1", "2030-01-01"]]), ("rows", [[None, "db-1"], ["b", "db-1", 7]]),
        ("rows", [[None, "db-1"], ["b", "db-1"], ["a", "db-1"]]), ("nodes", [7]), ("version", 2), ("extra", 1),
    ],
)  # fmt: skip
def test_documents_that_are_wrong(field, value):
    data = through_json(RangeMap(THREE).to_dict())
    data[field] = value
    with pytest.raises(ValueError, match="range_map"):
        placement_from(data, "range_map")


def test_a_router_over_a_range_map():
    router = Router(RangeMap(THREE))
    plan = router.plan_to(router.placement.split("h").move("h", "db-1"))
    assert router.owner("i") == "db-2"
    router.apply(plan)
    assert router.owner("i") == "db-1"
    assert router.epoch == 1
    router.apply(router.plan_to(router.placement.split("x")))  # a change without moves is a change
    assert router.epoch == 2
    router.update(add=["db-3"])
    assert router.names == ("db-1", "db-2", "db-3")
    with pytest.raises(OwnedRangesError):
        router.update(remove=["db-1"])
    assert Router.from_dict(through_json(router.to_dict())) == router
    assert router.owner_many(["a", "g"]) == ["db-1", "db-2"]
    router.pin("a", "db-3")
    assert router.owner_many(["a", "b"]) == ["db-3", "db-1"]
    assert router.owner("a") == "db-3"


def test_a_handover_of_ranges():
    router = Router(RangeMap(THREE))
    after = router.placement.split("h").move("h", "db-1").move(None, "db-2")
    asked = ["a", "g", "i", "z"]
    seen = []

    def stop(piece):
        seen.append((piece.source, piece.target, [key for key in asked if key in piece]))
        assert router.owner_many(asked) == [router.owner(key) for key in asked]

    plan = router.plan_to(after)
    Handover(router, plan, stop=stop, start=lambda piece: None).run()
    assert router.placement == after
    assert sorted(seen) == [("db-1", "db-2", ["a"]), ("db-2", "db-1", ["i"])]


def test_presplit_is_even_or_says_why_not():
    words = [f"{chr(97 + i % 26)}{i * 7919 % 1000:03}" for i in range(5_000)]
    ranges = RangeMap.presplit(words, {"x": 1, "y": 2}, 48, tolerance=0.1)
    loads = np.bincount([ranges.position(word) for word in words], minlength=48)
    assert loads.max() <= 1.1 * loads.mean()
    owned = np.bincount(ranges.index_many(words), minlength=2)
    assert owned[1] / owned[0] == pytest.approx(2, rel=0.1)
    with pytest.raises(ValueError, match=r"the heaviest key, 'hot', alone carries \d+\.\d+ times the mean"):
        RangeMap.presplit([*words, *["hot"] * 5_000], ["x"], 48, tolerance=0.1)
    uneven = RangeMap.presplit([*words, *["hot"] * 5_000], ["x"], 48)
    assert len(uneven.rows) == 48
    by_bytes = RangeMap.presplit(["a", "b", "c", "d"], ["x", "y"], 2, weight=lambda key: {"a": 6}.get(key, 2))
    assert [row.start for row in by_bytes.rows] == [None, "b"]
    with pytest.raises(ValueError, match="too few for 5 ranges"):
        RangeMap.presplit(["a", "b"], ["x"], 5)
    for weight in ([1], [1, -1], [1, float("nan")]):
        with pytest.raises(ValueError, match="weight"):
            RangeMap.presplit(["a", "b"], ["x"], 1, weight=weight)


def test_what_is_shared_and_what_it_costs():
    rows = [(None, "x"), *((f"{i:08}", "x") for i in range(1, 20_001))]
    ranges = RangeMap(rows, ["x", "y"])
    assert ranges.digest
    after = ranges.split("00010000x").move("00010000x", "y")
    assert after._total_rows is not None  # the digest went along with the change
    plan = ranges.diff(after)
    assert (plan.space.size, len(plan)) == (3, 1)
    assert RangeMap.from_dict(after.to_dict()).digest == after.digest
    assert after.memory_size / 20_000 < 8 + 12

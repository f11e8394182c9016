"""Directories against a dict of entries: lookups, changes, plans at every door, nodes that are down."""

import json
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from ringhash import (
    Directory,
    DuplicateNodeError,
    Handover,
    NoNodeAvailableError,
    Plan,
    RangeMap,
    Ring,
    Router,
    StalePlanError,
    UnknownNodeError,
    assign,
)
from ringhash._core import EntryTable, xxh3_64
from ringhash.errors import NoWalkError, OwnedEntriesError, OwnedRangesError
from ringhash.placement import placement_from, verified
from ringhash.placements.entry_space import EntrySpace
from ringhash.plan import Changes
from ringhash.ranges import Ranges
from ringhash.space import HashSpace

KEYS = [*(f"k{i}" for i in range(12)), b"\xff\0", ""]
keys = st.sampled_from(KEYS)


def through_json(value):
    return json.loads(json.dumps(value))


def defaults():
    return [
        Ring(["a", "b", "c"], vnodes=4, seed=7, hash_tags=True),
        assign(8, ["a", "b", "c"]),
        RangeMap([(None, "a"), (b"k3", "b"), (b"k5", "a")], ["a", "b", "c"]),
    ]


class Machine(RuleBasedStateMachine):
    """Two directories of one history: the plan between any two of them is the brute-force difference."""

    directories = Bundle("directories")

    @initialize(
        target=directories,
        kind=st.integers(0, 2),
        entries=st.dictionaries(keys, st.sampled_from("abx"), max_size=4),
    )
    def begin(self, kind, entries):
        self.is_map = kind == 2
        entries = {self.key(key): node for key, node in entries.items()}
        return Directory(defaults()[kind], entries, nodes=["x"]), {
            self.bytes(key): node for key, node in entries.items()
        }

    def key(self, key):
        return self.bytes(key) if self.is_map else key

    @staticmethod
    def bytes(key):
        return key.encode() if isinstance(key, str) else key

    @rule(
        target=directories,
        pair=directories,
        changes=st.dictionaries(keys, st.none() | st.sampled_from("abcx"), max_size=4),
    )
    def edit(self, pair, changes):
        directory, model = pair
        after = dict(model)
        for key, node in changes.items():
            key = self.key(key)
            if node is None and self.bytes(key) in after:
                directory = directory.without_entries(key)
                del after[self.bytes(key)]
            elif node is None:
                with pytest.raises(LookupError, match="has no entry"):
                    directory.without_entries(key)
            elif node not in directory:
                with pytest.raises(UnknownNodeError):
                    directory.with_entries({key: node})
            elif node in directory.alone and after.get(self.bytes(key)) != node:
                with pytest.raises(OwnedEntriesError):
                    directory.with_entries({key: node})
            else:
                directory = directory.with_entries({key: node})
                after[self.bytes(key)] = node
        return directory, after

    @rule(target=directories, pair=directories, key=keys, node=st.sampled_from("cxyz"))
    def dedicate(self, pair, key, node):
        directory, model = pair
        key = self.key(key)
        others = [other for other, name in model.items() if name == node and other != self.bytes(key)]
        if others:
            with pytest.raises(OwnedEntriesError):
                directory.dedicate(key, node)
            return pair
        after = directory.dedicate(key, node)
        assert node not in after.default
        assert node in after.alone
        return after, {**model, self.bytes(key): node}

    @rule(target=directories, pair=directories, name=st.sampled_from("cde"))
    def nodes(self, pair, name):
        directory, model = pair
        if name in directory:
            if name in model.values():
                with pytest.raises(OwnedEntriesError):
                    directory.changed(remove=[name])
                return pair
            return directory.changed(remove=[name]), model
        return directory.changed(add=[name]), model

    def owner(self, directory, model, key):
        return model.get(self.bytes(key)) or directory.default.owner(key)

    @rule(pair=directories)
    def look(self, pair):
        directory, model = pair
        asked = [self.key(key) for key in KEYS]
        owners = [self.owner(directory, model, key) for key in asked]
        assert [directory.owner(key) for key in asked] == owners == directory.owner_many(asked)
        assert [directory[key] for key in asked] == owners
        assert [directory.names[i] for i in directory.index_many(asked).tolist()] == owners
        assert [directory.owner_at(directory.position(key)) for key in asked] == owners
        assert directory.space.positions(asked).tolist() == [directory.position(key) for key in asked]
        assert [directory.spans.owner_at(directory.position(key)) for key in asked] == owners
        assert {self.bytes(key): entry.node for key, entry in directory.entries.items()} == model
        assert len(directory.entries) == len(model)
        total = 0
        for key, name in model.items():
            record = len(key).to_bytes(4, "little") + key + len(name).to_bytes(4, "little") + name.encode()
            total += xxh3_64(record, 0) + (xxh3_64(record, 1) << 64)
        assert directory._table_of._total(tuple(seat.node for seat in directory.seats)) == total % 2**128
        for again in (
            placement_from(through_json(directory.to_dict())),
            pickle.loads(pickle.dumps(directory)),
        ):
            assert again == directory
            assert again.digest == directory.digest
            assert hash(again) == hash(directory)

    @rule(one=directories, other=directories, data=st.data())
    def plan(self, one, other, data):
        (before, was), (after, then) = one, other
        plan = before.diff(after)
        asked = [self.key(key) for key in KEYS]
        assert plan.fraction is None
        assert plan.empty == (before == after) == (before.digest == after.digest)
        for key in asked:
            move = plan.move_of(key)
            source, target = self.owner(before, was, key), self.owner(after, then, key)
            assert (source, target) == ((move.source, move.target) if move else (source, source))
        kept = before.kept(plan)
        for key in asked:
            default_moves = before.default.owner(key) != after.default.owner(key)
            same = was.get(self.bytes(key)) if was.get(self.bytes(key)) == then.get(self.bytes(key)) else None
            if same and default_moves:
                assert kept[self.bytes(key).decode() if key != b"\xff\0" else key] == same
        for a, b in pairwise(plan.moves):
            assert (a.range.end + 1, a.source, a.target) != (b.range.start, b.source, b.target)
        for read in (plan, Plan.from_dict(through_json(plan.to_dict()))):
            assert read == plan
            assert verified(before, read) == after
        assert verified(after, plan.inverse()) == before
        done = [move for move in plan.moves if data.draw(st.booleans())]
        middle = before.middle(after, Ranges.of([move.range for move in done]))
        for key in asked:
            side, model = (after, then) if plan.move_of(key) in done else (before, was)
            assert middle.owner(key) == self.owner(side, model, key)
        assert middle.owner_many(asked) == [middle.owner(key) for key in asked]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)


def test_keys_count_by_their_bytes():
    ring = Ring(["a", "b"], hash_tags=True)
    directory = Directory(ring, {"{acme}:1": "a", 7: "b"})
    assert [directory.owner(key) for key in ("acme", b"acme", "x{acme}y", "{acme}:2")] == ["a"] * 4
    assert (
        directory.owner(7)
        == directory.owner(np.int64(7))
        == directory.owner((7).to_bytes(8, "little"))
        == "b"
    )
    assert directory.entry("7") is None
    with pytest.raises(ValueError, match="is given twice, for 'a' and for 'b'"):
        directory.with_entries({"{t}1": "a", "{t}2": "b"})


@pytest.mark.parametrize("hashes", [0, 0xFFFFFFFFFFFFFFFF])
def test_keys_whose_hashes_meet_are_two_keys(hashes):
    # mask 0: every key has the same hash
    table = EntryTable([b"a", b"b", b"aa"], [0, 1, 2], mask=hashes)
    assert [table.find(key) for key in (b"a", b"b", b"aa", b"c")] == [0, 1, 2, -1]
    assert (
        table.with_changes([(b"c", 3)], [b"b"])._differences(table, tuple("wxyz"), tuple("wxyz"))
        == ([(b"c", "z", None), (b"b", None, "x")])
        or hashes
    )


def test_many_entries_share_what_does_not_change():
    names = {f"tenant-{i}": "ab"[i % 2] for i in range(100_000)}
    directory = Directory(Ring(["a", "b", "c"]), names)
    assert directory.digest
    after = directory.with_entries({f"tenant-{i}": "c" for i in range(50)} | {"new": "c"}).without_entries(
        "tenant-99"
    )
    plan = directory.diff(after)
    assert len(plan.changes.rows) == 52
    assert verified(directory, plan) == after
    assert (
        Directory(after.default, {key: entry.node for key, entry in after.entries.items()}).digest
        == after.digest
    )
    assert after.owner_many(["tenant-0", "tenant-51", "new"]) == ["c", "b", "c"]
    assert directory._table_of.memory_size / 100_000 < 12 + 18
    assert len(after.entries_of("c")) == 51


# --- versions ---------------------------------------------------------------------------------------


def test_a_version_is_the_epoch_that_wrote_the_entry():
    # An entry that was removed and made again is newer than each before it: else an old client keeps its own.
    router = Router(Directory(Ring(["s1", "s2", "s3"])))
    versions = []
    for node in ("s1", "s2", None, "s3"):
        now = router.placement
        router.apply(router.plan_to(now.with_entries({"t1": node}) if node else now.without_entries("t1")))
        entry = router.placement.entry("t1")
        versions.append(entry and entry.version)
    assert versions == [1, 2, None, 4]
    router.apply(router.plan_to(router.placement.with_entries({"t2": "s1"})))
    assert (router.placement.entry("t1").version, router.placement.entry("t2").version) == (4, 5)
    again = Router.from_dict(through_json(router.to_dict()))
    assert again.placement.entry("t1") == router.placement.entry("t1")
    assert router.placement == Directory(
        Ring(["s1", "s2", "s3"]), {"t1": "s3", "t2": "s1"}
    )  # versions do not count


def test_a_handover_writes_versions_too():
    router = Router(Directory(Ring(["s1", "s2"]), {"t1": "s1"}))
    seen = []
    plan = router.plan_to(router.placement.with_entries({"t1": "s2"}).changed(add=["s3"]))

    def stop(piece):
        seen.append((piece.source, piece.target, "t1" in piece))
        assert router.owner("t1") == router.owner_many(["t1"])[0]

    Handover(router, plan, stop=stop, start=lambda piece: None).run()
    assert ("s1", "s2", True) in seen
    assert router.owner("t1") == "s2"
    assert router.placement.entry("t1").version == router.epoch


# --- nodes that are down ------------------------------------------------------------------------------


@pytest.mark.parametrize("default", range(3))
@pytest.mark.parametrize("fallback", [False, True])
def test_an_entry_of_a_node_that_is_down(default, fallback):
    placement = defaults()[default]
    asked = [key.encode() for key in KEYS if isinstance(key, str)]
    other = next(key for key in asked if placement.owner(key) != "b" and key != b"k0")
    up = next(key for key in asked if key not in (b"k0", other) and placement.owner(key) == "b")
    router = Router(Directory(placement, {b"k0": "x", up: "a"}, nodes=["x"], fallback=fallback))
    router.mark_down("x")
    assert router.owner(other) == placement.owner(other)
    assert router.owner_many([other, up]) == [placement.owner(other), "a"]
    if fallback:
        assert router.owner(b"k0") == placement.owner(b"k0") == router.owner_many([b"k0"])[0]
    else:
        for call in (router.owner, lambda key: router.owner_many([other, key])):
            with pytest.raises(NoNodeAvailableError, match="an entry for 'x', which is down"):
                call(b"k0")
    router.mark_down("b")
    assert router.owner(up) == "a" == router.owner_many([up])[0]  # its node is up, whoever else is down
    router.mark_up("x")
    assert router.owner(b"k0") == "x"


def test_the_keys_of_a_ring_below_walk_on():
    ring = Ring(["a", "b", "c"])
    router = Router(Directory(ring, {"acme": "a"}))
    router.mark_down("a")
    key = next(key for key in map(str, range(100)) if ring.owner(key) == "a")
    assert router.owner(key) == ring.without("a").owner(key) == router.owner_many([key])[0]
    with pytest.raises(NoNodeAvailableError):
        router.owner("acme")
    with pytest.raises(NoWalkError):
        router.owners("acme", 2)
    for call in (router.placement.walk, lambda key: router.placement.owners(key, 1)):
        with pytest.raises(NoWalkError):
            call("acme")


def test_pins_over_a_directory():
    router = Router(Directory(Ring(["a", "b"]), {"acme": "a"}))
    router.pin("acme", "b")
    assert router.owner("acme") == "b" == router.owner_many(["acme"])[0]
    router.unpin("acme")
    assert router.owner("acme") == "a"


# --- spaces -------------------------------------------------------------------------------------------


def test_the_space_of_a_plan():
    before = Directory(Ring(["a", "b"]), {"acme": "a", "beta": "b"})
    plan = before.diff(before.with_entries({"acme": "b", "new": "a"}))
    assert plan.space.entries == (b"acme", b"new")
    [*_, last] = plan.moves
    assert plan.space.keys(last.range) is not None
    assert plan.space.keys(plan.moves[0].range).single[0] == "acme"
    assert plan.space.address("acme") == b"\1acme"
    assert plan.space.address("other")[:1] == b"\0"
    size = plan.space.size
    addresses = [plan.space.address_of(position) for position in (0, 1, 2**32 - 1, 2**32, 2**32 + 1)]
    assert addresses == sorted(addresses)
    assert plan.space.address_of(size) is None
    assert EntrySpace.from_dict(through_json(plan.space.to_dict())) == plan.space
    with pytest.raises(IndexError):
        plan.space.address_of(size + 1)
    for wrong in ([7], ["b", "a"], ["a", "a"], [{"hex": "x"}]):
        with pytest.raises(ValueError, match=r"space\.entries"):
            EntrySpace.from_dict({**through_json(plan.space.to_dict()), "entries": wrong})


def test_what_is_refused():
    ring = Ring(["a", "b"])
    directory = Directory(ring, {"acme": "a"})
    for default in (directory, "ring", None):
        with pytest.raises(TypeError):
            Directory(default)
    with pytest.raises(TypeError, match="keys that are str or bytes"):
        Directory(RangeMap([(None, "a")], keys=(str, int)))
    with pytest.raises(DuplicateNodeError):
        Directory(ring, nodes=["a"])
    with pytest.raises(UnknownNodeError):
        Directory(ring, {"acme": "z"})
    with pytest.raises(TypeError):
        Directory(ring, [("acme", "a")])
    with pytest.raises(TypeError):
        Directory(ring, {1.5: "a"})
    with pytest.raises(TypeError):
        directory.pack("abc", "a")
    with pytest.raises(OwnedRangesError):
        Directory(RangeMap([(None, "a")], keys=str)).dedicate("acme", "a")
    with pytest.raises(TypeError):
        directory.diff(ring)
    with pytest.raises(ValueError, match="fallback"):
        directory.diff(Directory(ring, {"acme": "a"}, fallback=True))
    with pytest.raises(ValueError, match="read keys alike"):
        directory.diff(Directory(Ring(["a", "b"], seed=1), {"acme": "a"}))
    with pytest.raises(AttributeError):
        directory.default = ring


def test_plans_that_were_edited_or_are_stale():
    before = Directory(Ring(["a", "b"]), {"acme": "a"})
    plan = before.diff(before.with_entries({"acme": "b"}).dedicate("beta", "c"))
    with pytest.raises(StalePlanError):
        verified(before.with_entries({"acme": "b"}), plan)
    for rows in (
        (),
        (("acme", "a", "b"),),
        ((["entry", "acme"], None, "b"),),
        ((["entry", "acme"], "a", "z"),),
        ((["entry", "acme"], "a", "b"), (["entry", "acme"], "a", "b")),
        ((["entry", 7], "a", "b"),),
        ((["entry", "acme"], "a", 7),),
        ((["apart", "c"], "alone", None),),
        ((["apart", "z"], None, "shared"),),
        ((["apart", "c"], None, "else"),),
        ((["default", "vnodes"], 1, 2),),
    ):
        edited = Plan(
            before=plan.before,
            after=plan.after,
            space=plan.space,
            changes=Changes(plan.changes.nodes, rows),
            ranges=(plan._starts, plan._ends),
            owners=(plan._source_index, plan._target_index),
            names=(plan._sources, plan._targets),
        )
        with pytest.raises((ValueError, StalePlanError)):
            verified(before, edited)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default", {}), ("entries", [["acme"]]), ("entries", [["acme", "z"]]), ("entries", [["acme", "a", -1]]),
        ("entries", [["acme", "a"], ["acme", "b"]]), ("entries", [[7, "a"]]), ("nodes", [7]), ("nodes", {}), ("fallback", 1),
        ("nodes", [{"name": "a"}]), ("nodes", [{"name": "x", "alone": 1}]), ("extra", 1),
    ],
)  # fmt: skip
def test_documents_that_are_wrong(field, value):
    data = through_json(Directory(Ring(["a", "b"]), {"acme": "a"}).to_dict())
    data[field] = value
    with pytest.raises(ValueError, match="directory"):
        placement_from(data, "directory")


def test_a_reader_keeps_what_it_has():
    before = Directory(Ring(["a", "b"]), {"acme": "a"})
    after = before.with_entries({"acme": "b"})
    assert (before.owner("acme"), after.owner("acme")) == ("a", "b")
    assert before.space == EntrySpace(HashSpace(), [b"acme"])

"""`UHashRing` beside the real `uhashring.HashRing`: a script that changes its import sees no difference."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ringhash import UnknownNodeError
from ringhash.interop import UHashPlacement, UHashRing

HashRing: Any = pytest.importorskip("uhashring").HashRing

KEYS: list[object] = [f"user:{i}" for i in range(2000)]
KEYS += ["", "é→漢", "a-0", "b-1", 7, -1, None, 1.5, True, b"bytes", ("a", 1)]

ONE_KEY = (
    "get", "get_key", "hashi", "get_node", "get_node_hostname", "get_node_instance", "get_node_port",
    "get_node_pos", "get_node_weight", "get_server", "__getitem__",
)  # fmt: skip

INSTANCE = object()
NODES: dict[str, Any] = {
    "one": "cache-1",
    "names": [f"10.0.0.{i}:11211" for i in range(12)],
    "weights": {"a": 1, "b": 2, "c": 3, "d": 1, "e": 5},
    "a weight of 0": {"a": 1, "b": 0, "c": 2},
    "configurations": {
        "a": {"hostname": "10.0.0.1", "port": 11211, "instance": INSTANCE},
        "b": {"hostname": "10.0.0.2", "port": 11212, "weight": 3, "unknown": 1},
        "c": {"vnodes": 7},
        "d": {"vnodes": 100, "weight": 2, "instance": INSTANCE},
        "e": {"nodename": "another"},
        "f": 2,
        "g": {},
    },
    "none": [],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "vnodes": {"vnodes": 20},
    "ketama": {"hash_fn": "ketama"},
    "ketama vnodes": {"hash_fn": "ketama", "vnodes": 10},
    "ketama replicas": {"hash_fn": "ketama", "replicas": 2},
    "weights": {"weight_fn": lambda **conf: len(conf["nodename"]) % 3 + 1},
}


def same(ours: UHashRing, theirs: Any, keys: list[object] = KEYS) -> None:
    """Whatever is asked, both answer alike."""
    for name in ONE_KEY:
        mine, real = getattr(ours, name), getattr(theirs, name)
        assert [mine(key) for key in keys] == [real(key) for key in keys], name
    for key in keys[:25]:
        assert list(ours.range(key)) == list(theirs.range(key))
        assert list(ours.iterate_nodes(key)) == list(theirs.iterate_nodes(key))
        assert list(ours.range(key, size=2)) == list(theirs.range(key, size=2))
    for key in keys[:5]:
        assert list(ours.range(key, unique=False)) == list(theirs.range(key, unique=False))
        assert list(ours.range(key, 5, False)) == list(theirs.range(key, 5, False))
        assert list(ours.iterate_nodes(key, False)) == list(theirs.iterate_nodes(key, False))
    assert ours.conf == ours.nodes == theirs.conf
    assert list(ours.get_nodes()) == list(theirs.get_nodes())
    assert ours.get_instances() == theirs.get_instances()
    assert ours.get_points() == theirs.get_points()
    assert ours.distribution == theirs.distribution
    assert ours.ring == ours.continuum == theirs.continuum
    assert ours.size == theirs.size


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_every_method_answers_as_theirs(nodes: Any, options: dict[str, Any]) -> None:
    same(UHashRing(nodes, **options), HashRing(nodes, **options))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_nodes_come_and_go_as_theirs(options: dict[str, Any]) -> None:
    random.seed(11)
    ours, theirs = UHashRing(["a"], **options), HashRing(["a"], **options)
    for step in range(16):
        there = list(theirs.get_nodes())
        name = f"node-{random.randrange(8)}"
        if name in there and random.random() < 0.5:
            for ring in (ours, theirs):
                ring.remove_node(name) if step % 2 else ring.__delitem__(name)
        else:
            conf = random.choice(
                [1, 3, {"weight": 2, "port": step}, {"weight": 1, "vnodes": 5}, {"instance": step}]
            )
            vnodes = theirs.conf[name]["vnodes"] if name in there else None
            if name in there and isinstance(conf, dict) and "vnodes" not in conf:
                # Here uhashring forgets the vnodes that the node had, and does not rebuild the ring.
                conf = {**conf, "vnodes": vnodes}
            elif name in there and isinstance(conf, int):
                conf = {"weight": conf, "vnodes": vnodes}
            for ring in (ours, theirs):
                ring.add_node(name, conf) if step % 2 else ring.__setitem__(name, conf)
        same(ours, theirs, KEYS[:60])


def test_weights_are_asked_again() -> None:
    heavy = {"b"}

    def weight(**conf: Any) -> int:
        return 4 if conf["nodename"] in heavy else 1

    ours, theirs = UHashRing(["a", "b", "c"], weight_fn=weight), HashRing(["a", "b", "c"], weight_fn=weight)
    same(ours, theirs)
    heavy.symmetric_difference_update("bc")
    before = ours.placement
    for ring in (ours, theirs):
        ring.regenerate()
    same(ours, theirs)
    assert before != ours.placement


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for nodes in (["a", "b"], []):
        UHashRing(nodes, vnodes=5).print_continuum()
        ours = capsys.readouterr().out
        HashRing(nodes, vnodes=5).print_continuum()
        assert ours == capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"hash_fn": "ketama"}])
def test_a_point_belongs_to_the_next_one(options: dict[str, Any]) -> None:
    """A key that hashes exactly onto a point: the text of the point itself."""
    nodes = ["a", "b", "c"]
    keys: list[object] = [f"{name}-{i}" for name in nodes for i in range(160)]
    same(UHashRing(nodes, **options), HashRing(nodes, **options), keys)


# --- what is more than uhashring has ---


def test_a_change_has_a_plan() -> None:
    ring = UHashRing({"a": 1, "b": {"vnodes": 50}})
    before = ring.placement
    texts = [key for key in KEYS if isinstance(key, str)]
    owners = [ring.get_node(key) for key in texts]
    ring["c"] = {"weight": 2}
    plan = before.diff(ring.placement)
    assert plan.mask(texts).tolist() == [
        a != ring.get_node(key) for a, key in zip(owners, texts, strict=True)
    ]
    assert set(plan.by_target()) == {"c"}
    assert before.owner_many(texts) == owners


def test_the_placement_is_stored_and_read_back() -> None:
    for ring in (
        UHashRing(NODES["configurations"]),
        UHashRing(["a"], hash_fn="ketama", replicas=3, vnodes=9),
    ):
        placement = ring.placement
        again = type(placement).from_dict(placement.to_dict())
        assert again == placement
        assert again.owner_many(["x", "y"]) == placement.owner_many(["x", "y"])
    assert [node.weight for node in UHashRing({"a": {"vnodes": 80}, "b": 3}).placement.nodes] == [0.5, 3]


# --- where it differs, as the docs say ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UHashRing(["a"], hash_fn=hash), "a hash function of your own"),
        (lambda: UHashRing(["a"], hash_fn="md5"), "must be None or 'ketama'"),
        (lambda: UHashRing(["a"], hash_func="ketama"), "unexpected keyword"),
        (lambda: UHashRing(["a"], weight_fn=3), "must be a function"),
        (lambda: UHashRing(["a"], vnodes=0), "at least 1"),
        (lambda: UHashRing(["a"], vnodes=2.5), "whole number"),
        (lambda: UHashRing(["a"], replicas=5), "from 1 to 4"),
        (lambda: UHashRing([7]), "must be a str"),
        (lambda: UHashRing({"a": -1}), "from 0 to"),
        (lambda: UHashRing({"a": 1.5}), "mapping or a weight"),
        (lambda: UHashRing({"a": {"weight": 1.5}}), "whole number"),
        (lambda: UHashRing({"a": "1"}), "mapping or a weight"),
        (lambda: UHashRing(b"ab"), "must be a list"),
        (lambda: UHashRing(7), "must be a list"),
        (lambda: UHashRing([]).placement, "at least one server"),
        (lambda: UHashPlacement({"a": 0}), "no node has a point"),
        (lambda: UHashPlacement(["a", "a"]), "given twice"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_change_that_fails_changes_nothing() -> None:
    def weight(**conf: Any) -> Any:
        return 1 if conf["nodename"] != "bad" else "heavy"

    ring = UHashRing(["a", "b"], weight_fn=weight)
    before, conf = ring.placement, dict(ring.conf)
    for change in (
        lambda: ring.add_node("bad"),
        lambda: ring.add_node("c", "x"),  # type: ignore[arg-type]
        lambda: ring.remove_node("x"),
    ):
        with pytest.raises((TypeError, ValueError, LookupError)):
            change()
        assert ring.placement is before
        assert ring.conf == conf


def test_a_node_that_is_not_there_is_a_key_error_with_a_readable_message() -> None:
    ring = UHashRing(["a", "b"])
    with pytest.raises(KeyError) as caught:
        ring.remove_node("c")
    assert str(caught.value) == "there is no node 'c'; the nodes are a, b"
    with pytest.raises(UnknownNodeError):
        del ring["c"]

"""What nodes and clients see while a handover runs: who owns a key, where to go instead, and other routers."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringhash import Router, StalePlanError, assign
from ringhash.errors import HandoverRunningError, Moved, StaleRouterError
from ringhash.handover import Handover, Piece

KEYS = [f"user:{i}" for i in range(3000)]


def nothing(piece: Piece) -> None:
    pass


def gentle(router: Router, plan: Any, **options: Any) -> Handover:
    return Handover(router, plan, **{"stop": nothing, "start": nothing, "pause": 0.0, **options})


@pytest.mark.parametrize("kind", ["ring", "shards"])
@pytest.mark.parametrize("back", [False, True])
def test_the_owner_is_the_old_one_until_its_piece_is_done_and_the_new_one_after(
    kind: str, back: bool
) -> None:
    router = Router(["a", "b", "c"]) if kind == "ring" else Router(assign(64, ["a", "b", "c"]))
    plan = router.plan(add=["d"], remove=["a"])
    before, after = router.placement, router.placement.replayed(plan)
    done: set[int] = set()
    checked = 0

    def look(piece: Piece) -> None:
        nonlocal checked
        checked += 1
        at_target = [any(key in handover.pieces[n] for n in done) for key in KEYS]
        expected = [
            (after if there else before).owner(key) for key, there in zip(KEYS, at_target, strict=True)
        ]
        wrong = [
            key
            for key, owner, now in zip(KEYS, expected, router.owner_many(KEYS), strict=True)
            if owner != now
        ]
        assert not wrong[:5]

    def started(piece: Piece) -> None:
        look(piece)  # the old owner, until this returns
        (done.discard if piece.back else done.add)(piece.number)

    handover = gentle(router, plan, stop=look, start=started, max_share=0.1, finish=look)
    assert handover.run().awaits_finish
    if back:
        handover.reverse()
        handover.run()
        assert not done
    handover.finish()
    assert handover.run().over
    assert router.placement == (before if back else after)
    assert checked > 3 * len(handover.pieces) - 1


def test_another_change_is_refused_meanwhile() -> None:
    router = Router(["a", "b"])
    plan, other = router.plan(add=["c"]), router.plan(add=["d"])
    refused: list[str] = []

    def start(piece: Piece) -> None:
        for change in (lambda: router.apply(other), lambda: router.add("e"), lambda: gentle(router, other)):
            try:
                change()
            except HandoverRunningError as error:
                refused.append(str(error))

    first, second = gentle(router, plan, start=start), gentle(router, other)
    first.run()
    assert len(refused) == 6
    assert all("is running" in message for message in refused)
    with pytest.raises(StalePlanError, match="epoch"):
        second.run()
    assert "d" not in router


def test_check_and_follow() -> None:
    router = Router(["a", "b"])
    replica = Router.from_dict(router.to_dict())
    plan = router.plan(add=["c"])
    key = next(key for key in KEYS if plan.move_of(key))
    old = router.owner(key)
    done: list[int] = []

    def start(piece: Piece) -> None:
        done.append(router.epoch)
        if key in piece:
            router.check(key, old, 0)  # the old one, until the start is confirmed
            assert router.route(key).moving

    gentle(router, plan, start=start).run()
    assert router.owner(key) == "c"
    with pytest.raises(Moved) as moved:
        router.check(key, old, 0)
    assert (moved.value.to, moved.value.epoch) == ("c", router.epoch)
    assert pickle.loads(pickle.dumps(moved.value)).to == "c"
    with pytest.raises(StaleRouterError, match="bring the router up to date"):
        replica.check(key, "c", router.epoch)
    assert replica.follow(router.to_dict())
    replica.check(key, "c", router.epoch)
    assert not replica.follow(router.to_dict())
    assert done == [1, 2]
    assert router.epoch == 4


@pytest.mark.parametrize("kind", ["ring", "shards"])
def test_one_carries_a_plan_out_and_many_routers_follow(kind: str) -> None:
    """The carrier sends its document at every epoch, through text, and all of them route alike."""
    router = Router(["a", "b"]) if kind == "ring" else Router(assign(64, ["a", "b"]))
    replicas = [Router.from_dict(json.loads(json.dumps(router.to_dict()))) for _ in range(3)]
    epochs: list[Any] = []

    def send(document: dict[str, object]) -> None:
        epochs.append(document["epoch"])
        text = json.dumps(document)
        for number, replica in enumerate(replicas):
            if number == len(epochs) % 3:
                continue  # it is lost on its way; the next one is enough
            replica.follow(json.loads(text))
            replica.follow(json.loads(text))  # and one comes twice
            assert replica.owner_many(KEYS) == router.owner_many(KEYS)

    handover = gentle(router, router.plan(add=["c"]), max_share=0.2, on_epoch=send)
    handover.run()
    assert epochs == list(range(1, len(handover.pieces) + 3))
    for replica in replicas:
        replica.follow(router.to_dict())
        assert (replica.epoch, replica.placement) == (router.epoch, router.placement)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_client_comes_to_the_owner_in_two_hops(data: st.DataObject) -> None:
    """Each node has a router of its own that lags behind; only what a node gave or took it surely knows."""
    router = Router(["a", "b", "c"], vnodes=4)
    plan = router.plan(add=["d"], remove=["a"])
    states: list[dict[str, Any]] = [router.to_dict()]
    seen: dict[str, int] = dict.fromkeys("abcd", 0)

    def knows(piece: Piece) -> None:
        for name in piece.nodes:
            seen[name] = len(states)  # the state that the piece makes

    gentle(router, plan, start=knows, on_epoch=states.append).run()
    latest = len(states) - 1
    replicas = {
        name: Router.from_dict(states[data.draw(st.integers(min(seen[name], latest), latest))])
        for name in "abcd"
    }
    for key in KEYS[:60]:
        cached = Router.from_dict(states[data.draw(st.integers(0, latest))]).route(key)
        node, epoch, hops = cached.node, cached.epoch, 0
        while True:
            try:
                replicas[node].check(key, node, epoch)
                break
            except Moved as moved:
                hops += 1
                node, epoch = str(moved.to), moved.epoch
            except StaleRouterError:
                replicas[node].follow(states[latest])
        assert hops <= 2
        assert node == router.owner(key) or router.route(key).node == node


def test_a_router_that_is_behind_sends_nobody_back() -> None:
    """Without the epoch, a node that does not know yet that it has a key sends its client back, for ever."""
    router = Router(["a", "b"])
    behind = Router.from_dict(router.to_dict())
    plan = router.plan(add=["c"])
    gentle(router, plan).run()
    key = next(key for key in KEYS if plan.move_of(key))
    old = behind.owner(key)
    with pytest.raises(Moved) as first:
        router.check(key, old, 0)
    assert first.value.to == "c"
    with pytest.raises(StaleRouterError):
        behind.check(key, "c", first.value.epoch)
    with pytest.raises(Moved) as without:
        behind.check(key, "c")  # the control: no epoch, and back it goes
    assert without.value.to == old

"""The protocol of leases: what a worker decides, its own clock, and a check of every interleaving."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_check import FoundError, Model, explore, owns
from test_store import Stores, expire

from ringhash.leases.protocol import DRIFT, Grant, Holder, Row, View, decide
from ringhash.leases.rows import Refused

DEEPER = int(os.environ.get("RINGHASH_MODEL_DEPTH", "0"))


def view(owners: str, workers: str) -> View:
    """`aab.B`: a has shards 0 and 1, b shard 2, nobody 3, and b's lease on 4 has expired."""
    rows = [Row(s, None if o == "." else o.lower(), 1, o == "." or o.isupper()) for s, o in enumerate(owners)]
    return View(tuple(rows), tuple(workers))


def held(owners: str, me: str) -> dict[int, int]:
    return {shard: 1 for shard, owner in enumerate(owners) if owner == me}


@pytest.mark.parametrize(
    ("owners", "workers", "me", "claim", "release"),
    [
        ("....", "a", "a", 4, None),  # alone: everything
        ("....", "", "a", 4, None),  # and before its own heartbeat is seen
        ("....", "ab", "a", 2, None),  # its floor
        (".....", "ab", "a", 3, None),  # its floor, and the fifth that nobody below the floor needs
        ("aa...", "ab", "a", 1, None),
        ("aa..", "ab", "a", 0, None),  # at the floor: the free ones are b's
        ("aaaa", "ab", "a", 0, 3),  # b owns nothing and is seen by its heartbeat: release one
        ("aaaa", "ab", "b", 0, None),
        ("aaa.", "ab", "a", 0, 2),  # one is free, and b needs two
        ("aa..", "ab", "b", 2, None),
        ("aaab", "ab", "a", 0, 2),
        ("aabb", "ab", "a", 0, None),  # settled
        ("aabbb", "ab", "b", 0, None),  # settled: floor 2, ceiling 3
        ("aaabc", "abc", "a", 0, 2),  # above the ceiling, though nobody is below the floor
        ("aaabbbc.", "abc", "a", 0, None),  # c takes the free one
        ("aaabbbcc", "abc", "a", 0, None),  # settled: 3, 3, 2
        ("aaabbbccc", "abcd", "a", 0, 2),  # d needs two: two of the three full ones release,
        ("aaabbbccc", "abcd", "b", 0, 5),
        ("aaabbbccc", "abcd", "c", 0, None),  # and not the third
        ("aaaBBB", "ab", "b", 3, None),  # its own, expired: claimed anew
        ("aaabbb", "a", "a", 0, None),  # b's heartbeat is gone and its leases are not: wait
        ("aaaBBB", "a", "a", 3, None),
        ("a", "abc", "b", 0, None),  # fewer shards than workers
        (".", "abc", "b", 1, None),
    ],
)
def test_decisions(owners: str, workers: str, me: str, claim: int, release: int | None) -> None:
    step = decide(view(owners, workers), me, held(owners, me))
    assert (step.claim, step.release and step.release.shard) == (claim, release)
    assert step.disown == ()


def test_what_is_not_held_here_is_disowned() -> None:
    """A claim whose answer never came, or one of which this process has let go."""
    step = decide(view("aab", "ab"), "a", {0: 1, 1: 2})
    assert step.disown == (Grant(1, 1),)
    assert not step.settled


def run(count: int, owners: dict[int, str], workers: list[str], rng: random.Random) -> int:
    """Let the workers act one after the other in random order until nobody does; return the releases."""
    releases = 0
    for _ in range(3 * count + 10):
        acted = False
        for me in rng.sample(workers, len(workers)):
            rows = tuple(Row(s, owners.get(s), 1, s not in owners) for s in range(count))
            mine = {s: 1 for s, owner in owners.items() if owner == me}
            step = decide(View(rows, tuple(workers)), me, mine)
            acted |= bool(step.claim or step.release)
            free = [s for s in range(count) if s not in owners][: step.claim]
            owners |= dict.fromkeys(free, me)
            if step.release is not None:
                releases += 1
                del owners[step.release.shard]
        if not acted:
            return releases
    raise AssertionError(f"no end: {owners}")


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 40),
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), max_size=4),
    st.integers(0, 999),
)
def test_all_end_between_floor_and_ceiling(count: int, memberships: list[set[str]], seed: int) -> None:
    rng = random.Random(seed)
    owners: dict[int, str] = {}
    for members in memberships:
        owners = {shard: owner for shard, owner in owners.items() if owner in members}
        had = dict(owners)
        releases = run(count, owners, sorted(members), rng)
        counts = [list(owners.values()).count(name) for name in members]
        assert sum(counts) == count
        assert max(counts) - min(counts) <= 1
        # One at a time and in turn, no more is released than must be.
        floor, extra = divmod(count, len(members))
        before = [list(had.values()).count(name) for name in members]
        keep = sum(min(n, floor) for n in before) + min(extra, sum(n > floor for n in before))
        assert releases <= len(had) - keep
        # And then, with the same members, nothing ever moves again.
        settled = dict(owners)
        assert run(count, owners, sorted(members), rng) == 0
        assert owners == settled


def test_a_holder_counts_from_before_it_asked() -> None:
    holder = Holder("a", ttl=10.0)
    holder.claimed(100.0, [Grant(0, 1), Grant(1, 1)])
    assert holder.deadline(Grant(0, 1)) == 100.0 + 10.0 * (1 - DRIFT)
    assert holder.renewed(105.0, holder.grants, [Grant(0, 1)]) == [Grant(1, 1)]
    assert holder.grants == [Grant(0, 1)]
    assert holder.next_deadline == 105.0 + holder.span
    assert holder.expire(105.0 + holder.span - 0.001) == []
    assert holder.expire(105.0 + holder.span) == [Grant(0, 1)]
    assert holder.next_deadline is None


def test_a_late_answer_does_not_bring_a_grant_back() -> None:
    holder = Holder("a", ttl=10.0)
    holder.claimed(0.0, [Grant(0, 1)])
    asked = holder.grants
    assert holder.drop(Grant(0, 1))
    assert not holder.drop(Grant(0, 1))
    assert holder.renewed(1.0, asked, asked) == []
    assert holder.grants == []
    # Nor does an answer that comes after the time it grants.
    holder.claimed(0.0, [Grant(0, 2)])
    assert holder.expire(11.0) == [Grant(0, 2)]


def test_an_older_renewal_does_not_shorten() -> None:
    holder = Holder("a", ttl=10.0)
    holder.claimed(5.0, [Grant(0, 1)])
    holder.renewed(1.0, holder.grants, holder.grants)
    assert holder.deadline(Grant(0, 1)) == 5.0 + holder.span


def test_a_new_claim_supersedes_an_old_grant_of_the_shard() -> None:
    holder = Holder("a", ttl=10.0)
    holder.claimed(0.0, [Grant(0, 1), Grant(1, 1)])
    assert holder.claimed(1.0, [Grant(0, 3)]) == [Grant(0, 1)]
    assert holder.grants == [Grant(0, 3), Grant(1, 1)]
    rows = (Row(0, "a", 3, False), Row(1, "a", 1, False))
    assert holder.decide(View(rows, ("a",))).settled


# --- every interleaving ---


def test_two_workers_and_one_shard_completely() -> None:
    """Every state there is with up to three epochs; and from each of a seventh of them, when the faults end,
    all settle evenly."""
    result = explore(Model(2, 1, most_epochs=3), depth=10**6, settle_every=7)
    assert result.complete
    assert result.states > 20_000


@pytest.mark.parametrize("settled", [False, True], ids=["from nothing", "from a settled table"])
def test_three_workers_and_two_shards_to_depth_7(settled: bool) -> None:
    model = Model(3, 2, most_epochs=4)
    start = model.settle(model.start()) if settled else None
    result = explore(model, 7 + DEEPER, settle_every=20, start=start)
    assert result.states > 5_000


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"fence": False}, "stale write"),
        ({"claims_wait": False}, "stale write"),
        ({"counts_owners": True}, "unevenly"),
    ],
    ids=str,
)
def test_the_check_finds_faults(fault: dict[str, Any], message: str) -> None:
    """The control: each of these has bitten a real system, and the check finds it, with the way there."""
    model = replace(Model(2, 2, most_epochs=3), **fault)
    with pytest.raises(FoundError, match=message):
        explore(model, 12)


def test_a_lost_claim_is_not_held_until_it_is_claimed_anew() -> None:
    """The answer never came: renewing by (shard, epoch) does not bring it back; renewing by owner would."""
    for by_owner in (False, True):
        model = Model(2, 1, most_epochs=3, renews_by_owner=by_owner)
        state, _ = model.claim(model.beat(model.start(), 0, model.start().processes[0]), 0, 1)
        state = model.beat(state, 0, state.processes[0])
        assert state.processes[0].held == ((Grant(0, 1),) if by_owner else ())
        assert model.settle(state).leases[0].epoch == (1 if by_owner else 2)


def test_taking_a_lease_before_it_expires_breaks_self_fencing_but_not_the_fence() -> None:
    """With the fence, even a database that gives leases away too early loses no write."""
    explore(replace(Model(2, 1, most_epochs=2), takes_unexpired=True), 10)
    with pytest.raises(FoundError, match="stale write"):
        explore(replace(Model(2, 1, most_epochs=2), takes_unexpired=True, fence=False), 10)


# --- is the model's database the real one? ---


@settings(deadline=None, max_examples=12)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["beat", "claim", "release", "fence", "expire"]),
            st.integers(0, 1),
            st.integers(0, 2),
            st.integers(1, 3),
        ),
        max_size=25,
    )
)
def _against(make: Any, operations: list[tuple[str, int, int, int]]) -> None:
    model = Model(2, 3, most_epochs=10**6)
    state, store = model.start(), make()
    for what, w, s, epoch in operations:
        me, grant = f"w{w}", Grant(s, epoch)
        if what == "beat":
            asked = [Grant(s, x.epoch) for s, x in enumerate(state.leases)] + [grant]
            expected = {g for g in asked if owns(state, w, g)}
            assert set(store.beat(me, 30, sorted(set(asked)), leaving=False)) == expected
        elif what == "claim":
            state, grants = model.claim(state, w, epoch)
            assert store.claim(me, epoch, 30) == grants
        elif what == "release":
            state = model.release(state, w, (grant,))
            store.release(me, [grant])
        elif what == "fence":
            try:
                with store.fence(me, grant, 30):
                    allowed = True
            except Refused:
                allowed = False
            assert allowed == owns(state, w, grant)
        elif state.leases[s].owner is not None:
            expire(store, s)
            lease = state.leases[s]._replace(expired=True)
            state = state._replace(leases=(*state.leases[:s], lease, *state.leases[s + 1 :]))
        rows = tuple(Row(s, x.owner, x.epoch, x.expired) for s, x in enumerate(state.leases))
        assert store.read().rows == rows


def test_the_models_database_is_the_real_one(stores: Stores) -> None:
    def make() -> Any:
        store = stores(3)
        store.connection.execute(
            "UPDATE ringhash_leases SET owner = NULL, epoch = 0, expires_at = NULL WHERE grp = ?",
            (store._group,),
        )
        return store

    _against(make)

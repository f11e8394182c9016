"""The machine of a scatter, driven by a clock that only moves when the test says so."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringhash.scatter.budget import Budget, Hedge, Retry
from ringhash.scatter.coverage import Need, read_need
from ringhash.scatter.machine import Call, Cancel, Fan, Rules
from ringhash.scatter.parts import Part


def parts(*names: str) -> list[Part]:
    return [Part(name, (name,)) for name in names]


def calls(commands: list[Call | Cancel]) -> list[Call]:
    return [command for command in commands if isinstance(command, Call)]


def test_all_answer() -> None:
    fan = Fan(parts("a", "b"), Rules(), 0.0)
    for call in calls(fan.due(0.0)):
        assert fan.answered(call.token, 1.0)
    assert (fan.over, fan.met, fan.coverage().complete) == (True, True, True)


def test_the_limit_holds_and_the_queue_goes_on() -> None:
    fan = Fan(parts(*"abcdef"), Rules(limit=2), 0.0)
    first = calls(fan.due(0.0))
    assert [call.part for call in first] == ["a", "b"]
    assert fan.due(0.0) == []
    fan.answered(first[1].token, 0.1)
    assert [call.part for call in calls(fan.due(0.1))] == ["c"]


def test_the_limit_of_a_node() -> None:
    """Four shards at two nodes: one call at each, and no shard of the full node holds up another's."""
    shards = [Part("s1", ("x",)), Part("s2", ("x",)), Part("s3", ("y",)), Part("s4", ("y",))]
    fan = Fan(shards, Rules(per_node=1), 0.0)
    first = calls(fan.due(0.0))
    assert [(call.part, call.node) for call in first] == [("s1", "x"), ("s3", "y")]
    fan.answered(first[1].token, 0.0)
    assert [call.part for call in calls(fan.due(0.0))] == ["s4"]


def test_one_deadline_for_the_whole_and_not_for_each() -> None:
    """With one call at a time, three parts that take 0.4 s each do not get 3 x 1 s."""
    fan = Fan(parts(*"abcd"), Rules(limit=1, deadline=1.0, need=Need(0.01)), 0.0)
    now = 0.0
    for _ in range(2):
        [call] = calls(fan.due(now))
        now += 0.4
        fan.answered(call.token, now)
    [late] = calls(fan.due(now))
    assert fan.wake_at() == 1.0
    assert fan.due(1.0) == [Cancel(late.token)]
    coverage = fan.coverage()
    assert (fan.over, coverage.answered, coverage.timed_out, coverage.skipped) == (True, 2, 1, 1)
    assert coverage.missing["c"].reason == "timed out"
    assert coverage.missing["d"].note == "the deadline came before its turn"
    assert not fan.answered(late.token, 1.1)
    assert fan.coverage().answered == 2


def test_without_the_deadline_a_silent_part_is_waited_for() -> None:
    """The control of the test above."""
    fan = Fan(parts("a"), Rules(), 0.0)
    fan.due(0.0)
    assert fan.due(1e9) == []
    assert not fan.over
    assert fan.wake_at() is None


def test_it_gives_up_as_soon_as_the_need_is_out_of_reach() -> None:
    fan = Fan(parts("a", "b", "c"), Rules(limit=2, deadline=5.0), 0.0)
    a, b = calls(fan.due(0.0))
    fan.failed(a.token, ValueError("no such table"), 0.1)
    assert fan.due(0.1) == [Cancel(b.token)]
    coverage = fan.coverage()
    assert (fan.over, fan.met) == (True, False)
    assert (coverage.failed, coverage.skipped) == (1, 2)
    assert coverage.reasons().startswith("a: ValueError: no such table; ")


def test_a_share_of_keys_and_not_of_parts() -> None:
    shares = {"big": 0.9, "s1": 0.05, "s2": 0.05}
    fan = Fan(parts("big", "s1", "s2"), Rules(need=Need(0.9)), 0.0, shares=shares)
    big, s1, s2 = calls(fan.due(0.0))
    fan.failed(s1.token, OSError(), 0.0)
    fan.failed(s2.token, OSError(), 0.0)
    assert not fan.over
    fan.answered(big.token, 0.0)
    assert fan.met
    assert fan.coverage().keys == 0.9
    lost = Fan(parts("big", "s1", "s2"), Rules(need=Need(0.9)), 0.0, shares=shares)
    lost.failed(calls(lost.due(0.0))[0].token, OSError(), 0.0)
    assert (lost.over, lost.met) == (True, False)


def test_named_parts_must_answer() -> None:
    need = read_need({"a"})
    fan = Fan(parts("a", "b"), Rules(need=need), 0.0)
    a, b = calls(fan.due(0.0))
    fan.failed(b.token, OSError(), 0.0)
    fan.answered(a.token, 0.0)
    assert fan.met
    other = Fan(parts("a", "b"), Rules(need=need), 0.0)
    a, b = calls(other.due(0.0))
    other.answered(b.token, 0.0)
    other.failed(a.token, OSError(), 0.0)
    assert not other.met


def test_nobody_is_no_answer_whatever_the_need() -> None:
    fan = Fan(parts("a"), Rules(need=Need(0.001)), 0.0)
    fan.failed(calls(fan.due(0.0))[0].token, OSError(), 0.0)
    assert (fan.over, fan.met) == (True, False)


def test_a_retry_goes_to_the_replica() -> None:
    fan = Fan([Part("s", ("x", "y"))], Rules(retry=Retry(1)), 0.0)
    [first] = calls(fan.due(0.0))
    fan.failed(first.token, OSError(), 0.1)
    [second] = calls(fan.due(0.1))
    assert (first.node, second.node, second.attempt) == ("x", "y", 1)
    fan.failed(second.token, OSError("again"), 0.2)
    assert fan.over
    assert fan.coverage().retries == 1


def test_the_budget_of_retries_ends_them() -> None:
    """All of a hundred parts fail. Without a budget that is as many retries; with one it is ten."""

    def retries(budget: Budget) -> int:
        names = [f"n{i}" for i in range(100)]
        rules = Rules(limit=200, need=Need(0.001), retry=Retry(1, budget))
        fan = Fan(parts(*names), rules, 0.0)
        while not fan.over:
            for call in calls(fan.due(0.0)):
                fan.failed(call.token, OSError(), 0.0)
        return fan.coverage().retries

    assert retries(Budget(0.1, reserve=0)) == 10
    assert retries(Budget(1.0, reserve=0)) == 100


def test_only_errors_worth_it_are_retried() -> None:
    retry = Retry(3, when=lambda error: isinstance(error, OSError))
    fan = Fan(parts("a"), Rules(retry=retry), 0.0)
    fan.failed(calls(fan.due(0.0))[0].token, ValueError(), 0.0)
    assert fan.over


def test_a_hedge_and_the_first_answer_wins() -> None:
    rules = Rules(hedge=Hedge(0.05))
    fan = Fan([Part("s", ("x", "y"))], rules, 0.0, hedge_after=0.05)
    [first] = calls(fan.due(0.0))
    assert fan.wake_at() == 0.05
    [second] = calls(fan.due(0.05))
    assert (first.node, second.node) == ("x", "y")
    assert fan.answered(second.token, 0.06)
    assert fan.due(0.06) == [Cancel(first.token)]
    assert not fan.answered(first.token, 0.07)
    assert fan.coverage().hedges == 1


def test_a_failed_hedge_leaves_the_first_call_alone() -> None:
    fan = Fan([Part("s", ("x", "y"))], Rules(hedge=Hedge(0.05)), 0.0, hedge_after=0.05)
    [first] = calls(fan.due(0.0))
    [second] = calls(fan.due(0.05))
    fan.failed(second.token, OSError(), 0.06)
    assert not fan.over
    assert fan.answered(first.token, 0.07)
    assert fan.met


def test_a_slow_single_owner_cannot_be_hedged() -> None:
    fan = Fan(parts("a"), Rules(hedge=Hedge(0.05)), 0.0, hedge_after=0.05)
    fan.due(0.0)
    assert fan.due(1.0) == []


def test_nodes_that_are_down_are_not_asked() -> None:
    shards = [Part("s", ("x", "y")), Part("t", ("x",))]
    fan = Fan(shards, Rules(need=Need(0.5)), 0.0, down=frozenset({"x"}))
    [call] = calls(fan.due(0.0))
    assert (call.part, call.node) == ("s", "y")
    assert fan.coverage().missing["t"].note == "its node is down"


@pytest.mark.parametrize("need", ["most", 0, -1, 1.5, set()])
def test_needs_out_of_range(need: object) -> None:
    with pytest.raises(ValueError, match="need must"):
        read_need(need)  # type: ignore[arg-type]


@given(st.data())
def test_whatever_happens_the_rules_hold(data: st.DataObject) -> None:
    """Random answers, errors, blocks and times: limits, the sum of the coverage, and an end."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    nodes = [f"n{i}" for i in range(rng.randint(1, 5))]
    count = rng.randint(1, 9)
    shards = [Part(f"s{i}", tuple(rng.sample(nodes, rng.randint(1, len(nodes))))) for i in range(count)]
    rules = Rules(
        limit=rng.randint(1, 5),
        per_node=rng.choice([None, 1, 2]),
        deadline=rng.choice([None, 5.0]),
        need=rng.choice([Need(), Need(0.5), Need(0.0, frozenset({"s0"}))]),
        retry=rng.choice([None, Retry(2, Budget(1.0, 5))]),
        hedge=Hedge(0.5, budget=Budget(1.0, 5)),
    )
    fan = Fan(shards, rules, 0.0, hedge_after=rng.choice([None, 0.5]))
    now, under_way, opened, answered = 0.0, dict[int, Call](), set[int](), set[str]()
    for _ in range(500):
        for command in fan.due(now):
            if isinstance(command, Call):
                under_way[command.token] = command
                assert command.node in dict(shards)[command.part]
                assert command.part not in answered
            else:
                del under_way[command.token]
        calling = [call for token, call in under_way.items() if token not in opened]
        assert len(calling) <= rules.limit
        for node in nodes if rules.per_node else ():
            assert sum(call.node == node for call in calling) <= (rules.per_node or 0)
        coverage = fan.coverage()
        counted = coverage.answered + coverage.timed_out + coverage.failed + coverage.skipped
        assert counted == coverage.asked == count
        assert len(coverage.missing) == count - coverage.answered
        if fan.over:
            break
        if not under_way or rng.random() < 0.2:
            now = max(now, fan.wake_at() or now) + rng.choice([0.0, 0.3])
            continue
        token = rng.choice(list(under_way))
        what = rng.random()
        if what < 0.3:
            if fan.opened(token, now):
                opened.add(token)
        else:
            call = under_way.pop(token)
            if what < 0.7:
                if fan.answered(token, now):
                    assert call.part not in answered
                    answered.add(call.part)
            else:
                fan.failed(token, OSError("lost"), now)
    assert fan.over
    assert not under_way
    assert fan.coverage().answered == len(answered)
    assert fan.met == (
        bool(answered) and rules.need.met(answered, dict.fromkeys((p.name for p in shards), 1 / count))
    )

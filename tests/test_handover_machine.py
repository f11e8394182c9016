"""The I/O-free core of a handover, through every order of events, with a clock of its own.

Each danger test has its control: the same test against a machine without the rule that guards, and that must fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import pytest
from handover_world import World, some_pieces
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ringhash.errors import HandoverError
from ringhash.handover.ledger import Standing
from ringhash.handover.machine import Command, Machine
from ringhash.handover.record import Options, Record, State

PIECES = some_pieces()
NODES = sorted({node for piece in PIECES for node in piece.nodes})


def test_the_pieces_of_these_tests_share_nodes_and_do_not() -> None:
    assert len(PIECES) == 5
    assert any(a.nodes & b.nodes for a in PIECES for b in PIECES if a is not b)
    assert any(not a.nodes & b.nodes for a in PIECES for b in PIECES)


# --- every order of events ---


class Orders(RuleBasedStateMachine):
    kind: ClassVar[type[Machine]] = Machine

    @initialize(
        parallel=st.integers(1, 3),
        pause=st.sampled_from([0.0, 1.0]),
        on_timeout=st.sampled_from(["keep", "abort"]),
        calls=st.sets(st.sampled_from(["prepare", "hold", "undo", "finish"])),
        ahead=st.sampled_from([0, 0, 2]),
        wait=st.booleans(),
        count=st.integers(1, 5),
    )
    def begin(
        self,
        parallel: int,
        pause: float,
        on_timeout: Any,
        calls: set[str],
        ahead: int,
        wait: bool,
        count: int,
    ) -> None:
        options = Options(pause, 10.0, on_timeout, parallel, ahead, wait, tries=2, calls=frozenset(calls))
        self.world = World(PIECES[:count], options, self.kind)
        self.world.turn()

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.world.calls)))

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data(), ok=st.sampled_from([True, True, True, False]), effect=st.booleans())
    def answer(self, data: st.DataObject, ok: bool, effect: bool) -> None:
        self.world.answer(self.pick(data), ok, effect)

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data())
    def act_without_an_answer(self, data: st.DataObject) -> None:
        self.world.effect(self.world.calls[self.pick(data)])

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 4.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data())
    def a_call_times_out(self, data: st.DataObject) -> None:
        self.world.pass_time(10.0)

    @precondition(lambda self: self.world.answered)
    @rule(data=st.data(), ok=st.booleans())
    def an_answer_comes_twice(self, data: st.DataObject, ok: bool) -> None:
        token = data.draw(st.sampled_from(self.world.answered))
        world = self.world
        world.guarded(
            lambda: (
                world.machine.confirm(token, world.now)
                if ok
                else world.machine.fail(token, "again", world.now)
            )
        )

    @precondition(lambda self: self.world.ghosts)
    @rule(data=st.data())
    def a_call_of_a_dead_process_arrives(self, data: st.DataObject) -> None:
        ghost = data.draw(st.sampled_from(self.world.ghosts))
        self.world.ghosts.remove(ghost)
        self.world.effect(ghost)

    @rule(what=st.sampled_from(["abort", "reverse", "retry", "retry", "go", "finish"]))
    def a_person_speaks(self, what: str) -> None:
        self.world.say(what)

    @precondition(lambda self: len(self.world.dead) < 2)
    @rule(name=st.sampled_from(NODES))
    def a_node_is_lost(self, name: str) -> None:
        self.world.lose(name)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(writes=st.integers(0, 4), after=st.booleans())
    def crash_at_a_write(self, writes: int, after: bool) -> None:
        self.world.fuse, self.world.crash_after = writes, after

    @invariant()
    def as_promised(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    @invariant()
    def the_journal_tells_all(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        again = self.kind(world.pieces, world.options, records=world.disk)
        lasting = [
            [(it.state, it.holder, it.heading, it.verdict, it.call, it.stuck, it.token) for it in m.standings]
            for m in (world.machine, again)
        ]
        assert lasting[0] == lasting[1]
        assert (world.machine.mode, world.machine.gone, world.machine.changes) == (
            again.mode,
            again.gone,
            again.changes,
        )

    def teardown(self) -> None:
        """Whatever has happened, from here on all goes well, and everything comes to an end."""
        if hasattr(self, "world"):
            self.world.fuse = None
            self.world.finish()


EVERY_ORDER = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_every_order_of_events() -> None:
    run_state_machine_as_test(Orders, settings=EVERY_ORDER)


# --- and without one of its rules ---


class AnyAnswer(Machine):
    def _is_last(self, it: Standing, token: int) -> bool:
        return True


class TwoCalls(Machine):
    def _is_away(self, it: Standing) -> bool:
        return False


class GivenAwayLate(Machine):
    def _timed_out(self, number: int, why: str, now: float) -> None:
        if self.standings[number].state is State.STOPPING:
            self._stopped(number, now)
        else:
            super()._timed_out(number, why, now)


class GivenAwayAfterAnError(Machine):
    def _failed(self, number: int, why: str, now: float) -> None:
        if self.standings[number].state is State.STOPPING:
            self._stopped(number, now)
        else:
            super()._failed(number, why, now)


class NeverStopsATarget(Machine):
    def _needs_stop(self, it: Standing) -> bool:
        return False


class NoPause(Machine):
    def _end(self, now: float) -> None:
        pass


class NoRest(Machine):
    def _rest(self, now: float) -> None:
        pass


class TwoOfOneNode(Machine):
    def _clashes(self, number: int, others: list[int]) -> bool:
        return False


class NoLimit(Machine):
    def _is_room(self, count: int, most: int) -> bool:
        return super()._is_room(0, most)


class CallsBeforeItsRecord(Machine):
    def _log(self, record: Record) -> None:
        if record.state != "STARTING":
            super()._log(record)


class ChangesBeforeItsRecord(Machine):
    def _log(self, record: Record) -> None:
        if record.state != "DONE":
            super()._log(record)


class RepeatsInSilence(Machine):
    def _ask(self, number: int, now: float, repeat: bool = False, after: float = 0.0) -> None:
        super()._ask(number, now, False, after)


class Forgets(Machine):
    def _again(self, number: int, now: float) -> None:
        pass


class OverTooSoon(Machine):
    @property
    def arrived(self) -> bool:
        return True


class WaitsForNobody(Machine):
    def _may_go(self, number: int) -> bool:
        return True


class TurnsBackAfterTheFinish(Machine):
    def reverse(self) -> None:
        self._record(-1, "REVERSE")
        self.finishing = False


class Rule(NamedTuple):
    without: type[Machine]
    fault: str  # what the test must say of a machine without that rule


RULES = {
    "the answer to the last call only": Rule(
        AnyAnswer, "two owners|start before|start while|does not serve|nothing to call|no pause"
    ),
    "one call of a piece at a time": Rule(TwoCalls, "two calls"),
    "a time-out never gives a piece away": Rule(GivenAwayLate, "two calls|start before|two owners"),
    "an error never gives a piece away": Rule(GivenAwayAfterAnError, "start before|two owners"),
    "a target that may have started is stopped first": Rule(NeverStopsATarget, "two owners|start while"),
    "a pause between two pieces": Rule(NoPause, "no pause"),
    "a pause after a resumption": Rule(NoRest, "no pause"),
    "never two pieces of one node": Rule(TwoOfOneNode, "two pieces of one node"),
    "never more pieces than `parallel`": Rule(NoLimit, "no pause"),
    "a call only after its record": Rule(CallsBeforeItsRecord, "before its record"),
    "a change of owner only after its record": Rule(ChangesBeforeItsRecord, ""),
    "a repeated call says so": Rule(RepeatsInSilence, "does not say so"),
    "calls are made again after a crash": Rule(Forgets, "never comes to an end"),
    "a stuck piece is not over": Rule(OverTooSoon, "not all pieces|does not serve"),
    "a piece waits for `go`": Rule(WaitsForNobody, "before `go`|two calls"),
}


def fault_of(kind: type[Machine], examples: int = 4000) -> str:
    """What the test of every order says of a broken machine; nothing when it finds no fault."""
    broken = type("Broken", (Orders,), {"kind": kind})
    try:
        run_state_machine_as_test(
            broken,
            settings=settings(
                EVERY_ORDER, max_examples=examples, derandomize=True, database=None, print_blob=False,
                phases=[Phase.generate], report_multiple_bugs=False,
            ),
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - whatever shows the fault
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("name", RULES)
def test_every_order_of_events_finds_a_machine_without(name: str) -> None:
    fault = fault_of(RULES[name].without)
    assert fault, "the test does not see that the rule is missing"
    assert re.search(RULES[name].fault, fault), fault


# --- a crash at every write ---


class Script:
    """What each call does, by (piece, call, whether on the way back), and what a person says when."""

    def __init__(
        self, acts: dict[tuple[int, str, bool], str], says: dict[int, tuple[str, ...]] | None = None
    ) -> None:
        self.acts, self.says = acts, says or {}

    def __call__(self, world: World, command: Command) -> bool:
        """Whether anything was done; if not, time passes."""
        for number, (what, *names) in self.says.items():
            began = any(r.piece == number for r in world.disk)
            if began and not any(r.state == what.upper() for r in world.disk):
                if names:
                    world.lose(names[0])
                else:
                    world.say(what)
                return True
        piece = command.piece
        act = self.acts.get((piece.number, command.call, piece.back), "do")
        if act == "hang":  # it comes back only when nobody waits for it any more
            if world.machine.standings[piece.number].token != command.token:
                world.answer(command.token)
                return True
        elif act != "never":
            world.answer(command.token, act == "do", effect=act == "do")
            return True
        return False


SCRIPTS = {
    "all goes well": Script({}),
    "a stop hangs": Script({(1, "stop", False): "hang"}),
    "a stop never comes back": Script({(1, "stop", False): "never"}),
    "a stop fails": Script({(0, "stop", False): "fail"}),
    "a start hangs": Script({(2, "start", False): "hang"}),
    "a start fails": Script({(2, "start", False): "fail"}),
    "the way back fails": Script({(1, "start", False): "fail", (1, "stop", True): "fail"}),
    "a preparation fails, another hangs": Script(
        {(0, "prepare", False): "fail", (3, "prepare", False): "hang"}
    ),
    "an abort": Script({}, {2: ("abort",)}),
    "a reversal": Script({}, {2: ("reverse",)}),
    "a reversal in which a stop hangs and a start fails": Script(
        {(0, "stop", True): "hang", (1, "start", True): "fail"}, {3: ("reverse",)}
    ),
    "all is prepared, waits, and is finished": Script({}),
    "a finish fails, another hangs": Script({(0, "finish", False): "fail", (2, "finish", False): "hang"}),
    "a reversal with a finish": Script({}, {2: ("reverse",)}),
    "a source is lost": Script({}, {1: ("lost", str(PIECES[1].source))}),
    "a target is lost": Script({}, {2: ("lost", str(PIECES[2].target))}),
}


def crashes_at_every_write(script: Script, options: Options, kind: type[Machine] = Machine) -> int:
    calm = World(PIECES, options, kind)
    end = calm.finish(script)
    for write in range(calm.writes):
        for after in (False, True):
            world = World(PIECES, options, kind)
            world.fuse, world.crash_after = write, after
            assert world.finish(script) == end, (write, after)
            assert world.crashes == 1
    return calm.writes


@pytest.mark.parametrize(
    ("name", "parallel"),
    # What is under way when a person speaks depends on the clock where several pieces go at once.
    [(name, 1) for name in SCRIPTS if "never" not in name]
    + [(name, 3) for name, script in SCRIPTS.items() if not script.says and "never" not in name],
)
def test_a_crash_at_every_write_comes_to_the_same_end(name: str, parallel: int) -> None:
    calls = {"prepare", "undo"} if "preparation" in name else {"finish"} if "finish" in name else set()
    waits = "waits" in name
    calls |= {"prepare", "hold", "undo", "finish"} if waits else set()
    options = Options(1.0, 10.0, parallel=parallel, wait=waits, tries=2, calls=frozenset(calls))
    assert crashes_at_every_write(SCRIPTS[name], options) >= 12


@pytest.mark.parametrize("name", ["all goes well", "a start fails", "a reversal"])
def test_two_crashes_at_every_two_writes_come_to_the_same_end(name: str) -> None:
    options = Options(1.0, 10.0, tries=2)
    script, pieces = SCRIPTS[name], PIECES[:3]
    calm = World(pieces, options)
    end = calm.finish(script)
    for first in range(calm.writes):
        world = World(pieces, options)
        world.fuse, world.crash_after = first, bool(first % 2)
        with_one = world.writes
        for second in range(calm.writes + 8):
            world = World(pieces, options)
            world.fuse, world.crash_after = first, bool(first % 2)
            crash = world.crash

            def again(world: World = world, crash: Callable[[], None] = crash, second: int = second) -> None:
                if world.crashes == 0:
                    world.crashes += 1
                    world.fuse = second
                    world.ghosts += world.calls.values()
                    world.calls = {}
                    world.boot()
                    world.turn()
                else:
                    crash()

            world.crash = again  # type: ignore[method-assign]
            assert world.finish(script) == end, (first, second)
        assert with_one == 0


class ForgetsAStop(Machine):
    def _resume(self, now: float) -> None:
        self._record(-1, "RESUMED")
        for number, it in enumerate(self.standings):
            if it.under_way and it.state is not State.STOPPED:
                self._again(number, now)


class ForgetsTheVerdict(Machine):
    def _apply(self, record: Record) -> None:
        super()._apply(record._replace(verdict=""))


class NeverStuck(Machine):
    def _apply(self, record: Record) -> None:
        super()._apply(record._replace(stuck=False))


@pytest.mark.parametrize(
    "kind", [Forgets, ForgetsAStop, ForgetsTheVerdict, ChangesBeforeItsRecord, NeverStuck]
)
def test_the_enumeration_finds_a_machine_that(kind: type[Machine]) -> None:
    found = 0
    for script in SCRIPTS.values():
        try:
            crashes_at_every_write(script, Options(1.0, 10.0, tries=2), kind)
        except AssertionError:
            found += 1
    if kind is NeverStuck:  # the same end with and without a crash: what is wrong is that end
        with pytest.raises(AssertionError, match="does not serve"):
            World(PIECES, Options(1.0, 10.0, tries=2), kind).finish(SCRIPTS["the way back fails"])
        found += 1
    assert found


# --- single steps, to be read ---


def states(world: World) -> list[str]:
    return [it.state.value for it in world.machine.standings]


def test_the_steps_of_a_piece() -> None:
    world = World(PIECES[:1], Options(calls=frozenset({"prepare"})))
    world.finish()
    steps = ["PREPARING", "PREPARED", "STOPPING", "STOPPED", "STARTING", "DONE", "OVER"]
    assert [r.state for r in world.disk] == steps


def test_a_time_out_keeps_the_piece_and_goes_on() -> None:
    world = World(PIECES[:2], Options(timeout=10.0))
    assert world.finish(SCRIPTS["a stop hangs"])[1:] == [("DONE", "target", False), ("KEPT", "source", False)]
    assert "not confirmed within 10 s" in world.machine.standings[1].note


def test_a_time_out_can_end_the_handover() -> None:
    world = World(PIECES[:3], Options(timeout=10.0, on_timeout="abort"))
    assert [state for state, *_ in world.finish(Script({(0, "stop", False): "hang"}))] == [
        "ABORT",
        "KEPT",
        "PENDING",
        "PENDING",
    ]


def test_an_abort_finishes_the_piece_in_hand_and_a_retry_goes_on() -> None:
    world = World(PIECES[:3], Options())
    world.finish(Script({}, {1: ("abort",)}))
    assert (world.machine.mode, states(world)) == ("ABORT", ["DONE", "DONE", "PENDING"])
    world.say("retry")
    assert world.finish()[0] == ("OVER",)


def test_a_reversal_is_as_careful_as_the_way_there() -> None:
    world = World(PIECES[:3], Options())
    world.finish(Script({}, {1: ("reverse",)}))
    assert (world.machine.mode, world.machine.backward) == ("OVER", True)
    assert states(world) == ["UNDONE", "UNDONE", "PENDING"]
    steps = [r.state for r in world.disk if r.piece == 0]
    assert steps == ["STOPPING", "STOPPED", "STARTING", "DONE", "STOPPING", "STOPPED", "STARTING", "UNDONE"]
    with pytest.raises(HandoverError, match="inverse"):
        world.machine.reverse()


def test_what_is_kept_can_be_tried_again() -> None:
    world = World(PIECES[:2], Options(timeout=10.0))
    world.finish(SCRIPTS["a stop hangs"])
    world.say("retry")
    assert world.finish()[0] == ("OVER",)


def test_a_piece_whose_way_back_fails_is_stuck_and_says_so() -> None:
    world = World(PIECES[:2], Options(tries=2))
    assert world.finish(SCRIPTS["the way back fails"])[2] == ("FAILED", "source", True)
    assert world.machine.standings[1].note == "it broke; on the way back: it broke"
    world.say("retry")
    assert world.finish()[0] == ("OVER",)


def test_the_way_back_is_tried_again_after_longer_and_longer_pauses() -> None:
    world = World(PIECES[:1], Options(pause=1.0, timeout=10.0, tries=3))
    times: list[float] = []

    def act(world: World, command: Command) -> bool:
        if command.call == "undo":
            times.append(world.now)
        world.answer(command.token, False, effect=False)
        return True

    assert world.finish(act)[1] == ("FAILED", "source", True)
    assert [round(b - a) for a, b in pairwise(times)] == [4, 16]


def test_a_lost_source_has_stopped_and_a_lost_target_gets_nothing() -> None:
    for name, script in SCRIPTS.items():
        if "lost" in name:
            world = World(PIECES, Options())
            world.finish(script)
            lost = next(iter(world.machine.gone))
            for piece, it in zip(PIECES, world.machine.standings, strict=True):
                if piece.source == lost:
                    assert it.state is State.DONE
                elif piece.target == lost and it.state is not State.DONE:
                    assert it.state in (State.KEPT, State.FAILED)


def test_the_first_node_in_and_the_last_one_out_need_no_other_side() -> None:
    from ringhash import Router
    from ringhash.handover.pieces import cut

    for plan in (Router().plan(add=["a"]), Router(["a"]).plan(remove=["a"])):
        world = World(cut(plan), Options())
        world.finish()
        assert states(world) == ["DONE"]


def with_calls(*calls: str, **options: Any) -> Options:
    return Options(**{"pause": 1.0, "timeout": 10.0, "tries": 2, **options}, calls=frozenset(calls))


def calls_of(world: World) -> list[str]:
    return [command.call for command in world.calls.values()]


def test_a_prepared_piece_catches_up_and_waits_for_go() -> None:
    world = World(PIECES[:2], with_calls("prepare", "hold", wait=True))
    world.turn()
    assert calls_of(world) == ["prepare"]
    [token] = world.calls
    world.answer(token)
    for _ in range(3):
        assert (calls_of(world), states(world)) == (["hold"], ["PREPARED", "PENDING"])
        world.answer(*world.calls)
        assert world.calls == {}
        world.pass_time(1.0)
    world.say("go")
    assert states(world)[0] == "PREPARED", "a catch-up is under way, and comes back first"
    world.answer(*world.calls)
    assert (calls_of(world), states(world)[0]) == (["stop"], "STOPPING")
    assert [r.state for r in world.disk] == ["PREPARING", "PREPARED", "GO", "STOPPING"], "a hold is no record"


def test_go_can_be_said_of_one_piece_and_before_it_is_prepared() -> None:
    pieces = (PIECES[0], PIECES[1])
    world = World(pieces, with_calls("prepare", wait=True, parallel=2))
    world.turn()
    world.guarded(lambda: world.machine.go(1))
    for token in list(world.calls):
        world.answer(token)
    assert states(world) == ["PREPARED", "STOPPING"]
    with pytest.raises(HandoverError, match="no piece 2"):
        world.machine.go(2)


def test_a_catch_up_that_fails_keeps_the_piece_from_being_cut_over_until_one_succeeds() -> None:
    world = World(PIECES[:1], with_calls("prepare", "hold", "undo", timeout={"prepare": 100, "hold": 10}))
    world.turn()
    world.answer(*world.calls)
    world.answer(*world.calls, ok=False, effect=False)
    assert (states(world), world.machine.standings[0].note) == (["PREPARED"], "it broke")
    world.pass_time(1.0)
    [late] = world.calls
    world.pass_time(10.0)
    assert "hold was not confirmed within 10 s" in world.machine.standings[0].note
    assert calls_of(world) == ["hold"], "one call at a time: it must come back"
    world.answer(late)
    assert calls_of(world) == ["stop"]


def test_a_piece_that_cannot_catch_up_for_as_long_as_a_preparation_may_take_has_failed() -> None:
    world = World(PIECES[:1], with_calls("prepare", "hold", "undo", timeout={"prepare": 100, "hold": 10}))
    world.turn()
    world.answer(*world.calls)
    for _ in range(300):
        if calls_of(world) != ["hold"]:
            world.pass_time(1.0)
        else:
            world.answer(*world.calls, ok=False, effect=False)
        if calls_of(world) == ["undo"]:
            break
    assert world.now == pytest.approx(200, abs=2)
    world.answer(*world.calls)
    assert states(world) == ["FAILED"]
    assert world.machine.standings[0].note == "it could not catch up: it broke"


@pytest.mark.parametrize("calls", [("prepare",), ("prepare", "undo")])
@pytest.mark.parametrize("act", ["fail", "hang"])
def test_a_preparation_that_comes_to_nothing_is_undone(calls: tuple[str, ...], act: str) -> None:
    world = World(PIECES[:1], with_calls(*calls))
    made: list[str] = []
    script = Script({(0, "prepare", False): act})

    def noted(world: World, command: Command) -> bool:
        done = script(world, command)
        if done:
            made.append(command.call)
        return done

    world.finish(noted)
    assert states(world) == ["FAILED" if act == "fail" else "KEPT"]
    expected = ["prepare", "undo"][: len(calls)]
    if (act, "undo" in calls) == ("hang", False):
        expected = []  # it has not come back when all is over
    assert made == expected, "without an undo nobody is called: nothing had stopped"


def test_each_step_has_its_own_time_out() -> None:
    world = World(PIECES[:1], with_calls("prepare", timeout={"prepare": 7200.0, "stop": 5.0}))
    world.turn()
    world.pass_time(7000.0)
    assert states(world) == ["PREPARING"]
    world.answer(*world.calls)
    assert states(world) == ["STOPPING"]
    world.pass_time(5.0)
    assert states(world) == ["STARTING"], "on its way back"
    assert "stop was not confirmed within 5 s" in world.machine.standings[0].note


def test_a_preparation_goes_on_after_a_crash_with_a_higher_token() -> None:
    world = World(PIECES[:1], with_calls("prepare", "hold"))
    world.turn()
    [first] = world.calls.values()
    world.crash()
    [again] = world.calls.values()
    assert (again.call, again.piece.repeat, again.piece.token > first.piece.token) == ("prepare", True, True)
    world.answer(*world.calls)
    [hold] = world.calls.values()
    world.crash()
    [other] = world.calls.values()
    assert (other.call, other.piece.token > hold.piece.token) == ("hold", True), "it is not prepared twice"


def test_pieces_prepare_ahead_and_are_cut_over_one_by_one() -> None:
    world = World(PIECES, with_calls("prepare", ahead=9))
    world.turn()
    assert states(world) == ["PREPARING"] * 5
    for token in sorted(world.calls):
        world.answer(token)
    assert states(world) == ["STOPPING", *["PREPARED"] * 4]
    assert world.finish()[0] == ("OVER",)


def test_an_abort_leaves_what_is_prepared_as_it_is_and_a_retry_cuts_it_over() -> None:
    world = World(PIECES[:2], with_calls("prepare", "hold", wait=True))
    world.turn()
    world.answer(*world.calls)
    world.say("abort")
    world.answer(*world.calls)
    assert (world.machine.settled, states(world)) == (True, ["PREPARED", "PENDING"])
    world.pass_time(100.0)
    assert world.calls == {}, "it catches up no more"
    world.say("retry")
    assert calls_of(world) == ["hold"]
    assert world.finish()[0] == ("OVER",)


def test_a_reversal_undoes_what_is_prepared_or_being_prepared() -> None:
    world = World(PIECES[:2], with_calls("prepare", "undo", wait=True, parallel=2))
    world.turn()
    world.answer(min(world.calls))
    assert states(world) == ["PREPARED", "PREPARING"]
    world.say("reverse")
    assert calls_of(world) == ["prepare", "undo"], "the preparation that runs must come back first"
    for _ in range(3):
        if world.calls:
            world.answer(min(world.calls))
    assert states(world) == ["KEPT", "KEPT"]
    assert (world.machine.mode, world.machine.backward) == ("OVER", True)


def test_a_finish_is_waited_for_and_there_is_no_way_back_after_it() -> None:
    world = World(PIECES[:2], with_calls("finish"))
    world.turn()
    with pytest.raises(HandoverError, match="pieces are all there"):
        world.machine.finish()
    while world.calls:
        world.answer(min(world.calls))
        world.pass_time(1.0)
    assert (world.machine.settled, world.machine.awaits_finish, world.machine.mode) == (True, True, "RUN")
    world.say("finish")
    with pytest.raises(HandoverError, match="no way back"):
        world.machine.reverse()
    while world.calls:
        assert calls_of(world) == ["finish"]
        world.answer(min(world.calls))
    assert (states(world), world.machine.mode) == (["FINISHED", "FINISHED"], "OVER")


def test_that_a_way_back_after_a_finish_is_seen() -> None:
    """The control: a machine that turns back all the same."""
    world = World(PIECES[:2], with_calls("finish"), TurnsBackAfterTheFinish)
    world.turn()
    while not world.machine.awaits_finish:
        for token in list(world.calls):
            world.answer(token)
        world.pass_time(1.0)
    world.say("finish")
    world.answer(min(world.calls))
    with pytest.raises(AssertionError, match="a way back after a finish"):
        world.say("reverse")


def test_instead_of_a_finish_all_of_it_can_go_back() -> None:
    world = World(PIECES[:2], with_calls("prepare", "finish"))
    world.turn()
    while not world.machine.awaits_finish:
        for token in list(world.calls):
            world.answer(token)
        world.pass_time(1.0)
    world.say("reverse")
    [prepare] = world.calls.values()
    assert (prepare.call, prepare.piece.back, prepare.piece.source) == ("prepare", True, PIECES[0].target)
    end = world.finish()
    assert end == [("OVER",), ("FINISHED", "source", False), ("FINISHED", "source", False)]
    assert world.machine.backward


def test_a_finish_that_fails_is_tried_again_and_can_be_retried() -> None:
    world = World(PIECES[:1], with_calls("finish"))
    world.turn()
    while not world.machine.awaits_finish:
        for token in list(world.calls):
            world.answer(token)
        world.pass_time(1.0)
    world.say("finish")
    for _ in range(2):
        world.answer(*world.calls, ok=False, effect=False)
        world.pass_time(5.0)
    assert (states(world), world.machine.settled, world.machine.mode) == (["UNFINISHED"], True, "FINISH")
    world.say("retry")
    assert world.finish() == [("OVER",), ("FINISHED", "target", False)]


def test_a_retry_after_an_abort_keeps_the_direction() -> None:
    world = World(PIECES[:2], Options())
    world.finish(Script({}, {1: ("reverse",)}))
    world = World(PIECES[:3], Options())
    world.turn()
    world.answer(*world.calls)
    world.say("reverse")
    world.say("abort")
    world.finish()
    world.say("retry")
    assert world.machine.mode == "REVERSE"
    world.finish()
    assert (world.machine.mode, world.machine.backward) == ("OVER", True)


def test_a_plan_that_moves_nothing_is_over_at_once() -> None:
    machine = Machine((), Options())
    assert machine.tick(0.0) == []
    assert machine.mode == "OVER"


@pytest.mark.parametrize(
    "options",
    [
        {"pause": -1},
        {"pause": float("nan")},
        {"timeout": 0},
        {"on_timeout": "give"},
        {"parallel": 0},
        {"tries": 0},
        {"ahead": -1},
        {"parallel": True},
        {"pause": "1"},
        {"wait": 1},
        {"timeout": {"stop": 0}},
        {"timeout": {"stopp": 1}},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Options(**options)


def test_a_record_of_a_piece_that_is_not_there_is_an_error() -> None:
    with pytest.raises(HandoverError, match="piece 7"):
        Machine(PIECES, Options(), records=[Record(1, 7, "DONE", "target", "target")])

"""The I/O-free core of a handover, through every order of events, with a clock of its own.

Each danger test has its control: the same test against a machine from which the guarding line was taken out,
and that must fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import pytest
from handover_world import World, mutant, some_pieces
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
from ringhash.handover import machine as genuine
from ringhash.handover.machine import Command, Machine, Options, Record, State

PIECES = some_pieces()
NODES = sorted({node for piece in PIECES for node in piece.nodes})


def test_the_pieces_of_these_tests_share_nodes_and_do_not() -> None:
    assert len(PIECES) == 5
    assert any(a.nodes & b.nodes for a in PIECES for b in PIECES if a is not b)
    assert any(not a.nodes & b.nodes for a in PIECES for b in PIECES)


# --- every order of events ---


class Orders(RuleBasedStateMachine):
    module: ClassVar[Any] = genuine

    @initialize(
        parallel=st.integers(1, 3),
        pause=st.sampled_from([0.0, 1.0]),
        on_timeout=st.sampled_from(["keep", "abort"]),
        prepare=st.booleans(),
        count=st.integers(1, 5),
    )
    def begin(self, parallel: int, pause: float, on_timeout: Any, prepare: bool, count: int) -> None:
        options = Options(pause, 10.0, on_timeout, parallel, prepare, tries=2)
        self.world = World(PIECES[:count], options, self.module)
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

    @rule(what=st.sampled_from(["abort", "reverse", "retry", "retry"]))
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
        again = self.module.Machine(world.pieces, world.options, records=world.disk)
        lasting = [
            [(it.state, it.holder, it.heading, it.verdict, it.call, it.stuck, it.token) for it in m.progress]
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


# --- and with a guarding line taken out ---


class Guard(NamedTuple):
    line: str
    without: str
    fault: str  # what the test must say of a machine without that line


GUARDS = {
    "the answer to the last call only": Guard(
        "if it.token == token:\n                    return number", "if True:\n                    return number",
        "two owners|start before|start while|does not serve|nothing to call|no pause",
    ),
    "one call of a piece at a time": Guard(
        "        if it.away is not None:\n            return", "        if False:\n            return", "two calls"
    ),
    "a time-out never gives a piece away": Guard(
        "        self._back(number, State.KEPT, why, now)",
        "        self._stopped(number, now) if it.state is State.STOPPING else self._back(number, State.KEPT, why, now)",
        "two calls|start before|two owners",
    ),
    "an error never gives a piece away": Guard(
        "            self._back(number, State.FAILED, why, now)\n\n    def abort",
        "            self._stopped(number, now) if self.progress[number].state is State.STOPPING"
        " else self._back(number, State.FAILED, why, now)"
        "\n\n    def abort",
        "start before|two owners",
    ),
    "a target that may have started is stopped first": Guard(
        "            if it.state is State.STOPPING and not it.unsure:\n                state, call",
        "            if True:\n                state, call",
        "two owners|start while",
    ),
    "a pause between two pieces": Guard("        self._cooling.append(now + self.options.pause)", "        pass", "no pause"),
    "a pause after a resumption": Guard(
        "        self._cooling = [now + self.options.pause] * self.options.parallel", "        pass", "no pause"
    ),
    "never two pieces of one node": Guard("            if busy & self.pieces[number].nodes:", "            if False:", "two pieces of one node"),
    "never more pieces than `parallel`": Guard(
        "            if len(running) + len(self._cooling) >= self.options.parallel:",
        "            if len(self._cooling) >= self.options.parallel:",
        "no pause",
    ),
    "a call only after its record": Guard(
        "        self._write(record)\n        self._apply(record)",
        "        record.state == 'STARTING' or self._write(record)\n        self._apply(record)",
        "before its record",
    ),
    "a change of owner only after its record": Guard(
        "        self._write(record)\n        self._apply(record)",
        "        record.state == 'DONE' or self._write(record)\n        self._apply(record)",
        "",
    ),
    "a repeated call says so": Guard("        self._ask(number, now, repeat=True)", "        self._ask(number, now)", "does not say so"),
    "calls are made again after a crash": Guard(
        "            elif it.under_way:\n                self._again(number, now)",
        "            elif False:\n                self._again(number, now)",
        "never comes to an end",
    ),
    "a stuck piece is not over": Guard(
        "        return all(it.state is State.DONE and not it.stuck for it in self.progress)", "        return True", "not all pieces"
    ),
}  # fmt: skip


def fault_of(module: Any, examples: int = 4000) -> str:
    """What the test of every order says of a broken machine; nothing when it finds no fault."""
    broken = type("Broken", (Orders,), {"module": module})
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


@pytest.mark.parametrize("name", GUARDS)
def test_every_order_of_events_finds_a_machine_without(name: str) -> None:
    guard = GUARDS[name]
    fault = fault_of(mutant(genuine, a=guard.line, b=guard.without))
    assert fault, "the test does not see that the line is missing"
    assert re.search(guard.fault, fault), fault


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
            if world.machine.progress[piece.number].token != command.token:
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
    "a source is lost": Script({}, {1: ("lost", str(PIECES[1].source))}),
    "a target is lost": Script({}, {2: ("lost", str(PIECES[2].target))}),
}


def crashes_at_every_write(script: Script, options: Options, module: Any = genuine) -> int:
    calm = World(PIECES, options, module)
    end = calm.finish(script)
    for write in range(calm.writes):
        for after in (False, True):
            world = World(PIECES, options, module)
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
    options = Options(1.0, 10.0, parallel=parallel, prepare="preparation" in name, tries=2)
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


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("            elif it.under_way:\n                self._again(number, now)", "            elif False:\n                pass"),
        ("            if it.state is State.STOPPED:\n                self._start(number, now)", "            if False:\n                pass"),
        ("        it.verdict = State(record.verdict) if record.verdict else None", "        it.verdict = None"),
        ("        self._write(record)\n        self._apply(record)", "        record.state == 'DONE' or self._write(record)\n        self._apply(record)"),
        ("        it.stuck = record.stuck\n", "        it.stuck = False\n"),
    ],
    ids=["no call is made again", "a confirmed stop is forgotten", "the verdict is forgotten", "a change of owner is not written", "no piece is ever stuck"],
)  # fmt: skip
def test_the_enumeration_finds_a_machine_without(line: str, without: str) -> None:
    module = mutant(genuine, a=line, b=without)
    found = 0
    for script in SCRIPTS.values():
        try:
            crashes_at_every_write(script, Options(1.0, 10.0, tries=2), module)
        except AssertionError:
            found += 1
    if "stuck" in without:  # the same end with and without a crash: what is wrong is that end
        with pytest.raises(AssertionError, match="does not serve"):
            World(PIECES, Options(1.0, 10.0, tries=2), module).finish(SCRIPTS["the way back fails"])
        found += 1
    assert found


# --- single steps, to be read ---


def states(world: World) -> list[str]:
    return [it.state.value for it in world.machine.progress]


def test_the_steps_of_a_piece() -> None:
    world = World(PIECES[:1], Options(prepare=True))
    world.finish()
    assert [r.state for r in world.disk] == ["PREPARING", "STOPPING", "STOPPED", "STARTING", "DONE", "OVER"]


def test_a_time_out_keeps_the_piece_and_goes_on() -> None:
    world = World(PIECES[:2], Options(timeout=10.0))
    assert world.finish(SCRIPTS["a stop hangs"])[1:] == [("DONE", "target", False), ("KEPT", "source", False)]
    assert "not confirmed within 10 s" in world.machine.progress[1].note


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
    assert (world.machine.mode, world.machine.forward) == ("OVER", False)
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
    assert world.machine.progress[1].note == "it broke; on the way back: it broke"
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
            for piece, it in zip(PIECES, world.machine.progress, strict=True):
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
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Options(**options)


def test_a_record_of_a_piece_that_is_not_there_is_an_error() -> None:
    with pytest.raises(HandoverError, match="piece 7"):
        Machine(PIECES, Options(), records=[Record(1, 7, "DONE", "target", "target")])

"""The schedule as a value: phases, queries, traces as Python and JSON, replay."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import to_function
from tilewright.schedule import PRIMITIVES, Schedule, Step, load_trace, replay
from tilewright.support import ArtefactError, ScheduleError
from unit.schedule.loop_programs import chain, check, elementwise, matmul, scheduled


def _tuned():
    s = scheduled(matmul(8, 8, 8)).tile(("i", "j"), (4, 4)).reorder("i_o", "j_o", "k", "i_i", "j_i")
    return s.decompose_init("C", "k").split("k", (2, 2), names=("a", "b", "c")).parallel("i_o")


def test_a_schedule_never_changes():
    s = Schedule(matmul())
    t = s.split("i", 2)
    assert s.loops() == ("i", "j", "k")
    assert t.loops() == ("i_o", "i_i", "j", "k")
    assert (len(s.trace), len(t.trace)) == (0, 1)


def test_notes_stay_with_a_schedule_but_not_in_its_trace():
    s = Schedule(matmul())
    t = s.with_note("why").split("i", 2).with_note("and why").with_note("why")
    assert (s.notes, t.notes) == ((), ("why", "and why"))
    assert t.trace == s.split("i", 2).trace and t.func == s.split("i", 2).func


def test_queries():
    s = scheduled(chain())
    assert s.blocks() == ("T", "Y")
    assert s.loops("Y") == ("Y_i",)
    assert set(s.buffers()) == {"X", "T", "Y"}
    assert s.block("T").stage == "T"
    assert s.loop("i").extent.const == 10


def test_the_loop_phase_starts_from_the_unscheduled_function():
    p = matmul()
    s = Schedule(p)
    assert s.program is p
    assert s.func == to_function(p)
    assert s.unroll("k").program is None


def test_a_loop_function_can_be_scheduled():
    func = Schedule(matmul()).split("i", 2).func
    s = Schedule(func, verify=True).parallel("i_o")
    assert s.program is None
    assert replay(func, s.trace).func == s.func


def test_the_program_phase_comes_first():
    s = scheduled(chain()).layout_split("T", 0, (-1, 4)).split("i_o", 2)
    check(s)
    with pytest.raises(ScheduleError, match="layout_split changes the program"):
        s.layout_split("T", 0, (-1, 2))
    with pytest.raises(ScheduleError, match="the loops already exist"):
        Schedule(s.func).inline_stage("T")


def test_a_trace_prints_as_python_that_rebuilds_it():
    s = _tuned()
    text = str(s.trace)
    assert 's = s.split("k", (2, 2), names=("a", "b", "c"))' in text
    scope = {"Schedule": Schedule, "program": s.source}
    exec(text, scope)
    assert scope["s"].func == s.func
    assert scope["s"].trace == s.trace


def test_a_trace_goes_through_json():
    s = _tuned()
    text = s.trace.to_json()
    assert load_trace(text) == s.trace
    again = replay(s.source, text)
    assert again.func == s.func
    assert again.trace.to_json() == text


def test_arguments_have_one_canonical_form():
    p = matmul()
    a, b = Schedule(p).split("i", factor=2), Schedule(p).split(loop="i", factor=2, tail="guard", names=[])
    assert a.trace == b.trace
    assert a.trace.steps == (Step("split", ("i", 2)),)


def test_replay_names_the_step_that_is_refused():
    s = _tuned()
    with pytest.raises(ScheduleError, match=r"step 0: tile\(") as caught:
        replay(chain(), s.trace)
    assert "there is no loop 'j'" in str(caught.value)


def _json(**changes):
    step = {"primitive": "unroll", "args": ["k"], "kwargs": {}}
    data = {"format": "tilewright-trace", "version": 1, "steps": [step]}
    data.update(changes)
    return json.dumps(data)


HOSTILE = {
    "no JSON": ("{", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "a list": ("[]", "not a trace"),
    "another format": (_json(format="x"), "not a trace"),
    "another version": (_json(version=2), "reads version 1"),
    "version of another type": (_json(version=True), "reads version 1"),
    "more keys": (_json(more=1), "exactly"),
    "steps of another type": (_json(steps={}), "exactly"),
    "too many steps": (_json(steps=[0] * 100_001), "has 100001 steps; at most 100000 are read"),
    "a name of another type": (_json(steps=[{"primitive": 1, "args": [], "kwargs": {}}]), "is a name"),
    "too long": (" " * ((1 << 24) + 1), "at most"),
    "a step of another type": (_json(steps=[3]), "step 0"),
    "an unknown primitive": (
        _json(steps=[{"primitive": "__class__", "args": [], "kwargs": {}}]),
        "no primitive",
    ),
    "a missing argument": (_json(steps=[{"primitive": "unroll", "args": [], "kwargs": {}}]), "is missing"),
    "too many": (_json(steps=[{"primitive": "unroll", "args": ["a", "b"], "kwargs": {}}]), "too many"),
    "another type": (_json(steps=[{"primitive": "unroll", "args": [3], "kwargs": {}}]), "expected str"),
    "an unknown argument": (
        _json(steps=[{"primitive": "unroll", "args": ["i"], "kwargs": {"x": 1}}]),
        "no argument 'x'",
    ),
    "an object": (
        _json(steps=[{"primitive": "unroll", "args": [{}], "kwargs": {}}]),
        "neither a scalar nor a list",
    ),
    "not a number": (
        _json(steps=[{"primitive": "unroll", "args": [float("nan")], "kwargs": {}}]),
        "not finite",
    ),
    "huge": (_json(steps=[{"primitive": "split", "args": ["i", 10**30], "kwargs": {}}]), "out of range"),
    "nested": (_json(steps=[{"primitive": "split", "args": ["i", [[[[[[[1]]]]]]]], "kwargs": {}}]), "nested"),
    "a literal": (
        _json(steps=[{"primitive": "split", "args": ["i", 2], "kwargs": {"tail": "x"}}]),
        "'guard' | 'peel'",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_trace_from_outside_is_checked(what):
    text, message = HOSTILE[what]
    with pytest.raises(ArtefactError) as caught:
        load_trace(text)
    assert message in str(caught.value)


def test_names_from_a_trace_are_identifiers():
    for name in ("a b", "__0", "i\n", "", "x" * 65):
        with pytest.raises(ScheduleError, match="cannot be the name of a loop"):
            Schedule(matmul()).split("i", 2, names=(name, "c"))


def test_an_argument_is_given_once():
    with pytest.raises(ScheduleError, match="unroll: argument 'loop' is given twice"):
        Schedule(matmul()).apply("unroll", "i", loop="i")


def test_values_a_trace_cannot_record_are_refused():
    with pytest.raises(ScheduleError, match="which a trace cannot record"):
        Schedule(matmul()).split("i", lang.param("n"))


def test_whole_numbers_of_numpy_are_recorded_as_python_s():
    made = Schedule(matmul()).split("i", np.int64(8)).split("j", [np.uint8(4), 2])
    assert made.trace == Schedule(matmul()).split("i", 8).split("j", [4, 2]).trace
    assert "np." not in str(made.trace)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_is_the_method_of_its_name(name):
    assert inspect.unwrap(getattr(Schedule, name)) is PRIMITIVES[name].function


def test_methods_say_which_arguments_they_lack_or_do_not_take():
    with pytest.raises(ScheduleError, match="split: argument 'factor' is missing"):
        Schedule(matmul()).split("i")
    with pytest.raises(ScheduleError, match="tensorize has no argument 'operations'"):
        Schedule(matmul()).tensorize("i", "fma", operations={})


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_is_documented_in_its_file(name):
    function = PRIMITIVES[name].function
    lines = [line for line in inspect.getdoc(function).splitlines() if line.strip()]
    assert len(lines) > 2
    assert function.__module__.startswith("tilewright.schedule.")


def test_verification_runs_after_each_step(monkeypatch):
    seen = []
    monkeypatch.setattr("tilewright.schedule.schedule.verify", seen.append)
    s = Schedule(elementwise(), verify=True).split("i", 2).unroll("j")
    assert seen[-1] is s.func
    assert len(seen) == 2
    Schedule(elementwise()).split("i", 2)
    assert len(seen) == 2


def test_the_overview_is_complete_and_its_example_runs():
    text = (Path(__file__).parents[3] / "docs" / "schedule.md").read_text()
    assert [name for name in PRIMITIVES if f"`{name}" not in text] == []
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {})


def test_older_names_of_primitives_are_read_and_never_written():
    s = Schedule(matmul(8, 8, 8)).cache("B", "j", name="P")
    old = s.trace.to_json().replace('"cache"', '"stage"')
    assert old != s.trace.to_json()
    assert load_trace(old) == s.trace
    assert '"stage"' not in load_trace(old).to_json()
    with pytest.raises(ScheduleError, match="there is no primitive 'stage'"):
        Schedule(matmul(8, 8, 8)).apply("stage", "B", "j")

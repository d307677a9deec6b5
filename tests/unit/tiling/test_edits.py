"""Edits of trees: what each changes, and that what is accepted after any of them is carried out and right."""

from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.ir import run_function
from tilewright.lower import lower
from tilewright.plan import build_unit, edited, rewritten
from tilewright.schedule import Schedule
from tilewright.strategies import Task
from tilewright.support import ScheduleError
from tilewright.tiling import apply, show, verify
from tilewright.tiling.edits import (
    Bound,
    Fuse,
    Hinted,
    Instructed,
    Joined,
    Merge,
    Moved,
    Parted,
    Relaid,
    Resize,
    Scoped,
    Split,
    Swap,
)
from unit.tiling import trees

PLAIN = "nest C\n  for i/4\n    for j/1\n      for i/1\n        for k/1\n          do C\n"
STRIPS = (
    "nest C\n  for y/4\n    make B in local\n      for y/1\n        for x/1\n          do B\n"
    "    for y/1\n      for x/1\n        do C\n"
)


@pytest.mark.parametrize(
    ("edit", "line", "now"),
    [
        (Resize("C", "i", 4, 2), 1, "for i/2"),
        (Split("C", "j", 1, 8), 2, "for j/8"),
        (Merge("C", "i", 4), 1, "for j/1"),
        (Swap("C", "i", 4), 1, "for j/1"),
        (Bound("C", "i", 4, "parallel"), 1, "for i/4 parallel"),
        (Fuse("C", "i", 4), 1, "for i/4 j/1"),
        (Hinted("C", "k", 1, "unroll", "4"), 4, "for k/1 unroll=4"),
        (Parted("C", "j", 1, (3,)), 2, "cut j at 3"),
        (Instructed("C", "fma"), 5, "do C by fma"),
        (Relaid("B", ("d1", "d0")), 1, "layout B = d1 , d0"),
    ],
)
def test_what_edits_change(edit, line, now):
    assert show(edit.of(trees.nest(PLAIN))).splitlines()[line].strip() == now


def test_splitting_a_level_of_several_axes_leaves_the_others_outside():
    nest = Bound("C", "j", 1, "parallel").of(Fuse("C", "i", 4).of(trees.nest(PLAIN)))
    lines = show(Split("C", "j", 1, 8).of(nest)).splitlines()
    assert [line.strip() for line in lines[1:3]] == ["for i/4 j/8 parallel", "for j/1"]


def test_producers_move_and_change_storage():
    nest = trees.nest(STRIPS)
    moved = show(Moved("B", "y", 1).of(nest)).splitlines()
    assert moved[2:4] == ["    for y/1", "      make B in local"]
    assert show(Moved("B").of(nest)).splitlines()[1] == "  make B in local"
    assert "make B in register as d1 , d0" in show(Scoped("B", "register", ("d1", "d0")).of(nest))
    assert show(Resize("B", "x", 1, 2).of(nest)).count("x/2") == 1


def test_a_cut_comes_and_goes():
    nest = trees.nest(PLAIN)
    cut = Parted("C", "j", 1, (3,)).of(nest)
    # a change is made in all parts
    assert show(Hinted("C", "k", 1, "unroll", "4").of(cut)).count("unroll=4") == 1
    assert Joined("C", "j").of(cut) == nest
    assert Hinted("C", "k", 1, "unroll", None).of(Hinted("C", "k", 1, "unroll", "4").of(nest)) == nest


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Resize("C", "i", 3, 2), "resize C i 3 2: C has no level of i/3"),
        (Resize("D", "i", 4, 2), "D is not made in the nest of C"),
        (Swap("C", "k", 1), "swap C k 1: something stands between"),
        (Fuse("C", "k", 1), "fuse C k 1: something stands between"),
        (Moved("B", "i", 4), "moved B i 4: B is made nowhere"),
        (Parted("C", "i", 4, (4,)), "the level is one loop over several axes"),
    ],
)
def test_edits_of_what_is_not_there_are_refused(edit, words):
    nest = trees.nest(PLAIN)
    nest = Fuse("C", "i", 4).of(nest) if isinstance(edit, Parted) else nest
    with pytest.raises(ScheduleError, match=words):
        edit.of(nest)
    if not isinstance(edit, Moved | Parted):
        return
    with pytest.raises(ScheduleError, match="no level of q/1"):
        Moved("B", "q", 1).of(trees.nest(STRIPS))


def test_an_edited_product_is_right():
    program = trees.product()
    nest = trees.nest(PLAIN)
    for edit in (Split("C", "j", 1, 3), Swap("C", "j", 3), Bound("C", "i", 1, "unroll")):
        nest = edit.of(nest)
    verify([nest], program, {})
    rng = np.random.default_rng(3)
    arrays = {b.name: rng.standard_normal([e.as_int() for e in b.shape], np.float32) for b in program.inputs}
    made = {**arrays, "C": np.zeros([e.as_int() for e in program.outputs[0].shape], np.float32)}
    found = run_function(lower(apply(Schedule(program), [nest]).func), made, {})["C"]
    np.testing.assert_allclose(found, arrays["A"] @ arrays["B"], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def tasks():
    found = {}
    for name, program in PROGRAMS.items():
        task = Task(program, Machine(STATED, 2))
        found[name] = (task, task.default().plan)
    return found


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_what_is_accepted_after_edits_is_carried_out_and_right(tasks, name, pytestconfig):
    """Permissions: ``verify`` accepts nothing that ``apply`` refuses. With ``--all`` 400 sequences each."""
    task, plan = tasks[name]
    context = rewritten(task.program, plan, task.machine, task.constants)[1]
    context = context.after(tuple(step for nest in plan.nests for step in nest.steps))
    count, compiled = 400 if pytestconfig.getoption("--all") else 3, 0
    for seed in range(count):
        rng, nests, edits = Random(seed), list(plan.nests), []
        n = rng.choice([n for n, nest in enumerate(nests) if nest.trees])
        for _ in range(rng.randint(1, 5)):
            edit, nests[n] = rng.choice(list(edited(context, nests[n])))
            edits.append(edit)
        changed = type(plan)(plan.rewrites, tuple(nests), plan.streamed)
        try:
            s = build_unit(task.program, changed, task.machine, task.constants)
        except ScheduleError as error:
            raise AssertionError(f"seed {seed}, {edits}: {error.what}") from error
        try:
            check_schedule(task.program, s)
            compiled += 1
        except ScheduleError as error:
            # how many registers there are, and of how many lanes, only code generation knows
            assert "register" in error.what, f"seed {seed}, {edits}: {error.what}"
    assert compiled

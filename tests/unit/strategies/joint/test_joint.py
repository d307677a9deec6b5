"""The joint search: the default first, distinct right plans, equal seeds, layouts and then loops."""

from dataclasses import replace
from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.joint.test_templates import assert_right, free_of

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import CONST, canonical_program, parse_program, print_program, structural_hash
from tilewright.lang import ops
from tilewright.plan import build_unit, renamed_plan
from tilewright.schedule import Schedule
from tilewright.strategies import STRATEGIES, History, Task, Trial
from tilewright.strategies.joint.settings import NETWORK, OPERATOR, JointSettings
from tilewright.strategies.joint.strategy import JointStrategy

SMALL = JointSettings(joint=12, loops=8, batch=16, episode=16, measured=4)


def task_of(name, *, free=True):
    program = PROGRAMS[name]
    return Task(program, Machine(STATED, 1), free=free_of(program) if free else frozenset())


def winograd_convolution():
    X, W = lang.placeholder((1, 64, 28, 28), name="X"), lang.placeholder((64, 64, 3, 3), name="W")
    program = lang.program([X, W], [ops.conv(X, W, padding=1)])
    return replace(program, inputs=(program.inputs[0], program.inputs[1].with_(scope=CONST)))


def run(task, trials, strategy=None, seed=0, time_of=None):
    """A search told made-up times; all candidates in order."""
    search = (strategy or JointStrategy(settings=SMALL)).start(task, History(), Random(seed))
    found = []
    while len(found) < trials:
        proposed = search.propose(4)
        if not proposed:
            break
        found += proposed
        time = time_of or (lambda plan: 1e-6 + len(str(plan)) * 1e-9)
        search.observe([Trial(c, "ok", (time(c.plan),)) for c in proposed])
    return search, found


def layouts_of(plan):
    return tuple(step for step in plan.rewrites.steps if step.primitive.startswith("layout_"))


@pytest.mark.parametrize("name", ["convolution", "product with weights"])
def test_candidates_are_distinct_and_right_and_the_default_comes_first(name):
    task = task_of(name)
    _, found = run(task, 24)
    assert found[0].plan == task.default().plan
    assert len({c.plan for c in found}) == len(found) >= 20
    assert len({layouts_of(c.plan) for c in found}) > 2
    for candidate in found[1:16:3]:
        assert_right(task.program, candidate.schedule(task))


def test_equal_seeds_and_times_make_equal_searches():
    task = task_of("product")
    plans = [[c.plan for c in run(task, 20, seed=seed)[1]] for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


def test_after_the_joint_stage_layouts_are_those_of_the_best():
    """Made-up times by layouts: the later candidates have the fastest ones."""
    task = task_of("convolution")

    def time_of(plan):
        return 1e-6 * (1 + len(layouts_of(plan)) + 0.001 * len(str(plan)))

    strategy = JointStrategy(settings=JointSettings(joint=20, loops=20, batch=64, episode=16, measured=4))
    _, found = run(task, 44, strategy, time_of=time_of)
    last = {layouts_of(c.plan) for c in found[-8:]}
    assert last == {min((layouts_of(c.plan) for c in found), key=len)}


def test_loops_alone_keep_their_layouts():
    _, found = run(task_of("convolution"), 16, JointStrategy("loop-only", SMALL, layouts=False))
    assert {layouts_of(c.plan) for c in found} == {()}
    assert len(found) >= 12


def test_templates_alone_are_a_few_fixed_layouts():
    strategy = JointStrategy("template", JointSettings(joint=40, measured=4, batch=16), actors=False)
    _, found = run(task_of("convolution"), 40, strategy)
    assert 2 < len({layouts_of(c.plan) for c in found}) <= 6


def test_what_is_refused_is_learned_as_slow():
    task = task_of("product with weights")
    search = JointStrategy(settings=SMALL).start(task, History(), Random(0))
    (first,) = search.propose(4)
    search.observe([Trial(first, "ok", (1e-6,))])
    for _ in range(6):
        search.observe([Trial(c, "refused", reason="no") for c in search.propose(4)])
    assert 0 <= search.expected_gain() <= 1
    assert search.propose(4)


def test_a_program_without_an_operator_has_its_loops_tuned():
    _, found = run(task_of("softmax"), 12)
    assert {layouts_of(c.plan) for c in found} == {()}


def test_other_algorithms_are_a_choice():
    """A convolution by Winograd's method: the direct one is tried under the layouts that there are."""
    task = Task(parse_program(print_program(winograd_convolution())), Machine(STATED, 1))
    assert "winograd" in {step.primitive for step in task.default().plan.rewrites.steps}
    _, found = run(task, 10)
    direct = [c for c in found if "winograd" not in {step.primitive for step in c.plan.rewrites.steps}]
    assert direct and layouts_of(direct[0].plan) == ()
    assert_right(task.program, direct[0].schedule(task))


@pytest.mark.parametrize("name", ["convolution", "product with weights"])
def test_plans_with_layouts_go_to_other_names_and_back(name):
    """As records do: the same function, whatever tensors and stages are called."""
    task = task_of(name)
    canonical = canonical_program(task.program)
    _, found = run(task, 20)
    for candidate in found[::4]:
        there = renamed_plan(candidate.plan, task.program, canonical, task.machine)
        wanted = structural_hash(build_unit(task.program, candidate.plan, task.machine).func)
        assert structural_hash(build_unit(canonical, there, task.machine).func) == wanted
        assert renamed_plan(there, canonical, task.program, task.machine) == candidate.plan
    assert any(layouts_of(c.plan) for c in found[::4])


def test_the_paper_s_budgets_have_names():
    assert (OPERATOR.joint, OPERATOR.loops, NETWORK.joint, NETWORK.loops) == (300, 700, 8000, 12000)
    assert (OPERATOR.batch, OPERATOR.episode, OPERATOR.measured) == (128, 128, 8)
    assert STRATEGIES["joint"].name == "joint"


def test_free_arguments_are_part_of_what_a_task_is():
    assert task_of("product").key != task_of("product", free=False).key
    assert Schedule(task_of("product").program).program is not None

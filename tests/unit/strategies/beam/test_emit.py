"""States of plans: the default plan is one, and comes back from it."""

from tests.native_kernel import HOST
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import graph_of
from tilewright.strategies import Task
from tilewright.strategies.beam.emit import from_plan, to_plan

MACHINE = Machine(HOST, 2)


def test_the_default_plan_is_a_state():
    program = harris(1536, 2560)
    g, plan = graph_of(program), Task(program, MACHINE).default().plan
    state = from_plan(g, plan)
    assert state is not None
    assert "tile" in state.places and "inline" in state.places
    assert to_plan(g, state, MACHINE).plan == plan


def test_a_plan_that_rewrites_more_is_none():
    x = lang.placeholder((1, 16, 30, 30), name="X")
    w = lang.placeholder((16, 16, 3, 3), name="W")
    program = lang.program([x, w], [lang.ops.conv(x, w, padding=1)])
    plan = Task(program, MACHINE).default().plan
    assert {step.primitive for step in plan.rewrites.steps} - {"inline_stage"}
    assert from_plan(graph_of(program), plan) is None

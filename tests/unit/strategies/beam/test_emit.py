"""States of plans: the default plan is one, and comes back from it."""

from tests.native_kernel import STATED
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import graph_of
from tilewright.strategies import Task
from tilewright.strategies.beam.emit import from_plan, to_plan

MACHINE = Machine(STATED, 2)


def test_the_default_plan_is_a_state():
    program = harris(1536, 2560)
    g, plan = graph_of(program), Task(program, MACHINE).default().plan
    state = from_plan(g, plan)
    assert state is not None
    assert "tile" in state.places
    assert to_plan(g, state, MACHINE).plan == plan


def test_a_plan_that_rewrites_more_is_none():
    x = lang.placeholder((1, 16, 30, 30), name="X")
    w = lang.placeholder((16, 16, 3, 3), name="W")
    program = lang.program([x, w], [lang.ops.conv(x, w, padding=1)])
    plan = Task(program, MACHINE).default().plan
    assert {step.primitive for step in plan.rewrites.steps} - {"inline_stage"}
    assert from_plan(graph_of(program), plan) is None


def nl_means(h, w):
    """What denoising by means over places that look alike has: two sums over the same weights."""
    image = lang.placeholder((3, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    sy, sx = (lang.reduce_axis((-3, 4), n) for n in ("sy", "sx"))
    different = lang.stage(
        lambda dy, dx, y, x: sum(lang.square(near[c, y, x] - near[c, y + dy, x + dx]) for c in range(3)),
        name="different",
    )
    weight = lang.stage(
        lambda dy, dx, y, x: lang.exp(different[dy, dx, y, x] + different[dy, dx, y + 1, x]), name="weight"
    )
    total = lang.stage(lambda y, x: lang.sum(weight[sy, sx, y, x], axis=(sy, sx)), name="total")
    colour = lang.stage(
        lambda c, y, x: lang.sum(weight[sy, sx, y, x] * near[c, y + sy, x + sx], axis=(sy, sx)), name="colour"
    )
    out = lang.stage(lambda c, y, x: colour[c, y, x] / total[y, x], name="out")
    return lang.program([image], out, name="nl_means", region=[3, h, w])


def test_a_plan_that_is_no_state_is_like_one():
    """A small image, whose plan copies what its sum reads."""
    program = nl_means(30, 40)
    g, plan = graph_of(program), Task(program, MACHINE).default().plan
    assert "gather_operand" in {step.primitive for step in plan.rewrites.steps}
    assert from_plan(g, plan) is None
    state = from_plan(g, plan, like=True)
    assert state is not None and {*state.places} <= {"own", "inline"}


def test_sums_are_computed_in_tiles_with_what_they_read():
    """Large: what lies between its stages fits no cache."""
    program = nl_means(384, 640)
    plan = Task(program, MACHINE).default().plan
    nest = plan.nests[-1]
    assert nest.rule == "pipeline" and {"weight", "colour", "total"} <= {*nest.stages}

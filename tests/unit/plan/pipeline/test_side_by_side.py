"""Stages by themselves whose rows share what they read: several rows at a time, at every size."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.plan import GroupPlan, plan_unit
from tilewright.plan.inlining import inline_stages
from tilewright.plan.pipeline.side_by_side import rows_side_by_side
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512, detect


def box(h, w, dtype="u16"):
    image = lang.placeholder((h + 2, w + 2), dtype, name="image")
    rows = lang.stage(lambda y, x: image[y, x] + image[y, x + 1] + image[y, x + 2], name="rows")
    out = lang.stage(lambda y, x: rows[y, x] + rows[y + 1, x] + rows[y + 2, x], name="out")
    return lang.program([image], out, name="box", region=[h, w])


def lone(h, w, value):
    image = lang.placeholder((h, w), "f32", name="image")
    return lang.program(
        [image], lang.compute((h, w), lambda y, x: value(image, y, x), name="out"), name="lone"
    )


def lone_plan(program, threads=2):
    program = inline_stages(Schedule(program)).require_program()
    (stage,) = program.stages
    return rows_side_by_side(program, stage, Machine(X86_AVX512, threads))


def test_rows_share_what_they_read():
    assert lone_plan(box(1536, 2560)) == GroupPlan((64, 0), (), (0, 1), 1, (8, 1), 1)
    assert lone_plan(box(120, 2560)) == GroupPlan((16, 0), (), (0, 1), 1, (8, 1), 1)
    # too few rows for all threads, and for one that has all strips
    assert lone_plan(box(24, 2560)) is None
    assert lone_plan(box(1536, 2560), threads=1).parallel == 0


@pytest.mark.parametrize(
    "value",
    [
        lambda a, y, x: a[y, x] * 2 + 1,
        # the same for all rows
        lambda a, y, x: a[y, x] * a[0, x],
        # neighbours along rows alone
        lambda a, y, x: a[y, lang.clamp(x - 1, 0, 99)] + a[y, x],
        # borders, which a nest by itself cuts apart
        lambda a, y, x: a[lang.clamp(y - 1, 0, 511), x] + a[y, x] + a[lang.clamp(y + 1, 0, 511), x],
    ],
)
def test_others_have_loops_of_one_row(value):
    assert lone_plan(lone(512, 100, value)) is None


@pytest.mark.parametrize("shape", [(512, 64), (513, 67), (518, 31), (319, 250), (130, 16)])
@pytest.mark.parametrize("dtype", ["u16", "f32"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_and_columns_that_are_left_over(shape, dtype, threads):
    target = detect()
    program = box(*shape, dtype)
    planned = plan_unit(program, Machine(target, threads))
    assert any(
        isinstance(nest.choice, GroupPlan) and nest.choice.expand[0] > 1 for nest in planned.plan.nests
    )
    image = (
        np.random.default_rng(0)
        .integers(0, 900, [n + 2 for n in shape])
        .astype(np.dtype(dtype.replace("f32", "f4").replace("u16", "u2")))
    )
    (got,) = build(planned.schedule, target=target, threads=threads)(image)
    np.testing.assert_array_equal(got, lang.evaluate(program, {"image": image})["out"])

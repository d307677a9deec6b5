"""Scans in stripes: which stages share them, right at ragged sizes and widths, and what is left alone."""

from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import check_schedule, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import Variants, build_unit, plan_from_json, plan_unit
from tilewright.poly import check_legal
from tilewright.schedule import Schedule

LANES = 16
#: A second level of 64 KiB.
SMALL = replace(
    STATED, memory=tuple(replace(lv, size=65536) if n == 1 else lv for n, lv in enumerate(STATED.memory))
)


def along(f, n, m, name, axis=1):
    """Forward and backward along an axis of planes of n x m."""

    def there(g, at, c, y, x):
        before = g[c, y - 1, x] if axis == 1 else g[c, y, x - 1]
        return lang.select((y, x)[axis - 1] == 0, at, 0.5 * before + at)

    def back(g, at, c, y, x):
        after = g[c, y + 1, x] if axis == 1 else g[c, y, x + 1]
        return lang.select((y, x)[axis - 1] == (n, m)[axis - 1] - 1, at, 0.5 * after + at)

    down = lang.scan(
        (2, n, m), lambda g, c, y, x: there(g, f[c, y, x], c, y, x), axis=axis, name=f"{name}_down"
    )
    return lang.scan(
        (2, n, m),
        lambda g, c, y, x: back(g, down[c, y, x], c, y, x),
        axis=axis,
        reverse=True,
        name=f"{name}_up",
    )


def blur(h, w):
    """Down and up, turned, down and up, turned back."""
    image = t(2, h, w, name="image")
    columns = along(image, h, w, "columns")
    turned = lang.stage(lambda c, y, x: columns[c, x, y], name="turned")
    rows = along(turned, w, h, "rows")
    out = lang.stage(lambda c, y, x: rows[c, x, y] * 2, name="out")
    return lang.program([image], out, name="blur", region=[2, h, w])


def found_in(program, threads=2):
    planned = plan_unit(program, Machine(SMALL, threads))
    return planned, {n.root: n for n in planned.plan.nests if n.rule == "scans"}


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(96, 160), (83, 130)])
@pytest.mark.parametrize("threads", [1, 3])
def test_stripes_are_right(shape, threads):
    program = blur(*shape)
    planned, found = found_in(program, threads)
    assert {root: nest.stages for root, nest in found.items()} == {
        "columns_up": ("columns_down",),
        "out": ("turned", "rows_down", "rows_up"),
    }
    assert planned.schedule.notes == ()
    assert found["out"].choice.width % LANES == 0
    check_schedule(program, planned.schedule, interpret=shape == (83, 130) and threads == 3)
    assert plan_from_json(planned.plan.to_json()) == planned.plan


def test_stripes_are_legal_and_every_width_is_right():
    program = blur(40, 140)
    machine = Machine(replace(STATED, memory=tuple(replace(lv, size=36864) for lv in STATED.memory)), 2)
    plan = plan_unit(program, machine).plan
    variants, drawn = Variants(program, plan, machine), 0
    for n, varied in enumerate(variants.nests):
        for each in varied.space:
            s = build_unit(program, variants.chosen({n: each}), machine)
            assert check_legal(Schedule(program).func, s.func, {}) == []
            check_schedule(program, s)
            drawn += 1
    assert drawn > len(plan.nests) > 1


def test_turning_goes_with_the_scans_whose_stripes_have_room():
    machine = Machine(replace(STATED, memory=tuple(replace(lv, size=24576) for lv in STATED.memory)), 2)
    found = {n.root: n.stages for n in plan_unit(blur(50, 70), machine).plan.nests}
    assert found == {"turned": ("columns_down", "columns_up"), "out": ("rows_down", "rows_up")}


def test_two_threads_share_stripes_of_all_planes():
    planned, found = found_in(blur(96, 160))
    s = planned.schedule
    outer = s.loops("columns_up")[0]
    assert s.loop(outer).kind.name == "parallel"
    assert s.loop(outer).extent.as_int() == 2 * -(-160 // found["columns_up"].choice.width)
    # inside of a stripe nothing is gathered: lanes run across it, or along rows that are turned
    assert s.loop(s.loops("rows_down")[-1]).extent.as_int() == found["out"].choice.width
    assert s.loop(s.loops("turned")[-1]).kind.name == s.loop(s.loops("out")[-1]).kind.name == "unroll"


def test_scans_along_what_lies_together_have_no_stripes():
    image = t(2, 96, 160, name="image")
    program = lang.program([image], along(image, 96, 160, "rows", axis=2), name="f")
    planned, found = found_in(program)
    assert not found
    check_schedule(program, planned.schedule)


def test_what_a_cache_holds_has_no_stripes():
    assert not found_in(blur(8, 20))[1]


def test_what_is_read_beside_its_place_is_not_in_the_stripe():
    image = t(2, 96, 160, name="image")
    up = along(image, 96, 160, "columns")
    shifted = lang.stage(lambda c, y, x: up[c, y, x + 1] - up[c, y, x], name="shifted")
    program = lang.program([image], shifted, name="f", region=[2, 96, 159])
    planned, found = found_in(program)
    assert {root: nest.stages for root, nest in found.items()} == {"columns_up": ("columns_down",)}
    check_schedule(program, planned.schedule)

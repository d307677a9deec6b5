"""Layouts of constant operands: what lies together."""

from tests.native_kernel import STATED
from tests.unit.plan.contraction.test_cache_blocking import roles
from tests.unit.strategies.test_default import check, constant, t

from tilewright import lang
from tilewright.plan.contraction.packing import panel_layout


def phased(*, size=6, into=16, out=32, window=4, step=2):
    """The phases of a 1-D transposed convolution: each reads every other tap."""
    x = t(into, size + window // step, name="X")
    w = t(into, out, window, name="W")
    ic, tap = lang.reduce_axis(into, "ic"), lang.reduce_axis(window // step, "tap")
    y = lang.compute(
        (step, size, out),
        lambda r, q, oc: lang.sum(x[ic, q + tap] * w[ic, oc, step * tap + r], axis=[ic, tap]),
        name="Y",
    )
    return constant(lang.program([x, w], [y]), "W")


def layout_of(program):
    found = panel_layout(program, roles(program), STATED, ["W"])
    assert found is not None and found[0] == "W"
    return found[1]


def test_what_each_phase_reads_lies_together():
    program = phased()
    front, *others, last = layout_of(program)
    assert front.startswith("d1//") and last.startswith("d1%")
    assert others == ["d2%2", "d0", "d2//2"]
    check(program)


def test_taps_that_steps_do_not_divide_leave_gaps():
    x, w = t(16, 9, name="X"), t(16, 32, 5, name="W")
    ic, tap = lang.reduce_axis(16, "ic"), lang.reduce_axis(2, "tap")
    y = lang.compute(
        (6, 32), lambda q, oc: lang.sum(x[ic, q + tap] * w[ic, oc, 3 * tap + 1], axis=[ic, tap]), name="Y"
    )
    program = constant(lang.program([x, w], [y]), "W")
    assert layout_of(program)[1:-1] == ("d2%3", "d0", "d2//3")
    check(program)


def test_two_reductions_along_one_dimension_stay_in_their_order():
    x, w = t(20, 4, 8, name="X"), t(32, 32, name="W")
    head, f = lang.reduce_axis(4, "head"), lang.reduce_axis(8, "f")
    y = lang.compute(
        (20, 32), lambda i, j: lang.sum(x[i, head, f] * w[8 * head + f, j], axis=[head, f]), name="Y"
    )
    program = constant(lang.program([x, w], [y]), "W")
    assert layout_of(program)[1:-1] == ("d0",)
    check(program)

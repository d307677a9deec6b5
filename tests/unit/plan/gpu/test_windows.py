"""Windows on GPUs: depthwise convolutions and pooling, borders filled in registers, tiles a thread."""

import re

import numpy as np
import pytest
from tests.plans import asked_of

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.cost import Machine
from tilewright.ir import run_program
from tilewright.lang import ops
from tilewright.lower import insert_barriers
from tilewright.plan import build_unit, plan_from_json, plan_unit
from tilewright.plan.gpu.windows import WindowsPlan, window_of
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, assert_close
from tilewright.target import A100, POCL

RNG = np.random.default_rng(6)


def t(name, *shape):
    return lang.placeholder(shape, name=name)


def depthwise(channels=5, rows=13, columns=7, stride=1, dilation=1):
    x, w, b = t("X", 2, channels, rows, columns), t("W", channels, 1, 3, 3), t("B", channels)
    c = ops.depthwise_conv(x, w, b, padding=dilation, strides=stride, dilations=dilation)
    y = lang.compute(c.shape, lambda n, ch, h, v: lang.maximum(c[n, ch, h, v], 0.0), name="Y")
    return lang.program([x, w, b], [y])


def depthwise_1d():
    x, w = t("X", 1, 3, 17), t("W", 3, 1, 5)
    return lang.program([x, w], [ops.depthwise_conv(x, w, padding=2)])


def pool(shape, window, stride, padding, kind=ops.max_pool):
    x = t("X", *shape)
    return lang.program([x], [kind(x, window, strides=stride, padding=padding)])


def blur():
    x = t("X", 11, 13, 3)
    k, m = lang.reduce_axis(3, "k"), lang.reduce_axis(2, "m")
    y = lang.compute((9, 12, 3), lambda i, j, c: lang.sum(x[i + k, j + m, c], axis=(k, m)), name="Y")
    return lang.program([x], [y])


PROGRAMS = {
    "depthwise": depthwise(),
    "strided": depthwise(3, 11, 13, stride=2),
    "dilated": depthwise(3, 11, 13, dilation=2),
    "one axis": depthwise_1d(),
    "max": pool((1, 3, 13, 13), (3, 3), 2, 1),
    "apart": pool((1, 2, 8, 14), (2, 2), 2, 0),
    "average": pool((2, 3, 7, 11), (3, 3), 1, 1, ops.average_pool),
    "three axes": pool((1, 2, 5, 7, 6), (2, 3, 3), 1, 0),
    "channels last": blur(),
}


def windows_of(planned):
    return [nest for nest in planned.plan.nests if nest.rule == "gpu_windows"]


def with_plan(program, plan, target=POCL):
    made = plan_unit(program, Machine(target, 1)).plan
    return build_unit(program, asked_of(made, plan, "gpu_windows"), Machine(target, 1))


def compare(program, s):
    given = {
        b.name: RNG.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    want = run_program(program, given)
    for language in LANGUAGES:
        got = on_device(s.func, language)(given)
        for name, value in want.items():
            # terms cancel: an element's own size says nothing of its error
            assert_close(got[name], value, terms=64, magnitude=np.abs(value).max())


@pytest.mark.few(4)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_windows_are_one_kernel(program):
    planned = plan_unit(program, Machine(POCL, 1))
    assert len(windows_of(planned)) == len(planned.plan.nests) == 1
    assert not planned.schedule.notes
    rewritten = Schedule(program).replay(planned.plan.rewrites)
    assert not check_legal(rewritten.func, insert_barriers(planned.schedule.func))
    compare(program, planned.schedule)
    checked_by_nvrtc(planned.schedule.func, registers=64)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "plan", [WindowsPlan(2, 4, 64), WindowsPlan(4, 1, 128), WindowsPlan(1, 7, 64)], ids=str
)
def test_tiles_at_sizes_that_they_do_not_divide(plan):
    for program in (depthwise(3, 13, 11), pool((1, 3, 15, 17), (3, 3), 2, 1)):
        s = with_plan(program, plan)
        compare(program, s)
        checked_by_nvrtc(s.func, registers=128)


def test_overlapping_windows_are_read_once_and_products_have_no_conditions():
    one, four = (with_plan(depthwise(32, 28, 28), WindowsPlan(n, n, 128), A100) for n in (1, 2))
    counts = []
    for s in (one, four):
        text = kernel_source(s.func, "cuda").text
        kept = re.search(r"float X_pad_\[(\d+)\]", text)
        counts.append(int(kept[1]))
        product = next(n for n, line in enumerate(text.splitlines()) if " * W_[" in line)
        before = text.splitlines()[product - 4 : product]
        assert all("for" in line or "#pragma" in line for line in before), before
    assert counts == [9, 16]


def test_results_that_lie_together_are_stored_together():
    s = with_plan(depthwise(8, 28, 28), WindowsPlan(1, 4, 128), A100)
    assert "tw_f32x4" in kernel_source(s.func, "cuda").text


def test_the_space_and_what_it_refuses():
    program = depthwise(32, 56, 56)
    planned = plan_unit(program, Machine(A100, 1))
    (nest,) = windows_of(planned)
    assert plan_from_json(planned.plan.to_json()) == planned.plan
    assert nest.choice.down * nest.choice.across >= 1
    for plan, message in (
        (WindowsPlan(8, 8, 128), "576 terms"),
        (WindowsPlan(3, 1, 128), "down"),
    ):
        with pytest.raises(ArtefactError, match=message):
            with_plan(program, plan, A100)
    with pytest.raises(ArtefactError, match="one axis only"):
        with_plan(depthwise_1d(), WindowsPlan(2, 1, 64))


def test_what_is_no_window():
    x, w = t("X", 1, 4, 9, 9), t("W", 8, 4, 3, 3)
    product = lang.program([x, w], [ops.conv(x, w)])
    assert all(window_of(product, stage) is None for stage in product.stages)
    whole = pool((1, 2, 40, 40), (9, 9), 1, 0)
    assert all(window_of(whole, stage) is None for stage in whole.stages)
    rows = lang.program([y := t("Y", 5, 37)], [ops.reduce("sum", y, (1,))])
    assert all(window_of(rows, stage) is None for stage in rows.stages)

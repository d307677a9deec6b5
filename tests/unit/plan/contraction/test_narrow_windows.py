"""Windows over narrow planes of plain tensors: blocks of channels put side by side, and back."""

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import check, constant, conv_program, t

from tilewright import lang
from tilewright.ir import F32
from tilewright.lang import ops
from tilewright.plan.contraction import narrow_windows as planes, windows_rule as default
from tilewright.plan.contraction.narrow_windows import find_planes
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

LANES = STATED.lanes(F32)


def in_blocks(s):
    return any("X_copy" in name for name in s.blocks())


def depthwise(n, channels, spatial, window, known=True, **options):
    p = conv_program(n, channels, channels, spatial, window, groups=channels, **options)
    return constant(p, "W", "B") if known else p


CASES = {
    "3x3": ((1, 2 * LANES, (7, 7), (3, 3)), {"pad": 1}),
    "strided": ((2, LANES, (14, 14), (3, 3)), {"pad": 1, "stride": 2}),
    "without padding": ((1, LANES, (7, 9), (3, 3)), {}),
    "5x5": ((1, 3 * LANES, (6, 5), (5, 5)), {"pad": 2}),
    "half blocks": ((1, LANES // 2, (7, 7), (3, 3)), {"pad": 1}),
    "part of the plane": ((1, LANES, (10, 10), (2, 2)), {"stride": 4}),
    "without consumer": ((2, LANES, (5, 6), (3, 3)), {"epilogue": False}),
    "dilated": ((1, LANES, (9, 7), (3, 3)), {"pad": 2, "dilation": 2}),
    "3-D": ((1, LANES, (3, 4, 5), (3, 3, 3)), {"pad": 1}),
    "weights at run time": ((1, LANES, (7, 7), (3, 3)), {"pad": 1, "known": False}),
}


@pytest.mark.few(15)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_depthwise(case, threads):
    args, options = CASES[case]
    assert in_blocks(check(depthwise(*args, **options), threads=threads, interpret=False))


@pytest.mark.few(2)
@pytest.mark.parametrize("case", ["3x3", "strided", "half blocks", "without consumer"])
def test_on_the_interpreter(case):
    args, options = CASES[case]
    assert in_blocks(check(depthwise(*args, **options)))


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("op", [ops.max_pool, ops.average_pool], ids=["max", "mean"])
def test_pooling(op, pad):
    x = t(2, LANES, 7, 7, name="X")
    assert in_blocks(check(lang.program([x], [op(x, (3, 3), 1, pad, name="Y")])))


def test_sums_of_whole_planes_run_along_memory():
    x = t(3, 2 * LANES, 7, 7, name="X")
    h, w = lang.reduce_axis(7, "h"), lang.reduce_axis(7, "w")
    total = lang.compute(
        (3, 2 * LANES, 1, 1), lambda n, c, i, j: lang.sum(x[n, c, h, w], axis=[h, w]), name="S"
    )
    mean = lang.compute((3, 2 * LANES, 1, 1), lambda n, c, i, j: total[n, c, i, j] / 49.0, name="Y")
    # planes are one axis of 49 elements, as long as three vectors (decision 0398)
    assert not in_blocks(check(lang.program([x], [mean])))


@pytest.mark.parametrize("kept", ["h", "w"])
def test_sums_of_rows_and_columns(kept):
    x = t(2, LANES, 6, 7, name="X")
    k = lang.reduce_axis(7 if kept == "h" else 6, "k")
    shape = (2, LANES, 6, 1) if kept == "h" else (2, LANES, 1, 7)
    y = lang.compute(
        shape,
        lambda n, c, h, w: lang.sum(x[n, c, h, k] if kept == "h" else x[n, c, k, w], axis=k),
        name="Y",
    )
    check(lang.program([x], [y]))


def test_products_of_batches_are_left_alone():
    a, b = t(2, LANES, 1, 8, name="A"), t(2, LANES, 8, 5, name="B")
    p = lang.program([a, b], [ops.matmul(a, b, name="Y")])
    assert refused(p)
    check(p)


def refused(program):
    s = inline_stages(Schedule(program)).program
    return find_planes(s, s.stages[-1], STATED) is None


def test_channels_that_make_no_blocks_are_left_alone():
    p = depthwise(1, LANES // 2 + 1, (7, 7), (3, 3), pad=1)
    assert refused(p)
    assert not in_blocks(check(p, interpret=False))


def test_planes_larger_than_the_cache_are_left_alone():
    assert not refused(depthwise(1, LANES, (500, 7), (3, 3), pad=1))
    assert refused(depthwise(1, LANES, (5000, 7), (3, 3), pad=1))


def test_a_step_that_is_refused_leaves_the_simple_schedule_and_a_note(monkeypatch, caplog):
    def none(*args):
        raise ScheduleError("not today")

    monkeypatch.setattr(default, "planes_nest", none)
    with caplog.at_level("INFO", "tilewright"):
        s = check(depthwise(1, LANES, (7, 7), (3, 3), pad=1), interpret=False)
    assert not in_blocks(s)
    assert s.notes == ("stage Y by a simpler rule: not today",)
    assert f"{s.source.name}: {s.notes[0]}" in caplog.text


def test_a_packing_that_leaves_no_register_tile_is_given_up(monkeypatch, caplog):
    found = planes.is_tileable

    def none(program, *args, **kwargs):
        packed = any(b.name == "W" and b.layout is not None for b in program.inputs)
        return None if packed else found(program, *args, **kwargs)

    monkeypatch.setattr(planes, "is_tileable", none)
    with caplog.at_level("INFO", "tilewright"):
        check(depthwise(1, 2 * LANES, (7, 7), (3, 3), pad=1), interpret=False)
    assert "Y0 has no register tile in blocks of channels" in caplog.text

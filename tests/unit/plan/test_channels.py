"""Columns and channels of interleaved pictures are one axis: where they are, and what that is worth."""

import numpy as np
import pytest
from tests.native_kernel import STATED, Native

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import For, locate, run_program
from tilewright.plan import plan_unit
from tilewright.plan.beginning import begin
from tilewright.schedule import Schedule
from tilewright.target import A100, X86_AVX512

MACHINE = Machine(STATED, 2)


def blurred(h, w, c, element="u8"):
    image = lang.placeholder((h, w, c), element, name="image")
    near = lang.boundary(image, mode="clamp")
    rows = lang.stage(
        lambda y, x, c: sum(lang.cast(near[y, x + n, c], "u16") for n in range(-1, 2)), name="rows"
    )
    out = lang.stage(
        lambda y, x, c: lang.cast((rows[y - 1, x, c] + rows[y + 1, x, c]) // 6, "u8"), name="out"
    )
    return lang.program([image], out, region=[h, w, c])


def steps_of(program, on=X86_AVX512):
    return [(s.primitive, s.args[0]) for s in begin(Schedule(program), on).trace.steps]


def test_columns_and_channels_are_one_axis_of_all_stages():
    program = blurred(30, 64, 3)
    assert steps_of(program) == [("layout_fuse", "rows"), ("fuse_iterators", "out")]
    s = plan_unit(program, MACHINE).schedule
    lanes = [p.node.extent.as_int() for p in locate(s.func.body, For) if p.node.kind.name == "vector"]
    assert lanes and all(n == 3 * 64 for n in lanes)


@pytest.mark.parametrize("shape", [(30, 63, 3), (30, 64, 5)])
def test_short_rows_and_many_channels_stay(shape):
    assert steps_of(blurred(*shape)) == []


def test_no_channels_stay():
    image = lang.placeholder((30, 64, 0), "u8", name="image")
    assert steps_of(lang.program([image], [lang.compute((30, 64, 0), lambda *i: image[i], name="out")])) == []


def test_devices_and_sums_keep_their_axes():
    assert steps_of(blurred(30, 64, 3), A100) == []
    image = lang.placeholder((30, 64, 3), "u8", name="image")
    weights, k = lang.placeholder((3,), "u32", name="weights"), lang.reduce_axis(3, "k")
    sums = lang.compute(
        (28, 64, 3), lambda y, x, c: lang.sum(lang.cast(image[y + k, x, c], "u32") * weights[k], k), name="s"
    )
    out = lang.compute((28, 64, 3), lambda *i: sums[i] + 1, name="out")
    assert steps_of(lang.program([image, weights], [out])) == []


@pytest.mark.parametrize("columns", [64, 20])
def test_pictures_have_no_sums_over_windows(columns):
    image = lang.placeholder((30, columns), "u8", name="image")
    j, k = lang.reduce_axis(5, "j"), lang.reduce_axis(5, "k")
    near = lang.boundary(image, mode="clamp")
    most = lang.compute((30, columns), lambda y, x: lang.max(near[y + k, x + j], axis=(k, j)), name="most")
    now = begin(Schedule(lang.program([image], [most])), X86_AVX512).require_program()
    assert any(stage.is_reduction for stage in now.stages) == (columns < 64)


def test_a_scale_that_is_summed_before_keeps_no_channel_apart():
    image = lang.placeholder((30, 64, 3), "f32", name="image")
    axes = tuple(lang.reduce_axis(n, name) for n, name in ((30, "k"), (64, "l"), (3, "m")))
    mean = lang.compute((1,), lambda i: lang.sum(image[axes], axis=axes), name="mean")
    out = lang.compute((30, 64, 3), lambda y, x, c: image[y, x, c] * mean[0], name="out")
    assert steps_of(lang.program([image], [out])) == [("fuse_iterators", "out")]


@pytest.mark.parametrize("element", ["u8", "u16", "f32"])
@pytest.mark.parametrize("made", ["grey", "mixed", "scaled", "with_alpha"])
def test_lanes_are_picked_at_known_places(made, element):
    """No lane is looked up, whatever phase its vector has; nothing beside the arguments is touched."""
    h, w = 5, 144
    image = lang.placeholder((h, w, 3), element, name="image")
    table = lang.placeholder((3, 3), "f32", name="table")
    match made:
        case "grey":
            out = lang.compute(
                (h, w), lambda y, x: image[y, x, 0] + image[y, x, 1] + image[y, x, 2], name="out"
            )
        case "mixed":
            out = lang.compute(
                (h, w, 3),
                lambda y, x, c: sum(lang.cast(image[y, x, k], "f32") * table[c, k] for k in range(3)),
                name="out",
            )
        case "scaled":
            out = lang.compute(
                (h, w, 3), lambda y, x, c: lang.cast(image[y, x, c], "f32") * table[0, c], name="out"
            )
        case _:
            out = lang.compute(
                (h, w, 4),
                lambda y, x, c: lang.select(c < 3, image[y, x, lang.minimum(c, 2)], image[y, x, 1]),
                name="out",
            )
    program = lang.program([image, table], [out])
    kernel = Native(plan_unit(program, MACHINE).schedule.func)
    assert "gather" not in kernel.text.text
    rng = np.random.default_rng(0)
    given = {
        "image": rng.integers(0, 80, (h, w, 3)).astype(image.dtype.numpy),
        "table": rng.integers(0, 9, (3, 3)).astype(np.float32),
    }
    np.testing.assert_array_equal(kernel(given)["out"], run_program(program, given)["out"])

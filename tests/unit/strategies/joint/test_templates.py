"""Templates: operators and their dimensions, the layouts of the paper, and that all of them are right."""

from dataclasses import replace
from math import prod
from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED, Native
from tests.unit.plan.test_unit import PROGRAMS

from tilewright import lang
from tilewright.analysis import Window, find_operator
from tilewright.build import pack, unpack
from tilewright.cost import Machine
from tilewright.ir import F32, stmt_loads
from tilewright.lang import ops
from tilewright.plan.graph.layouts import through_layout
from tilewright.schedule import Schedule, Step, derived_constants, pack_argument, unpack_argument
from tilewright.strategies import Task
from tilewright.strategies.joint.layouts import fixed_points
from tilewright.strategies.joint.loops import loop_space
from tilewright.strategies.joint.templates import Factor, layout_space


def free_of(program):
    return frozenset(b.name for b in (*program.inputs, *program.outputs))


def space_of(program, levels=1):
    return layout_space(program, find_operator(program), free_of(program), STATED, levels)


def point_of(space, **values):
    """A point with the values given by names with spaces as underscores; the first options otherwise."""
    known = {name.replace("_", " "): value for name, value in values.items()}
    return tuple(known.get(f.name, 0 if f.kind == "choice" else f.options[-1]) for f in space.factors)


def conv(stride=1, dilation=1, groups=1, size=12, pad=1, channels=8):
    X = lang.placeholder((1, channels, size, size), name="X")
    W = lang.placeholder((channels, channels // groups, 3, 3), name="W")
    Y = ops.conv(X, W, strides=stride, dilations=dilation, padding=pad, groups=groups)
    return lang.program([X, W], [Y])


def assert_right(program, s, seed=0):
    """The schedule computes what the program does, its arguments laid out as its steps say."""
    rng, steps, given = np.random.default_rng(seed), s.trace.steps, {}
    plain = replace(program, outputs=tuple(b.with_(layout=None) for b in program.outputs))
    arrays = {
        b.name: rng.standard_normal([n.as_int() for n in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }
    expected = lang.evaluate(plain, arrays)
    declared = {b.name: b for b in (*program.inputs, *program.outputs)}
    derived = derived_constants(s)
    for b in s.func.buffers:
        if b.name in derived:
            given[b.name] = pack(derived[b.name].of(arrays), b)
        elif b.name not in s.func.outputs:
            given[b.name] = pack(pack_argument(arrays[b.name], b.name, steps, declared[b.name].layout), b)
    got = Native(s.func)(given)
    for b in program.outputs:
        value = unpack(got[b.name], s.func.buffer(b.name))
        value = unpack_argument(value, b.name, [n.as_int() for n in b.shape], steps, b.layout)
        scale = max(1.0, float(np.abs(expected[b.name]).max()))
        np.testing.assert_allclose(value, expected[b.name], rtol=0, atol=1e-4 * scale)


def test_a_convolution_and_its_neighbours():
    op = find_operator(PROGRAMS["strided convolution"])
    assert op.results == ("Y0", "Y", "R")
    assert (op.data.tensor, op.source, op.weight.tensor) == ("X_pad", "X", "W")
    assert (op.space, op.channel) == ((2, 3), 1)
    assert op.data.windows == (None, None, Window(2, 1, 3), Window(2, 1, 3))


@pytest.mark.parametrize(("d", "reach"), [(1, 3), (2, 5)])
def test_dilated_windows_reach_further(d, reach):
    op = find_operator(conv(dilation=d))
    assert op.data.windows[2] == Window(1, d, 3)
    assert op.data.windows[2].reach == reach


def test_depthwise_channels_and_products():
    depthwise = find_operator(conv(groups=8))
    assert depthwise.channel == 1 and depthwise.space == (2, 3)
    product = find_operator(PROGRAMS["product with weights"])
    assert (product.space, product.channel, product.windowed) == ((0,), 1, False)


@pytest.mark.parametrize("name", ["softmax", "pooling", "min-plus", "element-wise"])
def test_other_programs_have_no_operator(name):
    assert find_operator(PROGRAMS[name]) is None


def test_actions_stand_for_the_nearest_factors():
    """Formula 2 of the paper: 32 by 0.5 is 16."""
    factor = Factor("channel", "tile", 32, (1, 2, 4, 8, 16, 32))
    assert [factor.pick(a) for a in (0.5, 0.999, 0.001, 0.35)] == [16, 32, 1, 8]
    choice = Factor("unfold", "choice", 2, (0, 1))
    assert [choice.pick(a) for a in (0.1, 0.49, 0.51, 1.0)] == [0, 0, 1, 1]


def test_the_template_of_the_paper():
    """N · H/ht · W/wt · O/ot · ht · wt · ot, with ht 4, wt 6, ot 2; and its second level."""
    program = conv()
    space = space_of(program, levels=2)
    point = point_of(
        space, result=1, space2=4, space3=6, channel=2, **{"space2'": 1, "space3'": 1, "channel'": 1}
    )
    (step,) = [s for s in space.steps(point) if s.args[0] != "W"]
    assert step.args[1] == ("d0", "d2//4", "d3//6", "d1//2", "d2%4", "d3%6", "d1%2")
    point = point_of(
        space, result=1, space2=2, space3=12, channel=2, **{"space2'": 3, "space3'": 1, "channel'": 2}
    )
    (step,) = [s for s in space.steps(point) if s.args[0] != "W"]
    # the image as a whole along w is no outer dimension
    assert step.args[1] == ("d0", "d2//6", "d1//4", "d2%6//2", "d1%4//2", "d2%2", "d3", "d1%2")
    s = Schedule(program).replay((step,))
    assert_right(program, s)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_overlapping_tiles_of_the_paper(stride, dilation):
    """B = V(ht - 1) + d(KH - 1) + 1 and S = V ht, of the padded image."""
    program = conv(stride, dilation, size=12)
    op = find_operator(program)
    space = space_of(program)
    ht = 2 if op.extents[2] % 2 == 0 else 3
    point = point_of(space, result=1, data=1, unfold=1, follow=1, space2=ht, data_channel=2)
    (unfold,) = [s for s in space.steps(point) if s.primitive == "layout_unfold"]
    reach = dilation * 2 + 1
    assert unfold.args[1:] == (2, stride * (ht - 1) + reach, stride * ht)
    s = Schedule(program).replay(space.steps(point))
    tiles, tile = s.program.buffer(op.data.tensor).shape[2:4]
    # rows that no window reaches may make another tile
    assert tiles.as_int() - -(-op.extents[2] // ht) in (0, 1)
    assert tile.as_int() == stride * (ht - 1) + reach
    assert_right(program, s)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["convolution", "strided convolution", "product", "product with weights"])
def test_random_layouts_with_their_default_plans_are_right(name):
    program, rng = PROGRAMS[name], Random(5)
    space, task = space_of(program, 2), Task(program, Machine(STATED, 1), free=free_of(program))
    assert prod(len(f.options) for f in space.factors) > 1000
    points = fixed_points(space) + [tuple(f.pick(rng.random()) for f in space.factors) for _ in range(4)]
    for point in points:
        loops = loop_space(task, space.steps(point))
        s = Schedule(program).replay(loops.base.rewrites)
        assert_right(program, s)


def test_weights_in_wider_blocks_than_groups_have_a_plan():
    """Groups of 16 channels and weights in blocks of 32: no register tile, but loops that are right."""
    program = conv(groups=4, channels=64)
    lanes = STATED.lanes(F32)
    blocks = Step("layout_place", ("W", (f"d0//{2 * lanes}", "d1", "d2", "d3", f"d0%{2 * lanes}")))
    last = Step("layout_place", ("conv", ("d0", "d2", "d3", "d1")))
    task = Task(program, Machine(STATED, 1), free=free_of(program))
    made = loop_space(task, (last, Step("layout_adopt", ("conv",)), blocks))
    assert_right(program, Schedule(program).replay(made.base.rewrites))


def test_only_what_is_free_is_laid_out():
    program = PROGRAMS["convolution"]
    space = layout_space(program, find_operator(program), frozenset(), STATED)
    names = {step.args[0] for point in fixed_points(space) for step in space.steps(point)}
    assert names <= {"X_pad", "W"}
    assert not any(f.name in ("result", "channel") for f in space.factors)


def test_weights_may_lie_in_blocks():
    space = space_of(PROGRAMS["product with weights"])
    point = point_of(space, weight=1, weight_out=16, weight_in=8)
    assert Step("layout_place", ("B", ("d1//16", "d0//8", "d0%8", "d1%16"))) in space.steps(point)


def test_phases_of_transposed_convolutions_have_data_and_weights_to_lay_out():
    X, W = lang.placeholder((1, 8, 5, 5), name="X"), lang.placeholder((8, 16, 3, 3), name="W")
    program = lang.program([X, W], [ops.conv_transpose(X, W, strides=1, padding=1)])
    op = find_operator(program)
    assert op is not None and op.windowed
    space = space_of(program)
    for point in fixed_points(space):
        task = Task(program, Machine(STATED, 1), free=free_of(program))
        loops = loop_space(task, space.steps(point))
        assert_right(program, Schedule(program).replay(loops.base.rewrites))


def test_results_computed_in_blocks_to_be_put_in_order_need_not_be():
    """What the graph's rule does for plain results is taken back where a result may lie elsewhere."""
    program = conv()
    (output,) = program.outputs
    through = through_layout(program, output, ("d0", "d1//4", "d2", "d3", "d1%4"))
    space = space_of(through)
    steps = space.steps(point_of(space, result=1, space2=1, space3=1, channel=8))
    assert Step("layout_place", (f"{output.name}_blocks", ())) in steps
    task = Task(through, Machine(STATED, 1), free=free_of(through))
    loops = loop_space(task, steps)
    assert_right(through, Schedule(through).replay(loops.base.rewrites))


def test_a_padding_stage_converts():
    """Fig. 5b: data in the order that the convolution wants are made where they are padded."""
    program = PROGRAMS["convolution"]
    space = space_of(program)
    steps = space.steps(point_of(space, data=1, data_channel=16))
    assert steps == (Step("layout_place", ("X_pad", ("d0", "d1//16", "d2", "d3", "d1%16"))),)
    loops = loop_space(Task(program, Machine(STATED, 1), free=free_of(program)), steps)
    assert [nest.root for nest in loops.base.nests] == ["X_pad", "Y"]
    assert_right(program, Schedule(program).replay(loops.base.rewrites))


def test_the_overlapped_tiling_of_the_paper():
    """Fig. 2: the result in two halves of rows, the input in two overlapping tiles; loops follow them."""
    program = conv(size=8, pad=0)
    space = space_of(program)
    point = point_of(
        space, result=1, follow=1, data=1, unfold=1, space2=3, space3=6, channel=8, data_channel=8
    )
    s = Schedule(program).replay(space.steps(point))
    (stage,) = s.program.stages
    assert [n.as_int() for n in s.program.buffer("X").shape] == [1, 8, 2, 5, 8]
    (load,) = [ld for ld in stmt_loads(stage.body) if ld.buffer == "X"]
    # ALT, formula 1: the tile is that of the result's, the place in it its row and the tap's
    assert "kh + oh_i" in [str(x) for x in load.indices]
    assert not any(mark in str(load) for mark in ("//", "%", "min"))
    assert_right(program, s)

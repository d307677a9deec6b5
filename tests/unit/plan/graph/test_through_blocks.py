"""Results that must be plain, computed in blocks of channels and copied; groups of whole vectors."""

from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import blocked, check, constant, conv_program, t

from tilewright import lang
from tilewright.analysis.contraction import Contraction
from tilewright.ir import F32, blocks
from tilewright.lang import ops
from tilewright.plan import EXACT, Accuracy, Flow, assign_layouts
from tilewright.plan.contraction import sharing as contraction
from tilewright.plan.contraction.output_order import find_in_order
from tilewright.plan.contraction.register_tiling import choose_tile, is_tileable
from tilewright.plan.graph.layouts import Block
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule, with_layout
from tilewright.target import find_target

LANES = STATED.lanes(F32)


def plain(program):
    """The program as the only one of a model: inputs and outputs are plain."""
    inputs = {b.name: b.name for b in program.inputs}
    outputs = {b.name: b.name for b in program.outputs}
    return assign_layouts([Flow(program, inputs, outputs)], {*inputs, *outputs}, STATED)[0]


def through(program):
    return [b.name for b in program.temps if b.layout is not None]


CASES = {
    "3x3": ((1, 16, 32, (9, 13), (3, 3)), {"pad": 1}),
    "without consumer": ((2, 8, 16, (5, 6), (3, 3)), {"epilogue": False}),
    "strided": ((1, 12, 48, (11, 9), (3, 3)), {"pad": 1, "stride": 2}),
    "dilated": ((1, 8, 16, (9, 7), (3, 3)), {"pad": 2, "dilation": 2}),
    "1x1": ((3, 64, 32, (1, 15), (1, 1)), {}),
    "1-D": ((1, 16, 32, (19,), (3,)), {"pad": 1}),
    "3-D strided": ((1, 3, 16, (3, 7, 9), (3, 3, 3)), {"pad": 1, "stride": 2}),
    "24 channels": ((1, 16, 24, (4, 5), (3, 3)), {}),
    "groups of 16": ((1, 32, 32, (5, 7), (3, 3)), {"pad": 1, "groups": 2}),
    "groups of 32": ((2, 16, 64, (7, 7), (3, 3)), {"pad": 1, "groups": 2, "stride": 2}),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_results(case, threads):
    args, options = CASES[case]
    program = plain(conv_program(*args, **options))
    assert through(program) == ["Y_blocks"]
    check(program, threads=threads, accuracy=EXACT, interpret=False)


def test_after_several_stages():
    x, w, b = t(1, 16, 8, 9, name="X"), t(32, 16, 3, 3, name="W"), t(32, name="B")
    total = ops.conv(x, w, padding=1, name="Y0")
    scaled = lang.compute(total.shape, lambda *i: total[i] * 0.5, name="scaled")
    shifted = lang.compute(total.shape, lambda *i: scaled[i] + b[i[1]], name="shifted")
    y = lang.compute(total.shape, lambda *i: lang.maximum(shifted[i], 0), name="Y")
    program = plain(constant(lang.program([x, w, b], [y]), "W", "B"))
    assert through(program) == ["Y_blocks"]
    check(program, accuracy=EXACT, interpret=False)


@pytest.mark.parametrize(("dtype", "blocked_too"), [("u8", True), ("f32", False)])
def test_what_instructions_sum_is_stored_in_blocks(dtype, blocked_too):
    """A copy of plain bytes is written as the convolution of bytes after it wants them."""
    a = t(1, 32, 8, 9, name="A", dtype=dtype)
    copied = lang.compute(a.shape, lambda *i: a[i], name="X")
    before = lang.program([a], [copied])
    other = "i8" if dtype == "u8" else "f32"
    x, w = t(1, 32, 8, 9, name="X", dtype=dtype), t(13, 32, 3, 3, name="W", dtype=other)
    ic, kh, kw = (lang.reduce_axis(n, name) for n, name in ((32, "ic"), (3, "kh"), (3, "kw")))
    total = "i32" if dtype == "u8" else "f32"
    y = lang.compute(
        (1, 13, 6, 7),
        lambda n, oc, oh, ow: lang.sum(
            lang.cast(x[n, ic, oh + kh, ow + kw], total) * lang.cast(w[oc, ic, kh, kw], total),
            axis=(ic, kh, kw),
        ),
        name="Y",
    )
    after = constant(lang.program([x, w], [y]), "W")
    flows = [Flow(before, {"A": "a"}, {"X": "x"}), Flow(after, {"X": "x", "W": "w"}, {"Y": "y"})]
    made = assign_layouts(flows, {"a", "w", "y"}, find_target("x86_avx512"))
    assert [(p.buffer("X").layout is not None) for p in made] == [blocked_too] * 2


@pytest.mark.parametrize("case", ["without consumer", "groups of 16"])
def test_on_the_interpreter(case):
    args, options = CASES[case]
    check(plain(conv_program(*args, **options)), accuracy=EXACT)


@pytest.mark.parametrize("mode", ["f2", "f4"])
def test_by_winograd(mode):
    program = plain(conv_program(1, 16, 32, (9, 10), (3, 3), pad=1))
    s = check(program, accuracy=Accuracy(mode), interpret=False, tolerance=5e-5)
    assert "winograd" in [step.primitive for step in s.trace.steps]


@pytest.mark.parametrize(
    ("args", "options"),
    [
        # few terms, no mixing of channels, groups smaller than any block, channels that are no blocks
        ((1, 16, 32, (8, 8), (1, 1)), {}),
        ((1, 32, 32, (8, 8), (7, 7)), {"groups": 32, "pad": 3}),
        ((1, 32, 32, (8, 8), (3, 3)), {"groups": 16, "pad": 1}),
        ((1, 16, 13, (8, 8), (3, 3)), {}),
    ],
)
def test_plain_where_blocks_do_not_pay(args, options):
    program = plain(conv_program(*args, **options))
    assert through(program) == []
    check(program, accuracy=EXACT, interpret=False)


def roles(program) -> Contraction | None:
    now = inline_stages(Schedule(program)).program
    assert now is not None
    (stage,) = [each for each in now.stages if each.is_reduction]
    return is_tileable(now, stage, STATED, packed=False)


@pytest.mark.parametrize("groups", [1, 2, 4, 8, 16, 32, 64])
def test_an_axis_in_groups_is_of_the_weights_alone_within_a_group(groups):
    c = roles(blocked(conv_program(1, 64, 64, (9, 9), (3, 3), groups=groups, epilogue=False)))
    size = 64 // groups
    if groups == 64:
        assert c is None or c.group is None
    elif size % (LANES // 2):
        # rows of seven are half vectors
        assert c is not None and c.vector == "ow" and c.rows == size
    else:
        assert c is not None and c.group == (None if groups == 1 else size)
        assert "oc" in c.axes("n") and c.axes("k") == ("ic",) and c.axes("window") == ("kh", "kw")
        assert size % (choose_tile(c, STATED).vectors * min(LANES, size)) == 0


def test_a_plain_result_of_a_blocked_input():
    """Padding hides whether the operand could be gathered: it is read as it is."""
    program = conv_program(1, 16, 13, (6, 20), (3, 3), pad=1, epilogue=False)
    x, *others = program.inputs
    program = replace(program, inputs=(with_layout(x, Block(1, LANES).indices(len(x.shape))), *others))
    check(program, accuracy=EXACT, interpret=False)


def parts(s):
    """The block buffers that hold a part of a result each, and whether the whole one is still written."""
    text = str(s)
    return text.count("alloc Y_local: "), "Y_blocks[" in text


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("args", "options", "threads"),
    [
        # threads share rows, images, panels; rows of a third size; more than a vector's worth of rows a part
        ((1, 16, 32, (8, 13), (3, 3)), {"pad": 1}, 2),
        ((2, 16, 32, (9, 11), (3, 3)), {"pad": 1}, 2),
        ((1, 64, 128, (7, 7), (3, 3)), {"pad": 1, "groups": 8}, 2),
        ((1, 8, 48, (90, 97), (3, 3)), {"pad": 1}, 3),
        ((1, 3, 16, (4, 9, 10), (3, 3, 3)), {"pad": 1, "stride": 2}, 2),
        ((1, 16, 32, (200, 190), (3, 3)), {"pad": 1}, 1),
        ((1, 16, 32, (8, 13), (3, 3)), {"pad": 1, "epilogue": False}, 2),
    ],
)
def test_parts_are_copied_where_they_are_made(args, options, threads, monkeypatch):
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    s = check(plain(conv_program(*args, **options)), threads=threads, accuracy=EXACT, interpret=False)
    assert parts(s) == (1, False)


@pytest.mark.parametrize(("size", "axis"), [((14, 14), "oc"), ((16, 16), "oh"), ((30, 14), "oc")])
def test_threads_write_no_line_in_common(size, axis, monkeypatch):
    """Half a plane of 14 x 14 elements is no whole lines: threads share channels instead of rows."""
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    program = plain(conv_program(1, 16, 64, size, (3, 3), pad=1, epilogue=False))
    s = check(program, threads=2, accuracy=EXACT, interpret=False)
    block = s.block("Y")
    assert parts(s) == (1, False)
    (shared,) = (f.var for place in blocks(s.func.body) for f in place.loops[:1] if place.node.name == "Y")
    assert [it.name for it, b in zip(block.iters, block.bind, strict=True) if shared in b.vars] == [axis]


def test_copied_at_the_end_where_threads_could_not_share_parts(monkeypatch):
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    s = check(plain(conv_program(1, 16, 32, (1, 7), (1, 3), pad=0)), threads=2, accuracy=EXACT)
    assert parts(s) == (0, True)


def test_only_copies_are_done_in_parts():
    """A copy of all of a blocked buffer that nobody else reads."""
    program = plain(conv_program(1, 16, 32, (8, 8), (3, 3), pad=1))
    copy = program.stages[-1]
    found = find_in_order(program, copy, STATED)
    assert found is not None and (found.source, found.channel, found.size) == ("Y_blocks", 1, LANES)
    assert find_in_order(program, program.stages[-2], STATED) is None
    unblocked = tuple(replace(b, layout=None) for b in program.temps)
    assert find_in_order(replace(program, temps=unblocked), copy, STATED) is None
    again = replace(copy, name="again", body=copy.body)
    assert find_in_order(replace(program, stages=(*program.stages, again)), copy, STATED) is None

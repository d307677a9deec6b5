"""Layouts around convolutions whose vectors run along rows: groups that do not fill blocks, few results."""

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import check, conv_program

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import F32
from tilewright.plan import EXACT, Flow, assign_layouts
from tilewright.strategies import Task

LANES = STATED.lanes(F32)


def between_pointwise(channels, groups, width=9):
    """Layouts of a pointwise convolution's result and of a grouped one's, between pointwise ones."""
    between = ("first", "grouped", "last")
    programs = [
        conv_program(1, 16, channels, (9, width), (1, 1)),
        conv_program(1, channels, channels, (9, width), (3, 3), pad=1, groups=groups),
        conv_program(1, channels, 32, (9, width), (1, 1)),
    ]
    flows = []
    for n, program in enumerate(programs):
        inputs = {b.name: f"{b.name}_{n}" for b in program.inputs}
        inputs["X"] = between[n - 1] if n else "input"
        flows.append(Flow(program, inputs, {program.outputs[0].name: between[n]}))
    out = assign_layouts(flows, {"input", "last"}, STATED)
    return [program.outputs[0].layout for program in out[:2]], [
        program.inputs[0].layout for program in out[1:]
    ]


@pytest.mark.parametrize(
    ("channels", "groups", "width"),
    [(8 * LANES, 32, 9), (4 * LANES, 8, 3 * LANES), (2 * LANES, LANES, 9), (6 * LANES, 2 * LANES, 9)],
)
def test_groups_of_parts_of_a_block_are_plain(channels, groups, width):
    """Where rows have some vectors, and where groups have fewer channels than half a vector, or odd ones."""
    made, read = between_pointwise(channels, groups, width)
    assert made == [None, None]
    assert read == [None, None]


@pytest.mark.parametrize(("channels", "groups"), [(8 * LANES, 16), (4 * LANES, 8)])
def test_groups_of_parts_of_a_block_are_blocks_where_rows_are_short(channels, groups):
    """Half a vector at a time: those along short rows would waste more."""
    made, _ = between_pointwise(channels, groups)
    assert made[1] is not None and made[1].shape[-1].as_int() == channels // groups


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_of_whole_blocks_are_blocked(groups):
    made, read = between_pointwise(4 * LANES, groups)
    assert None not in made
    assert made == read


def test_depthwise_is_blocked():
    made, _ = between_pointwise(4 * LANES, 4 * LANES)
    assert None not in made


def test_groups_of_smaller_blocks_that_they_fill():
    """Channels that half vectors divide, in groups of half a vector: blocks of half vectors."""
    made, _ = between_pointwise(5 * LANES // 2, 5)
    assert None not in made


def read_by(results, window, width=40):
    """The layout of a blocked convolution's result that one with so many results reads."""
    first = conv_program(1, 16, 2 * LANES, (9, width), (1, 1))
    pad = {"pad": 1} if window == 3 else {}
    last = conv_program(1, 2 * LANES, results, (9, width), (window, window), **pad)
    flows = [
        Flow(first, {"X": "input"}, {first.outputs[0].name: "between"}),
        Flow(last, {"X": "between"}, {last.outputs[0].name: "output"}),
    ]
    return assign_layouts(flows, {"input", "output"}, STATED)[0].outputs[0].layout


def test_windows_with_few_results_read_rows():
    assert read_by(3, 3) is None
    assert read_by(1, 3) is None
    assert read_by(LANES // 2, 3) is not None
    assert read_by(3, 1) is not None
    assert read_by(3, 3, width=LANES // 2) is not None


def test_windows_of_single_channels_keep_blocks():
    """A batch of one may be read by a constant: it is no axis of few results."""
    first = conv_program(1, 16, 2 * LANES, (9, 40), (1, 1))
    x = lang.placeholder((1, 2 * LANES, 9, 40), name="X")
    w = lang.placeholder((2 * LANES, 3), name="W")
    k = lang.reduce_axis(3, "k")
    y = lang.compute(
        (1, 2 * LANES, 9, 38), lambda n, c, i, j: lang.sum(x[0, c, i, j + k] * w[c, k], axis=k), name="Y"
    )
    last = lang.program([x, w], [y])
    flows = [
        Flow(first, {"X": "input"}, {first.outputs[0].name: "between"}),
        Flow(last, {"X": "between"}, {"Y": "output"}),
    ]
    assert assign_layouts(flows, {"input", "output"}, STATED)[0].outputs[0].layout is not None


@pytest.mark.few(6)
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(
    ("n", "ic", "oc", "groups", "size", "window", "stride"),
    [
        (1, 12, 18, 6, 7, 3, 1),  # 3 channels of 2 a group
        (2, 24, 24, 4, 13, 3, 2),  # 6 of 6, every second element
        (1, 32, 8, 4, 14, 5, 2),  # 2 of 8
        (1, 20, 10, 10, 8, 3, 1),  # one of 2: rows of a whole half
        (1, 16, 48, 4, 15, 1, 2),  # 12 of 4, pointwise
        (1, 9, 9, 3, 21, 3, 3),  # every third element
        (1, 10, 10, 5, 25, 3, 4),
        (1, 6, 6, 3, 29, 1, 5),  # too far apart to be picked from vectors
        (1, 8, 40, 4, 5, 3, 1),  # rows of less than half a vector
    ],
)
def test_results_of_small_groups(n, ic, oc, groups, size, window, stride, epilogue):
    options = {"pad": window // 2, "groups": groups, "stride": stride, "epilogue": epilogue}
    program = conv_program(n, ic, oc, (size, size), (window, window), **options)
    check(program, accuracy=EXACT, interpret=n == 1)


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (14, 2), (9, 1), (30, 2), (24, 3)])
def test_small_groups_fill_register_tiles(size, stride):
    """Neither results one by one, nor sums of less than what a tile of rows holds."""
    program = conv_program(1, 48, 48, (size, size), (3, 3), pad=1, groups=8, stride=stride, epilogue=False)
    nests = Task(program, Machine(STATED, 1)).default().plan.nests
    assert [nest.rule for nest in nests] == ["contraction"] and nests[0].choice.rows == 6

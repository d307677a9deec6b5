"""Contractions by instructions on tiles: right at odd sizes, chosen where parts fill the tiles."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from native_kernel import STATED, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.cost import Machine
from tilewright.ir import CONST, run_function, verify
from tilewright.plan import Variants, build_unit, plan_unit
from tilewright.plan.contraction.matrix_tiles import RESULTS, matrix_tile
from tilewright.plan.graph.layouts import Block
from tilewright.schedule import with_layout
from tilewright.strategies import default_schedule
from tilewright.target import INTERPRETED, find_instruction
from unit.codegen.test_tiles import AMX
from unit.schedule.loop.test_tensorize_tiles import KINDS, arrays, product

#: Rows, columns and steps; whether tiles are filled so well that they must be used.
SIZES = [
    ((16, 48, 64), True),
    ((32, 64, 128), True),
    ((14, 32, 64), True),
    ((15, 96, 192), True),
    ((17, 48, 64), None),
    ((29, 312, 312), None),
    ((13, 19, 68), None),
    ((1, 64, 16), False),
    ((3, 5, 8), False),
    ((6, 32, 9), False),
]


@pytest.mark.few(30)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sizes", "used"), SIZES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_products_of_constants(kind, sizes, used, threads):
    """Scheduled on any machine, interpreted where small; run between forbidden pages where it has tiles."""
    m, n, k = sizes
    program = product(m, n, k, kind)
    s = default_schedule(program, Machine(AMX, threads), constants=("B",))
    verify(s.func)
    if used is not None:
        assert (f"{kind}(" in str(s)) == used
    given = arrays(program)
    wanted = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    tolerance = 0 if kind == "tdpbusd" else 1e-5 * k
    if m * n * k < 50000 and threads < 3:
        made = run_function(s.func, given, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    if STATED.tiles:
        made = Native(s.func)(given)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)


def test_without_moves_there_are_no_tiles():
    """The instruction alone does not make a machine that can use it."""
    poor = replace(AMX, moves=())
    s = default_schedule(product(16, 48, 64, "tdpbf16ps"), Machine(poor, 1), constants=("B",))
    assert "tdpbf16ps(" not in str(s)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(16, 16, 64), (32, 32, 128), (48, 96, 64), (14, 24, 96)])
def test_parts_are_even_and_fit(kind, sizes):
    known = find_instruction(kind)
    tile = matrix_tile(known, *sizes)
    most = dict(known.axes)
    assert tile is not None
    for size, part, together, axis in zip(
        sizes,
        (tile.rows, tile.columns, tile.depth),
        (tile.row_tiles, tile.column_tiles, 1),
        ("m", "n", "k"),
        strict=True,
    ):
        assert 1 <= part <= most[axis] and size % (part * together) == 0
    assert tile.depth % known.b.group == 0
    assert tile.row_tiles * tile.column_tiles <= RESULTS


def test_no_parts():
    known = find_instruction("tdpbf16ps")
    assert matrix_tile(known, 16, 16, 33) is None  # no groups
    assert matrix_tile(known, 1, 16, 32) is None  # a row is less than tiles are worth
    assert matrix_tile(known, 16, 16, 32, run=5) is None
    assert matrix_tile(known, 16, 96, 32, panel=48).columns * 3 == 48


def test_results_in_blocks_have_parts_of_their_own():
    """Fourteen pixels by 80 channels in blocks of 16: parts of 16 columns do, without blocks none."""
    known = find_instruction("tdpbusd")
    assert matrix_tile(known, 14, 80, 16) is None
    assert matrix_tile(known, 14, 80, 16, run=16) is not None
    X, W = lang.placeholder((1, 240, 14, 14), "u8", name="X"), lang.placeholder((80, 240), "i8", name="W")
    ic = lang.reduce_axis(240, "ic")

    def of(n, oc, oh, ow):
        return lang.sum(lang.cast(X[n, ic, oh, ow], "i32") * lang.cast(W[oc, ic], "i32"), axis=ic)

    program = lang.program([X, W], [lang.compute((1, 80, 14, 14), of, name="Y")])
    block = Block(1, 16).indices(4)
    program = replace(
        program,
        inputs=(with_layout(program.inputs[0], block), program.inputs[1].with_(scope=CONST)),
        outputs=(with_layout(program.outputs[0], block),),
    )
    assert plan_unit(program, Machine(AMX, 1)).plan.nests


def test_bytes_do_not_saturate():
    program = product(16, 16, 64, "tdpbusd")
    s = default_schedule(program, Machine(AMX, 1), constants=("B",))
    assert "tdpbusd(" in str(s)
    a, b = np.full((16, 64), 255, np.uint8), np.full((64, 16), -128, np.int8)
    given = {"A": a, "B": pack(b, s.func.buffer("B"))}
    wanted = np.full((16, 16), -255 * 128 * 64)
    np.testing.assert_array_equal(run_function(s.func, given, instructions=INTERPRETED)["C"], wanted)
    if STATED.tiles:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)


def test_subnormals_count_as_nothing():
    """As the instruction's description says; results of normal numbers keep infinities and NaN."""
    if not STATED.tiles:
        pytest.skip("this machine has no tile registers")
    program = product(16, 16, 32, "tdpbf16ps")
    s = default_schedule(program, Machine(STATED, 1), constants=("B",))
    assert "tdpbf16ps(" in str(s)
    a = np.ones((16, 32), ml_dtypes.bfloat16)
    a[0, 0], a[1, 0], a[2, 0] = np.inf, -np.inf, 1e-40
    b = np.ones((32, 16), ml_dtypes.bfloat16)
    made = Native(s.func)({"A": a, "B": pack(b, s.func.buffer("B"))})["C"]
    assert np.isposinf(made[0]).all() and np.isneginf(made[1]).all()
    assert (made[2] == 31).all() and (made[3] == 32).all()


@pytest.mark.parametrize(
    ("kind", "sizes", "bands"),
    [
        ("tdpbusd", (128, 256, 512), True),
        ("tdpbf16ps", (128, 256, 256), True),
        # a group of four bytes counts as four: the whole would not stay in the second level
        ("tdpbusd", (128, 1024, 1024), False),
        # seven rows and 64 columns
        ("tdpbusd", (49, 256, 512), False),
    ],
)
def test_bands_pass_panels_where_that_reads_no_more(kind, sizes, bands):
    """Decision 0416; the other order is right as well, and offered."""
    m, n, k = sizes
    program = product(m, n, k, kind)
    plan = plan_unit(program, Machine(AMX, 2), constants=("B",)).plan
    (nest,) = (nest for nest in plan.nests if nest.rule == "contraction")
    assert nest.choice.columns_inside == bands
    variants = Variants(program, plan, Machine(AMX, 2), ("B",))
    other = replace(nest.choice, columns_inside=not bands)
    s = build_unit(program, variants.chosen({plan.nests.index(nest): other}), Machine(AMX, 2), ("B",))
    verify(s.func)
    if not STATED.tiles:
        return
    given = arrays(program)
    wanted = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-5 * k)

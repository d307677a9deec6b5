"""Maxima and sums over strided windows of plain tensors: register tiles, lanes a few elements apart."""

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import check, conv_program, t

from tilewright import lang
from tilewright.ir import F32
from tilewright.lang import ops
from tilewright.plan.contraction.register_tiling import (
    FEWEST_LANES,
    MOST_APART,
    VECTORS_OF_SUMS,
    is_tileable,
    vector_width,
)
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule


def program(shape, window, stride, pad, op=ops.max_pool):
    x = t(*shape, name="X")
    return lang.program([x], [op(x, window, stride, pad, name="Y")])


CASES = {
    "3x3/2": ((1, 6, 21, 35), (3, 3), 2, 1),
    "2x2/2": ((2, 5, 8, 48), (2, 2), 2, 0),
    "3x3/3": ((1, 3, 9, 60), (3, 3), 3, 0),
    "5x5/4": ((1, 3, 13, 77), (5, 5), 4, 2),
    "3x3/5": ((1, 3, 13, 90), (3, 3), 5, 0),
    "one row": ((1, 2, 3, 33), (3, 3), 2, 0),
    "short rows": ((1, 16, 14, 14), (3, 3), 2, 1),
    "1-D": ((2, 4, 67), (3,), 2, 1),
    "3-D": ((1, 2, 5, 6, 40), (2, 2, 2), 2, 0),
}


@pytest.mark.few(18)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("op", [ops.max_pool, ops.average_pool], ids=["max", "mean"])
def test_results(case, op, threads):
    check(program(*CASES[case], op), threads=threads, interpret=False)


def test_on_the_interpreter():
    check(program(*CASES["3x3/2"]))


@pytest.mark.parametrize("stride", range(2, MOST_APART + 2))
def test_strides_that_have_tiles(stride):
    made = program((1, 3, 3 * stride, 40 * stride), (stride, stride), stride, 0)
    found = is_tileable(made, made.stage("Y"), STATED)
    assert (found is not None) == (stride <= MOST_APART)


#: Groups that make one result each: size of the image, window, stride, padding.
LONE = {
    "5x5 of 7x7": ((7, 7), (5, 5), 1, 2),
    "every second of 14x14": ((14, 14), (3, 3), 2, 1),
    "4x4": ((4, 4), (3, 3), 1, 1),
    "3 of a row": ((5, 3), (3, 3), 1, 1),
    "2x1 in steps": ((15, 15), (2, 1), 2, 0),
    "a row as long as a vector": ((3, STATED.lanes(F32)), (3, 3), 1, 1),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", LONE)
def test_groups_of_one_result_in_short_rows(case, threads):
    """A vector, or a part of one, holds the row: nothing else has columns."""
    size, window, stride, pad = LONE[case]
    p = conv_program(2, 32, 4, size, window, stride=stride, pad=pad, groups=4)
    now = inline_stages(Schedule(p)).program
    assert is_tileable(now, now.stage("Y0"), STATED, now.stage("Y")) is not None
    check(p, threads=threads, interpret=False)


def test_the_vector_of_a_short_row():
    """It is the smallest part of one that holds the row, of no fewer than four lanes."""
    lanes = STATED.lanes(F32)
    for extent in range(FEWEST_LANES // 2 + 1, lanes + 1):
        p = conv_program(1, 8, 4, (4, extent), (2, 1), groups=4)
        found = is_tileable(p, p.stage("Y0"), STATED, p.stage("Y"))
        assert found is not None
        width = vector_width(found, STATED)
        assert extent <= width
        assert width == FEWEST_LANES or extent > width // 2


@pytest.mark.parametrize("size", [4, 7])
def test_roots_of_sums_of_squares(size):
    """The square of an element is one operand, not two: an LpPool of 64 channels ended in a KeyError."""
    x = t(1, 4 * STATED.lanes(F32), size, size, name="X")
    r, q = lang.reduce_axis(3, "r"), lang.reduce_axis(3, "q")

    def squares(n, c, h, w):
        return lang.sum(abs(x[n, c, h + r, w + q]) * abs(x[n, c, h + r, w + q]), axis=[r, q])

    total = lang.compute((1, x.shape[1], size - 2, size - 2), squares, name="S")
    check(
        lang.program([x], [lang.compute(total.shape, lambda *i: lang.sqrt(total[i]), name="Y")]),
        interpret=False,
    )


@pytest.mark.few(20)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [2, 3, 5, 7, 8])
@pytest.mark.parametrize("depth", [1, 3, 16, 31])
def test_narrow_products_of_short_sums(columns, depth, threads):
    """Their rows are parts of vectors: sums of fewer than two vectors are not in lanes."""
    a, b, r = t(37, depth, name="A"), t(depth, columns, name="B"), lang.reduce_axis(depth, "k")
    y = lang.compute((37, columns), lambda i, j: lang.sum(a[i, r] * b[r, j], axis=r), name="Y")
    p = lang.program([a, b], [y])
    short = depth < VECTORS_OF_SUMS * STATED.lanes(F32)
    assert not short or is_tileable(p, p.stage("Y"), STATED) is not None
    check(p, threads=threads, interpret=False)

"""Maxima and sums over strided windows of plain tensors: register tiles, lanes a few elements apart."""

import pytest
from tests.native_kernel import HOST
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.lang import ops
from tilewright.plan.contraction.register_tiling import MOST_APART, is_tileable


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
    found = is_tileable(made, made.stage("Y"), HOST)
    assert (found is not None) == (stride <= MOST_APART)

"""Short rows are one row: vectors along all axes where arrays lie as the axes do, and nowhere else."""

import numpy as np
import pytest
from tests.native_kernel import STATED, Native

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import For, locate
from tilewright.plan import plan_unit
from tilewright.target import find_target

WIDE = find_target("x86_avx512")


def doubled(shape, dtype="f32"):
    x = lang.placeholder(shape, dtype, name="x")
    h = lang.placeholder((), dtype, name="h")
    return lang.program([x, h], [lang.compute(shape, lambda *i: x[i] * x[i] + h[()], name="y")])


def loops(program, threads, target=WIDE):
    func = plan_unit(program, Machine(target, threads)).schedule.func
    return [(p.node.extent.as_int(), p.node.kind.name) for p in locate(func.body, For)]


def test_rows_of_three_are_one():
    assert loops(doubled((50, 3)), 1) == [(150, "vector")]
    (parts, shared), (own, lanes) = loops(doubled((7294, 3)), 2)
    assert parts * own == 3 * 7294 and parts % 2 == 0
    assert (shared, lanes) == ("parallel", "vector")


def test_long_rows_stay():
    assert loops(doubled((50, 40)), 1) == [(50, "serial"), (40, "vector")]


@pytest.mark.parametrize(
    "value",
    [
        lambda x, z, i, j: x[i, j] + z[j],  # a factor a column
        lambda x, z, i, j: x[i, 2 - j] + z[0],
        lambda x, z, i, j: x[j, i] + z[0],
        lambda x, z, i, j: x[i + 1, j] + z[0],
    ],
)
def test_what_does_not_lie_as_the_axes_do_stays(value):
    x, z = lang.placeholder((60, 60), name="x"), lang.placeholder((3,), name="z")
    y = lang.compute((50, 3), lambda i, j: value(x, z, i, j), name="y")
    assert [n for n, _ in loops(lang.program([x, z], [y]), 1)] != [150]


def test_rows_that_are_parts_of_longer_ones_stay():
    x = lang.placeholder((50, 4), name="x")
    y = lang.compute((50, 3), lambda i, j: x[i, j] * 2, name="y")
    assert [n for n, _ in loops(lang.program([x], [y]), 1)] != [150]


@pytest.mark.few(23)
@pytest.mark.parametrize("dtype", ["f32", "f64", "u8"])
@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (999, 3, 1), (1000, 2, 2), (6001, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_results(shape, dtype, threads):
    program = doubled(shape, dtype)
    kernel = Native(plan_unit(program, Machine(STATED, threads)).schedule.func)
    assert "gather" not in kernel.text.text
    rng = np.random.default_rng(0)
    numpy = program.outputs[0].dtype.numpy
    given = {"x": (rng.random(shape) * 9).astype(numpy), "h": np.array(3, numpy)}
    np.testing.assert_allclose(kernel(given)["y"], given["x"] * given["x"] + given["h"], rtol=1e-6)

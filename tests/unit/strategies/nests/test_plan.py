"""Plans of nests: the sizes that a search may take, and nests in tiles of them."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.frontend.nests import scop
from tilewright.ir import For, function_at, locate, run_function, verify
from tilewright.strategies import RULE, NestPlan, schedule_nest
from tilewright.support import ArtefactError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python

LOOPS = {"seidel_2d": 3, "floyd_warshall": 2, "cholesky": 3, "trisolv": 2, "jacobi_1d": 2}
"""Of some nests, the loops of their bands. Loops of cholesky and trisolv have one of two first values."""


@pytest.mark.few(6)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("tiles", [(8, 16), (16, 8, 32), ()])
def test_nests_run_in_the_tiles_of_a_plan(name, tiles):
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, {"N": 19, "T": 3}, seed=3)
    func = function_at(func, values)
    made = schedule_nest(func, Machine(STATED, 2), NestPlan(tiles))
    verify(made.func)
    said = "in tiles of " + " x ".join(map(str, tiles)) if tiles else "in the order in which it is written"
    assert made.notes[-1] == said
    assert made.loops == LOOPS[name]
    want = run_python(KERNELS[name], arrays, values)
    got = run_function(made.func, {n: a.copy() for n, a in arrays.items()}, {}, seed=2)
    for out in func.outputs:
        np.testing.assert_allclose(got[out], want[out], rtol=1e-9, atol=1e-11, err_msg=out)


def test_each_loop_has_a_size_of_its_own():
    func = function_at(scop(KERNELS["jacobi_1d"]).func, {"N": 400, "T": 64})
    extents = []
    for tiles in ((8, 32), (32, 8)):
        made = schedule_nest(func, Machine(STATED, 1), NestPlan(tiles)).func
        extents.append({place.node.extent.as_int() for place in locate(made.body, For) if not place.loops})
    # time is skewed: tiles of the first loop are along it alone
    assert extents == [{64 // 8}, {64 // 32}]


def test_neighbours_are_sizes_doubled_and_halved():
    assert {plan.tiles for plan in RULE.neighbours(2)} == {
        (64, 64), (16, 16), (64, 32), (16, 32), (32, 64), (32, 16),
    }  # fmt: skip
    assert {plan.tiles for plan in NestPlan((8, 512)).neighbours(2)} == {(16, 512), (8, 256)}
    assert not list(NestPlan(()).neighbours(3))


@pytest.mark.parametrize("tiles", [(4,), (32, 1024), (32.0,), ("32",), (32,) * 17])
def test_other_sizes_are_refused(tiles):
    with pytest.raises(ArtefactError, match="a nest has no tiles of"):
        NestPlan(tiles)

"""Products of two operands given at run time: put into groups for instructions, right at odd sizes."""

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright.cost import Machine
from tilewright.ir import run_function, verify
from tilewright.strategies import default_schedule
from tilewright.target import INTERPRETED
from unit.codegen.test_tiles import AMX
from unit.schedule.loop.test_tensorize_tiles import KINDS, arrays, product

#: Rows, columns and steps; whether an instruction must be used.
SIZES = [
    ((16, 48, 64), True),
    ((8, 16, 64), None),
    ((32, 64, 128), True),
    ((15, 96, 192), True),
    ((29, 312, 312), None),
    ((13, 19, 68), None),
    ((1, 32, 64), False),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sizes", "used"), SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_two_arguments(kind, sizes, used, threads):
    m, n, k = sizes
    program = product(m, n, k, kind)
    s = default_schedule(program, Machine(AMX, threads))
    verify(s.func)
    if used is not None:
        assert (f"{kind}(" in str(s)) == ("_groups" in str(s.func)) == used
    given = arrays(program)
    wanted = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    tolerance = 0 if kind == "tdpbusd" else 1e-5 * k
    if m * n * k < 16000 and threads == 1:
        made = run_function(s.func, given, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    if HOST.tiles:
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=tolerance)

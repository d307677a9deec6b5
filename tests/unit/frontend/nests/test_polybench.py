"""All thirty structures of PolyBench: read from Python, interpreted and compiled as written."""

import numpy as np
import pytest

from tilewright.build import build
from tilewright.frontend.nests import scop
from tilewright.ir import run_function, verify
from tilewright.runtime import aligned_copy
from unit.frontend.nests.polybench import KERNELS, arguments, run_python


def test_there_are_thirty():
    assert len(KERNELS) == 30


@pytest.mark.parametrize("name", KERNELS)
def test_nests_compute_what_python_does(name):
    func = scop(KERNELS[name]).func
    verify(func)
    arrays, sizes = arguments(func)
    want = run_python(KERNELS[name], arrays, sizes)
    interpreted = run_function(func, {n: a.copy() for n, a in arrays.items()}, sizes)
    kernel = build(func, threads=2)
    table = [aligned_copy(arrays[b.name]) for b in func.buffers]
    kernel.run(table, [sizes[p.name] for p in func.params])
    for b, compiled in zip(func.buffers, table, strict=True):
        np.testing.assert_allclose(compiled, want[b.name], rtol=1e-12, err_msg=b.name)
        if b.name in func.outputs:
            np.testing.assert_allclose(interpreted[b.name], want[b.name], rtol=1e-13, err_msg=b.name)

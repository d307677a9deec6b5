"""Single floats that a kernel only reads: loaded, and what is made of them computed, before all loops."""

from dataclasses import replace

import numpy as np
import pytest
from tests.native_kernel import Native

from tilewright.codegen.uses import unchanging
from tilewright.frontend.nests.python import read_python
from tilewright.ir import PARALLEL, For, function_at, map_stmt
from tilewright.support import assert_close


def nest(body, arguments="h: f64", n=100, parallel=False):
    text = f"def f(x: f64[N], y: f64[N], {arguments}):\n    for i in range(N):\n        {body}\n"
    func = function_at(read_python(text), {"N": n})
    if not parallel:
        return func

    def mark(s):
        return replace(s, kind=PARALLEL) if isinstance(s, For) else s

    return func.with_body(map_stmt(func.body, mark))


@pytest.mark.parametrize("parallel", [False, True])
def test_what_is_made_of_single_floats_is_computed_once(parallel):
    func = nest("y[i] = x[i] * (0.5 / h)", parallel=parallel)
    kernel = Native(func)
    text = kernel.text.text
    assert text.count("fdiv") == 1
    # in the kernel itself, ahead of the loop
    begin = text.index("define i32")
    assert "br " not in text[begin : text.index("fdiv", begin)]
    given = {"x": np.random.default_rng(0).random(100), "y": np.zeros(100), "h": np.array(0.3)}
    assert_close(kernel(given)["y"], given["x"] * (0.5 / 0.3), magnitude=np.full(100, 2.0), terms=2)


def test_those_that_are_written_or_are_integers_are_not():
    assert unchanging(nest("y[i] = x[i] * h")) == {"h"}
    assert unchanging(nest("h = h + x[i]")) == frozenset()
    assert unchanging(nest("y[i] = x[i] * n", "n: i32")) == frozenset()
    assert unchanging(nest("y[i] = x[i] * h[0]", "h: f64[1]")) == frozenset()


def test_those_that_share_memory_are_not():
    func = nest("y[i] = x[i] * h")
    for group in ({"h", "y"}, {"h"}):
        buffers = tuple(b.with_(alias="group") if b.name in group else b for b in func.buffers)
        assert unchanging(replace(func, buffers=buffers)) == frozenset()
    named = tuple(b.with_(alias="h") if b.name == "y" else b for b in func.buffers)
    assert unchanging(replace(func, buffers=named)) == frozenset()

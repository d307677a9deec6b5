"""last_writes: elements are what they were, whichever write to each of them is the last."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import run_function, run_program
from tilewright.schedule import Schedule

RNG = np.random.default_rng(4)


def program(axes, where=None):
    """Writes of a matrix's elements at rows that data say, along axes in order or in any."""
    x, u = lang.placeholder((7, 6), "i32", name="X"), lang.placeholder((9, 5), "i32", name="U")
    i = lang.placeholder((9,), "i32", name="I")
    kinds = {"o": lang.ordered_axis, "p": lang.axis}

    def step(t, n, j):
        condition = None if where is None else where(u[n, j])
        return lang.write((lang.clamp(i[n], 0, 6), j), 2 * u[n, j] + n, condition)

    made = [kinds[kind](extent, name) for kind, extent, name in zip(axes, (9, 5), "nj", strict=True)]
    return lang.program([x, i, u], [lang.update(x, made, step, name="S")])


@pytest.mark.parametrize("axes", ["oo", "op"])
@pytest.mark.parametrize("where", [None, lambda v: v > 1], ids=["all", "some"])
def test_the_last_write_wins(axes, where):
    p = program(axes, where)
    s = Schedule(p).last_writes("S_update", "L")
    stages = {stage.name: [it.kind for it in stage.iters] for stage in s.require_program().stages}
    assert stages["L"] == ["red", "red" if axes == "oo" else "par"] and stages["S_update"] == ["par", "par"]
    for _ in range(3):
        given = {b.name: RNG.integers(0, 7, [e.as_int() for e in b.shape]).astype(np.int32) for b in p.inputs}
        np.testing.assert_array_equal(run_function(s.func, given)["S"], run_program(p, given)["S"])

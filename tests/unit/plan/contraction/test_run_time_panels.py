"""Products of two operands given at run time: put into groups for instructions, right at odd sizes."""

import numpy as np
import pytest

from native_kernel import STATED, Native
from tilewright.cost import Machine
from tilewright.ir import Index, buffers_of, run_function, verify
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
    ((128, 128, 128), True),
    ((32, 256, 128), True),
    ((1, 32, 64), False),
]


@pytest.mark.few(30)
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
    if STATED.tiles:
        np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("sizes", "each"), [((512, 512, 512), True), ((128, 512, 512), True), ((32, 512, 512), False)]
)
def test_threads_make_the_panels_that_they_read(sizes, each):
    """Where threads share rows, each has panels of its own; where they share panels, each makes its part."""
    s = default_schedule(product(*sizes, "tdpbusd"), Machine(AMX, 2))
    (name,) = (b for b in s.blocks() if b.endswith("_groups"))
    made, used = s.loops(name), s.loops("C")
    kinds = {loop: s.loop(loop).kind.name for loop in (made[0], used[0])}
    assert set(kinds.values()) == {"parallel"}
    assert (made[0] == used[0]) == each
    buffer = buffers_of(s.func)[name]
    assert (buffer.scope == "local") == each
    if each:
        assert s.loop(used[0]).extent == Index(2)
    else:
        columns = [
            next(iter(s.block(x).bind[at].vars & set(loops)))
            for x, at, loops in ((name, 1, made[:1]), ("C", 1, used[:1]))
        ]
        assert columns == [made[0], used[0]]

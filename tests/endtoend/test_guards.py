"""No kernel of a model touches a byte before or behind what it was given."""

import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.frontend import zoo

GUARDED = """
import sys
from dataclasses import replace
import numpy as np
import tilewright
from tilewright.frontend import zoo
from tilewright.runtime import ALIGNMENT, ExecutionPlan, guarded_array
from tilewright.strategies import contraction, rows

contraction.MIN_PARALLEL_PRODUCTS = rows.MIN_PARALLEL_ELEMENTS = 0

def guarded(array, at_end, align=None):
    made = guarded_array(array.shape, array.dtype, at_end=at_end, align=align)
    made[...] = array
    return made

def check(threads):
    compiled = tilewright.compile(model, threads=threads)
    plan = compiled._assembled.plan
    feeds = [np.ascontiguousarray(array) for array in compiled.sample_feeds().values()]
    expected = [np.zeros(size, np.uint8) for size in plan.outputs]
    plan.run(feeds, expected)
    for at_end in (True, False):
        # kernels count on the alignment of constants, so up to 63 bytes behind one are not guarded
        constants = tuple(guarded(array, at_end, ALIGNMENT) for array in plan.contents.constants)
        apart = ExecutionPlan(plan.pool, replace(plan.contents, constants=constants), [compiled])
        inputs = [guarded(array, at_end) for array in feeds]
        # as bytes, outputs would be guarded to the byte; they are aligned as their elements are
        outputs = [guarded_array(size, np.uint8, at_end=at_end, align=4) for size in plan.outputs]
        apart.run(inputs, outputs)
        for a, b in zip(expected, outputs, strict=True):
            np.testing.assert_array_equal(a, b)
        for given, kept in zip(feeds, inputs, strict=True):
            np.testing.assert_array_equal(given, kept)

model = zoo.SMALL[sys.argv[1]]()
for threads in (1, 2, 3):
    check(threads)
print("guarded")
"""


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_models_stay_within_guarded_memory(name):
    """In a process of its own, which a byte too far ends."""
    source = str(Path(zoo.__file__).parents[3])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{GUARDED}"]
    done = subprocess.run([*command, name], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "guarded\n"), done.stderr

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
from tilewright.runtime import ALIGNMENT, ExecutionPlan, guarded_array, native
from tilewright.plan import threads
from tilewright.plan.contraction import sharing as contraction

contraction.MIN_PARALLEL_PRODUCTS = threads.MIN_PARALLEL_ELEMENTS = 0

def guarded(array, at_end, align=None):
    made = guarded_array(array.shape, array.dtype, at_end=at_end, align=align)
    made[...] = array
    return made

def without_arena(contents, at_end):
    # each piece of the arena apart, between guards; values that share a piece share it still
    places, arrays = {}, list(contents.constants)

    def moved(ref):
        if ref.kind != native.ARENA:
            return ref
        key = ref.offset, ref.nbytes
        if key not in places:
            places[key] = len(arrays)
            # all bits set: no kernel counts on what lies there
            arrays.append(guarded(np.full(ref.nbytes, 0xFF, np.uint8), at_end, ALIGNMENT))
        return replace(ref, kind=native.CONSTANT, index=places[key], offset=0)

    steps = tuple(replace(s, buffers=tuple(map(moved, s.buffers))) for s in contents.steps)
    makers = [s.buffers[-1] for s in contents.steps if s.buffers[-1].kind == native.ARENA]
    shared.append(len(makers) - len(places))
    return replace(contents, steps=steps, constants=tuple(arrays), arena_bytes=0)

def check(threads):
    compiled = tilewright.compile(model, threads=threads)
    plan = compiled._assembled.plan
    feeds = [np.ascontiguousarray(array) for array in compiled.sample_feeds().values()]
    expected = [np.zeros(size, np.uint8) for size in plan.outputs]
    plan.run(feeds, expected)
    for at_end in (True, False):
        # kernels count on the alignment of constants, so up to 63 bytes behind one are not guarded
        constants = tuple(guarded(array, at_end, ALIGNMENT) for array in plan.contents.constants)
        contents = without_arena(replace(plan.contents, constants=constants), at_end)
        apart = ExecutionPlan(plan.pool, contents, [compiled])
        inputs = [guarded(array, at_end) for array in feeds]
        # as bytes, outputs would be guarded to the byte; they are aligned as their elements are
        outputs = [guarded_array(size, np.uint8, at_end=at_end, align=4) for size in plan.outputs]
        apart.run(inputs, outputs)
        apart.run(inputs, outputs)  # with what the run before left behind
        for a, b in zip(expected, outputs, strict=True):
            np.testing.assert_array_equal(a, b)
        for given, kept in zip(feeds, inputs, strict=True):
            np.testing.assert_array_equal(given, kept)

shared = []
model = zoo.SMALL[sys.argv[1]]()
for threads in (1, 3):
    check(threads)
assert max(shared) > 0, "no value lies where another was"
print("guarded")
"""


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_models_stay_within_guarded_memory(name):
    """In a process of its own, which a byte too far ends: arguments, weights, every piece of the arena."""
    source = str(Path(zoo.__file__).parents[3])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{GUARDED}"]
    done = subprocess.run([*command, name], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "guarded\n"), done.stderr

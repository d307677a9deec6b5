"""Pictures in both layouts, with all borders, by default plans: as interpreted programs, bit for bit."""

from random import Random

import numpy as np
import pytest
from tests.native_kernel import HOST, Native
from tests.random_pipelines import random_pictures

from tilewright.cost import Machine
from tilewright.ir import run_program
from tilewright.plan import plan_unit


def judge(seed):
    """Compile both programs of a seed and compare; pages beside the arguments are forbidden."""
    programs = random_pictures(Random(seed))
    shape = [n.as_int() for n in programs[0].inputs[0].shape]
    x = np.random.default_rng(seed).integers(0, 16, shape).astype(programs[0].inputs[0].dtype.numpy)
    for program, given in zip(programs, (x, np.ascontiguousarray(x.transpose(1, 2, 0))), strict=True):
        (name,) = (b.name for b in program.outputs)
        wanted = run_program(program, {"X": given})[name]
        planned = plan_unit(program, Machine(HOST, 2))
        found = Native(planned.schedule.func)({"X": given})[name]
        np.testing.assert_array_equal(found, wanted, f"seed {seed}\n{program}\n{planned.schedule.trace}")


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(60))
def test_pictures_in_both_layouts_are_right(seed):
    judge(seed)

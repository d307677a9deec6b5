"""Neighbours of states: one decision away, carried out and right on random pipelines."""

from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED
from tests.random_pipelines import random_program
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program
from tilewright.plan import graph_of
from tilewright.strategies import Task
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.emit import from_plan, to_plan
from tilewright.strategies.beam.neighbours import neighbours
from tilewright.strategies.beam.search import BeamSearch, Pricer, Settings
from tilewright.strategies.beam.state import Tiling, start

MACHINE = Machine(STATED, 2)


@pytest.mark.parametrize("seed", range(16))
def test_neighbours_are_carried_out_and_right(seed):
    rng = Random(seed)
    program = random_program(rng)
    g = graph_of(program)
    found = BeamSearch(g, MACHINE, Pricer(CostModel(g, MACHINE)), rng, Settings(4, 1)).run()
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for each in rng.sample(found, min(2, len(found))):
        near = list(neighbours(g, each.state, MACHINE))
        for state in rng.sample(near, min(3, len(near))):
            planned = to_plan(g, state, MACHINE)
            assert planned.schedule.notes == (), (seed, str(planned.plan))
            results = run_function(planned.schedule.func, {"X": x}, seed=seed)
            for name, value in wanted.items():
                np.testing.assert_array_equal(results[name], value, err_msg=str(seed))


def test_neighbours_differ_in_one_stage():
    program = harris(1536, 2560)
    g = graph_of(program)
    state = from_plan(g, Task(program, MACHINE).default().plan)
    assert state is not None
    near = list(neighbours(g, state, MACHINE))
    assert len(near) == len({*near}) > 5
    for each in near:
        fields = zip(each.places, each.tilings, state.places, state.tilings, strict=True)
        assert sum((p, t) != (q, u) for p, t, q, u in fields) == 1


def test_short_axes_expanded_whole_and_cut_into_single_elements_are_neighbours():
    image = lang.placeholder((3, 256, 512), name="image")
    near = lang.boundary(image, mode="clamp")
    blur = lang.stage(lambda c, y, x: near[c, y - 1, x] + near[c, y + 1, x], name="blur")
    g = graph_of(lang.program([image], blur, name="blurred", region=[3, 256, 512]))
    root = max(n.index for n in g.nodes if n.plain)
    whole = start(g).placed(root, "own", root).tiled(root, Tiling((0, 32, 0), (1, 0, 2), 2, (3, 1, 1), 1))
    single = whole.tiled(root, Tiling((1, 32, 0), (1, 0, 2), 2, (1, 1, 1), 1))
    assert single in set(neighbours(g, whole, MACHINE)) and whole in set(neighbours(g, single, MACHINE))

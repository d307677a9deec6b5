"""The beam search on random pipelines: its states are never refused, and its features are those of the loops.

``pytest tests/property -k beam``; ``HYPOTHESIS_PROFILE=deep`` draws more.
"""

from math import prod
from random import Random

import pytest
from hypothesis import given, settings, strategies as st
from tests.random_pipelines import random_program

from property.pipelines import random_state
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import Alloc, Block, locate, verify
from tilewright.lower import insert_barriers
from tilewright.plan import AtLoop, graph_of, plan_from_json
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.gpu_cost import model_of
from tilewright.strategies.beam.search import BeamSearch, Pricer, Settings
from tilewright.strategies.beam.state import GpuTiling, State, Tiling
from tilewright.target import A100, X86_AVX512

MACHINES = {"cpu": Machine(X86_AVX512, 2), "gpu": Machine(A100, 1)}
EXAMPLES = {"deep": 120}


def examples():
    return EXAMPLES.get(settings.get_current_profile_name(), 10)


@pytest.mark.parametrize("kind", MACHINES)
def test_beam_states_are_never_refused(kind):
    machine = MACHINES[kind]

    @settings(max_examples=examples())
    @given(seed=st.integers(0, 1 << 32))
    def run(seed):
        rng = Random(seed)
        program = random_program(rng)
        graph = graph_of(program)
        planned = to_plan(graph, random_state(rng, graph, machine), machine)
        assert planned.schedule.notes == ()
        verify(insert_barriers(planned.schedule.func))
        # the trace is the plan's alone
        again = to_plan(graph, random_state(Random(seed + 1), graph, machine), machine)
        assert plan_from_json(again.plan.to_json()) == again.plan

    run()


@pytest.mark.parametrize("kind", MACHINES)
def test_beam_costs_are_those_without_memory(kind):
    machine = MACHINES[kind]

    @settings(max_examples=examples() // 4 or 1)
    @given(seed=st.integers(0, 1 << 32))
    def run(seed):
        graph = graph_of(random_program(Random(seed)))
        found = [
            BeamSearch(
                graph,
                machine,
                Pricer(model_of(graph, machine), memoising),
                Random(seed),
                Settings(4, 2, memoising=memoising),
            ).run()
            for memoising in (True, False)
        ]
        assert found[0] == found[1]

    run()


def stencils(rng):
    """Two or three stencils whose tiles of 8 rows and 32 columns are all alike."""
    h, w = 64, 256
    f = lang.placeholder((h + 8, w + 8), name="X")
    p = 8
    inputs = [f]
    for n in range(rng.randint(2, 3)):
        dy, dx = rng.randint(0, 2), rng.randint(0, 2)
        p -= 2
        f = lang.compute(
            (h + p, w + p),
            lambda y, x, f=f, dy=dy, dx=dx: f[y, x] + f[y + dy, x + dx],
            name=f"s{n}",
        )
    last = lang.compute((h, w), lambda y, x, f=f: f[y, x] + f[y + 1, x + 2], name="out")
    return lang.program(inputs, [last])


def counted(func, stage):
    """Instances of a stage, bytes of its buffer and how often that is allocated, by the loops around."""
    (block,) = (each for each in locate(func.body, Block) if each.node.stage == stage)
    instances = prod(loop.extent.as_int() for loop in block.loops)
    for each in locate(func.body, Alloc):
        if each.node.buffer.name == stage:
            shape = each.node.buffer.physical_shape
            times = prod(loop.extent.as_int() for loop in each.loops)
            return instances, prod(n.as_int() for n in shape) * each.node.buffer.dtype.bytes, times
    return instances, None, 1


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("seed", range(24))
def test_beam_features_of_plans_are_those_of_scheduled_loops(kind, seed):
    rng, machine = Random(seed), MACHINES[kind]
    program = stencils(rng)
    graph = graph_of(program)
    root = len(graph.nodes) - 1
    if kind == "cpu":
        tiling = Tiling((8, 32), (0, 1), 1, (1, 1), 1)
    else:
        tiling = GpuTiling((8, 32), (0, 1), 1, (2, 1), 2)
    places, around = [""] * len(graph.nodes), ["tile", "row"]
    for n in range(root - 1, -1, -1):
        places[n] = rng.choice(around)
        # the loops around a stage, and around what it reads its own
        around = around[: around.index(places[n]) + 1]
        around += [AtLoop(graph.nodes[n].name, 0)] if kind == "cpu" else []
    places[root] = "own"
    state = State(tuple(places), (root,) * len(places), (None,) * root + (tiling,))
    planned = to_plan(graph, state, machine)
    kernel = (root, tiling, tuple((n, places[n]) for n in range(root)))
    for f in model_of(graph, machine).features(kernel):
        name, values = f.node.name, f.values
        instances, nbytes, times = counted(planned.schedule.func, name)
        if nbytes is None or kind == "gpu":
            # turns of all threads of a block are rounded up: those past the tile do nothing
            assert values["points_computed_total"] <= instances
        else:
            assert values["points_computed_total"] == instances
        if nbytes is None:
            continue
        if kind == "cpu":
            assert values["bytes_at_realization"] == nbytes
            assert values["num_realizations"] == times
        else:
            mine = "shared_bytes_at_task" if places[f.node.index] == "tile" else "register_bytes_at_task"
            assert values[mine] == nbytes
            assert values["num_blocks"] == (64 // 8) * (256 // 32)
            assert values["num_realizations"] in (times, times * values["num_threads_per_block"])

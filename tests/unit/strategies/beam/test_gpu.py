"""The beam search on GPUs: options, features by hand, states that are carried out and right."""

from random import Random

import numpy as np
import pytest
from tests.random_pipelines import random_program

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program, var
from tilewright.lower import insert_barriers
from tilewright.plan import RULES, build_unit, graph_of, plan_from_json, rewritten
from tilewright.strategies import History, Task
from tilewright.strategies.beam.emit import from_plan, to_plan
from tilewright.strategies.beam.gpu_cost import GPU_TERMS, model_of
from tilewright.strategies.beam.gpu_features import (
    GPU_FEATURES,
    Lanes,
    Traffic,
    global_traffic,
    gpu_features,
    shared_traffic,
)
from tilewright.strategies.beam.gpu_options import all_kernels, innermost, kernels_of, serial_sizes
from tilewright.strategies.beam.neighbours import neighbours
from tilewright.strategies.beam.network import train
from tilewright.strategies.beam.options import places
from tilewright.strategies.beam.search import BeamSearch, Pricer, Settings
from tilewright.strategies.beam.state import GpuTiling, start
from tilewright.strategies.beam.strategy import BeamStrategy
from tilewright.target import A100

MACHINE = Machine(A100, 1)
SMALL = Settings(beam=4, passes=2)


def searched(program, settings=SMALL, seed=0):
    g = graph_of(program)
    pricer = Pricer(model_of(g, MACHINE), settings.memoising)
    return g, pricer, BeamSearch(g, MACHINE, pricer, Random(seed), settings).run()


def judged(program, planned, x, wanted, what):
    assert planned.schedule.notes == (), what
    results = run_function(insert_barriers(planned.schedule.func), {"X": x})
    for name, value in wanted.items():
        np.testing.assert_array_equal(results[name], value, err_msg=str(what))


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_states_of_random_pipelines_are_carried_out_and_right(seed):
    program = random_program(Random(seed))
    g, _, found = searched(program)
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for each in Random(seed).sample(found, min(2, len(found))):
        planned = to_plan(g, each.state, MACHINE)
        judged(program, planned, x, wanted, (seed, planned.plan))
        assert (
            build_unit(program, plan_from_json(planned.plan.to_json()), MACHINE).func == planned.schedule.func
        )
        # what ran can be learned from, and its neighbours tried
        state = from_plan(g, planned.plan, like=True)
        for near in list(neighbours(g, state, MACHINE))[:2] if state is not None else ():
            judged(program, to_plan(g, near, MACHINE), x, wanted, (seed, near))


def test_the_sizes_of_the_paper():
    assert serial_sizes(96, 32) == [1, 2, 3, 4, 8]
    assert serial_sizes(100, 32) == [1, 2, 4, 8]
    assert innermost((1536, 2560, 8)) == 1
    assert innermost((4, 8)) == 1
    for t in kernels_of((1536, 2560), A100):
        threads = t.turns(t.tile)
        assert threads <= A100.threads_per_block
        assert np.prod(t.expand) < 16
        assert -(-1536 // t.tile[0]) * -(-2560 // t.tile[1]) >= 2 * A100.units
        assert t.tile[1] // t.expand[1] in (16, 32, 64)


def chain(stages, shape=(1536, 2560, 8)):
    f = lang.placeholder(shape, name="X")
    x = f
    for n in range(stages):
        near = lang.boundary(f, mode="clamp")
        f = lang.compute(
            shape, lambda y, i, c, f=near: f[y - 1, i, c] + f[y + 1, i, c] + f[y, i + 1, c], name=f"f{n}"
        )
    return lang.program([x], [f])


def test_a_chain_of_14_stages_has_about_3_million_options():
    # of one beam of 32 states: every place of a stage, and all that a kernel of its own may be cut to
    g = graph_of(chain(14))
    tiling = GpuTiling((1, 64, 1), (0, 1, 2), 1, (1, 1, 1), 3)
    total, state = 0, start(g)
    for node in g.order:
        total += 32 * len(list(places(g, state, node)))
        total += 32 * sum(1 for _ in all_kernels(g.nodes[node].extents, A100.warp))
        state = state.placed(node, "own", node).tiled(node, tiling)
    assert 1e6 < total < 4e6


def two_stages():
    """b[y, x] = a[y, x] + a[y + 2, x], a[y, x] = X[y, x] * 3, of 64x128 and 66x128."""
    x = lang.placeholder((66, 128), name="X")
    a = lang.compute((66, 128), lambda y, i: x[y, i] * 3, name="a")
    b = lang.compute((64, 128), lambda y, i: a[y, i] + a[y + 2, i], name="b")
    return graph_of(lang.program([x], [b]))


def of(place, tile, serial, vector=1):
    g = two_stages()
    tiling = GpuTiling(tile, (0, 1), vector, serial, 2)
    found = gpu_features(g, (1, tiling, ((0, place),) if place else ()), MACHINE)
    assert all(tuple(f.vector()) == tuple(f.values[n] for n in GPU_FEATURES) for f in found)
    return {f.node.name: f.values for f in found}


def test_a_block_by_hand():
    found = of("tile", (8, 32), (2, 1))
    a, b = found["a"], found["b"]
    # 8 x 4 blocks of 4 x 32 threads, two rows each
    assert (b["num_blocks"], b["num_threads_per_block"], b["num_warps_per_block"]) == (32, 128, 4)
    assert b["points_computed_total"] == 64 * 128 and b["points_computed_per_thread"] == 2
    # the producer: 10 rows of 32 for each block, in shared memory
    assert a["points_computed_total"] == 32 * 10 * 32 and a["num_realizations"] == 32
    assert a["shared_bytes_at_task"] == 10 * 32 * 4
    assert b["shared_mem_occupancy"] == 10 * 32 * 4 / A100.shared_per_block
    # rows y, y + 1 and y + 2, y + 3 of a thread: four loads of shared memory, no conflict, a warp a cycle
    assert b["num_shared_mem_loads_per_block"] == 4 * 4 and b["shared_mem_load_efficiency"] == 1
    # stores of 32 neighbours: four transactions of 32 bytes a warp, two rows
    assert b["num_global_mem_stores_per_block"] == 2 * 4 * 4 and b["global_mem_store_efficiency"] == 1
    assert b["global_innermost_bytes_at_task"] == 32 * 4
    assert b["warp_lane_utilization"] == 1 and b["idle_lane_wastage"] == 0


def test_loads_are_shared_by_elements_of_a_thread():
    # of one row each two loads; of four rows, six different ones
    one, four = of("", (4, 32), (1, 1))["b"], of("", (16, 32), (4, 1))["b"]
    assert one["num_global_mem_loads_per_block"] == 2 * 4 * 4
    assert four["num_global_mem_loads_per_block"] == 6 * 4 * 4


def test_producers_of_threads_by_hand():
    a = of("row", (8, 32), (2, 1))["a"]
    # four rows for each thread
    assert a["points_computed_total"] == 32 * 128 * 4
    assert a["register_bytes_at_task"] == a["working_set_at_thread"] == 4 * 4
    assert a["num_realizations"] == 32 * 128


def test_a_last_warp_that_is_not_full():
    b = of("", (3, 16), (1, 1))["b"]
    # 48 threads: a warp, and half of one
    assert b["num_warps_per_block"] == 2 and b["warp_lane_utilization"] == 48 / 64
    assert b["idle_lane_wastage"] == 16 / A100.threads_per_unit
    # a warp's two rows of 16 are two times two transactions, the half's one row two; two loads each; of the
    # 66 rows of all blocks two are none
    assert b["num_global_mem_loads_per_block"] == pytest.approx(2 * (4 + 2) * 64 / 66)


def test_accesses_of_warps_by_hand():
    i = var("i")
    row = Lanes(("i",), (40,), (1,), 0)
    assert global_traffic(row.threads(i), 4, 32) == Traffic(4 + 1, 5 * 32, 40 * 4)
    assert global_traffic(row.threads(i * 8), 4, 32) == Traffic(40, 40 * 32, 40 * 4)
    # a stride of 32 words: one bank for all of them
    assert shared_traffic(row.threads(i * 32), 4, 32, 32) == Traffic(32 + 8, 40 * 128, 40 * 4)
    assert shared_traffic(row.threads(i * 33), 4, 32, 32).count == 2
    # all read one element
    assert shared_traffic(row.threads(i * 0), 4, 32, 32).count == 2


def test_terms_are_not_negative_and_the_network_learns_them():
    _, pricer, found = searched(chain(2, (64, 128, 8)))
    model = pricer.model
    assert model.names == GPU_TERMS
    samples = [pricer.sample(each.state, 1e-4 * (n + 1)) for n, each in enumerate(found[:4])]
    assert all((s.terms >= 0).all() and s.terms.shape[1] == len(GPU_TERMS) for s in samples)
    trained = train(model.fresh(), samples, 20)
    assert all(np.isfinite(w).all() for w in trained.weights.values())


def test_the_strategy_proposes_kernels():
    task = Task(chain(2, (64, 128, 8)), MACHINE)
    found = BeamStrategy(settings=SMALL, samples=2, batches=1).start(task, History(), Random(0)).propose(4)
    assert found[0].plan == task.default().plan
    rules = {nest.rule for each in found[1:] for nest in each.plan.nests}
    assert rules == {"gpu_group"}


@pytest.mark.parametrize("extents", [(1536, 2560), (480, 96, 3), (37, 5)])
def test_every_kernel_of_the_search_is_one_of_its_rule(extents):
    x = lang.placeholder(extents, name="X")
    program = lang.program([x], [lang.compute(extents, lambda *at: x[at] + 1.0, name="Y")])
    g = graph_of(program)
    (root,) = (n.index for n in g.nodes)
    state = start(g).placed(root, "own", root)
    plan = to_plan(g, state.tiled(root, next(iter(all_kernels(extents, 32)))), MACHINE).plan
    (nest,) = plan.nests
    _, context = rewritten(program, plan, MACHINE)
    rule = RULES[nest.rule]
    problem = rule.match(context, nest.root, nest.stages)
    space = rule.space(problem)
    tried = list(all_kernels(extents, 32))
    for tiling in tried:
        if tiling.turns(tiling.tile) <= A100.threads_per_block and np.prod(tiling.expand) < 16:
            made = tiling.plan(())
            assert space.has(made), made
            for near in neighbours(g, state.tiled(root, tiling), MACHINE):
                assert space.has(near.tilings[root].plan(())), near
    assert any(size % 3 == 0 and size > 3 for t in tried for size in t.tile) == (max(extents) > 37)

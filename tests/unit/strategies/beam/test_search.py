"""The beam search: right on random pipelines, the same in every run; what each of its parts leaves."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED, Native
from tests.random_pipelines import random_program
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program
from tilewright.plan import AtLoop, build_unit, graph_of, invalid, plan_from_json
from tilewright.poly import check_legal, list_function
from tilewright.schedule import Schedule
from tilewright.strategies import STRATEGIES, History, Task, best_by_model
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.fixed import fixed_parts
from tilewright.strategies.beam.hashing import sample, structure
from tilewright.strategies.beam.options import places, tilings
from tilewright.strategies.beam.search import LIKELY, VARIED, BeamSearch, Pricer, Settings, batch, varied
from tilewright.strategies.beam.state import GpuTiling, changed, group_of, kernels, start, why_not
from tilewright.strategies.beam.strategy import BeamStrategy
from tilewright.support import InputError

MACHINE = Machine(STATED, 2)
SMALL = Settings(beam=4, passes=2)


def searched(program, settings=SMALL, seed=0):
    g = graph_of(program)
    pricer = Pricer(CostModel(g, MACHINE), settings.memoising)
    return g, pricer, BeamSearch(g, MACHINE, pricer, Random(seed), settings).run()


def inlined(program, plan):
    s = Schedule(program).replay(plan.rewrites) if plan.rewrites.steps else Schedule(program)
    return list_function(s.func, {})


@pytest.mark.few(9)
@pytest.mark.parametrize("seed", range(20))
def test_plans_of_random_pipelines_are_carried_out_and_right(seed):
    program = random_program(Random(seed))
    g, _, found = searched(program)
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for each in Random(seed).sample(found, min(3, len(found))):
        planned = to_plan(g, each.state, MACHINE)
        assert planned.schedule.notes == (), (seed, str(planned.plan))
        violations = check_legal(inlined(program, planned.plan), planned.schedule.func, {})
        assert not violations, f"seed {seed}\n{planned.plan}\n" + "\n".join(map(str, violations))
        results = run_function(planned.schedule.func, {"X": x}, seed=seed)
        for name, value in wanted.items():
            np.testing.assert_array_equal(results[name], value, err_msg=str(seed))
        again = plan_from_json(planned.plan.to_json())
        assert build_unit(program, again, MACHINE).func == planned.schedule.func


def test_one_seed_gives_one_result():
    program = harris(96, 130)
    results = [searched(program, seed=3)[2] for _ in range(2)]
    assert results[0] == results[1]
    assert results[0] == sorted(results[0], key=lambda f: f.seconds)


def test_memory_of_features_changes_nothing_but_work():
    program = harris(200, 300)
    _, kept, with_memory = searched(program, Settings(beam=4, passes=2))
    _, anew, without = searched(program, Settings(beam=4, passes=2, memoising=False))
    assert with_memory == without
    assert kept.counts.states == anew.counts.states
    assert kept.counts.features < anew.counts.features


def test_sampling_and_freezing_price_fewer_states():
    program = harris(200, 300)
    counts = {}
    for sampling in (True, False):
        for freezing in (True, False):
            settings = Settings(8, 2, sampling=sampling, freezing=freezing, free=2)
            _, pricer, found = searched(program, settings)
            counts[sampling, freezing] = pricer.counts.states
            assert found
    assert counts[True, True] < counts[True, False] < counts[False, False]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (9, 4), (500, 9)])
def test_a_bucket_gives_the_logarithm_of_its_size(size, count):
    chosen = sample(size, Random(0))
    assert len({*chosen}) == len(chosen) == count
    assert {*chosen} <= {*range(size)}


def test_structure_from_coarse_to_fine():
    _, _, found = searched(harris(300, 400))
    states = [f.state for f in found]
    sizes = [len({structure(s, depth) for s in states}) for depth in range(6)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[3] < sizes[5] == len(states)


def test_point_wise_stages_are_inlined_and_results_are_not():
    x = lang.placeholder((64, 64), name="X")
    a = lang.compute((64, 64), lambda y, i: x[y, i] + 1, name="a")
    b = lang.compute((64, 64), lambda y, i: a[y, i] * 2, name="b")
    g = graph_of(lang.program([x], [b]))
    (own,) = places(g, start(g), 1)
    assert own.places == ("", "own")
    (inside,) = places(g, own, 0)
    assert inside.places == ("inline", "own")
    assert list(kernels(g, inside)) == [(1, None, ((0, "inline"),))]


def test_stages_in_order_keep_their_default_plans():
    x = lang.placeholder((64, 64), name="X")
    a = lang.compute((64, 64), lambda y, i: lang.exp(x[y, i]), name="a")
    s = lang.scan(
        (64, 64),
        lambda u, y, i: lang.select(y >= 1, u[y - 1, i], 0) + a[y, i],
        axis=0,
        name="s",
    )
    program = lang.program([x], [lang.compute((64, 64), lambda y, i: s[y, i] * 2, name="out")])
    g, _, found = searched(program)
    planned = to_plan(g, found[0].state, MACHINE)
    assert {n.root for n in planned.plan.nests if n.rule != "pipeline"} == {"s"}


def test_the_strategy_proposes_the_default_first_then_the_best():
    program = harris(300, 400)
    task = Task(program, MACHINE)
    strategy = BeamStrategy(settings=SMALL, samples=2, batches=1)
    found = strategy.start(task, History(), Random(0)).propose(6)
    assert found[0].plan == task.default().plan
    predicted = [c.predicted for c in found[1:]]
    assert len(predicted) == 5 and predicted[0] == min(predicted)
    assert len({c.plan for c in found}) == 6
    assert STRATEGIES["beam"].name == "beam"
    best = best_by_model(strategy, task, count=4)
    assert best.plan in {c.plan for c in found}


def test_a_batch_has_one_beam_and_greedy_samples():
    g = graph_of(harris(100, 100))
    pricer = Pricer(CostModel(g, MACHINE))
    beam = batch(g, MACHINE, pricer, 0, SMALL, 1)
    more = batch(g, MACHINE, pricer, 0, SMALL, 4)
    assert {f.state for f in beam} <= {f.state for f in more}
    assert [f.seconds for f in more] == sorted(f.seconds for f in more)


def test_nests_that_change_are_those_of_the_whole_state():
    g, _, found = searched(harris(300, 400))
    for each in found[:8]:
        state, nests = start(g), {k[0]: k for k in kernels(g, start(g))}
        for node in g.order:
            place, tiling = each.state.places[node], each.state.tilings[node]
            state = state.placed(node, place, each.state.homes[node])
            nests |= changed(g, state, node, nests)
            if tiling is not None:
                state = state.tiled(node, tiling)
                nests |= changed(g, state, node, nests)
            assert sorted(nests.items()) == sorted((k[0], k) for k in kernels(g, state))


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_short_axes_are_expanded_whole_or_a_tile_is_one_element_of_them(channels):
    image = lang.placeholder((channels, 256, 512), name="image")
    near = lang.boundary(image, mode="clamp")
    blur = lang.stage(lambda c, y, x: near[c, y - 1, x] + near[c, y + 1, x], name="blur")
    program = lang.program([image], blur, name="blurred", region=[channels, 256, 512])
    g = graph_of(program)
    root = max(n.index for n in g.nodes if n.plain)
    found = [t for t in tilings(g, root, MACHINE) if t is not None]
    assert {(t.tile[0], t.expand[0]) for t in found} == {(0, channels), (1, 1)}
    # channel by channel, threads share strips of all of them
    assert any(t.tile == (1, 32, 256) and t.order == (0, 1, 2) and t.parallel == 2 for t in found)


@pytest.mark.parametrize("seed", range(4))
def test_reasons_that_are_kept_are_those_of_plans(seed):
    rng = Random(seed)
    g = graph_of(harris(64, 96)) if seed == 0 else graph_of(random_program(rng))
    root = max(n.index for n in g.nodes if n.plain)
    options = [t for t in tilings(g, root, MACHINE) if t is not None]
    reasons = Counter()
    for _ in range(200 if options else 0):
        tiling = rng.choice(options)
        inside = {root}
        for n in range(root - 1, -1, -1):
            if g.nodes[n].plain and g.readers[n] and inside.issuperset(g.readers[n]) and rng.random() < 0.8:
                inside.add(n)
        members = tuple((n, rng.choice(["inline", "tile", "row", "slide"])) for n in sorted(inside - {root}))
        group, placements = group_of(g, (root, tiling, members))
        wanted = invalid(group, tiling.plan(placements))
        # asked again, as it was kept
        assert [why_not(g, (root, tiling, members)) for _ in range(2)] == [wanted, wanted]
        reasons[wanted] += 1
    assert seed or len(reasons) > 3


def weighted(h, w):
    """Sums of two rows of differences for five shifts, weighted, and a blur of what is summed of these."""
    x = lang.placeholder((h + 3, w + 4), name="X")
    d = lang.reduce_axis(5, "d")
    gaps = lang.compute((5, h + 3, w), lambda d, y, i: x[y, i] * x[y, i + d], name="gaps")
    rows = lang.compute((5, h + 2, w), lambda d, y, i: gaps[d, y, i] + gaps[d, y + 1, i], name="rows")
    total = lang.compute((h + 2, w), lambda y, i: lang.sum(rows[d, y, i] / (d + 1), axis=d), name="total")
    return lang.program([x], [lang.compute((h, w), lambda y, i: total[y, i] + total[y + 2, i], name="out")])


def test_places_inside_of_loops_are_those_of_several_turns_around_all_readers():
    g = graph_of(weighted(256, 512))
    tiling = next(t for t in tilings(g, 3, MACHINE) if t is not None and t.tile == (16, 256))
    state = start(g).placed(3, "own", 3).tiled(3, tiling).placed(2, "tile", 3)

    def offered(state, node):
        return [s.places[node] for s in places(g, state, node) if isinstance(s.places[node], AtLoop)]

    # the root reads the first; rows of the sum, and a shift of one; rows and shifts of all that is around
    assert not offered(start(g).placed(3, "own", 3).tiled(3, tiling), 2)
    assert offered(state, 1) == [AtLoop("total", 0), AtLoop("total", 1)]
    assert offered(state.placed(1, "tile", 3), 0) == [AtLoop("rows", 0), AtLoop("rows", 1)]
    at = AtLoop("total", 0)
    assert offered(state.placed(1, at, 3), 0) == [AtLoop("rows", 0), at]
    # of one shift of one row there are no more
    assert offered(state.placed(1, AtLoop("total", 1), 3), 0) == [AtLoop("total", 0), AtLoop("total", 1)]
    # nests of GPUs have none
    device = graph_of(weighted(256, 512))
    tiled = start(device).placed(3, "own", 3).tiled(3, GpuTiling((16, 32), (0, 1), 1, (1, 1), 2))
    assert not offered(tiled.placed(2, "tile", 3), 1)


@pytest.mark.parametrize(
    "fixed", [{"rows": "out.tile", "gaps": "rows.d"}, {"rows": "total.d", "gaps": "total.y"}]
)
def test_fixed_places_inside_of_loops_are_kept_and_right(fixed):
    program, fixed = weighted(64, 96), {"total": "out.tile", **fixed}
    strategy = BeamStrategy(settings=Settings(16, 1), samples=1, fixed=fixed, filtered=False)
    search = strategy.start(Task(program, MACHINE), History(), Random(0))
    found = search.propose(3)
    assert found
    x = np.random.default_rng(0).uniform(-1, 1, (67, 100)).astype(np.float32)
    wanted = Native(Schedule(program).func)({"X": x})["out"]
    for each in found:
        (nest,) = (n for n in each.plan.nests if n.root == "out")
        words = {name: str(place) for name, place in zip(nest.stages, nest.choice.placements, strict=True)}
        numbers = {"out.tile": "tile", "rows.d": "rows.0", "total.d": "total.1", "total.y": "total.0"}
        assert {name: words[name] for name in fixed} == {n: numbers[at] for n, at in fixed.items()}
        func = build_unit(program, each.plan, MACHINE).func
        np.testing.assert_array_equal(Native(func)({"X": x})["out"], wanted)


def test_axes_that_are_no_loops_are_no_places():
    with pytest.raises(InputError, match=r"'rows\.i' is no place for the stage 'gaps'"):
        fixed_parts(graph_of(weighted(64, 96)), {"gaps": "rows.i"})


def test_structures_take_turns_but_for_what_takes_long():
    _, _, found = searched(harris(300, 400))
    likely = [f for f in found if f.seconds <= LIKELY * found[0].seconds]
    shapes = {structure(f.state, VARIED) for f in likely}
    ordered = varied(found)
    assert ordered[0] == found[0] and sorted(f.seconds for f in ordered) == [f.seconds for f in found]
    assert {structure(f.state, VARIED) for f in ordered[: len(shapes)]} == shapes
    assert {f.state for f in ordered[: len(likely)]} == {f.state for f in likely}
    assert 1 < len(shapes) < len(likely)

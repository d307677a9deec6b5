"""The strategy ``polyhedral``: never refused, right on random pipelines; fuses where that pays."""

from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED
from tests.random_pipelines import random_program
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program, verify
from tilewright.plan import (
    MARGIN,
    Fuser,
    FusionModel,
    build_unit,
    find_group,
    graph_of,
    held_bytes,
    inlined,
    nest_of,
    plan_from_json,
    plan_groups,
    variants,
)
from tilewright.plan.pipeline import grouping
from tilewright.poly import check_legal, list_function
from tilewright.schedule import Schedule, Trace
from tilewright.strategies import STRATEGIES, History, Task, Trial, best_by_model
from tilewright.strategies.polyhedral import trees
from tilewright.strategies.polyhedral.strategy import PolyhedralSearch
from tilewright.strategies.polyhedral.trees import tree_candidates

MACHINE = Machine(STATED, 2)


def chain(count, h=600, w=800, dtype="f32"):
    """Means of nine neighbours, of each other."""
    last = lang.placeholder((h, w), dtype, name="X")
    first = last
    for n in range(count):
        h, w = h - 2, w - 2
        last = lang.compute(
            (h, w),
            lambda y, x, a=last: sum(a[y + dy, x + dx] * (1 + dy) for dy in range(3) for dx in range(3)),
            name=f"S{n}",
        )
    return lang.program([first], [last], name="chain")


@pytest.mark.parametrize("seed", range(24))
def test_whatever_the_model_may_choose_is_carried_out_and_right(seed, monkeypatch):
    """Tiles that divide nothing; every number of producers, kept in tiles or in rows."""
    monkeypatch.setattr(grouping, "ROWS", (2, 3, 4, 5))
    monkeypatch.setattr(grouping, "COLUMNS", (0, 2, 3))
    monkeypatch.setattr("tilewright.plan.space.Space.check", lambda *given: None)
    rng = Random(seed)
    program = random_program(rng, 6)
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for names in variants(Schedule(program)):
        now = inlined(Schedule(program), names).require_program()
        before = list_function(Schedule(now).func, {})
        fuser = Fuser(FusionModel(graph_of(now), MACHINE))
        for _ in range(2):
            nests, top = [], (1 << len(fuser.graph.nodes)) - 1
            while top:
                choice = rng.choice(fuser.choices(top.bit_length() - 1))
                top &= ~sum(1 << n for n in (choice.root, *choice.members))
                nest = nest_of(fuser, choice)
                assert (nest is None) == (not choice.members), (seed, choice)
                nests += [nest] if nest is not None else []
            planned = plan_groups(program, MACHINE, (), names, nests[::-1])
            assert planned.schedule.notes == (), (seed, str(planned.plan))
            func = planned.schedule.func
            verify(func)
            found = check_legal(before, func, {})
            assert not found, f"{seed}\n{planned.plan}\n" + "\n".join(map(str, found))
            results = run_function(func, {"X": x}, seed=seed)
            for name, value in wanted.items():
                np.testing.assert_array_equal(results[name], value, err_msg=str(seed))
            again = plan_from_json(planned.plan.to_json())
            assert build_unit(program, again, MACHINE).func == func


def test_the_default_is_the_first_candidate_and_others_follow_by_price():
    task = Task(chain(12), MACHINE)
    default, *others = STRATEGIES["polyhedral"].start(task, History(), Random(0)).propose(9)
    assert default.plan == task.default().plan
    prices = [c.predicted for c in others]
    assert others and prices == sorted(prices)
    assert len({c.plan for c in (default, *others)}) == 1 + len(others)


def test_one_task_gives_one_result():
    found = [
        STRATEGIES["polyhedral"].start(Task(chain(8), MACHINE), History(), Random(n)).propose(9)
        for n in (0, 1)
    ]
    assert found[0] == found[1]


def test_the_default_plan_is_priced_as_its_own_tiles():
    task = Task(harris(1536, 2560), MACHINE)
    search = PolyhedralSearch(task, "polyhedral")
    (default,) = search.propose(1)
    fused = search.fusion.fused_of(default.plan)
    (nest,) = fused.nests
    assert nest.stages and default.predicted == (1 - MARGIN) * search.fusion.seconds(fused)


def test_long_chains_are_cut_where_tiles_would_repeat_too_much():
    fuser = Fuser(FusionModel(graph_of(chain(30)), MACHINE))
    best = fuser.run()[0]
    alone = sum(fuser.alone(n) for n in range(30))
    assert best.seconds < alone
    assert 1 < len(best.nests) < 30
    assert sorted(n for c in best.nests for n in (c.root, *c.members)) == list(range(30))


def test_the_memory_of_tiles_is_what_is_allocated():
    program = chain(5)
    fuser = Fuser(FusionModel(graph_of(program), MACHINE))
    for choice in fuser.choices(4):
        nest = nest_of(fuser, choice)
        if nest is None or {*nest.plan.placements} != {"tile"}:
            continue
        members = dict(zip(choice.members, choice.places, strict=True))
        growth = fuser.model.growth(choice.root, members, nest.plan)
        group = find_group(program, nest.root, nest.stages)
        held = held_bytes(group, program, nest.plan)
        assert {fuser.graph.nodes[n].name: int(v[0]) for n, v in growth.held.items()} == held
        assert growth.seconds()[0] == pytest.approx(choice.seconds)


def test_large_sums_are_left_to_their_own_rules():
    x = lang.placeholder((128, 128), name="X")
    w = lang.placeholder((128, 128), name="W")
    a = lang.ops.matmul(x, w)
    b = lang.ops.matmul(lang.compute((128, 128), lambda y, i: lang.maximum(a[y, i], 0.0), name="relu"), w)
    task = Task(
        lang.program([x, w], [lang.compute((128, 128), lambda y, i: b[y, i] + 1.0, name="out")]), MACHINE
    )
    planned = best_by_model(STRATEGIES["polyhedral"], task)
    assert planned.plan == task.default().plan


def test_several_results_have_nests_of_their_own():
    x = lang.placeholder((400, 300), name="X")
    a = lang.compute((400, 300), lambda y, i: x[y, i] * 2, name="a")
    b = lang.compute((398, 300), lambda y, i: a[y, i] + a[y + 2, i], name="b")
    c = lang.compute((398, 298), lambda y, i: a[y, i + 2] - b[y, i], name="c")
    fuser = Fuser(FusionModel(graph_of(lang.program([x], [b, c])), MACHINE))
    for found in fuser.run():
        roots = {fuser.graph.nodes[choice.root].name for choice in found.nests}
        assert {"b", "c"} <= roots
        assert all(0 not in choice.members for choice in found.nests)  # two results read it


def test_neighbours_of_what_was_fast_follow():
    task = Task(chain(4, 200, 300), MACHINE)
    search = PolyhedralSearch(task, "polyhedral")
    first = search.propose(200)
    search.observe([Trial(c, "ok", (1.0 + n,)) for n, c in enumerate(first[::-1])])
    more = search.propose(5)
    assert len(more) == 5 and not {c.plan for c in more} & {c.plan for c in first}
    for c in more:
        c.schedule(task)
    assert search.propose(0) == []


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_trees_on_exact_sets_are_candidates(seed):
    """Traces of ``import_tree`` and vectors, which compute what the program means, where something fuses."""
    program = random_program(Random(seed), 4) if seed else chain(3, 20, 24)
    task = Task(program, MACHINE)
    found = list(tree_candidates(task, ()))
    assert found or seed
    image = program.inputs[0]
    shape = tuple(n.as_int() for n in image.shape)
    given = {image.name: np.random.default_rng(seed).integers(0, 9, shape).astype(image.dtype.numpy)}
    want = run_program(program, given)
    for trace in found[:2]:
        assert trace.steps[0].primitive == "import_tree"
        s = Schedule(program).replay(trace)
        verify(s.func)
        for name, value in run_function(s.func, given).items():
            np.testing.assert_allclose(value, want[name], rtol=1e-5)


def test_trees_follow_plans_where_plans_are_measured(monkeypatch):
    monkeypatch.setattr(trees, "TILES", ((8, 16),))
    search = PolyhedralSearch(Task(chain(3, 64, 80), MACHINE), "polyhedral")
    first = search.propose(200)
    assert not any(isinstance(c.plan, Trace) for c in first)
    search.observe([Trial(c, "ok", (1.0 + n,)) for n, c in enumerate(first)])
    kinds = [isinstance(c.plan, Trace) for c in search.propose(4)]
    assert True in kinds and kinds == sorted(kinds, reverse=True)


def test_large_programs_have_no_trees():
    assert list(tree_candidates(Task(chain(trees.STAGES + 1, 64, 80), MACHINE), ())) == []

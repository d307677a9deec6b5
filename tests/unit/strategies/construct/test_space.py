"""States of a construction: edges lead back, tiles stay inside one another and inside their level."""

import itertools
from dataclasses import replace
from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS, product

from tilewright.cost import Machine
from tilewright.plan import RULES, plan_unit, rewritten
from tilewright.strategies import STRATEGIES, History, Task
from tilewright.strategies.construct.emit import construction
from tilewright.strategies.construct.space import Level, State
from tilewright.strategies.construct.walk import walk
from tilewright.target import X86_AVX512

SMALL = (Level("l2", 6144, 16, 14), Level("l1", 3072, 32, 5))
NAMES = ("product", "product with weights", "convolution", "general", "min-plus")


def constructions(program, threads=1, target=STATED):
    """The construction of each nest that has one."""
    machine = Machine(target, threads)
    plan = plan_unit(program, Machine(target, threads)).plan
    _, context = rewritten(program, plan, machine)
    found = []
    for nest in plan.nests:
        rule = RULES[nest.rule]
        problem = rule.match(context, nest.root, nest.stages)
        found.append(construction(problem, rule.space(problem), machine))
    return [made for made in found if made is not None]


def small(program=None):
    """A nest whose operands exceed both of its caches."""
    (made,) = constructions(program or product(32, 32, 32), target=X86_AVX512)
    return replace(made.tilings, levels=SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_what_leads_forth_leads_back(name):
    (made, *_) = constructions(PROGRAMS[name])
    back = {"tile": "inverse tile", "inverse tile": "tile", "cache": "uncache", "uncache": "cache"}
    seen = set()
    for state in walk(made.tilings, Random(1))[::7]:
        for edge in made.tilings.edges(state):
            seen.add(edge.action)
            returned = [
                e.state
                for e in made.tilings.edges(edge.state)
                if (e.action, e.axis) == (back[edge.action], edge.axis)
            ]
            assert returned == [state]
    assert seen == set(back)


def test_no_level_is_overfull_and_tiles_are_nested():
    tilings = small()
    limits = set()
    for seed in range(5):
        for state in walk(tilings, Random(seed)):
            assert tilings.is_legal(state)
            for level, tile in zip(tilings.levels, state.tiles, strict=False):
                assert tilings.footprint(tile) <= level.capacity
            limits |= {tile == tilings.extents for tile in state.tiles}
            for around, tile in zip(state.tiles, state.tiles[1:], strict=False):
                assert all(inner <= outer for inner, outer in zip(tile, around, strict=True))
            assert state.tiles[-1] in tilings.registers
    # the whole nest fits into none of them: the limit was felt
    assert limits == {False}


def test_a_level_that_holds_nothing_leaves_nothing_to_construct():
    assert small().is_feasible
    assert not replace(small(), levels=(SMALL[0], Level("l1", 64, 32, 5))).is_feasible


@pytest.mark.parametrize("name", ["construct", "construct-tree", "construct-paper"])
@pytest.mark.parametrize("sizes", [(0, 5, 3), (5, 0, 3), (4, 5, 0)])
def test_a_nest_without_iterations_leaves_nothing_to_construct(sizes, name):
    task = Task(product(*sizes), Machine(STATED, 1))
    assert STRATEGIES[name].start(task, History(), Random(0)).propose(2)[0].plan == task.default().plan


def test_footprint_and_traffic_of_a_product():
    tilings = small()
    tile = tuple(dict(zip(tilings.axes, (8, 16, 4), strict=True)).values())
    m, n, k = tile
    assert tilings.footprint(tile) >= 4 * (m * k + k * n + m * n)
    assert tilings.tiles(tile) == 4 * 2 * 8
    assert tilings.tiles(tile, summed=False) == 4 * 2
    assert tilings.traffic(tilings.extents) == 4 * 3 * 32 * 32


@pytest.mark.parametrize("level", range(3))
def test_all_states_of_a_level_are_reachable(level):
    """Tile and inverse tile alone lead from any state of a level to every legal one with its other tiles."""
    tilings = small(product(24, 32, 16))
    start = replace(tilings.initial(), level=level)
    whole = tuple(max(tilings.sizes(0, axis)) for axis in range(3))
    around = [State(tuple([whole] * n) + start.tiles[n:], level) for n in range(level + 1)]
    roomy = replace(tilings, levels=tuple(replace(lv, capacity=float("inf")) for lv in SMALL))
    for space, begin in ((tilings, start), (roomy, around[-1])):
        reached, left = {begin}, [begin]
        while left:
            for edge in space.edges(left.pop()):
                if edge.axis is not None and edge.state not in reached:
                    reached.add(edge.state)
                    left.append(edge.state)
        sizes = [space.sizes(level, axis) for axis in range(3)]
        states = {begin.with_tile(tile) for tile in itertools.product(*sizes)}
        assert reached == {state for state in states if space.is_legal(state)}
        # there is more than the start where other levels leave room
        assert space is tilings or len(reached) > 8

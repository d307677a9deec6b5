"""States of products on GPUs: edges lead back and everywhere, nothing overfull, walks near the best."""

from random import Random

import pytest
from tests.unit.plan.gpu.test_matrix import compare as compare_units, product as narrow_product
from tests.unit.plan.gpu.test_product import compare, conv, product, with_tiles

from devices import LANGUAGES, checked_by_nvrtc
from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import RULES, build_unit, plan_unit, rewritten
from tilewright.strategies import STRATEGIES, History, Task, best_by_model
from tilewright.strategies.construct.benefit import REPAIRED, benefit
from tilewright.strategies.construct.blocks import COLUMNS, ROWS, exact_blocks
from tilewright.strategies.construct.emit import construction
from tilewright.strategies.construct.space import State
from tilewright.strategies.construct.tree import tree_states
from tilewright.strategies.construct.walk import best_states, walk
from tilewright.target import A100, POCL


def constructions(program, target=A100):
    """The rule, the problem and the construction of each product of a program."""
    machine = Machine(target, 1)
    plan = plan_unit(program, Machine(target, 1)).plan
    _, context = rewritten(program, plan, machine)
    found = []
    for nest in plan.nests:
        rule = RULES[nest.rule]
        problem = rule.match(context, nest.root, nest.stages)
        made = construction(problem, rule.space(problem), machine)
        if made is not None:
            found.append((nest, problem, made))
    return found


def batched():
    """Three products beside each other, scaled as they are added."""
    a, b = (lang.placeholder(shape, name=name) for name, shape in (("A", (3, 40, 56)), ("B", (3, 56, 72))))
    k = lang.reduce_axis(56, "k")
    c = lang.compute((3, 40, 72), lambda x, i, j: lang.sum(a[x, i, k] * b[x, k, j], axis=k), name="C")
    return lang.program([a, b], [c])


def test_what_leads_forth_leads_back():
    ((_, _, made),) = constructions(product(67, 131, 45))
    back = {"tile": "inverse tile", "virtual threads": "fewer virtual threads", "buffer": "unbuffer"}
    back |= {"cache": "uncache"}
    back |= {smaller: larger for larger, smaller in back.items()}
    seen = set()
    for state in [s for seed in range(3) for s in walk(made.tilings, Random(seed))[::7]]:
        for edge in made.tilings.edges(state):
            seen.add(edge.action)
            edges = made.tilings.edges(edge.state)
            assert [e.state for e in edges if (e.action, e.axis) == (back[edge.action], edge.axis)] == [state]
    assert seen == set(back)


@pytest.mark.parametrize("level", [0, 1])
def test_all_states_of_a_level_are_reachable(level):
    ((_, _, made),) = constructions(product(100, 40, 64))
    space = made.tilings
    begin = space.initial()
    if level == 1:
        block = tuple(space.sizes(0, axis)[-1] for axis in range(4))
        begin = State((block, begin.tiles[1]), 1, begin.virtual)
    reached, left = {begin}, [begin]
    while left:
        for edge in space.edges(left.pop()):
            if edge.stays and edge.state not in reached:
                reached.add(edge.state)
                left.append(edge.state)
    if level == 0:
        assert {state.tiles[0] for state in reached} == {
            (1, m, n, k) for m in (16, 32, 64, 128) for n in (16, 32, 64) for k in (8, 16, 32)
        }
        assert {state.buffers for state in reached} == {1, 2, 3}
        return
    whole = [s for s in space.planned_states() if s.tiles[0] == begin.tiles[0] and s.buffers == 1]
    assert len(whole) > 20 and set(whole) <= reached


def test_nothing_is_overfull():
    ((_, _, made),) = constructions(product(512, 512, 512))
    space = made.tilings
    for seed in range(3):
        for state in walk(space, Random(seed)):
            plan = space.plan(state)
            assert space.is_legal(state)
            assert plan.shared_bytes(4) <= A100.shared_per_block
            assert plan.registers <= A100.registers_per_thread
            assert plan.thread_rows % state.virtual[ROWS] == plan.thread_columns % state.virtual[COLUMNS] == 0


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "program",
    [product(1000, 333, 77), product(45, 70, 33), conv(16, 14, 20, 3, padding=1), batched()],
    ids=["1000x333x77", "45x70x33", "convolution", "batched"],
)
def test_twenty_walks_come_near_the_best_of_all_states(program):
    for nest, problem, made in constructions(program):
        space = made.tilings
        best = min(space.model.price(space, state) for state in space.planned_states())
        exact = exact_blocks(space)
        assert exact[0][0] == best
        assert best_states(space, Random(2))[0][0][0] <= 1.1 * best[0]
        assert all(cost >= best for cost, _ in tree_states(space))
        # a device's kernels are the constructed ones without being asked for
        seconds = RULES[nest.rule].seconds(problem, nest.choice)
        assert seconds == pytest.approx(best[0])


def test_virtual_threads_keep_banks_apart():
    ((_, _, made),) = constructions(product(1024, 1024, 1024))
    space = made.tilings
    one = State(((1, 64, 64, 8), (1, 8, 8, 1)), 1, (1, 1, 1, 1))
    gains = {e.axis: benefit(space, one, e, 5, REPAIRED) for e in space.edges(one) if "virtual" in e.action}
    assert gains == {ROWS: 2.0, COLUMNS: 2.0}
    two = State(one.tiles, 1, (1, 2, 2, 1))
    assert space.plan(one).conflicts == (2, 2) and space.plan(two).conflicts == (1, 1)
    assert space.model.price(space, two) < space.model.price(space, one)
    # more of them read in narrower accesses, which wait for nothing but are more
    four = State(one.tiles, 1, (1, 4, 4, 1))
    assert space.model.overlap(space, two, four) == 1.0
    assert space.plan(four).reads == 2 * space.plan(two).reads


def test_too_few_threads_cost_infinitely_much():
    ((_, _, made),) = constructions(product(1024, 1024, 1024))
    lone = State(((1, 16, 16, 8), (1, 8, 8, 1)), 1, (1, 1, 1, 1))
    assert made.tilings.is_legal(lone)
    assert made.tilings.model.price(made.tilings, lone)[0] == float("inf")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["construct", "construct-tree", "construct-paper"])
def test_constructed_kernels_are_right_on_devices(name):
    program = product(67, 131, 45)
    task = Task(program, Machine(POCL, 1))
    found = STRATEGIES[name].start(task, History(), Random(0)).propose(2)
    assert len({candidate.plan for candidate in found}) == len(found) > 1
    assert all(candidate.predicted is not None for candidate in found)
    for candidate in found[1:]:
        compare(program, candidate.schedule(task), LANGUAGES)


@pytest.mark.few(2)
@pytest.mark.parametrize("virtual", [(1, 1), (2, 8), (8, 2)])
def test_groups_of_all_widths_are_right_and_spill_nothing(virtual):
    program = product(70, 132, 40)
    ((_, _, made),) = constructions(program, POCL)
    state = State(((1, 64, 64, 8), (1, 8, 8, 1)), 1, (1, *virtual, 1), 2)
    s = build_unit(program, with_tiles(program, POCL, made.plan_of(state)), Machine(POCL, 1))
    compare(program, s, ["c"])
    checked_by_nvrtc(s.func)


def test_the_model_chooses_on_devices_without_a_margin():
    task = Task(product(1024, 1024, 1024), Machine(A100, 1))
    chosen = best_by_model(STRATEGIES["construct"], task)
    # the rule's own choice is the best of the same states
    assert chosen.plan == task.default().plan


@pytest.mark.parametrize("kind", ["windows", "rows"])
def test_rules_of_one_level_offer_all_their_plans_by_price(kind):
    if kind == "windows":
        x = lang.placeholder((1, 5, 19, 23), name="X")
        program = lang.program([x], [lang.ops.average_pool(x, (3, 3), 2)])
    else:
        x = lang.placeholder((37, 300), name="X")
        program = lang.program([x], [lang.ops.softmax(x, axis=-1)])
    task = Task(program, Machine(POCL, 1))
    default, *found = STRATEGIES["construct"].start(task, History(), Random(0)).propose(5)
    (nest,) = default.plan.nests
    assert nest.rule == f"gpu_{kind}"
    assert found
    prices = [candidate.predicted for candidate in found]
    assert prices == sorted(prices)
    if kind == "windows":
        # this rule takes the fastest by itself
        assert default.predicted <= prices[0]
    for candidate in found[-2:]:
        compare(program, candidate.schedule(task), ["c"])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("size", "dtype"), [((512, 384, 256), "f16"), ((67, 45, 40), "f16"), ((96, 80, 128), "i8")], ids=str
)
def test_tiles_of_matrix_units_are_states(size, dtype):
    """Walks reach the best of all, which is what the rule takes; each step leads back."""
    ((nest, problem, made),) = constructions(narrow_product(*size, dtype))
    assert nest.rule == "gpu_matrix"
    space = made.tilings
    (best, state), *_ = exact_blocks(space)
    assert best[0] == RULES[nest.rule].seconds(problem, nest.choice)
    assert made.plan_of(state).threads >= 32
    found = best_states(space, Random(0))
    assert found[0][0][0] <= 1.1 * best[0]
    for state in walk(space, Random(1))[::5]:
        for edge in space.edges(state):
            assert state in [back.state for back in space.edges(edge.state)]


def test_constructed_kernels_of_matrix_units_are_right():
    program = narrow_product(48, 40, 64)
    found = best_by_model(STRATEGIES["construct"], Task(program, Machine(A100, 1)))
    assert any(nest.rule == "gpu_matrix" for nest in found.plan.nests)
    compare_units(program, found.schedule, ["c"])
    assert "mma.sync" in checked_by_nvrtc(found.schedule.func)

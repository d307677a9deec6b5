"""Prices of trees: their loops are those of the functions that they are carried out to, but for names."""

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from tests.plans import asked, drawn as drawn_plan

from tilewright import lang
from tilewright.cost import Machine, seconds, tree_of
from tilewright.lang import ops
from tilewright.plan import EXACT, build_unit
from tilewright.schedule import Step, Trace
from tilewright.strategies import Prices, Task
from tilewright.support import ScheduleError, UserError
from tilewright.target import find_target

HOST = find_target("x86_avx512")


def product(m, n, k):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return lang.program([a, b], [ops.matmul(a, b)])


def biased(m, n, k):
    a, b, c = (lang.placeholder(s, name=x) for s, x in (((m, k), "A"), ((k, n), "B"), ((n,), "C")))
    products = ops.matmul(a, b)
    result = lang.compute((m, n), lambda i, j: lang.maximum(products[i, j] + c[j], 0.0))
    return lang.program([a, b, c], [result])


def convolution():
    x, w = lang.placeholder((1, 8, 20, 20), name="X"), lang.placeholder((24, 8, 3, 3), name="W")
    return lang.program([x, w], [ops.conv(x, w)])


def min_plus():
    a, b = lang.placeholder((60, 30), name="A"), lang.placeholder((30, 70), name="B")
    k = lang.reduce_axis(30, "k")
    return lang.program(
        [a, b], [lang.compute((60, 70), lambda i, j: lang.min(a[i, k] + b[k, j], k), name="C")]
    )


def softmax(rows, columns):
    return lang.program([x := lang.placeholder((rows, columns), name="X")], [ops.softmax(x)])


def pointwise(shape):
    x = lang.placeholder(shape, name="X")
    return lang.program([x], [lang.compute(shape, lambda *at: lang.exp(x[at]) + 1, name="Y")])


def chain(count):
    x = last = lang.placeholder((64, 96), name="X")
    for n in range(count):
        shape = (62 - 2 * n, 94 - 2 * n)
        if n % 2:
            last = lang.compute(shape, lambda i, j, P=last: P[i + 1, j + 1] * P[i, j], name=f"S{n}")
        else:
            last = lang.compute(
                shape, lambda i, j, P=last: P[i, j] * 0.5 + P[i + 2, j + 1] + P[i + 1, j + 2], name=f"S{n}"
            )
    return lang.program([x], [last])


PROGRAMS = {
    "product": (lambda: product(100, 90, 40), 12),
    "large": (lambda: product(128, 256, 64), 8),
    "epilogue": (lambda: biased(48, 80, 32), 8),
    "convolution": (convolution, 8),
    "min-plus": (min_plus, 8),
    "softmax": (lambda: softmax(64, 300), 8),
    "rows": (lambda: softmax(512, 64), 8),
    "pointwise": (lambda: pointwise((60, 700)), 4),
    "chain": (lambda: chain(4), 16),
}


def drawn(task, count, seed):
    """Plans of the space around the default one; of a chain, of one nest."""
    rng = Random(seed)
    base = task.default().plan
    if len(task.program.stages) > 1 and task.program.stages[0].name == "S0":
        *members, root = (stage.name for stage in task.program.stages)
        base = asked("pipeline", root, members)
    for _ in range(count):
        with suppress(ScheduleError):
            yield drawn_plan(task.program, base, task.machine, rng)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_trees_of_plans_are_those_of_their_schedules(name, threads):
    make, count = PROGRAMS[name]
    task = Task(make(), Machine(HOST, threads), accuracy=EXACT)
    prices = Prices(task)
    known = 0
    for plan in drawn(task, count, 3 * threads):
        tree = prices.tree(plan)
        if tree is None:
            continue
        try:
            s = build_unit(task.program, plan, task.machine)
        except UserError:
            continue
        known += 1
        wanted = tree_of(s.func, HOST.operations)
        if any("slide" in getattr(nest.choice, "placements", ()) for nest in plan.nests):
            # rows of rolling buffers are counted as if they lay one after another
            assert seconds(tree, task.machine) == pytest.approx(seconds(wanted, task.machine), rel=0.03)
        else:
            assert tree.canonical() == wanted.canonical(), str(plan)
    assert known >= count * 3 // 4, f"{known} of {count} plans have a tree"


def test_trees_tell_plans_apart():
    """Equality that held of all trees would prove nothing."""
    task = Task(product(100, 90, 40), Machine(HOST, 1), accuracy=EXACT)
    prices = Prices(task)
    trees = {prices.tree(plan).canonical() for plan in drawn(task, 12, 5)}
    assert len(trees) >= 6


def test_partial_tiles_count_what_is_left():
    task = Task(product(100, 90, 40), Machine(HOST, 1), accuracy=EXACT)
    tree = tree_of(task.default().schedule.func, HOST.operations)
    products = 0
    for loops, work in tree.works():
        if any(not a.writes and a.buffer == "A" for a in work.accesses):
            count = 1
            for each in loops:
                count *= each.extent
            products += count
    assert products == 100 * 90 * 40


def test_plans_whose_rewrites_are_refused_have_no_price():
    task = Task(product(100, 90, 40), Machine(HOST, 1), accuracy=EXACT)
    base = task.default().plan
    (stage,) = task.program.stages
    refused = replace(base, rewrites=Trace((Step("inline_stage", (stage.name,)),)))
    with pytest.raises(UserError):
        build_unit(task.program, refused, task.machine)
    prices = Prices(task)
    assert prices.seconds(refused) is None
    assert prices.seconds(base) is not None

"""The fusion cost model against the plans that it prices."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import plan_unit
from tilewright.plan.pipeline.graph import graph_of
from tilewright.plan.pipeline.group import AtLoop, find_group
from tilewright.plan.pipeline.group_plan import GroupPlan, held_bytes
from tilewright.plan.pipeline.grouping import Choice, Fuser, has_own_rule, plan_of
from tilewright.plan.pipeline.price import STORE_CYCLES, FusionModel, Growth

MACHINE = Machine(STATED, 2)


def windows_of_windows(h, w, count):
    """Largest of 2, 4, 8 … rows, and one stage that reads all of them."""
    image = lang.placeholder((h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    made = [lang.stage(lambda y, x: near[y, x] * 2.0, name="f0")]
    for n in range(count):
        below, step = made[-1], 2**n
        made.append(
            lang.stage(lambda y, x, f=below, d=step: lang.maximum(f[y, x], f[y + d, x]), name=f"f{n + 1}")
        )
    out = lang.stage(lambda y, x: sum(f[y + 1, x] for f in made), name="out")
    return lang.program([image], out, region=[h, w])


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_tiles_hold_what_the_model_says(count):
    """Line buffers have room also for the rows that are needed ahead of the first turn."""
    program = windows_of_windows(300, 400, count)
    graph = graph_of(program)
    fuser = Fuser(FusionModel(graph, MACHINE))
    root, tile = graph.nodes[-1], (64, 128)
    growth = Growth.start(fuser.model, root.index, tuple(np.array([t]) for t in tile))
    for n in reversed(range(root.index)):
        growth.join(n, growth.row_of(n))
    members = tuple(range(root.index))
    choice = Choice(root.index, members, tile, tuple(growth.places[n] for n in members))
    group = find_group(program, root.name, tuple(n.name for n in graph.nodes[:-1]))
    assert group is not None and "slide" in choice.places
    held = held_bytes(group, program, plan_of(fuser, group, choice))
    assert {graph.nodes[n].name: int(b[0]) for n, b in growth.held.items()} == held


@pytest.mark.parametrize("place", ["tile", AtLoop("rows", 0), AtLoop("rows", 1)])
def test_what_loops_of_producers_repeat_is_counted(place):
    image = lang.placeholder((81, 98), name="image")
    gaps = lang.compute((3, 81, 96), lambda d, y, x: image[y, x] - image[y, x + d], name="gaps")
    rows = lang.compute((3, 80, 96), lambda d, y, x: gaps[d, y, x] + gaps[d, y + 1, x], name="rows")
    out = lang.compute((80, 96), lambda y, x: rows[0, y, x] * rows[2, y, x], name="out")
    program = lang.program([image], [out])
    model = FusionModel(graph_of(program), MACHINE)
    group = find_group(program, "out", ("gaps", "rows"))
    assert group is not None
    plan = GroupPlan((8, 32), (place, "tile"), (0, 1), 1, (1, 1), 1)
    growth = model.growth(2, {0: place, 1: "tile"}, plan)
    assert {n: int(b[0]) for n, b in growth.held.items()} == {
        n: held_bytes(group, program, plan)[name] for n, name in enumerate(("gaps", "rows"))
    }
    # 30 tiles of 3 shifts and 9 rows; 2 of each of 8 where rows are computed one by one
    assert float(growth.computed[0][0]) == 30 * 3 * (16 if place == AtLoop("rows", 1) else 9) * 32
    assert float(growth.computed[1][0]) == 30 * 3 * 8 * 32
    assert model.nest(2, {0: place, 1: "tile"}, plan) > 0


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (lambda a, d, y, x: a[d, y, x] + a[d, y + 2, x], AtLoop("rows", 0)),
        (lambda a, d, y, x: a[d, y, x] + a[d, y, x + 1], AtLoop("rows", 0)),
        # what two shifts have in common would be computed twice, or all of it for each
        (lambda a, d, y, x: a[d, y, x] + a[d + 1, y, x], "tile"),
        (lambda a, d, y, x: a[0, y, x] * d, "tile"),
    ],
)
def test_producers_join_loops_in_which_nothing_is_computed_again(made, place):
    image = lang.placeholder((514, 648), name="image")
    gaps = lang.compute((5, 514, 641), lambda d, y, x: image[y, x] - image[y, x + d], name="gaps")
    rows = lang.compute((4, 512, 640), lambda d, y, x: made(gaps, d, y, x), name="rows")
    out = lang.compute((512, 640), lambda y, x: rows[0, y, x] * rows[3, y, x], name="out")
    model = FusionModel(graph_of(lang.program([image], [out])), MACHINE)
    growth = Growth.start(model, 2, (np.array([16, 32]), np.array([128, 640])))
    assert growth.loop_of(1) == "tile"  # the root reads it
    growth.join(1)
    assert growth.loop_of(0) == place


@pytest.mark.parametrize(("chained", "place"), [(True, AtLoop("more", 0)), (False, "tile")])
def test_what_several_read_joins_a_loop_around_all_of_them(chained, place):
    image = lang.placeholder((514, 648), name="image")
    gaps = lang.compute((4, 514, 640), lambda d, y, x: image[y, x] - image[y, x + d], name="gaps")
    rows = lang.compute((4, 512, 640), lambda d, y, x: gaps[d, y, x] + gaps[d, y + 2, x], name="rows")
    more = lang.compute(
        (4, 512, 640),
        lambda d, y, x: gaps[d, y + 1, x] * (rows if chained else gaps)[d, y, x],
        name="more",
    )
    out = lang.compute(
        (512, 640), lambda y, x: more[3, y, x] - (more if chained else rows)[0, y, x], name="out"
    )
    model = FusionModel(graph_of(lang.program([image], [out])), MACHINE)
    growth = Growth.start(model, 3, (np.array([16]), np.array([128])))
    for n in (2, 1, 0):
        growth.join(n, growth.loop_of(n))
    assert (growth.places[1], growth.places[0]) == (place, place)


def test_shift_by_shift_by_default():
    """Weights of a tile for all shifts are in the cache; what they are made of, shift by shift, as well."""
    image = lang.placeholder((520, 671), name="image")
    gaps = lang.compute(  # too dear to be inlined, on any machine
        (30, 518, 642), lambda d, y, x: lang.exp(image[y, x] - image[y, x + d]), name="gaps"
    )
    rows = lang.compute(
        (30, 512, 642), lambda d, y, x: lang.exp(sum(gaps[d, y + p, x] for p in range(7))), name="rows"
    )
    d = lang.reduce_axis(30, "d")
    total = lang.compute(
        (512, 640), lambda y, x: lang.sum(rows[d, y, x] + rows[d, y, x + 2], axis=d), name="total"
    )
    out = lang.compute((512, 640), lambda y, x: total[y, x] * 0.5, name="out")
    plan = plan_unit(lang.program([image], [out]), MACHINE).plan
    assert any(
        nest.choice.placements[0] == AtLoop("rows", 0)
        for nest in plan.nests
        if nest.stages[:2] == ("gaps", "rows")
    ), plan


def test_sums_that_read_their_elements_once_join_others():
    a, b = lang.placeholder((64, 80), name="A"), lang.placeholder((80, 64), name="B")
    k, n = lang.reduce_axis(80, "k"), lang.reduce_axis(80, "n")
    product = lang.compute((64, 64), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="product")
    rows = lang.compute((64,), lambda i: lang.sum(a[i, n], axis=n), name="rows")
    graph = graph_of(lang.program([a, b], [product, rows]))
    assert {n.name: has_own_rule(n) for n in graph.nodes} == {"product": True, "rows": False}


def horner(x):
    return (((x * 0.5 + 0.25) * x + 2.0) * x - 3.0) * x + 4.0


def twice(x):
    product = x * 0.5
    return (product + 0.25) * (product - 3.0) * 7.0


@pytest.mark.parametrize(
    ("made", "dtype", "instructions"),
    # a product is part of the sum that alone reads it; of integers, and where two read it, none is
    [(horner, "f32", 4), (twice, "f32", 5), (lambda x: (x * 5 + 3) * x + 4, "i32", 4)],
)
def test_products_are_part_of_sums_that_alone_read_them(made, dtype, instructions):
    image = lang.placeholder((64, 80), dtype, name="image")
    program = lang.program([image], [lang.compute((64, 80), lambda y, x: made(image[y, x]), name="out")])
    found = FusionModel(graph_of(program), MACHINE).facts(0).vector_cycles - STORE_CYCLES
    assert found == instructions / STATED.fma_per_cycle


def test_elements_apart_cost_alike_whether_borders_clamp_them_or_not():
    def cycles(read):
        image = lang.placeholder((64, 256), name="image")
        made = lang.compute((64, 128), lambda y, x: read(image, y, x) * 2.0, name="made")
        return FusionModel(graph_of(lang.program([image], made)), MACHINE).facts(0).vector_cycles

    apart = cycles(lambda image, y, x: image[y, 2 * x])

    def clamped(image, y, x):
        return lang.boundary(image, mode="clamp")[y, 2 * x + 1]

    def looked_up(image, y, x):
        return image[y, lang.clamp(lang.cast(image[y, x], "i32"), 0, 255)]

    assert cycles(clamped) == apart
    assert cycles(lambda image, y, x: image[y, x // 2]) == apart
    assert cycles(lambda image, y, x: image[y, x]) < apart
    assert cycles(looked_up) > 2 * apart

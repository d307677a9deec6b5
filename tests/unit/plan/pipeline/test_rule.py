"""Pipelines in strips: right at ragged sizes, wherever producers are placed; what is no pipeline is left."""

import random
from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.plans import chosen
from tests.unit.strategies.test_default import check_schedule, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import RULES, build_unit, plan_unit, rewritten
from tilewright.plan.pipeline import nest
from tilewright.plan.pipeline.match import find_pipeline
from tilewright.support import ArtefactError, ScheduleError


def chain(count, h, w):
    """So many stencils one after another, of which each also adds what the one before holds in place."""
    x = t(h, w, name="X")
    last = x
    for n in range(count):

        def blurred(y, i, a=last):
            return (a[y - 1, i] + 2 * a[y, i] + a[y + 1, i]) * 0.25 + lang.exp(a[y, i + 1] * 0.01)

        last = lang.stage(blurred, name=f"f{n}")
    return lang.program([x], last, name="chain", region=[(count, h - count), (count, w - count)])


def harris(h, w):
    image = t(h, w, name="image")
    gray = lang.stage(lambda y, x: lang.exp(image[y, x] * 0.5), name="gray")
    ix = lang.stage(lambda y, x: gray[y + 1, x] * 2 - gray[y - 1, x] + gray[y, x], name="ix")
    iy = lang.stage(lambda y, x: gray[y, x + 1] * 2 - gray[y, x - 1] + gray[y, x], name="iy")

    def summed(f, g, y, x):
        return sum(f[y + a, x + b] * g[y + a, x + b] for a in (-1, 0, 1) for b in (-1, 0, 1))

    out = lang.stage(
        lambda y, x: summed(ix, ix, y, x) * summed(iy, iy, y, x) - summed(ix, iy, y, x), name="out"
    )
    return lang.program([image], out, name="harris", region=[(2, h - 2), (2, w - 2)])


def unsharp(h, w):
    image = t(3, h, w, name="image")
    near = lang.boundary(image, mode="clamp")
    gray = lang.stage(lambda y, x: lang.exp(near[0, y, x] * 0.3 + near[1, y, x] * 0.5), name="gray")
    blur = lang.stage(lambda y, x: lang.exp(gray[y - 2, x] + gray[y + 2, x] * 0.1) * 0.1, name="blur")
    out = lang.stage(
        lambda c, y, x: (gray[y, x] - blur[y, x - 1] + blur[y + 1, x + 1]) * image[c, y, x], name="out"
    )
    return lang.program([image], out, name="unsharp", region=[3, h, w])


CASES = {
    "two stages": chain(2, 45, 70),
    "three stages": chain(3, 67, 41),
    "five stages": chain(5, 83, 37),
    "harris": harris(71, 53),
    "unsharp": unsharp(61, 45),
}


@pytest.fixture(autouse=True)
def strips_however_small(monkeypatch):
    monkeypatch.setattr(nest, "LARGE", 0.0)
    monkeypatch.setattr(nest, "MOST_REPEATED", 100.0)
    monkeypatch.setattr(nest, "STRIPS_PER_THREAD", 1)


def space_of(program, plan, machine):
    _, context = rewritten(program, plan, machine)
    (found,) = plan.nests
    rule = RULES[found.rule]
    return rule.space(rule.match(context, found.root, found.stages))


@pytest.mark.few(7)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_right(name, threads):
    planned = plan_unit(CASES[name], Machine(STATED, threads))
    (found,) = planned.plan.nests
    assert found.rule == "pipeline"
    assert {*found.choice.placements} == {"tile"}
    assert planned.schedule.notes == ()
    check_schedule(CASES[name], planned.schedule, interpret=name == "two stages" and threads == 1)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_every_plan_that_is_drawn_is_right(name):
    program, rng, machine = CASES[name], random.Random(name), Machine(STATED, 2)
    plan = plan_unit(program, Machine(STATED, 2)).plan
    space = space_of(program, plan, machine)
    drawn = {space.sample(rng) for _ in range(4)}
    assert len(drawn) > 1
    for each in drawn:
        other = chosen(program, plan, machine, each)
        check_schedule(program, build_unit(program, other, machine))


@pytest.mark.parametrize("copies", [3, 1])
def test_channels_are_unrolled_inside_of_tiles(copies):
    """A few channels share what they read: the default unrolls them around the lanes, other plans may not."""
    program, machine = unsharp(1029, 1040), Machine(STATED, 2)
    unit = plan_unit(program, machine).plan
    (taken,) = unit.nests
    assert taken.choice.tile == (0, taken.choice.tile[1], 0) and taken.choice.tile[1] > 1
    assert taken.choice.expand == (3, 1, 1)
    plan = replace(taken.choice, expand=(copies, 1, 1))
    s = build_unit(program, chosen(program, unit, machine, plan), machine)
    kinds = [(loop, s.loop(loop).kind.name) for loop in s.loops("out")]
    channel = next((kind, n) for n, (loop, kind) in enumerate(kinds) if loop.startswith("c"))
    assert channel == (("unroll", 3) if copies == 3 else ("serial", 2))
    assert kinds[0][1] == "parallel" and kinds[-1][1] == "vector"


def test_a_strip_that_no_cache_holds_is_refused():
    program = chain(2, 300, 6000)
    plan = plan_unit(program, Machine(STATED, 2)).plan
    space = space_of(program, plan, Machine(STATED, 2))
    space.check(plan.nests[0].choice)
    with pytest.raises(ArtefactError, match=r"tiles of 128x\d+ take .* bytes, the second cache level has"):
        space.check(replace(plan.nests[0].choice, tile=(128, 0)))
    with pytest.raises(ArtefactError, match=r"tile is \(7, 0\), and not one of"):
        space.check(replace(plan.nests[0].choice, tile=(7, 0)))


def test_what_the_root_reads_is_not_in_strips():
    program = CASES["three stages"]
    plan = plan_unit(program, Machine(STATED, 2)).plan
    space = space_of(program, plan, Machine(STATED, 2))
    placements = tuple("root" if n else "tile" for n in range(len(plan.nests[0].stages)))
    with pytest.raises(ArtefactError, match="f0 is read outside of the loop where it is computed, by f1"):
        space.check(replace(plan.nests[0].choice, placements=placements))


@pytest.mark.parametrize(("width", "pitch"), [(150, 160), (146, 144), (40, 38)])
def test_long_rows_of_a_strip_begin_at_lines(width, pitch):
    x = t(64, width, name="X")
    a = lang.compute((64, width - 2), lambda y, i: lang.exp(x[y, i] + x[y, i + 2]), name="a")
    b = lang.compute((62, width - 4), lambda y, i: a[y, i] + a[y + 2, i + 2], name="b")
    schedule = plan_unit(lang.program([x], [b]), Machine(STATED, 2)).schedule
    assert schedule.buffers()["a"].physical_shape[-1].as_int() == pitch


def test_a_stage_that_others_read_is_not_in_the_nest():
    x = t(64, 40, name="X")
    a = lang.stage(lambda y, i: lang.exp(x[y, i]) + x[y, i], name="a")
    b = lang.stage(lambda y, i: lang.exp(a[y - 1, i] + a[y + 1, i]), name="b")
    c = lang.stage(lambda y, i: b[y, i + 1] + b[y + 1, i] + a[y, i], name="c")
    inside = [(1, 60), (1, 38)]
    program = lang.program([x], [b, c], region={b: [(1, 61), (1, 39)], c: inside})
    # b is a result, and reads a, which stays at the root with it
    assert find_pipeline(program, program.stage("c")) is None
    assert find_pipeline(program, program.stage("b")) is None
    planned = plan_unit(program, Machine(STATED, 1))
    assert all(found.rule == "elementwise" for found in planned.plan.nests)
    check_schedule(program, planned.schedule)


def test_producers_that_fit_no_strip_end_one_of_their_own(monkeypatch):
    # of three rows of three producers, a cache holds those of one
    monkeypatch.setattr(nest, "STRIPS", (4,))
    monkeypatch.setattr(nest, "second_level", lambda machine: 2 * 4 * 70 * 8)
    program = chain(4, 60, 70)
    plan = plan_unit(program, Machine(STATED, 1)).plan
    assert [(found.root, found.stages) for found in plan.nests] == [("f1", ("f0",)), ("f3", ("f2",))]
    check_schedule(program, build_unit(program, plan, Machine(STATED, 1)))


def test_rows_read_across_are_no_pipeline():
    x = t(40, 40, name="X")
    a = lang.stage(lambda y, i: lang.exp(x[y, i]), name="a")
    b = lang.stage(lambda y, i: a[i, y] + a[i, y + 1], name="b")
    program = lang.program([x], b, region=[39, 39])
    assert find_pipeline(program, program.stage("b")) is None


def test_small_pipelines_are_as_they_were(monkeypatch):
    monkeypatch.setattr(nest, "LARGE", 1.0)
    rules = {found.rule for found in plan_unit(CASES["harris"], Machine(STATED, 2)).plan.nests}
    assert rules == {"elementwise"}


def test_a_refused_step_leaves_one_nest_a_stage(monkeypatch):
    def refuse(s, name):
        raise ScheduleError("not today")

    monkeypatch.setattr("tilewright.plan.pipeline.rule.group_nests", lambda *given: refuse(*given[:2]))
    planned = plan_unit(CASES["harris"], Machine(STATED, 2))
    assert {found.rule for found in planned.plan.nests} == {"elementwise"}
    assert any("not today" in str(note) for note in planned.schedule.notes)
    check_schedule(CASES["harris"], planned.schedule)

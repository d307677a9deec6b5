"""Plans of groups: never refused, always legal, boxes as they are allocated; what is no plan says why."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED, Native
from tests.plans import asked
from tests.random_pipelines import random_program, random_unit

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program, verify
from tilewright.plan import (
    AtLoop,
    GroupPlan,
    boxes,
    build_unit,
    find_group,
    held_bytes,
    invalid,
    kept_rows,
    middle,
    plan_from_json,
    points,
)
from tilewright.plan.space import Combinations
from tilewright.poly import check_legal, list_function
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError

CASES = 24


def built(program, unit, machine, monkeypatch):
    """The schedule of a plan, whether or not its numbers are among the options of its space."""
    monkeypatch.setattr("tilewright.plan.space.Space.check", lambda *given: None)
    return build_unit(program, unit, machine)


def inlined(program, unit):
    s = Schedule(program)
    for asked_for in unit.asked:
        if asked_for.rule == "pipeline":
            for stage, place in zip(asked_for.stages, asked_for.plan.placements, strict=True):
                s = s.inline(stage) if place == "inline" else s
    return s.func


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(CASES))
def test_random_plans_are_never_refused_and_always_right(seed, monkeypatch):
    rng = Random(seed)
    program, machine = random_program(rng), Machine(STATED, 2)
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for n in range(3):
        unit = random_unit(rng, program, machine, loops=n > 0)
        s = built(program, unit, machine, monkeypatch)
        assert s.notes == (), (seed, n, str(unit))
        verify(s.func)
        found = check_legal(list_function(inlined(program, unit), {}), s.func, {})
        assert not found, f"seed {seed}, plan {n}\n{program}\n{unit}{s}\n" + "\n".join(map(str, found))
        for results in (run_function(s.func, {"X": x}, seed=n), Native(s.func)({"X": x})):
            for name, value in wanted.items():
                np.testing.assert_array_equal(results[name], value, err_msg=f"{seed}, {n}\n{unit}")


def stencils(count, h, w):
    """A chain of sums of two rows."""
    last = x = lang.placeholder((h, w), "i32", name="X")
    for n in range(count):
        last = lang.compute((h - n - 1, w), lambda y, i, a=last: a[y, i] * 2 + a[y + 1, i], name=f"S{n}")
    return lang.program([x], [last], name="stencils")


def group_of(program):
    *members, root = [stage.name for stage in program.stages]
    return find_group(program, root, members)


def plan_of(g, placements, **fields):
    rank = len(g.axes)
    base = GroupPlan((0,) * rank, placements, (*range(rank),), rank - 1, (1,) * rank, 0)
    return replace(base, **fields)


def unit_of(g, plan):
    return asked("pipeline", g.root.name, [m.name for m in g.members], plan)


def test_boxes_are_what_is_allocated(monkeypatch):
    program = stencils(4, 40, 24)
    g = group_of(program)
    plan = plan_of(g, ("tile", "slide", "slide"), tile=(8, 6))
    s = built(program, unit_of(g, plan), Machine(STATED, 1), monkeypatch)
    found = {b.name: [n.as_int() for n in b.physical_shape] for b in s.buffers().values()}
    # rows of a tile and one more for each stencil; of those that slide two rows are kept
    assert {name: found[name] for name in ("S0", "S1", "S2")} == {"S0": [11, 6], "S1": [2, 6], "S2": [2, 6]}
    held = held_bytes(g, program, plan)
    assert held == {name: 4 * rows * columns for name, (rows, columns) in found.items() if name in held}


def shifted(h, w):
    """Sums of two rows of differences, for three shifts, and the sum of these."""
    x = lang.placeholder((h + 1, w + 2), "i32", name="X")
    d = lang.reduce_axis(3, "d")
    gaps = lang.compute((3, h + 1, w), lambda d, y, i: x[y, i] - x[y, i + d], name="gaps")
    rows = lang.compute((3, h, w), lambda d, y, i: gaps[d, y, i] + gaps[d, y + 1, i], name="rows")
    total = lang.compute((h, w), lambda y, i: lang.sum(rows[d, y, i] * (d + 1), axis=d), name="total")
    return lang.program([x], [lang.compute((h, w), lambda y, i: total[y, i] * 2, name="out")])


@pytest.mark.parametrize(
    ("placements", "held"),
    [
        # of all shifts what a tile needs; of one what it needs; of one what a row needs
        (("tile", "tile", "tile"), {"gaps": [3, 9, 6], "rows": [3, 8, 6]}),
        ((AtLoop("rows", 0), "tile", "tile"), {"gaps": [1, 9, 6], "rows": [3, 8, 6]}),
        ((AtLoop("rows", 1), "tile", "tile"), {"gaps": [1, 2, 6], "rows": [3, 8, 6]}),
        # a row of all shifts; a row of one shift, inside of the sum's loop over these
        (("tile", AtLoop("total", 0), "tile"), {"gaps": [3, 9, 6], "rows": [3, 1, 6]}),
        ((AtLoop("total", 0), AtLoop("total", 1), "tile"), {"gaps": [3, 2, 6], "rows": [1, 1, 6]}),
        ((AtLoop("rows", 0), AtLoop("total", 0), "tile"), {"gaps": [1, 2, 6], "rows": [3, 1, 6]}),
        ((AtLoop("rows", 0), AtLoop("total", 0), "row"), {"gaps": [1, 2, 6], "rows": [3, 1, 6]}),
    ],
)
def test_producers_inside_of_loops_of_producers(placements, held, monkeypatch):
    program = shifted(40, 24)
    g = group_of(program)
    plan = plan_of(g, placements, tile=(8, 6))
    unit = unit_of(g, plan)
    s = built(program, unit, Machine(STATED, 1), monkeypatch)
    found = {b.name: [n.as_int() for n in b.physical_shape] for b in s.buffers().values()}
    assert {name: found[name] for name in held} == held
    count = {name: 4 * int(np.prod(shape)) for name, shape in found.items()}
    kept = held_bytes(g, program, plan)
    assert kept == {name: count[name] for name in kept} and {*kept} == {"gaps", "rows", "total"}
    assert plan_from_json(unit.to_json()) == unit
    x = np.arange(41 * 26, dtype=np.int32).reshape(41, 26) ** 2 % 97
    wanted = run_program(program, {"X": x})["out"]
    np.testing.assert_array_equal(Native(s.func)({"X": x})["out"], wanted)
    assert not check_legal(list_function(Schedule(program).func, {}), s.func, {})


@pytest.mark.parametrize(
    ("placements", "reason"),
    [
        ((AtLoop("out", 0), "tile", "tile"), "gaps cannot be computed inside of out, which has no loops"),
        ((AtLoop("rows", 0), "inline", "tile"), "gaps cannot be computed inside of rows"),
        (("tile", AtLoop("gaps", 0), "tile"), "rows cannot be computed inside of gaps"),
        ((AtLoop("rows", 2), "tile", "tile"), "at the loop number 2 of rows, which has 2 around lanes"),
        ((AtLoop("rows", -1), "tile", "tile"), "at the loop number -1 of rows"),
        (("tile", AtLoop("total", 2), "tile"), "at the loop number 2 of total, which has 2"),
        (
            (AtLoop("total", 0), "tile", "tile"),
            "gaps is read outside of the loop where it is computed, by rows",
        ),
        ((AtLoop("total", 1), AtLoop("total", 0), "tile"), "gaps is read outside of the loop"),
        (("row", AtLoop("total", 0), "tile"), "gaps is read outside of the loop"),
    ],
)
def test_what_is_no_loop_says_why(placements, reason):
    g = group_of(shifted(40, 24))
    assert reason in invalid(g, plan_of(g, placements, tile=(8, 6)))


def test_a_text_with_an_unknown_part_of_a_place_is_refused():
    g = group_of(shifted(40, 24))
    text = unit_of(g, plan_of(g, (AtLoop("rows", 0), "tile", "tile"), tile=(8, 6))).to_json()
    with pytest.raises(ArtefactError, match="there is no field 'depth'"):
        plan_from_json(text.replace('"loop": 0', '"loop": 0, "depth": 1'))


def test_boxes_of_many_tiles_at_once():
    g = group_of(stencils(3, 40, 24))
    sizes = np.array([4, 8, 16, 0])
    found = boxes(g, middle(g.axes, (sizes, 0)))
    assert points(found["S0"]).tolist() == [6 * 24, 10 * 24, 18 * 24, 39 * 24]
    assert points(found["S2"]).tolist() == [4 * 24, 8 * 24, 16 * 24, 37 * 24]


def test_boxes_of_other_rates_and_places_that_are_looked_up():
    x = lang.placeholder((32, 8), "i32", name="X")
    a = lang.compute((32, 8), lambda y, i: x[y, i] + 1, name="a")
    half = lang.compute((16, 8), lambda y, i: a[2 * y, i] + a[2 * y + 1, i], name="half")
    table = lang.compute((64, 8), lambda y, i: x[y // 2, i], name="table")
    out = lang.compute(
        (30, 8), lambda y, i: half[y // 2, i] + table[lang.clamp(x[y, i], 3, 9), (i + 1) % 4], name="out"
    )
    g = group_of(lang.program([x], [out]))
    found = boxes(g, middle(g.axes, (4, 0)))
    assert [tuple(int(v[0]) for v in r) for r in found["out"]] == [(12, 15), (0, 7)]
    assert [tuple(int(v[0]) for v in r) for r in found["half"]] == [(6, 7), (0, 7)]
    assert [tuple(int(v[0]) for v in r) for r in found["a"]] == [(12, 15), (0, 7)]
    assert [tuple(int(v[0]) for v in r) for r in found["table"]] == [(3, 9), (0, 3)]


def test_rows_that_are_read_ahead_have_memory(monkeypatch):
    """What is computed ahead of the loop for the producer's producer needs more rows than one turn."""
    x = lang.placeholder((12, 6), "i32", name="X")
    a = lang.compute((12, 6), lambda y, i: x[y, i] + 1, name="a")
    b = lang.compute((11, 6), lambda y, i: a[y, i] + a[y + 1, i], name="b")
    out = lang.compute((9, 6), lambda y, i: b[y, i] + b[y + 2, i], name="out")
    program = lang.program([x], [out])
    g = group_of(program)
    plan = plan_of(g, ("slide", "slide"))
    assert kept_rows(g, plan) == {"b": (0, 4), "a": (0, 4)}
    s = built(program, unit_of(g, plan), Machine(STATED, 1), monkeypatch)
    assert not check_legal(list_function(Schedule(program).func, {}), s.func, {})


@pytest.mark.parametrize(
    ("placements", "fields", "reason"),
    [
        (("tile", "tile"), {}, "no tiles"),
        (("root", "root"), {"tile": (4,)}, "2 axes"),
        (("root",), {}, "2 producers"),
        (("root", "root"), {"tile": (64, 0)}, "no parts"),
        (("root", "root"), {"parallel": 1}, "1 loops over tiles are parallel, of 0"),
        (("root", "root"), {"expand": (1, 2)}, "2 elements of axis 1 cannot be expanded"),
        (("root", "root"), {"tile": (4, 0), "expand": (2, 1)}, "the last tile of axis 0"),
        (("root", "root"), {"tile": (0, 0), "expand": (37, 1), "order": (1, 0)}, "37 copies"),
        (("row", "row"), {"order": (1, 0)}, "no loop over rows"),
        (("tile", "root"), {"tile": (4, 0)}, "S0 is read outside of the loop where it is computed, by S1"),
        (("row", "slide"), {}, "S1 keeps rows, and S0, which it reads, would not"),
        (("slide", "slide"), {"tile": (1, 0)}, "one turn"),
        (("slide", "inline"), {"order": (1, 0), "vector": 0}, "no window that slides"),
    ],
)
def test_what_is_no_plan_says_why(placements, fields, reason):
    g = group_of(stencils(3, 40, 24))
    assert reason in invalid(g, plan_of(g, placements, **fields))


def test_a_sum_is_not_inlined():
    k = lang.reduce_axis(3, "k")
    x = lang.placeholder((8, 3), "i32", name="X")
    a = lang.compute((8,), lambda y: lang.sum(x[y, k], axis=k), name="a")
    g = group_of(lang.program([x], [lang.compute((8,), lambda y: a[y] + 1, name="out")]))
    assert "a sum, which no expression holds" in invalid(g, plan_of(g, ("inline",)))


def test_what_is_no_group():
    x = lang.placeholder((8, 8), name="X")
    a = lang.compute((8, 8), lambda y, i: x[y, i] + 1, name="a")
    b = lang.compute((8, 8), lambda y, i: a[i, y] * 2, name="b")
    c = lang.scan((8, 8), lambda u, y, i: lang.select(y >= 1, u[y - 1, i], 0) + a[y, i], axis=0, name="c")
    program = lang.program([x], [b, c])
    assert find_group(program, "b", ["a"]) is None  # c reads it, too
    assert find_group(program, "b", ["c"]) is None  # in order
    assert find_group(program, "b", []) is not None


def test_combinations():
    found = Combinations([(1, 2), ("a", "b", "c")])
    assert list(found) == [(1, "a"), (1, "b"), (1, "c"), (2, "a"), (2, "b"), (2, "c")]
    assert (2, "c") in found and (3, "a") not in found and 7 not in found
    assert set(found.near((1, "a"))) == {(2, "a"), (1, "b"), (1, "c")}
    assert found.draw(Random(0)) in found
    assert Combinations([range(10)] * 40).size == 10**40
    with pytest.raises(IndexError):
        found[6]


def test_what_slides_reads_tiles_row_by_row():
    """Found by ``tests/property/pipelines.py`` (seeds 376, 596): the box of its new rows was too large."""
    x = lang.placeholder((4, 3), "i32", name="X")
    low = lang.compute((4, 3), lambda y, x_: x[y, x_] * 2, name="low")
    high = lang.compute((6, 3), lambda y, x: low[y // 2, x] * 3 - low[(y + 1) // 2, x], name="high")
    out = lang.compute((5, 3), lambda y, x: high[y + 1, x] - high[y, x], name="out")
    program = lang.program([x], [out])
    g = find_group(program, "out", ("low", "high"))
    plan = GroupPlan((4, 0), ("tile", "slide"), (0, 1), 1, (1, 1), 0)
    assert invalid(g, plan) == "high reads low at another rate: tiles hold too little for its new rows"
    for places in (("tile", "row"), ("root", "slide"), ("inline", "slide")):
        assert not invalid(g, replace(plan, placements=places))
        unit = asked("pipeline", "out", ("low", "high"), replace(plan, placements=places))
        verify(build_unit(program, unit, Machine(STATED, 1)).func)

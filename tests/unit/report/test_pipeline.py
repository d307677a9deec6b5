"""What is said of each stage of a scheduled pipeline."""

from tests.native_kernel import HOST
from tests.plans import asked

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import AtLoop, GroupPlan, build_unit
from tilewright.report import stage_rows


def test_places_inside_of_loops_are_told_by_their_axes():
    x = lang.placeholder((65, 132), name="X")
    gaps = lang.compute((5, 65, 128), lambda d, y, i: x[y, i] * x[y, i + d], name="gaps")
    rows = lang.compute((5, 64, 128), lambda d, y, i: gaps[d, y, i] + gaps[d, y + 1, i], name="rows")
    out = lang.compute((64, 128), lambda y, i: sum(rows[d, y, i] for d in range(5)), name="out")
    program = lang.program([x], [out])
    plan = GroupPlan((8, 0), (AtLoop("rows", 0), "tile"), (0, 1), 1, (1, 1), 1)
    unit = asked("pipeline", "out", ("gaps", "rows"), plan)
    told = stage_rows(program, unit, build_unit(program, unit, Machine(HOST, 2)).func, {}, {})
    assert [(row.name, row.place, row.times) for row in told] == [
        ("gaps", "rows.d", 9 * 8 / 65),
        ("rows", "out.tile", 1.0),
        ("out", "root", 1.0),
    ]
    # of one shift and of all of them what 8 rows of the result need
    assert [row.held for row in told[:2]] == [9 * 128 * 4, 5 * 8 * 128 * 4]

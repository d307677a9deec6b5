"""Updates in no order get a copy for each thread, where that pays, and give the same."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import For, locate, run_function
from tilewright.plan import plan_unit
from tilewright.plan.rows.split_updates import share_updates
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512


def histogram(rows=600, columns=64, bins=16, groups=0, ordered=False, start=3):
    X = lang.placeholder((rows, columns), "u8", name="X")
    axis = lang.ordered_axis if ordered else lang.reduce_axis
    y, x = axis(rows, "y"), axis(columns, "x")
    if groups:
        H = lang.compute((groups, bins), lambda g, b: lang.const(start, "i32"), name="H")
        axes = [lang.axis(groups, "g"), y, x]

        def count(t, g, y, x):
            b = X[y, x] % bins
            return lang.write((g, b), t[g, b] + 1)
    else:
        H = lang.compute((bins,), lambda b: lang.const(start, "i32"), name="H")
        axes = [y, x]

        def count(t, y, x):
            return lang.write(X[y, x] % bins, t[X[y, x] % bins] + 1)

    return lang.program([X], [lang.update(H, axes, count, name="count")])


def stages(program, threads):
    return [
        st.name
        for st in share_updates(Schedule(program), Machine(X86_AVX512, threads)).require_program().stages
    ]


def test_each_thread_has_a_copy():
    p = histogram()
    assert stages(p, 3) == ["count", "count_update_part_start", "count_update_part", "count_update"]
    planned = plan_unit(p, Machine(X86_AVX512, 3))
    assert planned.schedule.notes == ()
    loops = planned.schedule.loops("count_update_part")
    kinds = {place.node.var: place.node.kind.name for place in _loops(planned.schedule)}
    assert kinds[loops[0]] == "parallel"
    x = np.random.default_rng(0).integers(0, 256, (600, 64), dtype=np.uint8)
    (found,) = run_function(planned.schedule.func, {"X": x}).values()
    np.testing.assert_array_equal(found, 3 + np.bincount((x % 16).ravel(), minlength=16))


def _loops(s):

    return list(locate(s.func.body, For))


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        ({}, 1),
        ({"rows": 20}, 2),  # too few updates
        ({"bins": 200, "rows": 150, "columns": 256}, 16),  # copies cost as much
        ({"groups": 4}, 2),  # threads share the groups
        ({"ordered": True}, 2),
    ],
)
def test_updates_that_stay_whole(changes, threads):
    assert len(stages(histogram(**changes), threads)) == 2

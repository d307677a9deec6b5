"""Parts of nests: plans of their loops, programs that they are, and searches that begin with both."""

from random import Random

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.frontend.nests import scop
from tilewright.ir import For, function_at, locate, run_function, verify
from tilewright.plan import UnitPlan, plan_from_json
from tilewright.strategies import STRATEGIES, AnyTime, History, NestTask, Trial, loops_plan
from tilewright.strategies.nests.part import MOST, RULE, TILES, WRITTEN, frame_of, resized
from tilewright.support import ArtefactError, ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python

LOOPS = {"seidel_2d": 3, "floyd_warshall": 2, "cholesky": 3, "trisolv": 2, "jacobi_1d": 2}
"""Of some nests, the loops of their bands. Loops of cholesky and trisolv have one of two first values."""


def part(name, sizes, threads=1):
    return NestTask(function_at(scop(KERNELS[name]).func, sizes), Machine(STATED, threads))


@pytest.mark.few(6)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("tiles", [(8, 16), (16, 8, 32), ()])
def test_parts_run_in_the_tiles_of_a_plan(name, tiles):
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, {"N": 19, "T": 3}, seed=3)
    func = function_at(func, values)
    made = NestTask(func, Machine(STATED, 2)).carried_out(loops_plan(TILES if tiles else WRITTEN, tiles))
    verify(made.func)
    frame, sizes = frame_of(made.plan)
    if tiles:
        # the last is that of further loops, too
        assert frame == TILES and sizes == (*tiles, tiles[-1])[: LOOPS[name]]
        assert made.notes == (f"in tiles of {' x '.join(map(str, sizes))}",)
    else:
        assert made.notes == ("in the order in which it is written",)
    want = run_python(KERNELS[name], arrays, values)
    got = run_function(made.func, {n: a.copy() for n, a in arrays.items()}, {}, seed=2)
    for out in func.outputs:
        np.testing.assert_allclose(got[out], want[out], rtol=1e-9, atol=1e-11, err_msg=out)


def test_each_loop_has_a_size_of_its_own():
    extents = []
    for tiles in ((8, 32), (32, 8)):
        made = part("jacobi_1d", {"N": 400, "T": 64}).carried_out(loops_plan(TILES, tiles)).func
        extents.append({place.node.extent.as_int() for place in locate(made.body, For) if not place.loops})
    # time is skewed: tiles of the first loop are along it alone
    assert extents == [{64 // 8}, {64 // 32}]


def test_neighbours_are_sizes_doubled_and_halved():
    assert set(resized((32, 32))) == {(64, 64), (16, 16), (64, 32), (16, 32), (32, 64), (32, 16)}
    assert set(resized((8, MOST))) == {(16, MOST), (8, MOST // 2)}


@pytest.mark.parametrize(
    ("frame", "tiles"),
    [(TILES, (4,)), (TILES, (32, 1024)), (TILES, (32,) * 17), (TILES, ()), (WRITTEN, (8,))],
)
def test_other_sizes_are_refused(frame, tiles):
    with pytest.raises(ArtefactError, match=f"loops have no frame '{frame}' with tiles of"):
        frame_of(loops_plan(frame, tiles))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("for d0/32", "for d1/32", "no frame 'tiles'"),
        ("for d0/32", "for d0/32 parallel", "one level each, d0 outermost"),
        ("do tiles", "do other", "ends with `do tiles`"),
        ('"root": "tiles"', '"root": "other"', "no frame 'other'"),
    ],
)
def test_trees_of_other_forms_are_refused(old, new, message):
    text = loops_plan(TILES, (32,)).to_json()
    assert plan_from_json(text) == loops_plan(TILES, (32,)) and old in text
    with pytest.raises(ArtefactError, match=message):
        frame_of(plan_from_json(text.replace(old, new)))


def test_plans_of_something_else_are_refused():
    task = part("seidel_2d", {"N": 9, "T": 2})
    assert task.as_program() is None
    with pytest.raises(ScheduleError, match="no updates that could wait"):
        task.carried_out(loops_plan("groups"))
    program = part("gemm", {"NI": 16, "NJ": 16, "NK": 16})
    with pytest.raises(ScheduleError, match="cannot be renamed"):
        task.carried_out(program.default().plan)
    # the same program, and loops of it
    assert program.carried_out(program.default().plan).func == program.default().func
    assert program.carried_out(loops_plan(WRITTEN)).func != program.default().func


def told(search, seconds):
    """What a search proposes until it has nothing more, each measured to take what ``seconds`` says."""
    found = []
    while batch := search.propose(4):
        found += [each.plan for each in batch]
        search.observe([Trial(each, "ok", (seconds(each.plan),)) for each in batch])
    return found


def test_searches_go_downhill_from_the_faster_of_tiles_and_the_order_as_written():
    task = part("seidel_2d", {"N": 30, "T": 4})
    frames = {}
    for written in (1.0, 99.0):

        def seconds(plan, written=written):
            return written if plan == loops_plan(WRITTEN) else 2 + sum(abs(t - 16) for t in frame_of(plan)[1])

        search = task.search(STRATEGIES["descent"], History(), Random(0))
        frames[written] = told(search, seconds)
        assert len(set(frames[written])) == len(frames[written]) and search.expected_gain() == 1.0
    assert frames[1.0] == [loops_plan(WRITTEN), loops_plan(TILES, (RULE,) * 3)]
    assert loops_plan(TILES, (16, 16, 16)) in frames[99.0]


def test_of_programs_both_are_searched():
    task = part("gemm", {"NI": 32, "NJ": 32, "NK": 32})
    found = [each.plan for each in task.search(STRATEGIES["descent"], History(), Random(0)).propose(8)]
    frames = [frame_of(plan) is None for plan in found if isinstance(plan, UnitPlan)]
    assert frames[:2] == [False, False] and all(frames[2:]) and len(frames) == 8


def test_searches_of_programs_know_when_to_end():
    task, until = part("gemm", {"NI": 16, "NJ": 16, "NK": 16}), []

    class Late:
        name = "late"

        def start(self, task, history, rng):
            return self

        def propose(self, count):
            return []

        observe = expected_gain = propose

        def end_by(self, moment):
            until.append(moment)

    search = task.search(Late(), History(), Random(0))
    assert isinstance(search, AnyTime)
    search.end_by(7.0)
    part("seidel_2d", {"N": 9, "T": 2}).search(Late(), History(), Random(0)).end_by(8.0)
    assert until == [7.0]


def test_reasons_have_the_other_ways_with_prices():
    (reasons,) = part("jacobi_1d", {"N": 30, "T": 4}).reasons(loops_plan(TILES, (32, 32)))
    assert reasons.root == TILES and "for d0/32" in reasons.tree
    changes = [each.change for each in reasons.others if each.seconds is not None]
    assert "in the order in which it is written" in changes and "in tiles of 16 x 16" in changes
    assert any("cannot be renamed" in each.refused for each in reasons.others)
    task = part("gemm", {"NI": 16, "NJ": 16, "NK": 16})
    changes = [each.change for nest in task.reasons(task.default().plan) for each in nest.others]
    assert "in the order in which it is written" in changes
    (written,) = task.reasons(loops_plan(WRITTEN))
    assert any(each.change == "lifted to a program" and each.seconds for each in written.others)

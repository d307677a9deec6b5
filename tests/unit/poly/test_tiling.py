"""Tiles of permutable bands: exact dependences hold, wavefronts do not race, lanes are independent."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.frontend.nests import scop
from tilewright.ir import Block, For, function_at, locate, run_function
from tilewright.poly import (
    Dependences,
    check_legal,
    extract_model,
    import_tree,
    infer_kinds,
    isl_schedule,
    list_function,
    tiled,
)
from tilewright.strategies.nests.tiled import tiled_nest
from tilewright.support import ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python

SIZES = {"N": 11, "M": 12, "T": 3, "NX": 7, "NY": 9}
TILED = ["lu", "cholesky", "gramschmidt", "trisolv", "seidel_2d", "floyd_warshall", "jacobi_1d", "nussinov"]


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_are_legal_and_compute_what_python_does(name, threads):
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, SIZES, seed=3)
    func = function_at(func, values)
    made, _ = tiled_nest(func, Machine(STATED, threads), (3, 4))
    kinds = {place.node.kind.name for place in locate(made.body, For)}
    assert ("parallel" in kinds) <= (threads > 1)
    assert not check_legal(list_function(func, {}), made, {})
    want = run_python(KERNELS[name], arrays, values)
    got = run_function(made, {n: a.copy() for n, a in arrays.items()}, {}, seed=2)
    for out in func.outputs:
        np.testing.assert_allclose(got[out], want[out], rtol=1e-9, atol=1e-11, err_msg=out)


def test_rows_lie_along_the_innermost_loop():
    """In the product of lu both columns and rows are contiguous along j, which is written outside of k."""
    func = function_at(scop(KERNELS["lu"]).func, {"N": 40})
    model = extract_model(func)
    dependences = Dependences(model)
    found = tiled(dependences, isl_schedule(dependences, "min"), (8,), parallel=True)
    made = import_tree(model, found.schedule, func.body.names)
    facts = found.facts(made)
    assert found.bands == (3,)
    assert facts.free
    assert not facts.sums
    assert {name.split("_")[0] for name in facts.free} == {"c5"}


def test_inner_loops_go_below_others_where_that_changes_no_order():
    """Columns of gramschmidt: the loop over j goes into the loops over i, and its rows into lanes."""
    func = function_at(scop(KERNELS["gramschmidt"]).func, {"N": 40, "M": 24})
    made, _ = tiled_nest(func, Machine(STATED, 2), (32,))
    lanes = {
        b.node.stage
        for place in locate(made.body, For)
        if place.node.kind.name == "vector"
        for b in locate(place.node, Block)
    }
    assert {"S5", "S6"} <= lanes


@pytest.mark.parametrize("name", ["seidel_2d", "nussinov"])
def test_points_that_wait_for_each_other_run_on_diagonals(name):
    """Each update needs the one before it in its row: along a diagonal nothing waits."""
    func = infer_kinds(function_at(scop(KERNELS[name]).func, {"N": 12, "T": 3}))
    dependences = Dependences(extract_model(func))
    found = tiled(dependences, isl_schedule(dependences, "min"), (4,), parallel=True)
    made = import_tree(dependences.model, found.schedule, func.body.names)
    innermost = {
        p.node.var for p in locate(made.body, For) if not any(True for _ in locate(p.node.body, For))
    }
    assert innermost & found.facts(made).free


def test_special_points_do_not_make_diagonals():
    """Of floyd-warshall only row and column k wait for each other inside of a step: rows stay rows."""
    func = infer_kinds(function_at(scop(KERNELS["floyd_warshall"]).func, {"N": 12}))
    dependences = Dependences(extract_model(func))
    found = tiled(dependences, isl_schedule(dependences, "min"), (4,), parallel=True)
    made = import_tree(dependences.model, found.schedule, func.body.names)
    (block,) = {b.node.stage: b.node for b in locate(made.body, Block)}.values()
    moved = [x for x in block.bind if any(v in x.vars for v in [_innermost_of(made)])]
    assert len(moved) == 1


def _innermost_of(func):
    return [p.node.var for p in locate(func.body, For)][-1]


def test_nests_without_two_permutable_loops_are_refused():
    func = function_at(scop(KERNELS["durbin"]).func, {"N": 9})
    with pytest.raises(ScheduleError, match="no two loops of durbin may be permuted"):
        tiled_nest(func, Machine(STATED, 2), (32,))

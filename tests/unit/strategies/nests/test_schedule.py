"""Scheduled nests compute what plain Python does: all structures of PolyBench, at two sets of sizes."""

import numpy as np
import pytest

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.frontend.nests import scop
from tilewright.ir import Block, For, function_at, locate, run_function, stmt_children, verify
from tilewright.runtime import aligned_copy
from tilewright.strategies.nests import ordered, schedule_nest
from tilewright.support import ResourceError
from tilewright.target import detect
from unit.frontend.nests.polybench import KERNELS, arguments, run_python

LIFTED = {
    "correlation", "covariance", "gemm", "gemver", "gesummv", "symm", "syr2k", "syrk", "trmm", "2mm", "3mm",
    "atax", "bicg", "doitgen", "mvt",
}  # fmt: skip

#: No vector divides them, and all loops have more than one.
SIZES = {"N": 19, "M": 21, "NI": 18, "NJ": 19, "NK": 23, "NL": 17, "NM": 13, "R": 3, "Q": 5, "P": 19, "W": 11,
         "H": 21, "T": 2, "NX": 13, "NY": 19}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_scheduled_nests_compute_what_python_does(name):
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, SIZES, seed=3)
    if name == "durbin":
        arrays["r"] *= 0.02  # errors would grow without bound
    made = schedule_nest(function_at(func, values), Machine(detect(), 2))
    verify(made.func)
    assert ("lifted to a program" in made.notes) == (name in LIFTED)
    assert [b.name for b in made.func.buffers] == [b.name for b in func.buffers]
    want = run_python(KERNELS[name], arrays, values)
    kernel = build(made.func, threads=2)
    table = [aligned_copy(arrays[b.name]) for b in func.buffers]
    kernel.run(table)
    for b, got in zip(func.buffers, table, strict=True):
        np.testing.assert_allclose(got, want[b.name], rtol=1e-10, atol=1e-12, err_msg=b.name)


@pytest.mark.parametrize("name", ["jacobi_2d", "deriche", "gemver", "trmm", "symm"])
def test_what_runs_at_once_does_not_race(name, monkeypatch):
    monkeypatch.setattr("tilewright.strategies.nests.ordered.STATEMENT_CYCLES", 1e9)
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, {"N": 9, "H": 10}, seed=4)
    made = schedule_nest(function_at(func, values), Machine(detect(), 2)).func
    assert "parallel" in {f.kind.name for f in _loops(made.body)} or name in LIFTED
    want = run_python(KERNELS[name], arrays, values)
    interpreted = run_function(made, {n: a.copy() for n, a in arrays.items()}, {})
    for out in func.outputs:
        np.testing.assert_allclose(interpreted[out], want[out], rtol=1e-11, err_msg=out)


def _loops(s):
    return ([s] if isinstance(s, For) else []) + [f for c in stmt_children(s) for f in _loops(c)]


def test_a_nest_of_which_nothing_can_be_known_runs_as_it_is_written(monkeypatch):
    def too_many(func):
        raise ResourceError("the dependences are too many: isl gave up after 10 operations")

    monkeypatch.setattr(ordered, "loop_facts", too_many)
    func = function_at(scop(KERNELS["seidel_2d"]).func, {"N": 12, "T": 2})
    made = schedule_nest(func, Machine(detect(), 2))
    assert made.func == func
    assert (
        "nothing known of loops: the dependences are too many: isl gave up after 10 operations" in made.notes
    )


def test_loads_that_go_back_are_in_lanes():
    """Durbin reads y and r backwards; what is stored goes forward."""
    func = function_at(scop(KERNELS["durbin"]).func, {"N": 100})
    made = schedule_nest(func, Machine(detect(), 1)).func
    loops = [f for f in _loops(made.body) if f.kind.name == "vector"]
    lanes = {name for f in loops for b in locate(f, Block) for name, _ in b.node.writes}
    assert {"z", "y"} <= lanes and any(name.startswith("s_lanes") for name in lanes)

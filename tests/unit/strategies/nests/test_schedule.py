"""Scheduled nests compute what plain Python does: all structures of PolyBench, at two sets of sizes."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.build import build
from tilewright.codegen import emit_kernel
from tilewright.cost import Machine
from tilewright.frontend.c import read_c
from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import Alloc, Block, For, function_at, locate, run_function, stmt_children, verify
from tilewright.lower import lower
from tilewright.runtime import aligned_copy
from tilewright.strategies.nests import NestTask, loops_plan, ordered, schedule_nest
from tilewright.strategies.nests.lifted import lifted_nest
from tilewright.support import ResourceError, ScheduleError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python

LIFTED = {
    "correlation", "covariance", "gemm", "gemver", "gesummv", "symm", "syr2k", "syrk", "trmm", "2mm", "3mm",
    "atax", "bicg", "doitgen", "mvt",
}  # fmt: skip

#: No vector divides them, and all loops have more than one.
SIZES = {"N": 19, "M": 21, "NI": 18, "NJ": 19, "NK": 23, "NL": 17, "NM": 13, "R": 3, "Q": 5, "P": 19, "W": 11,
         "H": 21, "T": 2, "NX": 13, "NY": 19}  # fmt: skip


@pytest.mark.few(10)
@pytest.mark.parametrize("name", KERNELS)
def test_scheduled_nests_compute_what_python_does(name):
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, SIZES, seed=3)
    if name == "durbin":
        arrays["r"] *= 0.02  # errors would grow without bound
    made = schedule_nest(function_at(func, values), Machine(STATED, 2))
    verify(made.func)
    assert ("lifted to a program" in made.notes) == (name in LIFTED)
    assert [b.name for b in made.func.buffers] == [b.name for b in func.buffers]
    want = run_python(KERNELS[name], arrays, values)
    kernel = build(made.func, threads=2)
    table = [aligned_copy(arrays[b.name]) for b in func.buffers]
    kernel.run(table)
    for b, got in zip(func.buffers, table, strict=True):
        np.testing.assert_allclose(got, want[b.name], rtol=1e-10, atol=1e-12, err_msg=b.name)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["jacobi_2d", "deriche", "gemver", "trmm", "symm"])
def test_what_runs_at_once_does_not_race(name, monkeypatch):
    monkeypatch.setattr("tilewright.strategies.nests.ordered.STATEMENT_CYCLES", 1e9)
    func = scop(KERNELS[name]).func
    arrays, values = arguments(func, {"N": 9, "H": 10}, seed=4)
    made = schedule_nest(function_at(func, values), Machine(STATED, 2)).func
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
    made = schedule_nest(func, Machine(STATED, 2))
    assert made.func == func
    assert (
        "nothing known of loops: the dependences are too many: isl gave up after 10 operations" in made.notes
    )


def test_loads_that_go_back_are_in_lanes():
    """Durbin reads y and r backwards; what is stored goes forward."""
    func = function_at(scop(KERNELS["durbin"]).func, {"N": 100})
    made = schedule_nest(func, Machine(STATED, 1)).func
    loops = [f for f in _loops(made.body) if f.kind.name == "vector"]
    lanes = {name for f in loops for b in locate(f, Block) for name, _ in b.node.writes}
    assert {"z", "y"} <= lanes and any(name.startswith("s_lanes") for name in lanes)


@pytest.mark.parametrize(
    ("body", "scope"),
    [
        ("t = x[i]; y[i] = t * t", "register"),
        ("if i > 2: t = x[i]; y[i] = t * t", "register"),
        ("for e in range(2): t = x[e]\n        y[i] = t", "register"),
        ("if i < 1: t = 7.0\n        for e in range(k[i]): t = x[e]\n        y[i] = t", "global"),
        ("if x[i] > 1.0: t = x[i]\n        if i > 0: y[i] = t", "global"),
        ("if i % 3 == 0: t = x[i]\n        y[i] = t", "global"),
    ],
)
def test_values_that_pass_from_one_iteration_to_the_next_are_in_memory(body, scope):
    text = f"def f(x: f64[N], y: f64[N], k: i32[N]):\n    for i in range(N):\n        {body}\n"
    func = function_at(read_python(text), {"N": 9})
    made = schedule_nest(func, Machine(STATED, 1)).func
    assert {p.node.buffer.scope for p in locate(made.body, Alloc) if p.node.buffer.name == "t"} <= {scope}
    x = np.array([1.25, 0.5, 1.5, 0.75, 0.875, 1.125, 0.25, 1.0, 2.0])
    arrays = {"x": x, "y": np.zeros(9), "k": np.array([0, 2, 0, 0, 3, 0, 1, 0, 0], np.int32)}
    table = [aligned_copy(arrays[b.name]) for b in func.buffers]
    build(made, threads=1).run(table)
    np.testing.assert_array_equal(table[1], run_function(func, arrays, {})["y"])


@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "f64"])
def test_sums_side_by_side(dtype):
    """Of loops that tiles take apart, each is put in lanes as it stands after those before it."""
    text = f"""
def f(A: {dtype}[N, M], S: {dtype}[N], R: {dtype}[N], Q: {dtype}[N]):
    for i in range(N):
        for j in range(M):
            S[i] += A[i, j]
            R[i] += 2 * A[i, j]
            Q[i] = max(Q[i], A[i, j])
"""
    func = function_at(read_python(text), {"N": 8, "M": 37})
    made = NestTask(func, Machine(STATED, 1)).carried_out(loops_plan("tiles", (8, 8))).func
    verify(made)
    A = np.arange(8 * 37).reshape(8, 37) % 19
    arrays = {"A": A.astype(func.buffer("A").dtype.numpy)}
    arrays |= {name: np.ones(8, arrays["A"].dtype) for name in "SRQ"}
    out = run_function(made, arrays, {})
    want = {"S": 1 + A.sum(1), "R": 1 + 2 * A.sum(1), "Q": A.max(1)}
    assert all(np.array_equal(out[name], want[name]) for name in "SRQ")


def test_what_adds_nothing_up_stays_as_it_is_written():
    text = "def f(x: f64[N], y: f64[N], s: f64[1]):\n    for i in range(N):\n        {}\n"
    plain, sums = (
        function_at(read_python(text.format(body)), {"N": 8}) for body in ("y[i] = 2 * x[i]", "s[0] += x[i]")
    )
    with pytest.raises(ScheduleError, match="no statement of f adds up"):
        lifted_nest(plain, Machine(STATED, 1))
    assert schedule_nest(plain, Machine(STATED, 1)).notes[-1] == "in the order in which it is written"
    assert schedule_nest(sums, Machine(STATED, 1)).notes == ("lifted to a program",)


def _kinds(text, sizes):
    """How the loops of a nest in C run on one thread, and what is said of it."""
    made = schedule_nest(read_c(text, sizes=sizes), Machine(STATED, 1))
    return {f.kind.name for f in _loops(made.func.body)}, made.notes


def test_bands_are_not_lifted_to_boxes():
    text = """void f(int n, double A[n][9], double x[n], double y[n]) {
        for (int i = 0; i < n; i++) for (int j = %s; j <= %s; j++) y[i] += A[i][j - i + 4] * x[j]; }"""
    band = text % ("(i > 4 ? i - 4 : 0)", "(i + 4 < n - 1 ? i + 4 : n - 1)")
    assert any("most points of the program" in note for note in _kinds(band, {"n": 60})[1])
    triangle = text.replace("j - i + 4", "0") % ("0", "i")
    assert _kinds(triangle, {"n": 60})[1] == ("lifted to a program",)


def test_masks_that_other_lanes_wait_for_are_left_to_llvm():
    text = """void f(int n, double A[n], double B[n]) { for (int c = 0; c < 2; c++)
        for (int i = 1; i < n - 1; i++) if ((i + c) & 1) %s; }"""
    assert "vector" not in _kinds(text % "A[i] = A[i - 1] + A[i + 1]", {"n": 99})[0]
    assert "vector" in _kinds(text % "A[i] = A[i] + B[i + 1]", {"n": 99})[0]


def test_iterations_side_by_side_need_no_tiles():
    text = """void f(int n, double x[n], double y[n]) { for (int i = 0; i < n; i++) {
        double r = 0; for (int k = 7; k >= 0; k--) r = r * x[i] + k; y[i] = r; } }"""
    kinds, notes = _kinds(text, {"n": 4000})
    assert "unroll" in kinds and notes[-1] == "in the order in which it is written"
    column = """void f(int n, double A[n][n]) { for (int j = 0; j < n; j++)
        for (int i = 1; i < n; i++) A[i][j] += A[i - 1][j]; }"""
    assert _kinds(column, {"n": 200})[1][-1] == "in tiles of 32 x 32"


@pytest.mark.parametrize(
    ("body", "scalar"),
    [
        ("y[i] = t[k[i]];", True),
        ("y[i] = k[i];", False),
        ("y[2 * i] = k[i];", True),
        ("y[2 * i] = k[i]; y[2 * i + 1] = 1;", False),
        ("z[i] = w[k[i]];", False),
    ],
)
def test_loops_of_bytes_at_places_in_data_and_of_stores_apart_stay_scalar(body, scalar):
    text = f"""void f(int n, unsigned char t[256], unsigned char k[n], unsigned char y[2*n], int w[256],
        int z[n]) {{ for (int i = 0; i < n; i++) {{ {body} }} }}"""
    func = schedule_nest(read_c(text, sizes={"n": 999}), Machine(STATED, 1)).func
    text = emit_kernel(lower(func), triple="x86_64-unknown-linux-gnu", vector_bits=512, apart=True).text
    assert ("llvm.loop.vectorize.enable" in text) == scalar

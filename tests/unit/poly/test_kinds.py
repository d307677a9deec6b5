"""Kinds inferred by exact dependences, and their judge: on all of PolyBench, and on wrong kinds."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import blocks, map_blocks, run_function, to_function, verify
from tilewright.poly import check_kinds, check_legal, infer_kinds
from tilewright.schedule import Schedule
from tilewright.support import ResourceError
from unit.frontend.nests.polybench import KERNELS, arguments, run_python
from unit.poly.builders import matmul

SMALL = ("adi", "fdtd_2d", "heat_3d", "cholesky", "jacobi_2d", "deriche", "ludcmp", "nussinov")
"""These take the judge seconds at other sizes than the smallest; there not every chain is."""


def kinds_of(func):
    return {p.node.name: "".join(it.kind[0] for it in p.node.iters) for p in blocks(func.body)}


@pytest.mark.parametrize(
    ("name", "kinds"),
    {
        "gemm": "pp prp",
        "2mm": "pp ppr pp ppr",
        "gemver": "pp pr p pr",
        "covariance": "p pr p pp pp ppr pp pp",
        "atax": "p p pr rp",
        "bicg": "p p rp pr",
        "symm": "oo rpp ooo oo",
        "trmm": "opo pp",
        "lu": "ooo oo ooo",  # S1: j is ordered through S2 only
        "trisolv": "p oo o",
        "floyd_warshall": "ooo",
        "seidel_2d": "ooo",
        "gramschmidt": "o oo o oo pp ooo ooo",
        "jacobi_1d": "oo oo",
    }.items(),
)
def test_kinds_of_polybench(name, kinds):
    func = scop(KERNELS[name]).func
    found = infer_kinds(func)
    assert " ".join(kinds_of(found).values()) == kinds
    verify(found)
    sizes = {p.name: 4 for p in func.params}
    assert check_kinds(found, sizes) == []


@pytest.mark.parametrize("name", [n for n in KERNELS if n not in SMALL])
def test_the_judge_finds_each_kind_that_promises_too_much(name):
    """Raise one iterator at a time: the judge objects wherever the inference did not give that kind."""
    func = infer_kinds(scop(KERNELS[name]).func)
    sizes = {p.name: 5 if name == "lu" else 4 for p in func.params}
    assert check_kinds(func, sizes) == []
    missed = []
    for place in blocks(func.body):
        for n, it in enumerate(place.node.iters):
            if it.kind == "ord":
                wrong = check_kinds(raised(func, place.node.name, n, "par"), sizes)
                if not wrong:
                    missed.append((place.node.name, it.name))
    assert missed == []


def raised(func, block, n, kind):
    def visit(b):
        if b.name != block:
            return b
        iters = list(b.iters)
        iters[n] = replace(iters[n], kind=kind)
        return replace(b, iters=tuple(iters))

    return func.with_body(map_blocks(func.body, visit))


def test_primitives_apply_once_kinds_are_known():
    kernel = KERNELS["gemver"]
    func = infer_kinds(scop(kernel).func)
    s = Schedule(func, verify=True)
    loops = s.loops("S1")
    s = s.reorder(loops[1], loops[0]).split(loops[0], 4, tail="peel").vectorize(f"{loops[0]}_i")
    s = s.parallel(s.loops("S0")[0])
    sizes = {"N": 6}
    assert check_legal(func, s.func, sizes) == []
    arrays, _ = arguments(func, sizes)
    want = run_python(kernel, arrays, {"N": 6})
    out = run_function(s.func, {n: a.copy() for n, a in arrays.items()}, sizes)
    for name, value in out.items():
        np.testing.assert_allclose(value, want[name], rtol=1e-12)


def test_a_sum_that_is_read_on_the_way_is_ordered():
    text = """
def f(s: f64[N], x: f64[N], y: f64[N]):
    for i in range(N):
        s[0] += x[i]
        y[i] = s[0]
"""
    func = infer_kinds(read_python(text))
    assert kinds_of(func) == {"S0": "o", "S1": "o"}
    assert check_kinds(raised(func, "S0", 0, "red"), {"N": 4})


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("s[0] = s[0] + x[i]", "r"),
        ("s[0] = x[i] + s[0]", "r"),
        ("s[0] = s[0] - x[i]", "r"),
        ("s[0] = x[i] - s[0]", "o"),
        ("s[0] = s[0] * x[i]", "r"),
        ("s[0] = max(s[0], x[i])", "r"),
        ("s[0] = s[0] + s[0]", "o"),
        ("s[0] = s[0] + s[0] * x[i]", "o"),
        ("s[0] = x[i]", "o"),
        ("x[i] = x[i] + 1.0", "p"),
        ("x[i] = x[N - 1 - i]", "o"),
    ],
)
def test_single_statements(statement, kind):
    head = "def f(s: f64[2], x: f64[N]):\n    for i in range(N):\n        "
    func = infer_kinds(read_python(head + statement))
    assert kinds_of(func) == {"S0": kind}
    assert check_kinds(func, {"N": 5}) == []


def test_kinds_that_are_given_stay():
    func = to_function(matmul())
    assert infer_kinds(func) == func and check_kinds(func) == []


def test_the_judge_has_a_limit():
    func = scop(KERNELS["gemm"]).func
    with pytest.raises(ResourceError, match="gemm has 8400 instances; at most 4000 are judged"):
        check_kinds(func, {"NI": 20, "NJ": 20, "NK": 20})


def test_chains_that_cost_too_much_leave_iterators_ordered():
    func = scop(KERNELS["symm"]).func
    assert kinds_of(infer_kinds(func, operations=10))["S0"] == "oo"


@pytest.mark.parametrize("name", SMALL)
def test_kinds_of_the_long_ones_are_true(name):
    func = infer_kinds(scop(KERNELS[name]).func)
    assert check_kinds(func, {p.name: 3 for p in func.params}) == []

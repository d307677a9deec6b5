"""Lifting: what becomes a program, and what is refused because its order carries values."""

from itertools import permutations

import numpy as np
import pytest

from tilewright import lang
from tilewright.frontend.nests.python import read_python
from tilewright.ir import function_at, structurally_equal
from tilewright.lang.evaluation import evaluate
from tilewright.poly import lift, renaming
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.frontend.nests.polybench import arguments


def lifted(text, **sizes):
    func = function_at(read_python(text), sizes)
    return lift(func), func


def check(text, **sizes):
    """The program's results against the text as Python."""
    found, _ = lifted(text, **sizes)
    func = read_python(text)
    arrays, _ = arguments(func, sizes, seed=5)
    want = {n: a.copy() for n, a in arrays.items()}
    scope = dict(sizes)
    exec("from __future__ import annotations\n" + text, scope)  # the test's own text
    scope["f"](*(want[b.name] if want[b.name].shape else float(want[b.name]) for b in func.buffers))
    got = evaluate(found.program, {b.name: arrays[b.name] for b in found.program.inputs})
    for out, arg in found.results.items():
        np.testing.assert_allclose(got[out], want[arg], rtol=1e-12, err_msg=arg)
    return found.program


def test_a_sum_is_one_contraction():
    program = check(
        """
def f(C: f64[N, N], A: f64[N, N], B: f64[N, N]):
    for i in range(N):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(N):
                C[i, j] += A[i, k] * B[k, j]
""",
        N=6,
    )
    (stage,) = program.stages
    assert [it.kind for it in stage.iters] == ["par", "par", "red"]


def test_elements_that_are_not_written_stay():
    check(
        """
def f(x: f64[N], y: f64[N]):
    for i in range(2, N - 1):
        x[i] = x[i] + y[i - 2]
    for i in range(3):
        x[2 * i] = y[i]
""",
        N=9,
    )


def test_values_that_are_replaced_are_read_in_time():
    check(
        """
def f(x: f64[N], y: f64[N], z: f64[N]):
    for i in range(N):
        y[i] = x[i]
        x[i] = 2.0 * z[i]
        z[i] = x[i] + y[i]
""",
        N=5,
    )


def test_empty_sums_are_what_they_start_from():
    program = check(
        """
def f(B: f64[N, N], A: f64[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(i + 1, N):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = 3.0 * B[i, j]
""",
        N=6,
    )
    # the mask is on one factor, and the product is a product
    assert len(program.stages) <= 4


def test_scalars_and_choices():
    check(
        """
def f(x: f64[N], y: f64[N]):
    for i in range(N):
        t = x[i] * 2.0
        if t > 2.0:
            y[i] = t
        if i < 3:
            y[i] += 1.0
""",
        N=7,
    )


def test_other_reductions_and_differences():
    check(
        """
def f(x: f64[N], A: f64[N, N], m: f64[N], p: f64[N]):
    for i in range(N):
        m[i] = A[i, 0]
        p[i] = 1.0
        for j in range(N):
            m[i] = max(m[i], A[i, j])
            p[i] *= A[i, j]
            x[i] -= A[i, j] - 2.0 * A[j, i]
""",
        N=5,
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "for i in range(3):\n        for j in range(3):\n            y[i + j] += x[i]",
            "its own loops move along",
        ),
        (
            "for i in range(N):\n        if i == 3:\n            y[0] = 0.0\n        y[0] += x[i]",
            "starts anew",
        ),
        (
            "for i in range(N):\n        if i > 0:\n            t = x[i]\n        y[i] = t",
            "reads 't' before anything is written there",
        ),
        ("for i in range(1, N):\n        x[i] = x[i - 1] + x[i]", "depend on those of other instances"),
        (
            "for t in range(N):\n        for i in range(N):\n            x[i] *= y[t] - x[i]",
            "depend on those of other instances",
        ),
        ("for i in range(N):\n        y[0] += x[i]\n        x[i] = y[0]", "depend on|before it is"),
        (
            "for i in range(N):\n        for j in range(i):\n            y[0] += x[j]\n        z[i] = y[0]",
            "before it is complete",
        ),
    ],
)
def test_order_that_carries_values_is_refused(text, why):
    with pytest.raises(ScheduleError, match=why):
        lifted(f"def f(x: f64[N], y: f64[N], z: f64[N]):\n    {text}\n", N=6)


def test_sums_of_whole_numbers_are_refused():
    with pytest.raises(ScheduleError, match="reductions by add of i64"):
        lifted("def f(x: i64[N], y: i64[N]):\n    for i in range(N):\n        y[0] += x[i]\n", N=6)


def test_a_start_outside_of_its_array_is_refused():
    text = """
def f(x: f64[N], y: f64[N, N]):
    for i in range(N):
        for j in range(i, N):
            for k in range(j, N):
                y[i, j - i] += x[k]
"""
    with pytest.raises(ScheduleError, match="starts from lies outside"):
        lifted(text, N=6)


def test_reads_at_places_that_are_data_are_refused():
    x, at = lang.placeholder((6,), name="x"), lang.placeholder((4,), "i64", name="at")
    y = lang.compute((4,), lambda i: x[lang.clamp(at[i], 0, 5)], name="y")
    with pytest.raises(ScheduleError, match="'x' depends on data"):
        lift(Schedule(lang.program([x, at], [y])).func)


def test_reductions_of_programs_are_refused():
    x, k = lang.placeholder((6,), name="x"), lang.reduce_axis(6, "k")
    y = lang.compute((1,), lambda i: lang.sum(x[k], axis=k), name="y")
    with pytest.raises(ScheduleError, match="no plain assignment"):
        lift(Schedule(lang.program([x], [y])).func)


def test_what_is_no_index_is_refused(monkeypatch):
    monkeypatch.setattr(renaming, "aff_index", lambda *_: None)  # none of ours is known to come to that
    with pytest.raises(ScheduleError, match="is no index over its loops"):
        lifted("def f(x: f64[N], y: f64[N]):\n    for i in range(N):\n        y[i] = x[i]\n", N=6)


def test_symbolic_sizes_are_refused():
    with pytest.raises(ScheduleError, match="symbolic sizes"):
        lift(read_python("def f(x: f64[N]):\n    for i in range(N):\n        x[i] = 0.0\n"))


def test_arrays_that_would_grow_too_much_are_refused(monkeypatch):
    monkeypatch.setattr("tilewright.poly.renaming.SMALL", 100)
    text = """
def f(x: f64[N], y: f64[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(N):
                t = x[i] + x[j] * x[k]
                y[i, j] += t * t
"""
    with pytest.raises(ScheduleError, match="its arrays would take"):
        lifted(text, N=40)


TRIANGULAR_PRODUCT = """
def f(C: f64[N, N], A: f64[N, N], B: f64[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(i + 1):
                C[i, j] += A[i, k] * B[k, j]
"""
TWO_TRIANGLES = """
def f(C: f64[N, N], A: f64[N, N], B: f64[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(i + 1, min(j, N)):
                C[i, j] += A[i, k] * B[k, j]
"""
MASKED_ELSEWHERE = """
def f(C: f64[N, N], A: f64[N, N], B: f64[N, N]):
    for i in range(N):
        for j in range(i + 1):
            for k in range(j, N):
                C[i, j] += A[i, k] * B[k, j]
"""
OF_VALUES = """
def f(C: f64[N, N], A: f64[N, N], B: f64[N, N]):
    for i in range(N):
        for j in range(i + 1):
            t = 1.0 / A[i, j]
            for k in range(i + 1):
                C[k, j] += t * B[i, k]
"""


@pytest.mark.parametrize(
    "text", [TRIANGULAR_PRODUCT, TWO_TRIANGLES, MASKED_ELSEWHERE, OF_VALUES], ids=range(4)
)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_values_that_no_instance_reads_reach_no_result(text, value):
    """A sum over a domain that is no box hides what it does not read, instead of multiplying it by zero."""
    func = read_python(text)
    sizes = {"N": 7}
    arrays, _ = arguments(func, sizes, seed=5)
    read = {b.name: np.zeros(b_shape, bool) for b, b_shape in zip(func.buffers, [(7, 7)] * 3, strict=True)}

    class Seen:
        """An array that remembers which of its elements are read."""

        def __init__(self, name):
            self.name, self.array = name, arrays[name].copy()

        def __getitem__(self, at):
            read[self.name][at] = True
            return self.array[at]

        def __setitem__(self, at, x):
            self.array[at] = x

    scope = dict(sizes)
    exec("from __future__ import annotations\n" + text, scope)  # the test's own text
    scope["f"](*(Seen(b.name) for b in func.buffers))
    assert not read["A"].all() or not read["B"].all()
    for name in "AB":
        arrays[name][~read[name]] = value
    want = {n: a.copy() for n, a in arrays.items()}
    scope["f"](*(want[b.name] for b in func.buffers))
    found, _ = lifted(text, **sizes)
    got = evaluate(found.program, {b.name: arrays[b.name] for b in found.program.inputs})
    (out,) = found.results
    np.testing.assert_allclose(got[out], want["C"], rtol=1e-12)


@pytest.mark.parametrize("order", list(permutations("ijkl")))
def test_the_order_of_loops_makes_no_difference(order):
    """A contraction written with its loops in any order is one program."""
    head = "def f(A: f64[4, 3, 6], B: f64[6, 5], C: f64[4, 3, 5]):\n"
    extents = dict(zip("ijkl", (4, 3, 5, 6), strict=True))
    loops = "".join(f"{'    ' * (n + 1)}for {v} in range({extents[v]}):\n" for n, v in enumerate(order))
    body = " " * 20 + "C[i, j, k] += A[i, j, l] * B[l, k]\n"
    written = head + loops + body
    plain = head + "".join(
        f"{'    ' * (n + 1)}for {v} in range({extents[v]}):\n" for n, v in enumerate("ijkl")
    )
    assert structurally_equal(lift(read_python(written)).program, lift(read_python(plain + body)).program)

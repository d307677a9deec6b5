"""Nests read from Python: loops, guards, variables, and which arguments come with contents that count."""

import numpy as np
import pytest

from tilewright.frontend.nests.python import read_python
from tilewright.ir import For, blocks, locate, print_function, run_function, verify


def run(text, sizes=None, **arrays):
    func = read_python(text)
    verify(func)
    return func, run_function(func, {n: np.array(a, np.float64) for n, a in arrays.items()}, sizes)


def test_loops_of_any_step_and_direction():
    text = """
def f(x: f64[N], y: f64[N]):
    for i in range(0, N, 3):
        x[i] = 1.0
    for i in range(N - 1, -1, -2):
        y[i] += 1.0
"""
    func, out = run(text, x=np.zeros(8), y=np.zeros(8))
    assert out["x"].tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    assert out["y"].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert {p.node.step for p in locate(func.body, For)} == {1}


@pytest.mark.parametrize("n", [1, 5])
def test_guards_on_indices_and_on_data(n):
    text = """
def f(A: f64[N, N], x: f64[N]):
    for i in range(N):
        for j in range(N):
            if i < j and j <= 3:
                A[i, j] = 1.0
            if i == j:
                A[i, j] = 2.0
            if i > j:
                A[i, j] = 3.0
            else:
                A[i, j] += 10.0
        if x[i] > 0.5 and not x[i] > 0.75 or x[i] < 0.0:
            x[i] = 7.0
"""
    x = np.linspace(-0.5, 1.0, n)
    _, out = run(text, A=np.zeros((n, n)), x=x)
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            A[i, j] = 3 if i > j else 12 if i == j else 11 if j <= 3 else 10
    assert np.array_equal(out["A"], A)
    assert np.array_equal(out["x"], np.where((x > 0.5) & ~(x > 0.75) | (x < 0), 7.0, x))


@pytest.mark.parametrize(
    "test",
    [
        "i < 3 and x[i] > 0.0",
        "i < 3 and (x[i] > 0.0 and x[i] < 9.0)",
        "not (i >= 3 or x[i] <= 0.0)",
        "y[i] > 0.0 and x[i] > 0.0",
        "(i < 3 or i == 8) and i != 8 and x[i] > 0.0",
    ],
)
def test_what_a_condition_reads_need_only_exist_where_those_before_it_hold(test):
    text = f"""
def f(x: f64[3], y: f64[9]):
    for i in range(9):
        if {test}:
            y[i] = x[i]
"""
    _, out = run(text, x=[1, -1, 2], y=[7, 7, 7, 0, 0, 0, 0, 0, 0])
    assert out["y"].tolist() == [1, 7, 2, 0, 0, 0, 0, 0, 0]


def test_indices_as_numbers_and_functions():
    text = """
def f(x: f64[N]):
    for i in range(N):
        x[i] = math.sqrt(max(i, 2) * 1.0) + min(x[i], 0.5, 3.0) + i / 2 + (i // 2) + i % 3 + abs(-1.5)
"""
    _, out = run(text, x=np.arange(5.0))
    want = [max(i, 2) ** 0.5 + min(i, 0.5) + i / 2 + i // 2 + i % 3 + 1.5 for i in range(5)]
    np.testing.assert_allclose(out["x"], want)


def test_what_counts_on_entry():
    text = """
def f(n: int, whole: f64[N], part: f64[N], read: f64[N], late: f64[N], given: f64[N]):
    for i in range(N):
        whole[i] = given[i]
        read[i] += given[i]
        late[i] = 0.0
        late[i] = late[i] + whole[i]
    for i in range(1, n):
        part[i] = given[i]
"""
    func = read_python(text)
    assert func.outputs == ("whole", "part", "read", "late") and func.inouts == ("part", "read")
    assert [p.name for p in func.params] == ["n", "N"]


def test_variables_live_in_the_nest():
    text = """
def f(x: f64[N]):
    s = 0.0
    n = 1
    for i in range(N):
        s += x[i]
    x[0] = s * n
"""
    func = read_python(text)
    assert "s = alloc(f64[()])" in print_function(func) and "n = alloc(i64[()])" in print_function(func)
    assert [p.node.stage for p in blocks(func.body)] == ["S0", "S1", "S2", "S3"]
    assert run_function(func, {"x": np.arange(4.0)})["x"].tolist() == [6, 1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        "x[i] = -1.0\ny[i] = 5.0",
        "for j in range(6):\n  x[j] = x[j] - 2.0\ny[i] = x[i]",
        "x[i] = 0.0\nif y[i] > 0.5 and i > 0:\n  y[i] = 0.0\n  x[i - 1] = 7.0\n  y[i] = 2.0",
    ],
)
def test_a_condition_is_what_it_was_before_the_branch(body):
    inner = "".join(f"            {line}\n" for line in body.splitlines())
    text = f"def f(x: f64[6], y: f64[6]):\n    for i in range(6):\n        if x[i] > 0.0:\n{inner}"
    x, y = np.array([1.0, -1.0, 2.0, 0.0, 3.0, 0.25]), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    want = {"x": x.copy(), "y": y.copy()}
    exec(text.replace("f64[6]", "object"), space := {})
    space["f"](**want)
    _, out = run(text, x=x, y=y)
    assert all(np.array_equal(out[name], want[name]) for name in want)


def test_nothing_is_touched_at_an_index_that_a_condition_rules_out():
    text = """
def f(k: i32[4], y: f64[4]):
    for i in range(4):
        if k[i] >= 0:
            y[k[i]] = y[k[i]] + 1.0
"""
    func = read_python(text)
    verify(func)
    given = {"k": np.array([1, -(10**9), 3, 1], np.int32), "y": np.zeros(4)}
    assert run_function(func, given)["y"].tolist() == [0, 2, 0, 1]

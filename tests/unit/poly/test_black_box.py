"""Black boxes: loops whose bounds data decide are one statement, whose accesses are over-approximated."""

from dataclasses import replace

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.driver.nests import Nest
from tilewright.frontend.c import read_c
from tilewright.frontend.nests.python import read_python
from tilewright.ir import (
    PARALLEL,
    Alloc,
    Block,
    For,
    If,
    Seq,
    blocks,
    function_at,
    locate,
    map_stmt,
    run_function,
    substitute,
    var,
    verify,
)
from tilewright.poly import (
    allocations_inside,
    check_legal,
    extract_model,
    import_tree,
    infer_kinds,
    is_black_box,
    isl_schedule,
    loop_facts,
)
from tilewright.poly.dependences import Dependences
from tilewright.strategies import schedule_nest
from tilewright.support import assert_close

PRODUCT = """
def product(first: i32[N + 1], column: i32[E], A: f64[E], x: f64[N], y: f64[N]):
    for i in range(N):
        y[i] = 0.0
        for e in range(first[i], first[i + 1]):
            y[i] += A[e] * x[column[e]]
    for i in range(N):
        y[i] = y[i] * 2.0
"""
SCATTERED = """
def scattered(first: i32[N + 1], column: i32[E], A: f64[E], x: f64[N], y: f64[N]):
    for i in range(N):
        y[i] = 0.0
    for i in range(N):
        s = 0.0
        e = first[i]
        while e < first[i + 1]:
            c = column[e]
            s += A[e] * x[c]
            if c > i:
                y[c] += A[e] * x[i]
            e += 1
        y[i] += s
"""
IN_C = """
void scattered(int n, int m, int first[n + 1], int column[m], double A[m], double x[n], double y[n]) {
#pragma scop
  for (int i = 0; i < n; i++)
    y[i] = 0.0;
  for (int i = 0; i < n; i++) {
    double s = 0.0;
    int e = first[i];
    while (e < first[i + 1]) {
      int c = column[e];
      s += A[e] * x[c];
      if (c > i)
        y[c] += A[e] * x[i];
      e++;
    }
    y[i] += s;
  }
#pragma endscop
}
"""


def arguments(n, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, n)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    m = int(first[-1])
    column = rng.integers(0, n, m).astype(np.int32)
    return {
        "first": first,
        "column": column,
        "A": rng.uniform(-1, 1, m),
        "x": rng.uniform(-1, 1, n),
        "y": np.ones(n),
    }


def as_python(text, given):
    """The text under Python, which is what it means."""
    made = {"N": len(given["x"])}
    exec("from __future__ import annotations\n" + text, made)
    out = {name: a.copy() for name, a in given.items()}
    made["scattered" if "scattered" in made else "product"](**out)
    return out["y"]


@pytest.mark.parametrize("text", [PRODUCT, SCATTERED])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_python(text, threads):
    func = read_python(text)
    verify(func)
    given = arguments(3000)
    expected = as_python(text, given)
    got = {name: a.copy() for name, a in given.items()}
    Nest(func, threads=threads)(**got)
    assert_close(got["y"], expected, magnitude=np.abs(expected) + 8, terms=8)
    sizes = {"N": 3000, "E": len(given["A"])}
    assert_close(run_function(func, given, sizes)["y"], expected, magnitude=np.abs(expected) + 8, terms=8)


def test_a_nest_in_c_is_the_same():
    pytest.importorskip("pycparser")
    func = read_c(IN_C)
    given = arguments(40)
    got = {name: a.copy() for name, a in given.items()}
    Nest(func, threads=2)(*(got[b.name] for b in func.buffers))
    assert_close(got["y"], as_python(SCATTERED, given), magnitude=np.full(40, 8.0), terms=8)


def test_a_box_is_one_statement_and_the_rows_around_it_are_independent():
    func = read_python(PRODUCT)
    boxes = [b.node for b in blocks(func.body) if is_black_box(b.node)]
    assert [b.name for b in boxes] == ["S1"]
    model = extract_model(func)
    s = model.statement("S1")
    assert s.coord_kinds == ("ord",) and not any(a.exact for a in (*s.reads, *s.writes))
    # which element of x is read is not known; which of y is written is
    reads = {a.buffer: a.relation for a in s.reads}
    assert not reads["x"].is_single_valued() and s.writes[0].relation.is_single_valued()
    assert {"i", "i_1"} <= loop_facts(func).free


def test_rows_that_write_anywhere_stay_in_order():
    func = infer_kinds(allocations_inside(read_python(SCATTERED)))
    kinds = {b.node.name: [it.kind for it in b.node.iters] for b in blocks(func.body)}
    (box,) = (b.node.name for b in blocks(func.body) if is_black_box(b.node))
    assert kinds["S0"] == ["par"] and kinds[box] == ["ord"]
    assert "i_1" not in loop_facts(func).free


def test_variables_that_a_box_defines_are_its_own():
    func = read_python(SCATTERED)
    (box,) = (b.node for b in blocks(func.body) if is_black_box(b.node))
    (inside,) = locate(box.body, Alloc)
    assert inside.node.buffer.name == "c" and "c" not in {b.name for b in func.body.allocated}
    # one that a condition may leave undefined keeps what the box before it has left
    kept = read_python(SCATTERED.replace("c = column[e]", "if x[e] > 0.0:\n                c = column[e]"))
    assert "c" in {b.name for b in kept.body.allocated}


MODES = pytest.mark.parametrize("mode", ["list", "isl"])


@MODES
@pytest.mark.parametrize("text", [PRODUCT, SCATTERED])
def test_schedules_of_boxes_are_judged(text, mode):
    func = function_at(read_python(text), {"N": 4, "E": 6})
    before = infer_kinds(allocations_inside(func))
    after = schedule_nest(func, Machine(STATED, 2)).func
    assert check_legal(before, after, {}, mode=mode) == []


@MODES
def test_a_box_that_runs_too_early_is_found(mode):
    func = infer_kinds(function_at(read_python(PRODUCT), {"N": 4, "E": 6}))
    (loop, last) = func.body.stmts
    early = func.with_body(replace(func.body, stmts=(last, loop)))
    assert {v.kind for v in check_legal(func, early, {}, mode=mode)} & {"flow", "final"}


@MODES
def test_a_box_that_does_not_run_is_found(mode):
    func = infer_kinds(function_at(read_python(PRODUCT), {"N": 4, "E": 6}))

    def without(s):
        return Seq(()) if isinstance(s, Block) and is_black_box(s) else s

    wrong = check_legal(func, func.with_body(map_stmt(func.body, without)), {}, mode=mode)
    assert "flow" in {v.kind for v in wrong}  # the loop behind reads what nothing has added up


@MODES
def test_rows_of_boxes_that_write_anywhere_are_races_on_threads_and_wrong_backwards(mode):
    """Which elements a row of SCATTERED adds to is not known: any other row's may be among them."""
    func = infer_kinds(allocations_inside(function_at(read_python(SCATTERED), {"N": 4, "E": 6})))

    def on_threads(s):
        return replace(s, kind=PARALLEL) if isinstance(s, For) and s.var == "i_1" else s

    wrong = check_legal(func, func.with_body(map_stmt(func.body, on_threads)), {}, mode=mode)
    assert "race" in {v.kind for v in wrong}

    def backwards(s):
        if not isinstance(s, For) or s.var != "i_1":
            return s
        return replace(s, body=substitute(s.body, {"i_1": 3 - var("i_1")}))

    assert check_legal(func, func.with_body(map_stmt(func.body, backwards)), {}, mode=mode)


@MODES
def test_rows_of_boxes_that_write_their_own_element_may_run_backwards_and_on_threads(mode):
    func = infer_kinds(function_at(read_python(PRODUCT), {"N": 4, "E": 6}))

    def changed(s):
        if not isinstance(s, For) or s.var != "i":
            return s
        return replace(s, kind=PARALLEL, body=substitute(s.body, {"i": 3 - var("i")}))

    after = func.with_body(map_stmt(func.body, changed))
    assert after != func and check_legal(func, after, {}, mode=mode) == []


def test_trees_with_boxes_come_back():
    func = infer_kinds(read_python(PRODUCT))
    dependences = Dependences(extract_model(func))
    back = import_tree(dependences.model, isl_schedule(dependences, "min"), func.body.names)
    given = arguments(20)
    sizes = {"N": 20, "E": len(given["A"])}
    expected = as_python(PRODUCT, given)
    assert_close(run_function(back, given, sizes)["y"], expected, magnitude=np.full(20, 8.0), terms=8)


def test_conditions_around_and_inside_of_boxes():
    text = """
def f(k: i32[N], x: f64[N], y: f64[N]):
    for i in range(N):
        if x[i] > 0.0 and i > 1:
            for e in range(k[i]):
                if e < 2 and y[i] < 100.0:
                    for j in range(e + 1):
                        y[i] += x[j]
"""
    func = read_python(text)
    verify(func)
    rng = np.random.default_rng(1)
    x, k = rng.uniform(-1, 1, 30), rng.integers(0, 5, 30).astype(np.int32)
    y = rng.uniform(-1, 1, 30)
    expected = y.copy()
    for i in range(2, 30):
        if x[i] > 0:
            for e in range(k[i]):
                if e < 2 and expected[i] < 100:
                    for j in range(e + 1):
                        expected[i] += x[j]
    Nest(func, threads=2)(k, x, y)
    assert_close(y, expected, magnitude=np.full(30, 8.0), terms=8)
    assert any(isinstance(p.node, If) for b in blocks(func.body) for p in locate(b.node.body, If))


def test_what_stands_around_a_box_is_scheduled_by_itself():
    text = (
        SCATTERED
        + "    for i in range(N):\n        y[i] = y[i] + 1.0\n        x[i] = 0.0\n"
        + "    for i in range(N):\n        for j in range(2):\n            x[i] += 0.5 * y[i]\n"
    )
    func = read_python(text)
    made = schedule_nest(function_at(func, {"N": 3000, "E": 7}), Machine(STATED, 2))
    verify(made.func)
    # where nothing is added up loops stay as they are written
    assert [note for note in made.notes if "lifted to a program" in note] == ["part 3: lifted to a program"]
    assert any(note.startswith("part 1: not lifted") for note in made.notes)
    given = arguments(3000)
    got = {name: a.copy() for name, a in given.items()}
    Nest(func, threads=2)(**got)
    expected = as_python(SCATTERED, given) + 1.0
    assert_close(got["x"], expected, magnitude=np.abs(expected) + 8, terms=8)

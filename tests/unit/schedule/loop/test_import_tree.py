"""import_tree: trees by hand and from tile_and_fuse, of a part of a function, and steps on their loops."""

import numpy as np

from tilewright import lang
from tilewright.ir import blocks, index, run_function, run_program, var, verify
from tilewright.poly import check_legal, extract_model, tile_and_fuse
from tilewright.schedule import Schedule, replay


def pipeline(n=20):
    X = lang.placeholder((n + 2, n + 2), name="X")
    A = lang.compute((n + 2, n + 2), lambda i, j: X[i, j] * X[i, j], name="A")
    B = lang.compute((n + 2, n), lambda i, j: A[i, j] + A[i, j + 1] * A[i, j + 2], name="B")
    C = lang.compute((n, n), lambda i, j: B[i, j] + B[i + 1, j] * B[i + 2, j], name="C")
    return lang.program([X], [C])


def test_later_steps_take_the_loops_by_name():
    program = pipeline()
    s = Schedule(program, verify=True)
    tree = tile_and_fuse(extract_model(s.func), "C", [8, 8], ["A", "B"], parallel=True)
    t = s.import_tree(["A", "B", "C"], str(tree.schedule))
    full = [p for p in blocks(t.func.body) if all(loop.hi.is_const for loop in p.loops[-2:])]
    assert len(full) > 3
    for place in full[:3]:
        t = t.vectorize(place.loops[-1].var)
    assert check_legal(s.func, t.func) == []
    x = np.random.default_rng(1).integers(-4, 5, (22, 22)).astype(np.float32)
    assert np.array_equal(run_function(t.func, {"X": x})["C"], run_program(program, {"X": x})["C"])
    assert replay(program, t.trace.to_json()).func == t.func


def test_a_part_of_a_function_leaves_the_rest_alone():
    s = Schedule(pipeline(), verify=True)
    tree = """{ domain: "{ B[B_i, B_j] : 0 <= B_i <= 21 and 0 <= B_j <= 19 }", child: {
        schedule: "[{ B[B_i, B_j] -> [B_j] }, { B[B_i, B_j] -> [B_i] }]" } }"""
    t = s.import_tree(["B"], tree)
    assert check_legal(s.func, t.func) == []
    assert [p.node.name for p in blocks(t.func.body)] == ["A", "B", "C"]
    assert t.loops("A") == s.loops("A") and t.loops("B") != s.loops("B")
    assert t.block("B").bind == tuple(map(var, reversed(t.loops("B"))))
    assert [v.stage for v in check_legal(s.func, t.func)] == []
    # both together: the part is a function of its own, in which A is made for B alone
    tree = """{ domain: "{ A[i, j] : 0 <= i, j <= 21; B[c0, c1] : 0 <= c0 <= 19 and 0 <= c1 <= 21 }", child: {
        schedule: "[{ A[i, j] -> [i]; B[c0, c1] -> [c1] }]", child: { mark: "scratch(A)", child: { sequence: [
        { filter: "{ A[i, j] }", child: { schedule: "[{ A[i, j] -> [j] }]" } },
        { filter: "{ B[c0, c1] }", child: { schedule: "[{ B[c0, c1] -> [c0] }]" } } ] } } } }"""
    u = t.import_tree(["A", "B"], tree)
    verify(u.func)
    assert check_legal(s.func, u.func) == []
    rows = {b.name: b.physical_shape for b in u.func.body.allocated}
    assert rows["A"] == (index(1), index(22)) and rows["B"] == (index(22), index(20))

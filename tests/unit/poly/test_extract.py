"""What a function's model says of its accesses."""

import numpy as np
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.ir import parse_function, print_function, run_function
from tilewright.poly import allocations_inside, extract_model
from tilewright.poly.instances import list_instances
from tilewright.strategies import schedule_nest

HELD = """function("f", outputs=[a, y], inouts=[a, y])
a = i32[16]
y = f64[16]
held = alloc(i32[()])
for i in range(16):
    with block("S0"):
        i = ord(0, 16, i)
        held[()] = select(y[i] > f64(0.5), i32(1), i32(0))
    with block("S1"):
        i = ord(0, 16, i)
        y[i] = f64(0.0)
    with block("S2"):
        i = ord(0, 16, i)
        if holds(held[()] != i32(0)):
            a[int(a[i] & i32(7))] = a[i] + i32(1)
    with block("S3"):
        i = ord(0, 16, i)
        if holds(held[()] != i32(0)):
            a[int(a[i] & i32(3))] = i32(5)
"""


def test_what_a_condition_reads_is_read_by_the_statements_below_it():
    """It was not, and each statement got a ``held`` of its own, which nothing had set."""
    func = parse_function(HELD)
    model = extract_model(func)
    reads = {s.name: {r.buffer for r in s.reads} for s in model.statements}
    assert [name for name, found in reads.items() if "held" in found] == ["S2", "S3"]
    listed = {s.stage: {r.buffer for r in s.reads} for s in list_instances(func).statements}
    assert [name for name, found in listed.items() if "held" in found] == ["S2", "S3"]
    inside = allocations_inside(func)
    assert print_function(inside).count("alloc(") == 1


def test_conditions_of_branches_are_over_the_loops_around_them():
    func = parse_function(
        """function("f", outputs=[x], inouts=[x])
x = f64[8]
k = i32[8]
for i in range(8):
    if holds(k[7 - i] > i32(2)):
        with block("S0"):
            j = ord(0, 9, i + 1)
            x[j - 1] = x[j - 1] + f64(1.0)
"""
    )
    (statement,) = extract_model(func).statements
    (tested,) = (r for r in statement.reads if r.buffer == "k")
    assert "S0[i] -> k[7 - i]" in str(tested.relation)
    (listed,) = (r for s in list_instances(func).statements for r in s.reads if r.buffer == "k")
    assert len(set(listed.cells)) == 8


def test_nests_under_conditions_on_data_run_as_they_are_written():
    func = parse_function(HELD)
    rng = np.random.default_rng(0)
    arrays = {"a": rng.integers(0, 9, 16).astype(np.int32), "y": rng.uniform(0, 1, 16)}
    made = schedule_nest(func, Machine(STATED, 2)).func
    want = run_function(func, {n: a.copy() for n, a in arrays.items()}, {})
    got = run_function(made, {n: a.copy() for n, a in arrays.items()}, {}, seed=1)
    assert all(np.array_equal(got[name], want[name]) for name in arrays)

"""Integers that threads update at once: who may, what both judges say, and what languages make of it."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.ir import (
    ATOMIC_UPDATES,
    For,
    RaceError,
    locate,
    parse_function,
    run_function,
    run_program,
)
from tilewright.lower import insert_barriers, mark_atomic
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

RNG = np.random.default_rng(11)
UPDATES = {
    "add": lambda old, new: old + new,
    "max": lang.maximum,
    "min": lang.minimum,
}


def program(dtype, op, bins=7, count=53):
    x, u = lang.placeholder((bins,), dtype, name="X"), lang.placeholder((count,), dtype, name="U")
    i = lang.placeholder((count,), "i32", name="I")

    def step(t, n):
        at = lang.clamp(i[n], 0, bins - 1)
        return lang.write((at,), UPDATES[op](t[at], u[n]))

    return lang.program([x, i, u], [lang.update(x, [lang.reduce_axis(count, "n")], step, name="H")])


def spread(p):
    s = Schedule(p)
    (start,), (n,) = s.loops("H_init"), s.loops("H_update")
    s = s.bind(start, "block.x").split(n, 16)
    return s.bind(f"{n}_o", "block.x").bind(f"{n}_i", "thread.x")


def given(p):
    arrays = {b.name: RNG.integers(0, 99, [e.as_int() for e in b.shape]) for b in p.inputs}
    return {b.name: arrays[b.name].astype(b.dtype.numpy) for b in p.inputs}


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("op", sorted(UPDATES))
def test_threads_update_integers_at_once(dtype, op):
    p = program(dtype, op)
    s, arrays = spread(p), given(p)
    (want,) = run_program(p, arrays).values()
    ready = insert_barriers(s.func)
    assert not check_legal(Schedule(p).func, ready)
    for seed in range(3):
        np.testing.assert_array_equal(run_function(ready, arrays, seed=seed)["H"], want)
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(s.func, language)(arrays)["H"], want)
    assert f"atomic{op.title()}(" in checked_by_nvrtc(s.func)
    bits = "atom" if dtype.endswith("64") else "atomic"
    text = kernel_source(s.func, "opencl").text
    assert f"{bits}_{op}(" in text and ("int64_base_atomics" in text) == dtype.endswith("64")
    assert "#pragma omp " + ("atomic" if op == "add" else "critical") in kernel_source(s.func, "c").text


def test_lowering_says_which_loops_update_what():
    marked = mark_atomic(spread(program("i32", "add")).func)
    found = {place.node.var: dict(place.node.hints) for place in locate(marked.body, For)}
    assert found["n_o"] == found["n_i"] == {ATOMIC_UPDATES: "H"}
    assert all(not hints for var, hints in found.items() if not var.startswith("n_"))


@pytest.mark.parametrize(("dtype", "op"), [("f32", "add"), ("i16", "max"), ("i32", "mul")])
def test_what_threads_may_not_update_at_once(dtype, op):
    UPDATES_AND_MORE = {**UPDATES, "mul": lambda old, new: old * new}
    x, u = lang.placeholder((7,), dtype, name="X"), lang.placeholder((9,), dtype, name="U")

    def step(t, n):
        return lang.write((n % 7,), UPDATES_AND_MORE[op](t[n % 7], u[n]))

    p = lang.program([x, u], [lang.update(x, [lang.reduce_axis(9, "n")], step, name="H")])
    with pytest.raises(ScheduleError, match=r"(?s)runs the reduction iterator 'n'.*rfactor.*decompose_init"):
        Schedule(p).bind("n", "thread.x")


def test_sums_of_integers_that_have_begun_are_shared_by_blocks():
    """A product whose sums are split: parts in registers, joined without memory of their own (split-K)."""
    a, b = lang.placeholder((19, 70), "i32", name="A"), lang.placeholder((70, 23), "i32", name="B")
    p = lang.program([a, b], [lang.ops.matmul(a, b, name="C")])
    s = Schedule(p).rfactor("C", "k", 18, name="P")
    i, j, part = s.loops("C")
    with pytest.raises(ScheduleError, match="runs the reduction iterator 'k_o'"):
        s.bind(part, "block.z")
    started = s.reorder(part, i, j).decompose_init("C", part)
    t = started.split(i, 4).split(j, 8).reorder(part, f"{i}_o", f"{j}_o", f"{i}_i", f"{j}_i")
    t = t.compute_at("P", f"{j}_i").set_scope("P", "local")
    for loop, axis in ((part, "z"), (f"{i}_o", "y"), (f"{j}_o", "x")):
        t = t.bind(loop, f"block.{axis}")
    t = t.bind(f"{i}_i", "thread.y").bind(f"{j}_i", "thread.x")
    rows, columns = t.loops("C_init")
    t = t.bind(rows, "block.x").bind(columns, "thread.x")
    assert not check_legal(s.func, insert_barriers(t.func))
    arrays = given(p)
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(t.func, language)(arrays)["C"], arrays["A"] @ arrays["B"])
    assert "atomicAdd(" in checked_by_nvrtc(t.func, registers=64)


def test_what_threads_update_stays_so():
    s = Schedule(program("i32", "add")).split("n", 4)
    bound = s.bind("n_o", "block.x")
    # blocks alone update at once as well
    assert "atomicAdd(" in kernel_source(bound.func, "cuda").text
    with pytest.raises(ScheduleError, match=r"'n_i_block' would not update H at once, though block\.x runs"):
        bound.blockize("n_i")


MIXED = """
function("f", outputs=[H], inouts=[H])
U = i32[8]
H = i32[1]
for n in thread("block.x", 8):
    with block("H"):
        n = red(0, 8, n)
        H[0] = {value}
    with block("G"):
        n = {kind}(0, 8, n)
        H[0] = {other}
"""


@pytest.mark.parametrize(
    ("value", "kind", "other", "what"),
    [
        ("H[0] + U[n]", "red", "H[0] + U[n]", ""),
        ("H[0] + U[n]", "red", "max(H[0], U[n])", "updated"),
        ("H[0] + U[n]", "par", "U[n]", "updated"),
        ("H[0] + U[n]", "ord", "H[0] + U[n]", "updated"),
        ("H[0] - U[n]", "red", "H[0] - U[n]", "race"),
        ("H[0] + H[0]", "red", "H[0] + H[0]", "race"),
    ],
)
def test_both_judges_find_what_meets_an_update(value, kind, other, what):
    func = parse_function(MIXED.format(value=value, kind=kind, other=other))
    arrays = {"U": np.arange(8, dtype=np.int32), "H": np.zeros(1, np.int32)}
    found = [v for v in check_legal(func, func) if v.kind == "race"]
    symbolic = [v for v in check_legal(func, func, mode="isl") if v.kind == "race"]
    assert bool(found) == bool(symbolic) == bool(what)
    if what:
        with pytest.raises(RaceError, match=what):
            run_function(func, arrays)
    else:
        assert run_function(func, arrays)["H"][0] == 2 * arrays["U"].sum()

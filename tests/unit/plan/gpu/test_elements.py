"""Elements on GPUs: wide accesses, blocks of all sizes, what stays in order, scans, gathers and scatters."""

from dataclasses import replace

import numpy as np
import pytest
from tests.plans import chosen

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.cost import Machine
from tilewright.ir import run_program
from tilewright.lang import ops
from tilewright.plan import build_unit, plan_unit
from tilewright.support import assert_close
from tilewright.target import A100, POCL

RNG = np.random.default_rng(6)


def compare(program, schedule, languages=LANGUAGES):
    given = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        whole = RNG.integers(0, 5, shape) if b.dtype.is_integer else RNG.standard_normal(shape)
        given[b.name] = whole.astype(b.dtype.numpy)
    want = run_program(program, given)
    for language in languages:
        got = on_device(schedule.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, terms=16)


def scaled(*shape, dtype="f32"):
    x = lang.placeholder(shape, dtype, name="X")
    return lang.program([x], [lang.compute(shape, lambda *i: x[i] * 2 + 1, name="Y")])


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 4), ("f64", 2), ("f16", 8)])
def test_accesses_are_wide_where_there_are_enough(dtype, lanes):
    program = scaled(1024, 4096, dtype=dtype)
    planned = plan_unit(program, Machine(A100, 1))
    (nest,) = planned.plan.nests
    assert nest.choice.vector == lanes
    assert f"const tw_{dtype}x{lanes} v_" in kernel_source(planned.schedule.func, "cuda").text
    # few elements: a thread for each
    (small,) = plan_unit(scaled(16, 64, dtype=dtype), Machine(A100, 1)).plan.nests
    assert small.choice.vector == 1


@pytest.mark.parametrize(("threads", "vector"), [(32, 4), (64, 2), (256, 1)])
def test_points_of_the_space(threads, vector):
    program = scaled(7, 64)
    plan = plan_unit(program, Machine(POCL, 1)).plan
    (nest,) = plan.nests
    other = chosen(program, plan, Machine(POCL, 1), replace(nest.choice, threads=threads, vector=vector))
    s = build_unit(program, other, Machine(POCL, 1))
    (kernel,) = kernel_source(s.func, "opencl").kernels
    assert kernel.grid.threads[0].as_int() == threads
    compare(program, s, ["c"])


def scan():
    x = lang.placeholder((5, 9), name="X")
    y = lang.scan((5, 9), lambda y, i, j: lang.select(j == 0, x[i, 0], y[i, j - 1] + x[i, j]), axis=1)
    return lang.program([x], [y])


def scatter():
    x, u = lang.placeholder((7, 3), name="X"), lang.placeholder((4, 3), name="U")
    i = lang.placeholder((4, 1), "i64", name="I")
    return lang.program([x, i, u], [ops.scatter_nd(x, i, u, "add")])


@pytest.mark.parametrize(
    ("dtype", "reduction", "spread"),
    [
        ("i32", "add", True),
        ("i64", "max", True),
        ("u32", "min", True),
        ("f32", "add", False),
        ("i32", "mul", False),
    ],
)
def test_updates_of_integers_get_a_thread_each(dtype, reduction, spread):
    x, u = lang.placeholder((211,), dtype, name="X"), lang.placeholder((1009,), dtype, name="U")
    i = lang.placeholder((1009, 1), "i64", name="I")
    program = lang.program([x, i, u], [ops.scatter_nd(x, i, u, reduction)])
    for target in (A100, POCL):
        s = plan_unit(program, Machine(target, 1)).schedule
        (loops,) = ([s.loop(n).kind.name for n in s.loops(b)] for b in s.blocks() if b.endswith("update"))
        assert ("serial" not in loops) == spread
        compare(program, s)
    assert ("atomic" in checked_by_nvrtc(s.func)) == spread
    # an OpenCL device whose threads cannot do that with integers of 64 bits
    narrow = replace(POCL, features=frozenset())
    text = kernel_source(plan_unit(program, Machine(narrow, 1)).schedule.func, "opencl").text
    assert "atom_" not in text and ("atomic_" in text) == (spread and dtype != "i64")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_scatters_that_replace_find_the_last_write_of_each_element(dtype):
    x, u = lang.placeholder((211, 3), dtype, name="X"), lang.placeholder((1009, 3), dtype, name="U")
    i = lang.placeholder((1009, 1), "i64", name="I")
    program = lang.program([x, i, u], [ops.scatter_nd(x, i, u)])
    for target in (A100, POCL):
        planned = plan_unit(program, Machine(target, 1))
        s = planned.schedule
        assert [step.primitive for step in planned.plan.rewrites.steps] == ["last_writes"] and not s.notes
        assert all(s.loop(loop).kind.name in ("thread", "vector") for b in s.blocks() for loop in s.loops(b))
        compare(program, s)
    assert "atomicMax(" in checked_by_nvrtc(s.func)


def test_where_a_scatter_stays_in_order():
    """Of a few writes, and of floats that are added: why is in the notes where one thread does much."""
    for count, reduction, noted in ((5, None, False), (1009, "add", True)):
        x, u = lang.placeholder((211,), name="X"), lang.placeholder((count,), name="U")
        i = lang.placeholder((count, 1), "i64", name="I")
        program = lang.program([x, i, u], [ops.scatter_nd(x, i, u, reduction)])
        notes = plan_unit(program, Machine(A100, 1)).schedule.notes
        assert len(notes) == noted
        assert all("runs in one thread" in note and "follow each other" in note for note in notes)


def test_many_updates_of_few_elements_have_copies():
    x, i = lang.placeholder((5,), "i32", name="X"), lang.placeholder((100_003,), "i32", name="I")

    def counted(t, n):
        at = lang.clamp(i[n], 0, 4)
        return lang.write((at,), t[at] + 1)

    program = lang.program([x, i], [lang.update(x, [lang.reduce_axis(100_003, "n")], counted)])
    planned = plan_unit(program, Machine(A100, 1))
    assert planned.plan.rewrites.steps[0].primitive == "rfactor"
    compare(program, planned.schedule, ["c"])


@pytest.mark.parametrize("make", [scan, scatter], ids=lambda f: f.__name__)
def test_what_is_no_product(make):
    program = make()
    planned = plan_unit(program, Machine(POCL, 1))
    assert {nest.rule for nest in planned.plan.nests} == {"gpu_elements"}
    compare(program, planned.schedule)


def test_updates_in_order_are_side_by_side_where_they_never_meet():
    x, u = lang.placeholder((7, 3), name="X"), lang.placeholder((4, 3), name="U")
    i = lang.placeholder((4,), "i64", name="I")
    added = lang.update(
        x,
        (4, lang.axis(3, "j")),
        lambda t, n, j: lang.write((lang.clamp(i[n], 0, 6), j), t[lang.clamp(i[n], 0, 6), j] + u[n, j]),
    )
    program = lang.program([x, i, u], [added])
    s = plan_unit(program, Machine(POCL, 1)).schedule
    compare(program, s)
    (update,) = (name for name in s.blocks() if name.endswith("update"))
    assert [s.loop(name).kind.name for name in s.loops(update)] == ["thread", "thread", "serial"]
    assert not s.notes

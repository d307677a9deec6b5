"""Scans on GPUs: rows by blocks, long rows by many blocks, rows across memory by threads."""

import numpy as np
import pytest

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import SHARED, run_program
from tilewright.lower import insert_barriers
from tilewright.plan import plan_unit
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import assert_close
from tilewright.target import A100, POCL

RNG = np.random.default_rng(8)


def running(shape, axis, dtype="f32", after=None):
    x = lang.placeholder(shape, dtype, name="X")

    def step(t, *i):
        before = tuple(k - 1 if d == axis else k for d, k in enumerate(i))
        return lang.select(i[axis] == 0, x[i], t[before] + x[i])

    # the indices of a function are read off its signature
    element = (lambda t, i: step(t, i), lambda t, i, j: step(t, i, j))[len(shape) - 1]
    total = lang.scan(shape, element, axis=axis, name="S", dtype=dtype)
    result = total if after is None else lang.compute(shape, lambda *i: after(total[i]), name="Y")
    return lang.program([x], [result])


def check(program, machine, languages=LANGUAGES):
    planned = plan_unit(program, machine)
    assert not planned.schedule.notes
    (x,) = program.inputs
    shape = [e.as_int() for e in x.shape]
    given = {"X": RNG.integers(-9, 9, shape).astype(x.dtype.numpy)}
    want = run_program(program, given)
    for language in languages:
        got = on_device(planned.schedule.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, terms=64)
    checked_by_nvrtc(planned.schedule.func, registers=64)
    return planned


@pytest.mark.few(4)
@pytest.mark.parametrize("machine", [Machine(A100, 1), Machine(POCL, 1)], ids=["a100", "pocl"])
@pytest.mark.parametrize("shape", [(70, 131), (3, 1009), (5, 37)])
def test_a_block_scans_a_row(machine, shape):
    planned = check(running(shape, 1), machine)
    (nest,) = planned.plan.nests
    assert nest.rule == "gpu_rows"
    assert all(b.scope == SHARED for name, b in planned.schedule.buffers().items() if name not in "XS")


def test_long_rows_are_shared_by_blocks():
    program = running((20011,), 0, "i64", after=lambda x: x * 2)
    for machine in (Machine(A100, 1), Machine(POCL, 1)):
        planned = check(program, machine)
        rules = {nest.root: nest.rule for nest in planned.plan.nests}
        assert rules == {"S_blocks": "gpu_rows", "S_blocks_before": "gpu_elements", "Y": "gpu_elements"}
    # what very many blocks come to is scanned by the threads of one
    rules = [nest.rule for nest in plan_unit(running((300_007,), 0), Machine(A100, 1)).plan.nests]
    assert rules == ["gpu_rows", "gpu_rows", "gpu_elements"]


def test_rows_across_memory_stay_with_threads():
    planned = check(running((257, 5), 0), Machine(A100, 1))
    assert {nest.rule for nest in planned.plan.nests} == {"gpu_elements"}
    assert [step.primitive for step in planned.plan.rewrites.steps] == ["split_scan"]
    # enough of them are not cut
    many = plan_unit(running((64, 1 << 20), 0), Machine(A100, 1))
    assert not many.plan.rewrites.steps


def test_both_judges_agree():
    program = running((3, 41), 1)
    planned = plan_unit(program, Machine(POCL, 1))
    rewritten = Schedule(program).replay(planned.plan.rewrites)
    assert not check_legal(rewritten.func, insert_barriers(planned.schedule.func))

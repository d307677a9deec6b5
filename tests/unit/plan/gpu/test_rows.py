"""Rows on GPUs: chains of reductions in one kernel, rows side by side, long rows, sums across rows."""

from dataclasses import replace

import numpy as np
import pytest
from tests.plans import asked_of, chosen

from devices import HAVE_NVRTC, LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.codegen import compile_cuda
from tilewright.cost import Machine
from tilewright.ir import run_program
from tilewright.lang import ops
from tilewright.plan import build_unit, plan_unit
from tilewright.support import ArtefactError, assert_close
from tilewright.target import A100, POCL

RNG = np.random.default_rng(4)


def softmax(*shape):
    x = lang.placeholder(shape, name="X")
    return lang.program([x], [ops.softmax(x, axis=-1)])


def norm(rows, columns):
    x = lang.placeholder((rows, columns), name="X")
    g, b = (lang.placeholder((columns,), name=name) for name in "GB")
    return lang.program([x, g, b], [ops.layer_norm(x, g, b)])


def summed(shape, axes):
    x = lang.placeholder(shape, name="X")
    return lang.program([x], [ops.reduce("sum", x, axes)])


def compare(program, schedule, languages=LANGUAGES):
    given = {
        b.name: RNG.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    want = run_program(program, given)
    for language in languages:
        got = on_device(schedule.func, language)(given)
        for name, value in want.items():
            # terms cancel: an element's own size says nothing of its error
            assert_close(got[name], value, terms=1024, magnitude=np.abs(value).max())


@pytest.mark.parametrize("program", [softmax(2, 12, 67), norm(3, 131)], ids=["softmax", "norm"])
def test_chains_are_one_kernel(program):
    planned = plan_unit(program, Machine(POCL, 1))
    assert [nest.rule for nest in planned.plan.nests] == ["gpu_rows"]
    assert len(kernel_source(planned.schedule.func, "opencl").kernels) == 1
    compare(program, planned.schedule)
    checked_by_nvrtc(planned.schedule.func, registers=64)


def test_rows_side_by_side():
    program = softmax(2, 4, 67)
    plan = plan_unit(program, Machine(POCL, 1)).plan
    (nest,) = plan.nests
    for rows, threads in ((1, 64), (4, 32)):
        other = chosen(program, plan, Machine(POCL, 1), replace(nest.choice, rows=rows, threads=threads))
        s = build_unit(program, other, Machine(POCL, 1))
        (kernel,) = kernel_source(s.func, "opencl").kernels
        assert [n.as_int() for n in kernel.grid.threads][:2] == [threads, rows]
        compare(program, s, ["c"])
    few = asked_of(plan, replace(nest.choice, rows=3))
    with pytest.raises(ArtefactError, match="rows is 3"):
        build_unit(program, few, Machine(POCL, 1))


@pytest.mark.parametrize(
    ("shape", "axes", "rules"),
    [
        ((5, 7, 7), (1, 2), ["gpu_rows"]),
        ((3000, 40), (0,), ["gpu_elements", "gpu_elements"]),
        ((9, 5000), (1,), ["gpu_rows"]),
    ],
    ids=["planes", "columns", "long"],
)
def test_sums(shape, axes, rules):
    program = summed(shape, axes)
    planned = plan_unit(program, Machine(A100, 1))
    assert [nest.rule for nest in planned.plan.nests] == rules
    compare(program, planned.schedule, ["c"])


def test_rows_beyond_shared_memory_are_kept_in_memory():
    planned = plan_unit(softmax(2, 50257), Machine(A100, 1))
    assert len(planned.plan.nests) > 1
    for kernel in kernel_source(planned.schedule.func, "cuda").kernels:
        assert kernel.shared_bytes <= 48 << 10


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(20_000,), (3, 16_411), (101, 173)], ids=str)
def test_reductions_with_few_results_are_shared_by_blocks(shape):
    program = summed(shape, tuple(range(len(shape))) if len(shape) != 2 or shape[0] > 3 else (1,))
    planned = plan_unit(program, Machine(A100, 1))
    compare(program, planned.schedule)
    kernels = kernel_source(planned.schedule.func, "cuda").kernels
    first = kernels[0]
    assert first.grid.blocks[0].as_int() >= 6 and first.grid.threads[0].as_int() >= 64
    assert build_unit(program, planned.plan, Machine(A100, 1)).func == planned.schedule.func
    checked_by_nvrtc(planned.schedule.func, registers=64)


def test_one_row_is_one_block():
    program = softmax(1, 1000)
    planned = plan_unit(program, Machine(A100, 1))
    assert [nest.rule for nest in planned.plan.nests] == ["gpu_rows"]
    compare(program, planned.schedule)


def test_a_product_with_one_row_reads_the_other_factor_along_memory():
    a, b = lang.placeholder((1, 512), name="A"), lang.placeholder((512, 96), name="B")
    program = lang.program([a, b], [ops.matmul(a, b)])
    planned = plan_unit(program, Machine(A100, 1))
    compare(program, planned.schedule)
    text = kernel_source(planned.schedule.func, "cuda").text
    thread = next(line.split()[2] for line in text.splitlines() if "threadIdx.x" in line)
    (read,) = {line for line in text.splitlines() if "* B_[" in line}
    # neighbouring threads read neighbouring columns
    index = read.split("B_[")[1].split("]")[0]
    assert f"{thread} *" not in index and thread in index


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "program",
    [softmax(2, 12, 67), norm(3, 131), summed((9, 5000), (1,)), softmax(20, 1024), summed((20000,), (0,))],
    ids=["softmax", "norm", "long", "wide", "alone"],
)
def test_warps_join_what_their_threads_have(program):
    """By shuffles; other languages run the loops that these stand for."""
    s = plan_unit(program, Machine(A100, 1)).schedule
    assert " warp_add_f32(" in str(s)
    text = checked_by_nvrtc(s.func, registers=64)
    assert "__shfl_xor_sync" in text
    compare(program, s)


def test_extremes_are_joined_by_warps():
    x = lang.placeholder((7, 900), name="X")
    program = lang.program([x], [ops.reduce("max", x, (1,))])
    s = plan_unit(program, Machine(A100, 1)).schedule
    assert " warp_max_f32(" in str(s)
    assert "tw_max_f32(part, other)" in checked_by_nvrtc(s.func, registers=64)
    compare(program, s, ["c"])


@pytest.mark.few(2)
@pytest.mark.parametrize(("shape", "kernels"), [((1, 20011), 2), ((5, 1009), 1), ((131, 257), 1)])
def test_places_of_extrema_are_found_by_many_threads(shape, kernels):
    """As a block, or several, reduce other long rows; of equal values, and of NaNs, the first."""
    x = lang.placeholder(shape, name="X")
    program = lang.program([x], [ops.arg_reduce("argmax", x, 1)])
    given = RNG.integers(0, 99, shape).astype(np.float32)
    given[shape[0] // 2, [71, 200]] = np.nan
    for machine in (Machine(A100, 1), Machine(POCL, 1)):
        planned = plan_unit(program, machine)
        assert planned.plan.nests[0].rule == "gpu_rows" and len(planned.plan.nests) == kernels
        assert not planned.schedule.notes
        for language in LANGUAGES:
            got = on_device(planned.schedule.func, language)({"X": given})["argmax"]
            np.testing.assert_array_equal(got, given.argmax(1))
        checked_by_nvrtc(planned.schedule.func, registers=64)


def test_kernels_that_read_what_they_write_promise_nothing_of_their_pointers():
    """NVRTC made one load of ``found ? part[k] : best[0]``, through the cache that hears of no writes
    (decision 0418): on a card the place of a maximum was that of another element.
    """
    x = lang.placeholder((1, 20011), name="X")
    program = lang.program([x], [ops.arg_reduce("argmax", x, 1)])
    s = plan_unit(program, Machine(A100, 1)).schedule
    source = kernel_source(s.func, "cuda")
    assert "__restrict__" not in source.text
    if HAVE_NVRTC:
        assert "ld.global.nc" not in compile_cuda(source.text, "sm_90").ptx


@pytest.mark.parametrize("target", [A100, POCL], ids=["a100", "pocl"])
@pytest.mark.parametrize("shape", [(1024, 1024), (300, 70)])
def test_the_mean_of_a_whole_tensor(target, shape):
    """Its last stage is one element: it has no loop that a block could be given."""
    x = lang.placeholder(shape, name="X")
    i, j = (lang.reduce_axis(n, name) for n, name in zip(shape, "ij", strict=True))
    total = lang.compute((), lambda: lang.sum(x[i, j], (i, j)), name="T")
    program = lang.program([x], [lang.compute((), lambda: total[()] / float(shape[0] * shape[1]), name="Y")])
    given = {"X": RNG.uniform(1, 2, shape).astype(np.float32)}
    got = on_device(plan_unit(program, Machine(target, 1)).schedule.func, "c")(given)["Y"]
    assert_close(got, given["X"].mean(dtype=np.float64).astype(np.float32), terms=shape[0] * shape[1])

"""Kernels of devices: grids, guards, shared memory, barriers and wide accesses, in all languages."""

import re

import numpy as np
import pytest

from devices import HAVE_NVRTC, LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.codegen import emit_kernels
from tilewright.ir import parse_function, run_function
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, TargetError

RNG = np.random.default_rng(11)


def function(body, buffers, outputs="y", params=""):
    return parse_function(f'function("f", outputs=[{outputs}])\n{params}{buffers}\n{body}')


def check(func, sizes=None, languages=LANGUAGES):
    """Every language against the interpreter."""
    sizes = sizes or {}
    given = {}
    for b in func.buffers:
        shape = tuple(e.const + sum(c * sizes[a.name] for a, c in e.terms) for e in b.physical_shape)
        if b.name not in func.outputs:
            given[b.name] = RNG.integers(-4, 5, shape).astype(b.dtype.numpy)
    want = run_function(func, given, sizes)
    for language in languages:
        got = on_device(func, language)(given, sizes)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value, err_msg=f"{name} in {language}")
    checked_by_nvrtc(func)


def tiled_matmul(m, n, k, tile=4, results=2):
    """A product of shared tiles: ``tile`` x ``tile`` threads with ``results`` rows each, any sizes."""
    block = tile * results
    row, out = f"(bi*{block} + ty*{results})", f"(bi*{block} + vy*{results})"
    col = f"(bj*{tile} + tx)"
    return function(
        f"""
for bi in thread("block.y", {-(-m // block)}):
    for bj in thread("block.x", {-(-n // tile)}):
        with alloc(f32[{block}, {tile}], scope="shared") as As:
            with alloc(f32[{tile}, {tile}], scope="shared") as Bs:
                with alloc(f32[{results}], scope="register") as acc:
                    with seq:
                        for z in unroll({results}):
                            acc[z] = f32(0.0)
                        for ko in range({-(-k // tile)}):
                            with seq:
                                for ty in thread("thread.y", {tile}):
                                    for tx in thread("thread.x", {tile}):
                                        with seq:
                                            for r in unroll({results}):
                                                if {m - 1} - {row} - r >= 0 and {k - 1} - ko*{tile} - tx >= 0:
                                                    As[ty*{results} + r, tx] = A[{row} + r, ko*{tile} + tx]
                                                else:
                                                    As[ty*{results} + r, tx] = f32(0.0)
                                            if {k - 1} - ko*{tile} - ty >= 0 and {n - 1} - {col} >= 0:
                                                Bs[ty, tx] = B[ko*{tile} + ty, {col}]
                                            else:
                                                Bs[ty, tx] = f32(0.0)
                                barrier("shared")
                                for uy in thread("thread.y", {tile}):
                                    for ux in thread("thread.x", {tile}):
                                        for ki in range({tile}):
                                            for q in unroll({results}):
                                                acc[q] = acc[q] + As[uy*{results} + q, ki] * Bs[ki, ux]
                                barrier("shared")
                        for vy in thread("thread.y", {tile}):
                            for vx in thread("thread.x", {tile}):
                                for w in unroll({results}):
                                    if {m - 1} - {out} - w >= 0 and {n - 1} - bj*{tile} - vx >= 0:
                                        C[{out} + w, bj*{tile} + vx] = acc[w]
""",
        f"A = f32[{m}, {k}]\nB = f32[{k}, {n}]\nC = f32[{m}, {n}]",
        outputs="C",
    )


@pytest.mark.parametrize("sizes", [(8, 8, 8), (13, 7, 11), (1, 17, 3)], ids=str)
def test_a_matmul_of_shared_tiles(sizes):
    # written as lowered: of its accumulators each thread has its own, which C's one thread has not
    check(tiled_matmul(*sizes), languages=[x for x in LANGUAGES if x != "c"])


def test_guards_where_loops_on_one_axis_differ():
    check(function("""
for b in thread("block.x", 3):
    with alloc(f32[8], scope="shared") as s:
        with seq:
            for t in thread("thread.x", 8):
                s[t] = x[b, t]
            barrier("shared")
            for u in thread("thread.x", 5):
                y[b, u] = s[7 - u] + s[u]
            z[b] = s[3]
""", "x = f32[3, 8]\ny = f32[3, 5]\nz = f32[3]", outputs="y, z"))  # fmt: skip


def test_the_only_block_along_an_axis_is_a_number():
    """Of a private array whose elements a block's number says, compilers would keep none in registers."""
    func = function(
        """
for b in thread("block.x", 1):
    for t in thread("thread.x", 8):
        with alloc(f32[4], scope="register") as acc:
            with seq:
                for z in unroll(4):
                    acc[b*4 + z] = x[t, z] * f32(2.0)
                for z in unroll(4):
                    y[t, z] = acc[b*4 + z]
""",
        "x = f32[8, 4]\ny = f32[8, 4]",
    )
    check(func)
    assert "blockIdx" not in kernel_source(func, "cuda").text


def test_nested_guards_are_one():
    """Loads under several conditions: one selection, so that several loads are under way at once."""
    x = lang.placeholder((9, 9), name="X")
    y = lang.compute(
        (12, 12),
        lambda i, j: lang.select(
            i >= 1, lang.select(i < 10, lang.select(j >= 1, lang.select(j < 10, x[i - 1, j - 1], 0), 0), 0), 0
        ),
        name="Y",
    )
    s = Schedule(lang.program([x], [y])).bind("i", "block.x").bind("j", "thread.x")
    text = kernel_source(s.func, "cuda").text
    assert text.count(" ? ") == 1 and text.count(" & ") == 3
    given = {"X": RNG.standard_normal((9, 9)).astype(np.float32)}
    want = np.pad(given["X"], ((1, 2), (1, 2)))
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(s.func, language)(given)["Y"], want)


def test_host_loops_and_workspace_are_launches():
    func = function("""
with alloc(f32[6]) as t:
    with seq:
        for i in thread("block.x", 6):
            t[i] = x[i]
        for k in range(3):
            for j in thread("block.x", 6):
                t[j] = t[j] * f32(2.0) + f32[k]
        for m in thread("block.x", 6):
            y[m] = t[m]
""", "x = f32[6]\ny = f32[6]")  # fmt: skip
    check(func)
    source = kernel_source(func, "opencl")
    assert [number for number, _ in source.launches] == [0, 1, 1, 1, 2]
    assert [values for _, values in source.launches] == [(), (0,), (1,), (2,), ()]
    assert len(source.kernels) == 3 and len(source.workspace) == 1


def test_symbolic_grids():
    func = function("""
for b in thread("block.x", (n + 3)//4):
    for t in thread("thread.x", 4):
        if n - 1 - b*4 - t >= 0:
            y[b*4 + t] = x[b*4 + t] + f32(1.0)
""", "x = f32[n]\ny = f32[n]", params="n = param(1, 1000)\n")  # fmt: skip
    for n in (1, 7, 8):
        check(func, {"n": n})


@pytest.mark.parametrize("dtype", ["f32", "i8", "f64", "f16"])
def test_vector_loops_are_wide_accesses(dtype):
    lanes = {"f32": 8, "i8": 16, "f64": 4, "f16": 8}[dtype]
    func = function(f"""
for b in thread("block.x", 5):
    for v in vector({lanes}):
        y[b, v] = x[b, v] + x[b, v]
""", f"x = {dtype}[5, {lanes}]\ny = {dtype}[5, {lanes}]")  # fmt: skip
    check(func)
    text = checked_by_nvrtc(func)
    width = 16 // {"f32": 4, "i8": 1, "f64": 8, "f16": 2}[dtype]
    assert text.count(f"tw_{dtype}x{width} *)(") == 2 * lanes // width


def test_accesses_that_are_not_aligned_stay_single():
    func = function("""
for b in thread("block.x", 3):
    for v in vector(4):
        y[b, v] = x[b, v + 1]
""", "x = f32[3, 7]\ny = f32[3, 4]")  # fmt: skip
    check(func)
    assert checked_by_nvrtc(func).count("tw_f32x4 *)(") == 1


def test_threads_have_private_arrays_of_their_own():
    check(function("""
for b in thread("block.x", 2):
    for t in thread("thread.x", 3):
        with alloc(f32[4], scope="local") as p:
            with seq:
                for i in range(4):
                    p[i] = x[b, t, i]
                for j in unroll(4):
                    y[b, t, j] = p[3 - j]
""", "x = f32[2, 3, 4]\ny = f32[2, 3, 4]"))  # fmt: skip


def test_threads_and_bounds_are_stated():
    func = function("""
for b in thread("block.x", 2):
    for t in thread("thread.y", 3):
        for u in thread("thread.x", 4):
            y[b, t, u] = x[b, t, u]
""", "x = f32[2, 3, 4]\ny = f32[2, 3, 4]")  # fmt: skip
    assert "__launch_bounds__(12)" in kernel_source(func, "cuda").text
    assert "reqd_work_group_size(4, 3, 1)" in kernel_source(func, "opencl").text
    assert re.search(
        r"const float \*__restrict__ x_, float \*__restrict__ y_", kernel_source(func, "cuda").text
    )


def test_much_shared_memory_is_given_with_the_launch():
    func = function("""
for b in thread("block.x", 2):
    with alloc(f32[16384], scope="shared") as s:
        with seq:
            for t in thread("thread.x", 4):
                s[t * 4096] = x[b, t]
            barrier("shared")
            for u in thread("thread.x", 4):
                y[b, u] = s[(3 - u) * 4096]
""", "x = f32[2, 4]\ny = f32[2, 4]")  # fmt: skip
    (entry,) = kernel_source(func, "cuda").kernels
    assert entry.dynamic_bytes == entry.shared_bytes == 65536
    assert kernel_source(func, "opencl").kernels[0].dynamic_bytes == 0
    check(func)


@pytest.mark.parametrize("repeated", [False, True])
def test_memory_of_the_only_block_is_written_before_it_is_read(repeated):
    # no loop over blocks: on the host these are kernels in order, and shared memory makes one of them
    nests = """
with seq:
    for i in range(64):
        t[i] = x[i]
    for i in thread("thread.x", 64):
        s[i] = s[i] + t[i]
    for i in range(64):
        y[i] = s[63 - i]
"""
    first = "for j in range(64):\n    s[j] = x[j]\n"
    body = nests.strip() if not repeated else "for r in range(3):\n" + indented(nests.strip())
    text = f"""
with alloc(f32[64]) as t:
    with alloc(f32[64], scope="shared") as s:
        with seq:
{indented(first + body, 12)}
"""
    func = function(text, "x = f32[64]\ny = f32[64]")
    x = np.arange(64, dtype=np.float32)
    want = run_function(func, {"x": x})["y"]
    np.testing.assert_array_equal(want, x[::-1] * (4 if repeated else 2))
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(func, language)({"x": x})["y"], want)
    source = kernel_source(func, "cuda")
    assert len(source.kernels) == 1
    assert source.text.count("__syncthreads()") == (4 if repeated else 3)
    checked_by_nvrtc(func)


def indented(text, by=4):
    return "\n".join(" " * by + line for line in text.splitlines())


def test_what_a_kernel_cannot_do():
    aside = function("""
for b in thread("block.x", 2):
    with seq:
        y[b] = x[b]
        for c in thread("block.y", 2):
            y[b] = x[c]
""", "x = f32[2]\ny = f32[2]")  # fmt: skip
    with pytest.raises(ScheduleError, match="does not contain all that its kernel does"):
        kernel_source(aside, "cuda")
    with pytest.raises(TargetError, match="no language 'metal'"):
        kernel_source(aside, "metal")
    many = function("""
for k in range(5000):
    for b in thread("block.x", 2):
        y[b] = x[b]
""", "x = f32[2]\ny = f32[2]")  # fmt: skip
    with pytest.raises(ScheduleError, match="more than 4096 kernels"):
        kernel_source(many, "opencl")
    symbolic = function("""
for k in range(n):
    for b in thread("block.x", 2):
        y[b] = x[b]
""", "x = f32[2]\ny = f32[2]", params="n = param(1, 9)\n")  # fmt: skip
    with pytest.raises(ScheduleError, match="the host cannot repeat"):
        kernel_source(symbolic, "opencl")
    twice = function("""
for b in thread("thread.x", 2):
    for c in thread("thread.x", 2):
        y[b] = x[c]
""", "x = f32[2]\ny = f32[2]")  # fmt: skip
    with pytest.raises(ScheduleError, match="inside of another one"):
        emit_kernels(twice, "opencl")
    large = function("""
for b in thread("block.x", 2):
    for t in thread("thread.x", 2):
        with alloc(f32[20000], scope="local") as p:
            with seq:
                p[t] = x[t]
                y[t] = p[t]
""", "x = f32[2]\ny = f32[2]")  # fmt: skip
    with pytest.raises(ScheduleError, match="80000 bytes of every thread"):
        emit_kernels(large, "cuda")
    divergent = function("""
for b in thread("block.x", 2):
    with seq:
        for t in thread("thread.x", 2):
            with seq:
                y[t] = x[t]
                barrier("shared")
        for u in thread("thread.x", 4):
            y[u] = x[u]
""", "x = f32[4]\ny = f32[4]")  # fmt: skip
    with pytest.raises(ScheduleError, match="which not all threads"):
        emit_kernels(divergent, "cuda")
    unknown = function("""
for b in thread("block.x", 2):
    with alloc(f32[n], scope="shared") as s:
        with seq:
            s[0] = x[b]
            y[b] = s[0]
""", "x = f32[2]\ny = f32[2]", params="n = param(1, 9)\n")  # fmt: skip
    with pytest.raises(ScheduleError, match="not known when compiling"):
        kernel_source(unknown, "cuda")
    lanes = function('for b in thread("thread.lane", 2):\n    y[b] = x[b]', "x = f32[2]\ny = f32[2]")
    for language in ("cuda", "opencl"):
        with pytest.raises(ScheduleError, match=r"kernels have no axis thread\.lane"):
            kernel_source(lanes, language)
    nothing = function('for b in thread("block.x", 2):\n    y[b] = x[b]', "x = f32[2]\ny = f32[2]")
    if HAVE_NVRTC:
        assert "__global__" in checked_by_nvrtc(nothing, registers=32)

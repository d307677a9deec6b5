"""Loops, allocations and whole models as C99."""

import re
import subprocess

import numpy as np
import pytest

import onnx_models as tiny
import tilewright
from c_kernel import CKernel
from tilewright import lang
from tilewright.cli import main
from tilewright.codegen import ALL_CALLS, emit_c
from tilewright.frontend import zoo
from tilewright.ir import parse_function, run_function
from tilewright.lang import ops
from tilewright.lower import lower
from tilewright.schedule import Schedule

RNG = np.random.default_rng(3)
STRICT = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-O1", "-c", "-x", "c", "-"]


def product(m, n, k):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return Schedule(lang.program([a, b], [ops.matmul(a, b)], name="product"))


def strictly(text, tmp_path):
    """The compiler with all warnings as errors."""
    subprocess.run([*STRICT, "-o", str(tmp_path / "k.o")], input=text.encode(), check=True)


def test_parallel_and_vector_loops_get_pragmas(tmp_path):
    s = product(37, 41, 29).split("j", 8).parallel("i").vectorize("j_i")
    k = CKernel(s.func, openmp=True)
    assert k.source.text.count("#pragma omp parallel for") == 1
    assert k.source.text.count("#pragma omp simd") == 0  # a guard in the loop: left to the compiler
    a, b = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 29), (29, 41)))
    np.testing.assert_array_equal(k({"A": a, "B": b})["matmul"], a @ b)
    strictly(k.source.text, tmp_path)
    even = product(8, 16, 4).split("j", 8).vectorize("j_i")
    assert emit_c(lower(even.func, native=ALL_CALLS)).text.count("#pragma omp simd") == 1
    assert "#pragma omp" not in emit_c(lower(s.func, native=ALL_CALLS), openmp=False).text


def test_thread_loops_run_one_by_one():
    s = product(24, 16, 8).bind("i", "block.x").bind("j", "thread.x")
    a, b = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((24, 8), (8, 16)))
    np.testing.assert_array_equal(CKernel(s.func)({"A": a, "B": b})["matmul"], a @ b)


def test_large_allocations_come_from_the_heap_and_say_where_there_is_none(tmp_path):
    x = lang.placeholder((300, 100), name="X")
    t = lang.compute((300, 100), lambda i, j: x[i, j] * 2, name="T")
    y = lang.compute((300, 100), lambda i, j: t[299 - i, j] + 1, name="Y")
    func = Schedule(lang.program([x], [y])).func
    k = CKernel(func)
    assert "malloc" in k.source.text and "return tw_failed ? -1 : 0;" in k.source.text
    given = RNG.standard_normal((300, 100)).astype(np.float32)
    np.testing.assert_array_equal(k({"X": given})["Y"], given[::-1] * 2 + 1)
    strictly(k.source.text, tmp_path)


def test_symbolic_sizes_and_assumptions():
    func = parse_function("""
function("f", outputs=[y])
n = param(1, 100)
assume(n - 2 >= 0)
x = f32[n, n + 1]
y = f32[n, n + 1]
for i in range(n):
    for j in range(n + 1):
        y[i, j] = x[i, j] + f32(1.0)
""")
    k = CKernel(func)
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    np.testing.assert_array_equal(k({"x": x}, {"n": 5})["y"], x + 1)
    with pytest.raises(AssertionError, match="returned 1"):
        k({"x": x[:1, :2].copy()}, {"n": 1})


def test_simultaneous_stores_read_before_they_write():
    func = parse_function("""
function("f", outputs=[y, z])
x = f32[4]
y = f32[4]
z = f32[4]
with seq:
    for i in range(4):
        y[i] = x[i]
    for i2 in range(4):
        z[i2] = x[i2] + f32(1.0)
    for i3 in range(4):
        y[i3], z[i3] = z[i3], y[i3]
""")
    x = np.arange(4, dtype=np.float32)
    want, got = run_function(func, {"x": x}), CKernel(func)({"x": x})
    for name in ("y", "z"):
        np.testing.assert_array_equal(got[name], want[name])


def test_a_model_as_c(tmp_path, capsys):
    file = tmp_path / "model.c"
    assert main(["compile", "zoo:tinybert4:small", "--winograd", "off", "--emit", "c", "-o", str(file)]) == 0
    assert str(file) in capsys.readouterr().err
    compiled = tilewright.compile(zoo.SMALL["tinybert4"](), accuracy="exact")
    text = compiled.c_source()
    kernels = {group.kernel.name for group in compiled.groups()}
    assert set(re.findall(r"^int32_t (\w+)\(", text, re.MULTILINE)) == kernels
    strictly(tilewright.compile(tiny.mlp(), accuracy="exact").c_source(), tmp_path)

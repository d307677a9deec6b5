"""Vector loops: which run in lanes, and what is left after whole vectors."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.codegen import emit_kernel
from tilewright.ir import function_at, parse_function, run_function
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512


@pytest.mark.parametrize("inner", ["i + 1", "i, 40"])
def test_loops_whose_ranges_depend_on_the_lane_run_one_after_the_other(inner):
    func = parse_function(f"""
function("f", outputs=[Y])
X = f32[40]
Y = f32[40]
for i in vector(40):
    with block("Z"):
        i = par(0, 40, i)
        Y[i] = f32(0.0)
    for k in range({inner}):
        with block("Y"):
            i = par(0, 40, i)
            k = red(0, 40, k)
            Y[i] = Y[i] + X[k]
""")
    given = {"X": np.arange(40, dtype=np.float32)}
    np.testing.assert_array_equal(Native(func)(given)["Y"], run_function(func, given)["Y"])


@pytest.mark.parametrize(("least", "left"), [(100, False), (90, True)])
def test_nothing_is_left_where_vectors_are_known_to_be_whole(least, left):
    """The last of six rows has 100 - 80 elements at most, or 90 - 80: more than 16, or fewer."""
    func = parse_function(f"""
function("f", outputs=[Y])
X = f32[96]
Y = f32[96]
for i in range(6):
    for j in vector(min(16, {least} - 16*i)):
        with block("Y"):
            x = par(0, 96, 16*i + j)
            Y[x] = X[x] * f32(2.0)
""")
    text = emit_kernel(lower(func), triple=X86_AVX512.llvm_triple, vector_bits=512).text
    assert ("masked.store" in text) == left


def test_elements_around_a_buffer():
    """One before each row, and one after."""
    func = parse_function("""
function("f", outputs=[Y])
X = buffer(f32[3, 6], halo=[(0, 0), (1, 1)])
Y = f32[3, 6]
for i in range(3):
    for j in vector(6):
        with block("Y"):
            i = par(0, 3, i)
            j = par(0, 6, j)
            Y[i, j] = X[i, j - 1] + X[i, j + 1]
""")
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(Native(func)({"X": x})["Y"], x[:, :-2] + x[:, 2:])


@pytest.mark.parametrize("before", ["Y[k] = C[0]", "C[1] = X[k]", "Y[k] = X[k]"])
def test_what_stands_before_a_sum_may_read_it(before):
    func = parse_function(f"""
function("f", outputs=[C, Y])
X = f32[20]
Y = f32[20]
C = f32[2]
for y in range(20):
    with block("T"):
        k = par(0, 20, y)
        Y[k] = f32(7.0)
for z in range(2):
    with block("Z"):
        i = par(0, 2, z)
        C[i] = f32(0.0)
for k in vector(20):
    with block("B"):
        k = ord(0, 20, k)
        {before}
    with block("C"):
        k = red(0, 20, k)
        C[0] = C[0] + X[k]
""")
    given = {"X": np.arange(20, dtype=np.float32)}
    found, wanted = Native(func)(given), run_function(func, given)
    for name in ("C", "Y"):
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i32"])
def test_indices_that_are_numbers(dtype):
    """Unrolled, they are constants of the type: -200 wraps in i8."""
    Y = lang.compute((4,), lambda i: lang.to_scalar(i * 125 - 200, dtype), name="Y")
    run = Native(Schedule(lang.program([], [Y])).unroll("i").func)
    np.testing.assert_array_equal(
        run({})["Y"], (np.arange(4) * 125 - 200).astype(run.func.buffers[0].dtype.numpy)
    )


@pytest.mark.parametrize("fold", [lang.sum, lang.max], ids=["sum", "max"])
def test_lanes_of_loops_whose_extent_a_run_knows(fold):
    n = lang.param("n", lo=0, hi=4096)
    X = lang.placeholder((3, n), name="X")
    k = lang.reduce_axis(n, "k")
    S = lang.compute((3,), lambda i: fold(X[i, k], axis=k), name="S")
    Y = lang.compute((3, n), lambda i, j: X[i, j] + S[i], name="Y")
    s = Schedule(lang.program([X], [S, Y]))
    s = s.decompose_init("S", s.loops("S")[1]).vectorize(s.loops("S")[1]).vectorize(s.loops("Y")[1])
    run = Native(s.func)
    for size in (0, 1, 7, 8, 9, 31, 64, 133):
        x = (np.arange(3 * size, dtype=np.float32) % 29 - 9).reshape(3, size)
        got = run({"X": x}, {"n": size})
        want = x.sum(1) if fold is lang.sum else x.max(1, initial=-np.inf)
        np.testing.assert_array_equal(got["S"], want)
        np.testing.assert_array_equal(got["Y"], x + want[:, None])


MASKED = """
function("f", outputs=[Y])
m = param(0, 8)
n = param(0, 8)
X = f32[5, 8]
Y = f32[8]
R = alloc(f32[8], scope="register")
for a in vector(8):
    with block("Z"):
        l = par(0, 8, a)
        where(FIRST - a - 1 >= 0)
        R[l] = f32(0.5)
for k in range(5):
    for b in vector(8):
        with block("R"):
            l = par(0, 8, b)
            k = red(0, 5, k)
            where(SECOND - b - 1 >= 0)
            R[l] = R[l] + X[k, l]
for c in vector(8):
    with block("Y"):
        l = par(0, 8, c)
        where(FIRST - c - 1 >= 0)
        Y[l] = R[l]
"""


@pytest.mark.parametrize(
    ("first", "second", "kept"), [("n", "n", 0), ("n", "m", 1), ("8", "m", 1), ("n", "k + 1", 1)]
)
def test_lanes_outside_of_a_mask_are_kept_where_something_was_written_to_them(first, second, kept):
    func = parse_function(MASKED.replace("FIRST", first).replace("SECOND", second))
    run = Native(func)
    body = run.text.text
    assert (body.count("select <8 x i1>") > 0) == kept
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    for n, m in ((8, 8), (7, 3), (5, 0), (0, 0), (6, 5)):
        sizes = {p.name: {"n": n, "m": m}[p.name] for p in func.params}
        end = n if first == "n" else 8
        k = np.arange(5)[:, None]
        limit = {"n": n, "m": m, "k + 1": k + 1}[second]
        wanted = 0.5 + np.where(np.arange(8) < limit, x, 0).sum(0)
        np.testing.assert_array_equal(run({"X": x}, sizes)["Y"][:end], wanted[:end])


def test_sums_of_what_has_just_been_stored_do_not_load_it():
    """Lanes under a mask are not in the cache yet: a load waited until they were, once a row."""
    func = parse_function("""
function("f", outputs=[C, Y])
n = param(0, 100)
X = f32[100]
Y = f32[100]
C = f32[1]
with block("Z"):
    C[0] = f32(0.0)
for k in vector(n):
    with block("Y"):
        k = par(0, n, k)
        Y[k] = X[k] * f32(2.0)
    with block("C"):
        k = red(0, n, k)
        C[0] = C[0] + Y[k]
""")
    run, x = Native(func), np.arange(100, dtype=np.float32) % 23
    assert run.text.text.count("call <16 x float> @llvm.masked.load") <= 1
    for size in (0, 1, 15, 16, 17, 64, 79, 80, 100):
        found = run({"X": x}, {"n": size})
        assert found["C"][0] == 2 * x[:size].sum()
        np.testing.assert_array_equal(found["Y"][:size], 2 * x[:size])


@pytest.mark.parametrize("condition", ["n - b//3 - 1 >= 0", "b//3 - n >= 0", "n - b%3 - 1 >= 0"])
def test_conditions_on_parts_of_lanes_and_a_size_of_the_run(condition):
    func = parse_function(f"""
function("f", outputs=[Y])
n = param(0, 4)
X = f32[12]
Y = f32[12]
for a in vector(12):
    with block("Z"):
        l = par(0, 12, a)
        Y[l] = f32(-1.0)
for b in vector(12):
    with block("Y"):
        l = par(0, 12, b)
        where({condition})
        Y[l] = X[l]
""")
    run, given = Native(func), {"X": np.arange(12, dtype=np.float32)}
    for size in range(5):
        wanted = run_function(function_at(func, {"n": size}), given)["Y"]
        np.testing.assert_array_equal(run(given, {"n": size})["Y"], wanted)

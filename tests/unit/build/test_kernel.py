"""Kernels: of single functions, and as steps of models."""

import array

import numpy as np
import pytest

import tilewright
from tilewright.cost import Machine
from tilewright import lang
from tilewright.build import Kernel, build
from tilewright.ir import parse_function, print_function, run_function, structural_hash
from tilewright.runtime import aligned_copy
from tilewright.strategies import default_schedule
from tilewright.support import InputError, TargetError
from tilewright.target import detect

TEXT = """
function("f", outputs=[A, S], inouts=[A])
x = f64[8]
A = f64[8]
S = f64[1]
with seq:
    with block("S"):
        S[0] = A[3]
    for i in range(1, 5):
        with block("A"):
            i = par(1, 5, i)
            A[i] = A[i] + x[i]
"""


def arrays():
    return {"x": np.arange(8.0), "A": np.arange(8.0) * 10}


def expected(A, x):
    out = A.copy()
    out[1:5] += x[1:5]
    return out, A[3:4]


def test_the_text_keeps_in_out_arguments():
    func = parse_function(TEXT)
    assert func.inouts == ("A",) and [b.name for b in func.inputs] == ["x", "A"]
    assert parse_function(print_function(func)) == func
    other = parse_function(TEXT.replace(", inouts=[A]", ""))
    assert structural_hash(func) != structural_hash(other)


def test_in_out_arguments_are_given_and_come_back():
    func, given = parse_function(TEXT), arrays()
    kernel = build(func)
    A, S = kernel(**given)
    want = expected(**given)
    assert np.array_equal(A, want[0]) and np.array_equal(S, want[1])
    assert np.array_equal(given["A"], np.arange(8.0) * 10)
    with pytest.raises(InputError, match="input 'A' is missing"):
        kernel(given["x"])
    table = [aligned_copy(a) for a in (given["x"], given["A"], np.zeros(1))]
    kernel.run(table)
    assert np.array_equal(table[1], want[0])


def test_the_interpreter_reads_in_out_arguments_and_keeps_their_elements():
    func, given = parse_function(TEXT), arrays()
    want = expected(**given)
    out = run_function(func, {k: v.copy() for k, v in given.items()})
    assert np.array_equal(out["A"], want[0]) and np.array_equal(out["S"], want[1])
    with pytest.raises(InputError, match="no array is given for the argument A"):
        run_function(func, {"x": given["x"]})


def test_results_go_where_the_caller_says_and_inputs_are_read_where_they_lie():
    A = lang.placeholder((8,), name="A", dtype="f64")
    kernel = build(lang.program([A], [lang.compute((8,), lambda i: A[i] * 2, name="B")]))
    given, mine = np.arange(8.0), np.zeros(8)
    (made,) = kernel(given, out={"B": mine})
    assert made is mine and np.array_equal(mine, given * 2)
    # not aligned to anything but its elements
    shifted = np.zeros(9)[1:]
    shifted[:] = given
    assert np.array_equal(kernel(shifted)[0], mine)
    bound = kernel.bind(given)
    given[3] = 7
    assert bound.run()[0][3] == 14
    with pytest.raises(InputError, match="has no output 'T'"):
        kernel(given, out={"T": mine})
    with pytest.raises(InputError, match="cannot be written to"):
        kernel(given, out={"B": np.zeros(2)})


def test_kernels_that_change_arguments_are_not_bound():
    with pytest.raises(InputError, match="changes 'A': it is not bound"):
        build(parse_function(TEXT)).bind(**arrays())


def test_plans_of_few_sizes_are_kept():
    n = lang.param("n", hi=64)
    A = lang.placeholder((n,), name="A")
    kernel = build(lang.program([A], [lang.compute((n,), lambda i: A[i] + 1, name="B")]))
    for size in range(1, 20):
        (b,) = kernel(np.ones(size, np.float32))
        assert b.shape == (size,) and np.all(b == 2)


def _colours(h, w, pitch):
    """A sum of three colours that lie beside one another, in rows of ``pitch`` pixels."""
    X = lang.placeholder((3, h, w), "u8", name="X", strides=(1, 3 * pitch, 3))
    Y = lang.compute(
        (h, w), lambda y, x: sum((lang.cast(X[c, y, x], "i32") << c) for c in range(3)), name="Y"
    )
    return lang.program([X], [Y])


@pytest.mark.parametrize("threads", [1, 2])
def test_inputs_with_strides_are_read_where_they_lie(threads):
    program = _colours(7, 9, 12)
    image = np.random.default_rng(2).integers(0, 255, (7, 12, 3), dtype=np.uint8)
    view = image[:, :9].transpose(2, 0, 1)
    kernel = build(default_schedule(program, Machine(detect(), threads)), threads=threads)
    bound = kernel.bind(view)

    def wanted():
        return sum(view[c].astype(np.int32) << c for c in range(3))

    np.testing.assert_array_equal(bound.run()[0], wanted())
    image[...] = 5  # nothing was copied
    np.testing.assert_array_equal(bound.run()[0], wanted())
    # one that lies otherwise is copied
    np.testing.assert_array_equal(kernel(np.ascontiguousarray(view))[0], wanted())
    np.testing.assert_array_equal(lang.evaluate(program, [view])["Y"], wanted())
    with pytest.raises(InputError, match=r"input 'X' must be u8 of shape \[3, 7, 9\]"):
        kernel(view[:, :5])


class _Foreign:
    """An array of another library: it has dlpack's protocol alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **given):
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_inputs_by_the_protocols_of_buffers_and_dlpack():
    X = lang.placeholder((6,), name="X")
    kernel = build(lang.program([X], [lang.compute((6,), lambda i: X[i] * 2, name="Y")]))
    data = np.arange(6, dtype=np.float32)
    for given in (array.array("f", data), memoryview(data), _Foreign(data)):
        bound = kernel.bind(given)
        np.testing.assert_array_equal(bound.run()[0], data * 2)
    data[0] = 8  # the last one's memory
    assert bound.run()[0][0] == 16
    with pytest.raises(InputError, match="input 'X' must be f32 of shape"):
        kernel(_Foreign(data[:4]))


def test_the_kernel_of_a_models_step_is_called_as_one_of_a_single_function():
    A, W = lang.placeholder((8, 16), name="A"), lang.placeholder((16, 4), name="W")
    k = lang.reduce_axis(16, "k")
    program = lang.program(
        [A, W], [lang.compute((8, 4), lambda i, j: lang.sum(A[i, k] * W[k, j], axis=k), name="C")]
    )
    model = tilewright.compile(program, threads=1)
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 16), (16, 4)))
    (group,) = model.groups()
    kernel = group.kernel.code
    assert isinstance(kernel, Kernel) and type(kernel) is type(build(program))
    (alone,) = kernel(a, w)
    assert np.array_equal(alone, model(a, w)[0])
    assert kernel.symbol in kernel.assembly() and "define" in kernel.code_text("llvm")
    with pytest.raises(TargetError, match="no text of the form 'ptx'"):
        kernel.code_text("ptx")


@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_arguments_that_lie_apart_let_loops_run_in_lanes(kind):
    """LLVM is told so of the bodies of loops on threads as well, and the text that is shown is what runs."""
    func = parse_function(
        f"""
function("f", outputs=[S, T], inouts=[S])
x = f32[64, 100]
S = f32[64, 100]
T = f32[64, 100]
for i in {kind}(64):
    with alloc(f32[100]) as row:
        for j in range(100):
            with block("row"):
                j = par(0, 100, j)
                row[j] = x[i, j] * f32(2.0)
        for j2 in range(100):
            with block("S"):
                j = par(0, 100, j2)
                S[i, j] = S[i, j] + row[99 - j]
                T[i, j] = S[i, j]
"""
    )
    x, s = (np.arange(6400, dtype=np.float32).reshape(64, 100) * k for k in (1, 3))
    plain, alone = (build(func, threads=2, apart=apart) for apart in (False, True))
    for kernel in (plain, alone):
        S, T = kernel(x, s)
        assert np.array_equal(S, s + 2 * x[:, ::-1]) and np.array_equal(S, T)
    assert "f_tile_0(ptr noalias %c0" in alone.llvm() and "f_tile" not in plain.llvm()
    assert "x float>" in alone.llvm(optimised=True) and "x float>" not in plain.llvm(optimised=True)
    assert "f_tile_0" in alone.assembly()

"""cache: packed panels, register accumulators, copies in and out."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import buffers_of, parse_function, run_function
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import assert_same, blur, conv, gemm

SHAPES = [(1, 1, 1), (4, 6, 3), (7, 13, 5), (8, 12, 8), (3, 5, 9)]


def _tiled(m, n, k):
    s = Schedule(gemm(m, n, k)).split("i", 4, tail="mask").split("j", 6, tail="mask")
    return s.reorder("j_o", "i_o", "k", "i_i", "j_i").parallel("j_o")


@pytest.mark.parametrize("mode", ["write", "accumulate"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gemm_with_packed_panels_and_register_accumulators(m, n, k, mode):
    s = _tiled(m, n, k)
    s = s.cache("B", "j_o", layout=("j//3", "k", "j%3"), name="Bp", pad=(1, 6))
    s = s.cache("C", "i_o", scope="register", mode=mode, name="acc")
    assert_same(gemm(m, n, k), s.func)
    found = buffers_of(s.func)
    assert [x.as_int() for x in found["Bp"].physical_shape] == [2, k, 3]
    assert (found["acc"].scope, [x.as_int() for x in found["acc"].physical_shape]) == (
        "register",
        [min(4, m), min(6, n)],
    )
    started = any(b.init is not None for b in (s.block(n) for n in s.blocks()))
    assert started == (mode == "write")


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_accumulators_with_the_outer_part_of_the_reduction_outside(m, n, k):
    s = (
        Schedule(gemm(m, n, k))
        .split("i", 4, tail="mask")
        .split("j", 6, tail="mask")
        .split("k", 4, tail="mask")
    )
    s = s.reorder("k_o", "j_o", "i_o", "k_i", "i_i", "j_i").parallel("j_o")
    with pytest.raises(ScheduleError, match="in the first iteration of a loop around"):
        s.cache("C", "i_o", scope="register", mode="accumulate")
    s = s.decompose_init("C", "k_o").cache("C", "i_o", scope="register", mode="accumulate", name="acc")
    assert_same(gemm(m, n, k), s.func)
    assert {"acc", "acc_out"} <= set(s.blocks())


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [*SHAPES, (14, 11, 4)])
def test_parts_that_tiles_do_not_divide_are_copied_out_as_far_as_they_go(m, n, k, threads):
    s = Schedule(gemm(m, n, k)).split("i", -(-m // threads), names=["part", "own"])
    s = s.split("own", 4, names=["tile", "row"]).split("j", 3, names=["panel", "column"])
    s = s.reorder("part", "panel", "tile", "k", "row", "column").parallel("part")
    s = s.cache("C", "tile", scope="register", mode="write", name="acc")
    assert_same(gemm(m, n, k), s.func)
    assert s.block("acc_out").where == () or m % 4 or n % 3 or m % threads


def test_the_names_of_copying_loops_are_predictable():
    s = _tiled(7, 13, 5).cache("B", "j_o", name="Bp").cache("C", "i_o", mode="accumulate", name="acc")
    assert {"Bp_k", "Bp_j", "acc_init_i", "acc_init_j", "acc_out_i", "acc_out_j"} <= set(s.loops())


def test_panels_of_the_whole_matrix_packed_ahead():
    s = _tiled(7, 13, 5).cache("B", scope="global", layout=("j//6", "k", "j%6"), name="Bp", pad=(1, 6))
    s = s.split("Bp_j", 6).parallel("Bp_j_o")
    assert_same(gemm(7, 13, 5), s.func)
    assert [x.as_int() for x in buffers_of(s.func)["Bp"].physical_shape] == [3, 5, 6]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 3, 7, 6), (8, 2, 4, 8)])
def test_convolution_with_epilogue_in_registers(shape):
    p = conv(*shape)
    s = Schedule(p).split("o", 4, tail="mask").split("x", 3, tail="mask")
    s = s.reorder("o_o", "y", "x_o", "ic", "kh", "kw", "o_i", "x_i").parallel("o_o")
    s = s.reverse_compute_at("Z", "x_o").set_scope("Y", "register")
    s = s.cache("W", "o_o", layout=("ic", "kh", "kw", "o"), name="Wp", pad=(4, 1, 1, 1))
    assert_same(p, s.func)
    assert [x.as_int() for x in buffers_of(s.func)["Y"].physical_shape] == [
        min(4, shape[0]),
        1,
        min(3, shape[3]),
    ]


def test_a_padded_input_is_staged_up_to_its_border():
    p = conv(3, 2, 5, 4)
    s = Schedule(p).split("y", 2).reorder("y_o", "o", "y_i").cache("X", "y_o", name="Xs")
    assert_same(p, s.func)
    assert [x.as_int() for x in buffers_of(s.func)["Xs"].physical_shape] == [2, 4, 4]


def test_an_intermediate_is_staged_after_it_is_computed():
    p = blur(9)
    s = Schedule(p).split("C_i", 4).compute_at("T", "C_i_o").cache("T", "C_i_o", name="Ts")
    assert_same(p, s.func)


def test_running_values_of_a_triangular_sum():
    A = lang.placeholder((5, 5), name="A")
    k = lang.reduce_axis(5, "k")
    T = lang.compute((5,), lambda i: lang.sum(A[i, k], axis=k, where=k <= i), name="T")
    p = lang.program([A], [T])
    s = Schedule(p).split("i", 2, tail="mask").reorder("i_o", "k", "i_i")
    assert_same(p, s.cache("T", "i_o", mode="accumulate", scope="register").func)


def _refused(text, make):
    with pytest.raises(ScheduleError, match=text) as e:
        make()
    return e.value


def test_refusals(same_text):
    def refused(text, make):
        error = _refused(text, make)
        same_text(error)
        return error

    s = _tiled(4, 6, 5)
    refused("there is no buffer 'Q'", lambda: s.cache("Q", "j_o"))
    refused("nothing inside loop 'j_o' writes 'A'", lambda: s.cache("A", "j_o", mode="write"))
    refused("no dimension 'q'", lambda: s.cache("B", "j_o", layout=("k", "q")))
    refused("is no dimension of a layout", lambda: s.cache("B", "j_o", layout=("k", "j*2")))
    refused("several elements of dimension 'j'", lambda: s.cache("B", "j_o", layout=("k", "j//2")))
    refused("several elements of dimension 'k'", lambda: s.cache("B", "j_o", layout=("j",)))
    refused("does not fit buffer 'B'", lambda: s.cache("B", "j_o", pad=(4,)))
    refused("pad is for mode 'read'", lambda: s.cache("C", "j_o", mode="write", pad=(4, 4)))
    refused("taken or no identifier", lambda: s.cache("B", "j_o", name="A"))
    refused("divides by zero", lambda: s.cache("B", "j_o", layout=("k//0", "j")))
    error = refused("first defined inside", lambda: s.decompose_init("C", "k").cache("C", "k", mode="write"))
    assert error.marked
    refused("would race with other iterations of loop 'i_i'", _racing)


def _racing():
    """Every second element of a row is owned by each iteration of a parallel loop."""
    A = lang.placeholder((8,), name="A")
    k = lang.reduce_axis(3, "k")
    C = lang.compute((8,), lambda i: lang.sum(A[i] * 2, axis=k), name="C")
    s = Schedule(lang.program([A], [C])).split("i", 2).reorder("i_i", "i_o", "k").parallel("i_i")
    return s.decompose_init("C", "k").cache("C", "i_i", mode="accumulate")


def test_ranges_that_data_give_are_read_from_the_copy():
    func = parse_function("""
function("f", outputs=[C])
X = f32[16]
N = i32[4]
C = f32[4]
for i in range(4):
    with block("Z"):
        i = par(0, 4, i)
        C[i] = f32(0.0)
    for k in range(int(N[i])):
        with block("C"):
            i = par(0, 4, i)
            k = ord(0, int(N[i]), k)
            C[i] = C[i] + X[k]
""")
    s = Schedule(func).cache("N", "i")
    assert str(s.loop("k").hi) == "int(N_local[i])"
    given = {"X": np.arange(16, dtype=np.float32), "N": np.array([0, 3, 16, 5], np.int32)}
    np.testing.assert_array_equal(run_function(s.func, given)["C"], run_function(func, given)["C"])

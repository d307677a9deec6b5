"""Each feature of the emitter, by functions written out: the numbers, and where it matters the code."""

import re
from dataclasses import replace

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright.codegen import assembly, count_vector_spills, emit_kernel
from tilewright.ir import parse_function, run_function
from tilewright.lower import lower
from tilewright.support import ScheduleError, TargetError
from tilewright.target import X86_AVX512

RNG = np.random.default_rng(7)


def compiled(body, buffers, *, outputs="y", params="", bits=HOST.preferred_vector_bits):
    """A function of the given text."""
    return Native(parse_function(text_of(body, buffers, outputs, params)), bits)


def text_of(body, buffers, outputs="y", params=""):
    return f'function("f", outputs=[{outputs}])\n{params}{buffers}\n{body}'


def check(body, buffers, sizes=None, *, arrays=None, outputs="y", params="", bits=HOST.preferred_vector_bits):
    """Native code against the interpreter, which runs vector loops in order; returns the native kernel."""
    n = compiled(body, buffers, outputs=outputs, params=params, bits=bits)
    sizes = sizes or {}
    given = dict(arrays or {})
    for b in n.func.buffers:
        if b.name in n.func.outputs or b.name in given:
            continue
        shape = tuple(e.const + sum(c * sizes[a.name] for a, c in e.terms) for e in b.physical_shape)
        if b.dtype.is_float:
            given[b.name] = RNG.integers(-8, 9, shape).astype(b.dtype.numpy)
        else:
            given[b.name] = RNG.integers(0, 2 if b.dtype.kind == "bool" else 9, shape).astype(b.dtype.numpy)
    serial = parse_function(text_of(body.replace("vector(", "range("), buffers, outputs, params))
    want = run_function(serial, given, sizes)
    got = n(given, sizes)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    return n


def functions_of(n, prefix="f_tile"):
    return re.findall(rf"define internal void @({prefix}_\d+)", n.text.text)


@pytest.mark.parametrize("name", ['a"b\n', "memset", "tw_zeros", "9", "", "größe", "x" * 500])
def test_any_name_will_do(name):
    func = parse_function(text_of("for i in range(3):\n    y[i] = x[i]", "x = f32[3]\ny = f32[3]"))
    n = Native(replace(func, name=name))
    assert n({"x": np.ones(3, np.float32)})["y"].sum() == 3
    assert re.fullmatch(r"[A-Za-z_]\w{0,63}", n.text.symbol, re.ASCII)


# -- outlined functions --------------------------------------------------------------------------------------


def test_outlined_bodies_get_what_they_use_as_parameters():
    n = check(
        """
for i in range(5):
    for j in range(4, hints={"outline": ""}):
        y[i, j] = x[i, j] * s[i]
""",
        "x = f32[5, 4]\ns = f32[5]\ny = f32[5, 4]",
    )
    (name,) = functions_of(n)
    signature = re.search(rf"@{name}\((.*?)\) noinline", n.text.text).group(1)
    assert signature.count("ptr") == 3
    assert len(re.findall(rf"call void @{name}", n.text.text)) == 1


def test_equal_outlined_functions_are_written_once():
    n = check(
        """
with seq:
    for i in range(3):
        for j in range(4, hints={"outline": ""}):
            y[i, j] = x[i, j] + f32(1.0)
    for i2 in range(3):
        for j2 in range(4, hints={"outline": ""}):
            z[i2, j2] = y[i2, j2] + f32(1.0)
""",
        "x = f32[3, 4]\ny = f32[3, 4]\nz = f32[3, 4]",
        outputs="y, z",
    )
    assert len(functions_of(n)) == 1 and n.text.text.count("call void @f_tile_0") == 2


def test_an_outlined_loop_that_writes_outer_registers_stays_inline():
    n = check(
        """
acc = alloc(f32[4], scope="register")
for j in vector(4):
    acc[j] = f32(0.0)
for k in range(6, hints={"outline": ""}):
    for j2 in vector(4):
        acc[j2] = acc[j2] + x[k, j2]
for j3 in vector(4):
    y[j3] = acc[j3]
""",
        "x = f32[6, 4]\ny = f32[4]",
    )
    assert functions_of(n) == []


def test_memory_used_in_turns_is_kept_apart_within_an_outlined_function():
    n = check(
        """
for i in range(2, hints={"outline": ""}):
    with seq:
        with alloc(f32[16]) as a:
            for j in vector(16):
                a[j] = x[i, j] + f32(1.0)
            for j2 in vector(16):
                y[i, j2] = a[15 - j2]
        with alloc(f32[16]) as b:
            for j3 in vector(16):
                b[j3] = x[i, j3] * f32(2.0)
            for j4 in vector(16):
                z[i, j4] = b[15 - j4]
""",
        "x = f32[2, 16]\ny = f32[2, 16]\nz = f32[2, 16]",
        outputs="y, z",
    )
    assert n.text.memory.workspace == 128


# -- parallel loops ------------------------------------------------------------------------------------------


def test_parallel_bodies_capture_pointers_sizes_and_values():
    check(
        """
for i in parallel(n):
    for j in range(m):
        y[i, j] = x[i, j] + f32[m]
""",
        "x = f32[n, m]\ny = f32[n, m]",
        {"n": 7, "m": 5},
        params="n = param(1, 64)\nm = param(1, 64)\n",
    )


@pytest.mark.parametrize("n", [1, 4, 9, 11])
def test_parallel_loops_with_a_step_run_on_threads(n):
    made = check(
        """
for i in parallel(2, n + 2, step=4):
    for j in range(i, min(i + 4, n + 2)):
        y[j - 2] = x[j - 2] * f32(2.0)
""",
        "x = f32[n]\ny = f32[n]",
        {"n": n},
        params="n = param(1, 64)\n",
    )
    assert len(functions_of(made, "f_par")) == 1


def test_nested_parallel_loops_run_inside_one_thread():
    n = check(
        """
for i in parallel(3):
    for j in parallel(4):
        y[i, j] = x[i, j]
""",
        "x = f32[3, 4]\ny = f32[3, 4]",
    )
    assert len(functions_of(n, "f_par")) == 1


def test_storage_of_parallel_loops_is_scratch_and_of_others_workspace():
    n = check(
        """
with seq:
    t = alloc(f32[10])
    for i in range(10):
        t[i] = x[i] * f32(3.0)
    for i2 in parallel(10):
        u = alloc(f32[2])
        with seq:
            u[0] = t[i2]
            u[1] = t[9 - i2]
            y[i2] = u[0] - u[1]
""",
        "x = f32[10]\ny = f32[10]",
    )
    assert n.text.memory.workspace == 64 and n.text.memory.scratch == 64


def test_storage_of_symbolic_size_is_allocated_and_released():
    n = check(
        """
t = alloc(f32[n, 3])
for i in range(n):
    for j in range(3):
        t[i, j] = x[i] + f32[j]
for i2 in parallel(n):
    y[i2] = t[n - 1 - i2, 2]
""",
        "x = f32[n]\ny = f32[n]",
        {"n": 9},
        params="n = param(1, 64)\n",
    )
    assert n.text.memory.workspace == 0


def test_assumptions_are_checked_at_entry():
    func = parse_function(
        'function("f", outputs=[y])\nn = param(1, 64)\nx = f32[n]\ny = f32[n]\nassume(n - 4 >= 0)\n'
        "for i in range(n):\n    y[i] = x[i]"
    )
    n = Native(func)
    n({"x": np.ones(5, np.float32)}, {"n": 5})
    with pytest.raises(AssertionError, match="the kernel returned 1"):
        n({"x": np.ones(3, np.float32)}, {"n": 3})


# -- loops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 7, 8, 9])
def test_unrolled_loops_with_remainders_carry_registers(extent):
    check(
        f"""
acc = alloc(f32[1], scope="register")
acc[0] = f32(0.0)
for k in range({extent}, hints={{"unroll": "3"}}):
    acc[0] = acc[0] * f32(2.0) + x[k]
y[0] = acc[0]
""",
        f"x = f32[{extent}]\ny = f32[1]",
    )


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_symbolic_loops_unroll_with_a_remainder(n):
    check(
        """
acc = alloc(f32[1], scope="register")
acc[0] = f32(0.0)
for k in range(n, hints={"unroll": "3"}):
    acc[0] = acc[0] + x[k]
y[0] = acc[0]
""",
        "x = f32[n]\ny = f32[1]",
        {"n": n},
        params="n = param(1, 64)\n",
    )


@pytest.mark.few(20)
@pytest.mark.parametrize("extent", [1, 2, 3, 5, 15, 16, 17, 31, 40, 300])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u8", "i64", "bool"])
def test_vector_loops_have_masked_tails(extent, dtype):
    check(f"for i in vector({extent}):\n    y[i] = x[i]", f"x = {dtype}[{extent}]\ny = {dtype}[{extent}]")


@pytest.mark.parametrize("extent", [1, 9, 16, 17, 25, 33])
@pytest.mark.parametrize(("wide", "narrow"), [("i32", "u8"), ("i32", "i16"), ("i64", "i32")])
def test_tails_of_narrowed_numbers_leave_their_neighbours_alone(extent, wide, narrow):
    """The second row is stored before the end of the first: what is stored beyond that would be seen."""
    check(
        f"""
for i in vector({extent}):
    y[1, i] = cast(x[i], {narrow})
for i in vector({extent}):
    y[0, i] = cast(x[i], {narrow})
""",
        f"x = {wide}[{extent}]\ny = {narrow}[2, {extent}]",
    )


@pytest.mark.parametrize("n", [1, 15, 16, 33, 200])
def test_symbolic_vector_loops(n):
    check(
        "for i in vector(n):\n    y[i] = x[i] + a[0]",
        "x = f32[n]\na = f32[1]\ny = f32[n]",
        {"n": n},
        params="n = param(1, 1024)\n",
    )


def test_hardware_axes_are_refused():
    func = parse_function(
        'function("f", outputs=[y])\ny = f32[4]\nfor t in thread("thread.x", 4):\n    y[t] = f32(0.0)'
    )
    with pytest.raises(TargetError, match=r"loop t is bound to thread\.x"):
        emit_kernel(lower(func), triple=HOST.llvm_triple, vector_bits=512)


# -- accesses ------------------------------------------------------------------------------------------------


def test_invariant_accesses_are_broadcast_and_strided_ones_taken_apart():
    n = check(
        """
for j in vector(16):
    with seq:
        y[j] = x[3, 2] + x[j, 1]
        z[2*j] = x[15 - j, 0]
        z[2*j + 1] = f32(0.0)
""",
        "x = f32[16, 5]\ny = f32[16]\nz = f32[32]",
        outputs="y, z",
        bits=512,
    )
    text = n.text.text
    assert "masked.gather" not in text and "insertelement <16 x float>" in text
    assert "masked.scatter" in text and "shufflevector" in text


def test_contiguous_lanes_are_one_load():
    n = check("for j in vector(16):\n    y[j] = x[j + 3]", "x = f32[19]\ny = f32[16]", bits=512)
    assert "load <16 x float>" in n.text.text and "gather" not in n.text.text


def test_data_dependent_gathers_and_scatters():
    at = np.array([3, 0, 2, 2, 1, 0, 3, 1, 2], np.int64)
    check(
        "for i in vector(9):\n    y[i] = x[max(0, min(3, int(at[i])))]",
        "x = f32[4]\nat = i64[9]\ny = f32[9]",
        arrays={"at": at},
    )


def test_loads_behind_a_condition_are_not_made_elsewhere():
    # at both ends of x lie forbidden pages
    check(
        """
for i in vector(20):
    y[i] = select(i64[i] >= i64(3), select(i64[i] < i64(17), x[i - 3], f32(7.0)), f32(5.0))
""",
        "x = f32[14]\ny = f32[20]",
    )
    check(
        """
for i in range(20):
    y[i] = select((i64[i] >= i64(3)) & (i64[i] < i64(17)), x[i - 3], f32(5.0))
""",
        "x = f32[14]\ny = f32[20]",
    )


def test_a_guard_without_active_lanes_reads_nothing():
    # the last vector has no lane inside: x[3] does not exist
    check(
        """
for i in range(4):
    for j in vector(16):
        if 40 - 16*i - j >= 1:
            y[16*i + j] = x[i]
""",
        "x = f32[3]\ny = f32[40]",
    )


def test_stores_are_seen_by_later_loads_and_aliases():
    check(
        """
for i in range(6):
    with seq:
        y[0] = x[i]
        z[i] = y[0] + f32(1.0)
        y[0] = z[i] * f32(2.0)
        z[i] = z[i] + y[0]
""",
        "x = f32[6]\ny = f32[1]\nz = f32[6]",
        outputs="y, z",
    )


def test_layouts_are_applied_to_every_access():
    check(
        """
for i in range(5):
    for j in vector(32):
        y[i, j] = x[j, i]
""",
        "x = f32[32, 5]\ny = buffer(f32[5, 32], layout=index_map([d0, d1], [d1//16, d0, d1%16], [2, 5, 16]))",
        arrays={"x": RNG.standard_normal((32, 5)).astype(np.float32)},
    )


# -- registers -----------------------------------------------------------------------------------------------


def test_registers_are_seen_as_scalars_and_as_vectors_of_any_length():
    check(
        """
r = alloc(f32[2, 20], scope="register")
for i in unroll(2):
    for j in unroll(20):
        r[i, j] = x[i, j]
for k in range(3):
    for i2 in unroll(2):
        for j2 in vector(20):
            r[i2, j2] = r[i2, j2] + w[k, j2]
for i3 in vector(2):
    for j3 in unroll(20):
        y[i3, j3] = r[1 - i3, j3]
""",
        "x = f32[2, 20]\nw = f32[3, 20]\ny = f32[2, 20]",
    )


def test_unused_lanes_of_tails_stay_blank_and_used_ones_are_kept():
    n = check(
        """
r = alloc(f32[32], scope="register")
for j0 in vector(32):
    r[j0] = x[0, j0]
for k in range(4):
    for j2 in vector(20):
        r[j2] = r[j2] + x[k, j2]
for j5 in vector(32):
    y[j5] = r[j5]
""",
        "x = f32[4, 32]\ny = f32[32]",
        bits=512,
    )
    assert "select <16 x i1>" in n.text.text
    n = check(
        """
r = alloc(f32[32], scope="register")
for j0 in vector(20):
    r[j0] = x[0, j0]
for k in range(4):
    for j2 in vector(20):
        r[j2] = r[j2] + x[k, j2]
for j5 in vector(20):
    y[j5] = r[j5]
""",
        "x = f32[4, 32]\ny = f32[20]",
        bits=512,
    )
    assert "select <16 x i1>" not in n.text.text


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("first", [4, 16, 20])
def test_lanes_that_are_written_later_in_a_loop_are_kept(bits, first):
    check(
        """
r = alloc(f32[32], scope="register")
with seq:
    for j in vector(FIRST):
        r[j] = f32(0.0)
    for k in range(4):
        with seq:
            for j2 in vector(FIRST):
                r[j2] = r[j2] + x[k, j2]
            for j3 in vector(32):
                if 1 - k >= 0:
                    r[j3] = x[k, j3]
    for j5 in vector(32):
        y[j5] = r[j5]
""".replace("FIRST", str(first)),
        "x = f32[4, 32]\ny = f32[32]",
        bits=bits,
    )


def test_what_was_not_written_decides_no_branch():
    """A register that is written where ``k`` is small is asked there alone: ``and`` would ask it anyway."""
    n = check(
        """
for k in range(4):
    r = alloc(i32[1], scope="register")
    with seq:
        y[k] = i32(1)
        if 1 - k >= 0:
            r[0] = x[k]
        if 1 - k >= 0 and holds(r[0] != i32(0)):
            y[k] = i32(7)
""",
        "x = i32[4]\ny = i32[4]",
        arrays={"x": np.array([0, 3, 5, 0], np.int32)},
        outputs="y",
    )
    text = n.text.text
    assert "poison" in text and "i1 false" in text and " and i1" not in text


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_registers_that_only_some_turns_of_nested_loops_write_are_kept(bits):
    """Written in the first turn of both loops, in an inner loop of no known length, and under a condition."""
    check(
        """
r = alloc(f32[48], scope="register")
with seq:
    for k in range(3):
        for m in range(3):
            if 0 - k >= 0:
                if 0 - m >= 0:
                    for j in vector(16):
                        r[j] = x[k + m, j]
    for k2 in range(2):
        for m2 in range(1 - k2):
            for j2 in vector(16):
                r[j2 + 16] = x[k2, j2]
    for k3 in range(4):
        for j3 in vector(16):
            if holds(x[k3, j3] >= f32(8.0)):
                r[j3 + 32] = x[k3, j3]
    for j4 in vector(16):
        with seq:
            y[j4] = r[j4]
            y[j4 + 16] = r[j4 + 16]
            y[j4 + 32] = r[j4 + 32]
""",
        "x = f32[5, 16]\ny = f32[48]",
        arrays={"x": np.concatenate([np.full((1, 16), 8), RNG.integers(-8, 9, (4, 16))]).astype(np.float32)},
        bits=bits,
    )


def test_registers_written_on_one_side_of_a_branch():
    check(
        """
for i in range(4):
    r = alloc(f32[2], scope="register")
    with seq:
        r[0] = f32(1.0)
        if i - 2 >= 0:
            r[1] = x[i]
        y[i] = select(i64[i] >= i64(2), r[1], r[0])
""",
        "x = f32[4]\ny = f32[4]",
    )


def test_registers_at_run_time_addresses_are_refused():
    func = parse_function(
        """function("f", outputs=[y])
y = f32[4]
r = alloc(f32[4], scope="register")
for i in range(4):
    r[i] = f32(0.0)
for i2 in range(4):
    y[i2] = r[i2]
"""
    )
    with pytest.raises(
        ScheduleError, match="register buffer r is addressed by i, which are not constants"
    ) as e:
        emit_kernel(lower(func), triple=HOST.llvm_triple, vector_bits=512)
    assert "unroll or vectorize" in str(e.value)


# -- reductions ----------------------------------------------------------------------------------------------


@pytest.mark.few(18)
@pytest.mark.parametrize("extent", [3, 16, 17, 64, 100, 331])
@pytest.mark.parametrize("op", ["+", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8"])
def test_vector_reductions(extent, op, dtype):
    term = "y[0] + x[k]" if op == "+" else f"{op}(y[0], x[k])"
    check(
        f"with seq:\n    y[0] = {dtype}({3 if dtype == 'u8' else '-3.0' if dtype == 'f32' else -3})\n"
        f"    for k in vector({extent}):\n        y[0] = {term}",
        f"x = {dtype}[{extent}]\ny = {dtype}[1]",
    )


@pytest.mark.parametrize("at", [0, 5, 40, 99])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_of_lanes_keep_nan(op, at):
    x = RNG.standard_normal(100).astype(np.float32)
    x[at] = np.nan
    body = f"with seq:\n    y[0] = f32(0.5)\n    for k in vector(100):\n        y[0] = {op}(y[0], x[k])"
    assert np.isnan(compiled(body, "x = f32[100]\ny = f32[1]")({"x": x})["y"][0])


def test_vector_reductions_under_conditions():
    n = check(
        """
for i in range(6):
    with seq:
        y[i] = f32(0.0)
        for k in vector(37):
            if 5 - i - k >= 0:
                y[i] = y[i] + x[i, k] * w[k]
""",
        "x = f32[6, 37]\nw = f32[37]\ny = f32[6]",
    )
    assert "vector.reduce.fadd" in n.text.text


def test_a_vector_reduction_around_unrolled_results_moves_inside():
    n = check(
        """
with seq:
    for j in range(3):
        y[j] = f32(0.0)
    for k in vector(40):
        for j2 in unroll(3):
            y[j2] = y[j2] + x[k] * w[j2, k]
""",
        "x = f32[40]\nw = f32[3, 40]\ny = f32[3]",
    )
    assert n.text.text.count("call reassoc") == 3


def test_an_argmax_over_a_vector_loop_runs_one_by_one():
    check(
        """
with seq:
    y[0], at[0] = f32(-100.0), i32(0)
    for k in vector(21):
        y[0], at[0] = select(x[k] > y[0], x[k], y[0]), select(x[k] > y[0], i32[k], at[0])
""",
        "x = f32[21]\ny = f32[1]\nat = i32[1]",
        outputs="y, at",
    )


def test_storage_inside_a_vector_loop_is_each_iterations_own():
    check(
        """
for i in vector(20):
    t = alloc(f32[3])
    with seq:
        for k in range(3):
            t[k] = x[i, k] + f32(1.0)
        y[i] = t[0] * t[1] + t[2]
""",
        "x = f32[20, 3]\ny = f32[20]",
    )


def test_a_micro_kernel_is_multiply_adds_and_the_loads_it_needs():
    """4 rows x 2 vectors: a multiply-add each, one load a vector of b, one a row of a."""
    n = compiled(
        """
for t in range(1, hints={"outline": ""}):
    acc = alloc(f32[4, 32], scope="register")
    with seq:
        for i in unroll(4):
            for j in vector(32):
                acc[i, j] = f32(0.0)
        for k in range(64):
            for i2 in unroll(4):
                for j2 in vector(32):
                    acc[i2, j2] = acc[i2, j2] + a[i2, k] * b[k, j2]
        for i3 in unroll(4):
            for j3 in vector(32):
                y[i3, j3] = acc[i3, j3]
""",
        "a = f32[4, 64]\nb = f32[64, 32]\ny = f32[4, 32]",
        bits=512,
    )
    text = n.text.text
    loop = text[text.index("h:\n") :]
    loop = loop[: loop.index("br i1")]
    assert loop.count("@llvm.fma.v16f32") == 8
    assert len(re.findall(r"load <16 x float>", loop)) == 2
    assert len(re.findall(r"load float", loop)) == 4
    assert sum(count_vector_spills(assembly(text, X86_AVX512)).values()) == 0

"""inline, inline_stage, rfactor."""

from dataclasses import replace

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import CONST, F32, Compare, Const, If, Store, dtype_of, run_function, to_function
from tilewright.poly import check_legal
from tilewright.schedule import Schedule, replay
from tilewright.schedule.rewrite.skip_padding import conditions
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import arguments, assert_same, conv, gemm


def _chain():
    X = lang.placeholder((6, 4), name="X")
    T = lang.compute((4, 6), lambda i, j: X[j, i] * 2 + 1, name="T")
    k = lang.reduce_axis(6, "k")
    S = lang.compute((4,), lambda i: lang.sum(T[i, k] * T[i, 5 - k], axis=k), name="S")
    return lang.program([X], [S])


@pytest.mark.parametrize("phase", ["program", "loop"])
def test_a_definition_goes_into_the_operands_of_a_reduction(phase):
    p = _chain()
    s = Schedule(p).inline_stage("T") if phase == "program" else Schedule(p).inline("T")
    assert s.blocks() == ("S",)
    assert "T" not in s.buffers()
    assert_same(p, s.func)


def test_a_tiled_block_is_inlined_too():
    p = _chain()
    s = Schedule(p)
    loop = s.loops("T")[0]
    s = s.split(loop, 3, tail="peel").inline("T")
    assert s.blocks() == ("S",)
    assert_same(p, s.func)


@pytest.mark.parametrize("phase", ["inline", "inline_stage"])
def test_what_a_condition_and_both_choices_read_is_computed_once(phase):
    """Choices are made under masks of their own where what they load may not be there."""
    X, at = lang.placeholder((40,), name="X"), lang.placeholder((40,), "i32", name="at")
    T = lang.compute((40,), lambda i: lang.sqrt(X[lang.clamp(at[i], 0, 39)]), name="T")

    def run_of(value):
        Y = lang.compute((40,), lambda i: value(T[i], T[i], T[i]), name="Y")
        s = getattr(Schedule(lang.program([X, at], [Y])), phase)("T")
        return Native(s.vectorize(s.loops("Y")[-1]).func)

    run, once = run_of(lambda a, b, c: lang.select(a > 0.5, b * 2.0, -c)), run_of(lambda a, b, c: a * 2.0)
    for work in ("sqrt", "masked.gather"):
        calls = [
            sum("call" in line and work in line for line in each.text.text.splitlines())
            for each in (run, once)
        ]
        assert calls[0] == calls[1], work
    rng = np.random.default_rng(0)
    given = {"X": rng.uniform(0, 1, 40).astype(np.float32), "at": rng.integers(-5, 45, 40, dtype=np.int32)}
    root = np.sqrt(given["X"][np.clip(given["at"], 0, 39)])
    np.testing.assert_array_equal(run(given)["Y"], np.where(root > 0.5, root * 2, -root))


def test_a_guarded_definition_stays_guarded():
    X = lang.placeholder((5,), name="X")
    B = lang.boundary(X)
    P = lang.compute((7,), lambda i: B[i - 1], name="P")
    Y = lang.compute((5,), lambda i: P[i] + P[i + 2], name="Y")
    p = lang.program([X], [Y])
    assert_same(p, Schedule(p).inline("P").func)
    assert_same(p, Schedule(p).inline_stage("P").func)


def test_inlining_is_refused():
    p = gemm(3, 4, 5, epilogue=True)
    with pytest.raises(ScheduleError, match="'C' cannot be inlined: it is a reduction"):
        Schedule(p).inline("C")
    with pytest.raises(
        ScheduleError, match=r"storage_programs\.py.*'C' cannot be inlined: it is a reduction"
    ):
        Schedule(p).inline_stage("C")
    with pytest.raises(ScheduleError, match="an argument"):
        Schedule(p).inline("D")
    with pytest.raises(ScheduleError, match="no stage 'Q'"):
        Schedule(p).inline_stage("Q")


@pytest.mark.parametrize("part", ["outer", "inner"])
@pytest.mark.parametrize("k", [1, 4, 7, 8, 9])
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_partial_results(reduce, k, part):
    A = lang.placeholder((3, k), name="A")
    kk = lang.reduce_axis(k, "k")
    S = lang.compute((3,), lambda i: getattr(lang, reduce)(A[i, kk], axis=kk), name="S")
    p = lang.program([A], [S])
    s = Schedule(p).rfactor("S", "k", 4, part=part)
    assert [it.name for it in s.program.stage("S_rf").iters if it.kind == "par"] == (
        ["k_o", "i"] if part == "outer" else ["i", "k_i"]
    )
    assert_same(p, s.func)


def test_split_k_of_a_contraction():
    p = gemm(3, 4, 10)
    s = Schedule(p).rfactor("C", "k", 4, name="P")
    assert [str(n) for n in s.program.buffer("P").shape] == ["3", "3", "4"]
    s = s.parallel(s.loops("P")[0])
    assert_same(p, s.func)


def test_one_axis_of_several_with_a_condition():
    p = conv(2, 3, 4, 5)
    s = Schedule(p).rfactor("Y", "ic", 2).rfactor("Y_rf", "kw", 2, part="inner", name="Q")
    assert_same(p, s.func)
    n = lang.param("n")
    A = lang.placeholder((n, n), name="A")
    k = lang.reduce_axis(n, "k")
    T = lang.compute((n,), lambda i: lang.sum(A[i, k], axis=k, where=k <= i), name="T")
    q = lang.program([A], [T])
    s = Schedule(q).rfactor("T", "k", 4, part="inner")
    reference = to_function(q)
    arrays = arguments(reference, n=6)
    a, b = (run_function(f, arrays, {"n": 6}) for f in (reference, s.func))
    np.testing.assert_array_equal(a["T"], b["T"])


def _histogram(combine=lambda a, b: a + b):
    X = lang.placeholder((7, 9), "u8", name="X")
    Z = lang.compute((2, 16), lambda c, b: lang.const(1, "i32"), name="Z")
    y, x = lang.reduce_axis(7, "y"), lang.reduce_axis(9, "x")
    H = lang.update(
        Z,
        [lang.axis(2, "c"), y, x],
        lambda t, c, y, x: lang.write(
            (c, X[y, x] % 16), combine(t[c, X[y, x] % 16], lang.to_scalar(c + 2, "i32"))
        ),
        name="H",
    )
    return lang.program([X], [H])


@pytest.mark.parametrize("part", ["outer", "inner"])
@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
def test_updates_in_no_order_get_copies_for_threads(op, part):
    combine = {
        "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": lang.maximum, "min": lang.minimum,
    }[op]  # fmt: skip
    p = _histogram(combine)
    s = Schedule(p).rfactor("H_update", "y", 2, part=part)
    assert [st.name for st in s.program.stages] == ["H", "H_update_rf_start", "H_update_rf", "H_update"]
    assert_same(p, s.func)
    s = s.parallel(next(loop for loop in s.loops("H_update_rf") if loop.endswith(f"y_{part[0]}")))
    assert_same(p, s.func)


def test_updates_in_no_order_are_tiled():
    s = Schedule(_histogram())
    c, y, x = s.loops("H_update")
    t = s.split(y, 3).split(x, 4, names=["x_o", "x_i"])
    t = t.reorder("x_o", f"{y}_o", c, f"{y}_i", "x_i")
    assert check_legal(s.func, t.func) == []
    assert_same(s.require_program(), t.func)
    with pytest.raises(ScheduleError, match=r"(?s)runs the reduction iterator 'y'.*rfactor"):
        s.parallel(y)


def test_factoring_is_refused():
    s = Schedule(gemm(3, 4, 5, epilogue=True))
    with pytest.raises(ScheduleError, match="no reduction axis 'i'"):
        s.rfactor("C", "i", 2)
    with pytest.raises(ScheduleError, match="cannot be split by 0"):
        s.rfactor("C", "k", 0)
    with pytest.raises(ScheduleError, match="the name 'A' is taken"):
        s.rfactor("C", "k", 2, name="A")
    A = lang.placeholder((3, 4), name="A")
    k = lang.reduce_axis(4, "k")
    p = lang.program([A], [lang.compute((3,), lambda i: lang.argmax(A[i, k], axis=k), name="M")])
    (stage,) = p.stages
    swapped = replace(stage, body=Store(stage.body.writes[::-1]))
    with pytest.raises(ScheduleError, match="neither one running value nor an extremum with its place"):
        Schedule(replace(p, stages=(swapped,))).rfactor(stage.name, "k", 2)


@pytest.mark.parametrize(("fold", "dtype"), [(lang.argmax, "f32"), (lang.argmin, "f64"), (lang.argmin, "i8")])
@pytest.mark.parametrize("part", ["outer", "inner"])
def test_extrema_and_their_places_are_factored(fold, dtype, part):
    A = lang.placeholder((4, 11), dtype, name="A")
    k = lang.reduce_axis(11, "k")
    p = lang.program([A], [lang.compute((4,), lambda i: fold(A[i, k], axis=k), name="M")])
    s = Schedule(p).rfactor(p.stages[0].name, "k", 3, part=part)
    again = s.rfactor(p.stages[0].name, "k_o" if part == "outer" else "k_i", 2)
    given = np.random.default_rng(1).integers(0, 4, (4, 11)).astype(A.dtype.numpy)
    if A.dtype.is_float:
        given[1, [4, 7]] = np.nan
        given[2] = -np.inf if fold is lang.argmax else np.inf
    want = (np.argmax if fold is lang.argmax else np.argmin)(given, 1)
    for made in (s, again):
        (got,) = run_function(made.func, {"A": given}).values()
        np.testing.assert_array_equal(got, want)


def _padded_sum(stride=1, shift=1):
    """A sum over a window of two dimensions with padding in both."""
    X, W = lang.placeholder((5, 7), name="X"), lang.placeholder((3, 3), name="W")
    B = lang.boundary(X)
    P = lang.compute((7, 9), lambda i, j: B[i - shift, j - shift], name="P")
    a, b = lang.reduce_axis(3, "a"), lang.reduce_axis(3, "b")
    C = lang.compute(
        (5 // stride, 7 // stride),
        lambda i, j: lang.sum(P[stride * i + a, stride * j + b] * W[a, b], axis=(a, b)),
        name="C",
    )
    return lang.program([X, W], [C])


@pytest.mark.parametrize(("stride", "shift"), [(1, 1), (2, 1), (1, 0), (1, 2)])
@pytest.mark.parametrize("order", [(), (1, 0)])
def test_padding_is_stored(stride, shift, order):
    p = _padded_sum(stride, shift)
    s = Schedule(p).inline_stage("P").skip_padding("C").pad_operand("C", 0, "Q", order)
    assert not any(isinstance(x.body, If) for x in s.program.stages)
    shape = [n.as_int() for n in s.program.buffer("Q").shape]
    # what the window reaches
    assert shape == [stride * (5 // stride - 1) + 3, stride * (7 // stride - 1) + 3]
    assert [n.as_int() for n in s.program.buffer("Q").physical_shape] == [shape[d] for d in order or (0, 1)]
    assert_same(p, s.func)


def test_an_operand_without_padding_is_copied():
    p = gemm(3, 4, 5)
    s = Schedule(p).pad_operand("C", 1, "Q")
    assert "select" not in str(s)
    assert_same(p, s.func)


def test_padding_is_stored_in_blocks():
    p = _padded_sum()
    s = Schedule(p).inline_stage("P").skip_padding("C").pad_operand("C", 0, "Q", (1, 0), 7)
    assert [n.as_int() for n in s.program.buffer("Q").physical_shape] == [1, 9, 7]
    assert_same(p, s.func)
    s = Schedule(p).inline_stage("P").skip_padding("C").pad_operand("C", 0, "Q", (0, 1), 3)
    assert [n.as_int() for n in s.program.buffer("Q").physical_shape] == [3, 7, 3]
    assert_same(p, s.func)


@pytest.mark.few(12)
@pytest.mark.parametrize("steps", [(1, 1), (2, 2), (2, 3), (4, 1)])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("order", "block"), [((1, 2, 0), 3), ((0, 1, 2), 0), ((2, 0, 1), 0)])
def test_what_is_read_in_steps_is_stored_by_phases(order, block, flat, steps):
    down, across = steps
    X, W = lang.placeholder((3, 9, 10), name="X"), lang.placeholder((4, 3, 2, 3), name="W")
    c, r, q = (lang.reduce_axis(n, name) for n, name in ((3, "c"), (2, "r"), (3, "q")))
    lines, line = (9 - 2) // down + 1, (10 - 3) // across + 1

    def sums(n, y, x):
        return lang.sum(X[c, down * y + r, across * x + q] * W[n, c, r, q], (c, r, q))

    p = lang.program([X, W], [lang.compute((4, lines, line), sums, name="C")])
    s = Schedule(p).pad_operand("C", 0, "Q", order, block).split_phases("C", ["y", "x"])
    # phases that a tap meets, and lines that steps and the rest of the window reach
    phases = [min(2, down), min(3, across)]
    assert [n.as_int() for n in s.program.buffer("Q").shape] == [
        3, *phases, lines + 1 // down, line + 2 // across,
    ]  # fmt: skip
    assert_same(p, s.func)
    if flat:
        s = s.flatten_rows("C", "y", "x", 8, "R")
        assert_same(p, s.func)
        assert_same(p, replay(s.source, s.trace).func)


@pytest.mark.parametrize(("order", "block"), [((1, 2, 0), 3), ((2, 1, 0), 1)])
def test_short_lines_in_blocks_are_one(order, block):
    X, W = lang.placeholder((3, 5, 6), name="X"), lang.placeholder((4, 3, 2, 3), name="W")
    c, r, q = (lang.reduce_axis(n, name) for n, name in ((3, "c"), (2, "r"), (3, "q")))
    C = lang.compute(
        (4, 4, 4), lambda n, y, x: lang.sum(X[c, y + r, x + q] * W[n, c, r, q], (c, r, q)), name="C"
    )
    p = lang.program([X, W], [C])
    s = Schedule(p).pad_operand("C", 0, "Q", order, block).flatten_rows("C", "y", "x", 8, "R")
    shape = [n.as_int() for n in s.program.buffer("Q").physical_shape]
    assert shape == [3 // block, shape[1], block]
    assert_same(p, s.func)


@pytest.mark.parametrize("multiple", [1, 8, 64])
@pytest.mark.parametrize("consumed", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_short_lines_are_one(multiple, consumed, order):
    X, W = lang.placeholder((3, 5, 6), name="X"), lang.placeholder((4, 3, 2, 3), name="W")
    c, r, q = (lang.reduce_axis(n, name) for n, name in ((3, "c"), (2, "r"), (3, "q")))
    C = lang.compute(
        (4, 4, 4), lambda n, y, x: lang.sum(X[c, y + r, x + q] * W[n, c, r, q], (c, r, q)), name="C"
    )
    b = lang.placeholder((4,), name="b")
    outs = lang.compute((4, 4, 4), lambda n, y, x: lang.maximum(C[n, y, x], 0) + C[n, x, y] + b[n], name="D")
    p = lang.program([X, W, b] if consumed else [X, W], [outs if consumed else C])
    s = Schedule(p).pad_operand("C", 0, "Q", order).flatten_rows("C", "y", "x", multiple, "R")
    rows = [n.as_int() for n in s.program.buffer("R").shape]
    # three lines of six, of which four are results, and the last line
    assert rows == [4, -(-22 // multiple) * multiple]
    assert [n.as_int() for n in s.program.buffer("R").physical_shape] == rows[::-1]
    assert ("R_lines" in {x.name for x in s.program.stages}) != consumed
    assert_same(p, s.func)


def test_clone_stage_gives_one_reader_a_copy():
    X = lang.placeholder((9,), name="X")
    T, V = lang.compute((8,), lambda i: (X[i] + X[i + 1], X[i] * 2), name=["T", "V"])
    B = lang.compute((7,), lambda i: T[i] * V[i + 1], name="B")
    C = lang.compute((6,), lambda i: T[i + 2] - B[i] + V[i], name="C")
    p = lang.program([X], [C, T])
    s = Schedule(p).clone_stage("V", "C")
    assert [x.name for x in s.program.stages] == ["V", "V_C", "B", "C"]
    assert s.program.stage("V_C").writes == ("T_C", "V_C_1")
    assert {b.name for b in s.program.temps} == {"V", "B", "T_C", "V_C_1"}
    assert set(s.program.stage("B").reads) == {"T", "V"}
    assert_same(p, s.func)
    assert_same(p, s.compute_at("V_C", s.loops("C")[0]).func)


@pytest.mark.parametrize("dtype", ["i8", "u8", "u64"])
def test_indices_that_wrap_are_no_padding(dtype):
    """``u8[k - 3] >= 4`` holds of 0, too: such a comparison is none of indices."""
    X, k = lang.placeholder((140,), name="X"), lang.reduce_axis(140, "k")

    def term(i):
        at, most = (lang.to_scalar(x, dtype) for x in (k - 3, k * 0 + 4))
        return lang.sum(lang.select(at >= most, X[k], 0.0), axis=k)

    p = lang.program([X], [lang.compute((1,), term, name="Y")])
    with pytest.raises(ScheduleError, match="no term that padding makes neutral"):
        Schedule(p).skip_padding("Y")
    arrays = arguments(to_function(p))
    expected = run_function(to_function(p), arrays)["Y"]
    wanted = arrays["X"][np.arange(-3, 137).astype(dtype_of(dtype).numpy) >= 4].sum()
    np.testing.assert_array_equal(expected, [wanted])
    for judged in ("list", "isl"):
        assert not check_legal(to_function(p), Schedule(p).split("k", 7).func, mode=judged)


def test_numbers_are_no_indices():
    """A comparison that is the same everywhere."""
    assert conditions(Compare("lt", Const(0.5, F32), Const(0.75, F32))) is None


def test_strassen_takes_panels_of_a_height_that_divides_half_of_the_rows():
    A, B = lang.placeholder((8, 6), name="A"), lang.placeholder((6, 8), name="B")
    program = lang.program([A, B], [lang.ops.matmul(A, B, name="C")])
    constant = replace(program, inputs=(program.inputs[0], program.inputs[1].with_(scope=CONST)))
    s = Schedule(constant).strassen("C", 1, "Q", 2)
    assert len(s.program.stages) > len(program.stages)


def test_pieces_in_panels_of_one_column():
    A, B = lang.placeholder((3, 4), name="A"), lang.placeholder((4, 5), name="B")
    s = Schedule(lang.program([A, B], [lang.ops.matmul(A, B, name="C")])).bf16x3("C", "", (1, 2))
    (factors,) = (b for b in s.program.temps if b.name == "C_factors")
    assert [n.as_int() for n in factors.physical_shape][:1] == [5]


def test_a_copied_sum_starts_itself():
    X = lang.placeholder((5, 4), name="X")
    k = lang.reduce_axis(4, "k")
    T = lang.compute((5,), lambda i: lang.sum(X[i, k], axis=k), name="T")
    B = lang.compute((5,), lambda i: T[i] + 1, name="B")
    C = lang.compute((5,), lambda i: T[i] * B[i], name="C")
    p = lang.program([X], [C])
    s = Schedule(p).clone_stage("T", "C")
    assert [w.buffer for w in s.program.stage("T_C").init.writes] == ["T_C"]
    assert [w.buffer for w in s.program.stage("T").init.writes] == ["T"]
    assert_same(p, s.func)


def test_a_copied_scan_reads_itself():
    X = lang.placeholder((6,), "i32", name="X")
    T = lang.scan((6,), lambda t, i: lang.select(i >= 1, t[i - 1], 0) + X[i], name="T", dtype="i32")
    B = lang.compute((6,), lambda i: T[i] + 1, name="B")
    C = lang.compute((6,), lambda i: T[i] - B[i], name="C")
    p = lang.program([X], [C])
    s = Schedule(p).clone_stage("T", "C")
    assert "T" not in {ld.buffer for ld in s.program.stage("T_C").operands}
    assert_same(p, s.func)

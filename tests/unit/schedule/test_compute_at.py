"""compute_at, reverse_compute_at: tiles of producers and consumers, at sizes that leave tails."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import buffers_of, parse_function, run_function
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import assert_same, blur, conv, gemm, stencil

SIZES = [1, 3, 4, 5, 8, 9]


# `shift` needs a whole tile
@pytest.mark.parametrize(
    ("n", "tail"),
    [(n, tail) for n in SIZES for tail in ("guard", "mask", "shift") if tail != "shift" or n >= 4],
)
def test_producer_in_a_tile_of_its_consumer(n, tail):
    p = blur(n)
    s = Schedule(p).split("C_i", 4, tail=tail).compute_at("T", "C_i_o")
    assert_same(p, s.func)
    size = buffers_of(s.func)["T"].physical_shape[0]
    assert size.as_int() <= 6


@pytest.mark.parametrize("n", SIZES)
def test_producer_around_a_peeled_consumer(n):
    p = stencil(3, n)
    s = Schedule(p).split("C_x", 4, tail="peel").compute_at("T", "C_y")
    assert_same(p, s.func)
    assert buffers_of(s.func)["T"].physical_shape[0].as_int() == 3


@pytest.mark.parametrize(("h", "w"), [(1, 1), (2, 7), (4, 5), (7, 9)])
def test_overlapping_tiles_of_symbolic_size(h, w):
    p = stencil(lang.param("H"), lang.param("W"))
    s = Schedule(p).tile(["C_y", "C_x"], [3, 4]).compute_at("T", "C_x_o").parallel("C_y_o")
    assert [n.as_int() for n in buffers_of(s.func)["T"].physical_shape] == [5, 6]
    assert_same(p, s.func, H=h, W=w)


def test_producer_in_a_fused_loop():
    p = stencil(6, 8)
    s = Schedule(p).tile(["C_y", "C_x"], [3, 4]).fuse("C_y_o", "C_x_o", names=("t",))
    s = s.parallel("t").compute_at("T", "t")
    assert_same(p, s.func)


def test_producer_in_the_reduction_of_its_consumer():
    A = lang.placeholder((5, 7), name="A")
    B = lang.placeholder((7, 6), name="B")
    E = lang.compute((7, 6), lambda k, j: B[k, j] * 2 + 1, name="E")
    kk = lang.reduce_axis(7, "k")
    C = lang.compute((5, 6), lambda i, j: lang.sum(A[i, kk] * E[kk, j], axis=kk), name="C")
    p = lang.program([A, B], [C])
    s = Schedule(p)
    i, j, k = s.loops("C")
    s = s.split(k, 3).reorder(f"{k}_o", i, j, f"{k}_i").compute_at("E", f"{k}_o")
    assert_same(p, s.func)
    assert [str(n) for n in buffers_of(s.func)["E"].physical_shape] == ["3", "6"]


def test_a_decomposed_producer_moves_with_its_initialisation():
    p = stencil(4, 5)
    s = Schedule(p).decompose_init("T", "r").split("C_y", 2).compute_at("T", "C_y_o")
    assert_same(p, s.func)


def test_a_chain_of_producers():
    X = lang.placeholder((9,), name="X")
    T = lang.compute((8,), lambda i: X[i] + X[i + 1], name="T")
    U = lang.compute((7,), lambda i: T[i] * T[i + 1], name="U")
    V = lang.compute((5,), lambda i: U[i] - U[i + 2], name="V")
    p = lang.program([X], [V])
    s = Schedule(p)
    s = s.split(s.loops("V")[0], 2)
    at = s.loops("V")[0]
    s = s.compute_at("U", at).compute_at("T", at)
    assert_same(p, s.func)
    inner = Schedule(p).split(Schedule(p).loops("V")[0], 2)
    inner = inner.compute_at("U", at).compute_at("T", "U_i")
    assert_same(p, inner.func)
    assert buffers_of(inner.func)["T"].physical_shape[0].as_int() == 2


def test_kept_storage_stays_outside():
    p = blur(8, taps=1)
    s = Schedule(p).split("C_i", 4).parallel("C_i_o").compute_at("T", "C_i_o", keep_storage=True)
    assert_same(p, s.func)
    assert buffers_of(s.func)["T"].layout is None


def test_kept_storage_refuses_overlap_in_parallel_loops():
    s = Schedule(blur(8)).split("C_i", 4).parallel("C_i_o")
    with pytest.raises(ScheduleError, match="'C_i_o' compute overlapping parts of 'T'") as e:
        s.compute_at("T", "C_i_o", keep_storage=True)
    assert ">>" in str(e.value)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (4, 6, 3), (7, 13, 5)])
def test_epilogue_in_the_tile_of_a_contraction(m, n, k):
    p = gemm(m, n, k, epilogue=True)
    s = Schedule(p).split("i", 4).split("j", 6)
    o = [v for v in s.loops("C") if not v.endswith("_i") and v != "k"]
    s = s.reorder(*o, "k", *[v for v in s.loops("C") if v.endswith("_i")])
    s = s.reverse_compute_at("D", o[-1])
    assert_same(p, s.func)
    assert len(buffers_of(s.func)["C"].physical_shape) == 2
    kept = Schedule(p).reverse_compute_at("D", "i", keep_storage=True)
    assert_same(p, kept.func)
    assert buffers_of(kept.func)["C"].layout is None


def test_two_epilogues_after_one_another():
    A = lang.placeholder((5, 7), name="A")
    k = lang.reduce_axis(7, "k")
    S = lang.compute((5,), lambda i: lang.sum(A[i, k], axis=k), name="S")
    U = lang.compute((5,), lambda i: S[i] + 1, name="U")
    V = lang.compute((5,), lambda i: U[i] * S[i], name="V")
    p = lang.program([A], [V])
    s = Schedule(p).split("i", 2).reverse_compute_at("U", "i_o").reverse_compute_at("V", "i_o")
    assert_same(p, s.func)
    assert {str(b.physical_shape[0]) for n, b in buffers_of(s.func).items() if n in "SU"} == {"2"}


def test_a_row_reduction_follows_its_operand():
    A = lang.placeholder((4, 6), name="A")
    E = lang.compute((4, 6), lambda i, j: A[i, j] * 2, name="E")
    j = lang.reduce_axis(6, "j")
    S = lang.compute((4,), lambda i: lang.sum(E[i, j], axis=j), name="S")
    p = lang.program([A], [S])
    s = Schedule(p).reverse_compute_at("S", "i")
    assert_same(p, s.func)
    running = Schedule(p).reverse_compute_at("S", "j")
    assert_same(p, running.func)
    with pytest.raises(ScheduleError, match="reduces over 'j', which is no serial loop"):
        Schedule(p).parallel("j").reverse_compute_at("S", "j")


def _pair():
    """T and U from X, V from U alone."""
    X = lang.placeholder((4,), name="X")
    T = lang.compute((4,), lambda i: X[i] + 1, name="T")
    U = lang.compute((4,), lambda i: X[i] + 2, name="U")
    V = lang.compute((4,), lambda i: U[i] * 2, name="V")
    s = Schedule(lang.program([X], [T, V]))
    return s.split(s.loops("T")[0], 2, names=("T_i", "q"))


def _refused(text, make):
    with pytest.raises(ScheduleError, match=text) as caught:
        make()
    return caught.value


@pytest.mark.parametrize("n", [6, 7, 8])
def test_a_border_past_the_buffer_needs_no_producer(n):
    # the box that tiles read begins at -1, where a condition keeps them from reading
    X = lang.placeholder((n,), name="X")
    T = lang.compute((n,), lambda i: X[i] * 2, name="T")
    P, k = lang.boundary(T, value=0), lang.reduce_axis(3, "k")
    C = lang.compute((n // 2,), lambda i: lang.sum(P[2 * i + k - 1], axis=k), name="C")
    D = lang.compute((n // 2,), lambda i: C[i] + 1, name="D")
    p = lang.program([X], [D])
    s = Schedule(p).skip_padding("C").split("D_i", n // 2, names=["all", "inside"])
    s = s.compute_at("C", "all").compute_at("T", "all").split("inside", 2, names=["tile", "lane"])
    assert_same(p, s.compute_at("C", "tile").func)


def test_refusals(same_text):
    def refused(text, make):
        same_text(_refused(text, make))

    p = gemm(4, 6, 5, epilogue=True)
    s = Schedule(p)
    refused("argument of the function", lambda: s.compute_at("D", "i"))
    refused("there is no block 'Q'", lambda: s.compute_at("Q", "i"))
    refused("there is no loop 'q'", lambda: s.compute_at("C", "q"))
    refused("not final there", lambda: s.reorder("k", "i", "j").reverse_compute_at("D", "j"))
    refused("is computed before loop", lambda: s.reverse_compute_at("C", s.loops("D")[0]))
    refused("nothing that 'V' reads", lambda: _pair().reverse_compute_at("V", "T_i"))
    b = Schedule(blur(8))
    refused(
        "is also read outside",
        lambda: b.partition("C_i", 3).compute_at("T", b.partition("C_i", 3).loops("C")[0]),
    )
    refused("already", lambda: b.compute_at("T", "C_i").compute_at("T", "C_i"))


@pytest.mark.parametrize("o", [3, 8])
def test_an_epilogue_follows_its_operand_into_a_blocked_layout(o):
    p = conv(o, 2, 3, 4)
    s = Schedule(p).layout_split("Y", 0, (-1, 4)).layout_reorder("Y", (0, 2, 3, 1))
    s = s.reverse_compute_at("Z", s.loops("Y")[0])
    assert_same(p, s.func)
    assert [str(n) for n in buffers_of(s.func)["Y"].physical_shape] == ["1", "3", "4", "4"]


@pytest.mark.parametrize("o", [3, 8])
def test_an_operand_in_a_blocked_layout_follows_its_reader(o):
    p = conv(o, 2, 3, 4)
    q = Schedule(p).layout_split("Y", 0, (-1, 4))
    q = q.split(q.loops("Z")[0], 4)
    q = q.compute_at("Y", q.loops("Z")[0])
    assert_same(p, q.func)
    assert [str(n) for n in buffers_of(q.func)["Y"].physical_shape] == ["1", str(min(o, 4)), "3", "4"]


@pytest.mark.parametrize(("o", "h", "w"), [(1, 1, 1), (5, 4, 7), (8, 6, 6)])
def test_padding_convolution_bias_and_relu_in_one_tile(o, h, w):
    """The padded input is computed, and the epilogue follows, at the tile loop of the convolution."""
    X, W = lang.placeholder((2, h, w), name="X"), lang.placeholder((o, 2, 3, 3), name="W")
    b, B = lang.placeholder((o,), name="b"), lang.boundary(X)
    P = lang.compute((2, h + 2, w + 2), lambda c, y, x: B[c, y - 1, x - 1], name="P")
    c, r, s = lang.reduce_axis(2, "c"), lang.reduce_axis(3, "r"), lang.reduce_axis(3, "s")
    Y = lang.compute(
        (o, h, w), lambda o, y, x: lang.sum(P[c, y + r, x + s] * W[o, c, r, s], axis=(c, r, s)), name="Y"
    )
    Z = lang.compute((o, h, w), lambda o, y, x: lang.relu(Y[o, y, x] + b[o]), name="Z")
    p = lang.program([X, W, b], [Z])
    t = Schedule(p)
    o_, y_, x_ = t.loops("Y")[:3]
    t = t.split(o_, 4, tail="mask").split(y_, 2, tail="mask").split(x_, 3, tail="mask")
    outer = (f"{o_}_o", f"{y_}_o", f"{x_}_o")
    inner = tuple(v for v in t.loops("Y") if v not in outer)
    t = t.reorder(*outer, *inner[-3:], *inner[:3]).parallel(outer[0])
    t = t.reverse_compute_at("Z", outer[2]).compute_at("P", outer[2])
    t = t.cache("W", outer[0], layout=("c", "r", "s", "o"), name="Wp", pad=(4, 1, 1, 1))
    t = t.set_scope("Y", "register")
    assert_same(p, t.func)
    found = buffers_of(t.func)
    assert all(n.is_const for name in ("P", "Y", "Wp") for n in found[name].physical_shape)
    assert found["Y"].physical_shape[0].as_int() == min(o, 4)


def test_chains_of_clamped_windows_have_tight_boxes():
    """Windows that borders cut, stage after stage: boxes grow by the windows, and no index grows at all."""
    count, n = 24, 512

    def at(i):
        return lang.clamp(i, 0, n - 1)

    X = made = lang.placeholder((n, 8), name="X")
    for k in range(count):
        made = lang.compute(
            (n, 8), lambda i, j, P=made: P[at(i - 2), j] + P[at(i), j] + P[at(i + 2), j], name=f"S{k}"
        )
    s = Schedule(lang.program([X], [made])).split(f"S{count - 1}_i", 8)
    for k in reversed(range(count - 1)):
        s = s.compute_at(f"S{k}", f"S{count - 1}_i_o")
    found = buffers_of(s.func)
    held = {f"S{k}": found[f"S{k}"].physical_shape[0].as_int() for k in range(count - 1)}
    assert held == {f"S{k}": 8 + 4 * (count - 1 - k) for k in range(count - 1)}
    assert max(len(str(i)) for name in s.blocks() for i in s.block(name).bind) < 80


def updated(rows=6, columns=9):
    """Counts of what is in each row, on top of its first elements; then halved, in order."""
    X = lang.placeholder((rows, columns), "i32", name="X")
    T = lang.compute((rows, columns), lambda y, x: X[y, x] + 1, name="T")
    H = lang.compute((rows, 4), lambda y, b: T[y, b], name="H")

    def count(t, y, x):
        b = lang.clamp(T[y, x], 0, 3)
        return lang.write((y, b), t[y, b] + 1)

    H = lang.update(H, [lang.axis(rows, "y"), lang.reduce_axis(columns, "x")], count)
    H = lang.update(
        H,
        [lang.axis(rows, "y"), lang.ordered_axis(4, "b")],
        lambda t, y, b: t[y, b] + t[y, lang.maximum(b - 1, 0)] // 2,
    )
    return lang.program([X], [H])


@pytest.mark.parametrize(("loop", "strip"), [("y", 1), ("y_o", 2), ("y_o", 4)])
@pytest.mark.parametrize("parallel", [False, True])
def test_updates_follow_their_operand_with_what_they_start_from(loop, strip, parallel):
    p = updated()
    s = Schedule(p)
    s = s.split("y", strip) if loop == "y_o" else s
    *_, last = s.blocks()
    s = s.reverse_compute_at(last, loop)
    assert [len(s.loops(b)) > 1 and s.loops(b)[0] for b in s.blocks()] == [loop] * 4
    assert_same(p, (s.parallel(loop) if parallel else s).func)


def test_updates_that_are_followed_by_others_move_alone():
    p = updated()
    s = Schedule(p)
    t, base, first, last = s.blocks()
    s = s.reverse_compute_at(first, "y")
    assert [s.loops(b)[0] for b in (t, base, first)] == ["y"] * 3
    assert s.loops(last)[0] != "y"
    assert_same(p, s.func)


def test_a_decomposed_reduction_follows_with_its_initialisation():
    X, W = lang.placeholder((5, 7), name="X"), lang.placeholder((7, 3), name="W")
    T = lang.compute((5, 7), lambda i, k: X[i, k] + 1, name="T")
    k = lang.reduce_axis(7, "k")
    p = lang.program(
        [X, W], [lang.compute((5, 3), lambda i, j: lang.sum(T[i, k] * W[k, j], axis=k), name="C")]
    )
    s = Schedule(p)
    loops = s.loops("C")
    s = s.decompose_init("C", loops[-1]).reverse_compute_at("C", "i")
    assert [s.loops(b)[0] for b in s.blocks()] == ["i"] * 3
    assert_same(p, s.func)


@pytest.mark.parametrize("columns", [20, 22])
def test_a_consumer_in_parts_follows_as_a_whole(columns):
    """Full parts and tails of strips of columns, under the strips' loop, which is around both places."""
    X = lang.placeholder((3, columns), name="X")
    R = lang.compute((3,), lambda y: X[y, 0] + 1, name="R")
    p = lang.program([X], [lang.compute((3, columns), lambda y, x: R[y] * X[y, x], name="C")])
    s = Schedule(p).split("x", 10).reorder("x_o", "C_y").compute_at("R", "x_o")
    s = s.split("x_i", 4, tail="peel")
    assert s.blocks() == ("R", "C", "C_t")
    s = s.reverse_compute_at("C", "R_y")
    assert s.blocks() == ("R", "C") and s.loops("C") == ("x_o", "R_y", "C_y", "C_x")
    assert_same(p, s.func)


@pytest.mark.parametrize(
    ("axis", "loop", "message"),
    [
        (0, "y", "changes S in order, along 'y'"),
        (1, "x", "changes S in order, along 'x'"),
    ],
)
def test_an_order_is_not_followed_along_itself(axis, loop, message):
    X = lang.placeholder((4, 6), name="X")
    T = lang.compute((4, 6), lambda y, x: X[y, x] + 1, name="T")
    S = lang.scan(
        (4, 6),
        lambda s, y, x: lang.select([y, x][axis] == 0, 0.0, s[y - (1 - axis), x - axis]) + T[y, x],
        axis=axis,
        name="S",
    )
    with pytest.raises(ScheduleError, match=message):
        Schedule(lang.program([X], [S])).reverse_compute_at("S", loop)


def test_a_consumer_written_as_an_opaque_block_needs_a_tile():
    p = stencil(6, 9)
    s = Schedule(p)
    _, x, r, _ = s.loops("C")
    s = s.decompose_init("C", r).blockize(r).compute_at("T", x)
    assert [str(n) for n in buffers_of(s.func)["T"].physical_shape] == ["3", "3"]
    assert_same(p, s.func)


def test_a_consumer_that_changes_what_was_there_before_may_move():
    """Where ``C`` starts stands before the loops that are joined."""
    func = parse_function("""
function("f", outputs=[C])
X = f32[8]
C = f32[8]
S = alloc(f32[8])
for z in range(8):
    with block("Z"):
        i = par(0, 8, z)
        C[i] = f32(1.0)
for i in range(8):
    with block("S"):
        i = par(0, 8, i)
        S[i] = X[i] * f32(2.0)
for j in range(8):
    with block("C"):
        i = par(0, 8, j)
        C[i] = C[i] + S[i]
""")
    s = Schedule(func).reverse_compute_at("C", "i")
    assert s.loops("C")[0] == "i"
    given = {"X": np.arange(8, dtype=np.float32)}
    np.testing.assert_array_equal(run_function(s.func, given)["C"], 1 + 2 * given["X"])


def test_a_producer_under_the_same_condition_may_move():
    func = parse_function("""
function("f", outputs=[C])
X = f32[8]
C = f32[8]
T = alloc(f32[8])
for q in range(2):
    if 1 - q >= 0:
        for h in range(4):
            with block("T"):
                i = par(0, 8, 4*q + h)
                T[i] = X[i] + f32(1.0)
        for j in range(4):
            with block("C"):
                i = par(0, 8, 4*q + j)
                C[i] = T[i] * f32(2.0)
""")
    s = Schedule(func).compute_at("T", "j")
    given = {"X": np.arange(8, dtype=np.float32)}
    np.testing.assert_array_equal(run_function(s.func, given)["C"], 2 * given["X"] + 2)


@pytest.mark.parametrize("parallel", [False, True])
def test_all_of_an_operand_keeps_its_layout(parallel):
    """Each iteration has the whole operand, stored as before: a copy a thread, where the loop is parallel."""
    a, w = lang.placeholder((8, 6), name="A"), lang.placeholder((6, 4), name="W")
    p = lang.compute((6, 4), lambda k, j: w[k, j] * 2, name="P")
    k = lang.reduce_axis(6, "k")
    c = lang.compute((8, 4), lambda i, j: lang.sum(a[i, k] * p[k, j], axis=k), name="C")
    program = lang.program([a, w], [c])
    s = Schedule(program).set_layout("P", ("d1", "d0")).split("i", 4)
    s = s.parallel("i_o") if parallel else s
    s = s.compute_at("P", "i_o")
    stored = buffers_of(s.func)["P"]
    assert [str(e) for e in stored.physical_shape] == ["4", "6"]
    assert s.loops("P")[0] == "i_o"
    assert_same(program, s.func)
    with pytest.raises(ScheduleError, match="has a layout of its own, which a tile cannot keep"):
        Schedule(program).set_layout("P", ("d1", "d0")).reorder("C_j", "i").compute_at("P", "C_j")

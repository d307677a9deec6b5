"""The reference interpreter: right results, and one test a kind of error."""

import re

import numpy as np
import pytest

from tilewright.ir import (
    BF16,
    DTYPES,
    F32,
    F64,
    I8,
    I32,
    I64,
    LOCAL,
    PARALLEL,
    SERIAL,
    SHARED,
    UNROLL,
    VECTOR,
    ZERO,
    Access,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    DivergenceError,
    DomainError,
    Exec,
    ExecutionError,
    For,
    If,
    IndexMap,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Opaque,
    OutOfBoundsError,
    Param,
    PoisonError,
    Program,
    RaceError,
    RepeatedInstanceError,
    Select,
    Stage,
    Store,
    UndefinedError,
    Window,
    buffer,
    floordiv,
    ge0,
    imax,
    imin,
    index,
    mod,
    run_function,
    run_program,
    seq,
    store,
    thread,
    to_function,
    var,
)
from tilewright.support import InputError

i, j, k, t, io, ii = (var(n) for n in ("i", "j", "k", "t", "io", "ii"))


def par(name, extent):
    return Iter(name, ZERO, index(extent), "par")


def red(name, extent):
    return Iter(name, ZERO, index(extent), "red")


def loop(name, extent, body, kind=SERIAL, **more):
    return For(name, ZERO, index(extent), body, kind, **more)


def function(body, *buffers, out=("y",), params=(), assumes=()):
    return LoopFunction("f", params, buffers, out, body, assumes)


def matmul(M, N, K, dtype):
    c = Load("C", (i, j), dtype)
    product = Binary("mul", Load("A", (i, k), dtype), Load("B", (k, j), dtype))
    stage = Stage(
        "C",
        (par("i", M), par("j", N), red("k", K)),
        store("C", (i, j), Binary("add", c, product)),
        store("C", (i, j), Const(0, dtype)),
    )
    inputs = (buffer("A", (M, K), dtype), buffer("B", (K, N), dtype))
    return Program("matmul", (), inputs, (buffer("C", (M, N), dtype),), (), (stage,))


def copy_block(n, source=None, name="copy", bind=i, where=()):
    value = Load("x", (source if source is not None else i,), F32)
    return Block(name, "copy", (par("i", n),), (bind,), store("y", (i,), value), None, where)


X, Y = buffer("x", (8,), F32), buffer("y", (8,), F32)
EIGHT = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.name != "bool" and not d.small], ids=str)
def test_matmul_of_small_integers_is_exact_in_every_type(dtype):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, (3, 5)).astype(dtype.numpy)
    b = rng.integers(0, 4, (5, 4)).astype(dtype.numpy)
    c = run_program(matmul(3, 4, 5, dtype), {"A": a, "B": b})["C"]
    assert c.dtype == dtype.numpy
    np.testing.assert_array_equal(c.astype(np.int64), a.astype(np.int64) @ b.astype(np.int64))


def test_sums_round_after_every_operation():
    a = np.full((1, 3), 1, BF16.numpy)
    b = np.array([[256], [1], [1]], BF16.numpy)
    # 256 + 1 is a tie in bf16 and goes to 256 each time
    assert float(run_program(matmul(1, 1, 3, BF16), {"A": a, "B": b})["C"][0, 0]) == 256


def test_integers_wrap():
    a, b = np.array([[100, 100]], np.int8), np.array([[1], [1]], np.int8)
    assert run_program(matmul(1, 1, 2, I8), {"A": a, "B": b})["C"][0, 0] == -56


def test_outputs_are_written_in_place_and_shape_parameters_are_read_off():
    n = Param("n", 1, 100)
    body = loop("i", n, copy_block(n))
    f = function(body, buffer("x", (n,), F32), buffer("y", (n,), F32), params=(n,))
    out = np.zeros(5, np.float32)
    result = run_function(f, {"x": np.arange(5, dtype=np.float32), "y": out})
    assert result["y"] is out
    assert out.tolist() == [0, 1, 2, 3, 4]


def test_where_guards_a_tail():
    block = copy_block(7, bind=io * 4 + ii, where=(ge0(6 - io * 4 - ii),))
    f = function(
        loop("io", 2, loop("ii", 4, block, VECTOR), PARALLEL), buffer("x", (7,), F32), buffer("y", (7,), F32)
    )
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(run_function(f, {"x": x})["y"], x)


def test_an_instance_outside_of_its_domain_is_an_error():
    f = function(loop("io", 2, loop("ii", 5, copy_block(8, bind=io * 5 + ii))), X, Y)
    with pytest.raises(DomainError, match=r"iterator i = 8 lies outside of its domain \[0, 8\)") as error:
        run_function(f, {"x": EIGHT})
    assert "block copy(i=8) in loops io=1, ii=3" in str(error.value)


def test_an_access_outside_of_the_shape_names_buffer_and_indices():
    with pytest.raises(
        OutOfBoundsError, match=re.escape("access to x[8] outside of its storage: its shape is [8]")
    ):
        run_function(function(loop("i", 8, copy_block(8, i + 1)), X, Y), {"x": EIGHT})


def test_a_negative_index_does_not_wrap_around():
    with pytest.raises(OutOfBoundsError, match=re.escape("x[-1]")):
        run_function(function(loop("i", 8, copy_block(8, i - 1)), X, Y), {"x": EIGHT})


def test_select_is_lazy():
    inside = Compare("gt", OfIndex(i, I32), Const(0, I32))
    value = Select(inside, Load("x", (i - 1,), F32), Const(0.0, F32))
    block = Block("b", "b", (par("i", 8),), (i,), store("y", (i,), value))
    assert run_function(function(loop("i", 8, block), X, Y), {"x": EIGHT})["y"].tolist() == [
        0,
        0,
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_the_halo_may_be_read():
    x = Buffer("x", (index(6),), F32, halo=((1, 1),))
    block = Block("b", "b", (par("i", 7),), (i,), store("y", (i,), Load("x", (i - 1,), F32)))
    f = function(loop("i", 7, block), x, buffer("y", (7,), F32))
    np.testing.assert_array_equal(run_function(f, {"x": EIGHT})["y"], EIGHT[:7])
    with pytest.raises(PoisonError):  # given without its halo
        run_function(f, {"x": EIGHT[:6]})


def test_layouts_map_logical_to_physical():
    tiled = IndexMap(
        ("a", "b"), (floordiv(var("b"), 4), var("a"), mod(var("b"), 4)), (index(2), index(3), index(4))
    )
    x = Buffer("x", (index(3), index(8)), F32, layout=tiled)
    y = buffer("y", (3, 8), F32)
    block = Block("b", "b", (par("i", 3), par("j", 8)), (i, j), store("y", (i, j), Load("x", (i, j), F32)))
    logical = np.arange(24, dtype=np.float32).reshape(3, 8)
    packed = np.ascontiguousarray(logical.reshape(3, 2, 4).transpose(1, 0, 2))
    f = function(loop("i", 3, loop("j", 8, block)), x, y)
    np.testing.assert_array_equal(run_function(f, {"x": packed})["y"], logical)
    back = LoopFunction(
        "g",
        (),
        (y, x),
        ("x",),
        loop(
            "i",
            3,
            loop(
                "j",
                8,
                Block(
                    "b", "b", (par("i", 3), par("j", 8)), (i, j), store("x", (i, j), Load("y", (i, j), F32))
                ),
            ),
        ),
    )
    np.testing.assert_array_equal(run_function(back, {"y": logical})["x"], packed)


def test_a_layout_of_one_element_may_have_no_dimensions():
    x = Buffer("x", (index(1), index(1)), F32, layout=IndexMap(("a", "b"), (), ()))
    y = buffer("y", (1, 1), F32)
    block = Block("b", "b", (par("i", 1), par("j", 1)), (i, j), store("y", (i, j), Load("x", (i, j), F32)))
    f = function(loop("i", 1, loop("j", 1, block)), x, y)
    np.testing.assert_array_equal(run_function(f, {"x": np.float32(3).reshape(())})["y"], [[3]])


def test_a_tile_buffer_subtracts_its_origin_in_its_layout():
    # the block iterator i and the loop i are different things: the layout means the loop
    tile = Buffer("s", (index(8),), F32, LOCAL, IndexMap(("d",), (var("d") - 4 * i,), (index(4),)))
    fill = Block("fill", "s", (par("i", 8),), (4 * i + ii,), store("s", (i,), Load("x", (i,), F32)))
    use = Block("use", "y", (par("i", 8),), (4 * i + var("iu"),), store("y", (i,), Load("s", (i,), F32)))
    body = loop("i", 2, Alloc(tile, seq(loop("ii", 4, fill), loop("iu", 4, use))), PARALLEL)
    np.testing.assert_array_equal(run_function(function(body, X, Y), {"x": EIGHT})["y"], EIGHT)
    wide = Alloc(tile, seq(loop("ii", 5, fill), loop("iu", 4, use)))
    with pytest.raises(OutOfBoundsError, match=r"physical indices are \[4\] in a box of \[4\]"):
        run_function(function(loop("i", 2, wide), X, Y), {"x": EIGHT})


def test_fresh_memory_is_poison():
    s = buffer("s", (8,), F32, LOCAL)
    use = Block("use", "y", (par("i", 8),), (i,), store("y", (i,), Load("s", (i,), F32)))
    with pytest.raises(PoisonError, match=r"buffer s at index \[0\]"):
        run_function(function(Alloc(s, loop("i", 8, use)), X, Y), {"x": EIGHT})


def test_poison_may_be_copied_but_not_used():
    """A box that holds an element nobody wrote is copied; whoever computes with the element is at fault."""
    s, t = buffer("s", (8,), F32, LOCAL), buffer("t", (8,), F32, LOCAL)

    def part(name, value, count, domain=8):
        v = f"{name}_i"
        block = Block(name, name, (par("i", domain),), (var(v),), store(name, (i,), value))
        return loop(v, count, block)

    def used(count, value):
        fill, copy = part("s", Load("x", (i,), F32), 7), part("t", Load("s", (i,), F32), 8)
        return function(Alloc(s, Alloc(t, seq(fill, copy, part("y", value, count)))), X, Y)

    value = Load("t", (i,), F32)
    out = run_function(used(7, value), {"x": EIGHT}, complete=False)
    np.testing.assert_array_equal(out["y"][:7], EIGHT[:7])
    with pytest.raises(PoisonError, match=r"buffer t at index \[7\]"):
        run_function(used(8, value), {"x": EIGHT})
    with pytest.raises(PoisonError, match=r"buffer t at index \[7\]"):
        run_function(used(8, Binary("mul", value, Const(0.0, F32))), {"x": EIGHT})


def test_an_output_element_never_written_is_an_error():
    f = function(loop("i", 7, copy_block(8)), X, Y)
    with pytest.raises(PoisonError, match=r"element \[7\] of the output y is never written"):
        run_function(f, {"x": EIGHT})
    assert run_function(f, {"x": EIGHT}, complete=False)["y"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


def test_an_output_is_poison_on_entry_unless_inout():
    step = Block(
        "b", "b", (par("i", 8),), (i,), store("y", (i,), Binary("add", Load("y", (i,), F32), Const(1.0, F32)))
    )
    f = function(loop("i", 8, step, PARALLEL), Y)
    with pytest.raises(PoisonError):
        run_function(f, {"y": EIGHT.copy()})
    np.testing.assert_array_equal(run_function(f, {"y": EIGHT.copy()}, inout=["y"])["y"], EIGHT + 1)


def test_a_parallel_reduction_is_a_race():
    f = to_function(matmul(2, 2, 3, F32))

    def parallel_k(s):
        return (
            For(s.var, s.lo, s.hi, parallel_k(s.body), PARALLEL if s.var == "k" else SERIAL)
            if isinstance(s, For)
            else s
        )

    shapes = {"A": (2, 3), "B": (3, 2), "C": (2, 2)}
    ones = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    for seed in range(5):
        with pytest.raises(RaceError, match=r"buffer C: its element .* of the parallel loop k"):
            run_function(f.with_body(parallel_k(f.body)), ones, seed=seed, inout=["C"])


def test_reading_what_another_iteration_writes_is_a_race():
    block = Block("b", "b", (par("i", 7),), (i,), store("y", (i + 1,), Load("y", (i,), F32)))
    with pytest.raises(RaceError, match="buffer y"):
        run_function(function(loop("i", 7, block, PARALLEL), Y), {"y": EIGHT.copy()}, inout=["y"])
    serial = run_function(function(loop("i", 7, block), Y), {"y": EIGHT.copy()}, inout=["y"])
    assert serial["y"].tolist() == [0] * 8


def test_memory_of_the_iteration_itself_is_no_race():
    s = buffer("s", (1,), F32, LOCAL)
    fill = Block("fill", "s", (par("i", 8),), (i,), store("s", (ZERO,), Load("x", (i,), F32)))
    use = Block("use", "y", (par("i", 8),), (i,), store("y", (i,), Load("s", (ZERO,), F32)))
    f = function(loop("i", 8, Alloc(s, seq(fill, use)), PARALLEL), X, Y)
    np.testing.assert_array_equal(run_function(f, {"x": EIGHT})["y"], EIGHT)
    outside = function(Alloc(s, loop("i", 8, seq(fill, use), PARALLEL)), X, Y)
    with pytest.raises(RaceError, match="buffer s"):
        run_function(outside, {"x": EIGHT})


def test_writes_of_one_loop_may_be_read_in_the_next():
    s = buffer("s", (8,), F32)
    fill = Block("fill", "s", (par("i", 8),), (io,), store("s", (i,), Load("x", (i,), F32)))
    use = Block("use", "y", (par("i", 8),), (ii,), store("y", (i,), Load("s", (7 - i,), F32)))
    f = function(Alloc(s, seq(loop("io", 8, fill, PARALLEL), loop("ii", 8, use, PARALLEL))), X, Y)
    np.testing.assert_array_equal(run_function(f, {"x": EIGHT})["y"], EIGHT[::-1])


def test_a_repeated_reduction_instance_is_an_error():
    add = store("y", (i,), Binary("add", Load("y", (i,), F32), Load("x", (k,), F32)))
    block = Block(
        "sum",
        "sum",
        (par("i", 1), red("k", 8)),
        (i, imin(3 * io + ii, 7)),
        add,
        store("y", (i,), Const(0.0, F32)),
    )
    body = loop("i", 1, loop("io", 3, loop("ii", 3, block)))
    with pytest.raises(RepeatedInstanceError, match=r"iterators \(7,\) of stage sum ran twice for y"):
        run_function(function(body, X, buffer("y", (1,), F32)), {"x": EIGHT})


def test_init_starts_a_reduction_over_again():
    add = store("y", (i,), Binary("add", Load("y", (i,), F32), Load("x", (k,), F32)))
    block = Block("sum", "sum", (par("i", 1), red("k", 8)), (ZERO, k), add, store("y", (i,), Const(0.0, F32)))
    body = loop("io", 3, loop("k", 8, block))
    assert run_function(function(body, X, buffer("y", (1,), F32)), {"x": EIGHT})["y"][0] == 28


def test_stores_of_one_statement_are_simultaneous():
    a, b = buffer("a", (), F32), buffer("b", (), F32)
    swap = Store((Access("a", (), Load("b", (), F32)), Access("b", (), Load("a", (), F32))))
    f = LoopFunction("swap", (), (a, b), ("a", "b"), Block("s", "s", (), (), swap))
    out = run_function(f, {"a": np.array(1, np.float32), "b": np.array(2, np.float32)}, inout=["a", "b"])
    assert (float(out["a"]), float(out["b"])) == (2, 1)


def test_data_dependent_indices():
    idx = buffer("idx", (8,), I64)
    at = imin(imax(index(Opaque(Load("idx", (i,), I64))), 0), 7)
    f = function(
        loop("i", 8, Block("g", "g", (par("i", 8),), (i,), store("y", (i,), Load("x", (at,), F32)))),
        X,
        idx,
        Y,
    )
    where = np.array([3, -5, 99, 0, 1, 1, 7, 6])
    np.testing.assert_array_equal(
        run_function(f, {"x": EIGHT, "idx": where})["y"], EIGHT[np.clip(where, 0, 7)]
    )


def test_triangular_domains():
    block = Block(
        "b", "b", (par("i", 4), Iter("j", ZERO, i + 1, "par")), (i, j), store("y", (i, j), Const(1.0, F32))
    )
    out = {"y": np.zeros((4, 4), np.float32)}
    f = function(loop("i", 4, For("j", ZERO, i + 1, block)), buffer("y", (4, 4), F32))
    np.testing.assert_array_equal(run_function(f, out, complete=False)["y"], np.tri(4))
    with pytest.raises(DomainError, match=r"j = 1 lies outside of its domain \[0, 1\)"):
        run_function(
            function(loop("i", 4, loop("j", 4, block)), buffer("y", (4, 4), F32)), out, complete=False
        )


def test_if_and_unroll_keep_the_order():
    first = Block("first", "y", (par("i", 8),), (i,), store("y", (i,), Const(1.0, F32)))
    rest = Block(
        "rest",
        "y",
        (Iter("i", ZERO, index(8), "ord"),),
        (i,),
        store("y", (i,), Binary("add", Load("y", (i - 1,), F32), Load("x", (i,), F32))),
    )
    f = function(loop("i", 8, If((ge0(-i),), first, rest), UNROLL), X, Y)
    assert run_function(f, {"x": EIGHT})["y"].tolist() == [1, 2, 4, 7, 11, 16, 22, 29]


def test_instructions_by_name():
    call = Exec("double4", (Window("x", (4 * i,), (4,), "r"), Window("y", (4 * i,), (4,), "w")))

    def double4(windows, args):
        windows[1][...] = 2 * windows[0]

    f = function(loop("i", 2, call), X, Y)
    np.testing.assert_array_equal(
        run_function(f, {"x": EIGHT}, instructions={"double4": double4})["y"], 2 * EIGHT
    )
    a, b = buffer("a", (4,), F32), buffer("b", (4,), F32)
    body = loop(
        "i",
        4,
        Block(
            "d",
            "d",
            (par("i", 4),),
            (i,),
            store("b", (i,), Binary("add", Load("a", (i,), F32), Load("a", (i,), F32))),
        ),
    )
    meaning = LoopFunction("double4", (), (a, b), ("b",), body)
    np.testing.assert_array_equal(
        run_function(f, {"x": EIGHT}, instructions={"double4": meaning})["y"], 2 * EIGHT
    )
    with pytest.raises(ExecutionError, match="no semantics are given for the instruction double4"):
        run_function(f, {"x": EIGHT})


def test_undefined_operations_name_the_instance():
    block = Block("b", "b", (par("i", 8),), (i,), store("y", (i,), Cast(Cast(Load("x", (i,), F32), I8), F32)))
    with pytest.raises(UndefinedError, match=r"block b\(i=2\)"):
        run_function(function(loop("i", 8, block), X, Y), {"x": EIGHT * 100})
    div = Binary("floordiv", Const(1, I32), OfIndex(i, I32))
    block = Block("b", "b", (par("i", 8),), (i,), store("z", (i,), div))
    with pytest.raises(UndefinedError, match="by zero"):
        run_function(function(loop("i", 8, block), buffer("z", (8,), I32), out=("z",)), {})


# ---- threads ----


def reversal(*, barrier, extent=8):
    """Each block reverses its row through shared memory; thread t writes [t] and reads [extent - 1 - t]."""
    s = buffer("s", (extent,), F32, SHARED)
    b = var("b")
    bi = par("b", 2)
    fill = Block("fill", "s", (bi, par("i", extent)), (b, t), store("s", (i,), Load("x", (b, i), F32)))
    use = Block(
        "use",
        "y",
        (bi, par("i", extent)),
        (b, var("u")),
        store("y", (b, i), Load("s", (extent - 1 - i,), F32)),
    )
    one, two = loop("t", extent, fill, thread("thread.x")), loop("u", extent, use, thread("thread.x"))
    inner = seq(one, Barrier("shared"), two) if barrier else seq(one, two)
    body = loop("b", 2, Alloc(s, inner), thread("block.x"))
    return function(body, buffer("x", (2, extent), F32), buffer("y", (2, extent), F32))


def test_threads_meet_at_barriers():
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    for seed in range(5):
        np.testing.assert_array_equal(
            run_function(reversal(barrier=True), {"x": x}, seed=seed)["y"], x[:, ::-1]
        )


def test_a_missing_barrier_is_found():
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    for seed in range(5):
        with pytest.raises((RaceError, PoisonError), match="buffer s"):
            run_function(reversal(barrier=False), {"x": x}, seed=seed)


def test_barriers_inside_nested_thread_and_serial_loops():
    # two ping-pong rounds; the second barrier keeps the next round from overwriting what is still read
    tx, r = var("tx"), var("r")
    s = buffer("s", (8,), F32, SHARED)
    acc = buffer("acc", (1,), F32, LOCAL)
    zero = Block("zero", "acc", (), (), store("acc", (ZERO,), Const(0.0, F32)))
    fill = Block(
        "fill", "s", (par("r", 2), par("i", 8)), (r, tx), store("s", (i,), Load("x", (var("r"), i), F32))
    )
    add = Block(
        "add",
        "acc",
        (par("i", 8),),
        (tx,),
        store("acc", (ZERO,), Binary("add", Load("acc", (ZERO,), F32), Load("s", (7 - i,), F32))),
    )
    out = Block("out", "y", (par("i", 8),), (tx,), store("y", (i,), Load("acc", (ZERO,), F32)))

    def kernel(*last):
        rounds = loop("r", 2, seq(fill, Barrier("shared"), add, *last))
        body = loop("tx", 8, Alloc(acc, seq(zero, rounds, out)), thread("thread.x"))
        return function(Alloc(s, body), buffer("x", (2, 8), F32), Y)

    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    for seed in range(4):
        y = run_function(kernel(Barrier("shared")), {"x": x}, seed=seed)["y"]
        np.testing.assert_array_equal(y, x.sum(0)[::-1])
        with pytest.raises(RaceError, match="buffer s"):
            run_function(kernel(), {"x": x}, seed=seed)


def test_a_barrier_that_some_threads_skip_is_an_error():
    body = loop("t", 8, seq(copy_block(8, bind=t), If((ge0(3 - t),), Barrier("shared"))), thread("thread.x"))
    with pytest.raises(DivergenceError, match="does not reach the barrier"):
        run_function(function(body, X, Y), {"x": EIGHT})


def test_work_outside_of_the_thread_loops_is_done_once():
    s = buffer("s", (1,), F32, SHARED)
    once = Block("once", "s", (), (), store("s", (ZERO,), Const(3.0, F32)))
    use = Block("use", "y", (par("i", 8),), (t,), store("y", (i,), Load("s", (ZERO,), F32)))
    body = Alloc(s, seq(once, Barrier("shared"), loop("t", 8, use, thread("thread.x"))))
    f = function(loop("b", 1, body, thread("block.x")), Y)
    assert run_function(f, {})["y"].tolist() == [3] * 8


# ---- arguments ----


@pytest.mark.parametrize(
    ("arrays", "params", "message"),
    [
        ({}, {"n": 8}, "no array is given for the argument x"),
        ({"x": EIGHT}, None, "no value is given for the parameter m"),
        ({"x": EIGHT, "q": EIGHT}, {"m": 2}, "has no argument q"),
        ({"x": EIGHT.astype(np.float64)}, {"m": 2}, "elements of type float64, expected float32"),
        ({"x": EIGHT}, {"n": 7, "m": 2}, r"has the shape \(8,\), expected \(7,\)"),
        ({"x": EIGHT}, {"m": 3}, "m = 3 of f must lie in .* multiple of 2"),
        ({"x": EIGHT}, {"m": 2, "z": 1}, "has no parameter z"),
        ({"x": EIGHT}, {"m": 20}, "assumes -m \\+ n >= 0"),
    ],
)
def test_wrong_arguments(arrays, params, message):
    n, m = Param("n", 1, 100), Param("m", 2, 100, 2)
    f = function(
        loop("i", n, copy_block(n)),
        buffer("x", (n,), F32),
        buffer("y", (n,), F32),
        params=(n, m),
        assumes=(ge0(index(n) - m),),
    )
    with pytest.raises(InputError, match=message):
        run_function(f, arrays, params)


def test_arguments_that_share_memory():
    x, y = X.with_(alias="g"), Y.with_(alias="g")
    shift = Block("b", "b", (par("i", 8),), (i,), store("y", (i,), Load("x", (imin(i + 1, 7),), F32)))
    both = np.arange(8, dtype=np.float32)
    out = run_function(function(loop("i", 8, shift), x, y), {"x": both, "y": both})["y"]
    assert out is both
    assert both.tolist() == [1, 2, 3, 4, 5, 6, 7, 7]
    back = Block("b", "b", (par("i", 8),), (7 - i,), store("y", (i,), Load("x", (imin(i + 1, 7),), F32)))
    both = np.arange(8, dtype=np.float32)
    assert run_function(function(loop("i", 8, back), x, y), {"x": both, "y": both})["y"].tolist() == [7] * 8
    with pytest.raises(InputError, match="x and y share memory, but are in no common alias group"):
        run_function(function(loop("i", 8, shift), X, Y), {"x": both, "y": both})
    memory = np.arange(9, dtype=np.float32)
    with pytest.raises(InputError, match="x and y overlap in part"):
        run_function(function(loop("i", 8, shift), x, y), {"x": memory[:8], "y": memory[1:].view()[::1]})


def test_writing_an_input_is_an_error():
    block = Block("b", "b", (par("i", 8),), (i,), store("x", (i,), Const(1.0, F32)))
    with pytest.raises(
        ExecutionError, match="x is written, but it is an argument that is not among the outputs"
    ):
        run_function(function(loop("i", 8, block), X, Y), {"x": EIGHT})


def test_types_must_agree():
    block = Block("b", "b", (par("i", 8),), (i,), store("y", (i,), Const(1.0, F64)))
    with pytest.raises(ExecutionError, match="value of type f64 is stored to y of type f32"):
        run_function(function(loop("i", 8, block), Y), {})

"""Products by matrix units: right on the interpreter, compiled by NVRTC, refused where no warp does them."""

import numpy as np
import pytest
from tests.plans import asked_of

from devices import LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.codegen import emit_kernels
from tilewright.cost import Machine, WarpTiles
from tilewright.ir import (
    F16,
    F32,
    ZERO,
    Alloc,
    Along,
    Barrier,
    Const,
    Exec,
    For,
    If,
    IndexMap,
    LoopFunction,
    Window,
    buffer,
    dtype_of,
    floordiv,
    ge0,
    index,
    locate,
    mod,
    run_function,
    seq,
    store,
    thread,
    var,
)
from tilewright.lower import insert_barriers
from tilewright.plan import build_unit, plan_unit
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, assert_close
from tilewright.target import A100, INTERPRETED, V100

KINDS = [
    ("mma_m16n8k16_f16", "f16", "f16", "f32", 16),
    ("mma_m16n8k16_bf16", "bf16", "bf16", "f32", 16),
    ("mma_m16n8k8_tf32", "f32", "f32", "f32", 8),
    ("mma_m16n8k32_i8", "i8", "i8", "i32", 32),
    ("mma_m16n8k32_u8i8", "u8", "i8", "i32", 32),
    ("mma_m16n8k32_i8u8", "i8", "u8", "i32", 32),
    ("mma_m16n8k32_u8", "u8", "u8", "i32", 32),
]


def scheduled(instr, first, second, total, depth, m=16, n=8):
    """A block of 32 threads for each 16 x 8 results: sums in registers, both factors in shared memory."""
    k = 2 * depth
    a, b = lang.placeholder((m, k), first, name="A"), lang.placeholder((k, n), second, name="B")
    r = lang.reduce_axis(k, "k")
    factor = lang.tf32 if first == "f32" else (lambda e: lang.cast(e, total))
    c = lang.compute((m, n), lambda i, j: lang.sum(factor(a[i, r]) * factor(b[r, j]), axis=r), name="C")
    s = Schedule(lang.program([a, b], [c], name="product"))
    s = s.split("i", 16).split("j", 8).split("k", depth).reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i")
    s = s.bind("i_o", "block.y").bind("j_o", "block.x")
    s = s.cache("C", "j_o", mode="accumulate", scope="register", name="acc")
    s = s.cache("A", "k_o", scope="shared", name="As").cache("B", "k_o", scope="shared", name="Bs")
    for rows, columns, terms in (("i_i", "j_i", ("k_i",)), ("acc_init_i", "acc_init_j", ()),
                                 ("acc_out_i", "acc_out_j", ())):  # fmt: skip
        s = s.split(rows, 8, names=[f"{rows}_r", f"{rows}_g"])
        s = s.split(columns, 2, names=[f"{columns}_l", f"{columns}_c"])
        s = s.reorder(f"{rows}_g", f"{columns}_l", f"{rows}_r", f"{columns}_c", *terms)
        s = s.fuse(f"{rows}_g", f"{columns}_l", names=[f"{rows}_t"])
    return s


def bound(kind, **sizes):
    s = scheduled(*kind, **sizes).bind(("i_i_t", "acc_init_i_t", "acc_out_i_t"), "thread.x")
    return s.tensorize("i_i_r", kind[0]).cooperative_copy("As", (32,)).cooperative_copy("Bs", (32,))


def data(kind, m=16, n=8):
    _, first, second, _total, depth = kind
    rng = np.random.default_rng(1)
    low = {"u8": 0}
    shapes = (("A", first, (m, 2 * depth)), ("B", second, (2 * depth, n)))
    given = {x: rng.integers(low.get(t, -3), 4, shape).astype(dtype_of(t).numpy) for x, t, shape in shapes}
    return given, given["A"].astype(np.float64) @ given["B"].astype(np.float64)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_products(kind):
    s = bound(kind)
    given, want = data(kind)
    placed = insert_barriers(s.func)
    np.testing.assert_array_equal(run_function(placed, given, instructions=INTERPRETED)["C"], want)
    text = checked_by_nvrtc(s.func, registers=64)
    assert f"tw_{kind[0]}" in text and "mma.sync.aligned" in text
    # all threads come to it
    assert "if (" not in text.partition("__global__")[2]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], KINDS[4]], ids=lambda kind: kind[0])
def test_where_no_warp_does_them_each_thread_does_its_share(kind, language):
    s = bound(kind, m=32, n=16)
    given, want = data(kind, m=32, n=16)
    np.testing.assert_array_equal(on_device(s.func, language)(given)["C"], want)


@pytest.mark.parametrize("language", LANGUAGES[-1:])
def test_factors_are_rounded_to_tf32(language):
    s = bound(KINDS[2])
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((16, 16), np.float32), rng.standard_normal((16, 8), np.float32)
    got = on_device(s.func, language)({"A": a, "B": b})["C"]

    def rounded(x):
        bits = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return bits.view(np.float32).astype(np.float64)

    assert_close(got, rounded(a) @ rounded(b), magnitude=np.abs(a) @ np.abs(b), terms=16)
    # and by no more than what is said
    assert (np.abs(rounded(a) - a) <= np.abs(a) * 2.0**-11).all()


def test_a_warp_sees_what_its_threads_copied():
    """Each thread names two columns of the second factor, and reads others': a barrier stands before."""
    s = scheduled(*KINDS[0]).bind(("i_i_t", "acc_init_i_t", "acc_out_i_t"), "thread.x")
    s = s.tensorize("i_i_r", KINDS[0][0])
    placed = insert_barriers(s.func)
    assert sum(1 for _ in locate(placed.body, Barrier)) == 2


def test_a_warp_is_asked_for():
    s = scheduled(*KINDS[0]).bind(("i_i_t", "acc_init_i_t", "acc_out_i_t"), "thread.y")
    with pytest.raises(ScheduleError, match="done by the threads of a warp together"):
        kernel_source(s.tensorize("i_i_r", KINDS[0][0]).func, "cuda")


def test_devices_list_what_they_have():
    products = {kind[0] for kind in KINDS}
    assert products == {row.name for row in A100.matrix_units}
    assert not V100.matrix_units
    assert "warp_add_f32" in {row.name for row in V100.instructions}


def by_hand(around=lambda s: s, layout=None, scope="global", row=None):
    """An instruction of a warp on three arguments, ``a`` perhaps somewhere else, or other rows of it."""
    lane = var("t")
    places = {
        "c": ((floordiv(lane, 4), mod(lane, 4) * 2), (9, 2), (Along(0, 2, 8), Along(1, 2))),
        "a": ((floordiv(lane, 4) if row is None else row, ZERO), (9, 16), (Along(0, 2, 8), Along(1, 16))),
        "b": ((ZERO, mod(lane, 4) * 2), (16, 2), (Along(0, 16), Along(1, 2))),
    }
    windows = tuple(
        Window(name, at, extents, "rw" if name == "c" else "r", axes)
        for name, (at, extents, axes) in places.items()
    )
    body = For("t", ZERO, index(32), around(Exec("mma_m16n8k16_f16", windows)), thread("thread.x"))
    a = buffer("a", (16, 16), F16, scope).with_(layout=layout)
    whole = body if scope == "global" else Alloc(a, body)
    given = [buffer("b", (16, 8), F16), buffer("c", (16, 8), F32)] + ([a] if scope == "global" else [])
    block = For("g", ZERO, index(1), whole, thread("block.x"))
    return LoopFunction("f", (), tuple(given), ("c",), block, inouts=("c",))


def test_what_a_unit_cannot_take():
    assert "tw_mma_m16n8k16_f16_wa(" in emit_kernels(by_hand(), "cuda").text
    some = lambda s: If((ge0(var("t") - 1),), s)  # noqa: E731
    often = lambda s: For("o", ZERO, var("t") + 1, s)  # noqa: E731
    for inside in (some, often):
        with pytest.raises(ScheduleError, match="done by the threads of a warp together"):
            emit_kernels(by_hand(inside), "cuda")
    with pytest.raises(ScheduleError, match="takes 'a' from shared or global memory"):
        emit_kernels(by_hand(scope="local"), "cuda")
    thirds = IndexMap(("i", "j"), (floordiv(var("i"), 3), var("j")), (index(7), index(16)))
    halves = IndexMap(
        ("i", "j"), (mod(var("i"), 8), var("j"), floordiv(var("i"), 8)), (index(8), index(16), index(2))
    )
    for uneven in ({"layout": thirds}, {"layout": halves}, {"row": ZERO}):
        with pytest.raises(ScheduleError, match="elements of 'a' do not lie evenly"):
            emit_kernels(by_hand(**uneven), "cuda")


@pytest.mark.parametrize("threads", [32, 16])
def test_a_reduction_of_a_warp_stands_outside_of_its_threads(threads):
    windows = Window("c", (ZERO,), (1,), "rw", ()), Window("a", (ZERO,), (32,), "r", (Along(0, 32),))
    call = Exec("warp_add_f32", windows)
    cleared = For("t", ZERO, index(threads), store("d", (var("t"),), Const(0.0, F32)), thread("thread.x"))
    inside = For("t", ZERO, index(threads), call, thread("thread.x"))
    body = inside if threads == 32 else seq(cleared, call)
    given = buffer("a", (32,), F32), buffer("c", (1,), F32), buffer("d", (threads,), F32)
    block = For("g", ZERO, index(1), body, thread("block.x"))
    func = LoopFunction("f", (), given, ("c", "d"), block, inouts=("c",))
    with pytest.raises(ScheduleError, match="is done by a whole warp: it stands outside of loops"):
        emit_kernels(func, "cuda")


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS[:4], ids=lambda kind: kind[0])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_fragments_of_a_tile_come_first(kind, turned):
    """Each fragment of a warp's tile is read once; by rows of 16 bytes where they lie so, or turned."""
    name, first, second, total, depth = kind
    m, n, k = 32, 16, 4 * depth
    a = lang.placeholder((m, k), first, name="A")
    b = lang.placeholder((n, k) if turned else (k, n), second, name="B")
    r = lang.reduce_axis(k, "k")
    factor = lang.tf32 if first == "f32" else (lambda e: lang.cast(e, total))
    c = lang.compute(
        (m, n),
        lambda i, j: lang.sum(factor(a[i, r]) * factor(b[j, r] if turned else b[r, j]), axis=r),
        name="C",
    )
    program = lang.program([a, b], [c], name="product")
    plan = plan_unit(program, Machine(A100, 1)).plan
    tiles = WarpTiles(32, 16, depth, 32, 16, 2)
    s = build_unit(program, asked_of(plan, tiles), Machine(A100, 1))
    text = checked_by_nvrtc(s.func, registers=128)
    body = text.partition("__global__")[2]
    bytes_of_second = dtype_of(second).bytes
    way = "rows" if turned else "turned" if bytes_of_second == 2 else "elements"
    assert body.count(f"tw_{name}_a_rows(") == 1 and body.count(f"tw_{name}_b_{way}(") == 1
    assert body.count(f"tw_{name}_fragments(") == 1 and "_wa(" not in body
    assert f".x2{'.trans' if way == 'turned' else ''}.shared" in text or way == "elements"
    rng = np.random.default_rng(7)
    given = {
        x.name: rng.integers(-3, 4, [e.as_int() for e in x.shape]).astype(x.dtype.numpy)
        for x in program.inputs
    }
    wide = {key: array.astype(np.float64) for key, array in given.items()}
    want = wide["A"] @ (wide["B"].T if turned else wide["B"])
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(s.func, language)(given)["C"], want)
